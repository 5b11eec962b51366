"""Spaces of data: manifolds with closed forms, triangle meshes, graphs, and the analysis of point clouds."""

from manifoldrf.geometry.cleaning import clean_cloud as clean_cloud
from manifoldrf.geometry.neighbors import estimate_dimension as estimate_dimension
from manifoldrf.geometry.neighbors import thin as thin
