"""What attention makes of inputs that are bad, empty, not finite, or off the space."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from manifoldrf import (
    DiffusionKernel,
    FarQueryWarning,
    FeatureWarning,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    knn_graph,
)
from manifoldrf.applications import positions as _positions
from manifoldrf.applications.attention import AttentionState, ManifoldAttention, PositionFeatures, linear_attention

HALVES = [torch.float16, torch.bfloat16]
MODES = ["dense", "sparse"]
PHI, V = torch.ones(4, 2), torch.ones(4, 1)


@pytest.fixture(scope="module")
def features():
    return ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, random_state=0).fit(Sphere())


def places(n):
    return torch.as_tensor(Sphere().sample(n, seed=1))


def csr(dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its CSR tensors a beta
        return dense.to_sparse_csr()


class Rounded(nn.Module):
    """Stands in for a layer with its results in half precision."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, _):
        return self.outputs


def half_step(dtype):
    """Largest relative change by rounding to a type."""
    return torch.finfo(dtype).eps / 2


class TestPrecision:
    r"""Half precision in and out, single precision between: only the last rounding is to be seen.

    One result in double precision, of the same rounded inputs, is the exact answer. Single precision adds less than
    1e-3 of a step of half precision: sums of positive products are off by at most L eps / 2, which is 1e-4 of the
    mean of \|v\| for 2000 tokens, and far less in blocks.
    """

    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("cast", [False, True])
    def test_sums_of_half_precision_are_single(self, dtype, causal, cast):
        rng = np.random.default_rng(0)
        phi, v, weights = (
            torch.as_tensor(1 + rng.random(shape)).to(dtype) for shape in ((2000, 8), (2000, 3), (2000,))
        )
        wanted = linear_attention(phi.double(), phi.double(), v.double(), causal, weights=weights.double())
        given = (phi.float(), phi, v.float(), weights.float()) if cast else (phi, phi.float(), v, weights)
        with torch.autocast("cpu", dtype=dtype, enabled=cast):
            found = linear_attention(*given[:3], causal, weights=given[3])
        assert found.dtype == dtype
        assert (found.double() - wanted).abs().max() <= 1.01 * half_step(dtype) * wanted.abs().max()

    def test_autocast_leaves_double_precision_alone(self):
        wanted = linear_attention(PHI.double(), PHI.double(), V.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(linear_attention(PHI.double(), PHI.double(), V.double()), wanted)

    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("cast", [False, True])
    def test_of_one_token_after_the_other_too(self, dtype, cast):
        rng = np.random.default_rng(0)
        phi, v = (torch.as_tensor(rng.random((600, c))).to(dtype) for c in (4, 2))
        wanted = linear_attention(phi.double(), phi.double(), v.double(), causal=True)
        state = AttentionState("mean")
        with torch.autocast("cpu", dtype=dtype, enabled=cast):
            found = torch.stack([state.step(a, a, b) for a, b in zip(phi, v, strict=True)])
        assert (found.dtype, state.sums.dtype) == (dtype, torch.float32)
        assert (found.double() - wanted).abs().max() <= 1.01 * half_step(dtype)

    def test_tokens_of_another_type_need_autocast(self, features):
        with pytest.raises(TypeError, match=r"`tokens` must be of torch\.float32, as .* Got torch\.bfloat16"):
            ManifoldAttention(features, 4)(torch.ones(2, 3), torch.ones(2, 4, dtype=torch.bfloat16))

    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"empty": "mean", "n_heads": 2},
            {"causal": True},
            {"content_features": 2},
            {"content_features": 2, "causal": True},
            {"content_features": 2, "mode": "sparse"},
        ],
    )
    def test_of_a_module_under_autocast(self, features, dtype, options):
        attend = ManifoldAttention(features, 2, generator=torch.Generator().manual_seed(0), **options)
        tokens, attend.output = torch.as_tensor(np.random.default_rng(0).random((2, 300, 2))).float(), None
        layers = [layer for layer in (attend.value, attend.query, attend.key) if layer is not None]
        with torch.autocast("cpu", dtype=dtype):
            found = attend(places(300), tokens)
            projected = [layer(tokens).double() for layer in layers]
        exact = copy.deepcopy(attend).double()
        for name, outputs in zip(("value", "query", "key"), projected, strict=False):
            setattr(exact, name, Rounded(outputs))
        wanted = exact(places(300), tokens.double())
        assert found.dtype == dtype
        assert (found.double() - wanted).abs().max() <= 1.01 * half_step(dtype) * wanted.abs().max()

    @pytest.mark.parametrize("dtype", HALVES)
    def test_whole_modules_and_their_training(self, features, dtype):
        """The loss and its gradient differ from single precision by some roundings of single layers."""
        attend = ManifoldAttention(features, 4, n_heads=2, generator=torch.Generator().manual_seed(0))
        tokens = torch.as_tensor(np.random.default_rng(0).random((300, 4))).float()
        results = {}
        for name, module, given in (
            ("single", attend, tokens),
            ("autocast", attend, tokens),
            ("half", copy.deepcopy(attend).to(dtype), tokens.to(dtype)),
        ):
            with torch.autocast("cpu", dtype=dtype, enabled=name == "autocast"):
                found = module(places(300), given)
            assert found.dtype == (torch.float32 if name == "single" else dtype)
            (slope,) = torch.autograd.grad(found.float().square().mean(), [module.value.weight])
            results[name] = found.detach().double(), slope.double()
        for name in ("autocast", "half"):
            for found, wanted in zip(results[name], results["single"], strict=True):
                # Two layers, each with rounded inputs, weights and results, and the means: seven roundings.
                assert (found - wanted).abs().max() <= 2 * 7 * half_step(dtype) * wanted.abs().max()

    @pytest.mark.parametrize("kind", ["scales", "network"])
    def test_features_that_are_trained_stay_in_single_precision(self, kind):
        if kind == "scales":
            model = ManifoldRandomFeatures(times=(0.3, 0.6), n_features=64, random_state=0).fit(Sphere())
            attend = ManifoldAttention(model, 2, n_heads=2, trainable_scales=True, projections=False)
        else:
            model = ManifoldRandomFeatures(
                DiffusionKernel(10.0),
                n_features=20,
                field="mlp",
                graph=knn_graph(Sphere().grid(200)),
                field_options={"epochs": 1, "hidden": 8},
                random_state=0,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FeatureWarning)
                model.fit(Sphere().grid(200))
            attend = ManifoldAttention(model, 2, trainable_field=True, projections=False)
        tokens = torch.as_tensor(np.random.default_rng(0).random((50, 2))).float()
        wanted = attend(places(50).float(), tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = attend(places(50).float(), tokens)
        assert torch.equal(found, wanted.to(torch.bfloat16))

    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("options", [{}, {"content_features": 2}, {"mode": "sparse", "content_features": 2}])
    def test_positions_in_half_precision_are_refused(self, features, dtype, options):
        attend = ManifoldAttention(features, 2, **options)
        with pytest.raises(TypeError, match=f"`positions` must be a tensor of torch.float32 or .* Got {dtype}"):
            attend(places(3).to(dtype), torch.ones(3, 2))


class TestNotANumber:
    @pytest.mark.parametrize("empty", ["zero", "mean"])
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_query_that_is_not_a_number_has_no_mean(self, empty, causal):
        phi_q = PHI.clone()
        phi_q[2, 1] = torch.nan
        found = linear_attention(phi_q, PHI, V, causal, empty=empty)
        assert found.isnan().ravel().tolist() == [False, False, True, False]
        state = AttentionState(empty=empty)
        rows = [state.step(*parts) for parts in zip(phi_q, PHI, V, strict=True)]
        assert torch.stack(rows).isnan().ravel().tolist() == [False, False, True, False]


class TestEmpty:
    @pytest.mark.parametrize("empty", ["zero", "mean"])
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("batch", [(), (2,), (0,)])
    def test_no_tokens_have_no_means(self, empty, causal, batch):
        phi, v = torch.ones(*batch, 0, 3), torch.ones(*batch, 0, 5)
        assert linear_attention(phi, phi, v, causal, empty=empty).shape == (*batch, 0, 5)

    @pytest.mark.parametrize("causal", [False, True])
    def test_neither_have_those_of_an_empty_batch(self, causal):
        phi, v = torch.ones(0, 4, 3), torch.ones(0, 4, 5)
        assert linear_attention(phi, phi, v, causal).shape == (0, 4, 5)

    @pytest.mark.parametrize("empty", ["zero", "mean"])
    @pytest.mark.parametrize("form", [torch.clone, csr])
    def test_without_keys_means_are_zero(self, empty, form):
        found = linear_attention(form(PHI), form(torch.ones(0, 2)), torch.ones(3, 0, 5), empty=empty)
        assert torch.equal(found, torch.zeros(3, 4, 5))
        assert linear_attention(form(torch.ones(0, 2)), form(PHI), V, empty=empty).shape == (0, 1)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("content", [0, 2])
    def test_a_module_wants_a_token(self, features, mode, content):
        attend = ManifoldAttention(features, 2, mode=mode, content_features=content)
        with pytest.raises(ValueError, match=r"`tokens` must be .* with L >= 1. Got shape \(3, 0, 2\)"):
            attend(torch.ones(0, 3), torch.ones(3, 0, 2))
        with pytest.raises(ValueError, match=r"`positions` must be .* with L >= 1. Got shape \(0, 3\)"):
            attend.precompute(torch.ones(0, 3))
        assert attend(places(4), torch.ones(0, 4, 2)).shape == (0, 4, 2)  # an empty batch is no harm


class TestErrorsAreNamed:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"weights": torch.ones(3, 4), "v": torch.ones(2, 4, 1)},
                "`phi_q`, `phi_k`, `v`, `weights` must be of ",
            ),
            ({"weights": np.ones(4)}, "`weights` must be a tensor of torch.float32. Got ndarray"),
            ({"weights": torch.ones(4, device="meta")}, "`weights` must be on the device cpu, as `v` is"),
            ({"weights": csr(torch.ones(4, 4))}, "`weights` must be a dense tensor"),
            ({"phi_k": PHI.to("meta")}, "`phi_k` must be on the device cpu, as `phi_q` is. Got device meta"),
            ({"v": V.to("meta")}, "`v` must be on the device cpu, as `phi_q` is. Got device meta"),
        ],
    )
    def test_of_linear_attention(self, changes, message):
        with pytest.raises((ValueError, TypeError), match=message):
            linear_attention(**({"phi_q": PHI, "phi_k": PHI, "v": V} | changes))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"phi_q": np.ones(2)}, "`phi_q` must be a tensor of .* or torch.float16. Got ndarray"),
            ({"v": np.ones(1)}, "`v` must be a tensor of .* or torch.float16. Got ndarray"),
            ({"v": torch.tensor(1.0)}, "`v` must be a tensor of at least 1 dimension"),
            ({"v": V[0].double()}, "`v` must be of torch.float32, as `phi_q` is"),
            ({"phi_k": PHI[0].to("meta")}, "`phi_k` must be on the device cpu"),
            (
                {"phi_k": torch.ones(3, 2), "v": torch.ones(2, 1)},
                "`phi_q`, `phi_k`, `v`, `sums` must be of leading",
            ),
            ({"phi_q": torch.ones(3), "phi_k": torch.ones(3)}, "of 2 features and 1 values, like .* Got 3 and 1"),
            ({"v": torch.ones(2)}, "of 2 features and 1 values, like .* Got 2 and 2"),
        ],
    )
    def test_of_a_step_which_then_is_not_taken(self, changes, message):
        given = {"phi_q": PHI[0], "phi_k": PHI[0], "v": V[0]}
        state = AttentionState()
        state.step(**given)
        with pytest.raises((ValueError, TypeError), match=message):
            state.step(**(given | changes))
        assert state.n_tokens == 1
        doubled = {name: part.double() for name, part in given.items()}
        with pytest.raises(TypeError, match=r"`phi_q` must be of torch\.float32, as the previous token is"):
            state.step(**doubled)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("content", [0, 2])
    def test_of_the_module(self, features, mode, content):
        attend, tokens = ManifoldAttention(features, 2, mode=mode, content_features=content), torch.ones(2, 4, 2)
        with pytest.raises(ValueError, match=r"`tokens` must be .* \(..., 5, 2\), one token per position"):
            attend(places(5), tokens)
        with pytest.raises(ValueError, match=r"`key_mask` must be a tensor of shape \(..., 4\), one entry per"):
            attend(places(4), tokens, torch.ones(2, 5))
        with pytest.raises(ValueError, match="`positions`, `tokens`, `key_mask` must be of leading dimensions"):
            attend(places(4), tokens, torch.ones(3, 4))
        with pytest.raises(TypeError, match=r"`key_mask` must be a tensor\. Got list"):
            attend(places(4), tokens, [True] * 4)
        with pytest.raises(TypeError, match=r"`tokens` must be a tensor of .* Got ndarray"):
            attend(places(4), tokens.numpy())
        with pytest.raises(TypeError, match=r"`positions` must be a tensor of .* Got ndarray"):
            attend(places(4).numpy(), tokens)
        two = PositionFeatures(2 * attend.precompute(places(4)).groups)
        with pytest.raises(ValueError, match=f"`positions` must be those of a module of mode '{mode}'"):
            attend(two, tokens)

    @pytest.mark.parametrize("content", [0, 2])
    def test_of_batches_of_positions(self, features, content):
        attend = ManifoldAttention(features, 2, content_features=content)
        with pytest.raises(ValueError, match="`positions`, `tokens` must be of leading dimensions that broadcast"):
            attend(torch.stack([places(4)] * 3), torch.ones(2, 4, 2))

    def test_of_features_of_the_other_mode(self, features):
        known = ManifoldAttention(features, 2, mode="sparse").precompute(places(4))
        with pytest.raises(ValueError, match="`positions` must be those of a module of mode 'dense'"):
            ManifoldAttention(features, 2)(known, torch.ones(4, 2))


class TestFarTokens:
    @pytest.mark.parametrize("mode", MODES)
    def test_one_warning_counts_those_of_all_pieces_and_heads(self, features, mode, monkeypatch):
        monkeypatch.setattr(_positions, "_ENTRIES_AT_ONCE", 200)  # of the sparse mode: one token at a time
        positions = places(10)
        positions[[0, 7]] = torch.tensor([0.0, 0.0, 5.0], dtype=torch.float64)
        attend = ManifoldAttention([features, features], 2, mode=mode)
        for call in (attend.precompute, lambda at: attend(at, torch.ones(10, 2))):
            with pytest.warns(FarQueryWarning) as caught:
                call(positions)
            assert len(caught) == 1
            assert str(caught[0].message).startswith("2 of 10 points are away")
