"""Scratch of Spark drivers: of the dead it goes, of the living it stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cbp.engine.spark.scratch import take_scratch

CHILD = """
import sys
from pathlib import Path
from cbp.engine.spark.scratch import take_scratch
folder, lock = take_scratch(Path(sys.argv[1]))
(folder / "blockmgr-1").mkdir()
print(folder, flush=True)
sys.stdin.read()
"""


def test_only_what_the_dead_left_is_removed(tmp_path: Path) -> None:
    """A killed process's folder goes at the next start; that of one that lives stays."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        theirs = Path(child.stdout.readline().strip())
        mine, lock = take_scratch(tmp_path)
        assert (theirs / "blockmgr-1").is_dir()
        child.kill()
    os.close(take_scratch(tmp_path)[1])
    assert not theirs.exists()
    assert mine.is_dir()
    os.close(lock)
