"""What both tasks on meshes share: scenes, ways to fill in values, the paper's recipe, times and their growth.

A scene has values of which some are hidden. The paper's setting is tau = 20 with the bandwidths of ambient features
chosen on the hidden values; "tuned" is what a user can do: parameters chosen on the known values, or none.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf import (
    DiffusionKernel,
    Exact,
    FieldInterpolator,
    Graph,
    ManifoldRandomFeatures,
    TriangleMesh,
    compute_signatures,
    knn_graph,
    mesh_graph,
)
from manifoldrf.paper import NetworkField, TrainingInfo, fit_network
from reproduction.baselines import ORF, PORF, PRF, RFF
from reproduction.common import (
    LIBRARY,
    RECIPE,
    BoolArray,
    FloatArray,
    IntArray,
    Progress,
    generator,
    silent,
    unit_rows,
)
from reproduction.paper import published
from reproduction.record import Row

Action = Callable[[FloatArray], FloatArray]  # K X for X of shape (n, c)
Result = TypeVar("Result")
FEATURES = f"{LIBRARY}, features without a network"  # as many as the recipe has, at anchors drawn alike
AUTO = f"{LIBRARY}, FieldInterpolator"
FULL, KERNEL, NEAREST, BIHARMONIC = "full kernel, dense", "exact kernel", "nearest known", "biharmonic"
AMBIENT: Mapping[str, Callable[..., Any]] = {"RFF": RFF, "ORF": ORF, "PRF": PRF, "PORF": PORF}
# Bandwidths of ambient kernels over the diagonal of the box around the nodes: the narrowest is about an edge of
# 10,000 vertices, the widest blurs half the shape.
SIGMAS = tuple(float(share) for share in np.geomspace(0.003, 0.4, 8))
_TIMED_SIGMA = SIGMAS[4]  # the time of ambient features does not depend on it
MEASURED, EXTRAPOLATED, FEW_EPOCHS = "measured", "extrapolated", "epochs extrapolated"
_LONG = 1.0  # seconds after which work is not repeated, because disturbances are then a small share


# --------------------------------------------------------------------------------------------------------- scenes
@dataclass(frozen=True, eq=False)
class Scene:
    """Values at nodes of a mesh, some of them hidden.

    Attributes
    ----------
    name : str
    mesh : TriangleMesh
    points : array of shape (n, 3)
        Nodes: the vertices, then points on faces if there are more.
    values : array of shape (n, 3 f)
        Vectors, f of them side by side.
    known : bool array of shape (n,)
    counted : bool array of shape (n,)
        Nodes that count in the score, as far as they are hidden.
    directions : bool
        Whether only directions matter. Sums K(m u) are then used instead of means K(m u) / K m, as in the paper.
    kind : {"edges", "knn"}
        The graph of the kernel: edges of the mesh, or nearest neighbours in space.
    seed : int
    """

    name: str
    mesh: TriangleMesh
    points: FloatArray
    values: FloatArray
    known: BoolArray
    counted: BoolArray
    directions: bool
    kind: str
    seed: int
    n_neighbors: int = 16  # the paper's

    def make_graph(self) -> Graph:
        """A new graph of the kernel, with the paper's weights."""
        return (
            mesh_graph(self.mesh) if self.kind == "edges" else knn_graph(self.points, n_neighbors=self.n_neighbors)
        )

    @cached_property
    def unit_graph(self) -> Graph:
        """The graph on which this library solves: edges with unit weights where there are edges for all nodes."""
        is_mesh = len(self.points) == self.mesh.n_vertices
        return mesh_graph(self.mesh, weights="unit") if is_mesh else self.make_graph()

    def fill(self, action: Action, known: BoolArray | None = None) -> FloatArray:
        """Sums or means of the known values with the weights of a kernel."""
        mask = (self.known if known is None else known).astype(np.float64)[:, None]
        found = action(np.hstack([mask, mask * self.values]))
        if self.directions:
            return found[:, 1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(found[:, 1:] / found[:, :1])

    def fill_by(self, features: Any, known: BoolArray | None = None) -> FloatArray:
        """The same for features (n, m)."""
        return self.fill(lambda X: np.asarray(features @ (features.T @ X)), known)

    def score(self, found: FloatArray, nodes: BoolArray | None = None) -> float:
        """Mean cosine at the hidden nodes, or at others; where nothing is predicted it is 0."""
        chosen = self.counted & ~self.known if nodes is None else nodes
        truth = self.values[chosen].reshape(-1, 3)
        moves = np.linalg.norm(truth, axis=1) > 0
        clean = unit_rows(np.nan_to_num(found[chosen].reshape(-1, 3), posinf=0.0, neginf=0.0))
        return float((clean * unit_rows(truth)).sum(axis=1)[moves].mean())

    @cached_property
    def folds(self) -> list[BoolArray]:
        """Five parts of the known nodes."""
        order = generator(self.seed, "folds").permutation(np.flatnonzero(self.known))
        masks = []
        for part in np.array_split(order, 5):
            masks.append(np.zeros(len(self.known), dtype=bool))
            masks[-1][part] = True
        return masks


def with_hidden(known: float, n: int, seed: int, name: str) -> BoolArray:
    """A mask of the nodes that are known, drawn without replacement."""
    mask = np.ones(n, dtype=bool)
    hidden = max(1, round((1 - known) * n))
    mask[generator(seed, f"mask {name}").choice(n, hidden, replace=False)] = False
    return mask


# -------------------------------------------------------------------------------------------------------- methods
@dataclass(frozen=True)
class Method:
    """How values are filled in: the part that depends on the nodes only, and the rest."""

    prepare: Callable[[Scene], Any]
    fill: Callable[[Scene, Any], FloatArray]

    def __call__(self, scene: Scene) -> FloatArray:
        """Both parts."""
        return self.fill(scene, self.prepare(scene))


def _apply(scene: Scene, action: Action) -> FloatArray:
    return scene.fill(action)


def _interpolate(method: str, scene: Scene, graph: Graph) -> FloatArray:
    model = FieldInterpolator(method=method, normalize=scene.directions, random_state=scene.seed)
    return np.asarray(model.fit(graph, scene.values, scene.known).predict())


def _nearest(scene: Scene, nothing: None) -> FloatArray:
    del nothing
    sources = np.flatnonzero(scene.known)
    return np.asarray(scene.values[sources[cKDTree(scene.points[sources]).query(scene.points)[1]]])


def _exact(tau: float, scene: Scene) -> Action:
    graph, kernel = scene.make_graph(), DiffusionKernel(tau)
    return lambda X: np.asarray(kernel.apply(graph, X))


def _dense(tau: float, scene: Scene) -> Action:
    kernel = DiffusionKernel(tau).dense(scene.make_graph())
    return lambda X: np.asarray(kernel @ X)


def drawn_features(graph: Graph, tau: float, n_features: int, seed: int) -> FloatArray:
    """Exact signatures at nodes drawn uniformly, (n, m): what a perfect network would give the recipe."""
    nodes = generator(seed, "anchors").choice(graph.n_nodes, min(n_features, graph.n_nodes), replace=False)
    rows = compute_signatures(graph, DiffusionKernel(tau), nodes, teacher=Exact(1e-14, "dense"), n_jobs=-1).rows
    return np.asarray(np.maximum(rows, 0.0).T)


def as_paper(tau: float, n_features: int) -> dict[str, Method]:
    """Methods with the paper's tau."""
    features = Method(lambda scene: drawn_features(scene.make_graph(), tau, n_features, scene.seed), Scene.fill_by)
    return {KERNEL: Method(functools.partial(_exact, tau), _apply), FEATURES: features}


# Parameters are chosen on the known values, or there are none.
TUNED: Mapping[str, Method] = {
    AUTO: Method(lambda scene: scene.unit_graph, functools.partial(_interpolate, "auto")),
    BIHARMONIC: Method(lambda scene: scene.unit_graph, functools.partial(_interpolate, "biharmonic")),
    NEAREST: Method(lambda scene: None, _nearest),
}


def ambient_features(scene: Scene, name: str, share: float) -> FloatArray:
    """Features such as "RFF 256" of a Gaussian in space, (n, m); its width is a share of the diagonal."""
    kind, size = name.split()
    sigma = share * float(np.linalg.norm(np.ptp(scene.points, axis=0)))
    return np.asarray(
        AMBIENT[kind](n_features=int(size), sigma=sigma, random_state=scene.seed).fit_transform(scene.points)
    )


def tune_ambient(scene: Scene, name: str, sigmas: Sequence[float]) -> tuple[float, float, float]:
    """Cosines with the widths that are best on hidden and on known values, and the former width."""
    rows = []
    for share in sigmas:
        features = ambient_features(scene, name, share)
        folds = [scene.score(scene.fill_by(features, scene.known & ~fold), fold) for fold in scene.folds]
        rows.append((scene.score(scene.fill_by(features)), float(np.mean(folds)), share))
    best, chosen = max(rows), max(rows, key=lambda row: row[1])
    return best[0], chosen[0], best[2]


def measure(
    scene: Scene, tau: float, n_features: int, ambient: Sequence[str], sigmas: Sequence[float]
) -> Iterator[tuple[str, str, float]]:
    """(method, setting, cosine) of all methods on one scene."""
    for setting, methods in (("as_paper", as_paper(tau, n_features)), ("tuned", TUNED)):
        for name, method in methods.items():
            yield name, setting, scene.score(method(scene))
    for name in ambient:
        best, chosen, _ = tune_ambient(scene, name, sigmas)
        yield name, "as_paper", best
        yield name, "tuned", chosen


def cells(found: list[tuple[str, str, float]], **key: Any) -> Iterator[Row]:
    """A row for each method and setting: the mean over masks."""
    for method, setting in dict.fromkeys(row[:2] for row in found):
        values = [row[2] for row in found if row[:2] == (method, setting)]
        yield key | {"method": method, "setting": setting, "cosine": float(np.mean(values))}


def summarise(rows: Sequence[Row], shape: str) -> list[Row]:
    """Mean and median cosine of every method over shapes; how many it was run on."""
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        line: Row = {"method": method, "shapes": len({row[shape] for row in own})}
        for setting in ("as_paper", "tuned"):
            found = [row["cosine"] for row in own if row["setting"] == setting]
            line[setting] = float(np.mean(found)) if found else None
            if setting == "as_paper":
                line["median"] = float(np.median(found)) if found else None
        table.append(line)
    return table


# --------------------------------------------------------------------------------------------- the paper's recipe
@dataclass(frozen=True)
class LearnedSettings:
    """What the paper states for meshes, where it differs from the recipe for surfaces."""

    n_neighbors: int = 16
    n_walks: int = 10_000
    epochs: int = 1000
    batch: int = 32_768
    n_features: int = 256
    n_dense: int = 5000  # smallest number of nodes: vertices and, if these are fewer, points drawn by area
    n_candidates: int = 5000  # nodes that pairs and anchors are drawn from; the paper says "uniformly"

    def recipe(self) -> ManifoldRandomFeatures:
        """The recipe with these settings, and the bandwidth that the paper states for meshes; no early stopping."""
        return ManifoldRandomFeatures.paper(
            n_features=self.n_features,
            graph__n_neighbors=self.n_neighbors,
            graph__bandwidth="median",
            teacher__n_walks=self.n_walks,
            field__epochs=self.epochs,
            field__batch=self.batch,
            field__patience=None,
        )


@dataclass(frozen=True, eq=False)
class LearnedField:
    """A trained network with all candidates as anchors, its training, and the CPU seconds of all epochs."""

    field: NetworkField
    training: TrainingInfo
    training_s: float
    n_features: int

    def features(self, places: FloatArray, seed: int) -> FloatArray:
        """Phi = g / sqrt(m) at places, with anchors drawn uniformly, (q, m)."""
        count = len(self.field.anchors)
        rng = generator(seed, "learned anchors")
        columns = rng.choice(count, min(self.n_features, count), replace=False)
        values = self.field.at_anchors(columns).values(places, n_jobs=-1)
        return np.asarray(values / np.sqrt(len(columns)))


def learn_field(
    points: FloatArray, n_vertices: int, settings: LearnedSettings, seed: int, progress: Progress = silent
) -> LearnedField:
    """Walks from vertices, the first points, and the network trained on them.

    The estimator draws starts among all nodes, and has as many columns as anchors. The paper starts at vertices
    only and draws anchors after the training, so its steps are called one by one, with the options of the recipe.
    """
    recipe: Any = settings.recipe()
    graph = knn_graph(
        points, n_neighbors=min(recipe.graph.n_neighbors, len(points) - 1), bandwidth=recipe.graph.bandwidth
    )
    starts = _some(seed, "starts", n_vertices, recipe.field.n_starts)
    candidates = _some(seed, "candidates", len(points), settings.n_candidates)
    rows = compute_signatures(
        graph, recipe.kernel, starts, teacher=recipe.teacher, seed=seed, progress=progress
    ).rows
    clock: list[float] = []

    def tell(what: str, done: int, total: int) -> None:
        progress(what, done, total)
        if what == "training epochs":
            clock.append(time.process_time())

    unit = float(np.exp(recipe.kernel.tau / 2))
    data = graph, starts, candidates, sparse.csr_array(rows)[:, candidates]
    field, info = fit_network(*data, recipe.field, unit=unit, seed=seed, progress=tell)
    return LearnedField(field, info, clock[-1] - clock[0], settings.n_features)


def _some(seed: int, name: str, n: int, count: int) -> IntArray:
    """Choose some of n indices at random, sorted; all if there are not enough."""
    return np.sort(generator(seed, f"recipe {name}").choice(n, min(n, count), replace=False))


def dense_points(mesh: TriangleMesh, n_dense: int, seed: int) -> FloatArray:
    """Vertices, filled up to ``n_dense`` with points drawn uniformly by area."""
    missing = n_dense - mesh.n_vertices
    return np.vstack([mesh.vertices, mesh.sample(missing, seed=seed).points]) if missing > 0 else mesh.vertices


# ---------------------------------------------------------------------------------------------------------- times
def timed(work: Callable[[], Result], repeats: int = 1) -> tuple[Result, float]:
    """The result of a function and the shortest of its times in CPU seconds, which others hardly change."""
    times: list[float] = []
    while len(times) < max(repeats, 1) and sum(times) < _LONG:
        start = time.process_time()
        found = work()
        times.append(time.process_time() - start)
    return found, min(times)


@dataclass(frozen=True)
class Timing:
    """What is timed, and up to which sizes."""

    tau: float
    ambient: tuple[str, ...]
    learned: LearnedSettings | None  # None: the recipe is not timed
    reads_in_advance: bool  # whether the network is evaluated before the interpolation that is timed, as for cloth
    largest_dense: int
    largest_learned: int
    repeats: int

    def methods(self, n_features: int) -> dict[str, Method]:
        """Methods by the name of their row."""
        found = as_paper(self.tau, n_features) | dict(TUNED)
        for name in self.ambient:
            prepare = functools.partial(ambient_features, name=name, share=_TIMED_SIGMA)
            found[name] = Method(prepare, Scene.fill_by)
        return found

    def rows(self, scene: Scene, n_features: int, progress: Progress) -> Iterator[Row]:
        """Times and cosines of all methods on one scene; every method is run on a small one first."""
        methods = self.methods(n_features)
        n = len(scene.points)
        if n <= self.largest_dense:
            methods[FULL] = Method(functools.partial(_dense, self.tau), _apply)
        for place, (name, method) in enumerate(methods.items()):
            progress(f"times at {n} nodes: {name}", place, len(methods))
            ready, prepare_s = timed(functools.partial(method.prepare, scene))
            found, interpolate_s = timed(functools.partial(method.fill, scene, ready), self.repeats)
            row = {"vertices": n, "method": name, "prepare_s": prepare_s, "interpolate_s": interpolate_s}
            yield row | {"cosine": scene.score(found), "how": MEASURED}
        if self.learned is not None and n <= self.largest_learned:
            progress(f"times at {n} nodes: {RECIPE}", 0, 1)
            yield self._learned(scene, self.learned)

    def _learned(self, scene: Scene, settings: LearnedSettings) -> Row:
        """The recipe with few epochs, the others extrapolated; there is no cosine, as it is hardly trained."""
        points = dense_points(scene.mesh, settings.n_dense, scene.seed)
        points = scene.points if len(scene.points) > len(points) else points
        learned, prepare_s = timed(lambda: learn_field(points, scene.mesh.n_vertices, settings, scene.seed))
        prepare_s += learned.training_s * (LearnedSettings.epochs / learned.training.epochs - 1)
        features, reading_s = timed(lambda: learned.features(scene.points, scene.seed))
        _, products_s = timed(lambda: scene.fill_by(features), self.repeats)
        parts = (
            (prepare_s + reading_s, products_s) if self.reads_in_advance else (prepare_s, reading_s + products_s)
        )
        row = {"vertices": len(scene.points), "method": RECIPE, "prepare_s": parts[0], "interpolate_s": parts[1]}
        return row | {"cosine": None, "how": FEW_EPOCHS}


def fit_power(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Exponent p and factor c of seconds = c n^p, by least squares of the logarithms.

    Examples
    --------
    >>> round(fit_power([10, 100, 1000], [2e-3, 2e-2, 2e-1])[0], 6)
    1.0
    """
    slope, level = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)
    return float(slope), float(np.exp(level))


def with_extrapolated(rows: list[Row]) -> list[Row]:
    """Times with those of the dense kernel at the sizes where it does not fit into memory, by its last two rows."""
    own = sorted((row for row in rows if row["method"] == FULL), key=lambda row: row["vertices"])[-2:]
    if len(own) < 2:
        return rows
    more = []
    for n in sorted({row["vertices"] for row in rows if row["vertices"] > own[-1]["vertices"]}):
        row = {"vertices": n, "method": FULL, "how": EXTRAPOLATED}
        for column in ("prepare_s", "interpolate_s"):
            exponent, factor = fit_power([row["vertices"] for row in own], [row[column] for row in own])
            row[column] = factor * n**exponent
        more.append(row)
    return rows + more


def growth_table(rows: Sequence[Row], table: str) -> list[Row]:
    """Exponents of the times of every method, beside the paper's."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method and row["how"] != EXTRAPOLATED]
        sizes = [row["vertices"] for row in own]
        line: Row = {"method": method, "sizes": len(set(sizes)), "largest": max(sizes)}
        for part in ("prepare", "interpolate"):
            times = [row[f"{part}_s"] for row in own]
            line[part] = fit_power(sizes, times)[0] if len(set(sizes)) > 1 and min(times) > 0 else None
        paper = published(table, "", "MRF" if method == RECIPE else method, "growth")
        found.append(line | {"paper_interpolate": paper})
    return found
