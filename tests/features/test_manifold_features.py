"""ManifoldRandomFeatures as a scikit-learn transformer: the contract, pipelines, output types, equal bits."""

import copy
import dataclasses
import html
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FarQueryWarning,
    FeatureWarning,
    GraphOptions,
    HeatKernel,
    ManifoldRandomFeatures,
    PowerKernel,
    Sphere,
    knn_graph,
    load,
)
from manifoldrf.features import feature_map as _reading
from manifoldrf.fields.interpolated import fit_interpolated

T = 0.15
HEAT = HeatKernel(T)
N = 400
NODES = Sphere().grid(N)
NEW = Sphere().sample(300, seed=1)
COLUMNS = ["x", "y", "z"]


def features(kernel=HEAT, **settings):
    return ManifoldRandomFeatures(kernel, **{"random_state": 0, **settings})


def dense(values):
    return values.toarray() if sparse.issparse(values) else values


@pytest.fixture(scope="module")
def fitted():
    return features().fit(NODES)


# One of every field that needs no training of a network.
FIELDS = {
    "step": lambda **more: features(**more),
    "interpolated": lambda **more: features(DiffusionKernel(20.0), field="interpolated", n_starts=360, **more),
    "local": lambda **more: features(DiffusionKernel(20.0), field="local", n_features=150, **more),
}


@pytest.fixture(scope="module", params=FIELDS)
def any_field(request):
    return FIELDS[request.param]().fit(NODES)


@parametrize_with_checks([ManifoldRandomFeatures()])
@pytest.mark.filterwarnings("ignore")  # the data of the checks are blobs of a few points in many dimensions
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


# ---------------------------------------------------------------------------------------- pipelines and searches
@pytest.mark.filterwarnings("ignore::manifoldrf.GraphWarning")  # the two moons are two pieces
def test_moons_are_told_apart_with_defaults_in_two_lines():
    X, y = make_moons(600, noise=0.05, random_state=0)
    model = make_pipeline(ManifoldRandomFeatures(), KNeighborsClassifier()).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) >= 0.99  # at this noise the moons do not touch
    model = make_pipeline(ManifoldRandomFeatures(), Ridge(1e-3)).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) >= 0.99


def test_ridge_on_the_features_is_kernel_ridge_regression():
    target = NEW[:, 2] + NEW[:, 0] * NEW[:, 1]
    model = make_pipeline(features(), Ridge(0.1, fit_intercept=False)).fit(NODES, NODES[:, 2])
    kernel = model[0].kernel_matrix
    weights = np.linalg.solve(kernel(NODES) + 0.1 * np.eye(len(NODES)), NODES[:, 2])
    # The two are equal; the systems have condition numbers below 1e4.
    np.testing.assert_allclose(model.predict(NEW), kernel(NEW, NODES) @ weights, atol=1e-9)
    assert model.fit(NODES, NODES[:, 2] + NODES[:, 0] * NODES[:, 1]).score(NEW, target) > 0.99


def test_a_search_over_the_time_finds_the_one_that_fits():
    order = np.random.default_rng(0).permutation(N)
    target = np.cos(4 * NODES[:, 2])
    search = GridSearchCV(
        make_pipeline(features(), Ridge(1e-4)),
        {"manifoldrandomfeatures__kernel__t": [T, 2.0]},  # functions on a scale of 2 are too smooth
        cv=2,
        error_score="raise",
    ).fit(NODES[order], target[order])
    assert search.best_estimator_[0].kernel == HeatKernel(T)
    assert search.best_score_ > 0.9 > search.cv_results_["mean_test_score"][1]


# ------------------------------------------------------------------------------------------------- parameters
def test_kernel_is_the_parameter_and_nothing_else(fitted):
    assert fitted.kernel == HeatKernel(T)
    assert type(fitted.kernel) is HeatKernel
    assert not callable(fitted.kernel)
    assert features(fitted.kernel).get_params()["kernel"] is fitted.get_params()["kernel"]
    assert ManifoldRandomFeatures().kernel is None


def test_parameters_are_kept_as_given():
    kernel, options = HeatKernel(T), GraphOptions(n_nodes=500)
    model = features(kernel, graph=options, n_features=100, teacher_options={}, field_options={})
    params = model.get_params(deep=False)
    assert params["kernel"] is kernel
    assert params["graph"] is options
    assert params["n_features"] == 100
    again = clone(model)
    assert again.get_params(deep=False).keys() == params.keys()
    assert again.kernel == kernel
    assert not hasattr(again, "map_")
    assert model.get_params()["kernel__t"] == T
    assert model.get_params()["graph__n_nodes"] == 500


def test_parameters_of_frozen_parts_are_replaced():
    kernel, options = HeatKernel(T), GraphOptions(n_nodes=500)
    model = features(kernel, graph=options).set_params(kernel__t=0.3, graph__n_nodes=700, n_jobs=1)
    assert model.kernel == HeatKernel(0.3)
    assert model.graph.n_nodes == 700
    assert (kernel.t, options.n_nodes, model.n_jobs) == (T, 500, 1)
    with pytest.raises(ValueError, match="tau"):
        model.set_params(kernel__tau=0.3)
    with pytest.raises(ValueError, match="kernels"):
        model.set_params(kernels=0.3)


def test_a_part_of_no_kernel_is_a_clear_error():
    with pytest.raises(ValueError, match="`kernel__tau` needs a kernel to change"):
        ManifoldRandomFeatures().set_params(kernel__tau=0.1)


def test_the_time_of_no_kernel_makes_a_heat_kernel():
    model = ManifoldRandomFeatures().set_params(kernel__t=0.1)
    assert model.kernel == HeatKernel(0.1)
    assert model.set_params(kernel=None, kernel__t=0.2).kernel == HeatKernel(0.2)
    X, y = make_moons(200, noise=0.1, random_state=0)
    pipeline = make_pipeline(ManifoldRandomFeatures(random_state=0), LogisticRegression())
    search = GridSearchCV(pipeline, {"manifoldrandomfeatures__kernel__t": [0.1, 3.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"manifoldrandomfeatures__kernel__t": 0.1}


# ----------------------------------------------------------------------------------------------- height and length
KERNELS_TO_SCALE = {
    "heat": HeatKernel(T),
    "steps": DiffusionKernel(20.0),
    "chosen": None,
    "two sides": CosineKernel(),
    "function": lambda a, b: np.exp(a @ b.T),
}


@pytest.mark.parametrize("kernel", KERNELS_TO_SCALE.values(), ids=KERNELS_TO_SCALE.keys())
@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")  # no field follows the cosine
def test_normalized_features_are_the_absolute_ones_times_a_factor(kernel, tmp_path):
    models = [features(kernel, normalize=normalize, field="step").fit(NODES) for normalize in (True, False)]
    (left, right), absolute = ([model.transform(NEW, side=side) for side in ("left", "right")] for model in models)
    factor = models[0].scale_
    np.testing.assert_allclose(left, np.sqrt(factor) * absolute[0], rtol=1e-12)
    np.testing.assert_allclose(right, np.sqrt(factor) * absolute[1], rtol=1e-12)
    np.testing.assert_allclose(models[0].kernel_matrix(NEW), left @ right.T, atol=1e-12)
    np.testing.assert_allclose(models[0].bound_, np.sqrt(factor) * models[1].bound_, rtol=1e-12)
    np.testing.assert_array_equal(models[0].weights_, models[1].weights_)
    assert models[0].error_ == models[1].error_
    assert models[1].scale_ == 1
    copied = load(models[0].save(tmp_path / "model.safetensors"))
    assert (copied.scale_, copied.normalize) == (factor, True)
    np.testing.assert_array_equal(copied.transform(NEW, side="left"), left)
    assert f"{factor:.3g} times the kernel" in models[0].summary()
    assert np.diagonal(models[0].kernel_matrix(NODES)).mean() == pytest.approx(1.0, rel=1e-9)


def test_the_normalisation_does_not_depend_on_the_order_of_the_points():
    points = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))  # K(x, x) is larger at the edge
    outwards = points[np.argsort(np.abs(points).max(axis=1))]
    options = {"n_features": "all", "field": "step", "graph": GraphOptions(dim=2, noise=0)}
    one, other = (features(HeatKernel(0.1), **options).fit(nodes) for nodes in (points, outwards))
    assert other.scale_ == pytest.approx(one.scale_, rel=1e-9)
    assert np.diagonal(one.kernel_matrix(one.graph_.positions)).mean() == pytest.approx(1.0, rel=1e-9)


def test_a_chosen_kernel_can_be_longer_or_shorter():
    usual, longer = (ManifoldRandomFeatures(scale=scale, random_state=0).fit(NODES) for scale in (1.0, 2.0))
    assert longer.kernel_.t == pytest.approx(4 * usual.kernel_.t, rel=0.01)  # three digits
    graph = knn_graph(NODES)
    usual, longer = (ManifoldRandomFeatures(scale=scale, random_state=0).fit(graph) for scale in (1.0, 2.0))
    assert longer.kernel_.t == pytest.approx(4 * usual.kernel_.t, rel=0.01)
    with pytest.raises(ValueError, match="`scale` must be 1 where a kernel is given"):
        ManifoldRandomFeatures(HeatKernel(T), scale=2.0).fit(NODES)
    with pytest.raises(ValueError, match="`scale` must be a number in"):
        ManifoldRandomFeatures(scale=0.0).fit(NODES)


@pytest.mark.parametrize("given", [True, False], ids=["given", "chosen"])
@pytest.mark.filterwarnings("ignore::manifoldrf.FarQueryWarning")
def test_no_unit_of_length_changes_a_score(given):
    X, y = make_moons(240, noise=0.15, random_state=0)
    scores = []
    for unit in (1.0, 1e-6, 2.54, 1e6):
        kernel = HeatKernel(0.1 * unit**2) if given else None
        model = make_pipeline(ManifoldRandomFeatures(kernel, random_state=0), LogisticRegression())
        model.fit(unit * X[:120], y[:120])
        scores.append(model.predict_proba(unit * X[120:])[:, 1])
    assert np.mean((scores[0] > 0.5) == y[120:]) > 0.95
    for other in scores[1:]:  # a chosen time is rounded to three digits
        np.testing.assert_allclose(other, scores[0], atol=1e-4 if given else 0.01)
        assert (np.mean((other > 0.5) == y[120:])) == np.mean((scores[0] > 0.5) == y[120:])


def test_repr_shows_what_was_set():
    text = repr(ManifoldRandomFeatures(HeatKernel(T), n_features=256))
    assert text == "ManifoldRandomFeatures(kernel=HeatKernel(t=0.15), n_features=256)"
    assert repr(ManifoldRandomFeatures()) == "ManifoldRandomFeatures()"


def test_texts_of_a_model_compute_nothing_and_warn_of_nothing(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        features = ManifoldRandomFeatures(HeatKernel(0.02), random_state=0).fit(Sphere().sample(100, seed=0))
    monkeypatch.setattr("manifoldrf.features.manifold_features.graph_error", lambda *_: pytest.fail("computed"))
    assert repr(features).startswith("ManifoldRandomFeatures(")
    shown = features._repr_html_()  # what a notebook shows
    assert shown == features._repr_mimebundle_()["text/html"]
    assert shown.startswith("<table>")
    assert "HeatKernel(t=0.02)" in shown
    assert "graph not estimated; rest " in shown
    assert "sk-container" in ManifoldRandomFeatures()._repr_html_()  # scikit-learn's own
    assert "ManifoldRandomFeatures" in make_pipeline(features, LogisticRegression())._repr_html_()


def test_a_notebook_shows_the_summary_with_the_error_once_it_is_known(fitted):
    lines = fitted.summary().splitlines()
    shown = html.unescape(fitted._repr_html_())
    for line in lines:
        name, text = re.split(r"\s{2,}", line, maxsplit=1)
        assert f">{name}</th>" in shown
        assert f">{text}</td>" in shown
    assert shown.count("<tr>") == len(lines)


def test_clones_and_copies_fit_to_the_same_bits(any_field):
    expected = any_field.transform(NEW)
    np.testing.assert_array_equal(clone(any_field).fit(NODES).transform(NEW), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(any_field)).transform(NEW), expected)
    np.testing.assert_array_equal(copy.deepcopy(any_field).transform(NEW), expected)
    assert pickle.loads(pickle.dumps(any_field)).error_ == any_field.error_


# ---------------------------------------------------------------------------------------------- input and output
def test_output_as_a_pandas_frame_with_the_names_of_the_features(fitted):
    names = fitted.get_feature_names_out()
    assert names.tolist() == [f"manifoldrandomfeatures{k}" for k in range(fitted.n_features_out_)]
    model = copy.deepcopy(fitted).set_output(transform="pandas")
    frame = model.transform(NEW)
    assert isinstance(frame, pd.DataFrame)
    assert frame.columns.tolist() == names.tolist()
    np.testing.assert_array_equal(frame.to_numpy(), fitted.transform(NEW))


def test_frames_are_read_and_their_columns_remembered(fitted):
    model = features().fit(pd.DataFrame(NODES, columns=COLUMNS))
    assert model.feature_names_in_.tolist() == COLUMNS
    np.testing.assert_array_equal(model.transform(pd.DataFrame(NEW, columns=COLUMNS)), fitted.transform(NEW))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(pd.DataFrame(NEW, columns=["x", "y", "w"]))
    assert not hasattr(model.fit(Sphere()), "feature_names_in_")


def test_lists_and_fortran_order_are_read_alike(fitted):
    expected = fitted.transform(NEW)
    for same in (NEW.tolist(), np.asfortranarray(NEW), np.repeat(NEW, 2, axis=0)[::2]):
        np.testing.assert_array_equal(fitted.transform(same), expected)


def test_single_precision_in_single_precision_out(any_field):
    rounded = NEW.astype(np.float32)
    found, expected = any_field.transform(rounded), any_field.transform(rounded.astype(np.float64))
    assert (
        found.dtype
        == any_field.kernel_matrix(rounded).dtype
        == any_field.matvec(rounded, NEW[:, 0]).dtype
        == np.float32
    )
    np.testing.assert_array_equal(found, expected.astype(np.float32))  # computed in double precision, rounded once
    # Queries moved by 6e-8; features change by their own size over a width of about .3.
    assert np.abs(found - any_field.transform(NEW)).max() < 1e-5 * expected.max()


def test_the_same_space_in_single_precision():
    # All nodes are anchors: farthest points of even nodes are ties, which rounding decides.
    single, double = (features(n_features="all").fit(NODES.astype(kind)) for kind in (np.float32, np.float64))
    np.testing.assert_allclose(
        single.kernel_matrix(NEW), double.kernel_matrix(NEW), atol=1e-5 * double.kernel_matrix(NEW[:1]).item()
    )


def test_features_are_nonnegative_finite_and_bounded(any_field):
    rows = any_field.transform(np.vstack([NEW, NODES]))
    assert rows.shape == (300 + N, any_field.n_features_out_)
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    assert (rows <= any_field.bound_ * (1 + 1e-12)).all()
    # The bound is one of this field, not of any: some feature comes within a factor of 2 times the growth allowed.
    assert (rows.max(axis=0) > any_field.bound_ / 8).any()


def test_sparse_output_is_csr_and_equal(any_field):
    model = copy.deepcopy(any_field).set_params(sparse_output=True)
    rows = model.transform(NEW)
    assert isinstance(rows, sparse.csr_array)
    assert rows.has_sorted_indices
    np.testing.assert_array_equal(rows.toarray(), any_field.transform(NEW))
    assert model.transform(NEW.astype(np.float32)).dtype == np.float32


def test_the_kernel_is_the_product_of_the_features(any_field):
    first, second = NEW[:200], NEW[150:]
    left, right = any_field.transform(first), any_field.transform(second)
    # Sums of up to 400 products round differently by at most 400 units in the last place of nonnegative terms.
    np.testing.assert_allclose(any_field.kernel_matrix(first, second), left @ right.T, rtol=2e-13)
    np.testing.assert_allclose(any_field.kernel_matrix(first), left @ left.T, rtol=2e-13)


def test_matvec_multiplies_by_the_kernel(any_field):
    v = np.random.default_rng(0).normal(size=(300, 3))
    expected = any_field.kernel_matrix(NEW) @ v
    np.testing.assert_allclose(any_field.matvec(NEW, v), expected, atol=1e-11 * np.abs(expected).max())
    one = any_field.matvec(NEW, v[:, 0].tolist())
    assert one.shape == (300,)
    np.testing.assert_allclose(one, expected[:, 0], atol=1e-11 * np.abs(expected).max())


# ------------------------------------------------------------------------------------------------- equal bits
def test_a_row_does_not_depend_on_the_other_rows(any_field):
    expected = any_field.transform(NEW)
    for rows in (slice(7, 8), slice(100, 290), np.arange(300)[::-1]):
        np.testing.assert_array_equal(any_field.transform(NEW[rows]), expected[rows])


@pytest.mark.parametrize("sparse_output", [False, True])
def test_chunks_change_no_bit(any_field, monkeypatch, sparse_output):
    model = copy.deepcopy(any_field).set_params(sparse_output=sparse_output)
    whole, v = dense(model.transform(NEW)), np.ones(300)
    product = model.matvec(NEW, v)
    limit = "_SPARSE_AT_ONCE" if sparse_output else "_DENSE_AT_ONCE"
    per_row = model.map_.field.row_entries if sparse_output else model.n_features_out_
    monkeypatch.setattr(_reading, limit, 37 * per_row)
    assert len(list(model.map_.spans(300, as_sparse=sparse_output))) == 9
    chunked = model.transform(NEW)
    assert sparse.issparse(chunked) == sparse_output
    np.testing.assert_array_equal(dense(chunked), whole)
    np.testing.assert_allclose(model.matvec(NEW, v), product, rtol=1e-12)  # sums in another order
    monkeypatch.setattr(_reading, limit, 1)  # less than a row: one at a time
    np.testing.assert_array_equal(dense(model.transform(NEW[:5])), whole[:5])


@pytest.mark.parametrize("sparse_output", [False, True])
def test_points_of_a_block_are_limited_however_few_features_they_have(any_field, monkeypatch, sparse_output):
    """Lists of their neighbours take more memory."""
    model = copy.deepcopy(any_field).set_params(sparse_output=sparse_output)
    whole, product = dense(model.transform(NEW)), model.matvec(NEW, np.ones(300))
    monkeypatch.setattr(_reading, "_POINTS_AT_ONCE", 37)
    assert [len(dense(block)) for block in model.transform_blocks(NEW)] == [37] * 8 + [4]
    np.testing.assert_array_equal(dense(model.transform(NEW)), whole)
    np.testing.assert_allclose(model.matvec(NEW, np.ones(300)), product, rtol=1e-12)  # sums in another order


def test_sparse_features_store_no_zeros():
    """Fitted weights of some anchors are zero, and so are features far from the space."""
    model = ManifoldRandomFeatures(HeatKernel(0.05), n_features=300, sparse_output=True, random_state=0).fit(NODES)
    assert (model.weights_ == 0).any()
    with pytest.warns(FarQueryWarning):
        rows = model.transform(np.concatenate([NEW, [[9.0, 0.0, 0.0]]]))
    assert rows.data.all()


@pytest.mark.parametrize("sparse_output", [False, True])
def test_blocks_of_a_file_have_the_bits_of_the_whole(any_field, tmp_path, sparse_output):
    model = copy.deepcopy(any_field).set_params(sparse_output=sparse_output)
    np.save(tmp_path / "new.npy", NEW)
    stored = np.load(tmp_path / "new.npy", mmap_mode="r")
    blocks = [dense(block) for block in model.transform_blocks(stored, n_rows=70)]
    assert [len(block) for block in blocks] == [70, 70, 70, 70, 20]
    np.testing.assert_array_equal(np.concatenate(blocks), dense(model.transform(NEW)))


def test_blocks_are_checked_when_they_are_read(any_field):
    spoilt = NEW.copy()
    spoilt[250] = np.nan
    blocks = any_field.transform_blocks(spoilt, n_rows=100)
    next(blocks), next(blocks)
    with pytest.raises(ValueError, match="NaN"):
        next(blocks)
    with pytest.raises(TypeError, match=r"`X` must be an array of shape \(q, d\); .* Got list"):
        any_field.transform_blocks([[0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="`n_rows` must be"):
        any_field.transform_blocks(NEW, n_rows=0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_points_on_a_disk_give_the_model_of_points_in_memory(tmp_path, dtype):
    np.save(tmp_path / "nodes.npy", NODES.astype(dtype))
    stored = np.load(tmp_path / "nodes.npy", mmap_mode="r")
    options = {"kernel": HeatKernel(0.1), "n_features": 100, "random_state": 0}
    one, other = (ManifoldRandomFeatures(**options).fit(X) for X in (stored, np.array(stored)))
    np.testing.assert_array_equal(one.transform(NEW), other.transform(NEW))
    assert not isinstance(one.graph_.points.base, np.memmap)  # the file may go: the model has its own nodes


@pytest.mark.parametrize("field", ["step", "interpolated", pytest.param("local", marks=pytest.mark.slow)])
def test_the_number_of_threads_changes_no_bit(field):
    one, two = (FIELDS[field](n_jobs=n_jobs).fit(NODES) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one.transform(NEW), two.transform(NEW))
    np.testing.assert_array_equal(one.weights_, two.weights_)
    assert one.error_ == two.error_


@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")  # no field can follow the cosine
@pytest.mark.parametrize("kernel", [DiffusionKernel(20.0), CosineKernel()])
def test_factors_of_many_points_do_not_depend_on_threads(kernel):
    """In the graph clock points have a measure of their own, found a thousand at a time."""
    fitted = features(kernel, n_features="auto").fit(NODES).map_
    points = Sphere().sample(2500, seed=2)
    np.testing.assert_array_equal(fitted.own(points, 3), fitted.own(points, 1))
    (one, _), (three, _) = (fitted.rows(points, jobs, side="right") for jobs in (1, 3))
    np.testing.assert_array_equal(dense(one), dense(three))
    part, _ = fitted.rows(points[1100:1200], 1, side="right")
    np.testing.assert_array_equal(dense(three)[1100:1200], dense(part))


def test_equal_seeds_equal_features_and_others_not():
    rows = [features(anchors="iid", n_features=100, random_state=s).fit(NODES).transform(NEW) for s in (0, 0, 1)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert (rows[0] != rows[2]).any()
    for seed in (np.random.RandomState(3), None):
        assert features(anchors="iid", n_features=100, random_state=seed).fit(NODES).transform(NEW).shape == (
            300,
            100,
        )


def test_refitting_forgets_the_space_before():
    model = features().fit(NODES)
    model.fit(Sphere(dim=1))
    assert model.n_features_in_ == 2
    assert model.transform([[1.0, 0.0]]).shape == (1, model.n_features_out_)


# ---------------------------------------------------------------------------------------------- far queries
def counts(caught):
    assert [warning.category for warning in caught] == [FarQueryWarning]
    words = str(caught[0].message).split()
    return [int(word) for word in words if word.isdigit()]


def test_features_fade_to_zero_along_a_ray(any_field):
    direction = np.array([[0.6, 0.0, 0.8]])
    steps = np.linspace(1.0, 3.0, 81)[:, None]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = any_field.transform(steps * direction)
    window = any_field.map_.problem.window(steps * direction)
    sizes = np.linalg.norm(rows, axis=1)
    fading = np.flatnonzero(window < 1)
    assert counts(caught) == [len(fading), 81, int((window == 0).sum())]
    assert 0 < fading[0] < 40  # nearer than one radius from the surface
    assert (np.diff(sizes[fading]) <= 0).all()
    assert (sizes[window == 0] == 0).all()
    assert sizes[-1] == 0 < sizes[0]
    # Before, queries count as points of the space: the step from them narrows a little, the features with it.
    assert np.abs(sizes[: fading[0]] / sizes[0] - 1).max() < 0.1


def test_every_method_warns_once(fitted):
    points = np.vstack([NEW[:5], 1.5 * NEW[:2], 9 * NEW[:3]])
    gone = int((fitted.map_.problem.window(points) == 0).sum())
    calls = [
        lambda: fitted.transform(points),
        lambda: fitted.kernel_matrix(points),
        lambda: fitted.matvec(points, np.ones(10)),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert counts(caught) == [5, 10, gone]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.kernel_matrix(points, NEW)
    assert counts(caught) == [5, 310, gone]


@pytest.mark.parametrize("method", ["transform", "kernel_matrix"])
def test_warnings_point_at_the_line_of_the_caller(fitted, method):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(fitted, method)(9 * NEW)
    assert caught[0].filename == __file__


def test_chunks_warn_once_for_all(fitted, monkeypatch):
    monkeypatch.setattr(_reading, "_DENSE_AT_ONCE", 2 * fitted.n_features_out_)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.transform(np.vstack([9 * NEW[:7], NEW[:3]]))
    assert counts(caught) == [7, 10, 7]


def test_points_of_the_space_are_not_far(any_field):
    any_field.transform(Sphere().sample(2000, seed=3))  # a warning would be an error


def test_distances_to_the_space(fitted):
    points = np.vstack([NODES[:3], 2 * NODES[:3], [[0.0, 0.0, 0.0]]])
    # The nearest node of 2 x is x itself, and the center is one radius from all.
    np.testing.assert_allclose(fitted.distance_to_space(points), [0, 0, 0, 1, 1, 1, 1], atol=1e-15)


# ------------------------------------------------------------------------- kernels without nonnegative features
@pytest.fixture(scope="module")
def cosine():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a kernel of a few steps is a spike between nodes
        return features(CosineKernel()).fit(NODES)


def test_signed_kernels_have_two_sides(cosine):
    with pytest.raises(ValueError, match="`side` must be 'left' or 'right'"):
        cosine.transform(NODES)
    left, right = (cosine.transform(NODES, side=side) for side in ("left", "right"))
    exact = cosine.scale_ * CosineKernel().dense(cosine.graph_)
    # Entries below 1e-7 of the largest of their column are left out, 400 in a row.
    np.testing.assert_allclose(left @ right.T, exact, atol=1e-6 * cosine.scale_)
    np.testing.assert_allclose(cosine.kernel_matrix(NODES), left @ right.T, atol=1e-14)
    np.testing.assert_allclose(cosine.kernel_matrix(NODES[:9], NODES), (left @ right.T)[:9], atol=1e-14)
    np.testing.assert_allclose(cosine.matvec(NODES, NODES), exact @ NODES, atol=1e-5)
    assert (np.abs(left) <= cosine.bound_ * (1 + 1e-12)).all()


def test_sides_of_a_nonnegative_kernel_are_the_same(fitted):
    left, right = (fitted.transform(NEW, side=side) for side in ("left", "right"))
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(left, fitted.transform(NEW))


def test_sparse_sides(cosine):
    model = copy.deepcopy(cosine).set_params(sparse_output=True)
    for side in ("left", "right"):
        rows = model.transform(NODES, side=side)
        assert isinstance(rows, sparse.csr_array)
        np.testing.assert_array_equal(rows.toarray(), cosine.transform(NODES, side=side))


# ------------------------------------------------------------------------------------------------ bad queries
@pytest.mark.parametrize("method", ["transform", "kernel_matrix", "distance_to_space"])
@pytest.mark.parametrize(
    ("Z", "kind", "message"),
    [
        (np.full((2, 3), np.nan), ValueError, "`[XZ]` must be finite, without NaN or inf. Got nan at index"),
        (np.full((2, 3), np.inf), ValueError, "`[XZ]` must be finite, without NaN or inf. Got inf at index"),
        (np.full((2, 3), 1e200), ValueError, "`[XZ]` must be finite, with entries below"),
        (np.ones((2, 2)), ValueError, "expecting 3 features"),
        (np.ones(3), ValueError, "Expected 2D array"),
        (np.ones((0, 3)), ValueError, "0 sample"),
        ([["a", "b", "c"]], TypeError, "`[XZ]` must be an array of numbers"),
    ],
)
def test_bad_queries(fitted, method, Z, kind, message):
    with pytest.raises(kind, match=message):
        getattr(fitted, method)(Z)


@pytest.mark.parametrize(
    ("v", "message"),
    [(np.ones(4), "an array of 5 rows"), (np.full(5, np.nan), "finite"), (np.ones((5, 0)), "column")],
)
def test_bad_vectors(fitted, v, message):
    with pytest.raises(ValueError, match=f"`v` must be .*{message}"):
        fitted.matvec(NEW[:5], v)


def test_bad_side(fitted):
    with pytest.raises(ValueError, match="`side` must be one of 'left', 'right'"):
        fitted.transform(NEW, side="up")


def test_everything_asks_to_be_fitted(tmp_path):
    model = features()
    calls = [
        lambda: model.transform(NEW),
        lambda: model.kernel_matrix(NEW),
        lambda: model.matvec(NEW, NEW),
        lambda: model.distance_to_space(NEW),
        lambda: model.summary(),
        lambda: model.save(tmp_path / "x"),
        lambda: model.get_feature_names_out(),
        lambda: model.graph_,
        lambda: model.error_,
        lambda: model.bound_,
    ]
    for call in calls:
        with pytest.raises(NotFittedError, match="not fitted"):
            call()
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------- the paper's
def test_the_recipe_of_the_paper():
    recipe = ManifoldRandomFeatures.paper().get_params(deep=False)
    assert recipe["kernel"] == DiffusionKernel(20.0)
    assert recipe["teacher"] == "walks"
    assert recipe["teacher_options"] == {"n_walks": 100_000, "p_halt": 0.01}
    assert recipe["n_starts"] == 1000
    assert (recipe["field"], recipe["field_options"], recipe["loss"]) == ("mlp", {"network": "paper"}, "relative")
    assert (recipe["anchors"], recipe["n_features"], recipe["weights"]) == ("all", "all", "uniform")
    graph = recipe["graph"](Sphere().grid(300))
    assert (np.diff(graph.affinity.indptr) >= 8).all()
    assert ManifoldRandomFeatures.paper(kernel=PowerKernel(4), n_starts=5).n_starts == 5


@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")  # two epochs teach little
@pytest.mark.slow
def test_the_recipe_of_the_paper_runs_and_is_reproduced_by_its_seed():
    recipe = ManifoldRandomFeatures.paper(
        teacher_options={"n_walks": 10, "p_halt": 0.1},
        field_options={"network": "paper", "epochs": 2},
        n_starts=100,
        random_state=0,
        device="cpu",
    )
    models = [clone(recipe).fit(Sphere().grid(200)) for _ in range(2)]
    first, second = (model.transform(NEW[:50]) for model in models)
    np.testing.assert_array_equal(first, second)
    assert models[0].training_.epochs == 2
    assert models[0].training_.train_loss == models[1].training_.train_loss
    assert models[0].field_ == "mlp"
    assert len(models[0].starts_) == 100
    assert (first >= 0).all()
    assert (first <= models[0].bound_ * (1 + 1e-12)).all()
    assert features().fit(NODES).training_ is None


def test_progress_is_told_to_a_function_and_shown_on_the_terminal(capsys):
    told = []
    features(verbose=lambda *progress: told.append(progress)).fit(NODES)
    assert ("weights", 1, 1) in told
    assert all(0 <= done <= total for _, done, total in told)
    assert capsys.readouterr().err == ""
    features(verbose=True).fit(NODES)
    shown = capsys.readouterr()
    assert "weights: 1 of 1\n" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("n_nodes", ["auto", "all"])
def test_every_stage_of_a_fit_is_told_also_where_all_points_are_nodes(n_nodes):
    told = []
    model = features(graph=GraphOptions(n_nodes=n_nodes), verbose=lambda *progress: told.append(progress))
    model.fit(NODES)
    stages = list(dict.fromkeys(what for what, _, _ in told))
    kept = ["nodes", "graph", "anchors", "weights", "field step", "signatures", "error of field step"]
    assert stages == kept
    for what in set(stages) - {"signatures"}:
        assert [progress for progress in told if progress[0] == what] == [(what, 0, 1), (what, 1, 1)]
    assert told[0] == ("nodes", 0, 1)


def test_graphs_of_ones_own_are_a_stage_too():
    told = []
    features(graph=knn_graph, verbose=lambda *progress: told.append(progress)).fit(NODES)
    assert told[:2] == [("graph", 0, 1), ("graph", 1, 1)]


# ------------------------------------------------------------------------------ fields and teachers of one's own
WIDE = DiffusionKernel(40.0)


def interpolated(data):
    return fit_interpolated(data)


def exact_rows(graph, series, nodes):
    return series.dense(graph)[nodes]


def test_a_function_that_fits_a_field_is_used_like_a_name():
    own, named = (features(WIDE, field=field, n_features=60).fit(NODES) for field in (interpolated, "interpolated"))
    np.testing.assert_array_equal(dense(own.transform(NEW)), dense(named.transform(NEW)))
    assert own.field_ == "interpolated"
    assert own.error_.field == named.error_.field


def test_a_function_that_teaches_is_used_like_a_name():
    own = features(WIDE, field="interpolated", n_features=60, teacher=exact_rows).fit(NODES)
    named = features(WIDE, field="interpolated", n_features=60, teacher="exact").fit(NODES)
    np.testing.assert_allclose(
        dense(own.transform(NEW)), dense(named.transform(NEW)), atol=1e-6 * named.bound_.max()
    )


def test_models_of_ones_own_functions_are_saved_without_them(tmp_path):
    own = features(WIDE, field=interpolated, n_features=60, teacher=exact_rows).fit(NODES)
    again = load(own.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(dense(again.transform(NEW)), dense(own.transform(NEW)))


@pytest.mark.parametrize(
    ("field", "kind", "message"),
    [
        (lambda data: data, TypeError, "a function that returns an AbstractField. Got one that returns FieldData"),
        (lambda data: fit_interpolated(narrow(data)), ValueError, "a field with 60 columns. Got one with 59"),
        (7, ValueError, "`field` must be one of 'auto'"),
    ],
)
def test_functions_that_fit_no_field_are_refused(field, kind, message):
    with pytest.raises(kind, match=message):
        features(WIDE, field=field, n_features=60).fit(NODES)


def narrow(data):
    return dataclasses.replace(data, anchors=data.anchors[1:], values=data.values[:, 1:].tocsr())


@pytest.mark.parametrize(
    ("space", "t", "flat"),
    [
        (Sphere(), 4.0, True),  # the smallest cosine is .997
        (Sphere(), 3.0, False),  # .985
        (np.random.default_rng(0).normal(size=(300, 1000)), 1e6, True),
    ],
    ids=["wide", "less wide", "noise"],
)
def test_a_kernel_that_tells_no_points_apart_is_said_to_be_so(space, t, flat):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FeatureWarning)
        features = ManifoldRandomFeatures(HeatKernel(t), random_state=0).fit(space)
    said = [str(item.message) for item in caught]
    assert any(text.startswith("The kernel hardly tells points apart: ") for text in said) is flat
    assert ("separation" in features.summary()) is flat
