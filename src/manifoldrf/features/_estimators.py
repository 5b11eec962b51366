"""Parameters of frozen parts of an estimator, set by name."""

from collections import defaultdict
from itertools import combinations_with_replacement, pairwise
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from manifoldrf._runtime import one_blas_thread, quick_map
from manifoldrf._validation import FloatArray, check_points, column_names, refuse_text
from manifoldrf.kernels.abstract_kernel import FrozenParams


class FrozenParamsMixin:
    """``set_params(kernel__t=...)`` for estimators that hold frozen objects, which are replaced, not changed."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator; ``kernel__<name>`` replaces the kernel by one with another value."""
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        outer = {}
        for name, value in params.items():
            owner, _, rest = name.partition("__")
            if rest and owner in ("kernel", "graph") and params.get(owner, self.__dict__.get(owner)) is None:
                example = "HeatKernel(0.1)" if owner == "kernel" else "GraphOptions()"
                raise ValueError(f"`{name}` needs a {owner} to change: give one, such as {owner}={example}.")
            if rest and isinstance(params.get(owner, self.__dict__.get(owner)), FrozenParams):
                inner[owner][rest] = value
            else:
                outer[name] = value
        super().set_params(**outer)  # type: ignore[misc]
        for owner, changes in inner.items():
            setattr(self, owner, self.__dict__[owner].with_params(**changes))
        return self


def estimator_points(estimator: Any, X: Any, name: str = "X", **options: Any) -> tuple[FloatArray, Any]:
    """Points as float64, and the float type that they came in.

    Parameters
    ----------
    estimator : estimator
        Its number of coordinates and their names are noted or, with ``reset=False``, compared.
    X : array-like of shape (n, d)
    name : str
        What the user calls them.
    **options
        Of scikit-learn's ``validate_data``.
    """
    refuse_text(X, name)  # scikit-learn reads numbers from texts
    found = validate_data(estimator, X, dtype=(np.float64, np.float32), ensure_all_finite=False, **options)
    return check_points(found, name, names=column_names(X)), found.dtype


_DENSE_SHARE = 0.05  # of nonzeros, above which dense products are quicker than sparse ones
_BLOCK, _MOST_BLOCKS = 128, 16


def product(left: Any, right: Any, n_jobs: int) -> FloatArray:
    """Left times right transposed, dense; the bits do not depend on ``n_jobs``, nor on what other threads do."""
    same = left is right
    left = _worth_dense(left)
    right = left if same else _worth_dense(right)
    if sparse.issparse(left) or sparse.issparse(right):
        result = left @ right.T
        return np.asarray(result.toarray() if sparse.issparse(result) else result)
    return symmetric_product(left, n_jobs) if same else _dense_product(left, right, n_jobs)


def _worth_dense(rows: Any) -> Any:
    """Rows as a dense array where their products are quicker so."""
    filled = sparse.issparse(rows) and rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1]
    return rows.toarray() if filled else rows


def _dense_product(left: FloatArray, right: FloatArray, n_jobs: int) -> FloatArray:
    """Left times right transposed, in blocks of rows that do not depend on ``n_jobs``."""
    result = np.zeros((len(left), len(right)), np.result_type(left, right))

    def work(span: slice) -> None:
        np.matmul(left[span], right.T, out=result[span])

    with one_blas_thread():
        quick_map(work, row_spans(len(left)), n_jobs)
    return result


def symmetric_product(rows: FloatArray, n_jobs: int) -> FloatArray:
    """Rows times their transpose, in blocks that do not depend on ``n_jobs``: each pair of blocks once."""
    result = np.zeros((len(rows), len(rows)))
    spans = row_spans(len(rows))

    def work(pair: tuple[slice, slice]) -> None:
        first, second = pair
        block = rows[first] @ rows[second].T
        result[first, second] = block
        if first != second:
            result[second, first] = block.T

    with one_blas_thread():
        quick_map(work, combinations_with_replacement(spans, 2), n_jobs)
    return result


def row_spans(n: int) -> list[slice]:
    """Rows in blocks of about 128, at most 16 of them: enough for threads, and large enough for products."""
    edges = np.linspace(0, n, max(1, min(_MOST_BLOCKS, n // _BLOCK)) + 1).astype(np.int64)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]


class BoundKernel:
    """The parameter ``kernel`` of an estimator, which can also be called with points."""

    def __init__(self, estimator: Any, parameter: Any) -> None:
        self._estimator = estimator
        self._parameter = parameter

    def __call__(self, Z: Any, Y: Any = None) -> Any:
        """K(z, y) = phi(z) . phi(y), shape (len(Z), len(Y)); between the points of ``Z`` without ``Y``."""
        return self._estimator.kernel_matrix(Z, Y)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy in the making has no parameter yet
            raise AttributeError(name)
        return getattr(self._parameter, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._parameter == (other._parameter if isinstance(other, BoundKernel) else other))

    def __hash__(self) -> int:
        return hash(self._parameter)

    def __repr__(self) -> str:
        return repr(self._parameter)


class KernelAccess:
    """Descriptor that stores the parameter under its own name and gives it back with a call."""

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        return self if estimator is None else BoundKernel(estimator, estimator.__dict__["kernel"])

    def __set__(self, estimator: Any, value: Any) -> None:
        estimator.__dict__["kernel"] = value._parameter if isinstance(value, BoundKernel) else value
