"""Notes of recoveries: the actions of the last ones, kept beside the tables.

    <tables>/.recoveries/notes.json    the last NOTES_MAX recoveries that did anything

A recovery that found nothing to do is noted in memory only, so a start after an orderly stop writes
nothing. What could not be redone at once, and is redone later in the same term, is added to the
term's note.

Guaranteed: a note that cannot be written stops no recovery
(tests/controller/loop/recovery/test_recovery_notes.py).
Not guaranteed: that a note outlives a crash during its recovery; the next recovery then notes what
it still had to do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from pydantic import TypeAdapter

from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, NotFoundError

NOTES_MAX = 20
DATAFLOWS_MAX = 100
INTERRUPTED_MAX = 100
REMOVED_MAX = 100

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RedoneEpochs:
    """The epochs of one stage that were published and committed again, first to last."""

    stage: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DataflowRecovered:
    """The effects of a recovery on one dataflow.

    Attributes:
        interrupted: Runs without a record, as `stage/epoch`; they run again.
        position: Number of the position that was restored; `None` if there is none.
        generation: Number of the roll-back that was finished; `None` if there is none.
        problem: Why it could not be recovered at once; `""` if it could.
    """

    dataflow: str
    redone: tuple[RedoneEpochs, ...] = ()
    interrupted: tuple[str, ...] = ()
    position: int | None = None
    generation: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryNote:
    """One recovery.

    Attributes:
        at: When it began; aware, in UTC.
        term: Epoch of the lease; 0 if without a lease.
        instance: Address of the instance; `""` if unknown.
        seconds: How long it took, without later additions to the note.
        dataflows: The dataflows that were changed; the first `DATAFLOWS_MAX`.
        removed: Removed folders, which a purge or a verification had left.
    """

    at: datetime
    term: int = 0
    instance: str = ""
    seconds: float = 0.0
    dataflows: Mapping[str, DataflowRecovered] = field(default_factory=dict)
    removed: tuple[str, ...] = ()

    @property
    def did_something(self) -> bool:
        """Whether anything was redone, removed or could not be recovered."""
        return bool(self.dataflows or self.removed)


_NOTES = TypeAdapter(list[RecoveryNote])


class RecoveryNotes:
    """Takes notes while a controller recovers; safe to use from several threads."""

    def __init__(self, *, files: Files, root: str, clock: Callable[[], datetime]) -> None:
        self._files, self._clock = files, clock
        self._path = f"{root}/.recoveries/notes.json"
        self._lock = threading.Lock()
        self._current: RecoveryNote | None = None
        self._under_way = False

    def begin(self, *, term: int, instance: str) -> None:
        """Begin a note."""
        with self._lock:
            self._current = RecoveryNote(self._clock(), term, instance)
            self._under_way = True

    def end(self, removed: Sequence[str], problems: Mapping[str, str]) -> None:
        """End the note: further removals, and dataflows that could not be recovered."""
        for dataflow, problem in problems.items():
            self._add(dataflow, partial(replace, problem=problem))
        with self._lock:
            if (note := self._current) is None:
                return
            seconds = (self._clock() - note.at).total_seconds()
            note = replace(note, seconds=seconds, removed=tuple(removed[:REMOVED_MAX]))
            self._current, self._under_way = note, False
            self._write(note)

    def redone(self, dataflow: str, stage: str, epoch: int) -> None:
        """Note that an epoch was published and committed again."""
        self._add(dataflow, lambda one: replace(one, redone=_with_epoch(one.redone, stage, epoch)))

    def restored(self, dataflow: str, position: int) -> None:
        """Note that a position replaced removed records."""
        self._add(dataflow, partial(replace, position=position))

    def rolled_back(self, dataflow: str, generation: int) -> None:
        """Note that an unfinished roll-back was finished."""
        self._add(dataflow, partial(replace, generation=generation))

    def interrupted(self, dataflow: str, stage: str, epoch: int) -> None:
        """Note a run without a record; ignored once the recovery has ended."""
        if self._under_way:
            name = f"{stage}/{epoch}"
            self._add(
                dataflow,
                lambda one: replace(one, interrupted=(*one.interrupted, name)[:INTERRUPTED_MAX]),
            )

    def notes(self) -> list[RecoveryNote]:
        """Return the last recoveries, newest first; this term's recovery even if it did nothing."""
        with self._lock:
            written, current = self._written(), self._current
        if current is not None:
            written = [current, *(one for one in written if one.at != current.at)]
        return written[:NOTES_MAX]

    def _add(self, dataflow: str, change: Callable[[DataflowRecovered], DataflowRecovered]) -> None:
        with self._lock:
            note = self._current
            if note is None or len({*note.dataflows, dataflow}) > DATAFLOWS_MAX:
                return
            known = note.dataflows.get(dataflow, DataflowRecovered(dataflow))
            self._current = replace(note, dataflows={**note.dataflows, dataflow: change(known)})
            if not self._under_way:
                self._write(self._current)

    def _write(self, note: RecoveryNote) -> None:
        if not note.did_something:
            return
        try:
            notes = [note, *(one for one in self._written() if one.at != note.at)][:NOTES_MAX]
            data = json.dumps({"notes": [_to_json(one) for one in notes]}).encode()
            self._files.write_durable(self._path, digested(data, self._path), what="clean_up")
        except CbpError as error:
            _log.warning("recovery.not_recorded", error=error.as_dict())

    def _written(self) -> list[RecoveryNote]:
        try:
            return read_record(self._files, self._path, _notes_of)
        except (NotFoundError, FileDamagedError):
            return []


def _with_epoch(
    redone: tuple[RedoneEpochs, ...], stage: str, epoch: int
) -> tuple[RedoneEpochs, ...]:
    by_stage = {one.stage: one for one in redone}
    known = by_stage.get(stage, RedoneEpochs(stage, epoch, epoch))
    by_stage[stage] = replace(known, first=min(known.first, epoch), last=max(known.last, epoch))
    return tuple(by_stage.values())


def _to_json(note: RecoveryNote) -> dict[str, Any]:
    return {**asdict(note), "at": note.at.isoformat()}


def _notes_of(value: Mapping[str, Any]) -> list[RecoveryNote]:
    return _NOTES.validate_python(value["notes"])
