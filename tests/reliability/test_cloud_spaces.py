"""The exact kernels behind the calibration and the benchmark of clouds as they come."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.distance import cdist

ROOT = Path(__file__).parents[2]
N = 20_000  # points of a Monte Carlo integral
PAIRED = 400  # points whose pairs are used


@pytest.fixture
def spaces(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.calibration.spaces")


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


def test_uneven_samples_have_seven_times_as_many_points_at_one_end(case, global_seed):
    """The share of points in the upper half of positions; the truth by integration over even points."""
    space, _ = case
    rng = np.random.default_rng(global_seed)
    even, uneven = space.sample(N, rng), space.sample_uneven(N, rng)
    assert len(uneven) == N
    low, high = (f(space.position(even)) for f in (np.min, np.max))
    share = (space.position(even) - low) / (high - low)
    expected = np.mean((share > 0.5) * (1 + 6 * share)) / np.mean(1 + 6 * share)
    found = np.mean((space.position(uneven) - low) / (high - low) > 0.5)
    assert abs(found - expected) < 5 * np.sqrt(0.25 / N) + 0.01  # the ends of the two samples differ a little


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


def test_rotations_are_as_far_apart_as_the_sphere_above_them_says(spaces):
    """At short times -4 t log K is the squared distance, sqrt(2) times the angle of rotation."""
    from scipy.spatial.transform import Rotation

    X = np.stack([Rotation.from_rotvec([0, 0, a]).as_matrix().ravel() for a in (0.0, 0.5)])
    t = 1e-3
    K = spaces.Rotations().kernel(X, t)
    sphere = (0.5 / 2) / np.sin(0.5 / 2)  # factor of the kernel of S^3 beside the Gaussian
    assert -4 * t * np.log(K[0, 1] / K[0, 0] / sphere) == pytest.approx(2 * 0.25, rel=1e-3)
    assert np.linalg.norm(X[0] - X[1]) == pytest.approx(2 * np.sqrt(2) * np.sin(0.25))


def test_embedding_keeps_distances(spaces, global_seed):
    rng = np.random.default_rng(global_seed)
    space = spaces.Embedded.draw(spaces.Roll(0.5), 50, rng)
    X = space.sample(50, rng)
    assert X.shape == (50, 50)
    assert np.allclose(cdist(X, X), cdist(X @ space.axes, X @ space.axes))


@pytest.mark.parametrize("heavy", [False, True])
def test_noise_has_the_deviation_that_is_asked_for(spaces, global_seed, heavy):
    """By the median of its size: the variance of Student's t with three degrees converges slowly."""
    rng = np.random.default_rng(global_seed)
    noise = spaces.add_noise(np.zeros((N, 2)), 0.3, rng, heavy=heavy)
    median, density = (0.7649 / 3**0.5, 0.5148 * 3**0.5) if heavy else (0.6745, 0.6356)  # of |noise| / 0.3
    error = 0.3 / (2 * density * np.sqrt(noise.size))
    assert abs(np.median(np.abs(noise)) - 0.3 * median) < 5 * error


def test_outliers_replace_a_share_of_the_points(spaces):
    rng = np.random.default_rng(0)
    X = spaces.Clifford().sample(1000, rng)
    spoiled = spaces.add_outliers(X, 0.05, rng)
    assert spoiled.shape == X.shape
    assert np.array_equal(spoiled[:950], X[:950])
    assert np.all((spoiled >= X.min(axis=0)) & (spoiled <= X.max(axis=0)))


def test_the_benchmark_has_every_combination_it_promises(bench):
    script = bench("bench_clouds_as_they_come")
    settings = script.SETTINGS
    assert len(settings) >= 36
    assert len({s.title for s in settings + script.SPECIAL}) == len(settings + script.SPECIAL)
    assert {s.noise for s in settings} == {0, 0.1, 0.2}
    for name in {s.name for s in settings}:
        own = [s for s in settings if s.name == name]
        assert len({s.noise for s in own}) == 3
        assert {s.uneven for s in own} == {False, True}
        assert {s.coordinates is None for s in own} == {False, True}


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


def test_the_page_says_what_the_records_of_clouds_say(bench):
    script, scans = bench("bench_clouds_as_they_come"), bench("clouds_scans")
    text = script.PAGE.read_text(encoding="utf-8")
    rows, scanned = script.record.load(script.PATH), script.record.load(script.PATH.with_stem("clouds_scans"))
    assert script.record.fill(text, "clouds", script.section(rows)) == text
    assert script.record.fill(text, "clouds scans", scans.scans_table(scanned)) == text
    assert {row["title"] for row in rows} == {s.title for s in script.SETTINGS + script.SPECIAL}


def test_targets_count_what_is_above_the_limits(bench):
    script = bench("bench_clouds_as_they_come")
    rows = [{"error": e, "rbf": 0.05} for e in (0.01, 0.02, 0.07, 0.5)]
    median, worst, above, noisy = script.targets(rows)
    assert (median.seen, worst.seen, above.seen, noisy.seen) == (pytest.approx(0.045), 0.5, 2, 0)
    assert [row.holds for row in (median, worst, above, noisy)] == [False, False, False, True]


def test_the_kernel_of_a_mesh_is_the_exponential_of_its_laplacian(bench, spaces):
    from manifoldrf import Sphere

    scans = bench("clouds_scans")
    mesh = spaces.hull_mesh(Sphere().grid(200))
    laplacian, mass = pytest.importorskip("robust_laplacian").mesh_laplacian(mesh.vertices, mesh.faces)
    area = mass.diagonal()
    exact = expm(-0.05 * laplacian.toarray() / area[:, None]) / area
    some = np.arange(0, 200, 7)
    found = scans.mesh_heat_kernel(laplacian, mass, 0.05, some)
    assert np.abs(found - exact[np.ix_(some, some)]).max() < 1e-6 * exact.max()


def test_a_page_without_marks_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    record = importlib.import_module("benchmarks.calibration.record")
    assert record.fill("a <!-- x: begin -->old<!-- x: end --> b", "x", "new") == (
        "a <!-- x: begin -->\nnew\n<!-- x: end --> b"
    )
    with pytest.raises(ValueError, match="must have the marks"):
        record.fill("nothing", "x", "new")
