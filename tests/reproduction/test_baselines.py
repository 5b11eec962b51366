"""Baselines: unbiased, at the rate of Monte Carlo, exact at landmarks, eigenvectors of the walk."""

import numpy as np
import pytest
from scipy import stats

from manifoldrf import Sphere, knn_graph
from reproduction.baselines import ORF, PORF, PRF, RFF, Nystrom, eigenpairs, gaussian_kernel

SIGMA = 0.8
X = np.random.default_rng(0).uniform(-0.6, 0.6, size=(40, 3)) + 0.3
RANDOM = [RFF, ORF, PRF, PORF]


def estimates(kind, n_features, seeds):
    """Kernel values of six pairs, one row for each seed."""
    kernels = [kind(n_features=n_features, sigma=SIGMA, random_state=s).fit(X).kernel_matrix(X[:12]) for s in seeds]
    return np.array([np.diag(kernel[:6, 6:]) for kernel in kernels])


EXACT = np.diag(gaussian_kernel(X[:6], X[6:12], SIGMA))


@pytest.mark.parametrize("kind", RANDOM)
def test_estimates_are_unbiased(kind, global_seed):
    found = estimates(kind, 48, 300 * global_seed + np.arange(300))
    z = (found.mean(axis=0) - EXACT) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))
    # Student's t with 299 degrees of freedom; false alarms in one of 10,000 runs, shared by the six pairs.
    assert np.abs(z).max() < stats.t.isf(1e-4 / (2 * len(EXACT)), len(found) - 1)


@pytest.mark.parametrize("kind", RANDOM)
def test_errors_fall_with_the_root_of_the_number_of_features(kind, global_seed):
    sizes = np.array([24, 96, 384, 1536])
    seeds = 40 * global_seed + np.arange(40)
    errors = [np.sqrt(((estimates(kind, int(m), seeds) - EXACT) ** 2).mean()) for m in sizes]
    # Each error is known to 11 % if the six pairs are worth one (40 replicas), the slope then to .036; 5 of these.
    assert abs(np.polyfit(np.log(sizes), np.log(errors), 1)[0] + 0.5) < 0.18


def test_orthogonal_frequencies_are_orthogonal_in_blocks_with_lengths_of_gaussians(global_seed):
    w = ORF(n_features=2 * 5 * 400, random_state=global_seed).fit(np.zeros((2, 5))).frequencies_
    blocks = w.reshape(400, 5, 5) / np.linalg.norm(w, axis=1).reshape(400, 5, 1)
    np.testing.assert_allclose(blocks @ blocks.swapaxes(1, 2), np.broadcast_to(np.eye(5), blocks.shape), atol=1e-13)
    assert stats.kstest(np.linalg.norm(w, axis=1), stats.chi(5).cdf).pvalue > 1e-4


@pytest.mark.parametrize("kind", [PRF, PORF])
def test_exponential_features_are_positive_and_keep_their_type(kind):
    rows = kind(n_features=64, sigma=SIGMA, random_state=0).fit(X).transform(X.astype(np.float32))
    assert rows.dtype == np.float32
    assert (rows > 0).all()


@pytest.mark.parametrize("landmarks", ["uniform", "farthest"])
def test_nystrom_is_exact_at_landmarks(landmarks):
    features = Nystrom(n_features=15, sigma=SIGMA, landmarks=landmarks, random_state=0).fit(X)
    both = np.concatenate([features.landmarks_, X])
    found = features.kernel_matrix(both)[:15]
    # The inverse of K_LL amplifies rounding by its condition number, up to 1e8 here.
    np.testing.assert_allclose(found, gaussian_kernel(features.landmarks_, both, SIGMA), atol=1e-7)


@pytest.mark.parametrize("n", [300, 700])  # dense, and by Lanczos iterations
def test_eigenpairs_are_the_largest_of_the_walk(n):
    graph = knn_graph(Sphere().grid(n))
    values, vectors = eigenpairs(graph, 20)
    expected = np.sort(np.linalg.eigvalsh(graph.operator.toarray()))[::-1][:20]
    np.testing.assert_allclose(values, expected, atol=1e-10)
    np.testing.assert_allclose(graph.operator @ vectors, vectors * values, atol=1e-8)
