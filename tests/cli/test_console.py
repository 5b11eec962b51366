"""Tables, progress and notes: clean in a terminal and in a pipe."""

import io
import re
import time

import rich.console

from manifoldrf.cli import console


class TestProgress:
    def test_long_steps_show_signs_of_life_where_there_is_no_terminal(self, monkeypatch, capsys):
        monkeypatch.setattr(console, "_EVERY", 0.02)
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            report("walking", 2, 3)
            time.sleep(0.5)  # one step, many times the interval: lines come without further reports
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) >= 2
        assert all(re.fullmatch(r"toy: walking, 2 of 3, \d+ s so far", line) for line in lines)

    def test_short_work_and_quiet_work_say_nothing(self, monkeypatch, capsys):
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
        monkeypatch.setattr(console, "_EVERY", 0.01)
        with console.progress("toy", quiet=True) as report:
            report("walking", 1, 3)
            time.sleep(0.1)
        assert capsys.readouterr().err == ""

    def test_a_terminal_has_a_bar(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
        monkeypatch.setenv("COLUMNS", "120")
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            time.sleep(0.3)  # the bar is redrawn ten times a second
        assert "toy: walking" in capsys.readouterr().err


def test_numbers_are_whole_in_a_narrow_terminal_and_long_texts_are_wrapped():
    terminal = rich.console.Console(width=30, file=io.StringIO())
    numbers = {f"column_{i}": 0.000123 + i for i in range(6)}
    console.print_table(terminal, "table", [{"method": "a method with a rather long name"} | numbers])
    printed = terminal.file.getvalue()
    for number in ("0.000123", "1", "2", "3", "4", "5"):
        assert number in printed.split()
    assert "…" not in printed
    assert "long name" in printed
