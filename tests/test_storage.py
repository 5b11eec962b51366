"""Models in files: every graph, manifold and kernel comes back with the same bits, and `load` knows all classes."""

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy import sparse

import manifoldrf
from manifoldrf import ModelFileError, _codec, load
from manifoldrf._codec import load_value, read_container, save_value
from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
from manifoldrf.geometry.graphs import AbstractExtension
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold, ProductSpace
from manifoldrf.geometry.model_spaces import EuclideanSpace, FlatTorus, HyperbolicSpace, Rotations, Sphere
from manifoldrf.geometry.spaces import AbstractNodes
from manifoldrf.geometry.surfaces import Ellipsoid, MobiusStrip, Torus
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, RootKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.named_kernels import (
    CosineKernel,
    DiffusionKernel,
    GammaMixtureKernel,
    HeatKernel,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    ShiftedKernel,
)
from manifoldrf.kernels.series import SeriesKernel

HYPERBOLIC = HyperbolicSpace(2)
GRAPHS = {
    "knn": lambda: (knn_graph(Sphere().grid(300)), Sphere()),
    "density-corrected": lambda: (knn_graph(Torus().sample(300, seed=0), density_correction=1.0), Torus()),
    "metric": lambda: (knn_graph(HYPERBOLIC.sample(300, seed=0), metric=HYPERBOLIC), HYPERBOLIC),
    "heat": lambda: (heat_graph(Sphere().grid(300), t=0.3), Sphere()),
    "heat on a mesh": lambda: (heat_graph(sphere_mesh(200), t=0.3), Sphere()),
    "heat in a metric": lambda: (heat_graph(Sphere().grid(500), t=0.1, metric=Sphere()), Sphere()),
    "mesh": lambda: (mesh_graph(sphere_mesh(400)), Sphere()),
    "grid": lambda: (grid_graph(20, 2), FlatTorus()),
}


def assert_same(first, second, where="value"):
    """Equal to the bit: types, arrays, sparse arrays, fields but for numbers of threads."""
    assert type(first) is type(second), where
    if isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second, where, strict=True)
        assert first.flags.forc == second.flags.forc, where
    elif sparse.issparse(first):
        for name in ("shape", "data", "indices", "indptr"):
            assert_same(getattr(first, name), getattr(second, name), f"{where}.{name}")
    elif dataclasses.is_dataclass(first):
        for name in [field.name for field in dataclasses.fields(first) if field.name != "n_jobs"]:
            assert_same(getattr(first, name), getattr(second, name), f"{where}.{name}")
    elif isinstance(first, tuple | list):
        assert len(first) == len(second), where
        for k, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}[{k}]")
    else:
        assert first == second, where


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_comes_back_read_only_and_extends_with_the_same_bits(tmp_path, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small graphs warn; not the claim here
        graph, space = GRAPHS[name]()
    _ = graph.degrees, graph.operator  # what a graph keeps for itself is not stored
    loaded = load(graph.save(tmp_path / "m"))
    assert_same(graph, loaded)
    queries = space.sample(50, seed=1)
    assert_same(graph.extend(queries), loaded.extend(queries))
    assert_same(graph.operator, loaded.operator)
    assert not any(part.flags.writeable for part in (loaded.affinity.data, loaded.affinity.indices, loaded.points))


OBJECTS = [
    Sphere(3, 2.5),
    FlatTorus(3, 0.1),
    HyperbolicSpace(2, 1.5),
    EuclideanSpace(3, 1.5),
    Rotations(),
    ProductSpace(Sphere(), FlatTorus(1)),
    Ellipsoid((1.0, 2.0, 1 / 3)),
    Torus(2.0, 0.3),
    MobiusStrip(2.0, 0.3),
    HeatKernel(0.1),
    MaternKernel(1.5, 0.3, "manifold"),
    DiffusionKernel(1 / 3),
    PowerKernel(8),
    RegularizedLaplacianKernel(2.0, 1.5),
    RandomWalkKernel(2.5, 3.0),
    CosineKernel(),
    GammaMixtureKernel(0.1, 2.5, 0.01),
    SeriesKernel((1, 0.5, 2**70)),
    SumKernel(DiffusionKernel(1.0), ScaledKernel(PowerKernel(2), 0.1)),
    ProductKernel(DiffusionKernel(1.0), MaternKernel(1.5, 0.3)),
    ScaledKernel(PowerKernel(2), -1 / 3),
    ShiftedKernel(DiffusionKernel(2.0)),
    RootKernel(SumKernel(DiffusionKernel(1.0), PowerKernel(2))),
]


def test_manifolds_and_kernels_come_back_equal(tmp_path):
    for value in OBJECTS:
        loaded = load_value(save_value(tmp_path / "m", value))
        assert (loaded, repr(loaded)) == (value, repr(value))
        assert_same(value, loaded)


def concrete(kind):
    """The subclasses that the package defines and that have instances."""
    known = [kind]
    for parent in known:
        known += parent.__subclasses__()
    return {c for c in known if c.__module__.startswith("manifoldrf.") and not inspect.isabstract(c)}


def test_load_knows_every_class_that_a_model_may_have():
    """A new one needs the decorator `stored`, and an import by `storage`; none of them needs torch."""
    for module in pkgutil.walk_packages(manifoldrf.__path__, "manifoldrf."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    code = "import sys, manifoldrf.storage; assert 'torch' not in sys.modules\n"
    code += "from manifoldrf._codec import _CLASSES; print(sorted(_CLASSES))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted(_codec._CLASSES))
    for kind in (AbstractKernel, AbstractManifold, AbstractExtension, AbstractNodes):
        assert concrete(kind) - set(_codec._CLASSES.values()) == set()
    assert concrete(AbstractKernel) | concrete(AbstractManifold) == {type(value) for value in OBJECTS}


def classes(tree):
    """All places of a description that name a class."""
    if isinstance(tree, dict):
        if "class" in tree:
            yield tree
        tree = list(tree.values())
    for part in tree if isinstance(tree, list) else []:
        yield from classes(part)


def test_classes_that_take_the_place_of_others_are_refused(tmp_path):
    """With the right checksum, as only a program that means it writes it."""
    path = heat_graph(sphere_mesh(100), t=0.3).save(tmp_path / "m")
    arrays, tree = read_container(path)
    n_refused = 0
    for place in classes(tree):
        own = place["class"]
        for name in {*sorted(set(_codec._CLASSES) - {own})[::6], "Klein", "object", ""}:
            place["class"] = name
            with pytest.raises(ModelFileError, match="cannot be loaded"):
                load(_codec.write_container(path, arrays, tree))
            n_refused += 1
        place["class"] = own
    assert n_refused > 50
