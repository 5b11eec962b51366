"""Compiled loops of local coordinates: wrapped offsets, principal axes, quadratic interpolation weights.

Plain functions on contiguous arrays (int64 indices, float64 values); the callers validate. Everything is summed in
plain loops, in the order of the neighbours: no bit depends on the other queries or on a library's threads.
"""

import numpy as np

from manifoldrf._compiling import compiled

# Relative to the sum of the weights, on coordinates of size at most 1: resolves all that float64 resolves in a
# squared system, and leaves alone what the neighbours do not determine.
_RIDGE = 1e-10
_SWEEPS = 30  # of Jacobi rotations at most; convergence is quadratic
# A combination whose weights sum to this in size magnifies errors as much; at held-out nodes of four surfaces the
# sum is at most 2.6.
_LARGEST_SUM = 4.0
# Less than one, so that neighbours all at the same distance keep some weight.
_RIM = 0.999


@compiled()
def take_offset(point, origin, box, out):  # type: ignore[no-untyped-def]
    """Write point - origin to ``out``, the shortest way around where the side of the box is not zero."""
    for a in range(point.shape[0]):
        gap = point[a] - origin[a]
        if box[a] > 0.0:
            gap -= box[a] * np.rint(gap / box[a])
        out[a] = gap


@compiled()
def principal_axes(rows, n_axes):  # type: ignore[no-untyped-def]
    """Orthonormal directions of largest second moment of the rows, (n_axes, d); zero where there is none.

    The smaller of the matrices rows' rows and rows rows' is diagonalised.
    """
    k, d = rows.shape
    axes = np.zeros((n_axes, d))
    values, vectors = _diagonalise(_products(rows) if k < d else _products(rows.T))
    order = np.argsort(-values)
    for i in range(min(n_axes, values.shape[0])):
        vector, size = vectors[:, order[i]], values[order[i]]
        if k >= d:
            axes[i] = vector
        elif size > 1e-14 * values[order[0]]:  # the rest is rounding
            for j in range(k):
                axes[i] += rows[j] * (vector[j] / np.sqrt(size))
    return axes


@compiled()
def _products(rows):  # type: ignore[no-untyped-def]
    """Lower half of the matrix of scalar products of the rows."""
    n, d = rows.shape
    products = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            for a in range(d):
                products[i, j] += rows[i, a] * rows[j, a]
    return products


@compiled()
def _diagonalise(lower):  # type: ignore[no-untyped-def]
    """Eigenvalues and eigenvectors (columns) of a small symmetric matrix given by its lower half: cyclic Jacobi."""
    n = lower.shape[0]
    matrix = np.zeros((n, n))
    vectors = np.zeros((n, n))
    for a in range(n):
        vectors[a, a] = 1.0
        for b in range(a + 1):
            matrix[a, b] = lower[a, b]
            matrix[b, a] = lower[a, b]
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(matrix[p, q]) > 1e-15 * np.sqrt(abs(matrix[p, p] * matrix[q, q])) + 1e-300:
                    _rotate(matrix, vectors, p, q)
                    rotated = True
        if not rotated:
            break
    return np.diag(matrix).copy(), vectors


@compiled()
def _rotate(matrix, vectors, p, q):  # type: ignore[no-untyped-def]
    """One Jacobi rotation, which makes the entry (p, q) vanish."""
    n = matrix.shape[0]
    theta = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
    tangent = 1.0 / (abs(theta) + np.hypot(theta, 1.0))
    if theta < 0.0:
        tangent = -tangent
    cosine = 1.0 / np.hypot(tangent, 1.0)
    sine = tangent * cosine
    for a in range(n):
        x, y = matrix[a, p], matrix[a, q]
        matrix[a, p], matrix[a, q] = cosine * x - sine * y, sine * x + cosine * y
    for a in range(n):
        x, y = matrix[p, a], matrix[q, a]
        matrix[p, a], matrix[q, a] = cosine * x - sine * y, sine * x + cosine * y
        x, y = vectors[a, p], vectors[a, q]
        vectors[a, p], vectors[a, q] = cosine * x - sine * y, sine * x + cosine * y


@compiled()
def solve_positive(matrix, right):  # type: ignore[no-untyped-def]
    """Solve a small positive definite system in place, by Cholesky; reads and overwrites the lower half."""
    _factorise(matrix)
    n = matrix.shape[0]
    for a in range(n):
        for c in range(a):
            right[a] -= matrix[a, c] * right[c]
        right[a] /= matrix[a, a]
    for a in range(n - 1, -1, -1):
        for c in range(a + 1, n):
            right[a] -= matrix[c, a] * right[c]
        right[a] /= matrix[a, a]


@compiled()
def _factorise(matrix):  # type: ignore[no-untyped-def]
    """Replace the lower half by the Cholesky factor."""
    for a in range(matrix.shape[0]):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            if a == b:
                matrix[a, a] = np.sqrt(max(total, 1e-300))
            else:
                matrix[a, b] = total / matrix[b, b]


@compiled()
def interpolate_rows(points, queries, neighbors, box, n_axes):  # type: ignore[no-untyped-def]
    """Weights of each query's neighbours that interpolate values given at nodes; rows sum to 1.

    Parameters
    ----------
    points : float64 (n, d)
    queries : float64 (q, d)
    neighbors : int64 (q, k), nodes near each query
    box : float64 (d,), sides of a periodic box, zero along axes that are not periodic
    n_axes : int, principal axes of the neighbours that are used as coordinates; 0 for a weighted mean

    Returns
    -------
    weights : float64 (q, k)
    """
    n_queries, k = neighbors.shape
    d = points.shape[1]
    result = np.zeros((n_queries, k))
    gaps = np.zeros((k, d))
    distances = np.zeros(k)
    for i in range(n_queries):
        for j in range(k):
            take_offset(points[neighbors[i, j]], queries[i], box, gaps[j])
        radius = _scale(gaps, distances)
        _inverse_distance(distances, result[i])
        if n_axes > 0 and distances.min() > 0.0 and radius > 0.0:
            _polynomial(gaps, distances, n_axes, result[i])
    return result


@compiled()
def _scale(gaps, distances):  # type: ignore[no-untyped-def]
    """Divide offsets by the largest distance and return it; distances below 1e-12 of it become zero."""
    k, d = gaps.shape
    largest = np.abs(gaps).max()
    if largest == 0.0:
        distances[:] = 0.0
        return 0.0
    for j in range(k):
        total = 0.0
        for a in range(d):
            gaps[j, a] /= largest
            total += gaps[j, a] * gaps[j, a]
        distances[j] = np.sqrt(total)
    radius = distances.max()
    for j in range(k):
        gaps[j] /= radius
        distances[j] /= radius
        if distances[j] < 1e-12:
            distances[j] = 0.0
    return largest * radius


@compiled()
def _inverse_distance(distances, out):  # type: ignore[no-untyped-def]
    """Positive weights 1 / distance^2, to be used where nothing better is; equal shares at distance zero."""
    here = 0
    for j in range(distances.shape[0]):
        here += distances[j] == 0.0
    for j in range(distances.shape[0]):
        if here > 0:
            out[j] = 1.0 / here if distances[j] == 0.0 else 0.0
        else:
            out[j] = 1.0 / (distances[j] * distances[j])
    out /= out.sum()


@compiled()
def _polynomial(gaps, distances, n_axes, out):  # type: ignore[no-untyped-def]
    """Replace the weights by those of the linear, then of the quadratic polynomial where the nodes determine it."""
    k, d = gaps.shape
    centred = np.zeros((k, d))
    for a in range(d):
        centred[:, a] = gaps[:, a] - gaps[:, a].mean()
    axes = principal_axes(centred, n_axes)
    places = np.zeros((k, n_axes))
    for j in range(k):
        for c in range(n_axes):
            for a in range(d):
                places[j, c] += gaps[j, a] * axes[c, a]
    weights = np.zeros(k)
    for j in range(k):
        # Infinite at a node, so that the node's own value is taken, and zero where the next neighbour enters.
        weights[j] = 1.0 / (distances[j] * distances[j]) - _RIM
    for degree in (1, 2):
        columns = _columns(places, degree)
        if columns.shape[1] <= k:
            _blend(columns, weights, out)


@compiled()
def _columns(places, degree):  # type: ignore[no-untyped-def]
    """Monomials 1, u_i and, for degree 2, u_i u_j of the places, (k, c)."""
    k, n = places.shape
    n_columns = 1 + n + (n * (n + 1) // 2 if degree == 2 else 0)
    columns = np.ones((k, n_columns))
    for j in range(k):
        at = 1
        for a in range(n):
            columns[j, at] = places[j, a]
            at += 1
        if degree == 2:
            for a in range(n):
                for b in range(a + 1):
                    columns[j, at] = places[j, a] * places[j, b]
                    at += 1
    return columns


@compiled()
def _blend(columns, weights, out):  # type: ignore[no-untyped-def]
    """Least squares weights at the origin, mixed with those in ``out`` where they grow too large."""
    found = _least_squares(columns, weights)
    total = found.sum()
    if not abs(total - 1.0) < 1e-3:  # far outside, where rounding is all that is left
        return
    found /= total
    size = np.abs(found).sum()
    # Continuous, at most _LARGEST_SUM in total, and gone far outside.
    share = 1.0 if size <= _LARGEST_SUM else ((_LARGEST_SUM - 1.0) / (size - 1.0)) ** 2
    for j in range(out.shape[0]):
        out[j] += share * (found[j] - out[j])


@compiled()
def _least_squares(columns, weights):  # type: ignore[no-untyped-def]
    """Weights b with sum_j b_j value_j = the fitted coefficient of the first column, (k,)."""
    k, n = columns.shape
    system, right = np.zeros((n, n)), np.zeros(n)
    for j in range(k):
        add_row(columns[j], weights[j], system)
    for a in range(1, n):
        system[a, a] += _RIDGE * system[0, 0]
    right[0] = 1.0
    solve_positive(system, right)
    found = np.zeros(k)
    for j in range(k):
        for a in range(n):
            found[j] += columns[j, a] * right[a]
        found[j] *= weights[j]
    return found


@compiled()
def add_row(row, weight, system):  # type: ignore[no-untyped-def]
    """Add weight row' row to the lower half of a system."""
    for a in range(row.shape[0]):
        scaled = weight * row[a]
        for b in range(a + 1):
            system[a, b] += scaled * row[b]
