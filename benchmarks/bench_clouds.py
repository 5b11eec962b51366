"""How exact default features are on clouds of spaces whose heat kernel is known.

``python benchmarks/bench_clouds.py`` draws random points of about seventy spaces (`known_spaces.py`): even and
uneven, clean and noisy, with and without edges, thin, layered, in one to three dimensions. Features are fitted with
default options; they get the points and the time. A line has

* *error*: of the kernel at 400 new points of the space: relative, Frobenius norm, absolute scale included;
* *error_*: what the fit says of its own error;
* *RBF*: the error of the best Gaussian kernel of the coordinates: width and height are tuned on the answer;
* *maps*: the error of diffusion maps (64 neighbours, density removed, 300 modes, Nyström's formula at new points)
  with time and height tuned on the answer; ``--maps`` asks for it, because it takes most of the time.

``--seeds 3`` draws each cloud three times; ``--only TEXT`` selects lines; ``--write`` puts the table into
`docs/measured.md` and the numbers into `docs/results/clouds.json`. Ten minutes a draw on two quiet cores. The exit
code is 1 if a target is missed.
"""

import argparse
import sys
import warnings
import zlib
from dataclasses import dataclass

import known_spaces as known
import numpy as np
import record
from scipy import sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, pdist
from table import Row

from manifoldrf import HeatKernel, ManifoldRandomFeatures, relative_error

NEW = 400  # points at which kernels are compared
# Largest median and largest error of each group.
TARGETS = {
    "closed": (0.003, 0.015),
    "closed, density 1:10": (0.003, 0.015),
    "closed, density 1:50": (0.015, 0.015),
    "closed, noise": (0.02, 0.02),
    "closed, 1000 points": (0.015, 0.015),
    "closed, 300 noisy points": (0.04, 0.04),
    "edges": (0.015, 0.03),
    "edges, density 1:10": (0.03, 0.03),
    "edges, 1000 points": (0.04, 0.04),
    "three dimensions, closed": (0.03, 0.03),
    "three dimensions, edges": (0.05, 0.05),
    "layers": (0.13, 0.13),
    "thin": (0.03, 0.05),
}


CURVES = [
    known.curve("circle", 0.05, lambda a: known.columns(np.cos(a), np.sin(a))),
    known.curve("ellipse 2:1", 0.05, lambda a: known.columns(2 * np.cos(a), np.sin(a))),
    known.curve(
        "trefoil",
        0.1,
        lambda a: known.columns(np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a)),
    ),
    known.curve(
        "flower",
        0.02,
        lambda a: known.columns((1 + 0.3 * np.cos(5 * a)) * np.cos(a), (1 + 0.3 * np.cos(5 * a)) * np.sin(a)),
    ),
]
OPEN_CURVES = [
    known.curve(
        "helix", 0.1, lambda a: known.columns(np.cos(a), np.sin(a), 0.15 * a), closed=False, end=2 * known.TAU
    ),
    known.curve("arc", 0.05, lambda a: known.columns(np.cos(a), np.sin(a)), closed=False, end=4.0),
]
CLOSED = [
    known.sphere(2, 0.05),
    known.sphere(2, 0.02),
    known.clifford("flat torus", 0.03, (1.0, 0.5)),
    known.klein(0.05),
    known.spheroid("prolate 1:2", 0.05, 1.0, 2.0),
    known.spheroid("oblate 1:.5", 0.05, 1.0, 0.5),
    known.ring_torus("ring torus", 0.05, 0.4),
    known.ring_torus("ring torus", 0.2, 0.4),
]
_wavy = known.by_arc(lambda p: (1 + 0.2 * np.cos(3 * p), p), 2.0)
_bowl = known.by_arc(lambda p: (p, 0.7 * p**2), 1.0)
EDGED = [
    known.box("square", 0.01, (1, 1)),
    known.box("strip 2 x .4", 0.02, (2, 0.4)),
    known.revolved("disc", 0.02, lambda s: s, lambda s: 0 * s, 1.0),
    known.revolved("annulus", 0.02, lambda s: 0.4 + s, lambda s: 0 * s, 0.6),
    known.triangle(0.005),
    known.octant(0.02),
    known.revolved("cap", 0.03, np.sin, lambda s: -np.cos(s), 1.2),
    known.cylinder("cylinder", 0.05, 2.0),
    known.revolved("cone frustum", 0.03, lambda s: 0.3 + 0.5 * s, lambda s: s * np.sqrt(0.75), 1.5),
    known.revolved("wavy cylinder", 0.03, *_wavy),
    known.revolved("bowl", 0.03, *_bowl),
    known.revolved("catenoid", 0.05, lambda s: np.hypot(1, s - 1), lambda s: np.arcsinh(s - 1), 2.0),
    known.mobius(0.03, 0.6),
    known.corrugated(0.02),
]
SOLIDS = [known.sphere(3, 0.1), known.clifford("3-torus", 0.25, (1, 1, 1)), known.sphere_times_circle(0.15)]
SOLIDS_EDGED = [known.box("cube", 0.02, (1, 1, 1)), known.ball(0.05)]


@dataclass(frozen=True)
class Setting:
    """A cloud: noise is its standard deviation per coordinate over the diameter of the space."""

    group: str
    space: known.Known
    n: int = 4000
    ratio: float = 1.0
    noise: float = 0.0

    @property
    def title(self):
        """The line of the table in words."""
        parts = [f"{self.space.name}, t = {self.space.t:g}", f"{self.n} points"]
        parts += [f"density 1:{self.ratio:g}"] if self.ratio > 1 else []
        return ", ".join(parts + ([f"noise {self.noise:g}"] if self.noise else []))

    def draw(self, seed):
        """Points, new points, and the exact kernel between these."""
        rng = np.random.default_rng([34, zlib.crc32(self.title.encode()), seed])
        points = self.space.embed(self.space.uneven(self.n, self.ratio, rng))
        chart = self.space.draw(NEW, rng)
        new = self.space.embed(chart)
        points = points + self.noise * pdist(new).max() * rng.standard_normal(points.shape)
        return points, new, self.space.kernel(chart, self.space.t)


def settings():
    """All clouds, by group."""
    closed, curves, edged = CLOSED, CURVES, EDGED
    few, some = [closed[i] for i in (0, 2, 3, 6)], [closed[i] for i in (0, 2, 4, 6)]
    groups = {
        "closed": [(space, {}) for space in curves + closed],
        "closed, density 1:10": [(space, {"ratio": 10}) for space in [*curves[:2], *few, closed[4]]],
        "closed, density 1:50": [(space, {"ratio": 50}) for space in few],
        "closed, noise": [(space, {"noise": 0.02}) for space in [curves[0], curves[2], *some]],
        "closed, 1000 points": [(space, {"n": 1000}) for space in [curves[1], closed[7], *few]]
        + [(space, {"n": 1000, "ratio": 10}) for space in (closed[0], closed[2])],
        "closed, 300 noisy points": [
            (space, {"n": 300, "noise": 0.02}) for space in (curves[0], closed[0], closed[4])
        ],
        "edges": [(space, {}) for space in OPEN_CURVES + edged],
        "edges, density 1:10": [(edged[i], {"ratio": 10}) for i in (0, 2, 7, 9)],
        "edges, 1000 points": [(space, {"n": 1000}) for space in [OPEN_CURVES[0]]]
        + [(edged[i], {"n": 1000}) for i in (0, 2, 5, 6, 8, 11)],
        "three dimensions, closed": [(space, {}) for space in SOLIDS],
        "three dimensions, edges": [(space, {}) for space in SOLIDS_EDGED],
        "layers": [(space, {}) for space in known.LAYERED],
        "thin": [(space, {}) for space in known.THIN],
    }
    return [Setting(group, space, **options) for group, spaces in groups.items() for space, options in spaces]


def best_gaussian(X, exact):
    """Error of the best exp(-gamma r^2) times the best factor."""
    squares = cdist(X, X, "sqeuclidean")
    return min(
        relative_error(np.exp(-gamma * squares), exact, alignment="least squares")
        for gamma in np.geomspace(1e-4, 1e3, 141)
    )


def diffusion_maps(points, new, exact):
    """Error of the kernel of diffusion maps at the best of many times, times the best factor."""
    k = min(64, len(points) - 1)
    tree = cKDTree(points)
    d, near = tree.query(points, k + 1)
    width = float(np.median(d[:, -1]) ** 2) / 4
    n = len(points)
    G = sparse.csr_array((np.exp(-(d**2) / width).ravel(), near.ravel(), (k + 1) * np.arange(n + 1)), shape=(n, n))
    G = G.maximum(G.T)
    q = np.asarray(G.sum(axis=1)).ravel()
    A = sparse.diags_array(1 / q) @ G @ sparse.diags_array(1 / q)  # the density removed
    degrees = np.asarray(A.sum(axis=1)).ravel()
    roots = sparse.diags_array(degrees**-0.5)
    values, vectors = eigsh(roots @ A @ roots, min(300, n - 2))
    phi = vectors / np.sqrt(degrees)[:, None]
    d, near = tree.query(new, k + 1)
    rows = np.exp(-(d**2 - d[:, :1] ** 2) / width) / q[near]
    kept = values > 0.05
    modes = np.einsum("qk,qkm->qm", rows / rows.sum(axis=1, keepdims=True), phi[near][..., kept]) / values[kept]
    rates = -np.log(np.minimum(values[kept], 1.0))
    return min(
        relative_error((modes * np.exp(-s * rates)) @ modes.T, exact, alignment="least squares")
        for s in np.geomspace(0.5, 200, 60)
    )


def measure(setting, seed, *, maps):
    """Numbers of one cloud."""
    points, new, exact = setting.draw(seed)
    row = {"group": setting.group, "title": setting.title, "seed": seed, "rbf": best_gaussian(new, exact)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hard clouds are part of the benchmark
        model = ManifoldRandomFeatures(HeatKernel(setting.space.t), normalize=False, random_state=seed).fit(points)
        row["error"] = relative_error(model.kernel_matrix(new), exact)
        row["estimate"] = float(model.error_)
    row["nodes"], row["features"] = model.graph_.n_nodes, model.n_features_out_
    if maps:
        row["maps"] = diffusion_maps(points, new, exact)
    return row


def targets(rows):
    """What the targets say about the rows of all draws."""
    table = []
    for group, (median, largest) in TARGETS.items():
        errors = [row["error"] for row in rows if row["group"] == group]
        if errors:
            table.append(
                Row(f"{group}: median error of {len(errors)} clouds", float(np.median(errors)), "<=", median)
            )
            table.append(Row(f"{group}: largest error", max(errors), "<=", largest))
    ratios = np.array([row["estimate"] / row["error"] for row in rows])
    table.append(
        Row("error_ within a factor of 2, share", float(((ratios > 0.5) & (ratios < 2)).mean()), ">=", 0.9)
    )
    table.append(Row("error_ over the error, smallest", float(ratios.min()), ">=", 1 / 3))
    worst = max(row["error"] / row["rbf"] for row in rows)
    table.append(Row("error over that of the best Gaussian, largest", worst, "<=", 1.1))
    return table


def markdown(rows, names):
    """The table of the page: means over draws."""
    lines = ["| cloud | error | error_ | " + " | ".join(names) + " |", "|---" * (3 + len(names)) + "|"]
    for group in TARGETS:
        members = [row for row in rows if row["group"] == group]
        for title in dict.fromkeys(row["title"] for row in members):
            own = [row for row in members if row["title"] == title]
            means = [np.mean([row[name] for row in own]) for name in ("error", "estimate", *names)]
            lines.append(f"| {title} | " + " | ".join(f"{number:.4f}" for number in means) + " |")
    table = targets(rows)
    missed = "; ".join(f"{row.what} {row.seen:.3g} (limit {row.limit:.3g})" for row in table if not row.holds)
    draws = 1 + max(row["seed"] for row in rows)
    verdict = f"Draws: {draws}. Targets that hold: {sum(row.holds for row in table)} of {len(table)}. "
    shares = "; ".join(f"{row.what} {row.seen:.3g}" for row in table if row.what.startswith("error_"))
    return "\n".join(lines) + f"\n\n{verdict}{shares}. Missed: {missed or 'none'}."


def main():
    """Measure, print, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="draws of each cloud")
    parser.add_argument("--only", default="", help="lines whose group or title contains it")
    parser.add_argument("--maps", action="store_true", help="also diffusion maps")
    parser.add_argument("--write", action="store_true", help="write the page and its record")
    options = parser.parse_args()
    rows = []
    for setting in settings():
        if options.only not in f"{setting.group} {setting.title}":
            continue
        for seed in range(options.seeds):
            row = measure(setting, seed, maps=options.maps)
            rows.append(row)
            maps = f"  maps {row['maps']:.4f}" if options.maps else ""
            numbers = f"error {row['error']:.4f}  error_ {row['estimate']:.4f}  RBF {row['rbf']:.4f}{maps}"
            sizes = f"{row['nodes']} nodes, {row['features']} features"
            print(f"{setting.group:26s} {setting.title:48s} {numbers}  {sizes}", flush=True)
    table = targets(rows)
    print()
    for line in table:
        line.show()
    if options.write:
        record.keep(rows, record.ROOT / "docs" / "results" / "clouds.json")
        page = record.ROOT / "docs" / "measured.md"
        names = ["rbf", *(["maps"] if options.maps else [])]
        page.write_text(
            record.fill(page.read_text(encoding="utf-8"), "clouds", markdown(rows, names)), encoding="utf-8"
        )
    sys.exit(int(not all(line.holds for line in table)))


if __name__ == "__main__":
    main()
