"""Textures by their nearest labelled windows: small, and every number against its definition."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.neighbors import KNeighborsClassifier

from manifoldrf.applications.neighbors import KernelNeighborsClassifier
from manifoldrf.baselines.random_features import RFF
from manifoldrf.baselines.spectral import DiffusionMap
from reproduction.brodatz import (
    BALANCED,
    LEARNED,
    METHODS,
    OWN,
    PAPER,
    PLAIN,
    RAW,
    RULES,
    SIZES,
    Choice,
    Config,
    Grids,
    Recipe,
    Stage,
    Tried,
    Values,
    by_count,
    choose,
    chosen_settings,
    group_accuracy,
    learned_settings,
    nearest_accuracy,
    own_features,
    run,
    summarise,
    targets,
    validate,
)
from reproduction.record import Record
from reproduction.smoothers import quietly
from reproduction.texture_data import generated_plates
from reproduction.texture_views import Protocol, draw_views

PROTOCOL = Protocol(unlabelled_windows=5, test_windows=6, window=16)
GRIDS = Grids(
    neighbors=(6,),
    powers=(4, 6),
    sizes=(32,),
    components=(5,),
    widths=(0.6, 1.3),
    wide=(3.0,),
    fine=(0.5,),
    coordinates=(8,),
    steps=(1.0, 4.0),
    n_cloud=150,
    n_components_cloud=100,
    n_diffusion=200,
)
SMALL = Config(n_seeds=2, counts=(1, 3), n_plates=6, protocol=PROTOCOL, grids=GRIDS, recipe=None, n_hindsight=1)
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


def _hand_values():
    """Two classes with two labelled windows each, seen by a cloud of three."""
    cloud = np.array([[4.0, 1, 1, 0], [2, 0, 1, 1], [0, 1, 2, 1]])
    labelled = np.array([[4.0, 1, 2, 1], [1, 3, 1, 2], [2, 1, 5, 1], [1, 2, 1, 2]])
    return Values(labelled, cloud, np.diag(labelled).copy(), lambda: cloud)


# --------------------------------------------------------------------------------------------------------- methods
@pytest.mark.parametrize("power", GRIDS.powers)
def test_carrying_labelled_windows_gives_the_kernel_of_the_features(stage, power):
    """One fit serves all powers: values are inner products of the features of the estimator for that power."""
    values = _settings(OWN, stage)[f"6 neighbours, {power} steps"]
    views = stage.views
    with quietly():
        features = own_features(6, power).fit(views.unlabelled)
        own, cloud, test = (features.transform(z).toarray() for z in (views.labelled, stage.cloud, views.test))
    # Single precision: sums of a few dozen nonnegative terms, each rounded to 6e-8.
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-7)
    close(values.labelled, own @ own.T)
    close(values.cloud, cloud @ own.T)
    close(values.of_test(), test @ own.T)
    close(values.norms2, (own**2).sum(axis=1))


def test_values_of_other_methods_are_inner_products_of_their_features(stage):
    views = stage.views
    points = [
        (z - views.unlabelled.mean(axis=0)).astype(np.float32) for z in (views.labelled, stage.cloud, views.test)
    ]
    features = RFF(n_features=32, sigma=0.6 * stage.unit, random_state=0).fit(points[1])
    own, cloud, test = (features.transform(z) for z in points)
    values = _settings("RFF", stage)["32 features, width 0.6"]
    for found, rows in ((values.labelled, own), (values.cloud, cloud), (values.of_test(), test)):
        np.testing.assert_allclose(found, rows @ own.T, atol=1e-6)  # rounding of single precision, values up to 1


def test_the_unit_is_the_median_distance_to_the_nearest_labelled_window(stage):
    gaps = np.linalg.norm(stage.cloud[:, None] - stage.views.labelled, axis=2)
    assert stage.unit == pytest.approx(np.median(gaps.min(axis=1)), rel=1e-12)


def test_the_gaussian_is_the_limit_of_landmarks(stage):
    """With all of the cloud as landmarks the kernel to the cloud is exact."""
    grids = dataclasses.replace(GRIDS, sizes=(150,), widths=(0.5,))
    exact = _settings("Gaussian", stage)["width 0.5"]
    landmarks = _settings("Nystrom", dataclasses.replace(stage, grids=grids))["150 features, width 0.5"]
    np.testing.assert_allclose(landmarks.cloud, exact.cloud, atol=1e-5)  # landmarks in single precision


def test_steps_of_a_diffusion_map_are_those_of_the_estimator(stage):
    nodes = stage.some(GRIDS.n_diffusion, "diffusion map")
    with quietly():
        rows = DiffusionMap(n_features=8, steps=4.0).fit(nodes).transform(stage.views.labelled)
    found = _settings("diffusion map", stage)["8 coordinates, 4 steps"]
    exact = rows @ rows.T
    np.testing.assert_allclose(found.labelled, exact, atol=1e-5 * np.abs(exact).max())
    np.testing.assert_allclose(found.norms2, np.diag(exact), rtol=1e-4)


def test_kernel_pca_is_that_of_scikit_learn(stage):
    values = _settings("kPCA", stage)["5 components, width 0.6"]
    gamma = 1 / (2 * (0.6 * stage.unit) ** 2)
    pca = KernelPCA(5, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(stage.cloud[:100])
    rows = pca.transform(stage.views.labelled)
    np.testing.assert_allclose(values.labelled, rows @ rows.T, atol=1e-8)


def test_no_rival_has_fewer_settings_than_ours():
    grids = Grids()
    widths = len(grids.sizes) * len(grids.widths)
    rivals = {
        widths,
        len(grids.sizes) * len(grids.wide),
        len(grids.components) * len(grids.widths),
        len(grids.fine),
        len(grids.coordinates) * len(grids.steps),
    }
    assert rivals == {12}
    assert len(grids.neighbors) * len(grids.powers) == 10


def test_no_method_looks_at_labels_or_test_windows_before_it_is_asked(stage):
    """Other labels change no value."""
    views = dataclasses.replace(stage.views, labelled_y=stage.views.labelled_y[::-1].copy())
    for method in (OWN, "RFF", "diffusion map"):
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


# ----------------------------------------------------------------------------------------------------------- rules
@pytest.mark.parametrize("rule", [rule for rules in RULES.values() for rule in rules])
def test_rules_are_those_of_the_classifier(rule, stage):
    """The same nearest windows as by the public estimator on the features themselves."""
    views = stage.views
    rows = [np.exp(-((z - stage.centre) ** 2) / 8) for z in (views.labelled, stage.cloud, views.test)]
    own, cloud, test = rows
    values = Values(own @ own.T, cloud @ own.T, (own**2).sum(axis=1), lambda: test @ own.T)
    classifier = KernelNeighborsClassifier(ranking=rule).fit(own, views.labelled_y, cloud=cloud)
    found = views.labelled_y[values.ranks(values.of_test(), rule).argmax(axis=1)]
    np.testing.assert_array_equal(found, classifier.predict(test))


def test_balanced_weights_share_the_cloud_equally():
    values = _hand_values()
    weights = values.ranks(np.ones((1, 4)), "balanced")[0]
    shares = (values.cloud * weights / (values.cloud @ weights)[:, None]).sum(axis=0)
    np.testing.assert_allclose(shares, 3 / 4, rtol=2e-3)  # rounds end at 1e-3


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
    """Votes of groups written out, for every number of neighbours."""
    views = stage.views
    choice = Choice("descriptors", "euclidean", 0.0, _settings(RAW, stage)["descriptors"])
    row = choice.measure(views, (1, 3, 5))
    for count in (1, 3, 5):
        found = KNeighborsClassifier(count).fit(views.labelled, views.labelled_y).predict(views.test)
        groups = [
            np.bincount(found[views.test_group == group]).argmax() == views.test_y[views.test_group == group][0]
            for group in range(views.test_group.max() + 1)
        ]
        assert row[f"k{count}"] == pytest.approx(100 * np.mean(groups))
        if count == 1:
            assert row["window"] == pytest.approx(100 * np.mean(found == views.test_y))
    assert nearest_accuracy(choice.values.of_test(), choice.values, "euclidean", views) == row["k1"]


def test_a_tied_group_goes_to_the_first_class(stage):
    views = stage.views
    found = np.where(np.arange(len(views.test)) % 2 == 0, 0, 5)  # three windows of six each
    assert group_accuracy(found, views) == pytest.approx(100 / 6)


def test_the_first_of_equally_good_settings_is_chosen(stage):
    values = _settings(RAW, stage)["descriptors"]
    best, count = choose("any", iter([("first", values), ("second", values)]), stage.views, None)
    assert count == 2
    assert {choice.setting for choice in best.values()} == {"first"}
    assert set(best) == set(RULES)
    assert set(choose(RAW, iter([("only", values)]), stage.views, None)[0]) == {PLAIN}


# ---------------------------------------------------------------------------------------------------------- tables
def _row(seed, method, block, accuracy, setting="a"):
    key = {"seed": seed, "method": method, "block": block, "settings": 2, "setting": setting, "rule": "cosine"}
    return key | {"k1": accuracy, "k3": accuracy - 1, "window": accuracy / 2}


ROWS = [
    _row(0, OWN, PLAIN, 50.0),
    _row(0, OWN, BALANCED, 60.0),
    _row(0, RAW, PLAIN, 40.0),
    _row(0, "RFF", PLAIN, 45.0, "b"),
    _row(0, "RFF", BALANCED, 55.0),
    _row(0, LEARNED, PLAIN, 70.0),
    _row(1, OWN, PLAIN, 54.0),
    _row(1, OWN, BALANCED, 50.0),
    _row(1, RAW, PLAIN, 46.0),
    _row(1, "RFF", PLAIN, 41.0, "b"),
    _row(1, "RFF", BALANCED, 61.0),
]


def test_the_tables_are_means_over_seeds():
    tried = Tried()
    tried.add("RFF", PLAIN, ("a", "cosine"), 47.0)
    tried.add("RFF", PLAIN, ("b", "kernel"), 48.0)
    table = {(row["block"], row["method"]): row for row in summarise(ROWS, 1, PAPER, tried)}
    own = table[PLAIN, OWN]
    assert (own["accuracy"], own["gap"], own["window"], own["seeds"]) == (52.0, 9.0, 26.0, 2)
    assert own["spread"] == pytest.approx(np.sqrt(8))
    assert own["paper_accuracy"] == 55.7
    assert table[BALANCED, OWN]["paper_accuracy"] is None  # the paper has no such protocol
    assert table[PLAIN, "RFF"]["hindsight"] == 48.0
    learned = table[PLAIN, LEARNED]  # set against raw descriptors of its own seed
    assert (learned["seeds"], learned["gap"], learned["spread"]) == (1, 30.0, None)
    chosen = {(row["block"], row["method"]): row for row in chosen_settings(ROWS, tried)}
    assert chosen[PLAIN, "RFF"]["chosen"] == "2 of 2"
    assert chosen[PLAIN, "RFF"]["in_hindsight"] == "b, kernel"
    more = [row for row in by_count(ROWS, (1, 3), {}) if row["method"] == OWN and row["block"] == PLAIN]
    assert [(row["k"], row["accuracy"], row["paper_accuracy"]) for row in more] == [
        (1, 52.0, None),
        (3, 51.0, None),
    ]


def test_targets_compare_with_raw_and_the_best_other_method_of_the_block():
    table = summarise(ROWS, 1, {}, Tried())
    cost = [{"fit_s": 301.0, "transform_s": 29.0}]
    found = {row["what"]: (row["seen"], row["holds"]) for row in targets(table, cost)}
    assert found == {
        "plain; MRF above raw descriptors without weights, points": (9.0, True),
        "plain; MRF above the best other method, points": (9.0, True),  # learned features are no rival
        "balanced; MRF above raw descriptors without weights, points": (12.0, True),
        "balanced; MRF above the best other method, points": (-3.0, False),
        "seconds of a fit to all unlabelled windows": (301.0, False),
        "seconds of features of all test windows": (29.0, True),
    }


def test_the_paper_table_is_whole():
    assert all(set(line) == {1, 3, 5, 10, 15} for line in PAPER.values())
    assert set(PAPER) <= set(METHODS)
    assert PAPER[OWN][1] - PAPER[RAW][1] == pytest.approx(13.3)


# ------------------------------------------------------------------------------------------------------ experiment
def test_every_seed_has_every_method_in_both_blocks(record):
    found = [(row["seed"], row["method"], row["block"]) for row in record.tables["seeds"]]
    wanted = [
        (seed, method, block)
        for seed in (10, 11)
        for method in METHODS
        for block in ((PLAIN,) if method == RAW else RULES)
    ]
    assert found == wanted
    assert "textures" in record.config
    assert "2 draws" in record.config["notes"]
    assert all(row["paper_accuracy"] is None for row in record.tables["brodatz"])  # other textures than the paper's


def test_hindsight_is_never_below_what_was_chosen(record):
    """On the seeds that have it, here the first."""
    best = {(row["block"], row["method"]): row["hindsight"] for row in record.tables["brodatz"]}
    for row in record.tables["seeds"]:
        if row["seed"] == 10:
            assert best[row["block"], row["method"]] >= row["k1"] - 1e-9


def test_textures_are_recognised_far_better_than_by_chance(record):
    """Six classes, 48 groups in two draws: chance is 17 %, and 17 + 5 standard errors of 5.4 are 44."""
    plain = {row["method"]: row["accuracy"] for row in record.tables["brodatz"] if row["block"] == PLAIN}
    assert plain[OWN] > 44
    assert plain[RAW] > 44


def test_the_record_comes_back_from_its_files(record, tmp_path):
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.tables
    assert again.config["protocol"]["window"] == 16


def test_the_same_seed_gives_the_same_numbers(record):
    again = run(dataclasses.replace(SMALL, n_seeds=1, n_hindsight=0))
    kept = ("method", "block", "setting", "rule", "k1", "k3", "window")
    first = [{name: row[name] for name in kept} for row in record.tables["seeds"] if row["seed"] == 10]
    assert [{name: row[name] for name in kept} for row in again.tables["seeds"]] == first


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_seeds": 0}, "`n_seeds`"),
        ({"first_seed": -1}, "`first_seed`"),
        ({"counts": (3, 1)}, "`counts` must be positive numbers of neighbours, ascending"),
        ({"counts": ()}, "`counts`"),
        ({"n_plates": 1}, "`n_plates`"),
        (
            {"protocol": Protocol(labelled_angles=(0,))},
            "`protocol` must be one with labelled windows at two angles",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        Config(**changes)


def test_the_sizes_differ_in_numbers_only():
    assert SIZES["paper"].protocol == Protocol()
    assert SIZES["paper"].n_seeds == 30
    assert SIZES["smoke"].protocol.labelled_angles == (0, 90)
