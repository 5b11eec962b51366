"""All figures have one look, and the same record gives the same bytes in every format."""

import math

import numpy as np
import pytest

from reproduction.record import Record
from reproduction.report.drawing import view_of_peak
from reproduction.report.figures import draw_teachers
from reproduction.report.style import FORMATS, fitted_exponent, save_figure, styled

pyplot = pytest.importorskip("matplotlib.pyplot")


def _teachers():
    rows = [{"surface": "torus", "estimator": "counts", "steps": 10.0 * k, "error": 1 / k} for k in (1, 2)]
    return Record("teachers", {"tau": 20.0, "n_nodes": 9}, {"budgets": rows}, 1.0)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_record_gives_the_same_bytes(tmp_path, suffix, monkeypatch):
    first = draw_teachers(_teachers(), tmp_path / f"a.{suffix}").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")  # what files take for the date, where they have one
    assert draw_teachers(_teachers(), tmp_path / f"b.{suffix}").read_bytes() == first


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


def test_fitted_exponents_are_exact_for_power_laws_and_least_squares_for_others():
    x = [10.0, 100.0, 1000.0]
    assert fitted_exponent(x, [3 * v**-1.5 for v in x]) == pytest.approx(-1.5)
    # Slope of (0, 1, 1) over (1, 2, 3) by hand; of 1.5 rather than 10, or the residual would be too large.
    assert fitted_exponent(x, [1.0, 1.5, 1.5]) == pytest.approx(0.5 * math.log10(1.5))


def test_two_places_and_lines_that_level_off_have_no_exponent():
    assert fitted_exponent([10.0, 100.0], [1.0, 0.1]) is None
    assert fitted_exponent([10.0, 10.0, 100.0], [1.0, 1.0, 0.1]) is None
    assert fitted_exponent([10.0, 100.0, 1000.0], [1.0, 0.01, 0.01]) is None


def test_a_peak_faces_the_viewer():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    peak = np.array([np.cos(2.0), np.sin(2.0), 0.5]) / np.sqrt(1.25)
    towards = view_of_peak(points, points @ peak)[:, 2]
    assert towards @ peak > np.cos(np.deg2rad(12))  # normals of neighbours are right within some degrees
