"""The memory and the time of all processes of a session."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bench.measurements.session_memory import (
    session_cpu_seconds,
    session_memory_bytes,
)


def process(proc: Path, pid: int, session: int, kilobytes: int | None) -> None:
    """Show a process as the kernel does; one that has just ended has no memory."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(
        f"{pid} (a ) b) S 1 {pid} {session} 0 -1 0 0 0 0 0 1 20 300 4000 5 6"
    )
    if kilobytes is not None:
        shown = f"00400000-7ffe ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nPss: {kilobytes} kB\n"
        (proc / str(pid) / "smaps_rollup").write_text(shown)


def test_the_processes_of_a_session_are_added(tmp_path: Path) -> None:
    """Others are left out, and whatever is no process; a name may have brackets and spaces."""
    process(tmp_path, 10, 10, 3)
    process(tmp_path, 11, 10, 5)
    process(tmp_path, 12, 10, None)
    process(tmp_path, 13, 13, 100)
    (tmp_path / "self").mkdir()
    (tmp_path / "14").mkdir()
    assert session_memory_bytes(10, tmp_path) == 8 << 10
    assert session_cpu_seconds(10, tmp_path) == 3 * 4321 / os.sysconf("SC_CLK_TCK")


def test_this_process_has_memory() -> None:
    """The kernel shows what is read here."""
    assert session_memory_bytes(os.getsid(0)) > 1 << 20
