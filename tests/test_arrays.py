"""Arrays survive a round trip through every format, broken files are named, a failed write leaves no trace."""

import csv
import errno
import os
import re
import resource
import tracemalloc
import zipfile

import numpy as np
import pytest
from scipy import sparse as sp

from manifoldrf._arrays import ARRAY_SUFFIXES, open_rows, read_points, read_values, row_writer
from manifoldrf._files import check_output

RNG = np.random.default_rng(0)
# Every size of number, so that a lost digit shows.
NUMBERS = RNG.normal(size=(11, 3)) * 10.0 ** RNG.integers(-30, 30, size=(11, 3))
SPARSE = sp.random_array((11, 7), density=0.3, rng=np.random.default_rng(1), format="csr")


def write(path, array):
    """Write an array in two blocks."""
    half = len(array) // 2
    with row_writer(path, array.shape[1], array.dtype) as writer:
        writer.append(array[:half])
        writer.append(array[half:])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def text_file(folder, text, name="points.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def stored(folder, suffix, array, *, order="C"):
    """A file as numpy itself writes it."""
    path = folder / f"points{suffix}"
    laid = np.asarray(array, order=order)
    if suffix == ".npy":
        np.save(path, laid)
    elif suffix == ".npz":
        np.savez_compressed(path, any_name=laid)
    else:
        np.savetxt(path, laid, delimiter=",", fmt="%.17g")
    return path


def dense_of(path):
    """What numpy and scipy read from a file."""
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".csv":
        return np.loadtxt(path, delimiter=",", ndmin=2)
    with np.load(path) as found:
        if "rows" in found:
            return found["rows"]
    return sp.load_npz(path).toarray()


# --- reading ---


@pytest.mark.parametrize(("dtype", "order"), [(">f4", "F"), ("<f8", "C"), (">f8", "C"), ("f2", "F"), (">i8", "C")])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_binary_files_are_read_as_numpy_reads_them(tmp_path, suffix, dtype, order):
    array = (10 * RNG.random((11, 3))).astype(dtype)
    path = stored(tmp_path, suffix, array, order=order)
    kept = np.float32 if dtype == ">f4" else np.float64
    whole = read_points(path)
    assert whole.dtype == kept
    np.testing.assert_array_equal(whole, array)
    rows = open_rows(path, "POINTS", 4)
    assert (rows.n_rows, rows.n_columns, rows.dtype) == (11, 3, kept)
    assert all(block.dtype == kept and block.flags.c_contiguous and block.flags.writeable for _, block in rows)
    np.testing.assert_array_equal(np.concatenate([block for _, block in rows]), array)


@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
def test_blocks_are_never_larger_than_asked_and_tell_where_they_start(tmp_path, suffix):
    path = stored(tmp_path, suffix, NUMBERS)
    for chunk in (1, 4, 4, 11, 100):  # a second pass starts anew
        rows = open_rows(path, "POINTS", chunk)
        starts, blocks = zip(*rows, strict=True)
        assert list(starts) == list(range(0, 11, chunk))
        assert max(map(len, blocks)) <= chunk
        np.testing.assert_array_equal(np.concatenate(blocks), NUMBERS)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_blocks_are_read_without_the_array_in_memory(tmp_path, suffix):
    """2.4 MB in blocks of 1.5 kB."""
    path = stored(tmp_path, suffix, np.ones((100_000, 3)))
    tracemalloc.start()
    try:
        assert sum(len(block) for _, block in open_rows(path, "POINTS", 64)) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_the_array_meant_is_found_by_its_name(tmp_path):
    path = tmp_path / "several.npz"
    np.savez(path, vertices=NUMBERS, faces=np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(read_points(path), NUMBERS)


def test_an_archive_of_several_arrays_lists_them(tmp_path):
    path = tmp_path / "several.npz"
    np.savez(path, a=NUMBERS, b=NUMBERS)
    with pytest.raises(ValueError, match=r"'points'.* Got 'a', 'b'"):
        read_points(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    with pytest.raises(ValueError, match=r"Got .* in 'several\.npz'"):
        read_points(path)
    sp.save_npz(path, SPARSE)
    with pytest.raises(ValueError, match=r"one dense array.*'several\.npz'"):
        read_points(path)


TEXTS = [
    "1,2.5\n-3,1e-4\n",
    "x;y\r\n1;2.5\r\n-3;1e-4\r\n",
    "1\t2.5\n-3\t1e-4\n",
    "  1  2.5\n\n -3 1e-4  \n",
    "\ufeffx, y\n1, 2.5 # a note\n# a remark\n   \n-3, 1e-4\n",
    '"first, x","y"\n"1","2.5"\n-3,1e-4\n',
    ",y\n1,2.5\n-3,1e-4",
    "# x y\n1 2.5\n-3 1e-4\n",
]


def test_texts_of_every_style_are_read(tmp_path):
    for text in TEXTS:
        path = text_file(tmp_path, text)
        expected = [[1.0, 2.5], [-3.0, 1e-4]]
        np.testing.assert_array_equal(read_points(path), expected)
        rows = open_rows(path, "POINTS", 1)
        assert (rows.n_rows, rows.n_columns, rows.dtype) == (None, 2, np.float64)
        np.testing.assert_array_equal(np.concatenate([block for _, block in rows]), expected)


def test_nan_and_infinity_pass_in_every_format(tmp_path):
    odd = np.array([[np.nan, np.inf], [-np.inf, 0.0]])
    for suffix in ARRAY_SUFFIXES:
        write(tmp_path / f"odd{suffix}", odd)
        np.testing.assert_array_equal(read_points(tmp_path / f"odd{suffix}"), odd)


NO_TABLES = [
    ("1,2\n3\n", "at row 2"),
    ("x,y,z\n1,2\n", "3 column"),
    ("1,2\n\n3,four\n", "'four' in line 3, column 2"),
    ("1\t2\n3\t\n", "'' in line 2, column 2"),
    ("1,5;2,5\n1,5;2,5\n", "'1,5' in line 1"),
    ("1,1_000\n", "'1_000' in line 1"),
    (b"x,y\n1,\xff2\n", "line 2"),
    ("x,y\n1,2\n".encode("utf-16"), "'points.csv'"),
    ("0,1,2\n0.5,1.5,-2.5\n", "column numbers"),
    ("x,y\n", "at least one line"),
]


def test_texts_that_are_not_tables_of_numbers_are_named(tmp_path):
    for text, words in NO_TABLES:
        with pytest.raises(ValueError, match=f"^`POINTS` must be .*{re.escape(words)}"):
            read_points(text_file(tmp_path, text))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_arrays_of_other_things_and_shapes_are_refused(tmp_path, suffix):
    longdouble, named = np.array([[1.0]], np.longdouble), np.zeros((2, 2), [("x", float)])
    for array in (np.array([[1 + 1j]]), np.array([["a"]]), np.array([[True]]), longdouble, named):
        path = stored(tmp_path, suffix, array)
        for read in (read_points, open_rows):
            with pytest.raises(TypeError, match="`POINTS` must be an array of real numbers"):
                read(path)
    for shape in ((), (3,), (1, 2, 3), (3, 0)):
        with pytest.raises(ValueError, match="`POINTS` must be an array"):
            read_points(stored(tmp_path, suffix, np.zeros(shape)))


@pytest.mark.parametrize("read", [read_points, open_rows])
def test_files_that_are_not_there_are_named(tmp_path, read):
    with pytest.raises(ValueError, match="`POINTS` must be a file ending in"):
        read(tmp_path / "x.txt", "POINTS")
    for suffix in ARRAY_SUFFIXES:
        path = tmp_path / f"x{suffix}"
        with pytest.raises(FileNotFoundError, match=r"`POINTS` must be an existing file. Got "):
            read(path, "POINTS")
        path.touch()
        with pytest.raises(ValueError, match=f"`POINTS` must be a file that is not empty. Got 'x{suffix}'"):
            read(path, "POINTS")
        path.unlink()
        path.mkdir()
        with pytest.raises(IsADirectoryError, match=r"`POINTS` must be a file, not a folder. Got "):
            read(path, "POINTS")


@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
def test_damage_anywhere_gives_an_array_or_one_clear_error(tmp_path, suffix):
    """Every tenth byte set to four other values; in an archive this moves its members out of the file too."""
    path = stored(tmp_path, suffix, NUMBERS)
    data = path.read_bytes()
    refusals = []
    for place in range(0, len(data), 10):
        for byte in (0, 10, 127, 255):
            path.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
            try:
                assert list(open_rows(path))
            except (TypeError, ValueError) as error:
                refusals.append(str(error))
    assert len(refusals) > 10
    assert all(text.startswith("`POINTS` must be ") for text in refusals)


# --- writing ---


@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_blocks_come_back_as_one_array(tmp_path, suffix, dtype):
    array = (100 * RNG.random((11, 3))).astype(dtype)
    path = tmp_path / f"features{suffix}"
    with row_writer(path, 3, dtype) as writer:
        for start, stop in [(0, 4), (4, 4), (4, 5), (5, 11)]:
            writer.append(np.asfortranarray(array[start:stop]))
        assert writer.n_rows == 11
    found = dense_of(path)
    assert suffix == ".csv" or found.dtype == dtype
    np.testing.assert_array_equal(found.astype(dtype), array)
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
def test_sparse_and_dense_blocks_may_be_mixed(tmp_path, suffix, sparse):
    """Sparse blocks are dense in the files that have no sparse form."""
    path = tmp_path / f"features{suffix}"
    with row_writer(path, 7, sparse=sparse) as writer:
        writer.append(SPARSE[:3])
        writer.append(SPARSE[3:5].toarray())
        writer.append(SPARSE[5:5])
        writer.append(sp.csc_matrix(SPARSE[5:]))
    np.testing.assert_array_equal(dense_of(path), SPARSE.toarray())
    assert names(tmp_path) == [path.name]


def test_a_file_without_rows_has_its_columns(tmp_path):
    for name, sparse in (("a.npy", False), ("b.npz", False), ("c.npz", True)):
        with row_writer(tmp_path / name, 5, sparse=sparse):
            pass
        assert dense_of(tmp_path / name).shape == (0, 5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_texts_keep_every_bit_in_the_fewest_digits(tmp_path, dtype):
    array = NUMBERS.astype(dtype)
    array[0, :2] = 0.1, -0.0
    path = tmp_path / "features.csv"
    write(path, array)
    lines = list(csv.reader(path.read_text().splitlines()))
    assert lines[0][:2] == ["0.1", "-0.0"]
    np.testing.assert_array_equal(np.array(lines, dtype), array)
    np.testing.assert_array_equal(read_points(path).astype(dtype), array)


@pytest.mark.parametrize(("suffix", "sparse"), [(".npy", False), (".npz", True), (".csv", False)])
def test_an_interrupt_leaves_nothing_or_the_old_file(tmp_path, suffix, sparse):
    path, error = tmp_path / f"features{suffix}", KeyboardInterrupt

    def interrupted():
        with row_writer(path, 7, sparse=sparse) as writer:
            writer.append(SPARSE)
            assert len(names(tmp_path)) > path.exists()  # the work goes on beside the target
            raise error

    with pytest.raises(error):
        interrupted()
    assert names(tmp_path) == []
    path.write_text("the old file")
    with pytest.raises(error):
        interrupted()
    assert names(tmp_path) == [path.name]
    assert path.read_text() == "the old file"


def large_write(folder, suffix, *, sparse):
    """Write 240 kB, as random numbers, which do not pack well."""
    with row_writer(folder / f"features{suffix}", 30, sparse=sparse) as writer:
        for _ in range(10):
            writer.append(RNG.random((100, 30)))


@pytest.mark.parametrize("suffix", ARRAY_SUFFIXES)
def test_a_file_larger_than_allowed_leaves_nothing(tmp_path, suffix):
    """A failure of the system that needs no rights: the largest size of a file is 64 kB meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            large_write(tmp_path, suffix, sparse=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_writers_refuse_what_they_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match=r"must be a file ending in .* Got 'a\.txt'"):
        write(tmp_path / "a.txt", NUMBERS)
    with pytest.raises(TypeError, match="`dtype` must be"):
        write(tmp_path / "a.npy", NUMBERS * 1j)
    for block, dtype in ((NUMBERS, np.int64), (np.zeros((2, 4)), float), (sp.csr_array((2, 4)), float)):
        with (
            pytest.raises((TypeError, ValueError), match="`block` must be"),
            row_writer(tmp_path / "a.npy", 3, dtype) as writer,
        ):
            writer.append(block)
    assert names(tmp_path) == []


# --- values ---


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_values_are_unknown_where_they_are_nan(tmp_path, suffix):
    column = np.array([1.0, np.nan, 3.0])
    for array in (column, np.stack([column, 2 * column], axis=1), column.astype(np.float32)):
        names, values = read_values(stored(tmp_path, suffix, array), 3)
        assert names == []
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, array.reshape(3, -1))


@pytest.mark.parametrize(
    "text", [",a,b\n3,1,2\n0,3,4\n", "vertex,a,b\n3,1,2\n0,3,4\n", "3 1 2\n0 3 4\n", "3.0;1;2\n1;nan;nan\n0;3;4"]
)
def test_values_of_a_text_go_to_the_vertices_it_names(tmp_path, text):
    names, values = read_values(text_file(tmp_path, text), 4)
    assert names == (["a", "b"] if "a" in text.splitlines()[0].replace("nan", "") else [])
    nan = [np.nan, np.nan]
    np.testing.assert_array_equal(values, [[3, 4], nan, nan, [1, 2]])


def test_flags_of_filled_values_are_no_values(tmp_path):
    names, values = read_values(text_file(tmp_path, "vertex,known,heat\n1,0,5\n0,1,4\n"), 2)
    assert names == ["heat"]
    assert values.tolist() == [[4.0], [5.0]]


BAD_VALUES = [
    *((f"0,2\n{word},1\n", f"Got {word} in") for word in ("4", "-1", "1.5", "nan")),
    ("v,x\n2,1\n\n2,1\n", "each once"),
    ("v,x\n", "at least one line"),
    ("0,one\n1,2\n", "'one' in line 1, column 2"),
]


def test_values_are_checked(tmp_path):
    for text, words in BAD_VALUES:
        with pytest.raises(ValueError, match=f"`VALUES` must be .*{words}"):
            read_values(text_file(tmp_path, text), 4)
    for shape in ((3,), (4, 1, 1)):
        with pytest.raises(ValueError, match="`VALUES` must be an array"):
            read_values(stored(tmp_path, ".npy", np.zeros(shape)), 4)


# --- paths of outputs ---


def test_names_in_capitals_and_links_get_the_whole_file(tmp_path):
    (tmp_path / "blob").write_bytes(b"old")
    (tmp_path / "link.npz").symlink_to(tmp_path / "blob")
    for path in (tmp_path / "new.NPZ", tmp_path / "link.npz"):
        with row_writer(path, 3) as writer:
            writer.append(NUMBERS[:2, :3])
    assert names(tmp_path) == ["blob", "link.npz", "new.NPZ"]
    for name in ("blob", "new.NPZ"):
        with np.load(tmp_path / name) as found:
            np.testing.assert_array_equal(found["rows"], NUMBERS[:2, :3])


def test_an_output_is_checked_before_any_work(tmp_path):
    source = stored(tmp_path, ".npy", NUMBERS)
    assert check_output(tmp_path / "new.NPZ", "output", ARRAY_SUFFIXES, [source]) == tmp_path / "new.NPZ"
    with pytest.raises(ValueError, match=r"`OUT` must be a file ending in \.ply\. Got 'new\.npy'"):
        check_output(tmp_path / "new.npy", "OUT", [".ply"])
    with pytest.raises(FileNotFoundError, match=r"`output` must be in a folder that exists. Got "):
        check_output(tmp_path / "none" / "new.npy", "output", ARRAY_SUFFIXES)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError, match=r"`output` must be a file, not a folder. Got "):
        check_output(tmp_path / "folder.npy", "output", ARRAY_SUFFIXES)
    (tmp_path / "link.npy").symlink_to(source)
    for same in (source, tmp_path / "link.npy", tmp_path / "folder.npy" / ".." / source.name):
        with pytest.raises(ValueError, match="`output` must be another file"):
            check_output(same, "output", ARRAY_SUFFIXES, [tmp_path / "missing.npy", source])
    assert names(tmp_path) == ["folder.npy", "link.npy", "points.npy"]
