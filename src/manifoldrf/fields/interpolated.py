"""A field that keeps its known values and interpolates their logarithms: nothing is fitted.

g(z, w) = exp(sum_j b_j(z) log h(x_j, w)), with the weights b of :mod:`manifoldrf.fields.tangent`. The logarithm of
a field that decays like a Gaussian is nearly quadratic, which is what b reproduces; and the result is positive
although some of the b_j are negative.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import sparse

from manifoldrf._validation import FloatArray, check_jobs
from manifoldrf.fields._devices import sparse_product
from manifoldrf.fields.abstract_field import AbstractField, FieldData
from manifoldrf.fields.tangent import AbstractInterpolation, make_interpolation, stack_rows

# Missing values count as the smallest known value of their column, but as no more than this share of the largest:
# a column with few values still decays.
_LARGEST_FLOOR = 1e-3
# By so little less, so that the smallest known value itself is above its floor and not left out.
_BELOW = 1 - 1e-9
# Values are at most so many times the largest known one of their column. At held-out nodes of four surfaces with
# 4000 nodes values reach 1.12 times it for exp(-20 L) and 1.03 for exp(-80 L), at anchors that are not known.
_LARGEST_GROWTH = 2.0


@final
@dataclass(frozen=True, eq=False)
class InterpolatedField(AbstractField):
    """Interpolated signatures. Made by :func:`fit_interpolated`.

    Attributes
    ----------
    interpolation : AbstractInterpolation
        Weights of the known nodes at any point.
    table : CSR array of shape (s, m)
        Known values or, for ``combine="logarithms"``, the logarithm of known value over floor, at least 0.
    floors : array of shape (m,)
        What missing values count as, and below which values are left out.
    largest : array of shape (m,)
        Bounds of the columns.
    combine : {"logarithms", "values"}
        What is interpolated. Values, where the weights are barycentric or the field has both signs.
    signed : bool
        Whether the field has both signs.
    """

    interpolation: AbstractInterpolation
    table: Any
    floors: FloatArray
    largest: FloatArray
    combine: str
    signed: bool = False

    @property
    def rule(self) -> str:
        """Where the weights come from: "tangent" or "barycentric"."""
        return self.interpolation.rule

    @property
    def bounds(self) -> FloatArray:
        """Largest size that a value of each column can have anywhere, shape (m,)."""
        return self.largest

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), CSR array of shape (len(queries), m) with sorted columns."""
        return stack_rows(self._rows, queries, len(self.largest), check_jobs(n_jobs))

    def _rows(self, queries: FloatArray) -> Any:
        """Values at a few queries."""
        return self._finished((self.interpolation.weights(queries) @ self.table).tocsr())

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same with the product of weights and table on a device."""
        jobs = check_jobs(n_jobs)
        weights = stack_rows(self.interpolation.weights, queries, self.table.shape[0], jobs)
        return self._finished(sparse_product(weights, self.table, device))

    def _finished(self, rows: Any) -> Any:
        """From interpolated values or logarithms, CSR, to values of the field."""
        largest, low = self.largest[rows.indices], self.floors[rows.indices]
        if self.combine == "logarithms":
            # The weights sum to 1, so the logarithm of the floor need not be carried along.
            with np.errstate(over="ignore"):
                data = np.where(rows.data > 0, low * np.exp(rows.data), 0.0)
            data = np.minimum(data, largest)
        elif self.signed:
            data = np.clip(rows.data, -largest, largest)
        else:
            data = np.clip(rows.data, 0.0, largest)
        keep = np.abs(data) > low
        counts = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
        result = sparse.csr_array((data[keep], rows.indices[keep], counts), shape=rows.shape)
        result.sort_indices()
        return result


def fit_interpolated(data: FieldData) -> InterpolatedField:
    """Make a field that interpolates its known values.

    In the logarithm, with local quadratic weights; on a mesh all of whose vertices are known, the values themselves
    with barycentric weights. Known values of both signs have no logarithm: the values themselves are combined.

    Parameters
    ----------
    data : FieldData
        Known values of the field.

    Returns
    -------
    InterpolatedField

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Setting, Teaching, observe
    >>> from manifoldrf.fields.interpolated import fit_interpolated
    >>> graph = knn_graph(Sphere().grid(500))
    >>> width = np.sqrt(20 * graph.time(1.0, 2))
    >>> setting = Setting(graph, DiffusionKernel(20.0), graph.degrees, 2, width)
    >>> field = fit_interpolated(observe(setting, np.arange(500), np.arange(0, 500, 5), Teaching()))
    >>> field.values(Sphere().sample(3, seed=0)).shape
    (3, 100)
    """
    interpolation = make_interpolation(data.graph, data.starts, data.dim)
    table = sparse.csr_array(data.values)
    size = np.abs(table.data)
    largest = np.zeros(table.shape[1])
    np.maximum.at(largest, table.indices, size)
    signed = bool((table.data < 0).any())
    if signed or interpolation.rule == "barycentric":
        growth = 1.0 if interpolation.rule == "barycentric" else _LARGEST_GROWTH
        return InterpolatedField(interpolation, table, np.zeros_like(largest), growth * largest, "values", signed)
    floors = _LARGEST_FLOOR * largest
    known = size > 0
    np.minimum.at(floors, table.indices[known], size[known])
    floors *= _BELOW
    # Subnormal floors would make infinite quotients.
    floors = np.where(largest > 0, np.maximum(floors, 1e-300), 0.0)
    quotients = np.where(known, size / np.where(known, floors[table.indices], 1.0), 1.0)
    logs = sparse.csr_array((np.log(np.maximum(quotients, 1.0)), table.indices, table.indptr), shape=table.shape)
    return InterpolatedField(interpolation, logs, floors, _LARGEST_GROWTH * largest, "logarithms")
