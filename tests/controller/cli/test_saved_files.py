"""Which files were saved since the last look."""

from __future__ import annotations

from pathlib import Path

from controller.cli.saved_code import SavedFiles


def test_a_file_is_saved_once_it_stays_as_it_is(tmp_path: Path) -> None:
    """An editor may write it in parts, or put another file in its place."""
    path = tmp_path / "a.py"
    path.write_text("one")
    files = SavedFiles([str(path)])
    assert files.look([str(path)]) == []
    path.write_text("two and")
    assert files.look([str(path)]) == []
    path.write_text("two and a half")
    assert files.look([str(path)]) == []
    assert files.look([str(path)]) == [str(path)]
    assert files.look([str(path)]) == []
    other = tmp_path / "b"
    other.write_text("two and a half")
    other.replace(path)
    assert [files.look([str(path)]) for _ in range(2)] == [[], [str(path)]]


def test_a_file_that_comes_or_goes_is_saved(tmp_path: Path) -> None:
    """A new file of a folder, and one that was removed."""
    path = tmp_path / "a.py"
    files = SavedFiles([])
    path.write_text("one")
    assert [files.look([str(path)]) for _ in range(2)] == [[], [str(path)]]
    path.unlink()
    assert [files.look([str(path)]) for _ in range(2)] == [[], [str(path)]]
