"""The command line: clean output, one-sentence errors, exit codes."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import manifoldrf
from manifoldrf import cli
from manifoldrf.experiments import features, surface_graphs, teachers


@pytest.fixture
def small(monkeypatch):
    """The demo at a size for tests."""
    config = surface_graphs.Config(n_nodes=500, t=0.1, n_queries=20, sizes=(500,))
    monkeypatch.setattr(surface_graphs, "Config", lambda: config)
    few = teachers.Config(n_nodes=300, surfaces=("sphere",), n_starts=4, budgets=(1e3, 1e4))
    monkeypatch.setattr(teachers, "Config", lambda: few)
    tiny = features.Config(n_nodes=400, t=0.15, n_features=(60, "all"), n_queries=20, repeats=1)
    monkeypatch.setattr(features, "Config", lambda: tiny)


def command(*arguments):
    code = "from manifoldrf.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("small")
def test_demo_prints_the_tables_and_saves_record_and_picture(tmp_path):
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path / "results")])
    assert result.exit_code == 0, result.output
    assert "sphere" in result.output
    assert "convergence" in result.output
    assert "\x1b" not in result.output  # no colour codes in a pipe
    assert sorted(p.name for p in (tmp_path / "results").iterdir()) == [
        "features.json",
        "features.npz",
        "features.png",
        "surface_graphs.json",
        "surface_graphs.npz",
        "surface_graphs.png",
        "teachers.json",
        "teachers.npz",
        "teachers.png",
    ]


@pytest.mark.usefixtures("small")
def test_demo_speaks_json_or_keeps_quiet(tmp_path):
    result = CliRunner().invoke(cli.app, ["demo", "--json", "--out", str(tmp_path)])
    records = json.loads(result.stdout)
    assert [row["surface"] for row in records["surface_graphs"]["tables"]["surfaces"]] == list(
        surface_graphs.SURFACES
    )
    assert {row["estimator"] for row in records["teachers"]["tables"]["teachers"]} >= {"exact", "counts"}
    assert CliRunner().invoke(cli.app, ["demo", "--quiet", "--out", str(tmp_path)]).stdout == ""


@pytest.mark.usefixtures("small")
def test_teachers_prints_its_table_alone(tmp_path):
    result = CliRunner().invoke(cli.app, ["teachers", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Algorithm 1" in result.output
    assert "convergence" not in result.output


@pytest.mark.usefixtures("small")
def test_features_prints_its_table_alone(tmp_path):
    result = CliRunner().invoke(cli.app, ["features", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "own" in result.output
    assert "Algorithm 1" not in result.output


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("`t` must be [positive]. Got -1."), 1, "`t` must be [positive]. Got -1."),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(monkeypatch, capsys, tmp_path, error, code, text):
    def fail(*_):
        raise error

    monkeypatch.setattr(features, "run", fail)
    monkeypatch.setattr(sys, "argv", ["manifoldrf", "demo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == code
    captured = capsys.readouterr()
    assert captured.err.strip() == text
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_a_bad_folder_is_refused_before_the_work(monkeypatch, capsys, tmp_path):
    def work(*_):
        raise AssertionError("the work was begun")

    (tmp_path / "taken").write_text("x")
    monkeypatch.setattr(features, "run", work)
    monkeypatch.setattr(sys, "argv", ["manifoldrf", "demo", "--out", str(tmp_path / "taken")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert "`out` must be a folder, or a new name for one." in capsys.readouterr().err


def test_debug_shows_the_traceback(monkeypatch, tmp_path):
    def fail(*_):
        raise ValueError("seen")

    monkeypatch.setattr(features, "run", fail)
    monkeypatch.setattr(sys, "argv", ["manifoldrf", "--debug", "demo", "--out", str(tmp_path)])
    with pytest.raises(ValueError, match="seen"):
        cli.main()


def test_info_lists_versions_and_extras():
    done = command("info", "--json")
    facts = json.loads(done.stdout)
    assert facts["extra mesh"] == "yes"
    assert int(facts["threads"]) >= 1
    assert "numpy" in command("info").stdout


def test_help_names_the_commands_and_unknown_ones_are_usage_errors():
    done = command("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert command("dmeo").returncode == 2


def test_the_version_is_printed():
    assert command("--version").stdout.strip() == f"manifoldrf {manifoldrf.__version__}"
