"""The figures of tokens are drawn from the record alone."""

import numpy as np
import pytest
from pictures import shows_something

from reproduction.attention import METHODS
from reproduction.record import Record
from reproduction.report import attention
from reproduction.report.attention import draw_attention, draw_tokens
from reproduction.report.style import NAMES

pyplot = pytest.importorskip("matplotlib.pyplot")
SHOWN = [NAMES.get(method, method) for method in METHODS]
SURFACES = ("mobius", "mobius2", "swiss", "folded")


def _record(surfaces=SURFACES):
    """A record in which the n-th method has the error 1 / n."""
    rng = np.random.default_rng(0)
    rows, arrays = [], {}
    for surface in surfaces:
        for place, method in enumerate(METHODS):
            for count in (5, 7):
                rows.append({"surface": surface, "method": method, "sources": count, "mse": 1 / (place + 1)})
        arrays |= {f"{surface}_points": rng.uniform(size=(60, 3)), f"{surface}_visible": np.arange(0, 60, 6)}
        arrays |= {f"{surface}_{name}": rng.standard_normal(60) for name in ("signal", "mrf", "rbf")}
    settings = {"surfaces": list(surfaces), "sources": [5, 7], "n_features": 16}
    settings |= {"masked": 0.8, "masked_touching": 0.97}
    return Record("attention", settings, {"sources": rows}, 0.0, environment={}, arrays=arrays)


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw, and return the figure that would have been written."""
    monkeypatch.setattr(attention, "save_figure", lambda figure, path: figure)
    yield lambda function, record: function(record, tmp_path)
    pyplot.close("all")


@pytest.mark.parametrize("draw", [draw_attention, draw_tokens])
def test_pictures_are_written(tmp_path, draw):
    path = draw(_record(), tmp_path / "attention.png")
    assert shows_something(path)
    assert not pyplot.get_fignums()


def test_every_surface_has_a_panel_with_a_line_for_every_method(drawn):
    figure = drawn(draw_attention, _record())
    assert [axes.get_title().split(",")[0] for axes in figure.axes] == [
        "Möbius strip",
        "two-sided cover of the strip",
        "swiss roll",
        "accordion",
    ]
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == set(SHOWN)
        for place, method in enumerate(SHOWN):
            np.testing.assert_allclose(lines[method].get_ydata(), 1 / (place + 1))
            assert list(lines[method].get_xdata()) == [5, 7]
        widths = {method: line.get_linewidth() for method, line in lines.items()}
        assert max(widths, key=widths.get) == "MRF"
        styles = [(line.get_color(), line.get_marker()) for line in lines.values()]
        assert len(set(styles)) == len(SHOWN)  # no two methods look alike


def test_the_legend_stands_beside_the_panels_and_has_every_method(drawn):
    figure = drawn(draw_attention, _record())
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert set(SHOWN) < {text.get_text() for text in figure.legends[0].get_texts()}


def test_one_surface_has_one_panel(drawn):
    assert len(drawn(draw_attention, _record(("swiss",))).axes) == 1


def test_tokens_are_shown_as_signal_predictions_and_residuals(drawn):
    record = _record(("swiss", "folded"))
    figure = drawn(draw_tokens, record)
    panels, bars = figure.axes[:10], figure.axes[10:]
    assert [axes.get_title() for axes in panels[:2]] == ["swiss roll", "accordion"]
    assert [axes.get_xlabel() for axes in panels[:2]] == ["10 of 60 visible"] * 2
    assert len(panels[0].collections[-1].get_offsets()) == 10  # rims
    hidden = np.setdiff1d(np.arange(60), np.arange(0, 60, 6))
    gap = (record.arrays["folded_mrf"] - record.arrays["folded_signal"])[hidden]
    assert panels[7].get_xlabel() == f"squared error {(gap**2).mean():.3f}"
    assert [axes.get_ylabel() for axes in bars] == ["signal and predictions (variance 1)", "difference"]


def test_signal_and_predictions_share_one_scale_and_residuals_another(drawn):
    panels = drawn(draw_tokens, _record(("swiss", "folded"))).axes[:10]
    limits = [axes.collections[0].get_clim() for axes in panels]
    assert len(set(limits[:6])) == 1
    assert len(set(limits[6:])) == 1
    assert all(low == -high for low, high in limits)
