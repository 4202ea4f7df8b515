"""Every error of the library, as a tree; imports nothing of cbp.

    CbpError                      code, details, retryable
    |- DefinitionError            an author's mistake, found at registration
    |  '- DataflowInvalidError    all mistakes of one dataflow at once
    |     |- ChangeRefusedError   a new version would lose or change what is there
    |     '- CodeDriftedError     what is installed is not what was registered
    |- AuthorCodeError            author's code failed while a run used it
    |  |- DecisionInvalidError    a Runnable or FrameBy answered what cannot be done
    |  |  |- MemoInvalidError     its memo is not JSON
    |  |  |- AlignmentError       framing keys of an aligned input go backwards
    |  |  |- FramingKeyError      a FrameBy function gave what is no framing key
    |  |  '- FramesScatteredError an increment's framing keys change too often
    |  '- CycleUndrainedError     a cycle feeds itself without end
    |- OperatingError             the world failed: disk, network, a foreign writer
    |  |- TableForeignError       a folder holds something that is not our table
    |  |  |- PlacementDiffersError  its records lie by another hash or number of buckets
    |  |  '- TableReleasedError   its fence was taken away
    |  |- RepairImpossibleError   what a table showed cannot be brought back
    |  |- TableFeatureError       a table uses a feature we refuse to write
    |  |- ForeignWriterError      somebody else wrote into a managed table
    |  |- FileSystemUnsafeError   nothing there keeps two writers of one name apart
    |  |- LogConflictError        another controller wrote the same log entry
    |  |- LeaseLostError          this controller does not lead (any more)
    |  |- DiskFullError           no space left while writing
    |  |- IncrementDamagedError   an increment's file is missing or has other rows
    |  |- RunCancelledError       the run was cancelled
    |  |- DataflowBusyError       a dataflow is being amended, or a run of it does not end
    |  |- RollbackImpossibleError  a dataflow cannot be taken back that far
    |  |- RebuildIncompleteError  some dataflows could not be brought back from their folders
    |  |- TimeLimitError          the author's code did not end in time
    |  |- NotFoundError           a name, key or table that does not exist
    |  |- AlreadyExistsError      a name that is taken
    |  '- FlowUnframedError       nobody frames the flow that is to be closed
    '- InvariantError             our bug or corrupt data: the stage stops

`code` is stable and snake_case; `details` holds JSON values without secrets;
`retryable` says whether trying the same call again can help. A class takes
the ids and writes the sentence. This module knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "AlignmentError",
    "AlreadyExistsError",
    "AuthorCodeError",
    "CbpError",
    "ChangeRefusedError",
    "CodeDriftedError",
    "CycleUndrainedError",
    "DataflowBusyError",
    "DataflowInvalidError",
    "DecisionInvalidError",
    "DefinitionError",
    "DiskFullError",
    "FileSystemUnsafeError",
    "FlowUnframedError",
    "ForeignWriterError",
    "FramesScatteredError",
    "FramingKeyError",
    "IncrementDamagedError",
    "InvariantError",
    "LeaseLostError",
    "LogConflictError",
    "MemoInvalidError",
    "Mistake",
    "NotFoundError",
    "OperatingError",
    "PlacementDiffersError",
    "RebuildIncompleteError",
    "RepairImpossibleError",
    "RollbackImpossibleError",
    "RunCancelledError",
    "TableFeatureError",
    "TableForeignError",
    "TableReleasedError",
    "TimeLimitError",
    "error_from_dict",
]


class CbpError(Exception):
    """Base of every error that this library raises on purpose."""

    code: ClassVar[str] = "cbp_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, Any] = details

    def as_dict(self) -> dict[str, Any]:
        """Return `{"error_code", "message", "details"}`, ready for JSON."""
        return {"error_code": self.code, "message": self.message, "details": dict(self.details)}


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong with a definition.

    Attributes:
        code: Stable snake_case name of the rule that was broken.
        where: Path inside the document, such as `stages.count.inputs.links`.
        message: What came, what was expected, and what to do instead.
        place: `file.py:12` of the author's code, or `""` where none applies.
    """

    code: str
    where: str
    message: str
    place: str = ""


class DefinitionError(CbpError):
    """A definition is wrong; carries the one mistake that was found."""

    code = "definition_invalid"

    def __init__(self, mistake: Mistake) -> None:
        at = f" ({mistake.place})" if mistake.place else ""
        super().__init__(
            f"{mistake.where}: {mistake.message}{at}",
            rule=mistake.code,
            where=mistake.where,
            place=mistake.place,
        )
        self.mistake = mistake


class DataflowInvalidError(CbpError):
    """A dataflow has mistakes; lists every one of them, each with its place."""

    code = "dataflow_invalid"

    def __init__(self, dataflow: str, mistakes: Sequence[Mistake]) -> None:
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        super().__init__(
            f"dataflow {dataflow!r} has {len(mistakes)} mistake(s): {lines}",
            dataflow=dataflow,
            mistakes=[
                {"code": m.code, "where": m.where, "message": m.message, "place": m.place}
                for m in mistakes
            ],
        )
        self.mistakes = tuple(mistakes)


class ChangeRefusedError(DataflowInvalidError):
    """A new version would lose records, or make them mean something else; nothing changed."""

    code = "change_refused"

    def __init__(self, dataflow: str, mistakes: Sequence[Mistake]) -> None:
        super().__init__(dataflow, mistakes)
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        self.message = f"the new version of {dataflow!r} is refused: {lines}"
        self.args = (self.message,)


class CodeDriftedError(DataflowInvalidError):
    """What is installed has other tables, keys or inputs than what was registered."""

    code = "code_drifted"

    def __init__(self, dataflow: str, version: int, mistakes: Sequence[Mistake]) -> None:
        super().__init__(dataflow, mistakes)
        lines = "; ".join(f"{m.where}: {m.message}" for m in mistakes)
        self.message = (
            f"what is installed is not what version {version} of {dataflow!r} was registered "
            f"with: {lines}; register its document again (`cbp register FILE --plan` shows what "
            "that does), or install what there was"
        )
        self.args = (self.message,)


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


class OperatingError(CbpError):
    """The world failed: trying again later, or after a repair, can help."""

    code = "operating_failure"
    retryable = True


class TableForeignError(OperatingError):
    """A table's folder holds something that this engine did not create."""

    code = "table_foreign"
    retryable = False

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            f"{path} holds {found}, not a table of this service; "
            "move it away or choose another folder",
            path=path,
            found=found,
        )


class PlacementDiffersError(TableForeignError):
    """A state table was written with another hash or number of buckets than the stage has.

    A look-up would search the wrong files, and find nothing without a word.
    """

    code = "table_placement_differs"

    def __init__(self, path: str, *, setting: str, found: str | None, expected: str) -> None:
        OperatingError.__init__(
            self,
            f"{path} was made with {setting}={found}, the stage expects {setting}={expected}; "
            f"give the stage {found} again, or let the dataflow begin anew in another folder",
            path=path,
            setting=setting,
            found=found,
            expected=expected,
        )


class TableReleasedError(TableForeignError):
    """A table of ours was released: anybody may write it, so the service does not."""

    code = "table_released"

    def __init__(self, path: str) -> None:
        OperatingError.__init__(
            self,
            f"{path} was released, so the service writes it no more; "
            "`cbp repair TABLE` takes it back",
            path=path,
        )


class RepairImpossibleError(OperatingError):
    """What a table showed before a foreign writer came cannot be brought back."""

    code = "table_not_repairable"
    retryable = False

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path} cannot be repaired: {why}; move the dataflow's folder away and let it begin "
            "anew from its sources",
            path=path,
            why=why,
        )


class TableFeatureError(OperatingError):
    """A table uses a Delta feature that this engine does not write."""

    code = "table_feature_unsupported"
    retryable = False

    def __init__(self, path: str, features: Sequence[str]) -> None:
        super().__init__(
            f"{path} uses {', '.join(features)}, which this engine refuses to write",
            path=path,
            features=list(features),
        )


class ForeignWriterError(OperatingError):
    """Somebody else wrote into a managed table; the stage stops, no guess."""

    code = "table_foreign_writer"
    retryable = False

    def __init__(self, path: str, *, version: int, operation: str, engine: str) -> None:
        super().__init__(
            f"{path}: version {version} was written by {engine} ({operation}); the stage stops. "
            "Take it back with `cbp repair TABLE`, then resume the dataflow",
            path=path,
            version=version,
            operation=operation,
            engine=engine,
        )


class FileSystemUnsafeError(OperatingError):
    """Tables may not lie there: two controllers could both write one log entry."""

    code = "file_system_unsafe"
    retryable = False

    def __init__(self, uri: str, scheme: str, why: str, how: str) -> None:
        super().__init__(f"{uri}: {why}; {how}", uri=uri, scheme=scheme, why=why)


class LogConflictError(OperatingError):
    """Another controller wrote the log entry that this one was about to write."""

    code = "log_conflict"
    retryable = False

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was written by another controller: this one no longer leads and stops",
            path=path,
        )


class LeaseLostError(OperatingError):
    """This controller does not lead, or does not know whether it still does."""

    code = "lease_lost"

    def __init__(self, epoch: int | None, why: str) -> None:
        super().__init__(
            f"nothing was written: this controller {_standing(epoch)}; {why}", epoch=epoch, why=why
        )


class DiskFullError(OperatingError):
    """No space was left while writing; nothing was published."""

    code = "disk_full"

    def __init__(self, path: str) -> None:
        super().__init__(f"no space left on the device that holds {path}", path=path)


class IncrementDamagedError(OperatingError):
    """An increment's file is missing, damaged or has another number of rows."""

    code = "increment_damaged"
    retryable = False

    def __init__(self, increment: str, *, expected: int, found: int | str) -> None:
        super().__init__(
            f"increment {increment}: expected {expected} records, found {found}",
            increment=increment,
            expected=expected,
            found=found,
        )


class RunCancelledError(OperatingError):
    """The run was cancelled before it was prepared."""

    code = "run_cancelled"

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run} was cancelled", run=run)


class DataflowBusyError(OperatingError):
    """A dataflow cannot be amended at this moment; nothing was changed."""

    code = "dataflow_busy"

    def __init__(self, dataflow: str, why: str) -> None:
        super().__init__(f"{dataflow!r} is busy: {why}; try again", dataflow=dataflow, why=why)


class RollbackImpossibleError(OperatingError):
    """A dataflow cannot be taken back to where somebody wants it; nothing was changed."""

    code = "rollback_impossible"

    def __init__(self, dataflow: str, why: str, **more: Any) -> None:
        super().__init__(
            f"{dataflow!r} cannot be rolled back there: {why}", dataflow=dataflow, why=why, **more
        )


class RebuildIncompleteError(OperatingError):
    """Some dataflows could not be brought back from their folders; the others were."""

    code = "rebuild_incomplete"
    retryable = False

    def __init__(self, rebuilt: Sequence[str], failed: Mapping[str, CbpError]) -> None:
        causes = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
        super().__init__(
            f"{len(failed)} dataflow(s) could not be brought back: {causes}. Mend the cause, "
            "then run `cbp recover --rebuild` again",
            rebuilt=list(rebuilt),
            failed={name: error.as_dict() for name, error in failed.items()},
        )


class TimeLimitError(OperatingError):
    """An author's code took longer than the operator allows; its stage stops."""

    code = "time_limit"
    retryable = False

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(
            f"{what} had not ended after {seconds:g} s and was given up: mend the translator or "
            "raise run_seconds_max, then resume",
            what=what,
            seconds=seconds,
        )


class NotFoundError(OperatingError):
    """A name, key or table does not exist."""

    code = "not_found"
    retryable = False

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}", kind=kind, name=name)


class AlreadyExistsError(OperatingError):
    """A name is taken already."""

    code = "already_exists"
    retryable = False

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is a {kind} {name!r} already", kind=kind, name=name)


class FlowUnframedError(OperatingError):
    """A flow is to be closed, and no stage frames it."""

    code = "flow_unframed"
    retryable = False

    def __init__(self, flow: str, framed: Sequence[str]) -> None:
        super().__init__(
            f"no stage frames the flow {flow!r}, so there is nothing to close; "
            f"framed are: {', '.join(framed) or 'none'}",
            flow=flow,
            framed=list(framed),
        )


class InvariantError(CbpError):
    """Our own bug, or corrupt data: the stage stops and no record is skipped."""

    code = "invariant_broken"


def _standing(epoch: int | None) -> str:
    return "does not lead" if epoch is None else f"led as epoch {epoch}"


def error_from_dict(kind: str, value: Mapping[str, Any]) -> CbpError:
    """Rebuild an error that crossed a process as `as_dict()`.

    Args:
        kind: Name of its class; an unknown one becomes an `InvariantError`.
        value: `{"message", "details"}`.
    """
    error = _class_of(kind).__new__(_class_of(kind))
    CbpError.__init__(error, value["message"], **value["details"])
    return error


def _class_of(kind: str) -> type[CbpError]:
    found: list[type[CbpError]] = [CbpError]
    for class_ in found:
        if class_.__name__ == kind:
            return class_
        found.extend(class_.__subclasses__())
    return InvariantError
