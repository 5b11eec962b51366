"""Which teacher costs least: a model of time and memory, in numbers of products rather than in measured seconds.

The choice therefore depends on the graph, the kernel and the number of starts only, never on the machine's mood.

| teacher  | time                                       | memory of the rows          |
|----------|--------------------------------------------|-----------------------------|
| exact    | starts x Chebyshev degree x entries of W    | 8 bytes x starts x N        |
| frontier | starts x pushes of a probe x 6              | 12 bytes x starts x reached |
| counts   | taken where the rows of both exceed 2 GB    | bounded by the walks        |

A push of the frontier costs about six products of the exact teacher, which streams through memory.
"""

from dataclasses import dataclass

import numpy as np

from manifoldrf._validation import IntArray
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels._spectra import AnyGraph, spectral_form
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures._engines import frontier_coefficients, frontier_engine
from manifoldrf.signatures.options import ExactOptions, FrontierOptions

ROW_MEMORY = 2**31  # bytes that the rows may take
_PUSH_COST = 6.0
_PROBES = 4
_FIRST_LENGTHS = 64


@dataclass(frozen=True)
class Choice:
    """A teacher and why."""

    teacher: str
    reason: str


def choose_exact_teacher(graph: AnyGraph, series: AbstractKernel) -> str:
    """Exact or frontier, whichever costs less per start: for rows that are asked for a few at a time."""
    nodes = np.arange(0, graph.n_nodes, max(1, graph.n_nodes // _PROBES))[:_PROBES]
    form = spectral_form(graph)
    cost = float(series.expansion(form.radius, ExactOptions().tol).degree) * form.matrix.nnz
    return "exact" if cost <= _probe(graph, series, nodes, 1, cost)[0] else "frontier"


def row_memory(graph: AnyGraph, series: AbstractKernel) -> float:
    """Bytes that one row of signatures takes, dense or by the nodes it reaches, whichever is less."""
    joined = np.flatnonzero(np.diff(graph.operator.indptr))
    nodes = (joined if len(joined) else np.arange(graph.n_nodes))[:: max(1, len(joined) // _PROBES)][:_PROBES]
    dense = 8.0 * graph.n_nodes
    # Isolated nodes reach nothing; a row has at least one entry to reckon with.
    return max(12.0, min(dense, _probe(graph, series, nodes, 1, np.inf, most=dense)[1]))


def choose_teacher(graph: AnyGraph, series: AbstractKernel, nodes: IntArray, most: float | None = None) -> Choice:
    """The cheapest teacher whose rows fit into memory, of which they may take so many bytes."""
    most = ROW_MEMORY if most is None else most
    form = spectral_form(graph)
    degree = series.expansion(form.radius, ExactOptions().tol).degree
    exact_cost = float(len(nodes)) * degree * form.matrix.nnz
    exact_memory = 8.0 * len(nodes) * form.n
    # Small problems need no probe: it would cost as much as the answer.
    if exact_memory <= most and exact_cost <= 1e8:
        return Choice("exact", f"{exact_cost:.1e} products, {exact_memory / 2**20:.0f} MB of rows")
    probe = nodes[:: max(1, len(nodes) // _PROBES)][:_PROBES]
    limit = exact_cost if exact_memory <= most else np.inf
    frontier_cost, frontier_memory = _probe(graph, series, probe, len(nodes), limit, most)
    costs = f"exact {exact_cost:.1e} products and {exact_memory / 2**20:.0f} MB, "
    costs += f"frontier {frontier_cost:.1e} and {frontier_memory / 2**20:.0f} MB"
    if exact_memory <= most and (exact_cost <= frontier_cost or frontier_memory > most):
        return Choice("exact", costs)
    if frontier_memory <= most or not isinstance(graph, Graph):
        return Choice("frontier", costs)
    return Choice("counts", costs + f": both above the limit of {most / 2**30:.3g} GB")


def _probe(
    graph: AnyGraph, series: AbstractKernel, nodes: IntArray, n_starts: int, limit: float, most: float = ROW_MEMORY
) -> tuple[float, float]:
    """Cost and memory of the frontier, from some starts.

    Lengths are added only until they show that it costs more than the limit or does not fit into memory: a probe
    that went on to the end of a slowly converging series would take longer than the answer.
    """
    try:
        coefficients = frontier_coefficients(graph, series, FrontierOptions().tol)
    except ValueError:  # a series of more terms than anyone would push
        return np.inf, np.inf
    n = _FIRST_LENGTHS
    while True:
        chunk = frontier_engine(graph, coefficients[:n], FrontierOptions().tol, keep_lengths=False)(nodes)
        cost = n_starts * chunk.n_steps / len(nodes) * _PUSH_COST
        memory = 12.0 * n_starts * float(np.mean(chunk.counts))
        if n >= len(coefficients) or cost > limit or memory > most:
            return cost, memory
        n *= 2
