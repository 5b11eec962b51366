"""Why a peer is ahead, or a target missed: beginnings of job, case and method, the kind of miss, and the reason."""

from collections.abc import Sequence

SLOWER = "slower"
WORSE = "less accurate"
BELOW_TARGET = "below the target"
DEFAULT_WORSE = "less accurate by default"

REASONS: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "mesh",
        "",
        "GeometricKernels, 200 ",
        BELOW_TARGET,
        "200 eigenpairs, a fifth of its default, are found quickly. They are too few for the narrower kernel. "
        "For the wider one its error is hardly less with more of them.",
    ),
    (
        "new points",
        "",
        "scikit-learn",
        SLOWER,
        "These are features of the Gaussian kernel of the space around. Nothing has to be learnt about the "
        "space itself, so that there is little to fit. However many there are, they come no closer to the "
        "kernel of the space than that Gaussian does.",
    ),
    (
        "new points",
        "rolled sheet",
        "pydiffmap",
        DEFAULT_WORSE,
        "Steps of a heat graph in a cloud of points jump between layers that nearly touch. The number of "
        "steps must be given there, or a mesh.",
    ),
    (
        "attention",
        "",
        "Performer",
        SLOWER,
        "With features prepared it does the same products as ours with as many features. Ours also checks its "
        "arguments, and looks for tokens without weight.",
    ),
)


def reason_of(job: str, case: str, method: str, kinds: Sequence[str]) -> str | None:
    """The reasons for all kinds of a miss; None where one of them has none."""
    found = [_reason_of_one((job, case, method), kind) for kind in kinds]
    return None if None in found else " ".join(str(reason) for reason in found)


def _reason_of_one(texts: tuple[str, str, str], kind: str) -> str | None:
    for *starts, excused, reason in REASONS:
        if excused == kind and all(text.startswith(start) for text, start in zip(texts, starts, strict=True)):
            return reason
    return None
