"""Convert meshes from their sources to the binary .ply files that the experiment normals reads.

Usage: python -m reproduction.convert_meshes link.stl bird.stl rocker-arm.obj pia_lh.gii meshes

Vertices at the same position (in single precision) are merged; faces that lose their area by that, and vertices
of no face, are dropped; vertices and faces keep the order of the source. Formats are those of TriangleMesh.load,
triangle strips of .ply files, and GIFTI (.gii, needs nibabel).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf import TriangleMesh
from reproduction.common import FloatArray, IntArray, atomic_path


def read(path: Path) -> tuple[FloatArray, IntArray]:
    """Vertices and triangles of a file."""
    if path.suffix.lower() == ".gii":
        import nibabel

        surface: Any = nibabel.load(path)
        return surface.agg_data("pointset"), surface.agg_data("triangle").astype(np.int64)
    if path.suffix.lower() == ".ply" and b"element tristrips" in path.read_bytes()[:4096]:
        import trimesh

        strip: Any = trimesh.load(path, process=False, force="mesh")
        return np.asarray(strip.vertices), np.asarray(strip.faces)
    mesh = TriangleMesh.load(path)
    return mesh.vertices, mesh.faces


def merged(vertices: FloatArray, faces: IntArray) -> tuple[FloatArray, IntArray]:
    """One vertex for each position, in the order of first use; no face with two equal corners.

    Examples
    --------
    >>> points, triangles = merged(np.array([[0.0, 0], [1, 0], [0, 1], [1, 0]]), np.array([[0, 3, 2], [1, 3, 2]]))
    >>> points.tolist(), triangles.tolist()
    ([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[0, 1, 2]])
    """
    single = np.ascontiguousarray(vertices, dtype=np.float32)
    _, first, owner = np.unique(single, axis=0, return_index=True, return_inverse=True)
    corners = first[owner.ravel()][faces]  # the first vertex at each position
    a, b, c = corners.T
    corners = corners[(a != b) & (b != c) & (a != c)]
    used = np.unique(corners)
    return single[used].astype(np.float64), np.searchsorted(used, corners)


def write(path: Path, vertices: FloatArray, faces: IntArray) -> None:
    """A binary .ply file in single precision."""
    kinds = "".join(f"property float {axis}\n" for axis in "xyz")
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(vertices)}\n{kinds}"
    head += f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    table = np.zeros(len(faces), dtype=[("n", "u1"), ("corners", "<i4", 3)])
    table["n"], table["corners"] = 3, faces
    with atomic_path(path) as temporary:
        temporary.write_bytes(head.encode() + vertices.astype("<f4").tobytes() + table.tobytes())


def main() -> None:
    """Read the arguments and convert."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="meshes")
    parser.add_argument("folder", type=Path, help="where to write NAME.ply")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for path in given.files:
        target = given.folder / f"{path.stem.replace('-', '_')}.ply"
        write(target, *merged(*read(path)))
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
