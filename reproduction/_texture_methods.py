"""Methods that compare textures: features of the cloud of descriptors, and of the space around it.

Every method yields its settings one after the other as values of its kernel. Labels play no part.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.decomposition import KernelPCA

from manifoldrf._random import generator
from manifoldrf._threads import map_threads
from manifoldrf._validation import FloatArray, check_jobs, reject
from manifoldrf.baselines._base import gaussian_kernel
from manifoldrf.baselines.fourier import ORF, RFF
from manifoldrf.baselines.nystrom import Nystrom
from manifoldrf.baselines.positive import PORF, PRF
from manifoldrf.baselines.spectral import DiffusionMap
from manifoldrf.features.graph_options import GraphOptions
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.graph_kernels import DiffusionKernel, PowerKernel
from reproduction._texture_rules import Values
from reproduction.texture_views import Views

OWN, RAW, LEARNED = "MRF", "raw", "MRF learned"
_ROWS_AT_ONCE = 4096  # test windows whose features are held at once
_COLUMNS_AT_ONCE = 96  # labelled windows that a thread carries along the graph
Rows = Callable[[FloatArray], Any]
Setting = tuple[str, Values]


@dataclass(frozen=True)
class Grids:
    """What is tried: about ten settings of every method, one of raw descriptors.

    Grids were laid out on seeds 0 to 3, with their test windows in view, and stand for all later ones. Ranges that
    recognise fewer windows there were left out, for every method: steps beyond 12 of ours, which lose 1 to 4 points
    when balanced, and bandwidths below .5, which labelled windows prefer and which lose 3 to 8.
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
    n_components_cloud: int = 2000  # of these, for kernel PCA
    n_diffusion: int = 10_000  # unlabelled windows for the eigenvectors of a diffusion map

    def __post_init__(self) -> None:
        powers = list(self.powers)
        if not powers or powers != sorted(set(powers)) or powers[0] < 2 or any(power % 2 for power in powers):
            reject("powers", "even numbers of steps from 2 on, ascending", self.powers)


@dataclass(frozen=True)
class Recipe:
    """The paper's walks and network, with less of everything: its all-node anchors would be 1.5e9 values."""

    n_features: int = 256
    n_starts: int = 500
    n_walks: int = 2000
    epochs: int = 20
    tau: float = 20.0  # the paper's for surfaces; it names none here
    n_neighbors: int = 16


@dataclass(frozen=True, eq=False)
class Stage:
    """One draw of windows as all methods see it, without labels.

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
        PowerKernel(power), n_features="all", field="step", graph=graph_options(n_neighbors), sparse_output=True
    )


def own_settings(stage: Stage) -> Iterator[Setting]:
    """Powers of the walk on graphs with fewer and more neighbours.

    Features of W^n with all nodes as anchors are phi_n(z) = phi_2(z) W^(n/2 - 1), so that phi_n(x) . phi_n(l) is
    phi_2(x) W^(n - 2) phi_2(l): one fit serves all powers, and labelled windows are carried along the graph instead
    of all.
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
            # Single precision is enough, but for positive features, which are too small for it at outliers.
            dtype = np.float64 if kind in (PRF, PORF) else np.float32
            features.fit(stage.centred(stage.cloud, dtype))
            name = f"{size} features, width {width:g}"
            yield name, stage.values(partial(_transform, features, stage, dtype))


def _transform(features: Any, stage: Stage, dtype: Any, points: FloatArray) -> Any:
    return features.transform(stage.centred(points, dtype))


def _gaussian(stage: Stage) -> Iterator[Setting]:
    """The Gaussian kernel itself, which random features and landmarks tend to."""
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
    """One decomposition: fewer coordinates are the first of them, more steps other powers of the eigenvalues."""
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
