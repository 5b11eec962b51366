"""Features of any space and options: a documented error, or nonnegative, bounded, repeatable, equivariant ones."""

import numpy as np
import pytest
from hypothesis import strategies as st
from reliability.strategies import (
    SCALES,
    SEEDS,
    SIMPLE_KERNELS,
    Outcomes,
    any_clouds,
    holds_for,
    mostly,
    motions,
    options,
    quietly,
    shuffled,
    surfaces,
)
from scipy import sparse
from scipy.stats import special_ortho_group

from manifoldrf import (
    Counts,
    DiffusionKernel,
    HeatGraph,
    HeatKernel,
    KnnGraph,
    ManifoldRandomFeatures,
    Sphere,
    Walks,
    knn_graph,
)

FIELDS = st.sampled_from(["step", "interpolated"])
TIMES = st.floats(0.05, 0.3)
SURFACES = surfaces(max_size=24)  # a fit takes milliseconds
HEAT_OPTIONS = {
    "n_nodes": mostly(st.sampled_from(["auto", 16])),
    "n_steps": mostly(st.sampled_from(["auto", 2, 4])),
    "dim": mostly(st.integers(1, 6)),  # of at most three columns
    "metric": mostly(st.none()),
    "noise_std": mostly(st.sampled_from(["auto", 0.0, 0.01])),
    "volumes": mostly(st.none()),
}
KNN_OPTIONS = {
    "n_neighbors": mostly(st.integers(2, 7)),
    "density_correction": mostly(st.floats(0.0, 1.0)),
    "bandwidth": mostly(st.one_of(st.sampled_from(["median", "local"]), st.floats(0.1, 2.0))),
}
GRAPHS = st.one_of(
    options(HEAT_OPTIONS, most=2, least=1).map(lambda given: (HeatGraph, given)),
    options(KNN_OPTIONS, most=2, least=1).map(lambda given: (KnnGraph, given)),
)
OPTIONS = {
    "n_features": mostly(st.one_of(st.integers(1, 30), st.sampled_from(["auto", "all"]))),
    "field": mostly(st.sampled_from(["auto", "step", "interpolated"])),
    "anchors": mostly(st.sampled_from(["farthest", "iid", "all"])),
    "quadrature": mostly(st.sampled_from(["auto", "nnls", "voronoi", "uniform"])),
    "teacher": mostly(st.sampled_from(["auto", "exact", Walks(30), Counts(30)])),
    "times": mostly(st.sampled_from([None, (0.1, 0.4)])),
    "random_state": mostly(SEEDS),
    "sparse_output": mostly(st.booleans()),
    "n_jobs": mostly(st.sampled_from([1, 2, -1])),
    "verbose": mostly(st.just(False)),
}
KERNELS_OF_SPACES = st.one_of(
    st.none(),
    st.builds(HeatKernel, st.floats(0.02, 1.0)),
    st.builds(DiffusionKernel, st.floats(1.0, 30.0)),
    SIMPLE_KERNELS,
)


def fit(space, kernel, **settings):
    return quietly(ManifoldRandomFeatures(kernel, **({"random_state": 0, "n_jobs": 1} | settings)).fit, space)


def features_of(features, queries):
    """Dense features, of the left side where there are two."""
    side = "left" if features.asymmetric_ else None
    rows = quietly(features.transform, queries, side)
    return rows.toarray() if sparse.issparse(rows) else rows


def check_features(features, queries):
    """What all features promise: finite, nonnegative where there is one side, bounded."""
    rows = features_of(features, queries)
    assert rows.shape == (len(queries), features.n_features_out_)
    assert np.isfinite(rows).all()
    assert np.isfinite(features.bound_).all()
    assert (np.abs(rows) <= features.bound_ * (1 + 1e-12)).all()
    assert features.asymmetric_ or (rows >= 0).all()
    return rows


def around(points, seed):
    """Points on the space, near it, away from it and very far."""
    rng = np.random.default_rng(seed)
    size = np.ptp(points, axis=0).max() or 1.0
    steps = size * np.array([0.0, 1e-6, 0.05, 0.5, 3.0, 100.0])
    directions = rng.standard_normal((len(steps), points.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return points[rng.integers(0, len(points), len(steps))] + steps[:, None] * directions


def usual_size(rows):
    return float(np.abs(rows).max(initial=0.0)) or 1.0


# ------------------------------------------------------------------------------------------ errors or the contract
def test_any_cloud_and_kernel_are_refused_with_a_reason_or_make_features_that_keep_the_contract():
    outcomes = Outcomes()

    @holds_for(points=any_clouds(max_size=24), kernel=KERNELS_OF_SPACES, seed=SEEDS)
    def check(points, kernel, seed):
        features = ManifoldRandomFeatures(kernel, random_state=seed, n_jobs=1)
        for fitted in outcomes.of(features.fit, points):
            queries = around(points, seed)
            rows = check_features(fitted, queries)
            assert not rows[-1].any()  # a hundred times the size of the space away
            np.testing.assert_array_equal(features_of(fitted, queries[2:3]), rows[2:3])

    check()
    assert outcomes.both_happened(), outcomes.counts


def test_any_options_are_refused_with_a_reason_or_make_features_that_keep_the_contract():
    outcomes = Outcomes()

    @holds_for(points=surfaces(max_size=24), kernel=KERNELS_OF_SPACES, given=options(OPTIONS, most=4))
    def check(points, kernel, given):
        for fitted in outcomes.of(lambda: ManifoldRandomFeatures(kernel, **given).fit(points)):
            check_features(fitted, around(points, 0))

    check()
    assert outcomes.both_happened(0.2), outcomes.counts


def test_any_options_of_the_graph_are_refused_with_a_reason_or_make_features_that_keep_the_contract():
    outcomes = Outcomes()

    @holds_for(points=surfaces(max_size=24), kernel=KERNELS_OF_SPACES, graph=GRAPHS)
    def check(points, kernel, graph):
        make, given = graph
        fitted = outcomes.of(
            lambda: ManifoldRandomFeatures(kernel, graph=make(**given), random_state=0).fit(points)
        )
        for features in fitted:
            check_features(features, around(points, 0))

    check()
    assert outcomes.both_happened(0.2), outcomes.counts


# ---------------------------------------------------------------------------------------------------- equivariance
@holds_for(points=SURFACES, t=TIMES, field=FIELDS, seed=SEEDS)
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads(points, t, field, seed):
    settings = {"field": field, "n_features": 10, "random_state": seed}
    queries = around(points, seed)
    one, two = (fit(points, HeatKernel(t), n_jobs=n_jobs, **settings) for n_jobs in (1, 2))
    np.testing.assert_array_equal(features_of(one, queries), features_of(two, queries))
    np.testing.assert_array_equal(one.weights_, two.weights_)


@holds_for(data=st.data(), points=SURFACES, t=TIMES, field=st.sampled_from(["step", "interpolated"]))
def test_features_do_not_depend_on_place_and_direction(data, points, t, field):
    move = data.draw(motions(3))
    settings = {"field": field, "n_features": "all", "graph": HeatGraph(dim=2)}
    queries = around(points, 0)
    one = features_of(fit(points, HeatKernel(t), **settings), queries)
    other = features_of(fit(move(points), HeatKernel(t), **settings), move(queries))
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6 * usual_size(one))


@holds_for(points=SURFACES, t=TIMES, field=FIELDS, scale=SCALES)
def test_features_follow_the_unit_of_length_up_to_the_volume(points, t, field, scale):
    settings = {"field": field, "n_features": "all", "graph": HeatGraph(dim=2), "normalize": False}
    queries = around(points, 0)
    one = features_of(fit(points, HeatKernel(t), **settings), queries)
    other = features_of(fit(scale * points, HeatKernel(scale**2 * t), **settings), scale * queries)
    # K is per unit of area, features are its root: they change by the inverse of the unit of length.
    np.testing.assert_allclose(other * scale, one, rtol=0, atol=1e-8 * usual_size(one))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("random", "order"),
        ("grid", "direction"),
        pytest.param("random", "direction", marks=pytest.mark.slow),
        pytest.param("grid", "order", marks=pytest.mark.slow),
    ],
)
def test_with_chosen_anchors_the_kernel_stays_within_the_estimated_error(kind, change):
    """On a grid many nodes are equally far: the order, or rounding, decides which becomes an anchor."""
    points = Sphere().grid(400) if kind == "grid" else Sphere().sample(400, seed=0)
    order, turn = np.arange(len(points)), np.eye(3)
    if change == "order":
        order = shuffled(len(points), 1)
    else:
        turn = special_ortho_group.rvs(3, random_state=0)
    settings = {"n_features": 80, "graph": HeatGraph(dim=2)}
    one, other = (fit(X, HeatKernel(0.2), **settings) for X in (points, (points @ turn.T)[order]))
    first, second = quietly(one.kernel_matrix, points[:60]), quietly(other.kernel_matrix, points[:60] @ turn.T)
    change = np.linalg.norm(second - first) / np.linalg.norm(first)
    assert change <= float(one.error_) + float(other.error_)


# ---------------------------------------------------------------------------------------------- values and queries
@holds_for(points=SURFACES, tau=st.floats(2.0, 20.0), k=st.integers(3, 7))
def test_features_of_all_nodes_in_steps_multiply_to_the_kernel_of_the_graph(points, tau, k):
    graph = quietly(knn_graph, points, n_neighbors=k)
    features = fit(graph, DiffusionKernel(tau), n_features="all", field="interpolated", normalize=False)
    rows = features_of(features, points)
    # The sum over anchors leaves out nodes that are nearly isolated.
    used = np.sort(features.anchors_[features.weights_ > 0])
    signatures = DiffusionKernel(tau / 2).dense(graph)[np.ix_(used, used)]
    found = (rows @ rows.T)[np.ix_(used, used)]
    # An interpolated field is exact at its nodes but for entries below 1e-7 of the largest of their column; degrees
    # differ by at most 1e4 from the median, their roots by 100.
    np.testing.assert_allclose(found, signatures @ signatures.T, rtol=0, atol=1e-5)


@holds_for(points=SURFACES, t=TIMES, field=FIELDS, direction=SEEDS)
def test_features_fade_to_zero_away_from_the_space(points, t, field, direction):
    features = fit(points, HeatKernel(t), n_features=12, field=field)
    rng = np.random.default_rng(direction)
    line = rng.standard_normal(3)
    line /= np.linalg.norm(line)
    queries = points[:1] + np.array([0.0, 1.0, 10.0, 1e3, 1e8, 1e140])[:, None] * line
    rows = check_features(features, queries)
    assert not rows[3:].any()
    distances = features.distance_to_space(queries)
    assert np.isfinite(distances).all()
    assert distances[0] == 0
    assert (np.diff(distances[2:]) > 0).all()  # beyond the space, which is 2 wide
