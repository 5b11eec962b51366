"""Hidden velocities of cloth: columns recomputed from their definitions, and what the experiment claims."""

import dataclasses

import numpy as np
import pytest
from scipy import linalg, spatial

from reproduction.normals import FULL
from reproduction.sequences import Sequence, generate_cloth
from reproduction.velocity import AS_PAPER, EDGES, KNN, TUNED, Config, ambient, make_scene, run

SMALL = Config(
    cloths=(1,),
    cloth_frames=25,
    cloth_shape=(21, 18),
    masked=0.1,
    n_frames=3,
    n_anchors=32,
    ambient=(64,),
    sigmas=(0.05, 0.2),
    seeds=(0, 1),
    n_learned=1,
    n_dense=500,
    n_walks=200,
    epochs=2,
    sizes=(400, 600, 800),
    largest_dense=600,
    largest_learned=400,
    timed_epochs=1,
    repeats=1,
)


@pytest.fixture(scope="module")
def record():
    return run(SMALL)


@pytest.fixture(scope="module")
def cloth():
    return generate_cloth(1, n_frames=25, shape=(21, 18))


@pytest.fixture
def scene(cloth):
    return SMALL.scene(cloth, 0)


def cell(record, method, setting):
    return next(row for row in record.tables["cells"] if (row["method"], row["setting"]) == (method, setting))


def errors_by_hand(found, truth):
    """Mean cosine over nodes and frames, relative error over both, with loops."""
    cosines, square, size = [], 0.0, 0.0
    for row, exact in zip(found, truth, strict=True):
        for at in range(0, len(row), 3):
            a, b = row[at : at + 3], exact[at : at + 3]
            square, size = square + ((a - b) ** 2).sum(), size + (b**2).sum()
            if np.linalg.norm(b) > 0:
                cosines.append(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return np.mean(cosines), np.sqrt(square / size)


def check_kernel(row, cloth, pairs, bandwidth):
    """A row against K(m u) / (K m) with K = exp(20 W), dense, on the Gaussian affinities of some pairs."""
    wanted = []
    for seed in SMALL.seeds:
        task = SMALL.scene(cloth, seed).task
        affinity = np.zeros((cloth.n_vertices, cloth.n_vertices))
        for i, j in pairs:
            affinity[i, j] = affinity[j, i] = np.exp(-((task.points[i] - task.points[j]) ** 2).sum() / bandwidth)
        degrees = affinity.sum(axis=1)
        kernel = linalg.expm(20 * affinity / np.sqrt(np.outer(degrees, degrees)))
        share = task.known.astype(float)
        found = kernel @ (share[:, None] * task.values) / (kernel @ share)[:, None]
        wanted.append(errors_by_hand(found[~task.known], task.values[~task.known]))
    # Chebyshev terms that are left out are below 1e-10 of the largest value.
    assert (row["cosine"], row["error"]) == pytest.approx(np.mean(wanted, axis=0), rel=1e-8)


def test_scenes_hold_backward_differences_on_the_first_evaluated_frame(cloth, scene):
    frames = [10, 17, 24]
    np.testing.assert_array_equal(scene.task.points, cloth.positions[10])
    for place, frame in enumerate(frames):
        wanted = (cloth.positions[frame] - cloth.positions[frame - 1]) / 0.02
        np.testing.assert_array_equal(scene.task.values[:, 3 * place : 3 * place + 3], wanted)
    assert (~scene.task.known).sum() == round(0.1 * cloth.n_vertices)


def test_points_on_faces_carry_the_velocities_of_their_corners():
    """Under an affine motion the velocity is affine in the place: points on faces must have just that one."""
    rng = np.random.default_rng(0)
    corners = rng.normal(size=(4, 3))
    matrix, shift = rng.normal(size=(3, 3)), rng.normal(size=3)
    moving = np.stack([corners - (corners @ matrix + shift), corners])  # velocity at x is x A + b
    sequence = Sequence(moving, [[0, 1, 2], [1, 3, 2]])
    dense = make_scene(sequence, np.array([1]), 0.25, 0, 60)
    assert dense.task.points.shape == (60, 3)
    np.testing.assert_array_equal(dense.task.points[:4], corners)
    np.testing.assert_allclose(dense.task.values, dense.task.points @ matrix + shift, atol=1e-12)
    assert (~dense.task.known).sum() == 15


# ------------------------------------------------------------------------------------------------------- columns
def test_the_exact_kernel_on_nearest_neighbours_is_what_its_definition_says(record, cloth):
    points = SMALL.scene(cloth, 0).task.points
    gaps, columns = spatial.cKDTree(points).query(points, 17)
    pairs = {(min(i, j), max(i, j)) for i, row in enumerate(columns) for j in row if i != j}
    # The median is over the lists of neighbours, in which most pairs stand twice.
    check_kernel(cell(record, KNN, "as_paper"), cloth, pairs, np.median(gaps[:, 1:] ** 2))


def test_the_exact_kernel_on_mesh_edges_is_what_its_definition_says(record, cloth):
    points = SMALL.scene(cloth, 0).task.points
    pairs = {tuple(sorted((face[i], face[i - 1]))) for face in cloth.faces.tolist() for i in range(3)}
    median = np.median([((points[i] - points[j]) ** 2).sum() for i, j in pairs])
    check_kernel(cell(record, EDGES, "as_paper"), cloth, pairs, median)


@pytest.mark.parametrize("name", [*AS_PAPER, *(f"{name}*" for name in TUNED), "RFF 64"])
def test_hidden_velocities_never_leak(scene, name):
    """Whatever the hidden velocities are, the predictions are the same bits."""
    method = TUNED.get(name.rstrip("*")) if name.endswith("*") else AS_PAPER.get(name, ambient("RFF 64", 0.1))
    task = scene.task
    values = task.values.copy()
    values[~task.known] = np.random.default_rng(0).normal(scale=100.0, size=values[~task.known].shape)
    other = dataclasses.replace(scene, task=dataclasses.replace(task, values=values))
    np.testing.assert_array_equal(method(scene), method(other))


def test_the_dense_kernel_and_the_exact_action_agree(record):
    """The same kernel by eigendecomposition and by products with a sparse matrix."""
    own = {(row["method"], row["vertices"]): row.get("cosine") for row in record.tables["scaling"]}
    for size in (400, 600):
        assert own[FULL, size] == pytest.approx(own[KNN, size], rel=1e-8)


# -------------------------------------------------------------------------------------------------- data, record
def test_sequences_of_a_folder_take_the_place_of_the_cloth(tmp_path, cloth):
    for name in ("samba", "other"):
        np.savez(tmp_path / f"{name}.npz", pos=cloth.positions, faces=cloth.faces, dt=cloth.dt)
    quick = dataclasses.replace(SMALL, sizes=(), n_learned=0, seeds=(0,), sigmas=(0.1,))
    told = []
    found = run(quick, lambda what, done, total: told.append(what), tmp_path)
    assert found.config["used"] == ["samba"]
    assert str(tmp_path) not in str(found.plain())
    assert set(found.tables) == {"velocity", "sequences", "cells"}
    assert told[-1] == "done"
    assert len(told) > 20
    parts = tmp_path / "parts"
    again = run(quick, data=tmp_path, parts=parts)
    assert again.tables == found.tables  # the same seed, the same bits
    told.clear()
    read = run(quick, lambda what, done, total: told.append(what), tmp_path, parts)
    assert (read.tables, told) == (found.tables, ["sequences", "done"])
    np.savez(tmp_path / "samba.npz", pos=2 * cloth.positions, faces=cloth.faces, dt=cloth.dt)
    run(quick, lambda what, done, total: told.append(what), tmp_path, parts)
    assert any("samba" in what for what in told)  # a changed file is measured again


def test_the_record_comes_back_from_its_files_and_is_drawn(record, saved_and_drawn):
    saved_and_drawn(record)
