"""Signatures and features on many machines, by any cluster that Dask knows."""

from manifoldrf.distributed.cluster import Cluster

__all__ = ["Cluster"]
