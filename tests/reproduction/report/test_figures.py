"""Figures are drawn from records alone."""

import numpy as np
import pytest

from reproduction.record import Record
from reproduction.report import figures
from reproduction.report.figures import draw_graph_convergence, draw_surface_graphs, draw_teachers
from reproduction.surface_graphs import Config, run


@pytest.fixture(scope="module")
def record():
    return run(Config(n_nodes=500, t=0.1, n_queries=20, sizes=(500,)))


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_format_follows_the_suffix(record, tmp_path, suffix, magic):
    path = draw_surface_graphs(record, tmp_path / f"figure.{suffix}")
    assert path.read_bytes().startswith(magic)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_the_picture_is_not_blank(record, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pixels = pyplot.imread(draw_surface_graphs(record, tmp_path / "figure.png"))
    ink = (pixels[..., :3].min(axis=2) < 0.9).mean()
    assert 0.05 < ink < 0.8
    assert len(np.unique((pixels[..., :3] * 255).astype(int).reshape(-1, 3), axis=0)) > 100  # many colours


def test_an_unknown_format_leaves_nothing_behind(record, tmp_path):
    with pytest.raises(ValueError, match="nonsense"):
        draw_surface_graphs(record, tmp_path / "figure.nonsense")
    assert not list(tmp_path.iterdir())


def _teachers():
    rows = [
        {"surface": surface, "estimator": name, "steps": steps, "error": 1 / steps**power}
        for surface in ("sphere", "mobius")
        for name, power in (("walks", 0.5), ("counts", 1.0))
        for steps in (1e3, 1e4, 1e5)
    ]
    return Record("teachers", {"tau": 20.0, "n_nodes": 100}, {"budgets": rows}, 1.0)


def test_the_teachers_are_drawn_from_their_table_alone(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pixels = pyplot.imread(draw_teachers(_teachers(), tmp_path / "figure.png"))
    assert 0.01 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.5


def test_exponents_of_the_teachers_are_those_of_their_errors(keep_figures):
    figure = keep_figures(figures, draw_teachers)(_teachers())
    for axes in figure.axes:
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert labels == ["walks  $\\propto s^{-0.50}$", "counts  $\\propto s^{-1.00}$"]


def _convergence(*nodes):
    rows = [{"nodes": n, "exp(-tau L), k = 8": 3 / n, "W^n, heat graph": 9 / n**2} for n in nodes]
    return Record("surface_graphs", {"t": 0.1}, {"convergence": rows}, 1.0)


def test_convergence_of_graphs_has_both_lines_with_exponents(keep_figures, tmp_path):
    figure = keep_figures(figures, draw_graph_convergence)(_convergence(100, 400, 1600))
    lines = figure.axes[0].get_lines()
    np.testing.assert_allclose(lines[1].get_ydata(), [9 / n**2 for n in (100, 400, 1600)])
    assert [line.get_label().split("propto")[1] for line in lines] == [" N^{-1.00}$", " N^{-2.00}$"]
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"


def test_two_numbers_of_nodes_have_lines_and_no_exponents(keep_figures):
    lines = keep_figures(figures, draw_graph_convergence)(_convergence(100, 400)).axes[0].get_lines()
    assert [len(line.get_xdata()) for line in lines] == [2, 2]
    assert not any("propto" in line.get_label() for line in lines)


def test_one_number_of_nodes_is_no_convergence(tmp_path):
    assert draw_graph_convergence(_convergence(100), tmp_path / "figure.png") is None
    assert not list(tmp_path.iterdir())
