"""What a run of the tests says about a change: pure decisions, no effects.

A test that failed gets one more run, in a new process, with no other test beside it. One that
passes then depends on the machine: it is named as flaky and does not hold a change back, unless
there are many causes of such failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CAUSES_MAX = 5
"""More causes of failures than this are taken for a fault of the product: no second run."""

TESTS_MAX = 60
"""The same for failed tests, whatever their causes; a file has some forty tests at most."""

TESTS_FAILED = 1
"""Exit code of pytest for "some tests failed"; higher ones say that the run itself broke."""

TRACEBACK = "Traceback (most recent call last):"
"""How a traceback begins, in the text of a failure, too."""

_BEFORE = 5
_RAISED, _LOG_LINES, _CHARACTERS = 4, 20, 400


@dataclass(frozen=True)
class Outcome:
    """What became of one test in one run.

    Attributes:
        result: `passed`, `failed` or `skipped`.
        process: Name of the test process, `gw0` for instance; `main` without pytest-xdist.
        seconds: Of set-up, call and tear-down together.
        text: What pytest printed of the failure, with captured output.
        set_up: The error with which its set-up failed, if nothing else of it failed; else empty.
    """

    result: str
    process: str = "main"
    seconds: float = 0.0
    text: str = ""
    set_up: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether the run is green, and what to print about it.

    Attributes:
        green: The change may land.
        flaky: Tests that failed and passed when they were run again.
        failed: Tests that hold the change back.
        reason: Why the run is red, in one sentence; empty when it is green.
    """

    green: bool
    flaky: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Quarantine:
    """Tests that the default run leaves out, each with the reason and the date."""

    reasons: Mapping[str, str] = field(default_factory=dict)


def failed_tests(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return the tests that failed, in the order in which they were reported."""
    return [test for test, outcome in outcomes.items() if outcome.result == "failed"]


def causes(outcomes: Mapping[str, Outcome]) -> list[list[str]]:
    """Return the failed tests, those of one cause together, by the first one of each.

    A fixture that cannot be made fails every test that asks for it: tests of one file whose
    set-ups failed with the same error are one cause. Each other test is one by itself.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for test in failed_tests(outcomes):
        error = outcomes[test].set_up
        cause = (test.partition("::")[0], error) if error else (test, "")
        found.setdefault(cause, []).append(test)
    return list(found.values())


def shown_of(text: str) -> list[str]:
    """Return what to show of a failure where only few lines are read.

    What was raised, and the traceback in the log of a service, which says why.

    Args:
        text: As `Outcome` has it.
    """
    report, _, logs = text.partition("\n--- end of ")
    lines = report.splitlines()
    raised = [f"E   {line[1:].strip()}" for line in lines if line.startswith("E  ")]
    _, began, after = logs.rpartition(TRACEBACK)
    said = after.splitlines()[1:_LOG_LINES] if began else []
    return [line[:_CHARACTERS] for line in (*raised[:_RAISED], *said)]


def second_run(exit_code: int, outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return the tests to run once more; none if the first run decides already."""
    failed = failed_tests(outcomes)
    few = len(failed) <= TESTS_MAX and len(causes(outcomes)) <= CAUSES_MAX
    return failed if exit_code == TESTS_FAILED and few else []


def counted(outcomes: Mapping[str, Outcome]) -> str:
    """Return how many tests failed, and for how many causes: `6 tests failed of 1 cause`."""
    tests, number = len(failed_tests(outcomes)), len(causes(outcomes))
    return (
        f"{tests} test{'s' if tests != 1 else ''} failed"
        f" of {number} cause{'s' if number != 1 else ''}"
    )


def shared_causes(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a line for each cause that several tests have: file, number and error."""
    return [
        f"{len(tests)} tests of {tests[0].partition('::')[0]} were not set up:"
        f" {outcomes[tests[0]].set_up.splitlines()[0]}"
        for tests in causes(outcomes)
        if len(tests) > 1
    ]


def judge(
    exit_code: int,
    first: Mapping[str, Outcome],
    second: Mapping[str, Outcome] | None = None,
) -> Verdict:
    """Decide on a run, and on the second run of its failures if there was one.

    Args:
        exit_code: pytest's, of the first run.
        first: Outcomes of the first run by node id.
        second: Outcomes of the second run; None if there was none.
    """
    failed = tuple(failed_tests(first))
    if exit_code == 0 and not failed:
        return Verdict(green=True)
    if exit_code != TESTS_FAILED or not failed:
        reason = f"pytest ended with {exit_code}, which no failed test explains"
        return Verdict(green=False, failed=failed, reason=reason)
    if second is None:
        reason = (
            f"{counted(first)}; there is a second run up to {CAUSES_MAX} causes"
            f" and {TESTS_MAX} tests"
        )
        return Verdict(green=False, failed=failed, reason=reason)
    # Only a pass counts: skipped, or not run at all, says nothing about the failure.
    passed = tuple(test for test in failed if test in second and second[test].result == "passed")
    again = tuple(test for test in failed if test not in passed)
    if again:
        return Verdict(green=False, flaky=passed, failed=again, reason="failed also when run alone")
    return Verdict(green=True, flaky=passed)


def run_before(test: str, outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return the last tests that ran in the same process before this one, oldest first."""
    process = outcomes[test].process
    before: list[str] = []
    for other, outcome in outcomes.items():
        if other == test:
            break
        if outcome.process == process:
            before.append(other)
    return before[-_BEFORE:]


def closing_line(outcomes: Mapping[str, Outcome], verdict: Verdict, seconds: float) -> str:
    """Return one line in the form of pytest's own closing line, for both runs together."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for outcome in outcomes.values():
        counts[outcome.result] += 1
    counts["passed"] += len(verdict.flaky)
    counts["failed"] -= len(verdict.flaky)
    order: list[tuple[int, str]] = [
        (counts["failed"], "failed"),
        (counts["passed"], "passed"),
        (counts["skipped"], "skipped"),
        (len(verdict.flaky), "flaky"),
    ]
    said = ", ".join(f"{number} {name}" for number, name in order if number) or "no tests ran"
    return f" {said} in {seconds:.2f}s ".center(80, "=")


def parse_quarantine(lines: Iterable[str]) -> Quarantine:
    """Read `NODE ID  # DATE REASON` lines; empty lines and lines of a comment are passed over.

    Raises:
        ValueError: A line has no date or no reason, or names a test twice.
    """
    reasons: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        test, mark, reason = line.partition("  # ")
        date, _, why = reason.strip().partition(" ")
        if not mark or len(date) != len("2026-01-31") or date.count("-") != 2 or not why.strip():
            raise ValueError(
                f"tests/quarantine.txt:{number}: write `NODE ID  # YYYY-MM-DD REASON`, not {line!r}"
            )
        if test.strip() in reasons:
            raise ValueError(f"tests/quarantine.txt:{number}: {test.strip()} is named twice")
        reasons[test.strip()] = reason.strip()
    return Quarantine(reasons)


def slowest(outcomes: Mapping[str, Outcome], number: int) -> Sequence[tuple[str, Outcome]]:
    """Return the tests that took longest, the slowest first."""
    return sorted(outcomes.items(), key=lambda pair: -pair[1].seconds)[:number]


def seconds_of_files(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """Return how long the tests of each file took together."""
    seconds: dict[str, float] = {}
    for test, outcome in outcomes.items():
        file = test.partition("::")[0]
        seconds[file] = seconds.get(file, 0.0) + outcome.seconds
    return seconds
