"""Compiled code is kept where it can be, and faults of what keeps it cost time only."""

import importlib.util
import warnings

import numba
import numpy as np
import pytest

from manifoldrf import _compiling
from manifoldrf._compiling import compiled

SOURCE = """
from manifoldrf._compiling import compiled

@compiled()
def double(x):
    return 2 * x
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where compiled code is kept meanwhile."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def fresh(folder):
    """The function, as a new process would define it."""
    path = folder / "loops.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("loops", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


def hits(function):
    return sum(function.stats.cache_hits.values())


def test_code_is_kept_and_found_again(tmp_path, kept):
    assert fresh(tmp_path)(4) == 8
    again = fresh(tmp_path)
    assert again(4) == 8
    assert hits(again) == 1


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_damaged_code_is_compiled_again_and_mended(tmp_path, kept, suffix, share):
    fresh(tmp_path)(4)
    (file,) = kept.rglob(f"*.{suffix}")
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    again = fresh(tmp_path)
    assert again(4) == 8
    assert hits(again) == 0
    mended = fresh(tmp_path)
    assert mended(4) == 8
    assert hits(mended) == 1


def test_code_that_cannot_be_written_is_not_kept(tmp_path, kept, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    function = fresh(tmp_path)
    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    assert function(4) == 8
    assert list(kept.rglob("*.nbi")) == []


def test_without_any_folder_to_write_to_loops_work_and_it_is_said_once(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    _compiling._warn_without_cache.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"No folder is writable .* Set NUMBA_CACHE_DIR to a writable folder"):
        double = compiled()(lambda x: 2 * x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = compiled(fastmath=True)(lambda x: x.sum())
    assert double(4) == 8
    assert total(np.ones(3)) == 3
    _compiling._warn_without_cache.cache_clear()


def test_loops_that_are_not_to_be_compiled_are_plain_functions(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)

    def double(x):
        return 2 * x

    assert compiled()(double) is double


def test_processes_that_compile_at_once_do_not_mix_their_code(tmp_path, kept):
    """One looks into the index, finds nothing, and is overtaken by the other before it has written its code."""
    first, second = fresh(tmp_path), fresh(tmp_path)
    files, save = first._cache._cache_file, first._cache._cache_file._save_data
    second._cache._cache_file._load_index = dict

    def overtaken(name, data):
        second(1.5)
        save(name, data)

    files._save_data = overtaken
    assert first(4) == 8
    assert fresh(tmp_path)(1.5) == 3.0
    assert fresh(tmp_path)(4) == 8
