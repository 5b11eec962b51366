"""`make soak` notices memory, files and threads that grow, and only those; its committed run was flat."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manifoldrf import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.soak")


def series(soak, memory, descriptors=6, threads=5):
    """Samples over half an hour, one every ten seconds."""
    n = len(memory)
    files, pools = np.broadcast_to(descriptors, n), np.broadcast_to(threads, n)
    return [
        soak.Sample(10.0 * k, float(memory[k]), int(files[k]), int(pools[k])) for k in range(n)
    ]  # fmt: skip


verdict = pytest.mark.slow  # tests of the program that judges, not of the library
TIME = np.arange(180) / 180
NOISE = np.random.default_rng(0).normal(0, 20, 180)


@verdict
@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(np.full(180, 500.0), id="flat"),
        pytest.param(500 + NOISE, id="noisy"),
        pytest.param(500 + 300 * np.minimum(1, 10 * TIME), id="growing while it warms up"),
        pytest.param(800 - 300 * TIME, id="falling"),
        pytest.param(500 + 20 * TIME, id="growing by less than the limit"),
    ],
)
def test_what_does_not_grow_passes(soak, memory):
    assert soak.judge(series(soak, memory)).reasons == []


@verdict
@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(500 + 60 * TIME, id="steady"),
        pytest.param(500 + 60 * TIME + NOISE, id="under noise"),
        pytest.param(500 + 200 * (TIME > 0.6), id="a step after the middle"),
        pytest.param(500 * 1.2**TIME, id="exponential"),
    ],
)
def test_memory_that_grows_fails(soak, memory):
    verdict = soak.judge(series(soak, memory))
    assert len(verdict.reasons) == 1
    assert verdict.reasons[0].startswith("memory grew from")
    assert not verdict.holds


@verdict
def test_one_more_file_or_thread_fails(soak):
    late = 6 + (TIME > 0.9)
    files, pools = (
        soak.judge(series(soak, np.full(180, 500.0), **{name: late})) for name in ("descriptors", "threads")
    )
    assert files.reasons == ["descriptors grew from 6 to 7"]
    assert pools.reasons == ["threads grew from 6 to 7"]


@verdict
def test_files_that_come_and_go_pass(soak):
    assert soak.judge(series(soak, np.full(180, 500.0), descriptors=6 + np.arange(180) % 2)).holds


@verdict
def test_bits_that_change_fail(soak):
    assert soak.judge(series(soak, np.full(180, 500.0)), ["fit"]).reasons == ["the bits of 'fit' changed"]


@verdict
@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_run_too_short_to_judge_fails(soak, n):
    assert soak.judge(series(soak, np.full(n, 500.0))).reasons[0].startswith("too few samples")


@verdict
def test_digests_tell_bits_apart(soak):
    rows = np.arange(6.0).reshape(2, 3)
    assert soak.digest(rows) == soak.digest(rows.copy()) == soak.digest(np.asfortranarray(rows))
    assert soak.digest(rows) != soak.digest(np.nextafter(rows, 9))


def test_a_record_names_the_version_and_can_be_written(soak):
    samples = series(soak, np.full(180, 500.0))
    made = soak.record(soak.judge(samples), samples, {"fit": 180}, 30)
    assert made["version"] == __version__
    assert json.loads(json.dumps(made))["holds"]


def test_the_committed_run_was_half_an_hour_and_flat():
    seen = json.loads((ROOT / "docs" / "results" / "soak.json").read_text())
    assert seen["minutes"] >= 30
    assert seen["holds"]
    assert seen["growth"] <= 0.05
    assert set(seen["operations"].values()) == {seen["rounds"]}


@pytest.mark.slow
def test_four_minutes_of_mixed_work_are_flat(tmp_path):
    """A round takes 5 s; on a busy machine, where it takes 13, there are still samples enough."""
    program = [
        sys.executable,
        str(ROOT / "benchmarks" / "soak.py"),
        "--minutes",
        "4",
        "--out",
        str(tmp_path / "soak.json"),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "soak.json").read_text())["reasons"] == []
