"""Anchors: the nodes at which features are read."""

import numpy as np

from manifoldrf._runtime import warn_user
from manifoldrf._validation import IntArray
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.features.options import FitOptions
from manifoldrf.geometry.paths import farthest_nodes
from manifoldrf.signatures.engines import row_memory


def spacing_of(volume: float, m: int, dim: int) -> float:
    """Distance between neighbouring anchors, if ``m`` of them are evenly spread: (volume / m)^(1 / dim)."""
    return float((volume / m) ** (1 / dim))


def anchors_needed(kernel: GraphKernel, ratio: float = 0.8) -> int:
    """Smallest number of anchors whose spacing is at most ``ratio`` widths, at most all nodes.

    Sums over anchors are off by about .02 at .8, with which the number of anchors is chosen, and by .03 to .05 or
    more above 1.2 (features of the heat kernel on surfaces).
    """
    with np.errstate(over="ignore", divide="ignore"):
        wanted = np.float64(kernel.volume ** (1 / kernel.dim) / (ratio * kernel.width)) ** kernel.dim
    return max(1, int(min(np.ceil(wanted * (1 - 1e-12)), kernel.graph.n_nodes)))  # rounding adds no anchor


def choose_anchors(kernel: GraphKernel, options: FitOptions, at_least: int = 1) -> IntArray:
    """Nodes at which features are read: all, independent random ones, or farthest ones.

    ``at_least`` is a lower bound for a number that is chosen.
    """
    n, wanted = kernel.graph.n_nodes, options.n_features
    if options.anchors == "all" or wanted == "all" or kernel.asymmetric:
        return np.arange(n)
    if wanted == "auto":
        m = min(n, max(at_least, anchors_needed(kernel)))
        if 8.0 * n * m > 2**31:  # memory of the table; about twice as much is used on the way
            m = min(m, int(2**31 / row_memory(kernel.graph, kernel.series)))
    else:
        m = int(wanted)
        _warn_of_number(kernel, m, options)
    if options.anchors == "iid":
        drawn = options.streams.generator("features.anchors").integers(0, n, size=m, dtype=np.int64)
        return drawn
    if m >= n or (wanted == "auto" and m > n / 2):  # nearly as many
        return np.arange(n)
    alone = kernel.measure == 0  # nearly isolated nodes are the farthest of all, and useless
    chosen = farthest_nodes(kernel.graph, min(n, m + int(alone.sum())))
    return np.concatenate([chosen[~alone[chosen]], chosen[alone[chosen]]])[:m]


def _warn_of_number(kernel: GraphKernel, m: int, options: FitOptions) -> None:
    """Warn if a given number of features is more than there are nodes, or too few for the width of the kernel."""
    n = kernel.graph.n_nodes
    ratio = spacing_of(kernel.volume, m, kernel.dim) / kernel.width
    if m > n and options.anchors != "iid":
        text = f"n_features = {m} is more than the graph has nodes: there are {n} features, one for each."
        warn_user(text, FeatureWarning)
    elif ratio > 1.2 and m < n and options.anchors != "iid":
        needed = anchors_needed(kernel, 1.0)
        warn_user(
            f"{m} feature{'s are' if m > 1 else ' is'} too few: anchors are {ratio:.2g} times as far apart as the "
            f"features of this kernel are wide ({kernel.width:.2g}), and sums over them are several per cent off "
            f"(remedy: n_features={needed if needed < n else repr('all')}, or a wider kernel).",
            FeatureWarning,
        )
