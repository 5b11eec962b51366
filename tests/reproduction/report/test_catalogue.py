"""The list of experiments leads to their code, and only when it is asked for."""

import ast
import importlib
import subprocess
import sys
from types import SimpleNamespace

import pytest
from pictures import shows_something

from reproduction.record import Record
from reproduction.report.catalogue import CATALOGUE, ENTRIES, Entry


def test_names_are_unique_and_in_order():
    assert list(CATALOGUE) == [
        "surfaces",
        "ambient",
        "gaussian_grid",
        "normals",
        "velocity",
        "attention",
        "attention_order",
        "brodatz",
        "hyperbolic",
        "few_labels",
        "surface_graphs",
        "teachers",
    ]
    assert len(ENTRIES) == len(CATALOGUE)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_experiment_has_its_sizes_and_a_run(entry):
    assert set(entry.sizes()) == {"smoke", "paper"}
    assert all(isinstance(config, entry.experiment().Config) for config in entry.sizes().values())
    assert callable(entry.experiment().run)


@pytest.mark.parametrize(
    ("entry", "stem"), [(e, s) for e in ENTRIES for s in e.figures], ids=lambda value: getattr(value, "name", value)
)
def test_every_picture_is_named_after_its_experiment_and_has_a_function(entry, stem):
    module, function = entry.figures[stem].split(":")
    assert stem.startswith(entry.name)
    assert callable(getattr(importlib.import_module(f"reproduction.report.{module}"), function))


def test_claims_are_one_sentence():
    for entry in ENTRIES:
        assert len(entry.claim) <= 110
        assert entry.claim.endswith(".")


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


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_pictures_have_the_format_that_is_asked_for(tmp_path, suffix):
    rows = [{"surface": "torus", "estimator": "counts", "steps": 10.0 * k, "error": 1 / k} for k in (1, 2)]
    record = Record("teachers", {"tau": 20.0, "n_nodes": 9}, {"budgets": rows}, 1.0)
    paths = CATALOGUE["teachers"].draw(record, tmp_path, format=suffix)
    assert paths == [tmp_path / f"teachers.{suffix}"]
    assert shows_something(paths[0])


@pytest.mark.parametrize("bad", ["tiff", "PNG", None])
def test_a_format_that_is_none_is_refused_before_anything_is_drawn(tmp_path, bad):
    with pytest.raises(ValueError, match=r"`format` must be one of 'png', 'pdf', 'svg'\. Got"):
        CATALOGUE["teachers"].draw(Record("teachers", {}, {}, 1.0), tmp_path, format=bad)
    assert not list(tmp_path.iterdir())


def test_captions_are_sentences_without_words_for_programmers():
    for entry in ENTRIES:
        for name in entry.pictures(entry.name):
            caption = entry.caption(entry.name, name)
            assert caption[0].isupper()
            assert caption.endswith(".")
            assert "None" not in caption


def test_the_catalogue_loads_no_experiment_before_it_is_asked_for():
    code = (
        "import sys, reproduction.report.catalogue; "
        "print([m for m in sys.modules if m.split('.')[0] in ('reproduction', 'matplotlib', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {"reproduction", "reproduction.files", "reproduction.record", "reproduction.report"}
    assert set(ast.literal_eval(done.stdout)) == loaded | {
        f"reproduction.report.{n}" for n in ("catalogue", "style")
    }
