"""Answers of the service, as values.

Times are aware and in UTC, sizes are in bytes, durations in seconds. A field that a class does not
declare is in `answer` alone, so a client can read the answers of a newer service.

Guaranteed: each field is one of the service's, with its type
(tests/controller/client/test_answers.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Base of all answers; `answer` is the entire answer of the service, as JSON."""

    answer: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataflow(Answer):
    """A dataflow in a list: its state and its main figures.

    Attributes:
        desired: What an operator wants: `running`, `paused`, `draining` or `drained`.
        state: `ok`, `retrying`, `paused`, `stopped` or `broken`; `problem` says why.
        lag_seconds: Age of the oldest unprocessed increment; `None` if there is none.
        problem_code: `stages`, `outside` (only something outside its stages fails) or
            `unreadable`.
        quarantined: Maps each source to its number of files in quarantine, if it has any.
        rejected: Maps each source to its number of rejected records, if it has any.
        set_aside: Maps each stage to its number of records set aside, if it has any.
    """

    name: str
    version: int
    desired: str
    state: str
    stages: int
    queued_increments: int
    queued_records: int
    lag_seconds: float | None
    failures: int
    problem: str | None
    problem_code: str | None
    quarantined: dict[str, int]
    rejected: dict[str, int]
    set_aside: dict[str, int]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Answer):
    """One source, a flow that receives files; `columns` is DDL."""

    name: str
    columns: str
    format: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Answer):
    """One stage and its progress.

    Attributes:
        state: `running`, `waiting`, `set_aside` (it works, but an operator must decide about
            records on which its code failed), `retrying`, `paused` or `stopped`.
        waiting: Why it cannot start now; empty if it can.
        error: What paused or stopped it, with `error_code`, `message` and `details`.
        inputs: Maps each input to the flow that it reads.
        outputs: Maps each flow to its columns, as DDL.
        epoch: Number of its next run.
    """

    name: str
    translator: str
    state: str
    waiting: str
    priority: str
    error: Any | None
    inputs: dict[str, str]
    outputs: dict[str, str]
    epoch: int
    lag_seconds: float | None
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowDetail(Answer):
    """One dataflow with its parts; `document` is the registered document."""

    summary: Dataflow
    sources: list[Source]
    stages: list[Stage]
    document: dict[str, Any]
    definition_problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowFreshness(Answer):
    """Whether one dataflow is up to date; `left` is the remaining work, in words.

    `state` is `up_to_date`, `catching_up` (no operator is needed) or `stuck` (one is needed).
    """

    dataflow: str
    state: str
    left: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness(Answer):
    """Whether every stage has applied every file; `service` has problems such as a full disk."""

    state: str
    dataflows: list[DataflowFreshness]
    service: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Answer):
    """The declarations of a valid document; `flows` maps each flow to its columns."""

    name: str
    sources: list[str]
    stages: list[str]
    flows: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Answer):
    """One file that arrived.

    Attributes:
        status: `claiming`, `claimed`, `accepted`, `duplicate`, `quarantined`, `withdrawn` (it
            was accepted, but a roll-back dropped its increment), `readmitted` or `discarded`.
        index: Number of its increment; `None` if it has none.
        rejected: Number of its rejected records, which are not in the increment.
        reason: Why it is in quarantine.
        same_as: The earlier file with this content or name.
    """

    id: str
    dataflow: str
    source: str
    path: str
    bytes: int
    status: str
    sha256: str
    index: int | None
    rejected: int
    reason: dict[str, Any] | None
    same_as: dict[str, Any] | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Answer):
    """The decision about a file in quarantine; `claim` is that file.

    `readmitted` is the new claim under which the file is taken in; `None` if it was not
    readmitted. `repeated` says whether an earlier request had made the same decision.
    """

    claim: Claim
    readmitted: Claim | None
    repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class File(Answer):
    """One data file of an increment."""

    path: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment(Answer):
    """One increment of a flow, without its records; `rejected` is a number of records."""

    flow: str
    index: int
    records: int
    rejected: int
    bytes: int
    created_at: datetime
    origin: dict[str, Any]
    files: list[File]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Answer):
    """One attempt to execute an epoch.

    Attributes:
        stages: All stages of the run; `stage` is the one that leads.
        status: `INTENDED` (under way), `COMMITTED` or `FAILED`.
        read: Maps each input to the indexes of the increments that it read.
        error: Why it failed, with `error_code`, `message` and `details`.
    """

    id: str
    dataflow: str
    stage: str
    stages: list[str]
    epoch: int
    attempt: int
    status: str
    read: dict[str, list[int]]
    started_at: datetime
    finished_at: datetime | None
    seconds: float | None
    figures: dict[str, float]
    error: Any | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkItem(Answer):
    """The outcome for one item of a request with several; `error` is `None` if it succeeded."""

    id: str
    status: int
    error: Any | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment(Answer):
    """A moment to which a dataflow can be rolled back; `position` is its number."""

    position: int
    stage: str
    epoch: int
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside(Answer):
    """A record that a stage has set aside, since its code failed on it.

    Attributes:
        epoch: The epoch that set it aside; `number` is its position in that epoch.
        input: Its input; `None` if a timer caused the call, so that there is no record.
        key: The key of its group; `None` for a record that is a group of its own.
        code: Code of the error; `set_aside_behind` if it waits behind earlier records of its group.
        increment: Its increment, in the flow that the input reads.
        file: Its file, if known; `line` is its line there.
    """

    epoch: int
    number: int
    input: str | None
    key: dict[str, Any] | None
    record: dict[str, Any] | None
    code: str
    message: str
    increment: int | None
    file: str | None
    line: int | None
    set_aside_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack(Answer):
    """The result of a give-back: `records` were applied, `left` ones failed again.

    They were applied by `run`, in `epoch`; both are `None` for a dry run.
    """

    stage: str
    records: int
    left: int
    epoch: int | None
    run: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Answer):
    """The progress of a job: its current `step` has done `done` of `total` units.

    `unit` names what is counted, and `total` is 0 if it is unknown. `error` is the service's
    problem document if the job failed.
    """

    id: str
    ended: bool
    step: str
    done: int
    total: int
    unit: str
    seconds: float
    error: Any | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBackJob(Job):
    """The progress of a give-back; `given_back` is its result, once it is done."""

    given_back: GivenBack | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Answer):
    """A roll-back.

    Attributes:
        epochs: Maps each stage to its next epoch after the roll-back.
        undone: Maps each stage to the number of its epochs that were undone.
        dropped: Maps each source to the number of its increments that are not read again.
        left_out: Maps each source to the increments that the request named to be left out.
    """

    generation: int
    position: int
    epochs: dict[str, int]
    undone: dict[str, int]
    dropped: dict[str, int]
    left_out: dict[str, list[int]]
    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackJob(Job):
    """The progress of a roll-back; `rollback` is its result, once it is done."""

    rollback: Rollback | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan(Answer):
    """The effects of a roll-back.

    Attributes:
        queued: Maps `stage.input` to the number of increments that will wait there.
        comes_back: Maps each source to increments that an earlier roll-back removed. This one
            applies them again, since it goes back further.
    """

    rollback: Rollback
    records_undone: int
    queued: dict[str, int]
    comes_back: dict[str, list[int]]
    files_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced(Answer):
    """The effects of replacing a file: the numbers of records that it adds and takes back.

    `groups` maps each stage that reads the source to its number of groups with such a record.
    """

    records_came: int
    records_gone: int
    groups: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction(Answer):
    """A correction of records of a state, applied by a run of its own.

    Attributes:
        keys: Number of corrected keys.
        epoch: Epoch of the stage that leads the run.
        undone: Whether a roll-back has undone it.
        file: Parquet file with the corrected records, in the dataflow's folder.
    """

    run: str
    stage: str
    state: str
    keys: int
    epoch: int
    generation: int
    undone: bool
    file: str
    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPreview(Answer):
    """The records of a key before and after a correction."""

    key: dict[str, Any]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionPreview(Answer):
    """The effects of a correction on its first keys; `keys` is the number of all keys."""

    items: list[KeyPreview]
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingKey(Answer):
    """A key whose records differ; records are text."""

    key: str
    expected: list[str]
    found: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerdict(Answer):
    """The result of a verification for one table.

    Attributes:
        kind: How it is compared: `state`, `view`, `records`, `history`, `changes`, `set_aside`.
        status: `open`, `equal`, `undecided`, `differs` or `left_out` (`because`).
        records: Records compared, counted on both sides.
        differing: The first keys that differ.
        differences: Number of differing keys that are stored; `Client.differences` returns them.
        within: How closely records must agree, as declared; `""` means exactly.
        since: First epoch that was repeated; `None` if all epochs were recomputed from scratch.
    """

    table: str
    kind: str
    status: str
    records: int
    differing: list[DifferingKey]
    differences: int
    because: str
    within: str
    since: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Job):
    """A comparison of every table with a recomputation.

    Attributes:
        status: `waiting`, `running`, `equal`, `undecided`, `differs`, `not_deterministic`,
            `timed_out`, `cancelled` or `failed`.
        epochs: Maps each stage to the last epoch that is compared.
        suspect: First stage with a table that differs; `""` if there is none.
    """

    dataflow: str
    split: str
    engine: str
    status: str
    began_at: datetime | None
    epochs: dict[str, int] | None
    tables: list[TableVerdict]
    suspect: str
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Answer):
    """A differing key stored by a verification; `expected` and `found` are records, by column."""

    table: str
    number: int
    columns: list[str]
    key_columns: list[str]
    key: list[str]
    expected: list[list[str]]
    found: list[list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference(Answer):
    """The difference between a table and its rebuilt version.

    `before`, `after`, `added`, `gone` and `changed` are numbers of records. The last three are
    `None` if the tables were not compared; `because` says why.
    """

    table: str
    before: int
    after: int
    added: int | None
    gone: int | None
    changed: int | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildJob(Job):
    """A rebuild of all tables, while the current ones stay.

    Attributes:
        status: `building`, `ready`, `swapping`, `swapped`, `cancelled` or `failed`.
        tables: The differences, once it is ready.
        exact: Whether old and new tables had applied the same input when they were compared.
        by: The person who asked for it; `ended_by` swapped or cancelled it.
        again_at: Time of the next attempt, while a fault such as a full disk stops it.
    """

    dataflow: str
    version: int
    status: str
    tables: list[TableDifference]
    exact: bool
    by: str
    ended_by: str
    again_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable(Answer):
    """One table of a snapshot: `version` is that of the Delta table at `path`."""

    table: str
    path: str
    version: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Answer):
    """One consistent version of every table; its files are kept until `readable_until`."""

    dataflow: str
    at: datetime
    newest: bool
    readable_until: datetime
    epochs: dict[str, int]
    tables: list[SnapshotTable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Answer):
    """One column of a query's answer; `type` is DuckDB's."""

    name: str
    type: str


def answer_of(kind: type[T], document: Mapping[str, Any]) -> T:
    """Build a value of the class `kind` from a JSON document of the service."""
    hints = _hints(cast(Hashable, kind))
    values = {name: _value(hint, document.get(name)) for name, hint in hints.items()}
    return kind(**values, **({"answer": document} if issubclass(kind, Answer) else {}))


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    assert isinstance(kind, type)
    hints = get_type_hints(kind)
    assert is_dataclass(kind)
    return {one.name: hints[one.name] for one in fields(kind) if one.name != "answer"}


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if NoneType in get_args(hint):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return answer_of(hint, value)
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0], one) for one in value]
    return value
