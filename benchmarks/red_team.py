"""What users and attackers ran into, tried again: each finding with the true error and what the library says.

``python benchmarks/red_team.py`` runs all findings (about two minutes of CPU time), ``python benchmarks/red_team.py 5
15`` those with these numbers. Errors are of the kernel of default features between new points of the space,
relative, absolute scale included, against the closed form; *error_* is what the fit says. A finding holds if the true
error is below its limit and above neither three times ``error_`` nor, where it is above one per cent, below a third
of it. Other findings have their own figure and limit. The exit code is 1 if one fails.
"""

import io
import sys
import tempfile
import time
import warnings
from pathlib import Path

import known_spaces as known
import numpy as np

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

SPHERE = Sphere()
FINDINGS = []


def finding(number, what, limit):
    """Register a function that returns a figure, and `error_` if there is one."""
    return lambda function: FINDINGS.append((number, what, limit, function)) or function


def fitted(points, t=None, **options):
    """Default features with an absolute scale."""
    return ManifoldRandomFeatures(t and HeatKernel(t), normalize=False, random_state=0, **options).fit(points)


def off(found, exact):
    """Relative error of numbers."""
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def on_sphere(points, t=0.05):
    """True and estimated error of features of points of the unit sphere."""
    new, model = SPHERE.sample(300, seed=4), fitted(points, t)
    return relative_error(model.kernel_matrix(new), SPHERE.heat_kernel(new, new, t)), float(model.error_)


def on_known(space, n, ratio=1, t=None, **options):
    """The same for a space of `known_spaces`, through so many points or a mesh."""
    rng, t = np.random.default_rng(0), t or space.t
    points = space.embed(space.uneven(n, ratio, rng)) if isinstance(n, int) else n
    model, new = fitted(points, t, **options), space.draw(300, rng)
    return relative_error(model.kernel_matrix(space.embed(new)), space.kernel(new, t)), float(model.error_)


def on_two_spheres(radius, n, t=0.05):
    """The same for spheres of radius 1 with 2000 points and of another radius."""
    parts, offset = (SPHERE, Sphere(radius=radius)), np.array([2 + 2 * radius, 0, 0])
    model = fitted(np.vstack([parts[0].sample(2000, seed=7), parts[1].sample(n, seed=8) + offset]), t)
    new, exact = [part.sample(150, seed=9) for part in parts], np.zeros((300, 300))
    for k, part in enumerate(parts):
        here = slice(150 * k, 150 * k + 150)
        exact[here, here] = part.heat_kernel(new[k], new[k], t)
    return relative_error(model.kernel_matrix(np.vstack([new[0], new[1] + offset])), exact), float(model.error_)


def tube(t=20.0, radius=40.0, wall=2.0, high=60.0):
    """The surface of a tube with thin walls, in millimetres: outside, rim, inside, rim."""
    corners = np.cumsum([0, high / 2, wall, high, wall, high / 2])
    across = radius + wall * np.array([0, 0, -1, -1, 0, 0])
    along = np.array([0, high / 2, high / 2, -high / 2, -high / 2, 0])

    def profile(values):
        return lambda s: np.interp(s % corners[-1], corners, values)

    return known.revolved("tube", t, profile(across), profile(along), corners[-1], periodic=True, edge=False)


def tube_mesh(space, n_around=240, n_along=80):
    """Its mesh, with 19,200 vertices."""
    s, a = np.meshgrid(np.linspace(0, 124, n_along, endpoint=False), np.linspace(0, 2 * np.pi, n_around + 1)[:-1])
    corner = np.arange(n_around * n_along).reshape(n_around, n_along)
    right, above = np.roll(corner, -1, axis=0), np.roll(corner, -1, axis=1)
    both = np.roll(right, -1, axis=1)
    faces = np.vstack([np.column_stack([x.ravel() for x in f]) for f in ((corner, right, both), (corner, both, above))])
    return TriangleMesh(space.embed(np.column_stack([s.ravel(), a.ravel()])), faces)


@finding(1, "thin-walled tube in mm, mesh, defaults", 0.1)
def thin_walled_mesh():
    """Options that were not given are not refused."""
    fitted(tube_mesh(tube()))
    return on_known(tube(), tube_mesh(tube()))


@finding(1, "the same as a cloud of 19,200 points", 0.3)
def thin_walled_cloud():
    """Walls are far closer than steps are long."""
    fitted(tube().embed(tube().draw(19_200, np.random.default_rng(0))))
    return on_known(tube(), 19_200)


for name, space in {
    "strip 2 x .1": known.box("strip", 0.02, (2, 0.1)),
    "cylinder of height .1": known.cylinder("cylinder", 0.05, 0.1),
    "cylinder of height .3": known.cylinder("cylinder", 0.05, 0.3),
    "torus with a thin tube": known.ring_torus("torus", 0.05, 0.1),
}.items():
    finding(3, name, 0.05)(lambda space=space: on_known(space, 4000))
finding(4, "square, density 1:10", 0.04)(lambda: on_known(known.box("square", 0.01, (1, 1)), 4000, 10))
finding(4, "cylinder of height 2", 0.03)(lambda: on_known(known.cylinder("cylinder", 0.05, 2.0), 4000))


@finding(5, "sphere with density 1:100", 0.05)
def sparse_half():
    """The sparse half was taken for outliers."""
    x = SPHERE.sample(160_000, seed=60)
    return on_sphere(x[np.random.default_rng(0).uniform(size=len(x)) < 100 ** ((x[:, 2] - 1) / 2)][:4000])


@finding(5, "(a, a^2, a^3) of normal a: rmse of ridge", 0.1)
def cubic_curve():
    """A sixth of the points was dropped."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=2000)
    X, y = np.column_stack([a, a**2, a**3]), np.sin(2 * a)
    model = ManifoldRidge(random_state=0).fit(X[:1000], y[:1000] + 0.05 * rng.normal(size=1000))
    return np.sqrt(np.mean((model.predict(X[1000:]) - y[1000:]) ** 2)), None


finding(5, "two spheres, densities 1:36", 0.03)(lambda: on_two_spheres(3.0, 500))


def jittered(n, copies):
    """Places of a sphere, measured several times."""
    places = np.repeat(SPHERE.sample(n, seed=3), copies, axis=0)
    return places + 1e-3 * np.random.default_rng(0).normal(size=places.shape)


def clumps():
    """Ten of 2000 places, measured 200 times more."""
    P = SPHERE.sample(2000, seed=3)
    return np.vstack([P, np.repeat(P[:10], 200, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=(2000, 3))])


finding(6, "300 stations x 10 with jitter", 0.05)(lambda: on_sphere(jittered(300, 10)))
finding(6, "1000 stations x 2 with jitter", 0.02)(lambda: on_sphere(jittered(1000, 2)))
finding(6, "10 clumps of 200 among 2000", 0.02)(lambda: on_sphere(clumps()))


@finding(6, "smooth over 300 stations x 10", 0.05)
def smooth_stations():
    """z falls by exp(-2 t) on the sphere."""
    points = jittered(300, 10)
    return off(smooth(points, points[:, 2], t=0.05), np.exp(-0.1) * points[:, 2]), None


@finding(6, "distances over 300 stations x 10", 0.05)
def distances_between_stations():
    """Against arcs."""
    points = jittered(300, 10)
    return off(distances(points, 0), np.arccos(np.clip(points @ points[0], -1, 1))), None


finding(7, "box 10 x 200, t = 30", 0.05)(lambda: on_known(known.box("box", 30.0, (10, 200)), 3000))
finding(7, "plate 1 x 1 x .1", 0.1)(lambda: on_known(known.box("plate", 0.05, (1, 1, 0.1)), 4000))
finding(8, "cube, 20,000 points, t = .1", 0.06)(lambda: on_known(known.box("cube", 0.1, (1, 1, 1)), 20_000))


@finding(9, "distances inside a cube", 0.01)
def distances_in_solids():
    """Straight lines."""
    X = np.random.default_rng(0).uniform(size=(3000, 3))
    return off(distances(X, 0), np.linalg.norm(X - X[0], axis=1)), None


@finding(9, "distances along a circle", 0.01)
def distances_on_circles():
    """Arcs."""
    a = np.random.default_rng(0).uniform(0, 2 * np.pi, 1000)
    arcs = np.pi - np.abs(np.pi - np.abs(a - a[0]))
    return off(distances(np.column_stack([np.cos(a), np.sin(a)]), 0), arcs), None


@finding(2, "90 % intervals of 20 values, no space: share missed", 0.15)
def coverage():
    """Of 20 fields; bench_coverage has many more."""
    held = []
    for seed in range(20):
        rng, P = np.random.default_rng(seed), SPHERE.sample(420, seed=seed)
        y = np.sin(2 * P @ rng.normal(size=3)) + 0.1 * rng.normal(size=420)
        model = ManifoldGaussianProcess(random_state=0).fit(P[:20], y[:20])
        mean, std = model.predict(P[20:], return_std=True, include_noise=True)
        held.append(np.mean(np.abs(y[20:] - mean) < 1.645 * std))
    return 1 - np.mean(held), None


def refused(call, *words):
    """0 if a call is refused in these words, else 1."""
    try:
        call()
    except ValueError as error:
        return float(not all(word in str(error) for word in words)), None
    return 1.0, None


@finding(10, "additive mask of attention is refused", 0)
def additive_mask():
    """The boolean form is named."""
    import torch

    from manifoldrf.torch import ManifoldAttention

    attend, at = ManifoldAttention(fitted(SPHERE, 0.1), 4), torch.tensor(SPHERE.sample(3, seed=0), dtype=torch.float32)
    mask = torch.where(torch.tensor([True, False, True]), 0.0, -1e9)
    return refused(lambda: attend(at, torch.ones(3, 4), mask), "key_mask", "mask == 0")


@finding(11, "clean column beside a noisy one: rmse over that alone", 1.1)
def noise_of_outputs():
    """One noise an output."""
    rng, P = np.random.default_rng(0), SPHERE.sample(600, seed=1)
    truth = np.sin(3 * P[:, 0])
    Y = np.column_stack([truth + 0.05 * rng.normal(size=600), rng.normal(size=600)])
    both = ManifoldGaussianProcess(space=SPHERE, random_state=0).fit(P[:200], Y[:200]).predict(P[200:])[:, 0]
    alone = ManifoldGaussianProcess(space=SPHERE, random_state=0).fit(P[:200], Y[:200, 0]).predict(P[200:])
    return np.linalg.norm(both - truth[200:]) / np.linalg.norm(alone - truth[200:]), None


@finding(12, "a function times 2^-300 to 2^300: change of its error", 1e-6)
def scaled_functions():
    """c F has the features of F times sqrt(c)."""
    new = SPHERE.sample(200, seed=1)
    errors = []
    for c in (1.0, 2.0**-300, 2.0**-50, 2.0**300):

        def function(x, y, c=c):
            return c * np.exp(-np.maximum(2 - 2 * x @ y.T, 0))

        model = ManifoldRandomFeatures(function, normalize=False, random_state=0).fit(SPHERE)
        errors.append(relative_error(model.kernel_matrix(new) / c, function(new, new) / c))
    return np.ptp(errors) / errors[0], None


@finding(13, "ply at an offset of 5e6: change of the area", 1e-6)
def far_offsets():
    """Doubles are kept."""
    mesh = tube_mesh(tube())
    far = TriangleMesh(mesh.vertices + 5e6, mesh.faces)
    with tempfile.TemporaryDirectory() as folder:
        far.save(Path(folder) / "far.ply")
        return abs(TriangleMesh.load(Path(folder) / "far.ply").area / far.area - 1), None


def from_text(name, content):
    """A mesh read from a file."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(content)
        return TriangleMesh.load(Path(folder) / name)


@finding(14, "concave polygon of an obj file: area over the true one, less 1", 1e-12)
def concave_polygons():
    """A U of area 10, not a fan."""
    corners = [(0, 0), (4, 0), (4, 4), (3, 4), (3, 1), (1, 1), (1, 4), (0, 4)]
    lines = [f"v {x} {y} 0" for x, y in corners] + ["f " + " ".join(map(str, range(1, 9)))]
    return abs(from_text("u.obj", "\n".join(lines).encode()).area / 10 - 1), None


finding(15, "spheres of radius 1 and .3", 0.05)(lambda: on_two_spheres(0.3, 500))
finding(15, "spheres of radius 1 and .1", 0.05)(lambda: on_two_spheres(0.1, 300))


@finding(16, "numpy warnings of clouds in odd units, functions of any size", 0)
def leaking_warnings():
    """Clouds of a few points, in tiny and huge units, with copies; refusals are fine."""
    rng, leaked = np.random.default_rng(0), []
    clouds = [rng.normal(size=(n, d)) * unit for n in (3, 12, 60, 400) for d in (1, 2, 3) for unit in (1e-100, 1e6)]
    clouds += [np.repeat(SPHERE.sample(20, seed=0), 10, axis=0), np.vstack([SPHERE.sample(300, seed=0), [[1e6] * 3]])]
    for points in clouds:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with np.errstate(all="warn"):
                try:
                    fitted(points).transform(points)
                except ValueError:
                    pass
        leaked += [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    return float(len(leaked)), None


@finding(16, "a failed refit keeps the model or none", 0)
def failed_refit():
    """What is saved can be loaded."""
    points, model = SPHERE.sample(300, seed=0), fitted(SPHERE.sample(300, seed=0), 0.1)
    before = model.transform(points)
    try:
        model.set_params(kernel=HeatKernel(1e9)).fit(points)
    except ValueError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.safetensors")
        return float(not np.array_equal(load(Path(folder) / "model.safetensors").transform(points), before)), None


@finding(16, "binary ply with triangles and quadrilaterals: area, less 2", 1e-12)
def mixed_faces():
    """A square of side 1 as a quadrilateral and as two triangles."""
    header = "ply\nformat binary_little_endian 1.0\nelement vertex 8\nproperty double x\nproperty double y\n"
    header += "property double z\nelement face 3\nproperty list uchar int vertex_indices\nend_header\n"
    square = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], dtype="<f8")
    body = io.BytesIO()
    body.write(header.encode() + np.vstack([square, square + [0, 0, 1]]).astype("<f8").tobytes())
    for face in ((0, 1, 2, 3), (4, 5, 6), (4, 6, 7)):
        body.write(bytes([len(face)]) + np.array(face, dtype="<i4").tobytes())
    return abs(from_text("mixed.ply", body.getvalue()).area - 2), None


@finding(16, "wrappers of torch that refuse 0 points", 0)
def no_points():
    """All give no rows."""
    import torch

    from manifoldrf.gpytorch import ManifoldKernel
    from manifoldrf.torch import DifferentiableFeatures, ManifoldAttention

    family, none = ManifoldRandomFeatures(times=(0.1, 0.4), random_state=0).fit(SPHERE), torch.ones(0, 3)
    calls = {
        "attention": lambda: ManifoldAttention(family, 4)(none, torch.ones(0, 4)),
        "features": lambda: DifferentiableFeatures(family)(none),
        "gpytorch": lambda: ManifoldKernel(family)(none, none).to_dense(),
    }
    return sum(call().shape[0] != 0 for call in calls.values()), None


@finding(17, "2000 points of a sphere in R^784: CPU time over that in R^3", 3)
def many_coordinates():
    """They are projected to their rank first."""
    points = SPHERE.sample(2000, seed=0)
    frame = np.linalg.qr(np.random.default_rng(0).normal(size=(784, 3)))[0].T
    seconds = []
    for cloud in (points, points @ frame):
        start = time.process_time()
        fitted(cloud, 0.05)
        seconds.append(time.process_time() - start)
    return seconds[1] / seconds[0], None


def main():
    """Print the table."""
    wanted, failed = set(map(int, sys.argv[1:])), 0
    print(f"| {'':2s} | {'finding':62s} | {'found':8s} | {'limit':7s} | {'error_':7s} | {'verdict':7s} |\n{'|---' * 6}|")
    for number, what, limit, function in sorted(FINDINGS, key=lambda each: each[0]):
        if wanted and number not in wanted:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                seen, estimate = function()
            except Exception as error:
                seen, estimate, what = np.nan, None, f"{what}: {type(error).__name__}: {error}"
        holds = seen <= limit and (estimate is None or seen / 3 <= estimate <= 3 * max(seen, 0.01))
        failed += not holds
        said = "" if estimate is None else f"{estimate:.4f}"
        print(f"| {number:2d} | {what:62s} | {seen:8.4f} | {limit:7g} | {said:7s} | {'holds' if holds else 'FAILS':7s} |")
        sys.stdout.flush()
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
