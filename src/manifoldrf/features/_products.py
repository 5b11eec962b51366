"""Products of features with features."""

from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._threads import one_blas_thread, quick_map
from manifoldrf._validation import FloatArray

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
