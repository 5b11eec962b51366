"""The codec: every value that it takes comes back as it was, every other is refused by its place."""

import dataclasses
import functools
import json
import math
import struct
from collections import OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from manifoldrf._codec import (
    ModelFileError,
    Record,
    decode,
    encode,
    is_storable,
    load_state,
    read_container,
    save_state,
    write_container,
)
from manifoldrf._random import Streams
from manifoldrf.geometry.model_spaces import Sphere
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.geometry.surfaces import Ellipsoid

REGISTRY = {kind.__name__: kind for kind in (Ellipsoid, NeighborSearch, Sphere)}


def round_trip(value):
    """Through the text of JSON, as in a file."""
    tree, arrays = encode(value)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), arrays, REGISTRY)


def bits(value):
    return struct.pack(">d", value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -7,
        2**53,
        -(2**200),
        10**5000,  # more digits than Python reads in decimal
        "",
        'text with "quotes", \\ and \u4e2d \ud800',
        b"",
        b"\x00\xff",
        (),
        [],
        {},
        (1, (2.0, [None, {"a": (3,)}])),
        {"class": "Sphere", "fields": {}},  # keys that are tags of the codec itself
        {"tuple": [1]},
        {"": {"same": 0}},
        Fraction(-3, 7),
        Fraction(10**400, 10**399 + 1),
        Decimal("-1.10"),
        Decimal("1E-999999"),
        Decimal("Infinity"),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_plain_values_come_back_as_they_were(value):
    loaded = round_trip({"value": value})["value"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_long_tuples_of_floats_are_arrays_and_come_back_as_they_were(tmp_path):
    """As JSON, the losses of a training of 100,000 epochs were too long to be saved, after all its hours."""
    losses = tuple(np.random.default_rng(0).random(100_000).tolist())
    value = {"train": losses, "validation": (*losses[1:], math.inf), "mixed": (*losses[:2000], 1)}
    loaded = round_trip(value)
    assert loaded == value
    assert {type(part) for part in (*loaded["train"], *loaded["validation"])} == {float}
    assert load_state(save_state(tmp_path / "m", "state", value), REGISTRY)[1] == value


@pytest.mark.parametrize("array", [np.arange(3), np.ones((2, 2)), np.ones(3, np.float32)], ids=str)
def test_only_vectors_of_floats_become_tuples(array):
    with pytest.raises(ModelFileError, match="not that of a model"):
        decode({"floats": "a"}, {"a": array}, REGISTRY)


def test_a_tuple_that_is_named_often_is_made_once():
    first, second = decode({"tuple": [{"floats": "a"}] * 2}, {"a": np.ones(3)}, REGISTRY)
    assert first == (1.0, 1.0, 1.0)
    assert first is second


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1 / 3, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 1e22, 2.0]
)
def test_floats_come_back_to_the_bit(value):
    loaded = round_trip(value)
    assert type(loaded) is float
    assert bits(loaded) == bits(value)


@pytest.mark.parametrize("payload", ["7ff8000000000000", "fff8000000000000", "7ff8000000000123"])
def test_every_nan_comes_back_to_the_bit(payload):
    (value,) = struct.unpack(">d", bytes.fromhex(payload))
    assert bits(round_trip(value)).hex() == payload


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
def test_numpy_scalars_keep_their_type(dtype):
    value = np.dtype(dtype).type(1) if dtype == "?" else np.dtype(dtype).type(100) / np.dtype(dtype).type(3)
    value = value.astype(dtype)
    loaded = round_trip((value,))[0]
    assert type(loaded) is type(value)
    assert loaded.tobytes() == value.tobytes()


def test_arrays_keep_dtype_shape_and_order_in_memory():
    plain = np.random.default_rng(0).random((3, 4, 2))
    given = [plain, np.asfortranarray(plain), np.array(1.5), np.zeros((0, 3), np.int32), plain[:, ::2], plain[0].T]
    for before, after in zip(given, round_trip(given), strict=True):
        assert after.dtype == before.dtype
        assert after.shape == before.shape
        assert after.tobytes() == before.tobytes()
        if before.flags.forc:  # contiguous in either order
            assert after.flags.c_contiguous == before.flags.c_contiguous
            assert after.flags.f_contiguous == before.flags.f_contiguous


def test_arrays_that_share_memory_are_stored_once_and_come_back_as_one():
    points = np.random.default_rng(0).random((5, 3))
    view = points.view()
    view.flags.writeable = False
    tree, arrays = encode(
        {"a": points, "b": [view], "c": NeighborSearch(points), "copy": points.copy(), "t": points.T}
    )
    assert len(arrays) == 2
    loaded = decode(tree, arrays, REGISTRY)
    assert loaded["a"] is loaded["b"][0]
    assert loaded["a"] is loaded["c"].points
    assert loaded["a"] is not loaded["copy"]
    assert loaded["t"].base is loaded["a"]
    assert loaded["t"].flags.f_contiguous


def test_parts_of_the_same_memory_are_not_taken_for_the_whole():
    values = np.arange(12.0)
    given = [values, values[:6], values[::2], values.reshape(3, 4), values.view(np.int64)]
    for before, after in zip(given, round_trip(given), strict=True):
        assert before.dtype == after.dtype
        assert np.array_equal(before, after)


def test_temporary_arrays_at_a_reused_address_are_not_mixed_up():
    matrices = []  # with arrays that are too long, of which temporary slices are stored
    for k in range(20):
        matrix = sparse.csr_array((np.full(3, float(k)), ([0, 1, 2], [0, 1, 2])), shape=(3, 3))
        matrix.data, matrix.indices = np.append(matrix.data, 9.0), np.append(matrix.indices, np.int32(0))
        matrices.append(matrix)
    for k, loaded in enumerate(round_trip(matrices)):
        assert loaded.data.tolist() == [k, k, k]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("order", [[0, 2, 1], [2, 0, 1]], ids=["sorted", "unsorted"])
def test_sparse_arrays_keep_index_dtype_and_order_and_zeros(index, order):
    matrix = sparse.csr_array((4, 3), dtype=np.float32)
    matrix.data = np.array([0.0, 1.5, -0.0, 2.0], np.float32)
    matrix.indices = np.array([*order, 1], index)
    matrix.indptr = np.array([0, 1 + (order == [0, 2, 1]), 3, 3, 4], index)
    loaded = round_trip(matrix)
    assert type(loaded) is sparse.csr_array
    assert loaded.shape == (4, 3)
    for name in ("data", "indices", "indptr"):
        before, after = getattr(matrix, name), getattr(loaded, name)
        assert before.dtype == after.dtype
        assert before.tobytes() == after.tobytes()
    assert loaded.has_sorted_indices == matrix.has_sorted_indices
    assert (loaded.toarray() == matrix.toarray()).all()
    assert ((loaded @ np.eye(3)) == matrix.toarray()).all()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
def test_empty_sparse_arrays_come_back(shape):
    assert round_trip(sparse.csr_array(shape)).shape == shape


def test_an_instance_that_occurs_twice_comes_back_as_one():
    sphere, matrix = Sphere(), sparse.csr_array(np.eye(2))
    search = NeighborSearch(np.eye(3), sphere)
    given = {"m": matrix, "first": [search, sphere], "second": (search, matrix, Sphere())}
    loaded = round_trip(given)
    search, sphere = loaded["first"]
    assert search.metric is sphere
    assert loaded["second"][0] is search
    assert loaded["second"][1] is loaded["m"]
    assert loaded["second"][2] == sphere
    assert loaded["second"][2] is not sphere


def test_classes_come_back_by_their_fields_without_what_they_computed():
    search = NeighborSearch(np.random.default_rng(0).random((5, 3)))
    _ = search.tree
    tree, _ = encode(search)
    assert set(tree["fields"]) == {"points", "metric", "n_jobs"}
    assert set(encode(Ellipsoid((1.0, 2.0, 3.0)))[0]["fields"]) == {"axes"}
    assert round_trip(Ellipsoid((1.0, 2.0, 3.0))) == Ellipsoid((1.0, 2.0, 3.0))


def test_a_record_is_written_under_its_own_name_and_read_by_a_function():
    record = Record("Scaled", {"sphere": Sphere(), "factor": 2.0})

    def scaled(sphere: Sphere, factor: float) -> tuple:
        return sphere, factor

    tree, arrays = encode([record, record])
    assert tree[0]["class"] == "Scaled"
    assert tree[1] == {"same": 1}  # after its sphere
    registry = REGISTRY | {"Scaled": scaled}
    assert decode(tree, arrays, registry) == [(Sphere(), 2.0)] * 2
    tree[0]["fields"]["factor"] = "two"
    with pytest.raises(ModelFileError, match=r"its Scaled is not valid: `factor` must be of type float. Got str"):
        decode(tree, arrays, registry)


@dataclasses.dataclass(frozen=True)
class Stranger:
    x: int = 0


def itself():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda x: x, r"state\['a'\]\[1\] cannot be stored: the function .*, and files hold no code\."),
        (functools.partial(int, 3), "the function partial, and files hold no code"),
        (np.sin, "the function sin, and files hold no code"),
        (Sphere, "the function Sphere, and files hold no code"),
        (Stranger(), r"state\['a'\]\[1\] cannot be stored: an object of type .*Stranger\."),
        ({1: 2}, r"state\['a'\]\[1\] cannot be stored: a dict with keys that are not str\."),
        ({1, 2}, "an object of type builtins.set"),
        (1j, "an object of type builtins.complex"),
        (np.complex64(1), "an object of type numpy.complex64"),
        (np.str_("a"), "an object of type numpy.str_"),
        (np.array([None]), r"state\['a'\]\[1\] cannot be stored: an array of dtype object\."),
        (np.array(["a"]), "an array of dtype <U1"),
        (np.ma.masked_array([1.0]), "an object of type numpy.ma.*MaskedArray"),
        (sparse.coo_array(np.eye(2)), "an object of type scipy.sparse._coo.coo_array"),
        (sparse.csr_matrix(np.eye(2)), "csr_matrix"),
        (sparse.csr_array(np.array([1.0, 2.0])), "a sparse array of 1 axes"),
        (sparse.csr_array(np.eye(2) * 1j), r"\[1\].data cannot be stored: an array of dtype complex128"),
        (OrderedDict(a=1), "OrderedDict"),
        (defaultdict(int), "defaultdict"),
        (np.random.default_rng(0), "an object of type numpy.random.*Generator"),
        (NeighborSearch(np.eye(3), lambda x: x), r"state\['a'\]\[1\].metric cannot be stored: the function"),
        (itself(), "cannot be stored: nested more than 48 deep, or in itself"),
        (Fraction(1, 16**50_001), "A fraction of more than 50000 digits cannot be stored"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused_by_its_place(tmp_path, value, expected):
    with pytest.raises(TypeError, match=expected):
        save_state(tmp_path / "m", "example", {"a": [0, value]})
    assert list(tmp_path.iterdir()) == []


def test_what_is_as_deep_as_allowed_is_read_again(tmp_path):
    deepest = 0
    for _ in range(47):
        deepest = (deepest,)
    loaded = load_state(save_state(tmp_path / "m", "example", {"a": deepest}), {})
    assert loaded == ("example", {"a": deepest})


CSR = {"data": "d", "indices": "i", "indptr": "p", "shape": [2, 3]}


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"class": "Stranger", "fields": {}}, "it holds a 'Stranger', a class that this version does not know"),
        ({"class": "os.system", "fields": {"command": "ls"}}, "it holds a 'os.system'"),
        ({"class": ["Sphere"], "fields": {}}, "a class that this version does not know"),
        ({"class": "Sphere", "fields": []}, "not that of a model"),
        (
            {"class": "Sphere", "fields": {"dim": -1}},
            r"its Sphere is not valid: `dim` must be an integer in \[1, inf\)",
        ),
        (
            {"class": "Sphere", "fields": {"size": 1}},
            "its Sphere is not valid: .*unexpected keyword argument 'size'",
        ),
        ({"class": "Sphere"}, "not that of a model"),
        ({"array": "z"}, "it lacks the array 'z'"),
        ({"array": ["d"]}, "it lacks the array"),
        ({"array": "z", "order": "F"}, "it lacks the array"),
        ({"array": "d", "order": "K"}, "not that of a model"),
        ({"same": 0}, "not that of a model"),
        ({"same": -1}, "not that of a model"),
        ({"same": True}, "not that of a model"),
        ({"tuple": 3}, "not that of a model"),
        ({"dict": [1]}, "not that of a model"),
        ({"eval": "1 + 1"}, "not that of a model"),
        ({}, "not that of a model"),
        ({"int": "zz"}, "not that of a model"),
        ({"int": 3}, "not that of a model"),
        ({"float": "00"}, "not that of a model"),
        ({"bytes": 3}, "not that of a model"),
        ({"decimal": "x"}, "not that of a model"),
        ({"fraction": ["0x1", "0x0"]}, "not that of a model"),
        ({"fraction": ["0x1", "1" * 50_001]}, "not that of a model"),
        ({"fraction": None}, "not that of a model"),
        ({"scalar": ["float64", "00"]}, "not that of a model"),
        ({"scalar": ["object", "00" * 8]}, "not that of a model"),
        ({"scalar": ["float64", "00" * 16]}, "not that of a model"),
        ({"csr": CSR | {"shape": [2, 2]}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"shape": [3, 3]}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"shape": [2, 2**70]}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"shape": [2, -3]}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"indices": "n"}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"indices": "d"}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"indptr": "n"}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"indptr": "falling", "shape": [3, 3]}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"data": "p", "indptr": "one"}}, "a sparse array with indices out of range"),
        ({"csr": CSR | {"shape": [2]}}, "not that of a model"),
        ({"csr": {"data": "d"}}, "not that of a model"),
        (functools.reduce(lambda inner, _: [inner], range(60), 0), "nested more than 48 deep"),
    ],
)
def test_trees_that_encode_never_makes_are_refused(tmp_path, tree, expected):
    arrays = {"d": np.ones(2), "i": np.array([0, 2]), "p": np.array([0, 1, 2]), "n": np.array([-1, 0])}
    arrays |= {"falling": np.array([0, 2, 1, 2]), "one": np.array([[0, 1, 2]])}
    with pytest.raises(ModelFileError, match=expected):
        decode(tree, arrays, REGISTRY)
    path = write_container(tmp_path / "m", arrays, {"kind": "example", "state": {"dict": {"a": tree}}})
    with pytest.raises(ModelFileError, match=rf"m cannot be loaded: .*{expected}"):
        load_state(path, REGISTRY)


def test_the_sparse_array_that_the_bad_ones_are_made_of_is_good():
    arrays = {"d": np.ones(2), "i": np.array([0, 2]), "p": np.array([0, 1, 2])}
    assert decode({"csr": CSR}, arrays, {}).toarray().tolist() == [[1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("meta", [{}, {"kind": 3, "state": {"dict": {}}}, {"kind": "x", "state": [1]}])
def test_files_without_kind_or_state_are_refused(tmp_path, meta):
    with pytest.raises(ModelFileError, match=r"it does not say what it holds|it holds no state"):
        load_state(write_container(tmp_path / "m", {}, meta), {})


def test_the_same_state_gives_the_same_tree_and_arrays(tmp_path):
    state = {"a": np.arange(3), "b": Sphere()}
    first, second = (read_container(save_state(tmp_path / name, "x", state)) for name in "ab")
    assert first[1] == second[1]
    assert first[0]["a0"].tobytes() == second[0]["a0"].tobytes()


def test_classes_that_cannot_be_loaded_are_refused_when_saved(tmp_path):
    """A class of the library that is not listed, and a foreign class with the name of one that is."""
    foreign = dataclasses.make_dataclass("Sphere", ["x"], frozen=True)
    assert is_storable(Sphere)
    assert not any(map(is_storable, (Streams, foreign, Stranger, int)))
    with pytest.raises(TypeError, match=r"cannot be stored: an object of type manifoldrf\._random\.Streams"):
        save_state(tmp_path / "m", "example", {"s": Streams.from_seed(0)})
    assert list(tmp_path.iterdir()) == []
