"""Attention in linear time against attention with the whole matrix."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from oracles import sphere_mesh
from torch import nn

from manifoldrf import (
    DiffusionKernel,
    FarQueryWarning,
    HeatKernel,
    ManifoldRandomFeatures,
    ManifoldWarning,
    Network,
    Sphere,
    knn_graph,
)
from manifoldrf.torch import AttentionState, ManifoldAttention, linear_attention

DOUBLE = torch.float64


def draw(*shape, seed=0, dtype=DOUBLE):
    """Numbers in [0, 1), the same for the same seed and shape."""
    return torch.as_tensor(np.random.default_rng([seed, *shape]).random(shape)).to(dtype)


def explicit(kernel, v, weights=None, *, causal=False):
    """Attention by its definition, with the matrix."""
    seen = kernel if weights is None else kernel * weights[..., None, :]
    seen = seen.tril() if causal else seen
    return (seen @ v) / seen.sum(dim=-1, keepdim=True)


def close(found, wanted, tolerance=1e-10):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def kernel_of(features, positions):
    return torch.as_tensor(features.kernel_matrix(positions.numpy()))


def places(n, seed=1):
    return torch.as_tensor(Sphere().sample(n, seed=seed))


def plain(features, dim, **options):
    """The kernel average alone, in double precision."""
    return ManifoldAttention(features, dim, projections=False, **options).to(DOUBLE)


@pytest.fixture(scope="module")
def features():
    return ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, random_state=0).fit(Sphere())


# Attention with given features


@pytest.mark.parametrize("length", [1, 128, 3 * 128 + 5])  # causal sums are taken in blocks of 128
@pytest.mark.parametrize("causal", [False, True])
def test_equals_explicit_attention_with_batches_that_broadcast(length, causal):
    phi_q, phi_k, v = draw(3, 1, length, 6), draw(2, length, 6), draw(1, 2, length, 4)
    weights = draw(2, length, seed=2) > 0.3
    weights[:, 0] = True  # else the first causal queries see nothing
    kernel = phi_q @ phi_k.transpose(-1, -2)
    close(linear_attention(phi_q, phi_k, v, causal), explicit(kernel, v, causal=causal))
    wanted = explicit(kernel, v, weights.to(DOUBLE), causal=causal)
    for form in (weights, weights.to(DOUBLE)):
        close(linear_attention(phi_q, phi_k, v, causal, weights=form), wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients(causal):
    parts = [draw(*shape, seed=seed) for seed, shape in enumerate(((2, 9, 3), (9, 3), (2, 9, 2), (2, 9)))]
    parts[3] += 0.5

    def attend(phi_q, phi_k, v, weights):
        return linear_attention(phi_q, phi_k, v, causal, weights=weights)

    assert torch.autograd.gradcheck(attend, [part.requires_grad_() for part in parts])


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_nothing_is_empty_and_finite(causal):
    phi, v = draw(6, 4), draw(6, 2, seed=1)
    far = phi.clone()
    far[2] = 1e-30 * torch.finfo(DOUBLE).tiny  # underflows against every key
    parts = [part.clone().requires_grad_() for part in (far, phi, v)]
    found = linear_attention(*parts, causal)
    assert (found[2] == 0).all()
    found.square().sum().backward()
    assert all(part.grad.isfinite().all() for part in parts)
    hidden = torch.zeros(6, dtype=torch.bool)
    assert (linear_attention(phi, phi, v, causal, weights=hidden) == 0).all()
    far[2, 0] = torch.nan
    assert linear_attention(far, phi, v, causal)[2].isnan().all()


def test_token_by_token_equals_causal_attention():
    phi_q, phi_k, v = (draw(2, 140, size, seed=seed) for seed, size in enumerate((4, 4, 3)))
    phi_q[:, 5] = 0.0
    state = AttentionState()
    rows = [state.step(phi_q[:, i], phi_k[:, i], v[:, i]) for i in range(140)]
    close(torch.stack(rows, dim=1), linear_attention(phi_q, phi_k, v, causal=True))
    assert (state.sums.shape, state.mass.shape, state.n_tokens) == ((2, 4, 3), (2, 4), 140)
    with pytest.raises(ValueError, match="`phi_k and v` must be of the shapes of the previous token"):
        state.step(phi_q[0, 0], phi_k[0, 0], v[0, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cast", [False, True])
def test_sums_of_half_precision_are_single(dtype, cast):
    """Only the last rounding is to be seen: in single precision such sums are off by at most 1e-4."""
    phi, v = (1 + draw(2000, c) for c in (8, 3))
    phi, v = phi.to(dtype), v.to(dtype)
    wanted = linear_attention(phi.double(), phi.double(), v.double(), causal=True)
    with torch.autocast("cpu", dtype=dtype, enabled=cast):
        found = linear_attention(
            *((part.float() for part in (phi, phi, v)) if cast else (phi, phi, v)), causal=True
        )
    assert found.dtype == dtype
    assert (found.double() - wanted).abs().max() <= 1.01 * torch.finfo(dtype).eps / 2 * wanted.abs().max()


# The module


@pytest.mark.parametrize("causal", [False, True])
def test_the_module_is_the_normalised_kernel(features, causal):
    positions, tokens = places(150), draw(2, 150, 4)
    mask = draw(150) > 0.3
    mask[0] = True
    attend, kernel = plain(features, 4, causal=causal, n_heads=2), kernel_of(features, positions)
    close(attend(positions, tokens), explicit(kernel, tokens, causal=causal))
    wanted = explicit(kernel, tokens, mask.to(DOUBLE), causal=causal)
    close(attend(positions, tokens, mask), wanted)
    known = attend.precompute(positions)
    close(attend(known, tokens, mask.to(DOUBLE)), wanted)
    some = torch.tensor([3, 1, 8])
    close(attend(known.take(some), tokens[:, some]), attend(positions[some], tokens[:, some]))
    single = ManifoldAttention(features, 4, projections=False, causal=causal)(positions, tokens.float())
    # Each feature is rounded once, sums of 150 and 128 positive terms follow, above and below.
    assert (single - attend(positions, tokens)).abs().max() < 2 * (150 + 128 + 4) * torch.finfo(torch.float32).eps


def test_each_head_has_its_kernel_and_positions_have_batches(features):
    other = ManifoldRandomFeatures(HeatKernel(0.5), n_features=50, random_state=0).fit(Sphere())
    positions, tokens = torch.stack([places(40), places(40, seed=2)]), draw(3, 2, 40, 6)
    found = plain([features, other], 6)(positions, tokens)
    for k in range(2):
        for each, part in ((features, slice(3)), (other, slice(3, 6))):
            close(found[:, k, :, part], explicit(kernel_of(each, positions[k]), tokens[:, k, :, part]))


@pytest.mark.parametrize("causal", [False, True])
def test_content_multiplies_the_kernel_and_layers_stand_before_and_after(features, causal):
    positions, tokens = places(60), draw(2, 60, 4)
    attend = ManifoldAttention(features, 4, n_heads=2, content_features=3, causal=causal).to(DOUBLE)
    kernel, values = kernel_of(features, positions), attend.value(tokens)
    query, key = (nn.functional.softplus(layer(tokens)) for layer in (attend.query, attend.key))
    heads = []
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        product = kernel * (query[..., part] @ key[..., part].transpose(-1, -2))
        heads.append(explicit(product, values[..., 2 * head : 2 * head + 2], causal=causal))
    close(attend(positions, tokens), attend.output(torch.cat(heads, dim=-1)))
    parts = places(5).requires_grad_(), draw(5, 4).requires_grad_()
    assert torch.autograd.gradcheck(attend, parts)


@pytest.mark.parametrize("options", [{}, {"causal": True, "content_features": 2}])
def test_half_precision_of_the_module(features, options):
    """The module has two layers, each with rounded inputs, weights and results, and the means: seven roundings."""
    generator = torch.Generator().manual_seed(0)
    attend = ManifoldAttention(features, 4, n_heads=2, generator=generator, **options)
    tokens = draw(300, 4, dtype=torch.float32)
    wanted = attend(places(300), tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = attend(places(300), tokens)
    half = copy.deepcopy(attend).to(torch.bfloat16)(places(300), tokens.to(torch.bfloat16))
    for found in (cast, half):
        assert found.dtype == torch.bfloat16
        bound = 2 * 7 * torch.finfo(torch.bfloat16).eps / 2 * wanted.abs().max()
        assert (found.float() - wanted).abs().max() <= bound


@pytest.mark.parametrize("space", ["mesh", "graph", "network"])
def test_gradients_to_positions_by_every_kind_of_features(space):
    cloud = Sphere().grid(300)
    options = {"graph": knn_graph(cloud), "n_features": 40, "random_state": 0}
    if space == "network":
        options |= {"field": Network(epochs=20, batch=64, hidden=(16,))}
    kernel = HeatKernel(0.2) if space == "mesh" else DiffusionKernel(10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)  # of a short training
        if space == "mesh":
            model = ManifoldRandomFeatures(kernel, n_features=100, random_state=0).fit(sphere_mesh(400))
        else:
            model = ManifoldRandomFeatures(kernel, **options).fit(cloud)
    attend, points, tokens = plain(model, 2), 0.99 * places(5), draw(5, 2)
    wanted = explicit(kernel_of(model, points), tokens)
    moved = points.clone().requires_grad_()
    found = attend(moved, tokens)
    close(found.detach(), wanted)
    (gradient,) = torch.autograd.grad(found[0, 0], moved)
    step = 1e-4 if space == "network" else 1e-6  # a network computes in single precision
    for axis in range(3):
        shift = torch.zeros(5, 3, dtype=DOUBLE)
        shift[0, axis] = step
        ends = [attend(points + sign * shift, tokens)[0, 0] for sign in (1, -1)]
        assert abs(gradient[0, axis] - (ends[0] - ends[1]) / (2 * step)) < (1e-2 if space == "network" else 1e-4)


def test_far_tokens_take_up_nothing_and_have_finite_gradients(features):
    positions, tokens = places(10), draw(10, 2).requires_grad_()
    positions[3] = torch.tensor([0.0, 0.0, 5.0])
    with pytest.warns(FarQueryWarning, match="1 of 10 points are away"):
        found = plain(features, 2)(positions, tokens)
    assert (found[3] == 0).all()
    moved = positions.clone().requires_grad_()
    found = plain(features, 2)(moved, tokens)
    found.square().sum().backward()
    assert moved.grad.isfinite().all()


def test_modules_are_copied_stored_and_drawn_by_a_generator(features):
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    first, second, third = (ManifoldAttention(features, 4, content_features=2, generator=g) for g in generators)
    at, tokens = places(20), draw(20, 4, dtype=torch.float32)
    wanted = first(at, tokens)
    assert not torch.equal(third(at, tokens), wanted)
    third.load_state_dict(first.state_dict())
    for again in (second, third, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert torch.equal(again(at, tokens), wanted)
    exported = torch.export.export(first.frozen(at), (tokens, torch.ones(20))).module()
    close(exported(tokens, torch.ones(20)), wanted, 1e-6)


# What all wrappers treat alike
