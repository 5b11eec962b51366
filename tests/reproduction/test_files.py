"""Folders of the experiments are listed without incomplete files."""

from reproduction.files import files_in


def test_files_of_a_folder_are_listed_without_what_a_killed_process_left(tmp_path):
    for name in ("b.json", "a.json", ".hidden.json", f".{'0f' * 16}.json", "a.npz"):
        (tmp_path / name).touch()
    assert [path.name for path in files_in(tmp_path, "*.json")] == [".hidden.json", "a.json", "b.json"]
