"""Compiled loops of the geometry stage: farthest points, searches along a surface.

Plain functions on contiguous arrays (int64 indices, float64 values); the callers validate.
"""

import heapq
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._compiling import compiled
from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray, check_finite, check_points, reject


class _Pyramid(NamedTuple):
    """Boxes over a k-d tree's leaf order: a heap of nodes, leaves last, the root at position 1."""

    low: Any  # (2 width, d) corners of the boxes
    high: Any  # (2 width, d)
    far: Any  # (2 width,) largest squared distance to the selection inside the box
    who: Any  # (2 width,) the point at that distance
    nearest: Any  # (N,) squared distance of each point to the selection


@compiled()
def farthest_points(points, order, leaf, n_select, first):  # type: ignore[no-untyped-def]
    """Greedy farthest points, exact, with a pyramid of bounding boxes.

    A point can only come closer to the selection if its box lies nearer to the new point than the farthest
    of its members lies to the selection, so most boxes are skipped: O(log N) boxes per selected point.

    Parameters
    ----------
    points : float64 (N, d)
    order : int64 (N,), positions sorted so that neighbours in space stand close together
    leaf : int, points per leaf
    n_select : int, at most N
    first : int, position of the first selected point

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    radii : float64 (n_select,), distance of each to those selected before it (inf for the first)
    """
    pyramid = _build_pyramid(points, order, leaf)
    selected = np.zeros(n_select, np.int64)
    radii = np.zeros(n_select)
    stack = np.zeros(192, np.int64)  # three entries a level; 64 levels hold any array
    current, current_far = first, np.inf
    for step in range(n_select):
        selected[step] = current
        radii[step] = np.sqrt(current_far)
        _select(points, order, leaf, current, pyramid, stack)
        current, current_far = pyramid.who[1], pyramid.far[1]
    return selected, radii


@compiled()
def _build_pyramid(points, order, leaf):  # type: ignore[no-untyped-def]
    """Bounding boxes of the leaves and of all pairs above them, every distance still infinite."""
    n, d = points.shape
    n_leaves = (n + leaf - 1) // leaf
    width = 1
    while width < n_leaves:
        width *= 2
    low = np.full((2 * width, d), np.inf)
    high = np.full((2 * width, d), -np.inf)
    far = np.full(2 * width, -1.0)  # boxes without points are never farthest
    who = np.zeros(2 * width, np.int64)
    for s in range(n):
        node = width + s // leaf
        far[node] = np.inf
        for c in range(d):
            low[node, c] = min(low[node, c], points[order[s], c])
            high[node, c] = max(high[node, c], points[order[s], c])
    for node in range(width - 1, 0, -1):
        for c in range(d):
            low[node, c] = min(low[2 * node, c], low[2 * node + 1, c])
            high[node, c] = max(high[2 * node, c], high[2 * node + 1, c])
        far[node] = max(far[2 * node], far[2 * node + 1])
    return _Pyramid(low, high, far, who, np.full(n, np.inf))


@compiled()
def _select(points, order, leaf, new, pyramid, stack):  # type: ignore[no-untyped-def]
    """Lower the distances that the new point improves, and repair the pyramid above them."""
    width = pyramid.far.shape[0] // 2
    stack[0] = 1
    top = 1
    while top > 0:
        top -= 1
        node = stack[top]
        if node < 0:  # on the way up: both children are done
            _pull(-node, pyramid.far, pyramid.who)
        elif _box_distance(points[new], node, pyramid) > pyramid.far[node]:
            continue
        elif node < width:
            stack[top] = -node
            stack[top + 1] = 2 * node
            stack[top + 2] = 2 * node + 1
            top += 3
        else:
            _scan_leaf(points, order[(node - width) * leaf : (node - width + 1) * leaf], node, new, pyramid)


@compiled()
def _pull(node, far, who):  # type: ignore[no-untyped-def]
    """Largest distance and its owner from the children; ties go to the smaller index."""
    left, right = 2 * node, 2 * node + 1
    take_left = far[left] > far[right] or (far[left] == far[right] and who[left] < who[right])
    child = left if take_left else right
    far[node] = far[child]
    who[node] = who[child]


@compiled()
def _box_distance(x, node, pyramid):  # type: ignore[no-untyped-def]
    """Squared distance from a point to a box."""
    total = 0.0
    for c in range(x.shape[0]):
        gap = max(pyramid.low[node, c] - x[c], x[c] - pyramid.high[node, c], 0.0)
        total += gap * gap
    return total


@compiled()
def _scan_leaf(points, members, node, new, pyramid):  # type: ignore[no-untyped-def]
    """Distances of one leaf's points to the selection, and the farthest of them."""
    best, owner = -2.0, -1
    for i in members:
        distance = 0.0
        for c in range(points.shape[1]):
            gap = points[i, c] - points[new, c]
            distance += gap * gap
        pyramid.nearest[i] = min(pyramid.nearest[i], distance)
        if i == new:
            pyramid.nearest[i] = -1.0  # selected: never again, even among equal points
        if pyramid.nearest[i] > best or (pyramid.nearest[i] == best and i < owner):
            best, owner = pyramid.nearest[i], i
    pyramid.far[node] = best
    pyramid.who[node] = owner


@compiled()
def ball_along_edges(indptr, indices, lengths, sources, limit):  # type: ignore[no-untyped-def]
    """All nodes within ``limit`` of each source along the edges (Dijkstra cut at the limit).

    Returns
    -------
    counts : int64 (len(sources),)
    nodes : int64 (sum of counts,), the nodes of one source after the other, itself first
    distances : float64 (sum of counts,)
    """
    best = np.full(indptr.shape[0] - 1, np.inf)
    counts = np.zeros(sources.shape[0], np.int64)
    # Empty, but of a type the compiler can see. (numba 0.68 miscompiles empty comprehensions in longer functions.)
    nodes = [np.int64(0)][:0]
    distances = [0.0][:0]
    for s in range(sources.shape[0]):
        begin = len(nodes)
        _settle(indptr, indices, lengths, limit, np.int64(sources[s]), best, nodes, distances)
        counts[s] = len(nodes) - begin
        for position in range(begin, len(nodes)):
            best[nodes[position]] = np.inf
    return counts, np.array(nodes), np.array(distances)


@compiled()
def _settle(indptr, indices, lengths, limit, source, best, nodes, distances):  # type: ignore[no-untyped-def]
    """Append the nodes around one source, nearest first; ``best`` keeps their distances until it is reset."""
    best[source] = 0.0
    heap = [(0.0, source)]
    while len(heap) > 0:
        distance, v = heapq.heappop(heap)
        if distance > best[v]:
            continue  # an older, longer entry of a node already settled
        nodes.append(v)
        distances.append(distance)
        for e in range(indptr[v], indptr[v + 1]):
            reached = distance + lengths[e]
            w = np.int64(indices[e])
            if reached <= limit and reached < best[w]:
                best[w] = reached
                heapq.heappush(heap, (reached, w))


_HALF, _LOWER = 32, 2**32 - 1


@compiled()
def times_vector(matrix, vector, out, span):  # type: ignore[no-untyped-def]
    """out[i] = row i of a CSR matrix (indptr, indices, data) times a vector, for i in the span."""
    indptr, indices, data = matrix
    for i in range(span[0], span[1]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * vector[np.uint64(indices[e])]
        out[i] = total


@compiled()
def times_columns(matrix, table, out, span):  # type: ignore[no-untyped-def]
    """The same times a table (N, c)."""
    indptr, indices, data = matrix
    total = np.zeros(table.shape[1])
    for i in range(span[0], span[1]):
        total[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            value = data[e]
            row = table[np.uint64(indices[e])]
            for c in range(len(total)):
                total[c] += value * row[c]
        out[i] = total


@compiled()
def scale_both_ends(matrix, scale, out, span):  # type: ignore[no-untyped-def]
    """out[e] = M_ij scale_i scale_j for the entries e of the rows in the span."""
    indptr, indices, data = matrix
    for i in range(span[0], span[1]):
        for e in range(indptr[i], indptr[i + 1]):
            other = scale[np.uint64(indices[e])]
            # The larger factor first: symmetric to the bit, and the product of two large ones never overflows.
            out[e] = data[e] * max(scale[i], other) * min(scale[i], other)


@compiled()
def label_components(indptr, indices):  # type: ignore[no-untyped-def]
    """Connected component of every node of a symmetric CSR pattern, int64 (N,)."""
    n_nodes = len(indptr) - 1
    labels = np.full(n_nodes, np.int64(-1))
    queue = np.zeros(n_nodes, np.int64)
    n_found = 0
    for seed in range(n_nodes):
        if labels[seed] >= 0:
            continue
        labels[seed] = n_found
        queue[0], begin, end = seed, 0, 1
        while begin < end:
            v = queue[begin]
            begin += 1
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                if labels[w] < 0:
                    labels[w] = n_found
                    queue[end] = w
                    end += 1
        n_found += 1
    return labels


@compiled()
def sort_entries(columns, values):  # type: ignore[no-untyped-def]
    """Sort int64 columns below 2^31 and the values that belong to them, in place."""
    ascending = True
    for p in range(1, len(columns)):
        ascending &= columns[p - 1] <= columns[p]
    if ascending:
        return
    # Numbers are sorted twice as fast as places of numbers: each column carries its place in its lower half.
    for p in range(len(columns)):
        columns[p] = (columns[p] << _HALF) | p
    columns.sort()
    before = values.copy()
    for p in range(len(columns)):
        values[p] = before[columns[p] & _LOWER]
        columns[p] >>= _HALF


@compiled()
def renumber_rows(matrix, order, ends, columns, values, span):  # type: ignore[no-untyped-def]
    """Row q of a CSR matrix becomes row order[q] of another, its column c column order[c], for q in the span."""
    indptr, indices, data = matrix
    for q in range(span[0], span[1]):
        begin = ends[order[q]]
        renumbered = order[indices[indptr[q] : indptr[q + 1]]]
        moved = data[indptr[q] : indptr[q + 1]].copy()
        sort_entries(renumbered, moved)
        for p in range(len(moved)):
            columns[begin + p] = renumbered[p]
            values[begin + p] = moved[p]


# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 2**17
_LARGEST_DEGREE = 10_000
_TASKS_PER_THREAD = 4  # so that one that is held up does not hold up the others


def symmetric(values: FloatArray, start: IntArray, end: IntArray, n: int) -> Any:
    """CSR array of shape (n, n) with the values at (start, end) and (end, start)."""
    rows, columns = np.concatenate([start, end]), np.concatenate([end, start])
    return sparse.coo_array((np.concatenate([values, values]), (rows, columns)), shape=(n, n)).tocsr()


def scaled_both_ends(matrix: Any, scale: FloatArray, n_jobs: int = 1) -> FloatArray:
    """The stored values of M_ij scale_i scale_j, in the order of ``matrix.data``."""
    out = np.zeros(matrix.nnz)
    _over_rows(lambda parts, span: scale_both_ends(parts, scale, out, span), matrix, 1, n_jobs)
    return out


def times(matrix: Any, table: FloatArray, n_jobs: int) -> FloatArray:
    """A CSR array times a vector (N,) or a table (N, c), by threads; no bit depends on their number."""
    dense = np.ascontiguousarray(table, dtype=np.float64)
    out = np.zeros((matrix.shape[0], *dense.shape[1:]))
    multiply = times_vector if dense.ndim == 1 else times_columns
    _over_rows(lambda parts, span: multiply(parts, dense, out, span), matrix, dense.size // len(dense), n_jobs)
    return out


def renumbered(matrix: Any, order: IntArray, n_jobs: int) -> Any:
    """The square CSR array whose entry (order[i], order[j]) is the entry (i, j) of another; columns sorted."""
    ends = np.zeros(matrix.shape[0] + 1, dtype=matrix.indptr.dtype)
    ends[order + 1] = np.diff(matrix.indptr)
    ends = np.cumsum(ends, dtype=ends.dtype)
    columns, values = np.zeros_like(matrix.indices), np.zeros_like(matrix.data)
    _over_rows(lambda parts, span: renumber_rows(parts, order, ends, columns, values, span), matrix, 8, n_jobs)
    return sparse.csr_array((values, columns, ends), shape=matrix.shape)


class LocalForm(NamedTuple):
    """A symmetric CSR array with its nodes in another order."""

    order: IntArray  # (N,), which node stands where
    place: IntArray  # (N,), where each node stands
    matrix: Any


def local_form(matrix: Any) -> LocalForm | None:
    """A symmetric CSR array with neighbours close together, by reverse Cuthill-McKee; None for one with hubs.

    That sorts the neighbours of each node by insertion, in time that is quadratic in their number.
    """
    if matrix.nnz and int(np.diff(matrix.indptr).max()) > _LARGEST_DEGREE:
        return None
    found = csgraph.reverse_cuthill_mckee(sparse.csr_array(matrix), symmetric_mode=True)
    order = np.asarray(found, dtype=np.int64)
    place = np.argsort(order)
    parts = read_only_view(order), read_only_view(place)
    return LocalForm(*parts, read_only(renumbered(matrix, place, 1)))


def _over_rows(work: Callable[[Any, tuple[int, int]], None], matrix: Any, width: int, n_jobs: int) -> None:
    """Work on ranges of rows with about as many entries each, by threads where it is worth it."""
    parts, n = (matrix.indptr, matrix.indices, matrix.data), matrix.shape[0]
    if n_jobs == 1 or matrix.nnz * width < _WORTH_A_THREAD:
        work(parts, (0, n))
        return
    shares = np.linspace(0, matrix.nnz, _TASKS_PER_THREAD * n_jobs + 1)
    edges = [0, *np.searchsorted(matrix.indptr, shares[1:-1]).tolist(), n]
    quick_map(lambda span: work(parts, span), pairwise(edges), n_jobs)


def components_of(matrix: Any) -> IntArray:
    """Connected component of every node of a symmetric CSR array, numbered from 0 by their smallest node."""
    return np.asarray(label_components(matrix.indptr, matrix.indices))


def reciprocal(values: FloatArray) -> FloatArray:
    """1 / x, and zero where x is zero."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def read_only(matrix: Any) -> Any:
    """CSR array on the same numbers, which cannot be changed in place, with 32-bit indices where they fit."""
    index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    parts = matrix.data, matrix.indices.astype(index, copy=False), matrix.indptr.astype(index, copy=False)
    return sparse.csr_array(tuple(read_only_view(part) for part in parts), shape=matrix.shape)


def read_only_view(array: Any) -> Any:
    """The same array, not writable through this view."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has this shape."""
    if tuple(getattr(array, "shape", ())) != shape:
        reject(name, f"of shape {shape}", f"shape {getattr(array, 'shape', None)}")


def check_numbers(name: str, array: Any, *, signed: bool = True) -> None:
    """Raise if entries are not finite or, unless ``signed``, below 0."""
    if not (np.isfinite(array) & (signed | (array >= 0))).all():
        reject(name, "finite" if signed else "finite and at least 0", "others")


def check_amounts(name: str, array: Any, n: int) -> None:
    """Raise unless it is a vector of n finite numbers >= 0; volumes may be larger than any coordinate."""
    check_shape(name, array, (n,))
    check_numbers(name, array, signed=False)


def check_csr(name: str, matrix: Any, shape: tuple[int, ...], *, signed: bool = False) -> None:
    """Raise unless it is a CSR array of this shape with finite float64 values, >= 0 unless ``signed``."""
    if not isinstance(matrix, sparse.csr_array):
        reject(name, "a CSR array", type(matrix).__name__, TypeError)
    check_shape(name, matrix, shape)
    if matrix.dtype != np.float64:
        reject(name, "an array of float64", matrix.dtype, TypeError)
    check_numbers(name, matrix.data, signed=signed)


def check_symmetric(values: Any, name: str) -> Any:
    """CSR copy of a user's matrix, dense or sparse: square, real, finite, symmetric to the bit, without zeros."""
    if sparse.issparse(values):
        if values.dtype.kind not in "biuf":
            reject(name, "a matrix of real numbers", f"dtype {values.dtype}", TypeError)
        matrix = sparse.csr_array(values, dtype=np.float64, copy=True)
    else:
        matrix = sparse.csr_array(check_points(values, name))
    if matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        reject(name, "a square matrix of at least one row", f"shape {matrix.shape}")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    check_finite(matrix, name)
    asymmetry = abs(matrix - matrix.T)
    worst = float(asymmetry.max()) if asymmetry.nnz else 0.0
    if worst > 1e-12 * float(abs(matrix).max() if matrix.nnz else 1.0):
        reject(name, "symmetric", f"a difference of {worst:g} between it and its transpose")
    even = ((matrix + matrix.T) / 2).tocsr()
    even.eliminate_zeros()  # half of the smallest number there is
    return even
