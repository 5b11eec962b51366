"""Writing that leaves the old file or the new one, never half of it.

What is being written has a name of its own until it is complete: a dot, 32 hexadecimal digits and the suffix of the
file (of an .npz file also a folder of the same name without the suffix). Only a process that was killed leaves one
behind. It can be deleted, and nothing here reads it.
"""

import errno
import html
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from manifoldrf._validation import reject

_MOST_TEXT = 8_000_000  # bytes
_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a full quota, a limit of the size of files
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}(\.\w+)?")
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("manifoldrf files", default=None)


def as_path(path: Any, name: str = "path") -> Path:
    """Return a string or path-like object as a Path."""
    if not isinstance(path, str | os.PathLike):
        reject(name, "a string or a path", repr(path), TypeError)
    if not os.fspath(path):
        reject(name, "a path that is not empty", repr(path))
    return Path(path)


def writable_folder(folder: Any, name: str = "folder") -> Path:
    """Return a folder that files can be written to, made if needed; or say at once why it cannot be one."""
    path = as_path(folder, name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        reject(name, "a folder, or a new name for one", path, NotADirectoryError)
    except OSError as error:
        if error.errno not in _NO_PERMISSION:
            raise  # a full disk, a name too long: the system's own words are better
        reject(name, "a folder in a place that is writable", path, PermissionError)
    if not os.access(path, os.W_OK | os.X_OK) or not _takes_files(path):
        reject(name, "a folder that is writable", path, PermissionError)
    return path


@contextmanager
def folder_for_results(folder: Any, name: str = "folder") -> Iterator[Path]:
    """Give a folder as :func:`writable_folder` does; what was made for it goes again if the block fails.

    Only folders that are still empty are removed: results that are complete stay.
    """
    path = as_path(folder, name)
    made = [place for place in (path, *path.parents) if not place.exists()]
    try:
        yield writable_folder(path, name)
    except BaseException:
        with suppress(OSError):  # the first that is not empty
            for place in made:
                place.rmdir()
        raise


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Files of a folder in the order of their names, without those that a killed process left half-written."""
    return sorted(path for path in folder.glob(pattern) if not _TEMPORARY.fullmatch(path.name))


def existing_folder(folder: Any, name: str = "folder") -> Path:
    """Return the path of a folder that is there."""
    path = as_path(folder, name)
    if not path.is_dir():
        reject(name, "an existing folder", path)
    return path


def existing_file(path: Any, name: str = "path") -> Path:
    """Return the path of an ordinary file that is there: what is read twice must not be a pipe."""
    file = as_path(path, name)
    if file.is_dir():
        reject(name, "a file, not a folder", file, IsADirectoryError)
    if not file.exists():
        reject(name, "an existing file", file, FileNotFoundError)
    if not file.is_file():
        reject(name, "an ordinary file, not a pipe or a device", file)
    return file


def small_text(path: Path) -> str:
    """The text of a file in UTF-8, for JSON: parsed it takes up to 27 times its memory, so it has to be small."""
    if path.stat().st_size > _MOST_TEXT:
        reject("path", f"a text of at most {_MOST_TEXT} bytes", path.name)
    return path.read_text(encoding="utf-8")


def _takes_files(folder: Path) -> bool:
    """Whether a file can be made in a folder: rights alone do not say so of all disks, least of all to root."""
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise OSError(error.errno, error.strerror, str(folder)) from error  # it is writable, and full
        return False
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return True


def check_suffix(path: Path, name: str, suffixes: Sequence[str]) -> str:
    """Return the suffix of a path in lower case, or name those that are known."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        reject(name, "a file ending in " + ", ".join(suffixes), repr(path.name))
    return suffix


def check_output(path: Any, name: str, suffixes: Sequence[str], inputs: Iterable[Any] = ()) -> Path:
    """Return the path of a file to be written, or say before any work why it cannot be.

    Parameters
    ----------
    path : str or path
        The file; an existing one may be replaced.
    name : str
        What errors call the file.
    suffixes : sequence of str
        The endings that are known, in lower case; any case is taken.
    inputs : iterable of str or path, default=()
        Files that are read, which must not be the one written.

    Examples
    --------
    >>> check_output("features.txt", "--output", (".npy", ".csv"))
    Traceback (most recent call last):
    ValueError: `--output` must be a file ending in .npy, .csv. Got 'features.txt'.
    """
    target = as_path(path, name)
    check_suffix(target, name, suffixes)
    folder = target.resolve().parent
    if target.is_dir():
        reject(name, "a file, not a folder", target, IsADirectoryError)
    if not folder.is_dir():
        reject(name, "in a folder that exists", target, FileNotFoundError)
    if not os.access(folder, os.W_OK | os.X_OK) or not _takes_files(folder):
        reject(name, "in a folder that is writable", target, PermissionError)
    for source in map(Path, inputs):
        if target.exists() and source.exists() and target.samefile(source):
            reject(name, "another file than the one that is read", target)
    return target


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path in the folder of ``path`` that takes its place when the block succeeds.

    On any exception, an interrupt included, the temporary file is removed and ``path`` is as it was. The mode
    of an existing file is kept, and a link is followed as an ordinary write would. When the block has ended well,
    the file is on the disk: not even a power cut takes it away. An OSError without the name of a file, such as that
    of a full disk, gets that of ``path``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     target = Path(folder) / "values.txt"
    ...     with atomic_path(target) as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     target.read_text()
    '1 2 3'
    """
    target = path.resolve()
    if not target.parent.is_dir():
        reject("path", "in a folder that exists", path, FileNotFoundError)
    if target.is_dir():
        reject("path", "a file, not a folder", path, IsADirectoryError)
    temporary = target.with_name(f".{uuid.uuid4().hex}{target.suffix}")
    try:
        _create(temporary, path)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # else a power cut can leave the new name on empty blocks
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
        _note_written(path)
        _sync_folder(target.parent)
    except OSError as error:
        if not _is_about(error, temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # nothing is left there after a successful replace, or there never was
            temporary.unlink(missing_ok=True)


@contextmanager
def noted_files(written: list[Path]) -> Iterator[None]:
    """Add the files that this thread completes in the block to a list, each once.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> written = []
    >>> with TemporaryDirectory() as folder, noted_files(written):
    ...     for _ in range(2):
    ...         with atomic_path(Path(folder) / "values.txt") as temporary:
    ...             _ = temporary.write_text("1 2 3")
    >>> [path.name for path in written]
    ['values.txt']
    """
    token = _WRITTEN.set(written)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


def _note_written(path: Path) -> None:
    """A file is there now; one that will have its name only when others are complete, too, is not."""
    written = _WRITTEN.get()
    if written is not None and path not in written and not _TEMPORARY.fullmatch(path.name):
        written.append(path)


def _create(temporary: Path, path: Path) -> None:
    """Create the empty temporary file with the usual mode, or say that the folder refuses it."""
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        if error.errno in _NO_PERMISSION:
            reject("path", "in a folder that is writable", path, PermissionError)
        raise  # a full disk, a name too long: the system's own words are better


def _is_about(error: OSError, temporary: Path) -> bool:
    """Whether an error is one of writing this file, and its user has not seen the file's name."""
    if error.filename is None:
        return error.errno in _NO_SPACE
    return temporary.stem in str(error.filename)


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can: the file is whole without it, too."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


# Control signs, halves of pairs that no file can hold, and signs that turn the direction of the text around them.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    r"""Text for HTML, inside and outside of quotes; what cannot be seen is a replacement sign.

    Examples
    --------
    >>> escaped("1 < 2 \x00")
    '1 &lt; 2 \ufffd'
    """
    return html.escape(_UNSEEN.sub("\ufffd", text), quote=True)
