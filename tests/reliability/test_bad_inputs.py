"""Bad inputs do what the catalogue promises, and the page of the documentation is that catalogue."""

import numpy as np
import pytest
from reliability.bad_inputs import CASES, HOW, PAGE, page, repeated
from reliability.promises import Case, EntryPoint, Refused, Works, same_as, verify


@pytest.mark.parametrize("case", CASES, ids=[f"{case.group}: {case.name}" for case in CASES])
def test_a_bad_input_is_refused_in_words_or_works_as_promised(case):
    problems = {entry.name: found for entry in case.entries if (found := problem_of(case, entry))}
    assert not problems, "\n".join(f"{name}: {text}" for name, text in problems.items())


def problem_of(case, entry):
    """How a call breaks its promise; empty where it keeps it."""
    try:
        verify(case, entry)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  (whatever it is, it was not promised)
        return f"{type(error).__name__}: {error}"
    return ""


def test_the_page_is_the_catalogue():
    assert PAGE.read_text(encoding="utf-8") == page(), (
        f"{PAGE.name} is not that of the catalogue; write it by: {HOW}"
    )


def test_no_call_stands_in_the_catalogue_twice():
    assert repeated() == []


def test_every_error_of_ours_names_the_argument_the_rule_and_the_value():
    vague = [case.name for case in CASES if isinstance(case.promise, Refused) and not is_clear(case.promise.words)]
    assert vague == []


# Texts that scikit-learn's own checks ask for.
SKLEARN = (
    *("Found array with", "Found input variables", "Expected 2D array", "X has 2 features", "Complex data"),
    *("Sparse data", "Input y", "float()"),
)
# Failures of a computation, which name cause and remedy.
FAILURES = ("This graph has no points;", "No value is known:", "The kernel is too rough", "The series of")


def is_clear(words):
    """Whether a text has our form, or is one of the few others."""
    ours = words.startswith("`") and "` must be " in words and ". Got " in words
    return ours or words.startswith((*SKLEARN, *FAILURES))


ENTRY = EntryPoint("double", "x", lambda x: 2 * x)


@pytest.mark.parametrize(
    ("promise", "given", "text"),
    [
        (Refused("`{argument}` must be 2. Got 1."), 1, "Failed: DID NOT RAISE"),
        (Works("finite"), np.nan, "not finite"),
        (Works("finite"), "a", ""),
        (same_as(lambda: 2.0), 3.0, "not equal"),
        (Works("warns", None, UserWarning, ("look",)), 1.0, "not said"),
        (Works("finite"), None, "TypeError"),
    ],
)
def test_broken_promises_are_noticed(promise, given, text):
    found = problem_of(Case("group", "name", lambda: given, (ENTRY,), promise), ENTRY)
    assert text in found
    assert bool(text) == bool(found)
