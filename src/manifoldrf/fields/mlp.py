"""The paper's network behind the interface of fields, until fits call :mod:`manifoldrf.paper.network` itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._random import SeedLike
from manifoldrf._validation import FloatArray
from manifoldrf.fields.data import AbstractField, FieldData, Problem
from manifoldrf.paper.network import Network, NetworkField, TrainingInfo, fit_network
from manifoldrf._runtime import Progress, silent


@stored
@dataclass(frozen=True, eq=False)
class MlpField(AbstractField):
    """A network that predicts signatures."""

    network: NetworkField
    raw: bool = True  # values are signatures, not divided by the roots of the measure

    @property
    def bounds(self) -> FloatArray:
        """Largest value of each column."""
        return self.network.bounds

    def values(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Dense values."""
        return self.network.values(queries, n_jobs)

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if a field of a file does not fit."""
        if self.network.distances.paths.shape != (problem.graph.n_nodes, n_anchors):
            raise ValueError("the network has other nodes or anchors")

    def at_anchors(self, columns: Any) -> "MlpField":
        """The same network at some of its anchors."""
        return MlpField(self.network.at_anchors(columns))


def fit_mlp(
    data: FieldData, options: Network, *, seed: SeedLike = None, progress: Progress = silent, n_jobs: int = 1
) -> tuple[MlpField, TrainingInfo]:
    """Train the paper's network on signatures."""
    roots = np.sqrt(data.measure)
    scaled = sparse.diags_array(roots[data.starts]) @ data.values @ sparse.diags_array(roots[data.anchors])
    parts = data.graph, data.starts, data.anchors, sparse.csr_array(scaled)
    field, info = fit_network(*parts, options, unit=data.unit, seed=seed, progress=progress, n_jobs=n_jobs)
    return MlpField(field), info
