"""Trajectories in TFRecord files, read without TensorFlow.

A file is a row of records: length (8 bytes), its checksum (4), the bytes, their checksum (4). Each record is one
trajectory, a protobuf message that maps names of fields to bytes or numbers; meta.json beside the file has shapes
and kinds of the fields. Nothing is believed that the size of the file or a checksum can refute, so that a broken
file is an error and never a long wait or a huge array.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from manifoldrf._files import small_text
from manifoldrf._validation import reject

_LARGEST_RECORD = 2**31 - 1  # protobuf has no larger messages
_MASK_DELTA = 0xA282EAD8  # of masked checksums, by the definition of the format
_POLYNOMIAL = 0x82F63B78  # Castagnoli, lowest bit first
_LANE_BITS = 10  # bytes per lane, as a power of two: 7 MB take .05 s, and 400 to 4000 bytes are as quick
_KINDS = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "int64": "<i8"}
_LISTS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}  # numbers of the fields of tf.train.Feature

Fields = dict[str, NDArray[Any]]


def read_trajectory(path: Path, index: int) -> Fields:
    """Fields of one trajectory, each an array of the shape that meta.json beside the file says."""
    meta = read_meta(path.with_name("meta.json"))
    size = path.stat().st_size
    with path.open("rb") as file:
        passed = _pass_records(file, size, path, index)
        if file.tell() == size:
            reject("index", f"below the number of trajectories in {path.name}, {passed}", index)
        data = _record(file, size, path, index)
    try:
        example = parse_example(data)
        return {name: _as_field(example, name, spec) for name, spec in meta["features"].items()}
    except ValueError as error:
        _reject_file(path, index, str(error))


def count_records(path: Path, most: int) -> int:
    """How many records a file has, counted no further than ``most``."""
    with path.open("rb") as file:
        return _pass_records(file, path.stat().st_size, path, most)


def read_records(path: Path) -> Iterator[bytes]:
    """All records of a file, one at a time, both checksums of each checked."""
    size, number = path.stat().st_size, 0
    with path.open("rb") as file:
        while file.tell() < size:
            yield _record(file, size, path, number)
            number += 1


def read_meta(path: Path) -> dict[str, Any]:
    """What meta.json says: ``features``, a shape and a kind for every field, and where it is given ``dt``."""
    if not path.is_file():
        reject("path", "beside a file meta.json, which has the shapes of its fields", path.parent.name)
    try:
        meta = json.loads(small_text(path))
    except (ValueError, RecursionError) as error:
        reject("path", "beside a readable meta.json", error)
    specs = meta.get("features") if isinstance(meta, dict) else None
    if not isinstance(specs, dict) or not all(_is_spec(spec) for spec in specs.values()):
        rule = "beside a meta.json with a shape and a dtype of every field"
        reject("path", f"{rule} ({', '.join(_KINDS)})", path.parent.name)
    return dict(meta)


def crc32c(data: bytes) -> int:
    """Checksum of Castagnoli, by NumPy alone.

    The register is linear in the bytes once its start, all ones, is moved into the first four of them. So the bytes
    are cut into lanes that run side by side; a lane of zeros after another multiplies its register by a matrix.
    """
    start = np.frombuffer(data[:4].ljust(4, b"\0"), np.uint8) ^ 0xFF
    body = np.concatenate([start, np.frombuffer(data[4:], np.uint8)])
    if len(data) < 4:  # the ones that found no byte stay in the register: no padding there
        register = np.array([0xFFFFFFFF], np.uint32)
        return int(_run_lanes(register, np.frombuffer(data, np.uint8)[None])[0]) ^ 0xFFFFFFFF
    n_lanes = 1 << max(0, len(body).bit_length() - _LANE_BITS)
    width = -(-len(body) // n_lanes)
    lanes = np.zeros(n_lanes * width, np.uint8)
    lanes[len(lanes) - len(body) :] = body  # zeros in front of a register of zero change nothing
    registers = _run_lanes(np.zeros(n_lanes, np.uint32), lanes.reshape(n_lanes, width))
    units = np.uint32(1) << np.arange(32, dtype=np.uint32)
    shift = _run_lanes(units, np.zeros((32, width), np.uint8))  # (32,) images of the bits under `width` zeros
    while len(registers) > 1:
        registers = _transform(shift, registers[0::2]) ^ registers[1::2]
        shift = _transform(shift, shift)  # twice as many zeros
    return int(registers[0]) ^ 0xFFFFFFFF


def mask(checksum: int) -> int:
    """The form in which files keep a checksum, so that data with checksums inside have good ones themselves."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF


def parse_example(data: bytes) -> dict[str, list[bytes] | NDArray[Any]]:
    """Features of a tf.train.Example by name: a list of bytes, or float32 or int64 numbers."""
    found: dict[str, list[bytes] | NDArray[Any]] = {}
    for features in _messages(memoryview(data), 1):
        for entry in _messages(features, 1):
            name = b"".join(bytes(part) for part in _messages(entry, 1)).decode("utf-8")
            for feature in _messages(entry, 2):
                found[name] = _parse_feature(feature)
    return found


def _table() -> NDArray[np.uint32]:
    """What eight steps of the register make of every byte."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> np.uint32(1) ^ np.uint32(_POLYNOMIAL), values >> np.uint32(1))
    return values


_TABLE = _table()


def _run_lanes(registers: NDArray[np.uint32], lanes: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Registers (l,) after the bytes of their lanes (l, width)."""
    for column in np.ascontiguousarray(lanes.T):
        registers = _TABLE[(registers ^ column) & np.uint32(0xFF)] ^ registers >> np.uint32(8)
    return registers


def _transform(images: NDArray[np.uint32], registers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Registers (l,) under the linear map that sends bit b to images[b]."""
    bits = registers[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)  # (l, 32)
    moved: NDArray[np.uint32] = np.bitwise_xor.reduce(bits * images, axis=1)
    return moved


def _pass_records(file: BinaryIO, size: int, path: Path, count: int) -> int:
    """Pass over so many records without reading them, or over all there are; returns how many."""
    for number in range(count):
        if file.tell() == size:
            return number
        file.seek(_record_length(file, size, path, number) + 4, 1)
    return count


def _record(file: BinaryIO, size: int, path: Path, number: int) -> bytes:
    """The bytes of the record that begins here."""
    length = _record_length(file, size, path, number)
    data = file.read(length)
    (checksum,) = struct.unpack("<I", file.read(4))
    if mask(crc32c(data)) != checksum:
        _reject_file(path, number, "its bytes do not have the checksum stored with them")
    return data


def _record_length(file: BinaryIO, size: int, path: Path, number: int) -> int:
    """Length of the record that begins here, which the rest of the file has room for."""
    if size - file.tell() < 12:
        _reject_file(path, number, "the file ends within its header")
    head = file.read(12)
    length, checksum = struct.unpack("<QI", head)
    if mask(crc32c(head[:8])) != checksum:
        _reject_file(path, number, "its length does not have the checksum stored with it")
    if length > _LARGEST_RECORD or length + 4 > size - file.tell():
        _reject_file(path, number, f"it declares {length} bytes and the file has {size - file.tell()} more")
    return int(length)


def _reject_file(path: Path, number: int, reason: str) -> NoReturn:
    """Raise the one error text for a file that is not what it should be."""
    reject("path", "a whole TFRecord file", f"{path.name}, record {number}: {reason.rstrip('.')}")


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """Contents of all fields of this number in a message; they have to be of the kind with a length."""
    for number, wire, value in _fields(data):
        if number == wanted:
            if wire != 2:
                raise ValueError(f"field {number} has wire type {wire}, not 2")
            yield value


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, wire type and bytes of every field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            end = _varint(data, at)[1]
        elif wire == 2:
            length, at = _varint(data, at)
            end = at + length
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
        else:
            raise ValueError(f"a field has wire type {wire}, which is not in use")
        if end > len(data):
            raise ValueError("a field is longer than the message around it")
        yield key >> 3, wire, data[at:end]
        at = end


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, the lowest first, and where it ends."""
    value = 0
    for place in range(10):  # 64 bits have no more
        if at + place >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number has more than ten bytes")


def _parse_feature(data: memoryview) -> list[bytes] | NDArray[Any]:
    """Values of a tf.train.Feature; as protobuf wants it, the last of several lists counts."""
    kind, body = None, memoryview(b"")
    for number, wire, value in _fields(data):
        if number in _LISTS and wire == 2:
            kind, body = _LISTS[number], value
    if kind == "bytes_list":
        return [bytes(value) for value in _messages(body, 1)]
    # Numbers stand in one packed field, or in a field each, or some this way and some that.
    packed = b"".join(bytes(value) for number, _, value in _fields(body) if number == 1)
    if kind == "float_list":
        return _as_numbers(packed, "<f4")
    return _varints(packed)


def _varints(packed: bytes) -> NDArray[np.int64]:
    """Numbers that stand one after the other, all at once."""
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else np.zeros(0, np.int64)
    if len(data) != (ends[-1] if len(ends) else 0) or (len(ends) and int((ends - starts).max()) > 10):
        raise ValueError("a list of integers is cut off or broken")
    if not len(ends):
        return np.zeros(0, np.int64)
    places = np.arange(len(data)) - np.repeat(starts, ends - starts)  # of each byte within its number
    parts = (data & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    numbers: NDArray[np.int64] = np.add.reduceat(parts, starts).view(np.int64)
    return numbers


def _as_numbers(data: bytes, kind: str) -> NDArray[Any]:
    """Bytes as numbers, if they are a whole number of them."""
    if len(data) % np.dtype(kind).itemsize:
        raise ValueError(f"{len(data)} bytes are no whole number of values of kind {np.dtype(kind).name}")
    return np.frombuffer(data, kind)


def _as_field(example: dict[str, list[bytes] | NDArray[Any]], name: str, spec: dict[str, Any]) -> NDArray[Any]:
    """One field in its shape and kind; an axis of length -1 takes what there is."""
    if name not in example:
        raise ValueError(f"it has no field {name!r}")
    values, kind = example[name], _KINDS[spec["dtype"]]
    with np.errstate(invalid="ignore"):  # what does not fit is refused below
        numbers = _as_numbers(b"".join(values), kind) if isinstance(values, list) else values.astype(kind)
    if not isinstance(values, list) and not np.array_equal(numbers, values, equal_nan=True):
        raise ValueError(f"the values of field {name!r} are not of kind {spec['dtype']}")
    try:
        return numbers.reshape(spec["shape"])
    except (ValueError, OverflowError):  # an axis may be larger than any machine integer
        raise ValueError(f"field {name!r} has {numbers.size} values, not the shape {spec['shape']}") from None


def _is_spec(spec: Any) -> bool:
    """Whether a field has a kind that is known and a shape made of integers."""
    if not isinstance(spec, dict) or not isinstance(spec.get("shape"), list):
        return False
    kind, shape = spec.get("dtype"), spec["shape"]
    # A list is no key of a dictionary, and true is an int to Python.
    return isinstance(kind, str) and kind in _KINDS and bool(shape) and all(map(_is_axis, shape))


def _is_axis(size: Any) -> bool:
    return type(size) is int and size >= -1
