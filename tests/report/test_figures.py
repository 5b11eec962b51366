"""Figures are drawn from records alone."""

import numpy as np
import pytest

from manifoldrf.experiments.record import Record
from manifoldrf.experiments.surface_graphs import Config, run
from manifoldrf.report.figures import draw_surface_graphs, draw_teachers


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


def test_the_teachers_are_drawn_from_their_table_alone(tmp_path):
    rows = [
        {"surface": surface, "estimator": name, "steps": steps, "error": 1 / steps**power}
        for surface in ("sphere", "mobius")
        for name, power in (("walks", 0.5), ("counts", 1.0))
        for steps in (1e3, 1e4)
    ]
    record = Record("teachers", {"tau": 20.0, "n_nodes": 100}, {"budgets": rows}, 1.0)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pixels = pyplot.imread(draw_teachers(record, tmp_path / "figure.png"))
    assert 0.01 < (pixels[..., :3].min(axis=2) < 0.9).mean() < 0.5
