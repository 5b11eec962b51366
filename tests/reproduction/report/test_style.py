"""All figures have one look, and the same record gives the same bytes in every format."""

import math
from pathlib import Path

import numpy as np
import pytest

from reproduction.record import Record
from reproduction.report.drawing import common_limits, draw_field, view_from, view_of_peak
from reproduction.report.figures import draw_teachers
from reproduction.report.style import (
    CYCLE,
    FORMATS,
    METHODS,
    WIDTH,
    fitted_exponent,
    save_figure,
    size_ticks,
    styled,
)
from reproduction.report.surfaces import draw_diagnostics

pyplot = pytest.importorskip("matplotlib.pyplot")
REPORT = Path(__file__).parents[2] / "src" / "manifoldrf" / "report"


def _teachers():
    rows = [{"surface": "torus", "estimator": "counts", "steps": 10.0 * k, "error": 1 / k} for k in (1, 2)]
    return Record("teachers", {"tau": 20.0, "n_nodes": 9}, {"budgets": rows}, 1.0)


def _diagnostics(count=20_000):
    """A record whose picture has very many dots."""
    values = np.geomspace(0.02, 500, count)
    names = ("truth", "network_values", "default_values")
    arrays = {f"sphere_{name}": values * (1 + 0.01 * place) for place, name in enumerate(names)}
    return Record("surfaces", {}, {"surfaces": [{"surface": "sphere"}]}, 1.0, {}, arrays)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_record_gives_the_same_bytes(tmp_path, suffix, monkeypatch):
    first = draw_teachers(_teachers(), tmp_path / f"a.{suffix}").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")  # what files take for the date, where they have one
    assert draw_teachers(_teachers(), tmp_path / f"b.{suffix}").read_bytes() == first


def test_fonts_of_a_pdf_are_truetype_and_dense_dots_are_pixels(tmp_path):
    data = draw_diagnostics(_diagnostics(), tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in data  # TrueType; Type 3 fonts have none
    assert b"/Subtype /Type3" not in data
    assert b"CreationDate" not in data
    assert len(data) < 1_000_000  # 40,000 dots as shapes would be many times that


def test_dense_dots_of_an_svg_are_pixels(tmp_path):
    text = draw_diagnostics(_diagnostics(), tmp_path / "a.svg").read_text()
    assert "<image" in text
    assert len(text) < 3_000_000
    assert "<dc:date>" not in text


def test_settings_of_the_caller_come_back(tmp_path):
    before = dict(pyplot.rcParams)
    seen = {}

    @styled
    def draw(record, path):
        seen.update(pyplot.rcParams)
        return save_figure(pyplot.figure(), path)

    draw(_teachers(), tmp_path / "a.png")
    assert seen["pdf.fonttype"] == 42
    assert seen["axes.spines.top"] is False
    assert dict(pyplot.rcParams) == before


def test_every_figure_has_the_common_look_and_width():
    """A function that draws and is not styled would look different; so would a width of its own."""
    for path in REPORT.glob("*.py"):
        text = path.read_text()
        for part in text.split("\ndef draw_")[1:] if path.stem not in ("drawing", "html_page") else []:
            before = text.split(f"\ndef draw_{part}")[0]
            assert before.endswith("@styled"), (path.name, part[:30])
        assert text.count("figsize=(") == text.count("figsize=(WIDTH,"), path.name
    assert WIDTH <= 10


def test_no_two_methods_look_alike():
    looks = [(style["color"], style["marker"]) for style in METHODS.values()]
    assert len(set(looks)) == len(looks)
    assert len({colour for colour, _ in looks}) == len(looks)
    assert len({mark for _, mark in looks}) == len(looks)
    assert len(set(CYCLE)) == 7


def test_fitted_exponents_are_exact_for_power_laws_and_least_squares_for_others():
    x = [10.0, 100.0, 1000.0]
    assert fitted_exponent(x, [3 * v**-1.5 for v in x]) == pytest.approx(-1.5)
    # Slope of (0, 1, 1) over (1, 2, 3) by hand; of 1.5 rather than 10, or the residual would be too large.
    assert fitted_exponent(x, [1.0, 1.5, 1.5]) == pytest.approx(0.5 * math.log10(1.5))


def test_two_places_and_lines_that_level_off_have_no_exponent():
    assert fitted_exponent([10.0, 100.0], [1.0, 0.1]) is None
    assert fitted_exponent([10.0, 10.0, 100.0], [1.0, 1.0, 0.1]) is None
    assert fitted_exponent([10.0, 100.0, 1000.0], [1.0, 0.01, 0.01]) is None


def test_ticks_that_would_touch_have_no_text_and_the_largest_has():
    figure, axes = pyplot.subplots()
    axes.set_xscale("log")
    size_ticks(axes.xaxis, [1000, 2000, 100_000, 150_000])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1,000", "2,000", "", "150,000"]
    pyplot.close(figure)


def test_views_are_turns_of_space_and_look_where_they_say():
    view = view_from(30.0, 50.0)
    np.testing.assert_allclose(view.T @ view, np.eye(3), atol=1e-15)
    assert np.linalg.det(view) == pytest.approx(1)
    np.testing.assert_allclose(view[:, 2], [np.cos(np.pi / 6) * np.cos(np.deg2rad(50)),
                                            np.cos(np.pi / 6) * np.sin(np.deg2rad(50)), 0.5])  # fmt: skip
    assert view[2, 0] == 0  # the horizon is level


def test_a_peak_faces_the_viewer():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    peak = np.array([np.cos(2.0), np.sin(2.0), 0.5]) / np.sqrt(1.25)
    towards = view_of_peak(points, points @ peak)[:, 2]
    assert towards @ peak > np.cos(np.deg2rad(12))  # normals of neighbours are right within some degrees


def test_fields_are_drawn_from_back_to_front_in_the_colours_of_the_bar():
    points = np.random.default_rng(0).uniform(size=(50, 3))
    view = view_from(20.0, 10.0)
    figure, axes = pyplot.subplots()
    dots = draw_field(axes, points, points[:, 0], view, (0.0, 2.0))
    order = np.argsort(points @ view[:, 2])
    np.testing.assert_allclose(dots.get_offsets(), (points @ view[:, :2])[order])
    assert dots.get_clim() == (0.0, 2.0)
    shades = pyplot.get_cmap("magma_r")(points[order, 0] / 2)[:, :3]
    ratio = dots.get_facecolor()[:, :3] / shades
    assert (
        (ratio > 0.719) & (ratio < 1.001)
    ).all()  # darker where the surface faces sideways, by 28 percent at most
    pyplot.close(figure)


def test_common_limits_start_at_zero_or_are_symmetric():
    fields = [np.array([0.5, 3.0]), np.array([-4.0, 1.0])]
    assert common_limits(fields) == (0.0, 4.0)
    assert common_limits(fields, "RdBu") == (-4.0, 4.0)
    assert common_limits([np.zeros(3)]) == (0.0, 1.0)  # a bar needs two ends
