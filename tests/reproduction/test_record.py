"""Records come back as they were saved, with or without their arrays, or are refused."""

import json
import shutil

import numpy as np
import pytest

from reproduction.files import read_members
from reproduction.record import Record, finished_part


def make(**parts):
    plain = {"name": "toy", "config": {"sizes": (1, 2)}, "tables": {"toy": [{"error": 0.1}]}, "seconds": 1.5}
    return Record(**(plain | {"environment": {"commit": "abc"}} | parts))


def test_numbers_of_numpy_are_saved_as_plain_ones(tmp_path):
    row = {"holds": np.bool_(True), "nodes": np.int64(4), "error": np.float32(0.5)}
    path = make(tables={"toy": [row]}).save(tmp_path)
    assert Record.load(path).tables == {"toy": [{"holds": True, "nodes": 4, "error": 0.5}]}


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path):
    record = make(tables={"toy": [{"error": np.ones(2)}]})
    with pytest.raises(TypeError, match=r"`record` must be made of text, numbers, .* Got ndarray\."):
        record.save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("name", 3),
        ("config", []),
        ("tables", {"toy": 3}),
        ("tables", {"toy": [3]}),
        ("seconds", "1"),
        ("environment", None),
        ("extra", 1),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(tmp_path, part, value):
    path = make().save(tmp_path)
    path.write_text(json.dumps(make().plain() | {part: value}))
    with pytest.raises(ValueError, match=r"`path` must be .* Got toy\.json"):
        Record.load(path, arrays=False)


def test_arrays_of_another_run_are_refused(tmp_path):
    """Nothing can stop a kill between two names."""
    path = make(arrays={"x": np.zeros(3)}).save(tmp_path)
    other = make(arrays={"x": np.ones(3)}).save(tmp_path / "other")
    shutil.copy(other.with_suffix(".npz"), path.with_suffix(".npz"))
    with pytest.raises(ValueError, match=r"saved together with its arrays\. Got toy\.npz of another run"):
        Record.load(path)
    assert Record.load(path, arrays=False).seconds == 1.5


def test_a_finished_part_is_read_with_its_commit_and_one_of_other_settings_is_measured_again(tmp_path):
    measured = []

    def part(config, folder=tmp_path / "parts"):
        def measure():
            measured.append(config)
            return make(config=config, arrays={"x": np.full(2, len(measured))}, environment={"commit": "new"})

        return finished_part(folder, "toy-1", config, measure)

    first, again = part({"sizes": (1, 2)}), part({"sizes": (1, 2)})  # a tuple is a list in the file
    assert len(measured) == 1
    assert again.plain() == first.plain()
    assert (again.name, again.environment) == ("toy-1", {"commit": "new"})
    np.testing.assert_array_equal(again.arrays["x"], [1, 1])
    np.testing.assert_array_equal(part({"sizes": (1, 3)}).arrays["x"], [2, 2])
    np.testing.assert_array_equal(part({"sizes": (1, 3)}).arrays["x"], [2, 2])
    part({"sizes": (1, 3)}, None)
    assert len(measured) == 3  # without a folder nothing is kept


@pytest.mark.parametrize("config", [{"size": 1}, {"size": 2}])
@pytest.mark.parametrize("arrays", ["of another run", "missing"])
def test_a_part_that_was_killed_between_its_two_files_is_measured_again(tmp_path, config, arrays):
    def part(config, value):
        measured = make(config=config, arrays={"x": np.full(2, value)})
        return finished_part(tmp_path, "toy-1", config, lambda: measured)

    part({"size": 1}, 1.0)
    file = tmp_path / "toy-1.npz"
    if arrays == "missing":
        file.unlink()
    else:
        np.savez(file, x=np.zeros(2))
    np.testing.assert_array_equal(part(config, 2.0).arrays["x"], [2, 2])
    np.testing.assert_array_equal(part(config, 3.0).arrays["x"], [2, 2])  # now it is whole


def test_objects_in_an_archive_are_refused(tmp_path):
    file = tmp_path / "objects.npz"
    np.savez(file, x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="`path` must be a readable"):
        read_members(file, "path")
