"""A cluster gives the bits of one machine, and a killed worker changes no entry."""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from command_line import invoke, words
from marks import quick_ones
from scipy import sparse

from manifoldrf import (
    Cluster,
    CosineKernel,
    Counts,
    DiffusionKernel,
    Exact,
    GraphRandomFeatures,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    Walks,
    compute_signatures,
    knn_graph,
)

distributed = pytest.importorskip("distributed")
arrays = pytest.importorskip("dask.array")

GRAPH = knn_graph(Sphere().grid(600))
KERNEL = DiffusionKernel(6.0)
POINTS = Sphere().sample(500, seed=3)
NEW = Sphere().sample(230, seed=4)
LOST = "^The connection to the scheduler of the cluster was lost"

# A worker that is killed closes its connections in the middle of a message.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def local(n_workers, **settings):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50, **settings
    )


@pytest.fixture(scope="module")
def client():
    with local(2) as made, distributed.Client(made) as found:
        yield found


@pytest.fixture(scope="module")
def fitted():
    return ManifoldRandomFeatures(HeatKernel(0.3), n_features=60, random_state=0).fit(POINTS)


def wait_until(holds):
    for _ in range(100):
        if holds():
            return
        time.sleep(0.1)
    pytest.fail("waited for too long")


def assert_same_arrays(a, b):
    assert type(a) is type(b)
    names = ("data", "indices", "indptr") if sparse.issparse(a) else ()
    for first, second in [(getattr(a, n), getattr(b, n)) for n in names] or [(a, b)]:
        np.testing.assert_array_equal(first, second, strict=True)


def assert_same(a, b):
    """Two sets of signatures, bit for bit; the time they took is not compared."""
    assert_same_arrays(a.rows, b.rows)
    assert_same_arrays(a.stderr, b.stderr)
    np.testing.assert_array_equal(a.nodes, b.nodes)
    for name in ("teacher", "asymmetric", "n_steps", "error_bound"):
        assert getattr(a, name) == getattr(b, name)


# ----------------------------------------------------------------------------------------------------- signatures
TAUGHT = {
    "auto": {},
    "exact": {"teacher": Exact(form="dense")},
    "sparse": {"teacher": Exact(form="sparse")},
    "walks": {"teacher": Walks(96)},
    "counts": {"teacher": Counts(300)},
}


@pytest.mark.parametrize("name", TAUGHT)
def test_signatures_are_those_of_one_machine(client, name):
    """Also if batches are no multiple of what one machine computes at once."""
    nodes = np.random.default_rng(0).permutation(GRAPH.n_nodes)[:130]
    here = compute_signatures(GRAPH, KERNEL, nodes, seed=5, **TAUGHT[name])
    for batch in ("auto", 45):
        assert_same(Cluster(client, batch=batch).signatures(GRAPH, KERNEL, nodes, seed=5, **TAUGHT[name]), here)


def test_generators_are_drawn_from_once(client):
    """A generator gives one key for all batches, and is left as one machine leaves it."""
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    asked = {"teacher": Counts(50)}
    there = Cluster(client, batch=64).signatures(GRAPH, KERNEL, seed=first, **asked)
    assert_same(there, compute_signatures(GRAPH, KERNEL, seed=second, **asked))
    assert first.integers(2**62) == second.integers(2**62)


def test_teachers_of_ones_own_have_the_whole_graph(client):
    def steps(graph, series, nodes):
        return graph.operator[nodes] * (graph.points[nodes, 2] > 0.5)[:, None]

    there = Cluster(client, batch=45).signatures(GRAPH, KERNEL, range(100), teacher=steps)
    assert_same(there, compute_signatures(GRAPH, KERNEL, range(100), teacher=steps))


def test_the_graph_is_sent_once_and_taken_back(client, monkeypatch):
    sent, send = [], Cluster._send
    monkeypatch.setattr(Cluster, "_send", lambda self, value: sent.append(value) or send(self, value))
    cluster = Cluster(client)
    for kernel in (KERNEL, DiffusionKernel(2.0)):
        cluster.signatures(GRAPH, kernel, range(40), teacher=Exact(form="sparse"))
    assert len(sent) == 1
    cluster.close()
    gc.collect()
    wait_until(lambda: not any(client.has_what().values()))
    assert client.status == "running"  # it was given


def test_progress_counts_start_nodes(client):
    seen = []
    told = {"progress": lambda *parts: seen.append(parts), "teacher": Counts(50)}
    Cluster(client, batch=50).signatures(GRAPH, KERNEL, range(120), **told)
    assert [done for _, done, total in seen] == [50, 100, 120]


# --------------------------------------------------------------------------------------------------------- failures
def kill_one_at_the_first_result(client):
    """A function for progress that kills a worker once."""
    processes = client.run(os.getpid)

    def progress(what, done, total):
        if processes:
            os.kill(processes.popitem()[1], signal.SIGKILL)
            processes.clear()
            time.sleep(0.2)  # so that its death is known before the rest is done

    return progress


@pytest.mark.parametrize("n_workers", quick_ones([1, 2], 1))
def test_a_killed_worker_changes_no_entry(n_workers, fitted):
    """If it was the only one, the graph is lost with it, and sent again to the one that takes its place."""
    asked = {"teacher": Counts(2000), "seed": 1}
    with local(n_workers) as made, distributed.Client(made, set_as_default=False) as found:
        cluster = Cluster(found, batch=60)
        there = cluster.signatures(GRAPH, KERNEL, progress=kill_one_at_the_first_result(found), **asked)
        assert_same(there, compute_signatures(GRAPH, KERNEL, **asked))
        lazy = cluster.transform(fitted, arrays.from_array(NEW, chunks=(40, 3)))
        assert_same_arrays(found.compute(lazy[:40]).result(), fitted.transform(NEW[:40]))
        found.wait_for_workers(n_workers, 30)
        os.kill(next(iter(found.run(os.getpid).values())), signal.SIGKILL)
        assert_same_arrays(found.compute(lazy).result(), fitted.transform(NEW))


def test_tasks_that_kill_their_workers_end_with_a_reason(client, monkeypatch):
    def killed_task(*given, **options):
        raise distributed.KilledWorker("a-task", distributed.scheduler.WorkerState, 3)

    monkeypatch.setattr(distributed.Future, "result", killed_task)
    with pytest.raises(ConnectionError, match=r"too little memory .* Remedies: a smaller `batch`"):
        Cluster(client).signatures(GRAPH, KERNEL, range(10))


SERVED = """
import asyncio, distributed

async def serve():
    async with distributed.Scheduler(port=0, dashboard_address=":0") as scheduler:
        async with distributed.Worker(scheduler.address, nthreads=1):
            print(scheduler.address, flush=True)
            await asyncio.sleep(120)

asyncio.run(serve())
"""


@pytest.mark.slow
def test_a_scheduler_that_is_killed_is_named():
    """A process of its own, as on a cluster."""
    served = [sys.executable, "-c", SERVED]
    with subprocess.Popen(served, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            with distributed.Client(address, timeout=2, set_as_default=False) as found:
                cluster = Cluster(found, batch=10)
                with pytest.raises(ConnectionError, match=LOST):
                    cluster.signatures(
                        GRAPH, KERNEL, teacher=Exact(form="sparse"), progress=lambda *told: process.kill()
                    )
        finally:
            process.kill()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_errors_and_interrupts_reach_the_caller_and_drop_the_rest(client, error):
    def fails(graph, series, nodes):
        if 0 in nodes and error is ZeroDivisionError:
            raise ZeroDivisionError("by a task")
        time.sleep(0.1)
        return graph.operator[nodes]

    def progress(*told):
        raise KeyboardInterrupt

    with pytest.raises(error):
        Cluster(client, batch=10).signatures(GRAPH, KERNEL, teacher=fails, progress=progress)
    wait_until(lambda: not any(client.processing().values()))
    there = Cluster(client).signatures(GRAPH, KERNEL, [3])
    assert_same(there, compute_signatures(GRAPH, KERNEL, [3]))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://127.0.0.1:1", "^No connection to a scheduler at 'tcp://127.0.0.1:1'"),
        ("tls://127.0.0.1:1", "^No connection .* `distributed.comm.tls`"),
        ("nonsense://a", "^`client` must be .*unknown address scheme 'nonsense'"),
    ],
)
def test_clients_that_reach_no_scheduler_leave_nothing(address, reason):
    """Neither threads nor a client that Dask would ask from then on."""
    before, asked = set(threading.enumerate()), distributed.client._get_global_client()
    with pytest.raises((ConnectionError, ValueError), match=reason):
        Cluster(address)
    for new in set(threading.enumerate()) - before:
        new.join(30)
        assert not new.is_alive()
    assert distributed.client._get_global_client() is asked


# ------------------------------------------------------------------------------------------------ fits and features
FITS = {
    "exact": {"kernel": DiffusionKernel(20.0), "teacher": "exact", "field": "interpolated", "n_features": 40},
    "chosen": {"kernel": HeatKernel(0.3)},
}


@pytest.mark.parametrize("name", quick_ones(FITS, "exact"))
def test_fits_are_those_of_one_machine(client, tmp_path, name):
    here, there = (ManifoldRandomFeatures(random_state=3, **FITS[name]) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # features of a test are few
        here.fit(POINTS).save(tmp_path / "here")
        assert Cluster(client).fit(there, POINTS) is there
        there.save(tmp_path / "there")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_features_of_graphs_fit_as_ever(client):
    features = GraphRandomFeatures(KERNEL, teacher=Counts(50), random_state=0)
    here = features.fit(GRAPH).transform(range(30))
    blocks = arrays.from_array(np.arange(30)[:, None], chunks=(11, 1))
    there = Cluster(client).transform(Cluster(client).fit(features, GRAPH), blocks).compute()
    assert_same_arrays(sparse.csr_array(there), here)


def test_blocks_of_arrays_have_the_bits_of_the_whole(client, fitted):
    cluster = Cluster(client)
    for points, rows in ((NEW, 7), (NEW, 230), (NEW.astype(np.float32), 100)):
        lazy = cluster.transform(fitted, arrays.from_array(points, chunks=(rows, 3)))
        assert (lazy.shape, lazy.dtype) == ((230, 60), points.dtype)
        assert_same_arrays(lazy.compute(), fitted.transform(points))
    csr = pickle.loads(pickle.dumps(fitted)).set_params(sparse_output=True)
    lazy = cluster.transform(csr, arrays.from_array(NEW, chunks=(100, 3)))
    assert sparse.issparse(lazy._meta)
    assert_same_arrays(sparse.csr_array(lazy.compute()), csr.transform(NEW))


def test_features_are_sent_once_for_all_blocks(client, fitted):
    """What is sent with forty blocks is small next to the features: they have gone before, and once."""
    lazy = Cluster(client).transform(fitted, arrays.ones((200, 3), chunks=(5, 3)))
    size = len(distributed.protocol.pickle.dumps(dict(lazy.__dask_graph__())))
    assert size < len(pickle.dumps(fitted)) / 5
    lazy.compute()
    del lazy
    gc.collect()
    wait_until(lambda: not any(client.has_what().values()))


def test_empty_blocks_have_no_features(client, fitted):
    lazy = arrays.from_array(NEW, chunks=(115, 3))
    chosen = lazy[lazy[:, 0] > np.sort(NEW[:, 0])[-2]]  # blocks of unknown size, some of them empty
    assert Cluster(client).transform(fitted, chosen).compute().shape == (1, 60)


# -------------------------------------------------------------------------------------------------------- arguments
COMMANDS = {
    "fit": ["points.npy", "-o", "OUT.safetensors", "--t", "0.3", "--n-features", "60"],
    "transform": ["model.safetensors", "new.npy", "-o", "OUT.npy", "--chunk-size", "50"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_write_the_bytes_of_one_machine(client, fitted, name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fitted.save("model.safetensors")
    np.save("points.npy", POINTS)
    np.save("new.npy", np.concatenate([NEW, [[9.0, 9, 9]]]))
    files = []
    for place, extra in {"here": [], "there": ["--scheduler", client.scheduler.address]}.items():
        arguments = [argument.replace("OUT", place) for argument in COMMANDS[name]]
        done = invoke(name, *arguments, *extra)
        assert done.exit_code == 0, done.output
        files.append((tmp_path / next(word for word in arguments if word.startswith(place))).read_bytes())
        assert ("1 of 231 points are away" in words(done.output)) == (name == "transform")
    assert files[0] == files[1]


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install 'manifoldrf[dask]'")):
        Cluster("tcp://127.0.0.1:1")


def test_wrong_arguments_are_named(client, fitted):
    cluster, lazy = Cluster(client), arrays.ones((4, 3))
    graph_features = GraphRandomFeatures(KERNEL).fit(GRAPH)
    with local(0, processes=False) as closed:
        pass
    wrong = {
        "`client` must be": [lambda: Cluster(3), lambda: Cluster(None)],
        "No connection": [lambda: Cluster(closed)],
        "`batch` must be": [lambda: Cluster(client, batch="all"), lambda: Cluster(client, batch=0)],
        "`features` must be": [lambda: cluster.fit(KERNEL, POINTS), lambda: cluster.transform(KERNEL, lazy)],
        "`X` must be a dask array": [lambda: cluster.transform(fitted, NEW)],
        "`X` must be in blocks of rows": [
            lambda: cluster.transform(fitted, arrays.from_array(NEW, chunks=(50, 2)))
        ],
        "`X` must be an array of 3 columns": [lambda: cluster.transform(fitted, arrays.ones((4, 2)))],
        "`side` must be": [
            lambda: cluster.transform(fitted, lazy, "up"),
            lambda: cluster.transform(graph_features, lazy[:, :1], "left"),
        ],
        "`n_jobs` must be": [lambda: cluster.signatures(GRAPH, KERNEL, n_jobs=0)],
        "no nonnegative modulation": [lambda: cluster.signatures(GRAPH, CosineKernel())],
    }
    for rule, calls in wrong.items():
        for call in calls:
            with pytest.raises((ValueError, TypeError, ConnectionError), match=rule):
                call()
