"""Where the data lives: manifolds with closed forms, triangle meshes, graphs; and what is known of a cloud."""

from manifoldrf.geometry.cleaning import clean_cloud as clean_cloud
from manifoldrf.geometry.neighbors import estimate_dimension as estimate_dimension
from manifoldrf.geometry.neighbors import thin as thin
