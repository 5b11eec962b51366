"""The symmetric matrix behind a graph or a generalised adjacency, and the units of kernels."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.geometry._sparse import LocalForm
from manifoldrf.geometry.adjacency import GeneralizedAdjacency
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels._action import Expansion, apply_expansion, indicator_columns, worth_local

AnyGraph: TypeAlias = Graph | GeneralizedAdjacency


@dataclass(frozen=True, eq=False)
class SpectralForm:
    """A matrix diag(1/scaling) M diag(scaling) with M symmetric and its spectrum in [-radius, radius]."""

    graph: AnyGraph
    matrix: Any
    radius: float
    scaling: FloatArray | None

    @property
    def local(self) -> LocalForm | None:
        """M with its nodes in an order in which neighbours are close together in memory; made once for a graph."""
        return self.graph._local

    @property
    def n(self) -> int:
        """Number of nodes."""
        return int(self.matrix.shape[0])


def spectral_form(graph: AnyGraph) -> SpectralForm:
    """The form of a graph: W itself, with its spectrum in [-1, 1]."""
    if isinstance(graph, Graph):
        return SpectralForm(graph, graph.operator, 1.0, None)
    return SpectralForm(graph, graph.symmetric, graph.radius, graph.scaling)


def best_matrix(expansion: Expansion, form: SpectralForm) -> Any:
    """The matrix of a form, or its local form where that pays."""
    return (form.local if worth_local(expansion, form.n) else None) or form.matrix


def action_of(expansion: Expansion, form: SpectralForm, columns: FloatArray, n_jobs: int) -> FloatArray:
    """The function h of the matrix behind a form, times columns (N, c)."""
    scaling = 1.0 if form.scaling is None else form.scaling[:, None]
    return apply_expansion(expansion, best_matrix(expansion, form), columns * scaling, n_jobs) / scaling


def entries_of(expansion: Expansion, form: SpectralForm, rows: IntArray, cols: IntArray, n_jobs: int) -> FloatArray:
    """Entries (rows, cols) of h(M) for the matrix of a form; indicators of the fewer nodes are multiplied."""
    swap = len(rows) < len(cols)
    sources, targets = (rows, cols) if swap else (cols, rows)
    indicators = indicator_columns(form.n, sources)
    found = apply_expansion(expansion, best_matrix(expansion, form), indicators, n_jobs)[targets]
    result = found.T if swap else found
    return result if form.scaling is None else result * form.scaling[cols] / form.scaling[rows][:, None]


def per_volume_of(values: FloatArray, graph: AnyGraph, rows: IntArray, cols: IntArray) -> FloatArray:
    """Entries K_ij / sqrt(mu_i mu_j): a kernel of the space, where the graph knows the volume of its nodes."""
    if not isinstance(graph, Graph) or graph.weights is None:
        raise ValueError(
            "`per_volume` needs node weights, which this graph does not have: heat_graph and "
            "mesh_graph(mesh, weights='cotangent') know them."
        )
    for name, nodes in (("rows", rows), ("cols", cols)):
        if not graph.weights[nodes].all():
            reject(name, "nodes of positive weight, with per_volume=True", "nodes of weight zero")
    roots = np.sqrt(graph.weights)
    result: FloatArray = values / roots[rows][:, None] / roots[cols]
    return result
