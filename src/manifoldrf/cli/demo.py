"""The demo: features on four surfaces in about a minute."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import rich.console
import rich.text
import typer

import manifoldrf
from manifoldrf._files import atomic_paths, folder_for_results
from manifoldrf._runtime import available, require, without_warnings
from manifoldrf.cli.console import cell, print_json, print_table, progress
from manifoldrf.cli.options import Output

N_NODES = 1000  # of each graph; the paper has 4000
N_NEW = 256  # points that no graph contains
_TAU = 20.0  # steps of the paper's diffusion
# The paper trains on 100,000 walks from each of 1000 nodes for 1000 epochs; these settings take seconds.
_SMALL_BUDGET: dict[str, Any] = {"teacher__n_walks": 10_000, "field__batch": 512, "field__epochs": 16}
_NOTES = (
    f"error: relative error of the heat kernel between {N_NEW} new points (0 is exact), against the formula on the "
    "sphere and features of the surface itself elsewhere; both methods only know points of it. The paper's recipe "
    "needs the extra torch and has a small budget here (16 training epochs instead of 1000): in a checkout, "
    "`python -m reproduction surfaces --size paper` runs it in full. The picture needs the extra viz."
)
_NEXT = """
Open the explorer in a browser. Try next:
  manifoldrf fit scan.ply -o scan.safetensors       # your own mesh or points
  manifoldrf explore scan.safetensors -o scan.html  # look at its kernel"""


class Surface(NamedTuple):
    """What the demo found on one surface."""

    points: Any  # (n, 3), where kernels are drawn
    row: dict[str, Any]
    drawn: dict[str, Any]  # method, "reference" first -> kernel of one point
    model: Any  # the default


def demo(
    output: Output,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the results; created if needed.")
    ] = "out",
) -> None:
    """Fit features on four surfaces, compare them with the exact kernel, write a picture and an explorer page.

    Example: manifoldrf demo --out results
    """
    spaces: dict[str, tuple[Any, int]] = {  # with the paper's numbers of neighbours
        "sphere": (manifoldrf.Sphere(), 8),
        "ellipsoid": (manifoldrf.Ellipsoid(), 8),
        "Möbius strip": (manifoldrf.MobiusStrip(), 24),
        "torus": (manifoldrf.Torus(), 8),
    }
    surfaces = []
    with (
        folder_for_results(out, "out") as folder,
        progress("demo", quiet=output.silent) as report,
        without_warnings(manifoldrf.ManifoldWarning),  # the table shows their errors
    ):
        for done, (name, space) in enumerate(spaces.items()):
            report(name, done, 5)
            surfaces.append(_compare(name, *space, N_NODES))
        report("picture and explorer", 4, 5)
        files = {"picture": folder / "demo.png"} if available("matplotlib") else {}
        files["explorer"] = folder / "explorer.html"
        with atomic_paths(list(files.values())) as drafts:
            if "picture" in files:
                _draw(surfaces, drafts[0])
            manifoldrf.explore(surfaces[-1].model, drafts[-1], title="Heat kernel of a torus")
    rows = [surface.row for surface in surfaces]
    if output.as_json:
        print_json({"surfaces": rows, "files": {name: str(path) for name, path in files.items()}})
    console = rich.console.Console(quiet=output.silent)
    print_table(console, "Heat kernels on four surfaces", rows)
    for line in (_NOTES, "", *(f"{name:9} {path}" for name, path in files.items()), _NEXT):
        console.print(rich.text.Text(line), highlight=False)


def _compare(name: str, manifold: Any, n_neighbors: int, n_nodes: int) -> Surface:
    """Fit the default and the paper's recipe on one surface, and compare their kernels with the reference."""
    graph = manifoldrf.knn_graph(manifold.grid(n_nodes), n_neighbors=n_neighbors)
    t = graph.time(_TAU, dim=2)  # the heat time of the paper's diffusion: both methods have the same target
    new = manifold.sample(N_NEW, seed=0)
    shown = manifold.grid(8 * n_nodes)  # dense, so that the dots hide the far side
    source = shown[[int((shown @ [0.82, 0.33, 0.47]).argmax())]]  # faces the viewer
    kernel = reference(manifold, t)
    exact, make, models = kernel(new, new), manifoldrf.ManifoldRandomFeatures, {}
    if available("torch"):
        budget = _SMALL_BUDGET | {"field__n_starts": n_nodes // 4}
        recipe = make.paper(kernel=manifoldrf.DiffusionKernel(_TAU), graph=None, random_state=0, **budget)
        models["paper's recipe"] = recipe.fit(graph)
    models["default"] = make(manifoldrf.HeatKernel(t), normalize=False, random_state=0).fit(graph.positions)
    row, drawn = {"surface": name}, {"reference": kernel(shown, source)[:, 0]}
    for method, model in models.items():
        found = model.kernel_matrix(new)
        row[f"error, {method}"] = manifoldrf.relative_error(found, exact, alignment="frobenius")
        # The paper's kernel is per node: scale it to the unit of the surface's kernel.
        unit = np.linalg.norm(exact) / np.linalg.norm(found)
        drawn[method] = model.kernel_matrix(shown, source)[:, 0] * unit
    return Surface(shown, row, drawn, models["default"])


def reference(manifold: Any, t: float) -> Callable[[Any, Any], Any]:
    """The heat kernel of a surface, as a function: a formula on the sphere, features of the surface elsewhere."""
    if isinstance(manifold, manifoldrf.Sphere):
        return lambda a, b: manifold.heat_kernel(a, b, t)
    kernel = manifoldrf.HeatKernel(t)
    features = manifoldrf.ManifoldRandomFeatures(kernel, "all", normalize=False, random_state=0)
    return features.fit(manifold).kernel_matrix


def _draw(surfaces: list[Surface], path: Path) -> None:
    """Draw the kernel of one point on each surface: a row for the reference and one for each method."""
    methods = list(surfaces[0].drawn)
    figure = require("matplotlib.figure", "viz").Figure(figsize=(12, 2.8 * len(methods)))
    panels = figure.subplots(len(methods), len(surfaces), squeeze=False, subplot_kw={"projection": "3d"})
    # Panels of three axes have wide margins that automatic layouts do not know: texts stand at fixed places.
    figure.subplots_adjust(left=0.04, right=0.91, bottom=0.02, top=0.93, wspace=0.0, hspace=0.12)
    style = {"cmap": "magma_r", "vmin": 0, "vmax": 1, "s": 28, "linewidths": 0, "depthshade": False}
    for row, method in zip(panels, methods, strict=True):
        for axes, surface in zip(row, surfaces, strict=True):
            shades = surface.drawn[method] / surface.drawn["reference"].max()
            dots = axes.scatter(*surface.points.T, c=shades, **style)
            error = surface.row.get(f"error, {method}")  # the reference has none
            text = surface.row["surface"] if error is None else f"error {cell(error)}"
            axes.text2D(0.5, 1.0, text, transform=axes.transAxes, ha="center", va="bottom")
            axes.set_box_aspect(np.ptp(surface.points, axis=0), zoom=1.35)
            axes.view_init(28, 22)
            axes.set_axis_off()
        middle = (row[0].get_position().y0 + row[0].get_position().y1) / 2
        figure.text(0.015, middle, method, rotation=90, ha="center", va="center", fontsize=12)
    figure.colorbar(dots, cax=figure.add_axes((0.925, 0.2, 0.012, 0.6)), label="kernel / largest reference")
    figure.savefig(path, format="png", dpi=110)
