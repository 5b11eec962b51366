"""What the compiled loops refuse before they read any memory, and how results come back."""

import numpy as np
import pytest

from manifoldrf._native import loops
from manifoldrf.geometry.csr import arrays

ENDS, COLUMNS, VALUES = np.array([0, 1, 2]), np.array([0, 1]), np.ones(2)
TABLE, OUT = np.ones((2, 3)), np.zeros((2, 3))


def product(ends=ENDS, columns=COLUMNS, values=VALUES, table=TABLE, out=OUT, span=(0, 2)):
    loops.times_columns(ends, columns, values, table, out, *span)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"values": VALUES.astype(np.float32)}, TypeError),
        ({"table": TABLE.astype(int)}, TypeError),
        ({"columns": COLUMNS.astype(np.uint64)}, TypeError),
        ({"columns": COLUMNS.astype(np.int16)}, TypeError),
        ({"ends": ENDS.astype(">i8")}, TypeError),
        ({"table": TABLE.tolist()}, TypeError),
        ({"table": np.asfortranarray(TABLE)}, (ValueError, BufferError)),
        ({"out": np.broadcast_to(0.0, (2, 3))}, (ValueError, BufferError)),
        ({"out": np.zeros((2, 2))}, ValueError),
        ({"values": np.ones(1)}, ValueError),
        ({"ends": np.array([0, 2, 1])}, ValueError),
        ({"ends": np.array([-1, 1, 2])}, ValueError),
        ({"ends": np.zeros(0, int)}, ValueError),
        ({"span": (0, 3)}, ValueError),
        ({"span": (-1, 1)}, ValueError),
        ({"span": (0,)}, TypeError),
        ({"span": (0, "1")}, TypeError),
    ],
)
def test_what_does_not_fit_is_refused(change, kind):
    with pytest.raises(kind):
        product(**change)


LONG = [0, 5_000_000, 2]  # the end of the first row lies beyond all entries


@pytest.mark.parametrize(
    "call",
    [
        lambda: loops.sum_along_rows(np.array(LONG), COLUMNS, VALUES, np.zeros(2)),
        lambda: loops.heat_steps(np.array(LONG), COLUMNS, VALUES, VALUES, 1.0, np.zeros(2)),
        lambda: loops.heat_steps(ENDS, COLUMNS + 2**40, VALUES, VALUES, 1.0, np.zeros(2)),
        lambda: loops.balls_along_edges(np.array(LONG), COLUMNS, VALUES, np.array([0]), 1.0),
        lambda: loops.balls_along_edges(ENDS, COLUMNS, VALUES, np.array([2]), 1.0),
    ],
    ids=["sums", "steps", "columns", "balls", "sources"],
)
def test_rows_beyond_all_entries_are_refused_before_they_are_read(call):
    with pytest.raises(ValueError, match="do not fit together"):
        call()


def test_infinite_distances_end_the_search_for_far_points():
    points = np.array([[1e200, 0.0], [-1e200, 0.0], [0.0, 1e200], [0.0, -1e200]])
    order = np.arange(4)
    with pytest.raises(ValueError, match="count > before"):
        loops.farthest_points(points, order, 1, 0, 1, order, 0.5, np.zeros(4, int), np.zeros(1))


def test_a_read_only_result_is_refused():
    fixed = np.zeros((2, 3))
    fixed.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        product(out=fixed)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_indices_of_both_widths_are_read(index):
    out = np.zeros((2, 3))
    product(ENDS.astype(index), COLUMNS.astype(index), out=out)
    np.testing.assert_array_equal(out, TABLE)


def test_results_of_unknown_size_may_be_empty():
    found = loops.balls_along_edges(ENDS, COLUMNS, VALUES, np.zeros(0, int), 1.0)
    assert [len(part) for part in arrays(found[1:], "lld")] == [0, 0, 0]
