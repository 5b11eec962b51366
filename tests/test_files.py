"""Atomic writing: the old file or the new one, never half of it and never a leftover."""

import errno
import os
import socket
import stat
from pathlib import Path

import pytest

from manifoldrf._files import atomic_path, check_output, folder_for_results, replace_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write_and_raise(target, error):
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"half of the n")
        raise error


def test_success_replaces_the_old_file_and_leaves_no_temporary(tmp_path):
    target = tmp_path / "values.bin"
    target.write_bytes(b"old")
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path.resolve()
        assert temporary.suffix == ".bin"
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["values.bin"]


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_exception_in_the_middle_leaves_the_old_file_whole_and_no_temporary(tmp_path, kind):
    target = tmp_path / "values.bin"
    target.write_bytes(b"old")
    with pytest.raises(kind):
        write_and_raise(target, kind())
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["values.bin"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_of_the_last_steps_leaves_the_old_file_whole_and_no_temporary(tmp_path, monkeypatch, step):
    target = tmp_path / "values.bin"
    target.write_bytes(b"old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), full)
    with pytest.raises(OSError, match="No space left on device"), atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["values.bin"]


def test_the_data_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: steps.append("fsync") or fsync(file))
    monkeypatch.setattr(Path, "replace", lambda old, new: steps.append("replace") or replace(old, new))
    with atomic_path(tmp_path / "values.bin") as temporary:
        temporary.write_bytes(b"new")
    assert steps == ["fsync", "replace", "fsync"]  # the last is that of the folder: the name is there after it


def make_special(path, kind):
    """A pipe, a socket, a device of our own (never one of the system), or a link to the device."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    else:
        place = path.with_name("device") if kind == "link" else path
        try:
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root can make devices")
        if kind == "link":
            path.symlink_to(place)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "link"])
def test_what_is_no_ordinary_file_is_refused_and_stays(tmp_path, kind):
    target = tmp_path / "m.npy"
    make_special(target, kind)
    before = target.lstat()
    rule = r"must be an ordinary file, not a device, pipe or socket\. Got .*m\.npy\."
    with pytest.raises(ValueError, match="`path` " + rule), atomic_path(target):
        pytest.fail("the block must not run")
    with pytest.raises(ValueError, match="`--output` " + rule):
        check_output(target, "--output", (".npy",))
    after = target.lstat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    file, link, dangling = tmp_path / "far" / "old.npy", tmp_path / "link.npy", tmp_path / "dangling.npy"
    file.write_bytes(b"old")
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "far" / "new.npy")
    for target in (link, dangling):
        with atomic_path(check_output(target, "--output", (".npy",))) as temporary:
            assert temporary.parent == file.parent.resolve()
            temporary.write_bytes(b"new")
        assert target.is_symlink()
        assert target.read_bytes() == b"new"
    assert names(tmp_path / "far") == ["new.npy", "old.npy"]


@pytest.mark.parametrize(
    "name", ["loop.npy", "x" * 300 + ".npy", "a\0b.npy", "\ud800.npy"], ids=["loop", "long", "NUL", "surrogate"]
)
def test_paths_that_lead_nowhere_are_refused(tmp_path, name):
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    with pytest.raises(ValueError, match="`path` must be a path that can be used"), atomic_path(tmp_path / name):
        pytest.fail("the block must not run")
    with pytest.raises(ValueError, match="`-o` must be a path that can be used"):
        check_output(str(tmp_path / name), "-o", (".npy",))


def test_nothing_goes_to_standard_output():
    with pytest.raises(ValueError, match="`-o` must be a file ending in"):
        check_output("-", "-o", (".npy",))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_refuses_files_is_named(tmp_path, monkeypatch, code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "touch", refuse)
    with (
        pytest.raises(PermissionError, match="`path` must be in a folder that is writable"),
        atomic_path(tmp_path / "values.bin"),
    ):
        pytest.fail("the block must not run")


def test_folders_made_for_results_that_do_not_come_are_removed(tmp_path):
    def fail(place):
        with folder_for_results(place, "out") as folder:
            assert folder.is_dir()
            raise KeyboardInterrupt

    (tmp_path / "old").mkdir()
    for place in ("new", "old/a/b", "old"):
        with pytest.raises(KeyboardInterrupt):
            fail(tmp_path / place)
    assert names(tmp_path) == ["old"]
    assert names(tmp_path / "old") == []


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    plain, target = tmp_path / "plain.bin", tmp_path / "values.bin"
    plain.write_bytes(b"")
    for mode in (stat.S_IMODE(plain.stat().st_mode), 0o640):
        with atomic_path(target) as temporary:
            temporary.write_bytes(b"new")
        assert stat.S_IMODE(target.stat().st_mode) == mode
        target.chmod(0o640)


@pytest.mark.parametrize("n_refusals", [2, 3])
def test_a_file_that_another_program_has_open_is_replaced_when_it_is_closed(tmp_path, monkeypatch, n_refusals):
    """As on Windows, with two more attempts."""
    draft, target, refusals, replace = tmp_path / "draft.txt", tmp_path / "values.txt", [], Path.replace

    def refuse(draft, name):
        if len(refusals) < n_refusals:
            refusals.append(name)
            raise PermissionError(13, "in use", str(draft))
        return replace(draft, name)

    monkeypatch.setattr(Path, "replace", refuse)
    target.write_text("old")
    draft.write_text("new")
    if n_refusals == 2:
        replace_file(draft, target, waits=(0.0, 0.0))
    else:
        with pytest.raises(PermissionError):
            replace_file(draft, target, waits=(0.0, 0.0))
    assert target.read_text() == ("new" if n_refusals == 2 else "old")
