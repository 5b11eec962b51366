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
from manifoldrf._validation import FloatArray, check_integer, reject
from manifoldrf.explorer.contents import (
    NO_DIFFERENCE,
    WORST,
    Fields,
    Plan,
    contents_of,
    fields_of,
    fields_on,
    kernel_error,
    packed,
)
from manifoldrf.features.manifold_features import ManifoldRandomFeatures, shortened
from manifoldrf.kernels.abstract_kernel import ScaledKernel

__all__ = ["ExplorerPage", "explore"]

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
        style = "width:100%;height:620px;border:1px solid #8888"  # picture and controls fit, the next cell shows
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
    bits, then no exact signatures, then still fewer points, then fewer features; the page lists the reductions. An
    error is raised if the kernel of the page would be off by more than 0.2 of its largest value.

    Parameters
    ----------
    model : ManifoldRandomFeatures, TriangleMesh, Graph or array-like of shape (n, d)
        A fitted model with symmetric features; kernels with two sides are not supported. A mesh (also of another
        library), a graph with points, or points show ``fields`` alone.
    path : str or path, optional
        The file to write. Without it the page is only in the result, which a notebook shows.
    fields : dict of str to array-like of shape (n,), optional
        Your own fields by name, or a data frame with one in each column: one number for each node of the model or
        vertex of its mesh, each vertex or point of ``surface`` if it is given, or of the mesh or points. NaN is no
        value and drawn in grey. They are layers of the page with a colour range each, and are not rounded.
    surface : TriangleMesh, mesh of another library, or array-like of shape (n, d), optional
        Where to draw the fields; by default on the mesh that the model was fitted to, or at its nodes. Exact
        signatures are only available at the nodes. The nodes of a heat graph are not the points of the fit: give
        these here to show ``fields`` at them.
    title : str, default="manifoldrf"
        Heading of the page.
    n_points : int or "auto", default="auto"
        Maximum number of points. If there are more, farthest points are selected. "auto" is 20,000.
    max_bytes : int, default=8_000_000
        Maximum size of the file.

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
    # With 20,000 points clicks are still fast, and pages of surfaces have about 5 MB.
    most = 20_000 if n_points == "auto" else check_integer(n_points, "n_points", 2)
    shown = _shown(model, surface, most, fields)
    n, m = shown.values.shape
    plan = Plan(n, m, 16, shown.difference is not None)
    while True:  # until the page is small enough
        arrays, facts = contents_of(shown, plan)
        make = functools.partial(_html, model, shown, plan, packed(arrays), facts, title)
        size = len(make(0.00012345, 10**6).encode("utf-8"))  # an error as long as any other
        if size <= limit:
            break
        plan = plan.smaller(size, limit)
    error, n_probes = kernel_error(shown, plan)
    if error > WORST:
        rule = (
            f"larger for this model: in a page so small its kernel has an error of {error:.2g} of its largest value"
        )
        reject("max_bytes", rule, limit)
    page = make(error, n_probes)
    text = page.encode("utf-8")
    if target is not None:
        with atomic_path(target) as temporary:
            temporary.write_bytes(text)
    sizes = (plan.n_points, plan.n_features, plan.n_features if plan.exact else 0, plan.bits)
    return ExplorerPage(target, len(text), *sizes, error, _left_out(shown, plan), page)


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
    m, has_mesh = len(fields.weights), fields.mesh is not None
    what, joined = ("vertices", ", joined by coarser triangles") if has_mesh else ("points", "")
    fewer = f"{plan.n_features} of {m} features are kept, with larger weights that replace the others."
    sentences = (
        (plan.n_points < fields.total, f"{plan.n_points} of {fields.total} {what} are drawn{joined}."),
        (plan.bits < 16, "Values are rounded to 8 bits."),
        (fields.difference is not None and not plan.exact, "Exact signatures are left out."),
        (plan.n_features < m, fewer),
    )
    return tuple(sentence for holds, sentence in sentences if holds)


def _html(
    model: Any,
    fields: Fields,
    plan: Plan,
    data: Any,
    facts: dict[str, Any],
    title: str,
    error: float,
    n_probes: int,
) -> str:
    """The page as a string; the same model gives the same bytes."""
    has_model = plan.n_features > 0
    rows, error_text = _facts(model, fields), ""
    if has_model:
        fewer = " and fewer features" if facts["share"] != 1 else ""
        size = f"{error:.2g} of the largest value of the model"
        pairs = f"{size}, the largest error of {n_probes * plan.n_points:,} random pairs of points"
        if n_probes == plan.n_points:
            pairs = f"at most {size} between any two points of this page"
        error_text = f"Error of K from rounding{fewer}: {pairs}."
        rows += [
            ("features in this page", f"{plan.n_features}, rounded to {plan.bits} bits"),
            ("exact signatures", "in this page" if plan.exact else "not in this page"),
            ("error of this page", error_text),
        ]
    rows.append(("points drawn", str(plan.n_points)))
    notices = _left_out(fields, plan)
    if facts["projected"]:
        axes = f"Drawn along the first three principal axes: {facts['variance']:.0%} of the variance."
        notices = (axes, *notices)
    # 65,535 and 255 integers span 4.8 and 2.4 decades, signed ones less.
    decades = dict.fromkeys(("kernel", "feature", "exact", "difference"), 4 if plan.bits == 16 else 2)
    meta = {
        "arrays": data[1],
        "total": fields.total,
        "modelFeatures": len(fields.weights),
        "nExact": plan.n_features if plan.exact else 0,
        "noDifference": NO_DIFFERENCE,
        "dimensions": min(fields.points.shape[1], 3),
        "unit": _unit(model) if has_model else "",
        "decades": decades,
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
        kernel=escaped(rows[0][1]),
        notice=escaped(" ".join(notices)),
        error=escaped(error_text),
        facts="".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in rows),
        fields="".join(_label(k, own.name, own.values[: plan.n_points]) for k, own in enumerate(fields.own)),
        meta=json.dumps(meta | facts, separators=(",", ":")).replace("<", "\\u003c"),
        data=data[0],
    )


def _label(k: int, name: str, values: FloatArray) -> str:
    """The control that shows a field of the user."""
    missing = int(np.isnan(values).sum())
    about = f" <small>no value at {missing} of {len(values)} points</small>" if missing else ""
    control = f'<input type="radio" name="layer" value="own{k}">'
    return f"<label>{control}<span><b>{escaped(name)}</b>{about}</span></label>"


def _unit(model: ManifoldRandomFeatures) -> str:
    """The unit of the kernel; a factor changes it."""
    if not model.map_.kernel.per_volume and model.scale_ == 1:
        return "of the graph"
    return "" if model.scale_ != 1 or isinstance(model.kernel_, ScaledKernel) else "per unit of volume"


def _facts(model: Any, fields: Fields) -> list[tuple[str, str]]:
    """The rows of the model's summary, with 3 significant digits of long numbers, or a row about the space."""
    if isinstance(model, ManifoldRandomFeatures):
        short = functools.partial(re.sub, r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.3g}")
        _ = model.error_  # computed on first access
        return [(name, short(text)) for name, text in model._facts()]
    if fields.mesh is not None:
        return [("mesh", f"{fields.mesh.n_vertices} vertices, {_count(fields.mesh.n_faces, 'face')}")]
    return [("points", f"{_count(fields.total, 'point')} in {_count(fields.points.shape[1], 'dimension')}")]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
