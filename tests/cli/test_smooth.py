"""smooth: a field on a mesh, smoothed as in Python and written."""

import json

import numpy as np
import pytest
from command_line import invoke, main

from manifoldrf import TriangleMesh, smooth


@pytest.fixture
def values(mesh_file, tmp_path):
    field = np.random.default_rng(0).standard_normal((TriangleMesh.load(mesh_file).n_vertices, 2))
    field[::10] = np.nan
    np.save(tmp_path / "values.npy", field)
    return tmp_path / "values.npy", field


def test_the_field_is_that_of_python(mesh_file, values, tmp_path):
    path, field = values
    result = invoke("smooth", mesh_file, path, "-o", tmp_path / "out", "--fwhm", 0.5, "--json")
    assert result.exit_code == 0, result.output
    expected = smooth(TriangleMesh.load(mesh_file), field, fwhm=0.5)
    found = np.genfromtxt(tmp_path / "out.csv", delimiter=",", skip_header=1)
    np.testing.assert_array_equal(found[:, 2:], expected)
    np.testing.assert_array_equal(found[:, 1] == 1, ~np.isnan(field[:, 0]))
    assert TriangleMesh.load(tmp_path / "out.ply").n_vertices == len(field)
    assert json.loads(result.stdout)["known"] == int((~np.isnan(field[:, 0])).sum())


def test_bad_options_end_with_2_and_write_nothing(monkeypatch, mesh_file, values, tmp_path, capsys):
    for options, rule in (
        ((), "`--fwhm` must be given, or --t"),
        (("--fwhm", 1, "--column", 2), "`--column` must be"),
    ):
        assert main(monkeypatch, "smooth", mesh_file, values[0], "-o", tmp_path / "out", *options) == 2
        assert rule in capsys.readouterr().err.replace("\n", " ")
        assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("name", ["folder", "new/", "-"])
def test_a_folder_is_no_output(monkeypatch, mesh_file, values, tmp_path, name, capsys):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(monkeypatch, "smooth", mesh_file, values[0], "-o", name, "--fwhm", 1) in (1, 2)
    assert "`--out` must be" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_filter_narrower_than_edges_is_noted(mesh_file, values, tmp_path):
    call = ("smooth", mesh_file, values[0], "-o", tmp_path / "out", "--fwhm")
    assert "the field is hardly smoothed (remedy: a larger fwhm or t)" in invoke(*call, 1e-6).stderr
    assert "hardly smoothed" not in invoke(*call, 0.5).stderr
