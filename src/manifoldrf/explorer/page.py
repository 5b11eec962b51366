"""Write the explorer: one HTML file that contains a model."""

import functools
import json
import re
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

from sklearn.utils.validation import check_is_fitted

from manifoldrf._colours import DIVERGING, SEQUENTIAL
from manifoldrf._files import as_path, atomic_path, escaped, output_file
from manifoldrf._validation import check_integer, reject
from manifoldrf.explorer.contents import (
    NO_DIFFERENCE,
    WORST,
    Contents,
    Fields,
    KernelError,
    Plan,
    contents_of,
    fewest_features,
    fields_of,
    kernel_error,
)
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.abstract_kernel import ScaledKernel

__all__ = ["ExplorerPage", "explore"]

_POINTS_BY_DEFAULT = 20_000  # clicks are still fast, and pages of surfaces have about 5 MB
# Decades of logarithmic colours by bits: 65,535 and 255 integers span 4.8 and 2.4 decades, signed ones less.
_DECADES = {16: 4, 8: 2}
_DECADES_OF_SMALL = 3  # of exact values if the difference has 8 bits, with an error of 4e-4 of the field
_SCRIPTS = ("matrix", "data", "colours", "camera", "scene", "picking", "state", "interface", "pointer", "main")


@dataclass(frozen=True)
class ExplorerPage:
    """Facts about a page written by :func:`explore`.

    Attributes
    ----------
    path : Path
    n_bytes : int
        Size of the file.
    n_points, n_features : int
        Number of points and features in the page.
    n_exact : int
        Number of features with an exact signature in the page.
    bits : int
        Bits of each value.
    error : float
        Largest error of the kernel of the page relative to the model's largest value, from rounding and dropped
        features.
    left_out : tuple of str
        One sentence for each reduction; the page shows the same.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, explore
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=64, random_state=0).fit(Sphere())
    >>> with TemporaryDirectory() as folder:
    ...     page = explore(features, Path(folder) / "sphere.html", n_points=300)
    >>> page.n_points, page.n_features, page.bits
    (300, 64, 16)
    >>> page.left_out[0]
    '300 of 500 points are drawn.'
    """

    path: Path
    n_bytes: int
    n_points: int
    n_features: int
    n_exact: int
    bits: int
    error: float
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        size = f"{_count(self.n_points, 'point')}, {_count(self.n_features, 'feature')}"
        facts = f"{self.path}: {size}, {self.n_bytes / 1e6:.2f} MB, kernel within {self.error:.1g}."
        return " ".join([facts, *self.left_out])


def explore(
    features: ManifoldRandomFeatures,
    path: str | PathLike[str],
    *,
    surface: Any = None,
    title: str = "manifoldrf",
    n_points: int | str = "auto",
    max_bytes: int = 8_000_000,
) -> ExplorerPage:
    """Write an interactive HTML page of a fitted model that works without server and network.

    A click on a point x shows K(x, .) on the whole space, computed in the browser from the features in the file.
    For the anchor next to x the page also shows the feature g, its exact signature and their difference. Features
    are rounded to 16 bits. A model too large for ``max_bytes`` is reduced: fewer points (not below 4000), then 8
    bits, then exact signatures of fewer anchors, then still fewer points, then fewer features; the page lists the
    reductions. An error is raised if the kernel of the page would be off by more than 0.2 of its largest value.

    Parameters
    ----------
    features : ManifoldRandomFeatures
        A fitted model with symmetric features; kernels with two sides are not supported.
    path : str or path
        The file to write.
    surface : TriangleMesh, mesh of another library, or array-like of shape (n, d), optional
        Where to draw the fields; by default at the nodes of the graph, with the triangles of its mesh. Exact
        signatures are only available at the nodes.
    title : str, default="manifoldrf"
        Heading of the page.
    n_points : int or "auto", default="auto"
        Maximum number of points. If there are more, farthest points are selected. "auto" is 20,000.
    max_bytes : int, default=8_000_000
        Maximum size of the file. If the model does not fit, the error names the size it needs.

    Returns
    -------
    ExplorerPage
        Size and error of the page.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus, explore
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=128, random_state=0).fit(Torus())
    >>> with TemporaryDirectory() as folder:
    ...     page = explore(features, Path(folder) / "torus.html", title="A torus")
    >>> page.n_features, page.n_bytes < 8_000_000, page.error < 1e-3
    (128, True, True)
    """
    target = as_path(path)
    output_file(target)  # before any work
    if not isinstance(features, ManifoldRandomFeatures):
        reject("features", "a fitted ManifoldRandomFeatures", type(features).__name__, TypeError)
    check_is_fitted(features, "map_")
    if features.asymmetric_:
        rule = "a model with nonnegative features, which are the same on both sides"
        reject("features", rule, f"a {type(features.kernel_).__name__} with two sides")
    if not isinstance(title, str):
        reject("title", "a string", repr(title), TypeError)
    limit = check_integer(max_bytes, "max_bytes", 1)
    most = _POINTS_BY_DEFAULT if n_points == "auto" else check_integer(n_points, "n_points", 2)
    fields = fields_of(features, surface, most)
    n, m = fields.values.shape
    plan = Plan(n, m, 16, 0 if fields.difference is None else m)
    fewest = functools.cache(lambda: fewest_features(fields))
    unknown = KernelError(0.00012345, 0, n)  # placeholder as long as any other
    while True:  # until the page is small enough
        contents = contents_of(fields, plan)
        size = len(_html(features, fields, contents, unknown, title).encode("utf-8"))
        if size <= limit:
            error = kernel_error(fields, plan)
            if error.largest <= WORST:
                break
            size = limit + 1  # small enough, but too inaccurate
        plan = plan.smaller(size, limit, fewest)
    text = _html(features, fields, contents, error, title).encode("utf-8")
    with atomic_path(target) as temporary:
        temporary.write_bytes(text)
    sizes = (plan.n_points, plan.n_features, plan.n_exact, plan.bits)
    return ExplorerPage(target, len(text), *sizes, error.largest, _left_out(fields, plan))


def _left_out(fields: Fields, plan: Plan) -> tuple[str, ...]:
    """One sentence for each reduction of the model."""
    m = len(fields.weights)
    what = "points" if fields.mesh is None else "vertices"
    joined = "" if fields.mesh is None else ", joined by coarser triangles"
    exact = "" if fields.difference is None else f"Exact signatures of {plan.n_exact} of {m} anchors are kept."
    if plan.n_exact == 0 and fields.difference is not None:
        exact = "Exact signatures are left out."
    sentences = (
        (plan.n_points < fields.total, f"{plan.n_points} of {fields.total} {what} are drawn{joined}."),
        (plan.bits < 16, "Values are rounded to 8 bits."),
        (plan.n_exact < plan.n_features and bool(exact), exact),
        (
            plan.n_features < m,
            f"{plan.n_features} of {m} features are kept, with larger weights that replace the others.",
        ),
    )
    return tuple(sentence for holds, sentence in sentences if holds)


def _html(
    features: ManifoldRandomFeatures, fields: Fields, contents: Contents, error: KernelError, title: str
) -> str:
    """The page as a string; the same model gives the same bytes."""
    data, table = contents.packed
    view = contents.view
    fewer = " and fewer features" if contents.share != 1 else ""
    error_text = f"Error of K from rounding{fewer}: {error}."
    n_exact = contents.plan.n_exact
    facts = [
        *_summary(features),
        ("points drawn", str(contents.plan.n_points)),
        ("features in this page", f"{contents.plan.n_features}, rounded to {contents.plan.bits} bits"),
        ("exact signatures", f"of {_count(n_exact, 'anchor')}" if n_exact else "not in this page"),
        ("error of this page", error_text),
    ]
    # Number of decades that the values of each layer resolve.
    whole = _DECADES[contents.plan.bits]
    apart = whole if "differenceHigh" in contents.arrays else _DECADES[8]
    exact = min(whole, _DECADES_OF_SMALL) if apart < whole else whole
    notices = _left_out(fields, contents.plan)
    if view.projects:
        axes = f"Drawn along the first three principal axes: {view.share:.0%} of the variance."
        notices = (axes, *notices)
    scaled = features.scale_ != 1 or isinstance(features.kernel_, ScaledKernel)  # a factor changes the unit
    unit = "" if scaled else "per unit of volume"
    meta = {
        "arrays": table,
        "total": fields.total,
        "modelFeatures": len(fields.weights),
        "share": contents.share,
        "nExact": n_exact,
        "noDifference": NO_DIFFERENCE,
        "spacing": contents.spacing,
        "origin": view.origin,
        "dimensions": min(features.graph_.positions.shape[1], 3),
        "projected": view.projects,
        "unit": "of the graph" if features.map_.problem.clock == "graph" and features.scale_ == 1 else unit,
        "decades": {"kernel": whole, "feature": whole, "exact": exact, "difference": apart},
        "sequential": SEQUENTIAL.round(4).tolist(),
        "diverging": DIVERGING.round(4).tolist(),
    }
    assets = files("manifoldrf.explorer") / "assets"
    scripts = [(assets / f"{name}.js").read_text("utf-8") for name in _SCRIPTS]
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        title=escaped(title),
        style=(assets / "page.css").read_text("utf-8"),
        script="(() => {\n'use strict';\n" + "\n".join(scripts) + "})();",
        kernel=escaped(facts[0][1]),
        notice=escaped(" ".join(notices)),
        error=escaped(error_text),
        facts="".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in facts),
        meta=json.dumps(meta, separators=(",", ":")).replace("<", "\\u003c"),
        data=data,
    )


def _summary(features: ManifoldRandomFeatures) -> list[tuple[str, str]]:
    """The lines of the model's summary, as pairs; long numbers get 3 significant digits."""
    text = re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.3g}", features.summary())
    pairs = [re.split(r"\s{2,}", line, maxsplit=1) for line in text.splitlines()]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
