"""Model files taken apart and put together again with the right checksum."""

import json

from safetensors.numpy import load

from manifoldrf._codec import FORMAT, _checksum


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
