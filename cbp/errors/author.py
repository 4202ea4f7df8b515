"""What an author's code did wrong while a run or a decision used it.

Guaranteed: the stage, the function and its `file.py:12` stand in `details`.
Absent on purpose: finding the place; whoever calls the code knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cbp.errors.base import CbpError

__all__ = [
    "AlignmentError",
    "AnswerLateError",
    "AuthorCodeError",
    "CycleUndrainedError",
    "DecisionInvalidError",
    "DestinationInvalidError",
    "FramesScatteredError",
    "FramingKeyError",
    "IncrementAbsentError",
    "MemoInvalidError",
    "RemovalRefusedError",
    "RouteFlowError",
    "RouteKeyError",
]


class AuthorCodeError(CbpError):
    """An author's function raised, or emitted what its output does not declare.

    Details:
        stage, function: whose code it was.
        place: `file.py:line` inside the author's file.
        key: the group's key, as text.
        inputs: the first records of the group, per flow, as text.
        cause: the exception's type and text.
    """

    code = "author_code_failed"

    def __init__(self, *, stage: str, function: str, place: str, cause: str, **more: Any) -> None:
        key = more.get("key")
        for_key = f" for key {key}" if key is not None else ""
        super().__init__(
            f"stage {stage!r}: {function} failed at {place}{for_key}: {cause}",
            stage=stage,
            function=function,
            place=place,
            cause=cause,
            **more,
        )


class DecisionInvalidError(AuthorCodeError):
    """A Runnable answered what cannot be done; its stage stops until it is mended.

    `stage`, `function` and `place` are filled in by whoever asked: a rule does not know
    which stage it decides for.
    """

    code = "decision_invalid"

    def __init__(
        self,
        cause: str,
        *,
        stage: str = "",
        function: str = "runnable",
        place: str = "",
        **more: Any,
    ) -> None:
        super().__init__(stage=stage, function=function, place=place, cause=cause, **more)
        self._cause, self._more = cause, more

    def at(self, *, stage: str, function: str, place: str) -> DecisionInvalidError:
        """Return the error with the stage, the function and its `file.py:12`."""
        found = type(self).__new__(type(self))
        DecisionInvalidError.__init__(
            found, self._cause, stage=stage, function=function, place=place, **self._more
        )
        return found


class MemoInvalidError(DecisionInvalidError):
    """A memo holds what JSON cannot; it would be lost with the process."""

    code = "memo_not_serialisable"

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(
            f"{path} is a {kind}, which is not serialisable: use null, booleans, numbers, "
            "texts, lists, and mappings with texts as keys",
            path=path,
            kind=kind,
        )


class AlignmentError(DecisionInvalidError):
    """An aligned input's framing keys go backwards, or have no order."""

    code = "alignment_backwards"

    def __init__(self, input_: str, *, key: int | str, before: int | str, of: str = "") -> None:
        behind = f"{before!r} of input {of!r}" if of else f"{before!r}"
        super().__init__(
            f"input {input_!r} came to framing key {key!r} behind {behind}: keys of aligned "
            "inputs are all numbers or all texts, and never go backwards",
            input=input_,
            framing_key=key,
            before=before,
        )


class FramingKeyError(DecisionInvalidError):
    """A FrameBy function gave something that labels no increment."""

    code = "framing_key_invalid"

    def __init__(self, value: object) -> None:
        kind, shown = type(value).__name__, repr(value)[:200]
        super().__init__(
            f"{shown} is a {kind}: a framing key is a number, a text, a date or a time",
            function="frame_by",
            value=shown,
        )


class FramesScatteredError(DecisionInvalidError):
    """The framing keys of an increment change so often that its frames are mostly slices."""

    code = "frames_scattered"

    def __init__(self, stage: str, input_: str, place: str, *, increment: str, most: int) -> None:
        super().__init__(
            f"increment {increment} changes its framing key more than {most} times: frame by a "
            "coarser key, let records come in the order of it, or in smaller increments",
            stage=stage,
            function=f"{input_}.frame_by",
            place=place,
            increment=increment,
            most=most,
        )


class IncrementAbsentError(DecisionInvalidError):
    """A Runnable reads an increment, or from an input, that is not there."""

    code = "increment_absent"


class RemovalRefusedError(DecisionInvalidError):
    """A Runnable removes what it must not: without a run, or what is not there."""

    code = "removal_refused"


class DestinationInvalidError(AuthorCodeError):
    """A RouteBy gave something that no record can be sent to."""

    code = "destination_invalid"


class RouteKeyError(DestinationInvalidError):
    """A RouteBy gave what is no key of its stage: unhashable, or of other types than declared."""

    code = "route_key_invalid"


class RouteFlowError(DestinationInvalidError):
    """A RouteBy gave an `ALL` that is limited to a flow which the stage does not have."""

    code = "route_flow_unknown"


class AnswerLateError(AuthorCodeError):
    """A function that the controller asks did not answer in time; its stage stops."""

    code = "answer_late"

    def __init__(
        self, *, stage: str, function: str, place: str, seconds: float, setting: str
    ) -> None:
        super().__init__(
            stage=stage,
            function=function,
            place=place,
            cause=f"it had not answered after {seconds:g} s and was given up: mend it or raise "
            f"{setting}, then resume",
            seconds=seconds,
            setting=setting,
        )


class CycleUndrainedError(AuthorCodeError):
    """A cycle runs on and on without new input; it is shown as such, and goes on."""

    code = "cycle_undrained"

    def __init__(self, *, cycle: Sequence[str], turns: int, **code: str) -> None:
        shown = " -> ".join((*cycle, cycle[0]))
        cause = f"the cycle {shown} does not drain: {turns} epochs without new input"
        super().__init__(cause=cause, cycle=list(cycle), turns=turns, **code)
        writer = f"{code['function']} ({code['place']}) of stage {code['stage']!r}"
        self.message = f"{cause}; {writer} writes on into it; pause a stage of it to stop it"
        self.args = (self.message,)
