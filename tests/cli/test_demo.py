"""The demo: a short answer with correct numbers, complete files, and nothing left behind by an error."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import invoke, main

from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Torus, knn_graph, relative_error
from manifoldrf.cli import demo

SURFACES = ["sphere", "ellipsoid", "Möbius strip", "torus"]


@pytest.fixture(scope="module")
def small():
    """A demo of a few seconds: small graphs, almost no training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "N_NODES", 200)
        patch.setitem(demo._SMALL_BUDGET, "field__epochs", 1)
        patch.setitem(demo._SMALL_BUDGET, "teacher__n_walks", 100)
        yield


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    """Output of the demo, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "new"
    return invoke("demo", "--out", folder), folder


def test_the_answer_is_short_and_all_files_are_there(run):
    result, folder = run
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) <= 40
    for name in SURFACES:
        assert name in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["demo.png", "explorer.html"]
    for name in ("demo.png", "explorer.html"):
        assert str(folder / name) in result.stdout.replace("\n", "")
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Heat kernel of a torus" in (folder / "explorer.html").read_text()


def test_the_errors_are_those_of_the_library(small):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = demo._compare("torus", Torus(), 8, demo.N_NODES)
    graph = knn_graph(Torus().grid(demo.N_NODES), n_neighbors=8)
    t = graph.time(20.0, dim=2)
    new = Torus().sample(demo.N_NEW, seed=0)
    exact = demo.reference(Torus(), t)(new, new)
    default = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0)
    default.fit(Torus().grid(demo.N_NODES))
    budget = demo._SMALL_BUDGET | {"field__n_starts": demo.N_NODES // 4}
    paper = ManifoldRandomFeatures.paper(kernel=DiffusionKernel(20.0), graph=None, random_state=0, **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper.fit(graph)
    for column, model in (("error, default", default), ("error, paper's recipe", paper)):
        expected = relative_error(model.kernel_matrix(new), exact, alignment="frobenius")
        np.testing.assert_allclose(found.row[column], expected, rtol=1e-9)
    assert found.row["speed-up"] >= 0


@pytest.fixture
def found(monkeypatch):
    """Numbers without any work."""
    row = {"surface": "torus", "error, default": 0.25, "speed-up": 7}
    surface = demo.Surface(np.eye(3), row, {"reference": np.ones(3), "default": np.ones(3)}, None)
    monkeypatch.setattr(demo, "measure", lambda report: [surface])
    monkeypatch.setattr("manifoldrf.explorer.page.explore", lambda model, path, title: None)
    return SimpleNamespace(row=surface.row)


def test_json_has_the_table_and_the_files(found, tmp_path):
    facts = json.loads(invoke("demo", "--out", tmp_path, "--json").stdout)
    assert facts["surfaces"] == [found.row]
    assert facts["files"]["explorer"] == str(tmp_path / "explorer.html")
    assert invoke("demo", "--out", tmp_path, "--quiet").output == ""


def test_missing_extras_are_named(found, monkeypatch, tmp_path):
    monkeypatch.setattr("manifoldrf.cli.demo.available", lambda package: False)
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "pip install 'manifoldrf[viz]'" in text
    assert "pip install 'manifoldrf[torch]'" in text
    assert not (tmp_path / "demo.png").exists()


@pytest.mark.usefixtures("found")
def test_an_error_leaves_nothing_behind(monkeypatch, capsys, tmp_path):
    def fail(*_):
        raise ValueError("no table today")

    monkeypatch.setattr(demo, "measure", fail)
    assert main(monkeypatch, "demo", "--out", tmp_path / "a" / "b") == 1
    assert capsys.readouterr().err == "no table today\n"
    assert not list(tmp_path.iterdir())
