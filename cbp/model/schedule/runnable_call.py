"""Call a Runnable and check its decision: the only place where rules are called.

Every engine and the controller use `call_runnable`, so every decision is checked first:

- it names existing inputs and increments that wait there, each once;
- a decision that reads nothing removes nothing;
- its memo is JSON, so that it is the same after a crash.

No rule decides about a frame of records without a framing key: the next run reads it, and nothing
else, since its records are only set aside (`cbp.model.dataflow.set_aside`).

Source: ours; what is checked follows from CBP (SoCC'10), section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cbp.errors import (
    AlignmentError,
    AuthorCodeError,
    AuthorStateError,
    DecisionInvalidError,
    IncrementAbsentError,
    RemovalRefusedError,
    author_cause,
    author_line,
    is_authors,
    text_of,
)
from cbp.errors.message_limits import shortened
from cbp.model.author.decimals import author_decimals
from cbp.model.author.memo import json_memo
from cbp.model.author.translator_state import StateWatch
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.connector import Connector, Decision


def call_runnable(
    stage: str, runnable: RunnableSpec, connectors: Mapping[str, Connector], memo: Any
) -> Decision:
    """Return the decision of a stage's Runnable now, given the memo of the stage's last run.

    A decision that reads nothing keeps that memo.

    Raises:
        AuthorCodeError: The function failed.
        DecisionInvalidError: It did not return a valid decision, or its memo is not JSON.
        AlignmentError: An aligned input's keys go backwards, and its stage does not set such
            frames aside.
    """
    if (refused := _refused(connectors)) is not None:
        return replace(refused, memo=json_memo(memo))
    try:
        watch = StateWatch(runnable.function, stage=stage, name=runnable.name, place=runnable.place)
        with author_decimals(), watch as fresh:
            decision: Decision = fresh.function(connectors, json_memo(memo))
        _check(decision, connectors)
        new_memo = json_memo(decision.memo if decision.runnable else memo)
        return replace(decision, memo=new_memo)
    except AuthorStateError:
        raise
    except AlignmentError as error:
        if runnable.sets_aside and error.index is not None:
            return _late(stage, runnable, error, json_memo(memo))
        raise error.at(stage=stage, function=runnable.name, place=runnable.place) from error
    except DecisionInvalidError as error:
        raise error.at(stage=stage, function=runnable.name, place=runnable.place) from error
    except BaseException as error:  # author's code may raise anything
        if not is_authors(error):
            raise
        raise AuthorCodeError(
            stage=stage,
            function=runnable.name,
            place=author_line(error, runnable.place),
            cause=author_cause(error, runnable.place),
        ) from error


def _refused(connectors: Mapping[str, Connector]) -> Decision | None:
    """Return a decision to read the frames of records without a framing key, if there are any."""
    frames = {
        name: tuple(one.index for one in connector.unread if one.is_refused)
        for name, connector in connectors.items()
    }
    found = {name: indexes for name, indexes in frames.items() if indexes}
    return Decision(found, found) if found else None


def _late(stage: str, runnable: RunnableSpec, error: AlignmentError, memo: Any) -> Decision:
    assert error.index is not None, "the caller has not checked that a frame is late"
    placed = error.at(stage=stage, function=runnable.name, place=runnable.place)
    late = {str(error.details["input"]): (error.index,)}
    return Decision(late, late, memo, late=(placed.code, placed.message))


def _check(decision: Any, connectors: Mapping[str, Connector]) -> None:
    if not isinstance(decision, Decision):
        message = f"expected a Decision, but the function returned {_shown(decision)}"
        raise DecisionInvalidError(message)
    given: dict[str, Any] = {"reads": decision.read, "removes": decision.remove}
    for verb, chosen in given.items():
        if not isinstance(chosen, Mapping):
            message = (
                f"the decision {verb} {_shown(chosen)}; expected a mapping of names of inputs to "
                "indexes of increments"
            )
            raise DecisionInvalidError(message)
        for name, indexes in chosen.items():
            _check_input(verb, name, indexes, connectors)
    if not decision.runnable and any(decision.remove.values()):
        message = (
            "the decision removes increments but reads none, and only a run can remove "
            "increments: read at least one"
        )
        raise RemovalRefusedError(message)


def _check_input(verb: str, name: str, indexes: Any, connectors: Mapping[str, Connector]) -> None:
    if name not in connectors:
        has = ", ".join(connectors)
        message = (
            f"the decision {verb} from the input {name!r}, which does not exist; use one of {has}"
        )
        raise _refusal(verb)(message, input=name)
    if not isinstance(indexes, list | tuple) or any(type(one) is not int for one in indexes):
        message = (
            f"the decision {verb} {_shown(indexes)} of input {name!r}; expected a tuple of ints, "
            "the indexes of increments"
        )
        raise DecisionInvalidError(message, input=name)
    waiting = [increment.index for increment in connectors[name].waiting]
    if len(set(indexes)) != len(indexes):
        message = f"the decision {verb} an increment of input {name!r} twice: {_shown(indexes)}"
        raise DecisionInvalidError(message, input=name)
    absent = [index for index in indexes if index not in waiting]
    if absent:
        message = (
            f"the decision {verb} increment {absent[0]!r} of input {name!r}, which is not queued "
            f"there; queued: {_shown(waiting) if waiting else 'none'}"
        )
        raise _refusal(verb)(message, input=name, index=absent[0])


def _refusal(verb: str) -> type[DecisionInvalidError]:
    return IncrementAbsentError if verb == "reads" else RemovalRefusedError


def _shown(value: Any) -> str:
    return shortened(text_of(value, repr), 200)
