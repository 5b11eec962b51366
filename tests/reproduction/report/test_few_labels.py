"""The figures of few labels are drawn from the record alone."""

import pytest
from pictures import shows_something

from reproduction.record import Record
from reproduction.report import few_labels
from reproduction.report.few_labels import draw_accuracy, draw_damage

pyplot = pytest.importorskip("matplotlib.pyplot")
METHODS = ("MRF + ridge", "LabelSpreading, knn", "a method of tomorrow")


def _record(*, with_sweep=True):
    """Two clouds, the second without the last method."""
    accuracy = [
        {"cloud": cloud, "method": method, "labels": k, "new": 0.5 + 0.04 * k - 0.1 * place, "new_spread": 0.03}
        for cloud, methods in (("digits", METHODS), ("bunny", METHODS[:2]))
        for place, method in enumerate(methods)
        for k in (1, 2, 5)
    ]
    sweep = [
        {"noise": noise, "outliers": share, "method": method, "new": 0.9 - noise - share, "new_spread": 0.02}
        for noise, share in ((0.0, 0.0), (0.5, 0.0), (0.1, 0.2), (0.1, 0.4))
        for method in METHODS[:2]
    ]
    tables = {"accuracy": accuracy} | ({"sweep": sweep} if with_sweep else {})
    return Record("few_labels", {}, tables, 0.0, environment={})


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw, and keep the figure that would have been closed."""
    kept = []
    monkeypatch.setattr(few_labels, "save_figure", lambda figure, path: kept.append(figure) or path)

    def draw(function, record):
        function(record, tmp_path / "few_labels.png")
        return kept[-1]

    yield draw
    for figure in kept:
        pyplot.close(figure)


@pytest.mark.parametrize("function", [draw_accuracy, draw_damage])
def test_the_picture_is_written(tmp_path, function):
    assert shows_something(function(_record(), tmp_path / "few_labels.png"))
    assert not pyplot.get_fignums()


def test_every_cloud_has_a_panel_with_its_lines(drawn):
    figure = drawn(draw_accuracy, _record())
    assert [axes.get_title() for axes in figure.axes] == ["digits", "bunny"]
    for axes, count in zip(figure.axes, (3, 2), strict=True):
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert len(lines) == count
        assert list(lines["MRF + ridge"].get_xdata()) == [1, 2, 5]
        assert list(lines["MRF + ridge"].get_ydata()) == pytest.approx([0.54, 0.58, 0.7])
        assert len(axes.collections) == 1  # the band of the first method
        assert lines["MRF + ridge"].get_linewidth() > lines["LabelSpreading, knn"].get_linewidth()


def test_noise_and_outliers_have_a_panel_each(drawn):
    figure = drawn(draw_damage, _record())
    left, right = (axes.get_lines()[0] for axes in figure.axes)
    assert list(left.get_xdata()) == [0.0, 0.5]
    assert list(right.get_xdata()) == [0.2, 0.4]
    assert list(right.get_ydata()) == pytest.approx([0.6, 0.4])


def test_without_a_sweep_nothing_is_drawn(tmp_path):
    assert draw_damage(_record(with_sweep=False), tmp_path / "few_labels.png") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", [draw_accuracy, draw_damage])
def test_the_legend_stands_beside_the_panels_and_names_each_method_once(drawn, function):
    figure = drawn(function, _record())
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    first, *others = METHODS if function is draw_accuracy else METHODS[:2]
    assert names == [first, f"{first}, ± standard deviation", *others]
