"""Graph random features of all nodes of a graph, in no more time than the peer.

The graph joins the 8 nearest neighbours on the sphere, K = exp(-5 L). Features are rows of Phi with K ~ Phi Phi^T.
The error is that of 64 rows of Phi Phi^T against the exact rows, relative and in the Frobenius norm. Peers sample
the number of walks stated; ours takes as many walks as its own speed, measured on some nodes first, allows in half
the time of fast-graph-gp, and the row says what it took in fact. Polynomials without any walk are listed apart.
"""

import functools
import warnings
from random import Random

import numpy as np
import torch
from scipy import sparse

from benchmarks.peers.actions import poisson_sum
from benchmarks.peers.measure import Row, once, timed
from manifoldrf import Counts, DiffusionKernel, Exact, Sphere, Walks, compute_signatures, knn_graph, relative_error

JOB = "graph features"
TAU, N_ROWS = 5.0, 64
P_HALT = 0.1  # of the peers: walks of 10 steps on average, about twice as long as the series of exp(-2.5 L)
LENGTH = 25  # lengths that the peers keep: f_25 of exp(-5 L) is below 1e-15
SHARE = 0.5  # of the time of fast-graph-gp that our walks are to take: never more, however the machine wavers
TRIAL = 4  # share of the nodes, one in so many, on which our speed is measured
MOST_WALKS = 10**7
MORE = 16  # our walkers for each walk of a peer, where time is not to be equal
# Walks per node of fast-graph-gp and of the plain loop: about 20 s each.
SIZES = {"full": ((4000, 50, 50), (100_000, 2, 2)), "smoke": ((600, 10, 10),)}


class Problem:
    """A graph, its kernel, and some exact rows."""

    def __init__(self, n):
        self.graph = knn_graph(Sphere().grid(n))
        self.kernel = DiffusionKernel(TAU)
        self.nodes = np.sort(np.random.default_rng(0).choice(n, N_ROWS, replace=False))
        columns = np.zeros((n, N_ROWS))
        columns[self.nodes, np.arange(N_ROWS)] = 1.0
        self.exact = poisson_sum(self.graph.operator, columns, TAU).T

    def row(self, method, seconds, features, note=""):
        """A row from features of all nodes."""
        found = features[self.nodes] @ features.T
        found = found.toarray() if sparse.issparse(found) else found
        error = relative_error(found, self.exact)
        return Row(JOB, f"{self.graph.n_nodes:,} nodes", method, 0.0, seconds, error, note)


def fast_graph_gp(problem, n_walks):
    """The sampler of fast-graph-gp with the series of the kernel, on two processes."""
    from grf_gp import GRFSampler

    matrix = problem.graph.operator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its sparse tensors a prototype
        parts = [torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data)]
        tensor = torch.sparse_csr_tensor(parts[0].long(), parts[1].long(), parts[2], size=matrix.shape)
        sampler = GRFSampler(tensor, n_walks, P_HALT, LENGTH, seed=1, use_tqdm=False, n_processes=2)
        seconds, found = once(sampler)
    f = problem.kernel.modulation(LENGTH)
    features = sum(weight * as_csr(part.sparse_csr_tensor) for weight, part in zip(f, found, strict=True))
    return problem.row(f"fast-graph-gp, {n_walks} walks", seconds, features.tocsr())


def as_csr(tensor):
    """A sparse tensor of torch as one of scipy."""
    parts = (tensor.values(), tensor.col_indices(), tensor.crow_indices())
    return sparse.csr_array(tuple(part.numpy() for part in parts), shape=tuple(tensor.shape))


def algorithm_1(matrix, f, n_walks):
    """Algorithm 1 in plain Python: walks that halt with a fixed probability leave f_k times their load behind."""
    indptr, indices, data = (part.tolist() for part in (matrix.indptr, matrix.indices, matrix.data))
    random = Random(0).random
    rows, columns, values = [], [], []
    for start in range(matrix.shape[0]):
        seen = {}
        for _ in range(n_walks):
            node, load = start, 1.0
            for weight in f:
                seen[node] = seen.get(node, 0.0) + weight * load
                if random() < P_HALT:
                    break
                first = indptr[node]
                degree = indptr[node + 1] - first
                edge = first + int(degree * random())
                load *= degree * data[edge] / (1 - P_HALT)
                node = indices[edge]
        rows += [start] * len(seen)
        columns += seen.keys()
        values += seen.values()
    return sparse.csr_array((np.array(values) / n_walks, (rows, columns)), shape=matrix.shape)


def plain_python(problem, n_walks):
    """Algorithm 1 as it is written in the paper."""
    f = problem.kernel.modulation(LENGTH).tolist()
    seconds, features = once(functools.partial(algorithm_1, problem.graph.operator, f, n_walks))
    return problem.row(f"Algorithm 1 in plain Python, {n_walks} walks", seconds, features, "one core")


def sampled(problem, name, teacher, seconds):
    """Our walks, as many as take so long."""

    def compute(nodes=None, n_walks=8):
        own = teacher.with_params(n_walks=n_walks)
        return compute_signatures(problem.graph, problem.kernel, nodes, teacher=own, seed=0, n_jobs=-1)

    some = np.arange(0, problem.graph.n_nodes, TRIAL)
    compute(some[:8], n_walks=8)  # imports
    n_walks, taken = 8, 0.0
    while TRIAL * taken < SHARE * seconds / 4 and n_walks < MOST_WALKS:
        n_walks *= 2
        taken = once(functools.partial(compute, some, n_walks=n_walks))[0]
    n_walks = max(1, min(MOST_WALKS, int(n_walks * SHARE * seconds / (TRIAL * taken))))
    spent, found = once(functools.partial(compute, n_walks=n_walks))
    return problem.row(f"manifoldrf, {name}, {n_walks} walks", spent, sparse.csr_array(found.rows))


def few(problem, n_walks):
    """Our counted walkers, no more than a peer may afford."""
    compute = functools.partial(
        compute_signatures, problem.graph, problem.kernel, teacher=Counts(n_walks), n_jobs=-1
    )
    seconds, found = timed(functools.partial(compute, seed=0))
    return problem.row(f"manifoldrf, counts, {n_walks} walks", seconds, sparse.csr_array(found.rows))


def deterministic(problem, tol):
    """Our rows by polynomials, without walks."""
    compute = functools.partial(compute_signatures, problem.graph, problem.kernel, n_jobs=-1)
    compute(problem.nodes[:8], teacher=Exact(tol, "sparse"))  # imports
    seconds, found = once(functools.partial(compute, teacher=Exact(tol, "sparse")))
    return problem.row(f"manifoldrf, frontier to {tol:g}, no walks", seconds, found.rows)


def run(size):
    """Rows of all methods on all graphs."""
    for n, peer_walks, plain_walks in SIZES[size]:
        problem = Problem(n)
        peer = fast_graph_gp(problem, peer_walks)
        yield peer
        yield plain_python(problem, plain_walks)
        yield few(problem, MORE * peer_walks)
        yield sampled(problem, "walks", Walks(p_halt=P_HALT), peer.evaluation)
        yield sampled(problem, "counts", Counts(), peer.evaluation)
        for tol in (1e-3, 1e-6):
            yield deterministic(problem, tol)
