"""Tables, progress and notes: clean in a terminal and in a pipe."""

import io
import threading
import time
from types import SimpleNamespace

import rich.console

from manifoldrf.cli import console


class TestProgress:
    def test_a_terminal_has_a_bar(self, monkeypatch, capsys):
        monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich believe in a terminal
        monkeypatch.setenv("COLUMNS", "120")
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            time.sleep(0.3)  # the bar is redrawn ten times a second
        assert "toy: walking" in capsys.readouterr().err

    def test_a_pipe_has_a_line_after_three_seconds_and_every_thirty(self, monkeypatch, capsys):
        now, reported = [100.0], threading.Event()

        class Clock:
            """An event that happens after 63 seconds, which pass at once."""

            def wait(self, seconds):
                reported.wait()
                now[0] += seconds
                return now[0] > 163

            def set(self):
                pass

        monkeypatch.setattr(console, "threading", SimpleNamespace(Event=Clock, Thread=threading.Thread))
        monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
        with console.progress("toy", quiet=False) as report:
            report("walking", 1, 3)
            reported.set()
        lines = [f"toy: walking, 1 of 3, {passed} so far" for passed in ("3 s", "33 s", "1 min 3 s")]
        assert capsys.readouterr().err.splitlines() == lines


def test_numbers_are_whole_in_a_narrow_terminal_and_long_texts_are_wrapped():
    terminal = rich.console.Console(width=30, file=io.StringIO())
    numbers = {f"column_{i}": 0.000123 + i for i in range(6)}
    console.print_table(terminal, "table", [{"method": "a method with a rather long name"} | numbers])
    printed = terminal.file.getvalue()
    for number in ("0.000123", "1", "2", "3", "4", "5"):
        assert number in printed.split()
    assert "…" not in printed
    assert "long name" in printed
