"""Reasons why a peer is ahead or a target is missed, by the start of job, case and method, and by kind of miss."""

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
        "200 eigenpairs, a fifth of the default, are computed quickly. They are too few for the narrower kernel. "
        "For the wider kernel, more eigenpairs hardly reduce the error.",
    ),
    (
        "new points",
        "",
        "scikit-learn",
        SLOWER,
        "These are features of the ambient Gaussian kernel. They learn nothing about the space, so there is little "
        "to fit. With any number of features, they come no closer to the kernel of the space than the Gaussian "
        "itself.",
    ),
    (
        "new points",
        "rolled sheet",
        "pydiffmap",
        DEFAULT_WORSE,
        "In a point cloud, steps of a heat graph jump between layers that nearly touch. Set the number of "
        "steps there, or use a mesh.",
    ),
    (
        "attention",
        "",
        "Performer",
        SLOWER,
        "With prepared features, it computes the same products as manifoldrf with as many features. manifoldrf "
        "also checks its arguments and looks for tokens without weight.",
    ),
)


def reason_of(job: str, case: str, method: str, kinds: Sequence[str]) -> str | None:
    """The reasons for all kinds of a miss, or None if one of them has none."""
    found = [_reason_of_one((job, case, method), kind) for kind in kinds]
    return None if None in found else " ".join(str(reason) for reason in found)


def _reason_of_one(texts: tuple[str, str, str], kind: str) -> str | None:
    for *starts, excused, reason in REASONS:
        if excused == kind and all(text.startswith(start) for text, start in zip(texts, starts, strict=True)):
            return reason
    return None
