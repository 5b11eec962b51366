"""What users and attackers ran into, tried again: each finding with the true error and what the library says.

``python benchmarks/red_team.py`` tries all findings (three minutes of CPU time), ``red_team.py 5 15`` those of
these numbers. Errors are those of the kernel of default features between new points, relative, absolute scale
included; *error_* is what the fit says. A finding holds if its figure is at most the limit and `error_`, if there
is one, is between a third of the truth and three times the truth or .03. The exit code is 1 if one fails.
"""

import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import known_spaces as known
import numpy as np
import torch

from manifoldrf import (
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    Sphere,
    TriangleMesh,
    distances,
    load,
    relative_error,
    smooth,
)
from manifoldrf.gpytorch import ManifoldKernel
from manifoldrf.torch import DifferentiableFeatures, ManifoldAttention

SPHERE, FINDINGS = Sphere(), []
BOXES = {sides: known.box("box", t, sides) for sides, t in {(2, 0.1): 0.02, (10, 200): 30.0, (1, 1): 0.01}.items()}


def finding(number, what, limit):
    """Register a function that returns a figure, and ``error_`` if there is one."""
    return lambda function: FINDINGS.append((number, what, limit, function)) or function


def fitted(points, t=None):
    """Default features with an absolute scale."""
    return ManifoldRandomFeatures(t and HeatKernel(t), normalize=False, random_state=0).fit(points)


def off(found, exact):
    """Relative error of numbers."""
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def on_sphere(points, t=0.05):
    """True and estimated error of features of points of the unit sphere."""
    new, model = SPHERE.sample(300, seed=4), fitted(points, t)
    return relative_error(model.kernel_matrix(new), SPHERE.heat_kernel(new, new, t)), float(model.error_)


def on_known(space, cloud, ratio=1):
    """The same for a space of `known_spaces`, from a mesh or so many points."""
    rng = np.random.default_rng(0)
    model = fitted(space.embed(space.uneven(cloud, ratio, rng)) if isinstance(cloud, int) else cloud, space.t)
    new = space.draw(300, rng)
    return relative_error(model.kernel_matrix(space.embed(new)), space.kernel(new, space.t)), float(model.error_)


def on_two_spheres(radius, n, t=0.05):
    """The same for spheres of radius 1 with 2000 points and of another radius."""
    parts, offset = (SPHERE, Sphere(radius=radius)), np.array([2 + 2 * radius, 0, 0])
    model = fitted(np.vstack([parts[0].sample(2000, seed=7), parts[1].sample(n, seed=8) + offset]), t)
    new, exact = [part.sample(150, seed=9) for part in parts], np.zeros((300, 300))
    for k, part in enumerate(parts):
        exact[150 * k : 150 * k + 150, 150 * k : 150 * k + 150] = part.heat_kernel(new[k], new[k], t)
    return relative_error(model.kernel_matrix(np.vstack([new[0], new[1] + offset])), exact), float(model.error_)


def tube(t=20.0, radius=40.0, wall=2.0, high=60.0):
    """The surface of a tube with thin walls, in millimetres: outside, rim, inside, rim."""
    corners = np.cumsum([0, high / 2, wall, high, wall, high / 2])
    across, along = radius + wall * np.array([0, 0, -1, -1, 0, 0]), high / 2 * np.array([0, 1, 1, -1, -1, 0])
    parts = (lambda s, to=to: np.interp(s % corners[-1], corners, to) for to in (across, along))
    return known.revolved("tube", t, *parts, corners[-1], periodic=True)


def tube_mesh(n_around=240, n_along=80):
    """Its mesh, with 19,200 vertices."""
    s, a = np.meshgrid(np.linspace(0, 124, n_along + 1)[:-1], np.linspace(0, 2 * np.pi, n_around + 1)[:-1])
    here = np.arange(s.size).reshape(s.shape)
    right, above = np.roll(here, -1, axis=0), np.roll(here, -1, axis=1)
    faces = np.stack([[here, right, np.roll(right, -1, axis=1)], [here, np.roll(right, -1, axis=1), above]])
    return TriangleMesh(
        tube().embed(np.column_stack([s.ravel(), a.ravel()])), np.moveaxis(faces, 1, 3).reshape(-1, 3)
    )


def jittered(n, copies):
    """Places of a sphere, measured several times."""
    places = np.repeat(SPHERE.sample(n, seed=3), copies, axis=0)
    return places + 1e-3 * np.random.default_rng(0).normal(size=places.shape)


def saved(name, content):
    """A mesh read from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        content.save(path) if isinstance(content, TriangleMesh) else path.write_bytes(content)
        return TriangleMesh.load(path)


finding(1, "thin-walled tube in mm: mesh, all defaults but t", 0.1)(lambda: on_known(tube(), tube_mesh()))
finding(1, "the same as a cloud of 19,200 points, 1.3 apart", 1.0)(lambda: on_known(tube(), 19_200))
finding(3, "strip 2 x .1", 0.05)(lambda: on_known(BOXES[2, 0.1], 4000))
finding(3, "cylinder of height .1", 0.05)(lambda: on_known(known.cylinder("cylinder", 0.05, 0.1), 4000))
finding(3, "cylinder of height .3", 0.05)(lambda: on_known(known.cylinder("cylinder", 0.05, 0.3), 4000))
finding(3, "torus with a thin tube", 0.05)(lambda: on_known(known.ring_torus("torus", 0.05, 0.1), 4000))
finding(4, "square, density 1:10", 0.04)(lambda: on_known(BOXES[1, 1], 4000, 10))
finding(4, "cylinder of height 2", 0.03)(lambda: on_known(known.cylinder("cylinder", 0.05, 2.0), 4000))
finding(5, "two spheres, densities 1:36", 0.03)(lambda: on_two_spheres(3.0, 500))
finding(6, "300 stations x 10 with jitter", 0.05)(lambda: on_sphere(jittered(300, 10)))
finding(6, "1000 stations x 2 with jitter", 0.02)(lambda: on_sphere(jittered(1000, 2)))
finding(6, "10 clumps of 200 among 2000", 0.02)(
    lambda: on_sphere(np.vstack([SPHERE.sample(2000, seed=3), jittered(10, 200)]))
)
finding(7, "box 10 x 200, t = 30", 0.05)(lambda: on_known(BOXES[10, 200], 3000))
finding(7, "plate 1 x 1 x .1", 0.1)(lambda: on_known(known.box("plate", 0.05, (1, 1, 0.1)), 4000))
finding(8, "cube, 20,000 points, t = .1", 0.06)(lambda: on_known(known.box("cube", 0.1, (1, 1, 1)), 20_000))
finding(13, "ply at an offset of 5e6: change of the area", 1e-6)(
    lambda: (
        abs(
            saved("far.ply", TriangleMesh(tube_mesh().vertices + 5e6, tube_mesh().faces)).area / tube_mesh().area
            - 1
        ),
        None,
    )
)
finding(15, "spheres of radius 1 and .3", 0.05)(lambda: on_two_spheres(0.3, 500))
finding(15, "spheres of radius 1 and .1", 0.05)(lambda: on_two_spheres(0.1, 300))


@finding(2, "90 % intervals of 20 values, no space: share missed (bench_coverage has more)", 0.15)
def _coverage():
    held = []
    for seed in range(20):
        rng, P = np.random.default_rng(seed), SPHERE.sample(420, seed=seed)
        y = np.sin(2 * P @ rng.normal(size=3)) + 0.1 * rng.normal(size=420)
        model = ManifoldGaussianProcess(random_state=0).fit(P[:20], y[:20])
        mean, std = model.predict(P[20:], return_std=True, include_noise=True)
        held.append(np.mean(np.abs(y[20:] - mean) < 1.645 * std))
    return 1 - np.mean(held), None


@finding(5, "sphere with density 1:100", 0.05)
def _sparse_half():
    x = SPHERE.sample(160_000, seed=60)
    return on_sphere(x[np.random.default_rng(0).uniform(size=len(x)) < 100 ** ((x[:, 2] - 1) / 2)][:4000])


@finding(5, "(a, a^2, a^3) of normal a: rmse of ridge", 0.1)
def _cubic_curve():
    rng = np.random.default_rng(0)
    a = rng.normal(size=2000)
    X, y = np.column_stack([a, a**2, a**3]), np.sin(2 * a)
    model = ManifoldRidge(random_state=0).fit(X[:1000], y[:1000] + 0.05 * rng.normal(size=1000))
    return np.sqrt(np.mean((model.predict(X[1000:]) - y[1000:]) ** 2)), None


@finding(6, "smooth and distances over 300 stations x 10", 0.05)
def _between_stations():
    points = jittered(300, 10)
    arcs = np.arccos(np.clip(points @ points[0], -1, 1))
    smoothed = smooth(points, points[:, 2], t=0.05)  # z falls by exp(-2 t)
    return max(off(smoothed, np.exp(-0.1) * points[:, 2]), off(distances(points, 0), arcs)), None


@finding(9, "distances inside a cube and along a circle", 0.01)
def _straight_lines_and_arcs():
    rng = np.random.default_rng(0)
    X, a = rng.uniform(size=(3000, 3)), rng.uniform(0, 2 * np.pi, 1000)
    arcs = np.pi - np.abs(np.pi - np.abs(a - a[0]))
    straight = off(distances(X, 0), np.linalg.norm(X - X[0], axis=1))
    return max(straight, off(distances(np.column_stack([np.cos(a), np.sin(a)]), 0), arcs)), None


@finding(10, "additive masks that attention takes", 0)
def _additive_mask():
    attend, at = ManifoldAttention(fitted(SPHERE, 0.1), 4), torch.tensor(SPHERE.sample(2, seed=0)).float()
    for mask in (torch.tensor([0.0, -1e9]), torch.tensor([0.0, -torch.inf])):
        with suppress(ValueError):
            attend(at, torch.ones(2, 4), mask)
            return 1, None
    return 0, None


@finding(11, "clean column beside a noisy one: rmse over that alone", 1.1)
def _noise_of_outputs():
    rng, P = np.random.default_rng(0), SPHERE.sample(600, seed=1)
    Y = np.column_stack([np.sin(3 * P[:, 0]) + 0.05 * rng.normal(size=600), rng.normal(size=600)])[:200]
    models = [ManifoldGaussianProcess(space=SPHERE, random_state=0).fit(P[:200], y) for y in (Y, Y[:, :1])]
    errors = [np.linalg.norm(model.predict(P[200:])[:, 0] - np.sin(3 * P[200:, 0])) for model in models]
    return errors[0] / errors[1], None


@finding(12, "a function times 2^-300 to 2^300: change of its error", 1e-6)
def _scaled_functions():
    new, errors = SPHERE.sample(200, seed=1), []
    for c in (1.0, 2.0**-300, 2.0**-50, 2.0**300):
        model = ManifoldRandomFeatures(
            lambda x, y, c=c: c * np.exp(2 * x @ y.T - 2), normalize=False, random_state=0
        )
        errors.append(relative_error(model.fit(SPHERE).kernel_matrix(new) / c, np.exp(2 * new @ new.T - 2)))
    return np.ptp(errors) / errors[0], None


@finding(14, "concave polygon of an obj file: area over the true one, less 1", 1e-12)
def _concave_polygons():
    corners = ["0 0", "4 0", "4 4", "3 4", "3 1", "1 1", "1 4", "0 4"]
    text = "\n".join([*(f"v {corner} 0" for corner in corners), "f 1 2 3 4 5 6 7 8"])
    return abs(saved("u.obj", text.encode()).area / 10 - 1), None


@finding(16, "numpy warnings from clouds in odd units and of few points", 0)
def _leaking_warnings():
    rng, leaked = np.random.default_rng(0), 0
    clouds = [rng.normal(size=(n, d)) * unit for n in (3, 12, 60, 400) for d in (1, 2, 3) for unit in (1e-100, 1e6)]
    for points in [*clouds, jittered(20, 10), np.vstack([SPHERE.sample(300, seed=0), [[1e6] * 3]])]:
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"), suppress(ValueError):
            warnings.simplefilter("always")
            fitted(points).transform(points)
        leaked += sum(issubclass(each.category, RuntimeWarning) for each in caught)
    return leaked, None


@finding(16, "a failed refit leaves a model that cannot be loaded, or another", 0)
def _failed_refit():
    points = SPHERE.sample(300, seed=0)
    model = fitted(points, 0.1)
    before = model.transform(points)
    with suppress(ValueError):
        model.set_params(kernel=HeatKernel(1e9)).fit(points)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        return float(not np.array_equal(load(Path(folder) / "model.safetensors").transform(points), before)), None


@finding(16, "binary ply with triangles and quadrilaterals: area, less 2", 1e-12)
def _mixed_faces():
    header = "ply\nformat binary_little_endian 1.0\nelement vertex 8\nproperty double x\nproperty double y\n"
    header += "property double z\nelement face 3\nproperty list uchar int vertex_indices\nend_header\n"
    square = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], dtype="<f8")
    body = header.encode() + np.vstack([square, square + np.array([0, 0, 1.0])]).astype("<f8").tobytes()
    for face in ((0, 1, 2, 3), (4, 5, 6), (4, 6, 7)):
        body += bytes([len(face)]) + np.array(face, dtype="<i4").tobytes()
    return abs(saved("mixed.ply", body).area - 2), None


@finding(16, "wrappers of torch that give rows for 0 points", 0)
def _no_points():
    family, none = ManifoldRandomFeatures(times=(0.1, 0.4), random_state=0).fit(SPHERE), torch.ones(0, 3)
    found = [ManifoldAttention(family, 4)(none, torch.ones(0, 4)), DifferentiableFeatures(family)(none)]
    return sum(len(rows) for rows in [*found, ManifoldKernel(family)(none, none).to_dense()]), None


@finding(17, "2000 points of a sphere in R^784: CPU time over that in R^3", 3)
def _many_coordinates():
    points, seconds = SPHERE.sample(2000, seed=0), []
    for frame in (np.eye(3), np.linalg.qr(np.random.default_rng(0).normal(size=(784, 3)))[0].T):
        start = time.process_time()
        fitted(points @ frame, 0.05)
        seconds.append(time.process_time() - start)
    return seconds[1] / seconds[0], None


def main():
    """Print the table."""
    wanted, failed = set(map(int, sys.argv[1:])), 0
    print("| number | finding | found | limit | error_ | verdict |\n" + "|---" * 6 + "|")
    warnings.simplefilter("ignore")
    for number, what, limit, function in sorted(FINDINGS, key=lambda each: each[0]):
        if not wanted or number in wanted:
            seen, said = function()
            holds = seen <= limit and (said is None or seen / 3 <= said <= 3 * max(seen, 0.01))
            failed += not holds
            cells = number, what, f"{seen:.4g}", f"{limit:g}", "" if said is None else f"{said:.4f}"
            print("|", " | ".join(map(str, cells)), "|", "holds |" if holds else "**fails** |", flush=True)
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
