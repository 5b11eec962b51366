"""Sequences: npz files, converted TFRecord files, the generated cloth."""

import json
import re
import struct

import numpy as np
import pytest

from reproduction.convert_tfrecords import convert
from reproduction.sequences import Sequence, generate_cloth, read_npz

SQUARE = np.array([[0, 1, 2], [1, 3, 2]], np.int32)


def positions(seed):
    return np.random.default_rng(seed).normal(size=(4, 4, 3)).astype(np.float32)


# ----------------------------------------------------------------------------------------------------- npz files
def test_npz_files_come_back(tmp_path):
    np.savez(tmp_path / "a.npz", pos=positions(0), faces=SQUARE, dt=np.float64(0.5), source="here")
    found = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.positions, positions(0))
    assert (found.dt, found.name, found.source, found.n_frames, found.n_vertices) == (0.5, "a", "here", 4, 4)
    np.savez(tmp_path / "b.npz", pos=positions(0), faces=SQUARE)
    assert read_npz(tmp_path / "b.npz").dt == 1.0


@pytest.mark.parametrize(
    "change", [{"pos": None}, {"pos": positions(0)[:1]}, {"pos": np.full((2, 4, 3), np.nan)}, {"dt": np.array(0.0)}]
)
def test_bad_npz_files_are_errors(tmp_path, change):
    arrays = {"pos": positions(0), "faces": SQUARE} | change
    np.savez(tmp_path / "a.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match="must be"):
        read_npz(tmp_path / "a.npz")


# ------------------------------------------------------------------------------------------ converted TFRecords
def varint(value):
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def field(number, content):
    return varint(8 * number + 2) + varint(len(content)) + content


def record(**arrays):
    """A record with a tf.train.Example; checksums are not read."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, array.tobytes()))))
        for name, array in arrays.items()
    ]
    data = field(1, b"".join(entries))
    return struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)


META = {
    "dt": 0.02,
    "features": {
        "cells": {"type": "static", "shape": [1, -1, 3], "dtype": "int32"},
        "world_pos": {"type": "dynamic", "shape": [4, -1, 3], "dtype": "float32"},
    },
}


@pytest.fixture
def records(tmp_path):
    (tmp_path / "meta.json").write_text(json.dumps(META))
    path = tmp_path / "valid.tfrecord"
    path.write_bytes(b"".join(record(cells=SQUARE[None], world_pos=positions(seed)) for seed in range(3)))
    return path


def test_converted_trajectories_are_sequences(records, tmp_path):
    written = convert(records, tmp_path / "sequences", 2)
    assert [path.name for path in written] == ["valid_0.npz", "valid_1.npz"]
    for seed, path in enumerate(written):
        found = read_npz(path)
        np.testing.assert_array_equal(found.positions, positions(seed))
        np.testing.assert_array_equal(found.faces, SQUARE)
        assert (found.dt, found.source) == (0.02, f"valid.tfrecord, trajectory {seed}")
    assert len(convert(records, tmp_path / "all", 50)) == 3


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda data: data[:-1], "a complete TFRecord file. Got valid.tfrecord, which ends within a record"),
        (lambda data: data[:5], "ends within a record"),
        (lambda data: b"\xff" * 7 + data[7:], "ends within a record"),  # a length of 2**56
        (lambda data: record(cells=SQUARE[None]), "record 0: 'world_pos'"),
        (lambda data: record(cells=SQUARE[None], world_pos=positions(0)[0, 0]), "record 0: cannot reshape"),
        (lambda data: data[:12] + b"\x0d" + data[13:], "a field is not of the type bytes"),
        (lambda data: data[:12] + b"\x0a\xff\x7f" + data[15:], "longer than the message around it"),
    ],
)
def test_broken_trajectories_are_errors(records, tmp_path, edit, reason):
    records.write_bytes(edit(records.read_bytes()))
    with pytest.raises(ValueError, match=re.escape(reason)):
        convert(records, tmp_path / "new", 3)
    assert not [path for path in (tmp_path / "new").iterdir() if path.suffix != ".npz"]


# ---------------------------------------------------------------------------------------------------- the record
def test_velocity_is_the_backward_difference_by_time():
    sequence = Sequence(positions(0), SQUARE, 0.25)
    np.testing.assert_allclose(sequence.velocity(2), 4 * (sequence.positions[2] - sequence.positions[1]))


# ----------------------------------------------------------------------------------------------- generated cloth
@pytest.fixture(scope="module")
def cloth():
    return generate_cloth(1, n_frames=50)


def test_the_cloth_hangs_from_two_corners_and_moves(cloth):
    held = [0, 36]
    np.testing.assert_array_equal(cloth.positions[:, held], np.tile(cloth.positions[0, held], (50, 1, 1)))
    speed = np.linalg.norm(np.stack([cloth.velocity(frame) for frame in range(1, 50)]), axis=2)  # (frames, V)
    assert 0.5 < speed.mean() < 6.0  # a flag in a wind of some metres per second
    assert (speed.max(axis=0) > 0.1).sum() == cloth.n_vertices - 2


def test_the_cloth_keeps_its_size(cloth):
    """A cloth and no rubber: its edges keep their lengths but for a few percent, and it is one sheet."""
    flat = 2.0 / 42, 1.7 / 36, np.hypot(2.0 / 42, 1.7 / 36)
    lengths = cloth.mesh(49).edge_lengths()
    ratio = np.min([np.abs(lengths / rest - 1) for rest in flat], axis=0)
    assert np.quantile(ratio, 0.9) < 0.1
    assert cloth.n_vertices == 43 * 37
    report = cloth.mesh(0).report()
    assert (report.components, report.boundary_loops, report.non_manifold_edges) == (1, 1, 0)
