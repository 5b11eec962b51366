"""Fields and attention on another device: the same values as on the processor, and no tensor left behind there.

Without a GPU the code for one runs on the processor, under another name, and with tensors that only have a shape.
"""

import ast
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from marks import quick_ones
from scipy import sparse
from torch.utils._python_dispatch import TorchDispatchMode

import manifoldrf
from manifoldrf import HeatKernel, ManifoldRandomFeatures, PowerKernel, Sphere, heat_graph, load
from manifoldrf._random import Streams
from manifoldrf.applications.attention import AttentionState, ManifoldAttention, linear_attention
from manifoldrf.applications.positions import positions_of
from manifoldrf.fields import data as _devices
from manifoldrf.fields import mlp
from manifoldrf.fields import training as _training
from manifoldrf.fields.data import AbstractField, Problem, SignatureOptions, signature_table
from manifoldrf.fields.geodesics import graph_distances
from manifoldrf.fields.interpolated import fit_interpolated
from manifoldrf.fields.local import fit_local
from manifoldrf.fields.mlp import fit_mlp
from manifoldrf.fields.network import joint_inputs, make_frame
from manifoldrf.fields.step import fit_step, one_step
from manifoldrf.fields.training import MlpOptions, make_training_data

EPS = np.finfo(np.float64).eps
NODES = Sphere().grid(300)
NEW = Sphere().sample(60, seed=1)
ABSENT = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
# Functions of torch that make tensors on the processor unless told otherwise.
MAKERS = {"zeros", "ones", "full", "eye", "arange", "linspace", "tensor", "as_tensor", "from_numpy", "empty"}
MAKERS |= {"rand", "randn", "randint", "randperm", "sparse_csr_tensor", "sparse_coo_tensor", "Generator"}
OWNERS = {"Parameter", "register_buffer"}  # what a module holds moves with it


@pytest.fixture(scope="module")
def setting():
    graph = heat_graph(NODES, 0.1)
    return Problem(graph, PowerKernel(graph.n_steps), graph.weights, 2, np.sqrt(0.1))


@pytest.fixture(scope="module")
def data(setting):
    return signature_table(setting, np.arange(300), np.arange(0, 300, 4), SignatureOptions())


@pytest.fixture(scope="module", params=["log", "paper"])
def network(request, data):
    options = MlpOptions(network=request.param, epochs=3, hidden=32, batch=4096, device="cpu")
    return fit_mlp(data, options, seed=0)[0]


def dense(values):
    return values.toarray() if sparse.issparse(values) else np.asarray(values)


def torch_name(device):
    """A name by which torch knows the device and which is not the word for compiled code on the processor."""
    return f"{device}:0"


# Reading fields


def rounding(field, queries, exact):
    """What single precision may change, layer by layer: eps times number and sizes of the terms of each sum."""
    eps, frame = 2.0**-23, field.frame
    first, bias, second, second_bias, last, ends = (weight.astype(np.float64) for weight in field.weights)
    points = np.repeat(frame.coordinates(np, queries), len(field.anchors), axis=0)
    pairs = (
        points,
        np.tile(field.anchors.astype(np.float64), (len(queries), 1)),
        field.distances.at(queries).ravel(),
    )
    inputs, squared = joint_inputs(np, field.network, frame, pairs)
    # Inputs are of order 1 after some ten operations, of which the first takes a difference in units of the width.
    errors = 16 * eps * (1 + frame.unit / frame.width) * np.ones_like(inputs)
    for matrix, offset in ((first, bias), (second, second_bias), (last, np.zeros(1))):
        terms = np.abs(inputs) @ np.abs(matrix) + np.abs(offset)
        errors = errors @ np.abs(matrix) + (len(matrix) + 2) * eps * terms
        inputs = np.maximum(inputs @ matrix + offset, 0)
    errors = errors[:, 0] + 4 * eps * (terms[:, 0] + np.abs(ends[0]))
    if field.network == "paper":
        return errors.reshape(exact.shape) / field.scale + eps * exact
    gap = 16 * eps * (1 + frame.unit / frame.width) * np.sqrt(squared) + 4 * eps * squared
    return np.expm1(errors + np.abs(ends[1]) * (gap + 4 * eps * squared)).reshape(exact.shape) * exact + eps * exact


@pytest.mark.parametrize("at_once", quick_ones([2**18, 200], 200))
def test_a_network_on_a_device_is_rounded_as_on_the_processor(network, device, monkeypatch, at_once):
    monkeypatch.setattr(mlp, "_PAIRS_ON_DEVICE", at_once)  # all at once, or two queries
    queries = np.vstack([NEW, 1e6 * NEW[:3]])
    exact = network.torch_values(torch.as_tensor(queries)).numpy()  # in double precision
    bound = rounding(network, queries, exact)
    for found in (network.values_on(torch_name(device), queries), network.values(queries)):
        assert found.shape == exact.shape
        assert (np.abs(found - exact) <= bound).all()
    assert bound.max() < 1e-3 * exact.max()


def test_coordinates_far_from_the_origin_are_not_rounded_before_they_meet(device):
    """Single precision would hold positions around 1e6 to a tenth only."""
    nodes = NODES + 1e6
    graph = heat_graph(nodes, 0.1)
    setting = Problem(graph, PowerKernel(graph.n_steps), graph.weights, 2, np.sqrt(0.1))
    data = signature_table(setting, np.arange(300), np.arange(0, 300, 10), SignatureOptions())
    field = fit_mlp(data, MlpOptions(epochs=1, hidden=8, device="cpu"), seed=0)[0]
    wanted = field.values(NEW + 1e6)
    found = field.values_on(torch_name(device), NEW + 1e6)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * wanted.max())  # rounding of 8 terms, 3 layers


def test_the_step_field_takes_the_same_product_on_a_device(setting, device, monkeypatch):
    monkeypatch.setattr(_devices, "_ENTRIES_AT_ONCE", 7 * 75)  # seven queries
    field = fit_step(setting, np.arange(0, 300, 4), SignatureOptions())
    steps = one_step(setting.graph, NEW)
    exact = (steps @ field.table).toarray()
    found = field.values_on(torch_name(device), NEW)
    assert found.has_sorted_indices
    # Sums of n nonnegative terms in any order: at most n eps off.
    np.testing.assert_allclose(dense(found), exact, rtol=2 * np.diff(steps.indptr).max() * EPS)


def test_the_interpolated_field_takes_the_same_product_on_a_device(data, device):
    field = fit_interpolated(data)
    weights = field.interpolation.weights(NEW)
    terms = 2 * np.diff(weights.indptr).max() * EPS * (abs(weights) @ abs(field.table)).max()
    found, wanted = dense(field.values_on(torch_name(device), NEW)), dense(field.values(NEW))
    np.testing.assert_allclose(found, wanted, rtol=2 * terms + 4 * EPS)  # of the logarithms, then of exp


def test_fields_without_such_a_part_stay_on_the_processor(data):
    field = fit_local(data)
    np.testing.assert_array_equal(dense(field.values_on("cuda", NEW)), dense(field.values(NEW)))


@pytest.mark.parametrize("name", ["step", "interpolated", "mlp"])
def test_no_queries_give_no_rows(setting, data, device, name):
    field = {
        "step": lambda: fit_step(setting, data.anchors, SignatureOptions()),
        "interpolated": lambda: fit_interpolated(data),
        "mlp": lambda: fit_mlp(data, MlpOptions(epochs=1, hidden=4, device="cpu"), seed=0)[0],
    }[name]()
    assert field.values_on(torch_name(device), NEW[:0]).shape == (0, field.n_anchors)


class Watched(AbstractField):
    """A field that says where it was read."""

    bounds = np.ones(1)

    def __init__(self, is_network):
        self._is_network = is_network

    @property
    def is_network(self):
        return self._is_network

    def values(self, queries, n_jobs=1):
        return "cpu"

    def values_on(self, device, queries, n_jobs=1):
        return device


@pytest.mark.parametrize(
    ("asked", "is_network", "there", "read_on"),
    [
        ("cpu", True, True, "cpu"),
        ("auto", True, True, "cuda"),
        ("auto", True, False, "cpu"),
        ("auto", False, True, "cpu"),
        ("cuda", False, True, "cuda"),
        ("cuda", True, True, "cuda"),
    ],
)
def test_the_device_asked_for_and_those_there_decide(monkeypatch, asked, is_network, there, read_on):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert _devices.read_field(Watched(is_network), NEW, 1, asked) == read_on


# Features


def fitted(field, **settings):
    options = {"epochs": 2, "hidden": 16} if field == "mlp" else None
    model = ManifoldRandomFeatures(
        HeatKernel(0.2), n_features=60, field=field, field_options=options, random_state=0, **settings
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", manifoldrf.FeatureWarning)  # two epochs teach little
        return model.fit(NODES)


@pytest.mark.parametrize("field", ["step", "interpolated", "mlp"])
def test_features_read_on_a_device_are_those_of_the_processor(field, device, monkeypatch):
    model = fitted(field, device="cpu")
    vector = np.linspace(0, 1, len(NEW))
    calls = (
        lambda: dense(model.transform(NEW)),
        lambda: model.kernel_matrix(NEW),
        lambda: model.matvec(NEW, vector),
    )
    wanted = [call() for call in calls]
    monkeypatch.setattr(_devices, "pick_device", lambda asked: torch_name(device))
    model.set_params(device="cuda")
    for call, exact in zip(calls, wanted, strict=True):
        tolerance = 1e-3 if field == "mlp" else 1e-9  # single precision; sums of some hundred terms in double
        np.testing.assert_allclose(call(), exact, rtol=tolerance, atol=1e-2 * tolerance * exact.max())


@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")
def test_a_network_trains_and_is_read_on_every_device(device):
    here, there = fitted("mlp", device="cpu"), fitted("mlp", device=device)
    losses = [np.array(model.training_.train_loss) for model in (here, there)]
    np.testing.assert_allclose(*losses, rtol=1e-2)  # two epochs of sums in single precision, in another order
    wanted = here.kernel_matrix(NEW)
    assert np.linalg.norm(there.kernel_matrix(NEW) - wanted) <= 1e-2 * np.linalg.norm(wanted)


@ABSENT
@pytest.mark.parametrize("field", ["step", "mlp"])
def test_a_device_that_is_not_there_is_refused_by_fit(field):
    with pytest.raises(
        ValueError, match=r"`device` must be 'cpu' or 'auto' on a machine without CUDA\. Got 'cuda'"
    ):
        fitted(field, device="cuda")


@ABSENT
def test_a_model_of_a_machine_with_cuda_loads_and_says_what_is_missing(tmp_path):
    model = fitted("mlp", device="cpu")
    wanted = model.transform(NEW)
    model.set_params(device="cuda")
    again = load(model.save(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match="`device` must be 'cpu' or 'auto' on a machine without CUDA"):
        again.transform(NEW)
    for device in ("auto", "cpu"):
        np.testing.assert_array_equal(again.set_params(device=device).transform(NEW), wanted)
    with pytest.raises(ValueError, match="`device` must be one of 'auto', 'cpu', 'cuda'"):
        again.set_params(device="tpu").transform(NEW)


def test_a_loaded_network_is_read_on_a_device(tmp_path, device):
    field = load(fitted("mlp", device="cpu").save(tmp_path / "model.safetensors")).map_.field
    wanted = field.values(NEW)
    np.testing.assert_allclose(field.values_on(torch_name(device), NEW), wanted, atol=1e-4 * wanted.max())


def test_attention_reads_networks_on_the_device_of_the_features(monkeypatch, device):
    model = fitted("mlp", device="cpu")
    wanted = dense(positions_of(model, "features").rows(NEW)[0])
    asked = []
    monkeypatch.setattr(_devices, "pick_device", lambda name: asked.append(name) or torch_name(device))
    found = positions_of(model.set_params(device="auto"), "features").rows(NEW)[0]
    assert asked == ["auto"]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5 * wanted.max())


# No tensor is left behind


class OneDevice(TorchDispatchMode):
    """Raises where an operation takes tensors of two devices, as CUDA does; scalars and indices are free."""

    free = ("aten::_to_copy", "aten::copy_", "aten::index", "aten::index_put")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name().partition(".")[0] not in self.free:
            flat = [*args, *(kwargs or {}).values()]
            flat += [entry for item in flat if isinstance(item, list | tuple) for entry in item]
            found = {str(item.device) for item in flat if isinstance(item, torch.Tensor) and item.ndim}
            if len(found) > 1:
                raise RuntimeError(f"{func.name()} takes tensors of {sorted(found)}")
        return func(*args, **(kwargs or {}))


def shapes(*sizes):
    """Tensors that have a device, a shape and no numbers."""
    return [torch.ones(size, device="meta", requires_grad=True) for size in sizes]


def test_two_devices_in_one_operation_are_seen():
    with OneDevice(), pytest.raises(RuntimeError, match="takes tensors of"):
        torch.cat([torch.ones(2), torch.ones(2, device="meta")])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("empty", ["zero", "mean"])
def test_attention_stays_on_the_device_of_its_tensors(causal, empty):
    queries, keys, values, weights = shapes((3, 200, 5), (3, 200, 5), (3, 200, 4), (3, 200))
    with OneDevice():
        found = linear_attention(queries, keys, values, causal, weights=weights, empty=empty)
        found.sum().backward()
        state = AttentionState(empty)
        steps = [state.step(queries[:, i], keys[:, i], values[:, i]) for i in range(3)]
    assert found.shape == (3, 200, 4)
    assert {str(each.device) for each in (found, queries.grad, keys.grad, values.grad, *steps)} == {"meta"}


@pytest.mark.parametrize("options", [{}, {"causal": True, "content_features": 2}, {"projections": False}])
def test_a_module_moves_as_a_whole(options):
    model = fitted("step")
    module = ManifoldAttention([model, model], 8, **options).to("meta")
    kept = module.precompute(torch.as_tensor(NEW))
    with OneDevice():
        found = module(kept, torch.ones(2, 60, 8, device="meta"), torch.ones(60, device="meta"))
    held = (*kept.groups, *module.parameters(), *module.buffers())
    assert {str(each.device) for each in (*held, found)} == {"meta"}


def test_sparse_features_are_made_on_the_device():
    made = _devices.csr_tensor(sparse.csr_array(np.eye(3)), "meta", torch.float32)
    parts = (made, made.values(), made.crow_indices(), made.col_indices())
    assert {str(part.device) for part in parts} == {"meta"}
    assert made.dtype == torch.float32


def test_a_network_stays_on_the_device_of_its_inputs(network):
    paths = torch.as_tensor(network.distances.paths, device="meta")
    with OneDevice():
        reached = network.distances.torch_through(paths, *network.distances.nearest(NEW))
        (points,) = shapes((60, network.anchors.shape[1]))
        found = network._meet(points, reached)
        found.sum().backward()
    assert (found.shape, str(found.device), str(points.grad.device)) == ((60, 75), "meta", "meta")


@pytest.mark.parametrize("kind", ["log", "paper"])
def test_training_stays_on_its_device(data, kind):
    options, streams = MlpOptions(network=kind, hidden=8, batch=512), Streams.from_seed(0)
    distances = graph_distances(data.graph, data.anchors)
    problem = make_training_data(data, distances, make_frame(data.points, data.width, None), kind, streams)
    tensors = [_training._Tensors(problem, getattr(problem, name), "meta") for name in ("train", "validation")]
    epoch = _training._Epoch(problem, options, *tensors, map)
    with OneDevice():
        state = _training._begin(problem, options, streams, "meta")
        losses = epoch._losses(epoch.predictions(state.weights), tensors[1].targets)
        values = tensors[0].values(kind, state.weights, torch.arange(9, device="meta"))
        gradients = torch.autograd.grad(epoch._losses(values, tensors[0].targets[:9]).sum(), state.weights)
    assert {str(each.device) for each in (losses, *state.weights, *gradients)} == {"meta"}


def calls_of(tree):
    """Calls with the name of the function whose argument they are part of."""
    owners = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owners.update({inner: name for part in node.args for inner in ast.walk(part)})
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, owners.get(node)


def makes_tensor(call):
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in MAKERS
        and isinstance(function.value, ast.Name)
        and function.value.id == "torch"
    )


def test_every_new_tensor_is_told_its_device():
    """What is made without a device is on the processor, where products with tensors of another one fail."""
    root = Path(manifoldrf.__file__).parent
    silent, seen = [], 0
    for path in sorted(root.rglob("*.py")):
        for call, owner in calls_of(ast.parse(path.read_text())):
            if makes_tensor(call):
                seen += 1
                told = any(keyword.arg == "device" for keyword in call.keywords)
                if not told and owner not in OWNERS:
                    silent.append(f"{path.relative_to(root)}:{call.lineno}")
    assert seen > 10
    assert silent == []
