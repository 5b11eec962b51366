"""How long fits and kernels take, against a dense eigendecomposition.

The heat kernel at t = .02 on the sphere. Times are CPU seconds of one thread, the least of three runs in turn, so
the rows, ratios of them, hold on a busy machine as well:

1. a fit with 4000 nodes over one dense eigendecomposition of the same operator: at most .08 with 1024 features,
   from 4000 points alone and on the named sphere, and with all nodes as anchors;
2. that eigendecomposition and its kernel between all nodes, over the kernel on 512 new points: at least 1000 (the
   paper reports 37 to 61);
3. laying out even nodes over the rest of the heat graph of 4000 points, which is its edge, images, curvature,
   layers, steps and volumes (at most 1), and ``error_`` over the fit (.5);
4. ``transform`` of 100,000 new points, fitted to 400,000 points over 4000: at most 1.3.

An argument selects rows, ``--quick`` takes half of the nodes and a tenth of the points.
"""

import functools
import warnings
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from table import Row, best_of, run_cases, timed

from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error
from manifoldrf.geometry import layout
from manifoldrf.geometry.heat import graph_on, space_of

T, N_FEATURES, N_QUERIES = 0.02, 1024, 512


@dataclass(frozen=True)
class Sizes:
    """Numbers of nodes and points."""

    few: int = 4000
    many: int = 400_000
    points: int = 100_000


def fitted(space, n_features=N_FEATURES, n_nodes="auto"):
    """Heat kernel features."""
    graph = HeatGraph(n_nodes=n_nodes)
    options = {"normalize": False, "graph": graph, "random_state": 0, "n_jobs": 1}
    return ManifoldRandomFeatures(HeatKernel(T), n_features, **options).fit(space)


@functools.cache
def decomposed(n_nodes):
    """Features of the named sphere; seconds of one dense eigendecomposition of its operator, and the result."""
    model = fitted(Sphere(), n_nodes=n_nodes)
    dense = model.graph_.operator.toarray()
    linalg.eigh(dense[:100, :100])  # loads the library
    return model, *timed(lambda: linalg.eigh(dense))


def fits(sizes):
    """Fits against the eigendecomposition."""
    rival = decomposed(sizes.few)[1]
    cases = {
        "1024 features, points": lambda: fitted(Sphere().grid(sizes.few), n_nodes=sizes.few),
        "1024 features, named sphere": lambda: fitted(Sphere(), n_nodes=sizes.few),
        "all nodes, named sphere": lambda: fitted(Sphere(), "all", sizes.few),
    }
    for name, seconds in zip(cases, best_of(cases.values()), strict=True):
        yield Row(f"fit, {name} / eigendecomposition ({seconds:.2f}, {rival:.1f} s)", seconds / rival, "<=", 0.08)


def kernel(sizes):
    """The kernel on new points against the spectral one, after a check that both are the same."""
    model, seconds, (values, vectors) = decomposed(sizes.few)
    graph, queries = model.graph_, Sphere().sample(N_QUERIES, seed=1)
    formed, spectral = timed(lambda: (vectors * values**graph.n_steps) @ vectors.T)
    nodes = np.arange(0, graph.n_nodes, 8)
    roots = np.sqrt(graph.weights[nodes])
    exact = spectral[np.ix_(nodes, nodes)] / (roots[:, None] * roots)
    yield Row("error of the kernel", relative_error(model.kernel_matrix(graph.positions[nodes]), exact), "<=", 0.02)
    (ours,) = best_of([lambda: model.kernel_matrix(queries)], 20)
    name = f"spectral baseline / kernel on {N_QUERIES} new points ({seconds + formed:.1f} s, {1000 * ours:.2f} ms)"
    yield Row(name, (seconds + formed) / ours, ">=", 1000)


def parts(sizes):
    """Layout and error against the rest."""
    points, inside, even_points = Sphere().grid(sizes.few), [], layout.even_points
    space = space_of(points, n_jobs=1)

    def clocked(*arguments):
        seconds, nodes = timed(lambda: even_points(*arguments))
        inside.append(seconds)
        return nodes

    layout.even_points = clocked
    (whole,) = best_of([lambda: graph_on(space, T)])
    layout.even_points = even_points
    yield Row("even nodes / rest of the heat graph", min(inside) / (whole - min(inside)), "<=", 1)
    fit, error = best_of([lambda: fitted(points), lambda: fitted(points).error_])
    yield Row(f"error_ / fit ({fit:.2f} s)", (error - fit) / fit, "<=", 0.5)


def growth(sizes):
    """Time of transform, fitted to many points over few."""
    queries = Sphere().sample(sizes.points, seed=2)
    few, many = (fitted(Sphere().sample(n, seed=0)) for n in (sizes.few, sizes.many))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few points in holes of random nodes count as far
        first, second = best_of([lambda: few.transform(queries), lambda: many.transform(queries)])
    yield Row(f"transform, fitted to {sizes.many} / {sizes.few} points", second / first, "<=", 1.3)


if __name__ == "__main__":
    cases = {"fit": fits, "kernel": kernel, "parts": parts, "transform": growth}
    run_cases(__doc__, cases, Sizes(), Sizes(2000, 40_000, 10_000))
