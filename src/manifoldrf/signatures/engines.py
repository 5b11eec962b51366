"""How the teachers compute rows, in which threads, and how a teacher is chosen.

A recipe defines what to compute and can be sent to other machines; a runner defines where. A recipe makes a worker
from a graph, and a worker makes a part of the result from start nodes. A part does not depend, to the last bit, on
which other nodes are computed with it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manifoldrf._random import Streams
from manifoldrf._runtime import thread_pool
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.geometry.csr import csr_parts
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import TOLERANCES, AnyGraph, Expansion, best_matrix, rows_of_expansion
from manifoldrf.signatures.counts import CountLaw, build_count_table, propagate_counts
from manifoldrf.signatures.frontier import push_frontier, rename_slots
from manifoldrf.signatures.options import (
    CountOptions,
    ExactOptions,
    FrontierOptions,
    SurvivalLaw,
    WalkOptions,
    coefficients_of,
    refuse_unreached,
    survival_law,
)
from manifoldrf.signatures.walks import Coupling, Law, coupled_walks, independent_walks, pack_uniform, pack_weighted

ROW_MEMORY = 2**31  # limit for the rows, in bytes
_MISSING = 1e-6  # lengths that are not stored may hold at most this share of a series

# Starts per chunk: enough to pay for a workspace over all nodes, few enough to share among threads and to show
# progress.
_STARTS_AT_ONCE = (16, 256)
_NODES_PER_START = 4000  # clearing the workspace of this many nodes takes as long as a small start
_LARGE = 50_000  # from this many nodes on, their order in memory matters
_COUPLINGS = {
    "independent": None,
    "antithetic": Coupling(2, antithetic=True, repelling=False),
    "repelling": Coupling(16, antithetic=False, repelling=True),  # group size: twice the usual degree
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
    """Report no progress."""


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
    """Sparse rows by an engine; a part is a list of chunks in the order of the start nodes."""
    engine = make(graph)
    size = int(np.clip(graph.n_nodes // _NODES_PER_START, *_STARTS_AT_ONCE))

    def work(nodes: IntArray, n_jobs: int, progress: Progress) -> list[Chunk]:
        # Without start nodes (a second stitch after walks that reached nothing) there is one empty piece.
        # Copies are writable and contiguous, so that the engines are compiled for one type of arrays.
        pieces = [np.array(nodes[k : k + size]) for k in range(0, max(1, len(nodes)), size)]
        results, done = [], 0
        with thread_pool(n_jobs) as pool:
            for piece, chunk in zip(pieces, pool.map(engine, pieces), strict=True):
                results.append(chunk)
                done += len(piece)
                progress("signatures", done, len(nodes))
        return results

    return work


def own_worker(teacher: Callable[..., Any], series: AbstractKernel, graph: AnyGraph) -> Worker:
    """Rows by the user's function; a part is its result, dense or sparse, with a checked shape."""

    def work(nodes: IntArray, n_jobs: int, progress: Progress) -> Any:
        del n_jobs, progress
        rows = teacher(graph, series, nodes)
        found, wanted = np.shape(rows), (len(nodes), graph.n_nodes)
        if found != wanted:
            reject("teacher", f"a function that returns rows of shape {wanted}", f"one that returns {found}")
        return rows

    return work


def stacked(parts: list[Any]) -> Any:
    """Rows of all parts, float64, dense or CSR; empties the list, so that only one part is in memory twice."""
    if any(sparse.issparse(part) for part in parts):
        joined = parts[0] if len(parts) == 1 else sparse.vstack(parts)
        return sparse.csr_array(joined, dtype=np.float64, copy=len(parts) == 1)  # a teacher may still use its rows
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
    table = pack(*csr_parts(graph.operator))
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
    table = build_count_table(*csr_parts(graph.affinity))
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
    # At each length about a hundred entries at the rim are dropped; their norm is about ten thresholds. All lengths
    # together should stay below half the tolerance. The chunk carries a rigorous bound.
    threshold = tol / (20 * len(coefficients)) * min(graph.radius, 1.0) ** (len(coefficients) - 1)
    # A frontier of some thousand nodes spread over the memory of a million takes 1.7 times as long.
    n_slots = graph.n_nodes * (len(coefficients) if keep_lengths else 1)
    large = isinstance(graph, Graph) and graph.n_nodes >= _LARGE and n_slots < 2**31
    local = graph._local if large else None
    operator = graph.operator if local is None else local.matrix
    csr = csr_parts(operator)
    stride = graph.n_nodes if keep_lengths else 0

    def run(starts: IntArray) -> Chunk:
        places = np.array(starts if local is None else local.place[starts])
        found = push_frontier(*csr, np.array(coefficients), places, threshold, stride)
        counts, slots, values, bounds, touched, n_pushes = found
        if local is not None:
            rename_slots(counts, slots, values, local.order)
        return Chunk(counts, slots, values, int(n_pushes), None, float(bounds.max()), int(touched.max()))

    return run


@dataclass(frozen=True)
class Task:
    """The rows to compute: rows ``nodes`` of the series of the kernel."""

    graph: AnyGraph
    kernel: AbstractKernel
    series: AbstractKernel
    nodes: IntArray

    @property
    def stretch(self) -> float:
        """Largest factor by which powers of a matrix diag(1/s) S diag(s) with |S| <= 1 can stretch a row."""
        scaling = self.graph.scaling
        return 1.0 if scaling is None else float(scaling.max() / scaling.min())


@dataclass(frozen=True)
class Result:
    """What a teacher computed."""

    rows: Any
    n_steps: int
    stderr: Any = None
    lengths: Any = None
    bound: float | None = None
    n_touched: int | None = None


def teach(teacher: str, task: Task, options: Any, streams: Streams, run: Runner) -> Result:
    """Compute rows with a teacher of the library."""
    if teacher in ("walks", "counts"):
        return _monte_carlo(walk_engine if teacher == "walks" else count_engine, task, options, streams, run)
    tol = options.tol
    if options.keep_lengths:  # plain powers; the exact teacher drops no entry
        coefficients, tol = np.ones(options.max_length + 1), 0.0 if teacher == "exact" else tol
    elif teacher == "exact":
        return _teach_exact(task, tol, run)
    else:
        coefficients = frontier_coefficients(task.graph, task.series, tol)
    make = functools.partial(frontier_engine, coefficients=coefficients, tol=tol, keep_lengths=options.keep_lengths)
    return _from_chunks(task, _chunks(run, make, task.graph, task.nodes), coefficients, options)


def teach_own(task: Task, teacher: Callable[..., Any], options: dict[str, Any], run: Runner) -> Result:
    """Compute rows with the user's function, and check that they are finite."""
    recipe = functools.partial(own_worker, functools.partial(teacher, **options), task.series)
    found = stacked(run(recipe, task.graph, task.nodes, "signatures"))
    if not np.isfinite(found.data if sparse.issparse(found) else found).all():
        reject("teacher", "a function that returns finite rows", "one that does not")
    return Result(found, 0)


def _teach_exact(task: Task, tol: float, run: Runner) -> Result:
    """Dense rows by polynomials."""
    radius, scaling = task.graph.radius, task.graph.scaling
    expansion = task.series.expansion(radius, tol)
    try:
        rows = stacked(run(functools.partial(exact_worker, expansion), task.graph, task.nodes, "signatures"))
    except MemoryError:
        size = 8e-9 * len(task.nodes) * task.graph.n_nodes
        text = f"Dense rows take {size:.0f} GB; teacher='frontier' or 'counts' gives sparse rows."
        raise MemoryError(text) from None
    bound = tol * float(np.abs(task.series.spectral(np.linspace(-radius, radius, 513))).max())
    if isinstance(task.graph, Graph) and task.series.series_is_nonnegative:
        # The rows are sums of nonnegative terms, so negative entries are rounding. A root may also have noise of
        # 1e-6, but small negative terms of the kernel itself are intended.
        rounded = rows >= -bound if task.series is task.kernel else True
        np.maximum(rows, 0.0, out=rows, where=rounded)
    if scaling is not None:
        rows *= scaling / scaling[task.nodes][:, None]
    n_steps = expansion.degree * task.graph.symmetric.nnz * len(task.nodes)
    return Result(rows, n_steps, bound=bound * task.stretch)


def _monte_carlo(engine: Any, task: Task, options: Any, streams: Streams, run: Runner) -> Result:
    """Rows by walks of the series, or by stitched walks of its root of order ``n_stitches``."""
    series = task.series.root(options.n_stitches) if options.n_stitches > 1 else task.series
    law = survival_law(None if options.keep_lengths else series, options, task.graph.radius)
    if not options.keep_lengths:
        refuse_unreached(law, options.n_walks, options.p_halt)
    makes: list[MakeEngine] = [
        functools.partial(engine, law=law, options=options, key=streams.key(f"signatures.walks {k}"))
        for k in range(options.n_stitches)
    ]
    chunks = _chunks(run, makes[0], task.graph, task.nodes)
    result = _from_chunks(task, chunks, law.coefficients, options)
    for k, make in enumerate(makes[1:], 2):  # new walks continue from every node that was reached
        reached = np.unique(result.rows.indices).astype(np.int64)
        chunks = _chunks(run, make, task.graph, reached, f"signatures, stitch {k} of {len(makes)}")
        rows = result.rows[:, reached] @ assemble(chunks, task.graph.n_nodes)[0]
        rows.sort_indices()
        result = Result(rows, result.n_steps + sum(chunk.n_steps for chunk in chunks))
    return result


def _chunks(run: Runner, make: MakeEngine, graph: AnyGraph, nodes: Any, stage: str = "signatures") -> list[Chunk]:
    """Chunks of rows in the order of the start nodes."""
    return [chunk for part in run(functools.partial(chunk_worker, make), graph, nodes, stage) for chunk in part]


def _from_chunks(task: Task, chunks: list[Chunk], coefficients: Any, options: Any) -> Result:
    n_steps, radius = sum(chunk.n_steps for chunk in chunks), task.graph.radius
    touched = max((chunk.n_touched or 0 for chunk in chunks), default=0) or None
    if options.keep_lengths:
        lengths = assemble(chunks, task.graph.n_nodes, len(coefficients))[0]
        rows = weighted_lengths(lengths, len(task.nodes), task.series, radius)
        return Result(rows, n_steps, None, lengths, None, touched)
    bounds, bound = [chunk.bound for chunk in chunks if chunk.bound is not None], None
    if bounds and radius <= 1 + 1e-12:  # 1, up to rounding of row sums
        # Bound of the entries that the frontier dropped and of the terms that the series left out.
        whole = float(np.abs(coefficients) @ radius ** np.arange(len(coefficients)))
        bound = task.stretch * (max(bounds) + options.tol / 2 * whole / (1 - options.tol / 2))
    rows, stderr = assemble(chunks, task.graph.n_nodes)
    return Result(rows, n_steps, stderr, None, bound, touched)


def weighted_lengths(lengths: Any, n_starts: int, series: AbstractKernel, radius: float) -> Any:
    """CSR array (n_starts, N) of sum_k f_k times the stored powers."""
    n_lengths = lengths.shape[0] // n_starts
    needed = series.truncation(_MISSING, radius)
    if needed > n_lengths:
        raise ValueError(
            f"This kernel needs the rows of {series}, which needs powers up to {needed - 1}, but only "
            f"powers up to {n_lengths - 1} are kept; compute with max_length={needed - 1} or more."
        )
    f = np.tile(coefficients_of(series, n_lengths, radius), n_starts)
    ends = np.arange(n_starts + 1) * n_lengths
    rows = sparse.csr_array((f, np.arange(len(f)), ends), shape=(n_starts, len(f))) @ lengths
    rows.sort_indices()
    return rows


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
    """Number of products for one row with the exact teacher."""
    return float(series.expansion(graph.radius, ExactOptions().tol).degree * graph.symmetric.nnz)


def _probe(
    graph: AnyGraph, series: AbstractKernel, nodes: IntArray, n_starts: int, limit: float, most: float = ROW_MEMORY
) -> tuple[float, float]:
    """Cost and memory of the frontier, estimated from some starts.

    The probe stops at the length at which the cost exceeds the limit or the rows do not fit in memory. Computing a
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
