"""Ways to make features of a hyperbolic ball: how nodes are laid out, weighted and joined; and the paper's own."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from manifoldrf import HyperbolicSpace
from manifoldrf._runtime import without_warnings
from manifoldrf._validation import FloatArray
from manifoldrf.applications.exhaustion import RELAXATION, STEPS
from manifoldrf.features.fitting import FeatureWarning
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import GraphOptions
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.sampling import GradedPoints, graded_points
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import align, errors_of, relative_error

NEIGHBORS = 8  # of graphs of neighbours: the paper's, and of 8, 16 and 32 the best on even nodes
_UNIT = 1e-3  # of the root mean squared error, as in the paper


@dataclass(frozen=True)
class Recipe:
    """One way to make features.

    Attributes
    ----------
    points : {"even", "random"}
    relaxed : bool
    density : {"known", "estimated"}
    graph : {"heat", "knn"}
    """

    points: str = "even"
    relaxed: bool = True
    density: str = "known"
    graph: str = "heat"

    def nodes(self, ball: HyperbolicSpace, n: int, inner: float, seed: int | None) -> GradedPoints:
        """Nodes of a ball."""
        rounds = RELAXATION if self.relaxed else 0
        return graded_points(ball, n, inner=inner, scatter=self.points, relaxation=rounds, seed=seed)

    def fit(self, ball: HyperbolicSpace, nodes: GradedPoints, t: float, inner: float) -> ManifoldRandomFeatures:
        """Features of the heat kernel at the time t."""
        known = self.density == "known"
        if self.graph == "knn":
            graph = neighbor_graph(ball, nodes, known=known)
            return fitted(HeatKernel(local_time(graph, ball, t, inner)), graph, nodes.points)
        weights = nodes.weights if known else "auto"
        return fitted(
            HeatKernel(t), GraphOptions(kind="heat", n_steps=STEPS, weights=weights, metric=ball), nodes.points
        )


RECIPES = tuple(
    Recipe(points, relaxed, density, graph)
    for graph, points, relaxed, density in product(
        ("heat", "knn"), ("even", "random"), (True, False), ("known", "estimated")
    )
)


@dataclass(frozen=True)
class PaperRecipe:
    """The paper's recipe: walks on a graph of neighbours, corrected for density, and a network.

    Attributes
    ----------
    n_starts, n_walks, epochs : int
    """

    n_starts: int
    n_walks: int
    epochs: int

    def fit(self, ball: HyperbolicSpace, nodes: GradedPoints, t: float, inner: float) -> ManifoldRandomFeatures:
        """Features of the heat kernel at the time t."""
        graph = neighbor_graph(ball, nodes, known=False)
        recipe = ManifoldRandomFeatures.paper(
            kernel=HeatKernel(local_time(graph, ball, t, inner)),
            graph=graph,
            teacher_options={"n_walks": self.n_walks, "p_halt": 0.01},
            field_options={"network": "paper", "epochs": self.epochs},
            n_starts=self.n_starts,
            random_state=0,
        )
        with _quiet():
            return recipe.fit(nodes.points)


def fitted(kernel: HeatKernel, graph: Graph | GraphOptions, points: FloatArray) -> ManifoldRandomFeatures:
    """Features with all nodes as anchors."""
    features = ManifoldRandomFeatures(kernel, n_features="all", graph=graph, random_state=0)
    with _quiet():
        return features.fit(points)


def neighbor_graph(ball: HyperbolicSpace, nodes: GradedPoints, *, known: bool) -> Graph:
    """Nearest neighbours in hyperbolic distance, divided by the known density or by the estimated one."""
    correction: Any = 1 / nodes.weights if known else 1.0
    with _quiet():
        return knn_graph(nodes.points, n_neighbors=NEIGHBORS, density_correction=correction, metric=ball)


def local_time(graph: Graph, ball: HyperbolicSpace, t: float, inner: float, moment: str = "cosh") -> float:
    """The time that makes as many steps as last t in the inner ball.

    The clock of a graph of neighbours is the mean over all steps; those between the sparse nodes at the rim are
    many times longer. By "cosh" steps last log E cosh d / dim, exact for heat; by "square" E d^2 / (2 dim).
    """
    starts = np.flatnonzero(ball.distance(np.zeros((1, ball.dim)), graph.positions)[0] <= inner)
    steps = graph.affinity[starts].tocoo()
    lengths = ball.paired_distance(graph.positions[starts[steps.row]], graph.positions[steps.col])
    if moment == "cosh":
        step = np.log1p(np.average(2 * np.sinh(lengths / 2) ** 2, weights=steps.data)) / ball.dim
    else:
        step = np.average(lengths**2, weights=steps.data) / (2 * ball.dim)
    return float(t / step * graph.time(1.0))


def errors_at(
    features: ManifoldRandomFeatures, ball: HyperbolicSpace, queries: FloatArray, t: float
) -> dict[str, float]:
    """Errors of the kernel between queries against the exact one, with and without alignment."""
    exact = ball.heat_kernel(queries, queries, t)
    found = features.kernel_matrix(queries)
    aligned = align(found, exact, "least squares")
    return {
        "error": relative_error(aligned, exact),
        "rmse": errors_of(aligned, exact).rmse / _UNIT,
        "unaligned": relative_error(found, exact),
        "scale": float(aligned.sum() / found.sum()),
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that are part of the table: nodes at the rim are isolated, some fields are poor."""
    with without_warnings(GraphWarning, FeatureWarning):
        yield
