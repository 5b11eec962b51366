"""Pictures of the first table are drawn from a record alone."""

import numpy as np
import pytest

from manifoldrf import Sphere
from manifoldrf.experiments.record import Record
from manifoldrf.report.surfaces import draw_diagnostics, draw_fields, draw_kernels

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
    return Record("surfaces", {"tau": 20.0}, {"surfaces": rows}, 1.0, {}, arrays)


@pytest.mark.parametrize("draw", [draw_fields, draw_kernels, draw_diagnostics])
def test_pictures_are_drawn_and_not_blank(record, tmp_path, draw):
    path = draw(record, tmp_path / "figure.png")
    pixels = matplotlib.imread(path)
    ink = (pixels[..., :3].min(axis=2) < 0.9).mean()
    assert 0.02 < ink < 0.8
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]


def test_a_kernel_that_differs_by_a_factor_only_has_no_difference_after_alignment(record, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr("manifoldrf.report.surfaces.frame", lambda axes, points, title: titles.append(title))
    scaled = record.arrays | {"sphere_network_kernel": 7 * record.arrays["sphere_kernel"]}
    draw_kernels(Record("surfaces", record.config, record.tables, 1.0, {}, scaled), tmp_path / "figure.png")
    share = next(title for title in titles if title.startswith("paper's recipe minus exact"))
    assert float(share.split()[-2]) < 1e-10
