"""Small disks for tests, which can be filled or made read-only."""

import subprocess
from pathlib import Path

import pytest

PAGE = 4096  # the smallest size of a file in memory


class Disk:
    """A disk in memory, mounted on a folder, with room for ``n_pages`` pages and ``n_names`` names."""

    def __init__(self, folder, n_pages, n_names=None):
        self.folder = Path(folder)
        self.folder.mkdir()
        self.n_pages = n_pages
        options = f"size={n_pages * PAGE}" + ("" if n_names is None else f",nr_inodes={n_names}")
        call("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder)

    def fill(self, n_free):
        """Write a file named "filler" that leaves ``n_free`` pages."""
        filler = self.folder / "filler"
        filler.unlink(missing_ok=True)
        size = sum(-(-path.stat().st_size // PAGE) for path in self.folder.rglob("*") if path.is_file())
        filler.write_bytes(bytes((self.n_pages - size - n_free) * PAGE))

    def protect(self):
        """Make the disk read-only."""
        call("mount", "-o", "remount,ro", self.folder)

    def close(self):
        call("umount", self.folder)


def call(*words):
    """Run a command; skip the test if the command does not exist or is not permitted."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no command {words[0]}")
    if done.returncode:
        pytest.skip(f"this user may not {words[0]} a disk: {done.stderr.strip()}")
