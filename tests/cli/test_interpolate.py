"""interpolate: a field that is known at some vertices, filled in and written."""

import json

import numpy as np
import pytest
import trimesh
from command_line import invoke, main

from manifoldrf import FieldInterpolator, Sphere, TriangleMesh
from manifoldrf.geometry.mesh_files import write_ply


@pytest.fixture
def known(mesh_file, tmp_path):
    """A smooth field on the mesh, known at every third vertex."""
    field = TriangleMesh.load(mesh_file).vertices[:, 2]
    nodes = np.arange(0, len(field), 3)
    path = tmp_path / "known.csv"
    lines = [f"{node},{float(field[node])!r}" for node in nodes]
    path.write_text("vertex,height\n" + "\n".join(lines) + "\n")
    return path, field, nodes


def table(path, column="height"):
    assert path.read_text().splitlines()[0] == f"vertex,known,{column}"
    return np.loadtxt(path, delimiter=",", skiprows=1)


def test_the_field_is_that_of_python_and_the_method_is_printed(mesh_file, known, tmp_path):
    values, field, nodes = known
    result = invoke("interpolate", mesh_file, values, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    expected = FieldInterpolator(random_state=0).fit(TriangleMesh.load(mesh_file), field, nodes)
    found = table(tmp_path / "out.csv")
    np.testing.assert_array_equal(found[:, 0], np.arange(len(field)))
    np.testing.assert_array_equal(np.flatnonzero(found[:, 1]), nodes)
    np.testing.assert_array_equal(found[:, 2], expected.predict())
    assert expected.summary().splitlines()[1] in result.stdout


def test_the_picture_has_the_mesh_and_the_colours_of_the_field(mesh_file, known, tmp_path):
    values, field, _ = known
    invoke("interpolate", mesh_file, values, "-o", tmp_path / "out.ply", "--method", "harmonic")
    drawn = trimesh.load(tmp_path / "out.ply", process=False)
    np.testing.assert_allclose(drawn.vertices, TriangleMesh.load(mesh_file).vertices, atol=1e-6)
    brightness = drawn.visual.vertex_colors[:, :3].sum(axis=1)
    order = np.argsort(field)
    assert brightness[order[:20]].mean() > brightness[order[-20:]].mean() + 200  # light is low


def test_points_and_arrays_with_gaps_work_too(tmp_path):
    points = Sphere().grid(300)
    values = np.where(np.arange(300) % 2 == 0, points[:, 0], np.nan)
    np.save(tmp_path / "points.npy", points)
    np.save(tmp_path / "values.npy", values)
    arguments = ("interpolate", tmp_path / "points.npy", tmp_path / "values.npy", "-o", tmp_path / "out.csv")
    facts = json.loads(invoke(*arguments, "--method", "kernel", "--tau", 2, "--json").stdout)
    assert (facts["method"], facts["tau"], facts["known"]) == ("kernel", 2.0, 150)
    expected = FieldInterpolator("kernel", tau=2.0, random_state=0).fit(points, values).predict()
    np.testing.assert_array_equal(table(tmp_path / "out.csv", "value")[:, 2], expected)
    assert len(trimesh.load(tmp_path / "out.ply").vertices) == 300


def test_bad_values_are_one_sentence_and_nothing_is_written(mesh_file, tmp_path, monkeypatch, capsys):
    for text, words in [("0,1.0\n9999,2.0\n", "9999"), ("", "empty"), ("0,inf\n", "vertex 0")]:
        (tmp_path / "bad.csv").write_text(text)
        assert main(monkeypatch, "interpolate", mesh_file, tmp_path / "bad.csv", "-o", tmp_path / "out") == 1
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


def test_both_files_or_none_are_written(mesh_file, known, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TriangleMesh, "save", fail)
    assert (
        main(monkeypatch, "interpolate", mesh_file, known[0], "-o", tmp_path / "out", "--method", "harmonic") == 130
    )
    assert [path.name for path in tmp_path.iterdir()] == ["known.csv"]


@pytest.mark.parametrize("name", ["cloud.ply", "broken.off"])
def test_a_file_that_is_no_mesh_is_called_as_the_command_calls_it(known, tmp_path, monkeypatch, capsys, name):
    values, _, _ = known
    write_ply(tmp_path / "cloud.ply", Sphere().grid(20), np.zeros((20, 3), np.uint8))
    (tmp_path / "broken.off").write_text("OFF 3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n")
    before = sorted(tmp_path.iterdir())
    assert main(monkeypatch, "interpolate", tmp_path / name, values, "-o", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"SPACE: `path` must be a readable triangle mesh. Got {name}: ")
    assert ("pass points as an array, or in an npy, npz or csv file" in error) == (name == "cloud.ply")
    assert sorted(tmp_path.iterdir()) == before


def test_it_is_said_where_no_method_beats_the_mean(mesh_file, tmp_path):
    noise = np.random.default_rng(0).normal(size=(300, 3))
    noise[::3] = np.nan
    np.save(tmp_path / "noise.npy", noise)
    options = (mesh_file, tmp_path / "noise.npy", "-o", tmp_path / "out", "--tau", 8, "--directions")
    result = invoke("interpolate", *options)
    assert result.exit_code == 0, result.output
    assert "Note: no method is better than the mean of the known values" in result.stderr
    assert json.loads(invoke("interpolate", *options, "--json").stdout)["beats_mean"] is False
    quiet = invoke("interpolate", *options, "--quiet")  # a useless result is said to be so in any case
    assert quiet.stdout == ""
    assert "no method is better than the mean" in quiet.stderr
