"""Tables with other columns than coordinates, and with missing values."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from command_line import invoke, main

from manifoldrf import DiffusionKernel, KnnGraph, ManifoldRandomFeatures, Sphere, load
from manifoldrf._arrays import Table, open_rows, read_points
from manifoldrf._validation import counting_columns

POINTS = Sphere().grid(300)
HOLES = {5: "", 7: "NA", 9: "nan", 200: " null "}  # row -> what its y is
WHOLE = np.array([k not in HOLES for k in range(300)])
FIT = ("--tau", 20, "--n-features", "all")


def table_row(k, hole=None):
    x, y, z = POINTS[k].tolist()
    return [f"s{k:03d}", x, y if hole is None else hole, z, "north, far" if z > 0 else "south"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same points in several tables, and the features that are fitted to them."""
    path = tmp_path_factory.mktemp("tables")
    for name, holes in (("whole", {}), ("holes", HOLES)):
        with (path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["subject", "x", "y", "z", "class"])
            writer.writerows(table_row(k, holes.get(k)) for k in range(300))
    columns = np.column_stack([np.arange(300), POINTS])
    np.save(path / "columns.npy", columns)
    np.savetxt(path / "counted.csv", columns, delimiter=",", header="n,x,y,z", comments="", fmt="%.17g")
    assert main_fit(path, "whole.csv", "--columns", "x,y,z").exit_code == 0
    return path


def main_fit(path, source, *options):
    return invoke("fit", path / source, "-o", path / "m.safetensors", *FIT, *options)


def expected(rows):
    return ManifoldRandomFeatures(DiffusionKernel(20.0), "all", random_state=0).fit(rows).transform(POINTS)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("whole.csv", ("--columns", "x, y,z")),
        ("whole.csv", ("--id", "subject", "--label", "class")),
        ("columns.npy", ("--columns", "1,2,3")),
    ],
)
def test_the_named_columns_are_the_coordinates(folder, tmp_path, source, options):
    target = tmp_path / "m.safetensors"
    result = invoke("fit", folder / source, "-o", target, *FIT, *options)
    assert result.exit_code == 0, result.output
    assert "looks like a row number" not in result.stderr
    np.testing.assert_array_equal(load(target).transform(POINTS), expected(POINTS))


def test_the_order_of_columns_is_that_of_the_option(folder):
    np.testing.assert_array_equal(read_points(folder / "whole.csv", table=Table([3, 1])), POINTS[:, [2, 0]])
    blocks = [block for _, block in open_rows(folder / "columns.npy", chunk=7, table=Table([3, 1]))]
    np.testing.assert_array_equal(np.concatenate(blocks), POINTS[:, [2, 0]])


def test_ids_of_a_table_without_names_may_be_text(folder, tmp_path):
    lines = (folder / "whole.csv").read_text().splitlines()
    (tmp_path / "bare.csv").write_text("\n".join(lines[1:]) + "\n")
    options = ("-o", tmp_path / "f.csv", "--id", "0", "--label", "4")
    result = invoke("transform", folder / "m.safetensors", tmp_path / "bare.csv", *options)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "f.csv")
    assert list(found.columns[:2]) == ["column 0", "column 4"]
    assert found["column 0"].tolist() == [f"s{k:03d}" for k in range(300)]


def test_rows_with_missing_values_are_left_out_on_request_and_counted(folder, tmp_path):
    target = tmp_path / "m.safetensors"
    call = ("fit", folder / "holes.csv", "-o", target, *FIT, "--columns", "x,y,z", "--missing", "drop")
    result = invoke(*call)
    assert result.exit_code == 0, result.output
    assert "Note: 4 rows of " in result.stderr
    np.testing.assert_array_equal(load(target).transform(POINTS), expected(POINTS[WHOLE]))
    assert json.loads(invoke(*call, "--json").stdout)["rows left out"] == 4


def test_missing_values_are_an_error_by_default(folder, tmp_path):
    result = invoke("fit", folder / "holes.csv", "-o", tmp_path / "m.safetensors", "--columns", "x,y,z")
    assert str(result.exception).startswith("`INPUT` must be a table of numbers")
    assert "Got '' in line 7, column 3 of 'holes.csv'" in str(result.exception)
    np.save(tmp_path / "nan.npy", np.vstack([POINTS, [np.nan, 0, 1]]))
    options = ("-o", tmp_path / "m.safetensors", *FIT)
    assert "nan in row 301, column 1" in str(invoke("fit", tmp_path / "nan.npy", *options).exception)
    assert invoke("fit", tmp_path / "nan.npy", *options, "--missing", "drop").exit_code == 0


@pytest.mark.parametrize("chunk", [7, 1000])
def test_transform_copies_id_and_label_to_a_csv_file(folder, tmp_path, chunk):
    options = ("--id", "subject", "--label", "class", "--missing", "drop", "--chunk-size", chunk)
    for target in ("f.csv", "f.npy"):
        result = invoke(
            "transform", folder / "m.safetensors", folder / "holes.csv", "-o", tmp_path / target, *options
        )
        assert result.exit_code == 0, result.output
    found, features = pd.read_csv(tmp_path / "f.csv"), load(folder / "m.safetensors")
    assert list(found.columns) == ["subject", "class", *features.get_feature_names_out()]
    rows = [table_row(k) for k in np.flatnonzero(WHOLE)]
    assert found["subject"].tolist() == [row[0] for row in rows]
    assert found["class"].tolist() == [row[4] for row in rows]
    np.testing.assert_array_equal(found.to_numpy()[:, 2:].astype(float), features.transform(POINTS[WHOLE]))
    np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), features.transform(POINTS[WHOLE]))


def test_kernels_between_tables(folder, tmp_path):
    options = ("-o", tmp_path / "K.npy", "--columns", "x,y,z", "--missing", "drop")
    files = (folder / "whole.csv", folder / "holes.csv")
    result = invoke("kernel", folder / "m.safetensors", *files, *options, "--json")
    assert json.loads(result.stdout)["rows left out"] == 4
    wanted = load(folder / "m.safetensors").kernel_matrix(POINTS, POINTS[WHOLE])
    np.testing.assert_allclose(np.load(tmp_path / "K.npy"), wanted, rtol=1e-12, atol=1e-15)
    column = tmp_path / "column.npy"
    invoke("kernel", folder / "m.safetensors", files[0], "--vertex", 3, "-o", column, "--columns", "x,y,z")
    np.testing.assert_allclose(np.load(column)[WHOLE, 0], wanted.T[:, 3], rtol=1e-12, atol=1e-15)


def test_options_that_do_not_fit_the_table_are_wrong_usage(folder, mesh_file, monkeypatch, capsys, tmp_path):
    model, table, target = folder / "m.safetensors", folder / "whole.csv", ("-o", tmp_path / "no.safetensors")
    for call, rule in [
        (("fit", table, *target, "--columns", "x,y,q"), "`--columns` must be names of columns"),
        (("fit", table, *target, "--columns", ""), "Got ''"),
        (("fit", table, *target, "--columns", "x,y,x"), "Got column x twice"),
        (("fit", table, *target, "--columns", "x,y", "--id", "y"), "Got column y twice"),
        (("fit", table, *target, "--label", "5"), "`--label` must be names of columns"),
        (("fit", mesh_file, *target, "--id", "n"), "`--id` must be left out"),
        (
            ("transform", model, mesh_file, "-o", tmp_path / "no.npy", "--columns", "0,1"),
            "`--columns` must be left",
        ),
        (
            ("kernel", model, table, "--vertex", 1, "-o", tmp_path / "no.npy", "--missing", "drop"),
            "`--missing` must",
        ),
    ]:
        assert main(monkeypatch, *call) == 2
        assert rule in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::manifoldrf.ManifoldWarning", "ignore::UserWarning")
def test_a_column_that_counts_rows_is_named(folder, tmp_path):
    options = ("--graph", "knn", "--tau", 5)
    result = invoke("fit", folder / "counted.csv", "-o", tmp_path / "m.safetensors", *options)
    assert "'n', looks like a row number" in result.stderr
    frame = pd.DataFrame(np.column_stack([POINTS, np.arange(17, 317)]), columns=["x", "y", "z", "row"])
    with pytest.warns(UserWarning, match="'row', looks like a row number"):
        ManifoldRandomFeatures(DiffusionKernel(5.0), graph=KnnGraph(), random_state=0).fit(frame)


def test_columns_that_count():
    n = np.arange(20.0)
    table = np.column_stack([n, n + 7, 2 * n, n[::-1], n + 0.5, np.where(n == 19, 25, n), np.sin(n)])
    assert counting_columns(table) == [0, 1, 3, 5]
    assert counting_columns(table[:9]) == []  # too few rows to be sure


def test_columns_that_count_rows_of_which_some_are_left_out():
    rng = np.random.default_rng(0)
    rows = np.arange(1.0, 401.0)
    ages, prices = rng.integers(18, 90, 400), rng.integers(0, 100_000, 400)
    table = np.column_stack([rows, ages, prices, rng.permutation(rows), rows[::-1] // 2])
    assert counting_columns(table) == [0, 3]
    assert counting_columns(table[np.sort(rng.permutation(400)[:300])]) == [0, 3]  # a split for training
    assert counting_columns(table[:11][rng.permutation(11)]) == [0]


def test_ids_and_labels_are_copied_as_they_are(folder, tmp_path):
    """Texts with #, and integers with more digits than floats have."""
    lines = [f"#{k},{x},{y},{z},#ff{k}" for k, (x, y, z) in enumerate(POINTS[:5].tolist())]
    (tmp_path / "t.csv").write_text("\n".join(["name,x,y,z,colour", *lines, ""]))
    options = ("--id", "name", "--label", "colour")
    done = invoke("transform", folder / "m.safetensors", tmp_path / "t.csv", "-o", tmp_path / "f.csv", *options)
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "f.csv")
    assert found["name"].tolist() == [f"#{k}" for k in range(5)]
    assert found["colour"].tolist() == [f"#ff{k}" for k in range(5)]
    numbers = Table([1], [0])
    np.save(tmp_path / "n.npy", np.array([[2**53 + 1, 3]]))
    assert read_points(tmp_path / "n.npy", "POINTS", numbers).tolist() == [[3.0]]
    assert list(numbers.cells) == [[str(2**53 + 1)]]
    (tmp_path / "latin.csv").write_bytes("name,x,y,z,colour\nM\xfcller,1,2,3,red\n".encode("latin-1"))
    result = invoke(
        "transform", folder / "m.safetensors", tmp_path / "latin.csv", "-o", tmp_path / "g.csv", *options
    )
    assert result.exit_code == 1
    assert "`--id and --label` must be columns of a file in UTF-8" in str(result.exception)


def test_row_numbers_of_pandas_are_no_points(tmp_path):
    pd.DataFrame(POINTS).to_csv(tmp_path / "p.csv")
    result = invoke("fit", tmp_path / "p.csv", "-o", tmp_path / "m.safetensors", "--columns", "1,2,3", *FIT)
    assert "a file without column numbers in its first line" in str(result.exception)
