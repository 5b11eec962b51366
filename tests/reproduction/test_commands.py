"""`python -m reproduction`: clean output, one-sentence errors, exit codes."""

import json
import sys
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from command_line import reproduce, reproduction_main, words

from reproduction import commands
from reproduction.record import Record
from reproduction.report import pages
from reproduction.report.catalogue import Entry


@dataclass(frozen=True)
class Config:
    n_nodes: int = 10
    tau: float = 2.0
    label: str = "a"
    exact: bool = False
    sizes: tuple[int, ...] = (1, 2)
    n_features: tuple[int | str, ...] = (1, "all")
    limit: int | None = None
    teacher: Literal["exact", "walks"] = "exact"
    other: Any = None


def run(config, progress):
    progress("halfway [1]", 1, 2)
    tables = {"numbers": [{"surface": "[sphere]", "error": 0.5, "secret": 1.0}], "long": [{"x": 987}]}
    return Record(NAMES.get(config.n_nodes, "toy"), asdict(config), tables, 1.0, {"commit": "abc"})


NAMES = {77: "second"}  # the fakes share their code; this number of nodes marks the other one


def draw(record, path):
    path.write_bytes(path.suffix.encode())
    return path


@pytest.fixture
def toys(monkeypatch):
    """Two small experiments instead of all."""
    module = SimpleNamespace(Config=Config, SIZES={"smoke": Config(), "paper": Config(n_nodes=40)}, run=run)
    second = SimpleNamespace(Config=Config, SIZES={"smoke": Config(n_nodes=77)}, run=run)
    monkeypatch.setitem(sys.modules, "reproduction.toy", module)
    monkeypatch.setitem(sys.modules, "reproduction.second", second)
    monkeypatch.setitem(sys.modules, "reproduction.report.toy", SimpleNamespace(draw=draw))
    shown = {"hidden": {"numbers": frozenset({"secret"})}, "drawn": frozenset({"long"})}
    entries = {
        "toy": Entry("toy", "toy", "Toys work.", "about", "What [it] means.", {"toy_one": "toy:draw"}, **shown),
        "second": Entry("second", "second", "So does this.", "about", "Means."),
    }
    monkeypatch.setattr(commands, "CATALOGUE", entries)
    return module


@pytest.mark.usefixtures("toys")
class TestRun:
    def test_prints_the_tables_and_saves_record_and_pictures(self, tmp_path):
        result = reproduce("toy", "--out", tmp_path / "new")
        assert result.exit_code == 0, result.output
        assert "[sphere]" in result.stdout
        assert "What [it] means." in result.stdout
        assert "secret" not in result.stdout  # hidden
        assert "987" not in result.stdout  # drawn
        assert "\x1b" not in result.output  # no colour codes in a pipe
        assert "toy_one.png" in result.stdout
        names = sorted(path.name for path in (tmp_path / "new").iterdir())
        assert names == ["toy.json", "toy.npz", "toy_one.png"]
        assert Record.load(tmp_path / "new" / "toy.json").config["n_nodes"] == 10

    def test_size_and_changes_reach_the_experiment_and_the_command_is_in_the_record(self, tmp_path):
        result = reproduce("toy", "--size", "paper", "--set", "label=b c", "--out", tmp_path, "--json")
        record = json.loads(result.stdout)["toy"]
        assert record["config"]["n_nodes"] == 40
        assert record["config"]["label"] == "b c"
        assert record["environment"]["command"] == "python -m reproduction toy --size paper --set 'label=b c'"
        assert record == Record.load(tmp_path / "toy.json").plain()

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ("n_nodes=1.5", "`n_nodes` must be an integer. Got '1.5'."),
            ("tau=inf", "`tau` must be a finite number. Got 'inf'."),
            ("exact=1", "`exact` must be true or false. Got '1'."),
            ("sizes=1,x", "`sizes` must be an integer. Got 'x'."),
            ("sizes=", "`sizes` must be an integer. Got ''."),
            ("limit=few", "`limit` must be an integer or none. Got 'few'."),
            ("teacher=me", "`teacher` must be one of 'exact', 'walks'. Got 'me'."),
            ("other=1", "`other` must be a field that --set can read."),
            ("n_nodes", "`--set` must be field=value. Got 'n_nodes'."),
            ("n_node=1", "must be one of 'n_nodes', 'tau', 'label', 'exact',"),
        ],
    )
    def test_a_bad_change_is_refused_before_the_work(self, tmp_path, change, text):
        result = reproduce("toy", "--set", change, "--out", tmp_path / "new")
        assert result.exit_code == 2
        assert text in words(result.stderr)
        assert not (tmp_path / "new").exists()

    def test_without_a_name_the_experiments_are_listed(self):
        result = reproduce()
        assert result.exit_code == 0
        assert "Toys work." in result.stdout
        assert json.loads(reproduce("--json").stdout) == {"toy": "Toys work.", "second": "So does this."}

    def test_an_experiment_that_reads_files_is_given_the_folder(self, monkeypatch, tmp_path):
        """Its record and pictures have a name of their own, and nothing saved says where the folder is."""
        seen = []

        def reading(config, progress, data=None):
            seen.append(data)
            return run(config, progress)

        monkeypatch.setattr(sys.modules["reproduction.toy"], "run", reading)
        entry = replace(commands.CATALOGUE["toy"], reads="a folder of toys")
        monkeypatch.setitem(commands.CATALOGUE, "toy", entry)
        folder = tmp_path / "my toys"
        folder.mkdir()
        reproduce("toy", "--data", folder, "--out", tmp_path / "out")
        result = reproduce("toy", "--out", tmp_path / "out")
        assert "--data may name a folder of toys" in words(result.stderr)
        assert seen == [folder, None]
        names = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert names == ["toy.json", "toy.npz", "toy_data.json", "toy_data.npz", "toy_data_one.png", "toy_one.png"]
        text = (tmp_path / "out" / "toy_data.json").read_text()
        assert json.loads(text)["environment"]["command"] == "python -m reproduction toy --size smoke --data DIR"
        assert "my toys" not in text

    def test_numbers_are_saved_without_matplotlib(self, monkeypatch, tmp_path):
        monkeypatch.setattr("reproduction.commands.available", lambda _: False)
        result = reproduce("toy", "--out", tmp_path)
        assert result.exit_code == 0
        assert "pip install 'manifoldrf[viz]'" in words(result.stderr)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.json", "toy.npz"]


@pytest.fixture
def site(tmp_path):
    """A folder with records and a README, and the arguments that name them."""
    rows = [
        {"surface": "sphere", "method": method, "kernel": 0.0625, "new_points": 0.5}
        | {"fit_s": 1.0, "kernel_ms": 10.0, "speed_up": 100.0}
        for method in pages.README_METHODS
    ]
    record = Record("surfaces", {"n_nodes": 4000}, {"surfaces": rows}, 1.0, {"commit": "abc"})
    record.save(tmp_path / "records")
    (tmp_path / "README.md").write_text(f"# Title\n\n{pages.BEGIN}\nold\n{pages.END}\n\nThe end.\n")
    places = (
        "--records",
        tmp_path / "records",
        "--docs",
        tmp_path / "results.md",
        "--readme",
        tmp_path / "README.md",
    )
    return ["results", *places]


class TestResults:
    def test_page_and_table_are_written_and_stay_the_same(self, site, tmp_path):
        result = reproduce(*site)
        assert result.exit_code == 0, result.output
        page, readme = (tmp_path / "results.md").read_text(), (tmp_path / "README.md").read_text()
        assert page.startswith("# Results\n")
        assert "| 0.0625 |" in readme
        assert readme.startswith(f"# Title\n\n{pages.BEGIN}\n\n| surface |")
        assert readme.endswith(f"\n{pages.END}\n\nThe end.\n")
        assert reproduce(*site).stdout.count("up to date") == 2
        assert (tmp_path / "results.md").read_text() == page
        assert (tmp_path / "README.md").read_text() == readme

    def test_check_writes_nothing_and_tells_the_files_that_differ(self, site, tmp_path, monkeypatch, capsys):
        before = (tmp_path / "README.md").read_text()
        assert reproduction_main(monkeypatch, *site, "--check") == 1
        error = capsys.readouterr().err
        assert "results.md" in error
        assert "README.md" in error
        assert (tmp_path / "README.md").read_text() == before
        assert not (tmp_path / "results.md").exists()
        reproduce(*site)
        assert reproduce(*site, "--check").exit_code == 0
        (tmp_path / "results.md").write_text("by hand")
        assert reproduction_main(monkeypatch, *site, "--check") == 1
        assert "README.md" not in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("spoil", "text"),
        [
            (
                lambda folder: (folder / "README.md").write_text("no markers"),
                "`README.md` must be a text with <!--",
            ),
            (lambda folder: (folder / "README.md").unlink(), "No such file or directory"),
            (lambda folder: (folder / "records" / "surfaces.json").write_text("{"), "surfaces.json: Expecting"),
            (lambda folder: (folder / "records" / "surfaces.json").unlink(), "`records` must be a folder with the"),
            (lambda folder: Record("x", {}, {}, 1.0).save(folder / "records"), "named after their experiment"),
        ],
        ids=["markers", "readme", "json", "none", "unknown"],
    )
    def test_what_cannot_be_read_is_one_sentence_and_nothing_is_written(
        self, site, tmp_path, monkeypatch, capsys, spoil, text
    ):
        spoil(tmp_path)
        assert reproduction_main(monkeypatch, *site) == 1
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1
        assert not (tmp_path / "results.md").exists()
