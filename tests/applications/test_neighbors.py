import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import check_estimator

from manifoldrf import KernelNeighborsClassifier
from manifoldrf.applications.neighbors import RANKINGS


def blobs(n=60, seed=0, m=6):
    """Positive features of three overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return np.exp(0.8 * np.eye(3, m)[labels] + 0.5 * rng.normal(size=(n, m))), labels


LABELLED, LABELS = blobs(30)
QUERIES, _ = blobs(200, seed=1)
CLOUD, _ = blobs(400, seed=2)


def fitted(ranking, **options):
    return KernelNeighborsClassifier(ranking=ranking, **options).fit(LABELLED, LABELS, cloud=CLOUD)


@pytest.mark.parametrize(("metric", "k"), [("euclidean", 1), ("euclidean", 7), ("cosine", 3)])
def test_distances_and_ties_are_those_of_scikit_learn(metric, k):
    theirs = KNeighborsClassifier(k, metric=metric, algorithm="brute").fit(LABELLED, LABELS)
    assert np.array_equal(fitted(metric, n_neighbors=k).predict(QUERIES), theirs.predict(QUERIES))


def test_ranks_are_the_formulas_of_the_docstring():
    values = QUERIES @ LABELLED.T
    mean = (CLOUD @ LABELLED.T).mean(axis=0)
    np.testing.assert_allclose(fitted("kernel").rank(QUERIES), values, rtol=1e-12)
    share = fitted("share").rank(QUERIES) / (values / mean)
    np.testing.assert_allclose(share, share[0, 0], rtol=1e-12)  # one factor for all
    euclidean = -((QUERIES[:, None] - LABELLED) ** 2).sum(axis=2)
    np.testing.assert_allclose(fitted("euclidean").rank(QUERIES), euclidean, atol=1e-10)


def test_balanced_weights_give_every_labelled_point_the_same_share_of_the_cloud():
    near = fitted("balanced")
    parts = near.weights_ * (CLOUD @ LABELLED.T)
    shares = (parts / parts.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(shares, 1 / len(LABELLED), rtol=2e-3)  # the rounds end at 1e-3
    np.testing.assert_allclose(near.weights_.mean(), 1.0)


def test_a_labelled_point_that_is_near_to_everything_takes_no_more_than_the_others_when_balanced():
    """Features of one labelled point are a hundred times larger: by the kernel itself it wins everywhere."""
    hub = LABELLED.copy()
    hub[0] *= 100.0
    plain = KernelNeighborsClassifier(ranking="kernel").fit(hub, np.arange(len(hub)))
    assert (plain.predict(QUERIES) == 0).all()
    for ranking in ("share", "balanced"):
        cured = KernelNeighborsClassifier(ranking=ranking).fit(hub, np.arange(len(hub)), cloud=CLOUD)
        reference = KernelNeighborsClassifier(ranking=ranking).fit(LABELLED, np.arange(len(hub)), cloud=CLOUD)
        assert np.array_equal(cured.predict(QUERIES), reference.predict(QUERIES))


def test_points_that_nothing_sees_keep_weights_finite():
    alone = np.zeros((3, 4))
    alone[0, 0] = alone[1, 1] = alone[2, 3] = 1.0  # the cloud has nothing in the last feature
    cloud = np.random.default_rng(0).uniform(0.1, 1.0, (50, 4)) * [1, 1, 1, 0]
    near = KernelNeighborsClassifier(ranking="balanced").fit(alone, [0, 1, 2], cloud=cloud)
    assert np.isfinite(near.weights_).all()
    assert set(near.predict(cloud)) == {0, 1}


@pytest.mark.parametrize("ranking", RANKINGS)
def test_sparse_features_rank_as_dense_ones_do(ranking):
    thin = np.where(LABELLED > 1.2, LABELLED, 0.0)
    queries = np.where(QUERIES > 1.2, QUERIES, 0.0)
    dense = KernelNeighborsClassifier(ranking=ranking).fit(thin, LABELS, cloud=CLOUD)
    light = KernelNeighborsClassifier(ranking=ranking).fit(
        sparse.csr_array(thin), LABELS, cloud=sparse.csr_array(CLOUD)
    )
    np.testing.assert_allclose(light.rank(sparse.csr_array(queries)), dense.rank(queries), rtol=1e-9, atol=1e-12)


def test_votes_are_the_predictions_of_each_number_of_neighbours():
    votes = fitted("balanced").votes(QUERIES, [1, 3, 7])
    for row, k in zip(votes, [1, 3, 7], strict=True):
        assert np.array_equal(row, fitted("balanced", n_neighbors=k).predict(QUERIES))


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    labelled, queries = (
        rng.random((100, 300)),
        rng.random((1300, 300)),
    )  # products of small arrays round alike anyhow
    near = KernelNeighborsClassifier(ranking="kernel").fit(labelled, np.arange(100) % 7)
    whole = near.rank(queries)
    for some in (slice(0, 7), slice(513, 520), slice(1000, 1001)):
        assert np.array_equal(whole[some], near.rank(queries[some]))


@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract():
    check_estimator(KernelNeighborsClassifier())


@pytest.mark.parametrize("n_neighbors", [1, 3, 8])
def test_probabilities_are_shares_of_the_votes_as_in_scikit_learn(n_neighbors):
    rng = np.random.default_rng(0)
    rows, labels, queries = rng.random((60, 5)), rng.integers(0, 4, 60), rng.random((40, 5))
    ours = KernelNeighborsClassifier(n_neighbors, "euclidean").fit(rows, labels)
    theirs = KNeighborsClassifier(n_neighbors).fit(rows, labels)
    np.testing.assert_allclose(ours.predict_proba(queries), theirs.predict_proba(queries), rtol=1e-15)
    np.testing.assert_array_equal(ours.classes_[ours.predict_proba(queries).argmax(axis=1)], ours.predict(queries))
