"""Bad options (times, widths, numbers of features and walks) and files with bad points and meshes."""

import numpy as np
from reliability.bad_points import but
from reliability.entry_points import CLI_FIT, CLI_GRAPH, N, cloud, graph, heights, mesh, model
from reliability.promises import Case, EntryPoint, Refused, Works, close_to

from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    FeatureWarning,
    FieldInterpolator,
    GraphOptions,
    GraphRandomFeatures,
    GraphWarning,
    HeatKernel,
    InterpolationWarning,
    KernelNeighborsClassifier,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    MaternKernel,
    PowerKernel,
    RegularizedLaplacianKernel,
    Sphere,
    TriangleMesh,
    Walks,
    compute_signatures,
    grid_graph,
    heat_graph,
    knn_graph,
    thin,
)
from manifoldrf.baselines import GERF, PRF, RFF, DiffusionMap, Nystrom, SpectralFeatures

FINITE = Works("finite")
WIDE = DiffusionKernel(20.0)


def features(space, kernel, **options):
    """Fit features and read them at the points of the graph."""
    made = ManifoldRandomFeatures(kernel, random_state=0, n_jobs=1, **options).fit(space)
    return made.transform(made.graph_.points)


def half_known():
    return np.where(np.arange(N) % 2, np.nan, heights())


def regression(**options):
    return ManifoldRidge(ManifoldRandomFeatures(WIDE, random_state=0, n_jobs=1), n_jobs=1, **options)


def process(**options):
    return ManifoldGaussianProcess(WIDE, optimize=False, random_state=0, n_jobs=1, **options)


def fitted(estimator):
    return estimator.fit(cloud(), heights()).predict(cloud())


# ------------------------------------------------------------------------------------------------ t and tau
HEAT = EntryPoint("heat_graph, t", "t", lambda t: heat_graph(cloud(), t))
HEAT_MESH = EntryPoint("heat_graph, a mesh, t", "t", lambda t: heat_graph(mesh(), t))
KERNEL = EntryPoint("HeatKernel", "t", lambda t: features(cloud(), HeatKernel(t)))
KERNEL_MESH = EntryPoint("HeatKernel, on a mesh", "t", lambda t: features(mesh(), HeatKernel(t)))
DIFFUSION_MAP = EntryPoint("DiffusionMap, t", "t", lambda t: DiffusionMap(n_features=8, t=t).fit_transform(cloud()))
EXACT = EntryPoint("Sphere.heat_kernel, t", "t", lambda t: Sphere().heat_kernel(cloud(), cloud(), t))
STEPS = EntryPoint("Graph.steps", "t", lambda t: graph().steps(t))
TIMES = (HEAT, HEAT_MESH, KERNEL, KERNEL_MESH, DIFFUSION_MAP)

DENSE = EntryPoint("DiffusionKernel.dense", "tau", lambda tau: DiffusionKernel(tau).dense(graph()))
APPLY = EntryPoint("DiffusionKernel.apply", "tau", lambda tau: DiffusionKernel(tau).apply(graph(), np.ones(N)))
TAU_FIT = EntryPoint("ManifoldRandomFeatures, tau", "tau", lambda tau: features(graph(), DiffusionKernel(tau)))
TAU_NODES = EntryPoint(
    "GraphRandomFeatures, tau",
    "tau",
    lambda tau: GraphRandomFeatures(DiffusionKernel(tau)).fit(graph()).transform([0]),
)
TAU_TEACHERS = tuple(
    EntryPoint(
        f"compute_signatures, {name}, tau",
        "tau",
        lambda tau, teacher=teacher: compute_signatures(
            graph(), DiffusionKernel(tau), [0], teacher=teacher, seed=0
        ),
    )
    for name, teacher in (
        ("exact", "exact"),
        ("sparse", Exact(form="sparse")),
        ("counts", Counts(10)),
        ("walks", Walks(10)),
    )
)
TAUS = (DENSE, APPLY, TAU_FIT, TAU_NODES, *TAU_TEACHERS)
TAU_FILL = EntryPoint(
    "FieldInterpolator, tau",
    "tau",
    lambda tau: FieldInterpolator("kernel", tau=tau, n_jobs=1).fit(graph(), half_known()).predict(),
)
TAU_FILL_FEATURES = EntryPoint(
    "FieldInterpolator, features, tau",
    "tau",
    lambda tau: (
        FieldInterpolator("features", tau=tau, random_state=0, n_jobs=1).fit(graph(), half_known()).predict()
    ),
)

# --------------------------------------------------------------------------------------- other positive numbers
SIGMAS = tuple(
    EntryPoint(
        f"{cls.__name__}, sigma",
        "sigma",
        lambda sigma, cls=cls: cls(n_features=8, sigma=sigma, random_state=0).fit_transform(cloud()),
    )
    for cls in (RFF, PRF, GERF, Nystrom)
)
BANDWIDTH = EntryPoint("knn_graph, bandwidth", "bandwidth", lambda width: knn_graph(cloud(), bandwidth=width))
NOISE = EntryPoint("ManifoldGaussianProcess, noise", "noise", lambda noise: fitted(process(noise=noise)))
VARIANCE = EntryPoint(
    "ManifoldGaussianProcess, variance", "variance", lambda variance: fitted(process(variance=variance))
)
ALPHA = EntryPoint("ManifoldRidge, alpha", "alpha", lambda alpha: fitted(regression(alpha=alpha)))
LENGTH = EntryPoint(
    "MaternKernel, lengthscale",
    "lengthscale",
    lambda length: MaternKernel(1.5, length, clock="graph").dense(graph()),
)
SCALE = EntryPoint(
    "RegularizedLaplacianKernel, scale", "scale", lambda scale: RegularizedLaplacianKernel(scale).dense(graph())
)
POSITIVES = (NOISE, BANDWIDTH)


def scaled(space):
    """The arrays of a heat graph that was built in another unit of length, converted to the first unit."""

    def call(unit):
        made = heat_graph(space(unit), 0.3 * unit * unit)
        reached = made.extend(1.01 * unit * cloud()).toarray() / (unit * unit)
        return np.vstack([made.affinity.toarray() / (unit * unit), reached])

    return call


def scaled_features(unit):
    """Those of a kernel per area, converted to the first unit."""
    return unit * features(unit * cloud(), HeatKernel(0.3 * unit * unit), normalize=False)


UNITS = (
    EntryPoint("heat_graph and Graph.extend", "points", scaled(lambda unit: unit * cloud())),
    EntryPoint(
        "heat_graph and Graph.extend, a mesh",
        "points",
        scaled(lambda unit: TriangleMesh(unit * cloud(), mesh().faces)),
    ),
    EntryPoint(
        "ManifoldRandomFeatures, heat kernel", "X", lambda unit: features(unit * cloud(), HeatKernel(0.3 * unit**2))
    ),
    EntryPoint("ManifoldRandomFeatures, normalize=False", "X", scaled_features),
)

_TIMES = "Times, widths and levels"
_NAMED = (("0", 0.0), ("-1", -1.0), ("NaN", np.nan), ("inf", np.inf))
_SHORT = "t = … is short for 60 nodes: …"
_ALONE = "Graph of 60 nodes: 60 nodes are isolated, without an edge to another (remedy: …, or drop them)."
_LONG = "`t` must be at most 287.845 here (heat is spread evenly long before). Got 1e+300."
_ROUGH = (
    "The kernel is too rough for `tol` = …: more than 32768 Chebyshev terms. Take a larger `tol` or a shorter "
    "length scale."
)
TIME_CASES = (
    *(
        case
        for text, value in _NAMED
        for case in (
            Case(
                _TIMES,
                text,
                lambda value=value: value,
                (*TIMES, *POSITIVES),
                Refused(f"`{{argument}}` must be a number in (0, inf). Got {value}."),
            ),
            Case(
                _TIMES,
                text,
                lambda value=value: value,
                SIGMAS,
                Refused(f"`sigma` must be a number in [1e-140, inf). Got {value}."),
            ),
            Case(
                _TIMES,
                text,
                lambda value=value: value,
                (EXACT, LENGTH, VARIANCE),
                Refused(f"`{{argument}}` must be a number in [1e-100, 1e+100]. Got {value}."),
            ),
            Case(
                _TIMES,
                text,
                lambda value=value: value,
                (TAU_FILL, TAU_FILL_FEATURES),
                Refused(f"`tau` must be a number in (0, 1e+06]. Got {value}."),
            ),
        )
    ),
    *(
        Case(
            _TIMES,
            text,
            lambda value=value: value,
            (*TAUS, STEPS, ALPHA),
            Refused(f"`{{argument}}` must be a number in [0, inf). Got {value}."),
        )
        for text, value in _NAMED[1:]
    ),
    Case(
        _TIMES, "0", lambda: 0.0, (*but(TAUS, TAU_FIT), STEPS, ALPHA, SCALE), Works("the identity, or no penalty")
    ),
    Case(
        _TIMES,
        "0, or 1e-300",
        lambda: 1e-300,
        (TAU_FIT, TAU_FILL_FEATURES),
        Refused("`kernel` must be one whose walks take a step, on a graph with edges. Got …, 0 wide."),
    ),
    Case(
        _TIMES,
        "10^400",
        lambda: 10**400,
        (*TIMES, *POSITIVES),
        Refused("`{argument}` must be a number in (0, inf). Got an integer of 401 digits."),
    ),
    Case(
        _TIMES,
        "a text",
        lambda: "1",
        TIMES,
        Refused("`{argument}` must be a number in (0, inf). Got '1'.", TypeError),
    ),
    Case(
        _TIMES, "a text", lambda: "1", (NOISE,), Refused("`noise` must be 'auto' or a number in (0, inf). Got '1'.")
    ),
    Case(
        _TIMES,
        "a text",
        lambda: "1",
        (VARIANCE,),
        Refused("`variance` must be 'auto' or a number in [1e-100, 1e+100]. Got '1'."),
    ),
    Case(
        _TIMES, "a text", lambda: "1", (ALPHA,), Refused("`alpha` must be 'cv' or a number in [0, inf). Got '1'.")
    ),
    Case(
        _TIMES,
        "True",
        lambda: True,
        (*TIMES, *POSITIVES),
        Refused("`{argument}` must be a number in (0, inf). Got True.", TypeError),
    ),
    Case(
        _TIMES,
        "an array",
        lambda: np.ones(2),
        (*TIMES, *POSITIVES),
        Refused("`{argument}` must be a number in (0, inf). Got array([1., 1.]).", TypeError),
    ),
    *(
        Case(
            _TIMES,
            name,
            lambda value=value: value,
            (VARIANCE,),
            Refused(f"`variance` must be a number in [1e-100, 1e+100]. Got {words}.", kind),
        )
        for name, value, words, kind in (
            ("10^400", 10**400, "an integer of 401 digits", ValueError),
            ("True", True, "True", TypeError),
            ("an array", np.ones(2), "array([1., 1.])", TypeError),
        )
    ),
    *(
        case
        for value in (1e-300, 1e-320)
        for case in (
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                (HEAT, HEAT_MESH),
                Works("nodes see only themselves", None, GraphWarning, (_SHORT, _ALONE)),
            ),
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                (BANDWIDTH,),
                Works("no edges", None, GraphWarning, (_ALONE,)),
            ),
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                (*but(TAUS, TAU_FIT), NOISE, ALPHA, SCALE, DIFFUSION_MAP, STEPS),
                FINITE,
            ),
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                (EXACT, LENGTH, VARIANCE),
                Refused(f"`{{argument}}` must be a number in [1e-100, 1e+100]. Got {value}."),
            ),
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                SIGMAS,
                Refused(f"`sigma` must be a number in [1e-140, inf). Got {value}."),
            ),
            Case(
                _TIMES,
                f"{value:.0e}",
                lambda value=value: value,
                (TAU_FILL,),
                Works(
                    "the nearest known values",
                    None,
                    InterpolationWarning,
                    (
                        "30 of 60 nodes are so far from all known ones that the kernel with tau = … does not reach "
                        "them: …",
                    ),
                ),
            ),
        )
    ),
    *(
        Case(
            _TIMES,
            f"lengths and roots of times in units of {1 / unit:.0e}",
            lambda unit=unit: unit,
            UNITS,
            close_to(lambda: 1.0, "the same, up to the units"),
        )
        for unit in (1e140, 1e-130)
    ),
    Case(_TIMES, "1e300: everything underflows", lambda: 1e300, but(TIMES, DIFFUSION_MAP), Refused(_LONG)),
    Case(
        _TIMES,
        "1e300: everything underflows",
        lambda: 1e300,
        (DIFFUSION_MAP,),
        Refused(
            "`kernel` must be one that does not vanish on the graph; use a shorter time. Got eigenvalues of 0 only."
        ),
    ),
    Case(_TIMES, "1e300", lambda: 1e300, (DENSE, NOISE, ALPHA, BANDWIDTH, *SIGMAS), FINITE),
    Case(
        _TIMES,
        "1e300",
        lambda: 1e300,
        (EXACT, LENGTH, VARIANCE),
        Refused("`{argument}` must be a number in [1e-100, 1e+100]. Got 1e+300."),
    ),
    *(Case(_TIMES, f"{value:.0e}", lambda value=value: value, (VARIANCE,), FINITE) for value in (1e-100, 1e100)),
    Case(_TIMES, "1e300", lambda: 1e300, (APPLY, TAU_FIT, TAU_NODES, TAU_TEACHERS[0]), Refused(_ROUGH)),
    Case(
        _TIMES,
        "1e300",
        lambda: 1e300,
        TAU_TEACHERS[1:],
        Refused(
            "The series of … is not known to end within 1048576 terms for `tol` = …. "
            "Take a larger `tol` or a shorter length scale; …"
        ),
    ),
)

# ----------------------------------------------------------------------------------------------------- counts
_COUNTS = "Numbers of things"
N_FEATURES = EntryPoint(
    "ManifoldRandomFeatures, n_features", "n_features", lambda n: features(graph(), WIDE, n_features=n)
)
N_IID = EntryPoint(
    "ManifoldRandomFeatures, anchors='iid', n_features",
    "n_features",
    lambda n: features(graph(), WIDE, n_features=n, anchors="iid"),
)
N_STARTS = EntryPoint("ManifoldRandomFeatures, n_starts", "n_starts", lambda n: features(graph(), WIDE, n_starts=n))
N_NYSTROM = EntryPoint(
    "Nystrom, n_features", "n_features", lambda n: Nystrom(n_features=n, random_state=0).fit_transform(cloud())
)
N_SPECTRAL = EntryPoint(
    "SpectralFeatures, n_features", "n_features", lambda n: SpectralFeatures(n_features=n).fit_transform(cloud())
)
N_NEIGHBORS = EntryPoint("knn_graph, n_neighbors", "n_neighbors", lambda k: knn_graph(cloud(), n_neighbors=k))
N_VOTES = EntryPoint(
    "KernelNeighborsClassifier, n_neighbors",
    "n_neighbors",
    lambda k: KernelNeighborsClassifier(k).fit(cloud(), heights() > 0).predict(cloud()),
)
N_THIN = EntryPoint("thin, n", "n", lambda n: thin(cloud(), n))
N_ROWS = EntryPoint(
    "ManifoldRandomFeatures.transform_blocks, n_rows",
    "n_rows",
    lambda n: np.concatenate(list(model().transform_blocks(cloud(), n_rows=n))),
)
N_JOBS = EntryPoint(
    "ManifoldRandomFeatures, n_jobs", "n_jobs", lambda n: ManifoldRandomFeatures(WIDE, n_jobs=n).fit(graph()).bound_
)
SEED = EntryPoint(
    "ManifoldRandomFeatures, random_state",
    "random_state",
    lambda seed: ManifoldRandomFeatures(WIDE, n_jobs=1, random_state=seed).fit(graph()).bound_,
)
DIM = EntryPoint(
    "GraphOptions, dim", "dim", lambda dim: features(cloud(), HeatKernel(0.3), graph=GraphOptions(dim=dim))
)
HEAT_DIM = EntryPoint("heat_graph, dim", "dim", lambda dim: heat_graph(cloud(), 0.3, dim=dim))
N_STEPS = EntryPoint("heat_graph, n_steps", "n_steps", lambda n: heat_graph(cloud(), 0.3, n_steps=n))
SIDE = EntryPoint("grid_graph, side", "side", lambda side: grid_graph(side, 2))
AXES = EntryPoint("grid_graph, dim", "side", lambda dim: grid_graph(2, dim))
POWER = EntryPoint("PowerKernel, n", "n", lambda n: PowerKernel(n).dense(graph()))


def teacher_option(teacher, name):
    """One option of a teacher."""
    return EntryPoint(
        f"compute_signatures, {teacher.__name__}, {name}",
        name,
        lambda value: compute_signatures(
            graph(), DiffusionKernel(4.0), [0], teacher=teacher(**({"n_walks": 20} | {name: value})), seed=0
        ),
    )


N_WALKS, COUNT_WALKS = teacher_option(Walks, "n_walks"), teacher_option(Counts, "n_walks")
AT_LEAST_ONE = (N_FEATURES, N_IID, N_STARTS, N_NYSTROM, N_SPECTRAL, N_ROWS)
_WALKS = "`n_walks` must be an integer in [1, 281474976710656]. Got "
_MORE = "n_features = … is more than the graph has nodes: there are 60 features, one for each."
COUNT_CASES = (
    *(
        case
        for value in (0, -1)
        for case in (
            Case(
                _COUNTS,
                str(value),
                lambda value=value: value,
                AT_LEAST_ONE,
                Refused(f"`{{argument}}` must be an integer in [1, inf). Got {value}."),
            ),
            Case(
                _COUNTS, str(value), lambda value=value: value, (N_WALKS, COUNT_WALKS), Refused(f"{_WALKS}{value}.")
            ),
            Case(
                _COUNTS,
                str(value),
                lambda value=value: value,
                (DIM,),
                Refused(f"`dim` must be an integer in [1, inf). Got {value}."),
            ),
        )
    ),
    Case(_COUNTS, "0", lambda: 0, (N_JOBS,), Refused("`n_jobs` must be -1 or an integer in [1, inf). Got 0.")),
    Case(
        _COUNTS,
        "-1",
        lambda: -1,
        (SEED,),
        Refused("`random_state` must be None, a non-negative integer, a numpy Generator or a RandomState. Got -1."),
    ),
    *(
        Case(
            _COUNTS,
            name,
            make,
            AT_LEAST_ONE,
            Refused(f"`{{argument}}` must be an integer in [1, inf). Got {text}.", TypeError),
        )
        for name, make, text in (
            ("2.0", lambda: 2.0, "2.0"),
            ("True", lambda: True, "True"),
            ("NaN", lambda: np.nan, "nan"),
        )
    ),
    Case(
        _COUNTS,
        "more features than nodes",
        lambda: N + 1,
        (N_FEATURES,),
        Works(
            "a feature for each node",
            lambda entry, result: np.testing.assert_equal(result.shape, (N, N)),
            FeatureWarning,
            (_MORE,),
        ),
    ),
    Case(
        _COUNTS,
        "10^30 features of 60 nodes",
        lambda: 10**30,
        (N_FEATURES,),
        Works(
            "a feature for each node",
            lambda entry, result: np.testing.assert_equal(result.shape, (N, N)),
            FeatureWarning,
            (_MORE,),
        ),
    ),
    Case(_COUNTS, "more features than nodes", lambda: N + 1, (N_IID, N_NYSTROM, N_SPECTRAL, N_STARTS), FINITE),
    Case(_COUNTS, "10^30 rows", lambda: 10**30, (N_ROWS,), Works("one block")),
    Case(
        _COUNTS,
        "as many neighbours as points: n < k + 1",
        lambda: N,
        (N_NEIGHBORS,),
        Refused("`n_neighbors` must be an integer in [1, 59]. Got 60."),
    ),
    Case(
        _COUNTS,
        "more than there are points",
        lambda: N + 1,
        (N_THIN, N_VOTES),
        Refused("`{argument}` must be an integer in [1, 60]. Got 61."),
    ),
    Case(
        _COUNTS,
        "10^30 walks",
        lambda: 10**30,
        (N_WALKS, COUNT_WALKS),
        Refused(_WALKS + "1000000000000000000000000000000."),
    ),
    Case(_COUNTS, "2^48 walks, counted", lambda: 2**48, (COUNT_WALKS,), FINITE),
    Case(
        _COUNTS,
        "10^9 dimensions",
        lambda: 10**9,
        (DIM, HEAT_DIM),
        Refused("`dim` must be an integer in [1, 3]. Got 1000000000."),
    ),
    Case(
        _COUNTS,
        "3 steps",
        lambda: 3,
        (N_STEPS,),
        Refused("`n_steps` must be 'auto' or an even integer in [2, inf). Got 3."),
    ),
    Case(
        _COUNTS,
        "a grid of 10^18 nodes",
        lambda: 10**9,
        (SIDE,),
        Refused("`side` must be small enough for side^dim <= 10^8 nodes. Got 1000000000^2."),
    ),
    Case(
        _COUNTS,
        "a grid of 10^9 dimensions",
        lambda: 10**9,
        (AXES,),
        Refused("`side` must be small enough for side^dim <= 10^8 nodes. Got 2^1000000000."),
    ),
    Case(
        _COUNTS,
        "10^400 steps",
        lambda: 10**400,
        (POWER,),
        Refused("`n` must be an integer in [0, 9007199254740992]. Got an integer of 401 digits."),
    ),
)

# ----------------------------------------------------------------------------------------------------- p_halt
_HALT = "p_halt"
P_WALKS = teacher_option(Walks, "p_halt")
P_NODES = EntryPoint(
    "GraphRandomFeatures, p_halt",
    "p_halt",
    lambda p: (
        GraphRandomFeatures(DiffusionKernel(4.0), teacher=Walks(20, p), random_state=0).fit(graph()).transform([0])
    ),
)
P_FIT = EntryPoint(
    "ManifoldRandomFeatures, p_halt",
    "p_halt",
    lambda p: features(graph(), WIDE, teacher="walks", teacher_options={"n_walks": 20, "p_halt": p}),
)
BY_WALKS = (P_WALKS, P_NODES, P_FIT)
HALT_CASES = (
    *(
        Case(_HALT, text, lambda p=p: p, BY_WALKS, Refused(f"`p_halt` must be a number in (0, 1). Got {p}."))
        for text, p in (("0", 0.0), ("1", 1.0), ("-0.1", -0.1), ("NaN", np.nan))
    ),
    Case(_HALT, "1 - 1e-16", lambda: 1 - 1e-16, (P_WALKS, P_NODES), FINITE),
    Case(_HALT, "1e-320", lambda: 1e-320, (P_WALKS, P_NODES), FINITE),
    Case(
        _HALT,
        "a text",
        lambda: "0.1",
        BY_WALKS,
        Refused("`p_halt` must be a number in (0, 1). Got '0.1'.", TypeError),
    ),
)

# ------------------------------------------------------------------------------------------------------ files
_FILES = "Files, on the command line"
COMMANDS = (CLI_GRAPH, CLI_FIT)
_TABLE = "\n".join(",".join(map(str, row)) for row in cloud().tolist())


def text_file(name, text):
    """A function that writes a text file into a folder."""

    def write(folder):
        (folder / name).write_text(text)
        return folder / name

    return lambda: write


def array_file(values, **options):
    """A function that writes an array into a folder."""

    def write(folder):
        np.save(folder / "p.npy", values, **options)
        return folder / "p.npy"

    return lambda: write


def spoilt(value):
    points = np.array(cloud())
    points[3, 1] = value
    return points


_OFF = "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 {}\n"
FILE_CASES = (
    *(
        Case(_FILES, name, make, COMMANDS, Refused(words))
        for name, make, words in (
            (
                "csv with nan",
                text_file("p.csv", f"{_TABLE}\nnan,0,0"),
                "`INPUT` must be a file of finite numbers. Got nan in row 61, column 1 of p.csv "
                "(see fit --missing drop).",
            ),
            (
                "csv with 1e999",
                text_file("p.csv", f"{_TABLE}\n1e999,0,0"),
                "`INPUT` must be a file of finite numbers. Got inf in row 61, column 1 of p.csv.",
            ),
            (
                "csv with a text",
                text_file("p.csv", f"{_TABLE}\na,0,0"),
                "`INPUT` must be a file of numbers with decimal points. Got 'a' in line 61, column 1 of 'p.csv' "
                "(see fit --id and --columns).",
            ),
            (
                "csv with a missing value",
                text_file("p.csv", f"{_TABLE}\n1,,2"),
                "`INPUT` must be a file of numbers with decimal points. Got an empty cell in line 61, column 2 of "
                "'p.csv' (see fit --missing drop).",
            ),
            (
                "csv with a short line",
                text_file("p.csv", f"{_TABLE}\n1,2"),
                "`INPUT` must be a file with 3 column(s) in every line, as in its first. "
                "Got 2 in line 61 of 'p.csv'.",
            ),
            ("empty csv", text_file("p.csv", ""), "`INPUT` must be a file that is not empty. Got 'p.csv'."),
            (
                "csv with names only",
                text_file("p.csv", "x,y,z\n"),
                "`INPUT` must be a file with at least one line of numbers. Got 'p.csv'.",
            ),
            (
                "csv with 1e300",
                text_file("p.csv", f"{_TABLE}\n1e300,0,0"),
                "`INPUT` must be finite, with entries below 1e+150 in size. Got 1e+300 at index (60, 0).",
            ),
            (
                "npy with NaN",
                array_file(spoilt(np.nan)),
                "`INPUT` must be a file of finite numbers. Got nan in row 4, column 2 of p.npy "
                "(see fit --missing drop).",
            ),
            (
                "npy with 1e300",
                array_file(spoilt(1e300)),
                "`INPUT` must be finite, with entries below 1e+150 in size. Got 1e+300 at index (3, 1).",
            ),
            (
                "npy without rows",
                array_file(np.zeros((0, 3))),
                "`INPUT` must be a file with at least one row. Got p.npy.",
            ),
            (
                "npy of a vector",
                array_file(np.arange(5.0)),
                "`INPUT` must be an array of shape (n, d). Got shape (5,) in 'p.npy'.",
            ),
            (
                "a mesh with an index out of range",
                text_file("m.off", _OFF.format(7)),
                "INPUT: `path` must be a readable triangle mesh. Got m.off: …",
            ),
            (
                "a mesh with a negative index",
                text_file("m.off", _OFF.format(-1)),
                "INPUT: `path` must be a readable triangle mesh. Got m.off: …",
            ),
            (
                "a mesh with a NaN",
                text_file("m.off", _OFF.format(2).replace("0 1 0", "0 nan 0")),
                "INPUT: `path` must be a readable triangle mesh. Got m.off: …",
            ),
            (
                "a mesh without faces",
                text_file("m.off", "OFF\n3 0 0\n0 0 0\n1 0 0\n0 1 0\n"),
                "INPUT: `path` must be a readable triangle mesh. Got m.off: it has no faces; pass points as "
                "an array, or in an npy, npz or csv file.",
            ),
            (
                "no such file",
                lambda: lambda folder: folder / "none.npy",
                "`INPUT` must be an existing file. Got none.npy.",
            ),
            (
                "a file of another kind",
                text_file("p.txt", "1,2"),
                "`INPUT` must be a file ending in .npy, .npz, .csv, .ply, .obj, .stl, .off, .glb, .gltf, .vtk, "
                ".vtp, .vtu, .gii, .msh, .mesh, .safetensors. Got 'p.txt'.",
            ),
        )
    ),
    *(
        Case(
            _FILES,
            name,
            array_file(values, **options),
            COMMANDS,
            Refused(f"`INPUT` must be an array of real numbers. Got dtype {kind} in 'p.npy'{reason}."),
        )
        for name, values, options, kind, reason in (
            (
                "npy of objects",
                cloud().astype(object),
                {"allow_pickle": True},
                "object",
                ": Object arrays cannot be loaded",
            ),
            ("npy of texts", np.full((N, 3), "1.5"), {}, "<U3", ""),
            ("npy of complex numbers", cloud() + 0j, {}, "complex128", ""),
        )
    ),
    *(
        Case(_FILES, "npy of equal points", array_file(np.ones((9, 3))), (command,), Refused(f"INPUT: {words}"))
        for command, words in (
            (
                CLI_GRAPH,
                "`bandwidth` must be a positive number where most neighbours coincide. Got a median distance of 0.",
            ),
            (CLI_FIT, "`X` must be points at different positions. Got one position for 9 points."),
        )
    ),
    Case(
        _FILES,
        "npy of one point",
        array_file(cloud()[:1]),
        (CLI_GRAPH,),
        Refused("`INPUT` must be an array with at least 2 row(s) and one column. Got shape (1, 3)."),
    ),
    *(
        Case(_FILES, name, make, COMMANDS, FINITE)
        for name, make in (
            ("csv with names of columns", text_file("p.csv", f"x,y,z\n{_TABLE}")),
            ("npy of float16", array_file(cloud().astype(np.float16))),
            ("npy of integers", array_file(np.rint(10 * cloud()).astype(int))),
            ("npy in Fortran order", array_file(np.asfortranarray(cloud()))),
            ("a mesh of quads", text_file("m.off", "OFF\n4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3\n")),
        )
    ),
)

CASES = (*TIME_CASES, *COUNT_CASES, *HALT_CASES, *FILE_CASES)
