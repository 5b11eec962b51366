"""Normals from a fifth of them: small, every column recomputed, and what the experiment claims."""

import dataclasses
import time

import numpy as np
import pytest
from scipy import linalg, sparse

from manifoldrf.applications.interpolation import feature_action
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from reproduction.mesh_data import THINGI10K_IDS, NamedMesh, builtin_by_name, builtin_mesh
from reproduction.normals import (
    BIHARMONIC,
    COMMON_MESHES,
    FULL,
    KERNEL,
    LEARNED,
    MAIN,
    NEAREST,
    NEAREST_EDGES,
    PUBLISHED,
    PUBLISHED_TIMES,
    SIZES,
    TUNED,
    UNIFORM,
    Config,
    Stage,
    Timing,
    as_paper,
    choose_meshes,
    dense_points,
    full_kernel,
    learn_on,
    mean_cosine,
    run,
    summarise,
    time_methods,
    timed_shape,
    with_extrapolated,
)
from reproduction.smoothers import (
    EXTRAPOLATED,
    MEASURED,
    SIGMAS,
    Recipe,
    ambient_features,
    extrapolated,
    fit_power,
    growth_table,
    largest_table,
    quietly,
    timed,
)

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

    def test_columns_of_all_tables_are_those_cells_and_their_means(self, record):
        for row in record.tables["meshes"]:
            for column, (method, setting) in MAIN.items():
                wanted = None if column == "rff_1024" else cell(record, row["mesh"], method, setting)
                assert row[column] == wanted
        for row in record.tables["normals"]:
            for setting in ("as_paper", "tuned"):
                if row[setting] is not None:
                    means = [cell(record, mesh, row["method"], setting) for mesh in SMALL.shapes]
                    assert row[setting] == pytest.approx(np.mean(means), abs=1e-12)

    def test_the_dense_kernel_is_the_exact_action(self):
        stage = stage_of("torus-400", 400)
        methods = [full_kernel(1000), as_paper(20.0)[KERNEL]]
        cosines = [stage.task.judge(method.fill(stage, method.prepare(stage))) for method in methods]
        assert cosines[0] == pytest.approx(cosines[1], abs=1e-9)

    def test_a_tuned_kernel_beats_tau_20_and_a_biharmonic_field_both(self, record):
        rows = {row["method"]: row for row in record.tables["normals"]}
        assert rows[KERNEL]["tuned"] > rows[KERNEL]["as_paper"]
        assert rows[BIHARMONIC]["tuned"] > rows[KERNEL]["tuned"]

    def test_where_layers_nearly_touch_methods_of_the_space_around_fail(self, record):
        row = next(row for row in record.tables["meshes"] if row["mesh"] == "sheet-500")
        ambient = [row["nearest"], row["average"], cell(record, "sheet-500", "RFF 32", "as_paper")]
        assert max(ambient) + 0.2 < min(row["nearest_edges"], row["kernel_cv"], row["biharmonic"])

    @pytest.mark.parametrize("method", ["RFF", "PRF"])
    def test_the_bandwidth_as_in_the_paper_is_the_best_of_the_grid(self, record, method):
        """Oracle: features, fill and score at every bandwidth, one after the other."""
        stage = stage_of("sheet-500", 500)
        points, task = stage.mesh.vertices, stage.task
        scores = []
        for share in SMALL.sigmas:
            sigma = share * np.linalg.norm(np.ptp(points, axis=0))
            features = ambient_features(points, method, 32, sigma, task.seed)
            scores.append(task.judge(task.fill(feature_action(features, features))))
        best, tuned = (cell(record, "sheet-500", f"{method} 32", setting) for setting in ("as_paper", "tuned"))
        assert best == pytest.approx(max(scores), abs=1e-12)
        assert min(scores) < best - 1e-3
        assert min(abs(tuned - score) for score in scores) < 1e-12

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

    def test_masks_are_averaged(self):
        one, other, both = (
            run(dataclasses.replace(SMALL, shapes=("torus-150",), seeds=seeds)).tables["cells"]
            for seeds in ((1,), (2,), (1, 2))
        )
        for a, b, mean in zip(one, other, both, strict=True):
            assert mean["cosine"] == pytest.approx((a["cosine"] + b["cosine"]) / 2, abs=1e-12)
        assert one != other

    def test_large_meshes_have_a_shorter_list_and_do_not_enter_the_means(self):
        found = run(dataclasses.replace(SMALL, largest_full=400))
        assert {row["meshes"] for row in found.tables["normals"]} == {1}
        methods = {row["method"] for row in found.tables["cells"] if row["mesh"] == "sheet-500"}
        assert {KERNEL, BIHARMONIC, NEAREST, UNIFORM} < methods
        assert "Gaussian process, unit weights" not in methods
        assert found.tables["meshes"][1]["gp"] is None


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
    def test_the_papers_files_are_taken_by_id_and_missing_ones_are_noted(self, tmp_path):
        torus = builtin_mesh("torus", 300).mesh
        for number in THINGI10K_IDS[3:5]:
            torus.save(tmp_path / f"{number}.stl")
        torus.save(tmp_path / "another.ply")
        meshes, notes = choose_meshes(Config(), tmp_path)
        assert sorted(item.name for item in meshes) == sorted(str(number) for number in THINGI10K_IDS[3:5])
        assert str(THINGI10K_IDS[0]) in notes[0]
        assert str(THINGI10K_IDS[3]) not in notes[0]

    def test_a_folder_of_other_files_is_taken_whole_or_by_name(self, tmp_path):
        for n, name in ((400, "b"), (300, "a")):
            builtin_mesh("torus", n).mesh.save(tmp_path / f"{name}.ply")
        assert [item.name for item in choose_meshes(Config(), tmp_path)[0]] == ["a", "b"]
        assert [item.name for item in choose_meshes(Config(meshes=("b",)), tmp_path)[0]] == ["b"]
        assert len(choose_meshes(dataclasses.replace(SIZES["smoke"], n_meshes=1), tmp_path)[0]) == 1
        with pytest.raises(FileNotFoundError, match="no file for c"):
            choose_meshes(Config(meshes=("c",)), tmp_path)

    def test_of_a_folder_with_the_common_meshes_those_are_taken(self, tmp_path):
        for name in (*COMMON_MESHES, "another"):
            builtin_mesh("torus", 64).mesh.save(tmp_path / f"{name}.off")
        assert {item.name for item in choose_meshes(Config(), tmp_path)[0]} == set(COMMON_MESHES)

    def test_a_record_of_files_has_their_names_and_not_their_folder(self, tmp_path):
        builtin_mesh("torus", 300).mesh.save(tmp_path / "ring.ply")
        config = dataclasses.replace(SMALL, ambient=(16,))
        found = run(config, data=tmp_path)
        assert found.config["used"] == ["ring"]
        assert str(tmp_path) not in str(found.plain())

    def test_without_a_package_its_meshes_are_left_out_and_it_is_said(self, monkeypatch):
        def missing(name):
            if name.startswith("bunny"):
                raise ModuleNotFoundError("This needs the package 'pymeshfix'.")
            return NamedMesh(name, builtin_mesh("torus", 64).mesh)

        monkeypatch.setattr("reproduction.normals.builtin_by_name", missing)
        meshes, notes = choose_meshes(Config(), None)
        assert not any(item.name.startswith("bunny") for item in meshes)
        assert meshes
        assert "bunny-2500 left out: This needs the package 'pymeshfix'." in notes
        with pytest.raises(ModuleNotFoundError, match="pymeshfix"):
            choose_meshes(Config(shapes=("bunny-900",)), None)


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

    def test_larger_sizes_follow_the_last_two(self):
        rows = [
            {"vertices": n, "method": "m", "prepare_s": n**3 / 1e9, "interpolate_s": n**2 / 1e6, "how": MEASURED}
            for n in (100, 1000, 2000)
        ]
        rows[0]["prepare_s"] = 5.0
        (far,) = extrapolated(rows, "m", [1000, 2000, 4000])
        assert (far["vertices"], far["how"]) == (4000, EXTRAPOLATED)
        assert far["prepare_s"] == pytest.approx(64.0, rel=1e-9)
        assert far["interpolate_s"] == pytest.approx(16.0, rel=1e-9)
        assert extrapolated(rows[:1], "m", [4000]) == []
        assert fit_power([5, 5], [1.0, 2.0]) is None

    def test_quick_work_is_repeated_and_the_least_time_counts(self):
        calls = []
        found, seconds = timed(lambda: calls.append(1) or len(calls), 3)
        assert found == len(calls) == 3
        assert 0 <= seconds < 1

    def test_times_do_not_count_what_others_do_meanwhile(self):
        """CPU seconds of this process: to sleep takes none."""
        assert timed(lambda: time.sleep(0.05))[1] < 0.05

    def test_times_at_the_size_of_the_papers_largest_mesh_are_beside_its_own(self):
        rows = [
            {"vertices": n, "method": method, "prepare_s": float(n), "interpolate_s": 1.0, "how": MEASURED}
            for method, sizes in ((FULL, (10, 20)), (LEARNED, (10, 20)), ("other", (10, 40)))
            for n in sizes
        ]
        full, learned = largest_table(rows, (FULL, LEARNED), PUBLISHED_TIMES)
        assert (full["vertices"], full["prepare_s"], full["paper_prepare_s"]) == (20, 20.0, 2936.0)
        assert (learned["method"], learned["paper_prepare_s"], learned["paper_interpolate_s"]) == (
            LEARNED,
            171.0,
            0.45,
        )
        assert largest_table(rows[:2], (FULL, LEARNED), PUBLISHED_TIMES) == []
        config = SIZES["paper"]
        timed_sizes = [size for size in config.sizes if size <= config.largest_learned]
        assert (len(timed_sizes), timed_sizes[-1]) == (6, 47_024)
        assert (config.n_learned, config.epochs) == (3, 1000)

    def test_every_method_is_timed_at_every_size_and_the_dense_kernel_beyond_its_own(self, monkeypatch):
        monkeypatch.setattr("reproduction.normals.available", lambda package: False)
        recipe = Recipe(n_dense=200, n_starts=50, n_walks=20, epochs=1, batch=4096, n_features=32, n_candidates=100)
        timing = Timing((200, 250, 300), 20.0, (16,), 250, 1, recipe)
        with quietly():
            rows = []
            for size in timing.sizes:
                item = builtin_by_name(f"{timed_shape()}-{size}")
                assert item.name.startswith("torus")  # without the bunny's package
                rows += time_methods(timing, Stage(item.name, item.mesh, 0.8, 20.0), size, lambda _: None)
            rows = with_extrapolated(rows)
        sizes = sorted({row["vertices"] for row in rows})
        for method in dict.fromkeys(row["method"] for row in rows):
            own = [row for row in rows if row["method"] == method]
            assert [row["vertices"] for row in own] == sizes
            assert all(row["interpolate_s"] > 0 for row in own)
        hows = {method: [row["how"] for row in rows if row["method"] == method] for method in (FULL, LEARNED)}
        assert hows == {FULL: [MEASURED, MEASURED, EXTRAPOLATED], LEARNED: ["epochs extrapolated"] * 3}


class TestLearned:
    def test_the_dense_set_is_the_vertices_and_points_on_the_surface(self):
        mesh = builtin_mesh("torus", 300).mesh
        points = dense_points(mesh, 500, 0)
        np.testing.assert_array_equal(points[: mesh.n_vertices], mesh.vertices)
        assert len(points) == 500
        np.testing.assert_allclose(mesh.closest_points(points).points, points, atol=1e-12)
        assert dense_points(mesh, 100, 0) is mesh.vertices

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


class TestConfig:
    def test_the_paper_is_beside_only_where_the_setting_is_its_own(self, record):
        assert all(row["paper_as_paper"] is None for row in record.tables["normals"])
        cells = [{"mesh": "a", "vertices": 9, "method": UNIFORM, "setting": "as_paper", "cosine": 0.5}]
        assert summarise(cells, ["a"], paper=True)[0]["paper_as_paper"] == PUBLISHED[UNIFORM] == 0.85

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"masked": 1.0}, "`masked` must be a number in"),
            ({"tau": 0.0}, "`tau` must be a number in"),
            ({"seeds": ()}, "`seeds` must be at least one number"),
            ({"sizes": (100,)}, "`sizes` must be 200 vertices at least"),
            ({"n_learned": -1}, "`n_learned` must be an integer in"),
        ],
    )
    def test_bad_settings_are_refused(self, changes, match):
        with pytest.raises(ValueError, match=match):
            Config(**changes)

    def test_both_sizes_are_there(self):
        assert set(SIZES) == {"smoke", "paper"}
        assert len(SIZES["paper"].sizes) >= 6
        assert max(SIZES["paper"].sizes) == 150_000
