"""Damage to files, made from a seed: bytes, numbers in texts, trees of JSON, members of archives, checksums mended.

A mutation is a function of (random, data, others) that gives new bytes. Those that know a format damage what is in
it and mend what is around it, so that the layers behind the checksum are reached.
"""

import io
import json
import re
import struct
import zipfile
from contextlib import suppress

import numpy as np
from safetensors.numpy import load

from manifoldrf._codec import FORMAT, _checksum

INTEGERS = (
    *(0, 1, 2, 3, 127, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1),
    *(2**53, 2**62, 2**63 - 1, 2**64, 10**18),
)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e300, -1e300, 1e-7, 1e16),
    *(float("nan"), float("inf"), -float("inf")),
)
WORDS = (
    *(b"nan", b"inf", b"-inf", b"1e999", b"1e300", b"-1", b"0", b"1", b"2", b"99999999", b"4294967295", b"1_0"),
    *(b"18446744073709551616", b"9" * 5000, b"", b"\xff\xfe", b"1.5.2", b"--1", b"+", b"/", b"1//2", b"1/2/3"),
    *(b"{", b"[" * 2000, b"\0", b"0x10"),
)
NAMES = (
    "",
    "x",
    "\0",
    "../x",
    "/etc/passwd",
    "file:///etc/passwd",
    "Graph",
    "Sphere",
    "a0",
    "a1",
    "same",
    "\ud800",
)
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


# ---------------------------------------------------------------------------------------- bytes and texts
def flip(random, data, others):
    """Flip one to eight bits."""
    result = bytearray(data)
    for _ in range(random.randint(1, 8)):
        if result:
            result[random.randrange(len(result))] ^= 1 << random.randrange(8)
    return bytes(result)


def replace(random, data, others):
    """Write a few bytes over others: extremes, or bytes from elsewhere."""
    start = random.randrange(len(data) + 1)
    kind = random.randrange(4)
    if kind == 0:
        new = random.choice(INTEGERS).to_bytes(9, "little")[: random.choice((1, 2, 4, 8))]
    elif kind == 1:
        new = struct.pack(
            random.choice("<>") + random.choice("fd"), random.choice((0.0, -1.0, np.nan, np.inf, 1e30))
        )
    elif kind == 2:
        new = random.randbytes(random.randint(1, 16))
    else:
        new = bytes([random.choice((0, 255, 10, 32, 127))]) * random.randint(1, 64)
    return data[:start] + new + data[start + len(new) :]


def cut(random, data, others):
    """End early, or leave a part out."""
    start = random.randrange(len(data) + 1)
    if random.random() < 0.5:
        return data[:start]
    return data[:start] + data[start + random.randint(1, 200) :]


def double(random, data, others):
    """Repeat a part, up to a thousand times."""
    start = random.randrange(len(data) + 1)
    stop = min(len(data), start + random.randint(1, 64))
    times = random.choice((2, 2, 3, 10, 1000))
    return data[:start] + data[start:stop] * times + data[stop:]


def insert(random, data, others):
    """Put bytes in between."""
    start = random.randrange(len(data) + 1)
    return data[:start] + random.choice(WORDS) + data[start:]


def splice(random, data, others):
    """The head of one file and the tail of another."""
    other = random.choice(others)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def numbers(random, data, others):
    """Other numbers in a text or in the text at the start of a file."""
    found = list(_NUMBER.finditer(data[:4096]))
    if not found:
        return flip(random, data, others)
    for match in sorted(random.sample(found, min(len(found), random.randint(1, 3))), key=lambda m: -m.start()):
        word = random.choice(WORDS) if random.random() < 0.6 else str(random.choice(INTEGERS)).encode()
        data = data[: match.start()] + word + data[match.end() :]
    return data


def lines(random, data, others):
    """Lines of a text dropped, repeated, exchanged or taken from another text."""
    parts = data.split(b"\n")
    a, b = random.randrange(len(parts)), random.randrange(len(parts))
    kind = random.randrange(4)
    if kind == 0:
        del parts[a]
    elif kind == 1:
        parts[a:a] = [parts[b]] * random.choice((1, 2, 100))
    elif kind == 2:
        parts[a], parts[b] = parts[b], parts[a]
    else:
        parts[a:a] = random.choice(others).split(b"\n")[: random.randint(1, 20)]
    return b"\n".join(parts)


BYTES = (flip, replace, cut, double, insert, splice)
TEXTS = (*BYTES, numbers, numbers, lines)


# ---------------------------------------------------------------------------------------- JSON
def edit_tree(random, tree, words=NAMES):
    """A tree of JSON with one to three changes."""
    tree = json.loads(json.dumps(tree))
    for _ in range(random.randint(1, 3)):
        places = list(_places(tree))
        if places:
            _edit_place(random, *random.choice(places), places, words)
    return tree


def _places(tree):
    """Every container of a tree with each of its keys."""
    stack = [tree]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            yield node, key
            stack.append(node[key])


def _edit_place(random, node, key, places, words):
    kind = random.randrange(7)
    if isinstance(node, list) and not -len(node) <= key < len(node):
        return  # an earlier change took it away
    if isinstance(node, dict) and key not in node:
        return
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[random.choice(words)] = node.pop(key)
    elif kind == 1:
        node[key:key] = [node[key]] * random.choice((1, 3, 50))
    elif kind == 2:
        other, place = random.choice(places)
        with suppress(KeyError, IndexError):
            node[key] = json.loads(json.dumps(other[place]))
    elif kind == 3:
        node[key] = random.choice((None, True, False, [], {}, [[]], {"": 0}, "", *words))
    else:
        node[key] = _other_value(random, node[key])


def _other_value(random, value):
    """Another value of the same kind, most of the time."""
    if isinstance(value, bool) or value is None:
        return random.choice((True, False, None, 1))
    if isinstance(value, int | float):
        near = (value + 1, value - 1, -value, value * 2, value // 2)
        return random.choice((*near, *INTEGERS, *(-n for n in INTEGERS), *(x for x in FLOATS if abs(x) < np.inf)))
    if isinstance(value, str):
        return random.choice((*NAMES, value + "0", value[:-1], value.upper(), "ff" * 300))
    return random.choice((value and None, 3, "x", [value], {"a": value}))


def json_text(random, data, others, words=NAMES):
    """A JSON file with an edited tree."""
    return json.dumps(edit_tree(random, json.loads(data), words)).encode()


# ---------------------------------------------------------------------------------------- models
def open_model(data):
    """Header entries, description and body of a model file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header.pop("__metadata__")["manifoldrf"])
    return header, json.loads(description["model"]), data[8 + length :]


def _container(header, body):
    head = json.dumps(header, separators=(",", ":")).encode()
    return len(head).to_bytes(8, "little") + head + body


def close_model(header, model, body):
    """A model file of any content with the right checksum, if its arrays can be read at all."""
    text = model if isinstance(model, str) else json.dumps(model, separators=(",", ":"))
    try:
        checksum = _checksum(load(_container(header, body)), text)
    except Exception:  # noqa: BLE001  (whatever a damaged header leads to)
        checksum = ""
    description = json.dumps({"format": FORMAT, "checksum": checksum, "model": text})
    return _container({"__metadata__": {"manifoldrf": description}, **header}, body)


def model_tree(random, data, others):
    """The description of a model changed."""
    header, model, body = open_model(data)
    words = (*NAMES, *re.findall(r'"class":\s*"(\w+)"', json.dumps(model))[:5], "HeatExtension", "NeighborSearch")
    return close_model(header, edit_tree(random, model, words), body)


def model_numbers(random, data, others):
    """Numbers of some arrays changed."""
    header, model, body = open_model(data)
    body = bytearray(body)
    entries = [entry for entry in header.values() if entry["data_offsets"][0] < entry["data_offsets"][1]]
    for entry in random.sample(entries, min(len(entries), random.randint(1, 3))):
        _damage_numbers(random, body, entry)
    return close_model(header, model, bytes(body))


_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "?"}


def _damage_numbers(random, body, entry):
    begin, end = entry["data_offsets"]
    values = np.frombuffer(body, np.dtype(_TYPES[entry["dtype"]]), (end - begin) // _size(entry), begin)
    places = [random.randrange(len(values)) for _ in range(random.choice((1, 1, 2, 10)))]
    if random.random() < 0.1:
        places = slice(None)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            values[places] = random.choice((*FLOATS, -1e-3, 3.0, 1e6))
    elif values.dtype.kind == "b":
        values[places] = random.random() < 0.5
    else:
        limit = np.iinfo(values.dtype)
        values[places] = min(
            max(random.choice((*INTEGERS, -1, -2, -(2**31), -(2**63), 5, 17)), limit.min), limit.max
        )


def _size(entry):
    return np.dtype(_TYPES[entry["dtype"]]).itemsize


def model_shapes(random, data, others):
    """Arrays of another shape, kind or length, each still where the header says."""
    header, model, body = open_model(data)
    entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
    chosen = {name for name, _ in random.sample(entries, min(len(entries), random.randint(1, 2)))}
    parts, at = [], 0
    for name, entry in entries:
        part = body[slice(*entry["data_offsets"])]
        if name in chosen:
            part = _reshape(random, entry, part)
        entry["data_offsets"] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    return close_model(header, model, b"".join(parts))


def _reshape(random, entry, part):
    """The bytes of an array after its header entry was changed."""
    kind, shape = random.randrange(5), entry["shape"]
    if kind == 0:  # other numbers of the same size
        same = [name for name in _TYPES if np.dtype(_TYPES[name]).itemsize == _size(entry)]
        entry["dtype"] = random.choice(same)
    elif kind == 1 and shape:  # one row less or more
        rows = max(0, shape[0] + random.choice((-1, 1, -2)))
        row = len(part) // shape[0] if shape[0] else 0
        part = (part + part[-row:])[: rows * row] if row else part
        entry["shape"] = [len(part) // row if row else shape[0], *shape[1:]]
    elif kind == 2:  # flat, or turned
        entry["shape"] = random.choice(([int(np.prod(shape))], shape[::-1], [1, *shape], [*shape, 1]))
    elif kind == 3:
        entry["shape"], part = random.choice(([0], [0, 3], [0] * 5, [10**18, 0])), b""
    else:
        values = np.frombuffer(part, _TYPES[entry["dtype"]])
        other = random.choice([name for name in _TYPES if name != "BOOL"])
        with np.errstate(all="ignore"):
            part = np.nan_to_num(values.astype("f8"), posinf=9, neginf=-9).astype(_TYPES[other]).tobytes()
        entry["dtype"] = other
    return part


def model_header(random, data, others):
    """The header of a model changed, checksum right where it can be."""
    header, model, body = open_model(data)
    return close_model(edit_tree(random, header), model, body)


MODELS = (model_tree, model_tree, model_tree, model_numbers, model_numbers, model_shapes, model_header, *BYTES)


# ---------------------------------------------------------------------------------------- other containers
def glb_tree(random, data, others):
    """A glb file with another scene and right lengths."""
    (length,) = struct.unpack("<I", data[12:16])
    text = json.dumps(edit_tree(random, json.loads(data[20 : 20 + length]))).encode()
    text += b" " * (-len(text) % 4)
    rest = data[20 + length :]
    return struct.pack("<4sIIII", b"glTF", 2, 20 + len(text) + len(rest), len(text), 0x4E4F534A) + text + rest


def zip_members(random, data, others):
    """An archive with damaged members and right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name in random.sample(list(members), random.randint(1, len(members))):
        kind = random.randrange(5)
        if kind == 0:
            members[random.choice(("../x.npy", "/x.npy", "points.npy", "a\\b.npy", "x" * 200, "format.npy"))] = (
                members.pop(name)
            )
        elif kind == 1:
            members[name] = random.choice(list(members.values()))
        else:
            members[name] = random.choice((*BYTES, numbers, numbers))(random, members[name], list(members.values()))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()
