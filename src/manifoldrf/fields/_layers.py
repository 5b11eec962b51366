"""Layers of a small network in single precision, compiled.

A library's matrix product rounds otherwise for other shapes and other numbers of threads. Here every pair is
computed by itself, always in the same order; units that are off, about half of them, are skipped, which makes up
for it.

Compiled functions on contiguous arrays; the callers validate.
"""

import numpy as np

from manifoldrf._compiling import compiled

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
    """Sum of max(value, 0) times factor, in the order that the compiler likes, always the same."""
    total = np.float32(0.0)
    for j in range(len(values)):
        total += max(values[j], np.float32(0.0)) * factors[j]
    return total


@compiled(fastmath=_FUSED)
def _list_active(hidden, active, values):  # type: ignore[no-untyped-def]
    """Positions and values of the units that are on, filled up with zeros to a multiple of four; their number."""
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
    """Add the rows of the active units times their values, four at a time: fewer passes over the sum."""
    for k in range(0, n_active, 4):
        a, b, c, d = second[active[k]], second[active[k + 1]], second[active[k + 2]], second[active[k + 3]]
        p, q, r, s = values[k], values[k + 1], values[k + 2], values[k + 3]
        for j in range(len(upper)):
            upper[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])


@compiled(fastmath=_FUSED)
def meet(point, anchors, both, matrix, second, bias, last):  # type: ignore[no-untyped-def]
    """The last layer, without its bias, of one point with all anchors: float32 (m,).

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
