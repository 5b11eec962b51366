"""Memory of this process, as counted by Linux."""

from pathlib import Path

import pytest

_STATUS, _PEAKS = Path("/proc/self/status"), Path("/proc/self/clear_refs")

needs_counts = pytest.mark.skipif(not _PEAKS.exists(), reason="memory of a process is measured on Linux only")


def start_memory():
    """Reset the peak; returns the bytes in use now."""
    _PEAKS.write_text("5")
    return _count("VmRSS")


def peak_memory():
    """Peak bytes in use since `start_memory`."""
    return _count("VmHWM")


def _count(name):
    with _STATUS.open() as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
