"""Few labels on real clouds: the rules against scikit-learn, the clouds, and a small run."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from reproduction.few_label_clouds import OUTLIER, Damage, digits, parts_of, scan
from reproduction.few_labels import METHODS, OWN, Config, Draw, Nearest, Ridge, Trial, run
from reproduction.mesh_data import builtin_mesh

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


def test_cross_validation_never_sees_the_label_that_it_predicts():
    """Distances that are zero only to itself: leave one out is then always wrong, with it always right."""
    own = np.arange(4)
    rule = Nearest(1.0 - np.eye(4) + np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]), own)
    draw = Draw.of(own.reshape(2, 2))
    assert draw.validate(rule) == 0
    np.testing.assert_array_equal(draw.predict(rule), [0, 0, 1, 1])


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


@pytest.mark.slow  # runs the whole experiment
def test_features_of_the_manifold_beat_those_of_the_gaussian_on_digits(record):
    """The claim, small: with one label for each class, at points seen and at new ones."""
    by_method = {row["method"]: row for row in record.tables["accuracy"] if row["labels"] == 1}
    for rival in ("RBFSampler + ridge", "Nystroem + ridge", "kernel ridge, rbf", "kNN"):
        # 30 points more on the whole cloud; the standard error here is about 4.
        assert by_method[OWN]["seen"] > by_method[rival]["seen"] + 0.05
        assert by_method[OWN]["new"] > by_method[rival]["new"]


@pytest.mark.slow  # runs the whole experiment
def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
