"""Plants faults in a copy of the project: `python -m tests.gate.planted` shows what the gate says.

Ten faults of the product, one in each of ten rooms, each a promise broken by one line: red, also
after the second chance. A test that fails the first time only: green, and named. What a file of
tests leaves behind, and a sleep in it: red, and named.

When a line is written anew, its fault no longer finds it and says so: choose another one.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.gate.__main__ import REPO, play
from tests.gate.verdict import Quarantine

__all__ = [
    "FAULTS",
    "FLAKE",
    "LEAVER",
    "LEAVERS",
    "PLANTED",
    "SLEEP",
    "Fault",
    "Said",
    "copy_of_project",
    "play_fault",
    "play_planted",
]

PLANTED = "tests/cbp/test_planted_here.py"
"""A file of tests that only the copy has."""


@dataclass(frozen=True)
class Fault:
    """One line of the product that is wrong.

    Attributes:
        path: The file.
        right: The line, or part of it, as it is; it occurs once.
        wrong: What takes its place.
        tests: Those that hold the promise: one file, or one test of it.
    """

    path: str
    right: str
    wrong: str
    tests: str


@dataclass(frozen=True)
class Said:
    """What the gate said of one file of tests.

    Attributes:
        green: Whether the change may land.
        again: Whether tests that failed got a second run.
        lines: All that was printed.
    """

    green: bool
    again: bool
    lines: tuple[str, ...]

    def named(self, beginning: str) -> list[str]:
        """Return the lines that begin so."""
        return [line.strip() for line in self.lines if line.strip().startswith(beginning)]


FAULTS: Mapping[str, Fault] = {
    "cbp/model/schedule": Fault(
        "cbp/model/schedule/backoff.py",
        "return self.begin <= now < self.end",
        "return now < self.end",
        "tests/cbp/model/schedule/test_backoff.py",
    ),
    "cbp/engine/state": Fault(
        "cbp/engine/state/due_groups.py",
        "_times(table) <= microseconds(until)",
        "_times(table) < microseconds(until)",
        "tests/cbp/engine/test_timers.py",
    ),
    "cbp/engine/commit": Fault(
        "cbp/engine/commit/intention_log.py",
        "parsed(result.data, path, Intention.from_json).run != intention.run",
        "parsed(result.data, path, Intention.from_json).epoch != intention.epoch",
        "tests/cbp/engine/test_drivers.py",
    ),
    "controller/store": Fault(
        "controller/store/methods/leases.py",
        ".where(row_of, leases.c.expires_ms <= now)",
        ".where(row_of)",
        "tests/conformance/test_leases.py",
    ),
    "controller/access": Fault(
        "controller/access/rate_limits.py",
        "wrong >= ATTEMPTS_MAX",
        "wrong > ATTEMPTS_MAX",
        "tests/controller/access/test_rate_limits.py",
    ),
    "controller/alerts": Fault(
        "controller/alerts/notices.py",
        "else (before.since, before.sent_at)",
        "else (now, before.sent_at)",
        "tests/controller/alerts/test_notices.py",
    ),
    "controller/ingest/formats": Fault(
        "controller/ingest/formats/jsonl.py",
        "if not reading.options.rules.ignore_unknown:",
        "if reading.options.rules.ignore_unknown:",
        "tests/controller/ingest/formats/test_bad_lines.py",
    ),
    "controller/clock": Fault(
        "controller/clock.py",
        "if timedelta(0) < lead <= LEAD_MAX",
        "if timedelta(0) < lead",
        "tests/controller/loop/runs/test_clock.py",
    ),
    "controller/api/routing": Fault(
        "controller/api/routing/cursors.py",
        " or content[:_DIGEST_BYTES] != self._digest()",
        "",
        "tests/controller/api/test_cursors_of_lists.py",
    ),
    "stages/translators": Fault(
        "stages/translators/count_per_key.py",
        "n = sum(1 for _ in group.items) + sum(row.n for row in group.counts)",
        "n = sum(1 for _ in group.items)",
        "tests/stages/test_counts.py",
    ),
}
"""By the room in which they are."""

FLAKE = '''"""Fails the first time."""

from pathlib import Path


def test_flaky() -> None:
    """It passes when it is run again."""
    mark = Path(__file__).with_suffix(".was-here")
    first = not mark.exists()
    mark.touch()
    assert not first
'''

SLEEP = '''"""Sleeps."""

import time


def test_sleeping() -> None:
    """It waits for the machine."""
    time.sleep(0.01)
'''

LEAVERS: Mapping[str, str] = {
    "thread 'planted'": "threading.Thread("
    "target=threading.Event().wait, name='planted', daemon=True).start()",
    "process ": "subprocess.Popen(['sleep', '20'])",
    "port ": "KEPT.append(socket.create_server(('127.0.0.1', 0)))",
}
"""By what the gate says of it: what a test leaves behind."""

LEAVER = '''"""Leaves something behind."""

import socket
import subprocess
import threading

KEPT = []


def test_leaves() -> None:
    """It ends; what it began does not."""
    {left}
'''


@contextmanager
def copy_of_project() -> Iterator[Path]:
    """Give a copy of what git tracks, as it is now; it lasts as long as the context."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True)
    with tempfile.TemporaryDirectory(prefix="cbp-planted-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (REPO / name).is_file():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPO / name, target)
        yield Path(folder)


def play_fault(copy: Path, fault: Fault) -> Said:
    """Plant a fault in the copy, let the gate judge, and take the fault back."""
    file = copy / fault.path
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.right) == 1, f"{fault.path} has no longer {fault.right!r} once"
    file.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        return _judged(copy, fault.tests)
    finally:
        file.write_text(text, encoding="utf-8")


def play_planted(copy: Path, text: str, tests: str = PLANTED) -> Said:
    """Plant a file of tests in the copy, let the gate judge some tests, and remove the file."""
    file = copy / PLANTED
    file.write_text(text, encoding="utf-8")
    try:
        return _judged(copy, tests)
    finally:
        file.unlink()


def _judged(copy: Path, tests: str) -> Said:
    # The files of a fault are written twice within a second: compiled ones would be taken for new.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    kept = copy / "build" / "gate"
    shutil.rmtree(kept, ignore_errors=True)
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    arguments = ["-q", "-x", "-p", "no:cacheprovider", tests]
    with contextlib.redirect_stdout(printed):
        code = play(copy, kept, arguments, Quarantine())
    printed.seek(0)
    lines = tuple(printed.read().splitlines())
    return Said(code == 0, (kept / "second.log").exists(), lines)


def main() -> int:
    """Plant everything, print what the gate said; return how often it was wrong."""
    wrong = 0

    def tell(what: str, said: Said, *, right: bool, word: str) -> None:
        nonlocal wrong
        wrong += not right
        colour, chance = "green" if said.green else "red", "second run" if said.again else "first"
        print(f"{'as it must' if right else 'WRONG':12}{colour:7}{chance:12}{what}  {word}")

    with copy_of_project() as copy:
        for room, fault in FAULTS.items():
            sound = _judged(copy, fault.tests)
            said = play_fault(copy, fault)
            failed = said.named("FAILED")
            right = sound.green and not said.green and said.again and bool(failed)
            tell(f"fault in {room}", said, right=right, word=failed[-1] if failed else "")
        said = play_planted(copy, FLAKE)
        named = said.named("flaky:")
        tell("a flake", said, right=said.green and bool(named), word=" ".join(named))
        for beginning, left in LEAVERS.items():
            said = play_planted(copy, LEAVER.format(left=left))
            named = said.named(beginning)
            tell(
                "left behind", said, right=not said.green and bool(named), word=" ".join(named[:1])
            )
        said = play_planted(copy, SLEEP, "tests/test_clocks.py")
        named = [line for line in said.lines if PLANTED in line]
        tell("a sleep", said, right=not said.green and bool(named), word=PLANTED if named else "")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
