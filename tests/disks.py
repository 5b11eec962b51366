"""Small disks for tests: full ones, and such that cannot be written to."""

import subprocess
from pathlib import Path

import pytest

PAGE = 4096  # what a file in memory takes at least


class Disk:
    """A disk in memory, mounted on a folder, of so many pages and, if that is said, so many names."""

    def __init__(self, folder, n_pages, n_names=None):
        self.folder = Path(folder)
        self.folder.mkdir()
        self.n_pages = n_pages
        options = f"size={n_pages * PAGE}" + ("" if n_names is None else f",nr_inodes={n_names}")
        call("mount", "-t", "tmpfs", "-o", options, "tmpfs", self.folder)

    def fill(self, n_free):
        """Take all but so many pages, by a file that is not in the way."""
        filler = self.folder / "filler"
        filler.unlink(missing_ok=True)
        size = sum(-(-path.stat().st_size // PAGE) for path in self.folder.rglob("*") if path.is_file())
        filler.write_bytes(bytes((self.n_pages - size - n_free) * PAGE))

    def protect(self):
        """Refuse writing from now on."""
        call("mount", "-o", "remount,ro", self.folder)

    def close(self):
        call("umount", self.folder)


def call(*words):
    """Run a command, or skip the test where this user may not, or has no such command."""
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no command {words[0]}")
    if done.returncode:
        pytest.skip(f"this user may not {words[0]} a disk: {done.stderr.strip()}")
