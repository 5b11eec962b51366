"""Normals from a fifth of them: small, every column recomputed, and what the experiment claims."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg, sparse

from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.named_kernels import DiffusionKernel
from reproduction.mesh_data import builtin_mesh
from reproduction.normals import (
    BIHARMONIC,
    KERNEL,
    NEAREST_EDGES,
    SIZES,
    TUNED,
    Config,
    Stage,
    as_paper,
    choose_meshes,
    dense_points,
    full_kernel,
    learn_on,
    mean_cosine,
    run,
)
from reproduction.smoothers import EXTRAPOLATED, MEASURED, SIGMAS, Recipe, growth_table, quietly

SMALL = Config(
    shapes=("torus-300", "sheet-500"), n_anchors=32, ambient=(32,), sigmas=SIGMAS[3::2], n_learned=0, sizes=()
)


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


def stage_of(name, n, **changes):
    return Stage(name, builtin_mesh(name.partition("-")[0], n).mesh, **({"masked": 0.8, "tau": 20.0} | changes))


def cell(record, mesh, method, setting):
    key = (mesh, method, setting)
    rows = record.tables["cells"]
    return next(row["cosine"] for row in rows if (row["mesh"], row["method"], row["setting"]) == key)


class TestCosines:
    def test_the_papers_kernel_by_hand(self, record):
        """Every step of the paper's protocol again, with dense matrices."""
        stage = stage_of("sheet-500", 500)
        mesh, known = stage.mesh, stage.task.known
        corners = mesh.vertices[mesh.faces]
        cross = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals = np.zeros_like(mesh.vertices)
        for place in range(3):
            np.add.at(normals, mesh.faces[:, place], cross)
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        i, j = mesh.edges.T
        squares = ((mesh.vertices[i] - mesh.vertices[j]) ** 2).sum(axis=1)
        half = sparse.coo_array(
            (np.exp(-squares / np.median(squares)), (i, j)), shape=(len(normals),) * 2
        ).toarray()
        W = half + half.T
        d = W.sum(axis=1) ** -0.5
        sums = linalg.expm(20 * d[:, None] * W * d) @ np.where(known[:, None], normals, 0)
        cosines = (sums * normals).sum(axis=1) / np.linalg.norm(sums, axis=1)
        assert np.sum(~known) == round(0.8 * len(normals))
        expected = cosines[~known].mean()
        assert cell(record, "sheet-500", KERNEL, "as_paper") == pytest.approx(expected, abs=1e-9)

    def test_the_dense_kernel_is_the_exact_action(self):
        stage = stage_of("torus-400", 400)
        methods = [full_kernel(1000), as_paper(20.0)[KERNEL]]
        cosines = [stage.task.judge(method.fill(stage, method.prepare(stage))) for method in methods]
        assert cosines[0] == pytest.approx(cosines[1], abs=1e-9)

    def test_where_layers_nearly_touch_methods_of_the_space_around_fail(self, record):
        row = next(row for row in record.tables["meshes"] if row["mesh"] == "sheet-500")
        ambient = [row["nearest"], row["average"], cell(record, "sheet-500", "RFF 32", "as_paper")]
        assert max(ambient) + 0.2 < min(row["nearest_edges"], row["kernel_cv"], row["biharmonic"])

    def test_the_same_settings_give_the_same_bits_and_finished_parts_are_used_again(self, record, tmp_path):
        one = dataclasses.replace(SMALL, shapes=("torus-300",))
        again = run(one, parts=tmp_path)
        first = [row for row in record.tables["cells"] if row["mesh"] == "torus-300"]
        assert again.tables["cells"] == first
        told = []
        read = run(one, lambda what, done, total: told.append(what), parts=tmp_path)
        assert (read.tables, told) == (again.tables, ["done"])
        assert read.environment["commits of its parts"].endswith(f"of {len(list(tmp_path.glob('*.json')))})")
        run(dataclasses.replace(one, share=one.share + 1), lambda what, *_: told.append(what), parts=tmp_path)
        assert any("torus-300" in what for what in told)  # other settings are measured again


class TestScore:
    def test_missing_predictions_count_nothing_and_lengths_do_not_matter(self):
        truth = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
        found = np.array([[7.0, 0, 0], [np.nan] * 3, [0, 0, 0], [0, -3.0, 0]])
        assert mean_cosine(found, truth) == 0.25

    def test_pieces_without_a_known_normal_and_vertices_without_normal_do_not_count(self):
        torus = builtin_mesh("torus", 300).mesh
        flat = np.array([[9.0, 9, 9], [10, 9, 9], [11, 9, 9]])  # a triangle without area has no normal
        mesh = TriangleMesh(
            np.vstack([torus.vertices, flat]), np.vstack([torus.faces, np.arange(3) + torus.n_vertices])
        )
        stage = Stage("two", mesh, 0.8, 2.0)
        with quietly():
            assert not stage.task.counted[-3:].any()
            assert stage.task.counted[:-3].all()
            assert not stage.task.known[-3:].any()
            for method in (TUNED[NEAREST_EDGES], TUNED[BIHARMONIC], as_paper(2.0)[KERNEL]):
                assert stage.task.judge(method.fill(stage, method.prepare(stage))) > 0.8


class TestMeshes:
    def test_a_folder_of_other_files_is_taken_whole_or_by_name(self, tmp_path):
        for n, name in ((400, "b"), (300, "a")):
            builtin_mesh("torus", n).mesh.save(tmp_path / f"{name}.ply")
        assert [item.name for item in choose_meshes(Config(), tmp_path)[0]] == ["a", "b"]
        assert [item.name for item in choose_meshes(Config(meshes=("b",)), tmp_path)[0]] == ["b"]
        assert len(choose_meshes(dataclasses.replace(SIZES["smoke"], n_meshes=1), tmp_path)[0]) == 1
        with pytest.raises(FileNotFoundError, match="no file for c"):
            choose_meshes(Config(meshes=("c",)), tmp_path)


class TestTimes:
    def test_exponents_of_made_up_times_are_recovered(self):
        sizes = [1000, 2000, 5000, 20_000]
        rows = [
            {"vertices": n, "method": "m", "prepare_s": 3e-9 * n**2.5, "interpolate_s": 1e-5 * n**0.5}
            | {"how": MEASURED}
            for n in sizes
        ]
        rows.append({"vertices": 10**6, "method": "m", "prepare_s": 1.0, "interpolate_s": 1.0, "how": EXTRAPOLATED})
        (row,) = growth_table(rows, {"m": 0.7})
        assert row["prepare"] == pytest.approx(2.5, abs=1e-9)
        assert row["interpolate"] == pytest.approx(0.5, abs=1e-9)
        assert (row["sizes"], row["largest"], row["paper_interpolate"]) == (4, 20_000, 0.7)


class TestLearned:
    def test_the_steps_from_the_exact_kernel_to_the_learned_features(self):
        stage = stage_of("torus-400", 400, tau=8.0)
        recipe = Recipe(
            tau=8.0, n_dense=450, n_neighbors=8, n_starts=150, n_walks=300, epochs=30, batch=512, n_features=128,
            n_candidates=250,
        )  # fmt: skip
        row = learn_on(stage, recipe, lambda *_: None)
        exact = as_paper(8.0)[KERNEL]
        assert row["exact"] == pytest.approx(stage.task.judge(exact.fill(stage, exact.prepare(stage))), abs=1e-9)
        assert (row["vertices"], row["dense"], row["epochs"]) == (stage.mesh.n_vertices, 450, 30)
        points = dense_points(stage.mesh, 450, 0)
        kernel = DiffusionKernel(8.0).dense(knn_graph(points, n_neighbors=8))[: row["vertices"], : row["vertices"]]
        by_hand = stage.task.judge(kernel @ (stage.task.known[:, None] * stage.task.values))
        assert row["exact_dense"] == pytest.approx(by_hand, abs=1e-9)
        # 128 of 450 nodes as anchors and a short training: less than these is lost.
        assert row["features"] == pytest.approx(row["exact_dense"], abs=0.1)
        assert row["learned"] == pytest.approx(row["features"], abs=0.3)


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
