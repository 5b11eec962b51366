"""Models in files: graphs, kernels and fields come back with the same bits; what is no model is refused."""

import dataclasses
import importlib
import inspect
import pkgutil
import sys
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import ConvexHull

from manifoldrf import FarQueryWarning, storage
from manifoldrf._codec import THREADS, ModelFileError, encode, read_container, save_state, write_container
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.state import RECORDS
from manifoldrf.fields.data import AbstractField, Problem, SignatureOptions, signature_table
from manifoldrf.fields.interpolated import fit_interpolated
from manifoldrf.fields.local import fit_local
from manifoldrf.fields.mlp import fit_mlp
from manifoldrf.fields.step import fit_step
from manifoldrf.fields.training import MlpOptions
from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
from manifoldrf.geometry.graphs import AbstractExtension, Graph
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold, ProductSpace
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.model_spaces import EuclideanSpace, FlatTorus, HyperbolicSpace, Rotations, Sphere
from manifoldrf.geometry.surfaces import Ellipsoid, MobiusStrip, Torus
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, RootKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.graph_kernels import (
    CosineKernel,
    DiffusionKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    ShiftedKernel,
)
from manifoldrf.kernels.manifold_kernels import GammaMixtureKernel, HeatKernel, MaternKernel
from manifoldrf.kernels.series import SeriesKernel
from manifoldrf.storage import REGISTRY, load


@pytest.fixture(autouse=True)
def state_loader(monkeypatch):
    """A kind of model that is its own state."""
    monkeypatch.setitem(storage.LOADERS, "state", lambda state: state)


def surface_mesh():
    """A closed mesh: the sphere's own points, joined by their convex hull."""
    hull = ConvexHull(Sphere().grid(400))
    return TriangleMesh(hull.points, hull.simplices)


GRAPHS = {
    "knn": lambda: (knn_graph(Sphere().grid(300)), Sphere()),
    "density-corrected": lambda: (knn_graph(Torus().sample(300, seed=0), density_correction=1.0), Torus()),
    "sphere metric": lambda: (knn_graph(Sphere().grid(300), metric=Sphere()), Sphere()),
    "hyperbolic metric": lambda: (
        knn_graph(HyperbolicSpace(2).sample(300, seed=0), metric=HyperbolicSpace(2)),
        HyperbolicSpace(2),
    ),
    "torus metric": lambda: (knn_graph(FlatTorus().sample(300, seed=0), metric=FlatTorus()), FlatTorus()),
    "heat": lambda: (heat_graph(Sphere().grid(500), t=0.1), Sphere()),
    "heat on a mesh": lambda: (heat_graph(surface_mesh(), t=0.1), Sphere()),
    "heat in a metric": lambda: (heat_graph(Sphere().grid(500), t=0.1, metric=Sphere()), Sphere()),
    "mesh": lambda: (mesh_graph(surface_mesh()), Sphere()),
    "grid": lambda: (grid_graph(20, 2), FlatTorus()),
}


def round_trip(tmp_path, **state):
    return load(save_state(tmp_path / "model.safetensors", "state", state))


def assert_same(first, second, where="state"):
    """Equal to the bit: types, arrays, sparse arrays, fields but for numbers of threads."""
    assert type(first) is type(second), where
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype, where
        assert first.shape == second.shape, where
        assert first.tobytes() == second.tobytes(), where
        assert first.flags.forc == second.flags.forc, where
    elif sparse.issparse(first):
        assert first.shape == second.shape, where
        for name in ("data", "indices", "indptr"):
            assert_same(getattr(first, name), getattr(second, name), f"{where}.{name}")
        assert first.has_sorted_indices == second.has_sorted_indices
    elif dataclasses.is_dataclass(first):
        # Threads are those of the machine that loads it.
        for name in [field.name for field in dataclasses.fields(first) if field.metadata != THREADS]:
            assert_same(getattr(first, name), getattr(second, name), f"{where}.{name}")
    elif isinstance(first, tuple | list):
        assert len(first) == len(second), where
        for k, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}[{k}]")
    else:
        assert first == second, where


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_comes_back_and_extends_with_the_same_bits(tmp_path, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small graphs warn; not the claim here
        graph, space = GRAPHS[name]()
    _ = graph.degrees, graph.operator  # what a graph keeps for itself is not stored
    loaded = round_trip(tmp_path, graph=graph)["graph"]
    assert_same(graph, loaded)
    queries = space.sample(50, seed=1)
    assert_same(graph.extend(queries), loaded.extend(queries))
    assert graph.extend(queries).nnz > 0
    assert_same(graph.operator, loaded.operator)
    assert_same(graph.degrees, loaded.degrees)
    assert graph.time(3.0, 2) == loaded.time(3.0, 2)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_loaded_graph_is_read_only_again(tmp_path, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, _ = GRAPHS[name]()
    loaded = round_trip(tmp_path, graph=graph)["graph"]
    for array in (loaded.affinity.data, loaded.affinity.indices, loaded.points):
        assert not array.flags.writeable


def test_points_of_a_graph_and_of_its_search_are_stored_once_and_come_back_as_one(tmp_path):
    graph = knn_graph(Sphere().grid(300))
    assert np.shares_memory(graph.points, graph.extension.search.points)
    _, arrays = encode({"graph": graph})
    assert sorted(array.shape for array in arrays.values()).count(graph.points.shape) == 1
    loaded = round_trip(tmp_path, graph=graph, points=graph.points)
    assert np.shares_memory(loaded["graph"].points, loaded["graph"].extension.search.points)
    assert loaded["points"] is loaded["graph"].extension.search.points


def test_one_graph_in_several_places_comes_back_as_one(tmp_path):
    graph = knn_graph(Sphere().grid(100))
    loaded = round_trip(tmp_path, graph=graph, parts=[graph, (graph,)])
    assert loaded["parts"][0] is loaded["graph"]
    assert loaded["parts"][1][0] is loaded["graph"]


MANIFOLDS = [
    Sphere(3, 2.5),
    FlatTorus(3, 0.1),
    HyperbolicSpace(2, 1.5),
    EuclideanSpace(3, 1.5),
    Rotations(),
    ProductSpace(Sphere(), FlatTorus(1)),
    Ellipsoid((1.0, 2.0, 1 / 3)),
    Torus(2.0, 0.3),
    MobiusStrip(2.0, 0.3),
]
IN_THE_MANIFOLD_CLOCK = [HeatKernel(0.1), MaternKernel(1.5, 0.3, "manifold")]
IN_STEPS = [
    DiffusionKernel(20.0),
    DiffusionKernel(1 / 3),
    PowerKernel(8),
    RegularizedLaplacianKernel(2.0, 1.5),
    RandomWalkKernel(2.5, 3.0),
    CosineKernel(),
    GammaMixtureKernel(0.1, 2.5, 0.01),
    SeriesKernel((1, 0.5, Fraction(1, 3), 2**70)),
    SumKernel(DiffusionKernel(1.0), ScaledKernel(PowerKernel(2), 0.1)),
    ProductKernel(DiffusionKernel(1.0), MaternKernel(1.5, 0.3)),
    ScaledKernel(PowerKernel(2), -1 / 3),
    ShiftedKernel(DiffusionKernel(2.0)),
    RootKernel(SumKernel(DiffusionKernel(1.0), PowerKernel(2)), 2),
    2.0 * DiffusionKernel(1.0) + DiffusionKernel(3.0) * PowerKernel(4),
]
OBJECTS = MANIFOLDS + IN_THE_MANIFOLD_CLOCK + IN_STEPS


@pytest.mark.parametrize("value", OBJECTS, ids=repr)
def test_manifolds_and_kernels_come_back_equal(tmp_path, value):
    loaded = round_trip(tmp_path, value=value)["value"]
    assert loaded == value
    assert repr(loaded) == repr(value)
    assert_same(value, loaded)


@pytest.mark.parametrize("value", IN_STEPS, ids=repr)
def test_loaded_kernels_have_the_same_coefficients(tmp_path, value):
    loaded = round_trip(tmp_path, value=value)["value"]
    assert_same(value.coefficients(20), loaded.coefficients(20))


def test_meshes_come_back_with_the_same_bits(tmp_path):
    mesh = surface_mesh()
    loaded = round_trip(tmp_path, mesh=mesh)
    assert_same(mesh, loaded["mesh"])
    assert not loaded["mesh"].vertices.flags.writeable


ANCHORS = np.arange(0, 500, 25)
FIELDS = {
    "step": lambda setting, _: fit_step(setting, ANCHORS, SignatureOptions()),
    "local": lambda _, data: fit_local(data),
    "interpolated": lambda _, data: fit_interpolated(data),
    "mlp": lambda _, data: fit_mlp(data, MlpOptions(epochs=1, hidden=8), seed=0)[0],
}


@pytest.fixture(scope="module")
def observed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few nodes for so short a time; not the claim here
        graph = heat_graph(Sphere().grid(500), t=0.2)
    setting = Problem(graph, PowerKernel(graph.n_steps), graph.weights, 2, np.sqrt(0.2))
    return setting, signature_table(setting, np.arange(500), ANCHORS, SignatureOptions())


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_comes_back_and_has_the_same_values_to_the_bit(tmp_path, observed, name):
    field = FIELDS[name](*observed)
    loaded = round_trip(tmp_path, field=field)["field"]
    queries = Sphere().sample(40, seed=1)
    before = field.values(queries)
    assert_same(before, loaded.values(queries))
    assert before.max() > 0
    assert_same(field, loaded)
    assert_same(field.bounds, loaded.bounds)


def test_a_problem_and_its_field_share_one_graph_again(tmp_path):
    model = ManifoldRandomFeatures(HeatKernel(0.2), field="step", random_state=0).fit(Sphere())
    loaded = load(model.save(tmp_path / "model"))
    assert_same(model.map_, loaded.map_)
    assert loaded.map_.field.graph is loaded.map_.problem.graph


def concrete(kind):
    """The subclasses that the package defines and that have instances."""
    for module in pkgutil.iter_modules(sys.modules[kind.__module__.rpartition(".")[0]].__path__):
        importlib.import_module(f"{kind.__module__.rpartition('.')[0]}.{module.name}")
    known = [kind]
    for parent in known:
        known += parent.__subclasses__()
    return {c for c in known if c.__module__.startswith("manifoldrf.") and not inspect.isabstract(c)}


@pytest.mark.parametrize("kind", [AbstractKernel, AbstractField, AbstractManifold, AbstractExtension])
def test_every_kernel_field_manifold_and_extension_is_known_to_the_registry(kind):
    found = concrete(kind)
    assert len(found) >= 4
    # If this fails, `save` refuses models with this class: add it to STORED_CLASSES of _codec.
    assert found - set(REGISTRY.values()) == set()


def test_every_kernel_and_manifold_is_in_a_round_trip():
    assert concrete(AbstractKernel) | concrete(AbstractManifold) == {type(value) for value in OBJECTS}


def test_the_registry_is_of_this_library_only():
    for name, kind in REGISTRY.items():
        assert kind.__module__.startswith("manifoldrf.")
        if name not in (*RECORDS, "ManifoldRandomFeatures"):
            assert kind.__name__ == name
            assert dataclasses.is_dataclass(kind)
    assert set(RECORDS) == {"FeatureMap", "Setting", "Space"}


def test_a_model_of_another_kind_is_refused(tmp_path):
    path = save_state(tmp_path / "m", "Spline", {})
    with pytest.raises(ModelFileError, match=r"m cannot be loaded: it holds a 'Spline', and models are .*state"):
        load(path)


def test_a_state_that_the_model_refuses_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(storage.LOADERS, "strict", lambda state: state["missing"])
    with pytest.raises(ModelFileError, match="its strict is not valid: 'missing'"):
        load(save_state(tmp_path / "m", "strict", {}))


def test_lack_of_memory_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    def loader(state):
        raise MemoryError

    monkeypatch.setitem(storage.LOADERS, "large", loader)
    with pytest.raises(MemoryError):
        load(save_state(tmp_path / "m", "large", {}))


def test_a_class_that_is_not_known_is_named(tmp_path):
    path = save_state(tmp_path / "m", "state", {"space": Sphere()})
    arrays, meta = read_container(path)
    meta["state"]["dict"]["space"]["class"] = "Klein"
    with pytest.raises(ModelFileError, match="it holds a 'Klein', a class that this version does not know"):
        load(write_container(path, arrays, meta))


def test_an_affinity_with_indices_out_of_range_is_refused(tmp_path):
    path = save_state(tmp_path / "m", "state", {"graph": Graph.from_affinity(np.ones((3, 3)))})
    arrays, meta = read_container(path)
    name = meta["state"]["dict"]["graph"]["fields"]["affinity"]["csr"]["indices"]
    arrays[name][0] = 10**6
    with pytest.raises(ModelFileError, match="a sparse array with indices out of range"):
        load(write_container(path, arrays, meta))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must be an existing file"):
        load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match="`path` must be a file, not a folder"):
        load(tmp_path)


def test_flipped_bytes_of_a_model_are_noticed(tmp_path):
    path = save_state(tmp_path / "m", "state", {"graph": knn_graph(Sphere().grid(100)), "kernel": HeatKernel(0.1)})
    content = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 100):
        altered = bytearray(content)
        altered[place] ^= 1
        path.write_bytes(altered)
        with pytest.raises(ModelFileError, match="m cannot be loaded: "):
            load(path)


class TestFilesOfFormat1:
    """Files that an earlier version wrote load and give the features it computed."""

    FOLDER = Path(__file__).parent / "data" / "format_1"
    MODELS = ("cloud", "steps", "local", "mesh", "manifold", "two_sides", "network")

    def test_models_keep_their_scale(self):
        model = load(self.FOLDER / "cloud.safetensors")
        assert (model.normalize, model.scale, model.scale_) == (False, 1.0, 1.0)

    @pytest.mark.parametrize("name", MODELS)
    def test_models_give_the_same_features(self, name):
        expected = np.load(self.FOLDER / "expected.npz")
        model = load(self.FOLDER / f"{name}.safetensors")
        for side in ("left", "right") if model.asymmetric_ else (None,):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FarQueryWarning)
                found = model.transform(expected["queries"], side)
            # Equal where it was written; other processors round the last bits otherwise.
            np.testing.assert_allclose(found, expected[f"{name}_{side}" if side else name], rtol=1e-10, atol=1e-14)

    def test_a_graph_has_the_same_degrees(self):
        graph = load(self.FOLDER / "graph.safetensors")
        np.testing.assert_allclose(graph.degrees, np.load(self.FOLDER / "expected.npz")["graph"], rtol=1e-12)

    def test_every_file_is_tested(self):
        assert {path.stem for path in self.FOLDER.glob("*.safetensors")} == {*self.MODELS, "graph"}
