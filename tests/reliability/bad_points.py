"""Bad points: NaN and infinity, wrong shapes, degenerate positions, unusual types."""

import numpy as np
import pandas as pd
import polars as pl
import torch
from reliability.entry_points import (
    ASKED,
    BASELINE_AT,
    BASELINES,
    BLOCKS,
    CLOSEST,
    DIMENSION,
    DISTANCE,
    ESTIMATORS,
    EXTEND,
    FILL,
    FILL_AT,
    FIT,
    FIT_DEFAULT,
    FIT_HEAT,
    FUNCTIONS,
    GAUSSIAN,
    HEAT,
    KERNEL,
    KERNEL_Y,
    KNN,
    LOCATED,
    MATVEC,
    NEIGHBORS,
    ON_SPHERE,
    PROCESS,
    PROCESS_AT,
    QUERIES,
    RIDGE,
    RIDGE_AT,
    SMOOTH,
    SPECTRAL,
    THIN,
    TRANSFORM,
    TUNE,
    VERTICES,
    N,
    cloud,
)
from reliability.promises import Case, Refused, Works, close_to, same_as
from scipy import sparse

from manifoldrf import FarQueryWarning, FeatureWarning, GraphWarning

ALL = (*FUNCTIONS, *ESTIMATORS, *QUERIES, *ASKED)
OURS = (*FUNCTIONS, *QUERIES)  # those that check in our words alone
SKLEARN = (*ESTIMATORS, *ASKED)
ON_GRAPHS = (FIT, RIDGE, PROCESS)  # by nearest neighbours
FINITE = Works("finite")


def but(entries, *left_out):
    return tuple(entry for entry in entries if entry not in left_out)


def with_entry(value):
    """The cloud with one entry replaced."""

    def make():
        points = np.array(cloud())
        points[3, 1] = value
        return points

    return make


def objects_with(value):
    def make():
        points = np.array(cloud()).astype(object)
        points[3, 1] = value
        return points

    return make


def times(factor):
    return lambda: factor * np.array(cloud())


def frame():
    return pd.DataFrame(np.array(cloud()), columns=list("xyz"))


def dated_frame():
    return frame().assign(y=pd.Timestamp("2026-11-17"))


def structured():
    return frame().to_records(index=False).view(np.ndarray)


def polars_frame():
    return pl.DataFrame(np.array(cloud()), schema=list("xyz"))


def halves():
    return cloud().astype(np.float16).astype(np.float64)


def whole():
    return np.rint(10 * cloud())


_NUMBERS = "Numbers"
_FINITE = "`{argument}` must be finite, without NaN or inf. Got "
_SIZE = "`{argument}` must be finite, with entries below 1e+150 in size. Got "
_SPREAD = "`{argument}` must be spread over at least 1e-140, or squared distances vanish. Got 1.96667e-300."
_SHORT = "t = 0.3 is short for 60 nodes: …"
_ALONE = "Graph of 60 nodes: 60 nodes are isolated, without an edge to another (remedy: …, or drop them)."
NUMBERS = (
    Case(_NUMBERS, "NaN", with_entry(np.nan), ALL, Refused(_FINITE + "nan at index (3, 1).")),
    Case(_NUMBERS, "inf", with_entry(np.inf), ALL, Refused(_FINITE + "inf at index (3, 1).")),
    Case(_NUMBERS, "-inf", with_entry(-np.inf), ALL, Refused(_FINITE + "-inf at index (3, 1).")),
    Case(_NUMBERS, "one coordinate of 1e300", with_entry(1e300), ALL, Refused(_SIZE + "1e+300 at index (3, 1).")),
    Case(_NUMBERS, "all coordinates of 1e300", times(1e300), ALL, Refused(_SIZE + "1.8…e+299 at index (0, 0).")),
    Case(
        _NUMBERS,
        "all coordinates of 1e140",
        times(1e140),
        (*ON_GRAPHS, FILL, FIT_DEFAULT),
        close_to(cloud, "as at size 1"),
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e140",
        times(1e140),
        (KNN, THIN, DIMENSION, LOCATED, TUNE, VERTICES, *but(BASELINES, GAUSSIAN), *SPECTRAL, NEIGHBORS),
        FINITE,
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e140, t of 0.3",
        times(1e140),
        (HEAT, FIT_HEAT),
        Works("nodes see only themselves", None, GraphWarning, (_SHORT, _ALONE)),
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e-130",
        times(1e-130),
        (*ON_GRAPHS, FILL, FIT_DEFAULT),
        close_to(cloud, "as at size 1"),
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e-130, t of 0.3",
        times(1e-130),
        (HEAT, FIT_HEAT),
        Refused("`t` must be at most 2.87845e-258 here (heat is spread evenly long before). Got 0.3."),
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e-300",
        times(1e-300),
        (KNN, HEAT, THIN, DIMENSION, FILL, FIT, FIT_HEAT, FIT_DEFAULT, RIDGE, PROCESS, *SPECTRAL),
        Refused(_SPREAD),
    ),
    Case(
        _NUMBERS,
        "all coordinates of 1e-300",
        times(1e-300),
        (LOCATED, TUNE, VERTICES, *BASELINES, NEIGHBORS, *but(ASKED, MATVEC), EXTEND, CLOSEST, FILL_AT),
        FINITE,
    ),
    Case(_NUMBERS, "an offset of 1e8", lambda: cloud() + 1e8, (*FUNCTIONS, *but(ESTIMATORS, GAUSSIAN)), FINITE),
)

_SHAPES = "Shapes"
_ROWS = "`{argument}` must be an array with at least %d row(s) and one column. Got shape %s."
_SHAPE = "`{argument}` must be an array of shape (n, %s). Got shape %s."
_THREE = (VERTICES, EXTEND, CLOSEST, FILL_AT, ON_SPHERE)  # whose points have three coordinates
_FREE = but(FUNCTIONS, VERTICES)
_ONE = "`X` must be an array of at least 2 points. Got 1 sample."
_FOUND = "Found array with %s while a minimum of … is required by …."
SHAPES = tuple(
    Case(_SHAPES, name, make, entries, Refused(words))
    for name, make, rows in (
        (
            "no rows",
            lambda: np.zeros((0, 3)),
            (
                ((THIN, LOCATED, TUNE, *_THREE), _ROWS % (1, "(0, 3)")),
                ((KNN, FILL), _ROWS % (2, "(0, 3)")),
                ((HEAT, DIMENSION), _ROWS % (3, "(0, 3)")),
                (but(SKLEARN, BLOCKS), _FOUND % "0 sample(s) (shape=(0, 3))"),
            ),
        ),
        (
            "no columns",
            lambda: np.zeros((N, 0)),
            (
                ((THIN, LOCATED, TUNE), _ROWS % (1, "(60, 0)")),
                ((KNN, FILL), _ROWS % (2, "(60, 0)")),
                ((HEAT, DIMENSION), _ROWS % (3, "(60, 0)")),
                (_THREE, _SHAPE % (3, "(60, 0)")),
                (SKLEARN, _FOUND % "0 feature(s) (shape=(60, 0))"),
            ),
        ),
        (
            "one point",
            lambda: np.array(cloud()[:1]),
            (
                ((KNN, FILL), _ROWS % (2, "(1, 3)")),
                ((HEAT, DIMENSION), _ROWS % (3, "(1, 3)")),
                ((FIT, FIT_HEAT, FIT_DEFAULT, *SPECTRAL, RIDGE, PROCESS), _ONE),
            ),
        ),
        ("two points", lambda: np.array(cloud()[:2]), (((HEAT, DIMENSION), _ROWS % (3, "(2, 3)")),)),
        (
            "fewer points than are to be kept",
            lambda: np.array(cloud()[:2]),
            (((THIN,), "`n` must be an integer in [1, 2]. Got 5."),),
        ),
        (
            "a vector",
            lambda: np.arange(60.0),
            (
                (_FREE, _SHAPE % ("d", "(60,)")),
                (_THREE, _SHAPE % (3, "(60,)")),
                (but(SKLEARN, BLOCKS), "Expected 2D array, got 1D array instead:…"),
                ((BLOCKS,), "`X` must be an array of shape (q, d). Got shape (60,)."),
            ),
        ),
        (
            "three axes",
            lambda: np.zeros((4, 5, 3)),
            (
                (_FREE, _SHAPE % ("d", "(4, 5, 3)")),
                (_THREE, _SHAPE % (3, "(4, 5, 3)")),
                (but(SKLEARN, BLOCKS), "Found array with dim 3, while dim <= 2 is required by …."),
                ((BLOCKS,), "`X` must be an array of shape (q, d). Got shape (4, 5, 3)."),
            ),
        ),
        (
            "two columns for three",
            lambda: np.array(cloud()[:, :2]),
            (
                (_THREE, _SHAPE % (3, "(60, 2)")),
                (ASKED, "X has 2 features, but … is expecting 3 features as input."),
            ),
        ),
        (
            "a number",
            lambda: 3.0,
            (
                (_FREE, _SHAPE % ("d", "()")),
                (_THREE, _SHAPE % (3, "()")),
                (but(SKLEARN, BLOCKS), "Expected 2D array, got scalar array instead:…"),
            ),
        ),
    )
    for entries, words in rows
)
ONE = (
    Case(
        _SHAPES,
        "one point or query",
        lambda: np.array(cloud()[:1]),
        (*BASELINES, *but(ASKED, MATVEC), *QUERIES),
        FINITE,
    ),
    Case(
        _SHAPES,
        "two points or queries",
        lambda: np.array(cloud()[:2]),
        (KNN, FIT, FIT_HEAT, FIT_DEFAULT, *BASELINES, *SPECTRAL, *but(ASKED, MATVEC), *QUERIES),
        FINITE,
    ),
)

_PLACES = "Places"
_COINCIDE = "60 points coincide with another (remedy: drop them with numpy.unique(points, axis=0))"
_ISOLATED = "Graph of 60 nodes: 1 nodes are isolated, without an edge to another (remedy: …, or drop them)."
_PIECES = "Graph of 60 nodes: it has 2 pieces that are not connected (remedy: …, or one graph per piece)."
_SPARSE = "t = … is short for 60 nodes: …"
_HALF = "t = … is short for 30 nodes: …"
_BY_NEIGHBORS = (KNN, FILL, *ON_GRAPHS, SPECTRAL[0])
_BY_HEAT = (HEAT, FIT_HEAT, FIT_DEFAULT, SPECTRAL[1])
_FITS = (*ON_GRAPHS, FIT_HEAT, FIT_DEFAULT, SPECTRAL[1])  # those that look at the points first
_NO_GRAPH = (THIN, DIMENSION, LOCATED, TUNE, VERTICES, *but(BASELINES, GAUSSIAN), NEIGHBORS)


def doubled():
    return np.vstack([cloud()[:30], cloud()[:30]])


def clusters():
    return np.vstack([cloud()[:30], cloud()[:30] + 100])


PLACES = (
    Case(
        _PLACES,
        "all points equal",
        lambda: np.ones((N, 3)),
        _FITS,
        Refused("`X` must be points at different positions. Got one position for 60 points."),
    ),
    Case(
        _PLACES,
        "all points at two positions",
        lambda: np.repeat(cloud()[:2], N // 2, axis=0),
        _FITS,
        Refused("`X` must be points at different positions. Got two positions for 60 points."),
    ),
    Case(
        _PLACES,
        "all points equal",
        lambda: np.ones((N, 3)),
        but(_BY_NEIGHBORS, *_FITS),
        Refused(
            "`bandwidth` must be a positive number where most neighbours coincide. Got a median distance of 0."
        ),
    ),
    Case(
        _PLACES,
        "all points equal",
        lambda: np.ones((N, 3)),
        but(_BY_HEAT, *_FITS),
        Refused("`{argument}` must be mostly at distinct positions. Got duplicates only."),
    ),
    Case(_PLACES, "all points equal", lambda: np.ones((N, 3)), (*_NO_GRAPH, GAUSSIAN), FINITE),
    Case(
        _PLACES,
        "every point twice",
        doubled,
        _BY_NEIGHBORS,
        Works("both are nodes", None, GraphWarning, (f"Graph of 60 nodes: {_COINCIDE}.",)),
    ),
    Case(
        _PLACES,
        "every point twice",
        doubled,
        (HEAT,),
        Works("one of each pair is a node", None, GraphWarning, ("30 of 60 points are copies …", _HALF)),
    ),
    Case(
        _PLACES,
        "every point twice",
        doubled,
        but(_BY_HEAT, HEAT),
        Works("one of each pair is a node", None, GraphWarning, (_HALF,)),
    ),
    Case(_PLACES, "every point twice", doubled, _NO_GRAPH, FINITE),
    Case(
        _PLACES,
        "collinear",
        lambda: np.outer(np.arange(60.0) / 60, [1.0, 2.0, 3.0]),
        (*FUNCTIONS, *but(ESTIMATORS, GAUSSIAN, *_FITS)),
        Works("finite; of dimension 1"),
    ),
    Case(
        _PLACES,
        "collinear",
        lambda: np.outer(np.arange(60.0) / 60, [1.0, 2.0, 3.0]),
        _FITS,
        Works(
            "finite; of dimension 1",
            None,
            GraphWarning,
            ("All points of X lie on one straight line: the features are those of a line.",),
        ),
    ),
    Case(
        _PLACES,
        "a constant coordinate",
        lambda: np.column_stack([cloud()[:, :2], np.ones(N)]),
        (*_BY_NEIGHBORS, *_NO_GRAPH),
        FINITE,
    ),
    Case(
        _PLACES,
        "a constant coordinate",
        lambda: np.column_stack([cloud()[:, :2], np.ones(N)]),
        _BY_HEAT,
        Works("finite", None, GraphWarning, (_SPARSE,)),
    ),
    Case(
        _PLACES,
        "two clusters far apart: disconnected",
        clusters,
        _BY_NEIGHBORS,
        Works("kernels of zero between them", None, GraphWarning, (_PIECES,)),
    ),
    Case(
        _PLACES,
        "two clusters far apart: disconnected",
        clusters,
        _BY_HEAT,
        Works("kernels of zero between them", None, GraphWarning, (_SPARSE, _PIECES)),
    ),
    Case(_PLACES, "two clusters far apart", clusters, _NO_GRAPH, FINITE),
    *(
        case
        for size in (1e3, 1e140)
        for case in (
            Case(
                _PLACES,
                f"one point {size:g} away: an isolated node",
                with_entry(size),
                _BY_NEIGHBORS,
                Works("it is left out", None, GraphWarning, (_ISOLATED,)),
            ),
            Case(
                _PLACES,
                f"one point {size:g} away: an isolated node",
                with_entry(size),
                _BY_HEAT,
                Works("it is left out", None, GraphWarning, (_SPARSE, _ISOLATED)),
            ),
            Case(_PLACES, f"one point {size:g} away", with_entry(size), _NO_GRAPH, FINITE),
            Case(
                _PLACES,
                f"one point {size:g} away",
                with_entry(size),
                (GAUSSIAN,),
                Works("finite", None, FeatureWarning, ("The grid of … anchors is too coarse: …",)),
            ),
        )
    ),
)

_TAKEN = "Types that are taken"
_NAMES = "X has feature names, but … was fitted without feature names"
TAKEN = (
    *(
        Case(_TAKEN, name, make, entries, same_as(cloud))
        for name, make, entries in (
            ("read-only", cloud, ALL),
            ("Fortran order", lambda: np.asfortranarray(cloud()), ALL),
            ("not contiguous", lambda: np.repeat(np.repeat(cloud(), 2, axis=0), 2, axis=1)[::2, ::2], ALL),
            ("negative strides", lambda: np.array(cloud())[::-1].copy()[::-1], ALL),
            ("another byte order", lambda: cloud().astype(">f8"), ALL),
            ("long doubles", lambda: cloud().astype(np.longdouble), ALL),
            ("objects that are numbers", lambda: np.array(cloud()).astype(object), ALL),
            ("a masked array without masked entries", lambda: np.ma.masked_array(cloud()), ALL),
            ("a list of lists", lambda: cloud().tolist(), but(ALL, BLOCKS)),
            ("a tuple of tuples", lambda: tuple(map(tuple, cloud().tolist())), but(ALL, BLOCKS)),
            ("a pandas frame", frame, but(ALL, *ASKED)),
            ("a pandas frame without names", lambda: pd.DataFrame(np.array(cloud())), ASKED),
            ("a pandas frame of nullable floats", lambda: frame().astype("Float64"), but(ALL, *ASKED)),
            ("a polars frame", polars_frame, but(ALL, *ASKED)),
            ("a torch tensor", lambda: torch.tensor(np.array(cloud())), ALL),
        )
    ),
    Case(
        _TAKEN,
        "a frame with names, of a model fitted without",
        polars_frame,
        ASKED,
        Works("the bits of a plain float64 array", same_as(cloud).check, UserWarning, (_NAMES,)),
    ),
    Case(
        _TAKEN,
        "float16",
        lambda: cloud().astype(np.float16),
        but(ALL, ON_SPHERE),
        same_as(halves, "the bits of the same numbers as float64"),
    ),
    Case(
        _TAKEN,
        "integers",
        lambda: whole().astype(np.int32),
        (
            *but(FUNCTIONS, HEAT, SMOOTH),
            *but(ESTIMATORS, FIT_HEAT, GAUSSIAN),
            *(EXTEND, CLOSEST, BASELINE_AT, DISTANCE),
        ),
        same_as(whole, "the bits of the same numbers as float64"),
    ),
)

_NOT = "Types that are refused"
_TEXT = "`{argument}` must be an array of numbers. Got "
_FILE = (
    "`{argument}` must be an array of numbers, not the name of a file: numpy.load(path, mmap_mode='r') "
    "reads it. Got "
)
_PLAIN = (
    "`{argument}` must be a plain array of numbers; numpy.lib.recfunctions.structured_to_unstructured converts a "
    "structured one. "
)
_IN_Y = " at index (0, 1), column 'y'."
REFUSED = (
    *(
        Case(_NOT, name, make, but(ALL, BLOCKS), Refused(words))
        for name, make, words in (
            (
                "an integer of 401 digits",
                lambda: [[10**400, 0, 0], *cloud().tolist()[1:]],
                "`{argument}` must be finite, with entries below 1e+150 in size. "
                "Got an integer of 401 digits at index (0, 0).",
            ),
            (
                "a frame with sparse columns",
                lambda: frame().astype({"y": pd.SparseDtype(float)}),
                "`{argument}` must be a dense frame; frame.sparse.to_dense() converts a sparse one. "
                "Got sparse column 'y'.",
            ),
            (
                "a frame with two columns of one name",
                lambda: frame().set_axis(list("xyx"), axis=1),
                "`{argument}` must be a frame whose columns have different names. Got 'x' several times.",
            ),
            (
                "a frame with two levels of names, twice the same",
                lambda: frame().set_axis(pd.MultiIndex.from_product([["a"], list("xyx")]), axis=1),
                "`{argument}` must be a frame whose columns have different names. Got ('a', 'x') several times.",
            ),
        )
    ),
    *(
        Case(_NOT, name, make, entries, Refused(words, TypeError))
        for name, make, entries, words in (
            ("texts", lambda: np.full((N, 3), "a"), ALL, _TEXT + "ndarray of dtype <U1."),
            ("texts of numbers", lambda: np.full((N, 3), "1.5"), ALL, _TEXT + "ndarray of dtype <U3."),
            ("a list of texts", lambda: [["a", "b", "c"]] * N, but(ALL, BLOCKS), _TEXT + "list of dtype <U1."),
            ("bytes", lambda: np.full((N, 3), b"1"), ALL, _TEXT + "ndarray of dtype |S1."),
            ("dates", lambda: np.zeros((N, 3), "datetime64[s]"), ALL, _TEXT + "ndarray of dtype datetime64[s]."),
            ("objects, one of them a text", objects_with("1.5"), ALL, _TEXT + "'1.5' at index (3, 1)."),
            ("objects, one of them None", objects_with(None), OURS, _TEXT + "None at index (3, 1)."),
            ("objects, one of them a dict", objects_with({}), OURS, _TEXT + "{} at index (3, 1)."),
            ("a frame with a column of lists", lambda: frame().assign(y=[[1]] * N), ALL, _TEXT + "[1]" + _IN_Y),
            (
                "objects, one of them a dict",
                objects_with({}),
                SKLEARN,
                "float() argument must be a string or a real number, not 'dict'",
            ),
            ("a frame with a column of texts", lambda: frame().assign(y="a"), ALL, _TEXT + "'a'" + _IN_Y),
            ("a frame with a column of dates", dated_frame, ALL, _TEXT + "Timestamp(…)" + _IN_Y),
            ("the name of a file", lambda: "cloud.npy", but(ALL, FILL, BLOCKS), _FILE + "'cloud.npy'."),
            ("a text that is no file", lambda: "cloud", but(ALL, FILL, BLOCKS), _TEXT + "str of dtype <U5."),
            ("a structured array", structured, but(ALL, BLOCKS), _PLAIN + "Got fields x, y, z."),
            ("a dict", lambda: {"x": [1.0]}, but(ALL, BLOCKS), _TEXT + "dict."),
            ("None", lambda: None, but(ALL, LOCATED, KERNEL_Y, FILL_AT, BLOCKS), _TEXT + "None."),
            ("complex numbers", lambda: cloud() + 0j, OURS, _TEXT + "ndarray of dtype complex128."),
            ("a sparse array", lambda: sparse.csr_array(cloud()), OURS, _TEXT + "csr_array."),
            (
                "a sparse array",
                lambda: sparse.csr_array(cloud()),
                but(SKLEARN, NEIGHBORS),
                "Sparse data was passed for X, but dense data is required. …",
            ),
            (
                "rows of unequal length",
                lambda: [[1.0, 2.0, 3.0], [1.0]],
                but(ALL, BLOCKS),
                "`{argument}` must be an array with rows of equal length. Got list.",
            ),
            (
                "a list, a block at a time",
                lambda: cloud().tolist(),
                (BLOCKS,),
                "`X` must be an array of shape (q, d); `transform` takes other things. Got list.",
            ),
            (
                "a file for a space",
                lambda: "cloud.npy",
                (FILL,),
                "`space` must be an array of numbers, not the name of a file: numpy.load(path, mmap_mode='r') "
                "reads it. Got 'cloud.npy'.",
            ),
        )
    ),
    *(
        Case(_NOT, name, make, entries, Refused(words))
        for name, make, entries, words in (
            ("objects, one of them None", objects_with(None), SKLEARN, _FINITE + "nan at index (3, 1)."),
            (
                "complex numbers",
                lambda: cloud() + 0j,
                SKLEARN,
                "`{argument}` must be an array of real numbers (Complex data not supported). Got dtype complex128.",
            ),
            (
                "masked entries",
                lambda: np.ma.masked_greater(np.array(cloud()), 0.98),
                ALL,
                "`{argument}` must be without masked entries. Got … of them.",
            ),
            (
                "a frame with a missing value",
                lambda: polars_frame().with_columns(y=pl.lit(None, dtype=pl.Float64)),
                but(ALL, *ASKED),
                _FINITE + "nan at index (0, 1), column 'y'.",
            ),
            (
                "float16, too coarse for the sphere",
                lambda: cloud().astype(np.float16),
                (ON_SPHERE,),
                "`X` must be points of Sphere(dim=2, radius=1.0): |x| = radius. Got …",
            ),
        )
    ),
)

_QUERIES = "Queries"
_FAR = (
    "60 of … points are away from the space, so their features fade; those of 60 are zero. "
    "`distance_to_space` says how far they are."
)


def zeros(entry, result):
    assert not np.any(result)


QUESTIONS = (
    *(
        case
        for size in (10.0, 1e140)
        for case in (
            Case(
                _QUERIES,
                f"{size:g} times as far out as the space",
                times(size),
                (TRANSFORM, KERNEL, KERNEL_Y, MATVEC, BLOCKS),
                Works("zeros", zeros, FarQueryWarning, (_FAR,)),
            ),
            Case(
                _QUERIES,
                f"{size:g} times as far out as the space",
                times(size),
                (RIDGE_AT, PROCESS_AT),
                Works("the mean, and the deviation of the prior", None, FarQueryWarning, (_FAR,)),
            ),
            Case(
                _QUERIES,
                f"{size:g} times as far out as the space",
                times(size),
                (DISTANCE, EXTEND, CLOSEST, BASELINE_AT),
                FINITE,
            ),
            Case(
                _QUERIES,
                f"{size:g} times as far out as the space, on the sphere",
                times(size),
                (ON_SPHERE,),
                Refused("`X` must be points of Sphere(dim=2, radius=1.0): |x| = radius. Got …"),
            ),
        )
    ),
    Case(
        _QUERIES,
        "1e140 times as far out as a field",
        times(1e140),
        (FILL_AT,),
        Works("NaN: nothing known is in reach, as documented", None, missing=True),
    ),
    Case(_QUERIES, "on the nodes", cloud, (*QUERIES, *ASKED), FINITE),
    Case(
        _QUERIES,
        "one rounding away from the nodes",
        times(1 + 1e-15),
        (TRANSFORM, KERNEL, RIDGE_AT, PROCESS_AT),
        close_to(cloud, "as on the nodes, to a millionth"),
    ),
    Case(
        _QUERIES, "the same point many times", lambda: np.repeat(cloud()[:1], N, axis=0), (*QUERIES, *ASKED), FINITE
    ),
)

CASES = (*NUMBERS, *SHAPES, *ONE, *PLACES, *TAKEN, *REFUSED, *QUESTIONS)
