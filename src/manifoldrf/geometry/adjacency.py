"""Matrices of one's own in the place of a graph's walk operator."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import POSITIVE, FloatArray, check_integer, check_real, check_vector, reject
from manifoldrf.geometry._sparse import LocalForm, check_symmetric, local_form, read_only, read_only_view
from manifoldrf.geometry.graphs import Graph

__all__ = ["GeneralizedAdjacency"]

_ROUNDS = 200


@dataclass(frozen=True, eq=False)
class GeneralizedAdjacency:
    """A matrix whose powers a kernel sums, where a :class:`Graph` would give W.

    The matrix is diag(1/s) S diag(s) with S symmetric; entries may be negative and the spectrum may leave [-1, 1].
    Kernels and the teachers "exact", "frontier" and "walks" accept it in the place of a graph.

    Parameters
    ----------
    symmetric : array-like or sparse matrix of shape (n, n)
        S.
    scaling : array-like of shape (n,), optional
        s, positive; all ones by default, so that the matrix is S itself.
    step_time : float, optional
        Time that one step lasts, where there is a clock.
    n_steps : int, optional
        That of a heat graph, whose powers are the heat operator.

    Examples
    --------
    The paper's kernel on a plain adjacency matrix, without degrees:

    >>> from manifoldrf import DiffusionKernel, GeneralizedAdjacency
    >>> path = GeneralizedAdjacency([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> kernel = DiffusionKernel(1.0, normalized=False)
    >>> kernel.dense(path).round(3)[0].tolist()
    [1.589, 1.368, 0.589]
    """

    symmetric: Any
    scaling: FloatArray | None = None
    step_time: float | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:
        matrix = check_symmetric(self.symmetric, "symmetric")
        object.__setattr__(self, "symmetric", read_only(matrix))
        if self.scaling is not None:
            vector = np.array(check_vector(self.scaling, "scaling", matrix.shape[0], POSITIVE))
            object.__setattr__(self, "scaling", read_only_view(vector))
        if self.step_time is not None:
            check_real(self.step_time, "step_time", POSITIVE)
        if self.n_steps is not None:
            check_integer(self.n_steps, "n_steps", 1)

    @classmethod
    def random_walk(cls, graph: Graph, dim: int | None = None) -> "GeneralizedAdjacency":
        """P = D^-1 A, the transition matrix of the walk: similar to W, so exp(-t L_rw) = D^-1/2 exp(-t L) D^1/2.

        Parameters
        ----------
        graph : Graph
            Without isolated nodes.
        dim : int, optional
            Intrinsic dimension, which gives a clock to graphs that do not know the time of a step by construction.

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import DiffusionKernel, GeneralizedAdjacency, Graph
        >>> graph = Graph.from_affinity([[0, 1, 0], [1, 0, 3], [0, 3, 0]])
        >>> walk = GeneralizedAdjacency.random_walk(graph)
        >>> DiffusionKernel(2.0).dense(walk).sum(axis=1).round(12).tolist()
        [1.0, 1.0, 1.0]
        """
        _check_graph(graph)
        if (graph.degrees == 0).any():
            reject("graph", "without isolated nodes", f"{int((graph.degrees == 0).sum())} of them")
        step_time = graph.step_time if dim is None else graph.time(1.0, dim)
        return cls(graph.operator, np.sqrt(graph.degrees), step_time, graph.n_steps)

    @classmethod
    def combinatorial(cls, graph: Graph) -> "GeneralizedAdjacency":
        """I - c (D - A) with c = 1 / max d, the walk of the combinatorial Laplacian; one step lasts c.

        exp(-t (D - A)) is therefore ``HeatKernel(t)`` or ``DiffusionKernel(t / c)`` on it.
        """
        largest = float(_check_graph(graph).degrees.max())
        if largest == 0:
            reject("graph", "a graph with edges", "none")
        stay = sparse.diags_array(1 - graph.degrees / largest)
        return cls(stay + graph.affinity / largest, None, 1 / largest)

    def __reduce__(self) -> tuple[type["GeneralizedAdjacency"], tuple[Any, ...]]:
        # A copy, pickled or not, is made anew, and read-only again.
        return GeneralizedAdjacency, tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def __sklearn_clone__(self) -> "GeneralizedAdjacency":
        return self  # what never changes need not be copied

    def __repr__(self) -> str:
        return f"GeneralizedAdjacency({self.n_nodes} nodes, {self.symmetric.nnz} entries)"

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return int(self.symmetric.shape[0])

    @cached_property
    def operator(self) -> Any:
        """diag(1/s) S diag(s), CSR."""
        if self.scaling is None:
            return self.symmetric
        scaled = sparse.diags_array(1 / self.scaling) @ self.symmetric @ sparse.diags_array(self.scaling)
        return read_only(scaled.tocsr())

    @cached_property
    def _local(self) -> LocalForm | None:
        """S with its rows in an order in which neighbours are close together in memory."""
        return local_form(self.symmetric)

    @cached_property
    def radius(self) -> float:
        """An upper bound of the size of every eigenvalue, tight to about a per cent.

        For every x > 0 no eigenvalue of S exceeds the largest (|S| x)_i / x_i (Collatz and Wielandt); x is found by
        power iteration.
        """
        size = abs(self.symmetric)
        x = np.ones(self.n_nodes)
        bound = float((size @ x).max())
        shift = bound / 2  # keeps the iteration from swinging on bipartite graphs
        for _ in range(_ROUNDS):
            product = size @ x
            bound = min(bound, float((product / x).max()))
            x = product + shift * x + np.finfo(np.float64).tiny
            x = np.maximum(x / x.max(), 1e-100)
        return bound * (1 + 8 * np.finfo(np.float64).eps)  # the rounding of the quotients


def _check_graph(graph: Any) -> Graph:
    if not isinstance(graph, Graph):
        reject("graph", "a Graph", type(graph).__name__, TypeError)
    return graph


def as_adjacency(graph: Any) -> Graph | GeneralizedAdjacency:
    """Return a graph, or a matrix of one's own wrapped as one."""
    if isinstance(graph, Graph | GeneralizedAdjacency):
        return graph
    rule = "a Graph or a GeneralizedAdjacency; Graph.from_affinity makes one of a matrix"
    reject("graph", rule, type(graph).__name__, TypeError)
