"""What a Runnable may answer, and that everything else is a coded error with its place.

A Runnable reads and removes only what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cbp.errors import AlignmentError, AuthorCodeError, DecisionInvalidError, MemoInvalidError
from cbp.model.author.memo import json_memo
from cbp.model.dataflow.runnable import Align
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.schedule.runnable_call import call_runnable

CONNECTORS = {"a": Connector("a").append(Increment("flow", 3, "x")), "b": Connector("b")}


def ask(function: Callable[..., Any], memo: Any = None) -> Decision:
    code = function.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    return call_runnable("count", RunnableSpec(function, place), CONNECTORS, memo)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (None, "decision_invalid"),
        (Decision({"a": (3, 3)}), "decision_invalid"),
        (Decision({"a": 3}), "decision_invalid"),  # type: ignore[dict-item]
        (Decision({"a": (3.0,)}), "decision_invalid"),  # type: ignore[dict-item]
        (Decision({"a": ([3],)}), "decision_invalid"),  # type: ignore[dict-item]
        ({("a", "b"): 3}, "decision_invalid"),
        (Decision(("a",)), "decision_invalid"),  # type: ignore[arg-type]
        (Decision({"c": (0,)}), "increment_absent"),
        (Decision({"a": (4,)}), "increment_absent"),
        (Decision({"a": (3,)}, {"b": (0,)}), "removal_refused"),
        (Decision({"a": (3,)}, {"c": (0,)}), "removal_refused"),
        (Decision({}, {"a": (3,)}), "removal_refused"),
    ],
)
def test_an_impossible_answer_is_an_error_with_its_place(answer: Any, code: str) -> None:
    """Unknown inputs, absent increments, doubles, other types, removing without a run."""
    with pytest.raises(DecisionInvalidError) as refused:
        ask(lambda connectors, memo: answer)
    assert refused.value.code == code
    details = refused.value.details
    assert (details["stage"], details["function"]) == ("count", "<lambda>")
    assert details["place"].startswith(__file__)


@pytest.mark.parametrize(
    "memo", [{1, 2}, {"a": [object()]}, {1: 2}, float("nan"), b"x", [10**5000]]
)
def test_a_memo_is_json(memo: Any) -> None:
    """Anything that would not come back after a crash is refused, and its part named."""
    with pytest.raises(MemoInvalidError) as refused:
        ask(lambda connectors, _: Decision({"a": (3,)}, memo=memo))
    assert refused.value.code == "memo_not_serialisable"
    assert refused.value.details["path"].startswith(("memo", "the key 1 of memo"))


def test_a_memo_comes_back_as_json_brings_it() -> None:
    """Tuples become lists at once, not only after a restart; the function gets a copy."""
    given = {"phases": [1]}
    decision = ask(lambda c, memo: Decision({"a": (3,)}, memo=(memo, ("x",))), given)
    assert decision.memo == [{"phases": [1]}, ["x"]]
    decision = ask(lambda c, memo: Decision(memo=memo["phases"].append(2)), given)
    assert decision.memo == given == {"phases": [1]}
    assert json_memo((1, (2.5, None, True, "x"))) == [1, [2.5, None, True, "x"]]


def test_a_memo_is_forgotten_when_nothing_is_read() -> None:
    """Only a run changes the memo: there is none, so there is no place to keep it."""
    assert ask(lambda c, memo: Decision(memo="new"), "old").memo == "old"
    assert ask(lambda c, memo: Decision({"a": (3,)}, memo="new"), "old").memo == "new"


def test_a_function_that_fails_names_its_line() -> None:
    """An exception of the author's code is an author's error, at the line that raised."""

    def rule(connectors: Any, memo: Any) -> Decision:
        raise KeyError("phase")

    with pytest.raises(AuthorCodeError) as failed:
        ask(rule)
    assert failed.value.code == "author_code_failed"
    line = rule.__code__.co_firstlineno + 1
    assert failed.value.details["place"] == f"{__file__}:{line}"


def test_keys_that_go_backwards_name_the_stage() -> None:
    """A rule's own error gets stage, rule and place from its caller."""
    with pytest.raises(AlignmentError) as refused:
        call_runnable("diff", RunnableSpec(Align(("a",)), "diff.py:7"), CONNECTORS, "y")
    assert "stage 'diff'" in refused.value.message
    assert "diff.py:7" in refused.value.message
    assert refused.value.details["framing_key"] == "x"


def test_read_marks_may_be_read_again() -> None:
    """An increment that was read and kept may be read, and removed, by a later run."""
    kept = {"a": CONNECTORS["a"].after((3,), ()), "b": CONNECTORS["b"]}
    spec = RunnableSpec(lambda c, m: Decision({"a": (3,)}, {"a": [3]}))  # type: ignore[dict-item]
    assert call_runnable("s", spec, kept, None).read == {"a": (3,)}


def test_records_without_a_framing_key_are_read_without_a_question() -> None:
    """At once and by themselves, whatever the rule waits for; its memo stays."""
    keyless = Increment("f", 7, "", (DataFile("flows/f/7", 2, 20, refused=("code", "words")),))
    connectors = {"a": CONNECTORS["a"].append(keyless), "b": CONNECTORS["b"]}

    def never(connectors: Any, memo: Any) -> Decision:
        raise AssertionError

    spec = RunnableSpec(never, sets_aside=True)
    decision = call_runnable("s", spec, connectors, {"last": 1})
    assert (decision.read, decision.remove) == ({"a": (7,)}, {"a": (7,)})
    assert (decision.memo, decision.late) == ({"last": 1}, None)
