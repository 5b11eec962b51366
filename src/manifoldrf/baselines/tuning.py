"""Search for the bandwidth of a baseline that is closest to a given kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from manifoldrf._runtime import without_warnings
from manifoldrf._validation import POSITIVE, FloatArray, check_points, check_vector, reject
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.geometry.neighbors import NeighborSearch, without_self
from manifoldrf.metrics import relative_error

__all__ = ["BandwidthSearch", "tune_bandwidth"]

_COARSE, _FINE = 20, 7  # size of the first grid, and of each refinement
_REFINEMENTS = 2  # each divides the spacing by 4: from about 30 % to about 2 %


@dataclass(frozen=True, eq=False)
class BandwidthSearch:
    """Result of a search over the bandwidth.

    Attributes
    ----------
    sigma : float
        The best value.
    error : float
        Relative Frobenius error of the kernel at the best value, after the alignment.
    table : tuple of (float, float)
        Every sigma of the search, in increasing order, and its error.
    features : estimator
        Fitted, with the best sigma.

    Examples
    --------
    >>> from manifoldrf.baselines import BandwidthSearch
    >>> BandwidthSearch(sigma=1.0, error=0.1, table=((1.0, 0.1),), features=None).sigma
    1.0
    """

    sigma: float
    error: float
    table: tuple[tuple[float, float], ...]
    features: Any


def tune_bandwidth(
    features: Any,
    X: ArrayLike,
    target: ArrayLike,
    *,
    points: ArrayLike | None = None,
    sigmas: ArrayLike | None = None,
    alignment: str | None = "frobenius",
) -> BandwidthSearch:
    """Choose the ``sigma`` of an estimator whose kernel is closest to a target.

    All values of sigma use the same random numbers, with seed 0 if the estimator has ``random_state=None``.
    Warnings about too few features are not shown; the errors in the table reveal them.

    Parameters
    ----------
    features : estimator
        An estimator with a parameter ``sigma``; it is cloned, not changed.
    X : array-like of shape (n, d)
        Data for the fit.
    target : array-like of shape (q, q)
        Values of the kernel between the points.
    points : array-like of shape (q, d), optional
        Points at which the kernels are compared; ``X`` by default.
    sigmas : array-like, optional
        Values to try. By default 20 values from half the median distance of nearest neighbours to the diagonal of
        the box around the data, then two refinements between the neighbours of the best.
    alignment : {"frobenius", "least squares"} or None, default="frobenius"
        As in :func:`relative_error`.

    Returns
    -------
    BandwidthSearch

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import Nystrom, tune_bandwidth
    >>> X = np.random.default_rng(0).standard_normal((60, 2))
    >>> target = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2) / (2 * 0.5**2))
    >>> bool(abs(tune_bandwidth(Nystrom(), X, target).sigma - 0.5) < 0.02)
    True
    """
    params = _check_estimator(features)
    data = check_points(X, "X")
    places = data if points is None else check_points(points, "points", n_columns=data.shape[1])
    reference = check_points(target, "target")
    if reference.shape != (len(places), len(places)):
        reject("target", f"of shape {(len(places), len(places))}, one row for each point", reference.shape)
    changes = {"random_state": 0} if params.get("random_state", 0) is None else {}
    errors: dict[float, float] = {}

    def fitted(sigma: float) -> Any:
        return clone(features).set_params(sigma=sigma, **changes).fit(data)

    def measure(values: FloatArray) -> float:
        """Measure the errors that are not known yet; returns the best sigma so far."""
        for sigma in map(float, values):
            if sigma not in errors:
                errors[sigma] = relative_error(fitted(sigma).kernel_matrix(places), reference, alignment=alignment)
        return min(sorted(errors), key=lambda sigma: errors[sigma])

    if sigmas is not None and (np.ndim(sigmas) != 1 or np.size(sigmas) == 0):
        reject("sigmas", "a vector of at least one number", f"shape {np.shape(sigmas)}")
    with without_warnings(FeatureWarning):
        grid = default_sigmas(data) if sigmas is None else check_vector(sigmas, "sigmas", np.size(sigmas), POSITIVE)
        best = measure(grid)
        for _ in range(_REFINEMENTS if sigmas is None else 0):
            tried = sorted(errors)
            at = tried.index(best)
            low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
            best = measure(np.geomspace(low, high, _FINE + 2)[1:-1])
        return BandwidthSearch(best, errors[best], tuple(sorted(errors.items())), fitted(best))


def _check_estimator(features: Any) -> dict[str, Any]:
    """Parameters of an estimator with a parameter ``sigma``."""
    is_estimator = hasattr(features, "get_params") and not isinstance(features, type)
    params: dict[str, Any] = features.get_params(deep=False) if is_estimator else {}
    if "sigma" not in params:
        reject("features", "an estimator with a parameter `sigma`", repr(features), TypeError)
    if params.get("kernel") is not None:
        reject("features", "without a kernel of its own, which does not depend on `sigma`", repr(features))
    return params


def default_sigmas(points: FloatArray) -> FloatArray:
    """A logarithmic grid from half the median distance of nearest neighbours to the diagonal of the box.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines.tuning import default_sigmas
    >>> default_sigmas(np.arange(11.0)[:, None])[[0, -1]].tolist()
    [0.5, 10.0]
    """
    widest = float(np.linalg.norm(np.ptp(points, axis=0)))
    if not widest > 0:
        reject("X", "at least two different points, or give `sigmas`", f"{len(points)} equal point(s)")
    gaps = without_self(*NeighborSearch(points).knn(points, 2))[0]
    gaps = gaps[gaps > 0]  # ignore points that coincide
    narrowest = float(np.median(gaps)) / 2 if gaps.size else widest / 100
    return np.geomspace(narrowest, widest, _COARSE)
