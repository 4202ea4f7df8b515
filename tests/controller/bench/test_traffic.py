"""Bytes written are what grew below a candidate's folder."""

from __future__ import annotations

from pathlib import Path

from controller.bench.traffic import FolderWatch


def test_new_grown_and_replaced_files_count(tmp_path: Path) -> None:
    """A new file counts whole, a grown one by its growth, a replaced one whole."""
    (tmp_path / "old").write_bytes(b"x" * 10)
    (tmp_path / "log").write_bytes(b"x" * 10)
    watch = FolderWatch(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/new").write_bytes(b"x" * 7)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"x" * 5)
    (tmp_path / "made").write_bytes(b"x" * 20)
    (tmp_path / "made").rename(tmp_path / "old")
    assert watch.take() == 7 + 5 + 20
    assert watch.take() == 0


def test_increments_are_read_not_written(tmp_path: Path) -> None:
    """The input that is linked into a dataflow's folder is nobody's output."""
    watch = FolderWatch(tmp_path)
    (tmp_path / "sources/urls").mkdir(parents=True)
    (tmp_path / "sources/urls/0.parquet").write_bytes(b"x")
    assert watch.take() == 0
