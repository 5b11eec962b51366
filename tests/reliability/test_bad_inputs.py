"""Bad inputs do what the catalogue says, and the documentation page is written from that catalogue."""

import numpy as np
import pytest
from reliability.bad_inputs import CASES, HOW, PAGE, page, repeated
from reliability.promises import Case, EntryPoint, Refused, Works, same_as, verify


def quick_entries(case):
    """Entry points that the quick tests try: all where the input is refused, the first one where it works."""
    return case.entries if isinstance(case.promise, Refused) else case.entries[:1]


def label(case):
    return f"{case.group}: {case.name}"


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_bad_input_is_refused_in_words_or_works_as_promised(case):
    check(case, quick_entries(case))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in CASES if len(quick_entries(case)) < len(case.entries)], ids=label
)
def test_a_bad_input_that_works_at_one_entry_point_works_at_all_that_are_promised(case):
    check(case, case.entries[1:])


def check(case, entries):
    problems = {entry.name: found for entry in entries if (found := problem_of(case, entry))}
    assert not problems, "\n".join(f"{name}: {text}" for name, text in problems.items())


def problem_of(case, entry):
    """How a call breaks its promise; empty if it keeps it."""
    try:
        verify(case, entry)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error here was not promised
        return f"{type(error).__name__}: {error}"
    return ""


def test_the_page_is_the_catalogue():
    assert PAGE.read_text(encoding="utf-8") == page(), (
        f"{PAGE.name} differs from the catalogue; write it with: {HOW}"
    )


def test_no_call_stands_in_the_catalogue_twice():
    assert repeated() == []


def test_every_error_of_ours_names_the_argument_the_rule_and_the_value():
    vague = [case.name for case in CASES if isinstance(case.promise, Refused) and not is_clear(case.promise.words)]
    assert vague == []


# Texts that scikit-learn's estimator checks require.
SKLEARN = (
    *("Found array with", "Found input variables", "Expected 2D array", "X has 2 features", "Complex data"),
    *("Sparse data", "Input y", "float()"),
)
# Computations that failed; the texts name a cause and a remedy.
FAILURES = ("This graph has no points;", "No value is known:", "The kernel is too rough", "The series of")


def is_clear(words):
    """Whether a text names argument, rule and value, or is one of the listed exceptions."""
    ours = words.removeprefix("INPUT: ").startswith("`") and "` must be " in words and ". Got " in words
    return ours or words.startswith((*SKLEARN, *FAILURES))


ENTRY = EntryPoint("double", "x", lambda x: 2 * x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("promise", "given", "text"),
    [
        (Refused("`{argument}` must be 2. Got 1."), 1, "Failed: DID NOT RAISE"),
        (Works("finite"), np.nan, "not finite"),
        (Works("finite"), "a", ""),
        (same_as(lambda: 2.0), 3.0, "not equal"),
        (Works("warns", None, UserWarning, ("look",)), 1.0, "not warned"),
        (Works("finite"), None, "TypeError"),
    ],
)
def test_broken_promises_are_noticed(promise, given, text):
    found = problem_of(Case("group", "name", lambda: given, (ENTRY,), promise), ENTRY)
    assert text in found
    assert bool(text) == bool(found)
