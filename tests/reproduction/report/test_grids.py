"""Figures of the grids are drawn from the record alone."""

import dataclasses

import numpy as np
import pytest

from reproduction.gaussian_grid import Config, run
from reproduction.report import grids
from reproduction.report.grids import draw_grid_convergence, draw_grid_errors, draw_grid_signatures, draw_saddle

pyplot = pytest.importorskip("matplotlib.pyplot")
DRAWERS = [draw_grid_convergence, draw_grid_errors, draw_grid_signatures, draw_saddle]


@pytest.fixture(scope="module")
def record():
    return run(
        Config(
            dims=(2, 4),
            sides=(5, 9),
            n_walks=100,
            n_repeats=3,
            n_runs=8,
            panels=(5, 9),
            grids=(4, 8),
            saddle_side=21,
            n_jobs=1,
        )
    )


@pytest.mark.parametrize("draw", DRAWERS)
def test_pictures_are_not_blank_and_nothing_stays_open(record, tmp_path, draw):
    path = draw(record, tmp_path / "figure.png")
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]
    pixels = pyplot.imread(path)
    ink = (pixels[..., :3].min(axis=2) < 0.9).mean()
    assert 0.02 < ink < 0.95
    colours = (pixels[..., :3] * 255).astype(int) @ [65536, 256, 1]  # one number each: quick to sort
    assert len(np.unique(colours)) > 30
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("draw", DRAWERS)
def test_an_unknown_format_leaves_neither_a_file_nor_a_figure(record, tmp_path, draw):
    with pytest.raises(ValueError, match="nonsense"):
        draw(record, tmp_path / "figure.nonsense")
    assert not list(tmp_path.iterdir())
    assert not pyplot.get_fignums()


def test_axes_say_what_they_show(record, tmp_path):
    """The text of an svg can be searched."""
    with pyplot.rc_context({"svg.fonttype": "none"}):
        errors = draw_grid_errors(record, tmp_path / "errors.svg").read_text()
        saddle = draw_saddle(record, tmp_path / "saddle.svg").read_text()
    for text in ("random walks (Algorithm 1)", "counted walkers", "predicted noise", "nodes along an axis"):
        assert text in errors
    assert "per unit area" in saddle


def test_exact_errors_have_exponents_on_logarithmic_axes(record, keep_figures):
    """Three grids on a power law; two grids have none."""
    panel = keep_figures(grids, draw_grid_errors)(record).axes[0]
    assert panel.get_xscale() == panel.get_yscale() == "log"
    assert not any("propto" in text.get_text() for text in panel.get_legend().get_texts())
    rows = [row for row in record.tables["errors"] if row["n"] == 9]
    many = [row | {"n": n, "psi": n**-1.5} for row in rows for n in (5, 9, 17)]
    more = dataclasses.replace(record, tables=record.tables | {"errors": many})
    panel = keep_figures(grids, draw_grid_errors)(more).axes[0]
    labels = [text.get_text() for text in panel.get_legend().get_texts()]
    assert "$d$ = 2  $\\propto n^{-1.50}$" in labels


def test_every_colour_bar_has_a_name(record, keep_figures):
    figure = keep_figures(grids, draw_grid_convergence)(record)
    bars = [axes.get_xlabel() for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert len(bars) == 4
    assert all(bars)


def test_panels_of_values_share_a_scale_and_differences_have_symmetric_ones(record, keep_figures):
    figure = keep_figures(grids, draw_grid_convergence)(record)
    limits = [axes.images[0].get_clim() for axes in figure.axes[:12]]  # two rows of six
    for triplet in (slice(0, 3), slice(3, 6)):
        above, below = limits[triplet], limits[6:][triplet]
        assert above == below
        assert above[0] == above[1]
        assert above[0][0] == 0
        assert above[2][0] == -above[2][1] < 0
