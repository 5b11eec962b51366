"""Bad values at nodes, bad matrices, graphs and meshes."""

import warnings
from types import SimpleNamespace

import networkx
import numpy as np
import pandas as pd
import polars as pl
import torch
import trimesh
from reliability.entry_points import (
    AFFINITY,
    ANCHOR_DENSITY,
    APPLY,
    ATTEND_K,
    ATTEND_Q,
    ATTEND_V,
    COTANGENT,
    COUNTS,
    DENSITY,
    ERRORS,
    FACES,
    FILL_GRAPH,
    FILL_MESH,
    FIT_GRAPH,
    FIT_MESH,
    FIT_SURFACE,
    FRONTIER,
    GRAPH_NODES,
    HEAT_MESH,
    MEASURES,
    MESH_GRAPH,
    NODES,
    ON_GRAPH,
    PATHS,
    PROCESS_Y,
    RELATIVE,
    RIDGE_Y,
    ROWS,
    SIGNATURES,
    VALUES,
    VECTOR,
    WALKS,
    WEIGHTS,
    N,
    cloud,
    faces,
    heights,
    ring,
)
from reliability.promises import Case, Refused, Works, close_to, same_as
from scipy import sparse

from manifoldrf import FeatureWarning, Graph, GraphWarning, TriangleMesh

FINITE = Works("finite")
_FINITE = "`{argument}` must be finite, without NaN or inf. Got "
_SIZE = "`{argument}` must be finite, with entries below 1e+150 in size. Got "
_NUMBERS = "`{argument}` must be an array of numbers. Got "
_FILE = "`{argument}` must be an array of numbers, not the name of a file: numpy.load(path) reads it. Got "
_RAGGED = "`{argument}` must be an array with rows of equal length. Got list."

# ------------------------------------------------------------------------------------------ values at points
_VALUES = "Values, weights and densities"
COLUMNS = (APPLY, VECTOR)  # a row for each node or point
POSITIVE = (WEIGHTS, DENSITY, ANCHOR_DENSITY)
TARGETS = (RIDGE_Y, PROCESS_Y)
EVERY = (VALUES, *TARGETS, *COLUMNS, *POSITIVE)


def level():
    return np.abs(heights()) + 0.1


def level_with(value):
    def make():
        values = level()
        values[3] = value
        return values

    return make


def halves():
    return level().astype(np.float16).astype(np.float64)


_Y_FINITE = "`y` must be finite, without NaN or inf; …. Got "

VALUE_CASES = (
    *(
        case
        for text, value in (("NaN", np.nan), ("inf", np.inf))
        for case in (
            Case(_VALUES, text, level_with(value), COLUMNS, Refused(f"{_FINITE}{value} at index (3, 0).")),
            Case(_VALUES, text, level_with(value), POSITIVE, Refused(f"{_FINITE}{value} at index (3,).")),
            Case(_VALUES, text, level_with(value), TARGETS, Refused(f"{_Y_FINITE}{value} at index 3.")),
        )
    ),
    Case(_VALUES, "NaN", level_with(np.nan), (VALUES,), Works("the node counts as unknown, and is filled in")),
    Case(
        _VALUES,
        "NaN only",
        lambda: np.full(N, np.nan),
        (VALUES,),
        Refused("No value is known: `known` must name at least one node, or one row must be without NaN."),
    ),
    Case(
        _VALUES,
        "inf",
        level_with(np.inf),
        (VALUES,),
        Refused("`values[known]` must be finite, without NaN or inf. Got inf at index (3, 0)."),
    ),
    Case(_VALUES, "1e300", level_with(1e300), (*TARGETS, *COLUMNS), Refused(_SIZE + "1e+300 at index (3, 0).")),
    Case(_VALUES, "1e300", level_with(1e300), (DENSITY, ANCHOR_DENSITY), Refused(_SIZE + "1e+300 at index (3,).")),
    Case(_VALUES, "1e200 everywhere", lambda: 1e200 * level(), (WEIGHTS,), FINITE),
    Case(
        _VALUES,
        "1e305 everywhere",
        lambda: 1e305 * level(),
        (WEIGHTS,),
        Refused("`{argument}` must be a vector with a sum of at most 1e+300. Got …e+306."),
    ),
    Case(
        _VALUES,
        "1e-310 everywhere",
        lambda: 1e-310 * level(),
        (WEIGHTS,),
        Refused("`{argument}` must be at least 1e-307 somewhere. Got … at most."),
    ),
    Case(_VALUES, "1e-300 everywhere", lambda: 1e-300 * level(), (VALUES, *TARGETS, *COLUMNS, WEIGHTS), FINITE),
    Case(
        _VALUES,
        "1e-300 everywhere",
        lambda: 1e-300 * level(),
        (DENSITY,),
        Refused("`{argument}` must be such that affinities stay finite. Got 1.16667e-301."),
    ),
    Case(
        _VALUES,
        "a negative weight",
        level_with(-1.0),
        (WEIGHTS, DENSITY),
        Refused("`{argument}` must be a vector with entries in (0, inf). Got -1.0 at index 3."),
    ),
    Case(
        _VALUES,
        "a weight of zero",
        level_with(0.0),
        (WEIGHTS, DENSITY),
        Refused("`{argument}` must be a vector with entries in (0, inf). Got 0.0 at index 3."),
    ),
    Case(
        _VALUES,
        "a density of zero",
        level_with(0.0),
        (ANCHOR_DENSITY,),
        Refused("`{argument}` must be positive at every node, or sums over anchors are biased. Got a zero."),
    ),
    Case(
        _VALUES,
        "zeros only",
        lambda: np.zeros(N),
        (ANCHOR_DENSITY,),
        Refused("`{argument}` must be positive at one node at least. Got zeros only."),
    ),
    Case(_VALUES, "zeros only", lambda: np.zeros(N), (VALUES, *TARGETS, *COLUMNS), FINITE),
    Case(_VALUES, "the same everywhere", lambda: np.ones(N), EVERY, FINITE),
    Case(
        _VALUES,
        "5 values for 60",
        lambda: np.ones(5),
        COLUMNS,
        Refused("`{argument}` must be an array of 60 rows, one per …. Got 5."),
    ),
    Case(
        _VALUES,
        "5 values for 60",
        lambda: np.ones(5),
        (WEIGHTS, DENSITY),
        Refused("`{argument}` must be a vector of shape (60,). Got shape (5,)."),
    ),
    Case(
        _VALUES,
        "5 values for 60",
        lambda: np.ones(5),
        TARGETS,
        Refused("`y` must be 60 values, one for each row of `X`. Got 5."),
    ),
    Case(
        _VALUES,
        "5 values for 60",
        lambda: np.ones(5),
        (VALUES,),
        Refused("`values` must be an array of shape (60,) or (60, c), one row per node. Got shape (5,)."),
    ),
    Case(
        _VALUES, "rows of unequal length", lambda: [[1.0]] * 59 + [[1.0, 2.0]], EVERY, Refused(_RAGGED, TypeError)
    ),
    Case(
        _VALUES,
        "texts of numbers",
        lambda: np.array(["1.5"] * N, dtype=object),
        EVERY,
        Refused(_NUMBERS + "'1.5' at index (0,).", TypeError),
    ),
    Case(
        _VALUES,
        "complex numbers",
        lambda: level() + 0j,
        (VALUES, *COLUMNS, *POSITIVE),
        Refused(_NUMBERS + "ndarray of dtype complex128.", TypeError),
    ),
    Case(
        _VALUES,
        "complex numbers",
        lambda: level() + 0j,
        TARGETS,
        Refused("`y` must be an array of real numbers (Complex data not supported). Got dtype complex128."),
    ),
    Case(
        _VALUES,
        "masked entries",
        lambda: np.ma.masked_greater(level(), 0.9),
        (*TARGETS, *COLUMNS, *POSITIVE),
        Refused("`{argument}` must be without masked entries. Got … of them."),
    ),
    Case(
        _VALUES,
        "masked entries",
        lambda: np.ma.masked_greater(level(), 0.9),
        (VALUES,),
        Refused(
            "`values` must be without a mask of its own; give `known=~values.mask`. Got a masked array.", TypeError
        ),
    ),
    *(
        Case(_VALUES, name, make, EVERY, same_as(level))
        for name, make in (
            ("a list", lambda: level().tolist()),
            ("a pandas series", lambda: pd.Series(level())),
            ("a polars series", lambda: pl.Series(level())),
            ("objects that are numbers", lambda: level().astype(object)),
            ("not contiguous", lambda: np.repeat(level(), 2)[::2]),
        )
    ),
    Case(
        _VALUES,
        "float16",
        lambda: level().astype(np.float16),
        EVERY,
        same_as(halves, "the bits of the same numbers as float64"),
    ),
    Case(
        _VALUES,
        "a vector for a matrix",
        level,
        (ERRORS, RELATIVE),
        Refused("`{argument}` must be an array of shape (n, d). Got shape (60,)."),
    ),
    Case(
        _VALUES,
        "a reference of zeros",
        lambda: np.zeros((N, 3)),
        (RELATIVE,),
        Refused("`reference` must be a matrix that is not zero. Got zeros only."),
    ),
    Case(
        _VALUES,
        "an array for a tensor",
        lambda: np.abs(cloud()),
        (ATTEND_Q, ATTEND_K, ATTEND_V),
        Refused(
            "`{argument}` must be a tensor of torch.float32, torch.float64, torch.bfloat16 or torch.float16. "
            "Got ndarray.",
            TypeError,
        ),
    ),
    Case(
        _VALUES,
        "half precision beside double precision",
        lambda: torch.ones((N, 3), dtype=torch.float16),
        (ATTEND_K, ATTEND_V),
        Refused("`{argument}` must be of torch.float64, as `phi_q` is. Got torch.float16.", TypeError),
    ),
    Case(
        _VALUES,
        "half precision beside double precision",
        lambda: torch.ones((N, 3), dtype=torch.float16),
        (ATTEND_Q,),
        Refused("`phi_k` must be of torch.float16, as `phi_q` is. Got torch.float64.", TypeError),
    ),
    Case(
        _VALUES,
        "keys of no weight",
        lambda: torch.zeros((N, 3), dtype=torch.float64),
        (ATTEND_Q, ATTEND_K),
        Works("zeros, not 0 / 0", lambda entry, result: np.testing.assert_array_equal(result, 0)),
    ),
)

# ------------------------------------------------------------------------------------------------------ nodes
_NODES = "Nodes"
BY_NODE = (NODES, GRAPH_NODES, PATHS, ROWS)
_RANGE = "`{argument}` must be integers in [0, 59]. Got "
NODE_CASES = (
    Case(_NODES, "out of range", lambda: [0, N], BY_NODE, Refused(_RANGE + "60 at index (1,).")),
    Case(_NODES, "negative", lambda: [-1], BY_NODE, Refused(_RANGE + "-1 at index (0,).")),
    Case(_NODES, "2^63", lambda: [2**63], BY_NODE, Refused(_RANGE + "9223372036854775808 at index (0,).")),
    Case(_NODES, "a fraction", lambda: [0.5], BY_NODE, Refused(_RANGE + "dtype float64.", TypeError)),
    Case(_NODES, "NaN", lambda: [np.nan], BY_NODE, Refused(_RANGE + "dtype float64.", TypeError)),
    Case(_NODES, "texts", lambda: ["a"], BY_NODE, Refused(_RANGE + "dtype <U1.", TypeError)),
    Case(
        _NODES,
        "a mask",
        lambda: np.ones(N, dtype=bool),
        BY_NODE,
        Refused(
            "`{argument}` must be integers in [0, 59]; numpy.flatnonzero converts a mask. Got booleans.", TypeError
        ),
    ),
    Case(
        _NODES,
        "none",
        lambda: [],
        BY_NODE,
        Refused("`{argument}` must be a non-empty vector of indices. Got shape (0,)."),
    ),
    Case(_NODES, "rows of unequal length", lambda: [[0], [0, 1]], BY_NODE, Refused(_RAGGED, TypeError)),
    Case(_NODES, "repeated", lambda: [0, 0, 1], BY_NODE, FINITE),
    *(
        Case(_NODES, name, make, BY_NODE, same_as(lambda: np.array([0, 1]), "as an array of int64"))
        for name, make in (
            ("a pandas series", lambda: pd.Series([0, 1])),
            ("a polars series", lambda: pl.Series([0, 1])),
            ("uint8", lambda: np.array([0, 1], dtype=np.uint8)),
        )
    ),
)

# --------------------------------------------------------------------------------------------------- matrices
_MATRICES = "Affinity matrices"


def ring_with(i, j, value, other=None):
    """The ring with another weight at one edge, both ways or not."""

    def make():
        matrix = ring().copy()
        matrix[i, j] = value
        matrix[j, i] = value if other is None else other
        return matrix

    return make


def blocks(*parts):
    return lambda: sparse.block_diag([np.atleast_2d(part) for part in parts]).toarray()


_LONELY = "Graph of 61 nodes: 1 nodes are isolated, without an edge to another (remedy: …, or drop them)."
MATRIX_CASES = tuple(
    Case(_MATRICES, name, make, (AFFINITY,), promise)
    for name, make, promise in (
        ("NaN", ring_with(0, 1, np.nan), Refused(_FINITE + "nan at index (0, 1).")),
        (
            "NaN, sparse",
            lambda: sparse.csr_array(ring_with(0, 1, np.nan)()),
            Refused(_FINITE + "nan at index (0, 1)."),
        ),
        ("inf", ring_with(0, 1, np.inf), Refused(_FINITE + "inf at index (0, 1).")),
        ("1e300", ring_with(0, 1, 1e300), Refused(_SIZE + "1e+300 at index (0, 1).")),
        ("1e300, sparse", lambda: sparse.csr_array(1e300 * ring()), Refused(_SIZE + "1e+300 at index (0, 1).")),
        (
            "a negative weight",
            ring_with(0, 1, -1.0),
            Refused("`affinity` must be finite and nonnegative. Got an entry of -1.0."),
        ),
        (
            "asymmetric",
            ring_with(0, 1, 2.0, 1.0),
            Refused("`affinity` must be symmetric. Got a difference of 1 between it and its transpose."),
        ),
        (
            "not square",
            lambda: np.zeros((3, 4)),
            Refused("`affinity` must be a square matrix of at least one row. Got shape (3, 4)."),
        ),
        (
            "empty",
            lambda: np.zeros((0, 0)),
            Refused("`affinity` must be an array with at least 1 row(s) and one column. Got shape (0, 0)."),
        ),
        ("a vector", lambda: np.ones(5), Refused("`affinity` must be an array of shape (n, d). Got shape (5,).")),
        ("texts", lambda: [["a", "b"], ["b", "a"]], Refused(_NUMBERS + "list of dtype <U1.", TypeError)),
        ("complex numbers", lambda: ring() + 0j, Refused(_NUMBERS + "ndarray of dtype complex128.", TypeError)),
        ("rows of unequal length", lambda: [[0, 1], [1]], Refused(_RAGGED, TypeError)),
        ("the name of a file", lambda: "a.npz", Refused(_FILE + "'a.npz'.", TypeError)),
        (
            "masked entries",
            lambda: np.ma.masked_equal(ring(), 1),
            Refused("`affinity` must be without masked entries. Got 120 of them."),
        ),
        ("a list", lambda: ring().tolist(), same_as(ring)),
        ("integers", lambda: ring().astype(int), same_as(ring)),
        ("booleans", lambda: ring() > 0, same_as(ring)),
        ("float16", lambda: ring().astype(np.float16), same_as(ring)),
        ("Fortran order", lambda: np.asfortranarray(ring()), same_as(ring)),
        ("a pandas frame", lambda: pd.DataFrame(ring()), same_as(ring)),
        ("a polars frame", lambda: pl.DataFrame(ring()), same_as(ring)),
        ("a sparse array", lambda: sparse.csr_array(ring()), same_as(ring)),
        ("a sparse matrix of the old kind", lambda: sparse.csr_matrix(ring()), same_as(ring)),
        ("self-loops", ring_with(0, 0, 1.0), FINITE),
        (
            "an isolated node",
            blocks(ring(), 0.0),
            Works("it is a piece of its own", None, GraphWarning, (_LONELY,)),
        ),
        (
            "two pieces",
            blocks(ring(), ring()),
            Works(
                "kernels of zero between them",
                None,
                GraphWarning,
                ("Graph of 120 nodes: it has 2 pieces that are not connected (remedy: …).",),
            ),
        ),
        (
            "zeros only",
            lambda: np.zeros((5, 5)),
            Works(
                "no edges",
                None,
                GraphWarning,
                ("Graph of 5 nodes: 5 nodes are isolated, without an edge to another (remedy: …).",),
            ),
        ),
    )
)

# ----------------------------------------------------------------------------------------------------- graphs
_GRAPHS = "Graphs"
_SPREAD_OUT = np.random.default_rng(0).standard_normal((N + 10, 3))
TEACHERS = (ON_GRAPH, SIGNATURES, WALKS, COUNTS, FRONTIER)


def made(matrix, points=_SPREAD_OUT):
    """A graph of a matrix, without the warnings of its construction, which are cases of their own."""

    def make():
        affinity = matrix() if callable(matrix) else matrix
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            return Graph.from_affinity(affinity, None if points is None else points[: len(affinity)])

    return make


def hub():
    star = np.zeros((N, N))
    star[0, 1:] = star[1:, 0] = 1
    return star


def uneven():
    matrix = 1e-150 * ring()
    matrix[0, 1] = matrix[1, 0] = 1e149
    return matrix


_NO_GRAPH = (
    "`graph` must be a Graph; Graph.from_affinity makes one from a matrix or from a graph of another library. "
)
_NO_GRAPH += "Got "
_EVERYWHERE = (*TEACHERS, FILL_GRAPH)
GRAPH_CASES = (
    Case(_GRAPHS, "an isolated node", made(blocks(ring(), 0.0)), _EVERYWHERE, FINITE),
    Case(_GRAPHS, "an isolated node with a self-loop", made(blocks(ring(), 1.0)), _EVERYWHERE, FINITE),
    Case(_GRAPHS, "two pieces", made(blocks(ring()[:30, :30], ring()[:30, :30])), _EVERYWHERE, FINITE),
    Case(_GRAPHS, "a hub joined to all", made(hub), _EVERYWHERE, FINITE),
    Case(
        _GRAPHS,
        "a hub joined to all",
        made(hub),
        (FIT_GRAPH,),
        Works("finite", None, FeatureWarning, ("The kernel hardly tells points apart: …",)),
    ),
    Case(_GRAPHS, "self-loops everywhere", made(ring() + np.eye(N)), _EVERYWHERE, FINITE),
    Case(_GRAPHS, "self-loops only", made(np.eye(5)), _EVERYWHERE, FINITE),
    Case(
        _GRAPHS,
        "self-loops only",
        made(np.eye(5)),
        (FIT_GRAPH,),
        Refused("`kernel` must be one whose walks take a step, on a graph with edges. Got …, 0 wide."),
    ),
    Case(_GRAPHS, "no edges", made(np.zeros((5, 5))), _EVERYWHERE, FINITE),
    Case(
        _GRAPHS,
        "no edges",
        made(np.zeros((5, 5))),
        (FIT_GRAPH,),
        Refused("`X` must be a space whose graph has edges. Got 5 isolated nodes."),
    ),
    Case(_GRAPHS, "one node", made(np.zeros((1, 1))), _EVERYWHERE, FINITE),
    Case(
        _GRAPHS,
        "one node, or all points equal",
        made(ring(), np.ones((N, 3))),
        (FIT_GRAPH,),
        Refused("`X` must be mostly at distinct positions. Got duplicates only."),
    ),
    Case(_GRAPHS, "two nodes", made(1 - np.eye(2)), (*_EVERYWHERE, FIT_GRAPH), FINITE),
    Case(_GRAPHS, "weights of 1e-300", made(1e-300 * ring()), TEACHERS, FINITE),
    Case(_GRAPHS, "weights of 1e-320", made(1e-320 * ring()), TEACHERS, FINITE),
    Case(
        _GRAPHS,
        "weights of 1e-320",
        made(1e-320 * ring()),
        (FIT_GRAPH,),
        Works("finite; points are no ring", None, FeatureWarning, ("The field … is off by …",)),
    ),
    Case(_GRAPHS, "weights of 1e149", made(1e149 * ring()), TEACHERS, FINITE),
    Case(_GRAPHS, "weights from 1e-150 to 1e149", made(uneven), _EVERYWHERE, FINITE),
    Case(_GRAPHS, "no points", made(ring(), None), _EVERYWHERE, FINITE),
    Case(
        _GRAPHS,
        "no points",
        made(ring(), None),
        (FIT_GRAPH,),
        Refused("This graph has no points; give `points` to Graph.from_affinity."),
    ),
    Case(_GRAPHS, "a matrix", lambda: ring(), TEACHERS, Refused(_NO_GRAPH + "ndarray.", TypeError)),
    Case(_GRAPHS, "None", lambda: None, TEACHERS, Refused(_NO_GRAPH + "NoneType.", TypeError)),
    Case(_GRAPHS, "the name of a file", lambda: "g.safetensors", TEACHERS, Refused(_NO_GRAPH + "str.", TypeError)),
)

# ----------------------------------------------------------------------------------------------------- meshes
_FACES = "Faces"
_TRIANGLES = "`faces` must be an array of triangles of shape (m, 3) with m >= 1. Got shape "


def face_with(value):
    def make():
        given = faces().copy()
        given[2, 1] = value
        return given

    return make


FACE_CASES = tuple(
    Case(_FACES, name, make, (FACES,), promise)
    for name, make, promise in (
        ("out of range", face_with(N), Refused(_RANGE + "60 at index (2, 1).")),
        ("negative", face_with(-1), Refused(_RANGE + "-1 at index (2, 1).")),
        ("quads", lambda: np.column_stack([faces(), faces()[:, 0]]), Refused(_TRIANGLES + "(116, 4).")),
        ("triangles and quads", lambda: [[0, 1, 2], [0, 1, 2, 3]], Refused(_RAGGED, TypeError)),
        ("0 faces", lambda: np.zeros((0, 3), dtype=int), Refused(_TRIANGLES + "(0, 3).")),
        ("an empty list", lambda: [], Refused(_TRIANGLES + "(0,).")),
        ("one face as a vector", lambda: [0, 1, 2], Refused(_TRIANGLES + "(3,).")),
        ("floats", lambda: faces().astype(float), Refused(_RANGE + "dtype float64.", TypeError)),
        ("texts", lambda: [["a", "b", "c"]], Refused(_RANGE + "dtype <U1.", TypeError)),
        ("objects", lambda: faces().astype(object), Refused(_RANGE + "dtype object.", TypeError)),
        ("None", lambda: None, Refused(_TRIANGLES + "().")),
        ("uint8", lambda: faces().astype(np.uint8), same_as(faces, "as int64")),
        ("a list", lambda: faces().tolist(), same_as(faces, "as int64")),
        ("a pandas frame", lambda: pd.DataFrame(faces()), same_as(faces, "as int64")),
        ("a polars frame", lambda: pl.DataFrame(faces()), same_as(faces, "as int64")),
        ("Fortran order", lambda: np.asfortranarray(faces()), same_as(faces, "as int64")),
    )
)

_MESHES = "Meshes"
SURFACES = (MEASURES, MESH_GRAPH, COTANGENT, HEAT_MESH, FIT_MESH, FIT_SURFACE, FILL_MESH)
BY_EDGES = (MESH_GRAPH, COTANGENT, FIT_MESH, FILL_MESH)


def mesh_of(given=None, vertices=None):
    return lambda: TriangleMesh(
        cloud() if vertices is None else vertices, faces() if given is None else np.asarray(given)
    )


def clean():
    return TriangleMesh(cloud(), faces())


def flipped():
    given = faces().copy()
    given[::2] = given[::2, ::-1]
    return given


def line():
    return np.outer(np.arange(N), [1.0, 2.0, 3.0])


_SHORT = "t = 0.3 is short for 60 nodes: …"
_ALONE = "Graph of 60 nodes: 60 nodes are isolated, without an edge to another (remedy: …, or drop them)."
_PARTS = "Graph of 120 nodes: it has 2 pieces that are not connected (remedy: …)."
MESH_CASES = (
    Case(
        _MESHES,
        "flipped faces",
        mesh_of(flipped()),
        (MESH_GRAPH, HEAT_MESH, FIT_MESH, FIT_SURFACE, FILL_MESH),
        close_to(clean, "as with all faces one way round"),
    ),
    Case(_MESHES, "flipped faces", mesh_of(flipped()), (MEASURES, COTANGENT), FINITE),
    Case(_MESHES, "a face with a repeated vertex", mesh_of([*faces(), [0, 0, 1]]), SURFACES, FINITE),
    Case(
        _MESHES,
        "faces that stand there twice",
        mesh_of([*faces(), *faces()[:5]]),
        SURFACES,
        Works("they count once", None, UserWarning, ("5 faces are left out of the mesh: …",)),
    ),
    Case(
        _MESHES,
        "edges with three faces: non-manifold",
        mesh_of([*faces(), [*faces()[0, :2], 40]]),
        SURFACES,
        FINITE,
    ),
    Case(
        _MESHES,
        "an unreferenced vertex",
        mesh_of(vertices=np.vstack([cloud(), [[0.3, 0.3, 0.3]]])),
        (*BY_EDGES, HEAT_MESH, FIT_SURFACE),
        Works("it is an isolated node", None, GraphWarning, (_LONELY,)),
    ),
    Case(
        _MESHES,
        "two parts",
        mesh_of([*faces(), *(faces() + N)], np.vstack([cloud(), cloud() + 5])),
        (*BY_EDGES, HEAT_MESH, FIT_SURFACE),
        Works("kernels of zero between them", None, GraphWarning, (_PARTS,)),
    ),
    Case(_MESHES, "zero-area faces only", mesh_of(vertices=line()), (MESH_GRAPH, COTANGENT, FILL_MESH), FINITE),
    Case(
        _MESHES,
        "zero-area faces only",
        mesh_of(vertices=line()),
        (HEAT_MESH, FIT_MESH, FIT_SURFACE),
        Refused("`{argument}` must be a mesh with area. Got degenerate faces only."),
    ),
    Case(
        _MESHES,
        "zero-area faces only",
        mesh_of(vertices=line()),
        (MEASURES,),
        Refused("`mesh` must be of positive area to be sampled. Got area 0."),
    ),
    Case(
        _MESHES,
        "all vertices equal",
        mesh_of(vertices=np.ones((N, 3))),
        BY_EDGES,
        Refused(
            "`{argument}` must be a mesh with an edge of positive length. "
            "Got TriangleMesh(60 vertices, 116 faces) without one."
        ),
    ),
    Case(_MESHES, "one triangle", mesh_of([[0, 1, 2]], np.eye(3)), (*BY_EDGES, MEASURES, HEAT_MESH), FINITE),
    Case(_MESHES, "flattened to 1e-9 of its height", mesh_of(vertices=cloud() * [1, 1, 1e-9]), SURFACES, FINITE),
    Case(_MESHES, "vertices of 1e140", mesh_of(vertices=1e140 * cloud()), (*BY_EDGES, MEASURES), FINITE),
    Case(
        _MESHES,
        "vertices of 1e140, t of 0.3",
        mesh_of(vertices=1e140 * cloud()),
        (HEAT_MESH, FIT_SURFACE),
        Works("nodes see only themselves", None, GraphWarning, (_SHORT, _ALONE)),
    ),
    Case(_MESHES, "vertices of 1e-130", mesh_of(vertices=1e-130 * cloud()), (*BY_EDGES, MEASURES), FINITE),
    Case(
        _MESHES,
        "vertices of 1e-300",
        mesh_of(vertices=1e-300 * cloud()),
        (*BY_EDGES, HEAT_MESH, FIT_SURFACE),
        Refused("`{argument}` must be spread over at least 1e-140, or squared distances vanish. Got 1.96667e-300."),
    ),
    *(
        Case(
            _MESHES,
            name,
            make,
            (MESH_GRAPH, COTANGENT),
            Refused(
                "`mesh` must be a TriangleMesh, or a mesh of trimesh, pyvista or meshio; TriangleMesh.load reads a "
                f"file. Got {kind}.",
                TypeError,
            ),
        )
        for name, make, kind in (
            ("an array", cloud, "ndarray"),
            ("a pair of arrays", lambda: (cloud(), faces()), "tuple"),
            ("the name of a file", lambda: "bunny.ply", "str"),
        )
    ),
)


def like(name, **parts):
    """A stand-in for an object of a library that may not be installed."""
    return lambda: type(name, (), parts)()


def cells(*kinds):
    """A mesh of meshio with one cell of each kind: its name and its number of corners."""
    blocks = [SimpleNamespace(type=kind, data=np.arange(n)[None]) for kind, n in kinds]
    return like("Mesh", points=cloud(), cells=blocks)


_CUT = "`X` must be a mesh of triangles only; mesh.triangulate() makes them. "
_BARE = "This graph has no points; give `points` to Graph.from_affinity."
_SIDES = np.array([[0, 1, 2, 3, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 2, 3]])  # of a square, in both directions
OBJECT_CASES = tuple(
    Case("Meshes and graphs of other libraries", name, make, (FIT_SURFACE,), Refused(text, kind))
    for name, make, text, kind in (
        (
            "a mesh and a graph at once",
            like("Data", pos=cloud(), face=faces().T, edge_index=_SIDES),
            "`X` must be one mesh or one graph; make it from the arrays that you mean. "
            "Got Data that looks like several things: pos, face and edge_index.",
            TypeError,
        ),
        (
            "a mesh with mixed cells",
            cells(("triangle", 3), ("quad", 4)),
            "`X` must be a mesh of triangles only. Got Mesh with other cells: 1 of type 'quad'.",
            ValueError,
        ),
        (
            "a mesh of lines",
            cells(("line", 2)),
            "`X` must be a mesh of triangles. Got Mesh of lines only.",
            ValueError,
        ),
        (
            "triangles and quadrilaterals",
            like("PolyData", points=cloud(), faces=np.array([3, 0, 1, 2, 4, 0, 1, 2, 3])),
            _CUT + "Got faces with other numbers of corners.",
            ValueError,
        ),
        (
            "polygons as long as two triangles",
            like("PolyData", points=cloud(), faces=np.array([3, 0, 1, 2, 2, 0, 1, 0])),
            _CUT + "Got faces with other numbers of corners.",
            ValueError,
        ),
        (
            "strips of triangles",
            like("PolyData", points=cloud(), faces=np.array([3, 0, 1, 2]), n_strips=2),
            _CUT + "Got 2 strips.",
            ValueError,
        ),
        (
            "a grid of cells",
            like("UnstructuredGrid", points=cloud(), cells=np.array([4, 0, 1, 2, 3])),
            "`X` must be a mesh of triangles; mesh.extract_surface().triangulate() makes one from a grid of cells. "
            "Got UnstructuredGrid.",
            TypeError,
        ),
        (
            "a scene",
            lambda: trimesh.Scene(trimesh.creation.box()),
            "`X` must be one mesh; scene.to_mesh() joins the parts of a scene. Got Scene.",
            TypeError,
        ),
        (
            "a directed graph",
            lambda: networkx.DiGraph([(0, 1)]),
            "`X` must be an undirected graph; graph.to_undirected() makes one. Got DiGraph.",
            TypeError,
        ),
        ("a graph without positions", lambda: networkx.path_graph(4), _BARE, ValueError),
        ("a sparse matrix", lambda: sparse.csr_array(ring()), _BARE, ValueError),
        (
            "edges in one direction",
            like("Data", edge_index=np.array([[0, 1, 2], [1, 2, 0]])),
            "`X` must be a graph with every edge in both directions; numpy.hstack([edges, edges[::-1]]) adds the "
            "others. Got 3 edges in one direction only.",
            ValueError,
        ),
        (
            "an edge to a node that does not exist",
            like("Data", edge_index=_SIDES, num_nodes=3),
            "`X` must be edges between nodes in [0, 2]. Got 3.",
            ValueError,
        ),
        (
            "an edge to a negative node",
            like("Data", edge_index=-_SIDES),
            "`X` must be edges between nodes in [0, 99999999]. Got -3.",
            ValueError,
        ),
        (
            "edges that are not integers",
            like("Data", edge_index=_SIDES / 2),
            "`X` must be a graph with edges as integers of shape (2, m). Got float64 of shape (2, 8).",
            ValueError,
        ),
        (
            "one weight for eight edges",
            like("Data", edge_index=_SIDES, edge_weight=[1.0]),
            "`X` must be a graph with one weight for each of 8 edges. Got 1 weights.",
            ValueError,
        ),
    )
)

CASES = (*VALUE_CASES, *NODE_CASES, *MATRIX_CASES, *GRAPH_CASES, *FACE_CASES, *MESH_CASES, *OBJECT_CASES)
