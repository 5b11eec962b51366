"""The demo: a short answer with correct numbers, complete files, and nothing left behind by an error."""

import warnings

import numpy as np
import pytest
from command_line import invoke

from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Torus, knn_graph, relative_error
from manifoldrf.cli import demo

SURFACES = ["sphere", "ellipsoid", "Möbius strip", "torus"]


@pytest.mark.slow  # the whole demo
def test_the_answer_is_short_and_all_files_are_there(tmp_path):
    folder = tmp_path / "new"
    result = invoke("demo", "--out", folder)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) <= 40
    for name in SURFACES:
        assert name in result.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["demo.png", "explorer.html"]
    for name in ("demo.png", "explorer.html"):
        assert str(folder / name) in result.stdout.replace("\n", "")
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Heat kernel of a torus" in (folder / "explorer.html").read_text()


def test_the_errors_are_those_of_the_library():
    n = 120
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = demo._compare("torus", Torus(), 8, n)
    graph = knn_graph(Torus().grid(n), n_neighbors=8)
    t = graph.time(20.0, dim=2)
    new = Torus().sample(demo.N_NEW, seed=0)
    exact = demo.reference(Torus(), t)(new, new)
    default = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0)
    default.fit(Torus().grid(n))
    budget = demo._SMALL_BUDGET | {"field__n_starts": n // 4}
    paper = ManifoldRandomFeatures.paper(kernel=DiffusionKernel(20.0), graph=None, random_state=0, **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper.fit(graph)
    for column, model in (("error, default", default), ("error, paper's recipe", paper)):
        expected = relative_error(model.kernel_matrix(new), exact, alignment="frobenius")
        np.testing.assert_allclose(found.row[column], expected, rtol=1e-9)
