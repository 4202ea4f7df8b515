"""Errors in an author's code, found while a run or a decision called it.

Guaranteed: `details` holds the stage, the function and its `file.py:12`.
Absent on purpose: finding the place; the caller of the code knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cbp.errors.base import CbpError


class AuthorCodeError(CbpError, code="author_code_failed"):
    """An author's function raised, or emitted a record that its output does not declare.

    Details:
        stage, function: the code that failed.
        place: `file.py:line` inside the author's file.
        key: the group's key, as text.
        inputs: the first records of the group, per flow, as text.
        records: the increment of the first record of each input, and its position in the increment.
        cause: the exception's type and text.

    `group`, the key of the group that failed, and `places` of the first record of each input are
    known only in the process that called the code.
    """

    group: tuple[Any, ...] | None = None
    places: Mapping[str, int] = {}

    def __init__(self, *, stage: str, function: str, place: str, cause: str, **more: Any) -> None:
        key = more.get("key")
        for_key = f" for key {key}" if key is not None else ""
        message = f"stage {stage!r}: {function} failed at {place}{for_key}: {cause}"
        super().__init__(message, stage=stage, function=function, place=place, cause=cause, **more)


class SetAsideFullError(AuthorCodeError, code="set_aside_full"):
    """A stage would set aside more records than it may, so it stops."""


class AuthorProcessError(AuthorCodeError, code="author_ended_process"):
    """An author's code crashed the process that called it, as code in C can."""


class AuthorUnsendableError(AuthorCodeError, code="author_unsendable"):
    """A translator holds something that cannot be sent to the process that runs its stage."""


class AuthorMisuse(Exception):
    """Raised inside a call that an author's code made; reported as the coded error `leaf`."""

    def __init__(self, leaf: type[AuthorCodeError], message: str) -> None:
        super().__init__(message)
        self.leaf = leaf


class RecordsReturnedError(AuthorCodeError, code="records_returned"):
    """A `translate` returned a value; records that are not emitted are lost."""


class InputReadTwiceError(AuthorCodeError, code="input_read_twice"):
    """A flow of a group was read a second time, after its end or in a second loop."""


class RunContextHiddenError(AuthorCodeError, code="run_context_hidden"):
    """A translator read `group.run` where the check of its code cannot see that."""


class StateKeyForeignError(AuthorCodeError, code="state_key_foreign"):
    """A group emitted state of another key without `.remote`."""


class StateKeptRemoteError(AuthorCodeError, code="state_kept_remote"):
    """A record was emitted with `.remote` for a state that is kept (`keep=True`)."""


class StateExpiresRemoteError(AuthorCodeError, code="state_expires_remote"):
    """A record was emitted with `.remote` for a state that expires."""


class ViewKeyTwiceError(AuthorCodeError, code="view_key_twice"):
    """A group emitted two records of one key of a view."""


class OutputKeyForeignError(AuthorCodeError, code="output_key_foreign"):
    """A group emitted a record to an output with a key, but not with the group's own key."""


class OutputKeyTwiceError(AuthorCodeError, code="output_key_twice"):
    """A group emitted two records of one key of an output in one epoch."""


class LookupSeveralError(AuthorCodeError, code="lookup_several"):
    """A look-up for one record found several."""


class ViewRemoteError(AuthorCodeError, code="view_remote"):
    """A record of a view was emitted by a group other than its own, or with `.remote`."""


class AuthorStateError(AuthorCodeError, code="author_state_changed"):
    """A translator or its class was changed after `__init__`: values kept there are lost."""


class DecisionInvalidError(AuthorCodeError, code="decision_invalid"):
    """A Runnable returned an invalid decision; its stage stops until the code is fixed.

    The caller of the Runnable fills in `stage`, `function` and `place`, since a rule does not
    know which stage it decides for.
    """

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
        error = type(self).__new__(type(self))
        DecisionInvalidError.__init__(
            error, self._cause, stage=stage, function=function, place=place, **self._more
        )
        return error


class MemoInvalidError(DecisionInvalidError, code="memo_not_serialisable"):
    """A memo holds a value that JSON cannot store, so it would be lost with the process."""

    def __init__(self, path: str, kind: str) -> None:
        message = (
            f"JSON cannot store {path} ({kind}): use None, booleans, finite numbers, strings, "
            "lists, and dicts with strings as keys"
        )
        super().__init__(message, path=path, kind=kind)


class AlignmentError(DecisionInvalidError, code="alignment_backwards"):
    """An aligned input's framing keys go backwards, or have no order."""

    index: int | None = None
    """The number of the late frame, for the process that found it."""

    def __init__(self, input_: str, *, key: int | str, before: int | str, of: str = "") -> None:
        behind = f"{before!r} of input {of!r}" if of else f"{before!r}"
        message = (
            f"input {input_!r} has framing key {key!r} after {behind}. The framing keys of aligned "
            "inputs must be all numbers or all strings, and must not decrease"
        )
        super().__init__(message, input=input_, framing_key=key, before=before)


class FramingKeyError(DecisionInvalidError, code="framing_key_invalid"):
    """A FrameBy function returned a value that is not a framing key."""

    def __init__(self, value: object) -> None:
        kind, shown = type(value).__name__, repr(value)[:200]
        message = (
            f"expected a number, a string, a date or a time as the framing key, but got {shown} "
            f"of type {kind}"
        )
        super().__init__(message, function="frame_by", value=shown)


class FramesScatteredError(DecisionInvalidError, code="frames_scattered"):
    """The framing key changes too often within an increment: there would be too many frames."""

    def __init__(self, stage: str, input_: str, place: str, *, increment: str, most: int) -> None:
        super().__init__(
            f"the framing key changes more than {most} times within increment {increment}: use a "
            "coarser framing key, sort the records by this key, or write smaller increments",
            stage=stage,
            function=f"{input_}.frame_by",
            place=place,
            increment=increment,
            most=most,
        )


class IncrementAbsentError(DecisionInvalidError, code="increment_absent"):
    """A Runnable reads an increment that is not queued, or from an input that does not exist."""


class RemovalRefusedError(DecisionInvalidError, code="removal_refused"):
    """A Runnable removes increments without a run, or increments that are not queued."""


class DestinationInvalidError(AuthorCodeError, code="destination_invalid"):
    """A RouteBy function returned a value that is not a destination."""


class RouteKeyError(DestinationInvalidError, code="route_key_invalid"):
    """A RouteBy function returned a value that is not a key of its stage."""


class RouteFlowError(DestinationInvalidError, code="route_flow_unknown"):
    """A RouteBy function returned an `All(...)` that names a flow the stage does not have."""


class AnswerLateError(AuthorCodeError, code="answer_late"):
    """A FrameBy or Runnable function did not answer the controller in time; its stage stops."""

    def __init__(
        self, *, stage: str, function: str, place: str, seconds: float, setting: str
    ) -> None:
        super().__init__(
            stage=stage,
            function=function,
            place=place,
            cause=f"the function did not answer within {seconds:g} s and was abandoned. Fix the "
            f"function or raise {setting}, then run `cbp resume DATAFLOW {stage}`",
            seconds=seconds,
            setting=setting,
        )


class CycleUndrainedError(AuthorCodeError, code="cycle_undrained"):
    """A cycle keeps running without new input; the cycle is reported, and continues."""

    def __init__(self, *, cycle: Sequence[str], turns: int, **code: str) -> None:
        shown = " -> ".join((*cycle, cycle[0]))
        cause = f"the cycle {shown} does not drain: it ran {turns} epochs without new input"
        message = (
            f"{cause}. {code['function']} ({code['place']}) of stage {code['stage']!r} still "
            "writes to the cycle: make this function emit nothing once results no longer change. "
            f"To stop the cycle, run `cbp pause DATAFLOW {code['stage']}`"
        )
        CbpError.__init__(self, message, **code, cause=cause, cycle=list(cycle), turns=turns)
