"""Textures by their nearest labelled windows: small, and every number against its definition."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from manifoldrf import KnnGraph, ManifoldRandomFeatures
from manifoldrf.kernels import PowerKernel
from reproduction.baselines import RFF
from reproduction.brodatz import (
    BALANCED,
    INNER,
    LEARNED,
    METHODS,
    OWN,
    RAW,
    RAW_COORDINATES,
    STANDARDISED,
    Choice,
    Config,
    Grids,
    Recipe,
    Stage,
    learned_settings,
    run,
    validate,
)
from reproduction.smoothers import quietly
from reproduction.textures import Protocol, draw_views, generated_plates

PROTOCOL = Protocol(unlabelled_windows=5, test_windows=6, window=16)
GRIDS = Grids(
    n_neighbors=6,
    powers=(4, 6),
    size=32,
    landmarks=32,
    components=(5,),
    widths=(0.5, 1.0),
    wide=(3.0,),
    n_cloud=150,
    n_components_cloud=100,
)
SMALL = Config(
    n_seeds=2,
    counts=(1, 3),
    n_plates=6,
    protocol=PROTOCOL,
    other_windows=(20,),
    n_others=1,
    grids=GRIDS,
    recipe=None,
    trial_windows=(16,),
    trial_sigmas=(1.0,),
    trial_seeds=(0,),
)
pytestmark = pytest.mark.filterwarnings("ignore:.*away from the space")


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


@pytest.fixture(scope="module")
def stage():
    plates = generated_plates(side=64)
    some = dataclasses.replace(plates, names=plates.names[:6], images=plates.images[:6])
    return Stage(draw_views(some, PROTOCOL, [0])[0], GRIDS)


def _settings(method, stage):
    with quietly():
        return dict(METHODS[method](stage))


# --------------------------------------------------------------------------------------------------------- methods
def own_features(n_neighbors, power):
    """Sparse features, one for each unlabelled window."""
    return ManifoldRandomFeatures(
        PowerKernel(power),
        normalize=False,
        n_features="all",
        field="step",
        graph=KnnGraph(n_neighbors=n_neighbors, bandwidth="local"),
        sparse_output=True,
    )


def _cosines(left, right):
    return (left @ right.T) / np.linalg.norm(left, axis=1)[:, None] / np.linalg.norm(right, axis=1)


@pytest.mark.parametrize("power", GRIDS.powers)
def test_carrying_labelled_windows_gives_the_cosines_of_the_features(stage, power):
    """One graph serves all powers: cosines are those of the features of the estimator for that power."""
    values = _settings(OWN, stage)[f"{power} steps"]
    views = stage.views
    with quietly():
        features = own_features(6, power).fit(views.unlabelled)
        own, test = (features.transform(points).toarray() for points in (views.labelled, views.test))
    near = np.linalg.norm(test, axis=1) > 0  # the features of the estimator end far from the cloud
    assert near.mean() > 0.9
    # Values have the lengths of labelled windows only, so rows are compared after division by their largest.
    found = (values.of_test() / np.sqrt(values.norms2))[near]
    exact = _cosines(test[near], own)
    # Single precision: sums of a few dozen nonnegative terms, each rounded to 6e-8.
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6)
    close(found / found.max(axis=1, keepdims=True), exact / exact.max(axis=1, keepdims=True))
    lengths = np.sqrt(values.norms2)
    close(values.labelled / lengths / lengths[:, None], _cosines(own, own))


def test_values_of_other_methods_are_inner_products_of_their_features(stage):
    views = stage.views
    points = [
        (z - views.unlabelled.mean(axis=0)).astype(np.float32) for z in (views.labelled, stage.cloud, views.test)
    ]
    features = RFF(n_features=32, sigma=0.5 * stage.unit, random_state=0).fit(points[1])
    own, cloud, test = (features.transform(z) for z in points)
    values = _settings("RFF", stage)["width 0.5"]
    for found, rows in ((values.labelled, own), (values.cloud, cloud), (values.of_test(), test)):
        np.testing.assert_allclose(found, rows @ own.T, atol=1e-6)  # rounding of single precision, values up to 1


def test_no_method_looks_at_labels_or_test_windows_before_it_is_asked(stage):
    """Other labels change no value."""
    views = dataclasses.replace(stage.views, labelled_y=stage.views.labelled_y[::-1].copy())
    for method in (OWN, "RFF"):
        found = _settings(method, dataclasses.replace(stage, views=views))
        for name, values in _settings(method, stage).items():
            np.testing.assert_array_equal(found[name].labelled, values.labelled)


def test_the_learned_features_are_the_paper_recipe(stage):
    recipe = Recipe(n_features=8, n_starts=10, n_walks=20, epochs=1, n_neighbors=6)
    with quietly():
        (name, values), *rest = learned_settings(stage, recipe)
    assert name == "1 epochs"
    assert not rest
    assert values.labelled.shape == (36, 36)
    assert (values.labelled >= 0).all()


def test_validation_predicts_each_angle_from_the_other(stage):
    views = stage.views
    values = _settings(RAW, stage)["descriptors"]
    hits = []
    for angle in (0, 90):
        known = views.labelled_angle == angle
        neighbor = KNeighborsClassifier(1).fit(views.labelled[known], views.labelled_y[known])
        hits.append(neighbor.score(views.labelled[~known], views.labelled_y[~known]))
    assert validate(values, "euclidean", views) == pytest.approx(100 * np.mean(hits))


def test_raw_accuracies_are_those_of_scikit_learn(stage):
    """Votes of groups written out, for every number of neighbours; ties to the smallest label."""
    views = stage.views
    choice = Choice("descriptors", "euclidean", 0.0, _settings(RAW, stage)["descriptors"])
    row = choice.measure(choice.values.of_test(), views, (1, 3, 5))
    for count in (1, 3, 5):
        found = KNeighborsClassifier(count).fit(views.labelled, views.labelled_y).predict(views.test)
        groups = [
            np.bincount(found[views.test_group == group]).argmax() == views.test_y[views.test_group == group][0]
            for group in range(views.test_group.max() + 1)
        ]
        assert row[f"first{count}"] == pytest.approx(100 * np.mean(groups))
        if count == 1:
            assert row["k1"] == row["first1"]
            assert row["single"] == pytest.approx(100 * np.mean(found == views.test_y))


# ---------------------------------------------------------------------------------------------------------- tables
def _row(seed, method, coordinates, rule, accuracy, score=20.0):
    key = {"window": 64, "seed": seed, "coordinates": coordinates, "method": method, "rule": rule, "setting": "a"}
    row = key | {"validation": score, "k1": accuracy, "k3": accuracy - 1, "single": accuracy / 2}
    return row | {"first1": accuracy, "first3": accuracy - 5}


ROWS = [
    _row(seed, method, coordinates, rule, accuracy + 10 * (coordinates == STANDARDISED) + 2 * seed, score)
    for seed in (0, 1)
    for coordinates in (RAW_COORDINATES, STANDARDISED)
    for method, rule, accuracy, score in (
        (RAW, "euclidean", 40.0, 20.0),
        (RAW, "cosine", 44.0, 19.0),
        (OWN, "euclidean", 30.0, 10.0),
        (OWN, "cosine", 50.0, 20.0 + seed),
        (OWN, INNER, 52.0, 20.5),
        (OWN, BALANCED, 60.0, 40.0),
    )
]
ROWS.append(_row(0, LEARNED, RAW_COORDINATES, "cosine", 43.0))


def test_a_stopped_run_goes_on_where_it_ended(record, tmp_path):
    part = dataclasses.replace(SMALL, n_seeds=1)
    run(part, parts=tmp_path)
    kept = {path.name for path in tmp_path.glob("*.json")}
    assert "brodatz_6_window16_seed10.json" in kept
    seen = []
    again = run(SMALL, lambda what, done, total: seen.append(what), parts=tmp_path)
    assert not any("seed 10" in what for what in seen)
    assert any("seed 11" in what for what in seen)
    timed = {"cpu_s"}
    first, second = (
        [{name: row[name] for name in row if name not in timed} for row in rows]
        for rows in (record.tables["seeds"], again.tables["seeds"])
    )
    assert first == second


def test_textures_are_recognised_far_better_than_by_chance(record):
    """Six classes, 48 groups in two draws: chance is 17 %, and 17 + 5 standard errors of 5.4 are 44."""
    plain = {row["method"]: row["accuracy"] for row in record.tables["brodatz"][: len(METHODS)]}
    assert plain[OWN] > 44
    assert plain[RAW] > 44


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
