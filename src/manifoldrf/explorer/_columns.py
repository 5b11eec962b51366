"""Sparse columns as whole numbers: small enough for a page, and with an error that is known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manifoldrf._validation import FloatArray, IntArray

_LOW_BITS = 7  # of a number, in each byte of a chain; the eighth says that another byte follows


@dataclass(frozen=True, eq=False)
class QuantisedColumns:
    """A sparse matrix whose entries are whole multiples of one scale per column.

    Attributes
    ----------
    shape : (int, int)
    bits : {8, 16}
        Of each number.
    signed : bool
        Whether numbers may be negative.
    starts : int array of shape (m + 1,)
        Where each column begins.
    rows : int array of shape (nnz,)
        Ascending in each column.
    numbers : int array of shape (nnz,)
        None is zero: what would be rounded to zero is left out.
    scales : array of shape (m,)
    """

    shape: tuple[int, int]
    bits: int
    signed: bool
    starts: IntArray
    rows: IntArray
    numbers: IntArray
    scales: FloatArray

    @classmethod
    def of(cls, matrix: Any, bits: int, *, signed: bool = False) -> "QuantisedColumns":
        """Round the entries of a sparse matrix, each by at most half the scale of its column.

        Examples
        --------
        >>> import numpy as np
        >>> from scipy import sparse
        >>> whole = sparse.csc_array(np.array([[1.0, 0.0], [0.25, 3.0]]))
        >>> packed = QuantisedColumns.of(whole, 8)
        >>> packed.numbers.tolist(), packed.rows.tolist()
        ([255, 64, 255], [0, 1, 1])
        """
        columns = sparse.csc_array(matrix)
        columns.sum_duplicates()
        counts = np.diff(columns.indptr)
        peaks = np.zeros(columns.shape[1])
        owners = np.repeat(np.arange(columns.shape[1]), counts)
        np.maximum.at(peaks, owners, np.abs(columns.data))
        scales = peaks / (2 ** (bits - 1) - 1 if signed else 2**bits - 1)
        safe = np.where(scales > 0, scales, 1.0)
        numbers = np.rint(columns.data / safe[owners]).astype(np.int64)
        kept = numbers != 0
        starts = np.concatenate([[0], np.cumsum(kept)])[columns.indptr].astype(np.int64)
        rows = columns.indices[kept].astype(np.int64)
        return cls(columns.shape, bits, signed, starts, rows, numbers[kept], scales)

    def matrix(self) -> Any:
        """The entries as the page reads them, CSC of shape ``shape``."""
        data = self.numbers * np.repeat(self.scales, np.diff(self.starts))
        return sparse.csc_array((data, self.rows, self.starts), shape=self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the page holds: counts, steps between rows, numbers as planes of bytes, scales.

        High and low bytes are kept apart, since high ones repeat and pack well. Numbers with a sign take turns:
        0, -1, 1, -2, 2 are 0, 1, 2, 3, 4.
        """
        steps = np.diff(self.rows, prepend=-1)
        counts = np.diff(self.starts)
        first = self.starts[:-1][counts > 0]
        steps[first] = self.rows[first] + 1  # from before the first row
        coded = np.where(self.numbers < 0, -2 * self.numbers - 1, 2 * self.numbers) if self.signed else self.numbers
        planes: dict[str, NDArray[Any]] = {"Low": (coded & 255).astype(np.uint8)}
        if self.bits == 16:
            planes["High"] = (coded >> 8).astype(np.uint8)
        counted: dict[str, NDArray[Any]] = {
            "Counts": counts.astype(np.uint32),
            "Steps": chained(steps),
            "Scales": self.scales,
        }
        return counted | planes


def chained(numbers: IntArray) -> NDArray[np.uint8]:
    """Nonnegative numbers as bytes, seven bits in each, the lowest first.

    Examples
    --------
    >>> import numpy as np
    >>> chained(np.array([1, 127, 128, 300])).tolist()
    [1, 127, 128, 1, 172, 2]
    """
    lengths = np.ones(len(numbers), dtype=np.int64)
    rest = numbers >> _LOW_BITS
    while rest.any():
        lengths += rest > 0
        rest = rest >> _LOW_BITS
    ends = np.cumsum(lengths)
    result = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for place in range(int(lengths.max(initial=0))):
        some = lengths > place
        more = lengths[some] > place + 1
        low = (numbers[some] >> (_LOW_BITS * place)) & 127
        result[(ends - lengths)[some] + place] = low + 128 * more
    return result
