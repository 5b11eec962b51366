"""A field with one polynomial per anchor, fitted to the logarithm of the known values.

The compiled loops work on contiguous arrays (int64 indices, float64 values) and rely on their callers for checks.
Monomials are ordered by degree, where a normal coordinate counts twice; each is the product of an earlier one and
one coordinate.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._compiling import compiled
from manifoldrf._runtime import map_threads
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_jobs, reject
from manifoldrf.fields.data import AbstractField, FieldData, Problem
from manifoldrf.fields.interpolated import add_row, periods, principal_axes, solve_positive, stack_rows, take_offset
from manifoldrf.geometry.csr import check_numbers, check_shape, select_entries
from manifoldrf.geometry.neighbors import NeighborSearch

_RIDGE = 1e-8  # for columns of norm 1: keeps undetermined coefficients small
_NODES_PER_COEFFICIENT = 3  # with fewer, the fit oscillates between the nodes
_WINDOW = 0.9  # share of the radius at which a field begins to fade out
_LARGEST_GROWTH = np.log(2.0)  # by which the polynomial may exceed the largest known logarithm, at the anchor
# With more coordinates than this, a frame is made from this many nodes, those of largest weight, so that the matrix
# to be diagonalised stays small.
_FRAME_NODES = 32
# Distances with a cap. The fit has little weight near its rim and may grow there between the nodes: without caps,
# degree 6 has an error of .0179 on the ellipsoid at exp(-20 L), with them .0111. Twice as many caps are too tight:
# .0006 instead of .0003 on the torus.
_N_CAPS = 9
_REACH = np.sqrt(2 * np.log(1e4))  # in standard deviations: where a Gaussian falls to 1e-4


class Known(NamedTuple):
    """Known values above the threshold, one column per anchor, all positive."""

    points: Any  # (s, d) places of the starts
    box: Any  # (d,) periods, zero where there is none
    centres: Any  # (m, d) places of the anchors
    indptr: Any  # (m + 1,)
    starts: Any  # int64, positions in ``points``
    values: Any  # float64
    width: Any  # float, standard deviation to assume if the data do not determine it


class Basis(NamedTuple):
    """Monomials in the coordinates of a frame."""

    parents: Any  # (c,) the monomial that each extends
    factors: Any  # (c,) the coordinate it is extended by
    sizes: Any  # (degree + 1,) number of monomials up to each degree
    n_tangent: Any  # number of coordinates that count once


class Fits(NamedTuple):
    """Fitted polynomials."""

    frames: Any  # (m, a, d) axes, divided by the radius
    coefficients: Any  # (m, c)
    sizes: Any  # (m,) number of coefficients; 0 for a Gaussian of the distance, -1 without data
    radii: Any  # (m,) the field is zero beyond
    caps: Any  # (m, b) largest logarithm at distances from 0 to the radius, at equal steps
    ranges: Any  # (m, 2, a) smallest and largest coordinates of the data


@compiled()
def fit_anchors(known, basis, first, last, n_axes):  # type: ignore[no-untyped-def]
    """Fit the anchors from ``first`` to ``last`` (excluded)."""
    m, d, c = last - first, known.points.shape[1], basis.parents.shape[0]
    fits = Fits(
        np.zeros((m, n_axes, d)),
        np.zeros((m, max(c, 2))),
        np.full(m, -1, np.int64),
        np.zeros(m),
        np.zeros((m, _N_CAPS)),
        np.zeros((m, 2, n_axes)),
    )
    for i in range(m):
        begin, end = known.indptr[first + i], known.indptr[first + i + 1]
        if begin < end:
            values = known.values[begin:end]
            gaps = np.zeros((end - begin, d))
            for j in range(end - begin):
                take_offset(known.points[known.starts[begin + j]], known.centres[first + i], known.box, gaps[j])
            _fit_anchor(gaps, values, basis, fits, i, known.width)
    return fits


@compiled()
def _fit_anchor(gaps, values, basis, fits, i, width):  # type: ignore[no-untyped-def]
    """Fit one anchor from the offsets of its nodes and the values there."""
    n = gaps.shape[0]
    peak = values.max()
    logs = np.log(values)
    squares = (gaps * gaps).sum(axis=1)
    radius = np.sqrt(squares.max())
    n_used = 0
    for size in basis.sizes[2:]:
        if size * _NODES_PER_COEFFICIENT <= n:
            n_used = size
    if n_used == 0 or radius == 0.0:
        _fit_gaussian(squares, logs, values / peak, fits, i, width)
        return
    fits.sizes[i] = n_used
    fits.radii[i] = radius
    fits.frames[i] = _frame(gaps / radius, values / peak, fits.frames.shape[1]) / radius
    places = np.zeros((n, fits.frames.shape[1]))
    for j in range(n):
        _locate(gaps[j], fits.frames[i], places[j])
    for a in range(places.shape[1]):
        fits.ranges[i, 0, a] = min(places[:, a].min(), 0.0)
        fits.ranges[i, 1, a] = max(places[:, a].max(), 0.0)
    _solve(places, logs, values / peak, basis, fits.coefficients[i, :n_used])
    _set_caps(squares, logs, fits, i)


@compiled()
def _frame(gaps, weights, n_axes):  # type: ignore[no-untyped-def]
    """Principal axes around the anchor, with nodes weighted by the square of their values."""
    n, d = gaps.shape
    rows = np.zeros((n, d))
    for j in range(n):
        rows[j] = gaps[j] * weights[j]
    if d > _FRAME_NODES and n > _FRAME_NODES:
        rows = rows[np.argsort(-weights)[:_FRAME_NODES]]
    return principal_axes(rows, n_axes)


@compiled()
def _locate(gap, frame, out):  # type: ignore[no-untyped-def]
    """Coordinates of an offset in a frame."""
    for a in range(frame.shape[0]):
        total = 0.0
        for b in range(gap.shape[0]):
            total += frame[a, b] * gap[b]
        out[a] = total


@compiled()
def _expand(place, basis, out):  # type: ignore[no-untyped-def]
    """All monomials of one place that fit into ``out``."""
    out[0] = 1.0
    for c in range(1, out.shape[0]):
        out[c] = out[basis.parents[c]] * place[basis.factors[c]]


@compiled()
def _solve(places, logs, weights, basis, out):  # type: ignore[no-untyped-def]
    """Weighted least squares coefficients of the logarithms."""
    c = out.shape[0]
    shift = logs.max()  # the ridge then pulls towards the peak, and rounding is relative to the variation
    system = np.zeros((c, c))
    right = np.zeros(c)
    row = np.zeros(c)
    for j in range(places.shape[0]):
        _expand(places[j], basis, row)
        add_row(row, weights[j], system)
        for a in range(c):
            right[a] += weights[j] * (logs[j] - shift) * row[a]
    scales = np.zeros(c)
    for a in range(c):
        # Coordinates that do not vary, such as the normal of a plane, are ignored.
        if system[a, a] > 1e-20 * system[0, 0]:
            scales[a] = 1.0 / np.sqrt(system[a, a])
    for a in range(c):
        right[a] *= scales[a]
        for b in range(a + 1):
            system[a, b] *= scales[a] * scales[b]
        system[a, a] = 1.0 + _RIDGE
    solve_positive(system, right)
    for a in range(c):
        out[a] = right[a] * scales[a]
    out[0] += shift


@compiled()
def _set_caps(squares, logs, fits, i):  # type: ignore[no-untyped-def]
    """Largest known logarithm beyond each distance, with a margin of one step; at the anchor that of the fit."""
    caps, step = fits.caps[i], fits.radii[i] / (_N_CAPS - 1)
    top = logs.max()
    caps[:] = logs.min()
    for j in range(squares.shape[0]):
        last = min(int(np.sqrt(squares[j]) / step) + 1, _N_CAPS - 1)
        for b in range(last + 1):
            caps[b] = max(caps[b], logs[j])
    caps[:2] = min(max(fits.coefficients[i, 0], top), top + _LARGEST_GROWTH)


@compiled()
def _cap(caps, share):  # type: ignore[no-untyped-def]
    """The largest logarithm at a share of the radius below 1, linear between the steps."""
    place = share * (caps.shape[0] - 1)
    b = int(place)
    return caps[b] + (place - b) * (caps[b + 1] - caps[b])


@compiled()
def _fit_gaussian(squares, logs, weights, fits, i, width):  # type: ignore[no-untyped-def]
    """Fit exp(c - p r^2) if there are too few nodes for a polynomial."""
    total = weights.sum()
    middle, height = (weights * squares).sum() / total, (weights * logs).sum() / total
    spread = (weights * (squares - middle) ** 2).sum()
    precision = 0.5 / (width * width)
    if squares.shape[0] > 2 and spread > 1e-12 * total * middle * middle:
        found = -(weights * (squares - middle) * (logs - height)).sum() / spread
        # A few nodes at nearly equal distances carry little information: stay close to the width of the kernel.
        precision = min(max(found, 0.25 * precision), 4.0 * precision)
    fits.sizes[i] = 0
    fits.coefficients[i, 0] = height + precision * middle
    fits.coefficients[i, 1] = precision
    fits.radii[i] = max(np.sqrt(squares.max()), _REACH / np.sqrt(2.0 * precision))
    fits.caps[i] = min(fits.coefficients[i, 0], logs.max() + _LARGEST_GROWTH)


@compiled()
def evaluate_lists(queries, indptr, columns, centres, box, basis, fits):  # type: ignore[no-untyped-def]
    """Values of the listed fields at each query; those of query i are at ``indptr[i]`` to ``indptr[i + 1]``."""
    result = np.zeros(columns.shape[0])
    gap = np.zeros(centres.shape[1])
    place = np.zeros(fits.frames.shape[1])
    row = np.zeros(fits.coefficients.shape[1])
    for i in range(queries.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            anchor = columns[e]
            take_offset(queries[i], centres[anchor], box, gap)
            square = 0.0
            for b in range(gap.shape[0]):
                square += gap[b] * gap[b]
            distance, radius, size = np.sqrt(square), fits.radii[anchor], fits.sizes[anchor]
            if distance >= radius or size < 0:
                continue
            if size == 0:
                level = fits.coefficients[anchor, 0] - fits.coefficients[anchor, 1] * square
            else:
                _locate(gap, fits.frames[anchor], place)
                # Off the surface, normal coordinates are clipped to the range of the fit.
                for a in range(basis.n_tangent, place.shape[0]):
                    place[a] = min(max(place[a], fits.ranges[anchor, 0, a]), fits.ranges[anchor, 1, a])
                _expand(place, basis, row[:size])
                level = 0.0
                for c in range(size):
                    level += row[c] * fits.coefficients[anchor, c]
            cap = _cap(fits.caps[anchor], distance / radius)
            # The cap also replaces a polynomial that overflowed or is NaN.
            result[e] = _fade(distance / radius) * np.exp(level if level <= cap else cap)
    return result


@compiled()
def _fade(share):  # type: ignore[no-untyped-def]
    """One up to most of the radius, then falling smoothly to zero."""
    t = min((1.0 - share) / (1.0 - _WINDOW), 1.0)
    return t * t * (3.0 - 2.0 * t)


# Values below this share of the largest in their column are neither fitted nor returned.
_THRESHOLD = 1e-4
_LARGEST_DEGREE = 6
_LARGEST_LOGARITHM = 700.0  # of a float64
# Relative error of the kernel of exp(-20 L) at held-out nodes of 4000, on sphere, ellipsoid, Moebius strip and
# torus: .0105 .0156 .0086 .0017 with degree 4; .0077 .0111 .0061 .0003 with degree 6. On the three-dimensional
# sphere 6 has 130 coefficients: .043 against .048 with 4 on even nodes, but .36 against .21 on a rough graph.
_AUTO_DEGREE = 6
_AUTO_DEGREE_FROM_DIM_3 = 4
_ANCHORS_AT_ONCE = 32  # per task
# Number of normal coordinates of surfaces, enough in four dimensions. From dimension 3 on there is one: each costs
# as many coefficients as clouds of affordable size can determine.
_NORMALS_OF_SURFACES = 2


@stored
@final
@dataclass(frozen=True, eq=False)
class LocalField(AbstractField):
    """One polynomial in tangent coordinates per anchor, made by :func:`fit_local`.

    Attributes
    ----------
    search : NeighborSearch
        The start nodes.
    lists : CSR array of shape (s, m)
        Has an entry for each start node and each anchor whose field reaches it.
    centres : array of shape (m, d)
        Places of the anchors.
    dim : int
        Intrinsic dimension: the number of tangent coordinates.
    degree : int
        Largest degree of the polynomials.
    frames : array of shape (m, a, d)
        Tangent, then normal axes, divided by the radius.
    coefficients : array of shape (m, c)
        Of the monomials, ordered by degree.
    sizes : int array of shape (m,)
        Number of coefficients; 0 for a Gaussian of the distance, -1 for anchors without data.
    radii : array of shape (m,)
        Distance at which each field ends.
    caps : array of shape (m, b)
        Largest logarithm of each field at distances from 0 to the radius, at equal steps.
    ranges : array of shape (m, 2, a)
        Smallest and largest coordinates of the fitted nodes.
    """

    search: NeighborSearch
    lists: Any
    centres: FloatArray
    dim: int
    degree: int
    frames: FloatArray
    coefficients: FloatArray
    sizes: IntArray
    radii: FloatArray
    caps: FloatArray
    ranges: FloatArray

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the parts do not fit together, or do not fit the problem and the anchors."""
        self._check_shapes(problem.graph.positions.shape[1], n_anchors)
        n_axes, n_coefficients = self.frames.shape[1], self.coefficients.shape[1]
        for name in ("centres", "frames", "coefficients"):
            check_numbers(name, getattr(self, name))
        used = self.sizes >= 0  # the arrays of other anchors are not read
        check_numbers("caps", self.caps[used])
        if np.max(self.caps, initial=0.0, where=used[:, None]) > _LARGEST_LOGARITHM:
            reject("caps", f"at most {_LARGEST_LOGARITHM}", "others")
        if np.isnan(self.ranges[used]).any() or not (self.radii[used] > 0).all():
            reject("radii", "positive, and `ranges` numbers", "others")
        if n_anchors and not (self.sizes.min() >= -1 and self.sizes.max() <= n_coefficients):
            reject("sizes", f"in [-1, {n_coefficients}]", f"{self.sizes.min()} to {self.sizes.max()}")
        fits = 1 <= self.dim <= n_axes <= 8 and 1 <= self.degree <= 8
        if not fits or len(make_basis(self.dim, n_axes - self.dim, self.degree).parents) < n_coefficients:
            reject("degree", "one that fits the coefficients", f"{self.degree} in {self.dim} dimensions")

    def _check_shapes(self, d: int, m: int) -> None:
        for name, axes in (("frames", 3), ("coefficients", 2), ("caps", 2)):
            if getattr(self, name).ndim != axes:
                reject(name, f"an array of {axes} axes", getattr(self, name).ndim)
        n_coefficients = int(self.coefficients.shape[1])
        if n_coefficients < 2 or self.caps.shape[0] != len(self.radii) or self.caps.shape[1] < 2:
            reject("coefficients", "at least two of each anchor, with two caps", self.coefficients.shape)
        if not isinstance(self.lists, sparse.csr_array):
            reject("lists", "a CSR array", type(self.lists).__name__, TypeError)
        n_known, n_axes = len(self.search.points), int(self.frames.shape[1])
        self.search.check(n_known, d)
        shapes: dict[str, tuple[int, ...]] = {"lists": (n_known, m), "centres": (m, d), "frames": (m, n_axes, d)}
        shapes |= {"coefficients": (m, n_coefficients), "radii": (m,), "ranges": (m, 2, n_axes), "sizes": (m,)}
        for name, shape in shapes.items():
            check_shape(name, getattr(self, name), shape)

    @property
    def bounds(self) -> FloatArray:
        """Largest value that each column can take anywhere, shape (m,)."""
        used = self.sizes >= 0
        return np.asarray(np.exp(self.caps.max(axis=1), out=np.zeros(len(used)), where=used))

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), CSR array of shape (len(queries), m) with sorted columns."""
        return stack_rows(self._rows, queries, len(self.radii), check_jobs(n_jobs))

    def _rows(self, queries: FloatArray) -> Any:
        """Values at a few queries."""
        _, nearest = self.search.knn(queries, 1)
        pattern = self.lists[nearest[:, 0]]
        fits = Fits(self.frames, self.coefficients, self.sizes, self.radii, self.caps, self.ranges)
        basis = make_basis(self.dim, self.frames.shape[1] - self.dim, self.degree)
        indptr, columns = pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64)
        data = evaluate_lists(queries, indptr, columns, self.centres, periods(self.search), basis, fits)
        rows = sparse.csr_array((data, pattern.indices, pattern.indptr), shape=pattern.shape)
        rows.eliminate_zeros()
        return rows


def fit_local(data: FieldData, degree: int | str = "auto", n_jobs: int = 1) -> LocalField:
    """Fit one polynomial per anchor to the logarithm of the field.

    Least squares weighted by the values, over the nodes where the field is above 1e-4 of its largest value.

    Parameters
    ----------
    data : FieldData
        Known values of the field, nonnegative.
    degree : int or "auto", default="auto"
        Largest degree, from 2 to 6. "auto" is 6, and 4 from dimension 3 on. Anchors with fewer than three nodes per
        coefficient use a lower degree, and those with very few nodes a Gaussian of the distance.
    n_jobs : int, default=1
        Number of threads, which does not change the result.

    Returns
    -------
    LocalField

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Problem, SignatureOptions, signature_table
    >>> from manifoldrf.fields.local import fit_local
    >>> graph = knn_graph(Sphere().grid(500))
    >>> width = np.sqrt(20 * graph.time(1.0, 2))
    >>> problem = Problem(graph, DiffusionKernel(20.0), graph.degrees, 2, width)
    >>> field = fit_local(signature_table(problem, np.arange(500), np.arange(0, 500, 5), SignatureOptions()))
    >>> field.values(Sphere().sample(3, seed=0)).shape
    (3, 100)
    """
    largest = _check_degree(degree, data.dim)
    lists = _above_threshold(data.values)
    search = data.search
    columns = lists.tocsc()
    centres = np.ascontiguousarray(data.points[data.anchors])
    known = Known(
        search.points,
        periods(search),
        centres,
        columns.indptr.astype(np.int64),
        columns.indices.astype(np.int64),
        np.ascontiguousarray(columns.data),
        float(data.width),
    )
    d = search.points.shape[1]
    dim = min(data.dim, d)
    n_normals = min(d - dim, _NORMALS_OF_SURFACES if dim <= 2 else 1)
    fits = _fit_all(known, make_basis(dim, n_normals, largest), dim + n_normals, check_jobs(n_jobs))
    pattern = sparse.csr_array((np.ones(lists.nnz, dtype=np.int8), lists.indices, lists.indptr), shape=lists.shape)
    used = max(int(fits.sizes.max(initial=0)), 2)
    fits = fits._replace(coefficients=np.ascontiguousarray(fits.coefficients[:, :used]))
    return LocalField(search, pattern, centres, dim, largest, *fits)


def make_basis(n_tangent: int, n_normal: int, degree: int) -> Basis:
    """Monomials up to a degree, in order of degree; normal coordinates are of second order and count twice."""
    costs = [1] * n_tangent + [2] * n_normal
    found: dict[tuple[int, ...], tuple[int, int]] = {(): (0, 0)}
    sizes = [1]
    for total in range(1, degree + 1):
        for length in range((total + 1) // 2, total + 1):
            for factors in combinations_with_replacement(range(len(costs)), length):
                if sum(costs[a] for a in factors) == total:
                    parent = list(found).index(factors[:-1])
                    found[factors] = (parent, factors[-1])
        sizes.append(len(found))
    table = np.array(list(found.values()), dtype=np.int64)
    parents, extended_by = np.ascontiguousarray(table.T)
    return Basis(parents, extended_by, np.array(sizes, dtype=np.int64), n_tangent)


def _fit_all(known: Known, basis: Basis, n_axes: int, n_jobs: int) -> Fits:
    """Fit all anchors in blocks, by threads."""
    m = len(known.centres)
    starts = range(0, m, _ANCHORS_AT_ONCE)
    parts = map_threads(
        lambda k: fit_anchors(known, basis, k, min(k + _ANCHORS_AT_ONCE, m), n_axes), starts, n_jobs
    )
    return Fits(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _above_threshold(values: Any) -> Any:
    """Drop values that are too small to be fitted; CSR with sorted columns."""
    table = sparse.csr_array(values)
    if table.nnz and table.data.min() < 0:
        reject("values", "nonnegative: the local field fits their logarithm", f"an entry of {table.data.min():g}")
    peaks = np.zeros(table.shape[1])
    np.maximum.at(peaks, table.indices, table.data)
    keep = (table.data > _THRESHOLD * peaks[table.indices]) & (table.data > 0)
    kept = select_entries(table, table.data, keep)
    kept.sort_indices()
    return kept


def _check_degree(degree: int | str, dim: int) -> int:
    """The largest degree."""
    if isinstance(degree, str):
        if degree != "auto":
            reject("degree", f"'auto' or an integer in [2, {_LARGEST_DEGREE}]", repr(degree))
        return _AUTO_DEGREE if dim <= 2 else _AUTO_DEGREE_FROM_DIM_3
    return check_integer(degree, "degree", 2, _LARGEST_DEGREE)
