"""Signatures of nodes: the function that computes them by any teacher, and the object it returns."""

import dataclasses
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from manifoldrf._random import SeedLike, Streams, generator
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_flag,
    check_indices,
    check_integer,
    check_jobs,
    check_option,
    reject,
)
from manifoldrf.geometry.graphs import Graph, as_adjacency
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.kernels.roots import ASYMMETRIC
from manifoldrf.signatures.engines import (
    Choice,
    Chunk,
    MakeEngine,
    Progress,
    Runner,
    assemble,
    choose_teacher,
    chunk_worker,
    count_engine,
    exact_worker,
    frontier_coefficients,
    frontier_engine,
    own_worker,
    run_here,
    silent,
    stacked,
    walk_engine,
)
from manifoldrf.signatures.options import OPTIONS, coefficients_of, make_options, refuse_unreached, survival_law

__all__ = ["SignatureInfo", "Signatures", "compute_signature_pair", "compute_signatures"]

TEACHERS = ("auto", *OPTIONS)
# A teacher of the user: (graph, series, nodes) to rows of the series, dense or sparse, (len(nodes), N).
OwnTeacher = Callable[..., Any]

# Lengths that are not stored may hold at most this share of a series.
_MISSING = 1e-6
_NODES_AT_ONCE = 65_536


@dataclass(frozen=True)
class SignatureInfo:
    """How signatures were computed.

    Attributes
    ----------
    teacher : str
    reason : str
        Why "auto" chose this teacher.
    kernel : str
        As resolved on the graph.
    asymmetric : bool
        Whether the rows are those of K itself.
    options : dict
        Options of the teacher, with defaults.
    n_steps : int
        Products with entries of W (exact, frontier), or steps of walkers.
    seconds : float
    error_bound : float or None
        Bound of the error of every row in the 2-norm, if the teacher knows one.
    radius : float
        Bound of the spectrum of W.
    n_touched : int or None
        Most nodes that one start reached, if the teacher counts them.
    compressed : bool
        Whether the rows were projected.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> signatures = compute_signatures(knn_graph(Sphere().grid(500)), DiffusionKernel(5.0), [0, 1])
    >>> signatures.info.teacher, signatures.info.kernel
    ('exact', 'DiffusionKernel(tau=5.0, normalized=True)')
    """

    teacher: str
    reason: str
    kernel: str
    asymmetric: bool
    options: dict[str, Any]
    n_steps: int
    seconds: float
    error_bound: float | None = None
    radius: float = 1.0
    n_touched: int | None = None
    compressed: bool = False


@dataclass(frozen=True, eq=False)
class Signatures:
    """Rows of Phi = sum_k f_k W^k, one per start node.

    Parameters
    ----------
    rows : CSR or dense array of shape (n_starts, N)
    nodes : int array of shape (n_starts,)
        The start nodes.
    info : SignatureInfo
    stderr : CSR array of shape (n_starts, N), optional
        Standard errors of the entries, for Monte Carlo teachers with at least two batches. For intervals with B
        batches, use a t quantile with B - 1 degrees of freedom. The errors of entries that few walks have reached
        are too small; ``relative_stderr``, which weights entries by their size, is reliable.
    lengths : CSR array of shape (n_starts * n_lengths, N), optional
        Row s * n_lengths + k is the estimate of row nodes[s] of W^k; kept with ``keep_lengths=True``.
    scaling : array of shape (N,), optional
        s of a matrix diag(1/s) S diag(s) (:class:`GeneralizedAdjacency`). The second factor of K is then
        diag(s^2) Phi diag(s^-2) instead of Phi.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> signatures = compute_signatures(graph, DiffusionKernel(5.0), [0, 1, 2])
    >>> signatures.gram().shape
    (3, 3)
    """

    rows: Any
    nodes: IntArray
    info: SignatureInfo
    stderr: Any = None
    lengths: Any = None
    scaling: FloatArray | None = None

    def __repr__(self) -> str:
        form = "CSR" if sparse.issparse(self.rows) else "dense"
        sides = ", asymmetric" if self.info.asymmetric else ""
        shape = f"{self.rows.shape[0]} rows of {self.rows.shape[1]}"
        return f"Signatures({shape}, {form}, teacher '{self.info.teacher}'{sides})"

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
        large on average. With an independent second set it is unbiased. Asymmetric rows are entries of the kernel;
        without ``other`` they are multiplied with the indicators of the nodes.
        """
        second = self if other is None else other
        if other is None and self.info.asymmetric:
            if self.info.compressed:
                raise ValueError("Compressed asymmetric rows need their partner, compressed alike: `other`.")
            product = self.rows[:, self.nodes]
        else:
            product = self.rows @ second.partner().rows.T
        return np.asarray(product.toarray() if sparse.issparse(product) else product)

    def partner(self) -> "Signatures":
        """Return the second factor of K: these signatures themselves, unless the matrix is scaled."""
        if self.scaling is None or self.info.asymmetric:
            return self
        # With P = diag(1/s) S diag(s), f(P)^2 = f(P) diag(s^-2) f(P)^T diag(s^2).
        left, right = self.scaling[self.nodes] ** 2, self.scaling**-2.0
        if sparse.issparse(self.rows):
            rows = (sparse.diags_array(left) @ self.rows @ sparse.diags_array(right)).tocsr()
        else:
            rows = left[:, None] * self.rows * right
        return dataclasses.replace(self, rows=rows, stderr=None, lengths=None, scaling=None)

    def reweight(self, kernel: AbstractKernel, *, asymmetric: bool = False) -> "Signatures":
        """Return the rows for another kernel from the same walks; needs ``keep_lengths=True``.

        The bits are those of a new computation with the same options and seed.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
        >>> graph = knn_graph(Sphere().grid(500))
        >>> options = dict(teacher="frontier", keep_lengths=True, max_length=30)
        >>> kept = compute_signatures(graph, DiffusionKernel(5.0), [0], **options)
        >>> again = compute_signatures(graph, DiffusionKernel(8.0), [0], **options)
        >>> bool((kept.reweight(DiffusionKernel(8.0)).rows != again.rows).nnz == 0)
        True
        """
        if self.lengths is None:
            raise ValueError("These signatures kept no lengths; compute them with keep_lengths=True.")
        series = series_of(check_kernel(kernel), asymmetric=asymmetric)
        rows = weighted_lengths(self.lengths, len(self.nodes), series, self.info.radius)
        info = dataclasses.replace(
            self.info, kernel=repr(kernel), asymmetric=asymmetric, n_steps=0, seconds=0.0, error_bound=None
        )
        return dataclasses.replace(self, rows=rows, info=info, stderr=None)

    def compress(self, n_components: int, *, seed: SeedLike = None) -> "Signatures":
        """Return rows of ``n_components`` numbers with about the same inner products (Johnson-Lindenstrauss).

        Each row is multiplied by a matrix of independent normal numbers of variance 1 / n_components. Inner
        products are unbiased, with errors of about |x| |y| / sqrt(n_components). Entries are no longer nonnegative.
        Compress two sets with the same seed to multiply them with each other.
        """
        n = check_integer(n_components, "n_components", 1)
        if self.scaling is not None and not self.info.asymmetric:
            raise ValueError("Compress both sets of a pair on a scaled matrix: compute_signature_pair gives them.")
        rows = compress_rows(self.rows, n, generator(seed, "signatures.compress"))
        info = dataclasses.replace(self.info, compressed=True)
        return dataclasses.replace(self, rows=rows, info=info, stderr=None, lengths=None)


@one_blas_thread()
def compress_rows(rows: Any, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Rows times a matrix of normal numbers of variance 1 / n_components, in blocks of nodes."""
    result = np.zeros((rows.shape[0], n_components))
    columns = rows.tocsc() if sparse.issparse(rows) else rows
    for start in range(0, rows.shape[1], _NODES_AT_ONCE):
        part = columns[:, start : start + _NODES_AT_ONCE]
        result += part @ rng.standard_normal((part.shape[1], n_components))
    return np.asarray(result / np.sqrt(n_components))


def indicator_rows(nodes: IntArray, n_nodes: int) -> Any:
    """CSR array (len(nodes), n_nodes) with a one at each node."""
    n = len(nodes)
    return sparse.csr_array((np.ones(n), nodes, np.arange(n + 1)), shape=(n, n_nodes))


def check_kernel(kernel: Any) -> AbstractKernel:
    """Return the kernel, or raise an error if it is none."""
    if not isinstance(kernel, AbstractKernel):
        reject(
            "kernel", "a kernel, such as HeatKernel(0.1) or DiffusionKernel(10.0)", repr(kernel)[:100], TypeError
        )
    return kernel


def series_of(kernel: AbstractKernel, *, asymmetric: bool) -> AbstractKernel:
    """The series of signatures: the modulation, or alpha itself for the asymmetric pair."""
    if check_flag(asymmetric, "asymmetric"):
        return kernel
    if not kernel.is_positive:
        raise ValueError(
            f"{kernel} has no nonnegative modulation: no series f >= 0 with f * f = alpha, so no signatures >= 0. "
            f"{ASYMMETRIC}."
        )
    return kernel.root()


def weighted_lengths(lengths: Any, n_starts: int, series: AbstractKernel, radius: float) -> Any:
    """CSR array (n_starts, N) of sum_k f_k times the stored powers."""
    n_lengths = lengths.shape[0] // n_starts
    needed = series.truncation(_MISSING, radius)
    if needed > n_lengths:
        raise ValueError(
            f"The rows for this kernel are those of {series}, which needs powers up to {needed - 1}, and only "
            f"those up to {n_lengths - 1} are kept; compute with max_length={needed - 1} or more."
        )
    f = np.tile(coefficients_of(series, n_lengths, radius), n_starts)
    ends = np.arange(n_starts + 1) * n_lengths
    selection = sparse.csr_array((f, np.arange(len(f)), ends), shape=(n_starts, len(f)))
    rows = selection @ lengths
    rows.sort_indices()
    return rows


def compute_signatures(
    graph: AnyGraph,
    kernel: AbstractKernel,
    nodes: ArrayLike | None = None,
    *,
    teacher: str | OwnTeacher = "auto",
    asymmetric: bool = False,
    seed: SeedLike = None,
    n_jobs: int = 1,
    progress: Progress = silent,
    **options: Any,
) -> Signatures:
    """Signature vectors of nodes: rows of Phi = sum_k f_k W^k, so that K = Phi Phi^T.

    Parameters
    ----------
    graph : Graph or GeneralizedAdjacency
    kernel : AbstractKernel
        A kernel in the manifold clock is resolved on the graph.
    nodes : array-like of int, optional
        Start nodes; all by default.
    teacher : {"auto", "exact", "frontier", "walks", "counts"} or callable
        "exact": Chebyshev polynomials, dense rows. "frontier": only nodes reached above a tolerance; sparse rows,
        and the cost per start does not grow with the graph. "walks": random walks, by default Algorithm 1 of the
        paper. "counts": walkers counted per node, the recommended Monte Carlo method. "auto": exact or frontier,
        whichever takes fewer operations, or counts if the rows of both would exceed 2 GB. A function
        ``teacher(graph, series, nodes, **options)`` returns rows of the series, (n, N), dense or sparse; ``series``
        is a kernel whose ``coefficients`` are the f_k.
    asymmetric : bool
        Rows of K itself instead of Phi, for kernels without a nonnegative modulation; their partner in the inner
        product is the indicator of a node.
    seed : None, int, Generator or RandomState
        For walks and counts. The same seed gives the same bits for any ``n_jobs`` and any other nodes.
    n_jobs : int
        Number of threads; -1 for all cores.
    progress : callable (what, done, total)
        Called as starts are finished.
    **options
        Options of the teacher:

        ===============  =========================  =============================================================
        teacher          option, default            meaning
        ===============  =========================  =============================================================
        exact            ``tol=1e-10``              error of a row, relative to the largest value of the series
        frontier         ``tol=1e-8``               the same
        walks, counts    ``n_walks=10_000``         walks per start
        walks, counts    ``p_halt``                 halting probability: .01 for walks, 0 for counts
        walks, counts    ``max_length``             None: until all halt (walks); "auto": until f_k is negligible
                                                    (counts); an integer cuts the series there
        walks, counts    ``survival``               "geometric", by p_halt (walks); "matched" to f (counts)
        walks            ``transitions="uniform"``  or "weighted": neighbours in proportion to their weight
        walks            ``coupling``               "independent", "antithetic" or "repelling" (groups of 16; with
                                                    other numbers of walks the standard errors are too large)
        walks, counts    ``n_batches``              for standard errors: 8 for walks, 2 for counts
        walks, counts    ``n_stitches=1``           above 1, Phi is a product of that many estimates of its root
        all              ``keep_lengths=False``     True, with ``max_length``: keep the estimates of each power
                                                    of W for :meth:`Signatures.reweight`
        ===============  =========================  =============================================================

    Returns
    -------
    signatures : Signatures
        ``stderr`` is None for exact teachers, for a single batch, for stitched walks and if lengths are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph, kernel = knn_graph(Sphere().grid(500)), DiffusionKernel(10.0)
    >>> exact = compute_signatures(graph, kernel, [0, 1, 2])
    >>> np.allclose(exact.gram(), kernel.dense(graph)[:3, :3])
    True
    >>> walked = compute_signatures(graph, kernel, [0, 1, 2], teacher="counts", n_walks=10_000, seed=0)
    >>> bool(np.linalg.norm(walked.rows - exact.rows) < 0.03 * np.linalg.norm(exact.rows))
    True
    """
    run = run_here(check_jobs(n_jobs), progress)
    return signatures_by(run, graph, kernel, nodes, options, teacher=teacher, asymmetric=asymmetric, seed=seed)


def signatures_by(
    run: Runner,
    graph: AnyGraph,
    kernel: AbstractKernel,
    nodes: ArrayLike | None,
    options: dict[str, Any],
    *,
    teacher: str | OwnTeacher = "auto",
    asymmetric: bool = False,
    seed: SeedLike = None,
) -> Signatures:
    """Signatures as in :func:`compute_signatures`, with their parts computed wherever the runner does so.

    The teacher, the key of its random numbers and everything that depends on several parts are decided here, once,
    so that parts cannot disagree.
    """
    start = time.perf_counter()
    task = _Task.prepare(graph, kernel, nodes, asymmetric=asymmetric)
    asked = check_teacher(teacher)
    if not isinstance(asked, str):
        choice = Choice(str(getattr(asked, "__name__", type(asked).__name__)), "as asked")
        used, result = dict(options), _teach_own(task, asked, options, run)
    else:
        choice = Choice(asked, "as asked")
        if asked == "auto":
            choice = choose_teacher(task.graph, task.series, task.nodes)
        settings = make_options(choice.teacher, options, chosen=asked == "auto")
        used = dataclasses.asdict(settings)
        result = _teach(choice.teacher, task, settings, Streams.from_seed(seed), run)
    info = SignatureInfo(
        teacher=choice.teacher,
        reason=choice.reason,
        kernel=repr(task.kernel),
        asymmetric=asymmetric,
        options=used,
        n_steps=result.n_steps,
        seconds=time.perf_counter() - start,
        error_bound=result.bound,
        radius=task.graph.radius,
        n_touched=result.n_touched,
    )
    return Signatures(result.rows, task.nodes, info, result.stderr, result.lengths, task.graph.scaling)


def check_teacher(teacher: Any) -> str | OwnTeacher:
    """Return the name of a teacher, or a function that is one."""
    if callable(teacher) and not isinstance(teacher, str):
        own: OwnTeacher = teacher
        return own
    return check_option(teacher, "teacher", TEACHERS)


def compute_signature_pair(
    graph: AnyGraph,
    kernel: AbstractKernel,
    nodes: ArrayLike | None = None,
    *,
    teacher: str | OwnTeacher = "auto",
    asymmetric: bool = False,
    seed: SeedLike = None,
    n_jobs: int = 1,
    **options: Any,
) -> tuple[Signatures, Signatures]:
    """Two sets of signatures whose product Phi_1 Phi_2^T is an unbiased estimate of K.

    Monte Carlo teachers draw both sets independently. With ``asymmetric=True`` the first set holds rows of K and
    the second indicators of the nodes, which works for kernels without a nonnegative modulation. The parameters are
    those of :func:`compute_signatures`.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import CosineKernel, Sphere, compute_signature_pair, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> first, second = compute_signature_pair(graph, CosineKernel(), [0, 1, 2], asymmetric=True)
    >>> np.allclose(first.gram(second), CosineKernel().dense(graph)[:3, :3])
    True
    """
    streams = Streams.from_seed(seed)
    settings = dict(teacher=teacher, asymmetric=asymmetric, n_jobs=n_jobs, **options)
    first = compute_signatures(graph, kernel, nodes, seed=streams.generator("signatures.first"), **settings)
    if first.info.teacher in ("exact", "frontier") and not asymmetric:
        return first, first.partner()
    if asymmetric:
        rows = indicator_rows(first.nodes, first.rows.shape[1])
        info = dataclasses.replace(first.info, kernel="indicators of the nodes", asymmetric=False)
        return first, Signatures(rows, first.nodes, info)
    second = compute_signatures(graph, kernel, nodes, seed=streams.generator("signatures.second"), **settings)
    return first, second.partner()


@dataclass(frozen=True)
class _Task:
    """The rows to compute: rows ``nodes`` of the series of the kernel."""

    graph: AnyGraph
    kernel: AbstractKernel
    series: AbstractKernel
    nodes: IntArray

    @classmethod
    def prepare(
        cls, graph: AnyGraph, kernel: AbstractKernel, nodes: ArrayLike | None, *, asymmetric: bool
    ) -> "_Task":
        adjacency = as_adjacency(graph)
        everything = np.arange(adjacency.n_nodes)
        # A copy: the caller may change the array later.
        picked = everything if nodes is None else np.array(check_indices(nodes, "nodes", adjacency.n_nodes))
        picked.flags.writeable = False
        resolved = check_kernel(kernel).on(adjacency)
        return cls(adjacency, resolved, series_of(resolved, asymmetric=asymmetric), picked)

    @property
    def stretch(self) -> float:
        """Largest factor by which powers of a matrix diag(1/s) S diag(s) with |S| <= 1 can stretch a row."""
        scaling = self.graph.scaling
        return 1.0 if scaling is None else float(scaling.max() / scaling.min())


@dataclass(frozen=True)
class _Result:
    rows: Any
    n_steps: int
    stderr: Any = None
    lengths: Any = None
    bound: float | None = None
    n_touched: int | None = None


def _teach(teacher: str, task: _Task, options: Any, streams: Streams, run: Runner) -> _Result:
    """Rows by a teacher of the library."""
    if teacher == "walks":
        return _monte_carlo(walk_engine, task, options, streams, run)
    if teacher == "counts":
        return _monte_carlo(count_engine, task, options, streams, run)
    tol = options.tol
    if options.keep_lengths:  # plain powers; the exact teacher drops no entry
        coefficients, tol = np.ones(options.max_length + 1), 0.0 if teacher == "exact" else tol
    elif teacher == "exact":
        return _teach_exact(task, tol, run)
    else:
        coefficients = frontier_coefficients(task.graph, task.series, tol)
    make = functools.partial(frontier_engine, coefficients=coefficients, tol=tol, keep_lengths=options.keep_lengths)
    return _from_chunks(task, _chunks(run, make, task.graph, task.nodes), coefficients, options)


def _teach_own(task: _Task, teacher: OwnTeacher, options: dict[str, Any], run: Runner) -> _Result:
    """Rows by a function of the user, checked to be finite."""
    recipe = functools.partial(own_worker, functools.partial(teacher, **options), task.series)
    found = stacked(run(recipe, task.graph, task.nodes, "signatures"))
    if not np.isfinite(found.data if sparse.issparse(found) else found).all():
        reject("teacher", "a function that returns finite rows", "one that does not")
    return _Result(found, 0)


def _teach_exact(task: _Task, tol: float, run: Runner) -> _Result:
    """Dense rows by polynomials."""
    radius, scaling = task.graph.radius, task.graph.scaling
    expansion = task.series.expansion(radius, tol)
    try:
        rows = stacked(run(functools.partial(exact_worker, expansion), task.graph, task.nodes, "signatures"))
    except MemoryError:
        size = 8e-9 * len(task.nodes) * task.graph.n_nodes
        raise MemoryError(
            f"Dense rows take {size:.0f} GB; teacher='frontier' or 'counts' has sparse ones."
        ) from None
    bound = tol * float(np.abs(task.series.spectral(np.linspace(-radius, radius, 513))).max())
    if isinstance(task.graph, Graph) and task.series.series_is_nonnegative:
        # The rows are sums of nonnegative terms, so negative entries are rounding. A root may also have noise of
        # 1e-6, but small negative terms of the kernel itself are intended.
        rounded = rows >= -bound if task.series is task.kernel else True
        np.maximum(rows, 0.0, out=rows, where=rounded)
    if scaling is not None:
        rows *= scaling / scaling[task.nodes][:, None]
    n_steps = expansion.degree * task.graph.symmetric.nnz * len(task.nodes)
    return _Result(rows, n_steps, bound=bound * task.stretch)


def _monte_carlo(engine: Any, task: _Task, options: Any, streams: Streams, run: Runner) -> _Result:
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
        result = _Result(rows, result.n_steps + sum(chunk.n_steps for chunk in chunks))
    return result


def _chunks(
    run: Runner, make: MakeEngine, graph: AnyGraph, nodes: IntArray, stage: str = "signatures"
) -> list[Chunk]:
    """Chunks of rows in the order of the start nodes."""
    parts: list[list[Chunk]] = run(functools.partial(chunk_worker, make), graph, nodes, stage)
    return [chunk for part in parts for chunk in part]


def _from_chunks(task: _Task, chunks: list[Chunk], coefficients: Any, options: Any) -> _Result:
    n_steps, radius = sum(chunk.n_steps for chunk in chunks), task.graph.radius
    touched = max((chunk.n_touched or 0 for chunk in chunks), default=0) or None
    if options.keep_lengths:
        lengths = assemble(chunks, task.graph.n_nodes, len(coefficients))[0]
        rows = weighted_lengths(lengths, len(task.nodes), task.series, radius)
        return _Result(rows, n_steps, None, lengths, None, touched)
    bounds = [chunk.bound for chunk in chunks if chunk.bound is not None]
    bound = None
    if bounds and radius <= 1 + 1e-12:  # 1, up to rounding of row sums
        # What the frontier dropped, and what the series left out.
        whole = float(np.abs(coefficients) @ radius ** np.arange(len(coefficients)))
        bound = task.stretch * (max(bounds) + options.tol / 2 * whole / (1 - options.tol / 2))
    rows, stderr = assemble(chunks, task.graph.n_nodes)
    return _Result(rows, n_steps, stderr, None, bound, touched)
