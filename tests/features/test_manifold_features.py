"""The estimator: scikit-learn's contract, and what every kind of features keeps."""

import copy
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from manifoldrf import (
    Counts,
    DiffusionKernel,
    FarQueryWarning,
    HeatKernel,
    KnnGraph,
    ManifoldRandomFeatures,
    ManifoldWarning,
    Network,
    Sphere,
    Walks,
    compute_signatures,
    knn_graph,
    load,
)
from manifoldrf.kernels import CosineKernel

NODES, NEW = Sphere().grid(300), Sphere().sample(150, seed=1)
STEPS = DiffusionKernel(20.0)
MODELS = {
    "step": {"kernel": HeatKernel(0.4)},
    "interpolated": {"kernel": STEPS, "field": "interpolated", "graph": KnnGraph()},
    "network": {"kernel": STEPS, "n_features": 60, "field": Network(epochs=3, n_starts=80), "graph": KnnGraph()},
    "times": {"times": (0.3, 0.8)},
    "counts": {"kernel": STEPS, "teacher": Counts(n_walks=500), "graph": KnnGraph(n_neighbors=10)},
    "two sides": {"kernel": CosineKernel(), "graph": KnnGraph()},
}


def features(*arguments, **options):
    return ManifoldRandomFeatures(*arguments, **({"random_state": 0} | options))


def fit(name, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)  # of few epochs, and of spikes
        return features(**(MODELS[name] | options)).fit(NODES)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return fit(request.param)


@pytest.fixture(scope="module")
def plain():
    return fit("step")


def rows(model, points, **options):
    return model.transform(points, "left" if model.asymmetric_ else None, **options)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract():
    check_estimator(ManifoldRandomFeatures(random_state=0))


# ------------------------------------------------------------------------------------------------- parameters
def test_parameters_of_frozen_parts_are_replaced():
    given = features(HeatKernel(1.0), graph=KnnGraph(), teacher=Walks(), field=Network())
    changed = clone(given).set_params(kernel__t=2.0, teacher__n_walks=7, graph__n_neighbors=5, field__epochs=3)
    assert (changed.kernel.t, changed.teacher.n_walks, changed.graph.n_neighbors, changed.field.epochs) == (
        2,
        7,
        5,
        3,
    )
    assert (given.kernel.t, given.graph.n_neighbors) == (1, 8)
    assert features().set_params(kernel__t=0.3).kernel == HeatKernel(0.3)
    with pytest.raises(ValueError, match="graph__n_neighbors"):
        features().set_params(graph__n_neighbors=3)


def test_the_recipe_of_the_paper():
    recipe = ManifoldRandomFeatures.paper(graph__n_neighbors=24, random_state=0)
    assert recipe.kernel == DiffusionKernel(20.0)
    assert (recipe.graph.n_neighbors, recipe.teacher.n_walks, recipe.teacher.p_halt) == (24, 100_000, 0.01)
    assert (recipe.field, recipe.anchors, recipe.quadrature, recipe.normalize) == (
        Network(),
        "all",
        "uniform",
        False,
    )


# --------------------------------------------------------------------------------------------------- features
def test_features_are_finite_bounded_and_nonnegative_unless_two_sided(model):
    found = rows(model, NEW)
    assert np.isfinite(found).all()
    assert (np.abs(found) <= model.bound_ * (1 + 1e-12)).all()
    assert model.asymmetric_ or (found >= 0).all()


def test_a_row_depends_neither_on_others_nor_threads_nor_output(model):
    whole = rows(model, NEW)
    assert np.array_equal(rows(model, NEW[20:25]), whole[20:25])
    other = clone(model).set_params(n_jobs=1)
    other.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_") or k.startswith("_")})
    assert np.array_equal(rows(other, NEW), whole)
    other.sparse_output = True
    stored = rows(other, NEW)
    assert sparse.issparse(stored)
    assert stored.data.all()
    assert np.allclose(stored.toarray(), whole, rtol=1e-12, atol=1e-15 * np.abs(whole).max())
    blocks = sparse.vstack(list(other.transform_blocks(NEW, side="left", n_rows=40)))
    assert np.allclose(blocks.toarray(), whole, rtol=1e-12, atol=1e-15 * np.abs(whole).max())
    single = rows(model, NEW.astype(np.float32))
    assert single.dtype == np.float32


def test_the_error_of_an_interpolated_field_is_measured_at_nodes_that_it_does_not_pass_through():
    assert 1e-3 < fit("interpolated").error_.field < 0.05  # .011; at its own nodes it is 1e-7


def test_more_points_than_are_transformed_at_once_have_their_own_rows(plain):
    copies = 2**15 // len(NEW) + 2
    found = plain.transform(np.tile(NEW, (copies, 1)))
    assert np.array_equal(found, np.tile(plain.transform(NEW), (copies, 1)))


def test_the_kernel_is_the_product_of_features(model):
    right = model.transform(NEW, "right") if model.asymmetric_ else rows(model, NEW)
    kernel = rows(model, NEW) @ right.T
    assert np.allclose(model.kernel_matrix(NEW), kernel, atol=1e-12)
    assert np.allclose(model.kernel_matrix(NEW[:30], NEW[30:50]), kernel[:30, 30:50], atol=1e-12)
    v = np.random.default_rng(0).normal(size=(len(NEW), 2))
    assert np.allclose(model.matvec(NEW, v), kernel @ v, atol=1e-10)


def test_a_loaded_model_has_the_same_bits(model, tmp_path):
    other = load(model.save(tmp_path / "model.safetensors"))
    assert np.array_equal(rows(other, NEW), rows(model, NEW))
    assert other.summary() == model.summary()
    assert repr(other.get_params()) == repr(model.get_params())
    if model.times is not None:
        assert np.array_equal(other.at(0.5).transform(NEW), model.at(0.5).transform(NEW))


def test_equal_seeds_give_equal_bits_for_any_number_of_threads():
    for name in ("network", "counts", "step"):
        first, second, other = (
            fit(name, n_jobs=n_jobs, random_state=seed) for n_jobs, seed in ((1, 0), (2, 0), (2, 1))
        )
        assert np.array_equal(first.transform(NEW), second.transform(NEW))
        assert not np.array_equal(other.transform(NEW), second.transform(NEW))


def test_normalized_features_are_absolute_ones_times_a_factor():
    scaled, absolute = (fit("step", normalize=normalize) for normalize in (True, False))
    assert np.isclose((scaled.transform(scaled.graph_.positions) ** 2).sum(axis=1).mean(), 1)
    assert np.allclose(scaled.transform(NEW), np.sqrt(scaled.scale_) * absolute.transform(NEW))
    assert absolute.scale_ == 1
    assert np.allclose(scaled.weights_, absolute.weights_)


def test_features_fade_along_a_ray_with_one_warning(model):
    ray = np.outer([1.0, 1.5, 2.0, 30.0], NEW[0])
    with pytest.warns(FarQueryWarning, match="of 4 points") as caught:
        found = np.abs(rows(model, ray)).max(axis=1)
    assert [warning.filename for warning in caught] == [__file__]
    assert (np.diff(found) <= 0).all()
    assert found[-1] == 0
    assert np.allclose(model.distance_to_space(ray)[-1], 29, atol=0.2)


def test_two_sides_are_asked_for():
    model = fit("two sides")
    with pytest.raises(ValueError, match="`side`"):
        model.transform(NEW)
    with pytest.raises(ValueError, match="`side`"):
        fit("step").transform(NEW, "middle")


def test_progress_and_functions_of_the_user():
    told = []
    options = {"graph": knn_graph, "teacher": lambda graph, series, nodes: exact(graph, series, nodes)}

    def exact(graph, series, nodes):
        return compute_signatures(graph, series, nodes, asymmetric=True).rows

    found = features(STEPS, verbose=lambda what, done, total: told.append(what), **options).fit(NODES)
    assert {"graph", "anchors", "weights"} <= set(told)
    found.transform(np.tile(NEW, (1 + found.map_.block_size(as_sparse=False) // len(NEW), 1)))
    _ = found.error_
    assert told[-2:] == ["error of the graph"] * 2
    assert "features of points" in told
    assert np.allclose(found.transform(NEW), features(STEPS, graph=knn_graph).fit(NODES).transform(NEW), atol=1e-5)


def test_a_second_fit_forgets_the_first():
    model = fit("times")
    model.set_params(times=None, kernel=HeatKernel(0.3)).fit(Sphere(dim=1))
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="times="):
        model.at(0.2)


def test_a_fit_that_fails_leaves_the_model_as_it_was(plain, tmp_path):
    model = copy.deepcopy(plain)
    with pytest.raises(ValueError, match="`t` must be"):
        model.set_params(kernel=HeatKernel(1e9)).fit(NODES[:, :2])
    loaded = load(model.save(tmp_path / "model.safetensors"))
    assert np.array_equal(loaded.transform(NEW), plain.transform(NEW))


def test_texts_of_a_model_compute_nothing(plain):
    shown = fit("step")
    assert "error_" in shown._repr_html_()
    assert not shown._error[1]
    assert "heat graph" in plain.summary()


def test_two_positions_are_refused():
    for points in ([[0.0, 0.0], [1.0, 0.0]], [[0.0], [1.0], [1.0]]):
        with pytest.raises(ValueError, match="three distinct points"):
            ManifoldRandomFeatures().fit(points)


@pytest.mark.parametrize("name", ["kernel", "graph", "teacher"])
def test_classes_in_the_place_of_their_objects_are_refused(name):
    kind = {"kernel": HeatKernel, "graph": KnnGraph, "teacher": Walks}[name]
    with pytest.raises(TypeError, match=f"`{name}` must be an object, not its class"):
        ManifoldRandomFeatures(**{name: kind}).fit(Sphere())


def test_a_network_is_refused_for_kernels_with_two_sides():
    model = ManifoldRandomFeatures(CosineKernel(), "all", field=Network(epochs=1))
    with pytest.raises(ValueError, match="`field` must be other than a network"):
        model.fit(Sphere().grid(100))


def test_a_wide_kernel_fits_into_the_numbers_of_a_network():
    model = ManifoldRandomFeatures(DiffusionKernel(200.0), "all", field=Network(epochs=1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant, and hardly trained
        model.fit(Sphere().grid(100))
    assert np.isfinite(model.transform(Sphere().sample(5, seed=0))).all()


def test_points_on_a_part_of_a_metric_have_their_own_volume():
    points = Sphere().grid(4000)
    cap = points[points[:, 2] > 0.85]
    model = ManifoldRandomFeatures(HeatKernel(0.01), "all", normalize=False, graph=KnnGraph(metric=Sphere()))
    top = cap[[np.argmax(cap[:, 2])]]
    exact = Sphere().heat_kernel(top, top, 0.01)
    assert model.fit(cap).kernel_matrix(top) == pytest.approx(exact, rel=0.2)  # of so few points; it was .09 of it


def test_nearly_isolated_nodes_are_reported():
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal(size=(400, 2)), 8 * rng.normal(size=(100, 2)) + [60, 0]])
    with pytest.warns(ManifoldWarning) as caught:
        ManifoldRandomFeatures(DiffusionKernel(20.0), random_state=0).fit(points)
    assert any("nodes are nearly isolated" in str(one.message) for one in caught)
