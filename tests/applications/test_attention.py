"""Attention in linear time against attention with the whole matrix."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from oracles import sphere_mesh
from sklearn.kernel_approximation import RBFSampler
from torch import nn

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FarQueryWarning,
    FeatureWarning,
    HeatKernel,
    ManifoldRandomFeatures,
    MobiusStrip,
    Sphere,
    knn_graph,
)
from manifoldrf.applications import attention as _attention
from manifoldrf.applications import positions as _positions
from manifoldrf.applications.attention import AttentionState, ManifoldAttention, PositionFeatures, linear_attention

DOUBLE = torch.float64


def draw(*shape, seed=0, dtype=DOUBLE, device="cpu"):
    """Numbers in [0, 1), the same for the same seed and shape."""
    return torch.as_tensor(np.random.default_rng([seed, *shape]).random(shape)).to(device, dtype)


def explicit(kernel, v, weights=None, *, causal=False):
    """Attention by its definition, with the matrix."""
    seen = kernel if weights is None else kernel * weights[..., None, :]
    seen = seen.tril() if causal else seen
    return (seen @ v) / seen.sum(dim=-1, keepdim=True)


def close(found, wanted, tolerance=1e-10):
    """Equal up to rounding, and on one device."""
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def kernel_of(features, positions):
    """The kernel matrix between positions, where they are."""
    return torch.as_tensor(features.kernel_matrix(positions.cpu().numpy()), device=positions.device)


@pytest.fixture(scope="module")
def features():
    return ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, random_state=0).fit(Sphere())


@pytest.fixture(scope="module")
def learned():
    """Features of a network, hardly trained: the tests need its derivatives, not its accuracy."""
    model = ManifoldRandomFeatures(
        DiffusionKernel(10.0),
        n_features=30,
        field="mlp",
        graph=knn_graph(Sphere().grid(300)),
        field_options={"epochs": 2, "hidden": 16},
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)
        return model.fit(Sphere().grid(300))


@pytest.fixture(scope="module")
def strip():
    """100 anchors for 400 tokens, with a kernel so short that most features are zero."""
    tokens = MobiusStrip().sample(400, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)
        model = ManifoldRandomFeatures(
            DiffusionKernel(4.0), n_features=100, graph=knn_graph(tokens), random_state=0
        )
        return model.fit(tokens)


def places(n, seed=1, device="cpu"):
    return torch.as_tensor(Sphere().sample(n, seed=seed), device=device)


def plain(features, dim, device="cpu", **options):
    """The kernel average alone, in double precision."""
    return ManifoldAttention(features, dim, projections=False, **options).to(device, DOUBLE)


class TestLinearAttention:
    def test_equals_explicit_attention_with_batch_dimensions_that_broadcast(self, device):
        phi_q, phi_k, v = (draw(*shape, device=device) for shape in ((3, 1, 7, 5), (2, 9, 5), (1, 2, 9, 4)))
        found = linear_attention(phi_q, phi_k, v)
        assert found.shape == (3, 2, 7, 4)
        close(found, explicit(phi_q @ phi_k.transpose(-1, -2), v))

    @pytest.mark.parametrize("length", [1, 127, 128, 129, 3 * 128 + 5])
    @pytest.mark.parametrize("batch", [(), (2, 3)])
    def test_causal_equals_masked_explicit_attention_around_the_ends_of_blocks(self, length, batch, device):
        assert _attention.CHUNK == 128
        shapes = (*batch, length, 6), (length, 6), (*batch, length, 3)
        phi_q, phi_k, v = (draw(*shape, seed=seed, device=device) for seed, shape in enumerate(shapes))
        found = linear_attention(phi_q, phi_k, v, causal=True)
        close(found, explicit(phi_q @ phi_k.transpose(-1, -2), v, causal=True))

    @pytest.mark.parametrize("causal", [False, True])
    def test_single_precision_is_off_by_its_rounding_only(self, causal):
        """Sums of n positive products are off by at most (n + 2) eps; there are L m of them above and below."""
        phi, v = draw(300, 8), draw(300, 2, seed=1)
        found = linear_attention(phi.float(), phi.float(), v.float(), causal)
        assert found.dtype == torch.float32
        bound = 2 * (300 * 8 + 4) * torch.finfo(torch.float32).eps  # values are positive and at most 1
        assert (found.double() - linear_attention(phi, phi, v, causal)).abs().max() < bound

    @pytest.mark.parametrize("causal", [False, True])
    def test_weights_of_zero_leave_tokens_out(self, causal, device):
        phi, v = draw(200, 5, device=device), draw(200, 3, seed=1, device=device)
        weights = (draw(2, 200, seed=2, device=device) > 0.5).to(DOUBLE)
        weights[:, 0] = 1.0  # else the first causal queries see nothing
        found = linear_attention(phi, phi, v, causal, weights=weights)
        close(found, explicit(phi @ phi.T, v, weights, causal=causal))
        kept = weights[0].bool()
        rows = linear_attention(phi[kept], phi[kept], v[kept], causal)
        close(found[0][kept], rows)

    def test_the_matrix_is_never_formed(self):
        """200,000 tokens: the matrix would take 320 GB."""
        phi, v = draw(200_000, 2), torch.ones(200_000, 1, dtype=DOUBLE)
        close(linear_attention(phi, phi, v), v)
        close(linear_attention(phi, phi, v, causal=True), v)

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("empty", ["zero", "mean"])
    def test_gradients(self, causal, empty, monkeypatch, device):
        monkeypatch.setattr(_attention, "CHUNK", 4)  # three blocks
        shapes = (2, 9, 3), (9, 3), (2, 9, 2), (2, 9)
        parts = [draw(*shape, seed=seed, device=device) for seed, shape in enumerate(shapes)]
        parts[3] += 0.5
        for part in parts:
            part.requires_grad_()

        def attend(phi_q, phi_k, v, weights):
            return linear_attention(phi_q, phi_k, v, causal, weights=weights, empty=empty)

        assert torch.autograd.gradcheck(attend, parts)

    def test_sparse_features_give_the_same_with_gradients_to_values(self, device):
        phi_q, phi_k = draw(12, 6, device=device), draw(9, 6, seed=1, device=device)
        phi_q[phi_q < 0.4], phi_k[phi_k < 0.4] = 0.0, 0.0
        shapes = (2, 9, 3), (2, 9)
        v, weights = (draw(*shape, seed=2, device=device).requires_grad_() for shape in shapes)
        rows = [_csr(part) for part in (phi_q, phi_k)]

        def attend(v, weights):
            return linear_attention(*rows, v, weights=weights, empty="mean")

        close(attend(v, weights), linear_attention(phi_q, phi_k, v, weights=weights, empty="mean"))
        close(linear_attention(*rows, v), linear_attention(phi_q, phi_k, v))
        assert torch.autograd.gradcheck(attend, (v, weights))

    @pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("size", [0.0, 1e-30])
    def test_a_query_that_sees_nothing_is_empty_and_finite(self, dtype, causal, size):
        phi, v = draw(6, 4, dtype=dtype), draw(6, 2, seed=1, dtype=dtype)
        far = phi.clone()
        far[2] = size * torch.finfo(dtype).tiny  # underflows against every key
        parts = [part.clone().requires_grad_() for part in (far, phi, v)]
        found = linear_attention(*parts, causal)
        assert (found[2] == 0).all()
        found.square().sum().backward()
        assert all(part.grad.isfinite().all() for part in parts)
        assert (parts[0].grad[2] == 0).all()
        mean = linear_attention(far, phi, v, causal, empty="mean")
        close(mean[2], (v[:3] if causal else v).mean(dim=0), 1e-6)
        close(mean[3:], found[3:].detach(), 1e-6)

    def test_with_all_keys_masked_everything_is_zero(self):
        phi, v = draw(4, 3), draw(4, 2)
        for empty in ("zero", "mean"):
            assert (linear_attention(phi, phi, v, weights=torch.zeros(4, dtype=DOUBLE), empty=empty) == 0).all()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"phi_q": np.ones((3, 2))}, "`phi_q` must be a tensor of .* or torch.float16. Got ndarray"),
            (
                {"v": torch.ones(4, 1, dtype=torch.int64)},
                "`v` must be a tensor of .* or torch.float16. Got torch.int64",
            ),
            ({"v": torch.ones(4)}, "`v` must be a tensor of at least 2 dimension"),
            ({"v": torch.ones(4, 1)}, "`v` must be of torch.float64, as `phi_q` is. Got torch.float32"),
            ({"phi_k": draw(4, 5)}, r"`phi_k` must be of shape \(..., S, 2\)"),
            ({"v": draw(5, 1)}, r"`v` must be of shape \(..., 4, d\), one row per key. Got shape \(5, 1\)"),
            ({"causal": True}, r"`phi_q` must be of shape \(..., 4, m\): causal"),
            ({"causal": 1}, "`causal` must be True or False"),
            ({"phi_q": draw(3, 3, 2), "v": draw(2, 4, 1)}, "leading dimensions that broadcast"),
            ({"empty": "nan"}, "`empty` must be one of 'zero', 'mean'"),
            ({"weights": draw(3)}, r"`weights` must be of shape \(..., 4\), one per key"),
            (
                {"weights": torch.ones(4, dtype=torch.bool)},
                "`weights` must be of torch.float64, as `v` is. Got torch.bool",
            ),
        ],
    )
    def test_bad_arguments(self, changes, message):
        given = {"phi_q": draw(3, 2), "phi_k": draw(4, 2), "v": draw(4, 1)} | changes
        with pytest.raises((ValueError, TypeError), match=message):
            linear_attention(**given)

    def test_bad_sparse_arguments(self):
        phi, v = draw(4, 2), draw(4, 1)
        with pytest.raises(ValueError, match="`phi_k` must be sparse, as `phi_q` is"):
            linear_attention(_csr(phi), phi, v)
        with pytest.raises(ValueError, match="`causal` must be False for sparse features"):
            linear_attention(_csr(phi), _csr(phi), v, causal=True)
        with pytest.raises(ValueError, match="`v` must be a dense tensor"):
            linear_attention(_csr(phi), _csr(phi), _csr(v))


def _csr(dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dense.to_sparse_csr()


class TestState:
    @pytest.mark.parametrize("empty", ["zero", "mean"])
    def test_token_by_token_equals_causal_attention(self, empty, device):
        phi_q, phi_k, v = (draw(2, 140, size, seed=seed, device=device) for seed, size in enumerate((4, 4, 3)))
        phi_q[:, 5] = 0.0
        state = AttentionState(empty=empty)
        rows = [state.step(phi_q[:, i], phi_k[:, i], v[:, i]) for i in range(140)]
        close(torch.stack(rows, dim=1), linear_attention(phi_q, phi_k, v, causal=True, empty=empty))
        assert (state.sums.shape, state.mass.shape, state.n_tokens) == ((2, 4, 3), (2, 4), 140)

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="`empty` must be one of"):
            AttentionState(empty="one")
        with pytest.raises(ValueError, match=r"`phi_k` must be of shape \(..., 2\), as `phi_q` is"):
            AttentionState().step(draw(2), draw(3), draw(1))


class TestKernelAverage:
    """Without projections the module is the normalised kernel of its features."""

    @pytest.mark.parametrize("causal", [False, True])
    def test_equals_explicit_attention_with_the_kernel_matrix(self, features, causal, device):
        positions, tokens = places(150, device=device), draw(2, 150, 4, device=device)
        kernel = kernel_of(features, positions)
        mask = draw(150, device=device) > 0.3
        mask[0] = True
        attend = plain(features, 4, device, causal=causal, n_heads=2)
        close(attend(positions, tokens), explicit(kernel, tokens, causal=causal))
        found = attend(positions, tokens, mask)
        close(found, explicit(kernel, tokens, mask.to(DOUBLE), causal=causal))

    def test_single_precision_is_off_by_its_rounding_only(self, features):
        positions, tokens = places(150), draw(150, 4)
        wanted = plain(features, 4)(positions, tokens)
        found = ManifoldAttention(features, 4, projections=False)(positions, tokens.float())
        assert found.dtype == torch.float32
        # Each feature is rounded once, sums of 150 and 128 positive terms follow, above and below.
        assert (found - wanted).abs().max() < 2 * (150 + 128 + 4) * torch.finfo(torch.float32).eps

    def test_positions_have_batches_too(self, features):
        positions, tokens = torch.stack([places(20), places(20, seed=2)]), draw(3, 2, 20, 2)
        attend = plain(features, 2)
        for k in range(2):
            close(attend(positions, tokens)[:, k], attend(positions[k], tokens[:, k]))

    def test_one_kernel_for_each_head(self, features):
        other = ManifoldRandomFeatures(HeatKernel(0.5), n_features=50, random_state=0).fit(Sphere())
        positions, tokens = places(40), draw(40, 6)
        attend = plain([features, other], 6)
        assert attend.n_heads == 2
        wanted = [
            explicit(torch.as_tensor(each.kernel_matrix(positions.numpy())), part)
            for each, part in zip((features, other), (tokens[:, :3], tokens[:, 3:]), strict=True)
        ]
        close(attend(positions, tokens), torch.cat(wanted, dim=-1))

    def test_constants_are_reproduced(self, features):
        close(plain(features, 3)(places(50), torch.ones(50, 3, dtype=DOUBLE)), torch.ones(50, 3, dtype=DOUBLE))

    @pytest.mark.parametrize("content", [0, 3])
    def test_the_order_of_tokens_does_not_matter(self, features, content):
        positions, tokens = places(50), draw(50, 4)
        attend = ManifoldAttention(features, 4, n_heads=2, content_features=content).to(DOUBLE)
        order = torch.as_tensor(np.random.default_rng(0).permutation(50))
        close(attend(positions[order], tokens[order]), attend(positions, tokens)[order])

    def test_features_once_computed_give_the_same(self, features):
        positions, tokens = places(30), draw(30, 4)
        attend = plain(features, 4)
        known = attend.precompute(positions)
        assert isinstance(known, PositionFeatures)
        assert torch.equal(attend(known, tokens), attend(positions, tokens))
        assert known.to(torch.float32).groups[0].dtype == torch.float32
        some = torch.tensor([3, 1, 8])
        close(attend(known.take(some), tokens[some]), attend(positions[some], tokens[some]))

    def test_other_transformers_serve_too_but_have_no_gradients(self):
        positions, tokens = places(30), draw(30, 2)
        model = RBFSampler(n_components=64, random_state=0).fit(positions.numpy())
        kernel = torch.as_tensor(model.transform(positions.numpy()))
        close(plain(model, 2)(positions, tokens), explicit(kernel @ kernel.T, tokens))
        with pytest.raises(ValueError, match="`positions` must be without gradients"):
            plain(model, 2)(positions.requires_grad_(), tokens)

    def test_far_tokens_take_up_nothing_and_have_finite_gradients(self, features):
        positions, tokens = places(10), draw(10, 2).requires_grad_()
        positions[3] = torch.tensor([0.0, 0.0, 5.0])
        with pytest.warns(FarQueryWarning, match="1 of 10 points are away"):
            found = plain(features, 2)(positions, tokens)
        assert (found[3] == 0).all()
        moved = positions.clone().requires_grad_()
        found = plain(features, 2, empty="mean")(moved, tokens)
        close(found[3], tokens.mean(dim=0))
        found.square().sum().backward()
        assert moved.grad.isfinite().all()
        assert tokens.grad.isfinite().all()


class TestContent:
    @pytest.mark.parametrize("causal", [False, True])
    def test_equals_explicit_attention_with_the_product_of_kernels(self, features, causal, device):
        positions, tokens = places(60, device=device), draw(2, 60, 4, device=device)
        attend = plain(features, 4, device, n_heads=2, content_features=3, causal=causal)
        kernel = kernel_of(features, positions)
        query, key = (nn.functional.softplus(layer(tokens)) for layer in (attend.query, attend.key))
        for head in range(2):
            part, own = slice(3 * head, 3 * head + 3), slice(2 * head, 2 * head + 2)
            product = kernel * (query[..., part] @ key[..., part].transpose(-1, -2))
            close(attend(positions, tokens)[..., own], explicit(product, tokens[..., own], causal=causal))

    def test_projections_are_plain_linear_layers_before_and_after(self, features, device):
        positions, tokens = places(40, device=device), draw(40, 4, device=device)
        attend = ManifoldAttention(features, 4, n_heads=2).to(device, DOUBLE)
        kernel = kernel_of(features, positions)
        close(attend(positions, tokens), attend.output(explicit(kernel, attend.value(tokens))))


class TestSparse:
    @pytest.mark.parametrize("content", [0, 3])
    def test_equals_dense_with_the_same_anchors(self, strip, content, device):
        positions = torch.tensor(strip.graph_.positions, device=device)
        tokens = draw(2, strip.graph_.n_nodes, 4, device=device)
        options = {"n_heads": 2, "content_features": content, "empty": "mean"}
        dense = ManifoldAttention(strip, 4, **options).to(device, DOUBLE)
        sparse = ManifoldAttention(strip, 4, mode="sparse", cut=0.0, **options).to(device, DOUBLE)
        sparse.load_state_dict(dense.state_dict())
        mask = draw(2, strip.graph_.n_nodes, seed=1, device=device) > 0.5
        close(sparse(positions, tokens), dense(positions, tokens))
        close(sparse(positions, tokens, mask), dense(positions, tokens, mask))

    def test_what_is_cut_is_small_and_leaves_few_entries(self, strip):
        positions, tokens = torch.tensor(strip.graph_.positions), draw(strip.graph_.n_nodes, 2)
        sparse, dense = plain(strip, 2, mode="sparse"), plain(strip, 2)
        whole, cut = dense.precompute(positions).groups[0], sparse.precompute(positions).groups[0]
        smallest = whole.amax(dim=1, keepdim=True) * 1e-3
        close(cut.to_dense(), torch.where(whole < smallest, 0.0, whole), 0.0)
        assert cut.values().numel() < 0.9 * (whole > 0).sum()
        # Per token less than 100 entries of 1e-3 of the largest are gone.
        assert (sparse(positions, tokens) - dense(positions, tokens)).abs().max() < 100 * 1e-3

    def test_rows_come_in_pieces(self, strip, monkeypatch):
        positions, tokens = torch.tensor(strip.graph_.positions), draw(strip.graph_.n_nodes, 2)
        wanted = plain(strip, 2, mode="sparse")(positions, tokens)
        monkeypatch.setattr(_positions, "_ENTRIES_AT_ONCE", 700)
        close(plain(strip, 2, mode="sparse")(positions, tokens), wanted, 0.0)

    def test_what_it_cannot_do_is_said(self, strip):
        positions = torch.tensor(strip.graph_.positions)
        tokens = draw(len(positions), 2)
        with pytest.raises(ValueError, match="`mode` must be 'dense' for causal attention"):
            ManifoldAttention(strip, 2, mode="sparse", causal=True)
        attend = plain(strip, 2, mode="sparse")
        for wrong in (positions[None], positions.clone().requires_grad_()):
            with pytest.raises(ValueError, match=r"`positions` must be of shape \(L, d\) and without gradients"):
                attend(wrong, tokens)


class TestGradients:
    @pytest.mark.parametrize("causal", [False, True])
    def test_of_the_module(self, features, causal, device):
        attend = ManifoldAttention(features, 2, content_features=2, causal=causal).to(device, DOUBLE)
        parts = places(5, device=device).requires_grad_(), draw(5, 2, device=device).requires_grad_()
        assert torch.autograd.gradcheck(attend, parts)

    def test_of_one_step_features_equal_the_derivative_of_the_formula(self):
        """Oracle: the heat step from a point, and the table behind it, written in torch."""
        model = ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, field="step", random_state=0).fit(Sphere())
        field, fitted = model.map_.field, model.map_
        step = field.graph.extension
        nodes, table = torch.as_tensor(step.search.points), torch.as_tensor(field.table.toarray())
        points = places(6).requires_grad_()
        squares = (points[:, None] - nodes).square().sum(dim=-1)
        weights = torch.where(squares <= step.radius**2, torch.exp(-squares / step.bandwidth), 0.0)
        weights = weights * torch.as_tensor(step.factors)
        rows = weights / weights.sum(dim=1, keepdim=True) @ table * torch.as_tensor(fitted.column_factors)
        wanted = rows / fitted.bound.max()
        outer = draw(6, 128)
        (gradient,) = torch.autograd.grad((wanted * outer).sum(), points)
        again = points.detach().clone().requires_grad_()
        found = plain(model, 1)._at(again).groups[0]
        close(found, wanted.detach())
        (ours,) = torch.autograd.grad((found * outer).sum(), again)
        close(ours, gradient, 1e-7)

    def test_in_the_graph_clock_see_the_measure_of_the_point(self):
        """Features in this clock are those of the field times the root of the measure there."""
        cloud = Sphere().sample(400, seed=3)
        model = ManifoldRandomFeatures(DiffusionKernel(20.0), graph=knn_graph(cloud), random_state=0).fit(cloud)
        assert model.map_.own(places(5).numpy()).std() > 0
        attend, outer = plain(model, 1), draw(5, model.n_features_out_)
        assert torch.autograd.gradcheck(
            lambda at: (attend._at(at).groups[0] * outer).sum(), places(5).requires_grad_()
        )

    def test_on_a_mesh_vanish_across_the_surface(self):
        model = ManifoldRandomFeatures(HeatKernel(0.2), n_features=100, random_state=0).fit(sphere_mesh(400))
        inside = model.graph_.mesh.sample(4, seed=0)
        points = torch.as_tensor(inside.points).requires_grad_()
        rows = plain(model, 1)._at(points).groups[0]
        (gradient,) = torch.autograd.grad((rows * draw(*rows.shape)).sum(), points)
        normals = torch.as_tensor(model.graph_.mesh.face_normals()[inside.faces])
        assert gradient.norm(dim=1).min() > 1e-2
        assert (gradient * normals).sum(dim=1).abs().max() < 1e-6

    def test_at_a_jump_are_those_of_the_side_without_it(self):
        def function(at):
            return np.stack([np.sin(at[:, 0]) + 5.0 * (at[:, 0] > 1e-7), np.cos(at[:, 0])], axis=1)

        at = torch.zeros(1, 1, dtype=DOUBLE, requires_grad=True)
        values = _positions.Probed.apply(at, _positions.Probe(function, 1.0))
        (slope,) = torch.autograd.grad(values[0, 0], at)
        assert abs(float(slope) - 1) < 1e-9

    def test_reach_positions_in_single_precision(self, features):
        outer = draw(5, 2)
        found = []
        for dtype in (torch.float32, DOUBLE):
            attend = ManifoldAttention(features, 2, projections=False).to(dtype)
            points = places(5).to(dtype).requires_grad_()
            (attend(points, draw(5, 2, seed=1, dtype=dtype)) * outer.to(dtype)).sum().backward()
            assert points.grad.dtype == dtype
            found.append(points.grad.double())
        close(*found, 1e-5)  # of order 1; rounding of positions, features and sums: a hundred eps


class TestNetwork:
    def test_equals_the_kernel_matrix_with_and_without_gradients(self, learned, device):
        positions, tokens = places(40, device=device), draw(40, 2, device=device)
        wanted = explicit(kernel_of(learned, positions), tokens)
        attend = plain(learned, 2, device)
        close(attend(positions, tokens), wanted)
        # In double precision by torch, in single precision by the field itself.
        close(attend(positions.clone().requires_grad_(), tokens).detach(), wanted, 1e-4)

    def test_gradients_to_positions_are_exact(self, learned, monkeypatch, device):
        monkeypatch.setattr(_positions, "_PAIRS_AT_ONCE", 60)  # two points at a time
        parts = places(5, device=device).requires_grad_(), draw(5, 2, device=device).requires_grad_()
        assert torch.autograd.gradcheck(plain(learned, 2, device), parts)

    def test_its_weights_are_trained(self, learned, device):
        positions, tokens = places(60, device=device), draw(60, 2, device=device)
        attend = plain(learned, 2, device, trainable_field=True)
        assert len(list(attend.parameters())) == len(learned.map_.field.weights)
        where = places(60).numpy()
        target = explicit(torch.as_tensor(Sphere().heat_kernel(where, where, 0.3), device=device), tokens)
        optimiser = torch.optim.Adam(attend.parameters(), lr=1e-2)
        losses = []
        for _ in range(15):
            optimiser.zero_grad()
            loss = (attend(positions, tokens) - target).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.5 * losses[0]
        weights = list(attend.parameters())
        assert all(weight.grad.isfinite().all() for weight in weights)
        assert any(
            (weight.detach().cpu().numpy() != array).any()
            for weight, array in zip(weights, learned.map_.field.weights, strict=True)
        )

    def test_what_cannot_be_trained_is_said(self, features, learned):
        with pytest.raises(
            ValueError, match='`trainable_field` must be False unless the features have field="mlp"'
        ):
            ManifoldAttention(features, 2, trainable_field=True)
        with pytest.raises(ValueError, match="`trainable_field` must be False in the sparse mode"):
            ManifoldAttention(learned, 2, trainable_field=True, mode="sparse")
        with pytest.raises(ValueError, match="has no fixed features"):
            ManifoldAttention(learned, 2, trainable_field=True).precompute(places(3))


class TestModule:
    def test_state_round_trip(self, learned):
        options = {"content_features": 2, "trainable_field": True}
        first, second = (ManifoldAttention(learned, 4, **options) for _ in range(2))
        positions, tokens = places(20), draw(20, 4, dtype=torch.float32)
        assert not torch.equal(first(positions, tokens), second(positions, tokens))
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(positions, tokens), second(positions, tokens))

    def test_copies_and_pickles_work(self, features):
        attend, tokens = ManifoldAttention(features, 4), draw(20, 4, dtype=torch.float32)
        for again in (copy.deepcopy(attend), pickle.loads(pickle.dumps(attend))):
            assert torch.equal(again(places(20), tokens), attend(places(20), tokens))

    def test_the_generator_decides_the_first_values(self, features):
        states = []
        for seed in (0, 0, 1):
            generator = torch.Generator().manual_seed(seed)
            states.append(ManifoldAttention(features, 4, content_features=1, generator=generator).value.weight)
        assert torch.equal(states[0], states[1])
        assert not torch.equal(states[0], states[2])

    def test_heads_of_several_heat_times(self):
        attend = ManifoldAttention.at_times(Sphere(), [0.2, 1.0], 4, n_features=64, random_state=0, causal=True)
        assert [each.kernel_.t for each in attend.features] == [0.2, 1.0]
        assert "dim=4, n_heads=2, mode='dense', causal=True" in repr(attend)
        assert attend(places(5), torch.ones(5, 4)).shape == (5, 4)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"features": 3}, "`features` must be fitted features, or a sequence of them. Got int"),
            ({"features": []}, "`features` must be fitted features, or a sequence of them. Got an empty sequence"),
            ({"features": ManifoldRandomFeatures()}, "not fitted"),
            ({"dim": 0}, r"`dim` must be an integer in \[1, inf\)"),
            ({"dim": 3, "n_heads": 2}, "`dim` must be a multiple of the number of heads, 2. Got 3"),
            ({"n_heads": 0}, r"`n_heads` must be an integer in \[1, inf\)"),
            ({"content_features": -1}, r"`content_features` must be an integer in \[0, inf\)"),
            ({"mode": "csr"}, "`mode` must be one of 'dense', 'sparse'"),
            ({"causal": "yes"}, "`causal` must be True or False"),
            ({"projections": 1}, "`projections` must be True or False"),
            ({"trainable_field": None}, "`trainable_field` must be True or False"),
            ({"empty": "last"}, "`empty` must be one of 'zero', 'mean'"),
            ({"cut": 1.0}, r"`cut` must be a number in \[0, 1\)"),
        ],
    )
    def test_bad_options(self, features, changes, message):
        with pytest.raises((ValueError, TypeError), match=message):
            ManifoldAttention(**({"features": features, "dim": 4} | changes))

    def test_bad_numbers_of_heads(self, features):
        with pytest.raises(ValueError, match=r"`n_heads` must be 2, the number of features\. Got 4"):
            ManifoldAttention([features, features], 4, n_heads=4)

    def test_kernels_with_two_sides_are_refused(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a kernel of a few steps is a spike between nodes
            model = ManifoldRandomFeatures(CosineKernel(), random_state=0).fit(Sphere().grid(200))
        with pytest.raises(ValueError, match="`features` must be of a kernel with nonnegative features"):
            ManifoldAttention(model, 2)

    def test_bad_inputs(self, features):
        attend = ManifoldAttention(features, 4)
        with pytest.raises(
            ValueError, match=r"`tokens` must be a tensor of shape \(..., L, 4\) with L >= 1. Got shape \(5, 3\)"
        ):
            attend(places(5), torch.ones(5, 3))
        with pytest.raises(ValueError, match=r"`positions` must be a tensor of shape \(..., L, d\)"):
            attend(torch.ones(5), torch.ones(5, 4))
        with pytest.raises(ValueError, match=r"`positions` must be an array of shape \(n, 3\)"):
            attend(torch.ones(5, 2), torch.ones(5, 4))
        with pytest.raises(ValueError, match="one token per position"):
            attend(places(4), torch.ones(5, 4))
