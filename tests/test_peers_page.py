"""The page about other libraries says where they are ahead."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.peers.{name}")


def row(method, seconds, error, job="mesh", preparation=0.0):
    ours = method.startswith("manifoldrf")
    return {
        "job": job, "case": "a case", "method": method, "preparation": preparation, "evaluation": seconds,
        "error": error, "note": "", "ours": ours,
    }  # fmt: skip


def test_a_peer_is_compared_with_the_quickest_of_ours_that_is_as_accurate(peers):
    rows = [row("manifoldrf rough", 1.0, 0.1), row("manifoldrf", 2.0, 0.01), row("manifoldrf fine", 9.0, 1e-6)]
    peer = row("other", 6.0, 0.02)
    verdict = peers("comparison").verdict_of(peer, [*rows, peer])
    assert (verdict["rival"]["method"], verdict["time"], verdict["missed"]) == ("manifoldrf", 3.0, [])
    assert verdict["error"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("seconds", "error", "missed"),
    [
        (1.0, 0.1, ["slower"]),
        (3.0, 0.001, ["less accurate"]),
        (1.0, 0.001, ["slower", "less accurate"]),
        (3.0, 0.1, []),
    ],
)
def test_a_peer_that_is_ahead_is_said_to_be(peers, seconds, error, missed):
    rows = [row("manifoldrf", 2.0, 0.01), row("other", seconds, error)]
    (verdict,) = peers("comparison").verdicts(rows)
    assert verdict["missed"] == missed


def test_preparation_counts_except_for_attention(peers):
    seconds_of = peers("comparison").seconds_of
    assert seconds_of(row("other", 1.0, 0.1, preparation=2.0)) == 3.0
    assert seconds_of(row("other", 1.0, 0.1, job="attention", preparation=2.0)) == 1.0
