"""fit, transform, kernel, explore, info: what the library gives, in files."""

import json
import os
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import invoke, main, words

from manifoldrf import (
    Counts,
    DiffusionKernel,
    HeatGraph,
    HeatKernel,
    ManifoldRandomFeatures,
    MaternKernel,
    Sphere,
    TriangleMesh,
    explore,
    knn_graph,
    load,
)
from manifoldrf.cli import program
from manifoldrf.cli.options import Parameters, Running
from manifoldrf.kernels import CosineKernel

FIT = ("-t", 0.5, "--n-features", 60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Points of the sphere in files, and features fitted to them."""
    path = tmp_path_factory.mktemp("models")
    np.save(path / "sphere.npy", Sphere().grid(200))
    np.save(path / "new.npy", Sphere().sample(50, seed=1))
    np.savetxt(path / "new.csv", Sphere().sample(50, seed=1), delimiter=",", fmt="%.17g")
    result = invoke("fit", path / "sphere.npy", "-o", path / "m.safetensors", *FIT)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def features(folder):
    return load(folder / "m.safetensors")


class TestFit:
    def test_the_model_is_that_of_python(self, folder, features):
        expected = ManifoldRandomFeatures(HeatKernel(0.5), n_features=60, random_state=0).fit(Sphere().grid(200))
        new = np.load(folder / "new.npy")
        np.testing.assert_array_equal(features.transform(new), expected.transform(new))

    def test_the_summary_the_facts_or_nothing_is_printed(self, folder, features, tmp_path):
        call = ("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", *FIT)
        printed = invoke(*call).stdout
        for line in features.summary().splitlines():
            assert line.rstrip() in printed
        facts = json.loads(invoke(*call, "--json").stdout)
        assert facts["features"] == 60
        assert facts["error"]["kernel"] == float(features.error_)
        assert invoke(*call, "--quiet").output == ""

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"t": 0.5}, {"kernel": HeatKernel(0.5)}),
            ({"tau": 2.0, "normalize": False}, {"kernel": DiffusionKernel(2.0), "normalize": False}),
            (
                {"nu": 1.5, "lengthscale": 0.2, "clock": "manifold", "quadrature": "voronoi", "field": "step"},
                {"kernel": MaternKernel(1.5, 0.2, "manifold"), "quadrature": "voronoi", "field": "step"},
            ),
            ({"n_features": "all", "anchors": "all"}, {"n_features": "all", "anchors": "all", "graph": None}),
        ],
    )
    def test_options_are_parameters_of_the_estimator(self, given, expected):
        found = Parameters(**given).estimator(Running(seed=3, n_jobs=2)).get_params(deep=False)
        expected = ManifoldRandomFeatures(**expected, random_state=3, n_jobs=2).get_params(deep=False)
        assert found == expected

    def test_graphs_teachers_and_networks_are_described_by_their_parameters(self):
        given = {"teacher": "counts", "field": "network", "changes": ["teacher__n_walks=500", "field__epochs=7"]}
        found = Parameters(noise_std=0.1, dim=2, **given).estimator(Running())
        assert found.teacher == Counts(500)
        assert found.field.epochs == 7
        assert found.graph.get_params() == HeatGraph(noise_std=0.1, dim=2).get_params()
        recipe = Parameters(paper=True, tau=3.0, changes=["graph__n_neighbors=24"]).estimator(Running(seed=1))
        assert (recipe.teacher.n_walks, recipe.kernel.tau, recipe.graph.n_neighbors) == (100_000, 3.0, 24)
        assert recipe.random_state == 1

    def test_wrong_options_are_wrong_usage(self, folder, tmp_path):
        for arguments, text in [
            (["--tau", 3, "--kernel", "heat"], "`--tau` must be left out"),
            (["--kernel", "heat"], "`--t` must be given"),
            (["--kernel", "heart"], "'heart' is not one of"),
            (["--graph", "knn", "--dim", 3], "`--dim` must be left out"),
            (["--set", "walks"], "`--set` must be field=value"),
            (["--set", "teacher__n_walks=3"], "`teacher__n_walks` needs an object"),
            (["-t", 1e9], "`--t` must be at most "),
            (["--n-features", "many"], "`n_features` must be"),
        ]:
            result = invoke("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", *arguments)
            assert result.exit_code == 2
            assert text in words(result.stderr)
        assert not list(tmp_path.iterdir())

    def test_a_bad_target_is_refused_before_any_work(self, monkeypatch, capsys, tmp_path):
        os.mkfifo(tmp_path / "pipe.safetensors")
        for name, code in (("m", 2), ("m.npy", 2), ("none/m.safetensors", 1), ("pipe.safetensors", 2)):
            assert main(monkeypatch, "fit", tmp_path / "never_read.npy", "-o", tmp_path / name) == code
            assert "`--out` must be" in capsys.readouterr().err
        assert (tmp_path / "pipe.safetensors").is_fifo()

    def test_what_is_no_space_is_said_so(self, folder, monkeypatch, capsys, tmp_path):
        points = Sphere().grid(100)
        points[3, 1] = np.nan
        np.save(tmp_path / "bad.npy", points)
        for path, text in (
            (tmp_path / "p.txt", "`INPUT` must be a file ending in .npy, .npz, .csv, .ply, "),
            (tmp_path / "none.ply", "`INPUT` must be an existing file."),
            (folder / "m.safetensors", "`INPUT` must be a file with a graph"),
            (tmp_path / "bad.npy", "`INPUT` must be a file of finite numbers. Got nan in row 4, column 2 of "),
        ):
            assert main(monkeypatch, "fit", path, "-o", tmp_path / "m.safetensors") == 1
            error = capsys.readouterr().err
            assert text in error
            assert error.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["bad.npy"]

    def test_meshes_and_graphs_are_fitted(self, mesh_file, tmp_path):
        target = tmp_path / "m.safetensors"
        result = invoke("fit", mesh_file, "-o", target, "-t", 0.5)
        assert result.exit_code == 0, result.output
        assert load(target).graph_.whole_mesh.n_vertices == 300
        knn_graph(Sphere().grid(300)).save(tmp_path / "g.safetensors")
        result = invoke("fit", tmp_path / "g.safetensors", "-o", target, "--tau", 5)
        assert result.exit_code == 0, result.output
        assert load(target).graph_.n_nodes == 300

    def test_ctrl_c_leaves_nothing(self, folder, monkeypatch, capsys, tmp_path):
        def interrupted(*_, **__):
            raise KeyboardInterrupt

        def unheard(*_, **__):
            sys.stderr = None
            raise KeyboardInterrupt

        monkeypatch.setattr(ManifoldRandomFeatures, "save", interrupted)
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", *FIT) == 130
        assert not list(tmp_path.iterdir())
        out, told = capsys.readouterr()
        assert (out, told.splitlines()[-1]) == ("", "interrupted: nothing was written")
        monkeypatch.setattr(sys, "stderr", sys.stderr)  # put back in the end
        monkeypatch.setattr(ManifoldRandomFeatures, "save", unheard)
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", *FIT) == 130


class TestTransform:
    @pytest.mark.parametrize(
        ("name", "suffix", "chunk"), [("new.npy", "npy", 7), ("new.csv", "npz", None), ("new.npy", "csv", 7)]
    )
    def test_features_do_not_depend_on_chunks_or_formats(self, folder, features, tmp_path, name, suffix, chunk):
        target = tmp_path / f"f.{suffix}"
        chunks = [] if chunk is None else ["--chunk-size", chunk]
        result = invoke("transform", folder / "m.safetensors", folder / name, "-o", target, *chunks)
        assert result.exit_code == 0, result.output
        found = {
            "npy": np.load,
            "npz": lambda path: sp.load_npz(path).toarray(),
            "csv": lambda path: np.loadtxt(path, delimiter=","),
        }[suffix](target)
        np.testing.assert_array_equal(found, features.transform(np.load(folder / "new.npy")))

    def test_far_points_are_counted_over_all_chunks_and_told_once(self, folder, tmp_path):
        points = np.load(folder / "new.npy")
        points[::10] *= 9.0
        np.save(tmp_path / "far.npy", points)
        call = ("transform", folder / "m.safetensors", tmp_path / "far.npy", "-o", tmp_path / "f.npy")
        result = invoke(*call, "--chunk-size", 7)
        assert result.stderr.count("Note:") == 1
        assert "Note: 5 of 50 points are away from the space" in words(result.stderr)

    def test_an_error_in_the_middle_leaves_the_old_file(self, folder, monkeypatch, capsys, tmp_path):
        points = np.load(folder / "new.npy")
        points[30, 0] = np.nan
        np.save(tmp_path / "bad.npy", points)
        (tmp_path / "f.npy").write_bytes(b"old")
        arguments = (folder / "m.safetensors", tmp_path / "bad.npy", "-o", tmp_path / "f.npy", "--chunk-size", 7)
        assert main(monkeypatch, "transform", *arguments) == 1
        assert "Got nan in row 31, column 1 of " in capsys.readouterr().err
        assert (tmp_path / "f.npy").read_bytes() == b"old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npy", "f.npy"]

    def test_files_that_do_not_fit_are_one_sentence(self, folder, monkeypatch, capsys, tmp_path):
        model, flat = folder / "m.safetensors", tmp_path / "flat.npy"
        target = ("-o", tmp_path / "f.npy")
        np.save(flat, np.zeros((4, 2)))
        np.save(tmp_path / "none.npy", np.zeros((0, 3)))
        for call, text in (
            (("transform", model, flat), "`POINTS` must be points with 3 columns, as MODEL has (--columns"),
            (("transform", model, tmp_path / "none.npy"), "`POINTS` must be a file with at least one row."),
            (("kernel", model, flat, tmp_path / "none.npy"), "`B` must be a file with at least one row."),
            (("transform", flat, flat), "`MODEL` must be a .safetensors file with a model"),
        ):
            assert main(monkeypatch, *call, *target) == 1
            error = capsys.readouterr().err
            assert text in error
            assert error.count("\n") == 1
        assert not (tmp_path / "f.npy").exists()
        assert main(monkeypatch, "transform", model, flat, "-o", flat) == 2
        assert np.load(flat).shape == (4, 2)

    def test_a_kernel_of_two_sides_asks_for_one(self, folder, tmp_path):
        model, new = tmp_path / "m.safetensors", np.load(folder / "new.npy")
        fitted = ManifoldRandomFeatures(CosineKernel(), "all", normalize=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its values vary from node to node
            fitted.fit(np.load(folder / "sphere.npy")).save(model)
        call = ("transform", model, folder / "new.npy", "-o", tmp_path / "f.npy")
        result = invoke(*call)
        assert result.exit_code == 2
        assert "`side` must be" in words(result.stderr)
        assert invoke(*call, "--side", "right").exit_code == 0
        np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), fitted.transform(new, "right"))
        assert invoke("kernel", model, folder / "new.npy", "-o", tmp_path / "K.npy").exit_code == 0
        np.testing.assert_allclose(np.load(tmp_path / "K.npy"), fitted.kernel_matrix(new), atol=1e-12)


class TestKernel:
    def test_values_are_those_of_the_library(self, folder, features, tmp_path):
        new, nodes = np.load(folder / "new.npy"), np.load(folder / "sphere.npy")
        invoke("kernel", folder / "m.safetensors", folder / "new.npy", "-o", tmp_path / "K.npy")
        np.testing.assert_allclose(np.load(tmp_path / "K.npy"), features.kernel_matrix(new), rtol=1e-13)
        call = ("kernel", folder / "m.safetensors", folder / "new.csv", folder / "sphere.npy")
        invoke(*call, "-o", tmp_path / "L.npy")
        np.testing.assert_allclose(np.load(tmp_path / "L.npy"), features.kernel_matrix(new, nodes), rtol=1e-13)

    def test_the_kernel_seen_from_a_vertex(self, folder, features, mesh_file, tmp_path):
        mesh, model = TriangleMesh.load(mesh_file), folder / "m.safetensors"
        expected = features.kernel_matrix(mesh.vertices, mesh.vertices[[17]])
        assert invoke("kernel", model, mesh_file, "--vertex", 17, "-o", tmp_path / "k.csv").exit_code == 0
        np.testing.assert_allclose(np.loadtxt(tmp_path / "k.csv", ndmin=2), expected, rtol=1e-12)
        assert invoke("kernel", model, mesh_file, "--vertex", 17, "-o", tmp_path / "k.ply").exit_code == 0
        mesh.save(tmp_path / "same.ply", field=expected[:, 0])
        assert (tmp_path / "k.ply").read_bytes() == (tmp_path / "same.ply").read_bytes()
        cloud = invoke("kernel", model, folder / "sphere.npy", "--vertex", 0, "-o", tmp_path / "c.ply")
        assert cloud.exit_code == 0
        assert b"element face" not in (tmp_path / "c.ply").read_bytes()

    def test_what_does_not_fit_together_is_wrong_usage(self, folder, tmp_path, monkeypatch):
        monkeypatch.chdir(folder)
        for arguments, text in [
            (("new.npy", "--vertex", 50), "`--vertex` must be an integer in [0, 49]"),
            (("a.npy", "b.npy", "--vertex", 3), "`B` must be left out"),
        ]:
            result = invoke("kernel", "m.safetensors", *arguments, "-o", tmp_path / "k.csv")
            assert result.exit_code == 2
            assert text in words(result.stderr)
        assert not list(tmp_path.iterdir())


class TestMeshes:
    @pytest.mark.parametrize("names", [("verts", "faces"), ("V", "F")])
    def test_arrays_of_a_mesh_are_a_mesh(self, mesh_file, tmp_path, names):
        mesh = TriangleMesh.load(mesh_file)
        np.savez(tmp_path / "mesh.npz", **{names[0]: mesh.vertices, names[1]: mesh.faces.astype(np.int32)})
        np.testing.assert_array_equal(program.read_space(str(tmp_path / "mesh.npz")).faces, mesh.faces)


class TestInfo:
    def test_a_model_is_told_as_when_it_was_fitted(self, folder, features):
        result = invoke("info", folder / "m.safetensors")
        assert result.exit_code == 0, result.output
        first, *rest = result.stdout.splitlines()
        assert "ManifoldRandomFeatures of points with 3 coordinates" in first
        assert [line.rstrip() for line in rest] == [line.rstrip() for line in features.summary().splitlines()]
        found = json.loads(invoke("info", folder / "m.safetensors", "--json").stdout)
        assert (found["kind"], found["dimension"], found["features"]) == ("ManifoldRandomFeatures", 2, 60)
        assert found["error"]["kernel"] == float(features.error_)

    def test_what_is_no_model_is_one_sentence(self, folder, monkeypatch, capsys, tmp_path):
        cut = tmp_path / "cut.safetensors"
        cut.write_bytes((folder / "m.safetensors").read_bytes()[:-1])
        for path, text in (
            (tmp_path / "none.safetensors", "`MODEL` must be an existing file"),
            (folder / "sphere.npy", "must be a .safetensors file"),
            (cut, "cannot be loaded"),
        ):
            assert main(monkeypatch, "info", path) == 1
            captured = capsys.readouterr()
            assert captured.out == ""
            assert text in captured.err
            assert captured.err.count("\n") == 1


class TestExplore:
    def test_the_page_is_that_of_python(self, folder, features, tmp_path):
        arguments = ("explore", folder / "m.safetensors", "-o", tmp_path / "page.html", "--title", "A sphere")
        facts = json.loads(invoke(*arguments, "--n-points", 150, "--json").stdout)
        page = explore(features, tmp_path / "same.html", title="A sphere", n_points=150)
        assert (facts["n_bytes"], facts["n_points"]) == (page.n_bytes, 150)
        assert (tmp_path / "page.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    def test_a_mesh_is_fitted_first_and_values_are_at_its_vertices(self, mesh_file, tmp_path):
        mesh = TriangleMesh.load(mesh_file)
        np.save(tmp_path / "x.npy", mesh.vertices[:, 0])
        result = invoke("explore", mesh_file, "-o", tmp_path / "scan.html", "--values", tmp_path / "x.npy")
        assert result.exit_code == 0, result.output
        model = ManifoldRandomFeatures(random_state=0).fit(mesh)
        explore(model, tmp_path / "same.html", fields={"x": mesh.vertices[:, 0]}, surface=mesh, title="mesh")
        assert (tmp_path / "scan.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    def test_wrong_values_are_one_sentence(self, folder, mesh_file, monkeypatch, capsys, tmp_path):
        path = tmp_path / "a.csv"
        for text, rule in [
            ("1.0\n2.0\n", "`--values` must be an array of 300 rows"),
            ("v,x\n0,1\n0,2\n", "each once"),
            ("v,x,x\n0,1,2\n", "`--values` must be a file whose columns have different names"),
            (",vertex,x\n0,5,2\n", "`--values` must be a file whose first column is that of the vertices"),
            ("v,x\n600,1\n", "Got 600"),
        ]:
            path.write_text(text)
            arguments = ("-o", tmp_path / "page.html", "--values", path, "--surface", mesh_file)
            assert main(monkeypatch, "explore", folder / "m.safetensors", *arguments) == 1
            captured = capsys.readouterr()
            assert rule in captured.err
            assert captured.err.count("\n") == 1
            assert not (tmp_path / "page.html").exists()

    def test_wrong_options_are_wrong_usage(self, folder, mesh_file, tmp_path):
        (tmp_path / "a.csv").write_text("v,x\n0,inf\n")
        twice = 3 * ("--values", tmp_path / "a.csv")
        for target, options, text in (
            ("page.txt", (), "`--out` must be a file ending in .html. Got 'page.txt'."),
            ("page.html", ("--max-bytes", 10), "`--max-bytes` must be at least"),
            ("page.html", ("--n-points", 1), "`--n-points` must be"),
            ("page.html", ("--surface", mesh_file, *twice), "`--values` must be files with different names"),
            ("page.html", ("--surface", mesh_file, *twice[:2]), "`--values x` must be finite"),
        ):
            result = invoke("explore", folder / "m.safetensors", "-o", tmp_path / target, *options)
            assert result.exit_code == 2, text
            assert text in words(result.stderr)
            assert not (tmp_path / target).exists()
