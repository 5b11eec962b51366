"""Features as a torch module whose parameters are the scale, the smoothness and the variance of the kernel."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manifoldrf._runtime import require, warn_user
from manifoldrf._validation import POSITIVE, FloatArray, check_jobs, check_real, reject
from manifoldrf.applications.positions import FLOATS, Probe, Probed, as_places, check_tensor, wide
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.rules import JoinedSteps, WalkStep
from manifoldrf.features.state import shortened
from manifoldrf.features.times import BLEND, FAR, PreparedPoints, TimeLevel, TimeRange
from manifoldrf.geometry.csr import as_dense
from manifoldrf.geometry.heat import HeatExtension
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:  # without torch the error names the extra
    torch = require("torch", "torch")
    Tensor, nn = torch.Tensor, torch.nn

__all__ = ["DifferentiableFeatures", "FrozenFeatures"]

_ROUNDING = 1e-5  # of times at the ends of the range, in single precision
_INSIDE = 1e-6  # of the range of log t: a sigmoid does not reach its ends


class DifferentiableFeatures(nn.Module):
    """Features with gradients by the parameters of the kernel and by the positions.

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
    Points in half precision are summed in single precision. Neighbours of points are searched on the CPU; sums are
    on the device of the module, where the points must be. Gradients by positions are central differences in double
    precision, accurate to 1e-9 where the field is smooth, in the ambient space. Between two octaves of t, features
    of both are blended in the first sixth of the second, so that the kernel and its gradient are continuous; there
    the kernel is within the error of both, not equal to that of ``features.at(t)``. Where training leads to a
    Matern kernel that the range of the fit does not hold, a :class:`FeatureWarning` says so once, and the sum over
    the octaves of the range is used.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf import ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.applications.differentiable import DifferentiableFeatures
    >>> features = ManifoldRandomFeatures(times=(0.1, 0.8), random_state=0).fit(Sphere())
    >>> module = DifferentiableFeatures(features, 0.2)
    >>> points = torch.as_tensor(Sphere().sample(5, seed=1))
    >>> module.kernel(points).sum().backward()
    >>> round(module.t.item(), 4), module.raw_t.grad is not None
    (0.2, True)
    """

    def __init__(self, features: ManifoldRandomFeatures, kernel: Any = None, *, variance: float = 1.0) -> None:
        super().__init__()
        if not isinstance(features, ManifoldRandomFeatures):
            reject("features", "fitted ManifoldRandomFeatures", type(features).__name__, TypeError)
        check_is_fitted(features, "map_")
        if features.asymmetric_:
            reject(
                "features",
                "of a kernel with nonnegative features, not one with two sides",
                shortened(features.kernel_),
            )
        self.features = features
        self.scales: TimeRange | None = getattr(features, "times_", None)
        self.log_range: Tensor
        self.kept = KeptTables()
        self._warned = False
        self.log_variance = nn.Parameter(torch.tensor(math.log(check_real(variance, "variance", POSITIVE))))
        if self.scales is None:
            if kernel is not None:
                reject("kernel", "None unless the features were fitted with `times`", repr(kernel))
            self.octaves = nn.ModuleList()
            self.is_matern = False
            return
        start = features.kernel_ if kernel is None else kernel
        self.octaves = nn.ModuleList(_Octave(level) for level in self.scales.levels)
        self.is_matern = isinstance(start, MaternKernel)
        if self.is_matern:
            self.scales.shares(start)  # refuses a kernel that the range does not hold
            self.log_nu = nn.Parameter(torch.tensor(math.log(start.nu)))
            self.log_lengthscale = nn.Parameter(torch.tensor(math.log(start.lengthscale)))
        else:
            t = start.t if isinstance(start, HeatKernel) else check_real(start, "kernel", POSITIVE)
            self.scales.number(t)
            # Part of the state: the same state must be the same time, also with another fit.
            low, high = math.log(self.scales.shortest), math.log(self.scales.longest)
            self.register_buffer("log_range", torch.tensor([low, high], dtype=torch.float64))
            share = min(max((math.log(t) - low) / (high - low), _INSIDE), 1 - _INSIDE)
            self.raw_t = nn.Parameter(torch.tensor(math.log(share / (1 - share))))

    def extra_repr(self) -> str:
        """The kernel, for printing."""
        return f"{self.as_kernel()}, variance={self.variance.item():.4g}"

    def _family(self) -> TimeRange:
        if self.scales is None:
            raise ValueError("These features have one fixed kernel: fit them with `times` to change it.")
        return self.scales

    @property
    def variance(self) -> Tensor:
        """Factor of the kernel."""
        return wide(self.log_variance).exp()

    @property
    def t(self) -> Tensor:
        """Time of the heat kernel."""
        return self._log_t.exp()

    @property
    def _log_t(self) -> Tensor:
        self._family()
        if self.is_matern:
            raise ValueError("This module has a Matern kernel, whose parameters are `nu` and `lengthscale`.")
        raw = wide(self.raw_t)
        low, high = self.log_range.to(raw)
        found: Tensor = low + (high - low) * torch.sigmoid(raw)
        return found

    @property
    def nu(self) -> Tensor:
        """Smoothness of the Matern kernel."""
        self._need_matern()
        return wide(self.log_nu).exp()

    @property
    def lengthscale(self) -> Tensor:
        """Length scale of the Matern kernel."""
        self._need_matern()
        return wide(self.log_lengthscale).exp()

    def _need_matern(self) -> None:
        if not self.is_matern:
            raise ValueError("This module has no Matern kernel: make it with one as `kernel`.")

    def as_kernel(self) -> AbstractKernel:
        """The kernel with the current values of the parameters, without the variance."""
        if self.scales is None:
            kernel: AbstractKernel = self.features.kernel_
            return kernel
        if self.is_matern:
            return MaternKernel(self.nu.item(), self.lengthscale.item(), clock="manifold")
        t, ends = self.t.item(), (self.scales.shortest, self.scales.longest)
        inside = min(max(t, ends[0]), ends[1])
        return HeatKernel(inside if abs(t - inside) < _ROUNDING * t else t)

    def forward(self, points: Tensor) -> Tensor:
        """Features of points (..., d), shape (..., m): those of all octaves side by side, 0 if not in use."""
        parts = dict(self._parts(points))
        sizes = (
            [len(level.anchors) for level in self.scales.levels] if self.scales else [self.features.n_features_out_]
        )
        like = next(iter(parts.values()))
        columns = [parts[k] if k in parts else like.new_zeros(*like.shape[:-1], m) for k, m in enumerate(sizes)]
        return torch.cat(columns, dim=-1).to(points.dtype)

    def root(self, points: Tensor) -> Tensor:
        """Features without the columns of octaves that are not in use, at least in single precision."""
        return torch.cat([rows for _, rows in self._parts(points)], dim=-1)

    def kernel(self, points: Tensor, others: Tensor | None = None) -> Tensor:
        """Kernel between points (..., q, d) and others (..., r, d), by default the points themselves."""
        left = self.root(points)
        right = left if others is None else self.root(others)
        return (left @ right.transpose(-1, -2)).to(points.dtype)

    def _parts(self, points: Tensor) -> list[tuple[int, Tensor]]:
        """Features of the octaves in use, with their numbers."""
        self._check(points)
        flat = points.reshape(-1, points.shape[-1])
        rows = self._rows(flat)
        scale = (0.5 * wide(self.log_variance)).exp()
        return [(number, (scale * part).reshape(*points.shape[:-1], -1)) for number, part in rows]

    def _check(self, points: Any) -> None:
        d = self.features.n_features_in_
        check_tensor(points, "points", 0, FLOATS)
        if points.ndim < 1 or points.shape[-1] != d:
            reject("points", f"a tensor of shape (..., {d})", f"shape {tuple(points.shape)}")
        if points.device != self.log_variance.device:
            reject("points", f"on the device of the module, {self.log_variance.device}", f"device {points.device}")

    def _rows(self, points: Tensor) -> list[tuple[int, Tensor]]:
        if self.scales is None:
            found = self._evaluated(points, self._fixed_rows, self.features.map_.kernel.width)
            return [(0, found)]
        if self.is_matern:
            return self._matern_rows(points)
        log_t, parts = self._log_t, []
        for number, share in self._blend(log_t):
            octave: Any = self.octaves[number]
            factors = octave.coefficients(log_t)
            blocks = self._blocks(points, number)
            rows = torch.einsum("k,qkm->qm", factors.to(blocks), blocks).clamp_min(0.0)
            height = factors @ octave.heights.to(factors) @ factors if self.features.normalize else None
            parts.append((number, rows * (share if height is None else share * height.rsqrt())))
        return parts

    def _blend(self, log_t: Tensor) -> list[tuple[int, Tensor]]:
        """Numbers of the octaves in use, and the factors of their features; the squares sum to one."""
        family = self._family()
        number = family.number(self.as_kernel().t)  # type: ignore[attr-defined]  # raises out of the range
        above = (log_t - math.log(family.levels[number].shortest)) / (BLEND * math.log(2.0))
        if number == 0 or above.item() >= 1:
            return [(number, torch.ones_like(log_t))]
        angle = above.clamp_min(0.0) * math.pi / 2
        return [(number - 1, torch.cos(angle)), (number, torch.sin(angle))]

    def _matern_rows(self, points: Tensor) -> list[tuple[int, Tensor]]:
        try:
            self._family().shares(self.as_kernel())  # type: ignore[arg-type]
        except ValueError as error:  # a step of training may leave the range for a while
            if not self._warned:
                text = "The range holds only a part of the Matern kernel, and the sum over its octaves is used"
                warn_user(f"{text}: {error}", FeatureWarning)
            self._warned = True
        logs, parts = self._log_shares(), []
        if self.features.normalize:
            heights = torch.stack([octave.heights[0, 0] for octave in self.octaves])  # type: ignore[index]
            logs = logs - torch.logsumexp(logs + heights.to(logs).log(), 0)
        for number, root in enumerate((logs / 2).exp()):
            parts.append((number, root * self._blocks(points, number, 1)[:, 0]))
        return parts

    def _log_shares(self) -> Tensor:
        """Logarithms of the factors of the octaves, whose sum is the Matern kernel, as in :meth:`TimeRange.shares`.

        Logarithms, because the root of a factor that underflows has no gradient.
        """
        levels = self._family().levels
        count, nu = len(levels), self.nu
        octaves = torch.arange(-FAR, count + FAR, device=nu.device, dtype=nu.dtype)
        log_times = math.log(levels[0].shortest) + math.log(2.0) * octaves
        power = nu + levels[0].kernel.dim / 2
        rate = 2 * nu / self.lengthscale**2
        logs = math.log(math.log(2.0)) + power * log_times - rate * log_times.exp() - torch.lgamma(power)
        ends = FAR + 1, FAR + count - 1
        if count == 1:
            return torch.logsumexp(logs, 0, keepdim=True)
        first, last = torch.logsumexp(logs[: ends[0]], 0, True), torch.logsumexp(logs[ends[1] :], 0, True)  # noqa: FBT003
        return torch.cat([first, logs[ends[0] : ends[1]], last])

    def _blocks(self, points: Tensor, number: int, n_tables: int | None = None) -> Tensor:
        """Features of the tables of an octave, all or the first few, (q, k, m)."""
        level = self._family().levels[number]

        def values(places: FloatArray) -> FloatArray:
            blocks = self._at(places, warn=not points.requires_grad).blocks(number, n_tables)
            return np.moveaxis(blocks, 0, 1).reshape(len(places), -1)

        if points.requires_grad:
            found = self._evaluated(points, values, math.sqrt(level.shortest))
        else:
            kept = self.kept.at(points)
            key = number, n_tables
            if key not in kept:
                kept[key] = self._evaluated(points, values, math.sqrt(level.shortest))
            found = kept[key]
        return found.reshape(len(points), -1, len(level.anchors))

    def _fixed_rows(self, places: FloatArray) -> FloatArray:
        rows = self.features.map_.rows(places, check_jobs(self.features.n_jobs))[0]
        return as_dense(rows)

    def _evaluated(self, points: Tensor, values: Callable[[FloatArray], FloatArray], width: float) -> Tensor:
        """Values of a function of the positions, with gradients if they are needed."""
        dtype = torch.promote_types(torch.promote_types(points.dtype, self.log_variance.dtype), torch.float32)
        places, _ = self.features._check_queries(as_places(points))
        if points.requires_grad:
            found: Tensor = Probed.apply(points.to(dtype), Probe(values, width))  # type: ignore[no-untyped-call]
            return found
        return torch.as_tensor(values(places), dtype=dtype, device=points.device)

    def _at(self, places: FloatArray, *, warn: bool) -> PreparedPoints:
        jobs = check_jobs(self.features.n_jobs)
        return PreparedPoints(self._family(), places, normalize=False, n_jobs=jobs, warn=warn)

    def frozen(self) -> "FrozenFeatures":
        """The features with the current parameters as a module of plain tensors, for ``torch.export``."""
        variance = self.variance.item()
        if self.scales is None or self.is_matern:
            found = self.features.map_
            if self.scales is not None:
                found = self.scales.at(self.as_kernel(), normalize=self.features.normalize)
            rules = found.rule.parts if isinstance(found.rule, JoinedSteps) else (found.rule,)
            table, parts, row, column = found.table, [], 0, 0
            for number, rule in enumerate(rules):
                columns_of = len(self.scales.levels[number].anchors) if len(rules) > 1 else table.shape[1]  # type: ignore[union-attr]
                parts.append((rule, table[row : row + rule.n_nodes, column : column + columns_of]))
                row, column = row + rule.n_nodes, column + columns_of
            columns = found.output_scale * found.columns
            return FrozenFeatures(found.kernel, parts, math.sqrt(variance) * columns).to(self.log_variance)
        t = self.t.item()
        parts = [(self.scales.levels[number], share.item()) for number, share in self._blend(self._log_t)]
        heights = [level.height(t) if self.features.normalize else 1.0 for level, _ in parts]
        columns = np.concatenate(
            [
                share * np.sqrt(variance / height * level.weights / level.kernel.unit)
                for (level, share), height in zip(parts, heights, strict=True)
            ]
        )
        fields = tuple((WalkStep(level.kernel.graph), level.table(t)) for level, _ in parts)
        return FrozenFeatures(parts[0][0].kernel, fields, columns).to(self.log_variance)


class KeptTables:
    """Tables at the last points, which are kept because training uses the same points again and again."""

    def __init__(self) -> None:
        self.points: Tensor | None = None
        self.tables: dict[tuple[int, int | None], Tensor] = {}

    def at(self, points: Tensor) -> dict[tuple[int, int | None], Tensor]:
        """What is kept of points, by the number of the octave and of its tables; to be filled by the caller."""
        if torch.is_inference_mode_enabled():  # its tensors cannot be used in training
            return {}
        last = self.points
        same = last is not None and last.dtype == points.dtype and last.device == points.device
        if not (same and torch.equal(last, points)):  # type: ignore[arg-type]
            self.points, self.tables = points.detach().clone(), {}
        return self.tables


class _Octave(nn.Module):
    """Constants of a level."""

    log_times: Tensor
    denominators: Tensor
    heights: Tensor

    def __init__(self, level: TimeLevel) -> None:
        super().__init__()
        times = np.log(level.steps * level.step_time)
        gaps = times[:, None] - times
        np.fill_diagonal(gaps, 1.0)
        parts = {
            "log_times": times,
            "denominators": gaps.prod(axis=1),
            "heights": level.heights / level.kernel.unit,
        }
        for name, values in parts.items():
            self.register_buffer(name, torch.as_tensor(values, dtype=torch.float32), persistent=False)
        self._exact = parts

    def _apply(self, function: Any, recurse: bool = True) -> "_Octave":  # noqa: FBT001, FBT002  (as in torch)
        """Change the device or the precision; double precision has the digits of the fit."""
        super()._apply(function, recurse)  # type: ignore[no-untyped-call]
        for name, values in self._exact.items():
            own = getattr(self, name)
            setattr(self, name, torch.as_tensor(values, dtype=own.dtype, device=own.device))
        return self

    def coefficients(self, log_t: Tensor) -> Tensor:
        """Factors of the tables, as :meth:`TimeLevel.coefficients`."""
        gaps = log_t - self.log_times
        others = [torch.cat([gaps[:i], gaps[i + 1 :]]).prod() for i in range(len(gaps))]
        return torch.stack(others) / self.denominators


class FrozenFeatures(nn.Module):
    """Features of fixed kernels by plain tensor operations, for export; made by ``DifferentiableFeatures.frozen``.

    Distances to all nodes are computed, so it suits moderate numbers of nodes. Points away from the space have
    features of zero, without a warning.

    Parameters
    ----------
    kernel : GraphKernel
    fields : sequence of (WalkStep, CSR table)
    columns : array of shape (m,)
        Factors of the features.
    """

    columns: Tensor
    reaches: Tensor

    def __init__(self, kernel: GraphKernel, fields: Any, columns: FloatArray) -> None:
        super().__init__()
        graph = kernel.graph
        self.radii, self.bandwidths = [], []
        for number, (field, table) in enumerate(fields):
            extension: Any = getattr(getattr(field, "graph", None), "extension", None)
            plain = (
                isinstance(field, WalkStep) and isinstance(extension, HeatExtension) and extension.surface is None
            )
            if not plain or graph.metric is not None or graph.projection is not None:
                rule = "of a heat graph of a clean cloud or a manifold in flat coordinates, to be frozen"
                reject("features", rule, f"field {type(field).__name__} on {graph}")
            self.radii.append(float(extension.radius))
            self.bandwidths.append(float(extension.bandwidth))
            with np.errstate(divide="ignore"):
                logs = np.log(extension.factors)
            for name, values in (
                ("nodes", field.graph.positions),
                ("logs", logs),
                ("table", table.toarray()),
            ):
                self.register_buffer(f"{name}{number}", torch.tensor(values))
        self.register_buffer("columns", torch.tensor(columns))
        self.register_buffer("reaches", torch.tensor(kernel.reaches))

    def forward(self, points: Tensor) -> Tensor:
        """Features of points (..., d), shape (..., m)."""
        places = points.to(self.columns.dtype)
        rows, window = [], None
        for number, (radius, bandwidth) in enumerate(zip(self.radii, self.bandwidths, strict=True)):
            nodes, logs, table = (getattr(self, f"{name}{number}") for name in ("nodes", "logs", "table"))
            gaps = torch.cdist(places, nodes, compute_mode="donot_use_mm_for_euclid_dist")
            if window is None:  # the first field is that of the problem
                nearest, node = gaps.min(dim=-1)
                beyond = (nearest / self.reaches[node] - 1).clamp(0, 1)
                window = (1 - beyond) ** 2 * (1 + 2 * beyond)
            # A finite number, not infinity: far from all nodes a row of infinities would become NaN.
            logits = torch.where(gaps <= radius, logs - gaps**2 / bandwidth, torch.finfo(gaps.dtype).min)
            rows.append(torch.softmax(logits, dim=-1) @ table)
        joined = torch.cat(rows, dim=-1) * self.columns
        return (joined * window[..., None] if window is not None else joined).to(points.dtype)
