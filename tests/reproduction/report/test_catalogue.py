"""The list of experiments leads to their code, and only when it is asked for."""

import ast
import subprocess
import sys
from types import SimpleNamespace

from reproduction.record import Record
from reproduction.report.catalogue import Entry


def test_pictures_are_drawn_from_the_record_into_the_folder(monkeypatch, tmp_path):
    drawn = []

    def draw(record, path):
        drawn.append((record.name, path))
        return path

    monkeypatch.setitem(sys.modules, "reproduction.report.toy", SimpleNamespace(draw=draw))
    entry = Entry("toy", "toy", "claim", "about", "columns", figures={"toy_a": "toy:draw", "toy_b": "toy:draw"})
    paths = entry.draw(Record("toy", {}, {}, 0.0), tmp_path)
    assert paths == [tmp_path / "toy_a.png", tmp_path / "toy_b.png"]
    assert drawn == [("toy", path) for path in paths]


def test_the_catalogue_loads_no_experiment_before_it_is_asked_for():
    code = (
        "import sys, reproduction.report.catalogue; "
        "print([m for m in sys.modules if m.split('.')[0] in ('reproduction', 'matplotlib', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {
        "reproduction",
        "reproduction.common",
        "reproduction.files",
        "reproduction.record",
        "reproduction.report",
    }
    assert set(ast.literal_eval(done.stdout)) == loaded | {
        f"reproduction.report.{n}" for n in ("catalogue", "style")
    }
