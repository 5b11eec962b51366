"""Draw the pictures of the pages, from what their code blocks compute.

Run ``PYTHONPATH=. python docs/pictures.py`` in a clone with the extras, with names such as ``why times`` for
some of them. The files are docs/images/NAME.png. Those of the explorer need Chromium.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.tri import Triangulation
from PIL import Image
from sklearn.manifold import Isomap

from manifoldrf import HeatKernel, ManifoldRandomFeatures, ManifoldRidge, Sphere, TriangleMesh, explore
from manifoldrf.geometry import clean_cloud
from reproduction.mesh_data import builtin_mesh

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(r"(<!-- no-test -->\s*)?^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
HEAT, DIFFERENCE, MARK = "magma_r", "RdBu", "#009E73"
matplotlib.rcParams.update({"font.size": 10, "axes.titlesize": 10.5})


def of_page(name, *needed):
    """Run the Python blocks of a page in order until the needed variables exist, and return them."""
    variables = {"__name__": "page"}
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
        for skip, code in BLOCK.findall(text):
            if not skip:
                exec(code, variables)
            if variables.keys() >= set(needed):
                return [variables[variable] for variable in needed]
    missing = set(needed) - variables.keys()
    raise ValueError(f"The blocks of {name} define no {', '.join(sorted(missing))}.")


def view_from(elevation, azimuth):
    """Columns: to the right, upwards, towards the viewer; shape (3, 3)."""
    up, around = np.deg2rad(elevation), np.deg2rad(azimuth)
    right = np.array([-np.sin(around), np.cos(around), 0.0])
    towards = np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])
    return np.stack([right, np.cross(towards, right), towards], axis=1)


def draw_surface(axes, grid, values, view, colours, limits):
    """Draw the quadrilaterals of a grid (m, n, 3) from back to front; parts that face sideways are darker."""
    corners = np.stack([grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]], axis=2).reshape(-1, 4, 3)
    means = (values[:-1, :-1] + values[1:, :-1] + values[1:, 1:] + values[:-1, 1:]).ravel() / 4
    normals = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    slant = np.abs(normals @ view[:, 2]) / np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    shades = plt.get_cmap(colours)(plt.Normalize(*limits)(means))
    shades[:, :3] *= (0.7 + 0.3 * slant)[:, None]
    order = np.argsort(corners.mean(axis=1) @ view[:, 2])
    flat = corners @ view[:, :2]
    axes.add_collection(PolyCollection(flat[order], facecolors=shades[order], edgecolors=shades[order], lw=0.3))
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set_axis_off()
    return plt.cm.ScalarMappable(plt.Normalize(*limits), colours)


def draw_why():
    """A roll, coloured by the Gaussian kernel and by the heat kernel of one point."""
    lengths, angles, roll, t = of_page("comparisons", "lengths", "angles", "roll", "t")
    features = ManifoldRandomFeatures(HeatKernel(t), random_state=0).fit(roll(4000)[0])
    u, v = np.meshgrid(np.linspace(0, lengths[-1], 300), np.linspace(0.7, 1.3, 24), indexing="ij")  # a low slice
    angle = np.interp(u, lengths, angles)
    grid = np.stack([0.08 * angle * np.cos(angle), 0.08 * angle * np.sin(angle), v], axis=-1)
    start = grid[130, 12]
    straight = np.exp(-((grid - start) ** 2).sum(axis=-1) / (4 * t))
    along = features.kernel_matrix(grid.reshape(-1, 3), start[None]).reshape(u.shape)
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
    titles = ("Gaussian kernel: straight through the air", "heat kernel by features: along the sheet")
    view = view_from(48, np.rad2deg(angle[130, 0]) + 180)  # from the other side, over the rim
    for axes, title, values in zip(panels, titles, (straight, along), strict=True):
        shown = draw_surface(axes, grid, values / values.max(), view, HEAT, (0, 1))
        axes.plot(*(start @ view[:, :2]), "o", mfc="none", mec=MARK, ms=11, mew=2)
        axes.set_title(title)
    figure.colorbar(shown, ax=panels, shrink=0.8, label="kernel of the ringed point / its largest value")
    return figure


def draw_times():
    """The kernel of one point of a torus at three times, and a field predicted with each."""
    names = ("ring", "cloud", "known", "values", "field", "new")
    ring, cloud, known, values, field, new = of_page("guide/choosing", *names)
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 121), np.linspace(0, 2 * np.pi, 61), indexing="ij")
    around = ring.major + ring.minor * np.cos(v)
    grid = np.stack([around * np.cos(u), around * np.sin(u), ring.minor * np.sin(v)], axis=-1)
    places, start, view = grid.reshape(-1, 3), grid[[13], [9]], view_from(45, 40)
    figure, panels = plt.subplots(2, 3, figsize=(9, 4.9), layout="constrained")
    for column, name, t in zip(panels.T, ("too short", "right", "too long"), (0.003, 0.1, 10.0), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel is nearly constant at the last time
            features = ManifoldRandomFeatures(HeatKernel(t), random_state=0).fit(cloud)
            kernel = features.kernel_matrix(places, start).reshape(u.shape)
            ridge = ManifoldRidge(features, space=cloud).fit(known, values)
            found = ridge.predict(places)
        error = np.abs(ridge.predict(new) - field(new)).mean()
        heat = draw_surface(column[0], grid, kernel / kernel.max(), view, HEAT, (0, 1))
        drawn = draw_surface(column[1], grid, found.reshape(u.shape), view, DIFFERENCE, (-1.5, 1.5))
        column[0].set_title(f"{name}: t = {t:g}, {features.n_features_out_} features")
        column[1].set_title(f"mean error of the field {error:.2f}")
    figure.colorbar(heat, ax=panels[0], shrink=0.85, label="kernel of a point")
    figure.colorbar(drawn, ax=panels[1], shrink=0.85, label="field predicted\nfrom 60 values")
    return figure


def draw_noise():
    """A slab through a noisy sphere, before and after cleaning."""
    (noisy,) = of_page("guide/noise", "noisy")
    cloud = clean_cloud(noisy)
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.9), layout="constrained")
    cleaned = cloud.origin + cloud.points @ cloud.axes.T
    for axes, title, points in zip(panels, ("as given", "moved onto the surface"), (noisy, cleaned), strict=True):
        slab = points[np.abs(points[:, 2]) < 0.1]
        axes.plot(*slab[:, :2].T, ".", color="#0072B2", ms=4)
        axes.set(title=title, aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        axes.axis("off")
    return figure


def draw_mesh_field():
    """The roll, its unrolled scan, and the errors of two ways to fill it in."""
    names = ("sheet", "u", "v", "pattern", "scan", "filled", "through_space", "error")
    sheet, u, v, pattern, scan, filled, through_space, error = of_page("guide/mesh_field", *names)
    colours = plt.get_cmap(DIFFERENCE).with_extremes(bad="0.6")
    limit = np.abs(pattern).max()
    figure = plt.figure(figsize=(9, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
    grid = np.asarray(sheet.vertices).reshape(160, 60, 3)
    axes = left.add_subplot()
    draw_surface(
        axes, grid, np.ma.masked_invalid(scan).reshape(160, 60), view_from(38, -70), colours, (-limit, limit)
    )
    axes.set_title("a rolled sheet; grey: missing")
    flat = Triangulation(4 * u, v, sheet.faces)
    fields = {"the scan, unrolled": (scan, colours, -limit, limit)}
    for name, values in (("along the sheet", filled), ("thin-plate spline through space", through_space)):
        fields[f"error, {name}: {error(values):.2f}"] = np.abs(values - pattern), HEAT, 0.0, 0.5 * pattern.std()
    for axes, (title, (values, palette, low, high)) in zip(right.subplots(3, 1), fields.items(), strict=True):
        faces = np.ma.masked_invalid(values[flat.triangles].mean(axis=1))
        shown = axes.tripcolor(flat, facecolors=faces, cmap=palette, vmin=low, vmax=high)
        axes.set_title(title)
        axes.set_aspect("equal")
        axes.set_axis_off()
        right.colorbar(shown, ax=axes, aspect=8, pad=0.01)
    return figure


def draw_few_labels():
    """Digits as dots near similar ones, coloured by the class that two models give them."""
    names = ("images", "digits", "labelled", "rows", "model", "pixels")
    images, digits, labelled, rows, model, pixels = of_page("guide/few_labels", *names)
    places = Isomap(n_neighbors=8).fit_transform(images)
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.0), layout="constrained")
    answers = {"linear model of the pixels": pixels.predict(images), "of the features": model.predict(rows)}
    others = np.setdiff1d(np.arange(len(digits)), labelled)
    for axes, (name, answer) in zip(panels, answers.items(), strict=True):
        right = answer == digits
        shown = axes.scatter(*places[right].T, c=answer[right], s=9, cmap="tab10", vmin=-0.5, vmax=9.5, lw=0)
        axes.plot(*places[~right].T, "x", color="black", ms=4, mew=0.8)
        axes.plot(*places[labelled].T, "o", mfc="none", mec="black", ms=8)
        axes.set_title(f"{name}: {right[others].mean():.2f} right; crosses: wrong")
        axes.set_axis_off()
    figure.colorbar(shown, ax=panels, ticks=range(10), shrink=0.85, label="digit; rings: the 20 labels")
    return figure


def draw_regression():
    """Two sensors, coloured by the true and by two predicted wears."""
    names = ("sensors", "wear", "others", "measured", "mean", "svm", "explained", "ambient")
    sensors, wear, others, measured, mean, svm, explained, _ = of_page("guide/regression", *names)
    predicted = svm.predict(sensors[others])
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained", sharex=True, sharey=True)
    titles = (
        "wear; rings: 40 measured rows",
        f"support vector machine: {explained(predicted):.2f}",
        f"along the table: {explained(mean):.2f} explained",
    )
    fields = ((np.arange(len(wear)), wear), (others, predicted), (others, mean))
    for axes, title, (rows, values) in zip(panels, titles, fields, strict=True):
        shown = axes.scatter(*sensors[rows, :2].T, c=values, s=9, cmap="viridis", vmin=wear.min(), vmax=wear.max())
        axes.set(title=title, xlabel="sensor 1", aspect="equal")
    panels[0].set_ylabel("sensor 2")
    panels[0].scatter(*sensors[measured, :2].T, s=50, facecolors="none", edgecolors="black", linewidths=1.1)
    figure.colorbar(shown, ax=panels, label="wear", shrink=0.9)
    return figure


def draw_graph():
    """The club with the sides that were found, and bars of all methods."""
    names = ("club", "sides", "found", "known", "in_club", "in_groups")
    club, sides, found, known, in_club, in_groups = of_page("guide/graph", *names)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    places = nx.spring_layout(club, seed=3)
    nx.draw_networkx_edges(club, places, ax=left, alpha=0.25)
    rings = np.where(np.isin(np.arange(len(sides)), known), 2.5, 0.0)
    colours = np.array(["#E69F00", "#56B4E9"])[found]
    nx.draw_networkx_nodes(
        club, places, ax=left, node_color=colours, node_size=110, linewidths=rings, edgecolors="black"
    )
    for member in np.flatnonzero(found != sides):
        left.plot(*places[member], "x", color="crimson", ms=12, mew=2.5)
    left.set_title("sides found from two labels (rings); cross: wrong")
    left.set_axis_off()
    cases = {"karate club, 1 label a side": in_club, "4 random groups, 3 labels each": in_groups}
    for k, (case, shares) in enumerate(cases.items()):
        rows = np.arange(len(shares)) - 0.2 + 0.4 * k
        bars = right.barh(rows, list(shares.values()), height=0.38, label=case, color=(MARK, "0.65")[k])
        right.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    right.set_yticks(range(len(shares)), [name.replace(" and ", "\nand ") for name in shares])
    right.invert_yaxis()
    right.set(xlim=(0, 1.12), xlabel="share of right labels")
    right.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=1, frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    return figure


def draw_attention():
    """Values of visible tokens, and what attention makes of them along the strip and through space."""
    tokens, values, visible, along, through = of_page(
        "guide/attention", "tokens", "values", "visible", "along", "through"
    )
    figure, panels = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
    titles = ["known at a tenth of the tokens"]
    for name, found in (("along the strip", along), ("through space", through)):
        titles.append(f"{name}: error {(found - values)[~visible].abs().mean():.2f}")
    for axes, title, field in zip(panels, titles, (values, along, through), strict=True):
        axes.scatter(*tokens[:, :2].T, s=3, c="0.85", lw=0)
        shown = visible if field is values else ~visible
        drawn = axes.scatter(*tokens[shown, :2].T, c=field[shown, 0], s=8, cmap="RdBu", vmin=-1, vmax=1, lw=0)
        axes.set(title=title, aspect="equal")
        axes.set_axis_off()
    figure.colorbar(drawn, ax=panels, shrink=0.85, label="value")
    return figure


def draw_large():
    """Nodes, features and errors for clouds of many sizes."""
    sizes = (1000, 3000, 10_000, 30_000, 100_000, 300_000)
    new = Sphere().sample(300, seed=1)
    exact = Sphere().heat_kernel(new, new, 0.05)
    nodes, seconds = [], []
    for size in sizes:
        points = Sphere().sample(size, seed=0)
        model = ManifoldRandomFeatures(HeatKernel(0.05), normalize=False, random_state=0, n_jobs=1)
        start = time.process_time()
        model.fit(points)
        seconds.append(time.process_time() - start)
        error = np.linalg.norm(model.kernel_matrix(new) - exact) / np.linalg.norm(exact)
        nodes.append((model.graph_.n_nodes, error))
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
    nodes, errors = zip(*nodes, strict=True)
    for axes, title, values in zip(
        panels,
        ("nodes of the graph", "relative error of the kernel", "CPU time of the fit, s"),
        (nodes, errors, seconds),
        strict=True,
    ):
        axes.semilogx(sizes, values, "o-", color="#0072B2")
        axes.set(title=title, xlabel="points", ylim=(0, 1.5 * max(values)))
        axes.grid(alpha=0.3)
    return figure


def draw_cells():
    """Cells in two coordinates, coloured by the branch that two methods give them."""
    pca, branch, few, found, nearest = of_page("guide/cells", "pca", "branch", "few", "found", "nearest")
    plane = pca[:, :2]
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.0), layout="constrained")
    colours = np.array(["#0072B2", "#E69F00", "#CC79A7"])
    answers = {"nearest label in the coordinates": nearest, "in features": found}
    for axes, (name, answer) in zip(panels, answers.items(), strict=True):
        wrong = answer != branch
        axes.scatter(*plane.T, c=colours[answer], s=12, lw=0)
        axes.plot(*plane[wrong].T, "x", color="black", ms=4, mew=0.8)
        axes.scatter(*plane[few].T, s=90, facecolors="none", edgecolors="black", linewidths=1.5)
        axes.set(title=f"{name}: {1 - wrong.mean():.2f} right; crosses: wrong", aspect="equal")
        axes.set_axis_off()
    return figure


def photograph(page, size, state=""):
    """A page in Chromium, which must be installed, as a picture; ``state`` follows the # of its address."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "page.html"
        place.write_text(page, encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--enable-unsafe-swiftshader"]
        shot = [
            f"--window-size={size[0]},{size[1]}",
            "--virtual-time-budget=20000",
            f"--screenshot={folder}/shot.png",
        ]
        subprocess.run(["chromium", *flags, *shot, f"{place.as_uri()}#{state}"], check=True, capture_output=True)
        return Image.open(f"{folder}/shot.png").convert("RGB")


def draw_explorer():
    """The page of a bunny, with the kernel of a point on its flank."""
    bunny = builtin_mesh("bunny", 12_000).mesh
    mesh = TriangleMesh(bunny.vertices / np.ptp(bunny.vertices, axis=0).max(), bunny.faces)
    features = ManifoldRandomFeatures(HeatKernel(0.004), normalize=False, random_state=0).fit(mesh)
    centre = np.asarray(mesh.vertices).mean(axis=0)
    flank = int(np.argmin(np.linalg.norm(mesh.vertices - (centre + np.array([0.15, -0.3, 0.1])), axis=1)))
    page = explore(features, title="Heat on the bunny", surface=mesh)
    return photograph(page.html, (1200, 720), f"p={flank}")


def draw_explorer_fields():
    """The page with the known values of a sphere."""
    (page,) = of_page("explorer", "page", "after")[:1]
    return photograph(page.html, (1100, 620))


PICTURES = {
    "why": draw_why,
    "times": draw_times,
    "noise": draw_noise,
    "task_mesh_field": draw_mesh_field,
    "task_few_labels": draw_few_labels,
    "task_regression": draw_regression,
    "task_graph": draw_graph,
    "task_attention": draw_attention,
    "task_large": draw_large,
    "task_cells": draw_cells,
    "explorer": draw_explorer,
    "explorer_fields": draw_explorer_fields,
}

if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name in sys.argv[1:] or PICTURES:
        drawn, path = PICTURES[name](), DOCS / "images" / f"{name}.png"
        if isinstance(drawn, Image.Image):
            drawn.save(path, optimize=True)
        else:
            drawn.savefig(path, dpi=110)
            plt.close("all")
            Image.open(path).convert("RGB").quantize(256, kmeans=5).save(path, optimize=True)
