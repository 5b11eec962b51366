"""Training pairs of a field: which (start, anchor) are shown to the network, and what is held out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from manifoldrf._random import Streams
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.fields._network import TOP, Floats, Frame
from manifoldrf.fields.abstract_field import FieldData
from manifoldrf.fields.geodesics import GraphDistances

# The paper's: all pairs from this value on, in its unit, and a share of the smaller ones, zeros included.
SMALL = 0.1
SMALL_SHARE = 0.025
_HELD_OUT = 0.2  # share of the starts
_STARTS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs with their targets.

    Attributes
    ----------
    rows, columns : int array of shape (n,)
        Positions among the starts and the anchors.
    paths : float32 array of shape (n,)
        d(x, w) along the graph.
    targets : float32 array of shape (n,)
        In the network's unit.
    factors : float32 array of shape (n,)
        What a prediction is multiplied by to be a raw signature in the paper's unit.
    """

    rows: IntArray
    columns: IntArray
    paths: Floats
    targets: Floats
    factors: Floats

    def subset(self, mask: NDArray[np.bool_]) -> "Pairs":
        """Those of the mask, in the same order."""
        return Pairs(self.rows[mask], self.columns[mask], self.paths[mask], self.targets[mask], self.factors[mask])


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a training needs to know.

    Attributes
    ----------
    network : str
    frame : Frame
    starts : float32 array of shape (s, d')
        Inputs of the starts.
    anchors : float32 array of shape (m, d')
    train, validation : Pairs
        Of different starts.
    """

    network: str
    frame: Frame
    starts: Floats
    anchors: Floats
    train: Pairs
    validation: Pairs


def paper_unit(data: FieldData) -> float:
    """Factor from raw signatures to the paper's unit.

    A series without a term f_0 has no such unit, and all its values may be below the paper's threshold: its
    largest value becomes that of the paper's surfaces then.
    """
    largest = float(_raw(data).max()) if data.values.nnz else 0.0
    if largest <= 0:
        reject("data", "positive somewhere", "values that are all zero")
    return data.unit if largest * data.unit >= 1 else TOP / largest


def network_scale(data: FieldData, network: str, unit: float) -> float:
    """What the field is multiplied by to be in the network's unit: raw for "paper", h for "log"."""
    return unit if network == "paper" else TOP / float(data.values.data.max())


def make_problem(
    data: FieldData, distances: GraphDistances, frame: Frame, network: str, streams: Streams
) -> Problem:
    """Choose the pairs and the starts that are held out."""
    n = len(data.starts)
    if n < 2:
        reject("data", "known at 2 starts or more, because some are held out", f"{n} start")
    order = streams.generator("held-out starts").permutation(n)
    held_out = np.zeros(n, dtype=bool)
    held_out[order[: max(1, round(_HELD_OUT * n))]] = True
    pairs = _choose(data, distances, network, streams.generator("pairs"))
    inputs = [frame.coordinates(np, data.points[nodes]).astype(np.float32) for nodes in (data.starts, data.anchors)]
    inside = held_out[pairs.rows]
    if inside.all() or not inside.any():
        reject("data", "positive at starts enough to hold some out", f"{n} starts with {len(inside)} pairs to show")
    return Problem(network, frame, inputs[0], inputs[1], pairs.subset(~inside), pairs.subset(inside))


def _choose(data: FieldData, distances: GraphDistances, network: str, rng: np.random.Generator) -> Pairs:
    """All large values and a share of the others, a block of starts at a time."""
    unit = paper_unit(data)
    scale = network_scale(data, network, unit)
    roots = np.sqrt(data.measure)
    parts = []
    for first in range(0, len(data.starts), _STARTS_AT_ONCE):
        nodes = data.starts[first : first + _STARTS_AT_ONCE]
        values = data.values[first : first + _STARTS_AT_ONCE].toarray()  # (b, m)
        factors = np.outer(roots[nodes], roots[data.anchors])
        raw = values * factors * unit
        keep = (raw >= SMALL) | (rng.random(raw.shape) < SMALL_SHARE)
        rows, columns = np.nonzero(keep)
        paths = distances.at(data.points[nodes])[keep]
        target = raw[keep] if network == "paper" else scale * values[keep]
        factor = np.ones(len(rows)) if network == "paper" else factors[keep] * (unit / scale)
        parts.append((rows + first, columns, paths, target.astype(np.float32), factor.astype(np.float32)))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _raw(data: FieldData) -> FloatArray:
    """Signatures: h times the roots of the measure, the stored entries only."""
    entries = data.values.tocoo()
    roots = np.sqrt(data.measure)
    result: FloatArray = entries.data * roots[data.starts[entries.row]] * roots[data.anchors[entries.col]]
    return result
