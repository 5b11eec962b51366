"""The compiled teachers behind one interface: start nodes in, a chunk of sparse rows out, chunks over threads.

What is computed is said by a recipe, which can be sent to other machines, and where by a runner. A recipe makes a
worker of a graph, and a worker parts of start nodes. No bit of a part depends on which other nodes are with it.
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
from manifoldrf.geometry.loops import LocalForm
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import TOLERANCES, AnyGraph, Expansion, best_matrix, rows_of_expansion
from manifoldrf.signatures.counts import CountLaw, build_count_table, propagate_counts
from manifoldrf.signatures.frontier import push_frontier, rename_slots
from manifoldrf.signatures.options import CountOptions, ExactOptions, FrontierOptions, SurvivalLaw, WalkOptions
from manifoldrf.signatures.walks import (
    Coupling,
    Law,
    coupled_walks,
    independent_walks,
    pack_uniform,
    pack_weighted,
)

Progress = Callable[[str, int, int], None]
Key = NDArray[np.uint32]

# Starts per chunk: enough to pay for a workspace over all nodes, few enough to share among threads and show
# progress.
_STARTS_AT_ONCE = (16, 256)
_NODES_PER_START = 4000  # clearing 50 bytes of workspace for each of so many nodes takes as long as a small start
_LARGE = 50_000  # nodes from which on their order in memory matters
_GROUP_SIZE = 16  # walkers that repel each other, twice the usual degree


@dataclass(frozen=True)
class Chunk:
    """Sparse rows of some start nodes; slot = length * N + node where lengths are kept."""

    counts: IntArray  # (n_starts,) slots of each start
    slots: IntArray  # those of one start after the other, ascending
    values: FloatArray
    n_steps: int
    variances: FloatArray | None = None
    bound: float | None = None
    n_touched: int | None = None


Engine = Callable[[IntArray], Chunk]
MakeEngine = Callable[[AnyGraph], Engine]  # pickles
Worker = Callable[[IntArray, int, Progress], Any]  # of start nodes, threads and progress
Recipe = Callable[[AnyGraph], Worker]  # pickles
Runner = Callable[
    [Recipe, AnyGraph, IntArray, str], list[Any]
]  # parts in the order of the nodes; the last is a name


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody asked for."""


@contextmanager
def stage_of(progress: Progress, what: str) -> Iterator[None]:
    """Tell that a stage without steps of its own begins and, if nothing fails, that it is over."""
    progress(what, 0, 1)
    yield
    progress(what, 1, 1)


def run_here(n_jobs: int, progress: Progress) -> Runner:
    """All nodes at once, by threads of this machine."""

    def run(recipe: Recipe, graph: AnyGraph, nodes: IntArray, stage: str) -> list[Any]:
        return [recipe(graph)(nodes, n_jobs, lambda what, done, total: progress(stage, done, total))]

    return run


def exact_worker(expansion: Expansion, graph: AnyGraph) -> Worker:
    """Dense rows of a polynomial of the symmetric matrix behind a graph; a part is an array (len(nodes), N)."""
    matrix = best_matrix(expansion, graph)
    return lambda nodes, n_jobs, progress: rows_of_expansion(expansion, matrix, nodes, n_jobs, progress)


def chunk_worker(make: MakeEngine, graph: AnyGraph) -> Worker:
    """Sparse rows by one of the engines; a part is a list of chunks."""
    return functools.partial(run_chunks, make(graph), graph.n_nodes)


def own_worker(teacher: Callable[..., Any], series: AbstractKernel, graph: AnyGraph) -> Worker:
    """Rows by a function of the user's; a part is what it returns, dense or sparse, if it has their shape."""

    def work(nodes: IntArray, n_jobs: int, progress: Progress) -> Any:
        del n_jobs, progress
        rows = teacher(graph, series, nodes)
        found, wanted = np.shape(rows), (len(nodes), graph.n_nodes)
        if found != wanted:
            reject("teacher", f"a function that returns rows of shape {wanted}", f"one that returns {found}")
        return rows

    return work


def stacked(parts: list[Any]) -> Any:
    """Rows of all parts, float64, dense or CSR; the list is emptied, so that only one part is held twice."""
    if any(sparse.issparse(part) for part in parts):
        joined = parts[0] if len(parts) == 1 else sparse.vstack(parts)
        return sparse.csr_array(joined, dtype=np.float64, copy=len(parts) == 1)  # a teacher may keep what it gave
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


def walk_engine(graph: AnyGraph, law: SurvivalLaw, options: WalkOptions, key: Key) -> Engine:
    """Algorithm 1 and its variants."""
    pack = pack_weighted if options.transitions == "weighted" else pack_uniform
    table = pack(graph.operator.indptr, graph.operator.indices, graph.operator.data)
    compiled = Law(law.deposit, law.thresholds)
    settings = (options.n_walks, options.n_batches, _stride(graph, keep_lengths=options.keep_lengths), key)
    coupling = _coupling(options)

    def run(starts: IntArray) -> Chunk:
        if coupling is None:
            found = independent_walks(table, starts, compiled, *settings)
        else:
            found = coupled_walks(table, starts, compiled, *settings, coupling)
        return _monte_carlo_chunk(found)

    return run


def count_engine(graph: AnyGraph, law: SurvivalLaw, options: CountOptions, key: Key) -> Engine:
    """Count propagation."""
    if not isinstance(graph, Graph):
        reject("teacher", "'exact', 'frontier' or 'walks' on a generalised adjacency", "'counts'")
    table = build_count_table(graph.affinity.indptr, graph.affinity.indices, graph.affinity.data)
    compiled = CountLaw(law.deposit, law.keep)
    stride = _stride(graph, keep_lengths=options.keep_lengths)

    def run(starts: IntArray) -> Chunk:
        found = propagate_counts(table, compiled, starts, options.n_walks, options.n_batches, stride, key)
        return _monte_carlo_chunk(found)

    return run


def frontier_coefficients(graph: AnyGraph, series: AbstractKernel, tol: float) -> FloatArray:
    """Coefficients of a series up to half the tolerance; the frontier spends the other half."""
    return series.coefficients(series.truncation(max(tol / 2, TOLERANCES.low), graph.radius))


def frontier_engine(graph: AnyGraph, coefficients: FloatArray, tol: float, *, keep_lengths: bool) -> Engine:
    """Exact rows on the nodes they reach; with lengths kept the coefficients are ones."""
    # A length drops about a hundred entries at the rim, of norm ten thresholds together; what all lengths drop
    # shall stay below half the tolerance. The chunk carries a rigorous bound.
    threshold = tol / (20 * len(coefficients)) * min(graph.radius, 1.0) ** (len(coefficients) - 1)
    local = _local(graph, len(coefficients) if keep_lengths else 1)
    operator = graph.operator if local is None else local.matrix
    parts = operator.indptr, operator.indices, operator.data
    stride = _stride(graph, keep_lengths=keep_lengths)

    def run(starts: IntArray) -> Chunk:
        found = push_frontier(
            *parts, coefficients, starts if local is None else local.place[starts], threshold, stride
        )
        n_starts, slots, values, bounds, touched, n_pushes = found
        if local is not None:
            rename_slots(n_starts, slots, values, local.order)
        return Chunk(n_starts, slots, values, int(n_pushes), None, float(bounds.max()), int(touched.max()))

    return run


def _local(graph: AnyGraph, n_lengths: int) -> LocalForm | None:
    """The operator of a large graph with its nodes in a local order; None for others.

    A frontier of some thousand nodes spread over the memory of a million takes 1.7 times as long.
    """
    if not isinstance(graph, Graph) or graph.n_nodes < _LARGE or graph.n_nodes * n_lengths >= 2**31:
        return None
    return graph._local


def run_chunks(engine: Engine, n_nodes: int, nodes: IntArray, n_jobs: int, progress: Progress) -> list[Chunk]:
    """Chunks of rows in the order of the start nodes; threads share them, and no bit depends on how."""
    size = int(np.clip(n_nodes // _NODES_PER_START, *_STARTS_AT_ONCE))
    # No start node is one empty piece: the second stitch of walks that reached nothing.
    pieces = [nodes[k : k + size] for k in range(0, max(1, len(nodes)), size)]
    results, done = [], 0
    with thread_pool(n_jobs) as pool:
        for piece, chunk in zip(pieces, pool.map(engine, pieces), strict=True):
            results.append(chunk)
            done += len(piece)
            progress("signatures", done, len(nodes))
    return results


def assemble(chunks: list[Chunk], n_nodes: int, n_lengths: int = 1) -> tuple[Any, Any]:
    """CSR arrays (n_starts * n_lengths, n_nodes) of the values and, where there are any, of their errors."""
    slots = np.concatenate([chunk.slots for chunk in chunks])
    per_start = np.concatenate([chunk.counts for chunk in chunks])
    values = np.concatenate([chunk.values for chunk in chunks])
    starts = np.repeat(np.arange(len(per_start)), per_start)
    touched = values != 0  # lengths with f_k = 0 are walked through, and leave nothing
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
    variances = np.concatenate(list(_variances(chunks)))[touched]
    return matrix, sparse.csr_array((np.sqrt(variances), columns, ends), shape=shape)


def _variances(chunks: list[Chunk]) -> Iterator[FloatArray]:
    for chunk in chunks:
        if chunk.variances is not None:
            yield chunk.variances


def _monte_carlo_chunk(found: Any) -> Chunk:
    n_starts, slots, values, variances, n_steps = found[:5]
    # One batch, be it that there are too few walks for two, knows no variance.
    return Chunk(n_starts, slots, values, int(n_steps), None if np.isnan(variances).any() else variances)


def _stride(graph: AnyGraph, *, keep_lengths: bool) -> int:
    return graph.n_nodes if keep_lengths else 0


def _coupling(options: WalkOptions) -> Any:
    if options.coupling == "independent":
        return None
    antithetic = options.coupling == "antithetic"
    return Coupling(2 if antithetic else _GROUP_SIZE, antithetic, not antithetic)


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
    cost = float(series.expansion(graph.radius, ExactOptions().tol).degree) * graph.symmetric.nnz
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
    degree = series.expansion(graph.radius, ExactOptions().tol).degree
    exact_cost = float(len(nodes)) * degree * graph.symmetric.nnz
    exact_memory = 8.0 * len(nodes) * graph.n_nodes
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
