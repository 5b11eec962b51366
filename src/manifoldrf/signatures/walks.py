"""Rows of sum_k f_k W^k by random walks (Algorithm 1 of the paper): independent walkers, or coupled ones.

A walk of length k continues to length k + 1 with probability s_{k+1} / s_k. It chooses an entry of its row, either
uniformly or in proportion to |W|, and its load is multiplied by the entry over the probability of the choice. It
deposits load * f_k / s_k at every node it visits, including the start. The mean over walks is unbiased.

Random numbers are xoroshiro128+ streams that Philox 4x32-10 seeds, a pure function of key and counter (Salmon,
Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter holds the start node and
the lane, so a stream has the same bits in any thread and in any order.

The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._native import arrays, loops

# What one step reads; see _loops.c.
EDGE = np.dtype([("target", "<u4"), ("row", "<u4"), ("weight", "<f8")])


class Table(NamedTuple):
    """A matrix packed for random walks."""

    edges: Any  # (nnz,) records EDGE; the weight is the factor by which a step along the entry multiplies the load
    rows: Any  # uint64 (N + 1,), where the rows begin
    shares: Any  # uint64 (nnz,), probabilities summed along each row, in units of 2^-32; empty: uniform choice
    mask: int  # the bits of a weight that hold the degree of the target


class Law(NamedTuple):
    """What walks deposit and when they end."""

    deposit: Any  # float64 (L,), f_k / s_k
    go_on: Any  # uint64 (L,), length k continues to k + 1 if 32 random bits are below it; the last must be 0


def pack_table(indptr: Any, indices: Any, data: Any, *, weighted: bool = False) -> Table:
    """Table of a CSR matrix for walks that choose entries of a row uniformly, or in proportion to |W|."""
    rows = np.ascontiguousarray(indptr, np.uint64)
    if max(len(data), rows.size) >= 2**32:
        raise ValueError(f"Walks need fewer than 2^32 nodes and entries, got {rows.size - 1} and {len(data)}.")
    mask = 2 ** int(np.diff(rows).max(initial=np.uint64(0))).bit_length() - 1
    edges, shares = np.zeros(len(data), EDGE), np.zeros(len(data) if weighted else 0, np.uint64)
    parts = rows, np.ascontiguousarray(indices), np.ascontiguousarray(data, np.float64)
    loops.fill_table(*parts, mask, edges, shares)
    return Table(edges, rows, shares, mask)


def run_walks(table: Table, law: Law, n_walks: int, n_batches: int, key: Any, coupling: str, starts: Any) -> Any:
    """Estimate rows of sum_k f_k W^k with walks.

    Couplings change the joint law of the walkers of a group, not that of a single walk, so the estimates stay
    unbiased. Batches consist of whole groups; if the group size does not divide ``n_walks``, the last group is
    smaller, and its variance per walk is assumed to equal that of the others.

    Parameters
    ----------
    n_walks : int, walks per row
    n_batches : int, parts of nearly equal size for the variance; at most ``n_walks``
    key : uint32 (2,)
    coupling : "iid", "antithetic" or "repelling"; the last needs a table with uniform choice
    starts : int64 (n,), the rows; the random words of a row depend only on its node and the key

    Returns
    -------
    counts : int64 (n,), nodes touched from each start
    nodes : int64 (sum of counts,), ascending within a start
    sums, variances : float64 (sum of counts,), the estimates and unbiased estimates of their variances (NaN for a
        single batch)
    n_steps : int, steps of all walks
    """
    unit = {"iid": 1, "antithetic": 2, "repelling": 16}[coupling]  # walkers of a group; 16: twice the usual degree
    n_units = -(-n_walks // unit)  # a batch has whole units; only the last unit may be incomplete
    n_batches = min(n_batches, n_units)
    sizes = np.diff(np.minimum(np.arange(n_batches + 1) * n_units // n_batches * unit, n_walks))
    starts = np.ascontiguousarray(starts, np.int64)
    n_steps, *found = loops.run_walks(*table, *law, sizes, key, starts, unit)
    return *arrays(found, "lldd"), n_steps
