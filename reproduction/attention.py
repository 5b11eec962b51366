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
import time
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
from manifoldrf.applications.interpolation import (
    System,
    biharmonic,
    feature_action,
    harmonic,
    solve_with_fixed,
    weighted_means,
)
from manifoldrf.geometry.paths import farthest_nodes
from reproduction.baselines import ORF, PORF, PRF, RFF, eigenpairs, gaussian_kernel, inverse_root
from reproduction.common import FloatArray, IntArray, Streams, one_blas_thread
from reproduction.record import Progress, Record, environment_of, finished_part, settings_without
from reproduction.smoothers import Recipe, learn_field
from reproduction.token_surfaces import SURFACES, TOUCHING, TokenSurface

# ---------------------------------------------------------------------------------------------------------- anchors
# Rounds in which anchors move to the middle of their cells. 5 rounds are within 2 % of 20; most converge earlier.
_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Anchors:
    """Anchors and the number of tokens in the cell of each, both of shape (m,)."""

    nodes: IntArray
    cells: FloatArray


Owners = Callable[[IntArray], IntArray]  # anchors -> position of the anchor nearest to every token
Within = Callable[[IntArray], FloatArray]  # tokens of a cell -> distances between them


def medoid_anchors(start: IntArray, owners: Owners, within: Within) -> Anchors:
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
    return with_cells(nodes, owners)


def _medoid(cell: IntArray, within: Within) -> int:
    return int(cell[np.argmin((within(cell) ** 2).sum(axis=1))])


def with_cells(nodes: IntArray, owners: Owners) -> Anchors:
    """Anchors with the numbers of tokens that are nearest to each."""
    return Anchors(nodes, np.bincount(owners(nodes), minlength=len(nodes)).astype(np.float64))


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
    """Farthest points along the edges of a graph in one piece, from the first farthest point in space."""
    chosen = [int(farthest_nodes(graph, 1)[0])]
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
_CUT = 1e-3  # share of the largest entry of a sparse signature; smaller entries cost more than they gain
_NOTHING = 1e-200  # smaller sums of features mean that there is no source; their inverse would overflow
_SPARSE_SHARE = 4  # tokens to an anchor of sparse features


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
    streams : Streams
        Of the methods that draw.
    taus, sigmas : tuple of float
        Widths that methods choose from: of kernels of the graph and of Gaussians in space.
    """

    graph: Graph
    visible: IntArray
    known: FloatArray
    folds: IntArray
    n_features: int
    streams: Streams
    taus: tuple[float, ...] = TAUS
    sigmas: tuple[float, ...] = SIGMAS

    @property
    def points(self) -> FloatArray:
        """Positions of all tokens, shape (n, 3)."""
        return self.graph.positions

    @property
    def masked(self) -> IntArray:
        """Tokens without a value."""
        return np.setdiff1d(np.arange(self.graph.n_nodes), self.visible)

    @cached_property
    def medoids(self) -> Anchors:
        """Anchors in the middle of their cells, distances taken along the edges."""
        return medoid_anchors(farthest_along_edges(self.graph, self.n_features), *along_edges(self.graph))

    @cached_property
    def medoids_in_space(self) -> Anchors:
        """The same for distances in space."""
        return medoid_anchors(farthest_nodes(self.graph, self.n_features), *in_space(self.points))

    @cached_property
    def uniform(self) -> IntArray:
        """Anchors drawn from all tokens."""
        return self.streams.generator("anchors").choice(self.graph.n_nodes, self.n_features, replace=False)


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
        action = feature_action(self.left[targets], right)
        found = weighted_means(action, known[sources], self.share[sources])
        return np.where(found.mass[:, None] > 0, found.values, known[sources].mean(axis=0))


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


def _positive(task: Task, anchors: Anchors, *, balanced: bool = False) -> Candidates:
    """Features sqrt(w_l) Phi(i, l) with the number of tokens of a cell as weight."""
    for tau in task.taus:
        rows = signatures(task.graph, tau, anchors.nodes) * np.sqrt(anchors.cells)
        yield tau, _of_surface(task, rows, balanced=balanced)


def mrf(task: Task) -> Candidates:
    """Features of the surface: anchors in the middle of their cells, weighted by the visible tokens around them.

    Weights depend on where tokens are visible, not on their values.
    """
    return _positive(task, _alike(task.medoids.nodes), balanced=True)


def mrf_cells(task: Task) -> Candidates:
    """The same anchors, weighted by the tokens of their cells: features of the heat kernel itself."""
    return _positive(task, task.medoids)


def _alike(nodes: IntArray) -> Anchors:
    """Anchors of equal weight."""
    return Anchors(nodes, np.ones(len(nodes)))


def mrf_farthest(task: Task) -> Candidates:
    """Farthest points in space, the library's default for clouds, weighted by their cells in space."""
    return _positive(task, with_cells(farthest_nodes(task.graph, task.n_features), in_space(task.points)[0]))


def mrf_uniform(task: Task) -> Candidates:
    """Uniform anchors of equal weight, as in the paper."""
    return _positive(task, _alike(task.uniform))


def mrf_sparse(task: Task) -> Candidates:
    """One anchor for four tokens, weighted by its cell, and signatures without tails: few entries per token."""
    start = farthest_along_edges(task.graph, max(1, task.graph.n_nodes // _SPARSE_SHARE))
    anchors = with_cells(start, along_edges(task.graph)[0])
    for tau in task.taus:
        yield tau, _of_surface(task, sparse_features(task.graph, tau, anchors))


def sparse_features(graph: Graph, tau: float, anchors: Anchors) -> Any:
    """Features without entries below a thousandth of the largest of their anchor, CSR (n, m)."""
    columns = signatures(graph, tau, anchors.nodes)
    cut = np.where(columns >= _CUT * columns.max(axis=0), columns, 0.0)
    return sparse.csr_array(cut * np.sqrt(anchors.cells))


def geodesic_nystrom(task: Task) -> Candidates:
    """K(i, A) K(A, A)^(-1/2) for the kernel of the graph and the same anchors: signed."""
    anchors = task.medoids.nodes
    for tau in task.taus:
        columns = DiffusionKernel(tau).matrix(task.graph, cols=anchors)
        yield tau, _of_surface(task, columns @ inverse_root(columns[anchors]))


def diffusion_map(task: Task) -> Candidates:
    """Eigenvectors of the graph times the roots of the kernel's eigenvalues: signed."""
    values, vectors = eigenpairs(task.graph, task.n_features)
    for tau in task.taus:
        yield tau, _of_surface(task, vectors * np.sqrt(DiffusionKernel(tau).spectral(values)))


def exact_heat(task: Task) -> Candidates:
    """The kernel of the graph itself."""
    share = np.sqrt(task.graph.degrees[task.visible])
    for tau in task.taus:
        yield tau, _whole(DiffusionKernel(tau).matrix(task.graph, cols=task.visible), share)


def _whole(kernel: FloatArray, share: FloatArray) -> Weights:
    """A kernel given as a matrix, shape (n, v)."""
    return Weights(kernel, sparse.eye_array(kernel.shape[1], format="csr"), share)


# ----------------------------------------------------------------------------- features of the space around it
def random_features(task: Task, kind: Callable[..., Any]) -> Candidates:
    """Random features of the Gaussian kernel; the same draws for all widths."""
    for sigma in task.sigmas:
        drawn = kind(
            n_features=task.n_features, sigma=sigma, random_state=task.streams.generator("random features")
        )
        yield sigma, _of_space(task, drawn.fit(task.points).transform(task.points))


def _linear_rbf(task: Task, anchors: Anchors, *, balanced: bool = False) -> Candidates:
    """Gaussians around anchors, narrower by sqrt(2): their products add up to a Gaussian of width sigma."""
    for sigma in task.sigmas:
        rows = gaussian_kernel(task.points, task.points[anchors.nodes], sigma / np.sqrt(2)) * np.sqrt(anchors.cells)
        yield sigma, _of_space(task, rows, balanced=balanced)


def linear_rbf(task: Task) -> Candidates:
    """Anchors in the middle of their cells in space, weighted by the visible tokens around them."""
    return _linear_rbf(task, _alike(task.medoids_in_space.nodes), balanced=True)


def linear_rbf_cells(task: Task) -> Candidates:
    """The same anchors, weighted by the tokens of their cells."""
    return _linear_rbf(task, task.medoids_in_space)


def linear_rbf_farthest(task: Task) -> Candidates:
    """Farthest points in space with the sizes of their cells."""
    start = farthest_nodes(task.graph, task.n_features)
    return _linear_rbf(task, with_cells(start, in_space(task.points)[0]))


def linear_rbf_uniform(task: Task) -> Candidates:
    """The uniform anchors of the features of the surface."""
    return _linear_rbf(task, _alike(task.uniform))


def exact_rbf(task: Task) -> Candidates:
    """The Gaussian kernel itself."""
    for sigma in task.sigmas:
        kernel = gaussian_kernel(task.points, task.points[task.visible], sigma)
        yield sigma, _whole(kernel, np.ones(len(task.visible)))


# ------------------------------------------------------------------------------------------------- references
def solve(task: Task, system_of: Callable[[Graph], System]) -> Filled:
    """Solve with the visible values fixed: not attention, but it shows how well signals can be predicted."""
    values = np.zeros((task.graph.n_nodes, task.known.shape[1]))
    values[task.visible] = task.known
    fixed = np.zeros(len(values), dtype=bool)
    fixed[task.visible] = True
    found = solve_with_fixed(system_of(task.graph), values, fixed, ~fixed)
    return Filled(found[task.masked], np.full(values.shape[1], np.nan))


@dataclass(frozen=True)
class Method:
    """One way to fill in values.

    Attributes
    ----------
    group : {"surface, positive", "surface, signed", "space around", "exact kernel", "reference"}
    fill : callable
    is_positive : bool
        Whether features are nonnegative.
    """

    group: str
    fill: Callable[[Task], Filled]
    is_positive: bool = False


def _tuned(candidates: Callable[..., Candidates], **options: Any) -> Callable[[Task], Filled]:
    return lambda task: tune(task, candidates(task, **options))


def fill_learned(task: Task, recipe: Recipe, seed: int) -> Filled:
    """The paper's learned features: walks, its network, uniform anchors; tau is not tuned.

    The field is divided by the roots of the degrees at both ends, so a source counts with its degree.
    """
    learned = learn_field(task.points, len(task.points), recipe, seed)
    rows = learned.features(task.points, seed)
    weights = Weights(rows, rows[task.visible], task.graph.degrees[task.visible])
    found = weights.reconstruct(task.known, np.arange(len(task.visible)), task.masked)
    return Filled(found, np.full(found.shape[1], recipe.tau))


# Names that others ask for.
OWN, SPARSE, NYSTROM, RBF, HEAT = "MRF", "MRF sparse", "geodesic Nystrom", "exact RBF", "exact heat"
LEARNED = "MRF learned"
INTRINSIC, SIGNED, AMBIENT = "surface, positive", "surface, signed", "space around"
EXACT, REFERENCE = "exact kernel", "reference"
METHODS: Mapping[str, Method] = {
    OWN: Method(INTRINSIC, _tuned(mrf), is_positive=True),
    "MRF cells": Method(INTRINSIC, _tuned(mrf_cells), is_positive=True),
    "MRF farthest": Method(INTRINSIC, _tuned(mrf_farthest), is_positive=True),
    "MRF uniform": Method(INTRINSIC, _tuned(mrf_uniform), is_positive=True),
    SPARSE: Method(INTRINSIC, _tuned(mrf_sparse), is_positive=True),
    NYSTROM: Method(SIGNED, _tuned(geodesic_nystrom)),
    "diffusion map": Method(SIGNED, _tuned(diffusion_map)),
    "linear RBF": Method(AMBIENT, _tuned(linear_rbf), is_positive=True),
    "linear RBF cells": Method(AMBIENT, _tuned(linear_rbf_cells), is_positive=True),
    "linear RBF farthest": Method(AMBIENT, _tuned(linear_rbf_farthest), is_positive=True),
    "linear RBF uniform": Method(AMBIENT, _tuned(linear_rbf_uniform), is_positive=True),
    "RFF": Method(AMBIENT, _tuned(random_features, kind=RFF)),
    "ORF": Method(AMBIENT, _tuned(random_features, kind=ORF)),
    "PRF": Method(AMBIENT, _tuned(random_features, kind=PRF), is_positive=True),
    "PORF": Method(AMBIENT, _tuned(random_features, kind=PORF), is_positive=True),
    RBF: Method(EXACT, _tuned(exact_rbf)),
    HEAT: Method(EXACT, _tuned(exact_heat)),
    "harmonic": Method(REFERENCE, functools.partial(solve, system_of=harmonic)),
    "biharmonic": Method(REFERENCE, functools.partial(solve, system_of=biharmonic)),
}


# --------------------------------------------------------------------------------------------------- the experiment
# The paper's table, on its Möbius strip, for 5 to 10 sources: mean squared errors and relative l2 errors.
PAPER_SOURCES = (5, 6, 7, 8, 9, 10)
PAPER: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    OWN: ((3.10, 3.03, 2.90, 3.11, 3.15, 3.25), (1.97, 2.90, 4.87, 2.15, 3.46, 2.46)),
    NYSTROM: ((3.77, 4.76, 6.38, 5.74, 4.52, 4.59), (2.05, 4.49, 7.54, 4.40, 6.87, 5.22)),
    "diffusion map": ((3.61, 3.67, 3.98, 3.96, 3.72, 3.70), (2.67, 3.37, 7.27, 4.11, 5.37, 4.52)),
    "RFF": ((3.32, 3.20, 4.14, 3.51, 3.40, 3.42), (2.36, 3.40, 6.76, 3.30, 5.03, 3.52)),
    "ORF": ((3.26, 3.15, 3.84, 3.47, 3.37, 3.38), (2.24, 3.16, 6.69, 3.20, 4.92, 3.38)),
    "PRF": ((3.34, 3.05, 3.31, 3.79, 3.30, 3.65), (2.52, 2.23, 5.64, 4.63, 4.51, 4.20)),
    "PORF": ((3.52, 3.16, 3.33, 4.18, 3.25, 3.53), (2.75, 3.18, 6.47, 5.26, 3.97, 4.01)),
    RBF: ((3.38, 3.22, 4.66, 3.60, 3.48, 3.44), (2.47, 3.53, 7.36, 3.48, 5.41, 3.65)),
    "linear RBF": ((3.29, 3.11, 3.92, 3.40, 3.35, 3.38), (2.42, 3.20, 6.72, 3.07, 4.90, 3.42)),
    HEAT: ((3.87, 5.00, 6.91, 5.93, 4.47, 4.81), (2.00, 4.36, 8.08, 4.47, 5.82, 5.67)),
}
PAPER_SURFACE = "mobius"
_PUBLISHED = ("published_mse", "published_l2")  # in separate columns, because their unit is not known

_SHOWN = {OWN: "mrf", RBF: "rbf"}  # what the picture fills signals in with
_MEASURES = ("mse", "l2", "parameters")  # of every signal and method
_FOLDS = 5  # parts of the visible tokens for cross-validation
# The text calls errors closer than this equal; seeds change a ratio of two methods by a few per cent.
_TIE = 1.1


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    surfaces: tuple[str, ...] = tuple(SURFACES)
    n_tokens: int = 3000  # on the plain strip
    # Where sheets nearly touch: ten neighbours lie within half the gap, and only one edge in 60 graphs joins two
    # sheets.
    n_tokens_touching: int = 4000
    masked: float = 0.8  # on the plain strip
    # Where sheets nearly touch: visible tokens are .19 to .29 apart, about as far as the sheets.
    masked_touching: float = 0.97
    n_seeds: int = 20  # each with its own tokens, mask and signals
    sources: tuple[int, ...] = PAPER_SOURCES
    n_features: int = 64  # of all methods of low rank
    n_neighbors: int = 10  # of the graph: with this number, all 80 graphs are connected
    n_learned: int = 3  # number of seeds of the strip with the paper's learned features too: ten minutes each
    n_walks: int = 10_000  # of these features
    epochs: int = 1000  # the paper's
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """The paper's learned features."""
        options = {"n_neighbors": self.n_neighbors, "n_walks": self.n_walks, "epochs": self.epochs}
        return Recipe(n_features=self.n_features, **options)

    def tokens_on(self, surface: str) -> tuple[int, int]:
        """Number of tokens and of visible ones."""
        touching = surface in TOUCHING
        n, masked = (self.n_tokens_touching, self.masked_touching) if touching else (self.n_tokens, self.masked)
        return n, round((1.0 - masked) * n)


# Half the tokens with the same number of visible ones, so that known values have the same spacing.
SIZES: dict[str, Config] = {
    "smoke": Config(
        n_tokens=1500,
        n_tokens_touching=2000,
        masked=0.6,
        masked_touching=0.94,
        n_seeds=1,
        sources=(5, 10),
        n_learned=0,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None, parts: Path | None = None) -> Record:
    """Fill in the masked values of all signals by all methods, each tuned on the visible tokens of that signal.

    Tables: ``attention`` (errors over all signals of a surface), ``sources`` (the same for each number of sources),
    ``verdict`` (features of the surface against the best of each kind). Arrays: the errors of every
    signal, shape (methods, seeds, numbers of sources), and the first task of each surface for the pictures. Every
    draw is a part that is kept in the folder ``parts``.
    """
    tables: dict[str, list[dict[str, Any]]] = {"attention": [], "sources": [], "verdict": []}
    arrays: dict[str, Any] = {}
    found = []
    for place, name in enumerate(config.surfaces):
        draws = []
        for seed in range(config.n_seeds):
            done = place * config.n_seeds + seed
            tell = functools.partial(_tell, progress, config, f"{name}, seed {seed}", done)
            draw = functools.partial(_draw, name, config, seed, tell)
            draws.append(_part(parts, f"{name}-seed{seed}", _settings(config, "n_walks", "epochs"), draw))
        errors = _Errors(name, config, *(np.stack([part.arrays[key] for part in draws], 1) for key in _MEASURES))
        arrays |= {key: value for key, value in draws[0].arrays.items() if key not in _MEASURES}
        arrays |= {f"{name}_mse": errors.mse, f"{name}_l2": errors.l2}
        tables["attention"] += errors.summary()
        found += draws
        if name == PAPER_SURFACE and config.n_learned:
            trained = []
            for seed in range(min(config.n_learned, config.n_seeds)):
                learn = functools.partial(_learn, name, config, seed, progress)
                trained.append(_part(parts, f"{name}-learned-seed{seed}", _settings(config), learn))
            mse, l2 = (
                np.stack([part.arrays[key] for part in trained]) for key in ("mse", "l2")
            )  # (seeds, sources)
            arrays |= {f"{name}_learned_mse": mse, f"{name}_learned_l2": l2}
            tables["attention"].append(errors.learned(mse, l2))
            found += trained
        tables["sources"] += errors.by_sources()
        tables["verdict"].append(errors.verdict())
    progress("done", 1, 1)
    settings = dataclasses.asdict(config) | {"methods": list(METHODS)}
    seconds = sum(part.seconds for part in found)
    return Record("attention", settings, tables, seconds, environment_of(found), arrays)


def _settings(config: Config, *without: str) -> dict[str, Any]:
    """Settings of a part: not how many parts there are, and the methods that its arrays are in the order of."""
    return settings_without(config, "surfaces", "n_seeds", "n_learned", *without) | {"methods": list(METHODS)}


def _part(
    parts: Path | None, name: str, settings: dict[str, Any], arrays: Callable[[], dict[str, FloatArray]]
) -> Record:
    """A part that is some arrays."""

    def measure() -> Record:
        start = time.perf_counter()
        with one_blas_thread():  # the last bits of products depend on the number of threads
            found = arrays()
        return Record(name, {}, {}, time.perf_counter() - start, arrays=found)

    return finished_part(parts, f"attention-{name}", settings, measure)


def _tell(progress: Progress, config: Config, where: str, done: int, row: int, method: str) -> None:
    total = len(config.surfaces) * config.n_seeds
    progress(f"{where}: {method}", done * len(METHODS) + row, total * len(METHODS))


def _draw(name: str, config: Config, seed: int, tell: Callable[[int, str], None]) -> dict[str, FloatArray]:
    """Errors of all methods on one draw and the parameters that they chose, shape (methods, sources)."""
    trial = draw_trial(name, config, seed)
    shown = trial.drawn() if seed == 0 else {}
    rows = []
    for row, (method, how) in enumerate(METHODS.items()):
        tell(row, method)
        filled = how.fill(trial.task)
        rows.append((*errors_of(filled, trial.hidden), filled.parameters))
        if seed == 0 and method in _SHOWN:
            shown[f"{name}_{_SHOWN[method]}"] = trial.whole(filled.values)
    return shown | {key: np.stack(column) for key, column in zip(_MEASURES, zip(*rows, strict=True), strict=True)}


def _learn(name: str, config: Config, seed: int, progress: Progress) -> dict[str, FloatArray]:
    """Errors of the paper's learned features on one draw, shape (sources,)."""
    progress(f"{name}, seed {seed}: {LEARNED}", seed, config.n_learned)
    trial = draw_trial(name, config, seed)
    mse, l2 = errors_of(fill_learned(trial.task, config.recipe, seed), trial.hidden)
    return {"mse": mse, "l2": l2}


def errors_of(filled: Filled, hidden: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean squared and relative l2 errors of every signal."""
    gaps = ((filled.values - hidden) ** 2).mean(axis=0)
    return gaps, np.sqrt(gaps / (hidden**2).mean(axis=0))


@dataclass(frozen=True, eq=False)
class Trial:
    """One draw of tokens, mask and signals.

    Attributes
    ----------
    name : str
        The surface.
    task : Task
        What methods see.
    hidden : array of shape (n - v, c)
        Values of the masked tokens, which methods do not see.
    """

    name: str
    task: Task
    hidden: FloatArray

    def whole(self, filled: FloatArray) -> FloatArray:
        """The last signal at all tokens, with the values that a method filled in, shape (n,)."""
        values = np.zeros(len(self.task.points))
        values[self.task.visible], values[self.task.masked] = self.task.known[:, -1], filled[:, -1]
        return values

    def drawn(self) -> dict[str, Any]:
        """Data of the picture."""
        shown = {"points": self.task.points, "visible": self.task.visible, "signal": self.whole(self.hidden)}
        return {f"{self.name}_{key}": value for key, value in shown.items()}


def draw_trial(name: str, config: Config, seed: int, surface: TokenSurface | None = None) -> Trial:
    """Tokens uniform by area, their graph, a random mask, and one signal for each number of sources."""
    streams, surface = Streams.from_seed(config.seed), surface or SURFACES[name]
    n, n_visible = config.tokens_on(name)
    tokens = surface.sample(n, streams.generator(f"{name} {seed} tokens"))
    heat = surface.draw_sources(config.sources, streams.generator(f"{name} {seed} sources"))
    values = tokens.read(surface.diffuse(heat))  # (n, c)
    visible = np.sort(streams.generator(f"{name} {seed} mask").permutation(n)[:n_visible])
    folds = streams.generator(f"{name} {seed} folds").permutation(n_visible) % _FOLDS
    graph = knn_graph(tokens.points, n_neighbors=config.n_neighbors)
    own = Streams.from_seed(streams.generator(f"{name} {seed} methods"))
    task = Task(graph, visible, values[visible], folds, config.n_features, own)
    return Trial(name, task, values[task.masked])


def geometric_mean(values: FloatArray) -> float:
    """Exponential of the mean logarithm.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.attention import geometric_mean
    >>> round(geometric_mean(np.array([1.0, 4.0])), 12)
    2.0
    """
    return float(np.exp(np.log(values).mean()))


@dataclass(frozen=True, eq=False)
class _Errors:
    """Errors of all methods on one surface, mean squared and relative l2, and the parameters that they chose.

    All of shape (methods, seeds, sources).
    """

    name: str
    config: Config
    mse: FloatArray
    l2: FloatArray
    parameters: FloatArray

    def of(self, method: str) -> FloatArray:
        """Mean squared errors of a method, shape (seeds, sources)."""
        return np.asarray(self.mse[list(METHODS).index(method)])

    def ratio(self, method: str, other: str = OWN) -> float:
        """Geometric mean of the errors of a method over those of another on the same signals."""
        return geometric_mean(self.of(method) / self.of(other))

    def summary(self) -> list[dict[str, Any]]:
        """Rows of the table ``attention``."""
        n = self.config.tokens_on(self.name)[0]
        rows = []
        for row, (method, how) in enumerate(METHODS.items()):
            few = self.config.n_features if how.group not in (EXACT, REFERENCE) else None
            # The paper's MRF are its learned features: its numbers are beside those, if there are any.
            has_learned = method == OWN and self.config.n_learned > 0
            mse, paper = self.mse[row], None if has_learned else self._paper(method)
            chosen = None if how.group == REFERENCE else float(np.median(self.parameters[row]))
            rows.append(
                {"surface": self.name, "method": method, "group": how.group}
                | {"features": n // 4 if method == SPARSE else few, "parameter": chosen}
                | {"median": float(np.median(mse)), "mean": float(mse.mean()), "mse": geometric_mean(mse)}
                | {"ratio": self.ratio(method), "l2": float(np.median(self.l2[row]))}
                | _mean_published(paper)
            )
        return rows

    def learned(self, mse: FloatArray, l2: FloatArray) -> dict[str, Any]:
        """The row of the paper's learned features, from errors on the first seeds, shape (seeds, sources)."""
        return (
            {"surface": self.name, "method": LEARNED, "group": INTRINSIC, "features": self.config.n_features}
            | {"parameter": self.config.recipe.tau, "median": float(np.median(mse)), "mean": float(mse.mean())}
            | {"mse": geometric_mean(mse), "ratio": geometric_mean(mse / self.of(OWN)[: len(mse)])}
            | {"l2": float(np.median(l2))}
            | _mean_published(self._paper(OWN))
        )

    def by_sources(self) -> list[dict[str, Any]]:
        """Rows of the table ``sources``."""
        rows = []
        for row, method in enumerate(METHODS):
            paper = self._paper(method)
            for place, count in enumerate(self.config.sources):
                mse, l2 = (geometric_mean(errors[row, :, place]) for errors in (self.mse, self.l2))
                key = {"surface": self.name, "method": method, "sources": count}
                published = None if paper is None or count not in PAPER_SOURCES else PAPER_SOURCES.index(count)
                rows.append(
                    key
                    | {"mse": mse, "ratio": mse / geometric_mean(self.of(OWN)[:, place]), "l2": l2}
                    | {
                        name: None if paper is None or published is None else paper[name][published]
                        for name in _PUBLISHED
                    }
                )
        return rows

    def _paper(self, method: str) -> dict[str, tuple[float, ...]] | None:
        """The paper's errors of a method, if it reports them."""
        if self.name != PAPER_SURFACE or method not in PAPER:
            return None
        return dict(zip(_PUBLISHED, PAPER[method], strict=True))

    def verdict(self) -> dict[str, Any]:
        """Features of the surface against the best of each kind; ratios above 1 favour features of the surface."""
        positive = min(_rivals(positive=True), key=self.ratio)
        ambient = min(_rivals(positive=False), key=self.ratio)
        return {
            "surface": self.name,
            "mrf": geometric_mean(self.of(OWN)),
            "positive": positive,
            "over_positive": self.ratio(positive),
            "ambient": ambient,
            "over_ambient": self.ratio(ambient),
            "over_nystrom": self.ratio(NYSTROM),
            "over_rbf": self.ratio(RBF),
            "over_heat": self.ratio(HEAT),
            "geometry": self._in_words(ambient),
        }

    def _in_words(self, ambient: str) -> str:
        """Whether distances along the surface help, for the exact kernels and for few features."""
        kernel, features = self.ratio(RBF, HEAT), self.ratio(ambient)
        text = f"errors in space over those along the surface: exact kernel {kernel:.2f}, features {features:.2f}"
        if kernel >= _TIE and features >= _TIE:
            return f"helps; {text}"
        return f"does not help; {text}" if max(kernel, features) < _TIE else f"helps in part; {text}"


def _mean_published(paper: dict[str, tuple[float, ...]] | None) -> dict[str, Any]:
    """Means of the paper's errors over its numbers of sources."""
    return {key: None if paper is None else float(np.mean(paper[key])) for key in _PUBLISHED}


def _rivals(*, positive: bool) -> list[str]:
    """Feature methods of equal budget that are not from this library: all positive ones, or all ambient ones."""
    rivals = [name for name, how in METHODS.items() if how.group == AMBIENT]
    return [name for name in rivals if METHODS[name].is_positive] if positive else rivals
