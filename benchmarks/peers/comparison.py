"""Who is quicker at the same accuracy: verdicts from the rows alone. Rows are dictionaries, as in the JSON file."""

import math
from collections.abc import Iterator
from typing import Any

from benchmarks.peers.measure import BY_DEFAULT
from benchmarks.peers.reasons import BELOW_TARGET, DEFAULT_WORSE, SLOWER, WORSE, reason_of

Plain = dict[str, Any]

SAME = 1.001  # errors within this factor count as the same, and so do those below
ROUNDING = 1e-9
FASTER = 20.0  # than GeometricKernels
FUSED = "torch softmax, fused"
CLOSER = 10.0  # than fast-graph-gp, in the same time
# In attention places stay the same from layer to layer: features of places are made once, and not counted.
WITHOUT_PREPARATION = ("attention",)


def seconds_of(row: Plain) -> float:
    """Time that counts."""
    return float(row["evaluation"] + (0.0 if row["job"] in WITHOUT_PREPARATION else row["preparation"]))


def is_as_accurate(own: Plain, peer: Plain) -> bool:
    """Whether our error is no larger."""
    return bool(own["error"] <= SAME * max(peer["error"], ROUNDING))


def rival_of(peer: Plain, rows: list[Plain]) -> Plain:
    """Which of our rows a peer is compared with: the quickest that is as accurate, else the most accurate."""
    own = [row for row in rows if row["ours"] and (row["job"], row["case"]) == (peer["job"], peer["case"])]
    accurate = [row for row in own if is_as_accurate(row, peer)]
    if accurate:
        return min(accurate, key=seconds_of)
    return min(own, key=lambda row: float(row["error"]))


def quotient(peer: Plain, own: Plain) -> float:
    """Error of a peer over ours; 1 where both are rounding."""
    return float(max(peer["error"], ROUNDING) / max(own["error"], ROUNDING))


def verdict_of(peer: Plain, rows: list[Plain]) -> Plain:
    """The rival, both ratios (peer over ours), if ours is slower or less accurate, and the default's ratios."""
    own = rival_of(peer, rows)
    ratio = seconds_of(peer) / seconds_of(own)
    return {
        "peer": peer,
        "rival": own,
        "time": ratio,
        "error": quotient(peer, own),
        "missed": [SLOWER] * (ratio < 1) + [WORSE] * (not is_as_accurate(own, peer)),
        "default": against_default(peer, rows),
    }


def against_default(peer: Plain, rows: list[Plain]) -> Plain | None:
    """Ratios of a peer over our row with nothing chosen by hand, and whether that is less accurate; or None."""
    for own in rows:
        if (own["job"], own["case"], own["note"]) == (peer["job"], peer["case"], BY_DEFAULT):
            time = seconds_of(peer) / seconds_of(own)
            return {"time": time, "error": quotient(peer, own), "worse": not is_as_accurate(own, peer)}
    return None


def verdicts(rows: list[Plain]) -> list[Plain]:
    """Verdicts on all peers that were run."""
    return [verdict_of(row, rows) for row in rows if not row["ours"] and row["error"] is not None]


def calls_to_pay(own: Plain, rows: list[Plain]) -> float | None:
    """Calls after which our preparation has paid against fused softmax: infinite if never, None without it."""
    for peer in rows:
        if peer["method"] == FUSED and (peer["job"], peer["case"]) == (own["job"], own["case"]):
            return break_even(own, peer)
    return None


def break_even(prepared: Plain, other: Plain) -> float:
    """Evaluations after which a method with more preparation is the quicker one in all; infinite if never."""
    gain = other["evaluation"] - prepared["evaluation"]
    more = prepared["preparation"] - other["preparation"]
    return max(math.ceil(more / gain), 1) if gain > 0 else math.inf


def targets(rows: list[Plain]) -> list[Plain]:
    """What was to be reached, what was seen, and why not where it was not: a reason of None is an open miss."""
    return [target for verdict in verdicts(rows) for target in targets_of(verdict, rows)]


def targets_of(verdict: Plain, rows: list[Plain]) -> Iterator[Plain]:
    """The targets that one peer bears on."""
    peer, missed, default = verdict["peer"], verdict["missed"], verdict["default"]
    said = f"ours {' and '.join(missed)}: " if missed else ""
    if peer["method"].startswith("GeometricKernels"):
        kinds = missed + [BELOW_TARGET] * (verdict["time"] < FASTER)
        yield target(peer, f"{said}time over ours", verdict["time"], FASTER, kinds)
    elif missed:
        yield target(peer, f"{said}time over ours", verdict["time"], 1.0, missed)
    if default is not None and default["worse"]:
        yield target(peer, f"ours {DEFAULT_WORSE}: error over ours", default["error"], 1.0, [DEFAULT_WORSE])
    if peer["method"].startswith("fast-graph-gp"):
        seen = closest_in_time(peer, rows)
        yield target(peer, "error over ours in the same time", seen, CLOSER, [BELOW_TARGET] * (seen < CLOSER))


def closest_in_time(peer: Plain, rows: list[Plain]) -> float:
    """Error of a peer over the least of our walks that took no longer."""
    errors = [
        row["error"]
        for row in rows
        if row["ours"]
        and (row["job"], row["case"]) == (peer["job"], peer["case"])
        and "no walks" not in row["method"]
        and seconds_of(row) <= seconds_of(peer)
    ]
    return float(peer["error"] / min(errors)) if errors else 0.0


def target(peer: Plain, what: str, seen: float, limit: float, kinds: list[str]) -> Plain:
    """A target as a dictionary, reached if no kind of miss is named; a peer is ahead by all kinds but one."""
    reason = reason_of(peer["job"], peer["case"], peer["method"], kinds)
    name = f"{peer['job']}, {peer['case']}: {peer['method']}, {what}"
    ahead = any(kind != BELOW_TARGET for kind in kinds)
    return {
        "what": name, "seen": seen, "limit": limit, "ok": not kinds, "reason": reason, "ahead": ahead, "peer": peer
    }  # fmt: skip
