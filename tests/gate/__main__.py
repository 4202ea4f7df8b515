"""Run by deploy/test.sh: `python -m tests.gate` plays the default tests and judges them.

Failed tests get one more run, alone (`tests/gate/verdict.py`). Output of both runs is kept in
`build/gate`: first.log, second.log, and first.jsonl and second.jsonl with each test's outcome.
The last line has the form of pytest's closing line and speaks of both runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.gate.outcomes import FILE, read_outcomes
from tests.gate.verdict import (
    Outcome,
    Quarantine,
    Verdict,
    closing_line,
    judge,
    parse_quarantine,
    run_before,
    second_run,
)

REPO = Path(__file__).resolve().parents[2]
KEPT = REPO / "build" / "gate"
QUARANTINE = REPO / "tests" / "quarantine.txt"
SHARED = ["-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder"]


def main(arguments: Sequence[str]) -> int:
    """Run the tests of this project; return 0 if the change may land."""
    quarantine = parse_quarantine(QUARANTINE.read_text(encoding="utf-8").splitlines())
    if "--long" in arguments:
        return play(REPO, KEPT, [*SHARED, "-m", "not bench"], Quarantine())
    return play(REPO, KEPT, SHARED, quarantine)


def play(project: Path, kept: Path, arguments: Sequence[str], quarantine: Quarantine) -> int:
    """Run a project's tests, failed ones once more; return 0 if all passed, at the latest then.

    Args:
        project: Folder from which pytest is called.
        kept: Folder for the output of both runs.
        arguments: Of pytest, for the first run.
        quarantine: Tests that are left out.
    """
    began = time.monotonic()
    left_out = [f"--deselect={test}" for test in quarantine.reasons]
    exit_code, first = _run(project, kept / "first", [*arguments, *left_out])
    again = second_run(exit_code, first)
    second = None
    if again:
        print(f"\ngate: {len(again)} failed; they are run once more, alone", flush=True)
        _, second = _run(project, kept / "second", ["-m", "", *again])
    verdict = judge(exit_code, first, second)
    _report(verdict, quarantine, first, kept)
    print(closing_line(first, verdict, time.monotonic() - began), flush=True)
    return 0 if verdict.green else 1


def _run(project: Path, kept: Path, arguments: Sequence[str]) -> tuple[int, dict[str, Outcome]]:
    """Run pytest in a new process; show and keep what it prints."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    outcomes = kept.with_suffix(".jsonl")
    outcomes.unlink(missing_ok=True)
    environment = {**os.environ, FILE: str(outcomes), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "pytest", *arguments]
    with (
        subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process,
        kept.with_suffix(".log").open("wb") as log,
    ):
        assert process.stdout is not None
        while chunk := os.read(process.stdout.fileno(), 65536):
            log.write(chunk)
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    lines = outcomes.read_text(encoding="utf-8").splitlines() if outcomes.exists() else []
    return process.returncode, read_outcomes(lines)


def _report(
    verdict: Verdict, quarantine: Quarantine, first: Mapping[str, Outcome], kept: Path
) -> None:
    print()
    for test, reason in quarantine.reasons.items():
        print(f"quarantine: {test} ({reason})")
    for test in verdict.flaky:
        print(f"flaky: {test}")
        print(f"  failed in process {first[test].process}, passed alone; both outputs: {kept}")
    for test in (*verdict.flaky, *verdict.failed):
        for before in run_before(test, first):
            print(f"  ran before {test.rpartition('::')[2]}: {before}")
    for test in verdict.failed:
        print(f"FAILED {test}")
    if not verdict.green:
        print(f"gate: red: {verdict.reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
