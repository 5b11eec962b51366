"""Which pictures an experiment has."""

import importlib
from collections.abc import Mapping
from pathlib import Path

from reproduction.record import Record

# Experiment -> stem of a picture's file name -> "module:function" in this folder.
FIGURES: Mapping[str, Mapping[str, str]] = {
    "surfaces": {
        "surfaces_kernels": "surfaces:draw_kernels",
        "surfaces_fields": "surfaces:draw_fields",
        "surfaces_diagnostics": "surfaces:draw_diagnostics",
    },
    "normals": {"normals_methods": "charts:draw_methods", "normals_times": "charts:draw_times"},
    "velocity": {"velocity_methods": "charts:draw_methods", "velocity_times": "charts:draw_times"},
    "attention": {"attention": "charts:draw_attention"},
    "brodatz": {"brodatz": "charts:draw_brodatz"},
    "gaussian_grid": {
        "gaussian_grid_errors": "grids:draw_grid_errors",
        "gaussian_grid_convergence": "grids:draw_grid_convergence",
        "gaussian_grid_signatures": "grids:draw_grid_signatures",
        "gaussian_grid_saddle": "grids:draw_saddle",
    },
    "ambient": {"ambient": "charts:draw_ambient"},
    "hyperbolic": {"hyperbolic_radii": "charts:draw_radii"},
    "teachers": {"teachers": "charts:draw_teachers"},
}


def draw(record: Record, folder: Path, form: str = "png") -> list[Path]:
    """Draw all pictures of a record into a folder, as "png", "pdf" or "svg", and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for stem, name in FIGURES[record.name].items():
        module, _, function = name.partition(":")
        drawer = getattr(importlib.import_module(f"reproduction.report.{module}"), function)
        drawn.append(Path(drawer(record, folder / f"{stem}.{form}")))
    return drawn
