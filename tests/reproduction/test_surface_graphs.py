"""The experiment on the four surfaces' graphs: small, and the record it leaves."""

import json

import numpy as np
import pytest

from reproduction.record import Record
from reproduction.surface_graphs import SURFACES, Config, run

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
    assert done == list(range(7))
    assert {step[2] for step in steps} == {6}


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
