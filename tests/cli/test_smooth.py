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


@pytest.mark.parametrize("options", [("--fwhm", 0.5), ("-t", 0.02)])
def test_the_field_is_that_of_python(mesh_file, values, tmp_path, options):
    path, field = values
    result = invoke("smooth", mesh_file, path, "-o", tmp_path / "out", *options, "--json")
    assert result.exit_code == 0, result.output
    width = {"fwhm": 0.5} if options[0] == "--fwhm" else {"t": 0.02}
    expected = smooth(TriangleMesh.load(mesh_file), field, **width)
    found = np.genfromtxt(tmp_path / "out.csv", delimiter=",", skip_header=1)
    np.testing.assert_array_equal(found[:, 2:], expected)
    np.testing.assert_array_equal(found[:, 1] == 1, ~np.isnan(field[:, 0]))
    assert TriangleMesh.load(tmp_path / "out.ply").n_vertices == len(field)
    assert json.loads(result.stdout)["known"] == int((~np.isnan(field[:, 0])).sum())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "`--fwhm` must be given, or --t, but not both. Got neither."),
        (("--fwhm", 0), "`--fwhm` must be above 0. Got 0.0."),
        (("--fwhm", 1, "--column", 2), "`--column` must be an integer in [0, 1]. Got 2."),
    ],
)
def test_bad_options_end_with_2_and_write_nothing(monkeypatch, mesh_file, values, tmp_path, options, text, capsys):
    assert main(monkeypatch, "smooth", mesh_file, values[0], "-o", tmp_path / "out", *options) == 2
    assert text in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("name", ["folder", "folder/", "new/", "-"])
@pytest.mark.parametrize("command", ["smooth", "interpolate"])
def test_a_folder_is_no_output(monkeypatch, mesh_file, values, tmp_path, command, name, capsys):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    options = ("--fwhm", 1) if command == "smooth" else ()
    assert main(monkeypatch, command, mesh_file, values[0], "-o", name, *options) in (1, 2)
    assert "`--out` must be" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_filter_narrower_than_edges_is_noted(mesh_file, values, tmp_path):
    call = ("smooth", mesh_file, values[0], "-o", tmp_path / "out", "--fwhm")
    assert "the field is hardly smoothed (remedy: a larger fwhm or t)" in invoke(*call, 1e-6).stderr
    assert "hardly smoothed" not in invoke(*call, 0.5).stderr
