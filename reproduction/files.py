"""Files of the experiments: folders of data, JSON texts, archives of arrays."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from manifoldrf._arrays import read_npz
from reproduction.common import TEMPORARY, as_path, reject

_MAX_TEXT = 8_000_000  # bytes; parsed JSON takes up to 27 times the memory of its text


def existing_folder(folder: Any, name: str = "folder") -> Path:
    """Return the path of an existing folder."""
    path = as_path(folder, name)
    if not path.is_dir():
        reject(name, "an existing folder", path)
    return path


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder, sorted by name, without incomplete files of killed processes."""
    return sorted(path for path in folder.glob(pattern) if not TEMPORARY.fullmatch(path.name))


def small_text(path: Path) -> str:
    """Read a UTF-8 text that is small enough to be parsed."""
    if path.stat().st_size > _MAX_TEXT:
        reject("path", f"a text of at most {_MAX_TEXT} bytes", path.name)
    return path.read_text(encoding="utf-8")


def read_members(file: Path, name: str, wanted: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read arrays of an .npz file by name. Pickled objects are refused.

    Parameters
    ----------
    file : Path
    name : str
        Name of the file in errors.
    wanted : collection of str, optional
        Names of the arrays to read, by default all; missing ones are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/two.npz", a=np.arange(3), b="text")
    ...     read_members(Path(folder) / "two.npz", "path", ["a", "c"])
    {'a': array([0, 1, 2])}
    """
    return read_npz(file, name, None if wanted is None else list(wanted))
