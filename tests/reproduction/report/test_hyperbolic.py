"""The figures of hyperbolic space are drawn from the record alone."""

import numpy as np
import pytest
from pictures import shows_something

from reproduction.record import Record
from reproduction.report import hyperbolic
from reproduction.report.hyperbolic import draw_estimate, draw_radii, draw_slice

pyplot = pytest.importorskip("matplotlib.pyplot")


def _record(*, with_paper=True):
    radii = [
        {"R": r, "error": e, "unaligned": 2 * e, "iid": 3 * e, "fixed_nodes": 0.1, "walks_error": 0.3}
        | {"paper_error": 0.2 if with_paper else None}
        for r, e in ((2.0, 0.3), (3.0, 0.02))
    ]
    estimates = [
        {"space": space, "R": r, "true": e, "estimate": 1.5 * e}
        for space in ("H^2", "H^3")
        for r, e in ((2.0, 0.3), (3.0, 0.02))
    ]
    distance = np.linspace(0, 3, 20)
    arrays = {"distance": distance} | {name: np.exp(-distance) for name in ("exact", "smallest", "largest")}
    config = {"inner": 1.5, "radii": [2.0, 3.0], "n_fixed": 3000}
    return Record(
        "hyperbolic", config, {"radii": radii, "exhaustion": estimates}, 0.0, environment={}, arrays=arrays
    )


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draw, and keep the figure that would have been closed."""
    kept = []
    monkeypatch.setattr(hyperbolic, "save_figure", lambda figure, path: kept.append(figure) or path)

    def draw(function, record):
        function(record, tmp_path / "picture.png")
        return kept[-1].axes[0]

    yield draw
    for figure in kept:
        pyplot.close(figure)


@pytest.mark.parametrize("function", [draw_radii, draw_estimate, draw_slice])
def test_the_picture_is_written(tmp_path, function):
    path = function(_record(), tmp_path / "picture.png")
    assert shows_something(path)
    assert not pyplot.get_fignums()


def test_every_way_has_a_line_and_the_paper_only_where_it_has_figures(drawn):
    labels = [line.get_label() for line in drawn(draw_radii, _record()).get_lines()]
    assert "paper" in labels
    assert "even nodes, 3000 in every ball" in labels
    without = [line.get_label() for line in drawn(draw_radii, _record(with_paper=False)).get_lines()]
    assert len(without) == len(labels) - 1
    assert "paper" not in without


def test_lines_are_the_numbers_of_the_record(drawn):
    axes = drawn(draw_radii, _record())
    own = next(line for line in axes.get_lines() if line.get_label() == "even nodes, more in larger balls")
    np.testing.assert_array_equal(own.get_ydata(), [0.3, 0.02])
    axes = drawn(draw_estimate, _record())
    both = [line for line in axes.get_lines() if line.get_label().startswith("$H")]
    np.testing.assert_allclose(both[0].get_ydata(), [0.45, 0.03])
    assert [text.get_text() for text in axes.texts][:2] == ["R = 2", "R = 3"]
    assert len(drawn(draw_slice, _record()).get_lines()) == 3
