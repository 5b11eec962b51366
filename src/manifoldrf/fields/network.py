"""The network of a field: its inputs, and its layers as compiled loops in single precision.

The rounding of a library's matrix product depends on shapes and on the number of threads. These loops compute every
pair on its own, always in the same order, and skip inactive units (about half), which makes up for the lost speed.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._codec import stored
from manifoldrf._compiling import compiled
from manifoldrf._validation import NONNEGATIVE, POSITIVE, FloatArray, check_real, check_vector
from manifoldrf.geometry.csr import check_numbers, check_shape

_FUSED = {"contract"}  # a multiplication and an addition in one
_ANY_ORDER = {"contract", "reassoc"}


@compiled(fastmath=_FUSED)
def affine(inputs, matrix, bias):  # type: ignore[no-untyped-def]
    """Inputs @ matrix + bias: (n, p), (p, h) and (h,) to (n, h), all float32."""
    n, width = len(inputs), len(bias)
    result = np.zeros((n, width), np.float32)
    for i in range(n):
        for j in range(width):
            result[i, j] = bias[j]
        for k in range(inputs.shape[1]):
            value = inputs[i, k]
            for j in range(width):
                result[i, j] += value * matrix[k, j]
    return result


@compiled(fastmath=_ANY_ORDER)
def _relu_dot(values, factors):  # type: ignore[no-untyped-def]
    """Sum of max(value, 0) times factor, in an order chosen once by the compiler."""
    total = np.float32(0.0)
    for j in range(len(values)):
        total += max(values[j], np.float32(0.0)) * factors[j]
    return total


@compiled(fastmath=_FUSED)
def _list_active(hidden, active, values):  # type: ignore[no-untyped-def]
    """List positions and values of active units, padded with zeros to a multiple of four; return their number."""
    n_active = 0
    for k in range(len(hidden)):
        if hidden[k] > 0:
            active[n_active] = k
            values[n_active] = hidden[k]
            n_active += 1
    for k in range(n_active, n_active + 3):
        active[k] = 0
        values[k] = 0.0
    return n_active


@compiled(fastmath=_FUSED)
def _add_rows(upper, second, active, values, n_active):  # type: ignore[no-untyped-def]
    """Add the rows of the active units times their values, four at a time to save passes over the sum."""
    for k in range(0, n_active, 4):
        a, b, c, d = second[active[k]], second[active[k + 1]], second[active[k + 2]], second[active[k + 3]]
        p, q, r, s = values[k], values[k + 1], values[k + 2], values[k + 3]
        for j in range(len(upper)):
            upper[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])


@compiled(fastmath=_FUSED)
def meet(point, anchors, both, matrix, second, bias, last):  # type: ignore[no-untyped-def]
    """The last layer, without its bias, for one point and all anchors: float32 (m,).

    The first layer is point + anchors + both @ matrix: shapes (h,), (m, h), (m, p) and (p, h).
    """
    m, width = anchors.shape
    result = np.zeros(m, np.float32)
    hidden = np.zeros(width, np.float32)
    upper = np.zeros(width, np.float32)
    active = np.zeros(width + 3, np.int64)
    values = np.zeros(width + 3, np.float32)
    for i in range(m):
        for j in range(width):
            hidden[j] = point[j] + anchors[i, j]
            upper[j] = bias[j]
        for k in range(both.shape[1]):
            factor = both[i, k]
            for j in range(width):
                hidden[j] += factor * matrix[k, j]
        n_active = _list_active(hidden, active, values)
        _add_rows(upper, second, active, values, n_active)
        result[i] = _relu_dot(upper, last)
    return result


Floats = NDArray[np.float32]

TOP = 600.0  # largest target of the network "log", about that of the paper, exp(10 W) on its graphs
MARGIN = 1.5  # largest prediction over the largest target
_SATURATION = 8.0  # squared width at which differences are half saturated; the signature is e^-4 there
_LONGEST = 12.0  # widths at which distances saturate; signatures are negligible there
_MOST_AXES = 6  # coordinates whose products are inputs: 21 products
_LOWEST = -60.0  # smallest log g: single precision can still represent e^-60


@stored
@dataclass(frozen=True, eq=False)
class Frame:
    """How positions become inputs.

    The paper does not mention scaling. On the unit sphere the inputs are the plain coordinates and distances; in
    other units plain inputs could have any size.

    Attributes
    ----------
    centre : array of shape (d,)
    unit : float
        Half the extent of the cloud, so that inputs are about in [-1, 1] in any unit.
    low, high : arrays of shape (d,)
        Positions are clipped to this box, which is twice as wide as the cloud.
    width : float
        Width of a signature.
    axes : array of shape (d', p) or None
        Main axes of the cloud, if it has too many coordinates for all their products.
    box : array of shape (d,) or None
        Sides of a periodic box, 0 along coordinates that are not periodic. The others are mapped to circles, which
        keeps lengths and has no seam.
    """

    centre: FloatArray
    unit: float
    low: FloatArray
    high: FloatArray
    width: float
    axes: FloatArray | None = None
    box: FloatArray | None = None

    def check(self, d: int) -> None:
        """Raise if the parts do not fit together, or do not fit points with d coordinates."""
        for name in ("centre", "low", "high"):
            check_shape(name, getattr(self, name), (d,))
            check_numbers(name, getattr(self, name))
        check_real(self.unit, "unit", POSITIVE)
        check_real(self.width, "width", POSITIVE)
        if self.box is not None:
            check_vector(self.box, "box", d, NONNEGATIVE)
        if self.axes is not None:
            n_axes = self.axes.shape[1] if self.axes.ndim == 2 else 0
            check_shape("axes", self.axes, (d if self.box is None else 2 * d, n_axes))
            check_numbers("axes", self.axes)

    def coordinates(self, xp: Any, positions: Any) -> Any:
        """Inputs of positions, shape (q, d'): finite for every finite position."""
        straight = xp.clip(positions, _like(positions, self.low), _like(positions, self.high))
        straight = straight - _like(positions, self.centre)
        if self.box is None:
            return straight / self.unit
        sides = _like(positions, self.box)
        periodic, box = sides > 0, xp.where(sides > 0, sides, 1.0)
        radius = box / (2 * math.pi)
        angle = xp.remainder(positions, box) / radius
        parts = (
            xp.where(periodic, radius * xp.cos(angle), straight),
            xp.where(periodic, radius * xp.sin(angle), 0.0),
        )
        return xp.concatenate(parts, -1) / self.unit


def make_frame(points: FloatArray, width: float, box: tuple[float, ...] | None) -> Frame:
    """The frame of a cloud."""
    sides = None if box is None else np.asarray(box, dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max()) or 1.0
    unit = span / 2 if sides is None or not sides.all() else float(sides.max()) / (2 * math.pi)
    frame = Frame((low + high) / 2, unit, low - span / 2, high + span / 2, width, None, sides)
    inputs = frame.coordinates(np, points)
    if inputs.shape[1] <= _MOST_AXES:
        return frame
    values, vectors = np.linalg.eigh(np.cov(inputs.T))
    axes = vectors[:, np.argsort(values)[::-1][:_MOST_AXES]]
    return Frame(frame.centre, unit, frame.low, frame.high, width, axes, sides)


def n_inputs(network: str, frame: Frame, dim: int) -> int:
    """Number of inputs of the first layer, for positions with ``dim`` inputs."""
    if network == "paper":
        return 2 * dim + 1
    p = dim if frame.axes is None else frame.axes.shape[1]
    return dim + p * (p + 1) // 2 + 2


def start_weights(network: str, first: int, hidden: int, rng: np.random.Generator) -> list[Floats]:
    """Initial weights: uniform in +-1/sqrt(inputs), as in torch, except for the last layer of "log"."""
    sizes = [(first, (first, hidden)), (first, (hidden,)), (hidden, (hidden, hidden)), (hidden, (hidden,))]
    sizes += [(hidden, (hidden, 1)), (hidden, (1,))]
    weights = [(rng.uniform(-1.0, 1.0, shape) / math.sqrt(n)).astype(np.float32) for n, shape in sizes]
    if network == "log":
        weights[-2] *= np.float32(0.1)  # start near the Gaussian of the known width
        weights[-1] = np.array([math.log(TOP), -0.5], dtype=np.float32)  # c and a
    return weights


def pair_inputs(xp: Any, network: str, frame: Frame, pair: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Inputs that depend on both ends, shape (..., p), and |x - w|^2 in squared widths, shape (...).

    ``pair`` is (x, w, d(x, w)) with shapes that broadcast.
    """
    point, anchor, path = pair
    if network == "paper":
        return (path / frame.unit)[..., None], None
    gap = (point - anchor) * (frame.unit / frame.width)
    squared = (gap * gap).sum(-1)
    if frame.axes is not None:
        # Not a matrix product of a library, whose bits depend on the number of threads.
        gap = xp.einsum("...i,ij->...j", gap, _like(gap, frame.axes))
    bounded = gap / xp.sqrt(_SATURATION * (1 + squared / _SATURATION))[..., None]
    first, second = np.triu_indices(gap.shape[-1])
    lengths = []
    for size in (squared, (path / frame.width) ** 2):  # saturated, and smooth at zero in single precision
        lengths.append(xp.sqrt((size + 1e-12) / (1 + size / _LONGEST**2))[..., None])
    return xp.concatenate((bounded[..., first] * bounded[..., second], *lengths), -1), squared


def joint_inputs(xp: Any, network: str, frame: Frame, pair: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """All inputs of listed pairs, shape (n, n_inputs), and |x - w|^2."""
    point, anchor, _ = pair
    both, squared = pair_inputs(xp, network, frame, pair)
    ends = (point, anchor) if network == "paper" else (0.5 * (point + anchor),)
    return xp.concatenate((*ends, both), -1), squared


def first_layer(network: str, weights: Any, dim: int) -> tuple[Any, Any, Any]:
    """The first matrix in three parts: for the point, the anchor and the inputs of the pair."""
    matrix = weights[0]
    if network == "paper":
        return matrix[:dim], matrix[dim : 2 * dim], matrix[2 * dim :]
    return 0.5 * matrix[:dim], 0.5 * matrix[:dim], matrix[dim:]


def upper_layers(xp: Any, network: str, weights: Any, hidden: Any, squared: Any) -> Any:
    """Values from the first hidden layer before its ReLU."""
    _, _, second, bias, last, ends = weights
    top = (xp.relu(xp.relu(hidden) @ second + bias) @ last)[..., 0]
    return finish(xp, network, ends, top, squared)


def finish(xp: Any, network: str, ends: Any, top: Any, squared: Any) -> Any:
    """Values from the output of the last layer, in the network's unit."""
    if network == "paper":
        return top + ends[0]
    return xp.exp(xp.clip(ends[0] + ends[1] * squared + top, _LOWEST, math.log(TOP) + 3))


def _like(sample: Any, values: Any) -> Any:
    """``values`` as an array or a tensor of the same kind and precision as ``sample``."""
    if isinstance(sample, np.ndarray):
        return values.astype(sample.dtype)
    return sample.new_tensor(values)
