"""Methods that fill in masked values of tokens: by features, by exact kernels, by solving with what is known.

A token gets y_i = sum_j k(i, j) y_j / sum_j k(i, j) over the visible tokens j. Kernels on the graph are taken in
the form of the random walk: sources have weights sqrt(d_j), so that the rows of the whole kernel sum to 1.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._random import Streams
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.applications._solves import System, biharmonic, harmonic, solve_with_fixed
from manifoldrf.applications.smoothing import feature_action, smooth
from manifoldrf.baselines._base import gaussian_kernel
from manifoldrf.baselines._eigen import eigenpairs
from manifoldrf.baselines.fourier import ORF, RFF
from manifoldrf.baselines.nystrom import inverse_root
from manifoldrf.baselines.positive import PORF, PRF
from manifoldrf.fields.anchors import farthest_anchors
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from manifoldrf.signatures.teachers import compute_signatures
from reproduction._token_anchors import (
    Anchors,
    along_edges,
    farthest_along_edges,
    in_space,
    medoid_anchors,
    with_cells,
)

TAUS = tuple(2.0**k for k in range(7))  # steps of the walk, 1 to 64; nine signals of ten choose one in between
SIGMAS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.22, 0.32, 0.47, 0.7)  # widths of Gaussians in space

_ROUNDING = 1e-10  # of signatures, whose largest possible entry is 1
_CUT = 1e-3  # of the largest entry of a sparse signature; what is below would cost more than it brings
_NOTHING = 1e-200  # sums of features below it are those of no source; their inverse would overflow
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
        Part of the visible tokens that each belongs to, for cross-validation.
    n_features : int
        Of methods of low rank.
    streams : Streams
        Of the methods that draw.
    """

    graph: Graph
    visible: IntArray
    known: FloatArray
    folds: IntArray
    n_features: int
    streams: Streams

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
        return medoid_anchors(farthest_anchors(self.graph, self.n_features), *in_space(self.points))

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
        Whether every feature, nonnegative, is divided by its sum over the sources. An anchor then stands for
        the mean of the values around it, however many tokens are visible there.
    """

    left: Any
    right: Any
    share: FloatArray
    balanced: bool = False

    def reconstruct(self, known: FloatArray, sources: IntArray, targets: IntArray) -> FloatArray:
        """Values of some tokens from some of the visible ones, shape (len(targets), c).

        Where the weights do not sum to something positive it is the mean of the visible values, which only helps
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
        found = smooth(action, known[sources], self.share[sources])
        return np.where(found.mass[:, None] > 0, found.values, known[sources].mean(axis=0))


# Candidates of a method: its parameter and the kernel that belongs to it.
Candidates = Iterator[tuple[float, Weights]]


@dataclass(frozen=True, eq=False)
class Filled:
    """What a method makes of a task: values of the masked tokens (n - v, c), parameters that it chose (c,)."""

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
    """Sum of squared errors at visible tokens that are left out in turn, for every signal, shape (c,)."""
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
    for tau in TAUS:
        rows = signatures(task.graph, tau, anchors.nodes) * np.sqrt(anchors.cells)
        yield tau, _of_surface(task, rows, balanced=balanced)


def mrf(task: Task) -> Candidates:
    """Features of the surface: anchors in the middle of their cells, weighted by the visible tokens around them.

    Weights follow from where tokens are visible, not from their values.
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
    return _positive(task, with_cells(farthest_anchors(task.graph, task.n_features), in_space(task.points)[0]))


def mrf_uniform(task: Task) -> Candidates:
    """Uniform anchors of equal weight, as in the paper."""
    return _positive(task, _alike(task.uniform))


def mrf_sparse(task: Task) -> Candidates:
    """An anchor to four tokens, weighted by its cell, and signatures without tails: few entries to a token."""
    start = farthest_along_edges(task.graph, max(1, task.graph.n_nodes // _SPARSE_SHARE))
    anchors = with_cells(start, along_edges(task.graph)[0])
    for tau in TAUS:
        yield tau, _of_surface(task, sparse_features(task.graph, tau, anchors))


def sparse_features(graph: Graph, tau: float, anchors: Anchors) -> Any:
    """Features without entries below a thousandth of the largest of their anchor, CSR (n, m)."""
    columns = signatures(graph, tau, anchors.nodes)
    cut = np.where(columns >= _CUT * columns.max(axis=0), columns, 0.0)
    return sparse.csr_array(cut * np.sqrt(anchors.cells))


def geodesic_nystrom(task: Task) -> Candidates:
    """K(i, A) K(A, A)^(-1/2) for the kernel of the graph and the same anchors: signed."""
    anchors = task.medoids.nodes
    for tau in TAUS:
        columns = DiffusionKernel(tau).matrix(task.graph, cols=anchors)
        yield tau, _of_surface(task, columns @ inverse_root(columns[anchors])[0])


def diffusion_map(task: Task) -> Candidates:
    """Eigenvectors of the graph times the roots of the kernel's eigenvalues: signed."""
    pairs = eigenpairs(task.graph, DiffusionKernel(1.0).spectral, task.n_features)
    for tau in TAUS:
        yield tau, _of_surface(task, pairs.vectors * np.sqrt(DiffusionKernel(tau).spectral(pairs.values)))


def exact_heat(task: Task) -> Candidates:
    """The kernel of the graph itself."""
    share = np.sqrt(task.graph.degrees[task.visible])
    for tau in TAUS:
        yield tau, _whole(DiffusionKernel(tau).matrix(task.graph, cols=task.visible), share)


def _whole(kernel: FloatArray, share: FloatArray) -> Weights:
    """A kernel that is given as it is, shape (n, v)."""
    return Weights(kernel, sparse.eye_array(kernel.shape[1], format="csr"), share)


# ----------------------------------------------------------------------------- features of the space around it
def random_features(task: Task, kind: Callable[..., Any]) -> Candidates:
    """Random features of the Gaussian kernel; the same draws for all widths."""
    for sigma in SIGMAS:
        drawn = kind(
            n_features=task.n_features, sigma=sigma, random_state=task.streams.generator("random features")
        )
        yield sigma, _of_space(task, drawn.fit(task.points).transform(task.points))


def _linear_rbf(task: Task, anchors: Anchors, *, balanced: bool = False) -> Candidates:
    """Gaussians around anchors, narrower by sqrt(2): their products add up to a Gaussian of width sigma."""
    for sigma in SIGMAS:
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
    start = farthest_anchors(task.graph, task.n_features)
    return _linear_rbf(task, with_cells(start, in_space(task.points)[0]))


def linear_rbf_uniform(task: Task) -> Candidates:
    """The uniform anchors of the features of the surface."""
    return _linear_rbf(task, _alike(task.uniform))


def exact_rbf(task: Task) -> Candidates:
    """The Gaussian kernel itself."""
    for sigma in SIGMAS:
        kernel = gaussian_kernel(task.points, task.points[task.visible], sigma)
        yield sigma, _whole(kernel, np.ones(len(task.visible)))


# ------------------------------------------------------------------------------------------------- references
def solve(task: Task, system_of: Callable[[Graph], System]) -> Filled:
    """Solve with the visible values fixed; that is no attention, but shows what the signals allow."""
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


# Names that others ask for.
OWN, SPARSE, NYSTROM, RBF, HEAT = "MRF", "MRF sparse", "geodesic Nystrom", "exact RBF", "exact heat"
INTRINSIC, SIGNED, AMBIENT = "surface, positive", "surface, signed", "space around"
EXACT, REFERENCE = "exact kernel", "reference"
METHODS: Mapping[str, Method] = MappingProxyType(
    {
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
)
