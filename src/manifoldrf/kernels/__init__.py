"""Kernels as power series of the walk operator; rarely used ones are not exported at the top level."""

from manifoldrf.kernels.abstract_kernel import UnresolvedKernelError as UnresolvedKernelError
from manifoldrf.kernels.named_kernels import CosineKernel as CosineKernel
from manifoldrf.kernels.named_kernels import PowerKernel as PowerKernel
from manifoldrf.kernels.named_kernels import RandomWalkKernel as RandomWalkKernel
from manifoldrf.kernels.named_kernels import RegularizedLaplacianKernel as RegularizedLaplacianKernel
from manifoldrf.kernels.series import SeriesKernel as SeriesKernel
