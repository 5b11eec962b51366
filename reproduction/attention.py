"""Masked values of tokens on a surface, filled in by linear attention: the paper's task, and where geometry helps.

Claim: where sheets of a surface nearly touch, 64 positive features of the surface have a smaller error than 64
features of the ambient space of any kind, and than the exact Gaussian kernel of the ambient space. Their error is
no larger than that of Nystrom's signed features on the same anchors. On the plain Mobius strip, the paper's only
surface, ambient features with anchors are equally good: there, anchors beat random frequencies, and the geometry of
the surface makes no difference.

The paper specifies neither its protocol nor the unit of its errors, so only the order of its methods can be
compared.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from manifoldrf import DiffusionKernel, Graph, compute_signatures, knn_graph
from manifoldrf.geometry import thin
from reproduction.baselines import ORF, PORF, PRF, RFF, eigenpairs, gaussian_kernel, inverse_root
from reproduction.common import LIBRARY, RECIPE, FloatArray, IntArray, Progress, generator, reproducible, silent
from reproduction.interpolation import LearnedSettings, learn_field
from reproduction.paper import published
from reproduction.record import Parts, Record, Row, settings_without
from reproduction.token_surfaces import SURFACES, TOUCHING

# ---------------------------------------------------------------------------------------------------------- anchors
# Rounds in which anchors move to the middle of their cells. 5 rounds are within 2 % of 20; most converge earlier.
_ROUNDS = 20


Owners = Callable[[IntArray], IntArray]  # anchors -> position of the anchor nearest to every token
Within = Callable[[IntArray], FloatArray]  # tokens of a cell -> distances between them


def medoid_anchors(start: IntArray, owners: Owners, within: Within) -> IntArray:
    """Lloyd's rounds on tokens: every anchor moves to the token with the least squared distances to its cell.

    Farthest points lie on the edges of a surface, where half of their cell is missing.
    """
    nodes = start
    for _ in range(_ROUNDS):
        owner = owners(nodes)
        moved = np.array([_medoid(np.flatnonzero(owner == k), within) for k in range(len(nodes))])
        if (moved == nodes).all():
            break
        nodes = moved
    return nodes


def _medoid(cell: IntArray, within: Within) -> int:
    return int(cell[np.argmin((within(cell) ** 2).sum(axis=1))])


def along_edges(graph: Graph) -> tuple[Owners, Within]:
    """Distances along the edges; those within a cell do not leave it."""
    lengths = graph.lengths

    def owners(anchors: IntArray) -> IntArray:
        found = csgraph.dijkstra(lengths, indices=anchors, min_only=True, return_predecessors=True)[2]
        places = np.zeros(graph.n_nodes, dtype=np.int64)
        places[anchors] = np.arange(len(anchors))
        return np.asarray(places[found])

    def within(cell: IntArray) -> FloatArray:
        return np.asarray(csgraph.dijkstra(lengths[cell][:, cell], directed=False))

    return owners, within


def in_space(points: FloatArray) -> tuple[Owners, Within]:
    """Distances in space."""

    def owners(anchors: IntArray) -> IntArray:
        return np.asarray(cKDTree(points[anchors]).query(points)[1], dtype=np.int64)

    return owners, lambda cell: cdist(points[cell], points[cell])


def farthest_along_edges(graph: Graph, m: int) -> IntArray:
    """Farthest points along the edges of a graph in one piece."""
    chosen = [int(thin(graph.positions, 2)[0])]
    nearest = np.full(graph.n_nodes, np.inf)
    while len(chosen) < m:
        limit = float(nearest.max())
        np.minimum(nearest, csgraph.dijkstra(graph.lengths, indices=chosen[-1], limit=limit), out=nearest)
        chosen.append(int(np.argmax(nearest)))
    return np.array(chosen)


# ---------------------------------------------------------------------------------------------------------- methods
TAUS = tuple(2.0**k for k in range(7))  # steps of the walk, 1 to 64; nine signals of ten choose one in between
SIGMAS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.22, 0.32, 0.47, 0.7)  # widths of Gaussians in space

_ROUNDING = 1e-10  # of signatures, whose largest possible entry is 1
_NOTHING = 1e-200  # smaller sums of features mean that there is no source; their inverse would overflow


@dataclass(frozen=True, eq=False)
class Task:
    """Tokens on a graph, of which some have values.

    Attributes
    ----------
    graph : Graph
        Of all tokens; their positions are known.
    visible : int array of shape (v,)
        Tokens with a value.
    known : array of shape (v, c)
        Their values; no other value is here.
    folds : int array of shape (v,)
        Fold of each visible token, for cross-validation.
    n_features : int
        Number of features of low-rank methods.
    seed : int
        Of the methods that draw.
    """

    graph: Graph
    visible: IntArray
    known: FloatArray
    folds: IntArray
    n_features: int
    seed: int

    @property
    def points(self) -> FloatArray:
        """Positions of all tokens, shape (n, 3)."""
        return self.graph.positions

    @property
    def masked(self) -> IntArray:
        """Tokens without a value."""
        return np.setdiff1d(np.arange(self.graph.n_nodes), self.visible)

    @cached_property
    def medoids(self) -> IntArray:
        """Anchors in the middle of their cells, distances taken along the edges."""
        return medoid_anchors(farthest_along_edges(self.graph, self.n_features), *along_edges(self.graph))

    @cached_property
    def medoids_in_space(self) -> IntArray:
        """The same for distances in space."""
        return medoid_anchors(np.sort(thin(self.points, self.n_features)), *in_space(self.points))


@dataclass(frozen=True, eq=False)
class Weights:
    """A kernel from visible tokens to all, k = left right^T, and the weights of its sources.

    Attributes
    ----------
    left : array or CSR array of shape (n, r)
    right : array or CSR array of shape (v, r)
    share : array of shape (v,)
    balanced : bool
        Whether every feature, nonnegative, is divided by its sum over the sources. An anchor then represents the
        mean of the values around it, for any number of visible tokens there.
    """

    left: Any
    right: Any
    share: FloatArray
    balanced: bool = False

    def reconstruct(self, known: FloatArray, sources: IntArray, targets: IntArray) -> FloatArray:
        """Values of some tokens from some of the visible ones, shape (len(targets), c).

        If the sum of the weights is not positive, the result is the mean of the visible values. This only helps
        signed features.

        Parameters
        ----------
        known : array of shape (v, c)
        sources : int array
            Positions among the visible tokens.
        targets : int array
            Tokens.
        """
        right = self.right[sources]
        if self.balanced:
            sums = right.T @ self.share[sources]  # (r,)
            right = right * np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > _NOTHING)
        share = self.share[sources][:, None]
        found = np.asarray(self.left[targets] @ (right.T @ np.hstack([share, share * known[sources]])))
        mass = found[:, :1]
        return np.where(mass > 0, found[:, 1:] / np.where(mass > 0, mass, 1.0), known[sources].mean(axis=0))


# Candidates of a method: its parameter and the kernel that belongs to it.
Candidates = Iterator[tuple[float, Weights]]


@dataclass(frozen=True, eq=False)
class Filled:
    """Result of a method: values of the masked tokens (n - v, c) and the chosen parameters (c,)."""

    values: FloatArray
    parameters: FloatArray


def tune(task: Task, candidates: Candidates) -> Filled:
    """Choose a parameter for every signal by cross-validation on the visible tokens, and fill in the others."""
    masked, everything = task.masked, np.arange(len(task.visible))
    least = np.full(task.known.shape[1], np.inf)
    values, parameters = np.zeros((len(masked), len(least))), np.full(len(least), np.nan)
    for parameter, weights in candidates:
        errors = cross_validate(task, weights)
        better = errors < least
        if better.any():
            found = weights.reconstruct(task.known, everything, masked)
            values[:, better], parameters[better], least[better] = found[:, better], parameter, errors[better]
    return Filled(values, parameters)


def cross_validate(task: Task, weights: Weights) -> FloatArray:
    """Cross-validated sum of squared errors at the visible tokens, for every signal, shape (c,)."""
    total = np.zeros(task.known.shape[1])
    for fold in np.unique(task.folds):
        out = np.flatnonzero(task.folds == fold)
        found = weights.reconstruct(task.known, np.flatnonzero(task.folds != fold), task.visible[out])
        total += ((found - task.known[out]) ** 2).sum(axis=0)
    return total


# ----------------------------------------------------------------------------------- features of the surface
def signatures(graph: Graph, tau: float, anchors: IntArray) -> FloatArray:
    """Columns of exp(-tau L / 2) at the anchors, shape (n, m), nonnegative."""
    rows = compute_signatures(graph, DiffusionKernel(tau), anchors, teacher="exact").rows
    dense = rows.toarray() if sparse.issparse(rows) else rows
    return np.where(dense > _ROUNDING, dense, 0.0).T


def _of_surface(task: Task, rows: Any, *, balanced: bool = False) -> Weights:
    return Weights(rows, rows[task.visible], np.sqrt(task.graph.degrees[task.visible]), balanced)


def _of_space(task: Task, rows: FloatArray, *, balanced: bool = False) -> Weights:
    return Weights(rows, rows[task.visible], np.ones(len(task.visible)), balanced)


def own_features(task: Task) -> Candidates:
    """Features of the library: anchors in the middle of their cells, weighted by the visible tokens around them.

    Weights depend on where tokens are visible, not on their values.
    """
    for tau in TAUS:
        yield tau, _of_surface(task, signatures(task.graph, tau, task.medoids), balanced=True)


def geodesic_nystrom(task: Task) -> Candidates:
    """K(i, A) K(A, A)^(-1/2) for the kernel of the graph and the same anchors: signed."""
    anchors = task.medoids
    for tau in TAUS:
        columns = DiffusionKernel(tau).matrix(task.graph, cols=anchors)
        yield tau, _of_surface(task, columns @ inverse_root(columns[anchors]))


def diffusion_map(task: Task) -> Candidates:
    """Eigenvectors of the graph times the roots of the kernel's eigenvalues: signed."""
    values, vectors = eigenpairs(task.graph, task.n_features)
    for tau in TAUS:
        yield tau, _of_surface(task, vectors * np.sqrt(DiffusionKernel(tau).spectral(values)))


def exact_heat(task: Task) -> Candidates:
    """The kernel of the graph itself."""
    share = np.sqrt(task.graph.degrees[task.visible])
    for tau in TAUS:
        yield tau, _whole(DiffusionKernel(tau).matrix(task.graph, cols=task.visible), share)


def _whole(kernel: FloatArray, share: FloatArray) -> Weights:
    """A kernel given as a matrix, shape (n, v)."""
    return Weights(kernel, sparse.eye_array(kernel.shape[1], format="csr"), share)


# ----------------------------------------------------------------------------- features of the space around it
def random_features(task: Task, kind: Callable[..., Any]) -> Candidates:
    """Random features of the Gaussian kernel; the same draws for all widths."""
    for sigma in SIGMAS:
        drawn = kind(n_features=task.n_features, sigma=sigma, random_state=task.seed)
        yield sigma, _of_space(task, drawn.fit(task.points).transform(task.points))


def linear_rbf(task: Task) -> Candidates:
    """Gaussians around anchors in the middle of their cells in space, weighted by the visible tokens around them.

    They are narrower by sqrt(2): their products add up to a Gaussian of width sigma.
    """
    for sigma in SIGMAS:
        rows = gaussian_kernel(task.points, task.points[task.medoids_in_space], sigma / np.sqrt(2))
        yield sigma, _of_space(task, rows, balanced=True)


def exact_rbf(task: Task) -> Candidates:
    """The Gaussian kernel itself."""
    for sigma in SIGMAS:
        kernel = gaussian_kernel(task.points, task.points[task.visible], sigma)
        yield sigma, _whole(kernel, np.ones(len(task.visible)))


def fill_learned(task: Task, settings: LearnedSettings, seed: int) -> FloatArray:
    """The paper's recipe: walks, its network, uniform anchors; tau is not tuned."""
    learned = learn_field(task.points, len(task.points), settings, seed)
    rows = learned.features(task.points, seed)
    return _of_surface(task, rows).reconstruct(task.known, np.arange(len(task.visible)), task.masked)


NYSTROM, RBF, HEAT = "geodesic Nystrom", "exact RBF", "exact heat"
METHODS: Mapping[str, Callable[[Task], Candidates]] = {
    LIBRARY: own_features,
    NYSTROM: geodesic_nystrom,
    "diffusion map": diffusion_map,
    "RFF": functools.partial(random_features, kind=RFF),
    "ORF": functools.partial(random_features, kind=ORF),
    "PRF": functools.partial(random_features, kind=PRF),
    "PORF": functools.partial(random_features, kind=PORF),
    RBF: exact_rbf,
    "linear RBF": linear_rbf,
    HEAT: exact_heat,
}


# --------------------------------------------------------------------------------------------------- the experiment
PAPER_SURFACE = "mobius"
_SHOWN = {LIBRARY: "mrf", RBF: "rbf"}  # what the picture fills signals in with
_FOLDS = 5  # parts of the visible tokens for cross-validation


@dataclass(frozen=True)
class Config:
    """Settings of the experiment. The paper leaves all of them open except the surface and the sources."""

    surfaces: tuple[str, ...] = tuple(SURFACES)
    n_tokens: int = 3000  # on the plain strip
    # Where sheets nearly touch: ten neighbours lie within half the gap, and only one edge in 60 graphs joins two
    # sheets.
    n_tokens_touching: int = 4000
    masked: float = 0.8  # on the plain strip
    # Where sheets nearly touch: visible tokens are .19 to .29 apart, about as far as the sheets.
    masked_touching: float = 0.97
    n_seeds: int = 20  # each with its own tokens, mask and signals
    sources: tuple[int, ...] = (5, 6, 7, 8, 9, 10)  # the paper's
    n_features: int = 64  # of all methods of low rank
    n_neighbors: int = 10  # of the graph: with this number, all 80 graphs are connected
    n_learned: int = 3  # seeds of the strip with the paper's recipe too: ten minutes each
    n_walks: int = 10_000  # of the recipe
    epochs: int = 1000  # the paper's

    def tokens_on(self, surface: str) -> tuple[int, int]:
        """Number of tokens and of visible ones."""
        touching = surface in TOUCHING
        n, masked = (self.n_tokens_touching, self.masked_touching) if touching else (self.n_tokens, self.masked)
        return n, round((1.0 - masked) * n)


# Half the tokens with the same number of visible ones, so that known values have the same spacing.
SIZES: dict[str, Config] = {
    "smoke": Config(
        surfaces=("mobius", "swiss"),
        n_tokens=1000,
        n_tokens_touching=1500,
        masked=0.6,
        masked_touching=0.94,
        n_seeds=1,
        sources=(5, 10),
        n_learned=1,
        n_walks=100,
        epochs=1,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = silent, data: Path | None = None, parts: Path | None = None) -> Record:
    """Fill in the masked values of all signals by all methods, each tuned on the visible tokens of that signal.

    Tables: ``attention`` (errors over all signals of a surface), ``sources`` (the same for each number of sources).
    Every draw is a part.
    """
    del data
    kept, arrays = Parts(parts, __name__), dict[str, Any]()
    settings = settings_without(config, "surfaces", "n_seeds", "n_learned")
    for place, name in enumerate(config.surfaces):
        for seed in range(config.n_seeds):
            progress(f"{name}, seed {seed}", place * config.n_seeds + seed, len(config.surfaces) * config.n_seeds)
            draw = functools.partial(_draw, name, config, seed)
            arrays |= kept.get(f"attention-{name}-seed{seed}", settings, draw).arrays
    for seed in range(config.n_learned if PAPER_SURFACE in config.surfaces else 0):
        progress(f"{PAPER_SURFACE}, seed {seed}: {RECIPE}", seed, config.n_learned)
        learn = functools.partial(_learn, config, seed)
        kept.get(f"attention-learned-seed{seed}", settings, learn)
    progress("done", 1, 1)
    rows = kept.table("signals")
    tables = {"attention": _summarise(rows, ("surface", "method")), "signals": rows}
    tables["sources"] = _summarise(rows, ("surface", "method", "sources"))
    return Record("attention", dataclasses.asdict(config), tables, kept.seconds, arrays=arrays)


def _summarise(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    """Geometric means of the errors, and the means of the paper's over the same numbers of sources."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    table = []
    for names, own in groups.items():
        line = dict(zip(keys, names, strict=True))
        for name in ("mse", "l2"):
            line[name] = float(np.exp(np.mean([np.log(row[name]) for row in own])))
            method = "MRF" if line["method"] == RECIPE else line["method"]
            paper = [published("attention", count, method, name) for count in {row["sources"] for row in own}]
            known = [value for value in paper if value is not None and line["surface"] == PAPER_SURFACE]
            line[f"published_{name}"] = float(np.mean(known)) if known else None
        table.append(line)
    return table


def _draw(name: str, config: Config, seed: int) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """Errors of all methods on one draw."""
    task, hidden = draw_task(name, config, seed)
    rows: list[Row] = []
    shown: dict[str, Any] = {"points": task.points, "visible": task.visible, "signal": _whole_field(task, hidden)}
    with reproducible():
        for method, candidates in METHODS.items():
            filled = tune(task, candidates(task))
            rows += _errors({"surface": name, "seed": seed, "method": method}, config, filled, hidden)
            if method in _SHOWN:
                shown[_SHOWN[method]] = _whole_field(task, filled.values)
    return {"signals": rows}, {f"{name}_{key}": value for key, value in shown.items()} if seed == 0 else {}


def _learn(config: Config, seed: int) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    """Errors of the paper's recipe on one draw."""
    task, hidden = draw_task(PAPER_SURFACE, config, seed)
    settings = LearnedSettings(config.n_neighbors, config.n_walks, config.epochs, n_features=config.n_features)
    with reproducible():
        filled = Filled(fill_learned(task, settings, seed), np.zeros(len(config.sources)))
    key = {"surface": PAPER_SURFACE, "seed": seed, "method": RECIPE}
    return {"signals": _errors(key, config, filled, hidden)}, {}


def _errors(key: Row, config: Config, filled: Filled, hidden: FloatArray) -> list[Row]:
    """Mean squared and relative l2 errors of every signal."""
    gaps = ((filled.values - hidden) ** 2).mean(axis=0)
    ratios = np.sqrt(gaps / (hidden**2).mean(axis=0))
    found = zip(config.sources, gaps.tolist(), ratios.tolist(), strict=True)
    return [key | {"sources": count, "mse": mse, "l2": l2} for count, mse, l2 in found]


def _whole_field(task: Task, filled: FloatArray) -> FloatArray:
    """The last signal at all tokens, with the values that a method filled in, shape (n,)."""
    values = np.zeros(len(task.points))
    values[task.visible], values[task.masked] = task.known[:, -1], filled[:, -1]
    return values


def draw_task(name: str, config: Config, seed: int) -> tuple[Task, FloatArray]:
    """Tokens uniform by area, their graph, a random mask, one signal for each number of sources; hidden values."""
    surface, (n, n_visible) = SURFACES[name], config.tokens_on(name)
    draw = functools.partial(generator, seed)
    tokens = surface.sample(n, draw(f"{name} tokens"))
    values = tokens.read(surface.diffuse(surface.draw_sources(config.sources, draw(f"{name} sources"))))  # (n, c)
    visible = np.sort(draw(f"{name} mask").permutation(n)[:n_visible])
    folds = draw(f"{name} folds").permutation(n_visible) % _FOLDS
    graph = knn_graph(tokens.points, n_neighbors=config.n_neighbors)
    task = Task(graph, visible, values[visible], folds, config.n_features, seed)
    return task, values[task.masked]
