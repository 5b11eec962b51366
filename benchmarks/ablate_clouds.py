"""What each mechanism of the cloud layout is worth: errors without it over errors with it.

``python benchmarks/ablate_clouds.py`` fits heat graphs to two dozen clouds of `bench_clouds.py`, each time with one
mechanism switched off, and compares their kernels at new points with the closed form. A mechanism stays if it
changes the median error by 5 % or one cloud by a factor of 1.5.
"""

import warnings
from contextlib import ExitStack
from unittest import mock

import numpy as np
from bench_clouds import settings
from scipy import sparse

from manifoldrf import heat_graph, relative_error
from manifoldrf.geometry import cleaning, edges, heat, layout, spaces

PICKED = ("S^2", "flat torus", "ring torus", "ellipse", "square", "disc", "cone frustum", "catenoid", "octant",
          "roll, gap 0.9", "two layers", "thin torus", "strip 2 x .1", "solid ball", "S^3")  # fmt: skip


def no_edge(points, frames, *args, **options):
    """A space that is taken to be closed."""
    return edges.Edge.none(frames.shape[2], points.shape[1])


def flat(points, dim, *args):
    """No curvature: straight lines as they are."""
    return np.zeros((0, points.shape[1], dim)), np.zeros((0, dim, dim))


def thinned(points, surface, edge, dim, spacing, n_jobs):
    """Farthest points of the data instead of new nodes."""
    order, apart = layout.farthest_first(points)
    return np.ascontiguousarray(points[order[apart > 0.75 * spacing]])


MECHANISMS = {
    "new nodes in gaps, relaxed (farthest points of the data instead)": [(spaces, "even_points", thinned)],
    "relaxation (8 to 10 rounds)": [(layout, "_ROUNDS", 0)],
    "edges": [(spaces, "find_edge", no_edge)],
    "curvature of steps": [(layout, "curvature_at", flat)],
    "rounds of volumes (one instead)": [(heat, "_ROUNDS", 1)],
    "layers": [(layout, "find_layers", lambda *args: None)],
    "steps by curvature and few nodes (12 always)": [(spaces, "_MOST_STEPS", 12)],
    "merging of copies": [(cleaning, "merge_copies", lambda points: points)],
    "outliers": [(cleaning, "_are_off", lambda search, surface: (
        np.zeros(len(search.points), bool), surface.project(search.points, search.threads)))],
    "two fits of the surface (bandwidth 2.5 times as wide)": [(cleaning, "PER_COEFFICIENT", 7.5)],
}  # fmt: skip


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
    clouds = [setting for setting in settings() if any(name in setting.title for name in PICKED)]
    drawn = [(setting, *setting.draw(7)) for setting in clouds]
    base = np.array([kernel_error(*cloud, setting.space.t) for setting, *cloud in drawn])
    print(f"{len(drawn)} clouds, errors with everything: median {np.median(base):.4f}, largest {base.max():.4f}\n")
    print("| without | median | largest | clouds changed by more than 5 % |\n|---|---|---|---|")
    for name, patches in MECHANISMS.items():
        with ExitStack() as stack:
            for place, attribute, value in patches:
                stack.enter_context(mock.patch.object(place, attribute, value))
            found = []
            for setting, *cloud in drawn:
                try:
                    found.append(kernel_error(*cloud, setting.space.t))
                except (ValueError, IndexError):
                    found.append(np.inf)
        ratios = np.array(found) / base
        changed = int(((ratios > 1.05) | (ratios < 1 / 1.05)).sum())
        print(f"| {name} | {np.median(ratios):.2f} | {ratios.max():.3g} | {changed} of {len(drawn)} |", flush=True)


if __name__ == "__main__":
    main()
