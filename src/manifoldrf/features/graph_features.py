"""Features of the nodes of a graph, as a scikit-learn transformer."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    as_array,
    check_columns,
    check_indices,
    check_integer,
    check_jobs,
    check_option,
    reject,
)
from manifoldrf.features.options import FrozenParamsMixin
from manifoldrf.geometry.graphs import as_adjacency
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.signatures.engines import choose_exact_teacher
from manifoldrf.signatures.options import make_options
from manifoldrf.signatures.teachers import (
    TEACHERS,
    check_kernel,
    compress_rows,
    compute_signatures,
    indicator_rows,
    series_of,
)

__all__ = ["GraphRandomFeatures"]

COUPLINGS = ("shared", "independent", "asymmetric")


class GraphRandomFeatures(FrozenParamsMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Classical graph random features: sparse vectors of the nodes of a graph, whose inner products are the kernel.

    K ~ K_1 K_2^T, where K_1 and K_2 are signatures of the nodes. K x = K_1 (K_2^T x) then takes time proportional
    to their number of entries, not to the square of the number of nodes.

    Parameters
    ----------
    graph : Graph or GeneralizedAdjacency
    kernel : AbstractKernel
    teacher : str, default="auto"
        As in :func:`compute_signatures`; "auto" is "exact" or "frontier", whichever costs less per node.
    coupling : {"shared", "independent", "asymmetric"}, default="shared"
        "shared": one set of signatures for both factors; positive semi-definite, but with walks the diagonal is too
        large on average. "independent": two sets, unbiased. "asymmetric": K_1 holds rows of the kernel and K_2
        indicators, for kernels without a nonnegative modulation. A linear model in a pipeline sees K_1 alone, so
        its kernel is K_1 K_1^T, which is K only if the coupling is shared. :meth:`apply` uses both factors.
    n_components : int, optional
        Compress to this many columns (Johnson-Lindenstrauss); features are then dense and may be negative.
    options : dict, optional
        Options of the teacher, such as ``{"n_walks": 1000}``.
    random_state : None, int, Generator or RandomState
    n_jobs : int, default=1

    Attributes
    ----------
    kernel_ : AbstractKernel
        The kernel as resolved on the graph.
    teacher_ : str
        The teacher in use.
    n_features_out_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from manifoldrf import DiffusionKernel, GraphRandomFeatures, Sphere, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> height = graph.points[:, 2]
    >>> nodes = np.arange(500)[:, None]
    >>> features = GraphRandomFeatures(graph, DiffusionKernel(10.0), teacher="counts", random_state=0)
    >>> model = make_pipeline(features, Ridge(1e-3)).fit(nodes[::5], height[::5])
    >>> bool(np.abs(model.predict(nodes) - height).max() < 0.1)
    True
    """

    def __init__(
        self,
        graph: AnyGraph,
        kernel: AbstractKernel,
        *,
        teacher: str = "auto",
        coupling: str = "shared",
        n_components: int | None = None,
        options: dict[str, Any] | None = None,
        random_state: SeedLike = None,
        n_jobs: int = 1,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.teacher = teacher
        self.coupling = coupling
        self.n_components = n_components
        self.options = options
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Resolve the kernel and fix the random streams; signatures are computed on demand.

        Parameters
        ----------
        X : array-like of int, shape (n,) or (n, 1), optional
            Node indices; only their range is checked.
        y : ignored
        """
        del y
        graph = as_adjacency(self.graph)
        check_option(self.teacher, "teacher", TEACHERS)
        check_option(self.coupling, "coupling", COUPLINGS)
        check_jobs(self.n_jobs)
        if self.n_components is not None:
            check_integer(self.n_components, "n_components", 1)
        self.kernel_ = check_kernel(self.kernel).on(graph)
        series = series_of(
            self.kernel_, asymmetric=self.coupling == "asymmetric"
        )  # raises if there are no features
        # Chosen once: features of a node must not depend on the nodes it is transformed with.
        self.teacher_ = choose_exact_teacher(graph, series) if self.teacher == "auto" else self.teacher
        if self.options is not None and not isinstance(self.options, dict):
            reject("options", "a dict of options by name, or None", repr(self.options), TypeError)
        make_options(self.teacher_, self.options or {}, chosen=self.teacher == "auto")
        if X is not None:
            _check_nodes(X, graph.n_nodes)
        self.streams_ = Streams.from_seed(self.random_state, "random_state")
        self.n_features_out_ = self.n_components or graph.n_nodes
        return self

    def transform(self, X: Any) -> Any:
        """Rows of K_1 for some nodes.

        Parameters
        ----------
        X : array-like of int, shape (n,) or (n, 1)
            Node indices.

        Returns
        -------
        features : CSR array of shape (n, n_nodes), or dense of shape (n, n_components)
        """
        return self._features(X, "first")

    def transform_second(self, X: Any) -> Any:
        """Rows of K_2 for some nodes; the same as K_1 if the coupling is shared and the matrix is symmetric."""
        return self._features(X, "first" if self.coupling == "shared" else "second", partner=True)

    @one_blas_thread()
    def apply(self, x: ArrayLike) -> FloatArray:
        """K x = K_1 (K_2^T x), without forming K.

        Parameters
        ----------
        x : array-like of shape (n_nodes,) or (n_nodes, c)
        """
        check_is_fitted(self, "streams_")
        columns = check_columns(x, "x", self.graph.n_nodes)
        everything = np.arange(self.graph.n_nodes)
        first = self.transform(everything)
        same = self.coupling == "shared" and getattr(self.graph, "scaling", None) is None
        second = first if same else self.transform_second(everything)
        result = np.asarray(first @ (second.T @ columns))
        return result[:, 0] if np.ndim(x) == 1 else result

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns: ``node0``, ... or, compressed, ``component0``, ..."""
        del input_features
        check_is_fitted(self, "streams_")
        stem = "node" if self.n_components is None else "component"
        return np.array([f"{stem}{k}" for k in range(self.n_features_out_)], dtype=object)

    def _features(self, X: Any, side: str, *, partner: bool = False) -> Any:
        check_is_fitted(self, "streams_")
        nodes = _check_nodes(X, self.graph.n_nodes)
        if self.coupling == "asymmetric" and side == "second":
            return self._compressed(indicator_rows(nodes, self.graph.n_nodes))
        signatures = compute_signatures(
            self.graph,
            self.kernel_,
            nodes,
            teacher=self.teacher_,
            asymmetric=self.coupling == "asymmetric",
            seed=self.streams_.generator(f"features.{side}"),
            n_jobs=self.n_jobs,
            **(self.options or {}),
        )
        return self._compressed((signatures.partner() if partner else signatures).rows)

    def _compressed(self, rows: Any) -> Any:
        if self.n_components is None:
            return rows if sparse.issparse(rows) else sparse.csr_array(rows)
        return compress_rows(rows, self.n_components, self.streams_.generator("features.compress"))


def _check_nodes(X: Any, n_nodes: int) -> IntArray:
    """Node indices from a vector or a column, also of whole floats, which pipelines may produce."""
    array = as_array(X, "X")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind == "f" and (np.isfinite(array) & (array == np.round(array))).all():
        array = array.astype(np.int64)
    return check_indices(array, "X", n_nodes)
