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
    FarQueryWarning,
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
    for name in ("rows", "nodes", "stderr"):
        assert_same_arrays(getattr(a, name), getattr(b, name))
    for name in ("teacher", "asymmetric", "n_steps", "error_bound"):
        assert getattr(a, name) == getattr(b, name)


# ----------------------------------------------------------------------------------------------------- signatures
TAUGHT = {
    "auto": {},
    "dense": {"teacher": Exact(form="dense")},
    "sparse": {"teacher": Exact(form="sparse")},
    "walks": {"teacher": Walks(96)},
    "one batch": {"teacher": Walks(40, n_batches=1)},
    "antithetic": {"teacher": Walks(64, coupling="antithetic", transitions="weighted")},
    "repelling": {"teacher": Walks(64, coupling="repelling")},
    "counts": {"teacher": Counts(300)},
}


QUICK = ("auto", "dense", "sparse", "walks", "counts")


@pytest.mark.parametrize("name", quick_ones(TAUGHT, *QUICK))
def test_signatures_are_those_of_one_machine(client, name):
    """Also if batches are no multiple of what one machine computes at once."""
    nodes = np.random.default_rng(0).permutation(GRAPH.n_nodes)[:130]
    here = compute_signatures(GRAPH, KERNEL, nodes, seed=5, **TAUGHT[name])
    for batch in ("auto", 45, *([3] if name == "dense" else [])):
        assert_same(Cluster(client, batch=batch).signatures(GRAPH, KERNEL, nodes, seed=5, **TAUGHT[name]), here)


def test_all_nodes_other_matrices_and_both_sides(client):
    cluster = Cluster(client)
    heat = HeatKernel(0.1)
    assert_same(cluster.signatures(GRAPH, heat), compute_signatures(GRAPH, heat))
    cosine = {"asymmetric": True, "teacher": Exact(form="sparse")}
    assert_same(
        cluster.signatures(GRAPH, CosineKernel(), **cosine), compute_signatures(GRAPH, CosineKernel(), **cosine)
    )


def test_generators_are_drawn_from_once(client):
    """A generator gives one key for all batches, and is left as one machine leaves it."""
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    asked = {"teacher": Counts(50)}
    there = Cluster(client, batch=64).signatures(GRAPH, KERNEL, seed=first, **asked)
    assert_same(there, compute_signatures(GRAPH, KERNEL, seed=second, **asked))
    assert first.integers(2**62) == second.integers(2**62)


def test_teachers_of_ones_own_see_batches(client):
    """A teacher of one's own has the whole graph, with its points."""

    def steps(graph, series, nodes):
        above = graph.points[:, 2] > 0.5
        return graph.operator[nodes] * (series.coefficients(1)[0] * above)

    asked = {"teacher": steps}
    assert_same(
        Cluster(client, batch=100).signatures(GRAPH, KERNEL, **asked), compute_signatures(GRAPH, KERNEL, **asked)
    )


@pytest.mark.parametrize(
    ("rows", "shape"),
    [(lambda nodes: 3.0, r"\(\)"), (lambda nodes: np.zeros((len(nodes), 599 + (0 in nodes))), r"\(1, 599\)")],
)
def test_rows_that_fit_no_graph_are_named_batch_by_batch(client, rows, shape):
    """Also those that could not be put together, as their widths differ."""
    with pytest.raises(ValueError, match=rf"rows of shape \(1, 600\)\. Got shape {shape}"):
        Cluster(client, batch=1).signatures(GRAPH, KERNEL, [0, 1], teacher=lambda graph, series, nodes: rows(nodes))


def test_progress_counts_start_nodes(client):
    seen = []
    asked = {"teacher": Counts(10)}
    Cluster(client, batch=40).signatures(
        GRAPH, KERNEL, range(100), progress=lambda *told: seen.append(told), **asked
    )
    first = [done for what, done, total in seen if (what, total) == ("signatures", 100)]
    assert sorted(first) == first
    assert first[-1] == 100
    assert len(first) == 3


@pytest.fixture
def scattered(monkeypatch):
    """What is sent to the workers."""
    sent = []
    scatter = _flow.Sent._scatter

    def counted(self):
        sent.append(self._value)
        return scatter(self)

    monkeypatch.setattr(_flow.Sent, "_scatter", counted)
    return sent


def held_by(client):
    """Number of different graphs and the like on the workers; how many copies there are is up to Dask."""
    gc.collect()  # errors that earlier tests provoked hold what they were about
    return len({key for keys in client.has_what().values() for key in keys if key.startswith("Held")})


def wait_until(claim):
    deadline = time.monotonic() + 30
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_graph_is_sent_once_and_taken_back(client, scattered):
    """It is kept for the next call, without its points, and goes when it is not used any more."""
    graph = knn_graph(Sphere().grid(400))
    cluster = Cluster(client, batch=16)
    for kernel in (KERNEL, DiffusionKernel(2.0)):
        cluster.signatures(graph, kernel, teacher=Exact(form="sparse"))
    assert len(scattered) == 1
    assert scattered[0].points is None
    wait_until(lambda: held_by(client) == 1)
    cluster.signatures(GRAPH, KERNEL, range(20))
    assert len(scattered) == 2
    cluster.signatures(graph, KERNEL, range(20))
    assert len(scattered) == 3
    wait_until(lambda: held_by(client) == 1)
    del graph
    gc.collect()
    wait_until(lambda: held_by(client) == 0)
    cluster.signatures(GRAPH, KERNEL, range(20))
    cluster.close()
    wait_until(lambda: not any(client.has_what().values()))


def test_tasks_do_not_carry_the_graph(client, monkeypatch):
    """What goes with a task is a few kilobytes, whatever the graph is."""
    sizes = []
    submit = client.submit

    def measured(function, shared, item, **options):
        sizes.append(len(pickle.dumps((function, item))))
        return submit(function, shared, item, **options)

    monkeypatch.setattr(client, "submit", measured)
    Cluster(client, batch=100).signatures(GRAPH, KERNEL, teacher=Counts(10))
    assert len(sizes) == 6
    assert max(sizes) < 10_000 < len(pickle.dumps(GRAPH.affinity)) / 5


@pytest.fixture
def under_way(monkeypatch):
    """How many tasks are under way after each that is given."""
    found = []
    submit = _flow.Flow._submit

    def counted(self, task):
        submit(self, task)
        found.append(len(self._pending))

    monkeypatch.setattr(_flow.Flow, "_submit", counted)
    return found


def test_no_more_than_a_window_is_under_way(client, under_way):
    Cluster(client, batch=10).signatures(GRAPH, KERNEL, teacher=Exact(form="sparse"))
    assert len(under_way) == 60
    assert max(under_way) == 4  # two for each of two threads


@pytest.mark.parametrize(
    ("teacher", "megabytes"),
    [
        ("exact", 64),
        pytest.param("exact", 0.2, marks=pytest.mark.slow),
        pytest.param("frontier", 64, marks=pytest.mark.slow),
        ("frontier", 0.2),
    ],
)
def test_batches_are_shares_of_the_threads_or_what_memory_allows(client, monkeypatch, teacher, megabytes):
    monkeypatch.setattr("manifoldrf.distributed.cluster._BATCH_BYTES", megabytes * 1e6)
    sizes = []
    submit = _flow.Flow._submit

    def measured(self, task):
        sizes.append(len(task.item))
        submit(self, task)

    monkeypatch.setattr(_flow.Flow, "_submit", measured)
    Cluster(client).signatures(GRAPH, KERNEL, teacher=Exact(form="dense" if teacher == "exact" else "sparse"))
    assert sum(sizes) == 600
    # A share of 600 nodes for 4 x 2 threads is 75, in whole blocks of 32 that are 64.
    assert max(sizes) == (64 if megabytes == 64 else 32)


@needs_counts
@pytest.mark.parametrize(
    "asked",
    [{"teacher": Exact(form="dense")}, {"teacher": Exact(form="sparse")}],
    ids=["dense rows", "sparse rows"],
)
@pytest.mark.slow
def test_memory_of_a_worker_is_that_of_the_graph_and_of_a_batch(lonely, asked):
    """However many start nodes there are: what the worker takes is a third of what all their rows take."""
    n_batches, batch = 30, 32
    graph, kernel = knn_graph(Sphere().grid(20_000)), DiffusionKernel(1.0)
    lonely.wait_for_workers(1, 60)
    cluster = Cluster(lonely, batch=batch)
    cluster.signatures(GRAPH, kernel, range(batch), **asked)  # modules and compiled code are there then
    (before,) = lonely.run(start_memory).values()
    found = cluster.signatures(graph, kernel, range(n_batches * batch), **asked)
    (peak,) = lonely.run(peak_memory).values()
    rows = found.rows
    size = rows.data.nbytes + rows.indices.nbytes if sparse.issparse(rows) else rows.nbytes  # of all rows
    # A graph as it is sent, as it arrives and as its teacher wants it. Of batches two are under way and one is on
    # its way back, and the polynomial holds four blocks of 32 columns; sparse rows double as they grow.
    allowed = 3 * size_of(graph) + 7 * size / n_batches
    assert peak - before < allowed < size / 2.5


def test_blocks_wait_for_their_turn_in_bounded_number(client, fitted, monkeypatch):
    """The first block takes longest: others are read only as long as there is room for what they become."""
    monkeypatch.setattr("manifoldrf.distributed.cluster._MOST_BLOCKS", 3)
    n_read, most = [], []

    def blocks():
        for begin in range(0, 230, 10):
            n_read.append(begin)
            yield NEW[begin : begin + 10]

    found = []
    for rows, told in transform_blocks(Cluster(client), fitted, blocks(), None):
        most.append(len(n_read) - len(found))
        found.append(rows)
        assert told == []
    assert max(most) <= 3
    np.testing.assert_array_equal(np.concatenate(found), fitted.transform(NEW))


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


@pytest.fixture(scope="module")
def lonely():
    with local(1) as made, distributed.Client(made, set_as_default=False) as found:
        yield found


@pytest.mark.slow
def test_the_only_worker_may_be_killed(lonely, scattered):
    """The graph is lost with it, and sent again to the one that takes its place."""
    asked = {"teacher": Counts(2000), "seed": 1}
    progress = kill_one_at_the_first_result(lonely)
    there = Cluster(lonely, batch=60).signatures(GRAPH, KERNEL, progress=progress, **asked)
    assert_same(there, compute_signatures(GRAPH, KERNEL, **asked))
    assert len(scattered) == 2


def test_tasks_that_kill_their_workers_end_with_a_reason(client, monkeypatch):
    def killed_task(*given, **options):
        raise distributed.KilledWorker("a-task", distributed.scheduler.WorkerState, 3)

    monkeypatch.setattr(distributed.Future, "result", killed_task)
    with pytest.raises(ConnectionError, match=r"^A task was lost 4 times, each time with its worker"):
        Cluster(client, batch=200).signatures(GRAPH, KERNEL)
    assert len(under_way) == 3
    assert len(scattered) == 1


def test_a_result_that_does_not_arrive_costs_no_second_graph(client, monkeypatch, scattered):
    result = distributed.Future.result
    n_asked = []

    def interrupted(self, *given):
        n_asked.append(1)
        if len(n_asked) == 1:
            raise distributed.comm.CommClosedError
        return result(self, *given)

    monkeypatch.setattr(distributed.Future, "result", interrupted)
    there = Cluster(client, batch=200).signatures(GRAPH, KERNEL)
    assert_same(there, compute_signatures(GRAPH, KERNEL))
    assert len(n_asked) == 4
    assert len(scattered) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_worker_that_gets_the_graph_may_be_killed(lonely, monkeypatch, moment):
    """While it is sent, or as soon as it is there; the one in its place gets it then."""
    lonely.wait_for_workers(1, 30)
    scatter = lonely.scatter
    processes = lonely.run(os.getpid)

    def kill(when):
        if when == moment and processes:
            os.kill(processes.popitem()[1], signal.SIGKILL)

    def deadly(*given, **options):
        kill("before")
        found = scatter(*given, **options)
        kill("after")
        return found

    monkeypatch.setattr(lonely, "scatter", deadly)
    assert_same(Cluster(lonely).signatures(GRAPH, KERNEL, seed=1), compute_signatures(GRAPH, KERNEL, seed=1))
    assert not processes


@pytest.mark.parametrize("error", [distributed.comm.CommClosedError, KeyError])
def test_graphs_that_no_worker_survives_end_with_a_reason(client, monkeypatch, error):
    """The scheduler loses the connection to a worker, or no longer knows its address."""
    n_sent = []

    def dies(*given, broadcast=False, **options):
        assert not broadcast  # one would wait for the dead for ever
        n_sent.append(1)
        raise error("tcp://127.0.0.1:1")

    monkeypatch.setattr(client, "scatter", dies)
    monkeypatch.setattr(_flow, "_PAUSE", 0)
    with pytest.raises(ConnectionError, match=r"^The shared object was lost 5 times.*too little memory"):
        Cluster(client).signatures(GRAPH, KERNEL)
    assert len(n_sent) == 5


NO_SCHEDULER = r"^The connection to the scheduler of the cluster was lost\.$"


@pytest.mark.parametrize("error", [distributed.comm.CommClosedError, OSError])
def test_a_scheduler_that_goes_away_is_named(client, monkeypatch, error):
    """Also where what is dropped cannot be told to it."""
    seen = []
    ask = client.nthreads

    def gone():
        seen.append(1)
        if len(seen) > 3:
            raise error
        return ask()

    def closed(*given, **options):
        raise distributed.client.ClosedClientError

    monkeypatch.setattr(client, "nthreads", gone)
    monkeypatch.setattr(client, "cancel", closed)
    with pytest.raises(ConnectionError, match=NO_SCHEDULER):
        Cluster(client, batch=20).signatures(GRAPH, KERNEL, teacher=Exact(form="sparse"))
    assert len(seen) == 4


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
                with pytest.raises(ConnectionError, match=NO_SCHEDULER):
                    cluster.signatures(GRAPH, KERNEL, teacher=Counts(), progress=lambda *told: process.kill())
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

    with pytest.raises(KeyboardInterrupt):
        Cluster(client, batch=10).signatures(GRAPH, KERNEL, teacher=Counts(), progress=interrupted)
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
    "signatures": ["points.npy", "-o", "OUT.npz", "--tau", "5", "--teacher", "counts", "--nodes", "0,7,9"],
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


def test_wrong_arguments_are_named(client, fitted, tmp_path):
    for wrong in (3, None, object()):
        with pytest.raises(TypeError, match="`client` must be a Client or a cluster of dask"):
            Cluster(wrong)
    with pytest.raises(ValueError, match="`batch` must be one of 'auto'"):
        Cluster(client, batch="all")
    with pytest.raises(ValueError, match="`batch` must be"):
        Cluster(client, batch=0)
    cluster = Cluster(client)
    with pytest.raises(TypeError, match="`features` must be ManifoldRandomFeatures or GraphRandomFeatures"):
        cluster.fit(KERNEL, POINTS)
    with pytest.raises(TypeError, match="`X` must be a dask array of shape"):
        cluster.transform(fitted, NEW)
    with pytest.raises(ValueError, match="`X` must be in blocks of rows only"):
        cluster.transform(fitted, arrays.from_array(NEW, chunks=(50, 2)))
    with pytest.raises(ValueError, match="`X` must be an array of 3 columns"):
        cluster.transform(fitted, arrays.ones((4, 2)))
    lazy = arrays.ones((4, 3))
    with pytest.raises(ValueError, match="`side` must be one of 'left', 'right'"):
        cluster.transform(fitted, lazy, "up")
    with pytest.raises(ValueError, match="`side` must be left out with GraphRandomFeatures"):
        cluster.transform(GraphRandomFeatures(KERNEL).fit(GRAPH), lazy[:, :1], "left")
    with pytest.raises(ValueError, match="`side` must be one of 'left', 'right'"):
        cluster.transform_files(fitted, [], tmp_path, side="up")
    with pytest.raises(TypeError, match="`files` must be a string or a path"):
        cluster.transform_files(fitted, 5, tmp_path)
    with pytest.raises(ValueError, match="`teacher` must be"):
        cluster.signatures(GRAPH, KERNEL, teacher="walks")
    with pytest.raises(ValueError, match="no nonnegative modulation"):
        cluster.signatures(GRAPH, CosineKernel())
    with pytest.raises(FileNotFoundError, match="`files` must be an existing file"):
        cluster.transform_files(fitted, [tmp_path / "none.npy"], tmp_path)
    np.save(tmp_path / "a.npy", NEW)
    with pytest.raises(ValueError, match="`files` must be files with different names"):
        cluster.transform_files(fitted, [tmp_path / "a.npy"], tmp_path)
    np.savetxt(tmp_path / "c.csv", NEW, delimiter=",")
    np.savez(tmp_path / "c.npz", points=NEW)
    for name in ("c.csv", "c.npz"):
        with pytest.raises(ValueError, match=f"`files` must be npy files. Got '{name}'"):
            cluster.transform_files(fitted, [tmp_path / name], tmp_path / "out")
    np.save(tmp_path / "b.npy", NEW[:, :2])
    with pytest.raises(ValueError, match="`files` must be arrays of 3 columns"):
        cluster.transform_files(fitted, [tmp_path / "b.npy"], tmp_path / "out")


@pytest.mark.slow
def test_a_killed_worker_costs_only_time(client):
    asked = {"teacher": Counts(2000), "seed": 1}
    seen = []
    kill = kill_one_at_the_first_result(client)

    def progress(*told):
        seen.append(told)
        kill(*told)

    there = Cluster(client, batch=20).signatures(GRAPH, KERNEL, progress=progress, **asked)
    assert_same(there, compute_signatures(GRAPH, KERNEL, **asked))
    assert [done for _, done, _ in seen] == list(range(20, 601, 20))  # nothing is counted twice
    client.wait_for_workers(2, 30)
