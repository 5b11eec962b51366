"""Model files taken apart and put together again with the right checksum."""

import hashlib
import json

_NO_DIGEST = "0" * 64


def open_model(data):
    """Header entries, description and body of a model file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    return header, json.loads(metadata["model"]), data[8 + length :]


def close_model(header, model, body, **metadata):
    """A model file of any content with the right checksum."""
    text = model if isinstance(model, str) else json.dumps(model, separators=(",", ":"))
    notes = {"checksum": _NO_DIGEST, "format": "manifoldrf", "format_version": "1", "model": text, **metadata}
    head = json.dumps({"__metadata__": notes, **header}, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    start = len(head).to_bytes(8, "little") + head
    digest = hashlib.blake2b(start + body, digest_size=32).hexdigest()
    return start.replace(_NO_DIGEST.encode(), digest.encode(), 1) + body
