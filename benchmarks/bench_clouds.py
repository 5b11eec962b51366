"""How exact default features are on clouds of spaces whose heat kernel is known.

``python benchmarks/bench_clouds.py`` draws random points of about seventy spaces (`known_spaces.py`): even and
uneven, clean and noisy, with and without edges, thin, layered, in one to three dimensions. Features are fitted with
default options; they get the points and the time. A line has

* *error*: of the kernel at 400 new points of the space: relative, Frobenius norm, absolute scale included;
* *error_*: what the fit says of its own error;
* *rbf*: the error of the best Gaussian kernel of the coordinates: width and height are tuned on the answer;
* *maps*: the error of diffusion maps (64 neighbours, density removed, 300 modes, Nyström's formula at new points)
  with time and height tuned on the answer.

The columns of the rivals, which no change of the package changes, are those of the same draws in
`docs/results/clouds.json`; ``--rivals`` measures them again. ``--seeds 3`` draws each cloud three times; ``--only
TEXT`` selects lines; ``--write`` puts the table into `docs/measured.md` and the numbers into that file. Ten minutes
a draw on two quiet cores, twice as long with rivals. The exit code is 1 if a target is missed.
"""

import argparse
import json
import pathlib
import sys
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
from known_spaces import CLOSED, CURVES, EDGED, LAYERED, OPEN_CURVES, SOLIDS, SOLIDS_EDGED, THIN, Known
from scipy import sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, pdist
from table import Row, fill

from manifoldrf import HeatKernel, ManifoldRandomFeatures, relative_error

NEW = 400  # points at which kernels are compared


@dataclass(frozen=True)
class Setting:
    """A cloud: noise is its standard deviation per coordinate over the diameter of the space."""

    group: str
    space: Known
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


FEW = [CLOSED[i] for i in (0, 2, 3, 6)]
# Of each group: the largest median error, the largest error, and its clouds.
GROUPS = {
    "closed": (0.003, 0.015, [(CURVES + CLOSED, {})]),
    "closed, density 1:10": (0.003, 0.015, [([*CURVES[:2], *FEW, CLOSED[4]], {"ratio": 10})]),
    "closed, density 1:50": (0.015, 0.015, [(FEW, {"ratio": 50})]),
    "closed, noise": (
        0.02, 0.02, [([CURVES[0], CURVES[2], *(CLOSED[i] for i in (0, 2, 4, 6))], {"noise": 0.02})]
    ),
    "closed, 1000 points": (
        0.015, 0.015, [([CURVES[1], CLOSED[7], *FEW], {"n": 1000}), (FEW[:2], {"n": 1000, "ratio": 10})]
    ),
    "closed, 300 noisy points": (0.04, 0.04, [([CURVES[0], CLOSED[0], CLOSED[4]], {"n": 300, "noise": 0.02})]),
    "edges": (0.015, 0.03, [(OPEN_CURVES + EDGED, {})]),
    "edges, density 1:10": (0.03, 0.03, [([EDGED[i] for i in (0, 2, 7, 9)], {"ratio": 10})]),
    "edges, noise": (0.04, 0.08, [([EDGED[i] for i in (5, 6, 8, 10, 13)], {"noise": 0.01})]),
    "edges, 1000 points": (
        0.04, 0.04, [([OPEN_CURVES[0], *(EDGED[i] for i in (0, 2, 5, 6, 8, 11))], {"n": 1000})]
    ),
    "three dimensions, closed": (0.03, 0.03, [(SOLIDS, {})]),
    "three dimensions, edges": (0.05, 0.05, [(SOLIDS_EDGED, {})]),
    "layers": (0.13, 0.13, [(LAYERED, {})]),
    "thin": (0.03, 0.05, [(THIN, {})]),
}  # fmt: skip
SETTINGS = [
    Setting(group, space, **options)
    for group, (_, _, parts) in GROUPS.items()
    for spaces, options in parts
    for space in spaces
]


def best_gaussian(X, exact):
    """Error of the best exp(-gamma r^2) times the best factor."""
    squares = cdist(X, X, "sqeuclidean")
    return min(
        relative_error(np.exp(-gamma * squares), exact, alignment="least squares")
        for gamma in np.geomspace(1e-4, 1e3, 141)
    )


def diffusion_maps(points, new, exact):
    """Error of the kernel of diffusion maps at the best of many times, times the best factor."""
    n, k, tree = len(points), min(64, len(points) - 1), cKDTree(points)
    d, near = tree.query(points, k + 1)
    width = float(np.median(d[:, -1]) ** 2) / 4
    G = sparse.csr_array((np.exp(-(d**2) / width).ravel(), near.ravel(), (k + 1) * np.arange(n + 1)), shape=(n, n))
    G = G.maximum(G.T)
    q = np.asarray(G.sum(axis=1)).ravel()
    A = sparse.diags_array(1 / q) @ G @ sparse.diags_array(1 / q)  # the density removed
    degrees = np.asarray(A.sum(axis=1)).ravel()
    roots = sparse.diags_array(degrees**-0.5)
    values, vectors = eigsh(roots @ A @ roots, min(300, n - 2))
    kept = values > 0.05
    values, phi = values[kept], vectors[:, kept] / np.sqrt(degrees)[:, None]
    d, near = tree.query(new, k + 1)
    rows = np.exp(-(d**2 - d[:, :1] ** 2) / width) / q[near]
    modes = np.einsum("qk,qkm->qm", rows / rows.sum(axis=1, keepdims=True), phi[near]) / values
    rates = -np.log(np.minimum(values, 1.0))
    return min(
        relative_error((modes * np.exp(-s * rates)) @ modes.T, exact, alignment="least squares")
        for s in np.geomspace(0.5, 200, 60)
    )


def measure(setting, seed, rivals):
    """Numbers of one cloud; ``rivals`` are those of the others if they are known."""
    points, new, exact = setting.draw(seed)
    row = {"group": setting.group, "title": setting.title, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hard clouds are part of the benchmark
        model = ManifoldRandomFeatures(HeatKernel(setting.space.t), normalize=False, random_state=seed).fit(points)
        row["error"] = relative_error(model.kernel_matrix(new), exact)
        row["error_"] = float(model.error_)
    return row | (rivals or {"rbf": best_gaussian(new, exact), "maps": diffusion_maps(points, new, exact)})


def targets(rows):
    """What the targets say about the rows of all draws."""
    table = []
    for group, (median, largest, _) in GROUPS.items():
        errors = [row["error"] for row in rows if row["group"] == group]
        if errors:
            what = f"{group}: median error of {len(errors)} clouds"
            table.append(Row(what, float(np.median(errors)), "<=", median))
            table.append(Row(f"{group}: largest error", max(errors), "<=", largest))
    ratios = np.array([row["error_"] / row["error"] for row in rows])
    share = float(((ratios > 0.5) & (ratios < 2)).mean())
    worst = max(row["error"] / row["rbf"] for row in rows)
    return [
        *table,
        Row("error_ within a factor of 2, share", share, ">=", 0.9),
        Row("error_ over the error, smallest", float(ratios.min()), ">=", 1 / 3),
        Row("error over that of the best Gaussian, largest", worst, "<=", 1.1),
    ]


def markdown(rows):
    """The table of the page: means over draws."""
    names = ["error", "error_", "rbf", "maps"]
    lines = ["| cloud | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for title in dict.fromkeys(row["title"] for row in rows):
        own = [row for row in rows if row["title"] == title]
        means = [f"{np.mean([row[name] for row in own]):.4f}" for name in names]
        lines.append(f"| {title.replace(', 4000 points', '')} | " + " | ".join(means) + " |")
    table = targets(rows)
    missed = "; ".join(f"{row.what} {row.seen:.3g} (limit {row.limit:.3g})" for row in table if not row.holds)
    said = "; ".join(f"{row.what} {row.seen:.3g}" for row in table if row.what.startswith("error_"))
    verdict = f"Draws: {1 + max(row['seed'] for row in rows)}. "
    verdict += f"Targets that hold: {sum(row.holds for row in table)} of {len(table)}. {said}."
    return "\n".join(lines) + f"\n\n{verdict} Missed: {missed or 'none'}."


def main():
    """Measure, print, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="draws of each cloud")
    parser.add_argument("--only", default="", help="lines whose group or title contains it")
    parser.add_argument("--rivals", action="store_true", help="measure the rivals again")
    parser.add_argument("--write", action="store_true", help="write the page and its record")
    options = parser.parse_args()
    docs = pathlib.Path(__file__).parents[1] / "docs"
    record, rows = docs / "results" / "clouds.json", []
    found = [] if options.rivals else json.loads(record.read_text(encoding="utf-8"))
    known = {(row["title"], row["seed"]): {name: row[name] for name in ("rbf", "maps")} for row in found}
    for setting in SETTINGS:
        if options.only in f"{setting.group} {setting.title}":
            for seed in range(options.seeds):
                rows.append(measure(setting, seed, known.get((setting.title, seed))))
                print(
                    "  ".join(f"{x:.4f}" if isinstance(x, float) else str(x) for x in rows[-1].values()), flush=True
                )
    table = targets(rows)
    for line in table:
        line.show()
    if options.write:
        record.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        fill(docs / "measured.md", "clouds", markdown(rows))
    sys.exit(int(not all(line.holds for line in table)))


if __name__ == "__main__":
    main()
