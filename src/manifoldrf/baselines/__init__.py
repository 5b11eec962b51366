"""Other features with the interface of :class:`ManifoldRandomFeatures`, for comparisons."""

from manifoldrf.baselines.nystrom import Nystrom
from manifoldrf.baselines.random_features import GERF, ORF, PORF, PRF, RFF, GaussianFeatures
from manifoldrf.baselines.spectral import DiffusionMap, SpectralFeatures
from manifoldrf.baselines.tuning import BandwidthSearch, tune_bandwidth

__all__ = [
    "GERF",
    "ORF",
    "PORF",
    "PRF",
    "RFF",
    "BandwidthSearch",
    "DiffusionMap",
    "GaussianFeatures",
    "Nystrom",
    "SpectralFeatures",
    "tune_bandwidth",
]
