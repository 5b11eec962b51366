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

    Example: manifoldrf demo -o results
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
    row: dict[str, Any] = {"surface": name}
    drawn = {"reference": kernel(shown, source)[:, 0]}
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
    """Draw the kernel of one point on each surface: the reference, each method, and their differences."""
    from scipy.spatial import KDTree

    methods, colours = list(surfaces[0].drawn), require("matplotlib", "viz").colormaps
    rows = [(method, method, 0.0, "magma_r") for method in methods]
    rows += [(f"{method}\n- reference", method, -1.0, "RdBu") for method in methods[1:]]
    right, up, towards = np.array([[-0.375, 0.927, 0], [-0.435, -0.176, 0.883], [0.819, 0.331, 0.469]])
    figure = require("matplotlib.figure", "viz").Figure(figsize=(10, 1.9 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(surfaces))
    for column, surface in zip(panels.T, surfaces, strict=True):
        column[0].set_title(surface.row["surface"])
        near = surface.points[KDTree(surface.points).query(surface.points, 12)[1]]  # (n, 12, 3)
        normals = np.linalg.svd(near - near.mean(axis=1, keepdims=True), full_matrices=False)[2][:, 2]
        order = np.argsort(surface.points @ towards)  # from back to front; what faces sideways is darker
        light, flat = 0.7 + 0.3 * np.abs(normals @ towards), surface.points @ np.stack([right, up], axis=1)
        for axes, (_, method, low, name) in zip(column, rows, strict=True):
            field = (surface.drawn[method] + low * surface.drawn["reference"]) / surface.drawn["reference"].max()
            shades = colours[name]((field - low) / (1 - low))[:, :3] * light[:, None]
            axes.scatter(*flat[order].T, c=shades[order], s=16, linewidths=0)
            axes.set(aspect="equal", xticks=[], yticks=[], frame_on=False)
            axes.set_xlabel(f"error {cell(surface.row[f'error, {method}'])}" if low else "")
    for axes, (text, *_) in zip(panels[:, 0], rows, strict=True):
        axes.set_ylabel(text)
    scale, shown = require("matplotlib.colors", "viz").Normalize, require("matplotlib.cm", "viz").ScalarMappable
    for part, low, name in ((panels[: len(methods)], 0, "magma_r"), (panels[len(methods) :], -1, "RdBu")):
        label = "difference, same unit" if low else "kernel / largest reference"
        figure.colorbar(shown(scale(low, 1), name), ax=part, label=label)
    figure.savefig(path, format="png", dpi=110)
