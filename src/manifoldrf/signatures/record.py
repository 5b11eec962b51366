"""What a teacher returns, and what can be done with it."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._random import SeedLike, generator
from manifoldrf._threads import one_blas_thread
from manifoldrf._validation import FloatArray, IntArray, check_flag, check_integer, reject
from manifoldrf.kernels._roots import ASYMMETRIC
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures._laws import coefficients_of

__all__ = ["SignatureInfo", "Signatures"]

# Lengths that are not stored may hold this share of a series, and no more.
_MISSING = 1e-6
_NODES_AT_ONCE = 65_536


@dataclass(frozen=True)
class SignatureInfo:
    """What was done.

    Attributes
    ----------
    teacher : str
    reason : str
        Why this one, where it was chosen by "auto".
    kernel : str
        As resolved on the graph.
    asymmetric : bool
        Whether the rows are those of K itself.
    options : dict
        Of the teacher, with their defaults.
    n_steps : int
        Products with entries of W (exact, frontier), or steps of walkers.
    seconds : float
    error_bound : float or None
        Bound of the error of every row in the 2-norm, where the teacher knows one.
    radius : float
        Bound of the spectrum of W.
    n_touched : int or None
        Most nodes that one start reached, where the teacher counts them.
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
        Standard errors of the entries, for Monte Carlo teachers with at least two batches. With B batches intervals
        take a t quantile of B - 1 degrees of freedom. Entries that few walks have reached look more certain than
        they are; ``relative_stderr``, which weighs entries by their size, is reliable.
    lengths : CSR array of shape (n_starts * n_lengths, N), optional
        Row s * n_lengths + k is the estimate of row nodes[s] of W^k; kept with ``keep_lengths=True``.
    scaling : array of shape (N,), optional
        s of a matrix diag(1/s) S diag(s) (:class:`GeneralizedAdjacency`), where the second factor of K is not Phi
        but diag(s^2) Phi diag(s^-2).

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
        """Standard error of all rows together, relative to their Frobenius norm; None where none was estimated."""
        if self.stderr is None:
            return None
        norm = float(np.linalg.norm(self.rows.data))
        return float(np.linalg.norm(self.stderr.data)) / norm if norm > 0 else None

    @one_blas_thread()
    def gram(self, other: "Signatures | None" = None) -> FloatArray:
        """Return Phi_1 Phi_2^T, shape (n_starts, n_starts of the other): the kernel between the start nodes.

        With walks and one set (``other`` not given) the result is positive semi-definite and its diagonal too large
        on average; with an independent second set it is unbiased. Asymmetric rows are entries of the kernel
        already, and meet the indicators of the nodes where no other set is given.
        """
        second = self if other is None else other
        if other is None and self.info.asymmetric:
            if self.info.compressed:
                raise ValueError(
                    "Compressed asymmetric rows need their partner, compressed with the same seed: `other`."
                )
            product = self.rows[:, self.nodes]
        else:
            product = self.rows @ second.partner().rows.T
        return np.asarray(product.toarray() if sparse.issparse(product) else product)

    def partner(self) -> "Signatures":
        """Return the set to multiply these with: themselves, or on a scaled matrix the second factor of K."""
        if self.scaling is None or self.info.asymmetric:
            return self
        rows = partner_rows(self.rows, self.nodes, self.scaling)
        return dataclasses.replace(self, rows=rows, stderr=None, lengths=None, scaling=None)

    def reweight(self, kernel: AbstractKernel, *, asymmetric: bool = False) -> "Signatures":
        """Return the rows for another kernel from the same walks; needs ``keep_lengths=True``.

        Bit for bit what a new computation with the same options and seed would give.

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

        Each row is multiplied by a matrix of independent normal numbers of variance 1 / n_components; inner
        products are unbiased, off by about |x| |y| / sqrt(n_components). Entries are no longer nonnegative. Two
        sets that are to be multiplied with each other must be compressed with the same seed.
        """
        n = check_integer(n_components, "n_components", 1)
        if self.scaling is not None and not self.info.asymmetric:
            raise ValueError("Compress both sets of a pair on a scaled matrix: compute_signature_pair gives them.")
        rows = compress_rows(self.rows, n, generator(seed, "signatures.compress"))
        info = dataclasses.replace(self.info, compressed=True)
        return dataclasses.replace(self, rows=rows, info=info, stderr=None, lengths=None)


@one_blas_thread()
def compress_rows(rows: Any, n_components: int, rng: np.random.Generator) -> FloatArray:
    """Rows times a matrix of normal numbers of variance 1 / n_components, made a block of nodes at a time."""
    result = np.zeros((rows.shape[0], n_components))
    columns = rows.tocsc() if sparse.issparse(rows) else rows
    for start in range(0, rows.shape[1], _NODES_AT_ONCE):
        part = columns[:, start : start + _NODES_AT_ONCE]
        result += part @ rng.standard_normal((part.shape[1], n_components))
    return np.asarray(result / np.sqrt(n_components))


def partner_rows(rows: Any, nodes: IntArray, scaling: FloatArray) -> Any:
    """Rows of diag(s^2) Phi diag(s^-2): with P = diag(1/s) S diag(s), f(P)^2 = f(P) diag(s^-2) f(P)^T diag(s^2)."""
    left, right = scaling[nodes] ** 2, scaling**-2.0
    if sparse.issparse(rows):
        return (sparse.diags_array(left) @ rows @ sparse.diags_array(right)).tocsr()
    return left[:, None] * rows * right


def indicator_rows(nodes: IntArray, n_nodes: int) -> Any:
    """CSR array (len(nodes), n_nodes) with a one at each node."""
    n = len(nodes)
    return sparse.csr_array((np.ones(n), nodes, np.arange(n + 1)), shape=(n, n_nodes))


def check_kernel(kernel: Any) -> AbstractKernel:
    """Return a kernel, or say that it is none."""
    if not isinstance(kernel, AbstractKernel):
        reject(
            "kernel", "a kernel, such as HeatKernel(0.1) or DiffusionKernel(10.0)", repr(kernel)[:100], TypeError
        )
    return kernel


def series_of(kernel: AbstractKernel, *, asymmetric: bool) -> AbstractKernel:
    """The series that signatures sum: the modulation, or alpha itself for the asymmetric pair."""
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
            f"those up to {n_lengths - 1} are kept; "
            f"compute with max_length={needed - 1} or more."
        )
    f = np.tile(coefficients_of(series, n_lengths, radius), n_starts)
    ends = np.arange(n_starts + 1) * n_lengths
    selection = sparse.csr_array((f, np.arange(len(f)), ends), shape=(n_starts, len(f)))
    rows = selection @ lengths
    rows.sort_indices()
    return rows
