"""Reports of a task to the driver: a closed set of messages, and their encoding.

    task -> TaskReport, ... -> JSON text -> TaskReport, ... -> `cbp.engine.run.assembly`

A task of this process returns the messages as they are. A Spark task or a resident worker sends
all of them as one JSON text: an array per message, of its class and its fields.

Guaranteed: `decode(encode(reports)) == reports` for every kind, and the driver reads every kind
(tests/cbp/engine/task/test_reports.py).
Absent on purpose: the reports are not stored. Driver and tasks are always of one release, so the
encoding may change with any release.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, get_args

from cbp.engine.state.pending_deletes import Deletes
from cbp.errors import CbpError, InvariantError, error_from_dict
from cbp.model.plan.spark_or_worker import Lane


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A new file of a flow, `stage.output`; its path is relative to the dataflow's folder.

    `buckets` is the number of buckets if the file holds messages sorted by bucket; otherwise 0.
    """

    flow: str
    path: str
    rows: int
    size: int
    buckets: int


@dataclass(frozen=True, slots=True)
class BindingsFile:
    """A new file of bindings of groups to addresses; the fields are those of `OutputFile`."""

    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class NewStateFile:
    """A new run file with new records of a state; the path is relative to the state's table."""

    state: str
    bucket: int
    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A new run file with the records of older ones; a merge's first new file `replaces` them."""

    state: str
    bucket: int
    path: str
    rows: int
    size: int
    replaces: tuple[str, ...]
    bytes_dropped: int


@dataclass(frozen=True, slots=True)
class DroppedFile:
    """A file of a state that is no longer live: its path, relative to the table, and its bytes."""

    state: str
    path: str
    bytes_dropped: int


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Rows that the run deletes from a live file of a state; `path` is relative to the table."""

    state: str
    path: str
    deletes: Deletes


@dataclass(frozen=True, slots=True)
class NextTimer:
    """The earliest timer that a task left or set, in microseconds since 1970."""

    at_us: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures of a task's work, by name; the last message of a task that succeeded."""

    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Failed:
    """A coded error; the only message of a task that failed, apart from `ProcessChanged`."""

    type: str
    message: str
    details: Mapping[str, Any]

    @classmethod
    def of(cls, error: CbpError) -> Failed:
        """Return the message for an error."""
        return cls(type(error).__name__, error.message, dict(error.details))

    def error(self) -> CbpError:
        """Return the error."""
        return error_from_dict(self.type, {"message": self.message, "details": self.details})


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """A group that fails, by its key as JSON; the next attempt of the job leaves it out.

    All messages of a task that has one are of this kind, apart from `ProcessChanged`.
    """

    key: str
    error: Failed


class GroupsFailed(Exception):
    """Groups of a task that fail; carries their reports."""

    def __init__(self, reports: Sequence[GroupFailed]) -> None:
        super().__init__(f"number of failed groups: {len(reports)}")
        self.reports = tuple(reports)


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record that a task set aside.

    Attributes:
        sequence: Its place among the records of the input, as the shuffle numbers them.
        key: The key of its group, as JSON; `None` for a record that is a group of its own.
        error: The error of a record that is a group of its own; `None` for the record of a group.
    """

    input: str
    sequence: int
    key: str | None
    record: str
    error: Failed | None = None


@dataclass(frozen=True, slots=True)
class ProcessChanged:
    """Changes that author's code made to the worker's process, which ends after its task.

    Attributes:
        place: The `file.py:12` of the stage's function.
        by: `loading` its code, or `calls`.
        what: The things that were changed, such as `the time zone`.
    """

    stage: str
    function: str
    place: str
    by: str
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageMisplaced:
    """The only report of a task that found a loopback's message in a wrong bucket."""


@dataclass(frozen=True, slots=True)
class NextPhase:
    """The reports of the groupwise stage downstream, which a record-wise task also ran."""

    reports: tuple[TaskReport, ...]


@dataclass(frozen=True, slots=True)
class JobLane:
    """The lane that a job took; the executor adds it to the reports of the job's tasks."""

    lane: Lane


TaskReport: TypeAlias = (
    OutputFile
    | BindingsFile
    | NewStateFile
    | MergedFile
    | DroppedFile
    | DeletedRows
    | NextTimer
    | Counts
    | Failed
    | MessageMisplaced
    | NextPhase
    | JobLane
    | ProcessChanged
    | GroupFailed
    | SetAside
)


def has_succeeded(reports: Iterable[TaskReport]) -> bool:
    """Return whether a task has succeeded, judged by its reports."""
    return any(isinstance(report, Counts) for report in reports)


_KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(TaskReport)}
_NAMES = {tag: [each.name for each in fields(kind)] for tag, kind in _KINDS.items()}


def encode(reports: Iterable[TaskReport]) -> str:
    """Return the messages of a task as JSON text."""
    return _write([_plain(report) for report in reports])


def _plain(report: Any) -> list[Any]:
    """Return a message's class and fields; `_inner` encodes fields that are not JSON values."""
    tag = type(report).__name__
    assert tag in _KINDS, f"{report!r} is not a report"
    return [tag, *(getattr(report, name) for name in _NAMES[tag])]


def _inner(value: Any) -> Any:
    return value.to_json() if isinstance(value, Deletes) else _plain(value)


_write = json.JSONEncoder(separators=(",", ":"), default=_inner).encode


def decode(text: str) -> list[TaskReport]:
    """Return the messages of a text; `InvariantError` if `encode` did not return it."""
    try:
        return [_report(plain) for plain in json.loads(text)]
    except (ValueError, TypeError, KeyError) as exc:
        message = f"a task sent {text[:200]!r}, which is not a report; restart the service"
        raise InvariantError(message) from exc


def _report(plain: list[Any]) -> Any:
    tag, *values = plain
    named = zip(_NAMES[tag], values, strict=True)
    return _KINDS[tag](**{n: _FIELDS[n](v) if n in _FIELDS else v for n, v in named})


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "replaces": tuple,
    "what": tuple,
    "deletes": Deletes.from_json,
    "lane": Lane,
    "reports": lambda plain: tuple(map(_report, plain)),
    "error": lambda plain: None if plain is None else _report(plain),
}
"""The functions that read fields that are not plain JSON values, by field name."""
