"""Features as tensors, with gradients with respect to positions and parameters of the kernel."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, logsumexp
from sklearn.utils.validation import check_is_fitted

from manifoldrf._runtime import require, warn_user
from manifoldrf._validation import POSITIVE, FloatArray, check_jobs, check_real, reject
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.times import FAR, PreparedPoints, TimeRange, check_range_kernel
from manifoldrf.geometry.csr import as_dense
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.named_kernels import HeatKernel, MaternKernel

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:  # without torch the error names the extra
    torch = require("torch", "torch")
    Tensor, nn = torch.Tensor, torch.nn


FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Relative step of central differences: its square and the rounding error over it are both 4e-11.
STEP = float(np.finfo(np.float64).eps ** (1 / 3))

# Values (q, c) at points (q, d) for parameters (k,), and their derivatives with respect to these, (k, q, c).
Function = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]


def check_tensor(tensor: Any, name: str, n_dimensions: int, types: Sequence[torch.dtype] = FLOATS) -> None:
    """Refuse all but tensors of these types with at least ``n_dimensions`` dimensions."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in types or tensor.layout != torch.strided:
        given = f"{tensor.dtype}, {tensor.layout}" if isinstance(tensor, Tensor) else type(tensor).__name__
        reject(name, f"a dense tensor of {', '.join(map(str, types))}", given, TypeError)
    if tensor.ndim < n_dimensions:
        reject(name, f"a tensor of at least {n_dimensions} dimension(s)", f"shape {tuple(tensor.shape)}")


def wide(tensor: Tensor) -> Tensor:
    """A tensor in at least single precision, because sums in half precision lose their digits."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def as_places(tensor: Tensor) -> FloatArray:
    """Convert a tensor to an array in double precision."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def check_fitted(features: Any) -> ManifoldRandomFeatures:
    """Fitted features of one side."""
    if not isinstance(features, ManifoldRandomFeatures):
        reject("features", "fitted ManifoldRandomFeatures", type(features).__name__, TypeError)
    check_is_fitted(features, "map_")
    if features.asymmetric_:
        reject("features", "of a kernel with nonnegative features, not one with two sides", features.kernel_)
    return features


class Differentiated(torch.autograd.Function):
    """Values of a NumPy function. Gradients with respect to points are central differences in double precision.

    One rule serves every feature map. Exact derivatives would need code for each rule, graph and mesh. Differences
    are accurate to 1e-9 where features are smooth, and cost two evaluations per axis.
    """

    @staticmethod
    def forward(
        ctx: Any, points: Tensor, parameters: Tensor, function: Function, length: float, share: float
    ) -> Tensor:
        """Values at points (q, d), shape (q, c).

        ``length`` is the scale on which the function changes, ``share`` the step of differences relative to it.
        """
        ctx.places, ctx.parameters, ctx.function = as_places(points), as_places(parameters), function
        ctx.length, ctx.step = length, length * share
        ctx.values, ctx.slopes = function(ctx.places, ctx.parameters)
        return points.new_tensor(ctx.values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Gradients with respect to the points and the parameters."""
        outer = as_places(gradient)
        by_points, by_parameters = None, None
        if ctx.needs_input_grad[0]:
            axes = range(ctx.places.shape[1])
            inner = [(outer * Differentiated.slope(ctx, axis)).sum(axis=1) for axis in axes]
            by_points = gradient.new_tensor(np.stack(inner, axis=1))
        if ctx.needs_input_grad[1]:
            by_parameters = gradient.new_tensor([(outer * slopes).sum() for slopes in ctx.slopes])
        return by_points, by_parameters, None, None, None

    @staticmethod
    def slope(ctx: Any, axis: int) -> FloatArray:
        """Derivative along one axis, shape (q, c); at a jump, that on the continuous side."""
        ends = []
        for sign in (1.0, -1.0):
            moved = ctx.places.copy()
            moved[:, axis] += sign * ctx.step
            gap = moved[:, axis] - ctx.places[:, axis]  # the step after rounding
            values = ctx.function(moved, ctx.parameters)[0]
            ends.append((values - ctx.values) / np.where(gap == 0, np.inf, gap)[:, None])
        # Slopes that differ by more are jumps, for example where the list of nearest nodes changes. A Gaussian of
        # height and width one has slopes of at most .6, the window at the end of the space about 10.
        limit = 30.0 * np.abs(ctx.values).max(axis=1, initial=0.0, keepdims=True) / ctx.length
        smaller = np.where(np.abs(ends[0]) < np.abs(ends[1]), *ends)
        return np.asarray(np.where(np.abs(ends[0] - ends[1]) <= limit, (ends[0] + ends[1]) / 2, smaller))


def dense_features(features: Any, points: Tensor) -> Tensor:
    """Features of points (q, d) by a fitted transformer, in the precision of the points, and differentiable."""
    known = isinstance(features, ManifoldRandomFeatures)
    if not len(points):
        return points.new_zeros(0, features.n_features_out_ if known else len(features.get_feature_names_out()))
    if not points.requires_grad:
        return points.new_tensor(as_dense(features.transform(as_places(points))))
    if not known:
        rule = f"without gradients, which {type(features).__name__} does not provide"
        reject("positions", rule, "requires_grad=True")
    jobs = check_jobs(features.n_jobs)

    def rows(places: FloatArray, _: FloatArray) -> tuple[FloatArray, FloatArray]:
        inside = features._check_queries(places, "positions")[0]  # wraps steps that leave a periodic box
        return as_dense(features.map_.rows(inside, jobs)[0]), np.zeros((0, 1, 1))

    share = step_share(features)
    width = features.map_.kernel.width
    found: Tensor = Differentiated.apply(points, points.new_zeros(0), rows, width, share)  # type: ignore[no-untyped-call]
    return found


def step_share(features: Any) -> float:
    """The step of central differences over the width of the features."""
    metric = features.graph_.metric
    if metric is not None and not all(metric.box or (0.0,)):
        if features.training_ is not None:
            reject("features", "without a network, for gradients on a manifold as metric", metric)
        return 2e-7  # points farther from the manifold than 1e-6 are refused
    # A network computes in single precision, and has kinks where a shortest path changes.
    return STEP if features.training_ is None else float(np.finfo(np.float32).eps ** 0.5)


def features_at(features: Any, positions: Tensor, like: Tensor) -> Tensor:
    """Features of positions (..., L, d), up to a factor that makes them at most 1."""
    rows = dense_features(features, positions.reshape(-1, positions.shape[-1]))
    if isinstance(features, ManifoldRandomFeatures):
        rows = rows / float(features.bound_.max())
    return rows.reshape(*positions.shape[:-1], rows.shape[-1]).to(like)


class DifferentiableFeatures(nn.Module):
    """Features with gradients with respect to the parameters of the kernel and the positions.

    ``module(points)`` are features phi with phi(x) . phi(y) = variance K(x, y). For a fit with ``times`` the
    parameters are the time ``t`` of a heat kernel, which stays in the range of the fit, or ``nu`` and
    ``lengthscale`` of a Matern kernel; otherwise the kernel is fixed and ``variance`` is the only parameter.

    Parameters
    ----------
    features : ManifoldRandomFeatures
        Fitted. It is not part of the ``state_dict``: save it with :meth:`ManifoldRandomFeatures.save`.
    kernel : float, HeatKernel or MaternKernel, optional
        Initial time or kernel; that of the features by default.
    variance : float, default=1.0
        Initial factor of the kernel.

    Notes
    -----
    Parameters are in single precision; ``module.double()`` changes that. Features have the type of the points.
    Points in half precision are summed in single precision. Features are evaluated on the CPU and moved to the
    device of the module, where the points must be. Gradients with respect to positions are central differences in
    the ambient space in double precision, accurate to 1e-9 where features are smooth. Between two octaves of t,
    features of both are blended in the first sixth of the second, so that the kernel and its gradient are
    continuous; there the kernel is within the error of both, not equal to that of ``features.at(t)``. If training
    leads to a Matern kernel that the range of the fit does not cover, a :class:`ManifoldWarning` is given once, and
    the sum over the octaves of the range is used.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf import ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.torch import DifferentiableFeatures
    >>> features = ManifoldRandomFeatures(times=(0.1, 0.8), random_state=0).fit(Sphere())
    >>> module = DifferentiableFeatures(features, 0.2)
    >>> points = torch.as_tensor(Sphere().sample(5, seed=1))
    >>> module.kernel(points).sum().backward()
    >>> round(module.t.item(), 4), module.raw_t.grad is not None
    (0.2, True)
    """

    log_range: Tensor

    def __init__(self, features: ManifoldRandomFeatures, kernel: Any = None, *, variance: float = 1.0) -> None:
        super().__init__()
        self.features = check_fitted(features)
        self.family: TimeRange | None = getattr(features, "times_", None)
        self.log_variance = nn.Parameter(torch.tensor(math.log(check_real(variance, "variance", POSITIVE))))
        self.is_matern = False
        self._warned = False
        # Training uses the same points again and again: their tables are kept. Heads of attention share them.
        self.kept: dict[str, Any] = {}
        if self.family is None:
            if kernel is not None:
                reject("kernel", "None unless the features were fitted with `times`", repr(kernel))
            return
        start = features.kernel_ if kernel is None else kernel
        if isinstance(start, AbstractKernel):
            check_range_kernel(start, TypeError)
        if isinstance(start, MaternKernel):
            self.is_matern = True
            self.family.shares(start)  # refuses a kernel that the range does not hold
            self.log_nu = nn.Parameter(torch.tensor(math.log(start.nu)))
            self.log_lengthscale = nn.Parameter(torch.tensor(math.log(start.lengthscale)))
        else:
            t = start.t if isinstance(start, HeatKernel) else check_real(start, "kernel", POSITIVE)
            self.family.number(t)  # refuses a time out of the range
            # Part of the state, so that the same state means the same time with another fit.
            low, high = math.log(self.family.shortest), math.log(self.family.longest)
            self.register_buffer("log_range", torch.tensor([low, high], dtype=torch.float64))
            share = min(
                max((math.log(t) - low) / (high - low), 1e-6), 1 - 1e-6
            )  # a sigmoid does not reach its ends
            self.raw_t = nn.Parameter(torch.tensor(math.log(share / (1 - share))))

    def extra_repr(self) -> str:
        """The kernel, for printing."""
        return f"{self.as_kernel()}, variance={self.variance.item():.4g}"

    @property
    def variance(self) -> Tensor:
        """Factor of the kernel."""
        return wide(self.log_variance).exp()

    @property
    def t(self) -> Tensor:
        """Time of the heat kernel."""
        return self._parameters_of("t")[0].exp()

    @property
    def nu(self) -> Tensor:
        """Smoothness of the Matern kernel."""
        return self._parameters_of("nu")[0].exp()

    @property
    def lengthscale(self) -> Tensor:
        """Length scale of the Matern kernel."""
        return self._parameters_of("lengthscale")[1].exp()

    def _parameters_of(self, name: str) -> Tensor:
        """Logarithms of the time, or of smoothness and length scale."""
        if self.family is None:
            raise ValueError("These features have one fixed kernel: fit them with `times` to change it.")
        if self.is_matern != (name != "t"):
            own = "`nu` and `lengthscale`" if self.is_matern else "`t`"
            raise ValueError(f"The kernel of this module has no `{name}`, but {own}.")
        if self.is_matern:
            return torch.stack([wide(self.log_nu), wide(self.log_lengthscale)])
        raw = wide(self.raw_t)
        low, high = self.log_range.to(raw)
        found: Tensor = (low + (high - low) * torch.sigmoid(raw)).reshape(1)
        return found

    def as_kernel(self) -> AbstractKernel:
        """The kernel with the current values of the parameters, without the variance."""
        if self.family is None:
            kernel: AbstractKernel = self.features.kernel_
            return kernel
        if self.is_matern:
            return MaternKernel(self.nu.item(), self.lengthscale.item(), clock="manifold")
        return HeatKernel(self._inside(self.t.item()))

    def _inside(self, t: float) -> float:
        """The time, moved back into the range if rounding to the type of the module led out of it."""
        family: Any = self.family
        inside = min(max(t, family.shortest), family.longest)
        return inside if abs(t - inside) < max(1e-5, 4 * torch.finfo(self.log_range.dtype).eps) * t else t

    def forward(self, points: Tensor) -> Tensor:
        """Features of points (..., d), shape (..., m): those of all octaves side by side, 0 if not in use."""
        rows, numbers = self._rows(points)
        if self.family is None or len(numbers) == len(self.family.levels):
            return rows.to(points.dtype)
        sizes = [len(level.anchors) for level in self.family.levels]
        parts = dict(zip(numbers, torch.split(rows, [sizes[number] for number in numbers], dim=-1), strict=True))
        columns = [parts.get(k, rows.new_zeros(*rows.shape[:-1], size)) for k, size in enumerate(sizes)]
        return torch.cat(columns, dim=-1).to(points.dtype)

    def root(self, points: Tensor) -> Tensor:
        """Features without the columns of octaves that are not in use, at least in single precision."""
        return self._rows(points)[0]

    def kernel(self, points: Tensor, others: Tensor | None = None) -> Tensor:
        """Kernel between points (..., q, d) and others (..., r, d), by default the points themselves."""
        left = self.root(points)
        right = left if others is None else self.root(others)
        return (left @ right.transpose(-1, -2)).to(points.dtype)

    def _rows(self, points: Tensor) -> tuple[Tensor, list[int]]:
        """Features of the octaves in use side by side, and the numbers of these octaves."""
        check_tensor(points, "points", 1)
        d = self.features.n_features_in_
        if points.shape[-1] != d:
            reject("points", f"a tensor of shape (..., {d})", f"shape {tuple(points.shape)}")
        if points.device != self.log_variance.device:
            reject("points", f"on the device of the module, {self.log_variance.device}", f"device {points.device}")
        dtype = torch.promote_types(wide(points).dtype, self.log_variance.dtype)
        flat = points.reshape(-1, d).to(dtype)
        if self.family is None:
            rows, numbers = dense_features(self.features, flat), [0]
        else:
            rows, numbers = self._rows_of_times(flat, self.family)
        scale = (0.5 * wide(self.log_variance)).exp()
        return (scale * rows).reshape(*points.shape[:-1], rows.shape[-1]), numbers

    def _rows_of_times(self, flat: Tensor, family: TimeRange) -> tuple[Tensor, list[int]]:
        parameters = self._parameters_of("nu" if self.is_matern else "t")
        normalize, jobs = bool(self.features.normalize), check_jobs(self.features.n_jobs)
        if self.is_matern:
            self._warn_of_range(family)
            numbers = list(range(len(family.levels)))
        else:
            numbers = [number for number, _, _ in family.parts(self._inside(math.exp(parameters.item())))]
        if not len(flat):
            width = sum(len(family.levels[number].anchors) for number in numbers)
            return flat.new_zeros(0, width), numbers
        raw = as_places(flat)
        own, _ = self.features._check_queries(raw, "points")
        if self.kept.get("family") is not family or not np.array_equal(self.kept["points"], own):
            prepared = PreparedPoints(family, own, normalize, jobs, warn=not flat.requires_grad)
            self.kept |= {"family": family, "points": own, "prepared": prepared}
        kept = self.kept["prepared"]

        def rows(places: FloatArray, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
            given = np.array_equal(places, raw)
            inside = own if given else self.features._check_queries(places, "points")[0]
            prepared = kept if given else PreparedPoints(family, inside, normalize, jobs)
            if self.is_matern:
                return _matern_rows(prepared, logs)
            found, slopes = prepared.smooth(self._inside(math.exp(logs[0])))
            return np.maximum(found, 0.0), np.where(found > 0, slopes, 0.0)[None]

        length = math.sqrt(family.levels[numbers[0]].shortest)
        share = step_share(self.features)
        found: Tensor = Differentiated.apply(flat, parameters, rows, length, share)  # type: ignore[no-untyped-call]
        return found, numbers

    def _warn_of_range(self, family: TimeRange) -> None:
        """Warn once if training has led to a kernel that the range does not hold."""
        try:
            family.shares(self.as_kernel())  # type: ignore[arg-type]
        except ValueError as error:
            if not self._warned:
                text = "The sum over the octaves of the range, which is used, is not the Matern kernel"
                warn_user(f"{text}: {error}")
            self._warned = True


def _matern_rows(prepared: PreparedPoints, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Features of a Matern kernel, a sum over octaves, and derivatives in log nu and log lengthscale."""
    shares = _log_shares(prepared, logs)
    changes = [
        (_log_shares(prepared, logs + shift) - _log_shares(prepared, logs - shift)) / (2 * STEP)
        for shift in STEP * np.eye(2)
    ]
    blocks = [math.exp(share / 2) * prepared.blocks(number, 1)[0] for number, share in enumerate(shares)]
    slopes = [np.hstack([change / 2 * block for change, block in zip(row, blocks, strict=True)]) for row in changes]
    return np.hstack(blocks), np.stack(slopes)


def _log_shares(prepared: PreparedPoints, logs: FloatArray) -> FloatArray:
    """Logarithms of the weights of the octaves in the Matern kernel, as in :meth:`TimeRange.shares`.

    Logarithms, because the root of a factor that underflows has no derivative.
    """
    levels = prepared.family.levels
    nu, lengthscale = np.exp(logs)
    octaves = np.arange(-FAR, len(levels) + FAR)
    log_times = math.log(levels[0].shortest) + math.log(2) * octaves
    power = nu + levels[0].kernel.dim / 2
    terms = math.log(math.log(2)) + power * log_times - gammaln(power)
    terms -= 2 * nu / lengthscale**2 * np.exp(log_times)
    places = np.clip(octaves, 0, len(levels) - 1)
    found = np.array([logsumexp(terms[places == number]) for number in range(len(levels))])
    if prepared.normalize:
        found -= logsumexp(found + np.log([level.height(level.shortest) for level in levels]))
    return found
