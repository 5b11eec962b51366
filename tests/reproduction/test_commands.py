"""`python -m reproduction`: every experiment runs at its small size, goes on where it was stopped, and is drawn."""

import json

import pytest
from command_line import reproduce, words
from pictures import shows_something

from reproduction import teachers
from reproduction.commands import CLAIMS
from reproduction.record import Record, code_digest
from reproduction.report.figures import FIGURES
from reproduction.report.page import foreign_numbers, readme_block, results_page

TINY = ("--set", "n_nodes=100", "--set", "surfaces=sphere", "--set", "budgets=1000,2000", "--set", "n_starts=2")


def run(name, folder, *options):
    done = reproduce(name, "--out", folder, "--quiet", *options)
    assert done.exit_code == 0, done.output
    return Record.load(folder / f"{name}.json")


@pytest.mark.slow
def test_all_experiments_run_and_give_a_page(tmp_path):
    """Every record is saved with its command and its code, every picture shows something, no number is foreign."""
    records = {}
    for name in CLAIMS:
        records[name] = record = run(name, tmp_path)
        assert record.environment["command"] == f"python -m reproduction {name} --size smoke"
        assert record.environment["code"] == code_digest(f"reproduction.{name}")
        assert all(shows_something(tmp_path / f"{stem}.png") for stem in FIGURES[name])
    for text, known in (results_page(records), readme_block(records)):
        assert "to be remade" not in text.partition("## ")[0]
        assert foreign_numbers(text, known) == []
    assert "one commit" not in results_page(records)[0]  # all have the same


def test_finished_parts_are_not_measured_again(tmp_path, monkeypatch):
    first = run("teachers", tmp_path, *TINY)
    with monkeypatch.context() as patch:
        patch.setattr(teachers, "compute_signatures", None)
        again = run("teachers", tmp_path, *TINY)
        assert again.tables == first.tables
        assert reproduce("teachers", "--out", tmp_path, *TINY, "--set", "tau=3").exit_code != 0
        monkeypatch.setattr("reproduction.record.code_digest", lambda module: "other")
        assert reproduce("teachers", "--out", tmp_path, *TINY).exit_code != 0


def test_changes_are_checked_before_the_work(tmp_path):
    for change in ("n_node=1", "n_nodes=1.5", "n_nodes"):
        done = reproduce("teachers", "--set", change, "--out", tmp_path / "new")
        assert done.exit_code == 2
        assert change.partition("=")[0] in words(done.stderr)
    assert reproduce("teacher", "--out", tmp_path / "new").exit_code == 2
    assert not (tmp_path / "new").exists()


def test_without_a_name_the_experiments_are_listed():
    assert json.loads(reproduce("--json").stdout) == dict(CLAIMS)
