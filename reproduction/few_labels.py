"""Few labels on real clouds: features of the manifold against those of the space around, and against graphs.

Claim: on digits, a linear classifier on features of the manifold is ahead of all other methods with 1, 2 and 10
labels for each class, and even with label spreading with 5. It is mostly even with the best others on the cortex,
and even or behind on photographs and the bunny. The table of losses says where, and by how much.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from manifoldrf._notices import without_warnings
from manifoldrf._random import generator
from manifoldrf._threads import one_blas_thread
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    check_integer,
    check_option,
    check_real,
    reject,
)
from manifoldrf.features.proximity import FarQueryWarning
from manifoldrf.geometry.dimension import estimate_dimension
from manifoldrf.signatures._engines import Progress
from reproduction._few_label_clouds import (
    Cloud,
    Damage,
    digits,
    photographs,
    plain_photographs,
    scan,
)
from reproduction._few_label_methods import MAIN, METHODS, OWN, OWN_VOTE, Stage
from reproduction._few_label_rules import AbstractRule, Draw
from reproduction._smoothers import quietly
from reproduction.record import Record

_OURS = (OWN, OWN_VOTE)
DRAWS = "draws"  # column of accuracies one by one, which the tables do without
CLOUDS = ("digits", "photographs", "photographs, plain", "bunny", "cortex")
_SCANS = ("bunny", "cortex")
_FLAT = "photographs, plain"  # has the main methods only: it shows what the metric does
Make = Callable[[], Cloud]


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    clouds: tuple[str, ...] = CLOUDS
    labels: tuple[int, ...] = (1, 2, 5, 10)  # of each class
    n_draws: int = 10  # of labels; the spread over them is that of a single experiment
    n_features: int = 512  # of all four kinds of features
    # Points of the digits, which are fewer, and of the photographs: label spreading takes the cube of their number.
    largest: int | None = 2000
    n_points: int = 2000  # of a scan
    noise: float = 0.3  # of a scan, over the median distance to the nearest point
    outliers: float = 0.05  # of a scan, over its number of points
    sweep: str = "cortex"  # the scan with more and more damage
    sweep_points: int = 1500
    noises: tuple[float, ...] = (0.0, 0.3, 0.6, 1.0, 1.5, 2.5)
    shares: tuple[float, ...] = (0.05, 0.2, 0.5, 1.0)  # of outliers, with the noise above
    sweep_labels: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.clouds:
            check_option(name, "clouds", CLOUDS)
        check_option(self.sweep, "sweep", _SCANS)
        for name, least in (("n_draws", 1), ("n_features", 16), ("n_points", 500), ("sweep_points", 500)):
            check_integer(getattr(self, name), name, least)
        check_integer(self.sweep_labels, "sweep_labels", 1)
        if self.largest is not None:
            check_integer(self.largest, "largest", 500)
        if not self.labels or list(self.labels) != sorted(set(self.labels)) or self.labels[0] < 1:
            reject("labels", "positive numbers, ascending", self.labels)
        for name in ("noise", "outliers"):
            check_real(getattr(self, name), name, NONNEGATIVE)
        for name in ("noises", "shares"):
            if any(value < 0 for value in getattr(self, name)):
                reject(name, "nonnegative numbers", getattr(self, name))


SIZES: dict[str, Config] = {
    "smoke": Config(
        clouds=("digits",),
        labels=(1, 5),
        n_draws=3,
        n_features=128,
        largest=600,
        noises=(0.0,),
        shares=(0.2,),
        sweep="bunny",
        sweep_points=600,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None) -> Record:
    """Classify points of real clouds from few labels by all methods, and damage a scan until all fail.

    Tables: ``accuracy`` (every method, cloud and number of labels), ``losses`` (where features of the manifold are
    behind the best other method, and by how much), ``sweep`` (noise and outliers) and ``clouds``. Arrays:
    accuracies at new points, draw by draw: ``new`` for rows of ``accuracy``, ``damaged`` for those of ``sweep``.
    """
    start = time.perf_counter()
    with (
        one_blas_thread(),
        quietly(),
        without_warnings(FarQueryWarning),
    ):  # the sweep leaves the space
        made, notes = _make(config)
        accuracy = list(_measure(config, made, progress))
        sweep = list(_sweep(config, progress))
    progress("done", 1, 1)
    tables = {
        "accuracy": _without_draws(accuracy),
        "losses": find_losses(accuracy),
        "sweep": _without_draws(sweep),
        "clouds": [_describe(cloud) for cloud in made],
    }
    settings = dataclasses.asdict(config) | {"notes": notes}
    arrays = {
        name: np.array([row[DRAWS] for row in rows]) for name, rows in (("new", accuracy), ("damaged", sweep))
    }
    return Record("few_labels", settings, {name: rows for name, rows in tables.items() if rows},
                  time.perf_counter() - start, arrays=arrays)  # fmt: skip


def _without_draws(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{column: value for column, value in row.items() if column != DRAWS} for row in rows]


# ---------------------------------------------------------------------------------------------------------- clouds
def _make(config: Config) -> tuple[list[Cloud], list[str]]:
    """The clouds of a run, and sentences about those whose package is not installed."""
    damage = Damage(config.noise, config.outliers)
    makers: Mapping[str, Make] = {
        "digits": partial(digits, config.seed, config.largest),
        "photographs": partial(photographs, config.seed, config.largest),
        _FLAT: partial(plain_photographs, config.seed, config.largest),
    } | {name: partial(scan, name, config.n_points, damage, config.seed) for name in _SCANS}
    found, notes = [], []
    for name in config.clouds:
        try:
            found.append(makers[name]())
        except ImportError as error:
            notes.append(f"{name} left out: {error}")
    return found, notes


def _describe(cloud: Cloud) -> dict[str, Any]:
    return {
        "cloud": cloud.name,
        "seen": len(cloud.seen),
        "new": len(cloud.new),
        "coordinates": cloud.seen.shape[1],
        "dimension": estimate_dimension(cloud.seen),
        "classes": cloud.n_classes,
    }


# -------------------------------------------------------------------------------------------------------- accuracy
@dataclass(frozen=True, eq=False)
class Trial:
    """A cloud with its draws of labels.

    Attributes
    ----------
    cloud : Cloud
    stage : Stage
    draws : dict of int to list of Draw
        By number of labels for each class. Those with fewer labels are parts of those with more.
    """

    cloud: Cloud
    stage: Stage
    draws: dict[int, list[Draw]]

    @classmethod
    def of(cls, cloud: Cloud, labels: Sequence[int], config: Config) -> "Trial":
        """Draw labels for each class, none for outliers."""
        rng = generator(config.seed, f"few labels {cloud.name} draws")
        members = [np.flatnonzero(cloud.classes == number) for number in range(cloud.n_classes)]
        most = max(labels)
        if min(map(len, members)) <= most:
            reject("labels", "fewer than the points of every class", f"{most} of {min(map(len, members))}")
        drawn = np.array(
            [[rng.choice(own, most, replace=False) for own in members] for _ in range(config.n_draws)]
        )  # (draws, classes, labels)
        own, columns = np.unique(drawn, return_inverse=True)
        columns = columns.reshape(drawn.shape)
        stage = Stage(cloud.seen, cloud.new, own, config.n_features, config.seed)
        return cls(cloud, stage, {k: [Draw.of(part[:, :k]) for part in columns] for k in labels})

    def judge(self, draw: Draw, rule: AbstractRule) -> tuple[float, float]:
        """Share of correct classes among seen points without a label, and among new ones."""
        found, n = draw.predict(rule), len(self.cloud.seen)
        counted = self.cloud.classes >= 0
        counted[self.stage.own[draw.chosen]] = False
        seen = found[:n][counted] == self.cloud.classes[counted]
        return float(seen.mean()), float((found[n:] == self.cloud.new_classes).mean())

    def tune(self, method: str) -> dict[int, dict[str, Any]]:
        """Accuracies of a method, by number of labels.

        Every draw has the setting with the best cross-validation on its own labels, and the first among equals.
        With one label for each class there is none, and the first setting stands.
        """
        scores: dict[int, list[list[float]]] = {k: [] for k in self.draws}
        found: dict[int, list[list[tuple[float, float]]]] = {k: [] for k in self.draws}
        for _, rule in METHODS[method](self.stage):
            for k, draws in self.draws.items():
                scores[k].append([draw.validate(rule) for draw in draws])
                found[k].append([self.judge(draw, rule) for draw in draws])
        return {k: summarise(np.array(scores[k]), np.array(found[k])) for k in self.draws}


def _measure(config: Config, clouds: list[Cloud], progress: Progress) -> Iterator[dict[str, Any]]:
    """Rows of all methods on all clouds."""
    for place, cloud in enumerate(clouds):
        trial = Trial.of(cloud, config.labels, config)
        for method in MAIN if cloud.name == _FLAT else METHODS:
            progress(f"{cloud.name}: {method}", place, len(clouds) + 1)
            for k, row in trial.tune(method).items():
                yield {"cloud": cloud.name, "method": method, "labels": k} | row


def summarise(scores: FloatArray, found: FloatArray) -> dict[str, Any]:
    """Means and standard deviations over draws of what the chosen settings reach.

    Parameters
    ----------
    scores : array of shape (settings, draws)
        Of the cross-validation.
    found : array of shape (settings, draws, 2)
        Accuracies at seen and at new points.

    Examples
    --------
    >>> row = summarise(np.array([[0.5, 0.9], [0.7, 0.9]]), np.array([[[0.4, 0.4]] * 2, [[0.6, 0.8]] * 2]))
    >>> round(row["new"], 6), round(row["hindsight"], 6)
    (0.6, 0.8)
    """
    chosen = scores.argmax(axis=0)
    own = found[chosen, np.arange(scores.shape[1])]  # (draws, 2)
    spread = own.std(axis=0, ddof=1) if len(own) > 1 else np.zeros(2)
    return {
        "seen": float(own[:, 0].mean()),
        "seen_spread": float(spread[0]),
        "new": float(own[:, 1].mean()),
        "new_spread": float(spread[1]),
        "hindsight": float(found[:, :, 1].mean(axis=1).max()),  # one setting for all draws, chosen by the answers
        DRAWS: own[:, 1].tolist(),
    }


def find_losses(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The better of our methods against the best of the others, at new points of every cloud.

    The error of a lead is the standard error of its mean over draws of labels, which all methods share; up to twice
    that nobody is ahead.
    """
    losses = []
    for cloud, labels in dict.fromkeys((row["cloud"], row["labels"]) for row in rows):
        here = [row for row in rows if (row["cloud"], row["labels"]) == (cloud, labels)]
        own = max((row for row in here if row["method"] in _OURS), key=lambda row: row["new"])
        other = max((row for row in here if row["method"] not in _OURS), key=lambda row: row["new"])
        gaps = np.subtract(own[DRAWS], other[DRAWS])
        lead, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.inf
        verdict = "even" if abs(lead) <= 2 * error else "ahead" if lead > 0 else "behind"
        losses.append(
            {"cloud": cloud, "labels": labels, "ours": own["method"], "ours_new": own["new"]}
            | {"rival": other["method"], "rival_new": other["new"], "lead": lead, "error": error, "we_are": verdict}
        )
    return losses


# ----------------------------------------------------------------------------------------------------------- sweep
def _sweep(config: Config, progress: Progress) -> Iterator[dict[str, Any]]:
    """Accuracy of the main methods on one scan with more noise, and with more outliers."""
    damages = [Damage(noise, 0.0) for noise in config.noises]
    damages += [Damage(config.noise, share) for share in config.shares]
    for place, damage in enumerate(damages):
        try:
            cloud = scan(config.sweep, config.sweep_points, damage, config.seed)
        except ModuleNotFoundError:
            return
        trial = Trial.of(cloud, (config.sweep_labels,), config)
        for method in MAIN:
            progress(f"noise {damage.noise:g}, outliers {damage.outliers:g}: {method}", place, len(damages))
            found = trial.tune(method)[config.sweep_labels]
            key = {"noise": damage.noise, "outliers": damage.outliers, "dimension": estimate_dimension(cloud.seen)}
            yield key | {"method": method} | found
