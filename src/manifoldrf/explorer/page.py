"""The explorer: one HTML file with a model in it."""

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
from manifoldrf._files import as_path, atomic_path, escaped
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

# Where a click is still answered at once and pages of surfaces are about 5 MB.
_POINTS_BY_DEFAULT = 20_000
# Of logarithmic colours, by bits: 65,535 and 255 whole numbers span 4.8 and 2.4, less with a sign.
_DECADES = {16: 4, 8: 2}
_DECADES_OF_SMALL = 3  # of exact values that are a field less a small difference of 8 bits, 4e-4 of the field
_SCRIPTS = ("matrix", "data", "colours", "camera", "scene", "picking", "state", "interface", "pointer", "main")


@dataclass(frozen=True)
class ExplorerPage:
    """What :func:`explore` wrote.

    Attributes
    ----------
    path : Path
    n_bytes : int
        Size of the file.
    n_points, n_features : int
        In the page.
    n_exact : int
        Features whose exact signature is in the page.
    bits : int
        Of each value.
    error : float
        Largest error of the kernel as the page shows it, against the model's, over the model's largest value:
        rounding, and features left out.
    left_out : tuple of str
        What had to be thinned, a sentence for each; the page says the same.

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
        size = (
            f"{_count(self.n_points, 'point')}, {_count(self.n_features, 'feature')}, {self.n_bytes / 1e6:.2f} MB"
        )
        return " ".join([f"{self.path}: {size}, kernel within {self.error:.1g}.", *self.left_out])


def explore(
    features: ManifoldRandomFeatures,
    path: str | PathLike[str],
    *,
    surface: Any = None,
    title: str = "manifoldrf",
    n_points: int | str = "auto",
    max_bytes: int = 8_000_000,
) -> ExplorerPage:
    """Write one HTML file in which a fitted model can be seen and asked: no server, no network.

    A click on a point x shows K(x, .) over the whole space, computed in the browser from the features in the file;
    and, for the anchor next to x, the feature g, its exact signature and their difference. Features are rounded to
    16 bits. A model too large for ``max_bytes`` is thinned: fewer points (not below 4000), then 8 bits, then exact
    signatures of fewer anchors, then fewer points still, then fewer features; the page says so. Nothing is written
    where the kernel of the page would be off by more than 0.2 of its largest value.

    Parameters
    ----------
    features : ManifoldRandomFeatures
        Fitted, or loaded from a file. Kernels with two sides are refused.
    path : str or path
        The file to write.
    surface : TriangleMesh or array-like of shape (n, d), optional
        Where the fields are drawn; by default at the nodes of the graph, with the triangles of its mesh. Exact
        signatures are known at the nodes only.
    title : str, default="manifoldrf"
        Heading of the page.
    n_points : int or "auto", default="auto"
        Most points that are drawn: farthest points, if there are more. "auto" is 20,000.
    max_bytes : int, default=8_000_000
        Largest size of the file. An error says how large it must be, where nothing true fits.

    Returns
    -------
    ExplorerPage
        What was written, with the error of the kernel that the page shows.

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
    _check_features(features)
    if not isinstance(title, str):
        reject("title", "a string", repr(title), TypeError)
    limit = check_integer(max_bytes, "max_bytes", 1)
    most = _POINTS_BY_DEFAULT if n_points == "auto" else check_integer(n_points, "n_points", 2)
    fields = fields_of(features, surface, most)
    plan, error, text = _page_within(features, fields, title, limit)
    with atomic_path(target) as temporary:
        temporary.write_bytes(text)
    size = (plan.n_points, plan.n_features, plan.n_exact, plan.bits)
    return ExplorerPage(target, len(text), *size, error.largest, _left_out(fields, plan))


def _check_features(features: Any) -> None:
    if not isinstance(features, ManifoldRandomFeatures):
        reject("features", "a fitted ManifoldRandomFeatures", type(features).__name__, TypeError)
    check_is_fitted(features, "map_")
    if features.asymmetric_:
        rule = "a model with nonnegative features, which are the same on both sides"
        reject("features", rule, f"a {type(features.kernel_).__name__} with two sides")


def _page_within(
    features: ManifoldRandomFeatures, fields: Fields, title: str, limit: int
) -> tuple[Plan, KernelError, bytes]:
    """The fullest page that is not too large."""
    n, m = fields.values.shape
    plan = Plan(n, m, 16, 0 if fields.difference is None else m)
    fewest = functools.cache(lambda: fewest_features(fields))
    unknown = KernelError(0.00012345, 0, n)  # as long as any
    while True:
        contents = contents_of(fields, plan)
        size = len(_html(features, fields, contents, unknown, title).encode("utf-8"))
        if size <= limit:
            error = kernel_error(fields, plan)
            if error.largest <= WORST:
                return plan, error, _html(features, fields, contents, error, title).encode("utf-8")
            size = limit + 1  # small enough, but nothing true is in it
        plan = plan.smaller(size, limit, fewest)


def _left_out(fields: Fields, plan: Plan) -> tuple[str, ...]:
    """What is not in the page as it is in the model, a sentence for each."""
    m = len(fields.weights)
    what = "points" if fields.mesh is None else "vertices"
    joined = "" if fields.mesh is None else ", and triangles join those"
    exact = "" if fields.difference is None else f"Exact signatures of {plan.n_exact} of {m} anchors are kept."
    if plan.n_exact == 0 and fields.difference is not None:
        exact = "Exact signatures are left out."
    said = (
        (plan.n_points < fields.total, f"{plan.n_points} of {fields.total} {what} are drawn{joined}."),
        (plan.bits < 16, "Values are rounded to 8 bits."),
        (plan.n_exact < plan.n_features and bool(exact), exact),
        (plan.n_features < m, f"{plan.n_features} of {m} features are kept, their weights raised for the others."),
    )
    return tuple(sentence for holds, sentence in said if holds)


def _html(
    features: ManifoldRandomFeatures, fields: Fields, contents: Contents, error: KernelError, title: str
) -> str:
    """The page as a text; the same model gives the same bytes."""
    data, table = contents.packed
    view = contents.view
    said = _error_text(contents, error)
    meta = {
        "arrays": table,
        "total": fields.total,
        "modelFeatures": len(fields.weights),
        "share": contents.share,
        "nExact": contents.plan.n_exact,
        "noDifference": NO_DIFFERENCE,
        "spacing": contents.spacing,
        "origin": view.origin,
        "dimensions": min(features.graph_.positions.shape[1], 3),
        "projected": view.projects,
        "unit": _unit(features),
        "decades": _decades(contents),
        "sequential": SEQUENTIAL.round(4).tolist(),
        "diverging": DIVERGING.round(4).tolist(),
    }
    assets = files("manifoldrf.explorer") / "assets"
    scripts = [(assets / f"{name}.js").read_text("utf-8") for name in _SCRIPTS]
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        title=escaped(title),
        style=(assets / "page.css").read_text("utf-8"),
        script="(() => {\n'use strict';\n" + "\n".join(scripts) + "})();",
        kernel=escaped(_summary(features)[0][1]),
        notice=_notice(view.share if view.projects else None, _left_out(fields, contents.plan)),
        error=escaped(said),
        facts=_facts(_summary(features) + _page_facts(contents.plan, said)),
        meta=json.dumps(meta, separators=(",", ":")).replace("<", "\\u003c"),
        data=data,
    )


def _summary(features: ManifoldRandomFeatures) -> list[tuple[str, str]]:
    """The lines of the model's summary, as pairs."""
    pairs = [re.split(r"\s{2,}", line, maxsplit=1) for line in features.summary().splitlines()]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]


def _unit(features: ManifoldRandomFeatures) -> str:
    """What the numbers stand for; nothing where a factor, of the user's or of a chosen kernel, has changed it."""
    if features.map_.space.clock == "graph":
        return "of the graph"
    return "" if isinstance(features.kernel_, ScaledKernel) else "per unit of volume"


def _decades(contents: Contents) -> dict[str, int]:
    """Decades of logarithmic colours that the numbers of each layer hold."""
    whole = _DECADES[contents.plan.bits]
    apart = whole if "differenceHigh" in contents.arrays else _DECADES[8]
    exact = min(whole, _DECADES_OF_SMALL) if apart < whole else whole
    return {"kernel": whole, "feature": whole, "exact": exact, "difference": apart}


def _page_facts(plan: Plan, error: str) -> list[tuple[str, str]]:
    return [
        ("points drawn", str(plan.n_points)),
        ("features in this page", f"{plan.n_features}, rounded to {plan.bits} bits"),
        ("exact signatures", f"of {_count(plan.n_exact, 'anchor')}" if plan.n_exact else "not in this page"),
        ("error of this page", error),
    ]


def _error_text(contents: Contents, error: KernelError) -> str:
    """How far the numbers of the page are from the model's."""
    fewer = " and fewer features" if contents.share != 1 else ""
    return f"By rounding{fewer}, K is off by {error}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def _facts(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in pairs)


def _notice(share: float | None, left_out: tuple[str, ...]) -> str:
    """What a reader must know before believing the picture."""
    axes = [] if share is None else [f"Drawn along the first three principal axes: {share:.0%} of the variance."]
    return escaped(" ".join([*axes, *left_out]))
