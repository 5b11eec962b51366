"""Tables of signatures between nodes and anchors, and exact values at some nodes."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.features.options import Teaching
from manifoldrf.features.products import row_spans, symmetric_product
from manifoldrf.geometry.csr import as_dense, reciprocal, row_peaks, select_entries
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures.engines import choose_teacher, row_memory
from manifoldrf.signatures.options import Counts, Walks

# Entries below this share of the largest in their column are dropped from tables that one more step follows: the
# kernel changes by a similar share, and the table becomes a quarter smaller.
STEP_SHARE = 3e-6


def signature_table(
    kernel: GraphKernel,
    series: AbstractKernel,
    starts: IntArray,
    anchors: IntArray,
    teaching: Teaching,
    share: float = 1e-7,
) -> Any:
    """Entries (starts, anchors) of a series of W, divided by sqrt(mu) at both ends: CSR of shape (s, m).

    A series of a symmetric matrix is symmetric, so rows are computed from the smaller of the two sets. Entries
    below a share of the largest in their column are dropped: a thousand of them at 1e-7 change a kernel by less
    than a millionth.
    """
    backwards = len(anchors) < len(starts)
    sources, targets = (anchors, starts) if backwards else (starts, anchors)
    inverse = reciprocal(np.sqrt(kernel.measure))  # nodes without measure reach nothing
    ends = inverse[targets]
    blocks = []
    for some, rows in _signature_rows(kernel, series, sources, targets, teaching):
        rows.data *= np.repeat(inverse[some], np.diff(rows.indptr))
        rows.data *= ends[rows.indices]
        if backwards:  # rows from anchors are whole columns of the result
            rows = select_entries(rows, rows.data, np.abs(rows.data) > share * row_peaks(rows))
        blocks.append(rows)
    table = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    blocks.clear()
    return table.T.tocsr() if backwards else without_negligible(table, share)


def _signature_rows(
    kernel: GraphKernel, series: AbstractKernel, sources: IntArray, targets: IntArray, teaching: Teaching
) -> Iterator[tuple[IntArray, Any]]:
    """Blocks of sources with their entries at the targets, as writable CSR arrays; blocks fit in memory."""
    graph, teacher = kernel.graph, teaching.teacher
    options: dict[str, Any] = {}
    if isinstance(teacher, Walks | Counts):
        options = teacher.get_params()
        teacher = "walks" if isinstance(teacher, Walks) else "counts"
    if teacher == "auto":
        teacher = choose_teacher(graph, series, sources, 2**32).teacher  # of all rows; kept ones are smaller
    if teacher in ("exact", "frontier"):
        options = {"tol": 1e-7}
    everything = len(targets) == graph.n_nodes and (np.diff(targets) == 1).all()
    size = len(sources)
    if isinstance(teacher, str):  # a function given by the user is called once for all sources
        dense = teacher == "exact" or 8 * graph.n_nodes * size <= 2**28
        size = max(1, int(2**28 / (8.0 * graph.n_nodes if dense else row_memory(graph, series))))

    def advance(before: int, what: str, done: int, total: int) -> None:
        part = what == "signatures"  # other stages have their own totals
        teaching.progress(what, before + done if part else done, len(sources) if part else total)

    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = teaching.compute(
            graph,
            series,
            some,
            teacher=teacher,
            asymmetric=True,  # the series itself, not its root
            seed=teaching.seed,
            n_jobs=teaching.n_jobs,
            progress=functools.partial(advance, start),
            **options,
        )
        rows = sparse.csr_array(found.rows if everything else found.rows[:, targets])
        yield some, rows if rows.data.flags.writeable else rows.copy()


def without_negligible(matrix: Any, share: float) -> Any:
    """Drop entries far below the largest in their column; the result has sorted columns."""
    peaks = np.zeros(matrix.shape[1])
    np.maximum.at(peaks, matrix.indices, np.abs(matrix.data))
    result = select_entries(matrix, matrix.data, np.abs(matrix.data) > share * peaks[matrix.indices])
    result.sort_indices()
    return result


@dataclass(frozen=True, eq=False)
class Reference:
    """Exact values at some nodes.

    Attributes
    ----------
    nodes : int array of shape (s,)
    rows : CSR array of shape (s, n_nodes)
        g(node, .), in the unit of the measure.
    kernel : array of shape (s, s)
        Sum over all nodes j of mu_j g(x, j) g(y, j); the kernel itself for asymmetric pairs.
    """

    nodes: IntArray
    rows: Any
    kernel: FloatArray

    def part(self, positions: IntArray) -> "Reference":
        """The values at some of the nodes."""
        return Reference(self.nodes[positions], self.rows[positions], self.kernel[np.ix_(positions, positions)])


def exact_reference(kernel: GraphKernel, nodes: IntArray, n_jobs: int) -> Reference:
    """Exact signatures of some nodes and the kernel between them."""
    rows = signature_table(kernel, kernel.series, nodes, np.arange(kernel.graph.n_nodes), Teaching(n_jobs=n_jobs))
    if kernel.asymmetric:
        return Reference(nodes, rows, rows[:, nodes].toarray())
    return Reference(nodes, rows, gram(rows, kernel.measure, n_jobs))


def gram(rows: Any, weights: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Rows times weights times their transpose, dense; the bits do not depend on ``n_jobs``."""
    roots = np.sqrt(weights)
    if rows.shape[0] * rows.shape[1] > 5e7:
        scaled = (rows @ sparse.diags_array(roots)).tocsr()
        return np.asarray((scaled @ scaled.T).toarray())
    dense = np.zeros(rows.shape)

    def fill(span: slice) -> None:
        np.multiply(as_dense(rows[span]), roots, out=dense[span])

    quick_map(fill, row_spans(len(dense)), n_jobs)
    return symmetric_product(dense, n_jobs)
