"""Meshes and graphs of other libraries, recognised by their attributes; none of these libraries is imported.

Meshes of trimesh, pyvista, meshio, nilearn, open3d and torch_geometric, tuples (vertices, faces), graphs of
networkx, igraph and torch_geometric, edge indices, scipy's sparse matrices, and points of geopandas. Other data
frames and tensors are arrays; :func:`manifoldrf._validation.as_array` reads them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from manifoldrf._validation import as_array, as_floats, check_faces, check_integer, column_names, reject
from manifoldrf.geometry.csr import symmetric

_BOUNDARIES = ("vertex", "line")  # cells that meshes of surfaces have besides their faces
_MOST_NODES = 10**8  # as in grid_graph: a larger index is an error, and its matrix would not fit into memory


class Found(NamedTuple):
    """What an object holds: points, and faces or affinities or neither."""

    points: Any
    faces: Any = None
    affinity: Any = None


def recognise(value: Any, name: str) -> Found | None:
    """Read an object of another library; None if it is not recognised.

    Parameters
    ----------
    value : object
        Anything.
    name : str
        Name of the argument in errors.
    """
    if type(value) is tuple and len(value) == 2 and all(as_array(part, name).ndim == 2 for part in value):
        return Found(*value)  # a tuple of two matrices is never points
    if isinstance(value, np.ndarray | str | list | tuple | dict) or type(value).__module__.startswith(
        "manifoldrf."
    ):
        return None
    if hasattr(value, "geometry") and hasattr(value, "crs"):
        return _geopandas(value, name)
    if column_names(value) or (hasattr(value, "columns") and hasattr(value, "dtypes")):
        return None  # a frame: its columns are attributes, and may be called "vertices"
    if sparse.issparse(value):
        return Found(None, affinity=value) if value.ndim == 2 and value.shape[0] == value.shape[1] else None
    looks = [names for names in _READERS if all(getattr(value, part, None) is not None for part in names)]
    if len(looks) > 1:
        rule = "one mesh or one graph; make it from the arrays that you mean"
        found = " and ".join(", ".join(names) for names in looks)
        reject(name, rule, f"{type(value).__name__} that looks like several things: {found}", TypeError)
    if not looks and getattr(value, "pos", None) is not None:
        return Found(value.pos)  # a torch_geometric cloud
    return _read(_READERS[looks[0]], value, name) if looks else None


def _read(reader: Any, value: Any, name: str) -> Found:
    """Apply an entry of the table of readers."""
    if isinstance(reader, str):
        reject(name, reader, type(value).__name__, TypeError)
    if isinstance(reader, tuple):
        return Found(*(np.asarray(getattr(value, part)) for part in reader))
    return reader(value, name)  # type: ignore[no-any-return]


def read_affinity(value: Any, name: str, n_nodes: int | None = None) -> Found:
    """Read a matrix, a graph of another library, or an edge index of shape (2, m).

    ``n_nodes``: number of nodes of an edge index, whose last nodes may have no edge.
    """
    found = recognise(value, name)
    if found is not None:
        if found.affinity is None:
            reject(name, "a matrix or a graph", f"{type(value).__name__}, a mesh or points", TypeError)
        return found
    array = None if isinstance(value, str) else as_array(value, name)
    if array is None or array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        return Found(None, affinity=value)
    if array.shape[1] != 2:
        return Found(None, affinity=_from_edges(array, None, n_nodes, name))
    if hasattr(value, "is_sparse") and array.tolist() != [[0, 1], [1, 0]]:  # a tensor; that one is ambiguous
        rule = "a matrix or an edge index, not both; scipy.sparse.coo_array makes a matrix of edges"
        reject(name, rule, "a tensor of integers of shape (2, 2)")
    return Found(None, affinity=value)


# ---------------------------------------------------------------------------------------------------------- meshes
def _pyvista(mesh: Any, name: str) -> Found:
    """Points, and corners in one vector, in which each face begins with its number of corners."""
    faces = as_array(mesh.faces, name)
    if faces.ndim == 2:
        return Found(mesh.points, faces)
    n_strips = int(getattr(mesh, "n_strips", 0))
    if n_strips or faces.size % 4 or (faces[::4] != 3).any():
        found = f"{n_strips} strips" if n_strips else "faces with other numbers of corners"
        reject(name, "a mesh of triangles only; mesh.triangulate() makes them", found)
    return Found(mesh.points, faces.reshape(-1, 4)[:, 1:] if faces.size else None)


def _meshio(mesh: Any, name: str) -> Found:
    """Points, and blocks of cells of one type each; points and lines beside triangles are boundaries."""
    cells: Any = mesh.cells.items() if isinstance(mesh.cells, dict) else mesh.cells
    if not isinstance(mesh.cells, dict | list | tuple):
        rule = "a mesh of triangles; mesh.extract_surface().triangulate() makes one from a grid of cells"
        reject(name, rule, type(mesh).__name__, TypeError)
    blocks = [(block.type, block.data) if hasattr(block, "type") else block for block in cells]
    surface = [(kind, corners) for kind, corners in blocks if kind not in _BOUNDARIES and len(corners)]
    others = {kind: len(corners) for kind, corners in surface if kind != "triangle"}
    if others:
        found = ", ".join(f"{count} of type {kind!r}" for kind, count in others.items())
        reject(name, "a mesh of triangles only", f"{type(mesh).__name__} with other cells: {found}")
    if not surface and any(kind == "line" for kind, _ in blocks):
        reject(name, "a mesh of triangles", f"{type(mesh).__name__} of lines only")
    return Found(mesh.points, np.concatenate([corners for _, corners in surface]) if surface else None)


def _torch_mesh(data: Any, name: str) -> Found:
    """Positions (n, 3) and corners (3, m)."""
    faces = as_array(data.face, name)
    return Found(data.pos, check_faces(faces.T, f"{name}.face", len(data.pos)))


# ---------------------------------------------------------------------------------------------------------- graphs
def _networkx(graph: Any, name: str) -> Found:
    """Edges with their ``weight`` (1 by default), in the order of the nodes; points are their ``pos``."""
    if graph.is_directed():
        rule = "an undirected graph; graph.to_undirected() makes one"
        reject(name, rule, type(graph).__name__, TypeError)
    number = {node: k for k, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data="weight", default=1.0))
    start, end = (np.array([number[edge[side]] for edge in edges], dtype=np.int64) for side in (0, 1))
    weights = as_floats([edge[2] for edge in edges], f"{name} edge weights").reshape(-1)
    weights = np.where(start == end, weights / 2, weights)  # a self-loop is a single entry, on the diagonal
    places = [data["pos"] for _, data in graph.nodes(data=True) if data.get("pos") is not None]
    if places and len(places) != len(number):
        reject(name, "a graph with `pos` at all nodes, or at none", f"{len(places)} of {len(number)} with it")
    return Found(np.array(places) if places else None, affinity=symmetric(weights, start, end, len(number)))


def _igraph(graph: Any, name: str) -> Found:
    """Edges with their ``weight``, 1 by default."""
    if graph.is_directed():
        reject(name, "an undirected graph; graph.as_undirected() makes one", type(graph).__name__, TypeError)
    start, end = np.array(graph.get_edgelist(), dtype=np.int64).reshape(-1, 2).T
    given = graph.es["weight"] if "weight" in graph.es.attributes() else np.ones(len(start))
    weights = as_floats(given, f"{name} edge weights").reshape(-1)
    weights = np.where(start == end, weights / 2, weights)
    return Found(None, affinity=symmetric(weights, start, end, graph.vcount()))


def _torch_graph(data: Any, name: str) -> Found:
    """Edges (2, m) in both directions with their ``edge_weight``, 1 by default; ``edge_attr`` is not read."""
    points, n_nodes = getattr(data, "pos", None), getattr(data, "num_nodes", None)
    if n_nodes is None and points is not None:
        n_nodes = len(points)
    edges, weights = as_array(data.edge_index, name), getattr(data, "edge_weight", None)
    return Found(points, affinity=_from_edges(edges, weights, n_nodes, name))


def _from_edges(edges: Any, weights: ArrayLike | None, n_nodes: Any, name: str) -> Any:
    """Affinities of an edge index (2, m) that holds every edge in both directions; repeated edges add up."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        reject(name, "a graph with edges as integers of shape (2, m)", f"{edges.dtype} of shape {edges.shape}")
    most = _MOST_NODES if n_nodes is None else check_integer(int(n_nodes), f"{name}: the number of nodes", 1)
    largest, smallest = (int(edges.max()), int(edges.min())) if edges.size else (-1, 0)
    if smallest < 0 or largest >= most:
        reject(name, f"edges between nodes in [0, {most - 1}]", smallest if smallest < 0 else largest)
    n = largest + 1 if n_nodes is None else most
    values = np.ones(edges.shape[1]) if weights is None else as_floats(weights, f"{name} edge weights").reshape(-1)
    if values.shape != (edges.shape[1],):
        reject(name, f"a graph with one weight for each of {edges.shape[1]} edges", f"{len(values)} weights")
    matrix = sparse.coo_array((values, (edges[0], edges[1])), shape=(n, n)).tocsr()
    one_way = (matrix != 0) != (matrix.T != 0)
    if one_way.nnz:
        rule = "a graph with every edge in both directions; numpy.hstack([edges, edges[::-1]]) adds the others"
        reject(name, rule, f"{one_way.nnz // 2} edges in one direction only")
    return matrix


# ---------------------------------------------------------------------------------------------------------- points
def lonlat_of(value: Any) -> Any:
    """Longitudes and latitudes of a GeoDataFrame of points, shape (n, 2); anything else is returned unchanged."""
    if not (hasattr(value, "geometry") and hasattr(value, "crs")):
        return value
    places = value.geometry
    if value.crs is not None and not value.crs.is_geographic:
        reject("lonlat", "in degrees; frame.to_crs(4326) converts them", f"coordinates in {value.crs}")
    return np.column_stack([places.x, places.y])


def _geopandas(frame: Any, name: str) -> Found:
    """Points of a projected coordinate system; degrees are not planar coordinates."""
    if frame.crs is not None and frame.crs.is_geographic:
        reject(name, "points in units of length; Sphere.from_lonlat(frame) makes them", f"degrees, {frame.crs}")
    return Found(np.column_stack([frame.geometry.x, frame.geometry.y]))


# Attributes that an object must have -> its reader; or its vertices and faces; or what to give instead.
_READERS: dict[tuple[str, ...], Callable[[Any, str], Found] | tuple[str, str] | str] = {
    ("vertices", "faces"): ("vertices", "faces"),  # trimesh
    ("coordinates", "faces"): ("coordinates", "faces"),  # nilearn
    ("triangles", "has_vertices"): ("vertices", "triangles"),  # open3d
    ("parts", "n_vertices"): "one mesh; mesh.parts has one for each hemisphere",  # nilearn
    ("geometry", "graph", "to_mesh"): "one mesh; scene.to_mesh() joins the parts of a scene",  # trimesh
    ("obsm", "var_names"): "one array of the cells, such as adata.obsm['X_pca']",  # anndata
    ("points", "faces"): _pyvista,
    ("points", "cells"): _meshio,
    ("pos", "face"): _torch_mesh,
    ("nodes", "edges", "is_directed"): _networkx,
    ("es", "get_edgelist"): _igraph,
    ("edge_index",): _torch_graph,
}
