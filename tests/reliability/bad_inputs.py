"""Bad inputs tried: the catalogue, and the page of the documentation that is written from it.

``PYTHONPATH=src:tests python -m reliability.bad_inputs`` writes the page again.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from reliability import bad_graphs, bad_options, bad_points
from reliability.entry_points import GROUPS
from reliability.promises import Case, EntryPoint, Refused

CASES: tuple[Case, ...] = (*bad_points.CASES, *bad_graphs.CASES, *bad_options.CASES)
PAGE = Path(__file__).parents[2] / "docs" / "reliability" / "inputs.md"
HOW = "PYTHONPATH=src:tests python -m reliability.bad_inputs"

_HEAD = """\
# Bad inputs

How the library handles input that is wrong, unusual or extreme: {cases} cases, {calls} calls.
`tests/reliability/test_bad_inputs.py` tests every row, and this page is generated from its catalogue.

An input is either **refused**, by a `ValueError` or a `TypeError` that names the argument, the rule and the value,
or it **works**: the result is finite and is what the row says. Nothing else is raised, no call hangs, and numpy
issues no warnings about overflows, divisions by zero or invalid values.

- Text in `code` is quoted from the error or the warning; "..." stands for omitted text.
- Errors name the argument of the function: `points`, `X`, `Z`. A row with several entry points has `X/Z`.
- For shapes and the number of columns, estimators use the error messages of scikit-learn, as its checks require.
- Commands print the same sentence and exit with 1, or with 2 if an option is wrong.

Groups of entry points:

{groups}
"""

_TABLE = "| case | where tried | what happens |\n|---|---|---|"


def page() -> str:
    """The page of the documentation."""
    calls = sum(len(case.entries) for case in CASES)
    groups = "\n".join(f"- *{name}*: {_names(members)}" for name, members in GROUPS.items())
    parts = [_HEAD.format(cases=len(CASES), calls=calls, groups=groups)]
    for group, cases in groupby(CASES, lambda case: case.group):
        parts += [f"## {group}\n", "\n".join([_TABLE, *map(_row, cases)]) + "\n"]
    return "\n".join(parts)


def _row(case: Case) -> str:
    return f"| {_escaped(case.name)} | {_where(case)} | {_escaped(_happens(case))} |"


def _where(case: Case) -> str:
    """The entry points, by the name of their group where all of it, or nearly all, is meant."""
    left, words = list(case.entries), []
    for name, members in GROUPS.items():
        absent = [entry for entry in members if entry not in left]
        if len(absent) <= len(members) // 4:
            words.append(f"*{name}* without {_names(absent)}" if absent else f"*{name}*")
            left = [entry for entry in left if entry not in members]
    return "; ".join([*words, _names(left)] if left else words)


def _names(entries: Iterable[EntryPoint]) -> str:
    return ", ".join(f"`{entry.name}`" for entry in entries)


def _happens(case: Case) -> str:
    """What happens, in words."""
    promise = case.promise
    if isinstance(promise, Refused):
        return f"{promise.kind.__name__}: {_quoted(promise.words, case)}"
    if promise.warning is None:
        return f"works: {promise.text}"
    told = ", ".join(_quoted(words, case) for words in promise.words)
    return f"works: {promise.text}; {promise.warning.__name__}: {told}"


def _quoted(words: str, case: Case) -> str:
    """Words of a text that names its argument in backticks, as code of Markdown."""
    arguments = "/".join(dict.fromkeys(entry.argument for entry in case.entries))
    text = " ".join(words.replace("{argument}", arguments).replace("…", "...").split())
    return f"`` {text} ``"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def repeated() -> list[str]:
    """Calls that stand in the catalogue more than once."""
    count = Counter(case.label(entry) for case in CASES for entry in case.entries)
    return [label for label, number in count.items() if number > 1]


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
