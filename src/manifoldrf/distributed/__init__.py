"""Signatures and features on a Dask cluster."""

from manifoldrf.distributed.cluster import Cluster

__all__ = ["Cluster"]
