"""Records come back as they were saved; a part is used again only with the same settings, code and whole files."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from reproduction import record as module
from reproduction.record import Parts, Record, code_digest


def make(**parts):
    plain = {"name": "toy", "config": {"sizes": (1, 2)}, "tables": {"toy": [{"error": 0.1}]}, "seconds": 1.5}
    return Record(**(plain | {"environment": {"commit": "abc"}} | parts))


def test_a_record_comes_back_with_plain_numbers(tmp_path):
    row = {"holds": np.bool_(True), "nodes": np.int64(4), "error": np.float32(0.5)}
    path = make(tables={"toy": [row]}, arrays={"x": np.arange(3)}).save(tmp_path)
    found = Record.load(path)
    assert found.tables == {"toy": [{"holds": True, "nodes": 4, "error": 0.5}]}
    np.testing.assert_array_equal(found.arrays["x"], [0, 1, 2])
    assert Record.load(path, arrays=False).arrays == {}


def test_arrays_of_another_run_are_refused(tmp_path):
    """Nothing can stop a kill between two files."""
    path = make(arrays={"x": np.zeros(3)}).save(tmp_path)
    other = make(arrays={"x": np.ones(3)}).save(tmp_path / "other")
    shutil.copy(other.with_suffix(".npz"), path.with_suffix(".npz"))
    with pytest.raises(ValueError, match=r"saved together with its arrays"):
        Record.load(path)


def test_parts_are_used_again_unless_settings_code_or_files_changed(tmp_path, monkeypatch):
    measured = []

    def part(settings, folder=tmp_path):
        def measure():
            measured.append(settings)
            return {"toy": [{"n": len(measured)}]}, {"x": np.full(2, len(measured))}

        return Parts(folder, "reproduction.teachers").get("toy-1", settings, measure).tables["toy"][0]["n"]

    assert [part({"sizes": (1, 2)}) for _ in range(2)] == [1, 1]  # a tuple is a list in the file
    assert [part({"sizes": (1, 3)}) for _ in range(2)] == [2, 2]
    (tmp_path / "toy-1.npz").unlink()
    assert [part({"sizes": (1, 3)}) for _ in range(2)] == [3, 3]
    monkeypatch.setattr(module, "code_digest", lambda name: "of other code")
    assert [part({"sizes": (1, 3)}) for _ in range(2)] == [4, 4]
    assert [part({"sizes": (1, 3)}, None) for _ in range(2)] == [5, 6]  # without a folder nothing is kept


def test_the_digest_of_the_code_follows_imports_and_ignores_comments(tmp_path, monkeypatch):
    """Of a helper that an experiment imports, and of the package; not of an experiment beside it."""
    texts = {}

    def source(name, original=module._source):
        path = original(name)
        if path is None or name not in texts:
            return path
        changed = tmp_path / f"{name}.py"
        changed.write_text(path.read_text(encoding="utf-8") + texts[name], encoding="utf-8")
        return changed

    monkeypatch.setattr(module, "_source", source)
    plain = code_digest.__wrapped__("reproduction.teachers")

    def digest(**changed):
        texts.clear()
        texts.update({name.replace("__", "."): text for name, text in changed.items()})
        return code_digest.__wrapped__("reproduction.teachers")

    assert digest(reproduction__teachers="\n# a comment\n", reproduction__velocity="\nMORE = 1\n") == plain
    others = [digest(**{name: "\nMORE = 1\n"}) for name in ("reproduction__common", "manifoldrf__geometry__csr")]
    assert len({plain, *others}) == 3


def test_no_experiment_imports_a_private_or_undocumented_part_of_the_package():
    """Names of docs/api.md, the module of the paper's network, and the program's conventions for commands."""
    allowed = {"manifoldrf", "manifoldrf.geometry", "manifoldrf.kernels", "manifoldrf.paper"}
    for path in Path(module.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found = {line.split()[1] for line in text.splitlines() if line.startswith("from manifoldrf")}
        extra = {name for name in found - allowed if not name.startswith("manifoldrf.cli")}
        assert not extra, (path.name, extra)
        assert path.name in ("commands.py", "__main__.py") or found <= allowed


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().name = "other"
