"""The path of one fit: what is found once, and how many files of the package run."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull

import manifoldrf
from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Sphere, TriangleMesh, knn_graph
from manifoldrf.features import options as feature_options
from manifoldrf.fields import anchors, step
from manifoldrf.geometry import clouds, graphs, local_surface, neighbors, sampling
from manifoldrf.kernels.graph_kernels import PowerKernel

POINTS = Sphere().sample(1500, seed=0)


def sphere_mesh():
    hull = ConvexHull(Sphere().grid(600))
    return TriangleMesh(hull.points, hull.simplices)


SPACES = {"cloud": lambda: POINTS, "mesh": sphere_mesh, "manifold": Sphere}
# Options of fits of the cloud; the wide kernel needs fewer nodes than there are points.
CASES = {
    "default": {},
    "thinned": {"kernel": HeatKernel(0.5)},
    "function": {"kernel": HeatKernel(0.05), "graph": knn_graph},
    "interpolated": {"kernel": HeatKernel(0.05), "field": "interpolated"},
}


def tree_key(points, **options):
    """Key of a tree. Trees with leaves of a given size only order points and may be made again."""
    return ("order",) if "leafsize" in options else ("tree", np.sort(points, axis=0).tobytes())


@pytest.fixture
def counts(monkeypatch):
    """Calls of what a fit needs only once; trees by their points, forms of a matrix by its values."""
    found = Counter()

    def counted(owner, name, key):
        original = getattr(owner, name)

        def call(*arguments, **options):
            found[key(*arguments, **options)] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    counted(clouds, "_local_growth", lambda *_, **__: "dimension")
    # Not in `meshes`: the search for closest points scales lengths by the queries, and makes trees in that unit.
    for owner in (anchors, local_surface, neighbors, sampling, step):
        counted(owner, "cKDTree", tree_key)
    for name in ("scaled_both_ends", "local_form"):  # W, and W in the order of its rows in memory
        counted(graphs, name, lambda matrix, *_, name=name: ("form", name, matrix.data.tobytes()))
    for kernel in (PowerKernel, DiffusionKernel):
        counted(kernel, "_root", lambda kernel, order: ("root", kernel, order))
    counted(feature_options, "check_points", lambda *_, **__: "boundary")
    return found


def check_found_once(counts):
    """Trees over the same points, forms of the same matrix, and the root of the kernel."""
    for kind in ("tree", "form", "root"):
        calls = {key: count for key, count in counts.items() if key[0] == kind}
        assert calls
        assert set(calls.values()) == {1}, [(key[:2], count) for key, count in calls.items() if kind != "tree"]
    assert sum(key[0] == "root" for key in counts) == 1


@pytest.mark.parametrize(
    "make_kernel", [lambda: HeatKernel(0.05), lambda: DiffusionKernel(20.0)], ids=["heat", "steps"]
)
@pytest.mark.parametrize("space", SPACES)
def test_dimension_search_and_root_are_found_once(counts, space, make_kernel):
    ManifoldRandomFeatures(make_kernel(), n_jobs=1, random_state=0).fit(SPACES[space]())
    assert counts["dimension"] == (space == "cloud")
    assert counts["boundary"] == (space == "cloud")
    check_found_once(counts)


@pytest.mark.parametrize("case", CASES)
def test_options_of_a_fit_repeat_nothing(counts, case):
    features = ManifoldRandomFeatures(**CASES[case], n_jobs=1, random_state=0).fit(POINTS)
    assert (features.graph_.n_nodes < len(POINTS)) == (case == "thinned")
    assert counts["dimension"] == 1
    assert counts["boundary"] == 1
    check_found_once(counts)


def test_a_given_graph_is_searched_once(counts):
    graph = knn_graph(POINTS)
    ManifoldRandomFeatures(DiffusionKernel(20.0), n_jobs=1, random_state=0).fit(graph)
    assert counts["dimension"] == 1
    check_found_once(counts)


def test_a_fit_runs_few_files():
    """The files of the package whose code runs in a fit, as a reader would have to follow them."""
    home = str(Path(manifoldrf.__file__).parent)
    files = set()

    def fit():
        return ManifoldRandomFeatures(HeatKernel(0.05), n_features=256, n_jobs=1).fit(POINTS)

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(home):
            files.add(frame.f_code.co_filename)

    fit()  # compiled code is loaded before
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        fit()
    finally:
        sys.setprofile(before)
    assert len(files) <= 27, sorted(files)
