"""A missing or outdated optional package is reported with the extra that installs it."""

import sys
from importlib import metadata

import pytest

from manifoldrf._runtime import _versions, available, require


def test_present_packages_are_imported():
    assert require("json", "viz") is sys.modules["json"]
    assert available("json")


def test_missing_packages_name_the_extra():
    assert not available("no_such_package")
    with pytest.raises(ModuleNotFoundError, match=r"needs the package 'no_such_package'.*manifoldrf\[mesh\]"):
        require("no_such_package.part", "mesh")


@pytest.mark.parametrize(
    ("found", "is_old"), [("4.4.9", True), ("3.23", True), ("4.5", False), ("4.10.1rc2", False)]
)
def test_packages_that_are_too_old_name_both_versions(monkeypatch, found, is_old):
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=2.0", "trimesh>=4.5; extra == 'mesh'"])
    monkeypatch.setattr(metadata, "version", lambda name: found)
    _versions.cache_clear()
    try:
        if is_old:
            text = rf"package 'trimesh' of version 4\.5 or later\. Got {found}\. .*pip install 'manifoldrf\[mesh\]'"
            with pytest.raises(ImportError, match=text):
                require("trimesh.exchange.gltf", "mesh")
        else:
            assert require("trimesh", "mesh").__name__ == "trimesh"
    finally:
        _versions.cache_clear()
