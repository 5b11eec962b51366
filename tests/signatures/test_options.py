"""Options, and the tables that walks follow: deposits divide by the shares of survivors, to the last bit."""

from types import SimpleNamespace

import numpy as np
import pytest

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    PowerKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    compute_signatures,
    knn_graph,
)
from manifoldrf.signatures.options import (
    NEGLIGIBLE,
    CountOptions,
    ExactOptions,
    FrontierOptions,
    WalkOptions,
    survival_law,
)

SERIES = {
    "heat": DiffusionKernel(5.0),
    "long heat": DiffusionKernel(100.0),
    "slow": RegularizedLaplacianKernel(2.0),
    "one power": PowerKernel(6),
    "signed": CosineKernel(),
    "no closed form": (DiffusionKernel(2.0) + DiffusionKernel(3.0)).root(),
}


def law_of(series, survival="geometric", p_halt=0.1, max_length=None, radius=1.0):
    options = SimpleNamespace(survival=survival, p_halt=p_halt, max_length=max_length)
    return survival_law(series, options, radius)


def reached(law):
    return np.cumprod(np.append(1.0, law.keep[:-1]))


@pytest.mark.parametrize("radius", [1.0, 2.5])
@pytest.mark.parametrize("max_length", [None, "auto", 0, 4, 700])
@pytest.mark.parametrize(("survival", "p_halt"), [("geometric", 0.01), ("geometric", 0.3), ("matched", 0.01)])
@pytest.mark.parametrize("series", SERIES)
def test_deposits_undo_the_survival(series, survival, p_halt, max_length, radius):
    radius = min(radius, 0.96 * SERIES[series].convergence)
    law = law_of(SERIES[series], survival, p_halt, max_length, radius)
    assert (law.keep * 2**32 % 1 == 0).all()
    assert law.keep.min() >= 0
    assert law.keep.max() <= 1
    assert law.keep[-1] == 0
    assert law.thresholds.dtype == np.uint64
    np.testing.assert_array_equal(law.thresholds / 2.0**32, law.keep)
    assert np.isfinite(law.deposit).all()
    alive = reached(law) > 1e-300
    np.testing.assert_allclose((law.deposit * reached(law))[alive], law.coefficients[alive], rtol=1e-15, atol=0)
    # What no walk reaches would be a bias: it must be less than a double resolves.
    assert np.abs(law.coefficients[~alive]).sum() <= 1e-16 * np.abs(law.coefficients).sum()


@pytest.mark.parametrize("series", SERIES)
def test_the_coefficients_are_those_of_the_series(series):
    kernel = SERIES[series]
    np.testing.assert_array_equal(law_of(kernel, max_length=9).coefficients, kernel.coefficients(10))
    auto = law_of(kernel, max_length="auto").coefficients
    np.testing.assert_array_equal(auto, kernel.coefficients(len(auto)))
    whole = np.abs(kernel.coefficients(2 * len(auto))).sum()
    left_out = whole - np.abs(auto).sum()
    # Twice as many terms hold all but the square of NEGLIGIBLE; 1e-15 for the rounding of the difference.
    assert left_out <= (NEGLIGIBLE + 1e-15) * whole
    assert (
        left_out + abs(auto[-1]) > NEGLIGIBLE / 2 * whole or len(auto) == kernel.n_terms
    )  # hardly a term to spare


@pytest.mark.parametrize("p_halt", [0.01, 0.1, 0.5])
def test_walks_without_a_cap_go_on_until_one_in_a_billion_is_left(p_halt):
    law = law_of(PowerKernel(0), p_halt=p_halt)
    assert reached(law)[-1] * (1 - p_halt) <= 1e-9 * (1 + 1e-6) < reached(law)[-1]
    assert len(law_of(DiffusionKernel(400.0), p_halt=0.5).keep) == len(
        law_of(DiffusionKernel(400.0), max_length="auto").keep
    )
    assert len(law_of(PowerKernel(0), p_halt=1e-12).keep) <= 2**20  # memory has an end


def test_a_long_root_without_a_closed_form_ends_where_it_is_negligible():
    series = SERIES["no closed form"]
    n = series.truncation(NEGLIGIBLE)
    f = law_of(series, p_halt=0.01).coefficients
    assert len(f) > 2000
    np.testing.assert_array_equal(f[:n], series.coefficients(n))
    assert not f[n:].any()


@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("series", ["heat", "long heat", "signed", "no closed form"])
def test_matched_walks_survive_as_the_root_of_what_is_to_come(series, radius):
    law = law_of(SERIES[series], "matched", max_length="auto", radius=radius)
    sizes = np.abs(law.coefficients) * radius ** np.arange(len(law.coefficients))
    rest = np.cumsum(sizes[::-1])[::-1]
    # Every chance is rounded by at most 2^-33, and none is below 1e-3 here but perhaps the last.
    np.testing.assert_allclose(reached(law), np.sqrt(rest / rest[0]), rtol=len(sizes) * 2.0**-33 / 1e-3)
    np.testing.assert_array_equal(law.keep, law_of(SERIES[series], "matched", radius=radius).keep)  # p_halt is idle


def test_matched_walks_skip_no_length_and_end_at_the_last():
    law = law_of(SeriesKernel([0.0, 0.0, 1.0, 0.0, 0.0, 3.0]), "matched", max_length=8)
    np.testing.assert_array_equal(law.keep[:2], 1.0)
    np.testing.assert_allclose(law.keep[2:5], [np.sqrt(0.75), 1.0, 1.0], atol=2.0**-33)
    np.testing.assert_array_equal(law.keep[5:], 0.0)
    assert not law_of(SeriesKernel([0.0, 0.0]), "matched", max_length=3).deposit.any()


@pytest.mark.parametrize(
    ("p_halt", "keep"), [(1 - 1e-12, 2.0**-32), (1e-12, 1.0), (0.3, round(0.7 * 2**32) / 2**32)]
)
def test_chances_beyond_32_bits_are_neither_lost_nor_endless(p_halt, keep):
    np.testing.assert_array_equal(
        law_of(DiffusionKernel(2.0), p_halt=p_halt, max_length=3).keep, [keep] * 3 + [0.0]
    )


def test_kept_lengths_count_one_and_do_not_overflow():
    law = law_of(None, p_halt=0.9, max_length=2000)
    np.testing.assert_array_equal(law.coefficients, np.ones(2001))
    assert np.isfinite(law.deposit).all()
    np.testing.assert_allclose(law.deposit[:4], [1, 10, 100, 1000], rtol=1e-8)  # the chance is a multiple of 2^-32


def test_an_integer_of_numpy_is_an_integer():
    assert type(WalkOptions(max_length=np.int64(7)).max_length) is int
    graph = knn_graph(Sphere().grid(60))
    capped = compute_signatures(graph, DiffusionKernel(5.0), [0], teacher="walks", max_length=np.int64(1), seed=0)
    assert set(capped.rows.indices) == {0, *graph.affinity[[0]].indices}


KEPT = {"keep_lengths": True, "max_length": 9}
BAD = [
    *((WalkOptions, {"p_halt": p}, ValueError, r"`p_halt` must be a number in \(0, 1\)") for p in (0, 1, np.nan)),
    (
        WalkOptions,
        {"p_halt": 0.1, "survival": "matched"},
        ValueError,
        "`p_halt` must be left out with survival='matched'",
    ),
    (CountOptions, {"p_halt": 0.1}, ValueError, "`p_halt` must be left out with survival='matched'"),
    (ExactOptions, {"max_length": 9}, ValueError, "`max_length` must be left out unless lengths are kept"),
    (CountOptions, {"p_halt": 1.0, "survival": "geometric"}, ValueError, r"`p_halt` must be a number in \[0, 1\)"),
    (WalkOptions, {"n_walks": 0}, ValueError, r"`n_walks` must be an integer in \[1, "),
    (CountOptions, {"n_walks": 1.5}, TypeError, r"`n_walks` must be an integer in \[1, "),
    (WalkOptions, {"n_batches": 0}, ValueError, "`n_batches` must be an integer"),
    (WalkOptions, {"n_stitches": 0}, ValueError, "`n_stitches` must be an integer"),
    (WalkOptions, {"max_length": -1}, ValueError, "`max_length` must be an integer"),
    (WalkOptions, {"max_length": "long"}, ValueError, "`max_length` must be one of 'auto'"),
    (ExactOptions, {"max_length": "auto"}, TypeError, "`max_length` must be an integer"),
    (WalkOptions, {"transitions": "x"}, ValueError, "`transitions` must be one of 'uniform', 'weighted'"),
    (CountOptions, {"survival": "x"}, ValueError, "`survival` must be one of 'geometric', 'matched'"),
    (WalkOptions, {"coupling": "x"}, ValueError, "`coupling` must be one of 'independent', 'antithetic', 'rep"),
    (WalkOptions, {"coupling": "repelling", "transitions": "weighted"}, ValueError, "independent or antithetic"),
    (WalkOptions, {"keep_lengths": True}, ValueError, "`max_length` must be an integer when lengths are kept"),
    (WalkOptions, {**KEPT, "max_length": "auto"}, ValueError, "`max_length` must be an integer when lengths"),
    (FrontierOptions, {"keep_lengths": True}, ValueError, "`max_length` must be an integer when lengths"),
    (
        CountOptions,
        KEPT | {"survival": "matched"},
        ValueError,
        "`survival` must be 'geometric' when lengths are kept",
    ),
    (WalkOptions, {**KEPT, "n_stitches": 2}, ValueError, "`n_stitches` must be 1 when lengths are kept"),
    (ExactOptions, {"keep_lengths": 1}, TypeError, "`keep_lengths` must be True or False"),
    (ExactOptions, {"tol": 0.0}, ValueError, "`tol` must be a number in"),
    (FrontierOptions, {"tol": np.nan}, ValueError, "`tol` must be a number in"),
]


@pytest.mark.parametrize(("options", "given", "kind", "message"), BAD, ids=str)
def test_bad_options(options, given, kind, message):
    with pytest.raises(kind, match=message):
        options(**given)
