"""Features of the nodes of a graph, as a scikit-learn transformer."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import all_or_nothing
from manifoldrf._validation import IntArray, as_array, check_flag, check_indices, check_jobs, check_progress
from manifoldrf.features.fit import FrozenParamsMixin
from manifoldrf.geometry.csr import as_dense
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.named_kernels import DiffusionKernel
from manifoldrf.signatures import (
    Exact,
    Teacher,
    check_kernel,
    check_teacher,
    choose_form,
    compute_signatures,
    series_of,
)


class GraphRandomFeatures(FrozenParamsMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Graph random features: sparse vectors of the nodes of a graph, whose inner products are the kernel.

    The features of all nodes, Phi, give K ~ Phi Phi^T. K x = Phi (Phi^T x) then takes time proportional to the
    number of entries of Phi, not to the square of the number of nodes. With walks the diagonal of Phi Phi^T is too
    large on average; with features from two seeds, Phi_1 Phi_2^T is unbiased.

    Parameters
    ----------
    kernel : AbstractKernel, optional
        With a nonnegative modulation; by default ``DiffusionKernel(10.0)``, ten steps of the walk on average.
    graph : Graph, matrix or graph of another library, optional
        All that :meth:`Graph.from_affinity` accepts. If given, ``fit`` and ``transform`` take nodes, as a pipeline
        or a grid search needs; else ``fit`` takes the graph.
    teacher : {"auto", "exact"}, Exact, Walks, Counts or callable, default="auto"
        How signatures are computed, as in :func:`compute_signatures`.
    normalize : bool, default=False
        Divide all features by one number, so that the mean of K(x, x) over the nodes is 1. It is estimated from up
        to 1000 nodes.
    random_state : None, int, Generator or RandomState
        For walks and counts.
    n_jobs : int, default=-1
        Number of threads; -1 for all cores.
    sparse_output : bool, default=True
        Whether features are CSR arrays.
    verbose : bool or callable (what, done, total), default=False

    Attributes
    ----------
    graph_ : Graph
    kernel_ : AbstractKernel
        The kernel as resolved on the graph.
    teacher_ : Exact, Walks, Counts or callable
        The teacher in use.
    scale_ : float
        The factor of the features; 1 unless ``normalize``.
    n_features_out_ : int
        The number of nodes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from manifoldrf import DiffusionKernel, GraphRandomFeatures, Sphere, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> height = graph.points[:, 2]
    >>> phi = GraphRandomFeatures(DiffusionKernel(10.0)).fit_transform(graph)
    >>> model = Ridge(1e-3).fit(phi[::5], height[::5])
    >>> bool(np.abs(model.predict(phi) - height).max() < 0.1)
    True
    """

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        *,
        graph: Any = None,
        teacher: Teacher = "auto",
        normalize: bool = False,
        random_state: SeedLike = None,
        n_jobs: int = -1,
        sparse_output: bool = True,
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.graph = graph
        self.teacher = teacher
        self.normalize = normalize
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.sparse_output = sparse_output
        self.verbose = verbose

    @all_or_nothing
    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Resolve the kernel and fix the random streams; signatures are computed on demand.

        Parameters
        ----------
        X : Graph, matrix or graph of another library; nodes if the parameter ``graph`` is given
        y : ignored
        """
        given = X if self.graph is None else self.graph
        graph = given if isinstance(given, Graph) else Graph.from_affinity(given)
        teacher = check_teacher(self.teacher)
        for name in ("normalize", "sparse_output"):
            check_flag(getattr(self, name), name)
        check_jobs(self.n_jobs)
        check_progress(self.verbose)
        kernel = check_kernel(DiffusionKernel(10.0) if self.kernel is None else self.kernel).on(graph)
        series = series_of(kernel, asymmetric=False)  # raises if there are no features
        if isinstance(teacher, Exact) and teacher.form == "auto":
            # Chosen once: features of a node must not depend on the nodes transformed together with it.
            teacher = Exact(teacher.tol, choose_form(graph, series, graph.n_nodes, teacher.tol))
        if self.graph is not None and X is not None:
            check_nodes(X, graph.n_nodes)
        self.graph_, self.kernel_, self.teacher_ = graph, kernel, teacher
        self.streams_ = Streams.from_seed(self.random_state, "random_state")
        self.n_features_out_, self.scale_ = graph.n_nodes, 1.0
        if self.normalize:
            some = self._rows(np.arange(0, graph.n_nodes, -(-graph.n_nodes // 1000)))
            squares = (some.multiply(some) if sparse.issparse(some) else some**2).sum() / some.shape[0]
            self.scale_ = float(squares) ** -0.5 if squares > 0 else 1.0
        return self

    def fit_transform(self, X: Any = None, y: Any = None) -> Any:
        """Fit, and return the features of all nodes, or of the nodes ``X`` if ``graph`` is given."""
        return self.fit(X, y).transform(None if self.graph is None else X)

    def transform(self, X: Any) -> Any:
        """Features of nodes.

        Parameters
        ----------
        X : array-like of int, shape (n,) or (n, 1), or None
            Nodes; None for all of them.

        Returns
        -------
        features : CSR array or array of shape (n, n_nodes)
        """
        check_is_fitted(self, "streams_")
        n_nodes = self.graph_.n_nodes
        rows = self._rows(np.arange(n_nodes) if X is None else check_nodes(X, n_nodes)) * self.scale_
        return sparse.csr_array(rows) if self.sparse_output else as_dense(rows)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns: ``node0``, ``node1``, ..."""
        check_is_fitted(self, "streams_")
        return np.array([f"node{k}" for k in range(self.n_features_out_)], dtype=object)

    def _rows(self, nodes: IntArray) -> Any:
        return compute_signatures(
            self.graph_,
            self.kernel_,
            nodes,
            teacher=self.teacher_,
            seed=self.streams_.generator("features.first"),
            n_jobs=self.n_jobs,
            progress=check_progress(self.verbose),
        ).rows


def check_nodes(X: Any, n_nodes: int) -> IntArray:
    """Node indices from a vector or a column, also of whole floats, which pipelines may produce."""
    array = as_array(X, "X")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind == "f" and (np.isfinite(array) & (array == np.round(array))).all():
        array = array.astype(np.int64)
    return check_indices(array, "X", n_nodes)
