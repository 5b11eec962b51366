"""What each mechanism of the cloud layout is worth: errors without it over errors with it.

``python benchmarks/ablate_clouds.py`` fits heat graphs to clouds of `bench_clouds.py` and two of its own (outliers,
copies), each time with one mechanism switched off, and compares their kernels at new points with the closed form. A
mechanism stays if it changes the median error by 5 % or one cloud by a factor of 1.5.
"""

import warnings
from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

import numpy as np
from bench_clouds import SETTINGS
from scipy import sparse

from manifoldrf import heat_graph, relative_error
from manifoldrf.geometry import cleaning, edges, heat, layout, patches, spaces

PICKED = (
    "S^2, t = 0.05, 1000 points, density", "flat torus, t = 0.03, 1000 points, density",
    "ring torus, t = 0.2, 1000", "square, t = 0.01, 1000", "octant, t = 0.02, 1000", "cone frustum, t = 0.03, 1000",
    "catenoid, t = 0.05, 1000", "S^2, t = 0.05, 300", "ring torus, t = 0.05, 4000 points, noise", "roll, gap 0.245",
    "thin torus", "strip 2 x .1", "solid ball",
)  # fmt: skip


def no_edge(points, surface, dim, *args, **options):
    """A space that is taken to be closed."""
    return edges.Edge.none(dim, points.shape[1])


def straight_edge(*args):
    """An edge that does not bend within the space."""
    edge = SMOOTH_EDGE(*args)
    return replace(edge, bends=np.zeros(len(edge.places)))


def flat(points, dim, *args):
    """No curvature: straight lines as they are."""
    return np.zeros((0, points.shape[1], dim)), np.zeros((0, dim, dim))


def thinned(points, surface, edge, dim, spacing, n_jobs):
    """Farthest points of the data instead of new nodes."""
    order, apart = layout.farthest_first(points)
    return np.ascontiguousarray(points[order[apart > 0.75 * spacing]])


def without_noise(points, **options):
    """Points as they are."""
    return cleaning.clean_cloud(points, **{**options, "noise_std": 0})


def none_is_off(search, surface):
    """No outlier."""
    return np.zeros(len(search.points), bool), surface.project(search.points, search.n_jobs)


SMOOTH_EDGE = edges._smooth_edge
MECHANISMS = {
    "new nodes (farthest points of the data instead)": [(layout, "even_points", thinned)],
    "relaxation of nodes": [(layout, "_ROUNDS", 0)],
    "edges": [(layout, "find_edge", no_edge)],
    "several faces at corners": [(edges, "_OTHER_FACE", {2: -2, 3: -2})],
    "weights of images at bent edges": [(edges, "_smooth_edge", straight_edge)],
    "curvature of steps": [(layout, "curvature_at", flat)],
    "rounds of volumes (1 instead of 40)": [(heat, "_ROUNDS", 1)],
    "layers": [(layout, "find_layers", lambda *args: None)],
    "more steps where the space is bent (12 always)": [(spaces, "_MOST_STEPS", 12)],
    "noise removed": [(heat, "clean_cloud", without_noise)],
    "test for Gaussian noise": [(cleaning, "_is_noise", lambda *args: True)],
    "outliers left out": [(cleaning, "_are_off", none_is_off)],
    "copies merged": [(cleaning, "merge_copies", lambda points: points)],
    "patches robust to other layers": [(patches, "ROBUST", 1e9)],
    "blending of patches (2 instead of 8)": [(patches, "_BLENDED", 2)],
}


def clouds():
    """Points, new points, exact kernel and time of each cloud."""
    picked = {setting.title: setting for setting in SETTINGS if setting.title.startswith(PICKED)}
    drawn = [(*setting.draw(7), setting.space.t) for setting in picked.values()]
    points, new, exact, t = drawn[list(picked).index("S^2, t = 0.05, 1000 points, density 1:10")]
    rng = np.random.default_rng(7)
    drawn.append((np.vstack([points, rng.uniform(-1.5, 1.5, size=(50, 3))]), new, exact, t))
    copies = np.repeat(points[:600], 5, axis=0)
    drawn.append((copies + 1e-3 * rng.normal(size=copies.shape), new, exact, t))
    return drawn


def kernel_error(points, new, exact, t):
    """Error of the kernel of a heat graph between new points, through all nodes."""
    graph = heat_graph(points, t)
    rows = graph.extend(graph.placed(new))
    rows = (sparse.diags_array(1 / np.maximum(np.asarray(rows.sum(axis=1)).ravel(), 1e-300)) @ rows).toarray().T
    walk = (graph.affinity @ sparse.diags_array(1 / graph.weights)).tocsr()
    for _ in range(graph.n_steps // 2 - 1):
        rows = walk @ rows
    return relative_error(rows.T @ (rows / graph.weights[:, None]), exact)


def main():
    """Print one line for each mechanism."""
    warnings.simplefilter("ignore")
    drawn = clouds()
    base = np.array([kernel_error(*cloud) for cloud in drawn])
    print(f"{len(drawn)} clouds, errors with everything: median {np.median(base):.4f}, largest {base.max():.4f}\n")
    print("| without | median | largest | clouds changed by more than 5 % |\n|---|---|---|---|")
    for name, changes in MECHANISMS.items():
        with ExitStack() as stack:
            for place, attribute, value in changes:
                stack.enter_context(mock.patch.object(place, attribute, value))
            found = []
            for cloud in drawn:
                try:
                    found.append(kernel_error(*cloud))
                except (ValueError, IndexError):
                    found.append(np.inf)
        ratios = np.array(found) / base
        changed = int(((ratios > 1.05) | (ratios < 1 / 1.05)).sum())
        print(f"| {name} | {np.median(ratios):.2f} | {ratios.max():.3g} | {changed} of {len(drawn)} |", flush=True)


if __name__ == "__main__":
    main()
