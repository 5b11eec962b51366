"""Weights of anchors against direct sums, explicit least squares and the exact heat kernel."""

from functools import cache

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.stats import norm

from manifoldrf import Sphere, Torus
from manifoldrf.fields import anchors as quadrature
from manifoldrf.fields.anchors import (
    Quadrature,
    QuadratureSamples,
    compare_weights,
    farthest_anchors,
    iid_anchors,
    nnls_weights,
    nonnegative_minimum,
    spacing_of,
    uniform_weights,
    unity_weights,
    voronoi_weights,
)
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.graph_kernels import PowerKernel

TIME = {"sphere": 0.05, "torus": 0.05}
SURFACES = {"sphere": Sphere(), "torus": Torus()}


@cache
def heat_field(name):
    """The field of the heat kernel between all nodes, and from new points to all nodes."""
    surface = SURFACES[name]
    graph = heat_graph(surface.grid(1600), TIME[name])
    roots = np.sqrt(graph.weights)
    half = graph.n_steps // 2
    field = PowerKernel(half).apply(graph, np.eye(graph.n_nodes)) / np.outer(roots, roots)
    queries = surface.sample(200, seed=3)
    rows = graph.extend(queries)
    step = rows.toarray() / np.asarray(rows.sum(axis=1)).reshape(-1, 1)
    new = PowerKernel(half - 1).apply(graph, (step / roots).T).T / roots
    return graph, field, queries, new


def problem(name, m, n_samples=600):
    """Everything that a choice of weights takes, and the error of weights at new points."""
    graph, field, queries, new = heat_field(name)
    mu = graph.weights
    order = farthest_anchors(graph, max(m, n_samples))
    anchors, nodes = order[:m], order[:n_samples]
    rows = field[nodes]
    samples = QuadratureSamples(
        sparse.csr_array(rows[:, anchors]), (rows * mu) @ rows.T, np.arange(3, n_samples, 4), 1.0
    )
    exact = SURFACES[name].heat_kernel(queries, queries, TIME[name]) if name == "sphere" else (new * mu) @ new.T
    columns = new[:, anchors]

    def error(weights):
        return np.linalg.norm((columns * weights) @ columns.T - exact) / np.linalg.norm(exact)

    base = voronoi_weights(graph, mu, anchors)
    return base, samples, spacing_of(mu.sum(), m, 2) / np.sqrt(TIME[name]), error


# --- Voronoi cells


def test_voronoi_weights_are_the_measure_of_the_nearest_nodes(global_seed):
    graph = knn_graph(Sphere().sample(400, seed=global_seed))
    anchors = farthest_anchors(graph, 30)
    gaps = np.linalg.norm(graph.points[:, None] - graph.points[anchors], axis=2)
    expected = np.bincount(gaps.argmin(axis=1), weights=graph.degrees, minlength=30)
    weights = voronoi_weights(graph, graph.degrees, anchors)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    assert weights.sum() == pytest.approx(graph.degrees.sum(), rel=1e-12)


def test_voronoi_weights_with_a_metric_follow_shortest_paths(global_seed):
    graph = knn_graph(Sphere().sample(400, seed=global_seed), metric=Sphere())
    anchors = farthest_anchors(graph, 30)
    owners = graph.shortest_paths(anchors).argmin(axis=0)  # lengths are generic: no ties
    weights = voronoi_weights(graph, graph.degrees, anchors)
    np.testing.assert_allclose(weights, np.bincount(owners, weights=graph.degrees, minlength=30), rtol=1e-12)
    assert weights.sum() == pytest.approx(graph.degrees.sum(), rel=1e-12)


def test_equally_near_anchors_go_to_the_smaller_node():
    square = TriangleMesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    weights = voronoi_weights(mesh_graph(square), np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0]))
    assert weights.tolist() == [4.0, 11.0]  # nodes 1 and 3 are as near to 0 as to 2


def pieces():
    """Two lines side by side, each nearer to nodes of the other than to most of its own; and a node alone."""
    line = sparse.diags_array([np.ones(9), np.ones(9)], offsets=[1, -1])
    affinity = sparse.block_diag([line, line, sparse.csr_array((1, 1))], format="csr")
    along = np.arange(10.0)
    points = np.concatenate([np.stack([along, 0 * along], 1), np.stack([along, 0 * along + 0.1], 1), [[4, 9]]])
    with pytest.warns(GraphWarning):
        return Graph.from_affinity(affinity, points=points)


def test_no_node_counts_for_an_anchor_of_another_piece():
    graph = pieces()
    weights = voronoi_weights(graph, graph.degrees, np.array([0, 15]))
    assert weights.tolist() == [18.0, 18.0]
    # A piece without an anchor counts for none.
    assert voronoi_weights(graph, graph.degrees, np.array([0])).tolist() == [18.0]


def test_repeated_anchors_share_their_cell(global_seed):
    graph = knn_graph(Sphere().sample(300, seed=global_seed))
    once = voronoi_weights(graph, graph.degrees, np.array([7, 100, 200]))
    twice = voronoi_weights(graph, graph.degrees, np.array([100, 7, 200, 100]))
    np.testing.assert_allclose(twice, [once[1] / 2, once[0], once[2], once[1] / 2], rtol=1e-15)


def test_cells_need_points():
    with pytest.raises(ValueError, match="`graph` must be a graph with points"):
        voronoi_weights(Graph.from_affinity([[0, 1], [1, 0]]), np.ones(2), np.array([0]))


# --- Draws


def test_uniform_weights_of_all_nodes_are_the_measure():
    measure = np.random.default_rng(0).random(49)
    assert np.array_equal(uniform_weights(measure, np.arange(49)), measure)


@pytest.mark.parametrize("kind", ["uniform", "density"])
def test_drawn_anchors_are_unbiased_with_a_variance_of_one_over_m(kind, global_seed):
    """z-scores over 400 replicas; 12 of them at the level 1e-5 / 12 are one false alarm in 100,000 seeds."""
    rng = np.random.default_rng(global_seed)
    field, measure = rng.random((4, 30)), rng.random(30) + 0.1
    density = None if kind == "uniform" else rng.random(30) + 0.2
    pairs = np.triu_indices(4)
    exact = ((field * measure) @ field.T)[pairs][:6]
    spreads = []
    for m in (10, 160):
        found = []
        for _ in range(400):
            anchors = iid_anchors(30, m, density, rng)
            columns = field[:, anchors]
            found.append(((columns * uniform_weights(measure, anchors, density)) @ columns.T)[pairs][:6])
        z = (np.mean(found, axis=0) - exact) / (np.std(found, axis=0, ddof=1) / np.sqrt(400))
        assert np.abs(z).max() < norm.isf(1e-5 / 24)
        spreads.append(np.var(found, axis=0, ddof=1).mean())
    # Variances from 400 replicas are good to sqrt(2 / 400) = 7 %, their ratio to 10 %: 4.5 of these.
    assert spreads[0] / spreads[1] == pytest.approx(16, rel=0.45)


def test_anchors_of_zero_density_have_no_weight():
    with pytest.raises(ValueError, match=r"`density` must be positive at every anchor\. Got 0 at node 1"):
        uniform_weights(np.ones(3), np.array([0, 1]), [1.0, 0.0, 1.0])


# --- Unity


def test_the_field_of_all_nodes_sums_to_unity():
    """W sqrt(mu) = sqrt(mu), to the tolerance of the Sinkhorn scaling."""
    graph, field, _, new = heat_field("sphere")
    np.testing.assert_allclose(field @ graph.weights, 1.0, rtol=1e-8)
    np.testing.assert_allclose(new @ graph.weights, 1.0, rtol=1e-8)


def test_unity_weights_bring_sums_to_the_total_and_stay_positive():
    base, samples, _, _ = problem("sphere", 200)
    weights = unity_weights(samples.values, base, 2.0)
    assert (weights > 0).all()
    before, after = samples.values @ base - 1, samples.values @ weights - 2
    assert np.linalg.norm(after) / 2 < 0.5 * np.linalg.norm(before)


def test_unity_weights_find_an_exact_solution(global_seed):
    """With as many anchors as samples and a dominant diagonal the rounds converge to the solution."""
    rng = np.random.default_rng(global_seed)
    values = np.eye(6) + 0.1 * rng.random((6, 6))
    truth = np.linalg.solve(values, np.full(6, 3.0))
    weights = unity_weights(sparse.csr_array(values), np.ones(6), 3.0)
    np.testing.assert_allclose(weights, truth, rtol=1e-9)


def test_unity_leaves_anchors_alone_that_no_sample_sees():
    values = sparse.csr_array([[1.0, 0.0], [0.0, 0.0]])
    assert unity_weights(values, np.array([1.0, 5.0]), 2.0).tolist() == [2.0, 5.0]


@pytest.mark.parametrize(("entry", "total"), [(-1.0, 1.0), (1.0, 0.0)])
def test_unity_refuses_what_is_negative(entry, total):
    with pytest.raises(ValueError, match="`values` must be nonnegative"):
        unity_weights(sparse.csr_array([[entry]]), np.ones(1), total)


# --- Least squares


def test_nnls_equals_the_least_squares_of_all_pairs(global_seed):
    """The explicit list of equations, solved by another algorithm."""
    rng = np.random.default_rng(global_seed)
    s, m, ridge = 12, 9, 1e-2
    values, base = rng.random((s, m)), rng.random(m)
    # Some of the true weights are negative: bounds must act.
    kernel = (values * rng.normal(size=m)) @ values.T
    found = nnls_weights(sparse.csr_array(values), kernel, base, ridge=ridge)
    design = np.einsum("sl,rl->srl", values, values).reshape(s * s, m)
    pull = np.sqrt(ridge * np.square(design).sum(axis=0).mean())
    expected = optimize.nnls(np.vstack([design, pull * np.eye(m)]), np.concatenate([kernel.ravel(), pull * base]))[
        0
    ]
    assert (expected == 0).any()
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * expected.max())


@pytest.mark.parametrize("m", [1, 2, 10, 150])
def test_nonnegative_minimum_meets_the_optimality_conditions(m, global_seed):
    """w >= 0, gradient >= 0, and one of them zero in every entry, to the rounding of a solve."""
    rng = np.random.default_rng(global_seed)
    factor = rng.normal(size=(m + 5, m))
    scales = 10.0 ** rng.uniform(-3, 3, m)  # entries of very different units
    matrix = (factor.T @ factor + 0.01 * np.eye(m)) * np.outer(scales, scales)
    right = rng.normal(size=m) * scales
    weights = nonnegative_minimum(matrix, right)
    gradient = (matrix @ weights - right) / np.sqrt(matrix.diagonal())
    assert (weights >= 0).all()
    assert gradient.min() > -1e-9
    assert np.abs(gradient[weights > 0]).max(initial=0.0) < 1e-9


def test_nearly_parallel_columns_meet_the_optimality_conditions(monkeypatch):
    """Exchanges of blocks do not settle here; the conditions hold all the same, to the rounding of a solve."""
    rng = np.random.default_rng(0)
    rows = np.exp(-((rng.random((20, 1)) - rng.random(100)) ** 2) / 0.02)
    matrix = np.square(rows.T @ rows) + 1e-7 * np.eye(100)
    kernel = rng.normal(size=(20, 20))
    right = np.einsum("sl,sl->l", rows, (kernel + kernel.T) @ rows)
    fallen_back = []
    plain = optimize.nnls
    monkeypatch.setattr(quadrature.optimize, "nnls", lambda *given: (fallen_back.append(1), plain(*given))[1])
    weights = nonnegative_minimum(matrix, right)
    assert fallen_back
    gradient = (matrix @ weights - right) / np.sqrt(matrix.diagonal())
    assert (weights >= 0).all()
    assert gradient.min() > -1e-9
    assert np.abs(gradient[weights > 0]).max(initial=0.0) < 1e-9


def test_well_conditioned_problems_take_a_few_solves(monkeypatch):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(300, 150))
    solves = []
    solve = quadrature._solve_free
    monkeypatch.setattr(quadrature, "_solve_free", lambda *given: (solves.append(1), solve(*given))[1])
    monkeypatch.setattr(quadrature.optimize, "nnls", None)  # not needed
    weights = nonnegative_minimum(factor.T @ factor, rng.normal(size=150))
    assert 30 < np.count_nonzero(weights == 0) < 120
    assert len(solves) <= 8


def test_a_problem_without_bounds_is_a_plain_solve(global_seed):
    rng = np.random.default_rng(global_seed)
    factor = rng.random((30, 8))
    truth = rng.random(8) + 0.1
    matrix = factor.T @ factor
    np.testing.assert_allclose(nonnegative_minimum(matrix, matrix @ truth), truth, rtol=1e-9)


def test_nnls_keeps_the_base_where_no_sample_looks():
    values = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 0.0]]))
    weights = nnls_weights(values, np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([1.0, 7.0]), ridge=0.0)
    np.testing.assert_allclose(weights, [2.0, 7.0], rtol=1e-14)


# --- The choice


@pytest.mark.parametrize("name", ["sphere", "torus"])
def test_fitted_weights_are_more_accurate_at_new_points(name):
    """Measured at a spacing of one width: sphere .054 / .027 / .012, torus .054 / .026 / .011 (nnls last)."""
    graph = heat_field(name)[0]
    m = round(graph.weights.sum() / TIME[name])
    base, samples, ratio, error = problem(name, m)
    chosen = compare_weights("auto", base, samples=samples, ratio=ratio)
    unity = compare_weights("unity", base, samples=samples)
    assert [name for name, _ in chosen.table] == ["voronoi", "unity", "nnls"]
    assert chosen.method == "nnls"
    assert (chosen.weights >= 0).all()
    assert error(chosen.weights) < error(unity.weights) < error(base)
    assert error(chosen.weights) < 0.02
    # The table speaks of nodes, but of what happens at new points too, within a factor of 2.
    assert 0.5 < dict(chosen.table)["nnls"] / error(chosen.weights) < 2


def test_nnls_is_very_accurate_where_anchors_are_dense():
    """Measured at .7 widths: .0032, where the heat graph with all its nodes is .0030 off."""
    base, samples, ratio, error = problem("sphere", 512)
    chosen = compare_weights("auto", base, samples=samples, ratio=ratio)
    assert chosen.method == "nnls"
    assert error(chosen.weights) < 0.006


def test_auto_keeps_the_least_error_of_its_table():
    for m in (40, 120, 250):
        base, samples, ratio, _ = problem("torus", m)
        chosen = compare_weights("auto", base, samples=samples, ratio=ratio)
        assert dict(chosen.table)[chosen.method] == min(error for _, error in chosen.table)
        assert samples.error(chosen.weights) == dict(chosen.table)[chosen.method]


def test_nnls_is_not_tried_by_itself_where_anchors_are_sparse():
    base, samples, ratio, _ = problem("sphere", 100)
    ratio = max(ratio, 1.7)
    assert [name for name, _ in compare_weights("auto", base, samples=samples, ratio=ratio).table] == [
        "voronoi",
        "unity",
    ]
    assert "nnls" in dict(compare_weights("nnls", base, samples=samples, ratio=ratio).table)


def test_nnls_gives_way_where_held_out_samples_get_worse(global_seed):
    """A kernel between fitting samples that is wrong misleads the fit; held-out samples tell."""
    base, samples, _, _ = problem("sphere", 200)
    kernel = 3 * samples.kernel
    kernel[np.ix_(samples.held_out, samples.held_out)] /= 3
    misled = QuadratureSamples(samples.values, kernel, samples.held_out, 1.0)
    chosen = compare_weights("nnls", base, samples=misled)
    assert chosen.method == "unity"
    assert dict(chosen.table)["nnls"] > 1


def test_the_held_out_samples_do_not_enter_the_fit():
    base, samples, _, _ = problem("sphere", 200)
    values, kernel = samples.values.copy(), samples.kernel.copy()
    kernel[samples.held_out] *= 5
    kernel[:, samples.held_out] *= 5
    other = QuadratureSamples(values, kernel, samples.held_out, 1.0)
    for method in ("unity", "nnls"):
        fits = [quadrature._weights(method, base, data) for data in (samples, other)]
        assert np.array_equal(*fits)


def test_plain_methods_are_done_as_asked():
    base, samples, _, _ = problem("sphere", 200)
    chosen = compare_weights("voronoi", base, samples=samples)
    assert chosen.weights is base
    assert chosen.table == (("voronoi", samples.error(base)),)
    uniform = compare_weights("uniform", base, samples=samples, uniform=2 * base)
    assert uniform.table == (("uniform", samples.error(2 * base)),)
    assert compare_weights("uniform", base, uniform=base).table == ()
    assert isinstance(uniform, Quadrature)
    assert compare_weights("unity", base, samples=samples).method == "unity"


def test_negative_fields_are_not_fitted_by_unity():
    values = sparse.csr_array([[1.0, -0.5], [0.5, 1.0], [1.0, 1.0], [0.3, 0.2]])
    kernel = values.toarray() @ values.toarray().T
    samples = QuadratureSamples(values, kernel, np.array([3]), 1.0)
    chosen = compare_weights("auto", np.ones(2), samples=samples)
    assert [name for name, _ in chosen.table] == ["voronoi", "nnls"]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("best", "`method` must be one of 'auto', 'nnls'"),
        ("auto", "`samples` must be given for the method 'auto'"),
        ("uniform", "`uniform` must be given"),
    ],
)
def test_bad_methods_are_refused(method, text):
    with pytest.raises(ValueError, match=text):
        compare_weights(method, np.ones(2))


def test_nnls_of_too_many_anchors_is_refused():
    m = quadrature.LARGEST_NNLS + 1
    samples = QuadratureSamples(sparse.csr_array((4, m)), np.eye(4), np.array([3]), 1.0)
    with pytest.raises(
        ValueError, match=r"`method` must be other than 'nnls' above 4096 anchors\. Got 'nnls' with"
    ):
        compare_weights("nnls", np.ones(m), samples=samples)
    assert "nnls" not in dict(compare_weights("auto", np.ones(m), samples=samples).table)


def test_held_out_samples_must_have_a_kernel():
    samples = QuadratureSamples(sparse.csr_array(np.eye(4)), np.zeros((4, 4)), np.array([3]), 1.0)
    with pytest.raises(ValueError, match="`held_out` must be samples with a positive kernel"):
        compare_weights("voronoi", np.ones(4), samples=samples)
