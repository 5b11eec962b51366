"""Problems drawn from seeds: a space, nodes, a kernel and a number of features, with the exact kernel.

There are two lists of ten families. The first are clean: even and random nodes, meshes, balls. The second are
clouds as they come: noise, many coordinates, uneven density, layers, outliers and dimensions 3 to 6. Their fits get
the points and the time; all options are defaults, and the dimension is not given.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.calibration.spaces import (
    AbstractKnown,
    Ball,
    Clifford,
    Cylinder,
    Embedded,
    Fine,
    Given,
    Layers,
    Named,
    Rectangle,
    Roll,
    Rotations,
    add_noise,
    add_outliers,
    hull_mesh,
    rectangle_mesh,
    surfaces,
)
from manifoldrf import (
    DiffusionKernel,
    EuclideanSpace,
    FlatTorus,
    GraphOptions,
    HeatKernel,
    HyperbolicSpace,
    ManifoldRandomFeatures,
    Sphere,
    relative_error,
)

FEWEST, MOST = 300, 8000  # nodes
NARROW, WIDE = 20.0, 1500.0  # nodes under a kernel, (4 pi t)^(dim / 2) times their density
NEW = 300  # points at which the kernel is compared
KEPT_OUT = 0.1  # of the nodes, from a fit in the graph clock
TAUS = (10.0, 100.0)
NOISE = (0.05, 0.3)  # in widths of the kernel
COORDINATES = (10, 100)  # that a space is turned into
OUTLIERS = (0.01, 0.05)  # share of the points
GAPS = (0.8, 4.0)  # between layers, in widths of the kernel
SMALL_NOISE = 0.1  # of the gap, between layers: with more, nothing tells them apart
ROUGH = (range(30, 60), range(2000, 10**9))  # seeds of clouds as they come; those from 2000 on are not reported
Rng = np.random.Generator


@dataclass(frozen=True)
class Problem:
    """What is fitted and what is true.

    Attributes
    ----------
    seed : int
    family, name : str
    known : AbstractKnown, optional
        None in the graph clock, where the graph's own kernel is asked for.
    given : Given
    kernel : HeatKernel or DiffusionKernel
    n_nodes : int
    n_features : int or str
    """

    seed: int
    family: str
    name: str
    known: AbstractKnown | None
    given: Given
    kernel: Any
    n_nodes: int
    n_features: int | str


def draw(seed: int) -> Problem:
    """The problem of a seed; families take turns, all else is drawn."""
    family = family_of(seed)
    rng = np.random.default_rng([10, seed])
    return (MAKERS | ROUGH_MAKERS)[family](seed, family, rng)


def family_of(seed: int) -> str:
    """The family of a seed."""
    families = tuple(ROUGH_MAKERS if any(seed in seeds for seeds in ROUGH) else MAKERS)
    return families[seed % len(families)]


def solve(problem: Problem) -> dict[str, Any]:
    """Fit, and put the estimate beside the true error."""
    rng = np.random.default_rng([11, problem.seed])
    starts = None if problem.known is not None else round((1 - KEPT_OUT) * problem.n_nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # poor problems are part of the test
        model = ManifoldRandomFeatures(
            problem.kernel,
            normalize=False,
            n_features=problem.n_features,
            graph=problem.given.graph,
            n_starts=starts,
            random_state=problem.seed,
        ).fit(problem.given.space)
        estimate = model.error_
        new, exact = _truth(problem, model, rng)
        # Features of clouds without structure stand for a kernel up to a factor, and say so.
        aligned = "least squares" if "structure" in dict(model.map_.problem.notes) else None
        true = relative_error(model.kernel_matrix(new), exact, alignment=aligned)
    parts = {name: getattr(estimate, name) for name in ("field", "quadrature", "graph")}
    return {
        "seed": problem.seed, "family": problem.family, "space": problem.name, "kernel": str(problem.kernel),
        "nodes": model.graph_.n_nodes, "features": model.n_features_out_, "steps": model.graph_.n_steps,
        "field_used": model.field_, **parts, "estimate": float(estimate), "true": float(true),
        "ratio": float(estimate) / float(true),
    }  # fmt: skip


def _truth(problem: Problem, model: Any, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """New points and the exact kernel between them."""
    if problem.known is None:
        graph = model.graph_
        out = np.setdiff1d(np.arange(graph.n_nodes), model.starts_)
        out = rng.choice(out, min(NEW, len(out)), replace=False)
        return graph.positions[out], problem.kernel.matrix(graph, out, out)
    new = problem.known.places(NEW, problem.kernel.t, rng)
    return new, problem.known.kernel(new, problem.kernel.t)


def _log_uniform(low: float, high: float, rng: Rng) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _size(dim: int, rng: Rng) -> int:
    """Number of nodes; three dimensions need more."""
    return int(_log_uniform(FEWEST if dim < 3 else 2000, MOST, rng))


def _time(known: AbstractKnown, n: int, rng: Rng) -> float:
    """A heat time under whose kernel there are neither too few nodes nor nearly all."""
    low, high = ((count * known.volume / n) ** (2 / known.dim) / (4 * np.pi) for count in (NARROW, WIDE))
    high = min(high, known.widest)
    return float(f"{_log_uniform(min(low, high / 2), high, rng):.3g}")


def _n_features(n: int, rng: Rng) -> int | str:
    """Half of the time as many as are chosen, else few, or all where these are not too many."""
    kind = rng.random()
    if kind < 0.5:
        return "auto"
    if kind < 0.7 and n <= 3000:
        return "all"
    return min(n, int(_log_uniform(64, 600, rng)))


Make = Callable[[AbstractKnown, int, Rng], Given]


def _heat(seed: int, family: str, rng: Rng, choices: list[tuple[str, AbstractKnown, Make]]) -> Problem:
    name, known, make = choices[rng.integers(len(choices))]
    n = _size(known.dim, rng)
    t = _time(known, n, rng)
    given = make(known, n, rng)
    return Problem(seed, family, name, known, given, HeatKernel(t), n, _n_features(n, rng))


def _itself(known: Any, n: int, rng: Rng) -> Given:
    del rng
    return Given(known.manifold, GraphOptions(n_nodes=n))


def _grid(known: Any, n: int, rng: Rng) -> Given:
    del rng
    return Given((known if isinstance(known, Cylinder) else known.manifold).grid(n), GraphOptions(dim=known.dim))


def _cloud(known: Any, n: int, rng: Rng) -> Given:
    return Given(known.sample(n, rng), GraphOptions(dim=known.dim))


def _cloud_in(known: Any, n: int, rng: Rng) -> Given:
    return Given(known.sample(n, rng), GraphOptions(metric=known.manifold))


@dataclass(frozen=True)
class _Flaws:
    """What a cloud as it comes suffers from."""

    noise: bool = True
    many: bool = False
    uneven: bool = False
    outliers: bool = False
    heavy: bool = False


def _rough(seed: int, family: str, rng: Rng, flaws: _Flaws, choices: list[tuple[str, AbstractKnown]]) -> Problem:
    """A cloud with flaws, of which the fit is not told."""
    name, known = choices[rng.integers(len(choices))]
    n = _size(known.dim, rng)
    t = _time(known, n, rng)
    if flaws.many:
        coordinates = round(_log_uniform(*COORDINATES, rng))
        known, name = Embedded.draw(known, coordinates, rng), f"{name} in R^{coordinates}"
    points = known.sample_uneven(n, rng) if flaws.uneven else known.sample(n, rng)
    name += ", density 1:7" if flaws.uneven else ""
    if flaws.noise:
        width = _log_uniform(*NOISE, rng)
        sigma = width * np.sqrt(2 * t / (points.shape[1] if flaws.many else 1))
        points = add_noise(points, sigma, rng, heavy=flaws.heavy)
        name += f", noise {width:.2g}"
    if flaws.outliers:
        share = rng.uniform(*OUTLIERS)
        points, name = add_outliers(points, share, rng), f"{name}, {share:.1%} outliers"
    return Problem(seed, family, name, known, Given(points), HeatKernel(t), n, "auto")


def _layered(seed: int, family: str, rng: Rng, make: Callable[[float], AbstractKnown]) -> Problem:
    """Layers whose gap is near the width of the kernel; half of them have some noise."""
    n, gap = _size(2, rng), _log_uniform(*GAPS, rng)
    t = _time(make(1.0), n, rng)
    width = np.sqrt(2 * t)
    known = make(gap * width)
    noise = SMALL_NOISE * gap * rng.random() if rng.random() < 0.5 else 0.0
    points = add_noise(known.sample(n, rng), noise * width, rng)
    name = f"gap {gap:.2g} widths, noise {noise:.2g}"
    return Problem(seed, family, name, known, Given(points), HeatKernel(t), n, "auto")


def _hull(known: Any, n: int, rng: Rng) -> Given:
    return Given(hull_mesh(known.sample(n, rng)))


def _even_hull(known: Any, n: int, rng: Rng) -> Given:
    del rng
    return Given(hull_mesh(known.manifold.grid(n)))


def _sheet(known: Any, n: int, rng: Rng) -> Given:
    return Given(rectangle_mesh(known.sample(n, rng), known.height))


SPHERES = [(f"S^{dim}", Named(Sphere(dim))) for dim in (1, 2, 3)]
TORI = [(f"T^{dim}", Named(FlatTorus(dim), widest=0.02)) for dim in (1, 2, 3)]
BALLS = [
    ("H^2, radius 2", Ball(HyperbolicSpace(2, 2.0), widest=0.15)),
    ("H^3, radius 2", Ball(HyperbolicSpace(3, 2.0), widest=0.15)),
    ("disk", Ball(EuclideanSpace(2, 1.0), widest=0.03)),
    ("ball", Ball(EuclideanSpace(3, 1.0), widest=0.03)),
]


def _closed() -> list[tuple[str, Fine]]:
    return [(name, known) for name, known in surfaces().items() if not known.manifold.has_boundary]


def _edged() -> list[tuple[str, AbstractKnown]]:
    return [("cylinder", Cylinder()), ("square", Rectangle()), ("strip", Rectangle(0.4)),
            ("Möbius strip", surfaces()["Möbius strip"])]  # fmt: skip


def _each(spaces: list[Any], make: Make, how: str) -> list[tuple[str, AbstractKnown, Make]]:
    return [(f"{name}, {how}", known, make) for name, known in spaces]


def _steps(seed: int, family: str, rng: Rng) -> Problem:
    """A kernel in steps, whose truth is the dense kernel of the graph, at nodes that were kept from the fit."""
    choices = [*SPHERES[1:], *_closed()]
    name, known = choices[rng.integers(len(choices))]
    n = min(4000, _size(known.dim, rng))
    even = rng.random() < 0.5
    given = (_grid if even else _cloud)(known, n, rng)
    kernel = DiffusionKernel(float(f"{_log_uniform(*TAUS, rng):.3g}"))
    how = "even points" if even else "random points"
    return Problem(seed, family, f"{name}, {how}", None, given, kernel, n, _n_features(n, rng))


def _even_choices() -> list[tuple[str, AbstractKnown, Make]]:
    return _each(SPHERES, _itself, "itself") + _each(SPHERES, _grid, "even points")


MAKERS: dict[str, Callable[[int, str, Rng], Problem]] = {
    "spheres, even": lambda s, f, r: _heat(s, f, r, _even_choices()),
    "spheres, random": lambda s, f, r: _heat(s, f, r, _each(SPHERES, _cloud, "random points")),
    "flat tori": lambda s, f, r: _heat(
        s, f, r,
        _each(TORI, _itself, "itself") + _each(TORI, _cloud_in, "random points, metric")
        + _each([("torus in R^4", Clifford())], _cloud, "random points"),
    ),
    "surfaces, even": lambda s, f, r: _heat(
        s, f, r, _each(list(surfaces().items()), _itself, "itself") + _each(_closed(), _grid, "even points")
    ),
    "surfaces, random": lambda s, f, r: _heat(s, f, r, _each(_closed(), _cloud, "random points")),
    "clouds with a rim": lambda s, f, r: _heat(
        s, f, r, _each(_edged(), _cloud, "random points") + _each([_edged()[0]], _grid, "even points")
    ),
    "balls": lambda s, f, r: _heat(s, f, r, _each(BALLS, _itself, "itself")),
    "closed meshes": lambda s, f, r: _heat(
        s, f, r, _each([SPHERES[1]], _hull, "random mesh") + _each([SPHERES[1]], _even_hull, "even mesh")
    ),
    "open meshes": lambda s, f, r: _heat(s, f, r, _each(_edged()[1:3], _sheet, "random mesh")),
    "kernels in steps": _steps,
}  # fmt: skip

SMOOTH = [*SPHERES[:2], ("torus in R^4", Clifford())]
EDGES = [("cylinder", Cylinder()), ("square", Rectangle()), ("strip", Rectangle(0.4))]
SOLID = [SPHERES[2], ("3-torus in R^6", Clifford((1.0,) * 3, 0.4)), ("SO(3) in R^9", Rotations())]
HIGH = [[(f"S^{dim}", Named(Sphere(dim))), (f"{dim}-torus", Clifford((1.0,) * dim, 0.4))] for dim in (4, 5, 6)]


def _flawed(choices: list[tuple[str, AbstractKnown]], **flaws: bool) -> Callable[[int, str, Rng], Problem]:
    return lambda seed, family, rng: _rough(seed, family, rng, _Flaws(**flaws), choices)


ROUGH_MAKERS: dict[str, Callable[[int, str, Rng], Problem]] = {
    "noise": _flawed(SMOOTH),
    "noise, many coordinates": _flawed(SMOOTH + SOLID, many=True),
    "noise, uneven": _flawed(SMOOTH + EDGES, uneven=True),
    "noise, edges": _flawed(EDGES),
    "outliers": lambda s, f, r: _flawed(SMOOTH + EDGES, noise=bool(r.random() < 0.5), outliers=True)(s, f, r),
    "heavy tails": _flawed(SMOOTH + EDGES, heavy=True),
    "rolls": lambda s, f, r: _layered(s, f, r, Roll),
    "parallel layers": lambda s, f, r: _layered(s, f, r, Layers),
    "dimension 3": lambda s, f, r: _flawed(SOLID, noise=bool(r.random() < 0.5))(s, f, r),
    "dimensions 4 to 6": lambda s, f, r: _flawed(HIGH[s // 10 % 3], noise=bool(r.random() < 0.3))(s, f, r),
}
