"""The HTML page is whole, loads nothing, says what the records say, and takes nothing in them for markup."""

import base64
import dataclasses
import re
from html.parser import HTMLParser

import pytest

from reproduction.record import Record
from reproduction.report import html_page
from reproduction.report.html_page import draw_all, write_report
from reproduction.report.markdown_page import html_page as as_html
from reproduction.report.pages import results_page

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=y> & \u202eback \x00 \ud800 [a](http://b.c)"
VOID = {"meta", "img"}
LOADING = {"src", "srcset", "poster", "data", "action", "formaction", "background", "xlink:href"}


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.cells, self.text, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if "td" in self.open or "th" in self.open:
            self.cells[-1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def check(text):
    """Balanced tags, nothing loaded, nothing run, links that lead somewhere."""
    page = Page(text)
    assert not page.open
    names = {name for name, _ in page.tags}
    assert not names & {"script", "iframe", "object", "embed", "link", "base", "form", "svg"}
    for name, attrs in page.tags:
        assert not any(key.startswith("on") for key in attrs), attrs
        for key in LOADING & attrs.keys():
            assert (name, key) == ("img", "src")
            assert attrs[key].startswith("data:image/png;base64,")
    assert len(set(page.ids)) == len(page.ids)
    for link in page.all("a"):
        assert link["href"].removeprefix("#") in page.ids
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    return page


def teachers(**changes):
    rows = [
        {"surface": surface, "estimator": name, "steps": steps, "error": 1 / steps**power}
        for surface in ("sphere", "mobius")
        for name, power in (("walks", 0.5), ("counts", 1.0))
        for steps in (1e3, 1e4)
    ]
    tables = {"teachers": rows[:2], "budgets": rows}
    made = {"commit": "abc1234", "machine": "a machine", "command": "manifoldrf reproduce teachers --size paper"}
    return dataclasses.replace(Record("teachers", {"tau": 20.0, "n_nodes": 100}, tables, 65.0, made), **changes)


def brodatz():
    """One number of ours is worse than the paper's, one is not."""
    rows = [
        {"block": "plain", "method": "MRF", "accuracy": 50.5, "paper_accuracy": 55.7},
        {"block": "plain", "method": "raw", "accuracy": 44.5, "paper_accuracy": 42.4},
    ]
    return Record("brodatz", {"seed": 0}, {"brodatz": rows, "by_k": []}, 1.0, {"commit": "def5678"})


@pytest.fixture
def folder(tmp_path):
    teachers().save(tmp_path)
    brodatz().save(tmp_path).with_suffix(".npz").unlink()
    return tmp_path


def test_the_page_is_whole_and_has_everything_of_a_record(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    page = check(text)
    assert page.all("html") == [{"lang": "en"}]
    said = " ".join(page.text)
    for words in (
        "Counted walkers are many times more accurate",  # claim
        "Every way to compute signatures",  # about
        "python -m reproduction teachers --size paper",
        "Took 1 min 5 s. Settings",
        "abc1234",
        "a machine",
        "relative error of signature rows",  # what columns mean
        "In 1 of 2 numbers:",
        "another descriptor and another graph",  # the reason
        "No number of the paper stands beside those of this record.",
    ):
        assert words in said
    assert {"#teachers", "#brodatz", "#how-it-was-made"} <= {link["href"] for link in page.all("a")}


def test_every_cell_is_on_both_pages(folder):
    records = {"brodatz": brodatz(), "teachers": teachers()}
    cells = check(write_report(folder).read_text(encoding="utf-8")).cells
    lines = [line for line in results_page(records).splitlines() if line.startswith("| ")]
    assert "50.5 (55.7)" in cells
    assert cells == [text.replace("\\", "") for line in lines for text in line[2:-2].split(" | ")]


def test_hostile_strings_are_text(tmp_path):
    """Names of tables, columns and settings, values, commands and versions of a record are anybody's."""
    rows = [{HOSTILE: HOSTILE, "method": HOSTILE, "surface": HOSTILE, "error": 1.0, "paper": 0.5}]
    record = teachers(
        config={HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE] * 9}},
        tables={HOSTILE: rows, "teachers": rows},
        environment={"command": HOSTILE, "commit": HOSTILE, HOSTILE: HOSTILE},
    )
    record.save(tmp_path).with_suffix(".npz").unlink()
    text = write_report(tmp_path, title=HOSTILE).read_text(encoding="utf-8")
    page = check(text)
    assert not page.all("img")
    shown = HOSTILE.replace("\u202e", "\ufffd").replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert page.cells.count(shown) >= 6  # headings and values of both tables
    assert "".join(page.text).count("<script>alert(1)</script>") > 10
    assert text.count("<script") == 0


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(folder, tmp_path):
    first = write_report(folder, tmp_path / "a.html").read_bytes()
    assert write_report(folder, tmp_path / "b.html").read_bytes() == first


def test_pictures_are_drawn_into_the_page_with_their_captions(folder):
    (image,) = check(write_report(folder).read_text(encoding="utf-8")).all("img")
    data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
    assert data.startswith(b"\x89PNG")
    assert "Error of signature rows against steps per start" in write_report(folder).read_text(encoding="utf-8")


def test_without_arrays_the_picture_beside_the_record_is_taken_or_a_sentence_says_why(folder):
    (folder / "brodatz.png").write_bytes(b"picture")
    (folder / "teachers.npz").unlink()
    page = check(write_report(folder).read_text(encoding="utf-8"))
    (image,) = page.all("img")
    assert base64.b64decode(image["src"].partition(",")[2]) == b"picture"
    assert (
        "teachers: No picture: the folder has neither teachers.npz, to draw it from, nor teachers.png." in page.text
    )


def test_without_matplotlib_the_page_says_how_to_install_it(folder, monkeypatch):
    monkeypatch.setattr(html_page, "available", lambda package: False)
    page = check(write_report(folder).read_text(encoding="utf-8"))
    assert not page.all("img")
    assert "pip install 'manifoldrf[viz]'" in "".join(page.text)


def test_a_record_that_lacks_what_a_picture_shows_has_a_sentence_instead(folder):
    teachers(tables={"teachers": [{"error": 0.5}]}).save(folder)
    page = check(write_report(folder).read_text(encoding="utf-8"))
    assert "the record lacks what it shows (KeyError: 'budgets')." in "".join(page.text)


def test_a_picture_without_anything_to_show_has_a_sentence_instead(tmp_path):
    Record("few_labels", {}, {"accuracy": []}, 1.0).save(tmp_path)
    said = "".join(check(write_report(tmp_path).read_text(encoding="utf-8")).text)
    assert "few_labels_damage: No picture: the record has nothing to show in it." in said


def test_an_empty_or_missing_folder_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(FileNotFoundError, match=rf"a folder with the \.json files of records\. Got {folder}\."):
            write_report(folder)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("teachers.json", "{broken", r"Got teachers\.json: "),
        ("other.json", '{"a": 1}', r"Got other\.json: "),
        ("teachers.npz", "no archive", r"Got teachers\.json: "),
    ],
)
def test_broken_and_foreign_files_are_refused_by_name_and_the_old_page_stays(folder, name, content, message):
    (folder / "report.html").write_text("old")
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=rf"must be the \.json file of a saved record\. {message}"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "old"


def test_a_record_of_another_experiment_is_refused_by_name(folder):
    dataclasses.replace(teachers(), name="unknown").save(folder)
    with pytest.raises(ValueError, match=r"named after their experiment: .* Got 'unknown' in unknown\.json"):
        write_report(folder)


@pytest.mark.parametrize("title", ["", "  ", 3])
def test_a_page_without_a_title_is_refused(folder, title):
    with pytest.raises(ValueError, match="`title` must be a text that is not empty"):
        write_report(folder, title=title)


def test_progress_is_reported_and_an_interrupt_leaves_nothing(folder):
    steps = []
    write_report(folder, progress=lambda *step: steps.append(step))
    assert steps == [("picture brodatz", 0, 2), ("picture teachers", 1, 2), ("pictures", 2, 2)]
    before = sorted(folder.iterdir())

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(folder, folder / "new.html", progress=stop)
    assert sorted(folder.iterdir()) == before


def test_names_for_links_are_unique_and_plain():
    assert check(as_html("## a b\n\n## A-b\n\n## é", "T")).ids == ["a-b", "a-b-again", "part"]


def test_all_pictures_of_a_folder_are_drawn_into_another(tmp_path):
    teachers().save(tmp_path)
    steps = []
    paths = draw_all(tmp_path, tmp_path / "new" / "images", "pdf", progress=lambda *step: steps.append(step))
    assert paths == [tmp_path / "new" / "images" / "teachers.pdf"]
    assert steps == [("pictures of teachers", 0, 1), ("pictures", 1, 1)]


def test_records_without_arrays_are_not_drawn(folder):
    with pytest.raises(FileNotFoundError, match=r"with the \.npz files of all records\. Got no brodatz\.npz\."):
        draw_all(folder, folder / "images")
    assert not (folder / "images").exists()


def test_pictures_in_an_unknown_format_are_refused(folder):
    with pytest.raises(ValueError, match=r"`format` must be one of 'png', 'pdf', 'svg'\. Got 'tiff'"):
        draw_all(folder, folder / "images", "tiff")


def test_a_record_that_lacks_what_its_pictures_show_is_named_and_no_figure_stays_open(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    teachers(config={}).save(tmp_path)  # found missing when the figure is half done
    with pytest.raises(
        ValueError, match=r"everything that their pictures show\. Got teachers\.json, .*KeyError: 'tau'"
    ):
        draw_all(tmp_path, tmp_path / "images")
    assert not pyplot.get_fignums()
