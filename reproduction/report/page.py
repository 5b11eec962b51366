# ruff: noqa: E501  (sentences of the page)
"""The results page and the README's block in Markdown, made from saved records and the paper's numbers.

Every number on them is one of the paper's (``paper.csv``), or comes from a record. :class:`Writer` notes those
that it writes; :func:`foreign_numbers` finds others.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.common import LIBRARY, RECIPE, files_in, reject
from reproduction.interpolation import AUTO, FEATURES, FULL
from reproduction.paper import PLACES, PRINTED, is_reached
from reproduction.record import Record, Row, chosen
from reproduction.report.old_records import upgraded
from reproduction.surface_graphs import FITTING_STRIP

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
MISSING = "to be remade"
SURFACES = {"sphere": "sphere", "ellipsoid": "ellipsoid", "mobius": "Möbius strip", "torus": "torus"}
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|\.\d+")
_VERDICTS = {1: "better", 0: "equal", -1: "worse"}


def read_records(folder: Path, *, arrays: bool = False) -> dict[str, Record]:
    """Read the records of a folder; with ``arrays``, also the data of their figures."""
    paths = files_in(folder, (".json",))
    if not paths:
        reject("--records", "a folder with the .json files of records", folder, FileNotFoundError)
    return upgraded({path.stem: Record.load(path, arrays=arrays) for path in paths})


def foreign_numbers(text: str, known: Iterable[str]) -> list[str]:
    """Numbers of a text that are not among the known ones.

    Examples
    --------
    >>> foreign_numbers("an error of 0.067 with 4,000 nodes", ["0.067"])
    ['4,000']
    """
    return sorted({number for number in _NUMBER.findall(text) if number not in set(known)})


def replace_between(text: str, new: str, name: str) -> str:
    """Replace the lines between the two markers, which stay; ``name`` is what an error calls the text."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        reject(name, f"a text with {BEGIN} and, after it, {END}, each once", "another")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{new}\n\n{END}{rest.partition(END)[2]}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is the heading."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


@dataclasses.dataclass
class Item:
    """One row of the page's table, and the section below it."""

    place: str
    shows: str
    published: str
    recipe: str
    ours: str
    experiment: str
    verdict: str
    text: list[str] = dataclasses.field(default_factory=list)


class Writer:
    """Formats numbers of the paper and of records, and notes which it wrote."""

    def __init__(self, records: Mapping[str, Record]) -> None:
        self.records = records
        self.known: set[str] = set()

    # ------------------------------------------------------------------------------------------------- numbers
    def said(self, text: str) -> str:
        """A text whose numbers are names: a place in the paper, a command, a setting of a record."""
        self.known |= set(_NUMBER.findall(text))
        return text

    def show(self, value: float | None, digits: int = 3) -> str:
        """A number of a record."""
        if value is None:
            return MISSING
        if isinstance(value, int) or abs(value) >= 1000:
            return self.said(f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}")
        text = f"{value:.{digits}g}"
        return self.said(text if "e-" in text else f"{float(text):g}")

    def span(self, values: Iterable[float | None], digits: int = 2) -> str:
        """The smallest and the largest of some numbers."""
        found = [value for value in values if value is not None]
        ends = dict.fromkeys(self.show(value, digits) for value in (min(found), max(found))) if found else [MISSING]
        return " to ".join(ends)

    def paper(self, name: str, row: object, method: str, column: str) -> str:
        """A number of the paper, as printed."""
        return self.said(PRINTED[name, str(row), method, column])

    def rows(self, record: str, name: str, **where: Any) -> list[Row]:
        """Rows of a record's table, none if there is no such record."""
        return chosen(self.records[record].tables.get(name, []), **where) if record in self.records else []

    def value(self, record: str, name: str, column: str, **where: Any) -> float | None:
        """One number of a record, None if there is none; the first of several rows."""
        found = [row.get(column) for row in self.rows(record, name, **where)]
        return found[0] if found else None

    def config(self, record: str, setting: str) -> Any:
        """A setting of a record."""
        return self.records[record].config.get(setting) if record in self.records else None

    def join(self, values: Iterable[Any], how: Callable[[Any], str] | None = None) -> str:
        """Several numbers with slashes; only one word if all are missing."""
        texts = [(how or self.show)(value) for value in values]
        return MISSING if all(text == MISSING for text in texts) else " / ".join(texts)

    def compare(self, pairs: Iterable[tuple[float | None, tuple[str, object, str, str]]], **how: Any) -> str:
        """Our numbers against the paper's, in a word."""
        found = [is_reached(value, *key, **how) for value, key in pairs if value is not None]
        if not found:
            return MISSING
        worse = sum(sign < 0 for sign in found)
        if worse in (0, len(found)):
            return _VERDICTS[min(found) if worse else max(found)]
        return self.said(f"worse in {worse} of {len(found)}")

    def training(self, record: str) -> str:
        """The budget of the recipe in a record."""
        config = self.records[record].config if record in self.records else {}
        own = config.get("recipe") or config
        if not own.get("epochs"):
            return "its full budget"
        return f"{self.show(own['n_starts'])} starts, {self.show(own['n_walks'])} walks, {self.show(own['epochs'])} epochs"

    def picture(self, name: str, caption: str) -> str:
        """A picture beside the page."""
        return f"![{caption}](images/{name}.png)"

    # ------------------------------------------------------------------------------------------------ sections
    def surfaces(self) -> list[Item]:
        """The first table: errors of the kernel, of the signatures, and times."""
        w = self
        stated = {name: w.value("surfaces", "recipe", "neighbours", surface=name) for name in SURFACES}

        def recipe(name: str, column: str) -> list[float]:
            rows = w.rows("surfaces", "recipe", surface=name, neighbours=stated[name])
            return [row[column] for row in rows if row.get(column) is not None]

        def mean(name: str, column: str) -> float | None:
            return float(np.mean(recipe(name, column))) if recipe(name, column) else None

        def new(name: str, method: str) -> float | None:
            return w.value("surfaces", "surfaces", "new_points", surface=name, method=method)

        def printed(column: str) -> str:
            return w.join(SURFACES, lambda name: w.paper("surfaces", name, "MRF", column))

        def pairs(column: str, value: Callable[[str], float | None]) -> list[Any]:
            return [(value(name), ("surfaces", name, "MRF", column)) for name in SURFACES]

        off = w.show(w.value("surfaces", "fingerprints", "graph_to_analytic", surface="sphere"))
        strip = [row["kernel"] for row in w.rows("surfaces", "recipe", surface="mobius", neighbours=FITTING_STRIP)]
        features = w.show(w.value("surfaces", "surfaces", "features", method=LIBRARY))
        heading = ["surface", "published", f"{RECIPE}, at nodes", f"{RECIPE}, new points", f"{LIBRARY}, new points"]
        body = [
            [
                text,
                w.paper("surfaces", name, "MRF", "kernel"),
                w.span(recipe(name, "kernel"), 3),
                w.show(new(name, RECIPE)),
                w.show(new(name, LIBRARY)),
            ]
            for name, text in SURFACES.items()
        ]
        seeds = w.show(max(len(recipe(name, "kernel")) for name in SURFACES))
        kernel = Item(
            PLACES["surfaces"],
            "relative error of the kernel on sphere / ellipsoid / strip / torus",
            printed("kernel"),
            w.join([mean(name, "kernel") for name in SURFACES]),
            w.join([new(name, LIBRARY) for name in SURFACES]) + " (new points)",
            "surfaces",
            f"recipe {w.compare(pairs('kernel', lambda name: mean(name, 'kernel')))}: on the sphere the exact kernel of "
            f"the graph is {off} off; library below all at new points, where the target is the surface's kernel",
            [
                table([heading, *body]),
                f"The recipe is `ManifoldRandomFeatures.paper()` with nothing set but the neighbours of the strip "
                f"({w.show(stated['mobius'])}, as the paper states); up to {seeds} seeds. Its batch and early stopping are "
                "ours: the paper states a batch for meshes only, with which errors are larger. At nodes means between all "
                "nodes of the graph after alignment, as in the paper: on the sphere against the analytic kernel, "
                "elsewhere against the kernel of the graph. New points lie in no graph and are compared with the heat "
                f"kernel of the surface, which is what a user wants; there the library has {features} features. "
                f"With {w.show(FITTING_STRIP)} neighbours, which give the norm of the paper's kernel, the recipe's error "
                f"on the strip is {w.span(strip)}. On the paper's graphs with every node an anchor this library is "
                "exact at the nodes by construction, so that is not compared.",
                w.picture(
                    "surfaces_kernels",
                    "Kernel of one node by the recipe, exact, by this library (exact at nodes by construction), errors",
                ),
            ],
        )
        fields = Item(
            PLACES["surfaces"],
            "signatures against walks at held-out starts: R², mean relative error, MSE",
            "; ".join(printed(column) for column in ("r2", "re", "mse")),
            "; ".join(w.join([mean(name, column) for name in SURFACES]) for column in ("r2", "re", "mse")),
            "does not learn",
            "surfaces",
            f"recipe R² {w.compare(pairs('r2', lambda name: mean(name, 'r2')), higher=True)}, relative error "
            f"{w.compare(pairs('re', lambda name: mean(name, 're')))}, MSE "
            f"{w.compare(pairs('mse', lambda name: mean(name, 'mse')))}: our epoch is chosen at the same starts",
        )

        def cost(method: str, column: str) -> list[float | None]:
            found = [w.value("surfaces", "surfaces", column, surface=name, method=method) for name in SURFACES]
            return [None if value is None else value / 1000 for value in found]

        spectral = [
            min(row["evr_s"], row["evd_s"]) + row["kernel_s"]
            for name in SURFACES
            for row in w.rows("surfaces", "spectral", surface=name)
        ]
        points = w.show(w.config("surfaces", "n_queries"))
        gains = {
            method: [w.value("surfaces", "surfaces", "speed_up", surface=n, method=method) for n in SURFACES]
            for method in (RECIPE, LIBRARY)
        }
        keys = [("surfaces", name, "MRF", "speed_up") for name in SURFACES]
        times = Item(
            PLACES["surfaces"],
            f"kernel of {points} new points: how many times faster than an eigendecomposition",
            printed("speed_up"),
            w.join(gains[RECIPE], lambda value: w.show(value, 2)),
            w.join(gains[LIBRARY], lambda value: w.show(value, 2)),
            "surfaces",
            f"recipe {w.compare(zip(gains[RECIPE], keys, strict=True), higher=True)}, library "
            f"{w.compare(zip(gains[LIBRARY], keys, strict=True), higher=True)}: two cores here, an accelerator there",
            [
                f"Seconds, paper: {printed('kernel_s')}, eigendecomposition {printed('spectral_s')}. CPU seconds in one "
                f"run here: recipe {w.span(cost(RECIPE, 'kernel_ms'))}, its network in torch (first layer factored, then "
                f"added by broadcasting) {w.span(cost(RECIPE, 'torch_ms'))}, the library with {features} features "
                f"{w.span(cost(LIBRARY, 'kernel_ms'))}, eigendecomposition with the kernel of all nodes "
                f"{w.span(spectral)}. Nearly all of the recipe's time is the product with its second layer, for every "
                "pair of a point and an anchor. A fit of the library takes "
                f"{w.span([w.value('surfaces', 'surfaces', 'fit_s', surface=n, method=LIBRARY) for n in SURFACES])} s."
            ],
        )
        drawn = Item(
            PLACES["fields"],
            "fields, kernels, residuals, scatter plots",
            "pictures",
            "the same pictures",
            "the same pictures",
            "surfaces",
            "equal: residuals peak at the source, as in the paper",
            [
                w.picture(
                    "surfaces_fields",
                    "Fields of one node: recipe, exact, this library (exact at nodes by construction), residuals",
                ),
                w.picture("surfaces_diagnostics", "Predicted against exact signatures, and errors"),
            ],
        )
        return [kernel, fields, times, drawn]

    def meshes(self) -> list[Item]:
        """Cosines and times of both tasks on meshes."""
        w, items = self, []
        texts = {
            "normals": ("mean cosine of vertex normals, a fifth known", "other meshes"),
            "velocity": ("mean cosine of velocities of cloth, over sizes", "other cloth"),
        }
        for task, (shows, why) in texts.items():
            trained = [str(row.get("mesh") or row.get("sequence")) for row in w.rows(task, "learned")]
            column, shape = ("as_paper", "mesh") if task == "normals" else ("dense", "sequence")
            recipe = w.value(task, task, column, method=RECIPE)
            ours = w.value(task, task, column, method=FEATURES)
            if task == "normals":  # on the meshes that the recipe was trained on
                same = [row["cosine"] for row in w.rows(task, "cells", method=FEATURES) if row[shape] in trained]
                ours = float(np.mean(same)) if same else None
            total = len({row[shape] for row in w.rows(task, "cells", method=FEATURES)})
            key = (task, "", "MRF", "cosine")
            fourier = w.value(task, task, column, method="RFF 1024")
            auto = w.value(task, task, "tuned", method=AUTO)
            over = (
                f"of the same meshes; over all {w.show(total)} it is "
                f"{w.show(w.value(task, task, 'as_paper', method=FEATURES))}"
                if task == "normals"
                else "over the sizes of the first sequence, the recipe's over two sizes"
            )
            text = (
                f"The paper's data were not available. The recipe was trained on {w.said(', '.join(trained))}, with the "
                "settings that the paper states for meshes. The library's number is of as many features at anchors "
                f"drawn alike, without walks and network, {over}. Random Fourier features: {w.show(fourier)} (published "
                f"{w.paper(task, '', 'RFF 1024', 'cosine')}). The kernel at the paper's tau smooths too much: "
                f"`FieldInterpolator`, which chooses on the known values, reaches {w.show(auto)} at the vertices."
            )
            items.append(
                Item(
                    PLACES["meshes"],
                    shows,
                    w.paper(*key),
                    w.show(recipe),
                    w.show(ours),
                    task,
                    f"recipe {w.compare([(recipe, key)], higher=True)}, library "
                    f"{w.compare([(ours, key)], higher=True)}: {why}",
                    [text, w.picture(f"{task}_methods", "Mean cosine of every method")],
                )
            )
        growth = {
            method: [w.value(task, "exponents", "interpolate", method=method) for task in texts]
            for method in (RECIPE, FEATURES)
        }
        largest = max((row["vertices"] for row in w.rows("normals", "scaling", method=RECIPE)), default=0)

        def seconds(method: str) -> str:
            row = next(iter(w.rows("normals", "scaling", method=method, vertices=largest)), {})
            return f"{w.show(row.get('prepare_s'), 2)} and {w.show(row.get('interpolate_s'), 2)}"

        keys = [(task, "", "MRF", "growth") for task in texts]
        size = next(key[1] for key in PRINTED if key[0] == "normals" and key[3] == "prepare_s")
        printed = [w.paper("normals", size, name, part) for name in ("MRF", "full kernel")
                   for part in ("prepare_s", "interpolate_s")]  # fmt: skip
        items.append(
            Item(
                PLACES["times"],
                "growth exponent of interpolation time, normals / velocity",
                w.join(keys, lambda key: w.paper(*key)),
                w.join(growth[RECIPE], lambda value: w.show(value, 2)),
                w.join(growth[FEATURES], lambda value: w.show(value, 2)),
                "normals",
                f"recipe {w.compare(zip(growth[RECIPE], keys, strict=True))}, library "
                f"{w.compare(zip(growth[FEATURES], keys, strict=True))}: work is proportional to the vertices",
                [
                    f"At {w.show(int(largest))} vertices preparation and interpolation take {seconds(RECIPE)} CPU "
                    f"seconds by the recipe (training extrapolated from a few epochs), {seconds(FEATURES)} by the "
                    f"library, {seconds(FULL)} by the dense kernel, extrapolated beyond what was measured. The paper, "
                    f"on an accelerator at {w.show(int(size))} vertices: {printed[0]} and {printed[1]} s, dense kernel "
                    f"{printed[2]} and {printed[3]} s. Its exponents below one may be fixed costs, as its times "
                    "are below half a second. Interpolation by the library is products only; its features are part "
                    "of the preparation.",
                    w.picture("normals_times", "CPU seconds of preparation and interpolation against size"),
                ],
            )
        )
        return items

    def attention(self) -> list[Item]:
        """Ranks of the methods on the strip: the unit of the paper's errors is not known."""
        w = self
        rows = w.rows("attention", "attention", surface="mobius")
        rivals = [row for row in rows if row["method"] not in (RECIPE, LIBRARY)]

        def rank(method: str) -> int | None:
            own = w.value("attention", "attention", "mse", surface="mobius", method=method)
            return None if own is None else 1 + sum(row["mse"] < own for row in rivals)

        counts = [key[1] for key in PRINTED if key[:1] == ("attention",) and key[2:] == ("MRF", "mse")]
        others = {key[2] for key in PRINTED if key[0] == "attention"} - {"MRF"}
        place = 1 + sum(
            np.mean([float(PRINTED["attention", k, name, "mse"]) for k in counts])
            < np.mean([float(PRINTED["attention", k, "MRF", "mse"]) for k in counts])
            for name in others
        )
        total = len(others) + 1
        factors = [
            float(w.value("attention", "attention", "mse", surface=name, method="exact RBF") or 0)
            / float(w.value("attention", "attention", "mse", surface=name, method=LIBRARY) or 1)
            for name in ("mobius2", "swiss", "folded")
            if w.value("attention", "attention", "mse", surface=name, method=LIBRARY)
        ]
        heat = rank("exact heat")
        errors = w.join(
            [w.value("attention", "attention", "mse", surface="mobius", method=m) for m in (RECIPE, LIBRARY)]
        )
        text = (
            "The paper gives neither the protocol nor the unit of its errors (in ours, signals have variance one), so "
            f"only the order of its {w.show(total)} methods can be compared. It differs: with us the recipe is not "
            f"first and the exact heat kernel has rank {w.show(heat)}, where it is among the last in the paper. Masks, "
            "features, graphs and normalisations were varied without finding the paper's order. The recipe keeps the "
            "paper's tau, all others choose their widths on the visible tokens. Mean squared errors of "
            f"recipe / library: {errors}. On the plain strip geometry hardly matters. On three surfaces whose sheets "
            f"nearly touch, the exact Gaussian kernel has {w.span(factors)} times the library's error."
        )
        return [
            Item(
                PLACES["attention"],
                f"rank by mean squared error among {w.show(total)} methods on the strip",
                w.show(int(place)),
                w.show(rank(RECIPE)),
                w.show(rank(LIBRARY)),
                "attention",
                "recipe worse, library worse: the paper's protocol is not known",
                [text, w.picture("attention", "Mean squared error against the number of sources")],
            )
        ]

    def brodatz(self) -> list[Item]:
        """Accuracies with one neighbour, by window and coordinates."""
        w = self
        key = ("brodatz", 1, "MRF", "accuracy")
        windows = list(dict.fromkeys(row["window"] for row in w.rows("brodatz", "brodatz")))

        def accuracy(window: int, coordinates: str, method: str) -> float | None:
            return w.value("brodatz", "brodatz", "accuracy", window=window, coordinates=coordinates, method=method)

        kinds = [(window, how) for window in windows for how in ("as they are", "standardised")]
        body = [
            [
                f"{w.show(window)}, {how}",
                w.show(accuracy(window, how, "raw")),
                w.show(accuracy(window, how, RECIPE)),
                w.show(accuracy(window, how, LIBRARY)),
            ]
            for window, how in kinds
        ]
        head = ["windows, coordinates", "raw descriptors", RECIPE, LIBRARY]
        published = [w.paper("brodatz", 1, name, "accuracy") for name in ("raw", "MRF", "RFF", "MRF std")]
        main = max(windows, default=0)
        best = {m: accuracy(main, "as they are", m) for m in (RECIPE, LIBRARY)}
        small = accuracy(min(windows, default=0), "as they are", LIBRARY)
        text = (
            f"The paper, with one neighbour: raw {published[0]}, MRF {published[1]}, RFF {published[2]}; it states "
            "neither windows nor descriptors' smoothing nor scaling. The most likely reading is small windows, at which "
            "raw descriptors are as accurate as the paper's, and standardised coordinates: its source has a "
            f"commented-out row “MRF std” of {published[3]}. At such windows we stay below it. The larger windows were "
            "chosen on photographs, not on the album. Each method decides by distance, cosine or inner product, "
            "whichever recognises most labelled windows; by Euclidean distance alone features do not lead. The library's "
            f"features are powers of the walk on the cloud, not learned. The recipe had {w.training('brodatz')}."
        )
        return [
            Item(
                PLACES["brodatz"],
                f"groups recognised, percent, one neighbour, windows of {w.show(main)}",
                w.paper(*key),
                w.show(best[RECIPE]),
                w.show(best[LIBRARY]),
                "brodatz",
                f"recipe {w.compare([(best[RECIPE], key)], higher=True)}, library "
                f"{w.compare([(best[LIBRARY], key)], higher=True)}, with small windows "
                f"{w.compare([(small, key)], higher=True)}: windows not stated",
                [table([head, *body]), text, w.picture("brodatz", "Groups recognised against neighbours")],
            )
        ]

    def grids(self) -> list[Item]:
        """Signatures on grids, and the saddle."""
        w = self
        rows = w.rows("gaussian_grid", "errors", teacher="walks")
        sides = sorted({row["n"] for row in rows}) or [0]
        dims = sorted({row["d"] for row in rows}) or [0]

        def ends(teacher: str) -> str:
            found = [w.value("gaussian_grid", "errors", "kernel", teacher=teacher, d=dims[0], n=n) for n in sides]
            return f"{w.show(found[0], 2)} to {w.show(found[-1], 2)}"

        falls = all(
            row["holds"] for row in w.rows("gaussian_grid", "claims") if str(row["claim"]).startswith("exact")
        )
        worst = [w.value("gaussian_grid", "errors", "kernel", teacher=t, d=dims[-1], n=sides[-1])
                 for t in ("walks", "exact")]  # fmt: skip
        text = (
            f"Relative mean squared errors in {w.show(dims[0])} to {w.show(dims[-1])} dimensions, grids of "
            f"{w.show(sides[0])} to {w.show(sides[-1])} nodes an axis, against the periodised limits, computed axis by "
            f"axis as in the paper. Exact signatures {'converge' if falls else 'do not converge'} in every dimension. "
            f"Walks stop where their noise dominates: in {w.show(dims[-1])} dimensions on the finest grid the kernel's "
            f"error is {w.show(worst[0], 2)}, with exact signatures {w.show(worst[1], 2)}. The paper's constant holds "
            "for inner products; for the feature itself another power of the number of nodes is needed."
        )
        first = Item(
            PLACES["signatures"], "signature of a vertex on finer grids", "picture", "the same picture",
            "does not walk", "gaussian_grid", "equal",
            [w.picture("gaussian_grid_signatures", "Signature of one vertex, as vertices and as squares")],
        )  # fmt: skip
        errors = Item(
            PLACES["gaussian_grid"],
            f"error of the Gaussian kernel, {w.show(dims[0])} dimensions, coarsest to finest grid",
            "curves that fall",
            ends("walks"),
            ends("exact"),
            "gaussian_grid",
            "recipe equal, library better: exact signatures have no noise",
            [text, w.picture("gaussian_grid_errors", "Errors against the nodes along an axis"),
             w.picture("gaussian_grid_convergence", "Kernel and feature by walks, their limits, differences")],
        )  # fmt: skip
        saddle = Item(
            PLACES["saddle"], "heat kernel of a saddle", "picture", "no recipe needed", "the same picture",
            "gaussian_grid", "equal", [w.picture("gaussian_grid_saddle", "Heat kernel of one point of a saddle")],
        )  # fmt: skip
        return [first, errors, saddle]

    def ambient(self) -> list[Item]:
        """Features of the surface against ambient ones."""
        w = self
        sizes = {row["features"] for row in w.rows("ambient", "best", method=LIBRARY)}
        few = next((size for size in sorted(sizes) if size >= 512), max(sizes, default=0))
        most = max((key[2].split()[1] for key in PRINTED if key[0] == "ambient" and " " in key[2]), key=int)
        columns = {"R²": "r2", "RMSE": "rmse", "MAE": "mae", "mean relative error": "mean_re"}
        rivals_of = ("RFF", "ORF", "PRF", "PORF")
        largest = max((row["features"] for row in w.rows("ambient", "best", method="RFF")), default=0)
        body = []
        for name, text in SURFACES.items():
            neighbours = {"neighbours": FITTING_STRIP} if name == "mobius" else {}
            row = next(iter(w.rows("surfaces", "recipe", surface=name, **neighbours)), {})
            rivals = [
                r
                for r in w.rows("ambient", "best", surface=name)
                if r["features"] == largest and r["method"] in rivals_of
            ]
            there = min(
                (PRINTED["ambient", name, f"{m} {most}", "error"] for m in ("RFF", "ORF", "PRF", "PORF")), key=float
            )
            gaussian = w.value("ambient", "best", "error", surface=name, method="Gaussian kernel itself")
            body.append(
                [
                    text,
                    w.paper("ambient", name, "MRF", "error"),
                    w.show(row.get("kernel")),
                    w.show(w.value("ambient", "best", "error", surface=name, method=LIBRARY, features=few)),
                    w.said(there),
                    w.show(min((r["error"] for r in rivals), default=None)),
                    w.show(gaussian),
                ]
            )
        head = ["surface", "MRF, published", RECIPE, f"{LIBRARY}, {w.show(few)} features"]
        head += ["best ambient, published", "best ambient, here", "best Gaussian kernel itself"]
        own = {n: w.value("ambient", "best", "error", surface=n, method=LIBRARY, features=few) for n in SURFACES}
        pairs = [(own[name], ("ambient", name, "MRF", "error")) for name in SURFACES]
        recipe = [
            (w.value("surfaces", "recipe", "kernel", surface=n, **({"neighbours": FITTING_STRIP} if n == "mobius" else {})),
             ("ambient", n, "MRF", "error")) for n in SURFACES
        ]  # fmt: skip
        others = []
        for text, column in columns.items():
            found = [
                (w.value("surfaces", "recipe", f"kernel_{column}", surface=n), ("ambient", n, "MRF", column))
                for n in SURFACES
            ]
            others.append(f"{text} {w.compare(found, higher=column == 'r2')}")
        text = (
            f"Ambient methods have up to {w.show(int(most))} features and their best bandwidth; kernels are compared at "
            "all nodes of the graphs with the norms of the paper's kernels (so the strip has "
            f"{w.show(FITTING_STRIP)} neighbours). The recipe has one feature for every node, the library "
            f"{w.show(few)} in all. Other columns of the paper's table, recipe: {', '.join(others)}. Our tuned "
            "ambient features are better than the published ones. Except on the sphere no number of ambient features is enough: the best Gaussian kernel itself is the limit."
        )
        return [
            Item(
                PLACES["ambient"],
                "error of the kernel against ambient features, four surfaces",
                w.join([w.paper("ambient", name, "MRF", "error") for name in SURFACES], str),
                w.join([value for value, _ in recipe]),
                w.join(own.values()),
                "ambient",
                f"recipe {w.compare(recipe)}, library {w.compare(pairs)}: far fewer features",
                [table([head, *body]), text, w.picture("ambient", "Error against the number of features")],
            )
        ]

    def hyperbolic(self) -> list[Item]:
        """Errors in the inner ball for every radius."""
        w = self
        rows = w.rows("hyperbolic", "radii")
        keys = [("hyperbolic", float(row["R"]), "MRF", "error") for row in rows]
        head = ["radius", "published", RECIPE, LIBRARY, f"{LIBRARY}, not aligned"]
        body = [
            [
                w.show(float(row["R"])),
                w.paper(*key),
                w.show(row["walks_error"], 2),
                w.show(row["error"], 2),
                w.show(row["unaligned"], 2),
            ]
            for row, key in zip(rows, keys, strict=True)
        ]
        text = (
            f"Relative errors in the inner ball of radius {w.show(w.config('hyperbolic', 'inner'))} at time "
            f"{w.show(w.config('hyperbolic', 't'))} against the analytic kernel, at "
            f"{w.show(w.config('hyperbolic', 'n_queries'))} nodes. The recipe walks on nearest neighbours in hyperbolic "
            f"distance, with {w.training('hyperbolic')}; the paper states neither nodes nor walks. The library uses "
            "a heat graph with known volumes and steps calibrated along the metric, on an absolute scale; in the "
            "smallest balls the rim reflects heat into the inner ball."
        )
        first, last = (rows[0], rows[-1]) if rows else ({}, {})
        ends = [keys[0], keys[-1]] if keys else []
        return [
            Item(
                PLACES["hyperbolic"],
                "error in an inner ball of hyperbolic space, smallest / largest ball",
                w.join(ends, lambda key: w.paper(*key)) if ends else MISSING,
                w.join([row.get("walks_error") for row in (first, last)], lambda value: w.show(value, 2)),
                w.join([row.get("error") for row in (first, last)], lambda value: w.show(value, 2)),
                "hyperbolic",
                f"recipe {w.compare([(r['walks_error'], k) for r, k in zip(rows, keys, strict=True)])}, library "
                f"{w.compare([(r['error'], k) for r, k in zip(rows, keys, strict=True)])}: the rim reflects heat",
                [table([head, *body]), text, w.picture("hyperbolic_radii", "Error against the radius of the ball")],
            )
        ]

    # ------------------------------------------------------------------------------------------------- the page
    def items(self) -> list[Item]:
        """All rows, in the order of the paper."""
        grids, surfaces, meshes = self.grids(), self.surfaces(), self.meshes()
        rest = [*self.attention(), *self.brodatz(), grids[2], grids[1], *self.ambient(), *self.hyperbolic()]
        return [grids[0], *surfaces, *meshes, *rest]

    def command(self, experiment: str) -> str:
        """How a record is made, and how long that took."""
        files = " --data DIR" if experiment in ("normals", "velocity", "brodatz") else ""
        return f"`{experiment} --size paper{files}`"

    def duration(self, experiment: str) -> str:
        """How long a record took."""
        if experiment not in self.records:
            return MISSING
        minutes = self.records[experiment].seconds / 60
        return self.show(minutes / 60, 2) + " h" if minutes > 90 else self.show(max(1, round(minutes))) + " min"

    def origins(self) -> str:
        """Which commits the records name."""
        commits: dict[str, list[str]] = {}
        for name, record in self.records.items():
            commits.setdefault(str(record.environment.get("commit")), []).append(name)
        listed = "; ".join(f"{self.said(f'`{commit}`')}: {', '.join(names)}" for commit, names in commits.items())
        if len(commits) == 1:
            return f"All records are of the commit {listed.partition(':')[0]}."
        return (
            f"The records are of several commits ({listed}), older than the code that would make them today; one run "
            "of `make records DATA=DIR` makes all again from one commit. Cells that say “to be remade” wait for it."
        )


def results_page(records: Mapping[str, Record]) -> tuple[str, set[str]]:
    """The page of all results in Markdown, and the numbers on it."""
    writer = Writer(records)
    items = writer.items()
    head = ["paper", "what it shows", "published", RECIPE, LIBRARY, "verdict and why", "command", "time"]
    rows = [
        [
            writer.said(item.place),
            item.shows,
            item.published,
            item.recipe,
            item.ours,
            item.verdict,
            writer.command(item.experiment),
            writer.duration(item.experiment),
        ]
        for item in items
    ]
    parts = [
        "# Results",
        "<!-- Made by `python -m reproduction results`; changes made by hand are lost. -->",
        "The experiments of the paper “Manifold Random Features”, one row for each of its tables and figures. "
        "**Paper's recipe** is the paper's method, run here; **this library** is what the package does by default. "
        "Verdicts compare a column with the published number, in its digits. Commands follow `python -m reproduction`; "
        "times are of two cores. Every number here is the paper's or comes from a record in "
        "`docs/records`, which has all seeds and columns; [data](data.md) says where files come from.",
        table([head, *rows]),
        writer.origins(),
    ]
    for item in items:
        if item.text:
            parts += [f"## {item.place}: {item.shows}", *item.text]
    return "\n\n".join(parts) + "\n", writer.known


def readme_block(records: Mapping[str, Record]) -> tuple[str, set[str]]:
    """The README's table of the first experiment, and the numbers in it."""
    writer = Writer(records)
    kernel = writer.surfaces()[0]

    def seconds(method: str) -> str:
        rows = writer.rows("surfaces", "surfaces", method=method)
        return writer.span([row["kernel_ms"] / 1000 for row in rows])

    note = (
        "Relative errors of the kernel matrix. The first two columns are between nodes of the graph, as in the paper; "
        "the others between points that no graph contains, against the heat kernel of the surface (on the sphere "
        "analytic, elsewhere of a finer graph). The library has "
        f"{writer.show(writer.value('surfaces', 'surfaces', 'features', method=LIBRARY))} features and needs no "
        f"training: {seconds(LIBRARY)} s of CPU for the kernel of {writer.show(writer.config('surfaces', 'n_queries'))} points, "
        f"where the recipe takes {seconds(RECIPE)} s."
    )
    return f"{kernel.text[0]}\n\n{note}", writer.known
