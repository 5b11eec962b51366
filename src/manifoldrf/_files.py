"""Paths, files and text for HTML. A write leaves either the old file or the complete new file.

Until a file is complete, it has a temporary name: a dot, 32 hexadecimal digits and the suffix of the file. (An .npz
file also has a folder of that name without the suffix.) Only a killed process leaves such files. Nothing reads
them, and they can be deleted.
"""

import errno
import html
import os
import re
import shutil
import signal
import stat
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from manifoldrf._validation import reject

_NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # full disk, full quota, limit of the file size
_WAITS = (0.01, 0.05, 0.2, 0.5) if os.name == "nt" else ()  # seconds
TEMPORARY = re.compile(r"\.[0-9a-f]{32}(\.\w+)?")
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("manifoldrf files", default=None)
# Control characters, unpaired surrogates (which cannot be encoded), and characters that change the text direction.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


# --------------------------------------------------------------------------------------------- paths that are read
def as_path(path: Any, name: str = "path") -> Path:
    """Return a string or path-like object as a Path."""
    if not isinstance(path, str | os.PathLike):
        reject(name, "a string or a path", repr(path), TypeError)
    if not os.fspath(path):
        reject(name, "a path that is not empty", repr(path))
    return Path(path)


def existing_file(path: Any, name: str = "path") -> Path:
    """Return the path of an existing regular file; a pipe could not be read twice."""
    file = as_path(path, name)
    if file.is_dir():
        reject(name, "a file, not a folder", file, IsADirectoryError)
    if not file.exists():
        reject(name, "an existing file", file, FileNotFoundError)
    if not file.is_file():
        reject(name, "an ordinary file, not a pipe or a device", file)
    return file


def check_suffix(path: Path, name: str, suffixes: Sequence[str]) -> str:
    """Return the suffix of a path in lower case, if it is one of these."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        reject(name, "a file ending in " + ", ".join(suffixes), repr(path.name))
    return suffix


# ------------------------------------------------------------------------------------------ paths that are written
def check_output(path: Any, name: str, suffixes: Sequence[str], inputs: Iterable[Any] = ()) -> Path:
    """Check in advance that a file can be written, and return its path.

    Parameters
    ----------
    path : str or path
        The file; an existing one may be replaced.
    name : str
        Name of the file in errors.
    suffixes : sequence of str
        Known suffixes in lower case; the file may use any case.
    inputs : iterable of str or path, default=()
        Files that are read, which must not be overwritten.

    Examples
    --------
    >>> check_output("features.txt", "--output", (".npy", ".csv"))
    Traceback (most recent call last):
    ValueError: `--output` must be a file ending in .npy, .csv. Got 'features.txt'.
    """
    target = as_path(path, name)
    if str(path) == "-":
        reject(name, f"a file ending in {', '.join(suffixes)}; nothing goes to standard output", path)
    file = output_file(target, name)
    if not target.suffix:
        rule = f"a file ending in {', '.join(suffixes)}, such as {target.name}{suffixes[0]}"
        reject(name, rule, repr(target.name))
    check_suffix(target, name, suffixes)
    if not _is_writable(file.parent):
        reject(name, "in a folder that is writable", target, PermissionError)
    for source in map(Path, inputs):
        if target.exists() and source.exists() and target.samefile(source):
            reject(name, "another file than the one that is read", target)
    return target


def output_file(path: Any, name: str = "path") -> Path:
    """Resolve the links of a path and return the file, if it is a regular file or a new one.

    A device or a pipe must never be replaced: run as root, that would destroy the null device.
    """
    target = as_path(path, name)
    try:
        mode = target.stat().st_mode  # of the unresolved path: some links in /proc resolve to no name
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    except (OSError, ValueError) as error:  # no permission, a cycle of links, a long name, NUL
        kind = PermissionError if getattr(error, "errno", None) in _NO_PERMISSION else ValueError
        reject(name, f"a path that can be used ({getattr(error, 'strerror', error)})", repr(os.fspath(path)), kind)
    if stat.S_ISDIR(mode):
        reject(name, "a file, not a folder", path, IsADirectoryError)
    if not stat.S_ISREG(mode):
        reject(name, "an ordinary file, not a device, pipe or socket", path)
    file = target.resolve()
    if not file.parent.is_dir():
        reject(name, "in a folder that exists", path, FileNotFoundError)
    return file


@contextmanager
def folder_for_results(folder: Any, name: str = "folder") -> Iterator[Path]:
    """Yield a folder that files can be written to; it is made if needed.

    If the block fails, new folders that are empty are removed.
    """
    path = as_path(folder, name)
    made = [place for place in (path, *path.parents) if not place.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            reject(name, "a folder, or a new name for one", path, NotADirectoryError)
        except OSError as error:
            if error.errno not in _NO_PERMISSION:
                raise  # full disk, long name: the system's message is better
            reject(name, "a folder in a place that is writable", path, PermissionError)
        if not _is_writable(path):
            reject(name, "a folder that is writable", path, PermissionError)
        yield path
    except BaseException:
        with suppress(OSError):  # the first folder that is not empty
            for place in made:
                place.rmdir()
        raise


def _is_writable(folder: Path) -> bool:
    """Whether a file can be created in a folder; tries it, because permissions are not reliable on all disks."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        probe.touch(exist_ok=False)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise OSError(error.errno, error.strerror, str(folder)) from error  # writable, but full
        return False
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return True


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which replaces ``path`` when the block succeeds.

    After any exception, including an interrupt, the temporary file is removed and ``path`` is unchanged. The mode
    of an existing file is kept, and a link is followed. After success the file is on disk and survives a power cut.
    An OSError without a file name, for example from a full disk, gets the name ``path``.

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
    with atomic_paths([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Do the same for several files: all are replaced, or none.

    Signals wait while the files are renamed. Only a kill, a power cut or a disk error in these microseconds can
    leave some files unreplaced.
    """
    targets = [output_file(path) for path in paths]
    # With the suffix that was asked for: with that of a link's target, or in capitals, writers make a second file.
    suffixes = [path.suffix.lower() for path in paths]
    drafts = [target.with_name(f".{uuid.uuid4().hex}{end}") for target, end in zip(targets, suffixes, strict=True)]
    try:
        for draft in drafts:
            draft.touch(exist_ok=False)
        yield drafts
        _put_in_place(drafts, targets, paths)
        for folder in dict.fromkeys(target.parent for target in targets):
            _sync_folder(folder)
    except OSError as error:
        meant = [path for draft, path in zip(drafts, paths, strict=True) if draft.stem in str(error.filename)]
        if error.filename is None and error.errno in _NO_SPACE + _NO_PERMISSION:
            meant = [paths[0]]
        if not meant:
            raise
        if error.errno in _NO_PERMISSION:
            reject("path", "in a folder that is writable", meant[0], PermissionError)
        raise OSError(error.errno, error.strerror, str(meant[0])) from error
    finally:
        for draft in drafts:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _put_in_place(drafts: Sequence[Path], targets: Sequence[Path], paths: Sequence[Path]) -> None:
    """Rename complete files to their targets; signals wait if there are several."""
    for draft, target in zip(drafts, targets, strict=True):
        with draft.open("rb+") as file:
            os.fsync(file.fileno())  # otherwise a power cut can leave the new name on empty blocks
        if target.exists():
            shutil.copymode(target, draft)
    with ExitStack() as waiting:
        if len(paths) > 1:
            _hold_signals(waiting)
        for draft, target in zip(drafts, targets, strict=True):
            replace_file(draft, target)
        written = _WRITTEN.get()  # parts of another file have temporary names
        if written is not None:
            written += [path for path in paths if path not in written and not TEMPORARY.fullmatch(path.name)]


def replace_file(draft: Path, target: Path, waits: Sequence[float] = _WAITS) -> None:
    """Rename a file. Windows refuses while another program has the old file open, often only for a moment."""
    for wait in waits:
        with suppress(PermissionError):
            draft.replace(target)
            return
        time.sleep(wait)
    draft.replace(target)


def _hold_signals(block: ExitStack) -> None:
    """Defer signals that end the program until the block ends; only the main thread receives them."""
    if threading.current_thread() is not threading.main_thread():
        return
    came: list[int] = []

    def send_again() -> None:
        for number in dict.fromkeys(came):
            signal.raise_signal(number)

    block.callback(send_again)
    known = signal.Signals.__members__  # not every system has all of them
    for number in (known[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in known):
        handler = signal.getsignal(number)
        if handler not in (None, signal.SIG_IGN):
            block.callback(signal.signal, number, handler)
            signal.signal(number, lambda number, _: came.append(number))


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the system can. The content of the file is already on disk."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def noted_files(written: list[Path]) -> Iterator[None]:
    """Add each file that this thread completes in the block to a list.

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


def visible(text: str) -> str:
    """Replace characters that cannot be displayed or encoded by replacement characters."""
    return _INVISIBLE.sub("\ufffd", text)


def escaped(text: str) -> str:
    r"""Escape text for HTML, inside and outside of quotes. Invisible characters become replacement characters.

    Examples
    --------
    >>> escaped("1 < 2 \x00")
    '1 &lt; 2 \ufffd'
    """
    return html.escape(visible(text), quote=True)


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A two-column HTML table of names and texts, for notebooks.

    Examples
    --------
    >>> html_table("Graph", [("nodes", "5 < 6")]).count("5 &lt; 6")
    1
    """
    style = 'style="text-align:left;vertical-align:top;padding-right:1em;white-space:{}"'  # not the notebook's
    head, cell = style.format("nowrap"), style.format("normal")
    lines = (f"<tr><th {head}>{escaped(name)}</th><td {cell}>{escaped(text)}</td></tr>" for name, text in rows)
    return f"<table><caption {head}><b>{escaped(title)}</b></caption>{''.join(lines)}</table>"
