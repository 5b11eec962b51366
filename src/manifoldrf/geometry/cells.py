"""Nodes within a radius, by cells of that size in at most three dimensions; compiled."""

from typing import NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf._validation import FloatArray, IntArray

_MOST_CELLS = 2**60  # of the box around the nodes: numbers of cells are 64-bit integers


class Cells(NamedTuple):
    """Nodes sorted by the cell they lie in, those of a row of cells one after the other."""

    points: FloatArray  # (N, 3), in the order of ``nodes``; missing coordinates are zero
    nodes: IntArray  # (N,)
    keys: IntArray  # (N,), ascending
    origin: FloatArray  # (3,)
    shape: IntArray  # (3,), number of cells along each axis
    size: float


def make_cells(points: FloatArray, size: float) -> Cells | None:
    """Sort nodes into cells; None where there are more than three axes or too many cells."""
    n, dim = points.shape
    if dim > 3:
        return None
    padded = np.zeros((n, 3))
    padded[:, :dim] = points
    origin = padded.min(axis=0)
    extent = (padded.max(axis=0) - origin) / size
    if not (extent < 2**20).all() or np.prod(extent + 1) > _MOST_CELLS:
        return None
    place = np.floor((padded - origin) / size).astype(np.int64)
    shape = place.max(axis=0) + 1
    keys = (place[:, 0] * shape[1] + place[:, 1]) * shape[2] + place[:, 2]
    nodes = np.argsort(keys, kind="stable")
    return Cells(np.ascontiguousarray(padded[nodes]), nodes.astype(np.int64), keys[nodes], origin, shape, size)


def visiting_order(queries: FloatArray, cells: Cells) -> IntArray:
    """An order of the queries in which neighbours follow each other: by coarse cells."""
    axes = queries.shape[1]
    place = np.clip((queries - cells.origin[:axes]) / (2 * cells.size), -1.0, 2.0**20).astype(np.int64)
    return np.lexsort(place.T)


@compiled()
def _near_rows(query, cells, ranges):  # type: ignore[no-untyped-def]
    """Ranges of nodes in the 9 rows of cells around a query; their number."""
    cell = np.zeros(3, np.int64)
    for axis in range(len(query)):
        # Far outside the box no cell is near; a floor of huge numbers would overflow.
        offset = min(max((query[axis] - cells.origin[axis]) / cells.size, -2.0), cells.shape[axis] + 1.0)
        cell[axis] = np.int64(np.floor(offset))
    low, high = max(cell[2] - 1, 0), min(cell[2] + 1, cells.shape[2] - 1)
    n = 0
    for first in range(max(cell[0] - 1, 0), min(cell[0] + 2, cells.shape[0])):
        for second in range(max(cell[1] - 1, 0), min(cell[1] + 2, cells.shape[1])):
            row = (first * cells.shape[1] + second) * cells.shape[2]
            begin = np.searchsorted(cells.keys, row + low)
            end = begin
            while low <= high and end < len(cells.keys) and cells.keys[end] <= row + high:
                end += 1
            ranges[n, 0], ranges[n, 1] = begin, end
            n += 1
    return n


@compiled()
def _squared_distance(spot, cells, p):  # type: ignore[no-untyped-def]
    x = spot[0] - cells.points[p, 0]
    y = spot[1] - cells.points[p, 1]
    z = spot[2] - cells.points[p, 2]
    return x * x + y * y + z * z


@compiled()
def visit_cells(queries, cells, span, found, columns, distances):  # type: ignore[no-untyped-def]
    """List the nodes within a cell's size of each query; where there is no room for a list, count them.

    ``found[i]`` is where the list of query i begins, and afterwards where it ends.
    """
    fill = len(columns) > 0
    limit = cells.size * cells.size
    ranges = np.zeros((9, 2), np.int64)
    spot = np.zeros(3)
    for i in range(span[0], span[1]):
        spot[: queries.shape[1]] = queries[i]
        for r in range(_near_rows(queries[i], cells, ranges)):
            for p in range(ranges[r, 0], ranges[r, 1]):
                square = _squared_distance(spot, cells, p)
                if square <= limit:
                    if fill:
                        columns[found[i]] = cells.nodes[p]
                        distances[found[i]] = np.sqrt(square)
                    found[i] += 1


@compiled()
def weigh(squares, columns, factors, bandwidth):  # type: ignore[no-untyped-def]
    """Squared distances become weights of a heat step; their sum."""
    # The nearest node sets the scale: a query off the surface keeps its step, without underflow.
    nearest = np.inf
    for p in range(len(squares)):
        nearest = min(nearest, squares[p])
    total = 0.0
    for p in range(len(squares)):
        squares[p] = np.exp((nearest - squares[p]) / bandwidth) * factors[columns[p]]
        total += squares[p]
    return total


@compiled()
def heat_steps(ends, pairs, nodes, bandwidth, out):  # type: ignore[no-untyped-def]
    """Affinities of queries to the nodes they step to: the mean weight of these, times the share of each.

    ``pairs`` are columns and distances, ``nodes`` Sinkhorn factors and weights.
    """
    columns, distances = pairs
    factors, weights = nodes
    for i in range(len(ends) - 1):
        begin, end = ends[i], ends[i + 1]
        for p in range(begin, end):
            out[p] = distances[p] * distances[p]
        total = weigh(out[begin:end], columns[begin:end], factors, bandwidth)
        weighted = 0.0
        for p in range(begin, end):
            weighted += out[p] * weights[columns[p]]
        square = total * total
        scale = 0.0  # nodes without weight take no step
        if 0 < square < np.inf and 0 < weighted < np.inf:
            scale = weighted / square
        elif total > 0:  # volumes whose squares overflow or vanish
            for p in range(begin, end):
                scale += out[p] / total * weights[columns[p]]
            scale /= total
        for p in range(begin, end):
            out[p] *= scale


@compiled()
def room_for(n):  # type: ignore[no-untyped-def]
    """Arrays for columns and squared distances of so many nodes."""
    return np.zeros(n, np.int64), np.zeros(n)


@compiled()
def collect(query, cells, ranges, columns, squares):  # type: ignore[no-untyped-def]
    """List the nodes within a cell's size of one query: how many, and the lists, which grow where they must."""
    limit = cells.size * cells.size
    spot = np.zeros(3)
    spot[: len(query)] = query
    n_rows = _near_rows(query, cells, ranges)
    room = 0
    for r in range(n_rows):
        room += ranges[r, 1] - ranges[r, 0]
    if room > len(columns):
        columns, squares = room_for(2 * room)
    found = 0
    for r in range(n_rows):
        for p in range(ranges[r, 0], ranges[r, 1]):
            square = _squared_distance(spot, cells, p)
            if square <= limit:
                columns[found] = cells.nodes[p]
                squares[found] = square
                found += 1
    return found, columns, squares
