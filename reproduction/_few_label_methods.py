"""Methods that learn from few labels, each with 24 settings of which the first is its default."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.neighbors import NearestNeighbors

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.baselines._base import gaussian_kernel
from manifoldrf.baselines.spectral import DiffusionMap
from manifoldrf.features.graph_options import GraphOptions
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from reproduction._few_label_rules import (
    AbstractRule,
    Nearest,
    Ridge,
    Spread,
    Vote,
    spreading_operator,
)

OWN, OWN_VOTE = "MRF + ridge", "MRF + vote"
N_SETTINGS = 24  # of every method

# Graphs and steps of the walk; the first of each are the paper's.
_GRAPHS: Mapping[str, GraphOptions] = MappingProxyType(
    {
        "8 neighbours": GraphOptions(kind="knn", n_neighbors=8),
        "8 neighbours, local width": GraphOptions(kind="knn", n_neighbors=8, bandwidth="local"),
    }
)
_TAUS = (20.0, 60.0, 200.0)
_PENALTIES = (1e-2, 1.0)  # of a ridge, where rows have a mean squared length of one
_WIDTHS = (1.0, 0.5, 0.25, 0.125, 2.0, 0.0625)  # of Gaussians, over scikit-learn's gamma="scale"
_NEAR = 7  # neighbour whose median distance is the unit of narrow Gaussians
_NARROW = (1.0, 0.5, 0.7, 1.4, 2.0, 4.0)
_ALPHAS = (0.2, 0.5, 0.9, 0.99)  # of label spreading; the first is its default
_STEPS = (20.0, 5.0, 80.0)  # of a diffusion map

Setting = tuple[str, AbstractRule]


@dataclass(frozen=True, eq=False)
class Stage:
    """A cloud as all methods see it.

    Attributes
    ----------
    seen : array of shape (n, d)
        Points that may be looked at, labelled or not.
    new : array of shape (q, d)
        Points that no method sees before it is fitted.
    own : int array of shape (l,)
        Those of ``seen`` that any draw labels.
    n_features : int
    seed : int
    """

    seen: FloatArray
    new: FloatArray
    own: IntArray
    n_features: int
    seed: int

    @cached_property
    def everything(self) -> FloatArray:
        """Seen points, then new ones."""
        return np.vstack([self.seen, self.new])

    @cached_property
    def own_maps(self) -> tuple[tuple[str, FloatArray], ...]:
        """Features of the manifold in the graph clock, of all points, by name of the setting."""
        return tuple(_own_maps(self))

    @cached_property
    def wide(self) -> float:
        """The width of a Gaussian by scikit-learn's rule: gamma = 1 / (d variance)."""
        return float(np.sqrt(self.seen.shape[1] * self.seen.var() / 2))

    @cached_property
    def near(self) -> float:
        """Median distance to the seventh neighbour."""
        return float(np.median(cKDTree(self.seen).query(self.seen, _NEAR + 1)[0][:, -1]))

    def linear(self, rows: FloatArray) -> FloatArray:
        """Inner products of features with those that may be labelled; rows have a mean squared length of one."""
        size = float((rows[: len(self.seen)] ** 2).sum(axis=1).mean())
        return np.asarray(rows @ rows[self.own].T) / size


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of length one; those of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


# -------------------------------------------------------------------------------------------------------- features
def _own_maps(stage: Stage) -> Iterator[tuple[str, FloatArray]]:
    """Features of the manifold, in the graph clock."""
    for (name, options), tau in itertools.product(_GRAPHS.items(), _TAUS):
        features = ManifoldRandomFeatures(
            DiffusionKernel(tau),
            n_features=stage.n_features,
            field="step",  # what "auto" takes at these times, at a quarter of the cost
            graph=options,
            random_state=stage.seed,
        )
        yield f"{name}, tau {tau:g}", features.fit(stage.seen).transform(stage.everything)


def _fourier_maps(stage: Stage) -> Iterator[tuple[str, FloatArray]]:
    for width in _WIDTHS:
        gamma = 1 / (2 * (width * stage.wide) ** 2)
        sampler = RBFSampler(gamma=gamma, n_components=stage.n_features, random_state=stage.seed)
        yield f"width {width:g}", sampler.fit(stage.seen).transform(stage.everything)


def _landmark_maps(stage: Stage) -> Iterator[tuple[str, FloatArray]]:
    count = min(stage.n_features, len(stage.seen))
    for width in _WIDTHS:
        gamma = 1 / (2 * (width * stage.wide) ** 2)
        landmarks = Nystroem(gamma=gamma, n_components=count, random_state=stage.seed)
        yield f"width {width:g}", landmarks.fit(stage.seen).transform(stage.everything)


def _diffusion_maps(stage: Stage) -> Iterator[tuple[str, FloatArray]]:
    for count, steps in itertools.product((stage.n_features, stage.n_features // 8), _STEPS):
        diffusion = DiffusionMap(n_features=count, steps=steps).fit(stage.seen)
        yield f"{count} features, {steps:g} steps", diffusion.transform(stage.everything)


Maps = Callable[[Stage], Iterable[tuple[str, FloatArray]]]


def _linear(maps: Maps, stage: Stage) -> Iterator[Setting]:
    """Six maps, rows of length one or as they are, two penalties."""
    for name, rows in maps(stage):
        for form, kernel in (
            ("unit rows", stage.linear(unit_rows(rows))),
            ("rows as they are", stage.linear(rows)),
        ):
            for penalty in _PENALTIES:
                yield f"{name}, {form}, penalty {penalty:g}", Ridge(kernel, stage.own, penalty)


def _own_votes(stage: Stage) -> Iterator[Setting]:
    """Six maps, rows of length one or as they are, all labelled points or the nearest one."""
    for name, rows in stage.own_maps:
        for form, kernel in (
            ("unit rows", stage.linear(unit_rows(rows))),
            ("rows as they are", stage.linear(rows)),
        ):
            yield f"{name}, {form}, vote", Vote(kernel, stage.own)
            lengths = kernel[stage.own, np.arange(len(stage.own))]
            yield f"{name}, {form}, nearest", Nearest(lengths - 2 * kernel, stage.own)  # up to the row's own length


# ----------------------------------------------------------------------------------------------------- no features
def _kernel_ridge(stage: Stage) -> Iterator[Setting]:
    """The Gaussian itself, on labelled points only: what features of it tend to."""
    for width in _WIDTHS:
        kernel = gaussian_kernel(stage.everything, stage.seen[stage.own], width * stage.wide)
        for penalty in (_PENALTIES[0], 1e-3, 0.1, _PENALTIES[1]):
            yield f"width {width:g}, penalty {penalty:g}", Ridge(kernel, stage.own, penalty)


def _raw_neighbors(stage: Stage) -> Iterator[Setting]:
    points, directions = stage.everything, unit_rows(stage.everything)
    for (form, rows), metric in itertools.product(
        (("points", points), ("directions", directions)), ("euclidean", "cityblock")
    ):
        distances = cdist(rows, rows[stage.own], metric)
        for k, weighted in itertools.product((1, 3, 5), (False, True)):
            yield f"{form}, {metric}, k {k}{', weighted' * weighted}", Nearest(distances, stage.own, k, weighted)


def _spreading_neighbors(stage: Stage) -> Iterator[Setting]:
    """Neighbours as scikit-learn takes them, of each point, and those of either of two."""
    for both, k in itertools.product((False, True), (7, 15, 30)):
        search = NearestNeighbors(n_neighbors=k).fit(stage.seen)  # whose ties are those of LabelSpreading
        links, step = (sparse.csr_array(search.kneighbors_graph(points)) for points in (stage.seen, stage.new))
        affinity = links.maximum(links.T) if both else links
        for alpha in _ALPHAS:
            matrix = spreading_operator(affinity, alpha, stage.own)
            yield f"{k} neighbours{', either' * both}, alpha {alpha:g}", Spread(matrix, stage.own, step)


def _spreading_gaussian(stage: Stage) -> Iterator[Setting]:
    for width in _NARROW:
        kernel = gaussian_kernel(stage.everything, stage.seen, width * stage.near)
        for alpha in _ALPHAS:
            matrix = spreading_operator(kernel[: len(stage.seen)], alpha, stage.own)
            yield f"width {width:g}, alpha {alpha:g}", Spread(matrix, stage.own, kernel[len(stage.seen) :])


METHODS: Mapping[str, Callable[[Stage], Iterator[Setting]]] = MappingProxyType(
    {
        OWN: functools.partial(_linear, operator.attrgetter("own_maps")),
        OWN_VOTE: _own_votes,
        "RBFSampler + ridge": functools.partial(_linear, _fourier_maps),
        "Nystroem + ridge": functools.partial(_linear, _landmark_maps),
        "DiffusionMap + ridge": functools.partial(_linear, _diffusion_maps),
        "LabelSpreading, knn": _spreading_neighbors,
        "LabelSpreading, rbf": _spreading_gaussian,
        "kernel ridge, rbf": _kernel_ridge,
        "kNN": _raw_neighbors,
    }
)
MAIN = (OWN, "LabelSpreading, knn", "kernel ridge, rbf", "kNN")  # where not all methods are run
