"""The comparison of teachers: small, and what it claims."""

import pytest

from reproduction.teachers import ESTIMATORS, EXACT, Config, run

SMALL = Config(n_nodes=500, tau=10.0, n_starts=10, budgets=(1e4, 1e5))


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


def rows(record, estimator):
    return [row for row in record.tables["teachers"] if row["estimator"] == estimator]


def test_every_estimator_is_measured_on_every_surface(record):
    assert {row["estimator"] for row in record.tables["teachers"]} == {*ESTIMATORS, *EXACT}
    assert len(record.tables["budgets"]) == len(ESTIMATORS) * len(SMALL.budgets) * len(SMALL.surfaces)


def test_budgets_are_kept(record):
    for row in record.tables["budgets"]:
        assert row["steps"] == pytest.approx(row["budget"], rel=0.1)


def test_exact_teachers_are_exact_and_counts_beat_algorithm_1(record):
    for row in rows(record, "exact") + rows(record, "frontier"):
        assert row["error"] < 1e-7
    for ours, theirs in zip(rows(record, "counts"), rows(record, "Algorithm 1"), strict=True):
        assert ours["error"] < theirs["error"] / 5


def test_walks_predict_their_own_error(record):
    for row in record.tables["teachers"]:
        if row["predicted"] is not None and row["error"] < 0.1:
            # 10 rows with heavy tails: the prediction of one run is good to a third or so.
            assert row["predicted"] == pytest.approx(row["error"], rel=0.5)


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
