"""Smoothers that fill in values on meshes, the paper's learned recipe, and power laws of their times."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf import DiffusionKernel, Exact, Graph, ManifoldWarning, Network, Walks, compute_signatures, knn_graph
from manifoldrf.applications.interpolation import (
    Action,
    BoolArray,
    feature_action,
    make_folds,
    nearest_known,
    weighted_means,
    without_small,
)
from manifoldrf.features.fit import voronoi_weights
from manifoldrf.geometry.paths import farthest_nodes
from manifoldrf.kernels import SeriesKernel
from manifoldrf.paper import NetworkField, TrainingInfo, fit_network
from reproduction.baselines import ORF, PORF, PRF, RFF
from reproduction.common import (
    FloatArray,
    IntArray,
    Progress,
    Streams,
    check_integer,
    check_option,
    generator,
    without_warnings,
)

# -------------------------------------------------------------------------------------------------- growth of times
MEASURED, EXTRAPOLATED = "measured", "extrapolated"
EPOCHS_EXTRAPOLATED = "epochs extrapolated"  # run at this size with fewer epochs, scaled to the full number
_LONG = 1.0  # seconds after which work is not repeated, because disturbances are then a small share
Result = TypeVar("Result")


@dataclass(frozen=True)
class PowerLaw:
    """seconds = factor * n^exponent, by least squares of the logarithms.

    Examples
    --------
    >>> from reproduction.smoothers import fit_power
    >>> round(fit_power([10, 100, 1000], [2e-3, 2e-2, 2e-1]).exponent, 6)
    1.0
    """

    exponent: float
    factor: float

    def at(self, n: float) -> float:
        """Seconds at a size."""
        return float(self.factor * n**self.exponent)


def fit_power(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to times; None for fewer than two sizes."""
    if len(set(sizes)) < 2:
        return None
    slope, level = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)
    return PowerLaw(float(slope), float(np.exp(level)))


def timed(work: Callable[[], Result], repeats: int = 1) -> tuple[Result, float]:
    """Return the result of a function and the shortest of its times, in CPU seconds of all threads.

    They do not depend on what else the machine does. Functions that take longer than a second are not repeated.
    """
    times: list[float] = []
    while len(times) < max(repeats, 1) and sum(times) < _LONG:
        start = time.process_time()
        found = work()
        times.append(time.process_time() - start)
    return found, min(times)


def growth_table(rows: Sequence[dict[str, Any]], published: dict[str, float]) -> list[dict[str, Any]]:
    """Exponents of every method, beside those of the paper.

    Parameters
    ----------
    rows : sequence of dict
        With method, vertices, prepare_s, interpolate_s and how; extrapolated rows and zero times are ignored.
    published : dict
        The paper's exponents by method.
    """
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method and row["how"] != EXTRAPOLATED]
        laws = {name: _law(own, f"{name}_s") for name in ("prepare", "interpolate")}
        sizes = [row["vertices"] for row in own]
        table.append(
            {"method": method, "sizes": len(set(sizes)), "largest": max(sizes, default=None)}
            | {name: None if law is None else law.exponent for name, law in laws.items()}
            | {"paper_interpolate": published.get(method)}
        )
    return table


def largest_table(
    rows: Sequence[dict[str, Any]], methods: Sequence[str], published: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Times of some methods at the largest size that all of them have, beside those of the paper."""
    by_method = {method: {row["vertices"]: row for row in rows if row["method"] == method} for method in methods}
    common = set.intersection(*(set(own) for own in by_method.values()))
    if not common:
        return []
    n = max(common)
    table = []
    for method, own in by_method.items():
        row = {name: own[n][name] for name in ("vertices", "method", "prepare_s", "interpolate_s", "how")}
        table.append(row | {f"paper_{name}": value for name, value in published.get(method, {}).items()})
    return table


def _law(rows: Sequence[dict[str, Any]], column: str) -> PowerLaw | None:
    there = [row for row in rows if row[column]]
    return fit_power([row["vertices"] for row in there], [row[column] for row in there])


def extrapolated(rows: Sequence[dict[str, Any]], method: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Extrapolate a method to larger sizes, by the power law of its last two rows."""
    own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["vertices"])
    laws = {column: _law(own[-2:], column) for column in ("prepare_s", "interpolate_s")}
    if not own or any(law is None for law in laws.values()):
        return []
    return [
        {"vertices": n, "method": method}
        | {column: law.at(n) for column, law in laws.items() if law is not None}
        | {"how": EXTRAPOLATED}
        for n in sizes
        if n > own[-1]["vertices"]
    ]


# -------------------------------------------------------------------------------------------------------- smoothers
# Score of predictions against the truth, both of shape (q, c): larger is better, rows of NaN count as misses.
Score = Callable[[FloatArray, FloatArray], float]

AMBIENT: Mapping[str, Callable[..., Any]] = {"RFF": RFF, "ORF": ORF, "PRF": PRF, "PORF": PORF}
# Bandwidths of ambient kernels over the diagonal of the box around the nodes: eight, evenly in the logarithm. The
# narrowest is about an edge of 10,000 vertices, the widest blurs half the shape.
SIGMAS = tuple(float(share) for share in np.geomspace(0.003, 0.4, 8))
# Widths of the Gaussian mean over neighbours, relative to the median distance of a known node to the nearest known
# one.
_NEIGHBOUR_SIGMAS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
_ENOUGH_NEIGHBOURS = 32
_CUT = 1e-3  # of the largest entry of a signature: about 15 entries are left for a node, with N / 8 anchors
_TIGHTEST = 1e-14  # tolerance of signatures including their tails: row normalisation enlarges the smallest entries


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings about disconnected graphs, holes and few features; the tables show them."""
    with without_warnings(ManifoldWarning):
        yield


@dataclass(frozen=True, eq=False)
class Task:
    """Values to predict at the nodes where they are not known.

    Attributes
    ----------
    points : array of shape (n, d)
    values : array of shape (n, c)
        The true values at all nodes, finite; unknown ones are used for scores only. Several fields are stored side
        by side.
    known : bool array of shape (n,)
    score : callable
        Of predictions and truth, both (q, c): larger is better.
    counted : bool array of shape (n,), optional
        Nodes that count in the score; by default all that are not known.
    directions : bool
        Whether only directions matter, as for unit vectors. Sums K(m u) are then used instead of means, as in the
        paper. They differ where features of both signs give a negative K m.
    seed : int
    """

    points: FloatArray
    values: FloatArray
    known: BoolArray
    score: Score
    counted: BoolArray | None = None
    directions: bool = False
    seed: int = 0

    @cached_property
    def judged(self) -> BoolArray:
        """Nodes at which predictions are scored."""
        return ~self.known if self.counted is None else self.counted & ~self.known

    def fill(self, action: Action, known: BoolArray | None = None) -> FloatArray:
        """The weighted mean of known values at every node, NaN where nothing known has weight."""
        share = self.known if known is None else known
        found = weighted_means(action, self.values, share.astype(np.float64))
        return found.values * np.sign(found.mass)[:, None] if self.directions else found.values

    def judge(self, predicted: FloatArray) -> float:
        """Score at the unknown nodes."""
        return self.score(predicted[self.judged], self.values[self.judged])

    @cached_property
    def folds(self) -> BoolArray:
        """Masks of the nodes that stay known in each fold, shape (folds, n)."""
        return make_folds(self.known, generator(self.seed, "folds of known nodes"))

    def cross_validate(self, fill: Callable[[BoolArray], FloatArray]) -> float:
        """Mean cross-validated score at the known nodes."""
        left_out = [self.known & ~stays for stays in self.folds]
        scores = [
            self.score(fill(stays)[out], self.values[out]) for stays, out in zip(self.folds, left_out, strict=True)
        ]
        return float(np.mean(scores))


# ------------------------------------------------------------------------------------------------ ambient features
@dataclass(frozen=True)
class Tuned:
    """One method at several bandwidths.

    Attributes
    ----------
    best : float
        Score with the bandwidth that is best on the unknown nodes, as in the paper.
    chosen : float
        Score with the bandwidth that is best on the known nodes, by cross-validation, as for a user.
    best_sigma, chosen_sigma : float
        Over the diagonal of the box.
    """

    best: float
    chosen: float
    best_sigma: float
    chosen_sigma: float


def box_diagonal(points: FloatArray) -> float:
    """Diagonal of the box around points."""
    return float(np.linalg.norm(np.ptp(points, axis=0)))


def ambient_features(points: FloatArray, method: str, n_features: int, sigma: float, seed: int) -> FloatArray:
    """Random features (n, m) of the Gaussian kernel of the ambient space; the points are centred first.

    Positive features of points far from the origin underflow; the kernel does not depend on where the origin is.
    """
    check_option(method, "method", AMBIENT)
    features = AMBIENT[method](n_features=n_features, sigma=sigma, random_state=seed)
    centred = points - (points.min(axis=0) + points.max(axis=0)) / 2
    return np.asarray(features.fit_transform(centred))


def tune_ambient(task: Task, method: str, n_features: int, sigmas: tuple[float, ...] = SIGMAS) -> Tuned:
    """Score an ambient method, with the bandwidth chosen in both ways."""
    rows = []
    for share in sigmas:
        sigma = share * box_diagonal(task.points)
        features = ambient_features(task.points, method, n_features, sigma, task.seed)
        fill = functools.partial(task.fill, feature_action(features, features))
        rows.append((task.judge(fill(task.known)), task.cross_validate(fill), share))
    best = max(rows, key=lambda row: row[0])
    chosen = max(rows, key=lambda row: row[1])
    return Tuned(best[0], chosen[0], best[2], chosen[2])


# --------------------------------------------------------------------------------------------------- plain lookups
def nearest_in_space(task: Task) -> FloatArray:
    """The value of the nearest known node, by distance in space, (n, c)."""
    sources = np.flatnonzero(task.known)
    return np.asarray(task.values[sources[cKDTree(task.points[sources]).query(task.points)[1]]])


def nearest_on_edges(graph: Graph, values: FloatArray, known: BoolArray) -> FloatArray:
    """The value of the nearest known node along the edges, (n, c); NaN where none is in reach."""
    owners = nearest_known(graph, known)
    return np.where((owners >= 0)[:, None], values[owners], np.nan)


def average_neighbours(task: Task, k: int = _ENOUGH_NEIGHBOURS) -> FloatArray:
    """Gaussian mean of the nearest known values in space, (n, c), its width by cross-validation."""
    sources = np.flatnonzero(task.known)
    gaps = cKDTree(task.points[sources]).query(task.points[sources], 2)[0][:, 1]
    unit = float(np.median(gaps[gaps > 0])) if (gaps > 0).any() else 1.0

    def fill(known: BoolArray, width: float) -> FloatArray:
        return task.fill(_neighbour_action(task.points, known, k, width * unit), known)

    def error_of(width: float) -> float:
        return -task.cross_validate(lambda known: fill(known, width))

    return fill(task.known, min(_NEIGHBOUR_SIGMAS, key=error_of))


def _neighbour_action(points: FloatArray, known: BoolArray, k: int, sigma: float) -> Action:
    """K X with K the Gaussian of the k nearest known nodes in space."""
    sources = np.flatnonzero(known)
    distances, columns = cKDTree(points[sources]).query(points, range(1, min(k, len(sources)) + 1))
    squares = (distances / sigma) ** 2
    # Relative to the nearest: a common factor of a row cancels, and nothing underflows.
    weights = np.exp(-(squares - squares[:, :1]) / 2)
    ends = columns.shape[1] * np.arange(len(points) + 1)
    shape = (len(points), len(points))
    kernel = sparse.csr_array((weights.ravel(), sources[columns].ravel(), ends), shape=shape)
    return lambda X: np.asarray(kernel @ X)


# -------------------------------------------------------------------------------------- exact kernel and signatures
def exact_action(graph: Graph, tau: float) -> Action:
    """K X with K = exp(-tau L), without K."""
    kernel = DiffusionKernel(tau)
    return lambda X: kernel.apply(graph, X)


def dense_action(graph: Graph, tau: float) -> Action:
    """The same with K formed by eigendecomposition: the paper's full kernel."""
    kernel = DiffusionKernel(tau).dense(graph)
    return lambda X: np.asarray(kernel @ X)


def anchored_features(graph: Graph, tau: float, n_features: int, anchors: str, seed: int) -> FloatArray:
    """Exact signatures including their tails, at anchors: the values of a perfect field at the nodes, (n, m).

    Parameters
    ----------
    graph : Graph
    tau : float
    n_features : int
    anchors : {"iid", "farthest"}
        The paper's uniform draws with equal weights; or farthest nodes along the edges, weighted by the number of
        nodes nearest to each.
    seed : int
    """
    check_option(anchors, "anchors", ("iid", "farthest"))
    if anchors == "iid":
        nodes = generator(seed, "uniform anchors").integers(0, graph.n_nodes, n_features)
        weights = np.full(n_features, 1 / n_features)
    else:
        nodes = farthest_nodes(graph, min(n_features, graph.n_nodes))
        weights = voronoi_weights(graph, np.ones(graph.n_nodes), nodes)
    rows = compute_signatures(
        graph, _powers(tau / 2), nodes, teacher=Exact(_TIGHTEST, "dense"), asymmetric=True, n_jobs=-1
    ).rows
    return np.asarray(rows.T * np.sqrt(weights))


def _powers(tau: float) -> SeriesKernel:
    """exp(-tau L) as a sum of powers with nonnegative terms: every entry is accurate relative to itself.

    It has twice as many terms as a Chebyshev expansion. The library does not sum longer series as powers.
    """
    kernel = DiffusionKernel(tau)
    return SeriesKernel(tuple(kernel.coefficients(2 * kernel.expansion(_TIGHTEST).degree + 1)))


def sparse_features(graph: Graph, tau: float, share: int, seed: int) -> Any:
    """Signatures at every ``share``-th node, drawn at random, without their small entries: CSR of shape (n, m)."""
    n = graph.n_nodes
    count = max(1, n // check_integer(share, "share", 1))
    nodes = np.sort(generator(seed, "sparse anchors").choice(n, count, replace=False))
    rows = compute_signatures(
        graph, DiffusionKernel(tau), nodes, teacher=Exact(_CUT / 100, "sparse"), n_jobs=-1
    ).rows.tocsr()
    return without_small(rows, _CUT).T.tocsr()


# ----------------------------------------------------------------------------------------------- the paper's recipe
@dataclass(frozen=True)
class Recipe:
    """The paper's learned features of a mesh; numbers without a comment are from the paper."""

    tau: float = 20.0
    n_dense: int = 5000  # smallest number of nodes: vertices and, if these are fewer, points drawn by area
    n_neighbors: int = 16
    n_starts: int = 1000
    n_walks: int = 10_000
    p_halt: float = 0.01
    epochs: int = 1000
    batch: int = 32_768
    n_features: int = 256
    # Nodes that pairs are drawn from; the paper says "uniformly". More candidates take memory, N x N, and give more
    # pairs than training can use.
    n_candidates: int = 5000


@dataclass(frozen=True, eq=False)
class LearnedField:
    """A trained network and the nodes at which it can be evaluated.

    Attributes
    ----------
    field : NetworkField
        With all candidates as anchors.
    nodes : int array
        The candidates.
    recipe : Recipe
    training : TrainingInfo
    training_s : float
        CPU seconds of all epochs.
    """

    field: NetworkField
    nodes: IntArray
    recipe: Recipe
    training: TrainingInfo
    training_s: float

    def features(self, places: FloatArray, seed: int) -> FloatArray:
        """Phi = g / sqrt(m) at places, with anchors drawn uniformly from the nodes, (q, m)."""
        rng = generator(seed, "learned anchors")
        count = len(self.nodes)
        columns = rng.choice(count, min(self.recipe.n_features, count), replace=False)
        values = self.field.at_anchors(columns).values(places, n_jobs=-1)
        return np.asarray(values / np.sqrt(len(columns)))


def learn_field(
    points: FloatArray,
    n_vertices: int,
    recipe: Recipe,
    seed: int,
    progress: Progress = lambda what, done, total: None,
) -> LearnedField:
    """Compute walks and train on points whose first ``n_vertices`` are vertices; walks start at vertices only.

    The points are the dense set: vertices, then samples on the faces. Its graph joins the nearest neighbours.
    """
    streams = Streams.from_seed(seed)
    graph = knn_graph(points, n_neighbors=min(recipe.n_neighbors, len(points) - 1))
    starts = _some(streams, "starts", n_vertices, recipe.n_starts)
    candidates = _some(streams, "candidates", len(points), recipe.n_candidates)
    walks, kernel = Walks(recipe.n_walks, recipe.p_halt), DiffusionKernel(recipe.tau)
    rows = compute_signatures(graph, kernel, starts, teacher=walks, seed=seed, progress=progress).rows
    data = graph, starts, candidates, sparse.csr_array(rows)[:, candidates]
    options = Network(epochs=recipe.epochs, batch=recipe.batch, patience=None, device="cpu")
    clock: list[float] = []

    def tell(what: str, done: int, total: int) -> None:
        progress(what, done, total)
        if what == "training epochs":
            clock.append(time.process_time())

    unit = float(np.exp(recipe.tau / 2))
    field, training = fit_network(*data, options, unit=unit, seed=seed, progress=tell)
    return LearnedField(field, candidates, recipe, training, clock[-1] - clock[0])


def warm_up(points: FloatArray) -> None:
    """Train for one epoch on some points, so that no measured time includes an import."""
    tiny = Recipe(n_dense=1, n_starts=50, n_walks=10, epochs=1, n_features=16, n_candidates=100)
    learn_field(points, len(points), tiny, 0).features(points, 0)


def _some(streams: Streams, name: str, n: int, count: int) -> IntArray:
    """Choose some of n indices at random, sorted; all if there are not enough."""
    return np.sort(streams.generator(f"recipe {name}").choice(n, min(n, count), replace=False))
