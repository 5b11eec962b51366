"""A missing optional package is reported with the extra that installs it."""

import sys

import pytest

from manifoldrf._runtime import available, require


def test_present_packages_are_imported():
    assert require("json", "viz") is sys.modules["json"]
    assert available("json")


def test_missing_packages_name_the_extra():
    assert not available("no_such_package")
    with pytest.raises(ModuleNotFoundError, match=r"needs the package 'no_such_package'.*manifoldrf\[mesh\]"):
        require("no_such_package.part", "mesh")


def test_a_package_that_fails_to_import_keeps_its_own_message(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import surely_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_missing"):
        require("half_there", "mesh")
