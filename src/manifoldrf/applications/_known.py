"""What is known of a field on a graph: values at some nodes, checked, and what follows from where they are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._validation import FloatArray, IntArray, as_array, as_floats, check_columns, check_indices, reject
from manifoldrf.geometry.graphs import Graph

BoolArray = NDArray[np.bool_]

# Parts of the known nodes that are left out in turn. With 5, what is left is 4/5 as dense as what was given.
N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Known:
    """Values at some nodes of a graph.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        Zero where unknown, whatever the caller had there.
    mask : bool array of shape (n_nodes,)
        Where they are known.
    is_vector : bool
        Whether they were given as a vector, and are to be given back as one.
    """

    values: FloatArray
    mask: BoolArray
    is_vector: bool

    @property
    def nodes(self) -> IntArray:
        """The known nodes, sorted."""
        return np.flatnonzero(self.mask)

    def within(self, field: FloatArray, graph: Graph, mask: BoolArray) -> FloatArray:
        """A field of shape (n_nodes, c) cut to the range of the values that a mask leaves to each component."""
        shape, at = (graph.n_components, self.values.shape[1]), graph.components[mask]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        np.minimum.at(low, at, self.values[mask])
        np.maximum.at(high, at, self.values[mask])
        return np.asarray(np.clip(field, low[graph.components], high[graph.components]))


def check_known(values: ArrayLike, known: Any, n_nodes: int) -> Known:
    """Check values and the mask or the nodes that say where they are known.

    Parameters
    ----------
    values : array-like of shape (n_nodes,) or (n_nodes, c)
        Rows of unknown nodes may hold anything.
    known : bool array-like of shape (n_nodes,), int array-like, or None
        None: the rows without NaN.
    """
    if np.ma.is_masked(values):
        reject("values", "without a mask of its own; give `known=~values.mask`", "a masked array", TypeError)
    rows = _check_rows(values, n_nodes)
    mask = np.asarray(~np.isnan(rows).any(axis=1)) if known is None else _check_mask(known, n_nodes)
    if not mask.any():
        raise ValueError("No value is known: `known` must name one node at least, or one row be without NaN.")
    finite = np.zeros_like(rows)
    finite[mask] = check_columns(rows[mask], "values[known]", int(mask.sum()))
    return Known(finite, mask, np.ndim(values) == 1)


def _check_rows(values: ArrayLike, n_nodes: int) -> FloatArray:
    """Values as columns of floats, NaN allowed."""
    rows = as_floats(values, "values")
    if rows.ndim not in (1, 2) or len(rows) != n_nodes or rows.size == 0:
        reject(
            "values", f"an array of shape ({n_nodes},) or ({n_nodes}, c), one row per node", f"shape {rows.shape}"
        )
    return rows.reshape(n_nodes, -1)


def _check_mask(known: Any, n_nodes: int) -> BoolArray:
    """A mask, from a mask or from nodes."""
    given = as_array(known, "known")
    if given.size == 0:
        return np.zeros(n_nodes, dtype=bool)
    if given.dtype.kind != "b":
        if given.dtype.kind not in "iu":
            reject("known", "a mask of booleans or node indices", f"dtype {given.dtype}", TypeError)
        mask = np.zeros(n_nodes, dtype=bool)
        nodes = check_indices(given, "known", n_nodes)
        mask[nodes] = True
        if mask.sum() < len(nodes):  # most often a mask of the numbers 0 and 1
            rule = "a mask of booleans (`known.astype(bool)` makes one of 0 and 1), or node indices that differ"
            reject("known", rule, f"{len(nodes)} with repetitions")
        return mask
    if given.shape != (n_nodes,):
        reject("known", f"a mask of shape ({n_nodes},)", f"shape {given.shape}")
    return given


def reached(graph: Graph, mask: BoolArray) -> BoolArray:
    """Whether the component of each node has a known value, shape (n_nodes,)."""
    has_known = np.zeros(graph.n_components, dtype=bool)
    has_known[graph.components[mask]] = True
    return np.asarray(has_known[graph.components])


def nearest_known(graph: Graph, mask: BoolArray) -> IntArray:
    """The nearest known node of each node along the edges, shape (n_nodes,); -1 where no path leads to one.

    Edges have their lengths; without points each counts 1.
    """
    if graph.points is None:
        affinity = graph.affinity
        edges = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    else:
        edges = graph.lengths
    found = csgraph.dijkstra(
        edges, directed=True, indices=np.flatnonzero(mask), min_only=True, return_predecessors=True
    )[2]
    return np.where(found < 0, -1, found).astype(np.int64)


def make_folds(mask: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Masks of what stays known when each part in turn is left out, shape (folds, n_nodes).

    There are as many parts as known nodes where these are fewer than five; a single known node leaves no fold.
    """
    nodes = np.flatnonzero(mask)
    count = min(N_FOLDS, len(nodes)) if len(nodes) > 1 else 0
    stays = np.tile(mask, (count, 1))
    for fold, part in enumerate(np.array_split(rng.permutation(nodes), count) if count else ()):
        stays[fold, part] = False
    return stays
