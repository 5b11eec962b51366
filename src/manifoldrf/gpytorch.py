"""A kernel for GPyTorch (extra ``gpytorch``)."""

from typing import Any

from manifoldrf._runtime import require
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.torch import DifferentiableFeatures

# Without these packages the error names the extra.
torch: Any = require("torch", "gpytorch")
Kernel: Any = require("gpytorch", "gpytorch").kernels.Kernel
LowRankRootLinearOperator: Any = require("linear_operator", "gpytorch").operators.LowRankRootLinearOperator

__all__ = ["ManifoldKernel"]


class ManifoldKernel(Kernel):  # type: ignore[misc]
    """A kernel on a curved space as a low-rank ``gpytorch.kernels.Kernel``, computed from its features.

    An exact Gaussian process with n data and m features takes O(n m^2) time. If the features were fitted for a
    range of ``times``, the time of a heat kernel, or smoothness and length scale of a Matern kernel, are trained.

    Parameters
    ----------
    features : ManifoldRandomFeatures
        Fitted; with ``times`` for a kernel that can be trained.
    kernel : float, HeatKernel or MaternKernel, optional
        Initial time or kernel; that of the features by default.
    **options
        Options of ``gpytorch.kernels.Kernel``, such as ``active_dims``.

    Attributes
    ----------
    module : DifferentiableFeatures
        Its ``t``, or ``nu`` and ``lengthscale``, are the parameters. Use a ``ScaleKernel`` for the variance.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf import ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.gpytorch import ManifoldKernel
    >>> features = ManifoldRandomFeatures(times=(0.1, 0.8), random_state=0).fit(Sphere())
    >>> kernel = ManifoldKernel(features, 0.2)
    >>> points = torch.as_tensor(Sphere().sample(20, seed=1)).float()
    >>> kernel(points).to_dense().shape
    torch.Size([20, 20])
    """

    def __init__(self, features: ManifoldRandomFeatures, kernel: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.module = DifferentiableFeatures(features, kernel)
        self.module.log_variance.requires_grad_(False)  # noqa: FBT003  (torch has no keyword); a ScaleKernel scales

    @property
    def is_stationary(self) -> bool:
        """False: spaces need not be homogeneous."""
        return False

    def forward(self, x1: Any, x2: Any, diag: bool = False, **params: Any) -> Any:  # noqa: FBT001, FBT002  (as in GPyTorch)
        """The kernel between points (..., n, d) and (..., q, d), or its diagonal.

        Parameters
        ----------
        x1, x2 : tensors
        diag : bool
        **params
            Not used.
        """
        del params
        left = self.module.root(x1)
        fixed = not (x1.requires_grad or x2.requires_grad)  # equal tensors may have gradients of their own
        same = x1 is x2 or (fixed and x1.shape == x2.shape and torch.equal(x1, x2))
        right = left if same else self.module.root(x2)
        if diag:
            return (left * right).sum(dim=-1)
        if same and left.shape[-1] < left.shape[-2]:
            return LowRankRootLinearOperator(left)
        return left @ right.transpose(-1, -2)  # with fewer points than features, it is smaller than its factors
