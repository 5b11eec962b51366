"""The heat kernel of a space as a kernel of scikit-learn's Gaussian processes, with the time as hyperparameter."""

import hashlib
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import POSITIVE, FloatArray, check_jobs, check_real, reject
from manifoldrf.applications.regression import parts_of
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.rules import product
from manifoldrf.features.scales import PreparedPoints, Scales
from manifoldrf.features.scales import check_times as check_scales
from manifoldrf.kernels.manifold_kernels import HeatKernel

__all__ = ["ManifoldScaleKernel"]

_KEPT = 2  # sets of points whose features are kept: training points of two parts of the data


class ManifoldScaleKernel(Kernel):  # type: ignore[misc]
    """The heat kernel of a space for ``sklearn.gaussian_process``, with a time that is learnt.

    K_t(x, y) = phi_t(x) . phi_t(y) with the features of one fit to a range of times. The kernel and its gradient
    are continuous in t: after the end of an octave, where features switch to other anchors, it is a mean of both
    for a sixth of an octave. Features of training points are evaluated once, so a new time costs only products.

    Parameters
    ----------
    features : ManifoldRandomFeatures
        Fitted with ``scales``. Clones of the kernel share them. With its ``normalize``, K(x, x) is one on average;
        multiply the kernel by a ``ConstantKernel`` to learn the variance.
    t : float, optional
        Heat time, in units of length squared; by default that of the features, or the middle of their range.
    t_bounds : pair of float or "fixed", optional
        Where the time is searched; by default the range of the fit.

    Notes
    -----
    Off the space the kernel is zero, with a :class:`FarQueryWarning`: there the standard deviation of a prediction
    is that of the other kernels of the sum alone. :class:`ManifoldGaussianProcess` returns to its prior instead,
    and needs O(n m^2) time where ``GaussianProcessRegressor`` needs O(n^3).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
    >>> from manifoldrf import ManifoldRandomFeatures, ManifoldScaleKernel, Sphere
    >>> features = ManifoldRandomFeatures(times=(0.1, 0.8), random_state=0).fit(Sphere())
    >>> points = Sphere().sample(250, seed=1)
    >>> values = np.sin(3 * points[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=250)
    >>> kernel = ConstantKernel() * ManifoldScaleKernel(features) + WhiteKernel(1e-3)
    >>> model = GaussianProcessRegressor(kernel).fit(points[:200], values[:200])
    >>> model.kernel_.k1.k2
    ManifoldScaleKernel(t=0.243)
    >>> bool(np.abs(model.predict(points[200:]) - np.sin(3 * points[200:, 0])).mean() < 0.05)
    True
    """

    def __init__(self, features: ManifoldRandomFeatures, t: float | None = None, t_bounds: Any = None) -> None:
        self.features = features
        self.t = t
        self.t_bounds = t_bounds
        self._kept: dict[bytes, PreparedPoints] = {}

    def __sklearn_clone__(self) -> Self:
        """A kernel with the same fitted features; clones share what was evaluated at training points."""
        other = type(self)(**self.get_params())
        other._kept = self._kept
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be evaluated again."""
        return vars(self) | {"_kept": {}}

    def __repr__(self) -> str:
        """The class and the time; the default would show its logarithm."""
        time = format(self.t, ".3g") if isinstance(self.t, Real) else repr(self.t)
        return f"{type(self).__name__}({'' if self.t is None else f't={time}'})"

    @property
    def hyperparameter_t(self) -> Hyperparameter:
        """The time and its bounds, for scikit-learn."""
        family, bounds = self._family(), self.t_bounds
        if bounds is None:
            bounds = family.shortest, family.longest
        elif not (isinstance(bounds, str) and bounds == "fixed"):
            try:
                for end in check_scales(bounds):
                    family.number(end)
            except (TypeError, ValueError) as error:
                rule = f"None, 'fixed' or a pair of times in the range {family.shortest:g} to {family.longest:g}"
                kind = TypeError if isinstance(error, TypeError) else ValueError
                reject("t_bounds", f"{rule}, the shorter one first", repr(bounds), kind)
        return Hyperparameter("t", "numeric", bounds)

    @property
    def theta(self) -> FloatArray:
        """The logarithm of the time, shape (1,), or (0,) for a fixed one."""
        return np.log([] if self.hyperparameter_t.fixed else [self._time()])

    @theta.setter
    def theta(self, theta: FloatArray) -> None:
        if not self.hyperparameter_t.fixed:
            self.t = float(np.exp(theta[0]))

    @one_blas_thread()
    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:  # noqa: FBT001, FBT002
        """The kernel between points, and with ``eval_gradient`` its derivative by log t.

        Parameters
        ----------
        X : array-like of shape (q, d)
        Y : array-like of shape (p, d), optional
        eval_gradient : bool
            Only without ``Y``.

        Returns
        -------
        kernel : array of shape (q, q) or (q, p)
        gradient : array of shape (q, q, 1), or (q, q, 0) for a fixed time
        """
        if Y is not None:
            if eval_gradient:
                reject("eval_gradient", "False with Y", "True")
            rows, jobs = self._prepared(Y).smooth(self._time())[0], check_jobs(self.features.n_jobs)
            return np.concatenate([product(part, rows, jobs) for part in self._parts(X)])
        kernel, gradient = self._prepared(X).smooth_kernel(self._time())
        if not eval_gradient:
            return kernel
        return kernel, gradient[..., None] if self.n_dims else np.zeros((*kernel.shape, 0))

    @one_blas_thread()
    def diag(self, X: Any) -> FloatArray:
        """K(x, x) for each point, shape (q,)."""
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in self._parts(X)])

    def is_stationary(self) -> bool:
        """False: the kernel is not a function of x - y."""
        return False

    def _family(self) -> Scales:
        if not isinstance(self.features, ManifoldRandomFeatures):
            reject("features", "ManifoldRandomFeatures", repr(self.features), TypeError)
        return self.features._family()

    def _time(self) -> float:
        family = self._family()
        if self.t is not None:
            return check_real(self.t, "t", POSITIVE)
        kernel = self.features.kernel_
        return kernel.t if isinstance(kernel, HeatKernel) else float(np.sqrt(family.shortest * family.longest))

    def _prepared(self, X: Any) -> PreparedPoints:
        """Points whose features are kept, because those of training points are needed again for each time."""
        self._family()  # refuses other features
        found = self.features.prepare(X)
        key = hashlib.sha256(found.points.tobytes() + repr(found.points.shape).encode()).digest()
        kept = self._kept.pop(key, found)
        if kept.scales is found.scales and kept.normalize == found.normalize:  # of the same features
            found = kept
        self._kept[key] = found  # the last place
        for old in list(self._kept)[:-_KEPT]:
            self._kept.pop(old, None)
        return found

    def _parts(self, X: Any) -> Any:
        """Features of points that are not kept, in blocks that fit into memory."""
        t, prepared = self._time(), self.features.prepare(X)
        levels = [prepared.scales.levels[number] for number, _, _ in prepared.scales.parts(t)]
        for part in parts_of(prepared.points, sum(len(level.steps) * len(level.anchors) for level in levels)):
            yield replace(prepared, points=part).smooth(t)[0]
