"""Attention and differentiable features as torch modules (extra ``torch``)."""

from manifoldrf.torch.attention import AttentionState, ManifoldAttention, PositionFeatures, linear_attention
from manifoldrf.torch.features import DifferentiableFeatures

__all__ = ["AttentionState", "DifferentiableFeatures", "ManifoldAttention", "PositionFeatures", "linear_attention"]
