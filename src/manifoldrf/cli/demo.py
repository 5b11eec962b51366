"""The demo: features on four surfaces in 1 to 3 minutes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import rich.console
import rich.text
import typer

from manifoldrf._files import atomic_paths, folder_for_results
from manifoldrf._runtime import available, require, without_warnings
from manifoldrf.cli.console import Report, cell, print_json, print_table, progress
from manifoldrf.cli.options import Output

N_NODES = 1000  # of each graph; the paper has 4000
N_NEW = 256  # points that no graph contains
_TAU = 20.0  # steps of the paper's diffusion
# The paper trains on 100,000 walks from each of 1000 nodes for 1000 epochs; these settings take seconds.
_SMALL_BUDGET: dict[str, Any] = {"teacher__n_walks": 10_000, "field__batch": 512, "field__epochs": 16}
_TITLE = "Heat kernels on four surfaces"
_NOTE = (
    f"error: relative error of the heat kernel between {N_NEW} new points (0 is exact), against the formula on the "
    "sphere and features of the surface itself elsewhere; both methods only know points of it. speed-up: time of a "
    f"dense eigendecomposition of the {N_NODES} nodes over the time the default needs for the kernel between the "
    "new points, without the fit; it varies with load."
)
_PAPER_NOTE = (
    "The paper's recipe has a small budget here (16 training epochs instead of 1000); in a checkout, "
    "`python -m reproduction surfaces --size paper` runs it in full."
)
_NO_TORCH = "Without the paper's recipe, which needs torch: pip install 'manifoldrf[torch]'"
_NO_PICTURE = "No picture: it needs matplotlib. Install it with: pip install 'manifoldrf[viz]'"
_NEXT = """
Open the explorer in a browser. Try next:
  manifoldrf fit scan.ply -o scan.safetensors       # your own mesh or points
  manifoldrf explore scan.safetensors -o scan.html  # look at its kernel
  manifoldrf reproduce                              # the paper's experiments"""


@dataclass
class Surface:
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

    It takes 1 to 3 minutes, longest the first time.

    Example: manifoldrf demo --out results
    """
    from manifoldrf import FeatureWarning
    from manifoldrf.explorer.page import explore

    with folder_for_results(out, "out") as folder, progress("demo", quiet=output.silent) as report:
        surfaces = measure(report)
        rows = [surface.row for surface in surfaces]
        report("picture and explorer", 4, 5)
        files = {"explorer": folder / "explorer.html"}
        notes = [_NOTE, _PAPER_NOTE if available("torch") else _NO_TORCH]
        if available("matplotlib"):
            files = {"picture": folder / "demo.png", **files}
        else:
            notes.append(_NO_PICTURE)
        # The table shows the errors that warnings are about. All files are written or none.
        with without_warnings(FeatureWarning), atomic_paths(list(files.values())) as drafts:
            if "picture" in files:
                _draw(surfaces, drafts[0])
            explore(surfaces[-1].model, drafts[-1], title="Heat kernel of a torus")
    if output.as_json:
        print_json({"surfaces": rows, "files": {name: str(path) for name, path in files.items()}})
    console = rich.console.Console(quiet=output.silent)
    print_table(console, _TITLE, rows)
    for line in (*notes, "", *(f"{name:9} {path}" for name, path in files.items()), _NEXT):
        console.print(rich.text.Text(line), highlight=False)


def measure(report: Report) -> list[Surface]:
    """Fit and compare on all four surfaces, with the paper's numbers of neighbours."""
    from manifoldrf import Ellipsoid, FeatureWarning, GraphWarning, MobiusStrip, Sphere, Torus

    spaces: list[tuple[str, Any, int]] = [("sphere", Sphere(), 8), ("ellipsoid", Ellipsoid(), 8)]
    spaces += [("Möbius strip", MobiusStrip(), 24), ("torus", Torus(), 8)]
    found = []
    with without_warnings(FeatureWarning, GraphWarning):  # the table shows the errors they are about
        _compare(*spaces[0], 200)  # so that no time below includes an import
        for done, space in enumerate(spaces):
            report(f"{space[0]}, {done + 1} of {len(spaces)}", done, 4)
            found.append(_compare(*space, N_NODES))
    return found


def _compare(name: str, manifold: Any, n_neighbors: int, n_nodes: int) -> Surface:
    """Fit the default and the paper's recipe on one surface, and compare their kernels with the reference."""
    from scipy import linalg

    from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, knn_graph, relative_error

    graph = knn_graph(manifold.grid(n_nodes), n_neighbors=n_neighbors)
    t = graph.time(_TAU, dim=2)  # the heat time of the paper's diffusion: both methods have the same target
    new = manifold.sample(N_NEW, seed=0)
    shown = manifold.grid(8 * n_nodes)  # dense, so that the dots hide the far side
    source = shown[[int((shown @ [0.82, 0.33, 0.47]).argmax())]]  # faces the viewer
    kernel = reference(manifold, t)
    exact = kernel(new, new)
    models = {}
    if available("torch"):
        budget = _SMALL_BUDGET | {"field__n_starts": n_nodes // 4}
        recipe = ManifoldRandomFeatures.paper(kernel=DiffusionKernel(_TAU), graph=None, random_state=0, **budget)
        models["paper's recipe"] = recipe.fit(graph)
    models["default"] = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0).fit(graph.positions)
    surface = Surface(shown, {"surface": name}, {"reference": kernel(shown, source)[:, 0]}, models["default"])
    for method, model in models.items():
        found = model.kernel_matrix(new)
        surface.row[f"error, {method}"] = relative_error(found, exact, alignment="frobenius")
        # The paper's kernel is per node: scale it to the unit of the surface's kernel.
        unit = np.linalg.norm(exact) / np.linalg.norm(found)
        surface.drawn[method] = model.kernel_matrix(shown, source)[:, 0] * unit
    dense = graph.operator.toarray()

    def spectral_kernel() -> Any:
        values, vectors = linalg.eigh(dense, driver="evd", check_finite=False)  # the faster driver of LAPACK
        return (vectors * np.exp(_TAU * (values - 1))) @ vectors.T

    seconds = np.median(_seconds(lambda: models["default"].kernel_matrix(new), 5))
    surface.row["speed-up"] = int(float(f"{min(_seconds(spectral_kernel, 2)) / seconds:.2g}"))
    return surface


def reference(manifold: Any, t: float) -> Callable[[Any, Any], Any]:
    """The heat kernel of a surface, as a function: a formula on the sphere, features of the surface elsewhere."""
    from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere

    if isinstance(manifold, Sphere):
        return lambda a, b: manifold.heat_kernel(a, b, t)
    features = ManifoldRandomFeatures(HeatKernel(t), "all", normalize=False, random_state=0)
    return features.fit(manifold).kernel_matrix


def _seconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Time some work several times."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times


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
            dots = axes.scatter(
                *surface.points.T, c=surface.drawn[method] / surface.drawn["reference"].max(), **style
            )
            error = surface.row.get(f"error, {method}")  # the reference has none
            text = surface.row["surface"] if error is None else f"error {cell(error)}"
            axes.text2D(0.5, 1.0, text, transform=axes.transAxes, ha="center", va="bottom")
            axes.set_box_aspect(np.ptp(surface.points, axis=0), zoom=1.35)
            axes.view_init(28, 22)
            axes.set_axis_off()
        middle = (row[0].get_position().y0 + row[0].get_position().y1) / 2
        figure.text(0.015, middle, method, rotation=90, ha="center", va="center", fontsize=12)
    bar = figure.add_axes((0.925, 0.2, 0.012, 0.6))
    figure.colorbar(dots, cax=bar, label="kernel / largest reference")
    figure.savefig(path, format="png", dpi=110)
