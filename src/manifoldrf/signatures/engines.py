"""The compiled teachers behind one interface, the threads that run them, and the choice of a teacher.

A recipe says what to compute and can be sent to other machines; a runner says where. A recipe makes a worker from a
graph, and a worker makes a part of the result from start nodes. No bit of a part depends on which other nodes are
computed with it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manifoldrf._runtime import thread_pool
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import TOLERANCES, AnyGraph, Expansion, best_matrix, rows_of_expansion
from manifoldrf.signatures.counts import CountLaw, build_count_table, propagate_counts
from manifoldrf.signatures.frontier import push_frontier, rename_slots
from manifoldrf.signatures.options import CountOptions, ExactOptions, FrontierOptions, SurvivalLaw, WalkOptions
from manifoldrf.signatures.walks import Coupling, Law, coupled_walks, independent_walks, pack_uniform, pack_weighted

ROW_MEMORY = 2**31  # limit for the rows, in bytes

# Starts per chunk: enough to pay for a workspace over all nodes, few enough to share among threads and to show
# progress.
_STARTS_AT_ONCE = (16, 256)
_NODES_PER_START = 4000  # clearing the workspace of this many nodes takes as long as a small start
_LARGE = 50_000  # from this many nodes on, their order in memory matters
_COUPLINGS = {
    "independent": None,
    "antithetic": Coupling(2, antithetic=True, repelling=False),
    "repelling": Coupling(16, antithetic=False, repelling=True),  # groups of twice the usual degree
}
_PUSH_COST = 6.0  # of the frontier, relative to a product of the exact teacher
_PROBES = 4
_FIRST_LENGTHS = 64


@dataclass(frozen=True)
class Chunk:
    """Sparse rows of some start nodes; slot = length * N + node if lengths are kept."""

    counts: IntArray  # (n_starts,) slots of each start
    slots: IntArray  # one start after the other, ascending within each
    values: FloatArray
    n_steps: int
    variances: Any = None  # like values, or None
    bound: float | None = None
    n_touched: int | None = None


Progress = Callable[[str, int, int], None]
Key = NDArray[np.uint32]
Engine = Callable[[IntArray], Chunk]
MakeEngine = Callable[[AnyGraph], Engine]  # can be pickled
Worker = Callable[[IntArray, int, Progress], Any]  # (nodes, n_jobs, progress)
Recipe = Callable[[AnyGraph], Worker]  # can be pickled
Runner = Callable[[Recipe, AnyGraph, IntArray, str], list[Any]]  # (..., stage): parts in the order of the nodes


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""


@contextmanager
def stage_of(progress: Progress, what: str) -> Iterator[None]:
    """Report the beginning of a stage without steps and, if nothing fails, its end."""
    progress(what, 0, 1)
    yield
    progress(what, 1, 1)


def run_here(n_jobs: int, progress: Progress) -> Runner:
    """A runner that computes all nodes at once, with threads of this machine."""

    def run(recipe: Recipe, graph: AnyGraph, nodes: IntArray, stage: str) -> list[Any]:
        return [recipe(graph)(nodes, n_jobs, lambda what, done, total: progress(stage, done, total))]

    return run


def exact_worker(expansion: Expansion, graph: AnyGraph) -> Worker:
    """Dense rows of a polynomial of the graph's symmetric matrix; a part is an array (len(nodes), N)."""
    matrix = best_matrix(expansion, graph)
    return lambda nodes, n_jobs, progress: rows_of_expansion(expansion, matrix, nodes, n_jobs, progress)


def chunk_worker(make: MakeEngine, graph: AnyGraph) -> Worker:
    """Sparse rows by an engine; a part is a list of chunks."""
    return functools.partial(_run_chunks, make(graph), graph.n_nodes)


def own_worker(teacher: Callable[..., Any], series: AbstractKernel, graph: AnyGraph) -> Worker:
    """Rows by a function of the user; a part is its result, dense or sparse, checked for shape."""

    def work(nodes: IntArray, n_jobs: int, progress: Progress) -> Any:
        del n_jobs, progress
        rows = teacher(graph, series, nodes)
        found, wanted = np.shape(rows), (len(nodes), graph.n_nodes)
        if found != wanted:
            reject("teacher", f"a function that returns rows of shape {wanted}", f"one that returns {found}")
        return rows

    return work


def _run_chunks(engine: Engine, n_nodes: int, nodes: IntArray, n_jobs: int, progress: Progress) -> list[Chunk]:
    """Chunks of rows in the order of the start nodes; how threads share them changes no bit."""
    size = int(np.clip(n_nodes // _NODES_PER_START, *_STARTS_AT_ONCE))
    # Without start nodes there is one empty piece: the second stitch of walks that reached nothing.
    pieces = [nodes[k : k + size] for k in range(0, max(1, len(nodes)), size)]
    results, done = [], 0
    with thread_pool(n_jobs) as pool:
        for piece, chunk in zip(pieces, pool.map(engine, pieces), strict=True):
            results.append(chunk)
            done += len(piece)
            progress("signatures", done, len(nodes))
    return results


def stacked(parts: list[Any]) -> Any:
    """Rows of all parts, float64, dense or CSR; empties the list, so that only one part is in memory twice."""
    if any(sparse.issparse(part) for part in parts):
        joined = parts[0] if len(parts) == 1 else sparse.vstack(parts)
        return sparse.csr_array(joined, dtype=np.float64, copy=len(parts) == 1)  # a teacher may keep its rows
    arrays = [np.asarray(part, dtype=np.float64) for part in parts]
    if len(arrays) == 1:
        return arrays[0]
    parts.clear()
    rows = np.zeros((sum(map(len, arrays)), *arrays[0].shape[1:]))
    done = 0
    while arrays:
        part = arrays.pop(0)
        rows[done : done + len(part)] = part
        done += len(part)
    return rows


def assemble(chunks: list[Chunk], n_nodes: int, n_lengths: int = 1) -> tuple[Any, Any]:
    """CSR arrays (n_starts * n_lengths, n_nodes) of the values and, if there are any, of their standard errors."""
    slots = np.concatenate([chunk.slots for chunk in chunks])
    per_start = np.concatenate([chunk.counts for chunk in chunks])
    values = np.concatenate([chunk.values for chunk in chunks])
    starts = np.repeat(np.arange(len(per_start)), per_start)
    touched = values != 0  # walks pass through lengths with f_k = 0 without a deposit
    slots, values, starts = slots[touched], values[touched], starts[touched]
    rows = starts * n_lengths + slots // n_nodes
    ends = np.zeros(len(per_start) * n_lengths + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=len(ends) - 1), out=ends[1:])
    index = np.int32 if max(len(slots), n_nodes) < 2**31 else np.int64
    columns, ends = (slots % n_nodes).astype(index), ends.astype(index)
    shape = (len(per_start) * n_lengths, n_nodes)
    matrix = sparse.csr_array((values, columns, ends), shape=shape)
    if any(chunk.variances is None for chunk in chunks):
        return matrix, None
    variances = np.concatenate([chunk.variances for chunk in chunks])[touched]
    return matrix, sparse.csr_array((np.sqrt(variances), columns, ends), shape=shape)


def walk_engine(graph: AnyGraph, law: SurvivalLaw, options: WalkOptions, key: Key) -> Engine:
    """Algorithm 1 and its variants."""
    pack = pack_weighted if options.transitions == "weighted" else pack_uniform
    table = pack(graph.operator.indptr, graph.operator.indices, graph.operator.data)
    stride = graph.n_nodes if options.keep_lengths else 0
    settings = Law(law.deposit, law.thresholds), options.n_walks, options.n_batches, stride, key
    coupling = _COUPLINGS[options.coupling]

    def run(starts: IntArray) -> Chunk:
        if coupling is None:
            return _monte_carlo_chunk(*independent_walks(table, starts, *settings))
        return _monte_carlo_chunk(*coupled_walks(table, starts, *settings, coupling))

    return run


def count_engine(graph: AnyGraph, law: SurvivalLaw, options: CountOptions, key: Key) -> Engine:
    """Walkers counted per node."""
    if not isinstance(graph, Graph):
        reject("teacher", "'exact', 'frontier' or 'walks' on a generalised adjacency", "'counts'")
    table = build_count_table(graph.affinity.indptr, graph.affinity.indices, graph.affinity.data)
    stride = graph.n_nodes if options.keep_lengths else 0
    settings = options.n_walks, options.n_batches, stride, key
    compiled = CountLaw(law.deposit, law.keep)
    return lambda starts: _monte_carlo_chunk(*propagate_counts(table, compiled, starts, *settings)[:5])


def _monte_carlo_chunk(counts: Any, slots: Any, values: Any, variances: Any, n_steps: int) -> Chunk:
    # A single batch gives no variance estimate.
    return Chunk(counts, slots, values, int(n_steps), None if np.isnan(variances).any() else variances)


def frontier_coefficients(graph: AnyGraph, series: AbstractKernel, tol: float) -> FloatArray:
    """Coefficients of a series up to half the tolerance; the frontier uses the other half."""
    return series.coefficients(series.truncation(max(tol / 2, TOLERANCES.low), graph.radius))


def frontier_engine(graph: AnyGraph, coefficients: FloatArray, tol: float, *, keep_lengths: bool) -> Engine:
    """Rows evaluated on the nodes they reach; the coefficients are ones if lengths are kept."""
    # Each length drops about a hundred entries at the rim, whose norm is about ten thresholds. All lengths together
    # should stay below half the tolerance. The chunk carries a rigorous bound.
    threshold = tol / (20 * len(coefficients)) * min(graph.radius, 1.0) ** (len(coefficients) - 1)
    # A frontier of some thousand nodes spread over the memory of a million takes 1.7 times as long.
    n_slots = graph.n_nodes * (len(coefficients) if keep_lengths else 1)
    large = isinstance(graph, Graph) and graph.n_nodes >= _LARGE and n_slots < 2**31
    local = graph._local if large else None
    operator = graph.operator if local is None else local.matrix
    csr = operator.indptr, operator.indices, operator.data
    stride = graph.n_nodes if keep_lengths else 0

    def run(starts: IntArray) -> Chunk:
        places = starts if local is None else local.place[starts]
        found = push_frontier(*csr, coefficients, places, threshold, stride)
        counts, slots, values, bounds, touched, n_pushes = found
        if local is not None:
            rename_slots(counts, slots, values, local.order)
        return Chunk(counts, slots, values, int(n_pushes), None, float(bounds.max()), int(touched.max()))

    return run


@dataclass(frozen=True)
class Choice:
    """A teacher and the reason for it."""

    teacher: str
    reason: str


def choose_teacher(graph: AnyGraph, series: AbstractKernel, nodes: IntArray, most: float | None = None) -> Choice:
    """The cheapest teacher whose rows fit in ``most`` bytes of memory, 2 GB by default."""
    most = ROW_MEMORY if most is None else most
    exact_cost = len(nodes) * _exact_cost(graph, series)
    exact_memory = 8.0 * len(nodes) * graph.n_nodes
    # Small problems need no probe, which would cost as much as the rows themselves.
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


def choose_exact_teacher(graph: AnyGraph, series: AbstractKernel) -> str:
    """Exact or frontier, whichever costs less per start; for rows that are computed a few at a time."""
    nodes = np.arange(0, graph.n_nodes, max(1, graph.n_nodes // _PROBES))[:_PROBES]
    cost = _exact_cost(graph, series)
    return "exact" if cost <= _probe(graph, series, nodes, 1, cost)[0] else "frontier"


def row_memory(graph: AnyGraph, series: AbstractKernel) -> float:
    """Bytes of one row of signatures, dense or sparse, whichever is less."""
    joined = np.flatnonzero(np.diff(graph.operator.indptr))
    nodes = (joined if len(joined) else np.arange(graph.n_nodes))[:: max(1, len(joined) // _PROBES)][:_PROBES]
    dense = 8.0 * graph.n_nodes
    # Isolated nodes reach nothing; a row has at least one entry.
    return max(12.0, min(dense, _probe(graph, series, nodes, 1, np.inf, most=dense)[1]))


def _exact_cost(graph: AnyGraph, series: AbstractKernel) -> float:
    """Products that one row takes with the exact teacher."""
    return float(series.expansion(graph.radius, ExactOptions().tol).degree * graph.symmetric.nnz)


def _probe(
    graph: AnyGraph, series: AbstractKernel, nodes: IntArray, n_starts: int, limit: float, most: float = ROW_MEMORY
) -> tuple[float, float]:
    """Cost and memory of the frontier, estimated from some starts.

    The probe stops at the length at which the cost exceeds the limit or the rows do not fit in memory. To follow a
    slowly converging series to its end would take longer than the rows themselves.
    """
    try:
        coefficients = frontier_coefficients(graph, series, FrontierOptions().tol)
    except ValueError:  # the series has too many terms
        return np.inf, np.inf
    n = _FIRST_LENGTHS
    while True:
        chunk = frontier_engine(graph, coefficients[:n], FrontierOptions().tol, keep_lengths=False)(nodes)
        cost = n_starts * chunk.n_steps / len(nodes) * _PUSH_COST
        memory = 12.0 * n_starts * float(np.mean(chunk.counts))
        if n >= len(coefficients) or cost > limit or memory > most:
            return cost, memory
        n *= 2
