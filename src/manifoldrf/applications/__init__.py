"""Uses of kernels and features: interpolation, regression, classification, attention."""
