"""Cost of a signature: error against steps and time, for every teacher on the paper's graphs.

Claim: at a million steps per start, tau = 20, counted walkers are at least 15 times more accurate than Algorithm 1
of the paper (on the sphere about .0016 against .07), and the exact teacher costs less than either.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf import Counts, DiffusionKernel, Exact, Graph, Walks, compute_signatures, knn_graph, relative_error
from reproduction.common import FloatArray, Progress, silent
from reproduction.record import Parts, Record, Row
from reproduction.surface_graphs import SURFACES

# The number of walks follows from the budget of steps.
ESTIMATORS: dict[str, Walks | Counts] = {
    "Algorithm 1": Walks(),
    "antithetic": Walks(coupling="antithetic"),
    "repelling": Walks(coupling="repelling"),
    "cut where f is negligible": Walks(truncate=True),
    "weighted steps": Walks(truncate=True, transitions="weighted"),
    "weighted, matched survival": Walks(transitions="weighted", survival="matched"),
    "counts": Counts(),
}
EXACT = {"frontier": Exact(1e-8, "sparse"), "exact": Exact(1e-10, "dense")}


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    n_nodes: int = 4000  # the paper's
    tau: float = 20.0  # the paper's
    surfaces: tuple[str, ...] = ("sphere", "mobius")
    n_starts: int = 32  # rows over which errors are taken
    budgets: tuple[float, ...] = (1e4, 1e5, 1e6)  # steps per start; the paper's walks take about 1e6
    seed: int = 0


SIZES = {"smoke": Config(n_nodes=1000, n_starts=16, budgets=(1e4, 1e5)), "paper": Config()}


def run(config: Config, progress: Progress = silent, data: Path | None = None, parts: Path | None = None) -> Record:
    """Run every estimator at every budget; the table ``teachers`` has the largest budget, ``budgets`` has all."""
    del data
    kept = Parts(parts, __name__).get("teachers", dataclasses.asdict(config), lambda: _measure(config, progress))
    return dataclasses.replace(kept, config=dataclasses.asdict(config))


def _measure(config: Config, progress: Progress) -> tuple[dict[str, list[Row]], dict[str, Any]]:
    kernel = DiffusionKernel(config.tau)
    rows: list[dict[str, Any]] = []
    total = len(config.surfaces) * (len(ESTIMATORS) * len(config.budgets) + len(EXACT))
    for surface in config.surfaces:
        manifold, n_neighbors = SURFACES[surface]
        graph = knn_graph(manifold.grid(config.n_nodes), n_neighbors=n_neighbors)
        nodes = np.arange(0, graph.n_nodes, max(1, graph.n_nodes // config.n_starts))
        exact = compute_signatures(graph, kernel, nodes, teacher=Exact(1e-14, "dense")).rows
        teach = _Teach(graph, kernel, nodes, exact, config.seed)
        for name, exact_teacher in EXACT.items():
            progress(f"{name} rows of the {surface}", len(rows), total)
            rows.append({"surface": surface, "estimator": name, "budget": 0.0} | teach(exact_teacher, None))
        for name, teacher in ESTIMATORS.items():
            for budget in config.budgets:
                progress(f"{name} on the {surface}", len(rows), total)
                rows.append({"surface": surface, "estimator": name, "budget": budget} | teach(teacher, budget))
    progress("done", total, total)
    largest = [row for row in rows if row["budget"] in (0.0, max(config.budgets))]
    tables = {"teachers": largest, "budgets": [row for row in rows if row["budget"] > 0]}
    return tables, {}


@dataclass(frozen=True)
class _Teach:
    """Measures one teacher on one graph."""

    graph: Graph
    kernel: DiffusionKernel
    nodes: Any
    exact: FloatArray
    seed: int

    def __call__(self, teacher: Exact | Walks | Counts, budget: float | None) -> dict[str, Any]:
        """Error against the exact rows, steps, and milliseconds per start on one core, after a first call."""
        trial = self._compute(teacher.with_params(n_walks=200) if budget else teacher)
        if budget:
            per_walk = max(trial.n_steps / len(self.nodes) / 200, 1e-9)
            teacher = teacher.with_params(n_walks=max(2, round(budget / per_walk)))
        found = self._compute(teacher)
        rows = found.rows.toarray() if sparse.issparse(found.rows) else found.rows
        return {
            "steps": found.n_steps / len(self.nodes),
            "error": relative_error(rows, self.exact),
            "predicted": found.relative_stderr,
            "ms_per_start": 1e3 * found.seconds / len(self.nodes),
        }

    def _compute(self, teacher: Exact | Walks | Counts) -> Any:
        return compute_signatures(self.graph, self.kernel, self.nodes, teacher=teacher, seed=self.seed)
