"""Hyperbolic space, local on compacts: small, and what the experiment claims."""

import numpy as np
import pytest

from manifoldrf import HyperbolicSpace
from reproduction.hyperbolic import PAPER, Config, Recipe, _Bench, local_time, neighbor_graph, run

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


def test_the_clock_of_the_inner_ball_is_exact_where_it_is_the_whole():
    """For even nodes everywhere both clocks agree up to the difference of E cosh d and E d^2."""
    ball = HyperbolicSpace(3, 1.0)
    nodes = Recipe(relaxed=False).nodes(ball, 600, 1.0, None)
    graph = neighbor_graph(ball, nodes, known=True)
    assert local_time(graph, ball, 0.5, 1.0, "square") == pytest.approx(0.5, rel=1e-12)
    assert local_time(graph, ball, 0.5, 1.0) == pytest.approx(0.5, rel=0.02)


@pytest.mark.slow  # runs the whole experiment
def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
