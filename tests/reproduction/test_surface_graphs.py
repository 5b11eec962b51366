"""The experiment on the four surfaces' graphs: small, and the record it leaves."""

import json

import numpy as np
import pytest

from manifoldrf import DiffusionKernel, Sphere, relative_error
from reproduction.record import Record
from reproduction.surface_graphs import FINGERPRINTS, SPHERE_TIME, SURFACES, Config, paper_graph, run

SMALL = Config(n_nodes=1000, t=0.06, n_queries=60, sizes=(500, 1000))


@pytest.fixture(scope="module")
def steps():
    return []


@pytest.fixture(scope="module")
def record(steps):
    return run(SMALL, lambda *step: steps.append(step))


def test_every_surface_has_a_connected_graph_of_dimension_two_and_a_small_error(record):
    rows = {row["surface"]: row for row in record.tables["surfaces"]}
    assert list(rows) == list(SURFACES)
    for row in rows.values():
        assert row["components"] == 1
        assert row["dim"] == 2
        # The strip is only two wide steps across here: both its edges are in every neighbourhood.
        assert row["area_found"] == pytest.approx(row["area"], rel=0.15)
        assert row["error"] < 0.02


def test_the_heat_graph_is_closer_to_the_sphere_than_the_neighbour_graph(record):
    for row in record.tables["convergence"]:
        assert row["W^n, heat graph"] < row["exp(-tau L), k = 8"] / 4


def test_progress_is_reported_from_start_to_end(record, steps):
    done = [step[1] for step in steps]
    assert done == list(range(11))
    assert {step[2] for step in steps} == {10}


def test_a_record_survives_saving(record, tmp_path):
    path = record.save(tmp_path / "new folder")
    again = Record.load(path)
    assert again.tables == record.tables
    assert again.environment == record.environment
    assert again.config == json.loads(json.dumps(record.config))
    np.testing.assert_array_equal(again.arrays["torus_kernel"], record.arrays["torus_kernel"])
    assert sorted(p.name for p in path.parent.iterdir()) == ["surface_graphs.json", "surface_graphs.npz"]


def test_a_record_tells_where_it_was_measured(record):
    assert {"manifoldrf", "numpy", "scipy", "python", "commit", "machine"} <= set(record.environment)
    assert record.config["seed"] == 0
    assert record.seconds > 0


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"name": "x"}', "{not json"])
def test_a_damaged_record_is_refused(record, tmp_path, text):
    path = record.save(tmp_path)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"`path` must be the \.json file of a saved record\. Got surface_graphs"):
        Record.load(path)


def test_fingerprints_are_norms_of_the_kernels(record):
    rows = {(row["surface"], row["neighbours"], row["bandwidth"]): row for row in record.tables["fingerprints"]}
    assert len(rows) == 10
    for bandwidth in ("mean", "median"):
        exact = DiffusionKernel(20.0).matrix(paper_graph("torus", 1000, bandwidth=bandwidth))
        assert rows["torus", 8, bandwidth]["fingerprint"] == pytest.approx(1e4 * np.linalg.norm(exact) / len(exact))
    points = Sphere().grid(1000)
    analytic = Sphere().heat_kernel(points, points, 4 * SPHERE_TIME)  # as many steps of a graph of 4000 / 4 nodes
    row = rows["sphere", 8, "mean"]
    assert row["fingerprint"] == pytest.approx(1e4 * np.linalg.norm(analytic) / 1000)
    exact = DiffusionKernel(20.0).matrix(paper_graph("sphere", 1000, bandwidth="mean"))
    error = relative_error(exact, analytic, alignment="frobenius")
    assert row["graph_to_analytic"] == pytest.approx(error)
    assert "paper_fingerprint" not in row  # it is that of 4000 nodes
    by_bandwidth = {row["bandwidth"]: row["graph_to_analytic"] for row in record.tables["sphere"]}
    assert by_bandwidth["2 mean d^2"] == row["graph_to_analytic"]
    narrow = DiffusionKernel(20.0).matrix(paper_graph("sphere", 1000, bandwidth=1.0))
    assert by_bandwidth["1 mean d^2"] == pytest.approx(relative_error(narrow, analytic, alignment="frobenius"))


def test_walks_are_less_noisy_with_wider_weights(record):
    rows = {(row["surface"], row["neighbours"], row["bandwidth"]): row for row in record.tables["fingerprints"]}
    # A third at 4000 nodes. Standard errors over 50 starts are a few per cent.
    assert rows["mobius", 24, "mean"]["walks"] < 0.7 * rows["mobius", 24, "median"]["walks"]


def test_a_bandwidth_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"`bandwidth` must be one of .*'mean'"):
        paper_graph("torus", 400, bandwidth="wide")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_neighbors"), [("ellipsoid", 8), ("torus", 8), ("mobius", 12)])
def test_graphs_of_the_papers_size_have_its_fingerprints(name, n_neighbors):
    graph = paper_graph(name, 4000, n_neighbors=n_neighbors, bandwidth="mean")
    found = np.linalg.norm(DiffusionKernel(20.0).matrix(graph)) / 4000
    assert found == pytest.approx(FINGERPRINTS[name], rel=0.01)


def test_the_sphere_has_the_papers_fingerprint_at_its_time():
    """By the trace of the heat kernel: |K|_F^2 / N^2 is the mean of K_2t(x, x) over the area."""
    degrees = np.arange(200)
    trace = np.sum((2 * degrees + 1) * np.exp(-2 * SPHERE_TIME * degrees * (degrees + 1)))
    assert np.sqrt(trace) / (4 * np.pi) == pytest.approx(FINGERPRINTS["sphere"], rel=1e-3)
