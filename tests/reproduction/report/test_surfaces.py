"""Pictures of the first table are drawn from a record alone."""

import numpy as np
import pytest

from manifoldrf import Sphere
from reproduction.record import Record
from reproduction.report import surfaces
from reproduction.report.surfaces import draw_diagnostics, draw_fields, draw_kernels, draw_training

matplotlib = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def record():
    """Two surfaces of 200 nodes with made-up fields."""
    rng = np.random.default_rng(0)
    points = Sphere().grid(200)
    bump = 500 * np.exp(4 * (points[:, 0] - 1))
    arrays = {}
    for name in ("sphere", "mobius"):
        values = {"points": points, "source": points[:1], "signature": bump, "kernel": bump, "truth": bump}
        for method in ("network", "default"):
            for what in ("field", "kernel", "values"):
                values[f"{method}_{what}"] = bump * (1 + 0.1 * rng.normal(size=200))
        arrays |= {f"{name}_{key}": value for key, value in values.items()}
    rows = [{"surface": name, "method": "x"} for name in ("sphere", "mobius")]
    recipe = []
    for name, neighbours, seed, best in (("sphere", 8, 0, 30), ("mobius", 12, 0, 20), ("mobius", 12, 1, 25)):
        losses = np.linspace(1, 2, 2)[:, None] / np.arange(1, best + 11)
        losses[1, best:] = 1.0  # the best epoch is not the last
        arrays[f"training_{name}_k{neighbours}_seed{seed}"] = losses
        recipe.append({"surface": name, "neighbours": neighbours, "seed": seed, "best_epoch": best})
    return Record("surfaces", {"tau": 20.0}, {"surfaces": rows, "recipe": recipe}, 1.0, {}, arrays)


@pytest.mark.parametrize("draw", [draw_fields, draw_kernels, draw_diagnostics, draw_training])
def test_pictures_are_drawn_and_not_blank(record, tmp_path, draw):
    path = draw(record, tmp_path / "figure.png")
    pixels = matplotlib.imread(path)
    ink = (pixels[..., :3].min(axis=2) < 0.9).mean()
    assert 0.02 < ink < 0.8
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]


@pytest.fixture
def drawn(keep_figures):
    return lambda draw, record: keep_figures(surfaces, draw)(record)


def _panels(figure, name):
    """Panels of the rows with a text on the left, which starts them."""
    panels = [axes for axes in figure.axes if axes.collections and axes.get_label() != "<colorbar>"]
    place = next(place for place, axes in enumerate(panels) if axes.get_ylabel() == name)
    return panels[place : place + 2]  # two surfaces


@pytest.mark.parametrize(
    ("draw", "shown", "residuals"),
    [
        (
            draw_fields,
            ("paper's network", "exact signature", "default field"),
            ("network - exact", "default - exact"),
        ),
        (draw_kernels, ("paper's recipe", "exact kernel", "default"), ("recipe - exact", "default - exact")),
    ],
)
def test_predictions_and_truth_share_a_scale_and_residuals_have_symmetric_ones(
    drawn, record, draw, shown, residuals
):
    figure = drawn(draw, record)
    top = {axes.collections[0].get_clim() for name in shown for axes in _panels(figure, name)}
    assert len(top) == 1
    assert next(iter(top))[0] == 0
    for name in residuals:
        limits = {axes.collections[0].get_clim() for axes in _panels(figure, name)}
        assert len(limits) == 1
        low, high = limits.pop()
        assert low == -high < 0
    bars = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert len(bars) == 3  # one for each group


def test_the_scale_reaches_the_largest_value_of_prediction_and_truth(drawn, record):
    figure = drawn(draw_fields, record)
    shown = [value for key, value in record.arrays.items() if key.endswith(("_field", "_signature"))]
    assert _panels(figure, "exact signature")[0].collections[0].get_clim()[1] == max(v.max() for v in shown)


def test_a_kernel_that_differs_by_a_factor_only_has_no_difference_after_alignment(drawn, record):
    scaled = record.arrays | {"sphere_network_kernel": 7 * record.arrays["sphere_kernel"]}
    figure = drawn(draw_kernels, Record("surfaces", record.config, record.tables, 1.0, {}, scaled))
    share = _panels(figure, "recipe - exact")[0].get_xlabel()
    assert share.endswith(" % of the norm")
    assert float(share.split()[0]) < 1e-10


def test_diagnostics_have_the_same_limits_on_all_surfaces_and_dense_dots_are_pixels(drawn, record):
    figure = drawn(draw_diagnostics, record)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert all(dots.get_rasterized() for axes in figure.axes for dots in axes.collections)


def test_every_training_has_its_curves_and_its_best_epoch(drawn, record):
    figure = drawn(draw_training, record)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["sphere, 8 neighbours", "Möbius strip, 12 neighbours"]
    lines = figure.axes[1].lines
    assert len(lines) == 6  # two losses and a dot for each of two seeds
    np.testing.assert_array_equal(lines[4].get_ydata(), record.arrays["training_mobius_k12_seed1"][1])
    assert lines[5].get_xdata()[0] == 25
    assert lines[5].get_ydata()[0] == pytest.approx(2 / 25)


def test_a_record_without_trainings_has_no_such_picture(record, tmp_path):
    old = Record("surfaces", record.config, {"surfaces": record.tables["surfaces"]}, 1.0, {}, record.arrays)
    assert draw_training(old, tmp_path / "figure.png") is None
