"""A field with one polynomial per anchor: log h(., w) by weighted least squares, without iterations.

Around an anchor the logarithm of h is nearly a quadratic polynomial of tangent coordinates; a few degrees more and
the offset along the normal carry curvature, boundaries and the tails. The field keeps coefficients of the anchors
and, for each start node, the anchors that reach it: a point is answered by those of its nearest start node only, so
that no polynomial is read where it was not fitted.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, final

import numpy as np
from scipy import sparse

from manifoldrf._threads import map_threads
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_jobs, reject
from manifoldrf.fields._local import Basis, Fits, Known, evaluate_lists, fit_anchors
from manifoldrf.fields.abstract_field import AbstractField, FieldData
from manifoldrf.fields.tangent import periods, search_known, stack_rows
from manifoldrf.geometry.neighbors import NeighborSearch

# Values below this share of the largest in their column are not fitted, and neither returned.
_THRESHOLD = 1e-4
_LARGEST_DEGREE = 6
# Relative error of the kernel of exp(-20 L) at held-out nodes of 4000, on sphere, ellipsoid, Moebius strip and
# torus: .0105 .0156 .0086 .0017 with degree 4; .0077 .0111 .0061 .0003 with degree 6. On the three-dimensional
# sphere 6 has 130 coefficients: .043 against .048 with 4 on even nodes, but .36 against .21 on a rough graph.
_AUTO_DEGREE = 6
_AUTO_DEGREE_FROM_DIM_3 = 4
_ANCHORS_AT_ONCE = 32  # fitted by one task
# Normal coordinates. Two hold every surface in four dimensions; from dimension 3 on each costs as many coefficients
# as clouds of affordable size have nodes for.
_NORMALS_OF_SURFACES = 2


@final
@dataclass(frozen=True, eq=False)
class LocalField(AbstractField):
    """One polynomial in tangent coordinates for each anchor. Made by :func:`fit_local`.

    Attributes
    ----------
    search : NeighborSearch
        The start nodes.
    lists : CSR array of shape (s, m)
        Stored for the anchors whose field reaches each start node.
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
        Number of coefficients used; 0 for a Gaussian of the distance, -1 where nothing is known.
    radii : array of shape (m,)
        Distance at which each field ends.
    caps : array of shape (m, b)
        Largest logarithm of each field at distances from 0 to the radius, at equal steps.
    ranges : array of shape (m, 2, a)
        Smallest and largest coordinates of the nodes each was fitted to.
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

    Least squares weighted with the values, over the nodes where the field is above 1e-4 of its largest value.

    Parameters
    ----------
    data : FieldData
        Known values of the field, nonnegative.
    degree : int or "auto", default="auto"
        Largest degree, from 2 to 6. "auto" is 6, from dimension 3 on 4. Anchors with fewer than three nodes for
        each coefficient use a lower degree, those with very few a Gaussian of the distance.
    n_jobs : int, default=1
        Threads. Results do not depend on it.

    Returns
    -------
    LocalField

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Setting, Teaching, observe
    >>> from manifoldrf.fields.local import fit_local
    >>> graph = knn_graph(Sphere().grid(500))
    >>> width = np.sqrt(20 * graph.time(1.0, 2))
    >>> setting = Setting(graph, DiffusionKernel(20.0), graph.degrees, 2, width)
    >>> field = fit_local(observe(setting, np.arange(500), np.arange(0, 500, 5), Teaching()))
    >>> field.values(Sphere().sample(3, seed=0)).shape
    (3, 100)
    """
    largest = _check_degree(degree, data.dim)
    lists = _above_threshold(data.values)
    search = search_known(data.graph, data.starts)
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
    """Monomials up to a degree, ordered by it; normal coordinates are small of second order and count twice."""
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
    """Fit all anchors, some at a time over threads."""
    m = len(known.centres)
    starts = range(0, m, _ANCHORS_AT_ONCE)
    parts = map_threads(
        lambda k: fit_anchors(known, basis, k, min(k + _ANCHORS_AT_ONCE, m), n_axes), starts, n_jobs
    )
    return Fits(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _above_threshold(values: Any) -> Any:
    """Copy without what is too small to be fitted: CSR with sorted columns."""
    table = sparse.csr_array(values)
    if table.nnz and table.data.min() < 0:
        reject("values", "nonnegative: the local field fits their logarithm", f"an entry of {table.data.min():g}")
    peaks = np.zeros(table.shape[1])
    np.maximum.at(peaks, table.indices, table.data)
    keep = (table.data > _THRESHOLD * peaks[table.indices]) & (table.data > 0)
    indptr = np.concatenate([[0], np.cumsum(keep)])[table.indptr]
    kept = sparse.csr_array((table.data[keep], table.indices[keep], indptr), shape=table.shape)
    kept.sort_indices()
    return kept


def _check_degree(degree: int | str, dim: int) -> int:
    """The largest degree."""
    if isinstance(degree, str):
        if degree != "auto":
            reject("degree", f"'auto' or an integer in [2, {_LARGEST_DEGREE}]", repr(degree))
        return _AUTO_DEGREE if dim <= 2 else _AUTO_DEGREE_FROM_DIM_3
    return check_integer(degree, "degree", 2, _LARGEST_DEGREE)
