"""fit, transform, kernel: what the library gives, in files."""

import json
import os
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import invoke, main, words
from oracles import sphere_mesh

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GraphOptions,
    HeatKernel,
    ManifoldRandomFeatures,
    MaternKernel,
    Sphere,
    TriangleMesh,
    explore,
    load,
)
from manifoldrf.cli import models
from manifoldrf.cli.options import BuiltGraph, FittedGraph, KernelChoice


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Points of the sphere in files, and features fitted to them."""
    path = tmp_path_factory.mktemp("models")
    np.save(path / "sphere.npy", Sphere().grid(600))
    np.save(path / "new.npy", Sphere().sample(50, seed=1))
    np.savetxt(path / "new.csv", Sphere().sample(50, seed=1), delimiter=",", fmt="%.17g")
    result = invoke("fit", path / "sphere.npy", "-o", path / "m.safetensors", "--t", 0.1, "--n-features", 200)
    assert result.exit_code == 0, result.output
    return path


@pytest.fixture(scope="module")
def features(folder):
    return load(folder / "m.safetensors")


class TestFit:
    def test_a_target_without_a_suffix_gets_a_hint(self, folder, monkeypatch, capsys):
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", "m") == 2
        assert "such as m.safetensors" in capsys.readouterr().err

    def test_the_model_is_that_of_python(self, folder, features):
        expected = ManifoldRandomFeatures(HeatKernel(0.1), n_features=200, random_state=0).fit(Sphere().grid(600))
        new = np.load(folder / "new.npy")
        np.testing.assert_array_equal(features.transform(new), expected.transform(new))

    def test_the_absolute_kernel_is_a_flag(self, folder, features, tmp_path):
        target = tmp_path / "m.safetensors"
        invoke("fit", folder / "sphere.npy", "-o", target, "--t", 0.1, "--n-features", 200, "--absolute")
        new, absolute = np.load(folder / "new.npy"), load(target)
        assert (absolute.scale_, features.normalize) == (1, True)
        expected = absolute.transform(new) * features.scale_**0.5
        np.testing.assert_allclose(features.transform(new), expected, rtol=1e-12)

    def test_the_summary_with_the_error_is_printed(self, folder, features, tmp_path):
        result = invoke(
            "fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--t", 0.1, "--n-features", 200
        )
        for line in features.summary().splitlines():
            assert line.rstrip() in result.stdout
        assert "relative error" in result.stdout

    def test_json_has_the_error_and_nothing_else_is_printed(self, folder, features, tmp_path):
        arguments = [
            "fit",
            folder / "sphere.npy",
            "-o",
            tmp_path / "m.safetensors",
            "--t",
            0.1,
            "--n-features",
            200,
        ]
        facts = json.loads(invoke(*arguments, "--json").stdout)
        assert facts["features"] == 200
        assert facts["error"]["kernel"] == float(features.error_)
        assert invoke(*arguments, "--quiet").output == ""

    def test_every_parameter_reaches_the_estimator(self, folder, tmp_path):
        target = tmp_path / "m.safetensors"
        result = invoke(
            *("fit", folder / "sphere.npy", "-o", target, "--kernel", "diffusion", "--tau", 30, "--field", "local"),
            *(
                "--anchors",
                "farthest",
                "--weights",
                "unity",
                "--teacher",
                "counts",
                "--teacher-options",
                "n_walks=500",
            ),
            *(
                "--field-options",
                "degree=4",
                "--n-starts",
                500,
                "--random-state",
                3,
                "--n-jobs",
                1,
                "--device",
                "cpu",
            ),
            *(
                "--kind",
                "knn",
                "--n-neighbors",
                12,
                "--bandwidth",
                "local",
                "--density-correction",
                0.5,
                "--dim",
                2,
            ),
            *("--n-features", "auto", "--n-nodes", "all", "--n-steps", "auto"),
        )
        assert result.exit_code == 0, result.output
        found = load(target).get_params(deep=False)
        assert found["kernel"] == DiffusionKernel(30.0)
        assert found["teacher_options"] == {"n_walks": 500}
        assert found["field_options"] == {"degree": 4}
        wanted = {"field": "local", "weights": "unity", "teacher": "counts", "n_starts": 500, "random_state": 3}
        assert {name: found[name] for name in wanted} == wanted
        options = GraphOptions("knn", "all", "auto", 12, 0.5, "auto", 2, None, "local")
        assert found["graph"].get_params() == options.get_params()

    @pytest.mark.parametrize(("flags", "seed"), [((), 0), (("--random-state", "7"), 7)])
    def test_the_recipe_of_the_paper_has_a_seed_too(self, folder, tmp_path, monkeypatch, flags, seed):
        """Else the same command would not give the same bits."""
        seen = []

        def fit(self, _):
            seen.append(self.random_state)
            raise ValueError("seen")

        monkeypatch.setattr(ManifoldRandomFeatures, "fit", fit)
        invoke("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--paper", *flags)
        assert seen == [seed]

    def test_the_recipe_of_the_paper_takes_changes(self, folder, tmp_path):
        target = tmp_path / "m.safetensors"
        changes = ["--n-starts", 40, "--teacher-options", "n_walks=50", "--field-options", "epochs=1"]
        result = invoke("fit", folder / "sphere.npy", "-o", target, "--paper", *changes)
        assert result.exit_code == 0, result.output
        model = load(target)
        assert model.field_ == "mlp"
        assert model.kernel_ == DiffusionKernel(20.0)
        assert len(model.starts_) == 40

    def test_what_is_typed_changes_the_recipe_even_if_it_is_the_default(self, folder, tmp_path):
        target = tmp_path / "m.safetensors"
        result = invoke(
            "fit", folder / "sphere.npy", "-o", target, "--paper", "--field", "auto", "--teacher", "auto"
        )
        assert result.exit_code == 2  # the options of walks stay, and "auto" has none
        assert "`teacher_options` must be left out with teacher='auto'." in words(result.stderr)

    def test_a_graph_that_is_made_takes_no_options_of_graphs(self, folder, tmp_path):
        invoke("graph", folder / "sphere.npy", "-o", tmp_path / "g.safetensors")
        result = invoke("fit", tmp_path / "g.safetensors", "-o", tmp_path / "m.safetensors", "--kind", "heat")
        assert result.exit_code == 2
        assert "`--kind` must be left out for an INPUT that is a graph. Got heat." in words(result.stderr)

    def test_what_is_no_space_is_said_so(self, folder, monkeypatch, capsys, tmp_path):
        target = ("-o", tmp_path / "m.safetensors")
        assert main(monkeypatch, "fit", tmp_path / "p.txt", *target) == 1
        assert "`INPUT` must be a file ending in .npy, .npz, .csv, .ply, " in capsys.readouterr().err
        assert main(monkeypatch, "fit", tmp_path / "none.ply", *target) == 1
        assert "`INPUT` must be an existing file." in capsys.readouterr().err
        assert main(monkeypatch, "fit", folder / "m.safetensors", *target) == 1
        assert "`INPUT` must be a file written by `manifoldrf graph`." in capsys.readouterr().err

    def test_a_mesh_is_fitted_along_its_surface(self, mesh_file, tmp_path):
        result = invoke("fit", mesh_file, "-o", tmp_path / "m.safetensors", "--t", 0.1)
        assert result.exit_code == 0, result.output
        assert load(tmp_path / "m.safetensors").graph_.mesh is not None

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["--tau", 3, "--kernel", "heat"], "`--tau` must be left out with the kernel heat. Got 3.0."),
            (["--kernel", "heat"], "`--t` must be given with the kernel heat. Got none."),
            (["--scale", 2], "`--kernel` must be given with --scale. Got none."),
            (["--kernel", "heart"], "'heart' is not one of 'heat', 'diffusion'"),
            (["--kind", "heat", "--n-neighbors", 3], "`n_neighbors` must be left out with kind='heat'. Got 3."),
            (["--n-features", 10, "--teacher-options", "walks"], "`--teacher-options` must be field=value."),
            (["--teacher", "walks", "--teacher-options", "n_walk=3"], "has no option `--teacher-options n_walk`"),
            (["--field", "local", "--field-options", "degree=x"], "`--field-options degree` must be 'auto' or an"),
            (["--dim", 5], "`--dim` must be an integer in [1, 3]. Got 5."),
            (["--kind", "knn", "--n-neighbors", 99_999], "`--n-neighbors` must be an integer in [1, "),
            (["--t", 1e9], "`--t` must be at most "),
            (["--n-features", "many"], "`n_features` must be an integer in [1, inf) or one of"),
            (["--n-jobs", 0], "`n_jobs` must be"),
            (["--random-state", -1], "`--random-state` must be an integer in [0, inf). Got -1."),
        ],
    )
    def test_wrong_options_are_wrong_usage_before_any_work(self, folder, tmp_path, arguments, text):
        result = invoke("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", *arguments)
        assert result.exit_code == 2
        assert text in words(result.stderr)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        ("name", "code", "text"),
        [
            ("m.npy", 2, "`--output` must be a file ending in .safetensors. Got 'm.npy'."),
            ("none/m.safetensors", 1, "`--output` must be in a folder that exists."),
        ],
    )
    def test_a_bad_target_is_refused_before_any_work(self, monkeypatch, capsys, tmp_path, name, code, text):
        assert main(monkeypatch, "fit", tmp_path / "never_read.npy", "-o", tmp_path / name) == code
        assert text in capsys.readouterr().err

    @pytest.mark.parametrize("command", ["fit", "transform", "kernel", "explore", "graph", "signatures"])
    def test_a_pipe_is_no_target_of_any_command(self, monkeypatch, capsys, tmp_path, command):
        target = tmp_path / ("m.html" if command == "explore" else "m.npz" if command != "fit" else "m.safetensors")
        os.mkfifo(target)
        more = ["never_read.npy"] if command in ("transform", "kernel") else []
        assert main(monkeypatch, command, "never_read.safetensors", *more, "-o", target) == 2
        assert "`--output` must be an ordinary file, not a device, pipe or socket." in capsys.readouterr().err
        assert target.is_fifo()

    def test_bad_points_are_one_sentence(self, monkeypatch, capsys, tmp_path):
        points = Sphere().grid(100)
        points[3, 1] = np.nan
        np.save(tmp_path / "bad.npy", points)
        assert main(monkeypatch, "fit", tmp_path / "bad.npy", "-o", tmp_path / "m.safetensors") == 1
        error = capsys.readouterr().err
        assert error.startswith("`INPUT` must be a file of finite numbers. Got nan in row 4, column 2 of ")
        assert error.count("\n") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npy"]

    def test_ctrl_c_leaves_nothing(self, folder, monkeypatch, capsys, tmp_path):
        def interrupted(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("manifoldrf.features.manifold_features.save_state", interrupted)
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--t", 0.1) == 130
        assert not list(tmp_path.iterdir())
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == "interrupted: nothing was written\n"

    def test_ctrl_c_after_the_work_says_what_is_there(self, folder, monkeypatch, capsys, tmp_path):
        def interrupted(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr(models, "show", interrupted)
        target = tmp_path / "m.safetensors"
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", target, "--t", 0.1) == 130
        assert capsys.readouterr().err == f"interrupted: written before, and complete: {target}\n"
        assert load(target).n_features_in_ == 3

    def test_ctrl_c_where_nobody_listens_keeps_its_exit_code(self, folder, monkeypatch, tmp_path):
        def interrupted(*_, **__):
            sys.stderr = None
            raise KeyboardInterrupt

        monkeypatch.setattr(sys, "stderr", sys.stderr)  # put back in the end
        monkeypatch.setattr("manifoldrf.features.manifold_features.save_state", interrupted)
        assert main(monkeypatch, "fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--t", 0.1) == 130

    @pytest.mark.parametrize(("t", "said"), [(30, True), (0.1, False)])
    def test_quiet_fits_still_say_that_a_model_is_useless(self, folder, tmp_path, t, said):
        result = invoke("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--t", t, "-q")
        assert result.stdout == ""
        assert ("Note: The kernel hardly tells points apart" in result.stderr) is said
        assert said or result.stderr == ""

    def test_warnings_are_notes_without_a_place_in_the_code(self, folder, monkeypatch, capsys, tmp_path):
        arguments = ("fit", folder / "sphere.npy", "-o", tmp_path / "m.safetensors", "--t", 0.1, "--n-features", 8)
        assert main(monkeypatch, *arguments) == 0
        error = capsys.readouterr().err
        assert error.startswith("Note: ")
        assert "Warning" not in error


class TestTransform:
    @pytest.mark.parametrize("chunk", [None, 1, 7, 50])
    @pytest.mark.parametrize("name", ["new.npy", "new.csv"])
    @pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
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

    def test_single_precision_stays(self, folder, features, tmp_path):
        points = np.load(folder / "new.npy").astype(np.float32)
        np.save(tmp_path / "single.npy", points)
        invoke("transform", folder / "m.safetensors", tmp_path / "single.npy", "-o", tmp_path / "f.npy")
        found = np.load(tmp_path / "f.npy")
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, features.transform(points))

    def test_far_points_are_counted_over_all_chunks_and_told_once(self, folder, tmp_path):
        points = np.load(folder / "new.npy")
        points[::10] *= 9.0
        np.save(tmp_path / "far.npy", points)
        result = invoke(
            "transform", folder / "m.safetensors", tmp_path / "far.npy", "-o", tmp_path / "f.npy", "--chunk-size", 7
        )
        assert result.stderr.count("Note:") == 1
        text = "Note: 5 of 50 points are away from the space, so their features fade; those of 5 are zero."
        assert words(result.stderr) == text

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

    def test_the_number_of_coordinates_must_fit(self, folder, monkeypatch, capsys, tmp_path):
        np.save(tmp_path / "flat.npy", np.zeros((4, 2)))
        arguments = (folder / "m.safetensors", tmp_path / "flat.npy", "-o", tmp_path / "f.npy")
        assert main(monkeypatch, "transform", *arguments) == 1
        assert "`POINTS` must be points with 3 columns, as MODEL has. Got 2 in " in capsys.readouterr().err
        np.save(tmp_path / "flat.npy", np.zeros((0, 3)))
        assert main(monkeypatch, "transform", *arguments) == 1
        assert "`POINTS` must be a file with at least one row." in capsys.readouterr().err
        assert main(monkeypatch, "kernel", arguments[0], folder / "new.npy", *arguments[1:]) == 1
        assert "`B` must be a file with at least one row." in capsys.readouterr().err
        assert not (tmp_path / "f.npy").exists()

    def test_a_file_that_is_no_model_is_one_sentence(self, folder, monkeypatch, capsys, tmp_path):
        arguments = (folder / "new.npy", folder / "new.npy", "-o", tmp_path / "f.npy")
        assert main(monkeypatch, "transform", *arguments) == 1
        assert "`MODEL` must be a .safetensors file written by `manifoldrf fit`." in capsys.readouterr().err

    def test_a_side_of_nonnegative_features_is_refused(self, folder, tmp_path):
        target = tmp_path / "out.npy"
        result = invoke(
            "transform", folder / "m.safetensors", folder / "sphere.npy", "-o", target, "--side", "left"
        )
        assert result.exit_code == 2
        assert "`--side` must be left out" in words(result.stderr)
        assert not target.exists()

    def test_a_kernel_of_two_sides_asks_for_one(self, folder, tmp_path):
        model = tmp_path / "m.safetensors"
        invoke("fit", folder / "sphere.npy", "-o", model, "--kernel", "cosine")
        result = invoke("transform", model, folder / "new.npy", "-o", tmp_path / "f.npy")
        assert result.exit_code == 2
        assert "`--side` must be left or right" in words(result.stderr)

    def test_output_over_an_input_is_refused(self, folder):
        result = invoke("transform", folder / "m.safetensors", folder / "new.npy", "-o", folder / "new.npy")
        assert result.exit_code == 2
        assert np.load(folder / "new.npy").shape == (50, 3)


class TestKernel:
    def test_values_are_those_of_the_library(self, folder, features, tmp_path, monkeypatch):
        monkeypatch.setattr(models, "_ENTRIES_AT_ONCE", 200)  # several chunks
        new, nodes = np.load(folder / "new.npy"), np.load(folder / "sphere.npy")
        invoke("kernel", folder / "m.safetensors", folder / "new.npy", "-o", tmp_path / "K.npy")
        np.testing.assert_allclose(np.load(tmp_path / "K.npy"), features.kernel_matrix(new), rtol=1e-13)
        invoke(
            "kernel", folder / "m.safetensors", folder / "new.csv", folder / "sphere.npy", "-o", tmp_path / "L.npy"
        )
        np.testing.assert_allclose(np.load(tmp_path / "L.npy"), features.kernel_matrix(new, nodes), rtol=1e-13)

    def test_kernels_with_two_sides(self, folder, tmp_path):
        model = tmp_path / "m.safetensors"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            invoke(
                "fit", folder / "sphere.npy", "-o", model, "--kernel", "cosine", "--n-features", "all", "--absolute"
            )
        result = invoke("kernel", model, folder / "sphere.npy", "-o", tmp_path / "K.npy")
        assert result.exit_code == 0, result.output
        assert load(model).asymmetric_
        graph = load(model).graph_
        exact = CosineKernel().dense(graph)
        error = np.linalg.norm(np.load(tmp_path / "K.npy") - exact) / np.linalg.norm(exact)
        assert error < 1e-6  # all nodes are anchors, and they are asked at themselves


@pytest.fixture(scope="module")
def scanned(mesh_file, tmp_path_factory):
    """A model of the mesh."""
    path = tmp_path_factory.mktemp("scanned") / "m.safetensors"
    assert invoke("fit", mesh_file, "-o", path, "--t", 0.1, "--random-state", 0).exit_code == 0
    return path


class TestMeshes:
    """Mesh files wherever points are asked for."""

    def test_vertices_of_a_mesh_are_points(self, scanned, mesh_file, tmp_path):
        model, mesh = load(scanned), TriangleMesh.load(mesh_file)
        arguments = ("transform", scanned, mesh_file, "-o", tmp_path / "f.npy", "--chunk-size", 100)
        assert invoke(*arguments).exit_code == 0
        np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), model.transform(mesh.vertices))
        assert invoke("kernel", scanned, mesh_file, "-o", tmp_path / "K.npy").exit_code == 0
        np.testing.assert_allclose(np.load(tmp_path / "K.npy"), model.kernel_matrix(mesh.vertices), rtol=1e-12)

    @pytest.mark.parametrize("given", [True, False], ids=["a given mesh", "the model's mesh"])
    def test_the_kernel_seen_from_a_vertex(self, scanned, mesh_file, tmp_path, given):
        model, mesh = load(scanned), TriangleMesh.load(mesh_file)
        expected = model.kernel_matrix(mesh.vertices, mesh.vertices[[17]])
        more = [mesh_file] if given else []
        assert invoke("kernel", scanned, *more, "--vertex", 17, "-o", tmp_path / "k.csv").exit_code == 0
        np.testing.assert_array_equal(np.loadtxt(tmp_path / "k.csv", ndmin=2), expected)
        assert invoke("kernel", scanned, *more, "--vertex", 17, "-o", tmp_path / "k.ply").exit_code == 0
        mesh.save(tmp_path / "same.ply", field=expected[:, 0])
        assert (tmp_path / "k.ply").read_bytes() == (tmp_path / "same.ply").read_bytes()

    def test_a_thinned_model_needs_the_mesh_that_counts_the_vertices(self, tmp_path, monkeypatch):
        mesh, model, target = sphere_mesh(6000), tmp_path / "m.safetensors", tmp_path / "k.csv"
        mesh.save(tmp_path / "s.off")
        fitted = ManifoldRandomFeatures(HeatKernel(0.1), random_state=0).fit(mesh)
        assert fitted.graph_.mesh.n_vertices < 6000 / 2
        fitted.save(model)
        result = invoke("kernel", model, "--vertex", 17, "-o", target)
        assert result.exit_code == 2
        assert "MESH --vertex 17" in words(result.stderr)  # the path of the model may be broken into lines
        assert not target.exists()
        (tmp_path / "f.csv").write_text("v,x\n17,1\n")
        result = invoke("explore", model, "-o", tmp_path / "p.html", "--field", tmp_path / "f.csv")
        assert result.exit_code == 2
        assert "`--surface` must be given with --field" in words(result.stderr)
        sizes, transform = [], ManifoldRandomFeatures.transform
        monkeypatch.setattr(
            ManifoldRandomFeatures,
            "transform",
            lambda self, Z, side=None: sizes.append(len(Z)) or transform(self, Z, side),
        )
        monkeypatch.setattr(models, "_ENTRIES_AT_ONCE", 1000 * fitted.n_features_out_)
        assert invoke("kernel", model, tmp_path / "s.off", "--vertex", 17, "-o", target).exit_code == 0
        assert sizes == [1, *[1000] * 6]  # never the features of all vertices at once
        expected = fitted.kernel_matrix(mesh.vertices, mesh.vertices[[17]])
        np.testing.assert_allclose(np.loadtxt(target, ndmin=2), expected, rtol=1e-12, atol=1e-15)

    def test_the_kernel_seen_from_a_point_of_a_cloud(self, folder, features, tmp_path):
        target = tmp_path / "k.ply"
        assert invoke("kernel", folder / "m.safetensors", "--vertex", 0, "-o", target).exit_code == 0
        assert b"element face" not in target.read_bytes()

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ((), "`A` must be given, or --vertex. Got none."),
            (("--vertex", 500), "`--vertex` must be an integer in [0, 499]. Got 500."),
            (("--vertex", -1), "`--vertex` must be an integer in [0, inf). Got -1."),
            (("a.npy", "b.npy", "--vertex", 3), "`B` must be left out with --vertex. Got b.npy."),
        ],
    )
    def test_what_does_not_fit_together_is_wrong_usage(self, scanned, tmp_path, arguments, text):
        result = invoke("kernel", scanned, *arguments, "-o", tmp_path / "k.csv")
        assert result.exit_code == 2
        assert text in words(result.stderr)
        assert not list(tmp_path.iterdir())

    def test_a_mesh_is_fitted_before_it_is_explored(self, mesh_file, tmp_path):
        mesh = TriangleMesh.load(mesh_file)
        result = invoke("explore", mesh_file, "-o", tmp_path / "scan.html")
        assert result.exit_code == 0, result.output
        explore(ManifoldRandomFeatures(random_state=0).fit(mesh), tmp_path / "same.html", title="mesh")
        assert (tmp_path / "scan.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    @pytest.mark.parametrize("names", [("verts", "faces"), ("vertices", "triangles"), ("V", "F")])
    def test_arrays_of_a_mesh_are_a_mesh(self, mesh_file, tmp_path, names):
        mesh = TriangleMesh.load(mesh_file)
        np.savez(tmp_path / "mesh.npz", **{names[0]: mesh.vertices, names[1]: mesh.faces.astype(np.int32)})
        found = models.read_space(str(tmp_path / "mesh.npz"))
        np.testing.assert_array_equal(found.faces, mesh.faces)
        np.testing.assert_array_equal(TriangleMesh.load(tmp_path / "mesh.npz").vertices, mesh.vertices)

    def test_arrays_that_are_no_mesh_are_refused(self, mesh_file, tmp_path):
        mesh = TriangleMesh.load(mesh_file)
        np.savez(tmp_path / "mesh.npz", vertices=mesh.vertices, faces=mesh.faces + 0.5)
        with pytest.raises(ValueError, match=r"`path` must be a file whose faces are integers\. Got fractions in"):
            TriangleMesh.load(tmp_path / "mesh.npz")
        np.savez(tmp_path / "points.npz", mesh.vertices)
        with pytest.raises(ValueError, match=r"must be an \.npz file with arrays named 'vertices' and 'faces'"):
            TriangleMesh.load(tmp_path / "points.npz")


class TestInfo:
    def test_a_model_is_told_as_when_it_was_fitted(self, folder, features):
        result = invoke("info", folder / "m.safetensors")
        assert result.exit_code == 0, result.output
        first, *rest, last = result.stdout.splitlines()
        size = (folder / "m.safetensors").stat().st_size / 1e6
        kind = f"ManifoldRandomFeatures of points with 3 coordinates, {size:.2f} MB, format 2"
        assert first == f"{folder / 'm.safetensors'}: {kind}"
        assert [line.rstrip() for line in rest] == [line.rstrip() for line in features.summary().splitlines()]
        parts = [float(part.split()[-2]) for part in last.removeprefix("in the file: ").split(", ")]
        assert 0.8 * size < sum(parts) <= size + 0.02  # in MB with two digits; the rest is text and anchors

    def test_machines_read_what_fit_prints_and_more(self, folder, features, tmp_path):
        target = tmp_path / "m.safetensors"
        fitted = json.loads(
            invoke("fit", folder / "sphere.npy", "-o", target, "--t", 0.1, "--n-features", 200, "--json").stdout
        )
        found = json.loads(invoke("info", target, "--json").stdout)
        shared = set(fitted) - {"output", "seconds"}
        assert {name: found[name] for name in shared} == {name: fitted[name] for name in shared}
        assert (found["kind"], found["dimension"], found["nodes"]) == ("ManifoldRandomFeatures", 2, 600)
        assert found["error"]["kernel"] == float(features.error_)
        assert invoke("info", target, "--quiet").output == ""

    def test_a_graph_is_told_too(self, folder, tmp_path):
        target = tmp_path / "g.safetensors"
        built = json.loads(invoke("graph", folder / "sphere.npy", "-o", target, "--json").stdout)
        found = json.loads(invoke("info", target, "--json").stdout)
        del built["output"]
        assert {name: found[name] for name in built} == built
        assert found["kind"] == "Graph"
        assert "largest degree" in invoke("info", target).stdout

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("none.safetensors", "`MODEL` must be an existing file. Got "),
            ("sphere.npy", "must be a .safetensors file written by `manifoldrf fit` or `manifoldrf graph`. "),
            ("cut.safetensors", "cannot be loaded: "),
        ],
    )
    def test_what_is_no_model_is_one_sentence(self, folder, monkeypatch, capsys, tmp_path, name, text):
        place = tmp_path if name == "cut.safetensors" else folder
        (tmp_path / "cut.safetensors").write_bytes((folder / "m.safetensors").read_bytes()[:-1])
        assert main(monkeypatch, "info", place / name) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert text in captured.err
        assert captured.err.count("\n") == 1


class TestExplore:
    def test_the_page_is_that_of_python(self, folder, features, tmp_path):
        arguments = ("explore", folder / "m.safetensors", "-o", tmp_path / "page.html", "--title", "A sphere")
        facts = json.loads(invoke(*arguments, "--n-points", 300, "--json").stdout)
        page = explore(features, tmp_path / "same.html", title="A sphere", n_points=300)
        assert facts["n_bytes"] == page.n_bytes
        assert facts["n_points"] == 300
        assert (tmp_path / "page.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    def test_another_surface_and_a_smaller_page(self, folder, mesh_file, tmp_path):
        arguments = ("explore", folder / "m.safetensors", "-o", tmp_path / "page.html", "--surface", mesh_file)
        result = invoke(*arguments, "--max-bytes", 150_000)
        assert result.exit_code == 0, result.output
        assert (tmp_path / "page.html").stat().st_size <= 150_000

    def test_a_size_that_is_too_small_for_the_model_is_wrong_usage(self, folder, tmp_path):
        result = invoke("explore", folder / "m.safetensors", "-o", tmp_path / "page.html", "--max-bytes", 10)
        assert result.exit_code == 2
        assert "`--max-bytes` must be at least" in words(result.stderr)
        assert not (tmp_path / "page.html").exists()

    def test_fields_are_named_by_their_columns_or_files(self, folder, features, mesh_file, tmp_path):
        mesh = TriangleMesh.load(mesh_file)
        x, y, z = mesh.vertices.T
        rows = [f"{k},{a!r},{b!r}" for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True))]
        (tmp_path / "first.csv").write_text("\n".join(["vertex,x,y", *rows[1:]]))
        (tmp_path / "second.csv").write_text("\n".join(["x", *map(repr, z.tolist())]))
        np.save(tmp_path / "height.npy", z.astype(np.float32))
        np.save(tmp_path / "both.npy", np.stack([x, y], axis=1))
        names = ("first.csv", "second.csv", "height.npy", "both.npy")
        arguments = [part for name in names for part in ("--field", tmp_path / name)]
        arguments += ["--surface", mesh_file, "-o", tmp_path / "page.html"]
        facts = json.loads(invoke("explore", folder / "m.safetensors", *arguments, "--json").stdout)
        unknown = np.where(np.arange(len(x)) == 0, np.nan, [x, y])
        fields = {"first: x": unknown[0], "y": unknown[1], "second: x": z, "height": z.astype(np.float32)}
        fields |= {"both 0": x, "both 1": y}
        same = explore(features, tmp_path / "same.html", fields=fields, surface=mesh, title="m")
        assert facts["n_bytes"] == same.n_bytes
        assert "html" not in facts
        assert (tmp_path / "page.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    def test_fields_of_a_mesh_are_at_its_vertices(self, mesh_file, tmp_path):
        mesh = TriangleMesh.load(mesh_file)
        np.save(tmp_path / "x.npy", mesh.vertices[:, 0])
        result = invoke("explore", mesh_file, "-o", tmp_path / "scan.html", "--field", tmp_path / "x.npy")
        assert result.exit_code == 0, result.output
        model = ManifoldRandomFeatures(random_state=0).fit(mesh)
        explore(model, tmp_path / "same.html", fields={"x": mesh.vertices[:, 0]}, surface=mesh, title="mesh")
        assert (tmp_path / "scan.html").read_bytes() == (tmp_path / "same.html").read_bytes()

    @pytest.mark.parametrize(
        ("name", "text", "error"),
        [
            ("a.csv", "1.0\n2.0\n", "`--field` must be an array of 600 rows, one per node of MODEL; give its mesh"),
            ("a.csv", "v,x\n0,1\n0,2\n", "each once, and values in every line"),
            ("a.csv", "v,x,x\n0,1,2\n", "`--field` must be a file whose columns have different names"),
            ("a.csv", "v,x\n600,1\n", "it is the node of MODEL; give its mesh or points as"),
            ("a.csv", "v,b\n0,inf\n", "`--field b` must be finite, or NaN where there is no value. Got inf"),
            ("a.txt", "1", "`--field` must be a file ending in .npy, .npz, .csv. Got 'a.txt'."),
            ("none.csv", None, "`--field` must be an existing file. Got"),
        ],
    )
    def test_wrong_fields_are_one_sentence(self, folder, monkeypatch, capsys, tmp_path, name, text, error):
        if text is not None:
            (tmp_path / name).write_text(text)
        arguments = ("-o", tmp_path / "page.html", "--field", tmp_path / name)
        assert main(monkeypatch, "explore", folder / "m.safetensors", *arguments) == 1
        captured = capsys.readouterr()
        assert error in captured.err
        assert captured.err.count("\n") == 1
        assert not (tmp_path / "page.html").exists()

    def test_a_field_given_twice_is_a_wrong_option(self, folder, monkeypatch, capsys, tmp_path):
        (tmp_path / "a.csv").write_text("v,x\n0,1\n")
        arguments = ("-o", tmp_path / "page.html", *(2 * ("--field", tmp_path / "a.csv")))
        assert main(monkeypatch, "explore", folder / "m.safetensors", *arguments) == 2
        assert "`--field` must be files with different names or columns" in words(capsys.readouterr().err)

    def test_only_pages_are_written(self, folder, tmp_path):
        result = invoke("explore", folder / "m.safetensors", "-o", tmp_path / "page.txt")
        assert result.exit_code == 2
        assert "`--output` must be a file ending in .html. Got 'page.txt'." in words(result.stderr)


class TestGroups:
    def test_kernels_are_implied_by_their_parameters(self):
        assert KernelChoice(t=0.5).build() == HeatKernel(0.5)
        assert KernelChoice(tau=2.0).build() == DiffusionKernel(2.0)
        assert KernelChoice(nu=1.5, lengthscale=0.2, clock="manifold").build() == MaternKernel(1.5, 0.2, "manifold")
        assert KernelChoice().build() is None

    def test_all_that_is_left_to_the_library_is_no_option(self):
        assert FittedGraph().build() is None
        assert BuiltGraph() == BuiltGraph()
