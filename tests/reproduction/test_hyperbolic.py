"""Hyperbolic space, local on compacts: small, and what the experiment claims."""

import dataclasses

import numpy as np
import pytest

from manifoldrf import HyperbolicSpace
from reproduction.hyperbolic import (
    PAPER,
    RECIPES,
    SIZES,
    Config,
    Recipe,
    _Bench,
    errors_at,
    local_time,
    neighbor_graph,
    run,
)
from reproduction.record import Record

SMALL = Config(
    radii=(2.0, 4.0),
    n_nodes=(400, 800),
    n_fixed=300,
    n_queries=40,
    n_seeds=2,
    recipe_radii=(4.0,),
    n_recipe=300,
    n_paper=200,
    n_starts=30,
    n_walks=100,
    epochs=2,
    exhaustion_nodes=(200, 300),
    exhaustion_radii=(2.0, 3.0),
)


@pytest.fixture(scope="module")
def record():
    seen = []
    found = run(SMALL, lambda what, done, total: seen.append((done, total)))
    assert seen == [(i + 1, len(seen)) for i in range(len(seen))]
    return found


@pytest.mark.slow  # runs the whole experiment
def test_a_larger_ball_is_closer_to_the_exact_kernel(record):
    small, large = record.tables["radii"]
    assert large["error"] < 0.5 * small["error"]
    assert large["unaligned"] < 0.2 * small["unaligned"]
    assert large["error"] < large["iid"]
    assert large["error"] < large["walks_error"]
    assert large["scale"] == pytest.approx(1.0, abs=0.1)  # 800 nodes; .01 with 4000
    assert (small["paper_error"], large["paper_rmse"]) == (PAPER[2.0][0], PAPER[4.0][1])


@pytest.mark.slow  # runs the whole experiment
def test_new_points_are_no_worse_than_nodes(record):
    for row in record.tables["radii"]:
        assert row["new_points"] < 1.3 * row["error"]


@pytest.mark.slow  # runs the whole experiment
def test_a_cell_is_what_its_definition_says(record):
    """The errors of one ball from scratch, with the formulas written out."""
    bench, found = _Bench(SMALL), []
    for seed in (0, 1):
        ball = HyperbolicSpace(3, 4.0)
        nodes = Recipe().nodes(ball, 800, 1.5, seed)
        features = Recipe().fit(ball, nodes, 0.5, 1.5)
        queries = bench.queries(nodes, seed)
        d = ball.distance(queries, queries)
        ratio = np.divide(d, np.sinh(d), out=np.ones_like(d), where=d > 0)
        exact = (2 * np.pi) ** -1.5 * ratio * np.exp(-0.5 - d**2 / 2)
        kernel = features.kernel_matrix(queries)
        factor = (kernel * exact).sum() / (kernel**2).sum()
        gap = factor * kernel - exact
        found.append((np.linalg.norm(gap) / np.linalg.norm(exact), 1e3 * np.sqrt((gap**2).mean()), factor))
    row = record.tables["radii"][1]
    mean = np.mean(found, axis=0)
    # Sums in another order.
    assert (row["error"], row["rmse"], row["scale"]) == pytest.approx(tuple(mean), rel=1e-9)
    assert row["spread"] == pytest.approx(np.std([f[0] for f in found]), rel=1e-6)


@pytest.mark.slow  # runs the whole experiment
def test_all_recipes_are_compared_and_the_best_is_the_one_in_use(record):
    rows = record.tables["recipes"]
    assert len(rows) == len(RECIPES) == 16
    keys = ("points", "relaxed", "density", "graph")
    assert {tuple(row[key] for key in keys) for row in rows} == {dataclasses.astuple(recipe) for recipe in RECIPES}
    heat = [row["error"] for row in rows if row["graph"] == "heat"]
    others = [row["error"] for row in rows if row["graph"] == "knn"]
    assert max(heat) < min(others)
    first = rows[0]
    assert (first["points"], first["relaxed"], first["density"], first["graph"]) == ("even", True, "known", "heat")
    assert first["error"] < 1.15 * min(heat)  # the best, or as good


@pytest.mark.slow  # runs the whole experiment
def test_causes_of_a_wrong_scale_show_in_their_own_column(record):
    rows = {row["cause"]: row for row in record.tables["calibration"]}
    assert len(rows) == 9
    # On H^3 in closed form, without the truncated tail: 1 + s2 / 6 + ... with s2 = .5 and .25
    long = [row["time"] for cause, row in rows.items() if "Gaussian steps" in cause]
    exact = [4 / s2 * (s2 / 4 + np.log((1 + np.exp(s2)) / 2)) / 3 for s2 in (0.5, 0.25)]
    assert long == pytest.approx(exact, rel=5e-3)  # what is beyond the reach of a step
    assert rows["nodes pushed apart, weights as before"]["volume"] < 0.9
    assert rows["none: calibrated steps"]["volume"] == pytest.approx(1.0, abs=0.06)  # a few nodes of 80
    assert rows["neighbours, clock of the whole graph"]["time"] < 0.7


def test_the_clock_of_the_inner_ball_is_exact_where_it_is_the_whole():
    """For even nodes everywhere both clocks agree up to the difference of E cosh d and E d^2."""
    ball = HyperbolicSpace(3, 1.0)
    nodes = Recipe(relaxed=False).nodes(ball, 600, 1.0, None)
    graph = neighbor_graph(ball, nodes, known=True)
    assert local_time(graph, ball, 0.5, 1.0, "square") == pytest.approx(0.5, rel=1e-12)
    assert local_time(graph, ball, 0.5, 1.0) == pytest.approx(0.5, rel=0.02)


def test_errors_without_alignment_count_the_scale():
    class Twice:
        def kernel_matrix(self, points):
            return 2.0 * HyperbolicSpace().heat_kernel(points, points, 0.5)

    ball = HyperbolicSpace()
    found = errors_at(Twice(), ball, ball.ball(1.5).sample(9, seed=0), 0.5)
    assert found == pytest.approx({"error": 0.0, "rmse": 0.0, "unaligned": 1.0, "scale": 0.5}, abs=1e-12)


@pytest.mark.slow  # runs the whole experiment
def test_targets_hold_what_the_tables_say(record):
    targets = {row["promise"]: row for row in record.tables["targets"]}
    assert targets["error at R = 4 at most"]["seen"] == record.tables["radii"][1]["error"]
    assert all(row["holds"] == (row["seen"] <= row["limit"]) for row in targets.values())
    assert targets["estimated error within a factor of the true one"]["holds"]


@pytest.mark.slow  # runs the whole experiment
def test_the_record_comes_back_from_its_files(record, tmp_path):
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.tables
    for name, values in record.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], values)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"radii": (1.0, 2.0), "n_nodes": (300, 300)}, "`radii` must be ascending, all larger than the inner ball"),
        ({"n_nodes": (300,)}, "`n_nodes` must be as many numbers as radii"),
        ({"t": 0.0}, "`t` must be"),
        ({"n_paper": 10}, "`n_paper` must be"),
        ({"recipe_radii": (3.0, 2.0)}, "`recipe_radii` must be ascending"),
    ],
)
def test_bad_settings_are_named(change, text):
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(SMALL, **change)


def test_the_paper_size_is_the_paper():
    config = SIZES["paper"]
    assert config.radii == tuple(PAPER)
    assert (config.t, config.inner, config.n_queries) == (0.5, 1.5, 128)
    assert [PAPER[radius][0] for radius in config.radii] == [0.31, 0.29, 0.25, 0.26, 0.19, 0.21, 0.18]
