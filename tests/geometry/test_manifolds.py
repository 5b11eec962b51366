"""One contract for all manifolds: points, weights, samples, distances; exact heat kernels where known."""

import itertools
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import dblquad, quad
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation
from scipy.stats import chisquare

from manifoldrf import (
    Ellipsoid,
    EuclideanSpace,
    FlatTorus,
    HyperbolicSpace,
    MobiusStrip,
    ProductSpace,
    Rotations,
    Sphere,
    Torus,
)
from manifoldrf.geometry.manifolds import AbstractManifold

ALL = [
    Sphere(dim=1, radius=0.5),
    Sphere(),
    Sphere(dim=3, radius=2.0),
    FlatTorus(),
    FlatTorus(dim=3, side=0.5),
    HyperbolicSpace(dim=2, radius=4.0),
    HyperbolicSpace(dim=5, radius=1.0),
    EuclideanSpace(),
    Rotations(),
    ProductSpace(Sphere(), EuclideanSpace(dim=1)),
    ProductSpace(FlatTorus(dim=1), Sphere(dim=1, radius=0.5), HyperbolicSpace(dim=2, radius=1.0)),
    Ellipsoid(),
    Torus(),
    MobiusStrip(radius=2.0, half_width=1.9),
]
METRIC = [manifold for manifold in ALL if type(manifold)._distance is not AbstractManifold._distance]
SURFACES = [manifold for manifold in ALL if manifold not in METRIC]


@pytest.fixture(params=ALL, ids=str)
def manifold(request):
    return request.param


@pytest.fixture(params=METRIC, ids=str)
def metric(request):
    return request.param


# Grids and weights


def test_grids_and_samples_lie_on_the_manifold_and_a_seed_fixes_the_sample(manifold):
    sample = manifold.sample(300, seed=3)
    for points in (manifold.grid(300), sample):
        assert points.shape[1] == manifold.ambient_dim
        np.testing.assert_array_equal(manifold.check(points), points)
    np.testing.assert_array_equal(manifold.sample(300, seed=3), sample)
    assert not np.array_equal(manifold.sample(300, seed=4), sample)


def number_of_points(manifold, n):
    """What the docstrings of the grids say."""
    match manifold:
        case FlatTorus(dim=dim):
            return max(1, round(n ** (1 / dim))) ** dim
        case ProductSpace():
            cell = (manifold.volume / n) ** (1 / manifold.dim)  # the same in all factors
            return math.prod(max(1, round(part.volume / cell**part.dim)) for part in manifold.factors)
        case Torus(major=length, minor=width):
            fewest = 3
        case MobiusStrip(radius=radius, half_width=width):
            fewest, length = 2, 2.5 * radius
        case _:
            return n
    rows = max(fewest, round(np.sqrt(n * width / length)))
    return rows * max(3, round(n / rows))


def test_grids_have_the_documented_number_of_points_with_weights_that_sum_to_the_volume(manifold):
    for n in (1, 2, 10, 500, 4000):
        weights = manifold.grid_weights(n)
        assert len(manifold.grid(n)) == len(weights) == number_of_points(manifold, n)
        assert (weights > 0).all()
        assert weights.sum() == pytest.approx(manifold.volume, rel=1e-12)


def test_grid_points_are_distinct(manifold):
    points = manifold.grid(2000)
    nearest = cKDTree(points).query(points, k=2)[0][:, 1]
    assert nearest.min() > 0.03 * np.median(nearest)


def test_edges_of_the_strip_have_half_cells():
    points, weights = MobiusStrip().grid(160)[:4], MobiusStrip().grid_weights(160)[:4]  # u = 0, four rows
    element = np.hypot(points[:, 0], 0.5 * (points[:, 0] - 1.0))  # there x = 1 + v
    np.testing.assert_allclose(weights / element / (weights / element)[1], [0.5, 1.0, 1.0, 0.5], rtol=1e-13)


INTEGRALS = [
    (Sphere(radius=2.0), lambda x: x[:, 2] ** 4, 16 * np.pi * 2.0**4 / 5, 1e-3),
    (Sphere(dim=3), lambda x: x[:, 0] ** 2, 2 * np.pi**2 / 4, 1e-2),
    (FlatTorus(dim=2), lambda x: np.exp(np.cos(2 * np.pi * x[:, 0])), np.i0(1.0), 1e-12),
    # the support function of a closed surface integrates to 3 times the volume inside
    (
        Ellipsoid(axes=(1.0, 1.3, 0.7)),
        lambda x: 1.0 / np.linalg.norm(x / np.array([1.0, 1.3, 0.7]) ** 2, axis=1),
        4 * np.pi * 1.0 * 1.3 * 0.7,
        1e-3,
    ),
    (Torus(major=1.0, minor=0.4), lambda x: x[:, 0] ** 2, np.pi**2 * 0.4 * (2 + 3 * 0.4**2), 1e-12),
    (
        MobiusStrip(),
        lambda x: x[:, 2] ** 2,
        dblquad(
            lambda v, u: (v * np.sin(u / 2)) ** 2 * np.sqrt((1 + v * np.cos(u / 2)) ** 2 + v**2 / 4),
            0.0,
            2 * np.pi,
            -0.25,
            0.25,
        )[0],
        1e-2,
    ),
    (
        HyperbolicSpace(dim=3, radius=2.0),
        lambda x: 2 * np.arctanh(np.linalg.norm(x, axis=1)),
        4 * np.pi * quad(lambda s: s * np.sinh(s) ** 2, 0, 2.0)[0],
        1e-3,
    ),
    (HyperbolicSpace(dim=2, radius=2.0), lambda x: x[:, 0], 0.0, 1e-2),
]


@pytest.mark.parametrize(
    ("manifold", "function", "exact", "tolerance"), INTEGRALS, ids=[str(case[0]) for case in INTEGRALS]
)
def test_weights_integrate_functions(manifold, function, exact, tolerance):
    integral = manifold.grid_weights(4000) @ function(manifold.grid(4000))
    assert integral == pytest.approx(exact, rel=tolerance, abs=tolerance)


VOLUMES = [
    (Sphere(dim=1, radius=0.5), np.pi),
    (Sphere(dim=3, radius=2.0), 16 * np.pi**2),
    (FlatTorus(dim=3, side=0.5), 0.125),
    (HyperbolicSpace(dim=2, radius=4.0), 2 * np.pi * (np.cosh(4.0) - 1)),
    (HyperbolicSpace(dim=3, radius=2.0), np.pi * (np.sinh(4.0) - 4.0)),
    (EuclideanSpace(dim=3, radius=2.0), 32 / 3 * np.pi),
    (EuclideanSpace(dim=1, radius=2.0), 4.0),
    (Rotations(), 8 * np.pi**2),
    (ProductSpace(Sphere(), EuclideanSpace(dim=1, radius=2.0)), 16 * np.pi),
    (Ellipsoid(axes=(1.0, 1.0, 0.5)), 2 * np.pi * (1 + 0.25 / np.sqrt(0.75) * np.arctanh(np.sqrt(0.75)))),
    (Torus(), 1.6 * np.pi**2),
]


def test_volumes_equal_their_closed_forms():
    for manifold, volume in VOLUMES:
        assert manifold.volume == pytest.approx(volume, rel=1e-13), manifold


@pytest.mark.parametrize("half_width", [0.25, 0.99])
def test_area_of_the_strip_is_that_of_the_embedded_surface(half_width):
    """The area of a fine triangulation converges from below, with an error in proportion to the cells."""
    strip = MobiusStrip(half_width=half_width)
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 1201), np.linspace(-half_width, half_width, 201), indexing="ij")
    rho = 1 + v * np.cos(u / 2)
    points = np.stack([rho * np.cos(u), rho * np.sin(u), v * np.sin(u / 2)], axis=-1)
    diagonals = np.cross(points[1:, 1:] - points[:-1, :-1], points[:-1, 1:] - points[1:, :-1])
    assert strip.volume == pytest.approx(0.5 * np.linalg.norm(diagonals, axis=-1).sum(), rel=1e-4)


# Samples


def _bins(values, low, high, count):
    return np.clip(((values - low) / (high - low) * count).astype(int), 0, count - 1)


def _azimuth(x, y, count):
    return _bins(np.arctan2(y, x), -np.pi, np.pi, count)


def _sphere_cells(points):
    """S^1: arcs; S^2: bands times sectors; S^3 and S^5: |(x1, x2)|^2 has the law 1 - (1 - s)^((d-1)/2)."""
    dim, unit = points.shape[1] - 1, points / np.linalg.norm(points[0])
    sector = _azimuth(unit[:, 0], unit[:, 1], 6)
    if dim == 1:
        return sector, np.full(6, 1 / 6)
    square = unit[:, 0] ** 2 + unit[:, 1] ** 2
    law = _bins(unit[:, 2], -1, 1, 5) if dim == 2 else _bins((1 - square) ** ((dim - 1) / 2), 0, 1, 5)
    return 6 * law + sector, np.full(30, 1 / 30)


def _flat_cells(points, side):
    cells = _bins(points, 0.0, side, 3)
    index = cells @ 3 ** np.arange(points.shape[1])
    return index, np.full(3 ** points.shape[1], 3.0 ** -points.shape[1])


def _hyperbolic_cells(points, radius):
    return _ball_cells(points, 2 * np.arctanh(np.linalg.norm(points, axis=1)), radius, np.sinh)


def _ball_cells(points, rho, radius, stretch):
    """Shells cut by orthants; a sphere of radius s has the area stretch(s)^(dim - 1)."""
    dim = points.shape[1]
    edges = np.linspace(0, radius, 8)
    mass = np.array([quad(lambda s: stretch(s) ** (dim - 1), a, b)[0] for a, b in itertools.pairwise(edges)])
    orthant = (points > 0) @ 2 ** np.arange(dim)
    share = np.repeat(mass / mass.sum() / 2**dim, 2**dim)
    return _bins(rho, 0, radius, 7) * 2**dim + orthant, share


def _parameter_cells(first, second, element, bounds, counts):
    """Cells of a parameter rectangle; shares by integrating the area element."""
    (a, b), (c, d) = bounds
    edges = np.linspace(a, b, counts[0] + 1), np.linspace(c, d, counts[1] + 1)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    share = np.zeros(counts)
    for i in range(counts[0]):
        for j in range(counts[1]):
            p = edges[0][i] + 0.5 * (nodes + 1) * (edges[0][1] - edges[0][0])
            q = edges[1][j] + 0.5 * (nodes + 1) * (edges[1][1] - edges[1][0])
            share[i, j] = weights @ element(p[:, None], q[None, :]) @ weights
    index = _bins(first, a, b, counts[0]) * counts[1] + _bins(second, c, d, counts[1])
    return index, share.ravel() / share.sum()


def _ellipsoid_cells(points, axes):
    a, b, c = axes
    x, y, z = (points / np.array(axes)).T

    def element(height, angle):
        rho = np.sqrt(1 - height**2)
        return np.sqrt(
            (b * c * rho * np.cos(angle)) ** 2 + (a * c * rho * np.sin(angle)) ** 2 + (a * b * height) ** 2
        )

    return _parameter_cells(z, np.arctan2(y, x), element, ((-1, 1), (-np.pi, np.pi)), (6, 6))


def _torus_cells(points, major, minor):
    u = np.arctan2(points[:, 1], points[:, 0])
    v = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]) - major)
    bounds = ((-np.pi, np.pi), (-np.pi, np.pi))
    return _parameter_cells(u, v, lambda p, q: major + minor * np.cos(q) + 0 * p, bounds, (6, 6))


def _strip_cells(points, radius, half_width):
    u = np.mod(np.arctan2(points[:, 1], points[:, 0]), 2 * np.pi)
    v = (np.hypot(points[:, 0], points[:, 1]) - radius) * np.cos(u / 2) + points[:, 2] * np.sin(u / 2)
    bounds = ((0, 2 * np.pi), (-half_width, half_width))
    return _parameter_cells(u, v, lambda p, q: np.hypot(radius + q * np.cos(p / 2), q / 2), bounds, (8, 4))


def _rotation_cells(points):
    """The quaternion with w >= 0 is uniform on half of the 3-sphere."""
    quaternions = Rotation.from_matrix(points.reshape(-1, 3, 3)).as_quat(canonical=True)
    index, share = _sphere_cells(quaternions[:, [0, 1, 3, 2]])
    upper = quaternions[:, 2] > 0  # given the cell, z has both signs equally often
    return 2 * index + upper, np.repeat(share / 2, 2)


def _product_cells(space, points):
    index, share, start = np.zeros(len(points), dtype=int), np.ones(1), 0
    for part in space.factors:
        own, own_share = _cells(part, points[:, start : start + part.ambient_dim])
        index, share = index * len(own_share) + own, np.outer(share, own_share).ravel()
        start += part.ambient_dim
    return index, share


def _cells(manifold, points):  # noqa: C901  (one case for each class)
    """Cell of each point, and the share of the volume of each cell."""
    match manifold:
        case Rotations():
            return _rotation_cells(points)
        case ProductSpace():
            return _product_cells(manifold, points)
        case Sphere():
            return _sphere_cells(points)
        case FlatTorus(side=side):
            return _flat_cells(points, side)
        case HyperbolicSpace(radius=radius):
            return _hyperbolic_cells(points, radius)
        case EuclideanSpace(radius=radius):
            return _ball_cells(points, np.linalg.norm(points, axis=1), radius, lambda s: s)
        case Ellipsoid(axes=axes):
            return _ellipsoid_cells(points, axes)
        case Torus(major=major, minor=minor):
            return _torus_cells(points, major, minor)
        case MobiusStrip(radius=radius, half_width=half_width):
            return _strip_cells(points, radius, half_width)


def test_samples_are_uniform_in_volume(manifold):
    """Chi-square over cells of known volume; a correct sampler fails with probability 1e-4."""
    n = 20_000
    index, share = _cells(manifold, manifold.sample(n, seed=0))
    assert chisquare(np.bincount(index, minlength=share.size), n * share).pvalue > 1e-4


@pytest.mark.parametrize("space", [m for m in METRIC if not isinstance(m, FlatTorus | ProductSpace)], ids=str)
def test_quasi_random_grids_are_more_even_than_samples(space):
    index, share = _cells(space, space.grid(4096))
    expected = 4096 * share
    excess = np.bincount(index, minlength=share.size) - expected
    # A random sample has a mean of 1; cells that expect less than a few points say nothing.
    assert np.mean((excess**2 / expected)[expected > 5]) < 0.5


# Distances


def test_distance_is_a_metric(metric):
    points = metric.sample(40, seed=1)
    distance = metric.distance(points, points)
    np.testing.assert_array_equal(distance, distance.T)
    np.testing.assert_array_equal(np.diag(distance), 0.0)
    assert (distance + np.eye(40) > 0).all()
    through = distance[:, :, None] + distance[None, :, :]  # (i, k, j): by way of k
    assert (distance[:, None, :] <= through * (1 + 1e-12)).all()


def test_paired_distance_is_the_diagonal_and_broadcasts(metric):
    x, y = metric.sample(12, seed=1), metric.sample(12, seed=2)
    full = metric.distance(x, y)
    np.testing.assert_allclose(metric.paired_distance(x, y), np.diag(full), rtol=1e-13)
    np.testing.assert_allclose(metric.paired_distance(x[:, None], y[None].repeat(3, axis=0)[:1]), full, rtol=1e-13)
    assert metric.paired_distance(x[:0], y[:0]).shape == (0,)
    assert metric.paired_distance(x[0], y[0]).shape == ()


def _onto(space, points):
    """The points of the space nearest to some others."""
    match space:
        case Sphere():
            return points * (space.radius / np.linalg.norm(points, axis=1, keepdims=True))
        case Rotations():
            left, _, right = np.linalg.svd(points.reshape(-1, 3, 3))
            left[:, :, 2] *= np.sign(np.linalg.det(left @ right))[:, None]
            return (left @ right).reshape(-1, 9)
        case ProductSpace():
            return np.hstack([_onto(part, columns) for part, columns in space._parts(points)])
    return points


def _length(space, x, step):
    """Length of small steps by the metric tensor of the coordinates."""
    match space:
        case HyperbolicSpace():
            return 2 / (1 - np.sum(x**2, axis=1)) * np.linalg.norm(step, axis=1)
        case Rotations():
            return np.linalg.norm(step, axis=1) / np.sqrt(2)
        case ProductSpace():
            return np.sqrt(sum(_length(part, *columns) ** 2 for part, *columns in space._parts(x, step)))
    return np.linalg.norm(step, axis=1)


def test_distance_keeps_its_digits_for_close_points(metric):
    """A small step along a coordinate is measured to 1e-6: the length element is that of the model."""
    x = metric.sample(5, seed=3)
    other = x + 1e-7 * np.eye(metric.ambient_dim)[0]
    for _ in range(2):  # the second time removes what the first leaves through rounding
        other = _onto(metric, other)
    expected = _length(metric, (x + other) / 2, other - x)
    np.testing.assert_allclose(metric.paired_distance(x, other), expected, rtol=1e-6)


def test_distances_of_the_sphere_are_exact_at_both_ends():
    pole, tiny = np.array([[0.0, 0.0, 1.0]]), 1e-12
    near, far = np.array([[tiny, 0.0, 1.0]]), np.array([[tiny, 0.0, -1.0]])
    assert Sphere().distance(pole, near)[0, 0] == pytest.approx(tiny, rel=1e-12, abs=0)
    assert np.pi - Sphere().distance(pole, far)[0, 0] == pytest.approx(tiny, rel=1e-3, abs=0)


def test_longitudes_and_latitudes_are_points_and_come_back():
    earth, degrees = Sphere(radius=6371.0), np.array([[0.0, 0], [90, 0], [-180, 0], [45, 30], [12, -90]])
    points = earth.from_lonlat(degrees)
    half = 6371 * np.sqrt(0.5)
    wanted = [[6371, 0, 0], [0, 6371, 0], [-6371, 0, 0], [half * np.sqrt(0.75)] * 2 + [6371 / 2], [0, 0, -6371]]
    np.testing.assert_allclose(points, wanted, atol=1e-11)
    assert np.array_equal(earth.from_lonlat(*degrees.T), points)
    np.testing.assert_allclose(earth.to_lonlat(points[1:4]), [[90, 0], [-180, 0], [45, 30]], atol=1e-13)
    # Paris to New York, by the law of cosines.
    paris, new_york = np.radians([2.3522, 48.8566]), np.radians([-74.006, 40.7128])
    cosine = np.sin(paris[1]) * np.sin(new_york[1])
    cosine += np.cos(paris[1]) * np.cos(new_york[1]) * np.cos(paris[0] - new_york[0])
    cities = earth.from_lonlat(np.degrees([paris, new_york]))
    assert earth.distance(cities, cities)[0, 1] == pytest.approx(6371 * np.arccos(cosine), rel=1e-12)
    for wrong, words in (([[0.0, 91.0]], "latitudes in"), ([[400.0, 0.0]], "longitudes in"), ([[0.0]], "shape")):
        with pytest.raises(ValueError, match=words):
            earth.from_lonlat(wrong)
    with pytest.raises(ValueError, match="of the longitudes"):
        earth.from_lonlat([0.0, 1.0], [0.0])
    frame = pd.DataFrame({"lat": [48.9, 40.7], "lon": [2.4, -74.0]})
    with pytest.raises(ValueError, match="`lonlat` must be longitudes, then latitudes"):
        earth.from_lonlat(frame)
    assert np.array_equal(earth.from_lonlat(frame[["lon", "lat"]]), earth.from_lonlat(frame.to_numpy()[:, ::-1]))


def test_hyperbolic_distance_from_the_origin_is_that_of_the_model():
    points = np.tanh(np.array([[0.5, 0.0], [0.0, 2.0]]) / 2)
    np.testing.assert_allclose(HyperbolicSpace(dim=2).distance(np.zeros((1, 2)), points), [[0.5, 2.0]], rtol=1e-14)
    through_origin = HyperbolicSpace(dim=2).distance(points[:1], -points[:1])
    assert through_origin[0, 0] == pytest.approx(1.0, rel=1e-14)


def test_flat_torus_takes_the_short_way_round_and_wraps():
    torus = FlatTorus(dim=2, side=2.0)
    assert torus.distance([[0.1, 0.0]], [[1.9, 0.0]])[0, 0] == pytest.approx(0.2)
    assert torus.distance([[0.1, 0.0]], [[-6.1, 2.0]])[0, 0] == pytest.approx(0.2)
    assert torus.check([[-1e-20, 2.0]]).tolist() == [[0.0, 0.0]]
    cKDTree(torus.check(-torus.sample(50, seed=0)), boxsize=torus.box)


def test_reach_covers_the_metric_ball(metric):
    x = metric.sample(300, seed=5)
    steps = np.geomspace(1e-5, 1.0, 40)[:, None, None]
    y = _onto(metric, (x + steps * (x[::-1] - x)).reshape(-1, metric.ambient_dim))  # from next to x to anywhere
    x = np.tile(x, (40, 1))
    gap = np.abs(x - y)
    if metric.box is not None:
        gap = np.where(np.array(metric.box) > 0, np.minimum(gap, np.array(metric.box) - gap), gap)
    for radius in (1e-3, 0.1, 1.0, 5.0):
        reach = metric.reach(x, radius)
        np.testing.assert_array_equal(metric.reach(x, np.full(len(x), radius)), reach)
        inside = metric.paired_distance(x, y) <= radius
        assert inside.any()
        assert (np.linalg.norm(gap, axis=1) <= reach * (1 + 1e-12))[inside].all()


def test_reach_of_the_sphere_and_of_hyperbolic_space_is_tight():
    assert Sphere(radius=2.0).reach([[0, 0, 2.0]], 100.0)[0] == pytest.approx(4.0)
    x, outward = np.array([[0.5, 0.0]]), np.tanh(np.arctanh(0.5) + 0.35)
    # inwards, the metric ball of radius 0.7 ends at tanh(artanh(0.5) - 0.35), its farthest point in coordinates
    inward = np.tanh(np.arctanh(0.5) - 0.35)
    assert HyperbolicSpace(dim=2).reach(x, 0.7)[0] == pytest.approx(0.5 - inward, rel=1e-13)
    assert outward - 0.5 < 0.5 - inward


def test_reach_of_embedded_surfaces_is_the_radius_itself():
    for surface in SURFACES:
        np.testing.assert_array_equal(surface.reach(surface.grid(20), 0.3), 0.3)


# Heat kernels (the radial formulas have their own tests)


def test_heat_kernel_is_symmetric_positive_and_scales(metric):
    if isinstance(metric, HyperbolicSpace) and metric.dim > 3:
        pytest.skip("no closed form")
    x, y = metric.sample(15, seed=0), metric.sample(10, seed=1)
    t = 0.1 * (getattr(metric, "side", 1.0)) ** 2
    kernel = metric.heat_kernel(x, y, t)
    assert kernel.shape == (15, 10)
    assert (kernel >= 0).all()
    np.testing.assert_allclose(metric.heat_kernel(y, x, t), kernel.T, rtol=1e-11)
    gram = metric.heat_kernel(x, x, t)
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * gram.max()


def test_heat_kernel_of_a_larger_sphere_runs_slower():
    small, large = Sphere(dim=2), Sphere(dim=2, radius=3.0)
    x, y = small.sample(5, seed=0), small.sample(5, seed=1)
    np.testing.assert_allclose(large.heat_kernel(3 * x, 3 * y, 0.9), small.heat_kernel(x, y, 0.1) / 9, rtol=1e-12)


@pytest.mark.parametrize("manifold", [Sphere(dim=1, radius=0.5), FlatTorus(dim=1, side=2.0), FlatTorus()], ids=str)
def test_mass_and_semigroup_hold_on_periodic_grids(manifold):
    """On a uniform grid the trapezoidal rule is exact to rounding for these kernels."""
    grid, weights = manifold.grid(1600), manifold.grid_weights(1600)
    x = manifold.sample(4, seed=0)
    s, t = 0.02, 0.05
    first, second = manifold.heat_kernel(x, grid, s), manifold.heat_kernel(grid, x, t)
    np.testing.assert_allclose(first @ weights, 1.0, rtol=1e-12)
    np.testing.assert_allclose(first * weights @ second, manifold.heat_kernel(x, x, s + t), rtol=1e-10)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(120)


def _polar_quadrature(manifold, extent):
    """Points around the origin of polar coordinates, with weights, for functions of distance and one angle."""
    rho, phi = 0.5 * extent * (NODES + 1), 0.5 * np.pi * (NODES + 1)
    curved = np.sin(rho) if isinstance(manifold, Sphere) else np.sinh(rho)
    dim = manifold.dim
    shell = {2: 2.0, 3: 2 * np.pi, 4: 4 * np.pi}[dim]  # volume of S^(dim - 2)
    radial = 0.5 * extent * WEIGHTS * curved ** (dim - 1)
    angular = 0.5 * np.pi * WEIGHTS * np.sin(phi) ** (dim - 2)
    direction = np.zeros((phi.size, dim))
    direction[:, 0], direction[:, 1] = np.cos(phi), np.sin(phi)
    points = _exponential(manifold, rho[:, None], direction[None])
    return points.reshape(-1, manifold.ambient_dim), shell * np.outer(radial, angular).ravel()


def _exponential(manifold, rho, direction):
    rho = rho[..., None]
    if isinstance(manifold, HyperbolicSpace):
        return np.tanh(rho / 2) * direction
    return np.concatenate([np.sin(rho) * direction, np.cos(rho) + 0 * direction[..., :1]], axis=-1)


@pytest.mark.parametrize(
    ("manifold", "extent"),
    [
        (Sphere(dim=2), np.pi),
        (Sphere(dim=3), np.pi),
        (Sphere(dim=4), np.pi),
        (HyperbolicSpace(dim=2), 6.0),
        (HyperbolicSpace(dim=3), 6.0),
    ],
    ids=str,
)
def test_mass_and_semigroup_hold(manifold, extent):
    s, t = 0.06, 0.11
    nodes, weights = _polar_quadrature(manifold, extent)
    pole = np.eye(manifold.dim)[:1]
    x = _exponential(manifold, np.zeros(1), pole)
    y = _exponential(manifold, np.array([0.0, 0.4, 1.1, 2.0]), pole)
    first, second = manifold.heat_kernel(x, nodes, s), manifold.heat_kernel(nodes, y, t)
    assert (first @ weights)[0] == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(first * weights @ second, manifold.heat_kernel(x, y, s + t), rtol=1e-8)


@pytest.mark.parametrize("t", [0.05, 0.5, 2.0])
def test_heat_kernel_of_rotations_is_the_sum_over_characters(t):
    """K = sum of (2l + 1) e^{-l(l + 1)t} sin((l + 1/2) angle) / sin(angle / 2) over 8 pi^2."""
    rotations = Rotations()
    x, y = rotations.sample(6, seed=0), rotations.sample(7, seed=1)
    angle, degree = rotations.distance(x, y)[..., None], np.arange(60)
    exact = (
        np.sin((degree + 0.5) * angle)
        / np.sin(0.5 * angle)
        @ ((2 * degree + 1) * np.exp(-degree * (degree + 1) * t))
    )
    np.testing.assert_allclose(
        rotations.heat_kernel(x, y, t), exact / (8 * np.pi**2), rtol=1e-10, atol=1e-13 / t**1.5
    )


def test_rotations_may_be_matrices_or_quaternions(global_seed):
    given = Rotation.random(20, random_state=global_seed)
    rotations, rows = Rotations(), given.as_matrix().reshape(-1, 9)
    np.testing.assert_allclose(rotations.rows(given.as_quat()), rows, atol=1e-15)
    np.testing.assert_allclose(rotations.check(-3.0 * given.as_quat()), rows, atol=1e-15)
    between = (given[:1] * given.inv()).magnitude()
    for form in (given.as_matrix(), given.as_quat(), rows):
        np.testing.assert_allclose(rotations.distance(form[:1], form)[0], between, atol=1e-7)


def test_angles_of_rotations_are_exact_at_both_ends():
    """Half a turn less 1e-9 around an axis, and a turn of 1e-9."""
    axis = np.array([0.6, 0.0, 0.8])
    for angle, tolerance in ((np.pi - 1e-9, 1e-15), (1e-9, 1e-15), (np.pi / 2, 1e-15)):
        turned = Rotation.from_rotvec(angle * axis).as_matrix()
        assert Rotations().distance(np.eye(3)[None], turned[None])[0, 0] == pytest.approx(angle, abs=tolerance)


def test_a_product_has_the_product_of_the_kernels_and_adds_squared_distances():
    sphere, line = Sphere(), EuclideanSpace(dim=1, radius=2.0)
    space = ProductSpace(sphere, line)
    x, y = space.sample(6, seed=0), space.sample(5, seed=1)
    parts = [sphere.heat_kernel(x[:, :3], y[:, :3], 0.1), line.heat_kernel(x[:, 3:], y[:, 3:], 0.1)]
    np.testing.assert_allclose(space.heat_kernel(x, y, 0.1), parts[0] * parts[1], rtol=1e-14)
    squares = sphere.distance(x[:, :3], y[:, :3]) ** 2 + (x[:, 3:] - y[:, 3:].T) ** 2
    np.testing.assert_allclose(space.distance(x, y) ** 2, squares, rtol=1e-13)
    assert ProductSpace(space, line).dim == 4


def test_heat_kernel_of_flat_space_is_the_limit_of_a_large_torus():
    points = np.random.default_rng(0).uniform(2.0, 4.0, (6, 3))
    exact = FlatTorus(dim=3, side=6.0).heat_kernel(points, points, 0.05)  # images are 4 away: e^-80
    np.testing.assert_allclose(EuclideanSpace().heat_kernel(points, points, 0.05), exact, rtol=1e-10)


def test_heat_kernel_of_the_flat_torus_is_the_sum_over_images():
    torus, t = FlatTorus(dim=2, side=1.5), 0.3
    x, y = torus.sample(4, seed=0), torus.sample(4, seed=1)
    shifts = 1.5 * np.stack(np.meshgrid(np.arange(-12, 13), np.arange(-12, 13)), axis=-1).reshape(-1, 2)
    squares = np.sum((x[:, None, None] - y[None, :, None] + shifts) ** 2, axis=-1)
    np.testing.assert_allclose(
        torus.heat_kernel(x, y, t), np.exp(-squares / (4 * t)).sum(-1) / (4 * np.pi * t), rtol=1e-12
    )


def test_flat_torus_of_many_dimensions_neither_overflows_nor_cancels():
    torus = FlatTorus(dim=60)
    kernel = torus.heat_kernel(np.zeros((1, 60)), np.full((1, 60), 0.5), 1e-3)
    # the two nearest images of each coordinate, at a distance of one half
    log_value = 60 * (np.log(2.0) - 0.25 / 4e-3 - 0.5 * np.log(4e-3 * np.pi))
    assert kernel[0, 0] == pytest.approx(np.exp(log_value), abs=1e-300)
    assert torus.heat_kernel(np.zeros((1, 60)), np.zeros((1, 60)), 1e-3)[0, 0] == pytest.approx(
        (4e-3 * np.pi) ** -30
    )


# Errors


# The interface


def test_what_has_no_closed_form_is_not_made_up():
    for space, t in ((Sphere(dim=4), 1e-7), (Sphere(dim=101), 1.0), *((surface, 0.1) for surface in SURFACES)):
        with pytest.raises((ValueError, NotImplementedError)):
            space.heat_kernel(space.grid(2), space.grid(2), t)
    for surface in SURFACES:
        with pytest.raises(NotImplementedError):
            surface.distance(surface.grid(2), surface.grid(2))
    assert np.isfinite(Sphere(dim=100).heat_kernel(Sphere(dim=100).grid(2), Sphere(dim=100).grid(2), 0.01)).all()


def test_a_density_must_match_its_grid():
    class Short(AbstractManifold):
        dim, ambient_dim, volume = 1, 1, 1.0
        _grid = _sample = staticmethod(lambda n: np.linspace(0, 1, n)[:, None])
        _density = staticmethod(lambda n: np.ones(n - 1))

    with pytest.raises(ValueError, match=r"`_density\(n\)` must be a number for each point"):
        Short().grid_weights(5)


def test_manifolds_are_frozen_values(manifold):
    assert manifold == type(manifold)(**{name: getattr(manifold, name) for name in manifold.__match_args__})
    assert hash(manifold) == hash(manifold)
    with pytest.raises(FrozenInstanceError):
        manifold.dim = 3


def test_boxes_are_declared():
    mixed = (1.0, 0.0, 0.0, 0.0, 0.0)  # only the first coordinate is periodic
    assert [m.box for m in ALL if m.box is not None] == [(1.0, 1.0), (0.5, 0.5, 0.5), mixed]
    assert all(m.dim == 2 and m.ambient_dim == 3 for m in SURFACES)
