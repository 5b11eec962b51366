"""Estimated errors beside true ones: problems with a known answer, drawn from seeds."""
