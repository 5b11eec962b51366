"""Concurrent fits in threads and processes give the bits of sequential fits and change no global state."""

import gc
import locale
import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import sphere_mesh
from threadpoolctl import threadpool_info, threadpool_limits

import manifoldrf
from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    FieldInterpolator,
    GraphRandomFeatures,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    Network,
    Sphere,
    Walks,
    compute_signatures,
    heat_graph,
    knn_graph,
    load,
)
from manifoldrf._runtime import (
    SharedLimit,
    filtered,
    one_blas_thread,
    quick_map,
    thread_pool,
    warn_user,
    without_warnings,
)
from manifoldrf.torch import linear_attention

NODES = Sphere().grid(150)
NEW = Sphere().sample(60, seed=1)
MANY = Sphere().grid(300)  # products of a size that a library shares among its threads
HEIGHT = NODES[:, 2]
MESH = sphere_mesh(100)
GRAPH = knn_graph(NODES)
STEPS = DiffusionKernel(10.0)
NETWORK = {"field": Network(epochs=1, hidden=(8,), n_starts=60, device="cpu")}

pytestmark = pytest.mark.filterwarnings(
    "ignore::manifoldrf.ManifoldWarning"  # features of a test are few
)


def features(kernel=None, **settings):
    options = {"n_features": 64, "random_state": 0, "n_jobs": 2, **settings}
    return ManifoldRandomFeatures(HeatKernel(0.3) if kernel is None else kernel, **options)


def filled():
    known = np.where(np.arange(len(HEIGHT)) % 3 == 0, HEIGHT, np.nan)
    return FieldInterpolator(method="kernel", random_state=0, n_jobs=2).fit(GRAPH, known).predict()


def attended():
    phi = torch.as_tensor(np.abs(NEW))
    return linear_attention(phi, phi, torch.as_tensor(NEW)).numpy()


def signatures(teacher, **options):
    return compute_signatures(GRAPH, STEPS, teacher=teacher, seed=0, n_jobs=2, **options).rows.toarray()


def many():
    model = features(n_features=200).fit(MANY)
    return np.append(model.kernel_matrix(MANY[::-1], MANY), float(model.error_))


# Everything that a user may run at once, each from a fixed seed.
JOBS = {
    "step": lambda: features().fit(NODES).transform(NEW),
    "another seed": lambda: features(random_state=1, anchors="iid").fit(NODES).transform(NEW),
    "mesh": lambda: features().fit(MESH).transform(NEW),
    "interpolated": lambda: features(STEPS, field="interpolated").fit(NODES).transform(NEW),
    "network": lambda: features(STEPS, **NETWORK).fit(NODES).transform(NEW),
    "kernel and error": many,
    "heat graph": lambda: heat_graph(NODES, 0.1, n_jobs=2).affinity.toarray(),
    "counts": lambda: signatures(Counts()),
    "walks": lambda: signatures(Walks(50)),
    "frontier": lambda: signatures(Exact(form="sparse")),
    "nodes": lambda: GraphRandomFeatures(STEPS, random_state=0).fit(GRAPH).transform(np.arange(9)).toarray(),
    "fill": filled,
    "ridge": lambda: ManifoldRidge(features(), n_jobs=2).fit(NODES, HEIGHT).predict(NEW),
    "process": lambda: ManifoldGaussianProcess(
        HeatKernel(0.3), n_features=64, optimize=False, random_state=0, n_jobs=2
    ).fit(NODES, HEIGHT).predict(NEW),
    "attention": attended,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def two_threads_of_libraries():
    """Whatever the tests were started with."""
    with threadpool_limits(2, "blas"):
        yield


def global_state():
    """Global state of the process that a library could change."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  (the one that must not change)
    return {
        "numpy's random numbers": (numpy_state["state"]["pos"], numpy_state["state"]["key"].tobytes()),
        "Python's random numbers": random.getstate(),
        "torch's random numbers": torch.get_rng_state().numpy().tobytes(),
        "torch's threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "torch's flags": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_grad_enabled(),
            torch.get_float32_matmul_precision(),
            torch.backends.mkldnn.enabled,
        ),
        "torch's type": (torch.get_default_dtype(), torch.get_default_device()),
        "numpy's errors": (np.geterr(), np.geterrcall()),
        "numpy's printing": np.get_printoptions(),
        "threads of libraries": [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()],
        "filters of warnings": list(warnings.filters),
        "shown warnings": (warnings.showwarning, warnings._showwarnmsg_impl),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "loggers": (logging.getLogger().level, list(logging.getLogger().handlers), logging.root.manager.disable),
        "recursion": sys.getrecursionlimit(),
        "switches": sys.getswitchinterval(),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "hooks": (sys.excepthook, threading.excepthook, sys.displayhook, sys.stdout, sys.stderr),
    }


def differences(before):
    after = global_state()
    return [name for name in before if str(before[name]) != str(after[name])]


@pytest.fixture(scope="module")
def alone():
    """Results of the jobs, one after another, none of which changes anything global."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", manifoldrf.ManifoldWarning)
        JOBS["network"]()  # parts of torch that it loads at first use set variables and filters
        before = global_state()
        found = {name: job() for name, job in JOBS.items()}
        assert differences(before) == []
        return found


def at_once(names, n_threads):
    """Results of jobs that threads start at the same moment."""
    with ThreadPoolExecutor(n_threads, initializer=threading.Barrier(n_threads).wait) as pool:
        return list(pool.map(lambda name: JOBS[name](), names))


def test_fits_in_threads_have_the_bits_of_fits_one_after_another_and_change_nothing(alone):
    """A fit that ends later must not restore the state that an earlier fit had changed."""
    before, names = global_state(), list(JOBS)
    for name, found in zip(names, at_once(names, 6), strict=True):
        np.testing.assert_array_equal(found, alone[name], err_msg=name)
    assert differences(before) == []


def test_limits_that_overlap_are_taken_back_by_the_last():
    """The first block ends first. The second keeps the limit, then restores the state before both."""
    seen, value = [], {"now": 2}

    def change():
        value["now"] = 1
        return lambda: value.update(now=2)

    limit = SharedLimit(change)
    first, second = limit.held(), limit.held()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    seen.append(value["now"])
    second.__exit__(None, None, None)
    assert [*seen, value["now"]] == [1, 2]


def test_the_limit_holds_in_every_thread_whoever_came_first():
    """Newer releases of threadpoolctl limit only the calling thread, without an error in the others."""

    def limited():
        with one_blas_thread():
            return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with ThreadPoolExecutor(1) as pool:
        assert [limited(), pool.submit(limited).result(), limited()] == [{1}] * 3


@pytest.mark.parametrize("job", ["step", "network", "ridge"])
def test_random_numbers_filters_and_errors_are_untouched_while_a_fit_runs(alone, job):
    """Seen from another thread. Only the thread counts of libraries are 1 during a fit, as documented."""
    documented = {"torch's threads", "threads of libraries"}
    before, stop, seen = global_state(), threading.Event(), set()

    def watch():
        while not stop.is_set():
            seen.update(differences(before))
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        JOBS[job]()
    finally:
        stop.set()
        watcher.join()
    assert seen <= documented


def test_one_model_serves_eight_threads():
    """Including what is computed on first use: trees, blocks, bounds, and the error of the graph."""
    asked = {
        "transform": lambda model: model.transform(NEW),
        "kernel": lambda model: model.kernel_matrix(NEW),
        "kernel of two": lambda model: model.kernel_matrix(NEW, NODES),
        "error": lambda model: np.float64(float(model.error_)),
        "bound": lambda model: model.bound_,
        "distance": lambda model: model.distance_to_space(2 * NEW),
        "summary": lambda model: np.array(model.summary()),
        "matvec": lambda model: model.matvec(NEW, np.ones(len(NEW))),
    }
    for name in ("step", "mesh"):
        space = MESH if name == "mesh" else NODES
        fresh = features().fit(space)
        by_one = pickle.loads(pickle.dumps(fresh))
        expected = {what: ask(by_one) for what, ask in asked.items()}
        gate = threading.Barrier(8)

        def work(what, model=fresh, gate=gate):
            gate.wait()
            return asked[what](model)

        with ThreadPoolExecutor(8) as pool:
            for what, found in zip(asked, pool.map(work, asked), strict=True):
                np.testing.assert_array_equal(found, expected[what], err_msg=what)


def test_warnings_of_threads_reach_their_own_thread_alone():
    inside, outside = threading.Event(), threading.Event()
    told = []

    def silent():
        with without_warnings(UserWarning), without_warnings(Warning) as found:
            inside.set()
            outside.wait()
            warn_user("mine")
            told.extend(map(str, found))

    thread = threading.Thread(target=silent)
    thread.start()
    inside.wait()
    with pytest.warns(UserWarning, match="yours"):
        warn_user("yours")
    outside.set()
    thread.join()
    assert told == ["mine"]


def test_filters_for_other_libraries_never_overlap():
    before = list(warnings.filters)
    gate = threading.Barrier(4)

    def work(k):
        gate.wait()
        for _ in range(50):
            with filtered("ignore", f"text {k}", UserWarning):
                time.sleep(0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert warnings.filters == before


PACKAGE = Path(manifoldrf.__file__).parent


def test_work_inside_work_of_the_same_threads_ends():
    """As many tasks as threads, each of which starts tasks itself."""
    outer = lambda k: sum(quick_map(lambda j: 10 * k + j, range(3), 2))  # noqa: E731
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(quick_map, outer, range(4), 2).result(timeout=30) == [3, 33, 63, 93]


def threads():
    return {thread.name for thread in threading.enumerate()}


def test_an_error_in_a_task_leaves_no_thread_behind():
    before = threads()
    with pytest.raises(ZeroDivisionError), thread_pool(4) as pool:
        list(pool.map(lambda k: 1 // k, range(3)))
    assert threads() == before


def test_fits_do_not_gather_threads():
    JOBS["step"]()
    before = threads()
    for name in ("step", "network", "walks", "ridge"):
        JOBS[name]()
    assert {name for name in threads() - before if not name.startswith("pydev")} == set()


FITTED = {
    "step": lambda: features().fit(NODES),
    "mesh": lambda: features().fit(MESH),
    "network": lambda: features(STEPS, **NETWORK).fit(NODES),
    "ridge": lambda: ManifoldRidge(features(), n_jobs=2).fit(NODES, HEIGHT),
}


def used(model):
    return model.predict(NEW) if hasattr(model, "predict") else model.transform(NEW)


@pytest.mark.parametrize("name", FITTED)
def test_fitted_estimators_travel_by_pickle_used_or_not(name):
    model = FITTED[name]()
    fresh = pickle.loads(pickle.dumps(model))
    expected = used(model)
    state = pickle.dumps(model)  # without the trees that were built on first use, which skops could not write
    assert b"cKDTree" not in state
    again = pickle.loads(state)
    np.testing.assert_array_equal(used(fresh), expected)
    np.testing.assert_array_equal(used(again), expected)


# A program of its own, so that a child that hangs can be ended with all of its family.
PROGRAM = """
import logging, multiprocessing, random, signal, sys, threading, warnings
import numpy as np

def state():
    return logging.root.handlers[:], signal.getsignal(signal.SIGINT), random.getstate(), threading.enumerate()

before = state()
import manifoldrf
for public in manifoldrf.__all__:
    getattr(manifoldrf, public)
assert state() == before, "importing changes the process"
from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, ManifoldRidge, Network, Sphere
from manifoldrf.torch import linear_attention

NODES, NEW = Sphere().grid(200), Sphere().sample(60, seed=1)
NETWORK = {"field": Network(epochs=1, hidden=(8,), n_starts=60, device="cpu")}

def job(name):
    import torch
    warnings.simplefilter("ignore")
    if name == "attention":
        # Enough tokens for threads of torch; in groups of 256, so that sums are exact, whoever adds them.
        phi = torch.as_tensor(np.eye(64)[np.arange(2**14) % 64])
        values = torch.as_tensor(np.arange(2.0**16).reshape(2**14, 4)).requires_grad_()
        found = linear_attention(phi, phi, values)
        found.sum().backward()
        return np.concatenate([found.detach().numpy(), values.grad.numpy()])
    options = {"n_features": 64, "random_state": 0, "n_jobs": 2}
    if name == "network":
        return ManifoldRandomFeatures(DiffusionKernel(10.0), **NETWORK, **options).fit(NODES).transform(NEW)
    model = ManifoldRandomFeatures(HeatKernel(0.3), **options)
    if name == "ridge":
        return ManifoldRidge(model, n_jobs=2).fit(NODES, NODES[:, 2]).predict(NEW)
    rows = model.fit(NODES).transform(NEW)
    return model.kernel_matrix(NODES) if name == "kernel" else rows

def child(name, pipe):
    pipe.send(job(name))

def run(method, name):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(name, theirs), daemon=True)
    process.start()
    if not ours.poll(120):
        process.kill()
        sys.exit(f"{name} hangs in a child by {method}")
    found = ours.recv()
    process.join(30)
    return found

if __name__ == "__main__":
    method, names = sys.argv[1], sys.argv[2].split(",")
    here = {name: job(name) for name in names}  # pools of threads, compiled code and torch are there before
    for name in names:
        np.testing.assert_array_equal(run(method, name), here[name], err_msg=name)
    print("the same bits")
"""


def in_children(tmp_path, method, names):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    }
    process = subprocess.Popen(
        [sys.executable, str(path), method, names],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    assert (process.returncode, output.strip()) == (0, "the same bits"), errors[-2000:]


@pytest.mark.slow  # a new process that loads everything
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_copy_of_a_process_that_has_used_the_library_gives_the_same_bits(tmp_path):
    """After a fork the child has none of its parent's threads and must not wait for them.

    The same program sees that importing all public names starts no thread and sets no handler.

    Torch does, so attention holds it to one thread there; what others compute by it before is not ours to mend.
    """
    in_children(tmp_path, "fork", "step,network,kernel,ridge,attention")


@pytest.mark.slow
def test_new_processes_give_the_same_bits(tmp_path):
    in_children(tmp_path, "spawn", "step,network,kernel,ridge,attention")


@pytest.mark.slow
def test_many_fits_at_once_have_the_bits_of_fits_one_after_another_in_every_round(alone):
    for seed in range(5):
        names = list(np.random.default_rng(seed).permutation([*JOBS] * 3))
        before = global_state()
        for name, found in zip(names, at_once(names, 12), strict=True):
            np.testing.assert_array_equal(found, alone[name], err_msg=name)
        assert differences(before) == []


def test_models_are_saved_and_loaded_by_threads_at_once(tmp_path):
    """Each sees a whole file, whichever of the others wrote it last."""
    model, path = features().fit(NODES), tmp_path / "model.safetensors"
    expected = model.transform(NEW)
    model.save(path)

    def work(k):
        if k % 2:
            model.save(path)
        return load(path).transform(NEW)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(work, range(12)):
            np.testing.assert_array_equal(found, expected)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
