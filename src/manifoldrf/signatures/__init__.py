"""The teachers: rows of sum_k f_k W^k, exact or estimated."""
