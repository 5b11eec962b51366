"""Few labels on real clouds: features of the manifold against ambient features and graph methods.

Claim: on digits, a linear classifier on features of the manifold is better than all other methods with 1, 2 and 10
labels for each class, and ties with label spreading with 5. It mostly ties with the best other methods on the
cortex, and ties or is worse on photographs and the bunny. The table ``losses`` lists the differences.
"""

import dataclasses
import functools
import itertools
import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.neighbors import NearestNeighbors

from manifoldrf import DiffusionKernel, FarQueryWarning, KnnGraph, ManifoldRandomFeatures
from manifoldrf.geometry import estimate_dimension
from reproduction.baselines import DiffusionMap, gaussian_kernel
from reproduction.common import FloatArray, IntArray, generator, one_blas_thread, reject, without_warnings
from reproduction.few_label_clouds import Cloud, Damage, digits, photographs, plain_photographs, scan
from reproduction.record import Progress, Record
from reproduction.smoothers import quietly

# ------------------------------------------------------------------------------------------------------------ rules
_FOLDS = 5  # folds of a cross-validation; fewer if a class has fewer labels
_SMALLEST = 1e-12  # smaller distances are raised to this: a copy of a labelled point gets its class


@dataclass(frozen=True, eq=False)
class AbstractRule(ABC):
    """A classifier whose only input is one matrix.

    Attributes
    ----------
    matrix : array of shape (n, l)
        From all points to the l points that may be labelled: a kernel, distances, or an operator.
    own : int array of shape (l,)
        Rows of these points.
    """

    matrix: FloatArray
    own: IntArray

    @abstractmethod
    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Scores of the classes, shape (rows, c), from labelled columns (k,) and their classes, (k, c), 0 or 1."""


@dataclass(frozen=True, eq=False)
class Ridge(AbstractRule):
    """Ridge regression on zeros and ones in its dual form: ``RidgeClassifier(penalty, fit_intercept=False)``."""

    penalty: float

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """K_q (K + penalty)^-1 Y."""
        inner = self.matrix[np.ix_(self.own[chosen], chosen)]
        weights = linalg.solve(inner + self.penalty * np.eye(len(chosen)), targets, assume_a="pos")
        return np.asarray(self.matrix[rows][:, chosen] @ weights)


@dataclass(frozen=True, eq=False)
class Vote(AbstractRule):
    """Every labelled point votes for its class with the kernel as weight."""

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """K_q Y."""
        return np.asarray(self.matrix[rows][:, chosen] @ targets)


@dataclass(frozen=True, eq=False)
class Nearest(AbstractRule):
    """Votes of the nearest labelled points; the matrix holds distances."""

    k: int = 1
    weighted: bool = False  # by one over the distance

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Sums over the neighbours; the first one breaks ties."""
        distances = self.matrix[rows][:, chosen]
        k = min(self.k, len(chosen))
        near = np.argsort(distances, axis=1, kind="stable")[:, :k]
        weights = np.ones(near.shape)
        if self.weighted:
            weights = 1 / np.maximum(np.take_along_axis(distances, near, axis=1), _SMALLEST)
        weights[:, 0] *= 1 + 1e-9
        return np.asarray(np.einsum("qk,qkc->qc", weights, targets[near]))


@dataclass(frozen=True, eq=False)
class Spread(AbstractRule):
    """scikit-learn's ``LabelSpreading`` after infinitely many iterations.

    The matrix is (1 - alpha) (I - alpha S)^-1 on the points of the fit. New points, whose rows come last, get the
    mean of the distributions at their neighbours.

    Attributes
    ----------
    step : array or CSR of shape (new, seen)
    """

    step: Any = field(default=None)

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Distributions over the classes, zero where no label arrives."""
        seen = len(self.matrix)
        if isinstance(rows, np.ndarray) and rows.max() < seen:
            return _shares(self.matrix[rows][:, chosen] @ targets)
        known = _shares(self.matrix[:, chosen] @ targets)
        return np.asarray(np.vstack([known, self.step @ known])[rows])


def _shares(weights: FloatArray) -> FloatArray:
    """Rows that sum to one, or are zero."""
    sums = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0))


def spreading_operator(affinity: Any, alpha: float, columns: IntArray) -> FloatArray:
    """Columns of (1 - alpha) (I - alpha S)^-1, with S = -L off the diagonal as in scikit-learn, shape (n, l)."""
    n = affinity.shape[0]
    unit = np.zeros((n, len(columns)))
    unit[columns, np.arange(len(columns))] = 1 - alpha
    walk = -laplacian(affinity, normed=True)
    if sparse.issparse(walk):
        walk.setdiag(0.0)
        return np.asarray(splu(sparse.csc_array(sparse.eye_array(n) - alpha * walk)).solve(unit))
    np.fill_diagonal(walk, 0.0)
    return np.asarray(linalg.solve(np.eye(n) - alpha * walk, unit))


# ------------------------------------------------------------------------------------------------------ evaluation
@dataclass(frozen=True, eq=False)
class Draw:
    """Some labelled points and their folds for cross-validation.

    Attributes
    ----------
    chosen : int array of shape (k,)
        Columns of the matrices.
    targets : array of shape (k, c)
        Classes as zeros and ones.
    folds : int array of shape (k,)
        Number of the fold that leaves a point out; every class is in every fold. Empty for one label per class.
    """

    chosen: IntArray
    targets: FloatArray
    folds: IntArray

    @classmethod
    def of(cls, by_class: IntArray) -> "Draw":
        """Make a draw of columns, shape (c, labels of each class)."""
        c, per_class = by_class.shape
        folds = np.tile(np.arange(per_class) % min(per_class, _FOLDS), c)
        return cls(by_class.ravel(), np.repeat(np.eye(c), per_class, axis=0), folds if per_class > 1 else folds[:0])

    def validate(self, rule: AbstractRule) -> float:
        """Cross-validated accuracy at the labelled points; zero with one label per class."""
        if not len(self.folds):
            return 0.0
        hits = 0
        for number in range(self.folds.max() + 1):
            out = self.folds == number
            scores = rule.scores(self.chosen[~out], self.targets[~out], rule.own[self.chosen[out]])
            hits += int((scores.argmax(axis=1) == self.targets[out].argmax(axis=1)).sum())
        return hits / len(self.folds)

    def predict(self, rule: AbstractRule) -> IntArray:
        """Classes of all points."""
        return np.asarray(rule.scores(self.chosen, self.targets, slice(None)).argmax(axis=1))


# ---------------------------------------------------------------------------------------------------------- methods
OWN, OWN_VOTE = "MRF + ridge", "MRF + vote"

# Graphs and steps of the walk; the first of each are from the paper.
_GRAPHS: Mapping[str, KnnGraph] = {
    "8 neighbours": KnnGraph(),
    "8 neighbours, local width": KnnGraph(bandwidth="local"),
}
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
    """A cloud without classes, the input of all methods.

    Attributes
    ----------
    seen : array of shape (n, d)
        Points that may be looked at, labelled or not.
    new : array of shape (q, d)
        Points that are not used in any fit.
    own : int array of shape (l,)
        Points of ``seen`` that are labelled in any draw.
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
        """Inner products of all rows with those that may be labelled; rows have a mean squared length of one."""
        size = float((rows[: len(self.seen)] ** 2).sum(axis=1).mean())
        return np.asarray(rows @ rows[self.own].T) / size


def unit_rows(rows: FloatArray) -> FloatArray:
    """Scale rows to length one; zero rows are unchanged."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))


# -------------------------------------------------------------------------------------------------------- features
def _own_maps(stage: Stage) -> Iterator[tuple[str, FloatArray]]:
    """Features of the manifold, in the graph clock."""
    for (name, options), tau in itertools.product(_GRAPHS.items(), _TAUS):
        features = ManifoldRandomFeatures(
            DiffusionKernel(tau),
            normalize=False,
            n_features=stage.n_features,
            field="step",  # "auto" chooses the same at these times, at four times the cost
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
    """Six maps, rows scaled to length one or unchanged, two penalties."""
    for name, rows in maps(stage):
        for form, kernel in (
            ("unit rows", stage.linear(unit_rows(rows))),
            ("rows as they are", stage.linear(rows)),
        ):
            for penalty in _PENALTIES:
                yield f"{name}, {form}, penalty {penalty:g}", Ridge(kernel, stage.own, penalty)


def _own_votes(stage: Stage) -> Iterator[Setting]:
    """Six maps, rows scaled to length one or unchanged, all labelled points or the nearest one."""
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
    """The Gaussian kernel itself, on labelled points only: the limit of its features."""
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
    """The nearest neighbours of each point as in scikit-learn, and the same made symmetric."""
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


METHODS: Mapping[str, Callable[[Stage], Iterator[Setting]]] = {
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
MAIN = (OWN, "LabelSpreading, knn", "kernel ridge, rbf", "kNN")  # where not all methods are run


# --------------------------------------------------------------------------------------------------- the experiment
_OURS = (OWN, OWN_VOTE)
DRAWS = "draws"  # column with the accuracy of each draw, not part of the tables
CLOUDS = ("digits", "photographs", "photographs, plain", "bunny", "cortex")
_SCANS = ("bunny", "cortex")
_FLAT = "photographs, plain"  # with the main methods only, to show the effect of the metric
Make = Callable[[], Cloud]


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    clouds: tuple[str, ...] = CLOUDS
    labels: tuple[int, ...] = (1, 2, 5, 10)  # of each class
    n_draws: int = 10  # draws of labels; their spread is the spread of single experiments
    n_features: int = 512  # of all four kinds of features
    # Largest number of points of digits (which have fewer) and photographs: the time of label spreading grows with
    # the cube of this number.
    largest: int | None = 2000
    n_points: int = 2000  # of a scan
    noise: float = 0.3  # of a scan, over the median distance to the nearest point
    outliers: float = 0.05  # of a scan, over its number of points
    sweep: str = "cortex"  # the scan with increasing damage
    sweep_points: int = 1500
    noises: tuple[float, ...] = (0.0, 0.3, 0.6, 1.0, 1.5, 2.5)
    shares: tuple[float, ...] = (0.05, 0.2, 0.5, 1.0)  # of outliers, with the noise above
    sweep_labels: int = 5
    seed: int = 0


SIZES: dict[str, Config] = {
    "smoke": Config(
        clouds=("digits",),
        labels=(1, 5),
        n_draws=3,
        n_features=128,
        largest=600,
        noises=(0.0,),
        shares=(0.2,),
        sweep="bunny",
        sweep_points=600,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None) -> Record:
    """Classify points of real clouds from few labels by all methods, and damage a scan until all fail.

    Tables: ``accuracy`` (every method, cloud and number of labels), ``losses`` (where features of the manifold are
    behind the best other method, and by how much), ``sweep`` (noise and outliers) and ``clouds``. Arrays:
    accuracies at new points, draw by draw: ``new`` for rows of ``accuracy``, ``damaged`` for those of ``sweep``.
    """
    start = time.perf_counter()
    with one_blas_thread(), quietly(), without_warnings(FarQueryWarning):  # the sweep leaves the space
        made, notes = _make(config)
        accuracy = list(_measure(config, made, progress))
        sweep = list(_sweep(config, progress))
    progress("done", 1, 1)
    tables = {
        "accuracy": _without_draws(accuracy),
        "losses": find_losses(accuracy),
        "sweep": _without_draws(sweep),
        "clouds": [_describe(cloud) for cloud in made],
    }
    settings = dataclasses.asdict(config) | {"notes": notes}
    arrays = {
        name: np.array([row[DRAWS] for row in rows]) for name, rows in (("new", accuracy), ("damaged", sweep))
    }
    return Record("few_labels", settings, {name: rows for name, rows in tables.items() if rows},
                  time.perf_counter() - start, arrays=arrays)  # fmt: skip


def _without_draws(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{column: value for column, value in row.items() if column != DRAWS} for row in rows]


# ---------------------------------------------------------------------------------------------------------- clouds
def _make(config: Config) -> tuple[list[Cloud], list[str]]:
    """The clouds of a run, and notes about those whose package is not installed."""
    damage = Damage(config.noise, config.outliers)
    makers: Mapping[str, Make] = {
        "digits": partial(digits, config.seed, config.largest),
        "photographs": partial(photographs, config.seed, config.largest),
        _FLAT: partial(plain_photographs, config.seed, config.largest),
    } | {name: partial(scan, name, config.n_points, damage, config.seed) for name in _SCANS}
    found, notes = [], []
    for name in config.clouds:
        try:
            found.append(makers[name]())
        except ImportError as error:
            notes.append(f"{name} left out: {error}")
    return found, notes


def _describe(cloud: Cloud) -> dict[str, Any]:
    return {
        "cloud": cloud.name,
        "seen": len(cloud.seen),
        "new": len(cloud.new),
        "coordinates": cloud.seen.shape[1],
        "dimension": estimate_dimension(cloud.seen),
        "classes": cloud.n_classes,
    }


# -------------------------------------------------------------------------------------------------------- accuracy
@dataclass(frozen=True, eq=False)
class Trial:
    """A cloud with its draws of labels.

    Attributes
    ----------
    cloud : Cloud
    stage : Stage
    draws : dict of int to list of Draw
        By number of labels for each class. Draws with fewer labels are subsets of draws with more.
    """

    cloud: Cloud
    stage: Stage
    draws: dict[int, list[Draw]]

    @classmethod
    def of(cls, cloud: Cloud, labels: Sequence[int], config: Config) -> "Trial":
        """Draw labels for each class, none for outliers."""
        rng = generator(config.seed, f"few labels {cloud.name} draws")
        members = [np.flatnonzero(cloud.classes == number) for number in range(cloud.n_classes)]
        most = max(labels)
        if min(map(len, members)) <= most:
            reject("labels", "fewer than the points of every class", f"{most} of {min(map(len, members))}")
        drawn = np.array(
            [[rng.choice(own, most, replace=False) for own in members] for _ in range(config.n_draws)]
        )  # (draws, classes, labels)
        own, columns = np.unique(drawn, return_inverse=True)
        columns = columns.reshape(drawn.shape)
        stage = Stage(cloud.seen, cloud.new, own, config.n_features, config.seed)
        return cls(cloud, stage, {k: [Draw.of(part[:, :k]) for part in columns] for k in labels})

    def judge(self, draw: Draw, rule: AbstractRule) -> tuple[float, float]:
        """Share of correct classes among seen points without a label, and among new ones."""
        found, n = draw.predict(rule), len(self.cloud.seen)
        counted = self.cloud.classes >= 0
        counted[self.stage.own[draw.chosen]] = False
        seen = found[:n][counted] == self.cloud.classes[counted]
        return float(seen.mean()), float((found[n:] == self.cloud.new_classes).mean())

    def tune(self, method: str) -> dict[int, dict[str, Any]]:
        """Accuracies of a method, by number of labels.

        For every draw, the setting with the best cross-validation on its labels is used; ties go to the first. With
        one label for each class there is no cross-validation, and the first setting is used.
        """
        scores: dict[int, list[list[float]]] = {k: [] for k in self.draws}
        found: dict[int, list[list[tuple[float, float]]]] = {k: [] for k in self.draws}
        for _, rule in METHODS[method](self.stage):
            for k, draws in self.draws.items():
                scores[k].append([draw.validate(rule) for draw in draws])
                found[k].append([self.judge(draw, rule) for draw in draws])
        return {k: summarise(np.array(scores[k]), np.array(found[k])) for k in self.draws}


def _measure(config: Config, clouds: list[Cloud], progress: Progress) -> Iterator[dict[str, Any]]:
    """Rows of all methods on all clouds."""
    for place, cloud in enumerate(clouds):
        trial = Trial.of(cloud, config.labels, config)
        for method in MAIN if cloud.name == _FLAT else METHODS:
            progress(f"{cloud.name}: {method}", place, len(clouds) + 1)
            for k, row in trial.tune(method).items():
                yield {"cloud": cloud.name, "method": method, "labels": k} | row


def summarise(scores: FloatArray, found: FloatArray) -> dict[str, Any]:
    """Means and standard deviations over draws of the accuracies of the chosen settings.

    Parameters
    ----------
    scores : array of shape (settings, draws)
        Of the cross-validation.
    found : array of shape (settings, draws, 2)
        Accuracies at seen and at new points.

    Examples
    --------
    >>> row = summarise(np.array([[0.5, 0.9], [0.7, 0.9]]), np.array([[[0.4, 0.4]] * 2, [[0.6, 0.8]] * 2]))
    >>> round(row["new"], 6), round(row["hindsight"], 6)
    (0.6, 0.8)
    """
    chosen = scores.argmax(axis=0)
    own = found[chosen, np.arange(scores.shape[1])]  # (draws, 2)
    spread = own.std(axis=0, ddof=1) if len(own) > 1 else np.zeros(2)
    return {
        "seen": float(own[:, 0].mean()),
        "seen_spread": float(spread[0]),
        "new": float(own[:, 1].mean()),
        "new_spread": float(spread[1]),
        "hindsight": float(found[:, :, 1].mean(axis=1).max()),  # the best single setting, chosen on the new points
        DRAWS: own[:, 1].tolist(),
    }


def find_losses(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The better of our methods against the best of the others, at new points of every cloud.

    The error of a lead is the standard error of its mean over draws of labels, which are the same for all methods.
    Leads up to twice this error count as ties.
    """
    losses = []
    for cloud, labels in dict.fromkeys((row["cloud"], row["labels"]) for row in rows):
        here = [row for row in rows if (row["cloud"], row["labels"]) == (cloud, labels)]
        own = max((row for row in here if row["method"] in _OURS), key=lambda row: row["new"])
        other = max((row for row in here if row["method"] not in _OURS), key=lambda row: row["new"])
        gaps = np.subtract(own[DRAWS], other[DRAWS])
        lead, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.inf
        verdict = "even" if abs(lead) <= 2 * error else "ahead" if lead > 0 else "behind"
        losses.append(
            {"cloud": cloud, "labels": labels, "ours": own["method"], "ours_new": own["new"]}
            | {"rival": other["method"], "rival_new": other["new"], "lead": lead, "error": error, "we_are": verdict}
        )
    return losses


# ----------------------------------------------------------------------------------------------------------- sweep
def _sweep(config: Config, progress: Progress) -> Iterator[dict[str, Any]]:
    """Accuracy of the main methods on one scan with more noise, and with more outliers."""
    damages = [Damage(noise, 0.0) for noise in config.noises]
    damages += [Damage(config.noise, share) for share in config.shares]
    for place, damage in enumerate(damages):
        try:
            cloud = scan(config.sweep, config.sweep_points, damage, config.seed)
        except ModuleNotFoundError:
            return
        trial = Trial.of(cloud, (config.sweep_labels,), config)
        for method in MAIN:
            progress(f"noise {damage.noise:g}, outliers {damage.outliers:g}: {method}", place, len(damages))
            found = trial.tune(method)[config.sweep_labels]
            key = {"noise": damage.noise, "outliers": damage.outliers, "dimension": estimate_dimension(cloud.seen)}
            yield key | {"method": method} | found
