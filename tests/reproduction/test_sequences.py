"""Sequences: TFRecord files that the tests write themselves, byte by byte; npz files; the generated cloth."""

import contextlib
import json
import re
import struct
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf.geometry.builders import knn_graph
from reproduction._tfrecords import crc32c, mask, parse_example, read_records
from reproduction.sequences import Sequence, find_sequences, generate_cloth, read_flag_simple, read_npz

SQUARE = np.array([[0, 1, 2], [1, 3, 2]], np.int32)


# --------------------------------------------------------------- a writer of its own: bit by bit, field by field
def checksum(data):
    """CRC-32C as a textbook has it: one bit at a time."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def masked(data):
    crc = checksum(data)
    return struct.pack("<I", ((crc >> 15) + (crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32)


def framed(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value):
    value %= 2**64
    out = b""
    while value > 127:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def field(number, content):
    return varint(8 * number + 2) + varint(len(content)) + content


def raw(array):
    return field(1, field(1, np.ascontiguousarray(array).tobytes()))


def packed_floats(values):
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def loose_floats(values):
    return field(2, b"".join(b"\x0d" + struct.pack("<f", value) for value in values))


def packed_integers(values):
    return field(3, field(1, b"".join(varint(value) for value in values)))


def loose_integers(values):
    return field(3, b"".join(b"\x08" + varint(value) for value in values))


def example(**features):
    entries = [field(1, field(1, name.encode()) + field(2, content)) for name, content in features.items()]
    return field(1, b"".join(entries))


META = {
    "dt": 0.02,
    "trajectory_length": 4,
    "field_names": ["cells", "node_type", "mesh_pos", "world_pos"],
    "features": {
        "cells": {"type": "static", "shape": [1, -1, 3], "dtype": "int32"},
        "node_type": {"type": "static", "shape": [1, -1, 1], "dtype": "int32"},
        "mesh_pos": {"type": "static", "shape": [1, -1, 2], "dtype": "float32"},
        "world_pos": {"type": "dynamic", "shape": [4, -1, 3], "dtype": "float32"},
    },
}


def positions(seed):
    return np.random.default_rng(seed).normal(size=(4, 4, 3)).astype(np.float32)


def trajectory(seed):
    return example(
        cells=raw(SQUARE[None]),
        node_type=raw(np.zeros((1, 4, 1), np.int32)),
        mesh_pos=raw(np.zeros((1, 4, 2), np.float32)),
        world_pos=raw(positions(seed)),
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "meta.json").write_text(json.dumps(META))
    (tmp_path / "valid.tfrecord").write_bytes(b"".join(framed(trajectory(seed)) for seed in range(3)))
    return tmp_path


def spoil(folder, edit):
    path = folder / "valid.tfrecord"
    path.write_bytes(edit(path.read_bytes()))
    return path


# ----------------------------------------------------------------------------------------------------- checksums
@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0),
        (b"a", 0xC1D04330),
        (b"123456789", 0xE3069283),  # the check value of the CRC catalogues
        (bytes(32), 0x8A9136AA),  # these four from RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_have_their_published_values(data, wanted):
    assert crc32c(data) == wanted
    assert checksum(data) == wanted


@pytest.mark.parametrize("length", [1, 3, 4, 5, 1023, 1024, 1025, 4097, 30_011])
def test_lanes_give_the_checksum_of_one_bit_at_a_time(length):
    data = np.random.default_rng(length).integers(0, 256, length, dtype=np.uint8).tobytes()
    assert crc32c(data) == checksum(data)


def test_checksums_are_kept_masked():
    assert struct.pack("<I", mask(crc32c(b"some bytes"))) == masked(b"some bytes")


# ------------------------------------------------------------------------------------------------ TFRecord files
def test_trajectories_come_back_as_they_were_written(folder):
    for index in range(3):
        found = read_flag_simple(folder / "valid.tfrecord", index)
        np.testing.assert_array_equal(found.positions, positions(index).astype(np.float64))
        np.testing.assert_array_equal(found.faces, SQUARE)
        assert (found.dt, found.name) == (0.02, f"valid_{index}")
    assert list(read_records(folder / "valid.tfrecord")) == [trajectory(seed) for seed in range(3)]


def test_a_folder_is_read_at_its_test_file_first(folder):
    assert read_flag_simple(folder, 1).name == "valid_1"
    (folder / "test.tfrecord").write_bytes(framed(trajectory(9)))
    (folder / "a.tfrecord").write_bytes(b"")
    np.testing.assert_array_equal(read_flag_simple(folder).positions, positions(9))


def test_earlier_trajectories_are_passed_over_unread(folder):
    """A bad byte in the data of the first does not matter to the second; in its length it does."""
    path = spoil(folder, lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:])
    np.testing.assert_array_equal(read_flag_simple(path, 1).positions, positions(1))
    with pytest.raises(ValueError, match="record 0: its bytes do not have the checksum"):
        read_flag_simple(path, 0)


@pytest.mark.parametrize("packing", [packed_integers, loose_integers])
def test_lists_of_integers_are_read_packed_and_loose(packing):
    values = [0, 1, 127, 128, 300, -1, 2**31 - 1, -(2**63), 2**63 - 1]
    assert parse_example(example(x=packing(values)))["x"].tolist() == values
    assert parse_example(example(x=packing([])))["x"].tolist() == []


@pytest.mark.parametrize("packing", [packed_floats, loose_floats])
def test_lists_of_floats_are_read_packed_and_loose(packing):
    values = [0.0, -1.5, 3.25e30, float("inf")]
    assert parse_example(example(x=packing(values)))["x"].tolist() == pytest.approx(values, rel=1e-7)


def test_fields_may_be_lists_of_numbers(folder):
    """The same trajectory with floats and integers in the place of bytes, and parts that no reader asks for."""
    message = example(
        extra=packed_floats([1.0]),
        cells=loose_integers(SQUARE.ravel().tolist()),
        node_type=packed_integers([0, 0, 0, 0]),
        mesh_pos=loose_floats([0.0] * 8),
        world_pos=packed_floats(positions(0).ravel().tolist()),
    )
    unknown = (
        b"\x10\x05" + b"\x19" + bytes(8) + b"\x25" + bytes(4)
    )  # a number, a double and a float of other fields
    path = spoil(folder, lambda _: framed(unknown + message))
    found = read_flag_simple(path)
    np.testing.assert_array_equal(found.positions, positions(0))
    np.testing.assert_array_equal(found.faces, SQUARE)


def test_every_cut_is_an_error(folder):
    """A file that ends anywhere within its second record."""
    whole = (folder / "valid.tfrecord").read_bytes()
    one = len(framed(trajectory(0)))
    for length in (one + 1, one + 11, one + 12, one + 13, 2 * one - 5, 2 * one - 4, 2 * one - 1):
        (folder / "valid.tfrecord").write_bytes(whole[:length])
        read_flag_simple(folder, 0)
        with pytest.raises(ValueError, match=r"`path` must be a whole TFRecord file. Got valid.tfrecord, record 1"):
            read_flag_simple(folder, 1)


def test_every_single_bad_byte_is_an_error(folder):
    """Whatever byte of a record is changed, one of the two checksums tells."""
    one = framed(trajectory(0))
    for place in range(0, len(one), 7):
        spoil(folder, lambda _, place=place: one[:place] + bytes([one[place] ^ 0x10]) + one[place + 1 :])
        with pytest.raises(ValueError, match="whole TFRecord file"):
            read_flag_simple(folder)


@pytest.mark.parametrize("length", [10**6, 2**40, 2**64 - 1])
def test_an_absurd_length_is_refused_before_memory_is_taken(folder, length):
    head = struct.pack("<Q", length)
    path = spoil(folder, lambda data: head + masked(head) + data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"it declares {length} bytes"):
        read_flag_simple(path)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


BROKEN_MESSAGES = {
    "longer than the message": varint(10) + varint(50) + b"abc",
    "a number is cut off": b"\x0a\x80",
    "more than ten bytes": b"\xff" * 12,
    "wire type 3": b"\x0b",
    "wire type 0, not 2": b"\x08\x01",
    "no field 'cells'": example(world_pos=raw(positions(0))),
    "no whole number": example(cells=field(1, field(1, b"12345"))),
    "has 7 values, not the shape": example(cells=raw(np.zeros(7, np.int32))),
    "not of kind int32": example(cells=packed_integers([2**40, 0, 0])),
    "integers is cut off": example(cells=field(3, field(1, b"\x80"))),
    "codec can't decode": field(1, field(1, field(1, b"\xff\xfe") + field(2, raw(SQUARE)))),
}


@pytest.mark.parametrize("reason", BROKEN_MESSAGES)
def test_messages_with_good_checksums_and_bad_contents_are_errors(folder, reason):
    path = spoil(folder, lambda _: framed(BROKEN_MESSAGES[reason]))
    with pytest.raises(ValueError, match=re.escape("valid.tfrecord, record 0: ") + f".*{re.escape(reason)}"):
        read_flag_simple(path)


def test_random_bytes_with_good_checksums_never_do_worse_than_an_error(folder):
    rng = np.random.default_rng(0)
    for _ in range(100):
        message = bytearray(trajectory(0))
        for place in rng.integers(0, 90, 3):  # where the structure is
            message[place] = rng.integers(0, 256)
        path = spoil(folder, lambda _, message=bytes(message): framed(message))
        with contextlib.suppress(ValueError):  # some changes do no harm; warnings are errors here
            read_flag_simple(path)


@pytest.mark.parametrize("index", [3, 10**6])
def test_an_index_beyond_the_file_is_an_error(folder, index):
    with pytest.raises(ValueError, match=f"below the number of trajectories in valid.tfrecord, 3. Got {index}"):
        read_flag_simple(folder, index)


def test_bad_indices_are_errors(folder):
    with pytest.raises(ValueError, match="`index` must be an integer in"):
        read_flag_simple(folder, -1)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"features": {"cells": 3}}',
        '{"features": {"cells": {"shape": [1, -1, 3], "dtype": "complex64"}}}',
        '{"features": {"cells": {"shape": "all", "dtype": "int32"}}}',
        '{"features": {"cells": {"shape": [-2], "dtype": "int32"}}}',
        '{"features": {"cells": {"shape": [true, -1, 3], "dtype": "int32"}}}',
        '{"features": {"cells": {"shape": [1, -1, 3], "dtype": ["int32"]}}}',
        "[" * 100_000,
    ],
)
def test_a_bad_meta_file_is_an_error(folder, text):
    (folder / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=r"`path` must be beside a.*meta.json"):
        read_flag_simple(folder)


@pytest.mark.parametrize(
    ("dt", "reason"),
    [
        (10**400, "int too large to convert to float"),
        (True, "the dt of meta.json is not a number"),
        ("0.02", "the dt of meta.json is not a number"),
        (float("inf"), "`dt` must be a number in"),
    ],
)
def test_a_bad_time_step_is_an_error(folder, dt, reason):
    (folder / "meta.json").write_text(json.dumps(META | {"dt": dt}))
    with pytest.raises(ValueError, match=f"`path` must be a readable sequence. Got valid.tfrecord: {reason}"):
        read_flag_simple(folder)


@pytest.mark.parametrize("dt", [None, 0, -0.5])
def test_without_a_positive_time_step_velocities_are_per_frame(folder, dt):
    (folder / "meta.json").write_text(json.dumps(META | {"dt": dt}))
    assert read_flag_simple(folder).dt == 1.0


def test_an_axis_beyond_all_integers_is_an_error(folder):
    cells = META["features"]["cells"] | {"shape": [10**30, -1, 3]}
    (folder / "meta.json").write_text(json.dumps({"features": {"cells": cells}}))
    with pytest.raises(ValueError, match="record 0: field 'cells' has 6 values, not the shape"):
        read_flag_simple(folder)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "meta.json").unlink()
    with pytest.raises(ValueError, match=r"beside a file meta.json"):
        read_flag_simple(folder)
    (folder / "valid.tfrecord").unlink()
    with pytest.raises(ValueError, match=r"a folder with a .tfrecord file"):
        read_flag_simple(folder)
    with pytest.raises(FileNotFoundError, match="an existing file or folder"):
        read_flag_simple(tmp_path / "none.tfrecord")


def test_other_data_sets_are_refused(folder):
    meta = {"features": {"velocity": META["features"]["world_pos"]}}
    (folder / "meta.json").write_text(json.dumps(meta))
    spoil(folder, lambda _: framed(example(velocity=raw(positions(0)))))
    with pytest.raises(ValueError, match="a data set with a field 'world_pos'"):
        read_flag_simple(folder)


def test_faces_that_name_no_vertex_are_an_error(folder):
    parts = {"node_type": raw(np.zeros((1, 4, 1), np.int32)), "mesh_pos": raw(np.zeros((1, 4, 2), np.float32))}
    spoil(folder, lambda _: framed(example(cells=raw(SQUARE + 1), world_pos=raw(positions(0)), **parts)))
    with pytest.raises(ValueError, match=r"valid.tfrecord: `faces` must be integers in \[0, 3\]"):
        read_flag_simple(folder)


# ----------------------------------------------------------------------------------------------------- npz files
def test_npz_files_come_back(tmp_path):
    np.savez(tmp_path / "a.npz", pos=positions(0), faces=SQUARE, dt=np.float64(0.5), source="here")
    found = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.positions, positions(0))
    assert (found.dt, found.name, found.source, found.n_frames, found.n_vertices) == (0.5, "a", "here", 4, 4)
    np.savez(tmp_path / "b.npz", pos=positions(0), faces=SQUARE)
    assert read_npz(tmp_path / "b.npz").dt == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pos": None}, "it has no pos"),
        ({"faces": SQUARE + 9}, "`faces` must be integers"),
        ({"pos": positions(0)[0]}, "`positions` must be an array of shape"),
        ({"pos": positions(0)[:1]}, "T >= 2"),
        ({"pos": np.full((2, 4, 3), np.nan)}, "`positions` must be finite"),
        ({"dt": np.array([1.0, 2.0])}, "its dt is not one number"),
        ({"dt": np.array("soon")}, "its dt is not one number"),
        ({"dt": np.array(0.0)}, "`dt` must be a number in"),
        ({"faces": np.array([{}, {}], dtype=object)}, "Object arrays cannot be loaded"),
    ],
)
def test_bad_npz_files_are_errors(tmp_path, change, reason):
    arrays = {"pos": positions(0), "faces": SQUARE} | change
    np.savez(tmp_path / "a.npz", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=f"`path` must be a readable sequence. Got a.npz: .*{reason}"):
        read_npz(tmp_path / "a.npz")


def test_files_that_are_no_npz_are_errors(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, pos=positions(0), faces=SQUARE)
    whole = path.read_bytes()
    np.save(tmp_path / "b.npy", positions(0))
    np.savez_compressed(path, pos=positions(0), faces=SQUARE)
    packed = bytearray(path.read_bytes())
    packed[100:140] = bytes(40)  # within the stream of the first array
    for data in (b"", b"no zip", whole[:200], whole[:-30], bytes(packed), (tmp_path / "b.npy").read_bytes()):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="a readable sequence"):
            read_npz(path)
    with pytest.raises(FileNotFoundError, match="existing"):
        read_npz(tmp_path / "c.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_files_with_a_flipped_bit_are_read_or_are_errors(tmp_path, save):
    """Some flips name a place before the file (OSError), some say that it is encrypted (RuntimeError)."""
    path = tmp_path / "a.npz"
    save(path, pos=positions(0), faces=SQUARE, dt=0.5)
    whole = path.read_bytes()
    reasons = []
    for place in range(len(whole)):
        for bit in (0x01, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                read_npz(path)
            except ValueError as error:
                reasons.append(str(error))
    assert all(reason.startswith("`path` must be a readable sequence. Got a.npz: ") for reason in reasons)
    assert len(reasons) > len(whole)  # more than half of all flips; the rest are dates and flags that nobody reads


# ------------------------------------------------------------------------------------------------------- finding
def test_sequences_are_found_by_name_in_either_folder(folder):
    inner = folder / "sequences"
    for place in (folder, inner):
        place.mkdir(exist_ok=True)
        for name in ("a", "b", "c"):
            np.savez(place / f"{name}.npz", pos=positions(0), faces=SQUARE)
        names = [found.name for found in find_sequences(folder, ("c", "missing", "a"), n_trajectories=2)]
        assert names == (["c", "a", "valid_0", "valid_1"] if place == folder else ["c", "a"])
    assert [found.name for found in find_sequences(inner, ("missing",))] == ["a", "b", "c"]
    assert find_sequences(None, ("a",)) == []


def test_no_more_trajectories_are_taken_than_there_are(folder):
    for most, wanted in ((1, 1), (3, 3), (50, 3)):
        assert len(find_sequences(folder, n_trajectories=most)) == wanted


def test_folders_without_sequences_are_errors(tmp_path):
    with pytest.raises(ValueError, match=r"`folder` must be one with .npz sequences"):
        find_sequences(tmp_path)
    with pytest.raises(NotADirectoryError, match="an existing folder"):
        find_sequences(tmp_path / "none")


# ---------------------------------------------------------------------------------------------------- the record
def test_velocity_is_the_backward_difference_by_time():
    sequence = Sequence(positions(0), SQUARE, 0.25)
    np.testing.assert_allclose(sequence.velocity(2), 4 * (sequence.positions[2] - sequence.positions[1]))
    for frame in (0, 4):
        with pytest.raises(ValueError, match=r"`frame` must be an integer in \[1, 3\]"):
            sequence.velocity(frame)


def test_sequences_cannot_be_changed():
    given = positions(0).astype(np.float64)
    sequence = Sequence(given, SQUARE)
    given[:] = 0
    assert sequence.positions.any()
    with pytest.raises(ValueError, match="read-only"):
        sequence.positions[0] = 0


# ----------------------------------------------------------------------------------------------- generated cloth
@pytest.fixture(scope="module")
def cloth():
    return generate_cloth(1, n_frames=50)


def test_the_cloth_is_the_same_for_the_same_seed():
    one, again, other = (generate_cloth(seed, n_frames=3, shape=(8, 7)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.positions, again.positions)
    assert np.abs(one.positions - other.positions).max() > 0.01


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


def test_the_cloth_folds(cloth):
    """Some near neighbours in space are far apart along the cloth, as on a flat sheet none are."""
    mesh = cloth.mesh(49)
    pairs = sparse.triu(knn_graph(mesh.vertices, n_neighbors=16).affinity).tocoo()
    straight = np.linalg.norm(mesh.vertices[pairs.row] - mesh.vertices[pairs.col], axis=1)
    edges = sparse.coo_array((mesh.edge_lengths(), mesh.edges.T), shape=(1591, 1591)).tocsr()
    paths = csgraph.dijkstra(edges, directed=False)
    assert (paths[pairs.row, pairs.col] > 4 * straight).mean() > 0.005


@pytest.mark.parametrize(("options", "name"), [({"n_frames": 1}, "n_frames"), ({"shape": (3, 9)}, "shape")])
def test_bad_cloths_are_errors(options, name):
    with pytest.raises(ValueError, match=f"`{name}` must be an integer in"):
        generate_cloth(0, **options)
