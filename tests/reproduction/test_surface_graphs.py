"""The experiment on the four surfaces' graphs: small, and the record it leaves."""

import numpy as np
import pytest

from manifoldrf import DiffusionKernel, Sphere, relative_error
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


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)


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
