"""Whether a file is a picture that shows something."""

from matplotlib import image

STARTS = {".png": b"\x89PNG\r\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


def shows_something(path):
    """Whether the file has the format of its suffix and, for png, more than a background."""
    if not path.read_bytes().startswith(STARTS[path.suffix]):
        return False
    if path.suffix != ".png":
        return True
    pixels = image.imread(path)[..., :3]
    return float((pixels != pixels[0, 0]).any(axis=-1).mean()) > 0.01
