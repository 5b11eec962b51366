"""Figures of fields on meshes: drawn from the record alone, every method in its place."""

import dataclasses

import numpy as np
import pytest
from matplotlib import pyplot
from pictures import shows_something

from reproduction.record import Record
from reproduction.report import interpolation
from reproduction.report.interpolation import draw_cosines, draw_methods, draw_times
from reproduction.smoothers import EPOCHS_EXTRAPOLATED

METHODS = ["exact kernel, Gaussian weights", "biharmonic, unit weights", "RFF 1024", "full kernel, dense"]


@pytest.fixture
def record():
    cells = [
        {"mesh": f"m{n}", "vertices": n, "method": method, "setting": setting, "cosine": 0.5 + i / 10}
        for i, method in enumerate(METHODS[:3])
        for setting in ("as_paper", "tuned")
        for n in (1000, 4000)
    ]
    scaling = [
        {"vertices": n, "method": method, "prepare_s": 1e-4 * n, "interpolate_s": 1e-6 * n, "how": "measured"}
        for method in METHODS
        for n in (1000, 2000, 4000)
    ]
    far = {"vertices": 16_000, "method": METHODS[3], "prepare_s": 9.0, "interpolate_s": 0.5, "how": "extrapolated"}
    summary = [
        {
            "method": method,
            "meshes": 2,
            "as_paper": 0.5 + i / 10,
            "tuned": None if i == 2 else 0.9,
            "paper_as_paper": paper,
        }
        for i, (method, paper) in enumerate(zip(METHODS[:3], (0.85, None, 0.78), strict=True))
    ]
    exponents = [{"method": method, "prepare": 1.0, "interpolate": None} for method in METHODS]
    tables = {"normals": summary, "cells": cells, "scaling": [*scaling, far], "exponents": exponents}
    return Record("normals", {}, tables, 1.0)


@pytest.fixture
def kept(monkeypatch):
    """Figures as they were when they were saved."""
    figures = []

    def keep(figure, path):
        figures.append(figure)
        return path

    monkeypatch.setattr(interpolation, "save_figure", keep)
    yield figures
    for figure in figures:
        pyplot.close(figure)


@pytest.mark.parametrize("draw", [draw_cosines, draw_times, draw_methods])
def test_pictures_are_written(record, tmp_path, draw):
    path = draw(record, tmp_path / "picture.png")
    assert shows_something(path)


def test_lines_of_cosines_hold_the_cells(record, kept, tmp_path):
    draw_cosines(record, tmp_path / "a.png")
    lines = {line.get_label(): line for line in kept[0].axes[0].get_lines()}
    assert list(lines) == METHODS[:3]
    np.testing.assert_array_equal(lines["RFF 1024"].get_xydata(), [[0, 0.7], [1, 0.7]])
    assert [text.get_text() for text in kept[0].axes[1].get_xticklabels()] == ["m1000\n1,000", "m4000\n4,000"]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines.values()}) == 3


def test_extrapolated_times_are_hollow_and_exponents_are_named(record, kept, tmp_path):
    draw_times(record, tmp_path / "a.png")
    lines = kept[0].axes[0].get_lines()
    hollow = [line for line in lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1
    np.testing.assert_array_equal(hollow[0].get_xdata(), [4000, 16_000])
    assert "full kernel, dense  $\\propto n^{1.00}$" in [line.get_label() for line in lines]
    assert "RFF 1024" in [line.get_label() for line in kept[0].axes[1].get_lines()]  # no exponent, no text


def test_exponents_are_left_out_where_too_little_was_measured_or_times_level_off(record, kept, tmp_path):
    rows = record.tables["scaling"]
    few = [row for row in rows if (row["method"], row["vertices"]) != (METHODS[3], 2000)]
    flat = [row for row in few if row["method"] == METHODS[2]]
    level = [row | {"prepare_s": 1.0 if row["vertices"] == 1000 else 9.0} for row in flat]
    others = [row for row in few if row["method"] != METHODS[2]]
    draw_times(dataclasses.replace(record, tables=record.tables | {"scaling": others + level}), tmp_path / "a.png")
    labels = [line.get_label() for line in kept[0].axes[0].get_lines() if not line.get_label().startswith("_")]
    law = "  $\\propto n^{1.00}$"
    assert labels == [METHODS[0] + law, METHODS[1] + law, METHODS[3], METHODS[2]]


def test_tau_is_a_symbol(record, kept, tmp_path):
    scaling = record.tables["scaling"]
    rows = [row | {"method": row["method"].replace("weights", "weights, tau = 20")} for row in scaling]
    draw_times(dataclasses.replace(record, tables=record.tables | {"scaling": rows}), tmp_path / "a.png")
    labels = [line.get_label() for line in kept[0].axes[0].get_lines()]
    assert "exact kernel, Gaussian weights, $\\tau$ = 20" in labels


def test_times_of_epochs_that_were_not_run_are_hollow_in_the_preparation_only(record, kept, tmp_path):
    """All rows of a learned method are such, so the hollow line is the one with the label."""
    rows = [
        {
            "vertices": n,
            "method": "MRF",
            "prepare_s": 0.1 * n,
            "interpolate_s": 1e-3 * n,
            "how": EPOCHS_EXTRAPOLATED,
        }
        for n in (1000, 4000)
    ]
    record.tables["scaling"] += rows
    draw_times(record, tmp_path / "a.png")
    prepare, interpolate = (
        next(line for line in axes.get_lines() if line.get_label() == "MRF") for axes in kept[0].axes
    )
    assert prepare.get_markerfacecolor() == "white"
    np.testing.assert_array_equal(prepare.get_xydata(), [[1000, 100.0], [4000, 400.0]])
    assert interpolate.get_markerfacecolor() != "white"


def test_dots_are_the_table_and_stars_the_paper(record, kept, tmp_path):
    draw_methods(record, tmp_path / "a.png")
    dots = {group.get_label(): group.get_offsets().data for group in kept[0].axes[0].collections}
    np.testing.assert_allclose(sorted(dots["paper's setting"][:, 0]), [0.5, 0.6, 0.7])
    np.testing.assert_allclose(sorted(dots["chosen on known values"][:, 0]), [0.9, 0.9])
    names = [label.get_text() for label in kept[0].axes[0].get_yticklabels()]
    at = {names[round(y)]: x for x, y in dots["the paper's"]}
    assert at == {METHODS[0]: 0.85, "RFF 1024": 0.78}
