"""What several commands are tried on."""

import pytest
from scipy.spatial import ConvexHull

from manifoldrf import Sphere, TriangleMesh


@pytest.fixture(scope="session")
def mesh_file(tmp_path_factory):
    """A mesh in a file: the sphere, since what is tested is the way of files, not the shape."""
    vertices = Sphere().grid(300)
    path = tmp_path_factory.mktemp("mesh") / "mesh.ply"
    TriangleMesh(vertices, ConvexHull(vertices).simplices).save(path)
    return path
