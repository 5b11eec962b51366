"""Textures by their nearest labelled windows: small, and every number against its definition."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from sklearn.neighbors import KNeighborsClassifier

from manifoldrf.applications.neighbors import KernelNeighborsClassifier, count_votes
from manifoldrf.baselines.random_features import RFF
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.graph_kernels import PowerKernel
from reproduction.brodatz import (
    BALANCED,
    CHOSEN,
    INNER,
    LEARNED,
    METHODS,
    OWN,
    PAPER,
    PLAIN,
    RAW,
    RAW_COORDINATES,
    RULES,
    SIZES,
    STANDARDISED,
    Choice,
    Config,
    Grids,
    Recipe,
    Stage,
    Values,
    by_count,
    graph_options,
    group_accuracy,
    learned_settings,
    measure,
    neighbours,
    run,
    standardised,
    summarise,
    targets,
    validate,
    vote,
)
from reproduction.record import Record
from reproduction.smoothers import quietly
from reproduction.texture_data import generated_plates
from reproduction.texture_views import Protocol, draw_views

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


def _hand_values():
    """Two classes with two labelled windows each, seen by a cloud of three."""
    cloud = np.array([[4.0, 1, 1, 0], [2, 0, 1, 1], [0, 1, 2, 1]])
    labelled = np.array([[4.0, 1, 2, 1], [1, 3, 1, 2], [2, 1, 5, 1], [1, 2, 1, 2]])
    return Values(labelled, cloud, np.diag(labelled).copy(), lambda: cloud)


# --------------------------------------------------------------------------------------------------------- methods
def own_features(n_neighbors, power):
    """Sparse features, one for each unlabelled window."""
    return ManifoldRandomFeatures(
        PowerKernel(power),
        normalize=False,
        n_features="all",
        field="step",
        graph=graph_options(n_neighbors),
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


def test_values_are_entries_of_a_power_of_the_walk(stage):
    """Windows joined to the graph by one step at each end."""
    views = stage.views
    with quietly():
        graph = own_features(6, 2).fit(views.unlabelled).graph_
    rows = {}
    for name in ("labelled", "test"):
        joined = graph.extend(getattr(views, name)).toarray()
        rows[name] = joined / np.sqrt(joined.sum(axis=1, keepdims=True)) / np.sqrt(graph.degrees)
    exact = rows["test"] @ np.linalg.matrix_power(graph.operator.toarray(), 2) @ rows["labelled"].T
    np.testing.assert_allclose(_settings(OWN, stage)["4 steps"].of_test(), exact, rtol=2e-5, atol=1e-7)


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


def test_the_unit_is_the_median_distance_to_the_nearest_labelled_window(stage):
    gaps = np.linalg.norm(stage.cloud[:, None] - stage.views.labelled, axis=2)
    assert stage.unit == pytest.approx(np.median(gaps.min(axis=1)), rel=1e-12)


def test_the_gaussian_is_the_limit_of_landmarks(stage):
    """With all of the cloud as landmarks the kernel to the cloud is exact."""
    grids = dataclasses.replace(GRIDS, landmarks=150, widths=(0.5,))
    exact = _settings("Gaussian", stage)["width 0.5"]
    landmarks = _settings("Nystrom", dataclasses.replace(stage, grids=grids))["width 0.5"]
    np.testing.assert_allclose(landmarks.cloud, exact.cloud, atol=1e-5)  # landmarks in single precision


def test_kernel_pca_is_that_of_scikit_learn(stage):
    values = _settings("kPCA", stage)["5 components, width 0.5"]
    gamma = 1 / (2 * (0.5 * stage.unit) ** 2)
    pca = KernelPCA(5, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(stage.cloud[:100])
    rows = pca.transform(stage.views.labelled)
    np.testing.assert_allclose(values.labelled, rows @ rows.T, atol=1e-8)


def test_no_rival_has_fewer_settings_than_ours():
    grids = Grids()
    assert len(grids.powers) == len(grids.widths) == len(grids.wide) == 3


def test_standardised_coordinates_have_deviation_one_over_unlabelled_windows(stage):
    views = standardised(stage.views)
    np.testing.assert_allclose(views.unlabelled.std(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(views.test * stage.views.unlabelled.std(axis=0), stage.views.test, rtol=1e-12)
    np.testing.assert_array_equal(views.labelled_y, stage.views.labelled_y)


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


# ----------------------------------------------------------------------------------------------------------- rules
@pytest.mark.parametrize("rule", RULES)
def test_rules_are_those_of_the_classifier(rule, stage):
    """The same nearest windows as by the public estimator on the features themselves."""
    views = stage.views
    rows = [np.exp(-((z - stage.centre) ** 2) / 8) for z in (views.labelled, stage.cloud, views.test)]
    own, cloud, test = rows
    values = Values(own @ own.T, cloud @ own.T, (own**2).sum(axis=1), lambda: test @ own.T)
    classifier = KernelNeighborsClassifier(ranking="kernel" if rule == INNER else rule).fit(
        own, views.labelled_y, cloud=cloud
    )
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


def test_tied_neighbours_go_to_the_nearest_or_to_the_smallest_label(global_seed):
    labels = np.array([[5, 2, 2], [5, 2, 3], [4, 1, 9], [7, 7, 1]])
    nearest, smallest = vote(labels)
    assert nearest.tolist() == [2, 5, 4, 7]
    assert smallest.tolist() == [2, 2, 1, 7]
    labels = np.random.default_rng(global_seed).integers(0, 6, (200, 10))
    nearest, smallest = vote(labels)
    np.testing.assert_array_equal(smallest, count_votes(labels, 6).argmax(axis=1))
    for row, found in zip(labels, nearest, strict=True):
        times = np.bincount(row, minlength=6)
        assert found == next(label for label in row if times[label] == times.max())


def test_a_tied_group_goes_to_the_first_class(stage):
    views = stage.views
    found = np.where(np.arange(len(views.test)) % 2 == 0, 0, 5)  # three windows of six each
    assert group_accuracy(found, views) == pytest.approx(100 / 6)


def test_the_first_of_equally_good_settings_is_chosen(stage):
    values = _settings(RAW, stage)["descriptors"]
    rows = measure(iter([("first", values), ("second", values)]), stage.views, RULES, (1,))
    assert [row["rule"] for row in rows] == list(RULES)
    assert {row["setting"] for row in rows} == {"first"}


def test_cosines_of_very_short_features_are_finite():
    """The inverse of the squared length of the first overflows in single precision."""
    own = np.array([[1e-20, 0.0], [1.0, 1.0]], dtype=np.float32)
    products = own @ own.T
    values = Values(products, products, np.diag(products).copy(), lambda: products)
    cosines = values.ranks(products, "cosine") / np.linalg.norm(own.astype(float), axis=1)[:, None]
    np.testing.assert_allclose(cosines, [[1, 0.5**0.5], [0.5**0.5, 1]], rtol=1e-5)


def test_every_rule_has_the_setting_that_is_best_for_it(stage):
    settings = _settings("kPCA", stage)
    for row in measure(iter(settings.items()), stage.views, PLAIN, (1,)):
        scores = {name: validate(values, row["rule"], stage.views) for name, values in settings.items()}
        assert row["validation"] == max(scores.values()) == scores[row["setting"]]


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


def test_the_tables_are_means_over_seeds():
    long = by_count(ROWS, (1, 3), PAPER)
    cells = {(row["coordinates"], row["method"], row["rule"], row["k"]): row for row in long}
    own = cells[RAW_COORDINATES, OWN, CHOSEN, 1]  # inner product of seed 0, cosine of seed 1
    assert (own["accuracy"], own["paper_accuracy"]) == (52.0, 55.7)
    assert cells[RAW_COORDINATES, OWN, "cosine", 1]["spread"] == pytest.approx(np.sqrt(2))
    assert cells[RAW_COORDINATES, OWN, "cosine", 1]["paper_accuracy"] is None
    assert cells[RAW_COORDINATES, OWN, CHOSEN, 3]["smallest_label"] == 47.0
    assert cells[STANDARDISED, OWN, CHOSEN, 3]["paper_accuracy"] == 53.6
    assert cells[STANDARDISED, RAW, CHOSEN, 1]["paper_accuracy"] is None  # the paper has no such row
    learned = by_count([row | {"method": LEARNED} for row in ROWS if row["method"] == OWN], (1,), PAPER)
    assert {row["paper_accuracy"] for row in learned if row["rule"] == CHOSEN} == {55.7}  # the paper's MRF, too
    table = {(row["coordinates"], row["method"]): row for row in summarise(ROWS, long)}
    own = table[RAW_COORDINATES, OWN]
    assert [own[name] for name in ("euclidean", "cosine", "inner_product", "balanced")] == [31.0, 51.0, 53.0, 61.0]
    assert (own["accuracy"], own["rule"], own["seeds"]) == (52.0, "inner product, 1 of 2", 2)
    assert (own["lead"], own["lead_error"]) == (11.0, pytest.approx(1.0))  # 12 and 10
    learned = table[RAW_COORDINATES, LEARNED]  # set against raw descriptors of its own seed
    assert (learned["seeds"], learned["lead"], learned["spread"], learned["lead_error"]) == (1, 3.0, None, None)
    wide = {(row["coordinates"], row["method"]): row for row in neighbours(long)}
    line = wide[STANDARDISED, RAW]
    assert (line["k1"], line["k3"], line["first3"]) == (51.0, 50.0, 46.0)
    assert "first1" not in line


def test_targets_compare_with_the_paper_and_with_raw_descriptors_of_the_same_coordinates():
    found = {row["what"]: (row["seen"], row["holds"]) for row in targets(by_count(ROWS, (1, 3), {}), PAPER)}
    start = "window 64, standardised: MRF by"
    assert found[f"{start} the chosen rule, percent"] == (62.0, True)
    assert found[f"{start} the chosen rule, above raw by euclidean, points"] == (11.0, True)
    assert found[f"{start} euclidean, above raw by euclidean, points"] == (-10.0, False)
    assert len(found) == 2 * (1 + len(RULES)) + 1
    assert not any("percent" in row["what"] for row in targets(by_count(ROWS, (1, 3), {}), {}))  # other textures


def test_the_paper_table_is_whole():
    assert all(set(line) == {1, 3, 5, 10, 15} for line in PAPER.values())
    assert set(PAPER) <= set(METHODS)
    assert PAPER[OWN][1] - PAPER[RAW][1] == pytest.approx(13.3)


# ------------------------------------------------------------------------------------------------------ experiment
def test_every_seed_has_every_method_with_both_coordinates(record):
    found = [
        tuple(row[name] for name in ("window", "seed", "coordinates", "method", "rule"))
        for row in record.tables["seeds"]
    ]
    wanted = [
        (window, seed, coordinates, method, rule)
        for window, seeds, methods in ((16, (10, 11), METHODS), (20, (10,), (RAW, OWN)))
        for seed in seeds
        for coordinates in (RAW_COORDINATES, STANDARDISED)
        for method in methods
        for rule in (PLAIN if method == RAW else RULES)
    ]
    assert found == wanted
    assert "textures" in record.config
    assert "2 draws" in record.config["notes"]
    assert all(row["paper_accuracy"] is None for row in record.tables["brodatz"])  # other textures than the paper's


def test_rows_of_the_tables_are_means_of_the_draws(record):
    """A sample of cells, computed again from the rows of single draws."""
    draws = record.tables["seeds"]
    for row in record.tables["by_k"][::7]:
        if row["rule"] != CHOSEN:
            same = ("window", "coordinates", "method", "rule")
            found = [draw[f"k{row['k']}"] for draw in draws if all(draw[name] == row[name] for name in same)]
            assert row["accuracy"] == pytest.approx(np.mean(found), rel=1e-12)


def test_the_descriptor_is_tried_on_built_in_textures(record):
    (absolute, signed) = record.tables["descriptors"]
    assert (absolute["derivatives"], signed["derivatives"]) == ("absolute", "signed")
    assert absolute["better"] == max(absolute["raw"], absolute["standardised"])


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


def test_the_record_comes_back_from_its_files(record, tmp_path):
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.tables
    assert again.config["protocol"]["window"] == 16


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_seeds": 0}, "`n_seeds`"),
        ({"first_seed": -1}, "`first_seed`"),
        ({"counts": (3, 1)}, "`counts` must be positive numbers of neighbours, ascending"),
        ({"counts": ()}, "`counts`"),
        ({"n_plates": 1}, "`n_plates`"),
        ({"n_others": 0}, "`n_others`"),
        ({"n_learned": -1}, "`n_learned`"),
        ({"other_windows": (64,)}, "`other_windows` must be different, and none of 64"),
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
