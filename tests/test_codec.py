"""Values in files: what is stored comes back to the bit, all else is refused with the reason."""

import dataclasses
import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save
from scipy import sparse

from manifoldrf import _codec
from manifoldrf._codec import FORMAT, ModelFileError, encode, load_value, save_value, stored, write_container


@dataclasses.dataclass(frozen=True, eq=False)
class Ball:
    """A class as models have them, which checks itself."""

    centre: np.ndarray
    radius: float = 1.0
    n_jobs: int = dataclasses.field(default=1, metadata=_codec.UNSTORED)
    cached: int = dataclasses.field(default=0, init=False)

    def __post_init__(self):
        if self.radius < 0:
            raise ValueError("`radius` must be positive.")

    def _check_loaded(self):
        if self.centre.ndim > 2:
            raise ValueError("`centre` must be a vector or rows.")


class Fitted:
    """A class with a state of its own."""

    def __init__(self, parts):
        self.parts = parts

    def _state(self):
        return {"parts": self.parts}

    @classmethod
    def _from_state(cls, state):
        return cls(state["parts"])


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    monkeypatch.setattr(_codec, "_CLASSES", {})
    stored(Ball)
    stored(Fitted)


def again(tmp_path, value):
    return load_value(save_value(tmp_path / "m", value))


def refused(path, match):
    with pytest.raises(ModelFileError, match=f"^{re.escape(str(path))} cannot be loaded: .*{match}") as caught:
        load_value(path)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------------------------- values
PLAIN = [
    True,
    0,
    -(2**70),
    0.1,
    -0.0,
    5e-324,
    float("inf"),
    "",
    "é\n\0\ud800",
    [],
    (),
    {},
    [1, (2.0, None)],
    {"a b": [1]},
]


def test_plain_values_come_back_as_they_were(tmp_path):
    found = again(tmp_path, {"values": PLAIN})["values"]
    assert [(type(value), repr(value)) for value in found] == [(type(value), repr(value)) for value in PLAIN]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?", ">f8"])
def test_arrays_and_scalars_keep_their_bits_and_shape(tmp_path, dtype):
    for array in (
        np.arange(6).astype(dtype),
        np.zeros((0, 3), dtype),
        np.array(1, dtype),
        np.ones((2, 3), dtype).T,
    ):
        found = again(tmp_path, {"x": array, "y": array.dtype.type(1)})
        assert found["x"].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(found["x"], array, strict=array.dtype.isnative)
        assert found["x"].flags.f_contiguous == array.flags.f_contiguous
        assert type(found["y"]) is array.dtype.type


def test_nan_keeps_its_bits_in_arrays(tmp_path):
    array = np.array([0x7FF8000000000123, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert again(tmp_path, {"x": array})["x"].tobytes() == array.tobytes()


def test_sparse_arrays_keep_index_dtype_order_and_zeros(tmp_path):
    index = np.int32
    matrix = sparse.csr_array(
        (np.array([1.0, 0.0, 3.0]), np.array([2, 0, 1], index), np.array([0, 2, 3], index)), (2, 3)
    )
    found = again(tmp_path, {"x": matrix, "empty": sparse.csr_array((0, 3))})
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found["x"], name), getattr(matrix, name), strict=True)
    assert found["empty"].shape == (0, 3)


def test_what_is_shared_is_stored_once_and_comes_back_shared(tmp_path):
    points = np.arange(12.0).reshape(4, 3)
    ball, matrix = Ball(points), sparse.csr_array(np.eye(2))
    value = {
        "points": points,
        "view": points[:],
        "part": points[:2],
        "balls": [ball, (ball,)],
        "m": [matrix, matrix],
    }
    assert sorted(array.nbytes for array in encode(value)[1].values())[-2:] == [48, 96]
    found = again(tmp_path, value)
    assert found["points"] is found["view"] is found["balls"][0].centre
    assert found["balls"][0] is found["balls"][1][0]
    assert found["m"][0] is found["m"][1]
    np.testing.assert_array_equal(found["part"], points[:2])


def test_temporary_arrays_at_a_reused_address_are_not_mixed_up(tmp_path):
    class Many:
        def _state(self):
            return {str(k): Fitted(np.full(1000, k)) for k in range(20)}

        @classmethod
        def _from_state(cls, state):
            return state

    stored(Many)
    assert [int(part.parts[0]) for part in again(tmp_path, Many()).values()] == list(range(20))


def test_instances_are_made_by_their_constructors_without_the_fields_that_no_file_holds(tmp_path):
    found = again(tmp_path, Fitted((Ball(np.zeros(2), 2.0, n_jobs=3), Ball(np.zeros(2)))))
    assert type(found) is Fitted
    assert [(ball.radius, ball.n_jobs, ball.cached) for ball in found.parts] == [(2.0, 1, 0), (1.0, 1, 0)]


def test_what_no_constructor_checks_is_checked_in_files(tmp_path):
    with pytest.raises(ModelFileError, match="`centre` must be a vector or rows"):
        again(tmp_path, Ball(np.zeros((2, 2, 2))))


def nested(depth):
    value = 0
    for _ in range(depth):
        value = (value,)
    return value


def test_values_as_deep_as_allowed_are_read_again(tmp_path):
    assert again(tmp_path, {"x": nested(31)}) == {"x": nested(31)}


class Stranger:
    """Not stored."""


RING = []
RING.append(RING)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ([{"f": len}], r"value\[0\]\['f'\] cannot be stored: a function, and files hold no code"),
        ((Stranger(),), r"value\[0\] cannot be stored: an object of type .*Stranger"),
        (Ball(np.ones(1, complex)), r"value\.centre cannot be stored: an array of dtype complex128"),
        (np.array([{}]), "dtype object"),
        ({1: 2}, "keys that are not str"),
        (RING, "nested more than 32 deep, or in itself"),
        (nested(33), "nested more than 32 deep"),
        (sparse.coo_array(np.eye(2)), "coo_array"),
        (1j, "complex"),
    ],
)
def test_anything_else_is_refused_by_its_place_and_leaves_no_file(tmp_path, value, match):
    with pytest.raises(TypeError, match=match):
        save_value(tmp_path / "m", value)
    assert list(tmp_path.iterdir()) == []


CSR = {"data": np.ones(3), "indices": np.array([0, 2, 1]), "indptr": np.array([0, 2, 3])}
TREES = {
    "unknown class": ({"class": "os.system", "fields": {}}, "it holds a 'os.system', a class that this version"),
    "unknown field": ({"class": "Ball", "fields": {"x": 1}}, "its Ball is not valid: .*'x'"),
    "wrong type": (
        {"class": "Ball", "fields": {"centre": {"array": "data"}, "radius": "1"}},
        "`radius` must be of type",
    ),
    "wrong value": (
        {"class": "Ball", "fields": {"centre": {"array": "data"}, "radius": -1}},
        "`radius` must be positive",
    ),
    "wrong state": ({"class": "Fitted", "fields": {}}, "its Fitted is not valid: 'parts'"),
    "more than one tag": ({"tuple": [], "dict": {}}, "not that of a model"),
    "unknown tag": ({"pickle": "x"}, "not that of a model"),
    "no list": ({"tuple": 3}, "not that of a model"),
    "an instance to come": ({"same": 0}, "not that of a model"),
    "an instance before": ({"tuple": [{"class": "Fitted", "fields": {"parts": 1}}, {"same": -1}]}, "not that of"),
    "missing array": ({"array": "b"}, "it lacks the array 'b'"),
    "array by number": ({"array": 3}, "it lacks the array '3'"),
    "floats of integers": ({"floats": "indices"}, "not that of a model"),
    "scalar of three": ({"scalar": "data"}, "not that of a model"),
}


@pytest.mark.parametrize("case", TREES)
def test_descriptions_of_nothing_are_refused(tmp_path, case):
    tree, match = TREES[case]
    refused(write_container(tmp_path / "m", CSR, tree), match)


BAD_INDICES = [
    {"indices": np.array([0, 3, 1])},
    {"indices": np.array([0, -1, 1])},
    {"indices": np.array([0.0, 2.0, 1.0])},
    {"indices": np.array([0, 2])},
    {"indptr": np.array([0, 3, 2])},
    {"indptr": np.array([1, 2, 3])},
    {"indptr": np.array([0, 2, 4])},
    {"indptr": np.array([0, 2, 3 + 2**32])},  # three, if it is made smaller
    {"indptr": np.array([0, 2, 3], np.int32)},
    {"indptr": np.array([], np.int64)},
]


def test_sparse_arrays_with_indices_out_of_range_are_refused(tmp_path):
    tree = {"csr": ["data", "indices", "indptr", 2, 3]}
    assert load_value(write_container(tmp_path / "m", CSR, tree)).shape == (2, 3)
    for change in BAD_INDICES:
        refused(write_container(tmp_path / "m", CSR | change, tree), "indices out of range")


# ----------------------------------------------------------------------------------------------------------- files
def test_equal_values_make_equal_files_that_other_readers_open(tmp_path):
    value = {"x": np.arange(3), "y": Ball(np.ones((2, 2), np.float32)), "text": "a"}
    files = [save_value(tmp_path / name, value) for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()
    np.testing.assert_array_equal(load_file(files[0])["a0"], np.arange(3))


def made_up(arrays, description):
    """A safetensors file with any metadata."""
    return save(arrays, {"manifoldrf": description if isinstance(description, str) else json.dumps(description)})


def described(text, **others):
    """A description with the right checksum."""
    return {"format": FORMAT, "checksum": _codec._checksum({}, text), "model": text} | others


DEEP = '{"a":' + "[" * 9999 + "]" * 9999 + "}"
FILES = {
    "nothing": (b"", "it is not a safetensors file"),
    "text": (b"These are my notes.", "it is not a safetensors file"),
    "zeros": (bytes(1000), "it is not a safetensors file"),
    "long header": ((2**63).to_bytes(8, "little") + b"{}", "its header has 9223372036854775808 bytes"),
    "cut header": ((100).to_bytes(8, "little") + b'{"a":', "is cut off"),
    "deep header": ((len(DEEP)).to_bytes(8, "little") + DEEP.encode(), "too deeply nested"),
    "not utf-8": ((9).to_bytes(8, "little") + b'{"a":"\xff"}', "not valid JSON"),
    "another library": (save({"a": np.ones(2)}, {"format": "pt"}), "not one of this version of manifoldrf"),
    "no metadata": (save({"a": np.ones(2)}), "not one of this version of manifoldrf"),
    "no description": (made_up({}, "[]"), "it has format None"),
    "another format": (made_up({}, described("{}", format=FORMAT + 1)), f"it has format {FORMAT + 1}, and this"),
    "no checksum": (made_up({}, {"format": FORMAT, "model": "{}"}), "its checksum differs"),
    "no model": (made_up({}, {"format": FORMAT, "checksum": ""}), "its checksum differs"),
    "deep model": (made_up({}, described(DEEP)), "too deeply nested"),
    "surrogates": (made_up({}, described("\ud800")), "not valid JSON"),
    "half precision": (made_up({"a": np.ones(2, np.float16)}, described("{}")), "is not a plain array of float16"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_models_are_refused(tmp_path, case):
    content, match = FILES[case]
    (tmp_path / "m").write_bytes(content)
    refused(tmp_path / "m", match)


def test_truth_values_that_are_neither_are_refused(tmp_path):
    path = write_container(tmp_path / "m", {"a": np.array([True, False])}, {"array": "a"})
    path.write_bytes(path.read_bytes()[:-2] + b"\x02\x00")
    refused(path, "is not a plain array of bool")


def test_descriptions_that_could_not_be_read_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="`model` must be one with a description of at most 3000000 bytes"):
        save_value(tmp_path / "m", "x" * 3_000_000)
    assert list(tmp_path.iterdir()) == []
