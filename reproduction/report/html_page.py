"""One self-contained HTML page from a folder of records, and all their pictures as files."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from manifoldrf._files import as_path, atomic_path, writable_folder
from manifoldrf._runtime import available, silent
from manifoldrf._validation import check_option, reject
from reproduction.record import Record
from reproduction.report.markdown_page import html_page
from reproduction.report.pages import ENTRY_OF, escape, read_records, results
from reproduction.report.style import FORMATS

Progress = Callable[[str, int, int], None]

_ABOUT = "Every number comes from a saved record of an experiment. The page loads nothing from elsewhere."
# Errors of drawing a record of an older version, or one that was changed by hand.
_LACKING = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def write_report(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str = "Results of manifoldrf",
    progress: Progress = silent,
) -> Path:
    """Write one page with all records of a folder: tables with the paper's values, pictures, origins.

    The page loads nothing from elsewhere. Pictures are drawn from the record if its arrays exist and matplotlib is
    installed; otherwise the page has the .png files beside the record, or says why there are none.

    Parameters
    ----------
    folder : path
        Folder of the records: .json files with or without their .npz files.
    path : path, default=None
        The page; by default ``report.html`` in the folder. The old page stays until the new one is complete.
    title : str
        Heading of the page.
    progress : callable, optional
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
    with atomic_path(target) as temporary:  # an unusable path is an error before anything is drawn
        images, reasons = _images(records, source, progress)

        def picture(name: str, caption: str) -> str:
            if name not in images:
                return escape(f"{name}: {reasons[name]}")
            return f"![{escape(caption)}](images/{name}.png)"

        text = f"# {escape(title)}\n\n" + results(records, _ABOUT, picture)
        embedded = {f"images/{name}.png": data for name, data in images.items()}
        temporary.write_text(html_page(text, title, embedded), encoding="utf-8")
    return target


def draw_all(
    records: str | os.PathLike[str],
    images: str | os.PathLike[str],
    format: str = "png",
    *,
    progress: Progress = silent,
) -> list[Path]:
    """Draw all pictures of all records of a folder into another folder, and return their paths.

    Parameters
    ----------
    records : path
        Folder with the .json and .npz files.
    images : path
        Folder for the pictures; created if needed.
    format : {"png", "pdf", "svg"}
        Format of the pictures.
    progress : callable, optional
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
        progress(f"pictures of {name}", done, len(found))
        try:
            drawn += ENTRY_OF[name].draw(record, target, format)
        except _LACKING as error:
            text = f"{name}.json, where a drawing fails: {type(error).__name__}: {error}"
            reject("records", "with everything that their pictures show", text)
    progress("pictures", len(found), len(found))
    return drawn


def _images(
    records: Mapping[str, Record], folder: Path, progress: Progress
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Name of a picture -> its file, and for the others the reason why there is none."""
    owner = {name: record for record in records for name in ENTRY_OF[record].pictures(record)}
    images: dict[str, bytes] = {}
    reasons: dict[str, str] = {}
    with TemporaryDirectory() as place:
        for done, name in enumerate(owner):
            progress(f"picture {name}", done, len(owner))
            found = _image(records[owner[name]], name, folder, Path(place))
            if isinstance(found, bytes):
                images[name] = found
            else:
                reasons[name] = found
    progress("pictures", len(owner), len(owner))
    return images, reasons


def _image(record: Record, name: str, folder: Path, place: Path) -> bytes | str:
    """The file of one picture, drawn or found beside the record; or the reason why there is none."""
    drawn, reason = _draw(record, name, folder, place)
    if drawn is None and (folder / f"{name}.png").is_file():
        drawn = folder / f"{name}.png"
    return reason if drawn is None else drawn.read_bytes()


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
