"""The page about other libraries agrees with its JSON file and says where they are ahead."""

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


def test_page_is_what_the_json_file_says(peers):
    page = peers("page")
    assert page.PATH.read_text(encoding="utf-8") == page.page_text(peers("record").load())


def test_every_miss_on_the_page_has_a_reason(peers):
    found = peers("comparison").targets(peers("record").rows_of(peers("record").load()))
    assert [target["what"] for target in found if not target["ok"] and not target["reason"]] == []


def test_no_job_is_missing_from_the_json_file(peers):
    jobs = {row["job"] for row in peers("record").rows_of(peers("record").load())}
    assert jobs == set(peers("page").TITLES)


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


def test_a_miss_without_a_stated_reason_stays_open(peers):
    rows = [row("manifoldrf", 2.0, 0.01), row("unheard of", 1.0, 0.01)]
    (target,) = peers("comparison").targets(rows)
    assert (target["ok"], target["reason"], target["ahead"]) == (False, None, True)
    assert target["what"].endswith("ours slower: time over ours")


@pytest.mark.parametrize(("seconds", "ok"), [(19.0, False), (21.0, True)])
def test_geometric_kernels_is_to_take_twenty_times_as_long(peers, seconds, ok):
    rows = [row("manifoldrf", 1.0, 0.01), row("GeometricKernels, 1000 eigenpairs", seconds, 0.01)]
    (target,) = peers("comparison").targets(rows)
    assert target["ok"] is ok
    assert target["ahead"] is False


def test_walks_that_took_longer_do_not_count_as_equal_time(peers):
    rows = [
        row("manifoldrf, counts", 3.0, 0.001),
        row("manifoldrf, walks", 1.0, 0.05),
        row("fast-graph-gp", 2.0, 1.0),
    ]
    targets = peers("comparison").targets(rows)
    assert [target["seen"] for target in targets] == [20.0]


def test_a_reason_for_being_slower_excuses_no_error(peers):
    reason_of = peers("reasons").reason_of
    miss = ("new points", "sphere, t = 0.1", "scikit-learn Nystroem, 512 features")
    assert reason_of(*miss, ["slower"])
    assert reason_of(*miss, ["less accurate"]) is None
    assert reason_of(*miss, ["slower", "less accurate"]) is None
    assert reason_of(*miss, []) == ""


def test_a_peer_more_accurate_than_our_default_is_listed_though_a_tuned_row_is_ahead(peers):
    default = row("manifoldrf", 1.0, 0.4, job="new points") | {"note": peers("measure").BY_DEFAULT}
    rows = [
        default,
        row("manifoldrf, 8 steps", 1.0, 0.1, job="new points"),
        row("other", 2.0, 0.2, job="new points"),
    ]
    (target,) = peers("comparison").targets(rows)
    assert target["what"].endswith("ours less accurate by default: error over ours")
    assert (target["seen"], target["ok"], target["reason"]) == (0.5, False, None)


def test_errors_that_are_both_rounding_are_equal(peers):
    rows = [row("manifoldrf", 1.0, 9e-11), row("other", 2.0, 5e-12)]
    (verdict,) = peers("comparison").verdicts(rows)
    assert (verdict["error"], verdict["missed"]) == (1.0, [])


@pytest.mark.parametrize(("seconds", "calls"), [(0.5, 8), (3.0, float("inf"))])
def test_calls_until_preparation_has_paid(peers, seconds, calls):
    """Preparation of 12 s at a gain of 1.5 s a call takes 8 calls; without a gain it never pays."""
    own = row("manifoldrf, 256 features", seconds, 0.1, job="attention", preparation=12.0)
    peer = row("torch softmax, fused", 2.0, 0.1, job="attention")
    assert peers("comparison").calls_to_pay(own, [own, peer]) == calls
    assert peers("comparison").calls_to_pay(own, [own]) is None


def test_a_reason_is_said_once_above_its_rows(peers):
    miss = {"seen": 0.5, "limit": 1.0, "ok": False, "reason": "It is so.", "ahead": True}
    missed = [miss | {"what": what, "peer": row("other", 1.0, 0.2)} for what in ("here", "there")]
    text = peers("page").missed_part(missed, "None.")
    assert text.count("It is so.") == 1
    assert "| here | 0.5 | 1 | 0.2 |" in text
    assert "| there | 0.5 | 1 | 0.2 |" in text
    assert peers("page").missed_part([], "None.") == "None.\n"


def test_a_missed_target_says_how_much_quicker_ours_is_still(peers):
    rows = [row("manifoldrf", 1.0, 0.01), row("GeometricKernels, 200 eigenpairs", 7.0, 0.05)]
    text = peers("page").missed_part(peers("comparison").targets(rows), "None.")
    assert "Its error is 0.05 (a case). Ours is 7 times as fast." in text


def test_eigenpairs_catch_up_after_their_preparation_over_the_gain(peers):
    """30 s more of preparation at a gain of 0.25 s each takes 120 evaluations; without a gain never."""
    peer = row("other", 0.25, 0.1, preparation=31.0)
    break_even = peers("comparison").break_even
    assert break_even(peer, row("manifoldrf", 0.5, 0.1, preparation=1.0)) == 120
    assert break_even(peer, row("manifoldrf", 0.25, 0.1, preparation=1.0)) == float("inf")


def test_a_note_that_the_text_explains_is_in_no_row(peers):
    text = peers("page").page_text(peers("record").load())
    assert not any(note in text for note in peers("page").EXPLAINED)


def test_a_write_that_fails_leaves_the_record_as_it_was(peers, monkeypatch, tmp_path):
    record = peers("record")
    monkeypatch.setattr(record, "environment", dict)
    path = tmp_path / "peers.json"
    record.keep(path, "meshes", [], 1.0)
    before = path.read_text()
    with pytest.raises(TypeError, match="JSON"):
        record.keep(path, "meshes", [object()], 1.0)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]
