"""Meshes for experiments: files by name or Thingi10K id, two scans from installed packages, generated shapes."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csgraph

from manifoldrf import TriangleMesh, mesh_graph
from manifoldrf.geometry import thin
from reproduction.common import FloatArray, IntArray, existing_folder, files_in, reject

# The meshes of the paper, in its order.
THINGI10K_IDS = (
    368622, 42435, 65282, 116878, 409624, 101902, 73410, 87602, 255172, 98480, 57140, 285606, 96123, 203289, 87601,
    409629, 37384, 57084, 136024, 202267, 101619, 72896, 90064, 127243, 78671, 285610, 75667, 80597, 75651, 75654,
    75657, 75665, 75652, 123472, 88855, 444375, 208741, 73877,
)  # fmt: skip

# Where files are searched, in this order: the folder itself, and the usual subfolders of mesh collections.
_PLACES = (".", "meshes", "raw_meshes", "Thingi10K/raw_meshes")
_FORMATS = (".ply", ".obj", ".stl", ".off")
_SHEETS, _GAP = 6, 0.12  # of the folded sheet: layers of length 1, and the distance between them
_WIDTH = 1.0  # of the folded sheet, across the layers
_TUBE = 0.4  # radius of the torus, around a circle of radius 1


@dataclass(frozen=True, eq=False)
class NamedMesh:
    """A mesh with its name and a note about its preparation.

    Attributes
    ----------
    name : str
        Stem of the file, or the name of a built-in shape.
    mesh : TriangleMesh
        Every vertex is in a face.
    note : str
        Vertices left out, number of pieces; empty for an unchanged mesh in one piece.

    Examples
    --------
    >>> from reproduction.mesh_data import builtin_mesh
    >>> builtin_mesh("torus", 1000).mesh
    TriangleMesh(1000 vertices, 2000 faces)
    """

    name: str
    mesh: TriangleMesh
    note: str = ""


# ---------------------------------------------------------------------------------------------------------- files
def find_meshes(folder: Path) -> list[NamedMesh]:
    """Meshes of a folder, or of ``meshes`` or ``raw_meshes`` in it: the paper's if some are there, or all.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     _ = builtin_mesh("torus", 100).mesh.save(f"{name}/37384.ply")
    ...     _ = builtin_mesh("torus", 200).mesh.save(f"{name}/other.ply")
    ...     [item.name for item in find_meshes(Path(name))]
    ['37384']
    """
    root = existing_folder(folder, "--data")
    files: dict[str, Path] = {}
    for place in _PLACES:
        for path in files_in(root / place, _FORMATS):
            files.setdefault(path.stem, path)
    if not files:
        reject("--data", f"a folder with mesh files ({', '.join(_FORMATS)})", f"none in {root}", FileNotFoundError)
    ids = {str(number) for number in THINGI10K_IDS} & set(files)
    return [prepared(name, TriangleMesh.load(files[name])) for name in sorted(ids or files)]


def prepared(name: str, mesh: TriangleMesh) -> NamedMesh:
    """Remove vertices that are in no face; the note says how many, and how many pieces the mesh has.

    All pieces are kept. Each is filled in from its known values; a piece without known values is not counted.
    """
    used = np.unique(mesh.faces)
    dropped = mesh.n_vertices - len(used)
    if dropped:
        mesh = _part(mesh.vertices, mesh.faces, used)
    pieces = mesh.report().components
    notes = [f"{dropped} vertices in no face left out"] if dropped else []
    notes += [f"{pieces} pieces"] if pieces > 1 else []
    return NamedMesh(name, mesh, ", ".join(notes))


def _part(vertices: FloatArray, faces: IntArray, used: IntArray) -> TriangleMesh:
    """The mesh restricted to these vertices, which include the corners of all faces."""
    renumber = np.zeros(len(vertices), dtype=np.int64)
    renumber[used] = np.arange(len(used))
    return TriangleMesh(vertices[used], renumber[faces])


# ----------------------------------------------------------------------------------------------- other resolutions
def resized(mesh: TriangleMesh, n_vertices: int) -> TriangleMesh:
    """The same surface with about this number of vertices: coarsened, or coarsened and then subdivided.

    Examples
    --------
    >>> from reproduction.mesh_data import builtin_mesh, resized
    >>> torus = builtin_mesh("torus", 1000).mesh
    >>> resized(torus, 4000).n_vertices, 200 <= resized(torus, 250).n_vertices <= 250
    (4000, True)
    """
    doublings = 0
    while mesh.n_vertices * 4**doublings < n_vertices:
        doublings += 1
    coarse = coarsened(mesh, min(mesh.n_vertices, round(n_vertices / 4**doublings)))
    for _ in range(doublings):
        coarse = subdivided(coarse)
    return coarse


def coarsened(mesh: TriangleMesh, n_vertices: int) -> TriangleMesh:
    """A mesh on some of the vertices, each the farthest in space from those before it.

    Every vertex moves to the nearest kept vertex along the edges. Faces with three different corners remain.
    Vertices that lose all faces are left out.
    """
    if n_vertices >= mesh.n_vertices:
        return mesh
    graph = mesh_graph(mesh, weights="unit")
    kept = np.sort(thin(mesh.vertices, n_vertices))
    found = csgraph.dijkstra(graph.lengths, indices=kept, min_only=True, return_predecessors=True)[2]
    owners = np.where(found < 0, -1, np.searchsorted(kept, found))
    faces = owners[mesh.faces]  # (m, 3) positions among the kept ones
    corners = np.sort(faces, axis=1)
    proper = (corners[:, 0] >= 0) & (corners[:, 0] < corners[:, 1]) & (corners[:, 1] < corners[:, 2])
    first = np.unique(corners[proper], axis=0, return_index=True)[1]
    chosen = faces[proper][np.sort(first)]
    return _part(mesh.vertices[kept], chosen, np.unique(chosen))


def subdivided(mesh: TriangleMesh) -> TriangleMesh:
    """Split every face into four at the midpoints of its sides."""
    edges = mesh.edges
    keys = edges[:, 0] * mesh.n_vertices + edges[:, 1]  # sorted, as the edges are
    sides = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]], axis=2)  # (m, 3, 2)
    middle = mesh.n_vertices + np.searchsorted(keys, sides[..., 0] * mesh.n_vertices + sides[..., 1])  # (m, 3)
    a, b, c = mesh.faces.T
    ab, bc, ca = middle.T
    quarters = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    faces = np.concatenate([np.column_stack(corners) for corners in quarters])
    return TriangleMesh(np.vstack([mesh.vertices, mesh.vertices[edges].mean(axis=1)]), faces)


# --------------------------------------------------------------------------------------------------- built-in ones
def builtin_mesh(name: str, n_vertices: int | None = None) -> NamedMesh:
    """A mesh that needs no download.

    Parameters
    ----------
    name : {"bunny", "cortex", "sheet", "sphere", "torus"}
        The Stanford bunny inside the package pymeshfix (50k vertices, with holes); the pial surface of fsaverage5
        inside nilearn (10,242); a sheet folded into six layers; the sphere; the torus.
    n_vertices : int, optional
        Approximate number; by default all vertices of a scan, and 2500 for the others.

    Raises
    ------
    ModuleNotFoundError
        If the package with the scan is not installed.

    Examples
    --------
    >>> from reproduction.mesh_data import builtin_mesh
    >>> builtin_mesh("sheet", 600).name
    'sheet-600'
    """
    if name in _SCANS:
        mesh = _SCANS[name]()
        mesh = mesh if n_vertices is None else resized(mesh, n_vertices)
    else:
        mesh = _SHAPES[name](2500 if n_vertices is None else n_vertices)
    return prepared(name if n_vertices is None else f"{name}-{n_vertices}", mesh)


def builtin_by_name(text: str) -> NamedMesh:
    """A built-in mesh by its name, such as "bunny" or, with a number of vertices, "bunny-2500".

    Examples
    --------
    >>> from reproduction.mesh_data import builtin_by_name
    >>> builtin_by_name("sphere-700").mesh.n_vertices
    678
    """
    name, _, size = text.partition("-")
    if name not in BUILTIN or (size and not size.isdecimal()):
        reject("meshes", f"{', '.join(BUILTIN)}, each with or without a number as in bunny-2500", repr(text))
    return builtin_mesh(name, int(size) if size else None)


def _package_folder(package: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"This mesh is inside {package}: pip install 'manifoldrf[test]'.")
    return Path(spec.submodule_search_locations[0])


def _bunny() -> TriangleMesh:
    return TriangleMesh.load(_package_folder("pymeshfix") / "examples" / "StanfordBunny.ply")


def _cortex() -> TriangleMesh:
    folder = _package_folder("nilearn") / "datasets" / "data" / "fsaverage5"
    surface = importlib.import_module("nibabel").load(folder / "pial_left.gii.gz")
    return TriangleMesh(surface.agg_data("pointset"), surface.agg_data("triangle").astype(np.int64))


def _sphere(n_vertices: int) -> TriangleMesh:
    """An octahedron with every face split into k^2, projected to the sphere: 4 k^2 + 2 vertices."""
    k = max(1, round(np.sqrt((n_vertices - 2) / 4)))
    vertices: list[FloatArray] = []
    faces: list[IntArray] = []
    for signs in np.array(np.meshgrid([1, -1], [1, -1], [1, -1])).T.reshape(-1, 3):
        i, j = (part.ravel() for part in np.mgrid[: k + 1, : k + 1])
        inside = i + j <= k
        number = np.cumsum(inside) - 1
        corner = np.column_stack([i, j, k - i - j])[inside] * signs
        at = np.flatnonzero(i + j < k)
        up = np.column_stack([number[at], number[at + k + 1], number[at + 1]])
        at = np.flatnonzero(i + j < k - 1)
        down = np.column_stack([number[at + k + 1], number[at + k + 2], number[at + 1]])
        offset = sum(map(len, vertices))
        order = [0, 1, 2] if np.prod(signs) > 0 else [0, 2, 1]  # outwards
        faces.append(np.vstack([up, down])[:, order] + offset)
        vertices.append(corner.astype(np.float64))
    points, which = np.unique(np.vstack(vertices), axis=0, return_inverse=True)
    return TriangleMesh(points / np.linalg.norm(points, axis=1, keepdims=True), which.ravel()[np.vstack(faces)])


def _torus(n_vertices: int) -> TriangleMesh:
    rows = round(np.sqrt(n_vertices / _TUBE))
    columns = round(n_vertices / rows)
    u, v = (2 * np.pi * part / n for part, n in zip(np.mgrid[:rows, :columns], (rows, columns), strict=True))
    around = 1 + _TUBE * np.cos(v)
    points = np.stack([around * np.cos(u), around * np.sin(u), _TUBE * np.sin(v)], axis=-1)
    return TriangleMesh(points.reshape(-1, 3), _grid_faces(rows, columns, wrap=True))


def _sheet(n_vertices: int) -> TriangleMesh:
    """An accordion: straight layers joined by half circles, so that neighbours have opposite normals."""
    bend = np.pi * _GAP / 2
    length = _SHEETS + (_SHEETS - 1) * bend
    columns = max(4, round(np.sqrt(n_vertices * _WIDTH / length)))
    rows = max(8, round(n_vertices / columns))
    s = np.linspace(0, length, rows)
    layer = np.minimum(s // (1 + bend), _SHEETS - 1)
    rest = s - layer * (1 + bend)
    forward = np.where(layer % 2 == 0, 1.0, -1.0)
    angle = np.clip((rest - 1) / bend, 0, 1) * np.pi
    x = 0.5 + forward * (np.minimum(rest, 1) - 0.5 + _GAP / 2 * np.sin(angle))
    z = layer * _GAP + _GAP / 2 * (1 - np.cos(angle))
    y = np.linspace(0, _WIDTH, columns)
    points = np.stack(np.broadcast_arrays(x[:, None], y[None, :], z[:, None]), axis=-1)
    return TriangleMesh(points.reshape(-1, 3), _grid_faces(rows, columns, wrap=False))


def _grid_faces(rows: int, columns: int, *, wrap: bool) -> IntArray:
    """Two triangles for every cell of a grid."""
    i, j = (part.ravel() for part in (np.mgrid[:rows, :columns] if wrap else np.mgrid[: rows - 1, : columns - 1]))
    right, below = (j + 1) % columns, (i + 1) % rows
    a, b, c, d = i * columns + j, below * columns + j, below * columns + right, i * columns + right
    return np.vstack([np.column_stack([a, b, c]), np.column_stack([a, c, d])])


_SCANS: Mapping[str, Callable[[], TriangleMesh]] = {"bunny": _bunny, "cortex": _cortex}
_SHAPES: Mapping[str, Callable[[int], TriangleMesh]] = {"sheet": _sheet, "sphere": _sphere, "torus": _torus}
BUILTIN = (*_SCANS, *_SHAPES)
