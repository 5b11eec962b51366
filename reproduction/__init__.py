"""Experiments: one importable file per claim, a frozen config in, a record out."""
