"""How exact the default features are on clouds as people bring them: noisy, in many coordinates, uneven.

``python benchmarks/bench_clouds_as_they_come.py`` draws random points of spaces whose heat kernel is known in
closed form. Noise is added to the points, they are turned into more coordinates, and their density varies. The
features are fitted with default options; they get the points and the time of the kernel. A line of the table has

* *error*: of the kernel at 512 new points of the space: relative, Frobenius norm, absolute scale included;
* *noisy*: the same at 512 new points with the same noise as the cloud, against the kernel of the points they came
  from;
* *floor*: the error of the exact kernel at those points of the space that are nearest to the noisy points. Noise
  along the space cannot be removed, so *noisy* is hardly ever lower;
* *RBF*: the error of exp(-r^2 / (4 t)) at the new points, after the best common factor, which the features do not
  get; *RBF noisy* at the noisy points;
* *error_*: what the fit says about its own error;
* *scale*: the size of the kernel over that of the exact kernel; 1 if the absolute scale is right.

Noise is given in widths of the kernel, sqrt(2 t): on each coordinate where the space has its own coordinates, in
total where it is turned into 30 or 100 coordinates.

``python benchmarks/bench_clouds_as_they_come.py scans --data DIR`` does this for three scanned meshes with noise
(see `clouds_scans.py`).

``--seeds 3`` draws each cloud three times. ``--only TEXT`` selects lines whose name contains the text; with
``--write``, only these lines of the record are replaced, so that a long run can be done in parts. ``--size
smoke`` takes 1000 points and one seed, as a check that everything runs. ``--times`` also measures the time of a
fit against a fit that does not look for noise, in three coordinates. ``--write`` puts the table into
`docs/measured.md` and the numbers into `docs/results/clouds.json`; ``--json FILE`` writes the numbers somewhere
else. About half an hour on two quiet cores. The exit code is 1 if a target is missed, unless the size is smoke.
"""

import argparse
import functools
import inspect
import pathlib
import sys
import warnings
import zlib
from dataclasses import dataclass

import numpy as np
import record
from cloud_spaces import (
    AbstractKnown,
    Clifford,
    Cylinder,
    Embedded,
    Layers,
    Named,
    Rectangle,
    Roll,
    Rotations,
    add_noise,
    add_outliers,
)
from clouds_scans import measure_scans, print_scans, scans_table
from scipy.spatial.distance import cdist
from table import Row, seconds

from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error

PATH = record.ROOT / "docs" / "results" / "clouds.json"
PAGE = record.ROOT / "docs" / "measured.md"
SIZES = {"full": 4000, "smoke": 1000}  # points of a cloud
NEW = 512  # points at which kernels are compared
MEDIAN, WORST, AGAINST_RBF, AGAINST_TIME = 0.03, 0.10, 1.2, 2.0  # targets
REPEATS = 3  # fits of each kind when times are measured


@dataclass(frozen=True)
class Setting:
    """One line of the table.

    Attributes
    ----------
    name : str
        Of the space.
    space : AbstractKnown
    t : float
        Time of the heat kernel.
    noise : float
        In widths of the kernel: on each coordinate, or in total if ``coordinates`` is given.
    coordinates : int, optional
        Number of coordinates that the space is turned into; None for its own.
    uneven : bool
        Whether the density varies by a factor of seven.
    outliers : float
        Share of points that are replaced by uniform points of the box around the cloud.
    heavy : bool
        Whether the noise has heavy tails, those of Student's t with three degrees of freedom.
    """

    name: str
    space: AbstractKnown
    t: float
    noise: float = 0.0
    coordinates: int | None = None
    uneven: bool = False
    outliers: float = 0.0
    heavy: bool = False

    @property
    def title(self):
        """The line of the table in words."""
        parts = [self.name]
        if self.coordinates:
            parts.append(f"R^{self.coordinates}")
        parts.append(f"noise {self.noise:g}{' heavy' if self.heavy else ''}" if self.noise else "clean")
        if self.uneven:
            parts.append("density 1:7")
        if self.outliers:
            parts.append(f"{self.outliers:.0%} outliers")
        return ", ".join(parts)


def settings_of(name, space, t, *cases):
    """Settings of one space: noise, coordinates (None for its own), ratio of the densities."""
    return [Setting(name, space, t, noise, coordinates, ratio > 1) for noise, coordinates, ratio in cases]


# Times are such that 60 to 1000 of the 4000 points lie under the kernel: (4 pi t)^(d/2) times their density.
SETTINGS = [
    *settings_of("circle", Named(Sphere(1)), 0.05,
                 (0, None, 1), (0.1, None, 7), (0.2, 30, 1), (0.1, 100, 7)),
    *settings_of("S^2", Named(Sphere(2)), 0.05,
                 (0, None, 1), (0.1, None, 1), (0.2, None, 7), (0.1, 30, 7), (0.2, 100, 1)),
    *settings_of("S^3", Named(Sphere(3)), 0.1,
                 (0, None, 7), (0.1, None, 1), (0.2, 30, 1), (0.1, 100, 1)),
    *settings_of("flat torus in R^4", Clifford(), 0.03,
                 (0, None, 1), (0.1, None, 7), (0.2, 30, 1), (0.2, 100, 7)),
    *settings_of("3-torus in R^6", Clifford((1.0, 1.0, 1.0)), 0.25,
                 (0, None, 1), (0.2, None, 1), (0.1, 30, 1), (0.1, 100, 7)),
    *settings_of("sheet", Rectangle(), 0.01,
                 (0, None, 1), (0, 30, 7), (0.1, None, 1), (0.2, None, 7), (0.1, 100, 1)),
    *settings_of("roll, gap 0.9", Roll(0.9, 8.0), 0.03,
                 (0, None, 1), (0.1, None, 1), (0.1, 30, 7), (0.2, 100, 1)),
    *settings_of("cylinder", Cylinder(2.0), 0.05,
                 (0, None, 7), (0.1, None, 1), (0.2, None, 1), (0.2, 30, 7)),
    *settings_of("SO(3) in R^9", Rotations(), 0.3,
                 (0, None, 1), (0.1, None, 1), (0.2, 30, 7), (0.2, 100, 1)),
]  # fmt: skip

_SPHERE = Named(Sphere(2))
SPECIAL = [
    Setting("S^2", _SPHERE, 0.05, outliers=0.02),
    Setting("S^2", _SPHERE, 0.05, outliers=0.05),
    Setting("S^2", _SPHERE, 0.05, 0.1, outliers=0.02),
    Setting("S^2", _SPHERE, 0.05, 0.1, outliers=0.05),
    Setting("S^2", _SPHERE, 0.05, 0.1, heavy=True),
    Setting("cylinder", Cylinder(2.0), 0.05, 0.1, heavy=True),
    Setting("flat torus in R^4", Clifford(), 0.03, 0.1, uneven=True, outliers=0.02),
    Setting("tight roll, gap 1 width", Roll(0.245), 0.03),
    Setting("tight roll, gap 1 width", Roll(0.245), 0.03, 0.05),
    Setting("tight roll, gap 0.9 widths", Roll(0.35), 0.08),
    Setting("tight roll, gap 1.5 widths", Roll(0.367), 0.03, 0.1),
    Setting("two layers, gap 1 width", Layers(0.141), 0.01),
    Setting("two layers, gap 1 width", Layers(0.141), 0.01, 0.1),
    Setting("two layers, gap 2 widths", Layers(0.283), 0.01, 0.2),
]
GROUPS = {"clouds": SETTINGS, "special": SPECIAL}


@dataclass(frozen=True)
class Cloud:
    """Points to fit, and new points with and without noise."""

    space: AbstractKnown
    points: np.ndarray  # (n, D)
    clean: np.ndarray  # (NEW, D)
    noisy: np.ndarray  # (NEW, D)


def draw(setting, n, seed):
    """The cloud of a setting, which depends on its title and the seed only."""
    rng = np.random.default_rng([21, zlib.crc32(setting.title.encode()), seed])
    space = setting.space
    if setting.coordinates:
        space = Embedded.draw(space, setting.coordinates, rng)
    sigma = setting.noise * np.sqrt(2 * setting.t / (setting.coordinates or 1))
    points = space.sample_uneven(n, rng) if setting.uneven else space.sample(n, rng)
    points = add_noise(points, sigma, rng, heavy=setting.heavy)
    if setting.outliers:
        points = add_outliers(points, setting.outliers, rng)
    clean = space.sample(NEW, rng)
    return Cloud(space, points, clean, add_noise(clean, sigma, rng, heavy=setting.heavy))


def rbf(X, t):
    """Gaussian kernel of the coordinates."""
    return np.exp(-cdist(X, X, "sqeuclidean") / (4 * t))


def library_model(points, t, seed, **options):
    """Features with default options."""
    graph = GraphOptions(**options) if options else None
    return ManifoldRandomFeatures(HeatKernel(t), normalize=False, graph=graph, random_state=seed).fit(points)


def measure(setting, n, seed, fit=library_model):
    """Numbers of one cloud; ``fit`` maps points, time and seed to a model with ``kernel_matrix``."""
    cloud = draw(setting, n, seed)
    exact = cloud.space.kernel(cloud.clean, setting.t)
    row = {
        "title": setting.title, "seed": seed, "n": n, "t": setting.t, "noise": setting.noise,
        "rbf": relative_error(rbf(cloud.clean, setting.t), exact, alignment="least squares"),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hard clouds are part of the benchmark
        try:
            model = fit(cloud.points, setting.t, seed)
        except ValueError as refusal:  # a cloud that is refused counts as a miss
            return row | {"error": np.inf, "note": str(refusal)}
        found = model.kernel_matrix(cloud.clean)
        row["error"] = relative_error(found, exact)
        row["scale"] = float((found * exact).sum() / (exact * exact).sum())
        row["aligned"] = relative_error(found, exact, alignment="least squares")
        row["estimate"] = float(getattr(model, "error_", np.nan))
        if setting.noise:
            nearest = cloud.space.kernel(cloud.space.nearest(cloud.noisy), setting.t)
            row["noisy"] = relative_error(model.kernel_matrix(cloud.noisy), exact)
            row["floor"] = relative_error(nearest, exact)
            row["rbf_noisy"] = relative_error(rbf(cloud.noisy, setting.t), exact, alignment="least squares")
    return row


def has_noise_option():
    """Whether the library can be told not to look for noise."""
    return "noise" in inspect.signature(GraphOptions).parameters


def time_ratio(setting, n, seed):
    """Time of a default fit over that of one that does not look for noise: best of alternating fits."""
    points = draw(setting, n, seed).points
    kinds = [{}, {"noise": 0}]
    best = [np.inf, np.inf]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(REPEATS + 1):  # the first compiles; it is never the best
            for k, options in enumerate(kinds):
                best[k] = min(
                    best[k], seconds(functools.partial(library_model, points, setting.t, seed, **options))
                )
    return best[0] / best[1]


COLUMNS = {
    "error": "error", "noisy": "noisy", "floor": "floor", "rbf": "RBF", "rbf_noisy": "RBF noisy",
    "estimate": "error_", "scale": "scale", "time": "time",
}  # fmt: skip


def summarise(rows):
    """One line for each setting: means over seeds, and the worst error."""
    lines = {}
    for row in rows:
        lines.setdefault(row["title"], []).append(row)
    return [_mean(title, group) for title, group in lines.items()]


def _mean(title, group):
    """Means of the numbers that a group of rows has."""
    means = {
        name: float(np.mean([row[name] for row in group if name in row])) for name in COLUMNS if name in group[0]
    }
    return {"title": title, "group": group[0].get("group"), "worst": max(row["error"] for row in group)} | means


def show(line, name):
    """A number of a line with two or three digits, or nothing."""
    value = line.get(name)
    if value is None or np.isnan(value):
        return ""
    return f"{value:.3f}" if value < 10 else f"{value:.2g}"


def targets(rows):
    """What the targets say about the rows of all seeds."""
    errors = np.array([row["error"] for row in rows])
    above = sum(row["error"] > AGAINST_RBF * row["rbf"] for row in rows)
    noisy = [row for row in rows if "noisy" in row]
    above_noisy = sum(row["noisy"] > AGAINST_RBF * row["rbf_noisy"] for row in noisy)
    table = [
        Row(f"median error of {len(rows)} clouds", float(np.median(errors)), "<=", MEDIAN),
        Row(f"largest error ({sum(errors > WORST)} of {len(rows)} clouds are above the limit)",
            float(errors.max()), "<=", WORST),
        Row(f"of {len(rows)} clouds, those with an error above {AGAINST_RBF:g} times that of the RBF kernel",
            above, "<=", 0),
        Row(f"of {len(noisy)} noisy clouds, the same at noisy points", above_noisy, "<=", 0),
    ]  # fmt: skip
    times = [row["time"] for row in rows if "time" in row]
    if times:
        table.append(Row("fit over a fit that does not look for noise, largest", max(times), "<=", AGAINST_TIME))
    return table


def markdown(lines, names):
    """A table of the documentation."""
    head = ["cloud", *(COLUMNS[name] for name in names)]
    body = [[line["title"], *(show(line, name) for name in names)] for line in lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *body])


def section(rows):
    """The part of the page that is generated."""
    groups = {name: [row for row in rows if row["group"] == name] for name in GROUPS}
    names = ["error", "rbf", "estimate", "noisy", "floor", "rbf_noisy"]
    parts = [
        f"Mean over {len({row['seed'] for row in rows})} draws of each cloud, {rows[0]['n']} points. *noise* is in "
        "widths of the kernel, sqrt(2 t).",
        markdown(summarise(groups["clouds"]), names),
        "Targets: " + "; ".join(_target(row) for row in targets(groups["clouds"])) + ".",
        "Outliers, heavy tails and layers closer than the kernel is wide:",
        markdown(summarise(groups["special"]), names),
    ]
    return "\n\n".join(parts)


def _target(row):
    return f"{row.what} {row.seen:.3g} (limit {row.limit:g}{'' if row.holds else ', **missed**'})"


def run_clouds(options, fit=library_model):
    """Measure all settings that are asked for, and print a line for each."""
    n, seeds = SIZES[options.size], 1 if options.size == "smoke" else options.seeds
    head = "  ".join(f"{title:>9s}" for title in COLUMNS.values())
    rows = []
    for group, settings in GROUPS.items():
        print(f"\n{group:56s}{head}")
        for setting in settings:
            if options.only in setting.title:
                found = [{"group": group} | measure(setting, n, seed, fit) for seed in range(seeds)]
                if options.times and has_noise_option() and _in_space(setting):
                    found[0]["time"] = time_ratio(setting, n, 0)
                rows += found
                if options.json is not None:  # an interrupted run keeps its numbers
                    record.keep(rows, options.json)
                line = summarise(found)[0]
                numbers = "  ".join(f"{show(line, name):>9s}" for name in COLUMNS)
                print(f"{setting.title:56s}{numbers}", flush=True)
    return rows


def _in_space(setting):
    """Whether the points have three coordinates."""
    return draw(setting, 100, 0).points.shape[1] == 3


def print_targets(rows):
    """Print whether targets are met; returns whether all of them are."""
    main = [row for row in rows if row["group"] == "clouds"]
    if not main:
        return True
    print()
    table = targets(main)
    for row in table:
        row.show()
    return all(row.holds for row in table)


def parse():
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", default="clouds", choices=("clouds", "scans"))
    parser.add_argument("--seeds", type=int, default=3, help="draws of each cloud")
    parser.add_argument("--only", default="", help="lines whose name contains it")
    parser.add_argument("--size", default="full", choices=SIZES)
    parser.add_argument("--times", action="store_true", help="also measure times of fits; needs a quiet machine")
    parser.add_argument("--data", type=pathlib.Path, help="folder with meshes, for scans")
    parser.add_argument("--json", type=pathlib.Path, help="file for the numbers")
    parser.add_argument("--write", action="store_true", help="write the page and its record")
    return parser.parse_args()


def main():
    """Measure, print, and write what is asked for."""
    options = parse()
    if options.part == "scans":
        rows = measure_scans(options.data, options.size, options.only)
        print_scans(rows)
        met = True
    else:
        rows = run_clouds(options)
        met = print_targets(rows)
    if options.json is not None:
        record.keep(rows, options.json)
    if options.write:
        write(options.part, rows, in_parts=bool(options.only))
    sys.exit(int(options.size != "smoke" and not met))


def write(part, rows, *, in_parts=False):
    """Put the rows into the record and the table into the page; in parts, other lines are kept as they are."""
    path = PATH.with_stem("clouds" if part == "clouds" else "clouds_scans")
    if in_parts and part == "clouds":
        old = [row for row in record.load(path) if row["title"] not in {row["title"] for row in rows}]
        places = {setting.title: k for k, setting in enumerate(SETTINGS + SPECIAL)}
        rows = sorted(old + rows, key=lambda row: places[row["title"]])
    record.keep(rows, path)
    body = section(record.load(path)) if part == "clouds" else scans_table(record.load(path))
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(record.fill(text, path.stem.replace("_", " "), body), encoding="utf-8")


if __name__ == "__main__":
    main()
