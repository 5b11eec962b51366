"""Fixtures shared by the reliability tests."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from disks import Disk
from scipy.spatial import ConvexHull
from warm_program import WarmProgram

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, TriangleMesh, knn_graph

N = 300


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The command line, in processes that start in milliseconds."""
    warm = WarmProgram(tmp_path_factory.mktemp("printed"))
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def inputs(tmp_path_factory):
    """A folder with a small file of every kind that commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    points = Sphere().grid(N)
    np.save(folder / "points.npy", points)
    TriangleMesh(points, ConvexHull(points).simplices).save(folder / "mesh.ply")
    lines = [f"{k},{points[k, 2]}" for k in range(0, N, 3)]
    (folder / "known.csv").write_text("vertex,height\n" + "\n".join(lines) + "\n")
    knn_graph(points).save(folder / "graph.safetensors")
    ManifoldRandomFeatures(HeatKernel(0.2), random_state=0).fit(points).save(folder / "model.safetensors")
    return folder


@pytest.fixture
def folder(inputs, tmp_path):
    """A copy of the inputs that a test may change."""
    return Path(shutil.copytree(inputs, tmp_path / "work"))


@pytest.fixture
def disk(tmp_path):
    """A disk of 4 MB."""
    made = Disk(tmp_path / "disk", 1024)
    yield made
    made.close()
