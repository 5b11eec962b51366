"""The container: the same bits come back, any altered byte is noticed, sizes are checked before memory is taken."""

import errno
import itertools
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from manifoldrf import _codec as _container
from manifoldrf._codec import ModelFileError, read_container, write_container

DTYPES = ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]
META = {"kind": "example", "values": [1, 2.5, None, True, {"text": 'a "quoted" \\ \u00e9\u4e2d\U0001f600 \ud800'}]}


def example():
    rng = np.random.default_rng(0)
    arrays = {f"a{k}": rng.integers(0, 2, (3, k)).astype(dtype) for k, dtype in enumerate(DTYPES)}
    special = np.array([np.nan, -0.0, np.inf, -np.inf, 5e-324, 1 / 3])
    return arrays | {"zero": np.array(1 / 3), "special": special, "none": np.zeros((0, 4, 0)), "x.y_Z": np.ones(1)}


@pytest.fixture
def path(tmp_path):
    return write_container(tmp_path / "model.safetensors", example(), META)


def identical(first, second):
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def split(content):
    """(header as a dict, body) of the bytes of a file."""
    body = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:body]), content[body:]


def join(header, body):
    """Bytes of a file with this header and body, with the right checksum where there is a place for it."""
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + body
    found = _container._DIGEST.search(content)
    if found is None:
        return content
    blank = content[: found.start(1)] + b"0" * 64 + content[found.end(1) :]
    digest = _container.hashlib.blake2b(blank, digest_size=32).hexdigest().encode()
    return blank[: found.start(1)] + digest + blank[found.end(1) :]


def test_arrays_and_meta_come_back_with_the_same_bits(path):
    arrays, meta = read_container(path)
    assert meta == META
    assert set(arrays) == set(example())
    for name, array in example().items():
        assert identical(arrays[name], array), name
        assert arrays[name].flags.c_contiguous
        assert arrays[name].flags.writeable
    assert not any(np.shares_memory(*pair) for pair in itertools.combinations(arrays.values(), 2))


def test_no_arrays_at_all_come_back(tmp_path):
    assert read_container(write_container(tmp_path / "m", {}, {})) == ({}, {})


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0)[::-3],
        np.arange(6, dtype=">f8"),
        np.broadcast_to(2.0, (2, 3)),
    ],
    ids=["fortran", "strided", "big-endian", "broadcast"],
)
def test_arrays_of_any_memory_order_keep_their_values(tmp_path, array):
    loaded = read_container(write_container(tmp_path / "m", {"a": array}, {}))[0]["a"]
    assert loaded.dtype == np.float64
    assert (loaded == array).all()
    assert loaded.flags.c_contiguous


def test_the_file_is_a_safetensors_file_for_others_too(path):
    loaded = safetensors.numpy.load_file(path)
    assert all(identical(loaded[name], array) for name, array in example().items())
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata()["format"] == "manifoldrf"
        assert json.loads(file.metadata()["model"]) == META


def test_every_flipped_byte_of_the_header_is_noticed(tmp_path):
    path = write_container(tmp_path / "m", {"a": np.arange(3.0), "b": np.array([True])}, {"kind": "k", "n": [1, 2]})
    content = path.read_bytes()
    body = 8 + int.from_bytes(content[:8], "little")
    for place in range(body):
        for bit in (1 << place % 8, 0x20):  # the second turns letters into capitals
            altered = bytearray(content)
            altered[place] ^= bit
            path.write_bytes(altered)
            with pytest.raises(ModelFileError, match="cannot be loaded: "):
                read_container(path)


def test_flipped_bytes_of_the_body_are_noticed(path):
    content = path.read_bytes()
    body = 8 + int.from_bytes(content[:8], "little")
    rng = np.random.default_rng(0)
    for place in rng.integers(body, len(content), 300):
        altered = bytearray(content)
        altered[place] ^= 1 << rng.integers(8)
        path.write_bytes(altered)
        with pytest.raises(ModelFileError, match="its checksum differs; it was altered after it was written"):
            read_container(path)


def test_every_shorter_and_every_longer_file_is_noticed(tmp_path):
    path = write_container(tmp_path / "m", {"a": np.arange(3.0)}, {})
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        expected = "is empty" if size == 0 else "is not a safetensors file" if size <= 8 else "is cut off"
        with pytest.raises(ModelFileError, match=expected):
            read_container(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="it is cut off, altered or too long"):
        read_container(path)


@pytest.mark.parametrize(
    "content",
    [b"These are my notes, not a model.", b"\x80\x04\x95pickle" * 9, bytes(100), b"PK\x03\x04" * 20],
    ids=["text", "pickle", "zeros", "zip"],
)
def test_foreign_files_are_refused(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"m cannot be loaded: it is not a safetensors file\."):
        read_container(tmp_path / "m")


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_safetensors_files_of_others_are_refused(tmp_path, metadata):
    safetensors.numpy.save_file({"weight": np.ones(3)}, tmp_path / "m", metadata)
    with pytest.raises(ModelFileError, match="it is a safetensors file, but not one of manifoldrf"):
        read_container(tmp_path / "m")


def test_a_newer_format_is_named_even_where_its_metadata_differ(path):
    header, body = split(path.read_bytes())
    header["__metadata__"] = {"format": "manifoldrf", "format_version": "12", "hash": "?"}
    path.write_bytes(join(header, body))
    with pytest.raises(ModelFileError, match="it has format 12, and this version of manifoldrf reads up to 1"):
        read_container(path)


def entry(dtype="F64", shape=(3,), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# safetensors gives the reason for all but the last two.
BAD_ARRAYS = {
    "larger than the file": ({"a": entry(shape=(2**40,), offsets=(0, 2**43))}, "file not fully covered"),
    "size unlike shape": ({"a": entry(shape=(2**40,))}, "invalid shape, data type, or offset"),
    "overflow": ({"a": entry(shape=(2**32, 2**32, 3))}, "overflow computing buffer size"),
    "empty but huge": ({"a": entry(shape=(0, 2**62), offsets=(0, 0)), "b": entry()}, "array is too big"),
    "negative": ({"a": entry(shape=(-1, -3))}, "integer `-1`"),
    "boolean": ({"a": entry(shape=(3, True))}, "boolean `true`"),
    "too many axes": ({"a": entry(shape=(3,) + 70 * (1,))}, "maximum supported dimension"),
    "float size": ({"a": entry(shape=(3.0,))}, "floating point `3.0`"),
    "backwards": ({"a": entry(offsets=(24, 0))}, "invalid offset for tensor `a`"),
    "one offset": ({"a": entry(offsets=(24,))}, "invalid length 1"),
    "hole": ({"a": entry(shape=(2,), offsets=(8, 24))}, "invalid offset for tensor `a`"),
    "overlap": ({"a": entry(), "b": entry()}, "invalid offset for tensor"),
    "rest": ({"a": entry(shape=(2,), offsets=(0, 16))}, "file not fully covered"),
    "unknown dtype": ({"a": entry(dtype="F8_E4M3", shape=(24,))}, "'F8_E4M3'"),
    "list dtype": ({"a": entry(dtype=["F64"])}, "expected string or map"),
    "no entry": ({"a": 3}, "integer `3`"),
    "dtype": ({"a": entry(dtype="F16", shape=(12,))}, "has dtype float16, which models do not have"),
    "neither true nor false": ({"a": entry(dtype="BOOL", shape=(24,))}, "neither true nor false"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_headers_that_lie_are_refused_even_with_the_right_checksum(tmp_path, case):
    arrays, expected = BAD_ARRAYS[case]
    path = write_container(tmp_path / "m", {"a": np.arange(3.0)}, {})
    header, body = split(path.read_bytes())
    path.write_bytes(join({"__metadata__": header["__metadata__"]} | arrays, body))
    with pytest.raises(ModelFileError, match=expected):
        read_container(path)


BAD_TEXTS = {
    "deep": (b'{"a":' + b"[" * 100_000, "not valid JSON .*recursion"),
    "deep behind an open string": (b'{"a":"\\"\\"\\"' + b'\\"' * 100_000, "not valid JSON"),
    "twice": (b'{"a":1,"a":1}', "occurs twice"),
    "nan": (b'{"a":NaN}', "not valid JSON .*NaN"),
    "long number": (b'{"a":' + b"9" * 10_000 + b"}", "not valid JSON"),
    "not utf-8": (b'{"a":"\xff"}', "not valid JSON"),
    "no metadata": (b"{}", "not one of manifoldrf"),
    "list as metadata": (b'{"__metadata__":[]}', "not one of manifoldrf"),
    "no version": (b'{"__metadata__":{"format":"manifoldrf"}}', "which version"),
    "odd version": (b'{"__metadata__":{"format":"manifoldrf","format_version":1}}', "which version"),
    "no checksum": (b'{"__metadata__":{"format":"manifoldrf","format_version":"1"}}', "metadata are not valid"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_hostile_headers_are_refused(tmp_path, case):
    text, expected = BAD_TEXTS[case]
    (tmp_path / "m").write_bytes(join(text, b""))
    with pytest.raises(ModelFileError, match=expected):
        read_container(tmp_path / "m")


@pytest.mark.parametrize(
    "model", ["[]", "{", '{"a":' + "[" * 9999 + "]" * 9999 + "}", '{"a":1e999,"a":2}', "\ud800"]
)
def test_hostile_descriptions_are_refused_even_with_the_right_checksum(tmp_path, model):
    path = write_container(tmp_path / "m", {}, {})
    header, body = split(path.read_bytes())
    header["__metadata__"]["model"] = model
    path.write_bytes(join(header, body))
    with pytest.raises(ModelFileError, match="cannot be loaded"):
        read_container(path)


def test_a_checksum_written_in_another_way_is_refused(path):
    header, body = split(path.read_bytes())
    text = json.dumps(header).encode()  # with blanks
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    with pytest.raises(ModelFileError, match="its checksum is not where it should be"):
        read_container(path)


@pytest.mark.parametrize("length", [0, 1, 8_000_001, 2**63, 2**64 - 1])
def test_lengths_of_headers_are_checked_before_memory_is_taken(tmp_path, length):
    (tmp_path / "m").write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelFileError, match=r"header has|not a safetensors"):
        read_container(tmp_path / "m")


def test_missing_files_folders_and_pipes_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`path` must be an existing file\. Got .*nothing"):
        read_container(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError, match=r"`path` must be a file, not a folder\. Got "):
        read_container(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="it is not a regular file"):
        read_container(tmp_path / "pipe")
    with pytest.raises(TypeError, match="`path` must be a string or a path"):
        read_container(3)


@pytest.mark.parametrize(
    ("arrays", "meta", "kind", "expected"),
    [
        ({"a b": np.ones(1)}, {}, ValueError, "`arrays` must be named by letters.*'a b'"),
        ({"a": np.ones(1, complex)}, {}, TypeError, "`arrays` must be of a dtype among bool.*complex128 for 'a'"),
        ({"a": np.array([{}])}, {}, TypeError, "object for 'a'"),
        ({}, {"a": np.nan}, ValueError, "not JSON compliant"),
        ({}, {"a": "x" * 8_000_000}, ValueError, "`meta` must be at most 3000000 bytes"),
    ],
)
def test_what_cannot_be_read_again_is_not_written(tmp_path, arrays, meta, kind, expected):
    with pytest.raises(kind, match=expected):
        write_container(tmp_path / "m", arrays, meta)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_the_old_file_and_no_other(path, monkeypatch):
    old = path.read_bytes()
    open_file = Path.open

    def opened(self, *args, **kwargs):
        file = open_file(self, *args, **kwargs)
        return Full(file) if args == ("wb",) else file

    class Full:
        def __init__(self, file):
            self.file, self.written = file, 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, part):
            self.written += 1
            if self.written == 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(part)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(OSError, match="No space left on device"):
        write_container(path, {"a": np.zeros(1000)}, {})
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


LIMITED = """
import resource, sys
import numpy as np
from manifoldrf._codec import write_container
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_container(sys.argv[1], {"a": np.zeros(100_000)}, {})
except OSError as error:
    sys.exit(f"refused: {error.strerror}")
"""


def test_a_full_quota_passes_through_and_leaves_the_old_file(path):
    old = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "refused: File too large"
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_folder_is_named_on_writing(tmp_path):
    with pytest.raises(FileNotFoundError, match="`path` must be in a folder that exists"):
        write_container(tmp_path / "nowhere" / "m", {}, {})


def test_the_mode_of_the_file_is_that_of_an_ordinary_file(path):
    plain = path.with_name("plain")
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


KILLED = """
import sys
import numpy as np
from manifoldrf._codec import write_container
print("ready", flush=True)
for k in range(10**9):
    write_container(sys.argv[1], {"a": np.full(200_000, float(k % 7))}, {"k": k % 7})
"""


@pytest.mark.slow  # the quick tests kill saves of models: reliability/test_killed_saves
def test_a_killed_process_leaves_a_whole_file(tmp_path):
    path = write_container(tmp_path / "m", {"a": np.full(200_000, 0.0)}, {"k": 0})
    rng = random.Random(0)
    for _ in range(10):
        writer = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(0.03 * rng.random())  # one write takes about 5 ms
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        arrays, meta = read_container(path)
        assert (arrays["a"] == meta["k"]).all()
        assert len(arrays["a"]) == 200_000


def test_equal_content_makes_equal_files(tmp_path):
    arrays = {f"array{k}": np.arange(k + 1.0) for k in range(12)}
    files = [write_container(tmp_path / str(k), arrays, {"b": 1, "a": [2, "text"]}) for k in range(4)]
    assert len({path.read_bytes() for path in files}) == 1
