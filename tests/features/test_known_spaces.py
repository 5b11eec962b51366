"""The kernel of features against the exact heat kernel, at new points, on an absolute scale."""

import numpy as np
import pytest
from marks import quick_ones

from benchmarks.known_spaces import SPACES, box, cylinder, ring_torus
from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error
from manifoldrf.geometry.spaces import PointNodes

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # estimated errors are tested instead


def cloud(space, n, rng, ratio=1, noise=0.0):
    points = space.embed(space.uneven(n, ratio, rng))
    return points + noise * rng.normal(size=points.shape)


def errors(space, points, rng, t=None, move=lambda x: x, **options):
    """True and estimated error of features fitted to points, between 120 new points of the space."""
    t = t or space.t
    model = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0, **options).fit(points)
    new = space.draw(120, rng)
    true = relative_error(model.kernel_matrix(move(space.embed(new))), space.kernel(new, t))
    return true, float(model.error_)


# Largest error with 4000 points (curves: 1500).
MOST = {
    **dict.fromkeys(("circle", "ellipse 2:1", "trefoil", "helix"), 0.012),
    **dict.fromkeys(("S^2", "flat torus", "Klein bottle", "prolate 1:2", "oblate 1:.5", "ring torus"), 0.012),
    **dict.fromkeys(("square", "disc", "annulus", "triangle", "octant", "cap", "cylinder", "cone frustum"), 0.03),
    **dict.fromkeys(("bowl", "catenoid", "Möbius strip"), 0.03),
    **dict.fromkeys(("S^3", "3-torus", "S^2 x S^1", "cube", "solid ball"), 0.06),
    **dict.fromkeys(("roll, gap 0.9", "roll, gap 0.245", "two layers, gap 0.141"), 0.06),
    "corrugated sheet": 0.035,  # .014 to .033 by draw: its edges bend within a window of points
}
QUICK = ["trefoil", "triangle", "Möbius strip", "cube", "roll, gap 0.245"]


@pytest.mark.parametrize("name", quick_ones(list(MOST), *QUICK))
def test_clean_clouds(name, global_seed):
    space, rng = SPACES[name], np.random.default_rng(global_seed)
    true, estimate = errors(space, cloud(space, 1500 if space.dim == 1 else 4000, rng), rng)
    assert true < MOST[name]
    most = 8 if "roll" in name else 4  # half of the points hardly show a tight roll
    assert true / 3 < estimate < most * true + 0.01


@pytest.mark.parametrize(
    ("name", "n", "ratio", "noise", "most"),
    [
        pytest.param("circle", 1500, 50, 0.0, 0.01, marks=pytest.mark.slow),
        pytest.param("S^2", 4000, 10, 0.0, 0.01, marks=pytest.mark.slow),
        ("ring torus", 4000, 50, 0.0, 0.02),
        pytest.param("square", 4000, 10, 0.0, 0.04, marks=pytest.mark.slow),
        ("circle", 1500, 1, 0.03, 0.03),
        ("S^2", 2000, 1, 0.04, 0.03),
        pytest.param("square", 2000, 1, 0.0, 0.04, marks=pytest.mark.slow),
        ("trefoil", 300, 1, 0.0, 0.02),
        ("S^2", 300, 1, 0.0, 0.04),
        pytest.param("S^2", 300, 1, 0.03, 0.08, marks=pytest.mark.slow),
        ("disc", 300, 1, 0.0, 0.1),
    ],
)
def test_uneven_noisy_and_few_points(name, n, ratio, noise, most, global_seed):
    space, rng = SPACES[name], np.random.default_rng(global_seed)
    true, estimate = errors(space, cloud(space, n, rng, ratio, noise), rng)
    assert true < most
    assert true / 3 < estimate < 4 * true + 0.02  # 300 points with noise .03: it was .40 for .011


THIN = {
    "strip": lambda a, t: box("strip", t, (2, 2 * a)),
    "cylinder": lambda a, t: cylinder("cylinder", t, 2 * a),
    "torus": lambda a, t: ring_torus("torus", t, a),
    "plate": lambda a, t: box("plate", t, (1, 1, a)),
}


@pytest.mark.parametrize(
    ("shape", "aspect", "t"),
    [
        ("torus", 0.05, 0.05),
        ("plate", 0.05, 0.05),
        *(pytest.param(shape, 0.05, 0.05, marks=pytest.mark.slow) for shape in ("strip", "cylinder")),
        *(pytest.param(shape, 0.1, 0.02, marks=pytest.mark.slow) for shape in THIN),
    ],
)
def test_narrow_directions_are_seen_or_said_to_be_unsure(shape, aspect, t, global_seed):
    """A direction narrower than the kernel must not be lost: the height of the kernel depends on it."""
    space, rng = THIN[shape](aspect, t), np.random.default_rng(global_seed)
    true, estimate = errors(space, cloud(space, 3000, rng), rng)
    assert true < (0.1 if shape != "plate" else 0.25)  # plate 1 x 1 x .05 measured .17
    assert true / 3 < estimate


@pytest.mark.slow
def test_a_large_box_ten_times_as_long_as_wide(global_seed):
    space, rng = SPACES["box 10 x 200"], np.random.default_rng(global_seed)
    assert errors(space, cloud(space, 3000, rng), rng)[0] < 0.05


def test_sparse_regions_are_not_outliers(global_seed):
    """Density 1:100: the sparse half was dropped once, and 1.4 off."""
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    true, estimate = errors(space, cloud(space, 4000, rng, ratio=100), rng)
    assert true < 0.05
    assert true / 3 < estimate


def test_an_unknown_dimension_is_an_error_of_one(global_seed):
    """60 points of a sphere are too few: they were 1.3 off, and said .3."""
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    assert errors(space, cloud(space, 60, rng), rng)[1] >= 1


def test_points_along_a_metric_know_their_error(global_seed):
    """They are nodes as they are, and half of them are compared: all of them said 0 for .03."""
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    true, estimate = errors(space, cloud(space, 500, rng), rng, graph=HeatGraph(metric=Sphere()))
    assert true < 0.1
    assert true / 3 < estimate < 4 * true


def test_outliers_are_left_out(global_seed):
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    points = cloud(space, 2000, rng, noise=0.03)
    far = rng.uniform(-1.4, 1.4, size=(100, 3))
    with pytest.warns(UserWarning, match="left out as outliers"):
        true, estimate = errors(space, np.vstack([points, far]), rng)
    assert true < 0.05
    assert true / 3 < estimate


@pytest.mark.parametrize("copies", quick_ones([2, 10], 10))
def test_repeated_measurements_with_jitter(copies, global_seed):
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    places = np.repeat(cloud(space, 600, rng), copies, axis=0)
    true, estimate = errors(space, places + 1e-3 * rng.normal(size=places.shape), rng)
    assert true < 0.01
    assert true / 3 < estimate < 5 * true + 0.02


def test_clumps_among_single_points(global_seed):
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    points = cloud(space, 2000, rng)
    clumps = np.repeat(points[:10], 200, axis=0) + 1e-3 * rng.normal(size=(2000, 3))
    assert errors(space, np.vstack([points, clumps]), rng)[0] < 0.01


@pytest.mark.parametrize(
    ("radius", "n", "most"), [pytest.param(3.0, 500, 0.03, marks=pytest.mark.slow), (0.3, 300, 0.05)]
)
def test_two_parts_of_different_size(radius, n, most, global_seed):
    """Neither is dropped."""
    t, rng = 0.05, np.random.default_rng(global_seed)
    parts = Sphere(), Sphere(radius=radius)
    offset = np.array([[0.0] * 3, [2 + 2 * radius, 0.0, 0.0]])
    points = np.vstack(
        [part.sample(m, seed=rng) + at for part, m, at in zip(parts, (2000, n), offset, strict=True)]
    )
    model = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0).fit(points)
    new = [part.sample(150, seed=rng) for part in parts]
    exact = np.zeros((300, 300))
    for k, part in enumerate(parts):
        here = slice(150 * k, 150 * (k + 1))
        exact[here, here] = part.heat_kernel(new[k], new[k], t)
    true = relative_error(model.kernel_matrix(np.vstack([new[0], new[1] + offset[1]])), exact)
    assert true < most
    assert true / 3 < float(model.error_)


@pytest.mark.slow
def test_a_sphere_among_784_coordinates_costs_no_more(global_seed):
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    frame = np.linalg.qr(rng.normal(size=(784, 3)))[0].T
    points = cloud(space, 2000, rng)
    plain = ManifoldRandomFeatures(HeatKernel(0.05), random_state=0).fit(points)
    turned = ManifoldRandomFeatures(HeatKernel(0.05), random_state=0).fit(points @ frame)
    assert turned.graph_.extension.nodes.inner.shape[1] == 3
    assert relative_error(turned.kernel_matrix(points[:200] @ frame), plain.kernel_matrix(points[:200])) < 0.01


@pytest.mark.slow
def test_many_coordinates_with_noise(global_seed):
    space, rng = SPACES["S^2"], np.random.default_rng(global_seed)
    frame = np.linalg.qr(rng.normal(size=(30, 3)))[0].T
    points = cloud(space, 2000, rng) @ frame + 0.02 * rng.normal(size=(2000, 30))
    assert errors(space, points, rng, move=lambda x: x @ frame)[0] < 0.04


def test_a_curve_of_normal_numbers_keeps_all_its_points():
    """(a, a^2, a^3) for normal a: a sixth of the points was dropped once, and their features were zero."""
    a = np.random.default_rng(0).normal(size=2000)
    points = np.column_stack([a, a**2, a**3])
    model = ManifoldRandomFeatures(random_state=0).fit(points)
    assert (model.transform(points) > 0).any(axis=1).mean() > 0.995


@pytest.mark.slow
def test_fewer_nodes_can_be_asked_for(global_seed):
    space, rng = SPACES["cube"], np.random.default_rng(global_seed)
    few, _ = errors(space, cloud(space, 20_000, rng), rng, t=0.1, graph=HeatGraph(n_nodes=700))
    assert few < 0.06
    assert errors(space, cloud(space, 20_000, rng), rng, t=0.1)[0] < 0.06


def test_noisy_points_that_are_nodes_have_features(global_seed):
    """Three noisy lines in many coordinates branch, so that no nodes are laid out."""
    rng = np.random.default_rng(global_seed)
    angles = np.repeat(2 * np.pi / 3 * np.arange(3), 250)
    flat = rng.random(750)[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    points = flat @ np.linalg.qr(rng.normal(size=(30, 2)))[0].T + 0.03 * rng.normal(size=(750, 30))
    model = ManifoldRandomFeatures(random_state=0).fit(points)
    assert isinstance(model.graph_.extension.nodes, PointNodes)
    assert model.transform(points).any(axis=1).mean() > 0.99
