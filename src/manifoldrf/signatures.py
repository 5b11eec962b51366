"""Signatures of nodes: the teachers that compute them, the class that holds them and, at the end, the engines.

With a given form, the row of a node is the same, to the last bit, whichever other nodes are requested; "auto" may
choose another form for other numbers of nodes. Engines do not check their arguments.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import Progress, one_blas_thread, silent, thread_pool
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    Interval,
    check_flag,
    check_indices,
    check_integer,
    check_jobs,
    check_option,
    reject,
)
from manifoldrf.geometry.csr import arrays, as_dense, csr_parts, narrow_csr
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import (
    ASYMMETRIC,
    TOLERANCES,
    AbstractKernel,
    FrozenParams,
    rows_of_expansion,
    truncation_of,
)

Engine = Callable[[IntArray], Any]  # starts to (counts, nodes, values, variances or a bound, steps)


@stored
@dataclass(frozen=True)
class Exact(FrozenParams):
    """Exact rows, up to a tolerance.

    Parameters
    ----------
    tol : float
        Error of a row in the 2-norm, relative to the largest value of the series.
    form : {"auto", "dense", "sparse"}
        "dense": Chebyshev polynomials of W. "sparse": powers of W, restricted to nodes where the row is above the
        tolerance; the cost of a row does not grow with the graph. "auto": whichever takes fewer operations, but
        sparse if dense rows would exceed 2 GB.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, Exact, compute_signatures, grid_graph
    >>> found = compute_signatures(grid_graph(100, 2), DiffusionKernel(5.0), [0], teacher=Exact(form="sparse"))
    >>> found.rows.nnz < 900
    True
    """

    tol: float = 1e-8
    form: str = "auto"

    def __post_init__(self) -> None:
        self._keep_real("tol", TOLERANCES)
        check_option(self.form, "form", ("auto", "dense", "sparse"))


_DEFAULT_TEACHER = Exact()


@stored
@dataclass(frozen=True)
class Walks(FrozenParams):
    """Random walks; the defaults are Algorithm 1 of the paper.

    Parameters
    ----------
    n_walks : int
        Walks per start.
    p_halt : float
        Probability of halting after each step, in (0, 1).
    coupling : {"iid", "antithetic", "repelling"}
        "antithetic": pairs of walks with negatively correlated lengths. "repelling": groups of 16 walks that leave
        a node along different edges.
    transitions : {"uniform", "weighted"}
        How a neighbour is chosen; "weighted" is in proportion to |W|.
    survival : {"geometric", "matched"}
        "geometric": set by ``p_halt``. "matched": as many walks reach a length as the series needs at that length.
    truncate : bool
        Whether walks stop where the rest of the series is negligible; else they go on until they halt.
    n_batches : int
        Number of batches of walks, whose spread gives the standard errors.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, Sphere, Walks, compute_signatures, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> walked = compute_signatures(graph, DiffusionKernel(10.0), [0, 1], teacher=Walks(n_walks=1000), seed=0)
    >>> bool(walked.relative_stderr < 0.2)
    True
    """

    n_walks: int = 10_000
    p_halt: float = 0.01
    coupling: str = "iid"
    transitions: str = "uniform"
    survival: str = "geometric"
    truncate: bool = False
    n_batches: int = 8

    def __post_init__(self) -> None:
        check_integer(self.n_walks, "n_walks", 1, 2**48)  # 64-bit integers also count their steps
        self._keep_real("p_halt", Interval(0.0, 1.0, low_open=True, high_open=True))
        check_option(self.coupling, "coupling", ("iid", "antithetic", "repelling"))
        check_option(self.transitions, "transitions", ("uniform", "weighted"))
        check_option(self.survival, "survival", ("geometric", "matched"))
        check_integer(self.n_batches, "n_batches", 1)
        check_flag(self.truncate, "truncate")
        if self.coupling == "repelling" and self.transitions == "weighted":
            reject("coupling", "'iid' or 'antithetic' with weighted transitions", repr(self.coupling))


@stored
@dataclass(frozen=True)
class Counts(FrozenParams):
    """Walkers counted per node: the error falls like 1 / n_walks, at a cost that hardly depends on ``n_walks``.

    Parameters
    ----------
    n_walks : int
        Walkers per start.
    n_batches : int
        Standard errors need at least two batches; the error grows with the square root of their number.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Counts, DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph, kernel = knn_graph(Sphere().grid(500)), DiffusionKernel(10.0)
    >>> counted = compute_signatures(graph, kernel, [0, 1, 2], teacher=Counts(), seed=0)
    >>> exact = compute_signatures(graph, kernel, [0, 1, 2]).rows
    >>> bool(np.linalg.norm(counted.rows - exact) < 0.03 * np.linalg.norm(exact))
    True
    """

    n_walks: int = 10_000
    n_batches: int = 2

    def __post_init__(self) -> None:
        check_integer(self.n_walks, "n_walks", 1, 2**48)
        check_integer(self.n_batches, "n_batches", 1)


# A user's function maps (graph, series, nodes) to rows of the series, dense or sparse, (len(nodes), N).
Teacher = str | Exact | Walks | Counts | Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Signatures:
    """Rows of Phi = sum_k f_k W^k, one per start node.

    Parameters
    ----------
    rows : CSR or dense array of shape (n_starts, N)
    nodes : int array of shape (n_starts,)
        The start nodes.
    teacher : Exact, Walks, Counts or callable
        The teacher in use.
    asymmetric : bool
        Whether the rows are rows of K instead of Phi.
    n_steps : int
        Products with entries of W, or steps of walkers.
    seconds : float
    stderr : CSR array of shape (n_starts, N), optional
        Standard errors of the entries, for walks and counts with at least two batches. For intervals with B
        batches, use a t quantile with B - 1 degrees of freedom. They are too small for entries that few walks have
        reached; ``relative_stderr``, which weights entries by their size, is reliable.
    error_bound : float, optional
        Bound of the error of every exact row in the 2-norm.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> compute_signatures(graph, DiffusionKernel(5.0), [0, 1, 2]).gram().shape
    (3, 3)
    """

    rows: Any
    nodes: IntArray
    teacher: Any
    asymmetric: bool = False
    n_steps: int = 0
    seconds: float = 0.0
    stderr: Any = None
    error_bound: float | None = None

    def __repr__(self) -> str:
        form = "CSR" if sparse.issparse(self.rows) else "dense"
        return f"Signatures({self.rows.shape[0]} rows of {self.rows.shape[1]}, {form}, {self.teacher})"

    @property
    def relative_stderr(self) -> float | None:
        """Standard error of all rows together, relative to their Frobenius norm; None without ``stderr``."""
        if self.stderr is None:
            return None
        norm = float(np.linalg.norm(self.rows.data))
        return float(np.linalg.norm(self.stderr.data)) / norm if norm > 0 else None

    @one_blas_thread()
    def gram(self, other: "Signatures | None" = None) -> FloatArray:
        """Return Phi_1 Phi_2^T, shape (n_starts, n_starts of the other): the kernel between the start nodes.

        With one set of walks (``other`` not given) the result is positive semi-definite and its diagonal is too
        large on average. With a second set from another seed it is unbiased. Asymmetric rows are entries of the
        kernel; without ``other`` they are multiplied with the indicators of the nodes.
        """
        if other is None and self.asymmetric:
            return as_dense(self.rows[:, self.nodes])
        return as_dense(self.rows @ (self if other is None else other).rows.T)


def compute_signatures(
    graph: Graph,
    kernel: AbstractKernel,
    nodes: ArrayLike | None = None,
    *,
    teacher: Teacher = "auto",
    asymmetric: bool = False,
    seed: SeedLike = None,
    n_jobs: int = 1,
    progress: Progress = silent,
) -> Signatures:
    """Signature vectors of nodes: rows of Phi = sum_k f_k W^k, so that K = Phi Phi^T.

    Parameters
    ----------
    graph : Graph
    kernel : AbstractKernel
        A kernel in the manifold clock is resolved on the graph.
    nodes : array-like of int, optional
        Start nodes; all by default.
    teacher : {"auto", "exact"}, Exact, Walks, Counts or callable
        "auto" and "exact" are ``Exact()``. A function ``teacher(graph, series, nodes)`` returns rows of the series,
        (n, N), dense or sparse; ``series`` is a kernel whose ``coefficients`` are the f_k.
    asymmetric : bool
        Compute rows of K instead of Phi, for kernels without a nonnegative modulation. The inner product is then
        taken with indicators of nodes.
    seed : None, int, Generator or RandomState
        For walks and counts. The same seed gives the same bits for any ``n_jobs`` and any other nodes.
    n_jobs : int
        Number of threads; -1 for all cores.
    progress : callable (what, done, total)
        Called as starts are finished.

    Returns
    -------
    signatures : Signatures

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph, kernel = knn_graph(Sphere().grid(500)), DiffusionKernel(10.0)
    >>> np.allclose(compute_signatures(graph, kernel, [0, 1, 2]).gram(), kernel.dense(graph)[:3, :3])
    True
    """
    start, jobs = time.perf_counter(), check_jobs(n_jobs)
    series = series_of(check_kernel(kernel).on(graph), asymmetric=asymmetric)
    # A copy: the caller may change the array later.
    picked = np.arange(graph.n_nodes) if nodes is None else np.array(check_indices(nodes, "nodes", graph.n_nodes))
    picked.flags.writeable = False
    chosen = check_teacher(teacher)
    if isinstance(chosen, Exact) and chosen.form == "auto":
        chosen = Exact(chosen.tol, choose_form(graph, series, len(picked), chosen.tol))
    rows, n_steps, stderr, bound = series_rows(graph, series, picked, chosen, seed, jobs, progress)
    return Signatures(rows, picked, chosen, asymmetric, n_steps, time.perf_counter() - start, stderr, bound)


Rows = tuple[Any, int, Any, float | None]  # rows, number of steps, standard errors and bound of the error, if known


def series_rows(
    graph: Graph,
    series: AbstractKernel,
    nodes: IntArray,
    teacher: Any,
    seed: SeedLike,
    n_jobs: int,
    progress: Progress,
) -> Rows:
    """Rows of a series by a teacher, without checks of the arguments."""
    if isinstance(teacher, Walks | Counts):
        law, key = survival_law(series, teacher), Streams.from_seed(seed).key("signatures.walks 0")
        settings = law, teacher.n_walks, teacher.n_batches, key
        if isinstance(teacher, Walks):
            table: Any = pack_table(*csr_parts(graph.operator), weighted=teacher.transitions == "weighted")
            engine: Engine = functools.partial(run_walks, table, *settings, teacher.coupling)
        else:
            engine = functools.partial(propagate_counts, build_count_table(*csr_parts(graph.affinity)), *settings)
    elif not isinstance(teacher, Exact):
        return _own_rows(teacher, graph, series, nodes), 0, None, None
    elif (
        teacher.form if teacher.form != "auto" else choose_form(graph, series, len(nodes), teacher.tol)
    ) == "sparse":
        n_terms = truncation_of(series, max(teacher.tol / 2, TOLERANCES.low))
        engine = _sparse_sums(graph, series.coefficients(n_terms), teacher.tol)
    else:
        expansion = series.expansion(teacher.tol)
        rows = rows_of_expansion(expansion, graph, nodes, n_jobs, progress)
        largest = teacher.tol * float(np.abs(series.spectral(np.linspace(-1, 1, 513))).max())
        if series.series_is_nonnegative:  # entries are sums of nonnegative terms, up to rounding
            np.maximum(rows, 0.0, out=rows, where=rows >= -largest)
        return rows, expansion.degree * graph.operator.nnz * len(nodes), None, largest
    return _sparse_rows(engine, graph.n_nodes, nodes, n_jobs, progress)


def check_teacher(teacher: Any) -> Any:
    """Return an object that describes a teacher, or the user's function."""
    if isinstance(teacher, Exact | Walks | Counts) or callable(teacher):
        return teacher
    if isinstance(teacher, str) and teacher in ("auto", "exact"):
        return _DEFAULT_TEACHER
    rule = "'auto', 'exact', Exact(...), Walks(...), Counts(...) or a function"
    reject("teacher", rule, repr(teacher), ValueError if isinstance(teacher, str) else TypeError)


def check_kernel(kernel: Any) -> AbstractKernel:
    """Return the kernel, or raise an error if the argument is not a kernel."""
    if not isinstance(kernel, AbstractKernel):
        rule = "a kernel, such as HeatKernel(0.1) or DiffusionKernel(10.0)"
        reject("kernel", rule, repr(kernel)[:100], TypeError)
    try:  # parameters are its fields, and equal kernels have equal ones
        hash(kernel)
        for field in fields(kernel):  # type: ignore[arg-type]
            hash(getattr(kernel, field.name))
    except TypeError as error:  # not a dataclass, or an array among the fields
        got = f"an object of the class {type(kernel).__name__} ({error})"
        reject("kernel", "a frozen dataclass with hashable fields", got, TypeError)
    return kernel


def series_of(kernel: AbstractKernel, *, asymmetric: bool) -> AbstractKernel:
    """The series of signatures: the modulation, or alpha itself for the asymmetric pair."""
    if check_flag(asymmetric, "asymmetric"):
        return kernel
    if not kernel.is_positive:
        raise ValueError(f"{kernel} has no nonnegative modulation f with f * f = alpha. {ASYMMETRIC}.")
    return kernel.root()


def choose_form(graph: Graph, series: AbstractKernel, n_starts: int, tol: float, most: float = 2**31) -> str:
    """The cheaper form of exact rows, "dense" or "sparse"; sparse if dense rows take more than ``most`` bytes."""
    if 8.0 * n_starts * graph.n_nodes > most:
        return "sparse"
    cost = float(series.expansion(tol).degree * graph.operator.nnz)
    # Small problems need no probe, which would cost as much as the rows themselves.
    return "dense" if n_starts * cost <= 1e8 or cost <= _probe(graph, series, tol, cost)[0] else "sparse"


def row_memory(graph: Graph, series: AbstractKernel) -> float:
    """Bytes of one row of signatures, dense or sparse, whichever is less."""
    limit = float(series.expansion(Exact.tol).degree * graph.operator.nnz)
    cost, memory = _probe(graph, series, Exact.tol, limit)
    return max(12.0, min(8.0 * graph.n_nodes, memory if cost <= limit else np.inf))


def _probe(graph: Graph, series: AbstractKernel, tol: float, limit: float) -> tuple[float, float]:
    """Cost of a sparse row, in products of a dense row, and its memory, estimated from four starts.

    The probe stops at the length at which the cost exceeds the limit: computing a slowly converging series to its
    end would take longer than the rows themselves.
    """
    joined = np.flatnonzero(np.diff(graph.operator.indptr))  # isolated nodes reach nothing
    starts = joined[:: max(1, len(joined) // 4)][:4] if len(joined) else np.zeros(1, np.int64)
    try:
        n_terms, n = truncation_of(series, max(tol / 2, TOLERANCES.low)), 64
    except ValueError:  # the series has too many terms
        return np.inf, np.inf
    while True:
        found = _sparse_sums(graph, series.coefficients(min(n, n_terms)), tol)(starts)
        cost = 6.0 * found[-1] / len(starts)  # a push costs as much as six products
        if n >= n_terms or cost > limit:
            return cost, 12.0 * float(found[0].mean())
        n *= 2


def survival_law(series: AbstractKernel, teacher: Walks | Counts) -> "Law":
    """The share s_k of walks that reach length k, and their deposit f_k / s_k at that length."""
    matched = isinstance(teacher, Counts) or teacher.survival == "matched"
    p_halt = 0.0 if isinstance(teacher, Counts) else teacher.p_halt
    n = truncation_of(series, 1e-10)  # the omitted terms are far below any Monte Carlo error
    if isinstance(teacher, Walks) and not (teacher.truncate or matched):  # until one in 1e9 walks is left
        n = max(n, math.ceil(min(math.log(1e-9) / math.log1p(-p_halt), 2**20)))
    f = series.coefficients(n)
    keep = np.full(n, 1.0 - p_halt)
    if matched:  # s_k = sqrt(sum_{j >= k} |f_j| / sum_j |f_j|)
        rest = np.cumsum(np.abs(f)[::-1])[::-1]
        keep[:-1] = np.sqrt(np.divide(rest[1:], rest[:-1], out=np.zeros(n - 1), where=rest[:-1] > 0))
    # Probabilities are multiples of 2^-32 like the random words, so there is no rounding bias. A walk that can
    # still deposit something must have a chance to continue.
    words = np.where(keep > 0, np.maximum(np.round(keep * 2.0**32), 1.0), 0.0)
    words[-1] = 0.0
    reached = np.concatenate([[1.0], np.cumprod(words[:-1] / 2.0**32)])
    sizes = np.abs(f)
    if sizes[teacher.n_walks * reached >= 0.01].sum() < 0.01 * sizes.sum():  # the rows would be zero
        length = max(1, int(np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)))  # holds half of the series
        most = -math.expm1(-math.log(max(teacher.n_walks, 2)) / length)
        rule = f"at most {most:.1g} for {teacher.n_walks} walks of {length} steps, unless survival='matched'"
        reject("p_halt", rule, p_halt)
    deposit = np.zeros(n)  # no walk survives to a share of 1e-300, and the quotient would overflow
    np.divide(f, reached, out=deposit, where=(f != 0) & (reached > 1e-300))
    return Law(deposit, words.astype(np.uint64))


def _own_rows(teacher: Any, graph: Graph, series: AbstractKernel, nodes: IntArray) -> Any:
    """Rows by the user's function."""
    found, wanted = teacher(graph, series, nodes.copy()), (len(nodes), graph.n_nodes)
    if np.shape(found) != wanted:
        reject("teacher", f"a function that returns rows of shape {wanted}", f"shape {np.shape(found)}")
    rows = sparse.csr_array(found, dtype=float, copy=True) if sparse.issparse(found) else np.array(found, float)
    if not np.isfinite(rows.data if sparse.issparse(rows) else rows).all():
        reject("teacher", "a function that returns finite rows", "one that does not")
    return rows


def _sparse_sums(graph: Graph, coefficients: FloatArray, tol: float) -> Engine:
    """The engine of rows that are evaluated only on the nodes that they reach."""
    # At each length about a hundred entries at the rim are dropped; their norm is about ten thresholds. All lengths
    # together should stay below half the tolerance. The result comes with a rigorous bound.
    threshold = tol / (20 * len(coefficients))
    # A frontier of some thousand nodes takes 1.7 times as long if they are scattered among a million in memory.
    # Threads share the matrix: it is computed before they start, because each would compute it anew.
    local = graph._local if 50_000 <= graph.n_nodes < 2**31 else None
    # A copy, because a kernel may return a part of another array.
    csr, f = csr_parts(graph.operator if local is None else local.matrix), np.array(coefficients)
    omitted = tol / 2 / (1 - tol / 2) * float(np.abs(coefficients).sum())  # bound of the terms left out

    def rows_from(starts: IntArray) -> Any:
        places = starts if local is None else local.place[starts]
        counts, nodes, values, bounds, n_pushes = push_frontier(*csr, f, threshold, places)
        if local is not None:
            ends = np.concatenate([[0], np.cumsum(counts)])
            rows = narrow_csr(values, local.order[nodes], ends, graph.n_nodes)
            rows.sort_indices()  # restores the ascending order within each start
            nodes, values = rows.indices, rows.data
        return counts, nodes, values, float(bounds.max()) + omitted, n_pushes

    return rows_from


def _sparse_rows(engine: Engine, n_nodes: int, nodes: IntArray, n_jobs: int, progress: Progress) -> Rows:
    """Rows by an engine, with blocks of starts in threads."""
    # Enough starts to pay for a workspace over all nodes, few enough to share among threads and to show progress.
    size = int(np.clip(n_nodes // 4000, 16, 256))
    pieces, results = np.split(nodes, range(size, len(nodes), size)), []
    with thread_pool(n_jobs) as pool:
        for found in pool.map(engine, pieces):
            results.append(found)
            progress("signatures", min(len(results) * size, len(nodes)), len(nodes))
    *parts, spreads, steps = zip(*results, strict=True)
    counts, columns, values = map(np.concatenate, parts)
    ends = np.concatenate([[0], np.cumsum(counts)])
    rows, n_steps = narrow_csr(values, columns, ends, n_nodes), sum(map(int, steps))
    if isinstance(spreads[0], float):  # a bound instead of variances
        rows.eliminate_zeros()  # sums may cancel, and f_k may be 0
        return rows, n_steps, None, max(spreads)
    errors = np.sqrt(np.concatenate(spreads))
    stderr = narrow_csr(errors, rows.indices.copy(), rows.indptr.copy(), n_nodes)
    for matrix in (rows, stderr):
        matrix.eliminate_zeros()  # walks pass through lengths with f_k = 0 without a deposit
    return rows, n_steps, None if np.isnan(errors).any() else stderr, None  # a single batch has no variance


# ---------------------------------------------------------------------------------------------------- random walks
# Rows of sum_k f_k W^k by random walks (Algorithm 1 of the paper): independent walkers, or coupled ones.
#
# A walk of length k continues to length k + 1 with probability s_{k+1} / s_k. It chooses an entry of its row,
# either uniformly or in proportion to |W|, and its load is multiplied by the entry over the probability of the
# choice. It deposits load * f_k / s_k at every node it visits, including the start. The mean over walks is
# unbiased.
#
# Random numbers are xoroshiro128+ streams that Philox 4x32-10 seeds, a pure function of key and counter (Salmon,
# Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter holds the start node
# and the lane, so a stream has the same bits in any thread and in any order.

# The record that one step reads; see _loops.c.
EDGE = np.dtype([("target", "<u4"), ("row", "<u4"), ("weight", "<f8")])


class Table(NamedTuple):
    """A matrix packed for random walks."""

    edges: Any  # (nnz,) records EDGE; the weight is the factor by which a step along the entry multiplies the load
    rows: Any  # uint64 (N + 1,), where the rows begin
    shares: Any  # uint64 (nnz,), probabilities summed along each row, in units of 2^-32; empty: uniform choice
    mask: int  # the bits of a weight that hold the degree of the target


class Law(NamedTuple):
    """What walks deposit and when they end."""

    deposit: Any  # float64 (L,), f_k / s_k
    go_on: Any  # uint64 (L,), length k continues to k + 1 if 32 random bits are below it; the last must be 0


def pack_table(indptr: Any, indices: Any, data: Any, *, weighted: bool = False) -> Table:
    """Table of a CSR matrix for walks that choose entries of a row uniformly, or in proportion to |W|."""
    rows = np.ascontiguousarray(indptr, np.uint64)
    if max(len(data), rows.size) >= 2**32:
        raise ValueError(f"Walks need fewer than 2^32 nodes and entries, got {rows.size - 1} and {len(data)}.")
    degrees = np.diff(rows)
    mask = 2 ** int(degrees.max(initial=np.uint64(0))).bit_length() - 1
    if weighted:
        upto, totals = _sums_along_rows(indptr, indices, np.abs(data))
        last = np.zeros(len(data), dtype=bool)
        last[indptr[1:][degrees > 0] - 1] = True
        with np.errstate(invalid="ignore"):  # infinite sums
            share = np.divide(upto, totals, out=np.ones(len(data)), where=(totals > 0) & ~last) * 2.0**32
        shares = np.where(share < 2.0**32, share, 2.0**32).astype(np.uint64)
        before = np.roll(shares, 1)
        before[indptr[:-1][degrees > 0]] = 0
        # The probability as it is drawn, so that rounding to 2^-32 causes no bias.
        chance = (shares - before) / 2.0**32
        weights = np.divide(data, chance, out=np.zeros(len(data)), where=chance > 0)
    else:
        shares, weights = np.zeros(0, np.uint64), data * np.repeat(np.float64(degrees), np.diff(indptr))
    edges = np.zeros(len(data), EDGE)
    edges["target"], edges["row"] = indices, rows[indices]
    edges["weight"] = (weights.view(np.uint64) & np.uint64(~mask & 2**64 - 1) | degrees[indices]).view(np.float64)
    return Table(edges, rows, shares, mask)


def _sums_along_rows(indptr: Any, indices: Any, data: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For every entry of a CSR matrix the sum of its row up to it, and of the whole row."""
    sums, counts = np.zeros(len(data)), np.diff(indptr)
    loops.sum_along_rows(indptr, indices, data, sums)
    return sums, np.repeat(sums[indptr[1:][counts > 0] - 1], counts[counts > 0])


def run_walks(table: Table, law: Law, n_walks: int, n_batches: int, key: Any, coupling: str, starts: Any) -> Any:
    """Estimate rows of sum_k f_k W^k with walks.

    Couplings change the joint law of the walkers of a group, not that of a single walk, so the estimates stay
    unbiased. Batches consist of whole groups; if the group size does not divide ``n_walks``, the last group is
    smaller, and its variance per walk is assumed to equal that of the others.

    Parameters
    ----------
    n_walks : int, walks per row
    n_batches : int, parts of nearly equal size for the variance; at most ``n_walks``
    key : uint32 (2,)
    coupling : "iid", "antithetic" or "repelling"; the last needs a table with uniform choice
    starts : int64 (n,), the rows; the random words of a row depend only on its node and the key

    Returns
    -------
    counts : int64 (n,), nodes touched from each start
    nodes : int64 (sum of counts,), ascending within a start
    sums, variances : float64 (sum of counts,), the estimates and unbiased estimates of their variances (NaN for a
        single batch)
    n_steps : int, steps of all walks
    """
    unit = {"iid": 1, "antithetic": 2, "repelling": loops.MOST_COUPLED}[coupling]  # walkers of a group
    n_units = -(-n_walks // unit)  # a batch has whole units; only the last unit may be incomplete
    n_batches = min(n_batches, n_units)
    sizes = np.diff(np.minimum(np.arange(n_batches + 1) * n_units // n_batches * unit, n_walks))
    starts = np.ascontiguousarray(starts, np.int64)
    n_steps, *found = loops.run_walks(*table, *law, sizes, key, starts, unit)
    return *arrays(found, "lldd"), n_steps


# ------------------------------------------------------------------------------------------------- counted walkers
# Walkers counted per node: rows of sum_k f_k W^k by integer counts and systematic sampling.
#
# A walker at v moves to j with probability P_vj = A_vj / d_v. The product of W_vj / P_vj along its path is
# sqrt(d_start / d_now) for every path, so all walkers at a node are equal and only their number c_v matters. A step
# thins these counts and splits each over the neighbours, with systematic rounding. Every rounding is unbiased and
# off by less than one walker, so the error falls like 1 / n_walkers instead of 1 / sqrt(n_walkers). A step costs
# one visit per occupied edge for any number of walkers.


class CountTable(NamedTuple):
    """A graph prepared for counting, made by :func:`build_count_table`."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    cumulative: Any  # (n_edges,) sums of P along each row, the last exactly 1 (all 0 in a row without weight)
    root_degrees: Any  # (N,) square roots of the row sums; 1 where the row sum is 0, as no walker leaves


def build_count_table(indptr: Any, indices: Any, data: Any) -> CountTable:
    """CountTable of a nonnegative CSR affinity."""
    sums, totals = _sums_along_rows(indptr, indices, data)
    root_degrees = np.ones(len(indptr) - 1)
    full = np.repeat(np.arange(len(root_degrees)), np.diff(indptr))[totals > 0]
    root_degrees[full] = np.sqrt(totals[totals > 0])
    return CountTable(indptr, indices, np.divide(sums, totals, out=sums, where=totals > 0), root_degrees)


def propagate_counts(table: CountTable, law: Law, n_walkers: int, n_batches: int, key: Any, starts: Any) -> Any:
    """Unbiased estimates of the rows ``starts`` of sum_k f_k W^k.

    Each start runs ``n_batches`` independent batches of nearly equal size (with fewer walkers than batches, each
    walker is a batch). The estimate is the plain mean of the batches, so its variance is estimated without bias
    even if batches differ by a walker. The error of a batch falls like the inverse of its size, so B batches have
    up to sqrt(B) times the error of one batch with all walkers.

    The work per start does not grow with the number of nodes N; the working memory of 65 N bytes is allocated once.
    A row depends, to the last bit, only on the key and its start, not on the other starts.

    Parameters
    ----------
    table : CountTable
    law : Law
    n_walkers : int, at least 1, per start
    n_batches : int, at least 1
    key : uint32 (2,)
    starts : int (n_starts,)

    Returns
    -------
    counts : int64 (n_starts,), nodes of each start
    nodes : int64 (sum of counts,), one start after the other, ascending within each
    sums : float64 (sum of counts,), the estimates
    variances : float64 (sum of counts,), unbiased estimates of the variances of ``sums``; NaN with one batch
    n_steps : int64, moves of single walkers, over all starts
    """
    starts = np.ascontiguousarray(starts, np.int64)
    n_steps, *found = loops.count_walkers(*table, *law, n_walkers, n_batches, key, starts)
    return *arrays(found, "lldd"), n_steps


# ----------------------------------------------------------------------------------------------- exact sparse rows
# Rows of sum_k f_k W^k evaluated only on the nodes that they reach: exact, or truncated with a bound of the error.
#
# x_0 = e_i, x_{k+1} = W x_k, and entries below a threshold are dropped at once. The cost of a row depends on how
# far the walk spreads above the threshold, not on the number of nodes.


def push_frontier(
    indptr: Any, indices: Any, data: Any, coefficients: FloatArray, threshold: float, starts: Any
) -> Any:
    """Rows ``starts`` of sum_k f_k W^k, without entries that fall below the threshold.

    The work per start does not grow with the number of nodes N; the working memory of 50 N bytes is allocated once.

    Parameters
    ----------
    indptr : int (N + 1,)
    indices : int (n_edges,)
    data : float64 (n_edges,), the entries of W, of any sign
    coefficients : float64 (L,), f_k, of any sign
    threshold : float
        Entries of x_k, k >= 1, below this absolute value are dropped: neither deposited nor pushed on. 0 keeps all.
    starts : int (n_starts,)

    Returns
    -------
    counts : int64 (n_starts,), the number of nodes of each start
    nodes : int64 (sum of counts,), one start after the other, ascending within each
    values : float64 (sum of counts,)
    bounds : float64 (n_starts,)
        For |W|_2 <= 1, a bound of the 2-norm of the error of the row, up to rounding of the sums. Entries dropped
        at length k would contribute to the row through the coefficients from k on, and their norm would not grow.
        So the bound adds their norm times the sum of the absolute values of these coefficients.
    n_pushes : int64, products of an edge and an entry over all starts; the run time is proportional to it
    """
    bounds, starts = np.zeros(len(starts)), np.ascontiguousarray(starts, np.int64)
    onward = np.ascontiguousarray(np.cumsum(np.abs(coefficients)[::-1])[::-1])  # sum of |f_j| over j >= k
    given = indptr, indices, data, np.ascontiguousarray(coefficients), onward, threshold
    n_pushes, *found = loops.push_frontier(*given, starts, bounds)
    return *arrays(found, "lld"), bounds, n_pushes
