"""Statements and numbers of the paper that do not agree with each other: the right ones, by calculation."""

import numpy as np
import pytest
from oracles import diffusion_kernel_at_nodes, relative_error

from manifoldrf import DiffusionKernel, FlatTorus, Sphere, Walks, compute_signatures, grid_graph, knn_graph

SPHERE = Sphere()
N_NODES, TAU = 4000, 20.0  # the paper's sphere
NODES = np.arange(0, N_NODES, 20)
SIGMA = 0.2  # of the grids


@pytest.fixture(scope="module")
def points():
    return SPHERE.grid(N_NODES)


@pytest.fixture(scope="module")
def graph(points):
    return knn_graph(points)


@pytest.fixture(scope="module")
def kernel(graph):
    """(N / area) exp(-20 L) between 200 nodes."""
    return diffusion_kernel_at_nodes(graph, TAU, SPHERE.volume, NODES)


def aligned_error(kernel, exact):
    """After scaling to the same norm, as in the paper."""
    return relative_error(kernel * np.linalg.norm(exact) / np.linalg.norm(kernel), exact)


def test_the_sphere_time_is_about_a_fiftieth_and_not_a_quarter(points, graph, kernel):
    """The paper compares with the analytic kernel of the sphere at t = .25, for exp(-20 L).

    The time of 20 steps is .0208 (20 times the mean squared step over 2 dim). There the exact kernel of the graph
    is .034 off the analytic one, at t = .025 it is .12, and at .25 it is .98 off: an error of .067, as in the
    paper's table, cannot be reached. A digit was lost. We compare at the calibrated time.
    """

    def error(t):
        return aligned_error(kernel, SPHERE.heat_kernel(points[NODES], points[NODES], t))

    t = graph.time(TAU, dim=2)
    assert t == pytest.approx(0.0208, abs=2e-4)
    assert error(t) < 0.05
    assert error(t) < error(0.025) < 0.2
    assert error(0.25) > 0.9


def test_twenty_is_the_diffusion_time_and_not_the_bandwidth(points, graph, kernel):
    """For the surfaces the paper sets sigma^2 = 20, the letter of its affinities exp(-|x_i - x_j|^2 / sigma^2).

    With that bandwidth all affinities of the sphere's graph are one to within 1e-3, and the number would not
    matter. As tau in exp(-tau L) it gives a kernel of the calibrated time, .036 off without any alignment. The
    bandwidth is the median of the squared distances to neighbours, .0043; we take tau = 20 and that median.
    """
    flat = knn_graph(points, bandwidth=20.0).affinity.data
    assert flat.max() - flat.min() < 1e-3
    assert flat.min() > 1 - 1e-3
    assert np.ptp(graph.affinity.data) > 0.1  # the median tells neighbours apart
    median = float(np.median(graph.lengths.data**2))
    assert 20 / median > 1000
    own_time = SPHERE.heat_kernel(points[NODES], points[NODES], graph.time(TAU, dim=2))
    assert relative_error(kernel, own_time) < 0.06  # no alignment


def test_relative_errors_of_kernels_need_a_clamp(points, global_seed):
    """The paper's sweep has mean relative errors of kernels without saying relative to what.

    Between far points of the sphere the kernel is 1e-40: divided by that, noise of the size of the paper's Fourier
    features (RMSE .0556) is astronomically large. Divided by max(|K|, 1e-3) it is about 33, the paper's figure. We
    take that clamp.
    """
    exact = SPHERE.heat_kernel(points[NODES], points[NODES], 0.025)
    noise = 0.0556 * np.random.default_rng(global_seed).standard_normal(exact.shape)
    assert exact.min() < 1e-35
    assert (np.abs(noise) / exact).mean() > 1e25
    # Fourier features are no white noise: the order of magnitude is what can be expected.
    assert (np.abs(noise) / np.maximum(exact, 1e-3)).mean() == pytest.approx(33.4, rel=0.3)


@pytest.mark.parametrize("dim", [1, 2])
def test_one_grid_constant_cannot_serve_both_limits(dim):
    """With c = (2 pi sigma^2)^{d/4} n^{d/2} the paper has psi = c phi converge to g, and <psi, psi> to K.

    The second holds. In the first a factor n^{d/2} is missing: with the paper's constant psi tends to zero
    everywhere. The sum over n^d nodes is n^d times the integral, and each psi has one half of that. We use n^{d/2}
    for inner products and n^d for values.
    """
    peaks, norms = [], []
    for side in (21, 41, 61):
        grid = grid_graph(side, dim)
        kernel = DiffusionKernel(grid.steps(SIGMA**2 / 2, dim=dim))
        phi = compute_signatures(grid, kernel, [0], teacher="exact").rows[0]
        psi = (2 * np.pi * SIGMA**2) ** (dim / 4) * side ** (dim / 2) * phi
        norms.append(psi @ psi)
        peaks.append(psi[0] * side ** (dim / 2))
    # One at distance zero, images included; what the grid adds is (h / sigma)^2 / 16 and the like.
    circle = FlatTorus(dim).heat_kernel(np.zeros((1, dim)), np.zeros((1, dim)), SIGMA**2 / 2)[0, 0]
    assert norms[-1] == pytest.approx(circle * (2 * np.pi * SIGMA**2) ** (dim / 2), rel=0.01)
    height = (2 / (np.pi * SIGMA**2)) ** (dim / 4)
    assert peaks[-1] == pytest.approx(height, rel=0.01)
    assert peaks[-1] / 61 ** (dim / 2) < 0.2 * height  # the paper's psi


def test_the_centre_of_the_cube_is_no_node_of_the_papers_grids():
    """The paper reads signatures at c = (1/2, ..., 1/2). All its n are odd, and k / n = 1/2 has no solution.

    The nearest nodes are floor(n/2) / n and its mirror image, half a cell away; at n = 5 the feature there is a
    fifth less than at c. We take node floor(n/2) of every axis, and compare with the limit around that node.
    """
    for side in range(5, 106, 10):
        coordinates = grid_graph(side, 1).points[:, 0]
        gap = np.abs(coordinates - 0.5)
        assert gap.min() == pytest.approx(0.5 / side)
        assert gap.argmin() in (side // 2, side // 2 + 1)
    assert np.exp(-((0.5 / 5) ** 2) / SIGMA**2) == pytest.approx(0.78, abs=0.01)


def test_the_limit_is_the_periodised_kernel_and_not_the_plain_gaussian():
    """The paper's targets on [0, 1]^d are the Gaussian kernel and g, though its grid wraps around.

    Its own theorem says that the limit is periodised. At sigma = .2 the two kernels differ by 2 %, far above the
    discretisation error of the finer grids. We compare with the periodised one and report both.
    """
    torus = FlatTorus(1)
    points = torus.grid(400)
    periodised = torus.heat_kernel(points, points, SIGMA**2 / 2)
    gap = np.abs(points - points.T)
    gap = np.minimum(gap, 1 - gap)
    plain = np.exp(-(gap**2) / (2 * SIGMA**2)) / np.sqrt(2 * np.pi * SIGMA**2)
    assert 0.01 < relative_error(plain, periodised) < 0.03


def test_ten_times_fewer_walks_make_the_signatures_noisier_by_the_root_of_ten(graph, global_seed):
    """The paper states 100,000 walks per start; the authors' own runs on sphere and ellipsoid have 10,000.

    Algorithm 1 is .071 off with 10,000 walks and .023 with 100,000: .005 and .0005 of the power of the signatures
    is noise. The paper's R^2 of .997 on the sphere leaves .003 unexplained, which is between the two and decides
    nothing. The default of the walks is 10,000, and the number is an option.
    """
    starts = np.arange(0, N_NODES, 500)
    exact = compute_signatures(graph, DiffusionKernel(TAU), starts, teacher="exact").rows
    noise = []
    for n_walks in (10_000, 100_000):
        found = compute_signatures(graph, DiffusionKernel(TAU), starts, teacher=Walks(n_walks), seed=global_seed)
        # Predictions for these eight starts differ by 2 % from seed to seed (six tried); errors by a little more.
        assert found.relative_stderr == pytest.approx(relative_error(found.rows.toarray(), exact), rel=0.2)
        noise.append(found.relative_stderr)
    assert noise[0] == pytest.approx(0.071, rel=0.15)
    assert noise[0] / noise[1] == pytest.approx(np.sqrt(10), rel=0.2)
    assert Walks().n_walks == 10_000


def exponential_features(at, w, a=0.0):
    """D exp(A |w|^2 + B w . x - |x|^2) for one x in units of sigma and frequencies (m, d)."""
    return (1 - 4 * a) ** (len(at) / 4) * np.exp(a * (w**2).sum(axis=1) + np.sqrt(1 - 4 * a) * w @ at - at @ at)


X, Y = np.array([0.5, -0.2, 0.3]), np.array([0.1, 0.4, -0.3])  # in units of sigma
GAUSSIAN = np.exp(-((X - Y) @ (X - Y)) / 2)


def mean_and_error(products):
    return products.mean(), products.std() / np.sqrt(len(products))


def test_positive_features_of_the_gaussian_kernel_subtract_the_whole_square(global_seed):
    """The paper's baselines PRF and PORF have no formula; the well-known one is that of the softmax kernel.

    exp(w.x/s - |x|^2/(2 s^2)) is unbiased for exp(x.y/s^2) and not for exp(-|x-y|^2/(2 s^2)), the kernel of the
    comparison. exp(w.x/s - |x|^2/s^2) is unbiased for that one, and is what our baselines use.
    """
    w = np.random.default_rng(global_seed).standard_normal((200_000, 3))
    # z = 5: false alarm below 1e-6 for a mean of 200,000 products.
    found, error = mean_and_error(exponential_features(X, w) * exponential_features(Y, w))
    assert abs(found - GAUSSIAN) < 5 * error
    softmax, error = mean_and_error(np.exp(w @ X - X @ X / 2) * np.exp(w @ Y - Y @ Y / 2))
    assert abs(softmax - np.exp(X @ Y)) < 5 * error
    assert abs(softmax - GAUSSIAN) > 20 * error


def test_the_feature_that_the_paper_rediscovers_is_bounded_and_the_positive_feature_is_not(global_seed):
    """The paper says that g leads to a known map, and compares with PRF only, which has no bound over frequencies.

    g(x, w') / sqrt(p(w')) at w' = B w sigma / 2, w ~ N(0, I), is D exp(A |w|^2 + B w.x - |x|^2), B = sqrt(1 - 4 A),
    D = (1 - 4 A)^{d/4} (GERF): positive, unbiased, for A < 0 never above D exp(|x|^2 / (4 |A|)), and of less
    variance. We have it among the baselines.
    """
    a, w = -0.2, np.random.default_rng(global_seed).standard_normal((200_000, 3))
    features = exponential_features(X, w, a)
    slope = np.sqrt(1 - 4 * a)
    anchors = slope * w / 2
    g = (2 / np.pi) ** 0.75 * np.exp(-((anchors - X) ** 2).sum(axis=1))
    density = (np.pi * slope**2 / 2) ** -1.5 * np.exp(-2 * (anchors**2).sum(axis=1) / slope**2)
    np.testing.assert_allclose(features, g / np.sqrt(density), rtol=1e-10)
    found, error = mean_and_error(features * exponential_features(Y, w, a))
    assert abs(found - GAUSSIAN) < 5 * error  # z as above
    along = np.outer(np.linspace(0, 40, 401), X / np.linalg.norm(X))  # where w.x grows fastest
    bound = (1 - 4 * a) ** 0.75 * np.exp(X @ X / (4 * abs(a)))
    bounded, unbounded = exponential_features(X, along, a), exponential_features(X, along)
    assert (bounded > 0).all()
    assert bound / 1.01 < bounded.max() <= bound
    assert unbounded.max() > 1e6 * bound
    plain = exponential_features(X, w) * exponential_features(X, w)
    assert (exponential_features(X, w, a) ** 2).std() < plain.std()
