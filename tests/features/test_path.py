"""The path of one fit: what is found once, and how many files of the package run."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull

import manifoldrf
from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Sphere, TriangleMesh
from manifoldrf.features import options as feature_options
from manifoldrf.features import problem as feature_problem
from manifoldrf.geometry import graphs, heat, neighbors
from manifoldrf.kernels.graph_kernels import PowerKernel

POINTS = Sphere().sample(1500, seed=0)


def sphere_mesh():
    hull = ConvexHull(Sphere().grid(600))
    return TriangleMesh(hull.points, hull.simplices)


SPACES = {"cloud": lambda: POINTS, "mesh": sphere_mesh, "manifold": Sphere}


@pytest.fixture
def counts(monkeypatch):
    """Calls of what a fit needs only once; trees of neighbours by the points that they hold."""
    found = Counter()

    def counted(owner, name, key):
        original = getattr(owner, name)

        def call(*arguments, **options):
            found[key(*arguments)] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, call)

    for owner in (feature_problem, graphs, heat):
        counted(owner, "estimate_dimension", lambda *_: "dimension")
    counted(neighbors, "cKDTree", lambda points, *_: ("tree", np.sort(points, axis=0).tobytes()))
    for kernel in (PowerKernel, DiffusionKernel):
        counted(kernel, "_root", lambda kernel, order: ("root", kernel, order))
    counted(feature_options, "check_points", lambda *_: "boundary")
    return found


@pytest.mark.parametrize(
    "make_kernel", [lambda: HeatKernel(0.05), lambda: DiffusionKernel(20.0)], ids=["heat", "steps"]
)
@pytest.mark.parametrize("space", SPACES)
def test_dimension_search_and_root_are_found_once(counts, space, make_kernel):
    ManifoldRandomFeatures(make_kernel(), n_jobs=1, random_state=0).fit(SPACES[space]())
    assert counts["dimension"] == (space == "cloud")
    assert counts["boundary"] == (space == "cloud")
    trees = [count for key, count in counts.items() if key[0] == "tree"]
    roots = [count for key, count in counts.items() if key[0] == "root"]
    assert trees
    assert set(trees) == {1}
    assert roots == [1]


def test_the_spectral_form_of_a_graph_is_made_once():
    graph = ManifoldRandomFeatures(HeatKernel(0.05), n_jobs=1, random_state=0).fit(POINTS).graph_
    assert graph.symmetric is graph.operator is graph.operator


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
    assert len(files) <= 26, sorted(files)
