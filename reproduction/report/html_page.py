"""One self-contained HTML page from a folder of records, and all their pictures as files."""

import base64
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from manifoldrf._files import as_path, atomic_path, writable_folder
from manifoldrf._runtime import available
from manifoldrf._validation import check_option, reject
from reproduction.record import Record
from reproduction.report._blocks import Block, Paragraph, Picture
from reproduction.report._html import Image, html_page
from reproduction.report._sections import ENTRY_OF, results
from reproduction.report._style import FORMATS
from reproduction.report.pages import read_records

Progress = Callable[[str, int, int], None]

# What drawing a record of an older version, or one that was changed by hand, comes to.
_LACKING = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_report(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Results of manifoldrf",
    progress: Progress | None = None,
) -> Path:
    """Write one page that shows all records of a folder: tables with the paper's values, pictures, origins.

    The page loads nothing from elsewhere. Pictures are drawn from the record where its arrays are there and
    matplotlib is installed; else they are the .png files beside the record, or a sentence says why there are none.

    Parameters
    ----------
    folder : path
        Where the records are, as .json files with or without their .npz files.
    path : path, default=None
        The page; ``report.html`` in the folder if it is None. The old page stays until the new one is complete.
    title : str
        Heading of the page.
    progress : callable, default=None
        Called with a text, the number of pictures done and their total.

    Returns
    -------
    path : Path

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Record("few_labels", {"seed": 0}, {"losses": [{"ours": 0.5}]}, 1.0).save(folder)
    ...     (Path(folder) / "few_labels.npz").unlink()
    ...     write_report(folder).name
    'report.html'
    """
    if not isinstance(title, str) or not title.strip():
        reject("title", "a text that is not empty", repr(title))
    records = read_records(folder, arrays=True)
    source = as_path(folder)
    target = source / "report.html" if path is None else as_path(path)
    about = Paragraph.of("Every number here comes from a saved record of an experiment. The page loads nothing.")
    blocks = results(records, title, about)
    with atomic_path(target) as temporary:  # a place that cannot be written to is an error before anything is drawn
        images = _images(blocks, records, source, progress)
        temporary.write_text(html_page(blocks, images, title), encoding="utf-8")
    return target


def draw_all(
    records: str | os.PathLike[str],
    images: str | os.PathLike[str],
    format: str = "png",
    *,
    progress: Progress | None = None,
) -> list[Path]:
    """Draw all pictures of all records of a folder into another, which is made if needed, and return their paths.

    Parameters
    ----------
    records : path
        Folder with the .json and .npz files.
    images : path
        Folder for the pictures.
    format : {"png", "pdf", "svg"}
        What they are; text of the last two is sharp at any size.
    progress : callable, default=None
        Called with a text, the number of records done and their total.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     rows = [{"surface": "torus", "estimator": "counts", "steps": 100 * k, "error": 0.1 / k} for k in (1, 2)]
    ...     _ = Record("teachers", {"tau": 20.0, "n_nodes": 50}, {"budgets": rows}, 1.0).save(folder)
    ...     [path.name for path in draw_all(folder, folder, format="svg")]
    ['teachers.svg']
    """
    check_option(format, "format", FORMATS)
    found = read_records(records, arrays=True)
    for name in found:
        if not (as_path(records) / f"{name}.npz").exists():
            reject("records", "with the .npz files of all records", f"no {name}.npz", FileNotFoundError)
    target = writable_folder(images, "images")
    drawn = []
    for done, (name, record) in enumerate(found.items()):
        _tell(progress, f"pictures of {name}", done, len(found))
        try:
            drawn += ENTRY_OF[name].draw(record, target, format)
        except _LACKING as error:
            text = f"{name}.json, where a drawing fails: {type(error).__name__}: {error}"
            reject("records", "with everything that their pictures show", text)
    _tell(progress, "pictures", len(found), len(found))
    return drawn


def _images(
    blocks: list[Block], records: Mapping[str, Record], folder: Path, progress: Progress | None
) -> dict[str, Image]:
    """Name of a picture -> the picture, or why there is none."""
    names = [block.name for block in blocks if isinstance(block, Picture)]
    owner = {name: record for record in records for name in ENTRY_OF[record].pictures(record)}
    images = {}
    with TemporaryDirectory() as place:
        for done, name in enumerate(names):
            _tell(progress, f"picture {name}", done, len(names))
            images[name] = _image(records[owner[name]], name, folder, Path(place))
    _tell(progress, "pictures", len(names), len(names))
    return images


def _image(record: Record, name: str, folder: Path, place: Path) -> Image:
    """One picture: drawn, else found, else a reason."""
    drawn, reason = _draw(record, name, folder, place)
    if drawn is None and (folder / f"{name}.png").is_file():
        drawn = folder / f"{name}.png"
    return Image(reason=reason) if drawn is None else _embed(drawn.read_bytes())


def _draw(record: Record, name: str, folder: Path, place: Path) -> tuple[Path | None, str]:
    """The path of a picture drawn from its record, or None and the reason."""
    if not (folder / f"{record.name}.npz").exists():
        return None, f"No picture: the folder has neither {record.name}.npz, to draw it from, nor {name}.png."
    if not available("matplotlib"):
        return None, "No picture: matplotlib is not installed. Install it with: pip install 'manifoldrf[viz]'"
    try:
        drawn = ENTRY_OF[record.name].draw_one(record, name, place / f"{name}.png")
    except _LACKING as error:
        return None, f"No picture: the record lacks what it shows ({type(error).__name__}: {error})."
    return drawn, "" if drawn else "No picture: the record has nothing to show in it."


def _embed(data: bytes) -> Image:
    """A file as part of the page, with its size where it is a png indeed."""
    size = None
    if data.startswith(_SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        size = int(width), int(height)
    return Image("data:image/png;base64," + base64.b64encode(data).decode("ascii"), size)


def _tell(progress: Progress | None, text: str, done: int, total: int) -> None:
    if progress is not None:
        progress(text, done, total)
