"""Tables, progress and notes: clean in a terminal and in a pipe."""

import io
import re
import time

import pytest
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
        assert all(re.fullmatch(r"toy: walking, \d+ s so far, about \d+ s left", line) for line in lines)

    def test_short_work_and_quiet_work_say_nothing(self, monkeypatch, capsys):
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
        monkeypatch.setattr(console, "_EVERY", 0.01)
        with console.progress("toy", quiet=True) as report:
            report("walking", 1, 3)
            time.sleep(0.1)
        assert capsys.readouterr().err == ""

    def test_the_bar_of_a_terminal_has_the_time_that_is_left(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
        monkeypatch.setenv("COLUMNS", "120")
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            report("walking", 2, 3)
            time.sleep(0.3)  # the bar is redrawn ten times a second
        assert "left" in capsys.readouterr().err

    def test_the_clock_of_a_terminal_runs_where_a_stage_has_no_steps(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "120")
        seconds = [0.0]
        with console.progress("toy", quiet=False) as report:
            monkeypatch.setattr(console.time, "monotonic", lambda: console.time.perf_counter() + seconds[0])
            report("graph", 0, 1)
            report("graph", 1, 1)
            seconds[0] = 1e6
            report("weights", 0, 1)
            time.sleep(0.3)
        assert re.search(r"\d+ days, \d+:\d\d:\d\d", capsys.readouterr().err)


class TestPace:
    """What is steps_at, at which second, and what is said of the time that is left."""

    def left(self, monkeypatch, steps_at, now):
        pace = console._Pace()
        seconds = [0.0]
        monkeypatch.setattr(console.time, "monotonic", lambda: seconds[0])
        for second, done, total in steps_at:
            seconds[0] = second
            pace.update(done, total)
        seconds[0] = now
        return pace.left()

    @pytest.mark.parametrize(
        ("steps_at", "now", "text"),
        [
            ([(0, 0, 4)], 9, ""),
            ([(0, 0, 4), (60, 1, 4)], 60, ""),  # the first step holds a compilation
            ([(0, 0, 4), (60, 1, 4), (70, 2, 4)], 70, "about 20 s left"),
            ([(0, 0, 4), (60, 1, 4), (70, 2, 4), (80, 3, 4)], 80, "about 10 s left"),
            ([(0, 0, 4), (60, 1, 4), (70, 2, 4), (80, 4, 4)], 80, ""),
            ([(0, 1, 0), (1, 2, 0)], 1, ""),  # nobody knows the total
        ],
    )
    def test_steps_to_come_count_as_long_as_those_after_the_first(self, monkeypatch, steps_at, now, text):
        assert self.left(monkeypatch, steps_at, now) == text

    @pytest.mark.parametrize("before", [[(0, 0, 1), (90, 1, 1)], [(0, 8, 10), (90, 9, 10)]])
    def test_the_time_of_another_stage_does_not_count(self, monkeypatch, before):
        steps = [(100, 0, 10), (101, 1, 10), (103, 2, 10)]
        assert self.left(monkeypatch, before + steps, 103) == "about 16 s left"


def test_numbers_are_whole_in_a_narrow_terminal_and_long_texts_are_wrapped():
    terminal = rich.console.Console(width=30, file=io.StringIO())
    numbers = {f"column_{i}": 0.000123 + i for i in range(6)}
    console.print_table(terminal, "table", [{"method": "a method with a rather long name"} | numbers])
    printed = terminal.file.getvalue()
    for number in ("0.000123", "1", "2", "3", "4", "5"):
        assert number in printed.split()
    assert "…" not in printed
    assert "long name" in printed
