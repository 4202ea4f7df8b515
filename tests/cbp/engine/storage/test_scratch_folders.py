"""Scratch folders: those of dead processes are removed, those of living ones stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cbp.engine.storage.scratch_folders import scratch_folder

HOLDS = """
import sys
from cbp.engine.storage.scratch_folders import scratch_folder
with scratch_folder("cbp-rollback-") as folder:
    (folder / "scratch.db").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_the_folder_of_a_dead_process_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed cannot remove its own, so the next roll-back does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        being_made = tmp_path / "cbp-rollback-being-made"
        being_made.mkdir()
        with scratch_folder("cbp-rollback-") as first, scratch_folder("cbp-rollback-") as second:
            assert first != second
            assert {one.parent for one in (theirs, first, second)} == {tmp_path}
            assert (theirs / "scratch.db").exists()
        assert not first.exists()
        assert not second.exists()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert theirs.exists()
    with scratch_folder("cbp-rollback-") as third:
        assert set(tmp_path.iterdir()) == {third, being_made}
    assert list(tmp_path.iterdir()) == [being_made]
