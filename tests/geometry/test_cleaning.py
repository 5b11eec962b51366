"""What is found in raw clouds: dimension, noise, outliers and copies, against what they were made with."""

import numpy as np
import pytest
from marks import quick_ones
from scipy.spatial import cKDTree

from manifoldrf import Ellipsoid, FlatTorus, HyperbolicSpace, MobiusStrip, Sphere, Torus
from manifoldrf.geometry import clean_cloud, estimate_dimension
from manifoldrf.geometry.cleaning import merge_copies


def noisy(points, sigma, n_axes=None, seed=0):
    """Points in a random subspace of R^n_axes, with noise in each coordinate; and the isometry."""
    rng = np.random.default_rng(seed)
    n_axes = n_axes or points.shape[1]
    frame = np.linalg.qr(rng.normal(size=(n_axes, n_axes)))[0][:, : points.shape[1]]
    return points @ frame.T + sigma * rng.normal(size=(len(points), n_axes)), frame


def places(cloud):
    """Cleaned points in the coordinates that were given."""
    return cloud.points @ cloud.axes.T + cloud.origin


# --------------------------------------------------------------------------------------------------- dimension
ALONG = [Sphere(dim=4), FlatTorus(dim=3), HyperbolicSpace(dim=2)]
MANIFOLDS = [*((m, None) for m in (Sphere(dim=1), Sphere(), Sphere(dim=3), Ellipsoid(), MobiusStrip(), Torus()))]


@pytest.mark.parametrize(("manifold", "metric"), [*MANIFOLDS, *((m, m) for m in ALONG)], ids=str)
def test_the_dimension_of_every_manifold_is_found(manifold, metric, global_seed):
    sample = manifold.sample(1000, seed=global_seed)
    assert estimate_dimension(sample, metric=metric) == manifold.dim
    assert estimate_dimension(manifold.grid(1000), metric=metric) == manifold.dim
    if metric is None:
        assert clean_cloud(sample).dim == manifold.dim


def test_neither_units_nor_copies_change_the_dimension():
    points = Torus().sample(1000, seed=0)
    for other in (1e-100 * points, 1e100 * points, np.repeat(points, 7, axis=0)):
        assert estimate_dimension(other) == 2
    assert estimate_dimension(np.eye(3)) >= 1
    assert estimate_dimension(np.repeat([[0.0, 1.0], [2.0, 3.0]], 20, axis=0)) == 1


@pytest.mark.parametrize(
    ("sides", "dim"),
    [
        ((2, 0.1), 2),
        ((1, 1, 0.1), 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (((10, 200), 2), ((1, 1, 0.3), 3), ((2, 0.2, 0.2), 3))
        ),
    ],
    ids=str,
)
def test_uniform_cross_sections_are_not_noise(sides, dim, global_seed):
    points = np.random.default_rng(global_seed).random((3000, len(sides))) * sides
    assert clean_cloud(points).dim == dim


@pytest.mark.parametrize("manifold", [Sphere(), Torus(), Sphere(dim=3)], ids=str)
def test_few_points_of_a_surface_are_no_solid(manifold, global_seed):
    for n in (60, 120, 300):
        for points in (manifold.sample(n, seed=global_seed), manifold.grid(n)):
            cloud = clean_cloud(points)
            assert cloud.dim == manifold.dim or not cloud.structured


def test_few_points_show_a_sphere_and_a_cube(global_seed):
    for sample, dim in ((Sphere().sample, 2), (lambda n, seed: np.random.default_rng(seed).random((n, 3)), 3)):
        cloud = clean_cloud(sample(200, seed=global_seed))
        assert (cloud.dim, cloud.structured) == (dim, True)


def test_no_structure_is_said_to_be_none(global_seed):
    cloud = clean_cloud(np.random.default_rng(global_seed).normal(size=(1000, 8)))
    assert not cloud.structured
    assert cloud.n_outliers == 0
    assert "no clear dimension" in str(cloud)


# ------------------------------------------------------------------------------------------------------- noise
CASES = {
    "circle in R^2": (Sphere(dim=1), 0.05, None),
    "sphere in R^3": (Sphere(), 0.03, None),
    "sphere in R^3, more": (Sphere(), 0.06, None),
    "sphere in R^50": (Sphere(), 0.03, 50),
    "torus in R^3": (Torus(), 0.05, None),
    "three-sphere in R^20": (Sphere(dim=3), 0.025, 20),
}


@pytest.mark.parametrize("name", quick_ones(list(CASES), "circle in R^2", "sphere in R^3"))
def test_noise_is_found_and_removed(name, global_seed):
    manifold, sigma, n_axes = CASES[name]
    points, frame = noisy(manifold.sample(3000, seed=global_seed), sigma, n_axes, global_seed)
    cloud = clean_cloud(points)
    assert cloud.structured
    assert cloud.dim == manifold.dim
    # Patches follow a part of the noise: with three neighbours per coefficient, a sixth of its variance and more.
    assert 0.75 * sigma < cloud.noise_std < 1.1 * sigma
    assert cloud.n_outliers < 0.003 * len(points)
    if isinstance(manifold, Sphere):
        moved = places(cloud)
        off = np.linalg.norm(moved - (moved @ frame) @ frame.T, axis=1)
        assert np.hypot(off, np.linalg.norm(moved @ frame, axis=1) - 1).mean() < sigma / 2.5


@pytest.mark.parametrize(
    "points", [Sphere().sample(1000, seed=1), Sphere().grid(1000), Torus().sample(1000, seed=1)]
)
def test_clean_points_stay_where_they_are(points):
    cloud = clean_cloud(points)
    assert (cloud.noise_std, cloud.n_outliers) == (0, 0)
    assert cloud.n_merged <= 0.01 * len(points)  # random points have close pairs
    kept = cKDTree(points).query(places(cloud))[0] == 0
    assert np.count_nonzero(kept) >= len(points) - 3 * cloud.n_merged


def test_known_noise_and_dimension_are_taken_as_given(global_seed):
    points, _ = noisy(Sphere().sample(1500, seed=global_seed), 0.05)
    assert clean_cloud(points, noise_std=0.04, dim=2).noise_std == 0.04
    untouched = clean_cloud(points, noise_std=0)
    assert (cKDTree(points).query(places(untouched))[0] == 0).mean() > 0.99
    assert untouched.n_outliers == 0


# ---------------------------------------------------------------------------------------------------- outliers
def test_outliers_are_those_far_from_the_surface(global_seed):
    rng = np.random.default_rng(global_seed)
    far = rng.uniform(-1.5, 1.5, size=(60, 3))
    off = np.abs(np.linalg.norm(far, axis=1) - 1) > 0.2
    cloud = clean_cloud(np.vstack([Sphere().sample(2000, seed=global_seed), far]))
    assert off.sum() <= cloud.n_outliers <= 60
    assert np.abs(np.linalg.norm(places(cloud), axis=1) - 1).max() < 0.2


@pytest.mark.parametrize("ratio", quick_ones([36, 100], 100))
def test_sparse_regions_are_not_outliers(ratio, global_seed):
    rng = np.random.default_rng(global_seed)
    x = Sphere().sample(160_000, seed=rng)
    points = x[rng.random(len(x)) < ratio ** ((x[:, 2] - 1) / 2)][:4000]
    assert clean_cloud(points).n_outliers <= 4


@pytest.mark.parametrize(("radius", "n"), [(3.0, 500), pytest.param(0.3, 500, marks=pytest.mark.slow), (1.0, 100)])
def test_parts_with_a_twentieth_of_the_points_are_kept(radius, n, global_seed):
    points = [Sphere().sample(2000, seed=global_seed), [9.0, 0, 0] + radius * Sphere().sample(n, seed=global_seed)]
    assert clean_cloud(np.vstack(points)).n_outliers <= 2


def test_a_twisted_cubic_has_no_outliers(global_seed):
    a = np.random.default_rng(global_seed).normal(size=2000)
    cloud = clean_cloud(np.column_stack([a, a**2, a**3]))
    assert cloud.dim == 1
    assert cloud.n_outliers < 20


# ------------------------------------------------------------------------------------------------------ copies
@pytest.mark.parametrize(("n", "copies"), [(300, 10), (1000, 3)])
def test_repeated_measurements_become_one(n, copies, global_seed):
    rng = np.random.default_rng(global_seed)
    # Random places may be as close as copies, so some pairs are left.
    points = np.repeat(Sphere().sample(n, seed=rng), copies, axis=0)
    cloud = clean_cloud(points + 1e-3 * rng.normal(size=points.shape))
    assert cloud.dim == 2
    assert cloud.n_merged == pytest.approx(n * (copies - 1), rel=0.1)


def test_distinct_points_are_not_merged(global_seed):
    rng = np.random.default_rng(global_seed)
    for points in (Sphere().grid(500), rng.random((1000, 2)), np.linspace(0, 1, 50)[:, None]):
        assert len(merge_copies(points)) >= 0.98 * len(points)
    assert len(merge_copies(np.repeat(points, 5, axis=0))) == len(points)


# ------------------------------------------------------------------------------------------------------- always
def test_the_number_of_threads_and_motions_change_nothing(global_seed):
    points, _ = noisy(Sphere().sample(1000, seed=global_seed), 0.04)
    one, two = (clean_cloud(points, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.points, two.points)
    for unit, shift in ((1e-3, 0.0), (1e3, 1e8)):
        moved = clean_cloud(unit * points + shift)
        assert moved.dim == one.dim
        assert moved.noise_std == pytest.approx(unit * one.noise_std, rel=0.02)


@pytest.mark.slow
def test_very_large_clouds_are_examined_in_part():
    cloud = clean_cloud(Sphere().sample(60_000, seed=0))
    assert (cloud.dim, cloud.n_given, cloud.n_outliers) == (2, 60_000, 0)
    assert len(cloud.points) < 60_000


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((5, 2)),
        np.repeat(np.eye(3), 9, axis=0),
        np.arange(12.0).reshape(4, 3),
        np.eye(4),
        1e150 * np.eye(9),
    ],
    ids=["one place", "three places", "a line", "four", "huge"],
)
def test_tiny_clouds_are_cleaned_without_warnings(points):
    cloud = clean_cloud(points)
    assert 1 <= cloud.dim <= points.shape[1]
    assert np.isfinite(cloud.points).all()


@pytest.mark.slow
def test_both_sides_of_a_thin_wall_are_told_from_noise(global_seed):
    """A tube with walls of 2, points 1.3 apart."""
    rng, n = np.random.default_rng(global_seed), 19_200
    angles, radii, z = rng.uniform(0, 2 * np.pi, n), rng.choice([38.0, 40.0], n), rng.uniform(0, 60, n)
    tube = np.column_stack([radii * np.cos(angles), radii * np.sin(angles), z])
    assert clean_cloud(tube).hollow
    tube[:, :2] *= (39 + rng.normal(size=n))[:, None] / radii[:, None]
    assert not clean_cloud(tube).hollow
