"""Few labels on real clouds: the rules against scikit-learn, the clouds, and a small run."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from reproduction import few_labels
from reproduction.few_label_clouds import (
    OUTLIER,
    Damage,
    digits,
    parts_of,
    photographs,
    plain_photographs,
    scan,
    window_covariances,
)
from reproduction.few_labels import (
    CLOUDS,
    MAIN,
    METHODS,
    N_SETTINGS,
    OWN,
    OWN_VOTE,
    Config,
    Draw,
    Nearest,
    Ridge,
    Spread,
    Stage,
    Trial,
    Vote,
    find_losses,
    run,
    summarise,
    unit_rows,
)
from reproduction.mesh_data import builtin_mesh
from reproduction.record import Record

SMALL = Config(
    clouds=("digits",),
    labels=(1, 3),
    n_draws=2,
    n_features=64,
    largest=500,
    noises=(0.0,),
    shares=(),
    sweep="cortex",
    sweep_points=500,
    sweep_labels=2,
)


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


@pytest.fixture(scope="module")
def trial():
    """Digits with two draws of three labels for each class."""
    return Trial.of(digits(largest=500), (3,), SMALL)


def _labelled(trial):
    """The first draw, its labelled points and their classes."""
    draw = trial.draws[3][0]
    own = trial.stage.own[draw.chosen]
    return draw, trial.cloud.seen[own], trial.cloud.classes[own]


# ----------------------------------------------------------------------------------------------------------- rules
def test_ridge_is_that_of_scikit_learn(trial):
    draw, points, classes = _labelled(trial)
    stage = trial.stage
    rule = Ridge(stage.everything @ stage.seen[stage.own].T, stage.own, 5.0)
    wanted = RidgeClassifier(5.0, fit_intercept=False).fit(points, classes)
    np.testing.assert_array_equal(draw.predict(rule), wanted.predict(stage.everything))


@pytest.mark.parametrize(("k", "weighted"), [(1, False), (3, True), (1000, True)])
def test_neighbours_are_those_of_scikit_learn(trial, k, weighted):
    draw, points, classes = _labelled(trial)
    stage = trial.stage
    distances = np.linalg.norm(stage.everything[:, None] - stage.seen[stage.own], axis=2)
    rule = Nearest(distances, stage.own, k, weighted)
    weights = "distance" if weighted else "uniform"
    wanted = KNeighborsClassifier(min(k, len(points)), weights=weights).fit(points, classes)
    np.testing.assert_array_equal(draw.predict(rule), wanted.predict(stage.everything))


def test_the_nearest_breaks_ties_of_votes():
    rule = Nearest(np.array([[3.0, 1.0]]), np.array([0, 0]), k=2)
    np.testing.assert_array_equal(rule.scores(np.array([0, 1]), np.eye(2), slice(None)).argmax(axis=1), [1])


def test_a_vote_is_the_sum_of_the_kernel_over_a_class():
    kernel = np.array([[1.0, 4.0, 2.0], [5.0, 1.0, 1.0]])
    rule = Vote(kernel, np.array([0, 1, 1]))
    scores = rule.scores(np.array([0, 1, 2]), np.array([[1.0, 0], [0, 1], [0, 1]]), slice(None))
    np.testing.assert_array_equal(scores, [[1, 6], [5, 2]])


@pytest.mark.parametrize(
    ("method", "place", "options"),
    [
        ("LabelSpreading, knn", 1, {"kernel": "knn", "n_neighbors": 7, "alpha": 0.5}),
        ("LabelSpreading, knn", 10, {"kernel": "knn", "n_neighbors": 30, "alpha": 0.9}),
        ("LabelSpreading, rbf", 17, {"kernel": "rbf", "alpha": 0.5}),
    ],
)
def test_label_spreading_is_the_limit_of_that_of_scikit_learn(trial, method, place, options):
    draw, *_ = _labelled(trial)
    stage, n = trial.stage, len(trial.stage.seen)
    if method.endswith("rbf"):
        options = options | {"gamma": 1 / (2 * (2.0 * stage.near) ** 2)}
    name, rule = list(METHODS[method](stage))[place]
    assert name.endswith(f"alpha {options['alpha']:g}")
    labels = np.full(n, -1)
    labels[stage.own[draw.chosen]] = draw.targets.argmax(axis=1)
    # They change by less than tol in an iteration, so they are within tol alpha / (1 - alpha) of the end.
    model = LabelSpreading(max_iter=2000, tol=1e-9, **options).fit(stage.seen, labels)
    found = rule.scores(draw.chosen, draw.targets, slice(None))
    np.testing.assert_allclose(found[:n], model.label_distributions_, atol=1e-7)
    sums = found[n:].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[n:] / sums, model.predict_proba(stage.new), atol=1e-7)


def test_a_point_that_no_label_reaches_has_no_scores_and_the_first_class():
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    rule = Spread(matrix, np.array([0, 1]), np.array([[0.0, 0.0, 1.0]]))
    draw = Draw.of(np.array([[0], [1]]))
    np.testing.assert_array_equal(rule.scores(draw.chosen, draw.targets, slice(None))[2:], 0)
    np.testing.assert_array_equal(draw.predict(rule), [0, 1, 0, 0])


# ------------------------------------------------------------------------------------------------ cross-validation
def test_every_fold_has_every_class_and_leaves_every_label_out_once():
    draw = Draw.of(np.arange(70).reshape(10, 7))
    assert draw.folds.max() == 4  # five folds
    for number in range(5):
        out = draw.folds == number
        np.testing.assert_array_equal(np.unique(draw.targets[out].argmax(axis=1)), np.arange(10))
    assert len(draw.folds) == 70
    assert Draw.of(np.arange(20).reshape(10, 2)).folds.max() == 1
    assert len(Draw.of(np.arange(10).reshape(10, 1)).folds) == 0


def test_cross_validation_never_sees_the_label_that_it_predicts():
    """Distances that are zero only to itself: leave one out is then always wrong, with it always right."""
    own = np.arange(4)
    rule = Nearest(1.0 - np.eye(4) + np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]), own)
    draw = Draw.of(own.reshape(2, 2))
    assert draw.validate(rule) == 0
    np.testing.assert_array_equal(draw.predict(rule), [0, 0, 1, 1])


def test_the_chosen_setting_is_the_best_on_the_labels_and_the_first_among_equals():
    scores = np.array([[0.5, 0.8], [0.9, 0.8], [0.9, 0.1]])
    found = np.array([[[0.1, 0.2]] * 2, [[0.3, 0.4]] * 2, [[0.9, 1.0]] * 2])
    row = summarise(scores, found)
    assert row["seen"] == pytest.approx((0.3 + 0.1) / 2)
    assert row["new"] == pytest.approx((0.4 + 0.2) / 2)
    assert row["new_spread"] == pytest.approx(np.std([0.4, 0.2], ddof=1))
    assert row["hindsight"] == 1.0
    assert summarise(np.zeros((3, 2)), found)["new"] == 0.2


def test_labelled_points_and_outliers_are_not_counted():
    cloud = scan("cortex", 500, Damage(0.0, 0.5))
    trial = Trial.of(cloud, (2,), SMALL)
    draw = trial.draws[2][0]
    assert (cloud.classes[trial.stage.own] >= 0).all()

    class Truth:
        own = trial.stage.own

        def scores(self, chosen, targets, rows):
            right = np.concatenate([cloud.classes, cloud.new_classes])
            right[trial.stage.own[chosen]] = 0  # wrong for most labelled points
            return np.eye(cloud.n_classes)[right]  # and outliers have the last class

    assert trial.judge(draw, Truth()) == (1.0, 1.0)


# --------------------------------------------------------------------------------------------------------- methods
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_as_many_settings_with_names_of_their_own(trial, method):
    settings = list(METHODS[method](trial.stage))
    assert len({name for name, _ in settings}) == len(settings) == N_SETTINGS
    draw = trial.draws[3][0]
    for _, rule in settings:
        scores = rule.scores(draw.chosen, draw.targets, slice(None))
        assert scores.shape == (500, 10)
        assert np.isfinite(scores).all()


def test_the_first_features_are_the_papers_kernel_on_the_papers_graph(trial):
    stage = trial.stage
    name, rows = stage.own_maps[0]
    assert name == "8 neighbours, tau 20"
    features = ManifoldRandomFeatures(
        DiffusionKernel(20.0), normalize=False, n_features=64, field="step", random_state=0
    ).fit(stage.seen)
    np.testing.assert_array_equal(rows, features.transform(stage.everything))


def test_rows_of_zeros_stay():
    np.testing.assert_array_equal(unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])), [[0.6, 0.8], [0.0, 0.0]])


def test_the_scale_of_features_is_that_of_rows_of_length_one():
    stage = Stage(np.arange(6.0).reshape(3, 2), np.ones((1, 2)), np.array([0, 2]), 16, 0)
    rows = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 0.0], [9.0, 9.0]])  # the last is a new point, and does not count
    np.testing.assert_allclose(stage.linear(rows), rows @ rows[[0, 2]].T / 2)


# ---------------------------------------------------------------------------------------------------------- clouds
def test_a_quarter_of_the_digits_is_kept_from_all_methods():
    cloud = digits()
    assert (len(cloud.seen), len(cloud.new), cloud.n_classes) == (1348, 449, 10)
    together = {row.tobytes() for row in np.vstack([cloud.seen, cloud.new])}
    assert len(together) == 1797  # no two digits are the same image


def test_photographs_are_covariances_of_windows():
    pytest.importorskip("PIL")
    matrices, classes = window_covariances()
    assert matrices.shape == (3744, 5, 5)
    np.testing.assert_array_equal(np.bincount(classes), np.full(24, 156))
    logs, plain = photographs(), plain_photographs()
    np.testing.assert_array_equal(logs.classes, plain.classes)
    # The entries in question are the same matrices: distances of vectors are Frobenius distances.
    order = cKDTree(plain.seen).query(plain.seen[:5], 1)[0]
    np.testing.assert_array_equal(order, 0)
    norms = np.linalg.norm(plain.seen, axis=1)
    wanted = np.linalg.norm(matrices, axis=(1, 2))
    # Sums of the same squares in another order.
    assert np.isin(np.round(norms, 12), np.round(wanted, 12)).mean() > 0.99


def test_parts_of_a_scan_are_cells_along_the_edges():
    mesh = builtin_mesh("sheet", 600).mesh
    parts = parts_of(mesh, 4)
    edges = mesh.edges
    for part in range(4):  # a cell of shortest ways is in one piece
        inside = np.flatnonzero(parts == part)
        links = edges[(parts[edges] == part).all(axis=1)]
        reached = {int(inside[0])}
        while True:
            more = {
                int(v) for edge in links for v in edge if (edge[0] in reached) != (edge[1] in reached)
            } - reached
            if not more:
                break
            reached |= more
        assert len(reached) == len(inside)


def test_damage_has_the_size_it_says():
    clean, damaged = scan("cortex", 1000, Damage()), scan("cortex", 1000, Damage(0.5, 0.1))
    n = len(clean.seen)
    np.testing.assert_array_equal(clean.classes, damaged.classes[:n])
    assert (damaged.classes[n:] == OUTLIER).all()
    assert len(damaged.seen) == n + round(0.1 * n)
    vertices = np.asarray(builtin_mesh("cortex", 1000).mesh.vertices)
    spacing = np.median(cKDTree(vertices).query(vertices, 2)[0][:, 1])
    moved = np.concatenate([damaged.seen[:n] - clean.seen, damaged.new - clean.new]) / spacing
    # The deviation of N normal numbers is off by 1 / sqrt(2 N), times four.
    assert moved.std() == pytest.approx(0.5, rel=4 / np.sqrt(2 * moved.size))


# ------------------------------------------------------------------------------------------------------ experiment
@pytest.mark.slow
def test_every_method_has_a_row_for_every_number_of_labels(record):
    rows = [(row["method"], row["labels"]) for row in record.tables["accuracy"]]
    assert rows == [(method, k) for method in METHODS for k in (1, 3)]
    assert [row["method"] for row in record.tables["sweep"]] == list(MAIN)
    for row in record.tables["accuracy"]:
        assert 0.1 < row["new"] <= 1  # better than chance on ten classes
        assert row["new"] <= row["hindsight"] + 0.1 if row["labels"] == 3 else row["new"] <= row["hindsight"]


@pytest.mark.slow  # runs the whole experiment
def test_features_of_the_manifold_beat_those_of_the_gaussian_on_digits(record):
    """The claim, small: with one label for each class, at points seen and at new ones."""
    by_method = {row["method"]: row for row in record.tables["accuracy"] if row["labels"] == 1}
    for rival in ("RBFSampler + ridge", "Nystroem + ridge", "kernel ridge, rbf", "kNN"):
        # 30 points more on the whole cloud; the standard error here is about 4.
        assert by_method[OWN]["seen"] > by_method[rival]["seen"] + 0.05
        assert by_method[OWN]["new"] > by_method[rival]["new"]


def _loss_row(cloud, method, draws):
    return {"cloud": cloud, "labels": 1, "method": method, "new": float(np.mean(draws)), "draws": list(draws)}


def test_a_lead_counts_from_twice_its_error_on():
    rows = [
        _loss_row("a", OWN, [0.4, 0.6]),
        _loss_row("a", OWN_VOTE, [0.5, 0.7]),
        _loss_row("a", "kNN", [0.61, 0.79]),  # .11 and .09 ahead: .1 with an error of .01
        _loss_row("b", OWN, [0.5, 0.9]),
        _loss_row("b", "kNN", [0.4, 0.8]),
        _loss_row("c", OWN, [0.5, 0.9]),
        _loss_row("c", "kNN", [0.6, 0.7]),
    ]
    behind, ahead, even = find_losses(rows)
    assert (behind["we_are"], behind["ours"], behind["rival"]) == ("behind", OWN_VOTE, "kNN")
    assert (behind["lead"], behind["error"]) == pytest.approx((-0.1, 0.01))
    assert (ahead["we_are"], ahead["error"]) == ("ahead", pytest.approx(0, abs=1e-12))
    assert even["we_are"] == "even"  # .05, and an error of .15
    assert find_losses([row | {"draws": row["draws"][:1]} for row in rows])[0]["we_are"] == "even"


@pytest.mark.slow  # runs the whole experiment
def test_the_arrays_hold_every_draw_of_every_row(record):
    rows = record.tables["accuracy"]
    assert record.arrays["new"].shape == (len(rows), SMALL.n_draws)
    # The same numbers, summed alike.
    np.testing.assert_allclose(record.arrays["new"].mean(axis=1), [row["new"] for row in rows], rtol=1e-12)
    assert "draws" not in rows[0]


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(trial):
    again = Trial.of(digits(largest=500), (3,), SMALL)
    assert again.tune("kNN") == trial.tune("kNN")
    other = Config(**{**vars(SMALL), "seed": 1})
    assert Trial.of(digits(1, largest=500), (3,), other).tune("kNN") != trial.tune("kNN")


def test_a_cloud_whose_package_is_missing_is_named(monkeypatch):
    def missing(*args):
        raise ModuleNotFoundError("no pictures here")

    monkeypatch.setattr(few_labels, "photographs", missing)
    found, notes = few_labels._make(Config(clouds=("photographs", "digits")))
    assert [cloud.name for cloud in found] == ["digits"]
    assert notes == ["photographs left out: no pictures here"]


@pytest.mark.slow  # runs the whole experiment
def test_the_record_comes_back_from_its_files(record, tmp_path):
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.tables


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"clouds": ("moons",)}, "`clouds` must be"),
        ({"labels": (5, 1)}, "`labels` must be positive numbers, ascending"),
        ({"n_draws": 0}, "`n_draws` must be"),
        ({"noise": -1.0}, "`noise` must be"),
        ({"noises": (0.0, -1.0)}, "`noises` must be nonnegative numbers"),
        ({"sweep": "torus"}, "`sweep` must be"),
        ({"largest": 10}, "`largest` must be"),
    ],
)
def test_wrong_settings_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        Config(**changes)


def test_more_labels_than_points_are_refused():
    with pytest.raises(ValueError, match="`labels` must be fewer than the points of every class"):
        Trial.of(digits(largest=500), (400,), SMALL)


def test_all_clouds_are_in_the_large_size():
    assert few_labels.SIZES["paper"].clouds == CLOUDS
