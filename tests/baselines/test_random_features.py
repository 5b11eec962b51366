"""Random features of the Gaussian kernel: unbiased, at the rate of Monte Carlo, positive and bounded."""

import numpy as np
import pytest
from scipy import special, stats

from manifoldrf import FeatureWarning
from manifoldrf.baselines import GERF, ORF, PORF, PRF, RFF, GaussianFeatures
from manifoldrf.baselines.random_features import best_exponent, grid_shape

DIM, SIGMA = 3, 0.8
X = np.random.default_rng(0).uniform(-0.6, 0.6, size=(40, DIM)) + 0.3
LEFT, RIGHT = X[:6], X[6:12]  # six pairs
EXACT = np.exp(-((LEFT - RIGHT) ** 2).sum(axis=1) / (2 * SIGMA**2))

RANDOM = {
    "RFF": RFF,
    "ORF": ORF,
    "PRF": PRF,
    "PRF, not centred": lambda **more: PRF(center=False, **more),
    "PORF": PORF,
    "GERF": GERF,
    "GERF, orthogonal": lambda **more: GERF(orthogonal=True, **more),
    "GaussianFeatures": lambda **more: GaussianFeatures(anchors="uniform", **more),
}
ORTHOGONAL = {name: RANDOM[name] for name in ("ORF", "PORF", "GERF, orthogonal")}
POSITIVE = {name: make for name, make in RANDOM.items() if name not in ("RFF", "ORF")}


def estimates(make, n_features, seeds, left=LEFT, right=RIGHT, data=X, sigma=SIGMA):
    """Kernel values of the pairs, one row for each seed."""
    rows = []
    for seed in seeds:
        features = make(n_features=n_features, sigma=sigma, random_state=seed).fit(data)
        both = features._rows(np.concatenate([left, right]))  # transform without its checks
        rows.append((both[: len(left)] * both[len(left) :]).sum(axis=1))
    return np.array(rows)


@pytest.mark.parametrize("name", RANDOM)
def test_estimates_are_unbiased(name, global_seed):
    """The mean of 300 replicas is within its standard error times z of the kernel, at six pairs."""
    found = estimates(RANDOM[name], 48, 300 * global_seed + np.arange(300))
    z = (found.mean(axis=0) - EXACT) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    # Student's t with 299 degrees of freedom; false alarms in one of 10,000 runs, shared by the six pairs.
    assert np.abs(z).max() < stats.t.isf(1e-4 / (2 * len(EXACT)), len(found) - 1)


# Not centred, squared errors of PRF have no useful standard error: single ones outweigh all others.
@pytest.mark.parametrize("name", [name for name in RANDOM if name != "PRF, not centred"])
def test_errors_fall_with_the_root_of_the_number_of_features(name, global_seed):
    sizes = np.array([24, 96, 384, 1536])
    seeds = 40 * global_seed + np.arange(40)
    errors = [np.sqrt(((estimates(RANDOM[name], int(m), seeds) - EXACT) ** 2).mean()) for m in sizes]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    # Each error is known to 11 % if the six pairs are worth one (40 replicas), the slope then to .036; 5 of these.
    assert abs(slope + 0.5) < 0.18


@pytest.mark.parametrize("name", ORTHOGONAL)
@pytest.mark.parametrize("dim", [1, 3, 16])
def test_frequencies_are_orthogonal_in_blocks(name, dim):
    data = np.random.default_rng(0).standard_normal((5, dim))
    frequencies = ORTHOGONAL[name](n_features=150, random_state=0).fit(data).frequencies_
    for start in range(0, len(frequencies), dim):
        block = frequencies[start : start + dim]
        units = block / np.linalg.norm(block, axis=1, keepdims=True)
        np.testing.assert_allclose(units @ units.T, np.eye(len(block)), atol=1e-14)  # rounding of dim products


def test_lengths_and_directions_of_orthogonal_frequencies_are_those_of_gaussians(global_seed):
    """Lengths are chi distributed, the j-th coordinate of the j-th vector of a block is normal: signs are free."""
    dim, n_blocks = 5, 400
    data = np.zeros((2, dim))
    frequencies = ORF(n_features=2 * dim * n_blocks, random_state=global_seed).fit(data).frequencies_
    # Kolmogorov and Smirnov, six tests; false alarms in one of 10,000 runs together.
    level = 1e-4 / (dim + 1)
    assert stats.kstest(np.linalg.norm(frequencies, axis=1), stats.chi(dim).cdf).pvalue > level
    blocks = frequencies.reshape(n_blocks, dim, dim)
    for j in range(dim):
        assert stats.kstest(blocks[:, j, j], "norm").pvalue > level


def mean_square_errors(make, seeds, **settings):
    """Mean over the pairs for each seed."""
    left, right, data = settings["left"], settings["right"], settings["data"]
    exact = np.exp(-((left - right) ** 2).sum(axis=1) / 2)
    found = estimates(make, settings["n_features"], seeds, left, right, data, 1.0)
    return ((found - exact) ** 2).mean(axis=1)


def assert_smaller(first, second):
    """Squared errors of the first tend to be smaller, by ranks: single errors of PRF outweigh all others.

    Were they alike, one run in 10,000 would say so all the same.
    """
    assert stats.mannwhitneyu(first, second, alternative="less").pvalue < 1e-4


# Cosines gain a factor 4 here; exponentials 15 %, which takes more replicas to see.
@pytest.mark.parametrize(
    ("better", "worse", "replicas"), [(ORF, RFF, 300), pytest.param(PORF, PRF, 3000, marks=pytest.mark.slow)]
)
def test_orthogonal_frequencies_lower_the_variance(better, worse, replicas, global_seed):
    rng = np.random.default_rng(1)
    data = 0.25 * rng.standard_normal((20, 8))
    pairs = {"left": data[:10], "right": data[10:], "data": data, "n_features": 16}
    seeds = replicas * global_seed + np.arange(replicas)
    first, second = mean_square_errors(better, seeds, **pairs), mean_square_errors(worse, 10**6 + seeds, **pairs)
    spread = np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / len(seeds))
    # Were the variances alike, one run in 10,000 would pass.
    assert (second.mean() - first.mean()) / spread > stats.norm.isf(1e-4)


def test_the_chosen_exponent_lowers_the_variance(global_seed):
    rng = np.random.default_rng(1)
    data = 0.7 * rng.standard_normal((20, 4))
    pairs = {"left": data[:10], "right": data[10:], "data": data, "n_features": 64}
    seeds = 200 * global_seed + np.arange(200)
    assert_smaller(mean_square_errors(GERF, seeds, **pairs), mean_square_errors(PRF, 10**6 + seeds, **pairs))


def test_centring_lowers_the_variance(global_seed):
    data = 0.3 * np.random.default_rng(1).standard_normal((20, 3)) + 1.0
    pairs = {"left": data[:10], "right": data[10:], "data": data, "n_features": 64}
    seeds = 200 * global_seed + np.arange(200)
    plain = mean_square_errors(RANDOM["PRF, not centred"], 10**6 + seeds, **pairs)
    assert_smaller(mean_square_errors(PRF, seeds, **pairs), plain)


# ---------------------------------------------------------------------------------------- positive and bounded
@pytest.mark.parametrize("name", POSITIVE)
def test_features_are_positive_and_bounded(name):
    features = POSITIVE[name](n_features=60, sigma=SIGMA, random_state=0).fit(X)
    places = np.concatenate([X, np.random.default_rng(1).standard_normal((2000, DIM)), 1e3 * X])
    values = features.transform(places)
    assert (values >= 0).all()
    assert (features.transform(X) > 0).all()
    assert (values <= features.bound_).all()


@pytest.mark.parametrize("name", ["PRF", "PORF", "GERF"])
def test_bounds_are_reached(name):
    features = RANDOM[name](n_features=60, sigma=SIGMA, random_state=0).fit(X)
    slope = np.sqrt(1 - 4 * getattr(features, "A_", 0.0))
    peaks = features.origin_ + SIGMA * slope * features.frequencies_ / 2
    np.testing.assert_allclose(np.diagonal(features.transform(peaks)), features.bound_, rtol=1e-12)


def test_bounds_of_gaussian_bumps_are_reached_at_the_anchors():
    features = GaussianFeatures(n_features=60, sigma=SIGMA, anchors="uniform", random_state=0).fit(X)
    np.testing.assert_allclose(np.diagonal(features.transform(features.anchors_)), features.bound_, rtol=1e-14)


@pytest.mark.parametrize(("orthogonal", "plain"), [(False, PRF), (True, PORF)])
def test_generalised_features_without_exponent_are_the_plain_ones(orthogonal, plain):
    settings = {"n_features": 30, "sigma": SIGMA, "random_state": 3}
    general = GERF(A=0.0, orthogonal=orthogonal, **settings).fit(X)
    np.testing.assert_array_equal(general.transform(X), plain(**settings).fit(X).transform(X))


# ------------------------------------------------------------------------------------------- the best exponent
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


def second_moment(A, dim, length):
    """E (D^2 exp(2 A |w|^2 + B w . s))^2 for |s| = length, by Gauss-Hermite sums along s and across."""
    nodes, weights = NODES, WEIGHTS / np.sqrt(2 * np.pi)
    slope = np.sqrt(1 - 4 * A)
    along = weights @ np.exp(4 * A * nodes**2 + 2 * slope * nodes * length)
    across = weights @ np.exp(4 * A * nodes**2)
    return (1 - 4 * A) ** dim * along * across ** (dim - 1)


@pytest.mark.parametrize("dim", [1, 3, 10])
@pytest.mark.parametrize("scale", [0.2, 0.5, 0.8])
def test_the_chosen_exponent_has_the_least_second_moment(dim, scale):
    points = scale * np.random.default_rng(dim).standard_normal((30, dim))
    phi = ((points[:, None] + points[None]) ** 2).sum(axis=2).mean()
    grid = -np.geomspace(1e-3, 2.0, 1500)  # steps of .5 %
    best = grid[np.argmin([second_moment(A, dim, np.sqrt(phi)) for A in grid])]
    assert best_exponent(points) == pytest.approx(best, rel=0.01)  # two steps


def test_the_best_exponent_of_a_single_place_is_zero():
    assert best_exponent(np.zeros((3, 2))) == 0.0
    assert GERF(n_features=4).fit(np.ones((3, 2))).A_ == 0.0


# ------------------------------------------------------------------------------------------------- grids of bumps
def quadrature_error(features):
    """Relative error of the sum over a grid: aliases of a Gaussian sigma / 2 wide, and tails at 4 widths."""
    spacing = np.ptp(features.box_, axis=0) / features.shape_ / features.sigma_
    aliases = 2 * np.exp(-(np.pi**2) / (2 * spacing**2))
    tail = special.erfc(4 / np.sqrt(2))  # twice that of one side
    return np.prod(1 + aliases + tail) - 1


@pytest.mark.parametrize("n_features", [60, 150, 1000])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")
def test_a_grid_is_as_accurate_as_its_spacing_says(n_features, dim):
    points = np.random.default_rng(0).uniform(size=(200, dim)) * ([2.0, 1.0][:dim])
    features = GaussianFeatures(n_features=n_features, sigma=0.25).fit(points)
    exact = features.exact_kernel(points)
    error = np.abs(features.kernel_matrix(points) / exact - 1).max()
    predicted = quadrature_error(features)
    assert error <= 1.05 * predicted  # further aliases are exp(-3 * 4.9) of the first and smaller
    if predicted > 1e-2:  # tails depend on how near to the edge a point is, aliases do not
        assert error >= 0.8 * predicted


def test_grids_have_sides_in_proportion_and_no_more_nodes_than_asked_for():
    rng = np.random.default_rng(0)
    for _ in range(200):
        sides, most = rng.uniform(0.1, 3.0, size=rng.integers(1, 6)), int(rng.integers(1, 3000))
        shape = grid_shape(sides, most)
        assert shape.prod() <= most
        coarsest = np.argmax(sides / shape)
        assert (
            shape.prod() // shape[coarsest] * (shape[coarsest] + 1) > most
        )  # no node can be added where it counts
    assert grid_shape(np.array([3.0, 3.0]), 100).tolist() == [10, 10]
    features = GaussianFeatures(n_features=500, sigma=0.5).fit(X)
    assert features.n_features_out_ == features.shape_.prod() == len(features.anchors_) <= 500


def test_a_coarse_grid_says_so():
    points = np.random.default_rng(0).uniform(size=(50, 2))
    with pytest.warns(
        FeatureWarning, match=r"grid of 100 anchors is too coarse: .* needs 1.9e\+03 anchors.*more feat"
    ):
        GaussianFeatures(n_features=100, sigma=0.025).fit(points)
    with pytest.warns(FeatureWarning, match="No grid is useful in 10 dimensions at this sigma"):
        GaussianFeatures(n_features=512).fit(np.random.default_rng(0).standard_normal((50, 10)))


def test_huge_boxes_in_many_dimensions_stay_finite():
    points = 1e3 * np.random.default_rng(0).standard_normal((10, 300))
    features = GaussianFeatures(n_features=8, anchors="uniform", random_state=0).fit(points)
    assert np.isfinite(features.transform(points)).all()
