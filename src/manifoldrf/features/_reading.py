"""Features of many points, some at a time: memory is that of the result, of a sparse one twice, and of a block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._threads import search_jobs
from manifoldrf._validation import FloatArray
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.proximity import warn_of_far

_DENSE_AT_ONCE = 2**25  # features in a block: 256 MB
# Sparse ones take 12 bytes and, while they are made, 32 more. Blocks four times as large are no quicker.
_SPARSE_AT_ONCE = 2**23
# Lists of the nodes around each point take up to some kB for it where there are no cells, in more than three
# dimensions: 10 for a heat graph of 1000 nodes, which without a limit were 2 GB for 200,000 points.
_POINTS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Reader:
    """How features are read from a fitted map.

    Attributes
    ----------
    fitted : FeatureMap
    side : {"left", "right"}
        Of a kernel without nonnegative features.
    n_jobs : int
    device : str
        Where the field is read.
    as_sparse : bool
        Whether rows are made as CSR arrays; otherwise they are as the field makes them.
    """

    fitted: FeatureMap
    side: str = "left"
    n_jobs: int = 1
    device: str = "cpu"
    as_sparse: bool = False

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features in double precision, dense or CSR, and the window."""
        with search_jobs(self.n_jobs):
            return self._rows(points)

    def _rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        if self.side == "right" and self.fitted.space.setting.asymmetric:
            return self.fitted.right_rows(points, self.n_jobs)
        return self.fitted.rows(points, self.n_jobs, device=self.device, as_sparse=self.as_sparse)

    @property
    def block_size(self) -> int:
        """Number of points in a block."""
        most = _DENSE_AT_ONCE // len(self.fitted.anchors)
        if self.as_sparse:
            most = _SPARSE_AT_ONCE // self.fitted.field.row_entries
        return min(max(1, most), _POINTS_AT_ONCE)

    def spans(self, n: int) -> Iterator[slice]:
        """Blocks of n points; one, empty, if there are none."""
        step = self.block_size
        for start in range(0, max(n, 1), step):
            yield slice(start, min(start + step, n))

    def features(self, points: FloatArray, dtype: Any) -> Any:
        """Features of all points, dense or, if asked for, CSR; one warning for all that are off the space."""
        window = np.ones(len(points))
        spans = list(self.spans(len(points)))
        whole: Any = None if self.as_sparse or len(spans) == 1 else np.zeros((len(points), self._n_features), dtype)
        parts = []
        for span in spans:
            rows, window[span] = self.rows(points[span])
            if whole is None:
                parts.append(self._finished(rows, dtype))
            else:
                whole[span] = self._finished(rows, dtype)
        warn_of_far(window)
        if whole is not None:
            return whole
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")

    @property
    def _n_features(self) -> int:
        return len(self.fitted.anchors)

    def _finished(self, rows: Any, dtype: Any) -> Any:
        """Features in the form asked for."""
        if self.as_sparse:
            rows = rows if sparse.issparse(rows) else sparse.csr_array(rows)
        elif sparse.issparse(rows):
            rows = rows.toarray()
        return rows.astype(dtype, copy=False)
