"""What each mechanism between a cloud and its heat graph is worth: errors without it over errors with it.

``python benchmarks/ablate_clouds.py`` fits heat graphs to clouds, each time with one mechanism switched off by an
edit of its source, and compares their kernels at new points with the closed form. A mechanism stays if it changes
one cloud by a factor of 1.5, and no more clouds are tried, or the median by 5 %. Arguments select mechanisms by how
their names begin; ``--write``, of all, puts the table into `docs/development/decisions.md`. It takes ten minutes.
"""

import inspect
import sys
import textwrap
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import known_spaces as known
import numpy as np
from bench_clouds import Setting
from scipy import sparse
from table import fill

from manifoldrf import Sphere, heat_graph, relative_error
from manifoldrf.geometry import clean_cloud, cleaning, curves, heat, layout, patches, spaces

SPACES, SPHERE = known.SPACES, Sphere()
CLOUDS = [  # quick ones first
    ("ellipse 2:1", 1000, 50), ("circle", 300, 1, 0.02), ("helix", 500, 1, 0.01), ("S^2", 200), ("square", 1000),
    ("S^2", 300, 1, 0.02), ("cylinder, height .1", 1000), ("cone frustum", 1000), ("ring torus", 1000, 10),
    ("octant", 1000), ("cap", 1000, 1, 0.01), ("Möbius strip", 1000), ("cylinder", 2000, 10), ("solid ball", 1500),
    ("strip 2 x .1", 2000), ("two layers, gap 0.141", 2000), ("circle", 1000, 1, 0.02), ("triangle", 4000),
    ("cylinder", 4000, 10), ("cap", 4000, 1, 0.01), ("disc", 4000, 1, 0.01), ("roll, gap 0.245", 3000),
    ("roll, gap 0.245", 4000), ("Klein bottle", 4000, 50),
]  # fmt: skip


def clouds():
    """Title, points, new points, exact kernel and time of each cloud."""
    settings = [Setting("", SPACES[name], *options) for name, *options in CLOUDS]
    drawn = [(setting.title, *setting.draw(7), setting.space.t) for setting in settings]
    points, new, exact = Setting("", SPACES["S^2"], 1000, 10).draw(7)
    rng = np.random.default_rng(7)
    copies = {n: np.repeat(points[:n], 3000 // n, axis=0) for n in (10, 600)}
    parts = {
        "outliers": [points, rng.uniform(-1.5, 1.5, size=(50, 3))],
        "more outliers": [SPHERE.sample(3800, seed=7), rng.uniform(-1.5, 1.5, size=(200, 3))],
        "two spheres": [SPHERE.sample(2000, seed=7), 3 * SPHERE.sample(500, seed=8) + [9, 0, 0]],
        "clumps": [points, copies[10] + 1e-3 * rng.normal(size=(3000, 3))],
        "copies": [copies[600] + 1e-3 * rng.normal(size=(3000, 3))],
    }
    drawn += [(title, np.vstack(part), new, exact, 0.05) for title, part in parts.items()]
    frame = np.linalg.qr(rng.normal(size=(30, 3)))[0].T
    many = SPHERE.sample(600, seed=7) @ frame + 0.02 * rng.normal(size=(600, 30))
    return [*drawn, ("S^2 in R^30, noise 0.01", many, new @ frame, exact, 0.05)]


MECHANISMS = {
    "copies: merged": (cleaning.merge_copies, "k < 2", "True"),
    "copies: smaller and smaller groups": (cleaning.merge_copies, "range(16)", "range(1)"),
    "copies: pairs must be closer": (cleaning.merge_copies, "np.where(sizes > 2, 6, 16)", "6"),
    "copies: the rest merged like most": (cleaning.merge_copies, "n_merged > 0.2 * n", "False"),
    "noise: removed": (clean_cloud, "check_noise(noise_std)", "noise_std = 0"),
    "noise: bandwidth follows from it": (cleaning._bandwidth, "range(60)", "range(0)"),
    "noise: rounds": (cleaning._noise_for, "range(6)", "range(1)"),
    "noise: none where patches are exact": (cleaning._noise_for, "0.02 * np.sqrt(h2)", "0"),
    "noise: steady with the bandwidth": (cleaning._noise_for, "< 1.15 * sigma", "< np.inf"),
    "noise: fourth moments": (cleaning._is_noise, "_fourth(capped, normal_axes) > 0.8", "True"),
    "noise: equal in all directions": (cleaning._is_noise, "variances[few - 1] > 0.25 * variances[0]", "True"),
    "noise: robust deviation": (
        cleaning._robust_std,
        "np.minimum(squares, ROBUST * np.median(squares))",
        "squares",
    ),
    "noise: fewer axes": (cleaning._surface_through, "if sigma > 0 and", "if False and"),
    "outliers: left out": (cleaning._are_off, "return off,", "return off & False,"),
    "outliers: surface again without them": (clean_cloud, "if off.any():", "if False:"),
    "outliers: not by chance": (cleaning._are_off, "np.maximum(by_chance, 0.02 * spacing2)", "0.02 * spacing2"),
    "outliers: not within the spacing": (cleaning._are_off, "np.maximum(by_chance, 0.02 * spacing2)", "by_chance"),
    "outliers: further off than their neighbours": (cleaning._are_off, "alone & ", ""),
    "outliers: a few points together": (cleaning._are_off, "< min(12, 0.05 * n)", "< 0"),
    "patches: quadratic (planes instead)": (patches._fit_block, "1e-3", "1e6"),
    "patches: robust to other layers": (patches._fit_block, "far = np", "far = 0 * np"),
    "patches: wider where points are sparse": (patches._fit_block, "squares[:, needed] / 2", "0 * squares[:, 0]"),
    "patches: last neighbour fades out": (patches._fit_block, "weights - weights[:, -1:]", "weights"),
    "patches: ridge": (patches._fit_block, "1e-3", "0"),
    "patches: blended (2 instead of 8)": (patches.LocalSurface.project, "min(BLENDED,", "min(2,"),
    "edges: found": (patches.find_edge, "points.shape\n", "points.shape\n    return Edge.none(dim, n_axes)\n"),
    "edges: directions turned": (patches.find_edge, "[outward, *_turns(outward, dim)]", "[outward]"),
    "edges: normals averaged": (patches.find_edge, "normals = mean / _lengths(mean)", "pass"),
    "edges: windows within the curvature": (patches.find_edge, "surface.radii(points)", "widest"),
    "edges: other layers not seen": (patches.find_edge, "& (_lengths(flat)[..., 0] > 0.7 * d)", ""),
    "edges: lengths as in space": (
        patches.find_edge,
        "np.minimum(d / _lengths(flat)[..., 0], 1.5)",
        "np.ones_like(d)",
    ),
    "edges: blur by noise": (patches.find_edge, "blur = noise_std / radii", "blur = 0 / radii"),
    "edges: close to their points": (patches.find_edge, "depths < 0.4", "depths < 9"),
    "edges: few points beyond": (patches.find_edge, "& (beyond <= 2 + 0.05 * k * (noise_std > 0))", ""),
    "edges: nothing further out": (patches.find_edge, "& empty", ""),
    "edges: one gap further out": (patches._window_depth, "rank * (outer + _BEHIND)", "0 * outer"),
    "edges: smoothing": (patches._smooth_edge, "np.linalg.solve(matrix,", "0 * np.linalg.solve(matrix,"),
    "edges: quadratic (lines instead)": (patches._smooth_edge, "1e-3 *", "np.where(inner > across, 1e9, 1e-3) *"),
    "edges: several faces at corners": (patches.Edge.faces, "_OTHER_FACE[self.dim]", "-2"),
    "edges: other layers beside a point": (patches.Edge.faces, "flat > 0.5 * d**2", "True"),
    "edges: images of images": (patches.Edge.images, "images.copy()", "images[:1]"),
    "nodes: new ones in gaps": (layout.even_points, "range(15)", "range(0)"),
    "nodes: relaxation": (layout.even_points, "range(_ROUNDS)", "range(0)"),
    "nodes: pushed by images": (layout.even_points, "edge.images(moved, 2.5 * spacing)[0]", "moved[:0]"),
    "nodes: kept inside the edge": (layout.even_points, "moved = edge.inside(", "moved = (lambda z, *_: z)("),
    "steps: curvature": (layout.CloudSpace.layout, "frames, ricci = curvature_at", "_ = curvature_at"),
    "steps: Ricci curvature": (patches.LocalSurface.curvature, ", ricci[", ", 0 * ricci["),
    "steps: layers": (layout.CloudSpace.layout, "layers = find_layers", "_ = find_layers"),
    "steps: layers of points by votes": (layout.Layers.cut_from, "min(6, n - 1)", "1"),
    "steps: more where the space is bent": (spaces.AbstractSpace.steps, "_MOST_STEPS)", "12)"),
    "steps: rounds of volumes": (heat.graph_on, "range(_ROUNDS", "range(1"),
    "curves: traced": (curves.trace_curves, "surface = cloud", "return None\n    surface = cloud"),
    "curves: moved onto the surface": (curves.trace_curves, "else surface.project(z, n_jobs)", "else z"),
    "curves: ends half a gap further out": (curves._resampled, "0.5 *", "0 *"),
}


@contextmanager
def edited(function, old, new):
    """The function with other source."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    source, scope = textwrap.dedent(inspect.getsource(function)), dict(vars(inspect.getmodule(function)))
    if old not in source:
        raise ValueError(f"{function.__name__} has no {old!r}")
    exec(f"from __future__ import annotations\n{source.replace(old, new)}", scope)
    code, found = function.__code__, scope[function.__name__]
    function.__code__ = inspect.unwrap(getattr(found, "__func__", found)).__code__
    try:
        yield
    finally:
        function.__code__ = code


def kernel_error(points, new, exact, t):
    """Error of the kernel of a heat graph between new points, through all nodes."""
    graph = heat_graph(points, t, n_jobs=1)
    rows = graph.extend(graph.placed(new))
    rows = (sparse.diags_array(1 / np.maximum(np.asarray(rows.sum(axis=1)).ravel(), 1e-300)) @ rows).toarray().T
    walk = (graph.affinity @ sparse.diags_array(1 / graph.weights)).tocsr()
    for _ in range(graph.n_steps // 2 - 1):
        rows = walk @ rows
    return relative_error(rows.T @ (rows / graph.weights[:, None]), exact)


def main():
    """Print one line for each mechanism."""
    warnings.simplefilter("ignore")
    drawn, base = clouds(), {}
    words, write = tuple(word for word in sys.argv[1:] if word != "--write") or ("",), "--write" in sys.argv
    wanted = {name: edit for name, edit in MECHANISMS.items() if name.startswith(words)}
    if not wanted or (write and wanted != MECHANISMS):
        sys.exit("no mechanism begins so" if not wanted else "--write needs all mechanisms")
    lines = ["| without | largest | cloud | median of the clouds tried |", "|---|---|---|---|"]
    print(*lines, sep="\n")
    for name, edit in wanted.items():
        ratios = {}
        for title, *cloud in drawn:
            if title not in base:
                base[title] = kernel_error(*cloud)
            ratios[title] = np.inf
            with edited(*edit), suppress(ValueError, IndexError):
                ratios[title] = kernel_error(*cloud) / base[title]
            if ratios[title] > 1.5:
                break
        worst = max(ratios, key=ratios.get)
        median = f"{np.median(list(ratios.values())):.2f} of {len(ratios)}"
        lines.append(f"| {name} | {ratios[worst]:.3g} | {worst} | {median} |")
        print(lines[-1], flush=True)
    if write:
        fill(Path(__file__).parents[1] / "docs" / "development" / "decisions.md", "mechanisms", "\n".join(lines))


if __name__ == "__main__":
    main()
