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

from tests.gate.changed import changed_files, choose, read_importers
from tests.gate.outcomes import FILE, read_outcomes
from tests.gate.verdict import (
    Outcome,
    Quarantine,
    Verdict,
    causes,
    closing_line,
    counted,
    judge,
    parse_quarantine,
    run_before,
    second_run,
    seconds_of_files,
    shared_causes,
    shown_of,
    slowest,
)

REPO = Path(__file__).resolve().parents[2]
KEPT = REPO / "build" / "gate"
QUARANTINE = REPO / "tests" / "quarantine.txt"
SLOWEST = 50
SHARED = ["-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder"]


def main(arguments: Sequence[str]) -> int:
    """Run the tests of this project; return 0 if the change may land."""
    quarantine = parse_quarantine(QUARANTINE.read_text(encoding="utf-8").splitlines())
    if "--long" in arguments:
        os.environ["CBP_RANDOM"] = "1"  # other examples each time; a failure prints how to repeat
        os.environ.setdefault("CBP_EXAMPLES", "1")
        return play(REPO, KEPT, [*SHARED, "-m", "not bench"], Quarantine())
    if "--changed" in arguments:
        return _play_changed(quarantine)
    return play(REPO, KEPT, SHARED, quarantine)


def _play_changed(quarantine: Quarantine) -> int:
    changed = changed_files(REPO)
    last = KEPT / "first.jsonl"
    seconds = seconds_of_files(_read(last)) if last.exists() else {}
    choice = choose(changed, read_importers(REPO), seconds)
    print(
        f"gate: {len(changed)} files differ from main; {len(choice.files)} files of tests are near"
    )
    if choice.left_out:
        print(f"gate: {len(choice.left_out)} farther ones are left to the complete run")
    if not choice.files:
        print(" no tests ran in 0.00s ".center(80, "="))
        return 0
    arguments = [*SHARED, *choice.files]
    return play(REPO, KEPT.with_name("gate-changed"), arguments, quarantine)


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
        print(f"\ngate: {counted(first)}; what failed is run once more, alone", flush=True)
        _, second = _run(project, kept / "second", ["-m", "", *again])
    verdict = judge(exit_code, first, second)
    _report(verdict, quarantine, first, kept)
    _print_slowest(first, kept)
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
    return process.returncode, _read(outcomes) if outcomes.exists() else {}


def _read(outcomes: Path) -> dict[str, Outcome]:
    return read_outcomes(outcomes.read_text(encoding="utf-8").splitlines())


def _report(
    verdict: Verdict, quarantine: Quarantine, first: Mapping[str, Outcome], kept: Path
) -> None:
    print()
    for test, reason in quarantine.reasons.items():
        print(f"quarantine: {test} ({reason})")
    for cause in shared_causes(first):
        print(f"one cause: {cause}")
    for test in verdict.flaky:
        print(f"flaky: {test}")
        print(f"  failed in process {first[test].process}, passed alone; both outputs: {kept}")
    for test in (*verdict.flaky, *verdict.failed):
        for before in run_before(test, first):
            print(f"  ran before {test.rpartition('::')[2]}: {before}")
    for tests in causes(first):
        for line in shown_of(first[tests[0]].text):
            print(f"  {tests[0].rpartition('::')[2]}: {line}")
    for test in verdict.failed:
        print(f"FAILED {test}")
    if not verdict.green:
        print(f"gate: red: {verdict.reason}")


def _print_slowest(outcomes: Mapping[str, Outcome], kept: Path) -> None:
    files = sorted(seconds_of_files(outcomes).items(), key=lambda pair: -pair[1])
    lines = [f"{seconds:8.1f} s  {file}" for file, seconds in files]
    lines += ["", *(f"{one.seconds:8.1f} s  {test}" for test, one in slowest(outcomes, SLOWEST))]
    (kept / "slowest.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"gate: the slowest files and tests are listed in {kept / 'slowest.txt'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
