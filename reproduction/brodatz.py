"""Textures from six labelled windows each: features of a cloud of 15-dimensional descriptors against others.

Claim: unlabelled windows at other angles show where the descriptors of a texture lie. Features of their cloud use
this information: more groups of rotated windows are recognised than with raw descriptors or with ambient features.
The unlabelled windows can also be used to weight the labelled ones. Most methods gain from this, so the results are
reported in three blocks: unweighted neighbours ("plain", the paper's protocol), weighted by their mean over the
cloud ("share"), and weighted so that all have the same share of it ("balanced").
"""

import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.decomposition import KernelPCA

from manifoldrf._random import generator
from manifoldrf._runtime import map_threads, one_blas_thread, without_warnings
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_jobs, reject
from manifoldrf.applications.neighbors import cloud_weights, largest_columns, majority, weighted
from manifoldrf.baselines._base import gaussian_kernel
from manifoldrf.baselines.nystrom import Nystrom
from manifoldrf.baselines.random_features import ORF, PORF, PRF, RFF
from manifoldrf.baselines.spectral import DiffusionMap
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import GraphOptions
from manifoldrf.features.problem import FarQueryWarning
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.kernels.graph_kernels import DiffusionKernel, PowerKernel
from manifoldrf.signatures.engines import Progress
from reproduction.record import Record
from reproduction.smoothers import quietly
from reproduction.texture_data import Plates, builtin_plates, read_plates
from reproduction.texture_views import Protocol, Views, draw_views

# ------------------------------------------------------------------------------------------------------------ rules
PLAIN = "plain"  # the paper's protocol: neighbours in features
SHARE = "share"  # values over their mean over the cloud
BALANCED = "balanced"  # labelled windows share the cloud equally
# Rules are tried in this order; ties go to the first.
RULES: dict[str, tuple[str, ...]] = {
    PLAIN: ("euclidean", "cosine", "kernel"),
    SHARE: ("share",),
    BALANCED: ("balanced",),
}

_RANKED_AT_ONCE = 2048  # rows that are sorted at a time


@dataclass(frozen=True, eq=False)
class Values:
    """Inner products C(x, l) = phi(x) . phi(l) of a method's features with those of l labelled windows.

    Attributes
    ----------
    labelled : array of shape (l, l)
    cloud : array of shape (n, l)
        From some unlabelled windows.
    norms2 : array of shape (l,)
        Squared lengths of the features of labelled windows.
    of_test : callable
        Returns the values from all test windows, shape (t, l). They are large, and most settings do not need them.
    """

    labelled: NDArray[Any]
    cloud: NDArray[Any]
    norms2: NDArray[Any]
    of_test: Callable[[], NDArray[Any]]

    def ranks(self, found: NDArray[Any], rule: str, columns: Any = slice(None)) -> NDArray[Any]:
        """How near labelled windows are by a rule, larger is nearer: from values of the same shape (q, some of l).

        The rules are those of :class:`KernelNeighborsClassifier`, up to a factor and a constant for each row.
        """
        norms2 = self.norms2[columns].astype(np.float64)
        if rule == "euclidean":
            return np.asarray(2 * found - norms2)
        if rule == "cosine":
            return np.asarray(found * np.sqrt(reciprocal(norms2)))
        if rule == "kernel":
            return found
        return weighted(found, cloud_weights(self.cloud[:, columns], balanced=rule == "balanced"))


def validate(values: Values, rule: str, views: Views) -> float:
    """Percentage of labelled windows recognised from those of other angles; test windows are not used."""
    hits = []
    for angle in np.unique(views.labelled_angle):
        known = views.labelled_angle == angle
        ranks = values.ranks(values.labelled[np.ix_(~known, known)], rule, known)
        found = views.labelled_y[known][ranks.argmax(axis=1)]
        hits.append(np.mean(found == views.labelled_y[~known]))
    return 100 * float(np.mean(hits))


def group_accuracy(found: IntArray, views: Views) -> float:
    """Share of groups of test windows whose most frequent class is the right one, in percent.

    Ties go to the first class.
    """
    n_classes = int(views.labelled_y.max()) + 1
    votes = np.zeros((int(views.test_group[-1]) + 1, n_classes), dtype=np.int64)
    np.add.at(votes, (views.test_group, found), 1)
    truth = np.zeros(len(votes), dtype=np.int64)
    truth[views.test_group] = views.test_y
    return 100 * float(np.mean(votes.argmax(axis=1) == truth))


def nearest_accuracy(test: NDArray[Any], values: Values, rule: str, views: Views) -> float:
    """Group accuracy of the one nearest labelled window."""
    return group_accuracy(views.labelled_y[values.ranks(test, rule).argmax(axis=1)], views)


@dataclass(frozen=True)
class Choice:
    """The setting and the rule of a method that recognise labelled windows best.

    Attributes
    ----------
    setting, rule : str
    score : float
        Of :func:`validate`.
    values : Values
    """

    setting: str
    rule: str
    score: float
    values: Values

    def measure(self, views: Views, counts: Sequence[int]) -> dict[str, Any]:
        """Accuracies at test windows in percent: of groups for every number of neighbours, and of windows."""
        ranks = self.values.ranks(self.values.of_test(), self.rule)
        most = min(max(counts), ranks.shape[1])
        nearest = views.labelled_y[_nearest(ranks, most)]
        row: dict[str, Any] = {"setting": self.setting, "rule": self.rule, "validation": self.score}
        for count in counts:
            found = majority(nearest[:, :count])
            row[f"k{count}"] = group_accuracy(found, views)
            if count == counts[0]:
                row["window"] = 100 * float(np.mean(found == views.test_y))
        return row


def _nearest(ranks: NDArray[Any], count: int) -> IntArray:
    """Columns of the largest entries of each row, largest first; ties in order of the columns."""
    parts = range(0, len(ranks), _RANKED_AT_ONCE)
    return np.concatenate([largest_columns(ranks[start : start + _RANKED_AT_ONCE], count) for start in parts])


# ---------------------------------------------------------------------------------------------------------- methods
OWN, RAW, LEARNED = "MRF", "raw", "MRF learned"
_ROWS_AT_ONCE = 4096  # test windows whose features are held at once
_COLUMNS_AT_ONCE = 96  # labelled windows that a thread carries along the graph
Rows = Callable[[FloatArray], Any]
Setting = tuple[str, Values]


@dataclass(frozen=True)
class Grids:
    """Settings to try: about ten for every method, one for raw descriptors.

    The grids were chosen on seeds 0 to 3, using their test windows, and are used unchanged for all later seeds. For
    every method, ranges that recognise fewer windows were left out: more than 12 steps of our method, which lose 1
    to 4 points when balanced, and bandwidths below .5, which labelled windows prefer and which lose 3 to 8 points.
    """

    neighbors: tuple[int, ...] = (8, 16)  # of the graph
    powers: tuple[int, ...] = (4, 6, 8, 10, 12)  # steps of the walk; 2 see too little
    sizes: tuple[int, ...] = (256, 1024)  # random features, and landmarks
    components: tuple[int, ...] = (15, 64)  # of kernel PCA; the paper names 15
    # Bandwidths over the median distance of an unlabelled window to the nearest labelled one.
    widths: tuple[float, ...] = (0.5, 0.6, 0.75, 0.9, 1.3, 2.0)
    # Of positive features, whose variance grows quickly as the bandwidth shrinks.
    wide: tuple[float, ...] = (1.3, 2.0, 3.0, 4.5, 7.0, 10.0)
    # Of the Gaussian itself, which has no other option.
    fine: tuple[float, ...] = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.0, 1.1, 1.3, 2.0)
    coordinates: tuple[int, ...] = (64, 256)  # of a diffusion map
    steps: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
    n_cloud: int = 8000  # unlabelled windows that shares are taken over, and landmarks drawn from
    n_components_cloud: int = 2000  # number of these for kernel PCA
    n_diffusion: int = 10_000  # unlabelled windows for the eigenvectors of a diffusion map

    def __post_init__(self) -> None:
        powers = list(self.powers)
        if not powers or powers != sorted(set(powers)) or powers[0] < 2 or any(power % 2 for power in powers):
            reject("powers", "even numbers of steps from 2 on, ascending", self.powers)


@dataclass(frozen=True)
class Recipe:
    """The paper's walks and network at reduced size: with all nodes as anchors there would be 1.5e9 values."""

    n_features: int = 256
    n_starts: int = 500
    n_walks: int = 2000
    epochs: int = 20
    tau: float = 20.0  # the paper's for surfaces; it names none here
    n_neighbors: int = 16


@dataclass(frozen=True, eq=False)
class Stage:
    """One draw of windows without labels, the input of all methods.

    Attributes
    ----------
    views : Views
    grids : Grids
    """

    views: Views
    grids: Grids

    @cached_property
    def cloud(self) -> FloatArray:
        """Some unlabelled windows, drawn at random."""
        return self.some(self.grids.n_cloud, "cloud")

    @cached_property
    def centre(self) -> FloatArray:
        """Mean of the unlabelled windows. Positive features and cosines depend on the origin."""
        return np.asarray(self.views.unlabelled.mean(axis=0))

    @cached_property
    def unit(self) -> float:
        """Median distance of an unlabelled window to the nearest labelled one."""
        return float(np.median(cKDTree(self.views.labelled).query(self.cloud)[0]))

    def some(self, count: int, what: str) -> FloatArray:
        """Unlabelled windows, drawn without replacement."""
        everything = self.views.unlabelled
        rng = generator(self.views.seed, f"brodatz {what}")
        return everything[rng.choice(len(everything), min(count, len(everything)), replace=False)]

    def values(self, rows: Rows) -> Values:
        """Values of a map from descriptors (n, 15) to features (n, m)."""
        own = rows(self.views.labelled)
        norms2 = (own * own).sum(axis=1)
        return Values(own @ own.T, rows(self.cloud) @ own.T, norms2, partial(self._test, rows, own))

    def _test(self, rows: Rows, own: NDArray[Any]) -> NDArray[Any]:
        test = self.views.test
        parts = [test[start : start + _ROWS_AT_ONCE] for start in range(0, len(test), _ROWS_AT_ONCE)]
        return np.concatenate([rows(part) @ own.T for part in parts])

    def centred(self, points: FloatArray, dtype: Any = np.float64) -> NDArray[Any]:
        """Descriptors about their mean, in a precision."""
        return np.asarray(points - self.centre, dtype=dtype)


# ------------------------------------------------------------------------------------------------- features of ours
def graph_options(n_neighbors: int) -> GraphOptions:
    """Neighbours, with the bandwidth of each place."""
    return GraphOptions(kind="knn", n_nodes="all", n_neighbors=n_neighbors, bandwidth="local")


def own_features(n_neighbors: int, power: int) -> ManifoldRandomFeatures:
    """Sparse features, one for each unlabelled window."""
    return ManifoldRandomFeatures(
        PowerKernel(power),
        normalize=False,
        n_features="all",
        field="step",
        graph=graph_options(n_neighbors),
        sparse_output=True,
    )


def own_settings(stage: Stage) -> Iterator[Setting]:
    """Powers of the walk on graphs with fewer and more neighbours.

    Features of W^n with all nodes as anchors are phi_n(z) = phi_2(z) W^(n/2 - 1), so that phi_n(x) . phi_n(l) is
    phi_2(x) W^(n - 2) phi_2(l): one fit is enough for all powers, and only labelled windows are propagated along
    the graph.
    """
    grids, views = stage.grids, stage.views
    for n_neighbors in grids.neighbors:
        features = own_features(n_neighbors, 2).fit(views.unlabelled)
        walk = sparse.csr_array(features.graph_.operator, dtype=np.float32)
        own, cloud, test = (
            sparse.csr_array(features.transform(points), dtype=np.float32)
            for points in (views.labelled, stage.cloud, views.test)
        )
        carried, power = np.ascontiguousarray(own.T.toarray()), 2
        for wanted in grids.powers:
            while power < wanted:
                carried, power = _step(walk, carried), power + 1
            labelled = own @ carried
            of_test = partial(_product, test, carried)
            values = Values(labelled, cloud @ carried, np.diag(labelled).copy(), of_test)
            yield f"{n_neighbors} neighbours, {wanted} steps", values


def _product(left: Any, right: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(left @ right)


def _step(walk: Any, columns: NDArray[np.float32]) -> NDArray[np.float32]:
    """One step of the walk for all columns, by threads."""
    result = np.zeros_like(columns)
    spans = [slice(start, start + _COLUMNS_AT_ONCE) for start in range(0, columns.shape[1], _COLUMNS_AT_ONCE)]

    def work(span: slice) -> None:
        result[:, span] = walk @ np.ascontiguousarray(columns[:, span])

    map_threads(work, spans, check_jobs(-1))
    return result


def learned_settings(stage: Stage, recipe: Recipe) -> Iterator[Setting]:
    """The paper's way: walks from some nodes, its network, random anchors."""
    features = ManifoldRandomFeatures.paper(
        kernel=DiffusionKernel(recipe.tau),
        n_features=recipe.n_features,
        anchors="iid",
        teacher_options={"n_walks": recipe.n_walks, "p_halt": 0.01},
        field_options={"network": "paper", "epochs": recipe.epochs},
        graph=graph_options(recipe.n_neighbors),
        n_starts=min(recipe.n_starts, len(stage.views.unlabelled)),
        random_state=stage.views.seed,
    ).fit(stage.views.unlabelled)
    yield f"{recipe.epochs} epochs", stage.values(features.transform)


# ------------------------------------------------------------------------------------------------------ all others
def _raw(stage: Stage) -> Iterator[Setting]:
    yield "descriptors", stage.values(stage.centred)


def _random(kind: Callable[..., Any], widths: str, stage: Stage) -> Iterator[Setting]:
    for size in stage.grids.sizes:
        for width in getattr(stage.grids, widths):
            features = kind(n_features=size, sigma=width * stage.unit, random_state=stage.views.seed)
            # Single precision is enough except for positive features, which underflow at outliers.
            dtype = np.float64 if kind in (PRF, PORF) else np.float32
            features.fit(stage.centred(stage.cloud, dtype))
            name = f"{size} features, width {width:g}"
            yield name, stage.values(partial(_transform, features, stage, dtype))


def _transform(features: Any, stage: Stage, dtype: Any, points: FloatArray) -> Any:
    return features.transform(stage.centred(points, dtype))


def _gaussian(stage: Stage) -> Iterator[Setting]:
    """The Gaussian kernel itself, the limit of random features and landmarks."""
    views = stage.views
    for width in stage.grids.fine:
        kernel = partial(gaussian_kernel, others=views.labelled, sigma=width * stage.unit)
        ones = np.ones(len(views.labelled))
        values = Values(kernel(views.labelled), kernel(stage.cloud), ones, partial(kernel, views.test))
        yield f"width {width:g}", values


def _kernel_pca(stage: Stage) -> Iterator[Setting]:
    some = stage.cloud[: stage.grids.n_components_cloud]
    count = min(max(stage.grids.components), len(some) - 1)
    for width in stage.grids.widths:
        gamma = 0.5 / (width * stage.unit) ** 2
        pca = KernelPCA(count, kernel="rbf", gamma=gamma, eigen_solver="arpack", random_state=stage.views.seed)
        pca.fit(some)
        for kept in stage.grids.components:
            yield f"{kept} components, width {width:g}", stage.values(partial(_first_columns, pca, kept))


def _first_columns(pca: Any, count: int, points: FloatArray) -> Any:
    return pca.transform(points)[:, :count]


def _diffusion_map(stage: Stage) -> Iterator[Setting]:
    """One decomposition for all settings: they differ in the number of columns and the powers of eigenvalues."""
    nodes = stage.some(stage.grids.n_diffusion, "diffusion map")
    most = max(stage.grids.coordinates)
    features = DiffusionMap(n_features=most, steps=1.0).fit(nodes)
    views = stage.views
    own, cloud, test = (
        features.transform(points).astype(np.float32) for points in (views.labelled, stage.cloud, views.test)
    )
    for count in stage.grids.coordinates:
        for steps in stage.grids.steps:
            scale = (np.maximum(features.eigenvalues_[:count], 0.0) ** (steps - 1.0)).astype(np.float32)
            weighted = own[:, :count] * scale
            norms2 = (own[:, :count] * weighted).sum(axis=1)
            name = f"{count} coordinates, {steps:g} steps"
            to_own = partial(_product, right=np.ascontiguousarray(weighted.T))
            parts = own[:, :count], cloud[:, :count], test[:, :count]
            yield name, Values(to_own(parts[0]), to_own(parts[1]), norms2, partial(to_own, parts[2]))


METHODS: Mapping[str, Callable[[Stage], Iterator[Setting]]] = MappingProxyType(
    {
        OWN: own_settings,
        RAW: _raw,
        "RFF": partial(_random, RFF, "widths"),
        "ORF": partial(_random, ORF, "widths"),
        "kPCA": _kernel_pca,
        "PRF": partial(_random, PRF, "wide"),
        "PORF": partial(_random, PORF, "wide"),
        "Nystrom": partial(_random, Nystrom, "widths"),
        "Gaussian": _gaussian,
        "diffusion map": _diffusion_map,
    }
)


# --------------------------------------------------------------------------------------------------- the experiment
# The paper's table: mean group accuracies over 30 seeds, by number of neighbours.
PAPER: Mapping[str, Mapping[int, float]] = MappingProxyType(
    {
        OWN: {1: 55.7, 3: 53.6, 5: 51.6, 10: 45.4, 15: 40.3},
        RAW: {1: 42.4, 3: 36.9, 5: 33.6, 10: 27.2, 15: 24.1},
        "ORF": {1: 42.6, 3: 37.5, 5: 34.5, 10: 27.8, 15: 24.9},
        "RFF": {1: 43.5, 3: 38.5, 5: 35.4, 10: 28.9, 15: 25.6},
        "kPCA": {1: 35.3, 3: 30.5, 5: 28.5, 10: 24.8, 15: 22.6},
        "PRF": {1: 9.2, 3: 6.3, 5: 5.2, 10: 3.7, 15: 3.0},
        "PORF": {1: 8.9, 3: 5.9, 5: 5.0, 10: 3.6, 15: 3.0},
    }
)
_ALL_PLATES = 111  # of the paper
_SEEDS_AT_ONCE = 5  # whose windows are drawn together: a picture is turned once for all of them
_FIT_S, _TRANSFORM_S = 300.0, 30.0  # promised for 66,600 nodes and 22,200 windows
_LEAD = 6.0  # points above raw descriptors that are promised


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    n_seeds: int = 30  # the paper's
    first_seed: int = 10  # smaller seeds were used to choose the grids
    counts: tuple[int, ...] = (1, 3, 5, 10, 15)  # voting neighbours; settings are chosen for the first
    n_plates: int | None = None  # this many, spread evenly over the list; None for all
    protocol: Protocol = field(default_factory=Protocol)  # the paper's
    grids: Grids = field(default_factory=Grids)
    recipe: Recipe | None = field(default_factory=Recipe)  # of the network, for the first seed; None leaves it out
    # Seeds for which every setting is tried on the test windows, to measure what the choice without them costs.
    n_hindsight: int = 3
    cost_setting: tuple[int, int] = (8, 6)  # neighbours and steps of the features whose cost is measured

    def __post_init__(self) -> None:
        check_integer(self.n_seeds, "n_seeds", 1)
        check_integer(self.first_seed, "first_seed", 0)
        check_integer(self.n_hindsight, "n_hindsight", 0)
        if self.n_plates is not None:
            check_integer(self.n_plates, "n_plates", 2)
        if not self.counts or self.counts[0] < 1 or list(self.counts) != sorted(set(self.counts)):
            reject("counts", "positive numbers of neighbours, ascending", self.counts)
        if len(self.protocol.labelled_angles) < 2:
            reject("protocol", "one with labelled windows at two angles or more", self.protocol.labelled_angles)


SIZES: dict[str, Config] = {
    "smoke": Config(
        n_seeds=2,
        counts=(1, 3),
        n_plates=12,
        protocol=Protocol(unlabelled_windows=10, test_windows=10),
        grids=Grids(
            neighbors=(8,),
            powers=(4, 8),
            sizes=(64,),
            components=(15,),
            widths=(0.6, 1.3),
            wide=(2.0, 4.5),
            fine=(0.4, 0.75),
            coordinates=(32,),
            steps=(2.0, 10.0),
            n_cloud=600,
            n_components_cloud=300,
            n_diffusion=600,
        ),
        recipe=Recipe(n_features=32, n_starts=40, n_walks=200, epochs=2),
        n_hindsight=1,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None, data: Path | None = None) -> Record:
    """Recognise turned textures by all methods, for one draw of windows after the other.

    Tables: ``brodatz`` (accuracies with one neighbour), ``by_k`` (with more), ``chosen`` (the chosen settings, and
    the best ones in hindsight), ``cost``, ``targets`` and ``seeds`` (the values for each seed, whose means the
    other tables show).
    """
    start = time.perf_counter()
    plates = _plates(config, data)
    rows: list[dict[str, Any]] = []
    tried = Tried()
    cost: list[dict[str, Any]] = []
    with (
        one_blas_thread(),
        quietly(),
        without_warnings(FarQueryWarning),
    ):  # about windows that differ from all others
        for views in _draws(plates, config, progress):
            rows += _measure(views, config, tried, progress)
            if not cost:
                cost.append(_cost(views, config))
    progress("done", 1, 1)
    paper = PAPER if data is not None and _is_full(plates, config) else {}
    table = summarise(rows, config.counts[0], paper, tried)
    tables = {
        "brodatz": table,
        "by_k": by_count(rows, config.counts, paper),
        "chosen": chosen_settings(rows, tried),
        "cost": cost,
        "targets": targets(table, cost if _is_full(plates, config) else []),
        "seeds": rows,
    }
    notes = f"{plates.source}; {config.n_seeds} draws of windows"
    settings = dataclasses.asdict(config) | {"notes": notes, "textures": len(plates)}
    return Record("brodatz", settings, tables, time.perf_counter() - start)


def _plates(config: Config, data: Path | None) -> Plates:
    plates = builtin_plates() if data is None else read_plates(data)
    if len(plates) < 2:
        reject("--data", "a folder of two textures or more, to be told apart", f"{len(plates)} texture")
    count = len(plates) if config.n_plates is None else min(config.n_plates, len(plates))
    places = np.linspace(0, len(plates) - 1, count).round().astype(int)  # neighbours in the list look alike
    names, images = (tuple(part[place] for place in places) for part in (plates.names, plates.images))
    return Plates(names, images, plates.source if count == len(plates) else f"{count} of {plates.source}")


def _is_full(plates: Plates, config: Config) -> bool:
    """Whether there are as many windows as in the paper."""
    return len(plates) == _ALL_PLATES and config.protocol == Protocol()


def _draws(plates: Plates, config: Config, progress: Progress) -> Iterator[Views]:
    """Windows of one seed after the other."""
    seeds = range(config.first_seed, config.first_seed + config.n_seeds)
    for first in range(0, config.n_seeds, _SEEDS_AT_ONCE):
        yield from draw_views(plates, config.protocol, seeds[first : first + _SEEDS_AT_ONCE], progress=progress)


# ------------------------------------------------------------------------------------------------------- measuring
class Tried:
    """Accuracies of all settings at test windows, for the seeds that look at them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )

    def add(self, method: str, block: str, setting: tuple[str, str], accuracy: float) -> None:
        """Keep the accuracy of a setting and a rule for one seed."""
        self._found[method, block][setting].append(accuracy)

    def best(self, method: str, block: str) -> tuple[str, str, float] | None:
        """Setting, rule and mean accuracy of the single setting that is best for all seeds on the test windows."""
        found = self._found.get((method, block))
        if not found:
            return None
        (setting, rule), scores = max(found.items(), key=lambda item: np.mean(item[1]))
        return setting, rule, float(np.mean(scores))


def _measure(views: Views, config: Config, tried: Tried, progress: Progress) -> Iterator[dict[str, Any]]:
    """Rows of all methods for one draw of windows."""
    stage = Stage(views, config.grids)
    methods: dict[str, Callable[[Stage], Iterator[Setting]]] = dict(METHODS)
    number = views.seed - config.first_seed
    if config.recipe is not None and number == 0:
        methods[LEARNED] = partial(learned_settings, recipe=config.recipe)
    look = tried if number < config.n_hindsight else None
    for place, (method, settings) in enumerate(methods.items()):
        progress(f"seed {views.seed}: {method}", number * len(METHODS) + place, config.n_seeds * len(METHODS) + 1)
        start = time.perf_counter()
        choices, count = choose(method, settings(stage), views, look)
        for block, choice in choices.items():
            row = choice.measure(views, config.counts)
            key = {"seed": views.seed, "method": method, "block": block, "settings": count}
            yield key | row | {"seconds": time.perf_counter() - start}


def choose(
    method: str, settings: Iterator[Setting], views: Views, tried: Tried | None
) -> tuple[dict[str, Choice], int]:
    """The best setting and rule of a method in every block, and how many settings there were.

    The criterion is the same for all methods: how many labelled windows of one angle are recognised from those of
    the other angle. Ties go to the first setting. Raw descriptors have no kernel and are compared by distance or
    angle.
    """
    rules = {PLAIN: RULES[PLAIN][:2]} if method == RAW else RULES  # distance or angle
    pairs = [(block, rule) for block, some in rules.items() for rule in some]
    best: dict[str, Choice] = {}
    count = 0
    for setting, values in settings:
        count += 1
        test = None if tried is None else values.of_test()
        for block, rule in pairs:
            score = validate(values, rule, views)
            if block not in best or score > best[block].score:
                best[block] = Choice(setting, rule, score, values)
            if tried is not None and test is not None:
                tried.add(method, block, (setting, rule), nearest_accuracy(test, values, rule, views))
    return best, count


def _cost(views: Views, config: Config) -> dict[str, Any]:
    """Seconds and size of features of all unlabelled windows, as an estimator makes them."""
    n_neighbors, power = config.cost_setting
    start = time.perf_counter()
    features = own_features(n_neighbors, power).fit(views.unlabelled)
    fit_s = time.perf_counter() - start
    rows = features.transform(views.test)
    return {
        "method": OWN,
        "setting": f"{n_neighbors} neighbours, {power} steps",
        "nodes": len(views.unlabelled),
        "windows": len(views.test),
        "fit_s": fit_s,
        "transform_s": time.perf_counter() - start - fit_s,
        "nonzeros": rows.nnz / rows.shape[0],  # of a row
    }


# -------------------------------------------------------------------------------------------------------- tables
def _cells(rows: list[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows of all seeds by block and method, blocks one after the other."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for block in RULES:
        for row in rows:
            if row["block"] == block:
                found[block, row["method"]].append(row)
    return found


def _spread(values: list[float]) -> float | None:
    """Standard deviation over seeds."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def summarise(
    rows: list[dict[str, Any]], count: int, paper: Mapping[str, Mapping[int, float]], tried: Tried
) -> list[dict[str, Any]]:
    """Means over seeds for one number of neighbours.

    The gap is the difference to raw descriptors on the same seeds. Some methods were run on fewer seeds.
    """
    column = f"k{count}"
    raw = {row["seed"]: row[column] for row in rows if row["method"] == RAW}
    table = []
    for (block, method), part in _cells(rows).items():
        found = [row[column] for row in part]
        best = tried.best(method, block)
        table.append(
            {
                "block": block,
                "method": method,
                "seeds": len(part),
                "accuracy": float(np.mean(found)),
                "paper_accuracy": paper.get(method, {}).get(count) if block == PLAIN else None,
                "spread": _spread(found),
                "gap": float(np.mean([row[column] - raw[row["seed"]] for row in part])),
                "window": float(np.mean([row["window"] for row in part])),
                "hindsight": None if best is None else best[2],
            }
        )
    return table


def by_count(
    rows: list[dict[str, Any]], counts: tuple[int, ...], paper: Mapping[str, Mapping[int, float]]
) -> list[dict[str, Any]]:
    """Means and standard deviations over seeds for every number of neighbours."""
    table = []
    for (block, method), part in _cells(rows).items():
        for count in counts:
            found = [row[f"k{count}"] for row in part]
            table.append(
                {
                    "block": block,
                    "method": method,
                    "k": count,
                    "accuracy": float(np.mean(found)),
                    "paper_accuracy": paper.get(method, {}).get(count) if block == PLAIN else None,
                    "spread": _spread(found),
                }
            )
    return table


def chosen_settings(rows: list[dict[str, Any]], tried: Tried) -> list[dict[str, Any]]:
    """The most frequent choice, its number of seeds, and the best choice in hindsight."""
    table = []
    for (block, method), part in _cells(rows).items():
        (setting, rule), times = Counter((row["setting"], row["rule"]) for row in part).most_common(1)[0]
        best = tried.best(method, block)
        table.append(
            {
                "block": block,
                "method": method,
                "settings": part[0]["settings"],
                "setting": setting,
                "rule": rule,
                "chosen": f"{times} of {len(part)}",
                "in_hindsight": None if best is None else f"{best[0]}, {best[1]}",
            }
        )
    return table


def targets(table: list[dict[str, Any]], cost: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the measured numbers with the promised limits."""
    checks = []
    for block in RULES:
        here = {row["method"]: row for row in table if row["block"] == block}
        if OWN not in here:
            continue
        own = here[OWN]
        others = [row for name, row in here.items() if name not in (OWN, LEARNED)]
        checks.append((f"{block}; MRF above raw descriptors without weights, points", own["gap"], ">=", _LEAD))
        lead = own["accuracy"] - max(row["accuracy"] for row in others)
        checks.append((f"{block}; MRF above the best other method, points", lead, ">=", 0.0))
        if own["hindsight"] is not None:
            lead = own["hindsight"] - max(row["hindsight"] for row in others)
            checks.append((f"{block}; the same with the best setting of each in hindsight", lead, ">=", 0.0))
    for row in cost:
        checks.append(("seconds of a fit to all unlabelled windows", row["fit_s"], "<=", _FIT_S))
        checks.append(("seconds of features of all test windows", row["transform_s"], "<=", _TRANSFORM_S))
    return [
        {"what": what, "seen": seen, "comparison": comparison, "limit": limit}
        | {"holds": bool(seen <= limit if comparison == "<=" else seen >= limit)}
        for what, seen, comparison, limit in checks
    ]
