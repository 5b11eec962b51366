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
from reproduction.interpolation import AUTO, FEATURES, FULL, KERNEL, MEASURED
from reproduction.paper import PLACES, PRINTED, is_reached
from reproduction.record import Record, Row, chosen
from reproduction.surface_graphs import FITTING_STRIP, SPHERE_TIME, TAU
from reproduction.surfaces import EXACT

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
MISSING = "to be remade"
SURFACES = {"sphere": "sphere", "ellipsoid": "ellipsoid", "mobius": "Möbius strip", "torus": "torus"}
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|\.\d+")
_VERDICTS = {1: "better", 0: "equal", -1: "worse"}
_RAW = "as they are"  # coordinates of descriptors


def read_records(folder: Path, *, arrays: bool = False) -> dict[str, Record]:
    """Read the records of a folder; with ``arrays``, also the data of their figures."""
    paths = files_in(folder, (".json",))
    if not paths:
        reject("--records", "a folder with the .json files of records", folder, FileNotFoundError)
    return {path.stem: Record.load(path, arrays=arrays) for path in paths}


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


def by_norms(error: float) -> float:
    """Relative error of a kernel aligned by its norm, as the paper does, from that of one aligned by least squares.

    The latter is the sine of the angle between both kernels, the former the chord.

    Examples
    --------
    >>> round(by_norms(0.6), 4)
    0.6325
    """
    return float(np.sqrt(2 - 2 * np.sqrt(1 - error**2)))


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

    def mean(self, values: Iterable[float | None]) -> float | None:
        """The mean of the numbers that there are."""
        found = [value for value in values if value is not None]
        return float(np.mean(found)) if found else None

    def join(self, values: Iterable[Any], how: Callable[[Any], str] | None = None) -> str:
        """Several numbers with commas; only one word if all are missing."""
        texts = [(how or self.show)(value) for value in values]
        return MISSING if all(text == MISSING for text in texts) else ", ".join(texts)

    def compare(self, pairs: Iterable[tuple[float | None, tuple[str, object, str, str]]], **how: Any) -> str:
        """Our numbers against the paper's, in a word."""
        found = [is_reached(value, *key, **how) for value, key in pairs if value is not None]
        if not found:
            return MISSING
        worse = sum(sign < 0 for sign in found)
        if len(set(found)) == 1:
            return _VERDICTS[found[0]]
        return self.said(f"worse in {worse} of {len(found)}") if worse else "better or equal"

    def ambient_error(self, surface: str, method: str, features: float | None) -> float | None:
        """Error between all nodes of the paper's graph of a surface (strip: with the norm of the paper's kernel)."""
        return self.value("ambient", "best", "error", surface=surface, method=method, features=features)

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
            return w.mean(recipe(name, column))

        def new(name: str, method: str) -> float | None:
            return w.value("surfaces", "surfaces", "new_points", surface=name, method=method)

        def printed(column: str) -> str:
            return w.join(SURFACES, lambda name: w.paper("surfaces", name, "MRF", column))

        def pairs(column: str, value: Callable[[str], float | None]) -> list[Any]:
            return [(value(name), ("surfaces", name, "MRF", column)) for name in SURFACES]

        features = w.value("surfaces", "surfaces", "features", method=LIBRARY)
        library = {name: w.ambient_error(name, LIBRARY, features) for name in SURFACES}
        off = w.show(w.value("surfaces", "fingerprints", "graph_to_analytic", surface="sphere"))

        def strip_rows(column: str) -> list[float]:
            rows = w.rows("surfaces", "recipe", surface="mobius", neighbours=FITTING_STRIP)
            return [row[column] for row in rows]

        strip = strip_rows("kernel")
        ellipsoid = w.rows("surfaces", "recipe", surface="ellipsoid", stopped_by="epochs")
        not_stopped = [row["kernel"] for row in ellipsoid]
        norms = [
            row["fingerprint"] / row["paper_fingerprint"]
            for row in w.rows("surfaces", "fingerprints")
            if row.get("paper_fingerprint") and (row["surface"], row["neighbours"]) != ("mobius", stated["mobius"])
        ]
        body = [
            ["error of the kernel", *SURFACES.values()],
            ["published", *(w.paper("surfaces", name, "MRF", "kernel") for name in SURFACES)],
            [RECIPE, *(w.span(recipe(name, "kernel"), 3) for name in SURFACES)],
            [LIBRARY, *map(w.show, library.values())],
        ]
        body += [
            [f"{method}, new points", *(w.show(new(name, method)) for name in SURFACES)]
            for method in (RECIPE, LIBRARY)
        ]
        seeds = w.show(max(len(recipe(name, "kernel")) for name in SURFACES))
        kernel = Item(
            PLACES["surfaces"],
            "relative error of the kernel: sphere, ellipsoid, strip, torus",
            printed("kernel"),
            w.join([mean(name, "kernel") for name in SURFACES]),
            w.join(library.values()),
            "surfaces",
            f"recipe {w.compare(pairs('kernel', lambda name: mean(name, 'kernel')))} (sphere: our graph's exact kernel is {off} "
            f"off; ellipsoid: {w.span(not_stopped, 3)} without early stopping), library {w.compare(pairs('kernel', library.get))}",
            [
                table(body),
                "Relative Frobenius errors between all nodes, after alignment by norms, against targets to which the "
                "library is fitted too: on the sphere the analytic kernel, elsewhere that of the graph. The recipe is "
                f"`ManifoldRandomFeatures.paper()` with nothing set but the neighbours of the strip ({w.show(stated['mobius'])}, "
                f"as stated), {seeds} seeds. Batch and early stopping are ours: with the batch stated for meshes errors are "
                f"larger. The library has {w.show(features)} features (the recipe one for every node, with which the library "
                f"would be exact by construction), on the strip {w.show(FITTING_STRIP)} neighbours. The paper states "
                f"σ² = {w.show(TAU)}, which we read as tau ([corrections](theory.md#corrections-to-the-paper)), time "
                f"{w.paper('surfaces', 'sphere', 'MRF', 'time')} for the sphere, and no bandwidth. Its table of ambient features "
                f"implies the norms of its kernels; our bandwidth and time {w.show(SPHERE_TIME)} give {w.span(norms, 3)} of "
                f"them, on the strip only with {w.show(FITTING_STRIP)} neighbours, where the error of one training is "
                f"{w.span(strip)}. On the sphere the recipe is {w.span(recipe('sphere', 'nodes'))} off the kernel of its own "
                "graph.",
                "New points lie in no graph; the target is the heat kernel of the surface, at each method's own time. The library "
                "is fitted to it (also in the next section), the recipe stands for the kernel of its graph (nodes of the torus are "
                "denser inside): these rows do not rank them.",
                w.picture("surfaces_kernels", "Kernel of one node: recipe, exact, difference"),
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
            f"{w.compare(pairs('mse', lambda name: mean(name, 'mse')))}; strip with {w.show(FITTING_STRIP)} neighbours: R² "
            f"{w.compare([(w.mean(strip_rows('r2')), ('surfaces', 'mobius', 'MRF', 'r2'))], higher=True)}, MSE "
            f"{w.compare([(w.mean(strip_rows('mse')), ('surfaces', 'mobius', 'MRF', 'mse'))])}; epoch chosen at the same starts",
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
            for method in (RECIPE, LIBRARY, EXACT)
        }
        torch = [a / b for a, b in zip(spectral, cost(RECIPE, "torch_ms"), strict=False) if b]
        whole = w.value("surfaces", "surfaces", "features", method=EXACT)
        keys = [("surfaces", name, "MRF", "speed_up") for name in SURFACES]
        times = Item(
            PLACES["surfaces"],
            f"kernel of {points} new points: how many times faster than an eigendecomposition",
            printed("speed_up"),
            w.join(gains[RECIPE], lambda value: w.show(value, 2)),
            w.join(gains[LIBRARY], lambda value: w.show(value, 2)),
            "surfaces",
            f"recipe {w.compare(zip(gains[RECIPE], keys, strict=True), higher=True)} ({w.span(torch)} in torch), library "
            f"{w.compare(zip(gains[LIBRARY], keys, strict=True), higher=True)} ({w.span(gains[EXACT])} with {w.show(whole)} "
            "features): CPU seconds here",
            [
                f"Seconds, paper (its TPU and GPU are “for neural network training only”): {printed('kernel_s')}, eigendecomposition "
                f"{printed('spectral_s')}. CPU seconds in one run here: recipe {w.span(cost(RECIPE, 'kernel_ms'))}, its network in torch (first layer factored) "
                f"{w.span(cost(RECIPE, 'torch_ms'))}, the library with {w.show(features)} features "
                f"{w.span(cost(LIBRARY, 'kernel_ms'))}, eigendecomposition with the kernel of all nodes "
                f"{w.span(spectral)}. A fit of the library takes "
                f"{w.span([w.value('surfaces', 'surfaces', 'fit_s', surface=n, method=LIBRARY) for n in SURFACES])} s."
            ],
        )
        drawn = Item(
            PLACES["fields"],
            "fields, kernels, residuals, scatter plots",
            "pictures",
            "drawn as the captions say",
            "not drawn",
            "surfaces",
            "not compared: we had captions only",
            [
                w.picture("surfaces_fields", "Field of one node: recipe, exact, difference"),
                w.picture("surfaces_diagnostics", "Recipe against exact signatures, errors"),
            ],
        )
        return [kernel, fields, times, drawn]

    def meshes(self) -> list[Item]:
        """Cosines and times of both tasks on meshes."""
        w, items = self, []
        texts = {
            "normals": ("mean cosine of vertex normals, a fifth known", "other meshes"),
            "velocity": ("mean cosine of velocities of cloth, one in twenty hidden", "other cloth"),
        }
        for task, (shows, why) in texts.items():
            column, shape = ("as_paper", "mesh") if task == "normals" else ("dense", "sequence")
            learned = w.rows(task, "learned")
            trained = [str(row[shape]) for row in learned]
            cells = w.rows(task, "cells", method=FEATURES)
            same = w.mean(row["cosine"] for row in cells if row[shape] in trained)
            recipe, ours = (w.value(task, task, column, method=method) for method in (RECIPE, FEATURES))
            key = (task, "", "MRF", "cosine")

            def verdict(value: float | None, key: tuple[str, str, str, str] = key) -> str:
                """Only whether it is reached, as the data are others."""
                found = w.compare([(value, key)], higher=True)
                return {"worse": "worse", MISSING: MISSING}.get(found, "reached")

            there = {name[2]: text for name, text in PRINTED.items() if name[0] == task and name[3] == "cosine"}
            there.pop("MRF")
            here = [w.value(task, task, column, method=name) for name in there]

            if task == "normals":  # on the meshes that the recipe was trained on
                everywhere, ours = w.mean(row["cosine"] for row in cells), same
                better = f"{verdict(ours)} on the smallest meshes, {verdict(everywhere)} over all"
                over = (
                    f"on these meshes, the smallest; over all {w.show(len(cells))} (up to "
                    f"{w.show(max((row['vertices'] for row in cells), default=0))} vertices) it is "
                    f"{w.show(everywhere)}, with the exact kernel {w.show(w.value(task, task, 'as_paper', method=KERNEL))}"
                )
            else:
                nodes = learned[0]["dense"] if learned else 0
                over_sizes = w.show(ours)
                recipe = learned[0]["dense_cosine"] if learned else None
                ours = w.value(task, "scaling", "cosine", method=FEATURES, vertices=nodes)
                better = f"{verdict(ours)}, {verdict(same)} at the vertices"
                over = (
                    f"on {w.show(nodes)} nodes of the first sequence, as the recipe's; over its sizes it is {over_sizes}, at the "
                    f"vertices of all three {w.show(same)}, where the recipe reaches "
                    f"{w.show(w.mean(row['cosine'] for row in learned))} from its denser graph. Tau and neighbours are those of "
                    "normals; the paper gives none"
                )
            free = w.mean(row["cosine"] for row in w.rows(task, "cells", method=AUTO) if row[shape] in trained)
            text = (
                f"The paper's data could not be had; the recipe was trained on {w.said(', '.join(trained))}, with the settings "
                f"stated for meshes. The library's number is of as many features at anchors drawn alike, {over}. Best ambient "
                f"features: {w.show(max((value for value in here if value is not None), default=None))} (published "
                f"{w.said(max(there.values(), key=float))}). `FieldInterpolator`, another method, tuned on the known values, "
                f"reaches {w.show(free)} on the same {'meshes' if task == 'normals' else 'vertices'}."
            )
            items.append(
                Item(PLACES["meshes"], shows, w.paper(*key), w.show(recipe), w.show(ours), task,
                     f"recipe {verdict(recipe)}, library {better}: {why}",
                     [text, w.picture(f"{task}_methods", "Mean cosine of every method")])
            )  # fmt: skip
        growth = {
            method: [w.value(task, "exponents", "interpolate", method=method) for task in texts]
            for method in (RECIPE, FEATURES)
        }

        def seconds(task: str, method: str, part: str, vertices: int) -> float | None:
            return w.value(task, "scaling", f"{part}_s", method=method, vertices=vertices)

        def both(method: str) -> str:
            found = [seconds("normals", method, part, int(size)) for part in ("prepare", "interpolate")]
            return " and ".join(w.show(value, 2) for value in found)

        def gain(vertices: int) -> str:
            """How many times longer the dense kernel takes for a frame than the recipe."""
            dense, thin = (seconds("velocity", method, "interpolate", vertices) for method in (FULL, RECIPE))
            return f"{w.show(dense / thin if dense and thin else None, 2)} times at {w.show(vertices)} nodes"

        def ambient_growth() -> str:
            names = {key[2] for key in PRINTED if key[0] == "normals" and key[3] == "growth"} - {"MRF"}
            here = [w.value(task, "exponents", "interpolate", method=name) for task in texts for name in names]
            there = [PRINTED[task, "", name, "growth"] for task in texts for name in names]
            ends = " to ".join(w.said(pick(there, key=float)) for pick in (min, max))
            return f"{w.span(here)} (published {ends})"

        dense_sizes = [row["vertices"] for row in w.rows("velocity", "scaling", method=FULL, how=MEASURED)] or [0]
        all_sizes = [row["vertices"] for row in w.rows("velocity", "scaling", method=RECIPE)] or [0]
        keys = [(task, "", "MRF", "growth") for task in texts]
        size = next(key[1] for key in PRINTED if key[0] == "normals" and key[3] == "prepare_s")
        printed = [w.paper("normals", size, name, part) for name in ("MRF", "full kernel")
                   for part in ("prepare_s", "interpolate_s")]  # fmt: skip
        items.append(
            Item(
                PLACES["times"],
                "growth exponent of interpolation time: normals, velocity",
                w.join(keys, lambda key: w.paper(*key)),
                w.join(growth[RECIPE], lambda value: w.show(value, 2)),
                w.join(growth[FEATURES], lambda value: w.show(value, 2)),
                "normals",
                f"recipe {w.compare(zip(growth[RECIPE], keys, strict=True))}, library "
                f"{w.compare(zip(growth[FEATURES], keys, strict=True))}: work is proportional to the vertices",
                [
                    f"At {w.show(int(size))} vertices preparation and interpolation take {both(RECIPE)} CPU seconds by the "
                    f"recipe (training, on {w.show(w.config('normals', 'learned')['n_dense'] if w.rows('normals', 'learned') else None)} nodes at every size, extrapolated), {both(FEATURES)} by the library, {both(FULL)} by the "
                    f"dense kernel (extrapolated from smaller ones). Published: {printed[0]} and "
                    f"{printed[1]} s, dense kernel {printed[2]} and {printed[3]} s. Exponents of ambient features "
                    f"are {ambient_growth()}. "
                    "For a frame of velocities the dense kernel takes longer "
                    f"than the recipe: {gain(max(dense_sizes))}, {gain(max(all_sizes))} if extrapolated (published: more "
                    f"than {w.paper('velocity', '', 'MRF', 'speed_up')}).",
                    w.picture("normals_times", "Normals: CPU seconds against size"),
                    w.picture("velocity_times", "Velocities: the same"),
                ],
            )
        )
        return items

    def attention(self) -> list[Item]:
        """Ranks of the methods on the strip: the unit of the paper's errors is not known."""
        w = self
        signals = w.rows("attention", "signals", surface="mobius")
        names = sorted({key[2] for key in PRINTED if key[0] == "attention"} - {"MRF"})
        counts = sorted({key[1] for key in PRINTED if key[0] == "attention"})

        def error(method: str, column: str, seeds: set[int]) -> float:
            """Geometric mean over signals, as in the record."""
            found = [row[column] for row in chosen(signals, method=method) if row["seed"] in seeds]
            return float(np.exp(np.mean(np.log(found))))

        def rank(method: str, column: str = "mse") -> int | None:
            """Among the paper's other methods, on the draws on which this one was run."""
            seeds = {row["seed"] for row in chosen(signals, method=method)}
            own = error(method, column, seeds) if seeds else 0.0
            return 1 + sum(error(name, column, seeds) < own for name in names if name != method) if seeds else None

        def place(method: str, column: str = "mse") -> int:
            """The same in the paper."""
            means = {m: sum(float(PRINTED["attention", k, m, column]) for k in counts) for m in (*names, "MRF")}
            return 1 + sum(mean < means[method] for mean in means.values())

        def verdict(method: str) -> str:
            own, there = rank(method), place("MRF")
            return MISSING if own is None else _VERDICTS[(own < there) - (own > there)]

        def mse(surface: str, method: str) -> float | None:
            return w.value("attention", "attention", "mse", surface=surface, method=method)

        def ratio(surface: str, method: str) -> float | None:
            gaussian, other = mse(surface, "exact RBF"), mse(surface, method)
            return gaussian / other if gaussian and other else None

        text = (
            "The paper's text gives neither the protocol nor the unit of its errors, so "
            f"only the order of its {w.show(len(names) + 1)} methods can be compared. It differs: by mean squared error the exact "
            f"heat kernel has rank {w.show(place('exact heat'))} there and {w.show(rank('exact heat'))} here. The recipe, whose rank "
            f"is of its own draws, keeps tau = {w.show(TAU)} of the surfaces and has random anchors; all others choose their widths "
            "on the visible tokens. Nyström's method, linear Gaussian attention and the library have anchors amid their cells, "
            "the last two balanced sums. On the plain strip geometry hardly matters: the exact Gaussian "
            f"kernel has {w.show(ratio('mobius', 'exact heat'), 2)} times the error of the exact heat kernel. On "
            "three surfaces whose sheets nearly touch it has "
            f"{w.span(ratio(name, LIBRARY) for name in ('mobius2', 'swiss', 'folded'))} times the library's."
        )
        both = ("mse", "l2")
        return [
            Item(
                PLACES["attention"],
                f"rank among {w.show(len(names) + 1)} methods on the strip: mean squared, relative error",
                w.join([place("MRF", column) for column in both]),
                w.join([rank(RECIPE, column) for column in both]),
                w.join([rank(LIBRARY, column) for column in both]),
                "attention",
                f"recipe (alone not tuned) {verdict(RECIPE)}, library {verdict(LIBRARY)}: the protocol is not in the text",
                [text, w.picture("attention", "Mean squared error against the number of sources")],
            )
        ]

    def brodatz(self) -> list[Item]:
        """Accuracies with one neighbour, by window and coordinates."""
        w = self
        key = ("brodatz", 1, "MRF", "accuracy")
        rows = w.rows("brodatz", "brodatz")
        windows = sorted({row["window"] for row in rows})
        small, large = (windows[0], windows[-1]) if windows else (0, 0)

        def accuracy(window: int, coordinates: str, method: str, rule: str = "accuracy") -> float | None:
            return w.value("brodatz", "brodatz", rule, window=window, coordinates=coordinates, method=method)

        def both(window: int, coordinates: str, method: str) -> str:
            """By the chosen rule, and by distance alone."""
            found = [accuracy(window, coordinates, method, rule) for rule in ("accuracy", "euclidean")]
            return MISSING if found[0] is None else f"{w.show(found[0])} ({w.show(found[1])})"

        def verdict(rule: str) -> str:
            found = []
            for name, method in (("recipe", RECIPE), ("library", LIBRARY)):
                values = [accuracy(window, _RAW, method, rule) for window in (small, large)]
                words = dict.fromkeys(w.compare([(value, key)], higher=True) for value in values)
                found.append(f"{name} {' and '.join(words)}")
            return ", ".join(found)

        methods = ("raw", RECIPE, LIBRARY)
        body = [
            [f"{w.show(window)}, {how}", *(both(window, how, method) for method in methods)]
            for window in windows
            for how in (_RAW, "standardised")
        ]
        head = [
            "windows, coordinates",
            "raw descriptors (by distance)",
            f"{RECIPE} (by distance)",
            f"{LIBRARY} (by distance)",
        ]
        published = [w.paper("brodatz", 1, name, "accuracy") for name in ("raw", "MRF std")]
        columns = w.config("brodatz", "n_features")
        anchors = f", {w.show(columns)} random anchors" if columns else ""
        seeds = [
            w.span(row["seeds"] for row in rows if (row["method"] == RECIPE) == learned)
            for learned in (False, True)
        ]
        text = (
            "The paper states neither windows nor smoothing nor scaling. The most likely "
            "reading is small windows, at which raw descriptors are as accurate as the paper's, and standardised "
            f"coordinates: a draft table, commented out in its source, has a row “MRF std” of {published[1]}; that this means "
            "standardised is our guess. The small windows were chosen by raw accuracy on other draws, the larger ones on "
            "photographs. Each method decides by distance, cosine or inner product, whichever recognises most labelled "
            "windows; numbers in brackets are by distance alone. The library's features are powers of the walk, not learned. "
            "The recipe had "
            f"{w.training('brodatz')}{anchors} and {seeds[1]} draws, the others {seeds[0]}."
        )
        return [
            Item(
                PLACES["brodatz"],
                f"groups recognised, percent, one neighbour: windows of {w.show(small)}, {w.show(large)}, coordinates as they "
                "are",
                f"{w.paper(*key)} (raw {published[0]})",
                w.join([accuracy(window, _RAW, RECIPE) for window in (small, large)]),
                w.join([accuracy(window, _RAW, LIBRARY) for window in (small, large)])
                + f" (raw {w.join([accuracy(window, _RAW, 'raw') for window in (small, large)])})",
                "brodatz",
                f"{verdict('accuracy')}; by distance {verdict('euclidean')}; windows not stated",
                [table([head, *body]), text, w.picture("brodatz", "Groups recognised against neighbours")],
            )
        ]

    def grids(self) -> list[Item]:
        """Signatures on grids, and the saddle."""
        w = self
        rows = w.rows("gaussian_grid", "errors", teacher="walks")
        sides = sorted({row["n"] for row in rows}) or [0]
        dims = sorted({row["d"] for row in rows}) or [0]

        def curve(teacher: str, d: int, column: str = "kernel") -> list[float]:
            return [row[column] for row in w.rows("gaussian_grid", "errors", teacher=teacher, d=d)]

        def ends(teacher: str) -> str:
            found = curve(teacher, dims[0], "kernel_plain")
            return f"{w.show(found[0], 2)} to {w.show(found[-1], 2)}" if found else MISSING

        walks = curve("walks", dims[0]) or [0.0]
        finest, plain = ([curve("exact", d, column)[-1] for d in (dims[0], dims[-1])] if rows else [None, None]
                         for column in ("kernel", "kernel_plain"))  # fmt: skip
        text = (
            f"Relative mean squared errors in {w.show(dims[0])} to {w.show(dims[-1])} dimensions, grids of "
            f"{w.show(sides[0])} to {w.show(sides[-1])} nodes an axis, against the "
            "periodised limits. Against the plain Gaussian, with which the paper compares, exact signatures stop at "
            f"{w.join(plain, lambda value: w.show(value, 2))} in {w.show(dims[0])}, {w.show(dims[-1])} dimensions (against the "
            f"limits {w.join(finest, lambda value: w.show(value, 2))}), since the grid wraps around. In {w.show(dims[0])} "
            f"dimensions walks are best with {w.show(sides[int(np.argmin(walks))])} nodes (error {w.show(min(walks), 2)}): on "
            "finer grids they are noisier."
        )
        first = Item(
            PLACES["signatures"], "signature of a vertex on finer grids", "picture", "drawn as the caption says",
            "does not walk", "gaussian_grid", "not compared: we had captions only",
            [w.picture("gaussian_grid_signatures", "Signature of one vertex, as vertices and as squares")],
        )  # fmt: skip
        errors = Item(
            PLACES["gaussian_grid"],
            f"error of the Gaussian kernel, {w.show(dims[0])} dimensions, coarsest to finest grid",
            "curves that fall",
            ends("walks"),
            ends("exact"),
            "gaussian_grid",
            "no numbers published",
            [text, w.picture("gaussian_grid_errors", "Errors against the nodes along an axis"),
             w.picture("gaussian_grid_convergence", "Kernel and feature by walks, their limits, differences")],
        )  # fmt: skip
        saddle = Item(
            PLACES["saddle"], "heat kernel of a saddle", "picture", "no recipe needed", "drawn as the caption says",
            "gaussian_grid", "not compared: we had captions only", [w.picture("gaussian_grid_saddle", "Heat kernel of one point of a saddle")],
        )  # fmt: skip
        return [first, errors, saddle]

    def ambient(self) -> list[Item]:
        """Features of the surface against ambient ones."""
        w = self
        sizes = {row["features"] for row in w.rows("ambient", "best", method=LIBRARY)}
        few = next((size for size in sorted(sizes) if size >= 512), max(sizes, default=0))  # an eighth of the nodes
        most = max((key[2].split()[1] for key in PRINTED if key[0] == "ambient" and " " in key[2]), key=int)
        columns = {"R²": "r2", "RMSE": "rmse", "MAE": "mae", "mean relative error": "mean_re",
                   "median": "median_re"}  # fmt: skip
        rivals_of = ("RFF", "ORF", "PRF", "PORF")
        largest = max((row["features"] for row in w.rows("ambient", "best", method="RFF")), default=0)
        body = []

        def learned(name: str, column: str = "kernel") -> float | None:
            """Mean over seeds, on the graph with the norm of the paper's kernel."""
            where = {"neighbours": FITTING_STRIP} if name == "mobius" else {}
            return w.mean(row.get(column) for row in w.rows("surfaces", "recipe", surface=name, **where))

        for name, text in SURFACES.items():
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
                [text, w.said(there), w.show(min((r["error"] for r in rivals), default=None)), w.show(gaussian)]
            )
        head = ["surface", "best ambient, published", "best ambient, here", "best Gaussian kernel itself"]
        own = {name: w.ambient_error(name, LIBRARY, few) for name in SURFACES}
        pairs = [(own[name], ("ambient", name, "MRF", "error")) for name in SURFACES]
        recipe = [(learned(name), ("ambient", name, "MRF", "error")) for name in SURFACES]
        others = []
        for text, column in columns.items():
            found = [(learned(name, f"kernel_{column}"), ("ambient", name, "MRF", column)) for name in SURFACES]
            others.append(f"{text} {w.compare(found, higher=column == 'r2')}")
        stated = w.show(w.value("surfaces", "recipe", "neighbours", surface="mobius"))
        nystrom = w.ambient_error("sphere", "Nystrom", few)
        text = (
            f"Ambient methods have {w.show(int(most))} features and their best bandwidth; kernels are compared at "
            "all nodes of the graphs with the norms of the paper's kernels (strip: "
            f"{w.show(FITTING_STRIP)} neighbours). The library has {w.show(few)} features. Other columns of the paper, recipe: "
            f"{', '.join(others)}. Except on the sphere no number of ambient features is enough: the best Gaussian kernel itself "
            "is the limit. On the sphere as many Nyström features of that kernel, not in the paper, have "
            f"{w.show(nystrom)}."
        )
        return [
            Item(
                PLACES["ambient"],
                "error of the kernel against ambient features, four surfaces",
                w.join([w.paper("ambient", name, "MRF", "error") for name in SURFACES], str),
                w.join([value for value, _ in recipe]),
                w.join(own.values()),
                "ambient",
                f"recipe {w.compare(recipe)} (strip: {w.show(FITTING_STRIP)} neighbours; the first row has {stated}), library "
                f"{w.compare(pairs)}: far fewer features",
                [table([head, *body]), text, w.picture("ambient", "Error against the number of features")],
            )
        ]

    def hyperbolic(self) -> list[Item]:
        """Errors in the inner ball for every radius."""
        w = self
        rows = w.rows("hyperbolic", "radii")
        recipe, ours = ([by_norms(row[column]) for row in rows] for column in ("walks_error", "error"))
        keys = [("hyperbolic", float(row["R"]), "MRF", "error") for row in rows]
        head = ["radius", "published", RECIPE, LIBRARY, f"{LIBRARY}, not aligned"]
        body = [
            [w.show(float(row["R"])), w.paper(*key), w.show(walked, 2), w.show(own, 2), w.show(row["unaligned"], 2)]
            for row, key, walked, own in zip(rows, keys, recipe, ours, strict=True)
        ]
        text = (
            f"Relative errors in the inner ball of radius {w.show(w.config('hyperbolic', 'inner'))} at time "
            f"{w.show(w.config('hyperbolic', 't'))} against the analytic kernel, at "
            f"{w.show(w.config('hyperbolic', 'n_queries'))} nodes, aligned by their norms as in the paper. The recipe walks on "
            "nearest neighbours in hyperbolic distance, weighted against the density of nodes that thin out towards the rim, with "
            f"{w.training('hyperbolic')} at most, more walks in larger balls as stated; the rest is ours. It has "
            f"{w.show(w.config('hyperbolic', 'n_recipe'))} nodes and {w.show(w.config('hyperbolic', 'n_recipe_seeds'))} draw, the "
            f"library {w.span(w.config('hyperbolic', 'n_nodes') or [])} nodes and {w.show(w.config('hyperbolic', 'n_seeds'))} "
            "draws. The library's heat graph has known volumes and steps calibrated along the metric; the rim of small balls "
            "reflects heat."
        )
        ends = [0, -1] if rows else []
        return [
            Item(
                PLACES["hyperbolic"],
                "error in an inner ball of hyperbolic space: smallest, largest ball",
                w.join([keys[end] for end in ends], lambda key: w.paper(*key)),
                w.join([recipe[end] for end in ends], lambda value: w.show(value, 2)),
                w.join([ours[end] for end in ends], lambda value: w.show(value, 2)),
                "hyperbolic",
                f"recipe (budget ours) {w.compare(zip(recipe, keys, strict=True))}, library "
                f"{w.compare(zip(ours, keys, strict=True))}: the rim reflects heat",
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
        """How a record was made, and how long that took."""
        if experiment not in self.records:
            return f"`{experiment}`, {MISSING}"
        record = self.records[experiment]
        words = record.environment["command"].removeprefix("python -m reproduction ").replace(" --size paper", "")
        return f"`{self.said(words)}`, {self.show(max(1, round(record.seconds / 60)))} min"

    def origins(self) -> str:
        """Which commits the records name."""
        commits: dict[str, list[str]] = {}
        for name, record in self.records.items():
            commits.setdefault(str(record.environment.get("commit")), []).append(name)
        listed = "; ".join(f"{self.said(f'`{commit}`')}: {', '.join(names)}" for commit, names in commits.items())
        if len(commits) == 1:
            return f"All records are of the commit {listed.partition(':')[0]}."
        return (
            f"The records are of several commits ({listed}); one run of `make records DATA=DIR` makes all again from one. "
            f"Cells that say “{MISSING}” wait for it."
        )


def results_page(records: Mapping[str, Record]) -> tuple[str, set[str]]:
    """The page of all results in Markdown, and the numbers on it."""
    writer = Writer(records)
    items = writer.items()
    head = ["paper", "what it shows", "published", RECIPE, LIBRARY, "verdict and why", "command, time"]
    rows = [
        [
            writer.said(item.place),
            item.shows,
            item.published,
            item.recipe,
            item.ours,
            item.verdict,
            writer.command(item.experiment),
        ]
        for item in items
    ]
    parts = [
        "# Results",
        "<!-- Made by `python -m reproduction results`; changes made by hand are lost. -->",
        "The experiments of the paper “Manifold Random Features”, a row for each table and figure. "
        "**Paper's recipe** is the paper's method, run here. The code that the paper links could not be had: where its text is "
        "silent or does not fit, choices are ours. **This library** is the package without walks and network; for tokens, textures and meshes "
        "`reproduction/` puts its parts together. Verdicts compare with the published number, in its digits. Commands are "
        "`python -m reproduction COMMAND --size paper`, all together `make records DATA=DIR`; times are CPU times. Every number "
        "here is the paper's or of a record in `docs/records`, which has all seeds and columns; [data](data.md) says where files "
        "come from.",
        table([head, *rows]),
        writer.origins(),
    ]
    for item in items:
        if item.text:
            parts += [f"## {item.place}: {re.split('[,:]', item.shows)[0]}", *item.text]
    return "\n\n".join(parts) + "\n", writer.known


def readme_block(records: Mapping[str, Record]) -> tuple[str, set[str]]:
    """The README's table of the first experiment, and the numbers in it."""
    writer = Writer(records)
    kernel = writer.surfaces()[0]

    def seconds(method: str) -> str:
        rows = writer.rows("surfaces", "surfaces", method=method)
        return writer.span([row["kernel_ms"] / 1000 for row in rows])

    features, points = (
        writer.show(value)
        for value in (
            writer.value("surfaces", "surfaces", "features", method=LIBRARY),
            writer.config("surfaces", "n_queries"),
        )
    )
    published = writer.span([float(writer.paper("surfaces", name, "MRF", "kernel_s")) for name in SURFACES])
    note = (
        "Relative errors after alignment by norms: between nodes against the paper's targets, between new points against the "
        f"heat kernel of the surface, to which only the library is fitted; the recipe approximates that of its graph. The recipe has a feature for every node, the "
        f"library {features}. The kernel of {points} new points takes it {seconds(LIBRARY)} CPU "
        f"seconds, the recipe {seconds(RECIPE)} (published: {published} s, on other machines)."
    )
    return f"{kernel.text[0]}\n\n{note}", writer.known
