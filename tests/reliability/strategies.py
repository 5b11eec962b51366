"""Strategies for property tests: ordinary and difficult clouds, meshes, graphs, kernels and options.

An array is drawn as a few small values (a kind, sizes, a seed), so that an example takes microseconds to draw and
prints as a few numbers. Every run tries the same examples: 50 of each property, or as many as the environment
variable MANIFOLDRF_TEST_EXAMPLES says.
"""

import os
import re
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from oracles import hull_mesh

from manifoldrf import DiffusionKernel, Graph, HeatKernel, ManifoldWarning, MaternKernel, TriangleMesh, knn_graph
from manifoldrf.kernels import CosineKernel, PowerKernel, RandomWalkKernel, RegularizedLaplacianKernel, SeriesKernel

EXAMPLES = int(os.environ.get("MANIFOLDRF_TEST_EXAMPLES", "20"))
# Keep hypothesis from writing into the source tree.
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "manifoldrf-hypothesis")
# Examples do not depend on time, chance or earlier runs, and a slow example is not a failure. The phase that
# explains a failing example is off: it takes minutes.
PROFILE = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink]
)

OWN_WARNINGS = (ManifoldWarning,)
OWN_WORDS = ("`n_jobs` = .* is far more", ".*the same three vertices")  # of warnings without a class of their own
# The usual form of our errors: argument, rule, value.
RULE = re.compile(r"`\w+` must be .+\. Got .+\.$", re.DOTALL)
# Errors about two things that do not fit together. Each names both, or says what to do.
SENTENCES = [
    re.compile(text, re.DOTALL)
    for text in (
        r"has no option `\w+`; it has \w+",
        r"has no parameter `\w+`; it has \w+",
        r"has no nonnegative modulation f",
        r"has no real square root as a convergent series",
        r"has no square root, because \d+ is odd",
        r"steps of length zero, so no number of steps takes a positive time",
        r"The series of .+ is not known to end within \d+ terms for `tol` = .+ Take a larger",
        r"The kernel is too rough for `tol` = .+: more than \d+ Chebyshev terms\. Take a larger `tol`",
        r"harmonic system is too ill-conditioned to be solved\. Causes: .+ Remedies: ",
        r"Input X contains (NaN|infinity)",  # scikit-learn's own text
        r"Found array with \d+ (sample|feature)\(s\) .+ while a minimum of \d+ is required",
        r"has no nonnegative features: its factors differ, so `side` must be 'left' or 'right'",
    )
]


def holds_for(**strategies):
    """Decorate a test: it must hold for everything that the strategies draw."""

    def decorate(test):
        return PROFILE(given(**strategies)(test))

    return decorate


def is_documented(error):
    """Whether an error has the promised form: it names the argument, the rule and the value."""
    text = str(error)
    return bool(RULE.search(text)) or any(sentence.search(text) for sentence in SENTENCES)


def quietly(call, *args, **options):
    """The result of a call without the library's own warnings; other warnings stay errors."""
    with warnings.catch_warnings():
        for category in OWN_WARNINGS:
            warnings.simplefilter("ignore", category)
        for words in OWN_WORDS:
            warnings.filterwarnings("ignore", words)
        return call(*args, **options)


class Outcomes:
    """Counts calls that returned a result and calls that were refused with a documented error."""

    def __init__(self):
        self.counts = Counter()

    def of(self, call, *args, **options):
        """The result in a list, or an empty list after a documented error; any other error is raised."""
        try:
            result = quietly(call, *args, **options)
        except (ValueError, TypeError) as error:
            if not is_documented(error):
                raise
            self.counts["refused"] += 1
            return []
        self.counts["accepted"] += 1
        return [result]

    def both_happened(self, least=0.1):
        """Whether at least this share of the calls was accepted and some were refused: both were tested."""
        total = sum(self.counts.values())
        return self.counts["accepted"] >= least * total and self.counts["refused"] > 0


# --------------------------------------------------------------------------------------------------------- clouds
SEEDS = st.integers(0, 2**32 - 1)


def _gaussian(rng, n, d):
    return rng.standard_normal((n, d))


def _sphere(rng, n, d):
    points = rng.standard_normal((n, d + 1))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _patch(rng, n, d):
    flat = rng.uniform(-1, 1, (n, d))
    return np.column_stack([flat, 0.3 * (flat**2).sum(axis=1)])


ORDINARY = {"gaussian": _gaussian, "sphere": _sphere, "patch": _patch}


def _duplicates(rng, n, d):
    return rng.standard_normal((n, d))[rng.integers(0, max(1, n // 2), n)]


def _equal(rng, n, d):
    return np.tile(rng.standard_normal(d), (n, 1))


def _collinear(rng, n, d):
    return rng.standard_normal((n, 1)) * rng.standard_normal(d)


def _constant_column(rng, n, d):
    return np.column_stack([rng.standard_normal((n, d)), np.full(n, 7.0)])


def _lattice(rng, n, d):
    return rng.integers(-2, 3, (n, d)).astype(np.float64)


def _clumps(rng, n, d):
    centres = 1e3 * rng.standard_normal((2, d))
    return centres[rng.integers(0, 2, n)] + 1e-3 * rng.standard_normal((n, d))


def _outlier(rng, n, d):
    points = rng.standard_normal((n, d))
    points[rng.integers(n)] *= 1e6
    return points


def _heavy_tails(rng, n, d):
    return rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-8, 8, (n, 1))


def _far_from_origin(rng, n, d):
    return 1e7 + rng.standard_normal((n, d))


def _huge(rng, n, d):
    return 1e140 * rng.standard_normal((n, d))


def _tiny(rng, n, d):
    return 1e-130 * rng.standard_normal((n, d))


def _beyond(rng, n, d):
    points = rng.standard_normal((n, d))
    points[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf, 1e300])
    return points


NASTY = {
    "duplicates": _duplicates,
    "equal": _equal,
    "collinear": _collinear,
    "constant column": _constant_column,
    "lattice": _lattice,
    "clumps": _clumps,
    "outlier": _outlier,
    "heavy tails": _heavy_tails,
    "far from origin": _far_from_origin,
    "huge": _huge,
    "tiny": _tiny,
    "beyond": _beyond,
}


@st.composite
def clouds(draw, kinds=tuple(ORDINARY), min_size=8, max_size=40, max_dim=3):
    """Points (n, d) of one of the named kinds."""
    kind = draw(st.sampled_from(kinds))
    n, d = draw(st.integers(min_size, max_size)), draw(st.integers(1, max_dim))
    rng = np.random.default_rng(draw(SEEDS))
    return (ORDINARY | NASTY)[kind](rng, n, d)


def any_clouds(**sizes):
    """Clouds of every kind, most of them difficult, with one point or more."""
    return clouds(kinds=(*ORDINARY, *NASTY), **({"min_size": 1} | sizes))


def surfaces(min_size=16, max_size=32):
    """Clouds on closed and open surfaces of dimension two in space."""
    return clouds(kinds=("sphere", "patch"), min_size=min_size, max_size=max_size, max_dim=2).filter(
        lambda points: points.shape[1] == 3
    )


@st.composite
def motions(draw, dim):
    """A rigid motion of R^dim as a function: an orthogonal matrix, reflections included, and a shift."""
    rng = np.random.default_rng(draw(SEEDS))
    turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    shift = 3.0 * rng.standard_normal(dim)
    return lambda points: points @ turn + shift


# Powers of two: scaled coordinates have the same digits.
SCALES = st.sampled_from([2.0**-20, 2.0**-3, 0.5, 2.0, 16.0, 2.0**20])
# Any other factors.
ROUGH_SCALES = st.floats(1e-3, 1e3)


def shuffled(n, seed):
    """A permutation of n things."""
    return np.random.default_rng(seed).permutation(n)


# --------------------------------------------------------------------------------------------------------- meshes
@st.composite
def hulls(draw, min_size=12, max_size=40):
    """Closed convex meshes; no three vertices are on a line."""
    rng = np.random.default_rng(draw(SEEDS))
    return hull_mesh(_sphere(rng, draw(st.integers(min_size, max_size)), 2))


@st.composite
def soups(draw, max_size=20):
    """Random faces: with repeated corners, without area, three at an edge; some vertices belong to no face."""
    rng = np.random.default_rng(draw(SEEDS))
    n, m = draw(st.integers(3, max_size)), draw(st.integers(1, 2 * max_size))
    kind = draw(st.sampled_from([_gaussian, _lattice, _duplicates, _collinear, _heavy_tails, _far_from_origin]))
    return quietly(TriangleMesh, kind(rng, n, 3), rng.integers(0, n, (m, 3)))


def meshes():
    """Meshes good and bad."""
    return st.one_of(hulls(), soups())


# --------------------------------------------------------------------------------------------------------- graphs
@st.composite
def affinities(draw, max_size=16):
    """Symmetric nonnegative matrices: sparse or full, weights over orders of magnitude, loops, isolated nodes."""
    rng = np.random.default_rng(draw(SEEDS))
    n = draw(st.integers(1, max_size))
    share, decades = draw(st.sampled_from([0.1, 0.4, 1.0])), draw(st.sampled_from([0.0, 2.0, 12.0]))
    upper = np.triu(np.where(rng.random((n, n)) < share, 10.0 ** rng.uniform(-decades, decades, (n, n)), 0.0))
    if draw(st.booleans()):
        np.fill_diagonal(upper, 0.0)
    return upper + upper.T


def graphs(max_size=16):
    """Graphs of any affinity, in pieces or not."""
    return affinities(max_size).map(lambda matrix: quietly(Graph.from_affinity, matrix))


@st.composite
def neighbor_graphs(draw, min_size=8, max_size=30):
    """Nearest-neighbour graphs of ordinary clouds."""
    points = draw(clouds(min_size=min_size, max_size=max_size))
    return quietly(knn_graph, points, n_neighbors=draw(st.integers(2, 6)), n_jobs=1)


# --------------------------------------------------------------------------------------------------------- kernels
TAUS = st.floats(0.0, 50.0)
POSITIVE_KERNELS = st.one_of(
    st.builds(DiffusionKernel, TAUS),
    st.builds(lambda half: PowerKernel(2 * half), st.integers(0, 6)),
    st.builds(RegularizedLaplacianKernel, st.floats(0.0, 3.0), st.floats(0.2, 4.0)),
    st.builds(lambda a, half: RandomWalkKernel(a, 2 * half), st.floats(2.0, 4.0), st.integers(1, 4)),
    st.builds(MaternKernel, st.floats(0.2, 4.0), st.floats(0.3, 3.0)),
)
OTHER_KERNELS = st.one_of(
    st.just(CosineKernel()),
    st.builds(lambda half: PowerKernel(2 * half + 1), st.integers(0, 6)),
    st.builds(RandomWalkKernel, st.floats(2.0, 4.0), st.floats(0.5, 5.0)),
    st.builds(SeriesKernel, st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=6)),
)
SIMPLE_KERNELS = st.one_of(POSITIVE_KERNELS, OTHER_KERNELS)
KERNELS = st.one_of(
    SIMPLE_KERNELS,
    st.builds(lambda a, b: a + b, SIMPLE_KERNELS, SIMPLE_KERNELS),
    st.builds(lambda a, b: a * b, SIMPLE_KERNELS, SIMPLE_KERNELS),
    st.builds(lambda a, factor: factor * a, SIMPLE_KERNELS, st.floats(-4.0, 4.0)),
)

# ------------------------------------------------------------------------------------------------------ anything
NUMBERS = st.one_of(
    st.integers(-3, 60),
    st.floats(),  # NaN, infinities, subnormal numbers and all
    st.floats(0.01, 10.0),
    st.sampled_from([0, 1, 0.0, -0.0, 1.0, 1e-300, 1e300, 5e-324]),
    st.sampled_from([np.float32(0.5), np.float16(2.0), np.int8(3), np.float64(0.25)]),
)
# Values that a user may pass by mistake.
ANYTHING = st.one_of(
    NUMBERS, st.sampled_from([None, True, False, "auto", "nonsense", "", b"auto", (1, 2), {}, 1j, np.array([1.0])])
)


def mostly(valid, other=ANYTHING):
    """Something valid in four of five draws, anything in the fifth."""
    # `one_of` would give every kind of invalid value the weight of all valid ones.
    return st.sampled_from([valid, valid, valid, valid, other]).flatmap(lambda strategy: strategy)


@st.composite
def options(draw, choices, most=3, least=0):
    """A few of the named options, each drawn by its own strategy; with more of them, few calls would succeed."""
    names = draw(st.lists(st.sampled_from(sorted(choices)), unique=True, min_size=least, max_size=most))
    return {name: draw(choices[name]) for name in names}


# Parameters of kernels that users might type, good and bad.
KERNEL_PARAMETERS = {
    DiffusionKernel: {"tau": mostly(TAUS)},
    PowerKernel: {"n": mostly(st.integers(0, 30))},
    RegularizedLaplacianKernel: {"scale": mostly(st.floats(0.0, 3.0)), "power": mostly(st.floats(0.1, 4.0))},
    RandomWalkKernel: {"a": mostly(st.floats(2.0, 4.0)), "p": mostly(st.floats(0.1, 6.0))},
    MaternKernel: {
        "nu": mostly(st.floats(0.1, 4.0)),
        "lengthscale": mostly(st.floats(0.1, 4.0)),
        "clock": mostly(st.sampled_from(["graph", "manifold"])),
    },
    HeatKernel: {"t": mostly(st.floats(0.001, 1.0))},
    SeriesKernel: {"alpha": mostly(st.lists(NUMBERS, max_size=5))},
}


@st.composite
def kernel_calls(draw):
    """A class of kernels and what a user might give it."""
    kind = draw(st.sampled_from(sorted(KERNEL_PARAMETERS, key=lambda kind: kind.__name__)))
    return kind, {name: draw(values) for name, values in KERNEL_PARAMETERS[kind].items()}
