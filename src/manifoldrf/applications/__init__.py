"""What people do with kernels and features: interpolation, regression, attention."""
