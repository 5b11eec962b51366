"""The figure of textures is drawn from the record alone."""

import itertools

import pytest
from pictures import shows_something

from reproduction.record import Record
from reproduction.report import brodatz
from reproduction.report.brodatz import draw_brodatz

pyplot = pytest.importorskip("matplotlib.pyplot")
PAPER = {"MRF": (55.7, 40.3), "raw": (42.4, 24.1)}


def _record(*, with_paper=True, spread=2.0):
    rows = []
    for coordinates, rule in itertools.product(("as they are", "standardised"), ("chosen", "balanced")):
        for place, method in enumerate(("MRF", "RFF") if rule == "balanced" else ("MRF", "raw", "RFF")):
            for column, k in enumerate((1, 15)):
                known = with_paper and rule == "chosen" and coordinates == "as they are" and method in PAPER
                key = {"window": 64, "coordinates": coordinates, "method": method, "rule": rule, "k": k}
                key["accuracy"] = 50.0 - 5 * place - k
                rows.append(key | {"paper_accuracy": PAPER[method][column] if known else None, "spread": spread})
    other = rows[0] | {"window": 32, "accuracy": 99.0}
    return Record("brodatz", {}, {"by_k": [*rows, other]}, 0.0, environment={})


@pytest.fixture
def drawn(keep_figures):
    return keep_figures(brodatz, draw_brodatz)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_picture_is_written(tmp_path, suffix):
    path = draw_brodatz(_record(), tmp_path / f"brodatz.{suffix}")
    assert shows_something(path)
    assert not pyplot.get_fignums()


def test_all_panels_have_ours_and_raw_descriptors_with_bands(drawn):
    figure = drawn(_record())
    assert len(figure.axes) == 4
    for axes in figure.axes:
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert list(lines["MRF"].get_xdata()) == [1, 15]
        assert list(lines["MRF"].get_ydata()) == [49.0, 35.0]
        assert lines["MRF"].get_linewidth() > lines["RFF"].get_linewidth()
        assert list(lines["raw"].get_ydata()) == [44.0, 30.0]
        assert len(axes.collections) == 2


def test_the_paper_is_dotted_where_the_record_has_it(drawn):
    for axes in drawn(_record()).axes:
        dotted = {line.get_label(): line for line in axes.get_lines() if line.get_linestyle() == ":"}
        assert list(dotted["MRF in the paper"].get_ydata()) == [55.7, 40.3]
        assert list(dotted["raw in the paper"].get_ydata()) == [42.4, 24.1]
    for axes in drawn(_record(with_paper=False)).axes:
        assert not any(line.get_linestyle() == ":" for line in axes.get_lines())


def test_one_seed_has_no_band(drawn):
    assert not any(axes.collections for axes in drawn(_record(spread=None)).axes)


def test_the_legend_names_every_line_once_beside_the_panels(drawn):
    figure = drawn(_record())
    figure.canvas.draw()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(names) == sorted(["MRF", "raw", "RFF", "MRF in the paper", "raw in the paper"])
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
