"""Kernels as power series of the walk operator."""
