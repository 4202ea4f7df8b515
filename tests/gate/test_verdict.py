"""Decisions of the gate: what is green, what is flaky, what is red."""

from __future__ import annotations

import pytest

from tests.gate.verdict import (
    CAUSES_MAX,
    TESTS_FAILED,
    TESTS_MAX,
    TRACEBACK,
    Outcome,
    causes,
    closing_line,
    judge,
    parse_quarantine,
    run_before,
    second_run,
    shared_causes,
    shown_of,
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


def test_many_causes_are_red_at_once() -> None:
    """More than five causes of failures are taken for a fault of the product."""
    few = {str(number): FAILED for number in range(CAUSES_MAX)}
    assert len(second_run(TESTS_FAILED, few)) == CAUSES_MAX == 5
    many = {**few, "one more": FAILED}
    assert second_run(TESTS_FAILED, many) == []
    verdict = judge(TESTS_FAILED, many)
    assert not verdict.green
    assert verdict.reason.startswith("6 tests failed of 6 causes; ")


def not_set_up(error: str) -> Outcome:
    return Outcome("failed", set_up=error)


def test_a_fixture_that_fails_is_one_cause_of_all_its_tests() -> None:
    """Tests of one file with one error in their set-ups are run again, all of them, and named."""
    tests = [f"a.py::test_a[{number}]" for number in range(CAUSES_MAX + 1)]
    first = {
        **dict.fromkeys(tests, not_set_up("answered 500\nserved.py:7")),
        "a.py::test_b": PASSED,
    }
    assert causes(first) == [tests]
    assert second_run(TESTS_FAILED, first) == tests
    assert shared_causes(first) == ["6 tests of a.py were not set up: answered 500"]
    verdict = judge(TESTS_FAILED, first, dict.fromkeys(tests, PASSED))
    assert (verdict.green, verdict.flaky) == (True, tuple(tests))
    assert not judge(TESTS_FAILED, first, {**dict.fromkeys(tests, PASSED), tests[3]: FAILED}).green


def test_other_failures_have_a_cause_each() -> None:
    """Another file, another error, or a failure in the test itself is a cause of its own."""
    outcomes = {
        "a.py::test_a": not_set_up("x"),
        "a.py::test_b": not_set_up("y"),
        "b.py::test_a": not_set_up("x"),
        "a.py::test_c": FAILED,
        "a.py::test_d": FAILED,
        "a.py::test_e": not_set_up("x"),
    }
    assert [len(one) for one in causes(outcomes)] == [2, 1, 1, 1, 1]
    assert second_run(TESTS_FAILED, outcomes) == list(outcomes)
    assert second_run(TESTS_FAILED, {**outcomes, "a.py::test_f": FAILED}) == []


def test_one_cause_of_very_many_failures_is_red_at_once() -> None:
    """To run them all alone would take long, and what so many ask for is broken."""
    tests = {f"a.py::test_a[{number}]": not_set_up("x") for number in range(TESTS_MAX + 1)}
    assert second_run(TESTS_FAILED, tests) == []
    assert judge(TESTS_FAILED, tests).reason.startswith("61 tests failed of 1 cause; ")
    tests.popitem()
    assert len(second_run(TESTS_FAILED, tests)) == TESTS_MAX


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


def test_few_lines_of_a_failure_say_why() -> None:
    """What was raised, and what the service wrote down: a log of a run may show its end only."""
    text = "\n".join(
        [
            "[setup]",
            "    assert answer.is_success",
            *(f"E   line {n}" for n in range(9)),
            "--- end of page-1.log ---",
            f"before\n{TRACEBACK}\n  old\nOldError",
            f"{TRACEBACK}\n  guard.py:7 run\nKeyError: 'x'",
            "",
        ]
    )
    shown = shown_of(text)
    assert shown == [*(f"E   line {n}" for n in range(4)), "  guard.py:7 run", "KeyError: 'x'"]
    assert shown_of("[call]\nE   assert 1 == 2\n--- Captured stdout ---\nx\n") == [
        "E   assert 1 == 2"
    ]
    assert len(shown_of(text + "more\n" * 99)) < 30


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
