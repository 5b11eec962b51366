"""The paper's network: what it computes, that it learns, and that a killed training can be resumed."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from scipy import sparse

from manifoldrf import DiffusionKernel, FlatTorus, ManifoldWarning, Sphere, compute_signatures, knn_graph
from manifoldrf.paper import Network, fit_network, graph_distances

GRAPH = knn_graph(Sphere().grid(400))
STARTS, ANCHORS = np.arange(0, 400, 2), np.arange(0, 400, 4)
UNIT = np.exp(10.0)
NEW = Sphere().sample(37, seed=3)


def signatures(graph=GRAPH, kernel=None, anchors=ANCHORS):
    found = compute_signatures(graph, kernel or DiffusionKernel(20.0), STARTS, teacher="exact").rows
    return sparse.csr_array(found)[:, anchors]


VALUES = signatures()


def fit(values=VALUES, graph=GRAPH, starts=STARTS, anchors=ANCHORS, seed=0, progress=None, **options):
    extra = {} if progress is None else {"progress": progress}
    chosen = Network(**({"epochs": 2, "device": "cpu"} | options))
    return fit_network(graph, starts, anchors, values, chosen, unit=UNIT, seed=seed, **extra)


@pytest.fixture(scope="module")
def fitted():
    return fit(epochs=8)


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first.weights, second.weights, strict=True))


def test_values_are_those_of_three_layers_on_point_anchor_and_distance(fitted):
    field, _ = fitted
    first, bias, second, second_bias, last, last_bias = (weight.astype(np.float64) for weight in field.weights)
    assert (first.shape, second.shape, last.shape) == ((7, 128), (128, 128), (128, 1))
    places = GRAPH.points[ANCHORS]
    paths = GRAPH.shortest_paths(ANCHORS)
    for query, row in zip(NEW, field.values(NEW), strict=True):
        steps = np.linalg.norm(GRAPH.points - query, axis=1)
        near = np.argsort(steps)[:8]
        along = (steps[near] + paths[:, near]).min(axis=1)
        ends = [(place - field.centre) / field.unit for place in (query, places)]
        inputs = np.column_stack([np.broadcast_to(ends[0], ends[1].shape), ends[1], along / field.unit])
        hidden = np.maximum(np.maximum(inputs @ first + bias, 0) @ second + second_bias, 0)
        exact = np.maximum((hidden @ last + last_bias)[:, 0], 0) / UNIT
        np.testing.assert_allclose(row, exact, rtol=1e-4, atol=1e-4 * exact.max())  # single precision


def test_rows_depend_neither_on_other_queries_nor_on_threads(fitted):
    field, whole = fitted[0], fitted[0].values(NEW)
    np.testing.assert_array_equal(field.values(NEW, n_jobs=3), whole)
    np.testing.assert_array_equal(field.values(NEW[20:21])[0], whole[20])
    few = np.array([3, 0, 7])  # products of another shape are rounded otherwise
    np.testing.assert_allclose(field.at_anchors(few).values(NEW), whole[:, few], rtol=1e-3, atol=1e-5 * whole.max())
    assert field.values(NEW[:0]).shape == (0, len(ANCHORS))


@pytest.mark.parametrize("distance", [1.0, 10.0, 1e149])
def test_values_are_nonnegative_and_within_bounds_everywhere(fitted, distance):
    values = fitted[0].values(distance * NEW)
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (values <= fitted[0].bounds).all()


def test_training_lowers_the_loss_and_other_nodes_are_predicted():
    field, info = fit(epochs=40, batch=128)
    assert info.train_loss[-1] < 0.3 * info.train_loss[0]
    assert info.validation_r2 > 0.9
    others = np.setdiff1d(np.arange(400), STARTS)
    exact = compute_signatures(GRAPH, DiffusionKernel(20.0), others, teacher="exact").rows
    exact = sparse.csr_array(exact).toarray()[:, ANCHORS]
    assert np.linalg.norm(field.values(GRAPH.points[others]) - exact) < 0.3 * np.linalg.norm(exact)


@pytest.mark.parametrize("loss", ["relative", "l2"])
def test_the_recorded_loss_is_its_formula_at_pairs_of_held_out_starts(loss):
    # With every small pair as well, the pairs of a start are all anchors.
    field, info = fit(loss=loss, small_share=1.0, epochs=1)
    exact, found = UNIT * VALUES.toarray(), UNIT * field.values(GRAPH.points[STARTS])
    assert (info.n_train, info.n_validation) == (160 * 100, 40 * 100)
    # Which starts were held out is not known; the mean over all is the sum of both parts, up to negative outputs.
    errors = np.abs(found - exact) / np.maximum(exact, 0.1) if loss == "relative" else (found - exact) ** 2
    assert 0.5 < errors.mean() / info.validation_loss[0] < 1.5


def test_small_values_are_kept_with_the_papers_probability(fitted):
    info, raw = fitted[1], UNIT * VALUES.toarray()
    small = (raw < 0.1).sum()
    kept = info.n_train + info.n_validation - (raw >= 0.1).sum()
    assert abs(kept - 0.025 * small) < 5 * np.sqrt(0.025 * small)  # five standard errors


def test_the_seed_decides_everything_and_threads_nothing(fitted):
    assert same(fit(seed=1)[0], fit(seed=1)[0])
    assert not same(fit(seed=1)[0], fit(seed=2)[0])


def test_patience_stops_training_and_keeps_the_best_weights():
    options = {"learning_rate": 0.1, "batch": 512}  # so large a rate that the loss soon goes up and down
    field, info = fit(epochs=300, patience=3, **options)
    assert info.stopped_by == "patience"
    assert info.epochs == info.best_epoch + 3 < 300
    assert min(info.validation_loss) == info.validation_loss[info.best_epoch - 1]
    assert same(fit(epochs=info.best_epoch, patience=None, **options)[0], field)


def stop_at(epoch):
    def progress(what, done, total):
        if what == "training epochs" and done == epoch:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_training_ends_with_the_same_bits(tmp_path):
    checkpoint = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(epochs=23, checkpoint=checkpoint, progress=stop_at(21))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]
    done = []
    field, info = fit(epochs=23, checkpoint=checkpoint, progress=lambda what, k, n: done.append((what, k)))
    assert ("training epochs", 20) in done
    assert ("training epochs", 19) not in done
    whole, complete = fit(epochs=23)
    assert same(field, whole)
    assert (info.train_loss, info.validation_loss) == (complete.train_loss, complete.validation_loss)
    assert info.validation_r2 == complete.validation_r2
    assert same(fit(epochs=23, checkpoint=checkpoint, progress=stop_at(22))[0], whole)  # nothing left to do


def test_a_checkpoint_of_another_training_or_a_damaged_file_is_refused(tmp_path):
    checkpoint = tmp_path / "state.safetensors"
    fit(checkpoint=checkpoint)
    for change in ({"epochs": 3}, {"seed": 1}, {"values": 2 * VALUES}):
        with pytest.raises(ValueError, match="`checkpoint` must be of the same data, options and seed"):
            fit(checkpoint=checkpoint, **change)
    tensors = load_file(checkpoint)
    with safe_open(checkpoint, "np") as file:
        notes = file.metadata()
    for change in (
        {"best/0.weight": np.zeros((2, 2), np.float32)},
        {"adam0/exp_avg": np.zeros(3, np.float32)},
        {"record/losses": np.zeros(3)},
        {"record/losses": np.zeros((0, 2))},
        {"record/seconds": np.zeros(2)},
    ):
        save_file(tensors | change, checkpoint, notes)
        with pytest.raises(ValueError, match="`checkpoint` must be a complete checkpoint"):
            fit(checkpoint=checkpoint)
    save_file(tensors, checkpoint, notes)
    fit(checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="`checkpoint` must be a complete checkpoint"):
        fit(checkpoint=checkpoint)
    save_file({"x": tensors["record/losses"]}, checkpoint)
    kept = checkpoint.read_bytes()
    with pytest.raises(ValueError, match="`checkpoint` must be of the same"):
        fit(checkpoint=checkpoint)
    assert checkpoint.read_bytes() == kept
    with pytest.raises(ValueError, match="`seed` must be given with a checkpoint"):
        fit(checkpoint=checkpoint, seed=None)


def test_periodic_coordinates_have_no_seam():
    torus = FlatTorus(dim=2)
    graph = knn_graph(torus.grid(400), metric=torus)
    field, _ = fit(signatures(graph), graph)
    sides = field.values(np.array([[1e-9, 0.5], [1 - 1e-9, 0.5], [3.0, -1.5]]))
    np.testing.assert_allclose(sides[1:], sides[[0, 0]], rtol=1e-3, atol=1e-5 * sides.max())


def test_distances_at_nodes_are_shortest_paths():
    found = graph_distances(GRAPH, ANCHORS).at(GRAPH.points)
    np.testing.assert_allclose(found, GRAPH.shortest_paths(ANCHORS).T, atol=1e-6)
    with pytest.warns(ManifoldWarning, match="2 pieces"):
        apart = knn_graph(np.vstack([Sphere().grid(50), Sphere().grid(50) + 9]), n_neighbors=4)
    found = graph_distances(apart, np.array([0])).at(apart.points)
    assert found.max() == found[60:].min() == 2 * found[:50].max()  # unreachable


def test_torch_is_loaded_by_training_alone_and_keeps_its_threads(tmp_path):
    """A trained network is evaluated without torch."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(2)
    with pytest.raises(KeyboardInterrupt):
        fit(progress=stop_at(1))
    assert torch.get_num_threads() == 2
    code = "import sys, manifoldrf.paper; assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
