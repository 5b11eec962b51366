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
from manifoldrf._codec import read_container, save_state, write_container
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


def test_files_that_name_threads_are_read(tmp_path, saved):
    """As they were written once; the numbers belong to another machine and change no bit."""

    def name_threads(arrays, fields):
        fields["params"]["dict"]["n_jobs"] = 3
        setting = fields["map"]["fields"]["space"]["fields"]["setting"]
        extension = setting["fields"]["graph"]["fields"]["extension"]
        extension["fields"]["search"]["fields"]["n_jobs"] = 3

    (tmp_path / "m").write_bytes(saved)
    again = load(tampered(tmp_path / "m", name_threads))
    assert (again.n_jobs, again.graph_.extension.search.n_jobs) == (-1, -1)
    np.testing.assert_array_equal(again.transform(NEW), made("step").transform(NEW))
    assert again.save(tmp_path / "m").read_bytes() == saved


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


def test_files_that_were_cut_off_are_refused(tmp_path, saved):
    path = tmp_path / "m"
    for length in (0, 1, 7, 8, 100, len(saved) // 2, len(saved) - 1):
        path.write_bytes(saved[:length])
        with pytest.raises(ModelFileError, match="m cannot be loaded"):
            load(path)


def test_files_that_were_altered_are_refused(tmp_path, saved):
    path = tmp_path / "m"
    for place in np.random.default_rng(0).integers(0, len(saved), 40):
        altered = bytearray(saved)
        altered[place] ^= 0x10
        path.write_bytes(altered)
        with pytest.raises(ModelFileError, match="m cannot be loaded"):
            load(path)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x04K\x01.", b"{}" * 50, bytes(1000)])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "m"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="m cannot be loaded"):
        load(path)


def test_states_of_another_kind_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match="it holds a 'Spline', and models are FieldInterpolator, Graph"):
        load(save_state(tmp_path / "m", "Spline", {}))
    for state in ({}, {"params": {}}, {"params": {"walks": 3}}, {"params": {}, "map": 3, "error": None}):
        with pytest.raises(ModelFileError, match="its ManifoldRandomFeatures is not valid"):
            load(save_state(tmp_path / "m", "ManifoldRandomFeatures", state))


def tampered(path, change):
    """The file with its state changed, and all checksums right."""
    arrays, meta = read_container(path)
    copies = {name: array.copy() for name, array in arrays.items()}
    change(copies, meta["state"]["dict"])
    return write_container(path, copies, meta)


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
        (lambda arrays, fields: fields.update(n_features_in=0), "`n_features_in` must be"),
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


def test_starts_out_of_range_are_refused(tmp_path, saved):
    path = tmp_path / "m"
    path.write_bytes(saved)

    def change(arrays, fields):
        arrays[fields["starts"]["array"]][0] = 10**6

    with pytest.raises(ModelFileError, match=r"`(starts|anchors)` must be integers"):
        load(tampered(path, change))


def test_a_made_up_number_of_coordinates_is_refused(tmp_path, saved):
    path = tmp_path / "m"
    path.write_bytes(saved)
    with pytest.raises(ModelFileError, match="n_features_in"):
        load(tampered(path, lambda arrays, fields: fields.update(n_features_in=7)))


def test_a_made_up_table_of_another_size_is_refused(tmp_path, saved):
    # Loops over the table are compiled without checks of their own: transform would read memory that is not its.
    path = tmp_path / "m"
    path.write_bytes(saved)

    def change(arrays, fields):
        table = fields["map"]["fields"]["field"]["fields"]["table"]["csr"]
        ends = arrays[table["indptr"]]
        arrays[table["indptr"]] = np.append(ends[:-2], ends[-1])  # the last two rows are one
        table["shape"][0] -= 1

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


def test_a_disk_that_is_full_leaves_the_old_file_whole(tmp_path, saved, monkeypatch):
    path = tmp_path / "m"
    path.write_bytes(saved)
    model = made("step")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == saved
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_saving_into_no_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        made("step").save(tmp_path / "nowhere" / "m")
