"""Clouds as people bring them: dimension, noise, outliers and layers, against what they were made with."""

from dataclasses import replace

import numpy as np
import pytest
from marks import quick_ones
from sklearn.datasets import make_moons, make_swiss_roll

from manifoldrf import (
    GraphWarning,
    MobiusStrip,
    PowerKernel,
    Sphere,
    Torus,
    clean_cloud,
    estimate_dimension,
    heat_graph,
    knn_graph,
)
from manifoldrf.geometry import clouds, local_surface
from manifoldrf.geometry.local_surface import (
    LocalSurface,
    blend_patches,
    fit_patches,
    into_axes,
    patch_offsets,
    quadratic_terms,
)
from manifoldrf.geometry.neighbors import NeighborSearch


def noisy(points, sigma, n_axes=None, seed=0):
    """Points in a random subspace of R^n_axes, with noise in each coordinate; and the isometry."""
    rng = np.random.default_rng(seed)
    n_axes = n_axes or points.shape[1]
    frame = np.linalg.qr(rng.normal(size=(n_axes, n_axes)))[0][:, : points.shape[1]]
    return points @ frame.T + sigma * rng.normal(size=(len(points), n_axes)), frame


def roll(n, gap, length=6.0, height=2.0, seed=0):
    """A flat sheet, rolled up: positions along the sheet, and in space."""
    rng = np.random.default_rng(seed)
    along, across = rng.uniform(0, length, n), rng.uniform(0, height, n)
    turn = np.linspace(2 * np.pi, 60.0, 100_000)
    radius = gap / (2 * np.pi)
    arc = radius / 2 * (turn * np.sqrt(1 + turn**2) + np.arcsinh(turn))
    angle = np.interp(along, arc - arc[0], turn)
    return along, across, np.column_stack([radius * angle * np.cos(angle), radius * angle * np.sin(angle), across])


CASES = {
    "circle in R^2": (Sphere(dim=1), 0.05, None, 1),
    "sphere in R^3": (Sphere(), 0.03, None, 2),
    "sphere in R^3, more noise": (Sphere(), 0.06, None, 2),
    "sphere in R^50": (Sphere(), 0.03, 50, 2),
    "torus in R^3": (Torus(), 0.05, None, 2),
    "three-sphere in R^20": (Sphere(dim=3), 0.025, 20, 3),
}


@pytest.mark.parametrize("name", quick_ones(CASES, "circle in R^2", "sphere in R^3", "three-sphere in R^20"))
def test_dimension_and_noise_are_found(name, global_seed):
    manifold, sigma, n_axes, dim = CASES[name]
    points, _ = noisy(manifold.sample(3000, seed=global_seed), sigma, n_axes, global_seed)
    cloud = clean_cloud(points, 0.3)
    assert cloud.structured
    assert cloud.dim == dim == estimate_dimension(points, scale=0.3)
    # Patches follow a part of the noise: with three neighbours per coefficient, a sixth of its variance and more.
    assert 0.8 * sigma < cloud.noise < 1.1 * sigma
    assert cloud.n_outliers == 0


@pytest.mark.parametrize(("sigma", "n_axes"), [(0.03, 3), (0.01, 50)])
def test_the_growth_of_pairs_follows_the_formula(sigma, n_axes):
    points, _ = noisy(Sphere().sample(4000, seed=0), sigma, n_axes)
    curve = clouds._scale_curve(NeighborSearch(points), 0.1)
    x = 4 * sigma**2 / curve.scales**2
    # Curvature lowers the growth by s^2 / 4 on the unit sphere: exp(-chord^2 / s^2) integrates to 1 - e^(-4 / s^2).
    expected = 2 + (n_axes - 2) * x / (1 + x)
    small = curve.scales**2 < 0.05
    assert np.abs(curve.growth - expected)[small].max() < 0.1


@pytest.mark.parametrize(
    "points",
    [
        Sphere().sample(1000, seed=1),
        Sphere().grid(1000),
        Sphere(dim=4).sample(3000, seed=1),
        Torus().sample(1000, seed=1),
        MobiusStrip().sample(1000, seed=1),
        MobiusStrip().grid(1000),
        np.random.default_rng(0).normal(size=(2000, 3)),
        make_swiss_roll(2000, random_state=0)[0],
        make_moons(1000, random_state=0)[0],
        np.random.default_rng(0).uniform(size=(3000, 2)) * [8.0, 1.0],
    ],
    ids=["sphere", "even sphere", "S^4", "torus", "strip", "even strip", "Gaussian", "roll", "moons", "rectangle"],
)
def test_clean_clouds_are_left_as_they_are(points):
    cloud = clean_cloud(points, 0.05 * np.linalg.norm(np.ptp(points, axis=0)))
    assert cloud.surface is None
    assert cloud.noise == 0
    assert np.array_equal(cloud.points, points)
    assert cloud.dim == estimate_dimension(points)
    assert np.array_equal(cloud.project(points[:5]), points[:5])


@pytest.mark.parametrize(("sigma", "n_axes"), [(0.03, 3), (0.06, 3), (0.03, 50)])
def test_points_and_queries_are_moved_onto_the_sphere(sigma, n_axes):
    sphere = Sphere()
    points, frame = noisy(sphere.sample(4000, seed=0), sigma, n_axes)
    cloud = clean_cloud(points, 0.3)
    queries = sphere.sample(500, seed=1) @ frame.T + sigma * np.random.default_rng(2).normal(size=(500, n_axes))
    for moved in (cloud.points, cloud.project(queries)):
        off = np.linalg.norm(moved - (moved @ frame) @ frame.T, axis=1)
        along = np.abs(np.linalg.norm(moved @ frame, axis=1) - 1)
        # About 35 effective neighbours carry the mean of a patch, and 8 patches are blended.
        assert np.hypot(off, along).mean() < sigma / 3


def test_the_projection_is_continuous_and_moves_rows_one_by_one():
    points, _ = noisy(Sphere().sample(3000, seed=0), 0.04)
    cloud = clean_cloud(points, 0.3, n_jobs=1)
    queries = points[:200]
    moved = cloud.project(queries)
    assert np.array_equal(moved, clean_cloud(points, 0.3, n_jobs=3).project(queries, n_jobs=2))
    assert np.array_equal(moved[7:8], cloud.project(queries[7:8]))
    step = np.random.default_rng(1).normal(size=queries.shape)
    for size in (1e-2, 1e-4, 1e-6):
        change = np.linalg.norm(cloud.project(queries + size * step) - moved, axis=1)
        assert (change < 2 * size * np.linalg.norm(step, axis=1)).all()


def test_patches_reproduce_a_plane_and_nearly_a_quadric():
    rng = np.random.default_rng(0)
    flat = rng.uniform(-1, 1, size=(800, 2))
    tilted = flat @ np.linalg.qr(rng.normal(size=(5, 2)))[0].T
    search = NeighborSearch(tilted)
    inside = np.abs(flat).max(axis=1) < 0.7
    patches = fit_patches(search, tilted, tilted[inside], 2, 0.02)
    assert np.abs(patch_offsets(patches, tilted[inside])).max() < 1e-9
    bowl = np.column_stack([flat, (flat**2).sum(axis=1)])
    patches = fit_patches(NeighborSearch(bowl), bowl, bowl[inside], 2, 0.02)
    # In tangent coordinates a bowl has terms of the third order: h^3 = .0028 within a bandwidth of the centre.
    assert np.abs(patch_offsets(patches, bowl[inside])).max() < 0.02**1.5


def test_compiled_loops_agree_with_numpy():
    rng = np.random.default_rng(0)
    m, r, dim, n_axes, q = 6, 4, 2, 5, 3
    axes = np.linalg.qr(rng.normal(size=(n_axes, r)))[0]
    origin, queries = rng.normal(size=n_axes), rng.normal(size=(q, n_axes))
    inside = np.zeros((q, r))
    into_axes.py_func(queries, origin, axes, inside, (0, q))
    assert np.allclose(inside, (queries - origin) @ axes)
    means, widths = rng.normal(size=(m, r)), rng.uniform(1, 2, size=m)
    frames = np.linalg.qr(rng.normal(size=(m, r, dim)))[0]
    bends = rng.normal(size=(m, 6, r))
    near = np.array([[0, 1, 2], [3, 4, 5], [5, 1, 0]])
    distances = np.sort(rng.uniform(1, 2, size=(q, 3)), axis=1)
    expected, out = np.zeros((q, n_axes)), np.zeros((q, n_axes))
    for i in range(q):
        gaps = distances[i] ** 2 - distances[i, 0] ** 2
        shares = (1 - gaps / gaps[-1]) ** 2
        for share, j in zip(shares / shares.sum(), near[i], strict=True):
            along = frames[j].T @ (inside[i] - means[j])
            bent = quadratic_terms(np.clip(along / widths[j], -3, 3)) @ bends[j]
            expected[i] += share * (axes @ (means[j] + frames[j] @ along + bent))
        expected[i] += origin
    blend_patches.py_func((inside, near, distances), (means, frames, bends, widths), (origin, axes), out, (0, q))
    assert np.allclose(out, expected)


@pytest.mark.parametrize("sigma", [0.0, 0.03])
@pytest.mark.parametrize("share", quick_ones([0.02, 0.05], 0.05))
def test_outliers_are_found_and_points_of_the_sphere_are_kept(sigma, share):
    points, _ = noisy(Sphere().sample(4000, seed=0), sigma)
    strangers = np.random.default_rng(3).uniform(-1.3, 1.3, size=(int(share * 4000), 3))
    cloud = clean_cloud(np.vstack([points, strangers]), 0.3)
    dropped = np.setdiff1d(np.arange(cloud.n_given), cloud.kept)
    assert len(dropped) == cloud.n_outliers
    # A strangers' distance to the sphere is uniform up to about .3 and more; those within five sigma may stay.
    distance = np.abs(np.linalg.norm(strangers, axis=1) - 1)
    far = 4000 + np.flatnonzero(distance > 0.05 + 5 * sigma)
    assert len(np.setdiff1d(far, dropped)) <= 0.05 * len(far)  # some outliers support each other
    assert np.count_nonzero(dropped < 4000) <= 4  # one in 100,000 by chance, and those next to outliers


def test_outliers_that_are_neighbours_of_each_other_are_no_surface():
    points, frame = noisy(Sphere().sample(3000, seed=1), 0.03, seed=1)
    strangers = np.random.default_rng(1).uniform(-1.1, 1.1, size=(150, 3))
    cloud = clean_cloud(np.vstack([points, strangers]), 0.3)
    assert np.abs(np.linalg.norm(cloud.points @ frame, axis=1) - 1).max() < 0.15  # five deviations of the noise


def test_patches_are_as_wide_as_points_that_are_left_out_allow(monkeypatch):
    angles = 2 * np.pi * np.random.default_rng(0).random((2000, 2))
    flat = np.stack([np.cos(angles), np.sin(angles)], axis=2) * [[1], [0.5]]
    points, frame = noisy(flat.reshape(-1, 4), 0.025)

    def off(cloud):
        inside = (cloud.points @ frame).reshape(-1, 2, 2)
        return np.linalg.norm(np.linalg.norm(inside, axis=2) - [1, 0.5]) / np.sqrt(len(inside))

    wide = off(clean_cloud(points, 0.25))
    search = NeighborSearch(points)
    h2 = clouds._widened(search, 2, 0.02)
    assert clouds._left_out_distance(search, 2, h2) <= min(
        clouds._left_out_distance(search, 2, other) for other in (0.02, h2 / 2)
    )
    monkeypatch.setattr(clouds, "_WIDENINGS", 0)
    assert wide < 0.9 * off(clean_cloud(points, 0.25))


def test_few_edge_places_are_no_edge(monkeypatch):
    points, _ = noisy(Sphere().sample(1500, seed=0), 0.06)
    places = Sphere().sample(25, seed=2)
    found = []
    for n in (19, 20):
        monkeypatch.setattr(clouds.BoundaryModel, "edge_places", lambda _, n=n: (places[:n], places[:n]))
        found.append(clean_cloud(points, 0.3).surface.edge)
    assert found[0] is None
    assert len(found[1].points) == 20


def test_layers_are_cut_and_counted():
    along, across, points = roll(2000, 0.35)
    graph = heat_graph(points, 0.05, dim=2)
    first, second = graph.affinity.nonzero()
    length = np.hypot(along[first] - along[second], across[first] - across[second])
    straight = np.linalg.norm(points[first] - points[second], axis=1)
    # One turn is at least 2 gap long; steps along the sheet are longer than straight lines by less than half.
    assert (length > 2 * straight + 0.2).sum() == 0
    assert graph.extension.surface.n_cut > 100
    # Queries step along the layer of the nodes next to them.
    new_along, new_across, queries = roll(200, 0.35, seed=1)
    rows, columns = graph.extend(queries).nonzero()
    assert np.hypot(new_along[rows] - along[columns], new_across[rows] - across[columns]).max() < 1.2


def test_parallel_sheets_are_layers_and_clumps_are_not():
    rng = np.random.default_rng(0)
    flat = rng.uniform(size=(2000, 2)) * 2
    two = np.column_stack([flat, np.where(np.arange(2000) % 2, 0.0, 0.3)])
    with pytest.warns(GraphWarning, match="2 pieces"):
        assert heat_graph(two, 0.03, dim=2).n_components == 2
    copies = np.repeat(Sphere().sample(150, seed=0), 14, axis=0)
    with pytest.warns(GraphWarning, match="coincide"):
        assert heat_graph(copies, 0.1, dim=2, noise=0).n_components == 1


def test_one_far_point_does_not_lengthen_all_paths():
    points = np.vstack([roll(1500, 0.35)[2], [[50.0, 0.0, 0.0]]])
    search = NeighborSearch(points)
    sheets = clouds.find_sheets(search, 0.1, 0.8)
    assert sheets.spacing.max() <= 4 * np.median(sheets.spacing)


def test_copies_of_points_do_not_hide_noise():
    points, _ = noisy(Sphere().sample(1500, seed=0), 0.05)
    assert clean_cloud(np.repeat(points, 3, axis=0), 0.3).noise > 0.04


@pytest.mark.parametrize("apart", [0.0, 1e-12])
def test_copies_are_merged(apart):
    points = Sphere().sample(400, seed=0)
    rng = np.random.default_rng(0)
    order = rng.permutation(2000)
    many = np.repeat(points, 5, axis=0) + apart * rng.normal(size=(2000, 3))
    cloud = clean_cloud(many[order], 0.4)
    assert (cloud.dim, cloud.n_merged, cloud.n_outliers) == (2, 1600, 0)
    assert np.array_equal(cloud.points, many[order][cloud.kept])
    assert len(np.unique(order[cloud.kept] // 5)) == 400


def rings(n_lines, n, *, sphere=True):
    """Lines around a sphere or a cylinder of height 2, evenly spaced."""
    turn, height = np.linspace(0, 2 * np.pi, n, endpoint=False), (np.arange(n_lines) + 0.5) / n_lines
    down = np.pi * height[:, None]
    radius, height = (np.sin(down), np.cos(down)) if sphere else (np.ones_like(down), 2 * height[:, None])
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), height + 0 * turn], axis=2).reshape(-1, 3)


@pytest.mark.parametrize("sigma", [0.0, 0.01])
@pytest.mark.parametrize("t", [0.03, 0.1])
def test_scan_lines_are_joined_to_a_surface(sigma, t):
    points, _ = noisy(rings(15, 200), sigma)
    spacing = 2 * np.sin(np.pi / 30)
    with pytest.warns(GraphWarning, match=r"points lie on lines 0\.\d+ apart"):
        graph = heat_graph(points, t)
    cloud = clean_cloud(points, np.sqrt(2 * t))
    assert cloud.dim == 2
    assert cloud.line_spacing == pytest.approx(spacing, rel=0.1)
    assert cloud.n_outliers == 0
    found = PowerKernel(graph.n_steps).matrix(graph)
    roots = np.sqrt(graph.weights)
    on_sphere = graph.points / np.linalg.norm(graph.points, axis=1, keepdims=True)
    exact = Sphere().heat_kernel(on_sphere, on_sphere, t)
    volumes = roots[:, None] * roots
    # Random nodes of the same number are off by .03 (.05 with noise, which no neighbour reduces here).
    assert np.linalg.norm(found - exact * volumes) < 0.05 * np.linalg.norm(exact * volumes)


def test_lines_too_far_apart_for_a_kernel_are_named():
    points = rings(15, 200, sphere=False)
    with pytest.warns(UserWarning, match=r"15 lines about 0\.13 apart, and the kernel is only 0\.1 wide") as caught:
        cloud = clean_cloud(points, 0.1)
    assert (cloud.dim, cloud.n_merged) == (1, 0)
    assert "heat time of at least 0.0089" in str(caught[0].message)
    assert clean_cloud(points, 0.1, dim=1).n_merged == 0


@pytest.mark.parametrize("step", [0.05, 0.1])
def test_points_rounded_to_a_grid_lie_on_the_sphere_again(step):
    cloud = clean_cloud(step * np.round(Sphere().sample(3000, seed=0) / step), 0.3)
    assert cloud.dim == 2
    # Rounding moves points by step / sqrt(12) in each coordinate.
    assert np.abs(np.linalg.norm(cloud.points, axis=1) - 1).mean() < step / np.sqrt(12) / 3


def strands(rng):
    """Random walks at random places."""
    starts = rng.uniform(-3, 3, size=(15, 1, 3))
    return (starts + np.cumsum(0.05 * rng.normal(size=(15, 200, 3)), axis=1)).reshape(-1, 3)


def clusters_and_one_point(rng):
    """Eight small clusters and a point far from all."""
    middles = np.repeat(rng.normal(size=(8, 3)), 24, axis=0)
    return np.vstack([middles + 0.02 * rng.normal(size=middles.shape), [[50.0, 50.0, 50.0]]])


@pytest.mark.parametrize(
    "points",
    [
        np.column_stack([(np.arange(20)[:, None] + np.linspace(0, 0.5, 50)).ravel(), np.zeros((1000, 2))]),
        np.random.default_rng(0).normal(size=(1500, 3)) + np.repeat(np.arange(10), 150)[:, None] * [5.0, 0.0, 0.0],
        strands(np.random.default_rng(0)),
        clusters_and_one_point(np.random.default_rng(0)),
        np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), axis=2).reshape(-1, 2),
    ],
    ids=["dashes", "clumps", "strands", "clusters", "lattice"],
)
def test_other_pieces_are_no_scan_lines(points):
    assert clean_cloud(points).n_merged == 0


def test_noise_across_an_edge_is_removed():
    rng = np.random.default_rng(0)
    sigma = 0.03
    flat = np.column_stack([rng.uniform(size=(4000, 2)) * [2.0, 1.0], np.zeros(4000)])
    points = flat + sigma * rng.normal(size=flat.shape)
    cloud = clean_cloud(points, 0.15)
    beyond = np.maximum(np.abs(cloud.points[:, :2] - [1.0, 0.5]) - [1.0, 0.5], 0.0).max(axis=1)
    before = np.maximum(np.abs(points[:, :2] - [1.0, 0.5]) - [1.0, 0.5], 0.0).max(axis=1)
    # A point next to an edge is beyond it by .4 sigma on average; the edge is found to about half of sigma.
    assert before.max() > 2 * sigma
    assert np.quantile(beyond, 0.999) < 0.8 * sigma
    assert beyond.mean() < before.mean() / 2
    assert np.array_equal(cloud.project(points[cloud.kept]), cloud.points)
    step = 1e-5 * rng.normal(size=points.shape)
    moved = np.linalg.norm(cloud.project(points + step) - cloud.project(points), axis=1)
    assert (moved < 20 * np.linalg.norm(step, axis=1)).all()


def test_chunks_do_not_change_places_at_an_edge(monkeypatch):
    rng = np.random.default_rng(0)
    flat = np.column_stack([rng.uniform(size=(2000, 2)) * [2.0, 1.0], np.zeros(2000)])
    points = flat + 0.03 * rng.normal(size=flat.shape)
    cloud = clean_cloud(points, 0.15)
    assert cloud.surface.edge is not None
    whole, sizes = cloud.project(points), []
    within = LocalSurface.within_edge
    monkeypatch.setattr(LocalSurface, "within_edge", lambda *args: sizes.append(len(args[1])) or within(*args))
    monkeypatch.setattr(local_surface, "_QUERIES_AT_ONCE", 7)
    assert np.array_equal(cloud.project(points), whole)
    assert max(sizes) == 7


def test_a_query_where_all_edge_places_coincide_stays():
    edge, normals = NeighborSearch(np.zeros((9, 3))), np.tile([1.0, 0.0, 0.0], (9, 1))
    surface = LocalSurface(*[None] * 7, noise=0.3, edge=edge, normals=normals)
    assert not surface.within_edge(np.zeros((2, 3))).any()


def test_a_strip_wider_than_the_kernel_is_not_a_noisy_line():
    strip = np.random.default_rng(0).uniform(size=(1000, 2)) * [8.0, 1.0]
    cloud = clean_cloud(strip, 0.4)
    assert (cloud.dim, cloud.noise) == (2, 0.0)


def test_a_damaged_surface_is_refused():
    points, _ = noisy(Sphere().sample(1000, seed=0), 0.05)
    surface = clean_cloud(points, 0.3).surface
    surface.check(3)
    for name, value in (
        ("axes", 1e200 * surface.axes),
        ("bends", np.nan * surface.bends),
        ("means", surface.means[1:]),
    ):
        with pytest.raises(ValueError, match=r"`\w+` must be"):
            replace(surface, **{name: value}).check(3)


def test_sheets_far_apart_are_not_searched_for_layers():
    points = roll(2000, 0.9)[2]
    assert heat_graph(points, 0.03, dim=2).extension.surface is None


def test_the_unit_of_length_changes_nothing():
    points, _ = noisy(Sphere().sample(1500, seed=0), 0.05)
    cloud = clean_cloud(points, 0.3)
    for unit in (1e-6, 1e6):
        other = clean_cloud(unit * points, 0.3 * unit)
        assert other.dim == cloud.dim
        assert np.allclose(other.points, unit * cloud.points, rtol=0, atol=1e-9 * unit)


def test_knn_graphs_remove_noise_only_if_asked():
    points, _ = noisy(Sphere().sample(1500, seed=0), 0.05)
    assert np.array_equal(knn_graph(points).points, points)
    graph = knn_graph(points, noise="auto")
    assert np.abs(np.linalg.norm(graph.points, axis=1) - 1).mean() < 0.02
    assert graph.projection is not None


def test_given_noise_and_dimension_are_used():
    points, _ = noisy(Sphere().sample(1500, seed=0), 0.05)
    cloud = clean_cloud(points, 0.3, noise=0.05, dim=2)
    assert (cloud.noise, cloud.dim) == (0.05, 2)
    assert np.array_equal(clean_cloud(points, 0.3, noise=0).points, points)


def test_degenerate_clouds_give_finite_results():
    rng = np.random.default_rng(0)
    line = rng.uniform(size=1000)[:, None] * [1.0, 2.0, 3.0]
    assert clean_cloud(line, 0.1).dim == 1
    flat = np.column_stack([rng.uniform(size=(1000, 2)), np.full(1000, 7.0)])
    assert clean_cloud(flat, 0.1).dim == 2
    copies = np.repeat(Sphere().sample(300, seed=0), 4, axis=0)
    assert np.isfinite(clean_cloud(copies, 0.3).points).all()
    assert clean_cloud(np.zeros((1000, 3)), 0.3).dim == 1
    storm, _ = noisy(Sphere().sample(1000, seed=0), 1.0)
    assert np.isfinite(clean_cloud(storm, 0.3).points).all()


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"noise": "some"}, ValueError, r"`noise` must be 'auto' or a number in \[0, inf\)\. Got 'some'\."),
        ({"noise": -1.0}, ValueError, r"`noise` must be .*\[0, inf\)\. Got -1\.0\."),
        ({"noise": np.nan}, ValueError, r"`noise` must be"),
        ({"scale": 0.0}, ValueError, r"`scale` must be .*\(0, inf\)\. Got 0\.0\."),
        ({"noise": 9.0}, ValueError, r"`noise` must be at most the spread of the points, 0\.\d+\. Got 9\.0\."),
        ({"dim": 4}, ValueError, r"`dim` must be .*\[1, 3\]\. Got 4\."),
    ],
)
def test_bad_input_names_argument_rule_and_value(options, error, match):
    with pytest.raises(error, match=match):
        clean_cloud(Sphere().sample(100, seed=0), **options)


def test_noise_is_refused_where_it_has_no_effect():
    points = Sphere().grid(500)
    with pytest.raises(ValueError, match=r"`noise` must be 'auto' or 0 .* with weights or a metric\. Got 0\.1\."):
        heat_graph(points, 0.1, metric=Sphere(), noise=0.1)
    with pytest.raises(ValueError, match=r"`noise` must be 0 for prepared clouds .*\. Got 0\.1\."):
        knn_graph(points, metric=Sphere(), noise=0.1)
    with pytest.raises(ValueError, match=r"`scale` must be None with a metric"):
        estimate_dimension(points, scale=0.1, metric=Sphere())


def test_noise_that_cannot_be_removed_is_reported():
    with pytest.warns(
        UserWarning, match=r"^The noise of 0\.1 was not removed\. Causes: \(a\) fewer than 500 points"
    ):
        assert clean_cloud(Sphere().sample(100, seed=0), noise=0.1).surface is None


def test_a_heat_graph_tells_of_outliers():
    points = np.vstack([Sphere().sample(1500, seed=0), [[3.0, 3.0, 3.0]]])
    with pytest.warns(GraphWarning, match=r"^1 of 1501 points are outliers .*noise=0 to keep them"):
        assert heat_graph(points, 0.1).n_nodes == 1500
