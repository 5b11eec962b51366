"""Signatures of nodes: the function that computes them by any teacher, and the object it returns."""

import dataclasses
import time
from collections.abc import Callable
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
from manifoldrf.geometry.csr import as_dense
from manifoldrf.geometry.graphs import as_adjacency
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.kernels.roots import ASYMMETRIC
from manifoldrf.signatures import engines
from manifoldrf.signatures.engines import Progress, Runner
from manifoldrf.signatures.options import OPTIONS, make_options

__all__ = ["SignatureInfo", "Signatures", "compute_signature_pair", "compute_signatures"]

TEACHERS = ("auto", *OPTIONS)
# A user's teacher maps (graph, series, nodes) to rows of the series, dense or sparse, (len(nodes), N).
OwnTeacher = Callable[..., Any]
_NODES_AT_ONCE = 65_536


@dataclasses.dataclass(frozen=True)
class SignatureInfo:
    """How signatures were computed.

    Attributes
    ----------
    teacher : str
    reason : str
        Why "auto" chose this teacher.
    kernel : str
        The kernel as resolved on the graph.
    asymmetric : bool
        Whether the rows are rows of K instead of Phi.
    options : dict
        Options of the teacher, with defaults.
    n_steps : int
        Products with entries of W (exact, frontier), or steps of walkers.
    seconds : float
    error_bound : float or None
        Bound of the error of every row in the 2-norm, if the teacher gives one.
    radius : float
        Bound of the spectrum of W.
    n_touched : int or None
        Largest number of nodes that a start reached, if the teacher counts them.
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


@dataclasses.dataclass(frozen=True, eq=False)
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
                raise ValueError("Compressed asymmetric rows need `other`: the compressed second set.")
            product = self.rows[:, self.nodes]
        else:
            product = self.rows @ second.partner().rows.T
        return as_dense(product)

    def partner(self) -> "Signatures":
        """Return the second factor of K: the same signatures, unless the matrix is scaled."""
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

        The result is the same, bit for bit, as a new computation with the same options and seed.

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
        rows = engines.weighted_lengths(self.lengths, len(self.nodes), series, self.info.radius)
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
            raise ValueError("On a scaled matrix, compress both sets of compute_signature_pair.")
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


def compute_signatures(
    graph: AnyGraph,
    kernel: AbstractKernel,
    nodes: ArrayLike | None = None,
    *,
    teacher: str | OwnTeacher = "auto",
    asymmetric: bool = False,
    seed: SeedLike = None,
    n_jobs: int = 1,
    progress: Progress = engines.silent,
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
        Compute rows of K instead of Phi, for kernels without a nonnegative modulation; their partner in the inner
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
    run = engines.run_here(check_jobs(n_jobs), progress)
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
    """Signatures as in :func:`compute_signatures`, with parts that the runner computes.

    The teacher, the key of its random numbers and everything that depends on several parts are decided here, once,
    so that parts cannot disagree.
    """
    start = time.perf_counter()
    adjacency = as_adjacency(graph)
    everything = np.arange(adjacency.n_nodes)
    # A copy: the caller may change the array later.
    picked = everything if nodes is None else np.array(check_indices(nodes, "nodes", adjacency.n_nodes))
    picked.flags.writeable = False
    resolved = check_kernel(kernel).on(adjacency)
    task = engines.Task(adjacency, resolved, series_of(resolved, asymmetric=asymmetric), picked)
    asked = check_teacher(teacher)
    if not isinstance(asked, str):
        choice = engines.Choice(str(getattr(asked, "__name__", type(asked).__name__)), "as asked")
        used, result = dict(options), engines.teach_own(task, asked, options, run)
    else:
        auto = asked == "auto"
        choice = (
            engines.choose_teacher(task.graph, task.series, picked) if auto else engines.Choice(asked, "as asked")
        )
        settings = make_options(choice.teacher, options, chosen=auto)
        used = dataclasses.asdict(settings)
        result = engines.teach(choice.teacher, task, settings, Streams.from_seed(seed), run)
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
    """Return the name of a teacher, or the user's function."""
    if callable(teacher):
        own: OwnTeacher = teacher
        return own
    return check_option(teacher, "teacher", TEACHERS)


def check_kernel(kernel: Any) -> AbstractKernel:
    """Return the kernel, or raise an error if the argument is not a kernel."""
    if not isinstance(kernel, AbstractKernel):
        rule = "a kernel, such as HeatKernel(0.1) or DiffusionKernel(10.0)"
        reject("kernel", rule, repr(kernel)[:100], TypeError)
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
    the same as for :func:`compute_signatures`.

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
