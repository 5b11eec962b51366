"""Walkers counted per node: rows of sum_k f_k W^k by integer counts and systematic sampling.

A walker at v moves to j with probability P_vj = A_vj / d_v. The product of W_vj / P_vj along its path is
sqrt(d_start / d_now) for every path, so all walkers at a node are equal and only their number c_v matters. A step
thins the numbers and splits each over the neighbours, with systematic rounding. Every rounding is unbiased and off
by less than one walker, so the error falls like 1 / n_walkers instead of 1 / sqrt(n_walkers). A step costs one
visit per occupied edge for any number of walkers.

The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._native import arrays, loops
from manifoldrf.signatures.walks import Law


class CountTable(NamedTuple):
    """A graph prepared for counting, made by :func:`build_count_table`."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    cumulative: Any  # (n_edges,) sums of P along each row, the last exactly 1 (all 0 in a row without weight)
    root_degrees: Any  # (N,) square roots of the row sums; 1 where the row sum is 0, as no walker leaves


def build_count_table(indptr: Any, indices: Any, data: Any) -> CountTable:
    """CountTable of a nonnegative CSR affinity."""
    cumulative, root_degrees = np.zeros(len(data)), np.zeros(len(indptr) - 1)
    loops.fill_count_table(indptr, indices, data, cumulative, root_degrees)
    return CountTable(indptr, indices, cumulative, root_degrees)


def propagate_counts(table: CountTable, law: Law, n_walkers: int, n_batches: int, key: Any, starts: Any) -> Any:
    """Unbiased estimates of the rows ``starts`` of sum_k f_k W^k.

    Each start runs ``n_batches`` independent batches of nearly equal size (with fewer walkers than batches, each
    walker is a batch). The estimate is the plain mean of the batches, so its variance is estimated without bias
    even if batches differ by a walker. The error of a batch falls like the inverse of its size, so B batches have
    up to sqrt(B) times the error of one batch with all walkers.

    The work per start does not grow with the number of nodes N; the working memory of 65 N bytes is allocated once.
    A row depends, to the last bit, only on the key and its start, not on the other starts.

    Parameters
    ----------
    table : CountTable
    law : walks.Law
    n_walkers : int, at least 1, per start
    n_batches : int, at least 1
    key : uint32 (2,)
    starts : int (n_starts,)

    Returns
    -------
    counts : int64 (n_starts,), nodes of each start
    nodes : int64 (sum of counts,), one start after the other, ascending within each
    sums : float64 (sum of counts,), the estimates
    variances : float64 (sum of counts,), unbiased estimates of the variances of ``sums``; NaN with one batch
    n_steps : int64, moves of single walkers, over all starts
    """
    starts = np.ascontiguousarray(starts, np.int64)
    n_steps, *found = loops.count_walkers(*table, *law, n_walkers, n_batches, key, starts)
    return *arrays(found, "lldd"), n_steps
