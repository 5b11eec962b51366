"""Convert trajectories of flag_simple from TFRecord files to the .npz files that the experiment velocity reads.

Usage: python -m reproduction.convert_tfrecords flag_simple/test.tfrecord sequences --count 2

A TFRecord file is a list of records: length (8 bytes), checksum (4), data, checksum (4). The data are a protobuf
message, tf.train.Example, that maps names of fields to bytes; meta.json beside the file has their shapes and types.
Checksums are not verified: use the tools of the data set to check a download.
"""

import argparse
import itertools
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.common import atomic_path, reject
from reproduction.sequences import Sequence


def convert(path: Path, folder: Path, count: int = 2) -> list[Path]:
    """Write the first trajectories of a .tfrecord file as NAME_0.npz, NAME_1.npz, ... and return the paths."""
    meta = json.loads(path.with_name("meta.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, record in enumerate(itertools.islice(_records(path), count)):
        name, source = f"{path.stem}_{number}", f"{path.name}, trajectory {number}"
        try:
            fields = _fields(record)
            positions, cells = (_array(fields, field, meta["features"][field]) for field in ("world_pos", "cells"))
            sequence = Sequence(positions, cells[0], _time_step(meta), name, source)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            reject("path", "a TFRecord file of trajectories", f"{path.name}, record {number}: {error}")
        parts = {"pos": sequence.positions, "faces": sequence.faces, "dt": sequence.dt, "source": source}
        with atomic_path(folder / f"{name}.npz") as temporary:
            np.savez_compressed(temporary, **parts)  # type: ignore[arg-type]
        written.append(folder / f"{name}.npz")
    return written


def _records(path: Path) -> Iterator[bytes]:
    """The data of each record. A length that the file has no room for is an error, not a large array."""
    left = path.stat().st_size
    with path.open("rb") as file:
        while left:
            head = file.read(12)
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else left
            left -= 16 + length
            if left < 0:
                reject("path", "a complete TFRecord file", f"{path.name}, which ends within a record")
            yield file.read(length)
            file.read(4)


def _fields(record: bytes) -> dict[str, bytes]:
    """Name of each field -> its bytes (Example.features.feature[name].bytes_list.value)."""
    found = {}
    for features in _parts(record, 1):
        for entry in _parts(features, 1):
            name = b"".join(_parts(entry, 1)).decode("utf-8")
            values = [value for kind in _parts(entry, 2) for each in _parts(kind, 1) for value in _parts(each, 1)]
            found[name] = b"".join(values)
    return found


def _parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """Contents of all fields with this number in a protobuf message whose fields all have a length."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        if key & 7 != 2:
            raise ValueError("a field is not of the type bytes")
        length, at = _varint(message, at)
        if at + length > len(message):
            raise ValueError("a field is longer than the message around it")
        if key >> 3 == wanted:
            yield message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits per byte, lowest first, and the place after it."""
    value = 0
    for place in range(10):  # 64 bits need no more
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("an integer has more than ten bytes")


def _array(fields: dict[str, bytes], name: str, spec: dict[str, Any]) -> Any:
    """A field with the shape and type of meta.json."""
    if spec["dtype"] not in ("float32", "float64", "int32", "int64"):
        raise ValueError(f"the dtype of {name} is {spec['dtype']}")
    return np.frombuffer(fields[name], spec["dtype"]).reshape(spec["shape"])


def _time_step(meta: dict[str, Any]) -> float:
    """Seconds from frame to frame; 1 if meta.json has no positive dt."""
    dt = float(meta.get("dt") or 1.0)
    return dt if dt > 0 else 1.0


def main() -> None:
    """Read the arguments and convert."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="a .tfrecord file with meta.json beside it")
    parser.add_argument("folder", type=Path, help="where to write the .npz files")
    parser.add_argument("--count", type=int, default=2, help="how many trajectories to convert (default 2)")
    given = parser.parse_args()
    for path in convert(given.file, given.folder, given.count):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
