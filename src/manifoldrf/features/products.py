"""Products of features whose bits depend neither on the number of threads nor on other threads."""

from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._runtime import one_blas_thread, quick_map
from manifoldrf._validation import FloatArray
from manifoldrf.geometry.csr import as_dense


def product(left: Any, right: Any, n_jobs: int) -> FloatArray:
    """Left times right transposed, dense."""
    same = left is right
    left = _worth_dense(left)
    right = left if same else _worth_dense(right)
    if sparse.issparse(left) or sparse.issparse(right):
        return as_dense(left @ right.T)
    if same:
        return symmetric_product(left, n_jobs)
    result = np.zeros((len(left), len(right)), np.result_type(left, right))
    with one_blas_thread():
        quick_map(lambda span: np.matmul(left[span], right.T, out=result[span]), row_spans(len(left)), n_jobs)
    return result


def _worth_dense(rows: Any) -> Any:
    """Rows as a dense array if that makes products faster: above 5 % of nonzeros."""
    filled = sparse.issparse(rows) and rows.nnz > 0.05 * rows.shape[0] * rows.shape[1]
    return rows.toarray() if filled else rows


def symmetric_product(rows: FloatArray, n_jobs: int) -> FloatArray:
    """Rows times their transpose, in blocks that do not depend on ``n_jobs``: each pair of blocks once."""
    result = np.zeros((len(rows), len(rows)))

    def work(pair: tuple[slice, slice]) -> None:
        first, second = pair
        block = rows[first] @ rows[second].T
        result[first, second] = block
        if first != second:
            result[second, first] = block.T

    with one_blas_thread():
        quick_map(work, combinations_with_replacement(row_spans(len(rows)), 2), n_jobs)
    return result


def row_spans(n: int) -> list[slice]:
    """Blocks of about 128 rows, at most 16 of them: enough for threads, and large enough for products."""
    edges = np.linspace(0, n, max(1, min(16, n // 128)) + 1).astype(np.int64)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]
