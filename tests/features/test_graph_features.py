"""Graph random features as a scikit-learn transformer: K = K_1 K_2^T, in pipelines and searches."""

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GeneralizedAdjacency,
    GraphRandomFeatures,
    HeatKernel,
    PowerKernel,
    SeriesKernel,
    Sphere,
    compute_signatures,
    grid_graph,
    knn_graph,
)
from manifoldrf.signatures import engines as _auto

GRAPH = knn_graph(Sphere().grid(100))
KERNEL = DiffusionKernel(4.0)
K = KERNEL.dense(GRAPH)
NODES = np.array([5, 0, 99, 5])
EVERYTHING = np.arange(100)
COUPLINGS = ["shared", "independent", "asymmetric"]


def features(kernel=KERNEL, **settings):
    return GraphRandomFeatures(GRAPH, kernel, **settings)


def dense(values):
    return values.toarray() if sparse.issparse(values) else values


def walked(**settings):
    return features(teacher="walks", options={"n_walks": 50}, **settings)


@pytest.mark.parametrize("teacher", ["auto", "exact", "frontier"])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_inner_products_are_the_kernel(coupling, teacher):
    model = features(coupling=coupling, teacher=teacher).fit(EVERYTHING[:, None])
    first, second = model.transform(NODES), model.transform_second(EVERYTHING)
    for part in (first, second):
        assert isinstance(part, sparse.csr_array)
        assert part.shape[1] == model.n_features_out_ == 100
    # The frontier is exact up to 1e-8, the Chebyshev polynomial up to 1e-10.
    np.testing.assert_allclose((first @ second.T).toarray(), K[NODES], atol=2e-8)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_apply_multiplies_by_the_kernel(coupling):
    model = features(coupling=coupling, teacher="exact").fit()
    x = np.random.default_rng(0).normal(size=(100, 3))
    np.testing.assert_allclose(model.apply(x), K @ x, atol=1e-8)
    np.testing.assert_allclose(model.apply(x[:, 0].tolist()), K @ x[:, 0], atol=1e-8)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_walked_features(coupling):
    model = walked(coupling=coupling, random_state=0).fit()
    first, second = model.transform(EVERYTHING), model.transform_second(EVERYTHING)
    assert (first.data >= 0).all()  # the kernel is positive
    assert (second.data >= 0).all()
    assert ((first != second).nnz == 0) == (coupling == "shared")
    if coupling == "asymmetric":
        np.testing.assert_array_equal(second.toarray(), np.eye(100))
    some = model.transform(NODES)  # the features of a node do not depend on the others, nor on the call
    np.testing.assert_array_equal(some.toarray(), first.toarray()[NODES])
    x = np.random.default_rng(0).normal(size=100)
    np.testing.assert_allclose(model.apply(x), first @ (second.T @ x), rtol=1e-12)


def test_signed_kernels_need_the_asymmetric_coupling():
    for coupling in ("shared", "independent"):
        with pytest.raises(ValueError, match="coupling='asymmetric'"):
            features(CosineKernel(), coupling=coupling).fit()
    model = features(CosineKernel(), coupling="asymmetric").fit()
    product = (model.transform(NODES) @ model.transform_second(EVERYTHING).T).toarray()
    np.testing.assert_allclose(product, CosineKernel().dense(GRAPH)[NODES], atol=1e-9)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_compressed_inner_products_are_unbiased(coupling, global_seed):
    samples = []
    for k in range(200):
        model = features(coupling=coupling, n_components=20, random_state=1000 * global_seed + k).fit()
        first, second = model.transform(NODES[:3]), model.transform_second(NODES[:3])
        samples.append((first @ second.T).ravel())
    assert first.shape == (3, 20)
    np.testing.assert_allclose(model.transform(EVERYTHING)[NODES[:3]], first, rtol=1e-10)  # one compression for all
    band = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    limit = stats.t.isf(1e-6 / (2 * 9), len(samples) - 1)  # a false alarm in a million
    assert (np.abs(np.mean(samples, axis=0) - K[np.ix_(NODES[:3], NODES[:3])].ravel()) < limit * band).all()
    assert band.max() < 0.1 * K[0, 0]


@pytest.mark.parametrize(
    "X", [NODES, NODES[:, None], NODES.tolist(), [[5], [0], [99], [5]], NODES[:, None] * 1.0, NODES.astype("u2")]
)
def test_nodes_come_as_vectors_columns_lists_or_whole_floats(X):
    expected = compute_signatures(GRAPH, KERNEL, NODES).rows
    np.testing.assert_array_equal(features().fit(X).transform(X).toarray(), expected)


def test_manifold_kernels_and_generalised_adjacencies():
    model = features(HeatKernel(0.05)).fit()
    assert model.kernel_ == HeatKernel(0.05).on(GRAPH)
    np.testing.assert_allclose(model.apply(np.eye(100)), HeatKernel(0.05).dense(GRAPH), atol=1e-8)
    walk = GeneralizedAdjacency.random_walk(GRAPH)
    rows = GraphRandomFeatures(walk, KERNEL, coupling="asymmetric").fit().transform(NODES).toarray()
    np.testing.assert_allclose(rows, KERNEL.dense(walk)[NODES], atol=1e-9)


def test_names_of_the_columns():
    assert features().fit().get_feature_names_out().tolist() == [f"node{k}" for k in range(100)]
    assert features(n_components=2).fit().get_feature_names_out().tolist() == ["component0", "component1"]


def test_parameters_of_the_frozen_kernel():
    kernel = 2 * DiffusionKernel(3.0) + DiffusionKernel(1.0)
    model = features(kernel)
    assert model.get_params()["kernel__left__kernel__tau"] == 3.0
    assert features().get_params(deep=True)["kernel__tau"] == 4.0
    assert model.set_params(kernel__left__kernel__tau=7.0, kernel__right__tau=2.0, n_jobs=2) is model
    assert model.kernel == 2 * DiffusionKernel(7.0) + DiffusionKernel(2.0)
    assert model.n_jobs == 2
    assert kernel == 2 * DiffusionKernel(3.0) + DiffusionKernel(1.0)
    model.set_params(kernel__tau=9.0, kernel=DiffusionKernel(1.0))  # a new kernel, whatever the order
    assert model.kernel == DiffusionKernel(9.0)
    for name in ("kernel__t", "kernels__tau", "walks"):
        with pytest.raises(ValueError, match=name.split("__")[-1]):
            model.set_params(**{name: 1.0})
    with pytest.raises(ValueError, match="`tau` must be a number"):
        model.set_params(kernel__tau=-1.0)


@pytest.mark.parametrize("kernel", [KERNEL, SeriesKernel([1.0, 4.0, 4.0]), 2 * KERNEL + PowerKernel(0)], ids=str)
def test_clones_are_equal_and_refit_to_the_same_features(kernel):
    model = walked(random_state=3).set_params(kernel=kernel, coupling="asymmetric").fit()
    again = clone(model)
    assert not hasattr(again, "kernel_")
    assert again.kernel == kernel
    for first, second in ((model, again.fit()), (model, model.fit())):
        np.testing.assert_array_equal(first.transform(NODES).toarray(), second.transform(NODES).toarray())


def test_random_states():
    rows = [walked(random_state=state).fit().transform(NODES).toarray() for state in (0, 1, None, None)]
    assert all((a != b).any() for k, a in enumerate(rows) for b in rows[:k])
    drawn = [walked(random_state=np.random.RandomState(0)).fit().transform(NODES).toarray() for _ in range(2)]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("search", ["kernel__tau", "kernel"])
def test_pipelines_and_searches(search):
    height = GRAPH.points[:, 2]
    model = make_pipeline(features(random_state=0), Ridge(1e-3)).fit(EVERYTHING[::2, None], height[::2])
    assert np.abs(model.predict(EVERYTHING[:, None]) - height).max() < 0.2
    taus, folds = [0.1, 4.0], KFold(5, shuffle=True, random_state=0)  # the shorter reaches hardly a neighbour
    values = taus if search == "kernel__tau" else [DiffusionKernel(tau) for tau in taus]
    found = GridSearchCV(model, {f"graphrandomfeatures__{search}": values}, cv=folds, error_score="raise")
    found.fit(EVERYTHING[:, None], height)
    assert found.best_estimator_[0].kernel == KERNEL
    assert found.best_score_ > 0.9
    assert found.cv_results_["mean_test_score"][0] < 0.9


def test_the_number_of_entries_does_not_grow_with_the_square_of_the_nodes():
    per_row = []
    for side in (50, 100):
        model = GraphRandomFeatures(grid_graph(side, 2), KERNEL, teacher="frontier").fit()
        rows = model.transform(np.arange(0, side**2, 97))
        per_row.append(rows.nnz / rows.shape[0])
    assert per_row[0] == per_row[1] < 1000


def test_features_ask_to_be_fitted():
    for method in ("transform", "transform_second", "apply"):
        with pytest.raises(NotFittedError, match="not fitted"):
            getattr(features(), method)(NODES)
    with pytest.raises(NotFittedError, match="not fitted"):
        features().get_feature_names_out()


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"kernel": 4.0}, TypeError, "`kernel` must be a kernel"),
        ({"kernel": CosineKernel()}, ValueError, "asymmetric"),
        ({"coupling": "both"}, ValueError, "`coupling` must be one of 'shared', 'independent', 'asymmetric'"),
        ({"n_components": 0}, ValueError, "`n_components` must be an integer"),
        ({"n_components": 2.0}, TypeError, "`n_components` must be an integer"),
        ({"random_state": "0"}, TypeError, "`random_state` must be None, a non-negative integer"),
        ({"graph": np.eye(3)}, TypeError, "`graph` must be a Graph"),
        ({"teacher": "x"}, ValueError, "`teacher` must be one of"),
        ({"options": {"n_walks": 5}, "teacher": "exact"}, TypeError, "has no option `n_walks`"),
        ({"n_jobs": 0}, ValueError, "`n_jobs` must be -1 or an integer"),
    ],
)
def test_bad_settings(settings, kind, message):
    with pytest.raises(kind, match=message):
        GraphRandomFeatures(**{"graph": GRAPH, "kernel": KERNEL, **settings}).fit().transform([0])


@pytest.mark.parametrize("method", ["fit", "transform", "transform_second"])
@pytest.mark.parametrize(
    ("X", "kind"),
    [
        ([100], ValueError),
        ([-1.0], ValueError),
        ([0.5], TypeError),
        ([np.nan], TypeError),
        ([[np.inf]], TypeError),
        ([], ValueError),
        ([[0, 1]], ValueError),
        (["0"], TypeError),
    ],
)
def test_bad_nodes(method, X, kind):
    with pytest.raises(kind, match="`X` must be"):
        getattr(features(coupling="asymmetric").fit(), method)(X)


@pytest.mark.parametrize(("x", "message"), [(np.ones(99), "100 rows"), (np.full(100, np.nan), "finite")])
def test_bad_signals(x, message):
    with pytest.raises(ValueError, match=f"`x` must be .*{message}"):
        features().fit().apply(x)


def test_a_node_has_the_same_features_whatever_others_are_transformed(monkeypatch):
    monkeypatch.setattr(_auto, "ROW_MEMORY", 1000)  # rows of all nodes would be walked by compute_signatures
    fitted = features(random_state=0).fit()
    assert fitted.teacher_ in ("exact", "frontier")
    few, all_of_them = fitted.transform([3, 7]), fitted.transform(EVERYTHING)
    assert (few != all_of_them[[3, 7]]).nnz == 0


def test_options_are_checked_when_fitted():
    with pytest.raises(TypeError, match="`options` must be a dict"):
        features(options=3).fit()
    with pytest.raises(TypeError, match="has no option `n_walk`"):
        features(teacher="walks", options={"n_walk": 3}).fit()
