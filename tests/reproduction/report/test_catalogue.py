"""The list of experiments leads to their code, and only when it is asked for."""

import ast
import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest

from reproduction.record import Record
from reproduction.report.catalogue import CATALOGUE, Entry


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=lambda entry: entry.name)
def test_every_experiment_has_its_sizes_and_a_run(entry):
    assert set(entry.sizes()) == {"smoke", "paper"}
    assert all(isinstance(config, entry.experiment().Config) for config in entry.sizes().values())
    assert callable(entry.experiment().run)


@pytest.mark.parametrize(
    ("entry", "stem"),
    [(e, s) for e in CATALOGUE.values() for s in e.figures],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_picture_is_named_after_its_experiment_and_has_a_function(entry, stem):
    module, function = entry.figures[stem].split(":")
    assert stem.startswith(entry.name)
    assert callable(getattr(importlib.import_module(f"reproduction.report.{module}"), function))


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
