"""Whether the teachers are as fast as they could be.

Times are CPU seconds of one thread, the least of several runs in turn:

1. the random-walk engine against the same loop in C (gcc -O3 -march=native): at least .9 of its speed;
2. error of counted walkers over that of Algorithm 1 at equal steps, sphere and Moebius graphs: at most 1/15;
3. the exact teacher at 1e-7 for 1000 starts against ``expm_multiply`` of scipy (at least 4 times as fast) and a
   dense eigendecomposition (30), and ``kernel.apply`` at 1e-6 for 3 columns of 50,000 nodes (5);
4. counts and exact rows of 1000 starts on a torus of a million nodes: at most 60 s, and 1.5 times those of 100,000.

An argument selects rows; ``--quick`` takes a torus of 10,000 instead of a million nodes.
"""

import ctypes
import functools
import pathlib
import subprocess
import tempfile

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import expm_multiply
from scipy.special import gammaln
from table import Row, best_of, run_cases, timed

from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    MobiusStrip,
    Sphere,
    Walks,
    compute_signatures,
    grid_graph,
    knn_graph,
    relative_error,
)
from manifoldrf._native import loops
from manifoldrf.signatures import Law, pack_table, run_walks

N_NODES, TAU = 4000, 20.0
KERNEL = DiffusionKernel(TAU)


def walks(_):
    """The engine against the C loop, after a check that both do the same work."""
    n_lengths, n_walks, n_batches, key = 400, 5000, 10, np.array([1, 2], np.uint32)
    matrix, starts = knn_graph(Sphere().grid(N_NODES)).operator.tocsr(), np.arange(0, N_NODES, 20)
    table = pack_table(matrix.indptr, matrix.indices, matrix.data)
    k, go_on = np.arange(n_lengths), np.full(n_lengths, int(0.99 * 2**32), np.uint64)  # geometric halting
    go_on[-1] = 0
    survival = np.cumprod(np.append(1.0, go_on[:-1] / 2**32))
    law = Law(np.exp(k * np.log(TAU / 2) - TAU / 2 - gammaln(k + 1)) / survival, go_on)
    streams = np.zeros((len(starts), 2, 2), np.uint64)
    for stream, start in zip(streams, starts.tolist(), strict=True):
        for lane in (0, 1):
            loops.stream_words(start, lane, key, stream[lane])
    room = len(starts) * N_NODES
    counts, slots = np.zeros(len(starts), np.int64), np.zeros(room, np.int64)
    sums, variances = np.zeros(room), np.zeros(room)
    given = [table.edges, table.rows, table.mask, N_NODES, starts, streams, len(starts), law.deposit, law.go_on]
    given += [n_lengths, n_walks, n_batches, 0, room, counts, slots, sums, variances]
    given = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else ctypes.c_int64(int(x)) for x in given]
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "walk_loop.so"
        source = pathlib.Path(__file__).with_name("walk_loop.c")
        flags = ["-O3", "-march=native", "-shared", "-fPIC", "-lm"]
        subprocess.run(["gcc", source, *flags, "-o", library], check=True)
        rival = ctypes.CDLL(library).walk_loop

    def engine():
        return run_walks(table, law, n_walks, n_batches, key, "iid", starts)

    ours, _ = engine(), rival(*given)
    for mine, other in zip(ours[:4], (counts, slots, sums, variances), strict=True):
        np.testing.assert_allclose(mine, other[: len(mine)], rtol=1e-9, atol=1e-15)
    theirs, seconds = best_of([lambda: rival(*given), engine], 7)
    yield Row(f"walk engine / C loop ({ours[4] / seconds / 1e6:.0f} M steps/s)", theirs / seconds, ">=", 0.9)


def counted(_):
    """Error of counts over that of Algorithm 1 at about 1e6 steps per start."""
    for surface, n_neighbors in ((Sphere(), 8), (MobiusStrip(), 24)):
        graph, nodes = knn_graph(surface.grid(N_NODES), n_neighbors=n_neighbors), np.arange(0, N_NODES, 40)
        exact = compute_signatures(graph, KERNEL, nodes, teacher="exact").rows
        found = [compute_signatures(graph, KERNEL, nodes, teacher=t, seed=0) for t in (Counts(76_000), Walks())]
        counts, walked = (relative_error(np.asarray(part.rows.todense()), exact) for part in found)
        name = type(surface).__name__
        yield Row(f"{name}: steps of counts / Algorithm 1", found[0].n_steps / found[1].n_steps, "<=", 1)
        yield Row(f"{name}: error of counts / Algorithm 1 ({walked:.3f})", counts / walked, "<=", 1 / 15)


def exact(_):
    """Exact rows against other ways to compute them, with a check of their accuracy."""
    graph, nodes = knn_graph(Sphere().grid(N_NODES)), np.arange(0, N_NODES, 4)
    half = TAU / 2 * (graph.operator - sparse.eye_array(N_NODES))
    indicators, options = np.eye(N_NODES)[:, nodes], {"teacher": Exact(1e-7, "dense"), "n_jobs": 1}

    def ours():
        return compute_signatures(graph, KERNEL, nodes, **options).rows

    def theirs():
        return expm_multiply(half, indicators, traceA=-TAU / 2 * N_NODES).T

    yield Row("exact teacher: largest error", np.linalg.norm(ours() - theirs(), axis=1).max(), "<=", 1e-7)
    seconds, rival = best_of([ours, theirs])
    yield Row(f"expm_multiply / exact teacher, 1000 starts ({seconds:.2f} s)", rival / seconds, ">=", 4)
    dense = graph.operator.toarray()
    yield Row("dense eigendecomposition / it", timed(lambda: linalg.eigh(dense))[0] / seconds, ">=", 30)


def apply(_):
    """Kernel.apply against expm_multiply, with a check of its accuracy."""
    graph = knn_graph(Sphere().grid(50_000))
    columns = np.random.default_rng(0).normal(size=(graph.n_nodes, 3))
    generator = TAU * (graph.operator - sparse.eye_array(graph.n_nodes))

    def ours():
        return KERNEL.apply(graph, columns, tol=1e-6)

    def theirs():
        return expm_multiply(generator, columns, traceA=-TAU * graph.n_nodes)

    worst = (np.linalg.norm(ours() - theirs(), axis=0) / np.linalg.norm(columns, axis=0)).max()
    yield Row("kernel.apply: largest error over the size of the column", worst, "<=", 1e-6)
    seconds, rival = best_of([ours, theirs])
    yield Row(f"expm_multiply / kernel.apply, 50,000 nodes ({seconds:.3f} s)", rival / seconds, ">=", 5)


def torus(side):
    """1000 starts on tori of two sizes."""
    for name, teacher in {"counts": Counts(), "exact": Exact(form="sparse")}.items():
        runs = []
        for graph in (grid_graph(316, 2), grid_graph(side, 2)):
            nodes = np.random.default_rng(0).choice(graph.n_nodes, 1000, replace=False)
            options = {"teacher": teacher, "seed": 0, "n_jobs": 1}
            runs.append(functools.partial(compute_signatures, graph, KERNEL, nodes, **options))
        few, many = best_of(runs)
        yield Row(f"{name}: seconds, torus of {side**2} nodes", many, "<=", 60)
        yield Row(f"{name}: seconds / those of 100,000 nodes", many / few, "<=", 1.5)


if __name__ == "__main__":
    cases = {"walks": walks, "counts": counted, "exact": exact, "apply": apply, "torus": torus}
    run_cases(__doc__, cases, 1000, 100)
