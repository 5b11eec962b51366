"""The figure of ambient features is drawn from the record alone."""

import numpy as np
import pytest
from pictures import shows_something

from reproduction.ambient import PAPER, PAPER_COLUMNS
from reproduction.record import Record
from reproduction.report import ambient
from reproduction.report.ambient import draw_ambient

pyplot = pytest.importorskip("matplotlib.pyplot")
SURFACES = ("sphere", "ellipsoid", "mobius", "torus")


def _record(*, with_paper=True):
    """A record with two methods; the surface's own is exact with all features."""
    best, curves = [], []
    for surface in SURFACES:
        for method, errors in (("MRF", (0.5, 0.01, 2e-7)), ("RFF", (0.9, 0.4, 0.2))):
            for size, error in zip((64, 512, 4000), errors, strict=True):
                key = {"surface": surface, "method": method, "features": size, "error": error}
                curves.append(key)
                figures = PAPER.get((surface, method, size)) if with_paper else None
                best.append(key | dict(zip(PAPER_COLUMNS, figures or (None,) * 6, strict=True)))
    verdict = [{"surface": surface, "gaussian": 0.1} for surface in SURFACES]
    tables = {"best": best, "curves": curves, "verdict": verdict}
    return Record("ambient", {}, tables, 0.0, environment={})


@pytest.fixture
def drawn(keep_figures):
    return keep_figures(ambient, draw_ambient)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_picture_is_written(tmp_path, suffix):
    path = draw_ambient(_record(), tmp_path / f"ambient.{suffix}")
    assert shows_something(path)
    assert not pyplot.get_fignums()


def test_every_surface_has_a_panel_with_every_line(drawn):
    figure = drawn(_record())
    assert [axes.get_title() for axes in figure.axes] == ["sphere", "ellipsoid", "Möbius strip", "torus"]
    for axes in figure.axes:
        assert axes.get_xscale() == axes.get_yscale() == "log"
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert list(lines["RFF"].get_xdata()) == [64, 512, 4000]
        assert list(lines["RFF"].get_ydata()) == [0.9, 0.4, 0.2]
        own = lines["MRF: features of the surface"]
        assert own.get_linewidth() > lines["RFF"].get_linewidth()


def test_an_error_below_the_panel_is_written_out(drawn):
    figure = drawn(_record())
    assert all("2e-07 with\n4,000 features" in [t.get_text() for t in axes.texts] for axes in figure.axes)


def test_the_paper_is_marked_where_the_record_has_it(drawn):
    with_paper, without = drawn(_record()), drawn(_record(with_paper=False))
    for axes, surface in zip(with_paper.axes, SURFACES, strict=True):
        marks = {dots.get_label(): dots.get_offsets().tolist() for dots in axes.collections}
        assert marks == {
            "MRF in the paper": [[4000, PAPER[surface, "MRF", 4000][-1]]],
            "RFF in the paper": [[4000, PAPER[surface, "RFF", 4000][-1]]],
        }
    assert not any(axes.collections for axes in without.axes)


def test_the_legend_stands_beside_the_panels(drawn):
    figure = drawn(_record())
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert names == {
        "MRF: features of the surface",
        "RFF",
        "MRF in the paper",
        "RFF in the paper",
        "slope of independent draws, $m^{-1/2}$",
        "best Gaussian kernel itself",
    }


def test_the_guide_has_the_slope_of_independent_draws(drawn):
    for axes in drawn(_record()).axes:
        guide = next(line for line in axes.get_lines() if line.get_label().startswith("slope"))
        x, y = guide.get_data()
        assert len(x) > 1
        np.testing.assert_allclose(np.diff(np.log(y)) / np.diff(np.log(x)), -0.5)
