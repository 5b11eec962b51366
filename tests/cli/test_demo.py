"""The demo: a short answer with correct numbers, complete files, and nothing left behind by an error."""

import warnings

import numpy as np
import pytest
from command_line import invoke

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


@pytest.mark.slow  # four surfaces, each with a training
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
