"""Write the explorer: one HTML page that contains a model, fields of the user, or both."""

import functools
import html
import json
import re
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manifoldrf._colours import DIVERGING, GREY, SEQUENTIAL
from manifoldrf._files import as_path, atomic_path, escaped, output_file, visible
from manifoldrf._validation import check_integer, reject
from manifoldrf.explorer.contents import (
    NO_DIFFERENCE,
    WORST,
    Contents,
    Fields,
    KernelError,
    OwnField,
    Plan,
    contents_of,
    fewest_features,
    fields_of,
    fields_on,
    kernel_error,
)
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.state import shortened, summary_rows
from manifoldrf.kernels.abstract_kernel import ScaledKernel

__all__ = ["ExplorerPage", "explore"]

_POINTS_BY_DEFAULT = 20_000  # clicks are still fast, and pages of surfaces have about 5 MB
# Decades of logarithmic colours by bits: 65,535 and 255 integers span 4.8 and 2.4 decades, signed ones less.
_DECADES = {16: 4, 8: 2}
_DECADES_OF_SMALL = 3  # of exact values if the difference has 8 bits, with an error of 4e-4 of the field
_HEIGHT = 620  # pixels of a page in a notebook: the picture and its controls fit, and the cell below is in sight
_SCRIPTS = ("matrix", "data", "colours", "camera", "scene", "picking", "state", "interface", "pointer", "main")


@dataclass(frozen=True)
class ExplorerPage:
    """A page made by :func:`explore`, and facts about it. A notebook shows the page itself.

    Attributes
    ----------
    path : Path or None
        The file; None if none was written.
    n_bytes : int
        Size of the page.
    n_points, n_features : int
        Number of points and features in the page.
    n_exact : int
        Number of features with an exact signature in the page.
    bits : int
        Bits of each value.
    error : float
        Largest error of the kernel of the page relative to the model's largest value, from rounding and dropped
        features; 0 without a model.
    left_out : tuple of str
        One sentence for each reduction; the page shows the same.
    html : str
        The page. It takes this memory while the object lives, and this room in a notebook that shows it.

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

    path: Path | None
    n_bytes: int
    n_points: int
    n_features: int
    n_exact: int
    bits: int
    error: float
    left_out: tuple[str, ...] = ()
    html: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        features = f", {_count(self.n_features, 'feature')}" if self.n_features else ""
        error = f", kernel within {self.error:.1g}" if self.n_features else ""
        size = f"{_count(self.n_points, 'point')}{features}, {self.n_bytes / 1e6:.2f} MB{error}"
        facts = f"{self.path or 'page'}: {size}."
        return " ".join([facts, *self.left_out])

    def _repr_html_(self) -> str:
        # A frame of its own: styles and scripts of page and notebook do not meet. It may save pictures, no more.
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8888"
        permissions = 'sandbox="allow-scripts allow-downloads"'
        return f'<iframe {permissions} style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def explore(
    model: Any,
    path: str | PathLike[str] | None = None,
    *,
    fields: Any = None,
    surface: Any = None,
    title: str = "manifoldrf",
    n_points: int | str = "auto",
    max_bytes: int = 8_000_000,
) -> ExplorerPage:
    """Make an interactive HTML page of a fitted model, or of fields on a mesh; it needs no server and no network.

    A click on a point x shows K(x, .) on the whole space, computed in the browser from the features in the file.
    For the anchor next to x the page also shows the feature g, its exact signature and their difference. Features
    are rounded to 16 bits. A model too large for ``max_bytes`` is reduced: fewer points (not below 4000), then 8
    bits, then exact signatures of fewer anchors, then still fewer points, then fewer features; the page lists the
    reductions. An error is raised if the kernel of the page would be off by more than 0.2 of its largest value.

    Parameters
    ----------
    model : ManifoldRandomFeatures, TriangleMesh, Graph or array-like of shape (n, d)
        A fitted model with symmetric features; kernels with two sides are not supported. A mesh (also of another
        library), a graph with points, or points show ``fields`` alone.
    path : str or path, optional
        The file to write. Without it the page is only in the result, which a notebook shows.
    fields : dict of str to array-like of shape (n,), optional
        Your own fields by name, or a data frame with one in each column: one number for each node of the model,
        each vertex or point of ``surface`` if it is given, or of the mesh or points. NaN is no value and drawn in
        grey. They are layers of the page with a colour range each, and are not rounded.
    surface : TriangleMesh, mesh of another library, or array-like of shape (n, d), optional
        Where to draw the fields; by default at the nodes of the graph, with the triangles of its mesh. Exact
        signatures are only available at the nodes. A model that keeps some vertices of a large mesh needs the mesh
        here if ``fields`` are given at its vertices.
    title : str, default="manifoldrf"
        Heading of the page.
    n_points : int or "auto", default="auto"
        Maximum number of points. If there are more, farthest points are selected. "auto" is 20,000.
    max_bytes : int, default=8_000_000
        Maximum size of the file. If the model does not fit, the error names the size it needs.

    Returns
    -------
    ExplorerPage
        Size and error of the page, and the page itself.

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
    >>> points = Torus().sample(500, seed=0)
    >>> explore(points, fields={"height": points[:, 2]}).n_points
    500
    """
    target = None if path is None else as_path(path)
    if target is not None:
        output_file(target)  # before any work
    if not isinstance(title, str):
        reject("title", "a string", repr(title), TypeError)
    limit = check_integer(max_bytes, "max_bytes", 1)
    most = _POINTS_BY_DEFAULT if n_points == "auto" else check_integer(n_points, "n_points", 2)
    shown = _shown(model, surface, most, fields)
    n, m = shown.values.shape
    plan = Plan(n, m, 16, 0 if shown.difference is None else m)
    fewest = functools.cache(lambda: fewest_features(shown))
    unknown = KernelError(0.00012345, 0, n)  # placeholder as long as any other
    while True:  # until the page is small enough
        contents = contents_of(shown, plan)
        size = len(_html(model, shown, contents, unknown, title).encode("utf-8"))
        if size <= limit:
            error = kernel_error(shown, plan)
            if error.largest <= WORST:
                break
            size = limit + 1  # small enough, but too inaccurate
        plan = plan.smaller(size, limit, fewest)
    page = _html(model, shown, contents, error, title)
    text = page.encode("utf-8")
    if target is not None:
        with atomic_path(target) as temporary:
            temporary.write_bytes(text)
    sizes = (plan.n_points, plan.n_features, plan.n_exact, plan.bits)
    return ExplorerPage(target, len(text), *sizes, error.largest, _left_out(shown, plan), page)


def _shown(model: Any, surface: Any, most: int, fields: Any) -> Fields:
    """The fields of a page: those of a model and of the user, or of the user alone."""
    if isinstance(model, ManifoldRandomFeatures):
        check_is_fitted(model, "map_")
        if model.asymmetric_:
            rule = "a model with nonnegative features, which are the same on both sides"
            reject("model", rule, f"{shortened(model.kernel_)} with two sides")
        return fields_of(model, surface, most, fields)
    if model is None or isinstance(model, str) or hasattr(model, "get_params"):
        rule = "a fitted ManifoldRandomFeatures, a mesh, a graph or points"
        reject("model", rule, type(model).__name__, TypeError)
    if surface is not None:
        reject("surface", "left out for a space without a model", type(surface).__name__)
    return fields_on(model, most, fields)


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


def _html(model: Any, fields: Fields, contents: Contents, error: KernelError, title: str) -> str:
    """The page as a string; the same model gives the same bytes."""
    data, table = contents.packed
    plan, view = contents.plan, contents.view
    has_model = plan.n_features > 0
    fewer = " and fewer features" if contents.share != 1 else ""
    error_text = f"Error of K from rounding{fewer}: {error}." if has_model else ""
    facts = _summary(model) if has_model else _about(fields)
    facts.append(("points drawn", str(plan.n_points)))
    if has_model:
        facts += [
            ("features in this page", f"{plan.n_features}, rounded to {plan.bits} bits"),
            ("exact signatures", f"of {_count(plan.n_exact, 'anchor')}" if plan.n_exact else "not in this page"),
            ("error of this page", error_text),
        ]
    # Number of decades that the values of each layer resolve.
    whole = _DECADES[plan.bits]
    apart = whole if "differenceHigh" in contents.arrays else _DECADES[8]
    exact = min(whole, _DECADES_OF_SMALL) if apart < whole else whole
    notices = _left_out(fields, plan)
    if view.projects:
        axes = f"Drawn along the first three principal axes: {view.share:.0%} of the variance."
        notices = (axes, *notices)
    meta = {
        "arrays": table,
        "total": fields.total,
        "modelFeatures": len(fields.weights),
        "share": contents.share,
        "nExact": plan.n_exact,
        "noDifference": NO_DIFFERENCE,
        "spacing": contents.spacing,
        "origin": view.origin,
        "dimensions": min(fields.points.shape[1], 3),
        "projected": view.projects,
        "unit": _unit(model) if has_model else "",
        "decades": {"kernel": whole, "feature": whole, "exact": exact, "difference": apart},
        "fields": [{"name": visible(own.name), "low": own.low, "high": own.high} for own in fields.own],
        "sequential": SEQUENTIAL.round(4).tolist(),
        "diverging": DIVERGING.round(4).tolist(),
        "grey": GREY.tolist(),
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
        fields="".join(_label(k, own, plan.n_points) for k, own in enumerate(fields.own)),
        meta=json.dumps(meta, separators=(",", ":")).replace("<", "\\u003c"),
        data=data,
    )


def _label(k: int, own: OwnField, n: int) -> str:
    """The control that shows a field of the user."""
    missing = int(np.isnan(own.values[:n]).sum())
    about = f" <small>no value at {missing} of {n} points</small>" if missing else ""
    control = f'<input type="radio" name="layer" value="own{k}">'
    return f"<label>{control}<span><b>{escaped(own.name)}</b>{about}</span></label>"


def _unit(model: ManifoldRandomFeatures) -> str:
    """The unit of the kernel; a factor changes it."""
    if not model.map_.kernel.per_volume and model.scale_ == 1:
        return "of the graph"
    return "" if model.scale_ != 1 or isinstance(model.kernel_, ScaledKernel) else "per unit of volume"


def _summary(model: ManifoldRandomFeatures) -> list[tuple[str, str]]:
    """The rows of the model's summary; long numbers get 3 significant digits."""
    rows = summary_rows(model, model.error_)
    return [
        (name, re.sub(r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.3g}", text))
        for name, text in rows
    ]


def _about(fields: Fields) -> list[tuple[str, str]]:
    """Rows about a space without a model."""
    if fields.mesh is not None:
        return [("mesh", f"{fields.mesh.n_vertices} vertices, {_count(fields.mesh.n_faces, 'face')}")]
    return [("points", f"{_count(fields.total, 'point')} in {_count(fields.points.shape[1], 'dimension')}")]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
