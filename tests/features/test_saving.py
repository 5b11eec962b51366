"""Fitted features in files: the same bits again, or a refusal that says why."""

import copy
import functools
import warnings

import numpy as np
import pandas as pd
import pytest
from oracles import sphere_mesh

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FlatTorus,
    GraphOptions,
    HeatKernel,
    ManifoldRandomFeatures,
    ModelFileError,
    Sphere,
    heat_graph,
    knn_graph,
    load,
)
from manifoldrf._codec import read_container, write_container
from manifoldrf._validation import check_jobs
from manifoldrf.fields.data import Problem

HEAT = HeatKernel(0.2)
STEPS = DiffusionKernel(20.0)
NODES = Sphere().grid(300)
NEW = Sphere().sample(40, seed=1)


def features(kernel=HEAT, **settings):
    return ManifoldRandomFeatures(kernel, **{"random_state": 0, **settings})


def gaussian(X, Y):
    return np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=-1))


NETWORK = {"field": "mlp", "field_options": {"epochs": 1, "hidden": 8}, "n_starts": 60, "device": "cpu"}
MODELS = {
    "step": lambda: features().fit(NODES),
    "step on a mesh": lambda: features().fit(sphere_mesh(300)),
    "step on the edges of a mesh": lambda: features(STEPS).fit(sphere_mesh(300)),
    "step on a manifold": lambda: features(graph=GraphOptions(n_nodes=300)).fit(Sphere()),
    "step with a metric": lambda: features(HeatKernel(0.02)).fit(FlatTorus()),
    "local bandwidths": lambda: features(
        STEPS, graph=GraphOptions(kind="knn", n_neighbors=8, bandwidth="local")
    ).fit(NODES),
    "interpolated": lambda: features(STEPS, field="interpolated", n_starts=280).fit(NODES),
    "local": lambda: features(STEPS, field="local").fit(NODES),
    "network": lambda: features(STEPS, **NETWORK).fit(NODES),
    "signed": lambda: features(CosineKernel()).fit(NODES),
    "function": lambda: features(gaussian).fit(NODES),
    "by a function": lambda: features(STEPS, graph=knn_graph).fit(NODES),
    "on a graph": lambda: features(STEPS, graph=knn_graph(NODES)).fit(NODES),
    "independent anchors": lambda: features(anchors="iid", anchor_density=1 + NODES[:, 2] ** 2).fit(NODES),
    "default": lambda: ManifoldRandomFeatures(random_state=np.random.default_rng(0)).fit(NODES),
}


@functools.cache
def made(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these models are poor; not the claim here
        return MODELS[name]()


def points_of(name):
    return FlatTorus().sample(40, seed=1) if "metric" in name else NEW


# Of models that differ in their parameters only, one is always tried.
SLOW = {"step on a manifold", "by a function", "default", "independent anchors"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODELS]
)
def test_a_model_comes_back_with_the_same_bits(tmp_path, name):
    model = made(name)
    points = points_of(name)
    path = model.save(tmp_path / "model.safetensors")
    assert path == tmp_path / "model.safetensors"
    again = load(path)
    assert type(again) is ManifoldRandomFeatures
    for side in ("left", "right"):
        np.testing.assert_array_equal(again.transform(points, side=side), model.transform(points, side=side))
    np.testing.assert_array_equal(again.kernel_matrix(points), model.kernel_matrix(points))
    np.testing.assert_array_equal(again.bound_, model.bound_)
    np.testing.assert_array_equal(again.anchors_, model.anchors_)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.starts_, model.starts_)
    np.testing.assert_array_equal(again.distance_to_space(points), model.distance_to_space(points))
    assert again.error_ == model.error_
    assert again.summary() == model.summary()
    assert again.training_ == model.training_
    assert (again.field_, again.kernel_, again.n_features_in_) == (
        model.field_,
        model.kernel_,
        model.n_features_in_,
    )
    once_more = load(again.save(path))  # what was loaded can be saved
    np.testing.assert_array_equal(once_more.transform(points, side="left"), model.transform(points, side="left"))


def test_loaded_models_keep_their_parameters_and_can_be_fitted_again(tmp_path):
    model = features(n_features=80, graph=GraphOptions(n_nodes=250), sparse_output=True).fit(NODES)
    again = load(model.save(tmp_path / "m"))
    params, expected = again.get_params(), model.get_params()
    assert params.pop("graph").get_params() == expected.pop("graph").get_params()
    assert params == expected
    np.testing.assert_array_equal(again.fit(NODES).transform(NEW).toarray(), model.transform(NEW).toarray())


@pytest.mark.parametrize("settings", [{}, {"kernel": STEPS, "field": "interpolated"}], ids=["step", "interpolated"])
def test_files_do_not_depend_on_the_number_of_threads(tmp_path, settings):
    files = [features(**settings, n_jobs=n_jobs).fit(NODES).save(tmp_path / str(n_jobs)) for n_jobs in (1, 2, -1)]
    assert len({file.read_bytes() for file in files}) == 1
    again = load(files[0])
    assert again.n_jobs == -1
    assert again.graph_.extension.search.threads == check_jobs(-1)


def test_searches_use_the_threads_of_the_model_that_asks(tmp_path, monkeypatch):
    """Not those of the fit, nor those that a file was loaded with."""
    model, seen, original = load(made("step").save(tmp_path / "m")), [], Problem.window

    def window(self, queries, placed):
        seen.append(self.graph.extension.search.threads)
        return original(self, queries)

    monkeypatch.setattr(Problem, "window", window)
    for n_jobs in (1, 3):
        model.set_params(n_jobs=n_jobs).transform(NEW)
    assert seen == [1, 3]


def test_files_of_graphs_do_not_depend_on_the_number_of_threads(tmp_path):
    for build in (knn_graph, functools.partial(heat_graph, t=0.2)):
        files = [build(NODES, n_jobs=n_jobs).save(tmp_path / str(n_jobs)) for n_jobs in (1, 2)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_functions_are_not_kept(tmp_path):
    model = features(STEPS, graph=knn_graph, verbose=lambda *progress: None).fit(NODES)
    again = load(model.save(tmp_path / "m"))
    assert again.graph is None
    assert again.verbose is False
    assert load(made("function").save(tmp_path / "m")).kernel is None


def test_names_of_columns_are_kept(tmp_path):
    frame = pd.DataFrame(NODES, columns=["x", "y", "z"])
    again = load(features().fit(frame).save(str(tmp_path / "m")))
    assert again.feature_names_in_.tolist() == ["x", "y", "z"]
    again.transform(frame)
    with pytest.raises(ValueError, match="feature names"):
        again.transform(frame.rename(columns={"x": "w"}))


# --------------------------------------------------------------------------------------------- damaged files
@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return made("step").save(tmp_path_factory.mktemp("models") / "m").read_bytes()


def tampered(path, change):
    """The file with its state changed, and all checksums right."""
    arrays, tree = read_container(path)
    change(arrays, tree["fields"])
    return write_container(path, arrays, tree)


def set_entry(part, value):
    def change(arrays, fields):
        arrays[fields["map"]["fields"][part]["array"]][0] = value

    return change


def shorten(part):
    def change(arrays, fields):
        name = fields["map"]["fields"][part]["array"]
        arrays[name] = arrays[name][:-1]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_entry("anchors", 10**6), "`anchors` must be integers in"),
        (set_entry("anchors", -1), "`anchors` must be integers in"),
        (set_entry("weights", -1.0), "`weights` must be"),
        (set_entry("weights", np.nan), "`weights` must be finite"),
        (shorten("weights"), "`weights` must be of shape"),
        (shorten("anchors"), "must be of shape"),
        (lambda arrays, fields: fields.update(root="xyz"), "hexadecimal"),
        (lambda arrays, fields: fields.update(n_features_in=7), "`n_features_in` must be"),
        (lambda arrays, fields: arrays[fields["starts"]["array"]].fill(10**6), "must be integers in"),
        (lambda arrays, fields: fields["params"]["dict"].update(walks=3), "walks"),
        (lambda arrays, fields: fields.update(error=None), "it has no feature map"),
        (lambda arrays, fields: fields.update(map=None), "it has no feature map"),
        (lambda arrays, fields: fields.pop("field", None), "field"),
    ],
)
def test_states_that_were_made_up_are_refused(tmp_path, saved, change, message):
    path = tmp_path / "m"
    path.write_bytes(saved)
    with pytest.raises(ModelFileError, match=f"is not valid: .*{message}"):
        load(tampered(path, change))


def test_a_made_up_table_of_another_size_is_refused(tmp_path, saved):
    # Loops over the table are compiled without checks of their own: transform would read memory that is not its.
    path = tmp_path / "m"
    path.write_bytes(saved)

    def change(arrays, fields):
        table = fields["map"]["fields"]["field"]["fields"]["table"]["csr"]
        ends = arrays[table[2]]
        arrays[table[2]] = np.append(ends[:-2], ends[-1])  # the last two rows are one
        table[3] -= 1

    with pytest.raises(ModelFileError, match="cannot be loaded"):
        load(tampered(path, change))


# -------------------------------------------------------------------------------------------------- atomicity
def test_a_failed_save_leaves_the_old_file_whole(tmp_path, saved):
    path = tmp_path / "m"
    path.write_bytes(saved)
    model = copy.copy(made("step"))
    model.training_ = object()  # what no file can hold
    with pytest.raises(TypeError, match="training"):
        model.save(path)
    assert path.read_bytes() == saved
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]
