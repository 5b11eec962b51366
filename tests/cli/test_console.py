"""Tables, progress and notes: clean in a terminal and in a pipe."""

import io
import re
import time

import pytest
import rich.console

from manifoldrf.cli import _console


class TestProgress:
    def test_long_steps_show_signs_of_life_where_there_is_no_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr(_console, "_EVERY", 0.02)
        with _console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            time.sleep(0.5)  # one step, many times the interval: lines come without further reports
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) >= 2
        assert all(re.fullmatch(r"toy: walking, \d+ s so far, about \d+ s left", line) for line in lines)

    def test_short_work_and_quiet_work_say_nothing(self, monkeypatch, capsys):
        with _console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
        monkeypatch.setattr(_console, "_EVERY", 0.01)
        with _console.progress("toy", quiet=True) as report:
            report("walking", 1, 3)
            time.sleep(0.1)
        assert capsys.readouterr().err == ""

    def test_the_bar_of_a_terminal_has_the_time_that_is_left(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
        monkeypatch.setenv("COLUMNS", "120")
        with _console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            time.sleep(0.3)  # the bar is redrawn ten times a second
        assert "left" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("done", "total", "text"),
        [(0, 4, ""), (1, 4, "about 30 s left"), (3, 4, "about 3 s left"), (4, 4, ""), (1, 0, "")],
    )
    def test_steps_to_come_are_taken_to_last_as_long_as_those_done(self, done, total, text):
        assert _console._remaining(done, total, 10.0) == text


def test_numbers_are_whole_in_a_narrow_terminal_and_long_texts_are_wrapped():
    console = rich.console.Console(width=30, file=io.StringIO())
    numbers = {f"column_{i}": 0.000123 + i for i in range(6)}
    _console.print_table(console, "table", [{"method": "a method with a rather long name"} | numbers])
    printed = console.file.getvalue()
    for number in ("0.000123", "1", "2", "3", "4", "5"):
        assert number in printed.split()
    assert "…" not in printed
    assert "long name" in printed
