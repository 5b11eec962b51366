"""The exact kernels behind the benchmark of clouds as they come."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from oracles import hull_mesh
from scipy.linalg import expm

ROOT = Path(__file__).parents[2]
N = 20_000  # points of a Monte Carlo integral
PAIRED = 400  # points whose pairs are used


@pytest.fixture
def spaces(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.cloud_spaces")


@pytest.fixture
def bench(monkeypatch):
    """The script, which is run from its own folder."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return lambda name: importlib.import_module(name)


# A constructor, and a time for which a kernel is narrow but holds many of the points.
SPACES = {
    "torus": (lambda s: s.Clifford(), 0.03),
    "3-torus": (lambda s: s.Clifford((1.0, 1.0, 1.0)), 0.25),
    "5-torus": (lambda s: s.Clifford((1.0,) * 5), 0.3),
    "rotations": (lambda s: s.Rotations(), 0.3),
    "square": (lambda s: s.Rectangle(), 0.01),
    "cylinder": (lambda s: s.Cylinder(2.0), 0.05),
    "roll": (lambda s: s.Roll(0.9, 8.0), 0.03),
    "tight roll": (lambda s: s.Roll(0.245), 0.03),
    "layers": (lambda s: s.Layers(0.141), 0.01),
    "torus in R^30": (lambda s: s.Embedded.draw(s.Clifford(), 30, np.random.default_rng(0)), 0.03),
    "roll in R^100": (lambda s: s.Embedded.draw(s.Roll(0.9), 100, np.random.default_rng(0)), 0.03),
}


@pytest.fixture(params=SPACES)
def case(request, spaces):
    make, t = SPACES[request.param]
    return make(spaces), t


def mean_over_pairs(values):
    """Mean of a symmetric matrix off its diagonal, and a standard error, from the means of its rows."""
    n = len(values)
    rows = (values.sum(axis=1) - np.diag(values)) / (n - 1)
    return rows.mean(), 2 * rows.std() / np.sqrt(n)


def test_kernels_are_symmetric_and_have_no_negative_eigenvalue(case, global_seed):
    space, t = case
    X = space.sample(60, np.random.default_rng(global_seed))
    K = space.kernel(X, t)
    assert np.allclose(K, K.T, rtol=1e-10, atol=1e-12 * K.max())
    assert np.linalg.eigvalsh(K).min() > -1e-10 * K.max()


def test_kernels_integrate_to_one(case, global_seed):
    """The mean over pairs of even points, within five standard errors: one false alarm in a million."""
    space, t = case
    X = space.sample(PAIRED, np.random.default_rng(global_seed))
    mean, error = mean_over_pairs(space.volume * space.kernel(X, t))
    assert error < 0.2
    assert abs(mean - 1) < 5 * error


def test_short_times_give_the_gaussian_of_flat_space(case, global_seed):
    """On the diagonal, away from edges: curvature adds at most t times the scalar curvature / 6."""
    space, t = case
    t = t / 100
    diagonal = np.diag(space.kernel(space.sample(200, np.random.default_rng(global_seed)), t))
    flat = (4 * np.pi * t) ** (-space.dim / 2)
    assert np.median(diagonal) == pytest.approx(flat, rel=1e-2)
    assert diagonal.min() > 0.99 * flat


def test_kernels_form_a_semigroup(case, global_seed):
    """The integral of K_s(x, y)^2 over y is K_2s(x, x), within five standard errors."""
    space, t = case
    X = space.sample(PAIRED, np.random.default_rng(global_seed))
    mean, error = mean_over_pairs(space.volume * space.kernel(X, t / 2) ** 2)
    diagonal = np.diag(space.kernel(X, t))
    assert abs(mean - diagonal.mean()) < 5 * (error + diagonal.std() / np.sqrt(PAIRED))


def test_nearest_points_of_the_space_are_its_own_and_undo_small_normal_noise(case, global_seed):
    space, _ = case
    rng = np.random.default_rng(global_seed)
    X = space.sample(200, rng)
    assert np.abs(space.nearest(X) - X).max() < 1e-3
    noisy = X + 1e-3 * rng.standard_normal(X.shape)
    nearest = space.nearest(noisy)
    assert np.all(
        np.linalg.norm(noisy - nearest, axis=1) <= np.linalg.norm(noisy - X, axis=1) + 2e-4
    )  # on rolls half a step of a grid


def test_a_roll_keeps_lengths_and_its_gap(spaces):
    roll = spaces.Roll(0.3, 6.0, 2.0)
    along = np.linspace(0, 6.0, 100_001)
    flat = np.column_stack([along, 0.5 * along / 6])
    rolled = roll.at(flat)
    lengths = [np.linalg.norm(np.diff(points, axis=0), axis=1).sum() for points in (flat, rolled)]
    assert lengths[1] == pytest.approx(lengths[0], rel=1e-7)
    assert np.allclose(roll.flat(rolled), flat, atol=1e-10)
    radius, turns = np.hypot(*rolled[:, :2].T), np.unwrap(np.arctan2(rolled[:, 1], rolled[:, 0])) / (2 * np.pi)
    assert np.interp(turns[0] + 1, turns, radius) - radius[0] == pytest.approx(0.3, rel=1e-6)


@pytest.mark.parametrize("heavy", [False, True])
def test_noise_has_the_deviation_that_is_asked_for(spaces, global_seed, heavy):
    """By the median of its size: the variance of Student's t with three degrees converges slowly."""
    rng = np.random.default_rng(global_seed)
    noise = spaces.add_noise(np.zeros((N, 2)), 0.3, rng, heavy=heavy)
    median, density = (0.7649 / 3**0.5, 0.5148 * 3**0.5) if heavy else (0.6745, 0.6356)  # of |noise| / 0.3
    error = 0.3 / (2 * density * np.sqrt(noise.size))
    assert abs(np.median(np.abs(noise)) - 0.3 * median) < 5 * error


def test_a_small_cloud_is_measured_and_its_noise_depends_on_the_coordinates(bench):
    script = bench("bench_clouds_as_they_come")
    for setting in (script.SETTINGS[1], script.SETTINGS[3]):  # two coordinates; a hundred
        cloud = script.draw(setting, 500, 0)
        noise = (cloud.noisy - cloud.clean) / np.sqrt(2 * setting.t)
        size = np.sqrt(np.mean(noise**2)) * np.sqrt(setting.coordinates or 1)
        assert size == pytest.approx(setting.noise, rel=5 / np.sqrt(2 * noise.size))
    row = script.measure(script.SETTINGS[0], 500, 0)
    assert row["error"] < row["rbf"] < 0.05
    lines = script.summarise([row | {"group": "clouds"}])
    assert script.markdown(lines, ["error", "rbf"]).count("\n") == 2


def test_the_kernel_of_a_mesh_is_the_exponential_of_its_laplacian(bench, spaces):
    from manifoldrf import Sphere

    scans = bench("clouds_scans")
    mesh = hull_mesh(Sphere().grid(200))
    laplacian, mass = pytest.importorskip("robust_laplacian").mesh_laplacian(mesh.vertices, mesh.faces)
    area = mass.diagonal()
    exact = expm(-0.05 * laplacian.toarray() / area[:, None]) / area
    some = np.arange(0, 200, 7)
    found = scans.mesh_heat_kernel(laplacian, mass, 0.05, some)
    assert np.abs(found - exact[np.ix_(some, some)]).max() < 1e-6 * exact.max()
