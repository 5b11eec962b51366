"""The demo: features on four surfaces in a minute; and the way to the paper's experiments."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NoReturn

import rich.console
import rich.text
import typer

from manifoldrf.cli.console import Report, cell, columns, print_json, print_table, progress
from manifoldrf.cli.options import Output

_OUT = typer.Option("--out", help="Folder for the results; created if needed.")

N_NODES = 1000  # of each graph; the paper has 4000
N_NEW = 256  # points that no graph contains
_TAU = 20.0  # steps of the paper's diffusion
_FINER = 2  # nodes of the reference graph over N_NODES, where there is no formula; 4 changes errors by < .005
_EPOCHS = 16
# The paper trains on 100,000 walks from each of 1000 nodes for 1000 epochs; these settings take seconds.
_SMALL_BUDGET: dict[str, Any] = {
    "teacher_options": {"n_walks": 10_000, "p_halt": 0.01},
    "field_options": {"network": "paper", "batch": 512, "epochs": _EPOCHS},
    "n_starts": 250,
}
_EXPLORER_TIME = 0.05  # heat time that is easy to see on the torus
_NOTE = (
    f"error: relative error of the heat kernel between {N_NEW} new points (0 is exact), against the formula on the "
    f"sphere and a graph with {_FINER} times the nodes elsewhere. "
)
_PAPER_NOTE = (
    f"The paper's recipe has a small budget here ({_EPOCHS} training epochs instead of 1000); in a checkout, "
    "`python -m reproduction surfaces --size paper` runs it in full. "
)
_SPEED_NOTE = (
    f"speed-up: time of a dense eigendecomposition of the {N_NODES} nodes over the time the default needs for the "
    "kernel between the new points."
)
_COLUMNS = {"paper": "error, paper's recipe", "default": "error, default"}
_TITLES = {"paper": "paper's recipe", "default": "default"}
_NO_TORCH = "Without the paper's recipe, which needs torch: pip install 'manifoldrf[torch]'"
_NO_PICTURE = "No picture: it needs matplotlib. Install it with: pip install 'manifoldrf[viz]'"


@dataclass
class Surface:
    """What the demo found on one surface."""

    name: str
    points: Any  # (n, 3), where kernels are drawn
    row: dict[str, Any]
    drawn: dict[str, Any] = field(default_factory=dict)  # method -> kernel of one point


def demo(output: Output, out: Annotated[str, _OUT] = "out") -> None:
    """Fit features on four surfaces, compare them with the exact kernel, write a report and an explorer page.

    It takes less than a minute.

    Example: manifoldrf demo --out results
    """
    from manifoldrf._files import folder_for_results
    from manifoldrf._runtime import available

    with folder_for_results(out, "out") as folder, progress("demo", quiet=output.silent) as report:
        surfaces = measure(report)
        files, notes = {}, []
        if available("matplotlib"):
            report("picture", 4, 5)
            files["picture"] = _draw(surfaces, folder / "demo.png")
        else:
            notes.append(_NO_PICTURE)
        if not available("torch"):
            notes.append(_NO_TORCH)
        rows = [surface.row for surface in surfaces]
        files["report"] = _write_report(folder / "report.html", rows, notes, files.get("picture"))
        report("explorer", 4, 5)
        files["explorer"] = _write_explorer(folder / "explorer.html")
    if output.as_json:
        print_json({"surfaces": rows, "files": {name: str(path) for name, path in files.items()}})
    _print(rich.console.Console(quiet=output.silent), rows, notes, files)


def measure(report: Report = lambda what, done, total: None) -> list[Surface]:
    """Fit and compare on all four surfaces."""
    from manifoldrf import Ellipsoid, MobiusStrip, Sphere, Torus

    report("compiling, up to a minute after a new installation", 0, 5)
    _compare("sphere", Sphere(), 8, 200)  # so that no time below includes a compilation
    # With the paper's numbers of neighbours.
    spaces: list[tuple[str, Any, int]] = [("sphere", Sphere(), 8), ("ellipsoid", Ellipsoid(), 8)]
    spaces += [("Möbius strip", MobiusStrip(), 24), ("torus", Torus(), 8)]
    found = []
    for done, (name, manifold, n_neighbors) in enumerate(spaces):
        report(name, done, 5)
        found.append(_compare(name, manifold, n_neighbors, N_NODES))
    return found


def _compare(name: str, manifold: Any, n_neighbors: int, n_nodes: int) -> Surface:
    """Fit the default and the paper's recipe on one surface, and compare their kernels with the reference."""
    import numpy as np

    from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, knn_graph, relative_error
    from manifoldrf._runtime import available

    graph = knn_graph(manifold.grid(n_nodes), n_neighbors=n_neighbors)
    t = graph.time(_TAU, dim=2)  # the heat time of the paper's diffusion: both methods have the same target
    new = manifold.sample(N_NEW, seed=0)
    shown = manifold.grid(2 * n_nodes)
    source = shown[[int((shown @ [0.82, 0.33, 0.47]).argmax())]]  # faces the viewer
    exact = reference(manifold, new, t)
    models = {}
    if available("torch"):
        budget = _SMALL_BUDGET | {"n_starts": n_nodes // 4}
        recipe = ManifoldRandomFeatures.paper(kernel=DiffusionKernel(_TAU), graph=None, random_state=0, **budget)
        models["paper"] = _quiet_fit(recipe, graph)
    models["default"] = _quiet_fit(ManifoldRandomFeatures(HeatKernel(t), random_state=0), graph.positions)
    row: dict[str, Any] = {"surface": name}
    drawn = {}
    for method, model in models.items():
        found = model.kernel_matrix(new)
        row[_COLUMNS[method]] = relative_error(found, exact, alignment="frobenius")
        # The paper's kernel is per node: draw it in the unit of the surface's own.
        drawn[method] = model.kernel_matrix(shown, source)[:, 0] * (np.linalg.norm(exact) / np.linalg.norm(found))
    seconds = _seconds(models["default"].kernel_matrix, new)
    row["speed-up"] = round(_spectral_seconds(graph) / seconds)
    return Surface(name, shown, row, drawn)


def reference(manifold: Any, points: Any, t: float) -> Any:
    """The heat kernel between points of a surface: a formula on the sphere, features of a finer graph elsewhere."""
    from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, Sphere

    if isinstance(manifold, Sphere):
        return manifold.heat_kernel(points, points, t)
    n_nodes = _FINER * N_NODES
    options = GraphOptions(weights=manifold.grid_weights(n_nodes))
    features = ManifoldRandomFeatures(HeatKernel(t), n_features="all", graph=options, random_state=0)
    return _quiet_fit(features, manifold.grid(n_nodes)).kernel_matrix(points)


def _quiet_fit(features: Any, space: Any) -> Any:
    """Fit without warnings: the table shows the errors they are about."""
    from manifoldrf import FeatureWarning, GraphWarning
    from manifoldrf._runtime import without_warnings

    with without_warnings(FeatureWarning), without_warnings(GraphWarning):
        return features.fit(space)


def _spectral_seconds(graph: Any) -> float:
    """Time of the kernel of a graph by a dense eigendecomposition, with the faster driver of LAPACK."""
    import numpy as np
    from scipy import linalg

    def kernel(dense: Any) -> Any:
        values, vectors = linalg.eigh(dense, driver="evd", check_finite=False)
        return (vectors * np.exp(_TAU * (values - 1))) @ vectors.T

    return _seconds(kernel, graph.operator.toarray(), repeats=2)


def _seconds(work: Callable[[Any], Any], argument: Any, repeats: int = 5) -> float:
    """The shortest of several times, which other work disturbs least."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work(argument)
        times.append(time.perf_counter() - start)
    return min(times)


def _draw(surfaces: list[Surface], path: Path) -> Path:
    """Draw the kernel of one point on each surface, one row for each method."""
    import numpy as np

    from manifoldrf._files import atomic_path
    from manifoldrf._runtime import require

    figures = require("matplotlib.figure", "viz")
    methods = list(surfaces[0].drawn)
    figure = figures.Figure(figsize=(11, 2.9 * len(methods)), layout="constrained")
    panels = figure.subplots(len(methods), len(surfaces), squeeze=False, subplot_kw={"projection": "3d"})
    for place, surface in enumerate(surfaces):
        for axes, method in zip(panels[:, place], methods, strict=True):
            values = surface.drawn[method] / surface.drawn["default"].max()
            axes.scatter(
                *surface.points.T, c=values, cmap="magma_r", vmin=0, vmax=1, s=30, linewidths=0, depthshade=False
            )
            axes.set_title(
                f"{surface.name}, {_TITLES[method]}\nerror {cell(surface.row[_COLUMNS[method]])}", fontsize=10
            )
            axes.set_box_aspect(np.ptp(surface.points, axis=0), zoom=1.45)
            axes.view_init(28, 22)
            axes.set_axis_off()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110)
    return path


def _write_report(path: Path, rows: list[dict[str, Any]], notes: list[str], picture: Path | None) -> Path:
    """Write the table and the picture as one HTML page."""
    from manifoldrf._files import atomic_path
    from manifoldrf.cli.page import html_page

    names = columns(rows)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *([cell(row[name]) for name in names] for row in rows)]
    parts = ["# The manifoldrf demo", "\n".join("| " + " | ".join(line) + " |" for line in lines)]
    parts += [_explanation(rows), *notes]
    images = {}
    if picture is not None:
        parts.append(f"![Heat kernel of one point (dark: large), by each method.]({picture.name})")
        images[picture.name] = picture.read_bytes()
    with atomic_path(path) as temporary:
        temporary.write_text(html_page("\n\n".join(parts), "The manifoldrf demo", images), encoding="utf-8")
    return path


def _write_explorer(path: Path) -> Path:
    """Write an explorer page of the heat kernel of a torus."""
    from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus
    from manifoldrf.explorer.page import explore

    features = ManifoldRandomFeatures(HeatKernel(_EXPLORER_TIME), random_state=0).fit(Torus())
    return explore(features, path, title="Heat kernel of a torus").path


def _explanation(rows: list[dict[str, Any]]) -> str:
    """What the columns mean."""
    return _NOTE + (_PAPER_NOTE if _COLUMNS["paper"] in rows[0] else "") + _SPEED_NOTE


def _print(console: Any, rows: list[dict[str, Any]], notes: list[str], files: dict[str, Path]) -> None:
    """Print the table, the files, and what to try next."""
    print_table(console, "Heat kernels on four surfaces", rows)
    lines = [_explanation(rows), *notes, ""]
    lines += [f"{name:9} {path}" for name, path in files.items()]
    lines += [
        "",
        "Open the report and the explorer in a browser. Try next:",
        "  manifoldrf fit scan.ply -o scan.safetensors       # your own mesh or points",
        "  manifoldrf explore scan.safetensors -o scan.html  # look at its kernel",
        "  manifoldrf reproduce                              # the paper's experiments",
    ]
    for line in lines:
        console.print(rich.text.Text(line), highlight=False)


# --------------------------------------------------------------------------------------------- the experiments
def reproduce(context: typer.Context) -> NoReturn:
    """Run the paper's experiments, in a checkout: the same as python -m reproduction, with its arguments.

    Example: manifoldrf reproduce surfaces --size smoke
    """
    checkout = Path(__file__).parents[3]
    if not (checkout / "reproduction" / "__main__.py").is_file():
        raise ModuleNotFoundError(
            "The paper's experiments are not installed with the package: "
            "clone the source repository of manifoldrf and run `python -m reproduction` there."
        )
    paths = [str(checkout), str(checkout / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    debug = ["--debug"] if "--debug" in sys.argv else []  # the program has taken it from the arguments
    sys.stdout.flush()
    # -P: a folder of the same name in the working directory is not meant. The process is replaced, so that signals
    # and exit codes need no forwarding.
    called = [sys.executable, "-P", "-m", "reproduction", *context.args, *debug]
    os.execve(sys.executable, called, environment)
