"""graph and signatures: the stages below features, in files."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import invoke, main, words

from manifoldrf import (
    DiffusionKernel,
    HeatKernel,
    Sphere,
    TriangleMesh,
    Walks,
    compute_signatures,
    heat_graph,
    knn_graph,
    load,
    mesh_graph,
)


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "sphere.npy"
    np.save(path, Sphere().grid(400))
    return path


def affinity(path):
    return sp.csr_array(sp.load_npz(path)).toarray()


class TestGraph:
    @pytest.mark.parametrize(
        ("options", "build"),
        [
            ([], knn_graph),
            (
                ["--kind", "knn", "--n-neighbors", 5, "--self-loops"],
                lambda p: knn_graph(p, n_neighbors=5, self_loops=True),
            ),
            (
                ["--bandwidth", 0.3, "--density-correction", 1],
                lambda p: knn_graph(p, bandwidth=0.3, density_correction=1.0),
            ),
            (["--t", 0.1], lambda p: heat_graph(p, 0.1)),
            (["--t", 0.1, "--n-steps", 4, "--dim", 2], lambda p: heat_graph(p, 0.1, n_steps=4, dim=2)),
        ],
    )
    def test_graphs_of_points_are_those_of_python(self, points, tmp_path, options, build):
        result = invoke("graph", points, "-o", tmp_path / "g.npz", *options)
        assert result.exit_code == 0, result.output
        np.testing.assert_array_equal(affinity(tmp_path / "g.npz"), build(np.load(points)).affinity.toarray())

    @pytest.mark.parametrize("weights", ["gaussian", "unit", "cotangent"])
    def test_graphs_of_meshes_follow_their_edges(self, mesh_file, tmp_path, weights):
        result = invoke("graph", mesh_file, "-o", tmp_path / "g.npz", "--weights", weights)
        assert result.exit_code == 0, result.output
        expected = mesh_graph(TriangleMesh.load(mesh_file), weights=weights).affinity.toarray()
        np.testing.assert_array_equal(affinity(tmp_path / "g.npz"), expected)

    def test_a_saved_graph_comes_back_and_can_be_fitted(self, points, tmp_path):
        facts = json.loads(invoke("graph", points, "-o", tmp_path / "g.safetensors", "--t", 0.1, "--json").stdout)
        graph = load(tmp_path / "g.safetensors")
        assert facts["nodes"] == graph.n_nodes == 400
        assert facts["steps"] == graph.n_steps
        assert facts["volume"] == pytest.approx(4 * np.pi, rel=0.05)
        result = invoke("fit", tmp_path / "g.safetensors", "-o", tmp_path / "m.safetensors", "--t", 0.1)
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--kind", "heat"], "`--t` must be given for a heat graph. Got none."),
            (["--weights", "unit"], "`--weights` must be left out for a graph of the kind knn. Got unit."),
            (
                ["--t", 0.1, "--n-neighbors", 4],
                "`--n-neighbors` must be left out for a graph of the kind heat. Got 4.",
            ),
            (["--kind", "mesh"], "`--kind` must be heat or knn for points. Got mesh."),
            (["--kind", "knn", "--t", 0.1], "`--t` must be left out for a graph of the kind knn. Got 0.1."),
            (["--n-jobs", 0], "`n_jobs` must be"),
        ],
    )
    def test_options_without_effect_are_wrong_usage(self, points, tmp_path, options, text):
        result = invoke("graph", points, "-o", tmp_path / "g.npz", *options)
        assert result.exit_code == 2
        assert text in words(result.stderr)
        assert not list(tmp_path.iterdir())


class TestSignatures:
    def test_rows_are_those_of_python(self, points, tmp_path):
        target = tmp_path / "rows.npy"
        result = invoke("signatures", points, "-o", target, "--tau", 5, "--nodes", "0,7")
        assert result.exit_code == 0, result.output
        expected = compute_signatures(knn_graph(np.load(points)), DiffusionKernel(5.0), [0, 7]).rows
        np.testing.assert_allclose(np.load(target), np.asarray(expected), rtol=1e-12)

    def test_walks_take_options_and_a_seed(self, points, tmp_path):
        options = ["--teacher", "walks", "--teacher-options", "n_walks=200", "--tau", 5, "--nodes", "3,"]
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
            invoke("signatures", points, "-o", tmp_path / f"{name}.npz", *options, "--seed", seed)
        a, b, c = (affinity(tmp_path / f"{name}.npz") for name in "abc")
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()
        expected = compute_signatures(
            knn_graph(np.load(points)), DiffusionKernel(5.0), [3], teacher=Walks(200), seed=1
        )
        np.testing.assert_array_equal(a, expected.rows.toarray())

    def test_the_heat_kernel_builds_its_own_graph(self, points, tmp_path):
        invoke("signatures", points, "-o", tmp_path / "rows.npy", "--t", 0.1, "--nodes", "0,")
        expected = compute_signatures(heat_graph(np.load(points), 0.1), HeatKernel(0.1), [0]).rows
        np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), np.asarray(expected), rtol=1e-12)

    def test_a_graph_that_is_made_takes_no_options_of_graphs(self, points, tmp_path):
        graph = tmp_path / "g.safetensors"
        invoke("graph", points, "-o", graph)
        result = invoke("signatures", graph, "-o", tmp_path / "r.npz", "--tau", 5, "--n-neighbors", 4)
        assert result.exit_code == 2
        assert "`--n-neighbors` must be left out for an INPUT that is a graph." in words(result.stderr)

    def test_the_time_of_a_kernel_may_be_told_to_neighbours(self, points, tmp_path):
        result = invoke(
            "signatures", points, "-o", tmp_path / "r.npy", "--t", 0.1, "--kind", "knn", "--nodes", "0,"
        )
        assert result.exit_code == 0, result.output

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            (["--teacher", "walks", "--teacher-options", "seed=3"], "has no parameter `seed`"),
            (["--teacher-options", "n_walks=3"], "has no parameter `n_walks`"),
            (["--teacher", "walks", "--teacher-options", "=3"], "`--teacher-options` must be field=value."),
            (["--nodes", "0,999"], "`--nodes` must be"),
        ],
    )
    def test_wrong_values_are_wrong_usage(self, points, tmp_path, options, text):
        result = invoke("signatures", points, "-o", tmp_path / "r.npz", "--tau", 5, *options)
        assert result.exit_code == 2
        assert text in words(result.stderr)

    def test_bad_points_are_no_wrong_usage(self, tmp_path, monkeypatch, capsys):
        np.save(tmp_path / "bad.npy", [[0.0, np.inf]])
        assert main(monkeypatch, "signatures", tmp_path / "bad.npy", "-o", tmp_path / "r.npz", "--tau", 5) == 1
        assert "Got inf in row 1, column 2 of " in capsys.readouterr().err

    def test_a_kernel_is_needed(self, points, tmp_path):
        result = invoke("signatures", points, "-o", tmp_path / "r.npz")
        assert result.exit_code == 2
        assert "`--kernel` must be given, or --t, or --tau." in words(result.stderr)

    def test_json_says_what_was_done(self, points, tmp_path):
        result = invoke(
            "signatures", points, "-o", tmp_path / "r.npz", "--tau", 5, "--json", "--teacher", "frontier"
        )
        facts = json.loads(result.stdout)
        assert (facts["rows"], facts["columns"]) == (400, 400)
        assert 0 < facts["bound of the error"] < 1e-6
