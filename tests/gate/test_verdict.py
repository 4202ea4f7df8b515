"""Decisions of the gate: what is green, what is flaky, what is red."""

from __future__ import annotations

import pytest

from tests.gate.verdict import (
    FLAKY_MAX,
    TESTS_FAILED,
    Outcome,
    closing_line,
    judge,
    parse_quarantine,
    run_before,
    second_run,
)

PASSED, FAILED, SKIPPED = Outcome("passed"), Outcome("failed"), Outcome("skipped")


def test_a_run_without_failures_is_green() -> None:
    """Skipped tests hold nothing back, and nothing is run twice."""
    outcomes = {"a": PASSED, "b": SKIPPED}
    assert judge(0, outcomes).green
    assert second_run(0, outcomes) == []


def test_a_failure_that_passes_alone_is_flaky_and_green() -> None:
    """One test that depends on the machine does not hold a change back, and is named."""
    first = {"a": PASSED, "b": FAILED}
    assert second_run(TESTS_FAILED, first) == ["b"]
    verdict = judge(TESTS_FAILED, first, {"b": PASSED})
    assert (verdict.green, verdict.flaky, verdict.failed) == (True, ("b",), ())


@pytest.mark.parametrize("second", [{"b": FAILED}, {"b": SKIPPED}, {}])
def test_only_a_pass_excuses_a_failure(second: dict[str, Outcome]) -> None:
    """A test that fails again, is skipped, or is not found the second time is red."""
    verdict = judge(TESTS_FAILED, {"b": FAILED}, second)
    assert (verdict.green, verdict.failed) == (False, ("b",))


def test_many_failures_are_red_at_once() -> None:
    """More than five failures are taken for a fault of the product."""
    few = {str(number): FAILED for number in range(FLAKY_MAX)}
    assert len(second_run(TESTS_FAILED, few)) == FLAKY_MAX == 5
    many = {**few, "one more": FAILED}
    assert second_run(TESTS_FAILED, many) == []
    assert not judge(TESTS_FAILED, many).green


@pytest.mark.parametrize("exit_code", [1, 2, 3, 4, 5, -9])
def test_a_run_that_broke_is_red(exit_code: int) -> None:
    """No test failed, but pytest did not end well: nothing says that the product is sound."""
    assert not judge(exit_code, {"a": PASSED}).green


@pytest.mark.parametrize("exit_code", [0, 2, 3, -9])
def test_failures_in_a_run_that_broke_get_no_second_chance(exit_code: int) -> None:
    """An exit code that does not fit the outcomes is never excused."""
    outcomes = {"a": FAILED}
    assert second_run(exit_code, outcomes) == []
    assert not judge(exit_code, outcomes).green


def test_what_ran_before_in_the_same_process_is_known() -> None:
    """A failure that another test prepared can be played again: the order is on record."""
    outcomes = {
        "a": Outcome("passed", "gw0"),
        "b": Outcome("passed", "gw1"),
        "c": Outcome("passed", "gw0"),
        "d": Outcome("failed", "gw0"),
        "e": Outcome("passed", "gw0"),
    }
    assert run_before("d", outcomes) == ["a", "c"]


def test_the_closing_line_counts_both_runs() -> None:
    """A flaky test counts as passed, since it did; the line has pytest's form."""
    first = {"a": PASSED, "b": FAILED, "c": SKIPPED}
    line = closing_line(first, judge(TESTS_FAILED, first, {"b": PASSED}), 12.3)
    assert line.strip("= ") == "2 passed, 1 skipped, 1 flaky in 12.30s"
    line = closing_line(first, judge(TESTS_FAILED, first, {"b": FAILED}), 12.3)
    assert line.strip("= ") == "1 failed, 1 passed, 1 skipped in 12.30s"
    assert line.startswith("=")
    assert line.endswith("=")


def test_an_entry_of_the_quarantine_has_a_date_and_a_reason() -> None:
    """Nobody can leave a test out without saying why and since when."""
    lines = ["# head", "", "tests/a.py::test[x # y]  # 2026-11-27 waits for a lease"]
    assert parse_quarantine(lines).reasons == {
        "tests/a.py::test[x # y]": "2026-11-27 waits for a lease"
    }
    for wrong in ("tests/a.py::test", "a  # soon", "a  # 2026-11-27", "a  # 2026-11-27 "):
        with pytest.raises(ValueError, match=r"quarantine\.txt:1"):
            parse_quarantine([wrong])
    with pytest.raises(ValueError, match="twice"):
        parse_quarantine(["a  # 2026-11-27 x", "a  # 2026-11-27 y"])
