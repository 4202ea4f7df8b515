"""Models of requests and responses; closed (no unknown fields).

Times are UTC in ISO 8601; sizes are in bytes, durations in seconds. Every listing is a `Page`: its
`cursor` fetches the next part, and is `null` at the end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from cbp.model.plan.spark_or_worker import Lane
from cbp.model.schedule.priority import Priority

PAGE_SIZE_MAX = 500

T = TypeVar("T")

_ABSENT = object()

StageState = Literal["running", "waiting", "set_aside", "retrying", "paused", "stopped"]
DataflowState = Literal["ok", "retrying", "paused", "stopped", "broken"]


class Model(BaseModel):
    """A closed model."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    @classmethod
    def of(cls, *values: object, **more: Any) -> Self:
        """Return an answer: each field is the attribute of its name, from the first value with one.

        `more` gives fields directly. Nested values are converted in the same way, by the model of
        their field.
        """
        taken: dict[str, Any] = {}
        for name in cls.model_fields:
            if name in more:
                continue
            for value in values:
                # Read only once: it may be a costly property, and a list has many items.
                if (found := getattr(value, name, _ABSENT)) is not _ABSENT:
                    taken[name] = found
                    break
            else:
                kinds = ", ".join(type(value).__name__ for value in values)
                message = (
                    f"field {name!r} of {cls.__name__}: no such attribute in {kinds or 'any value'}"
                )
                raise AttributeError(message)
        return cls.model_validate(taken | more)


class PageQuery(Model):
    """The part of a listing that a client wants."""

    cursor: str | None = Field(None, max_length=1000, description="Cursor of the previous page.")
    limit: int | None = Field(
        None, ge=1, le=PAGE_SIZE_MAX, description="Maximum number of items to return."
    )


class Page(Model, Generic[T]):
    """Part of a listing."""

    items: list[T]
    cursor: str | None = None


class Problem(BaseModel):
    """An error as defined by RFC 9457, with this service's own fields."""

    type: str = Field(description="`urn:cbp:error:<error_code>`; stable.")
    title: str = Field(description="Description of this type of problem, for people.")
    status: int
    detail: str = Field(description="A text for people, which may change.")
    instance: str = Field(description="Path of the request.")
    error_code: str = Field(description="Stable snake_case name.")
    message: str = Field(description="The text of `detail`.")
    details: dict[str, Any]


class QueueOut(Model):
    """The increments that wait at one input of a stage."""

    input: str
    flow: str
    increments: int = Field(description="Queued increments, including those already read but kept.")
    unread: int
    records: int
    bytes: int
    oldest_at: datetime | None = Field(description="Arrival of the oldest unread increment.")
    limits: dict[str, int] = Field(
        description="Limits of this queue, by `increments`, `records` and `bytes`; while one is "
        "reached, the stage that writes the flow starts no runs. Empty for a source, which is "
        "never held back."
    )
    share: float = Field(
        description="How full the queue is, relative to its nearest limit; from 1 on, the stage "
        "that writes the flow starts no runs."
    )
    unread_records: int = Field(description="Records of the unread increments.")


class StateOut(Model):
    """One state of a stage."""

    name: str
    columns: str
    key: str = Field(description="Columns by which the stage groups its records.")
    second_key: str = Field(
        default="",
        description="Columns that identify a record within its group; often there are none.",
    )
    kind: Literal["state", "view"] = Field(
        default="state", description="The changes of a `view` are a flow of the same name."
    )
    keeps: bool = Field(
        default=False, description="Whether records stay until they are replaced or deleted."
    )
    grouping: str


class LookupOut(Model):
    """A table of another stage that the called groups of a stage look up."""

    name: str
    table: str = Field(description="The view or state that is looked up, as `stage.state`.")
    columns: str
    by: list[str] = Field(
        description="Columns of the table whose values must equal the key of the group; empty if "
        "a group reads all records."
    )
    key: list[str] = Field(
        description="Columns by which a group reads single records; empty if it reads all records "
        "of its key."
    )
    wakes: bool = Field(
        description="Whether groups are called because their looked-up records changed. The input "
        "`<name>_changes` reads these changes."
    )


class KeptOut(Model):
    """How long increments of an output are kept after all readers have read them."""

    hours: float | None = Field(
        description="Age limit, counted from arrival; `null` means no limit."
    )
    bytes: int = Field(description="Size limit for all kept increments; 0 means no limit.")


class RebuildOut(Model):
    """The unfinished rebuild of a stage, whose tables are still incomplete."""

    since: datetime = Field(description="When the version that rebuilds the stage became current.")
    queued: int = Field(description="Increments that the version queued again for the stage.")
    left: int = Field(description="How many of these increments the stage has not read yet.")
    percent: int = Field(
        description="Share of these increments that the stage has read, in percent, from 0 to 99."
    )
    behind: list[str] = Field(
        description="Stages from which this one reads, and which are still being rebuilt."
    )
    as_it_was: datetime | None = Field(
        description="Read states and snapshots with this `at` to get the tables from before the "
        "rebuild; `null` if no such snapshot is kept."
    )


class StageOut(Model):
    """One stage and its progress."""

    name: str
    runs_with: str = Field(description="The stage that this one is fused with; usually itself.")
    translator: str
    buckets: int | None
    state: StageState = Field(
        description="`set_aside`: the stage works, but has set aside records on which its code "
        "failed; an operator must decide about them."
    )
    set_aside: int = Field(
        description="Number of records that are set aside until an operator gives them back."
    )
    paused_itself: bool = Field(
        description="Whether an operator paused this stage itself, not its whole dataflow."
    )
    waiting: str = Field(description="Why it cannot start now; empty if it can.")
    priority: Priority = Field(
        description="How much its waiting time counts when stages wait for a slot: 4, 1 or 1/4 "
        "times."
    )
    error: dict[str, Any] | None = Field(
        description="Why the stage is paused or stopped, with code and details."
    )
    inputs: dict[str, str] = Field(description="Maps each input to the flow that it reads.")
    lookups: list[LookupOut] = Field(
        description="Tables that it looks up. It never waits for them."
    )
    epoch: int = Field(description="Number of its next run.")
    lag_seconds: float | None = Field(description="Age of its oldest unread increment.")
    failures: int = Field(description="How often in a row the run that is due next has failed.")
    retry_at: datetime | None
    last_success_at: datetime | None
    runnable: str = Field(description="The rule or function that decides when the stage runs.")
    memo: Any = Field(description="The memo that the rule kept from its last run.")
    cycle: list[str] = Field(description="Stages of its cycle; empty if the stage is on no cycle.")
    turns: int = Field(description="Epochs in a row without input from outside its cycle.")
    queues: list[QueueOut]
    outputs: dict[str, str] = Field(description="Maps each flow to its columns.")
    keep: dict[str, KeptOut] = Field(
        description="Maps each flow to how long its increments are kept after all readers have "
        "read them. Increments of other flows are kept forever."
    )
    states: list[StateOut]
    rebuilding: RebuildOut | None = Field(description="`null` if the stage is not being rebuilt.")
    newer_files: list[str] = Field(
        description="Files of its code that have changed on disk since they were loaded. Runs use "
        "the loaded code."
    )


class KeepOut(Model):
    """How long inputs are kept after all readers have read them."""

    hours: float = Field(description="Hours since their arrival.")
    bytes: int = Field(description="Size limit for each source; 0 means no limit.")
    increments: int = Field(
        description="How many of the newest increments are kept; 0 means no limit."
    )
    by: Literal["dataflow", "service"] = Field(
        description="`dataflow` if the dataflow sets any of these limits; otherwise `service`."
    )


class SourceOut(Model):
    """One flow that receives files from outside."""

    name: str
    columns: str
    format: str
    options: dict[str, str]
    keep: KeepOut
    location: str = Field(
        description="Prefix in a bucket: objects with it are taken in; empty if there is none."
    )
    duplicates: str = Field(description="What to do with known content under a new name.")
    same_name: str = Field(description="What to do with new content under a known name.")
    unfinished: list[str] = Field(
        description="Endings of the names of files that are still being written."
    )
    nested: bool = Field(description="Whether files in subfolders are taken in, too.")
    on_bad_records: str | dict[str, Any] = Field(
        description="What to do with a file that has some wrong records."
    )
    uncorrectable: str = Field(
        description="Why no file of the source can be replaced or retracted, although a stage "
        "declares `any_order: true`; empty if files can be, or if no stage declares it."
    )


class RecentRunOut(Model):
    """One run that ended, in short."""

    id: str
    stage: str
    status: str
    finished_at: datetime
    seconds: float


class FailingOut(Model):
    """A stage whose next run has failed, or that an error has paused."""

    stage: str
    since: datetime | None = Field(
        description="When the first of the `tries` failed attempts ended; `null` if unknown."
    )
    run: str | None = Field(description="The run of the last failed attempt.")
    tries: int = Field(description="Failed attempts in a row.")
    retry_at: datetime | None
    error: dict[str, Any] | None


class DataflowSummary(Model):
    """One dataflow in the list."""

    name: str
    version: int
    desired: Literal["running", "paused", "draining", "drained"] = Field(
        description="`draining`: the dataflow accepts no new files and processes its queued input. "
        "`drained`: all input is processed, and no runs start."
    )
    state: DataflowState
    stages: int
    queued_increments: int
    queued_records: int
    lag_seconds: float | None = Field(description="Age of the oldest unprocessed increment.")
    last_success_at: datetime | None
    failures: int = Field(description="Failed attempts in a row of each stage, added up.")
    problem: str | None = Field(
        default=None,
        description="Why the dataflow is retrying (and when it tries again), stopped or broken; or "
        "which of its stages an operator paused. `null` if none of this applies, or if the whole "
        "dataflow is paused.",
    )
    problem_code: Literal["stages", "outside", "unreadable"] | None = Field(
        default=None,
        description="What `problem` is about. `stages`: stages that are retried, stopped or "
        "paused; there may also be failures outside the stages. `outside`: only failures outside "
        "the stages, which `troubles` lists. `unreadable`: the figures of the dataflow cannot be "
        "read. `null` if there is no problem.",
    )
    failing: list[FailingOut] = Field(description="The stages that fail, each with its last error.")
    troubles: list[str] = Field(
        description="Failures outside the stages; the service retries what failed. Those of a "
        "source begin with `source NAME: `, those of a sink with `sink NAME: `."
    )
    recent: list[RecentRunOut] = Field(description="Its last runs that ended, the oldest first.")
    quarantined: dict[str, int] = Field(
        description="Maps each source to the number of its files in quarantine; sources without "
        "such files are left out."
    )
    rejected: dict[str, int] = Field(
        description="Maps each source to the number of its rejected records so far; sources "
        "without rejected records are left out."
    )
    set_aside: dict[str, int] = Field(
        description="Maps stages to the number of records that are set aside now."
    )
    created_at: datetime


class DataflowDetail(Model):
    """One dataflow with its parts."""

    summary: DataflowSummary
    folder: str
    sources: list[SourceOut]
    stages: list[StageOut]
    document: dict[str, Any]
    definition_problem: str | None = Field(
        description="Why its translators can no longer be loaded; `null` if they can."
    )


class Validation(Model):
    """The declarations of a document that can be registered."""

    name: str
    sources: list[str]
    stages: list[str]
    flows: dict[str, str] = Field(description="Maps each flow to its columns.")
    wiring: dict[str, dict[str, str]] = Field(
        description="Maps each stage to its inputs, each with the flow that it reads."
    )
    lookups: dict[str, dict[str, str]] = Field(
        description="Maps each stage to its look-ups, each with the table that it reads."
    )


class FileOut(Model):
    """One data file of an increment."""

    path: str
    records: int
    bytes: int


class IncrementOut(Model):
    """One increment of a flow."""

    flow: str
    index: int
    framing_key: int | str
    records: int
    bytes: int
    created_at: datetime
    rejected: int = Field(
        description="Number of rejected records in the files of the increment; they are not in "
        "the increment."
    )
    origin: dict[str, Any]
    files: list[FileOut]


class ClaimOut(Model):
    """One file that arrived in a drop folder."""

    id: str
    dataflow: str
    source: str
    sequence: int
    path: str
    bytes: int
    status: str
    sha256: str
    index: int | None = Field(description="Index of the increment made from this file.")
    rejected: int = Field(
        description="Number of rejected records of the file; `GET .../rejects` lists them."
    )
    reason: dict[str, Any] | None = Field(description="Why it is in quarantine.")
    same_as: dict[str, Any] | None = Field(
        description="The earlier file with this content or name. `by` says what is equal: "
        "`name_and_content` (a retry), `content` or `name`."
    )
    created_at: datetime


class PhaseOut(Model):
    """One phase of a run; a run of several stages can have a phase twice."""

    name: str = Field(description="start, plan, job, assemble, tidy or finish.")
    begin_seconds: float = Field(
        description="Start of the phase, in seconds since the start of the run."
    )
    end_seconds: float | None = Field(
        description="End of the phase, in seconds since the start of the run; `null` while the "
        "phase is under way."
    )


class BulkItemOut(Model):
    """The outcome for one item of a request about several items."""

    id: str
    status: int = Field(description="The HTTP status of a request for this item alone.")
    error: dict[str, Any] | None = Field(
        description="Code, message, details; `null` if it succeeded."
    )


class BulkOut(Model):
    """The outcome for each item of a request about several items, in the request's order."""

    items: list[BulkItemOut]


class RunOut(Model):
    """One attempt to execute an epoch."""

    id: str
    dataflow: str
    stage: str = Field(description="The stage that leads the run; others may run with it.")
    stages: list[str] = Field(
        description="All stages of the run; figures are named `<stage>/<figure>`."
    )
    epoch: int
    attempt: int
    status: str
    read: dict[str, list[int]]
    remove: dict[str, list[int]]
    started_at: datetime
    finished_at: datetime | None
    seconds: float | None
    waited_seconds: float | None = Field(
        description="Age of the oldest increment that the run read, at the start of the run; "
        "`null` if unknown, for example for a framed input."
    )
    phases: list[PhaseOut] = Field(
        description="The phases that have begun, in order. For a run under way only the leader "
        "knows them."
    )
    figures: dict[str, float]
    lanes: list[Lane] = Field(
        description="The lanes that its jobs took; empty while it runs, or if it had no jobs."
    )
    error: dict[str, Any] | None


class Records(Model):
    """Records of a flow or a state, by column name."""

    items: list[dict[str, Any]]
    cursor: str | None = None


class LeftOut(Model):
    """The remaining work of a dataflow if no more input arrives."""

    stages: dict[str, str] = Field(
        description="Maps each stage to its remaining work; empty if everything is applied."
    )


class PunctuationOut(Model):
    """A punctuation, which closed the open frames of a flow."""

    number: int = Field(description="Number of the punctuation in its dataflow, counted from 0.")
    flow: str
    at: int = Field(description="Index of the first increment after the punctuation.")
    reason: Literal["request", "marker", "idle"]
    inputs: list[str] = Field(
        description="The inputs whose open frames were closed, as `stage.input`."
    )
    closed_at: datetime


class PortOut(Model):
    """One input, output or state of a translator."""

    name: str
    columns: str = Field(description="DDL, such as `url STRING, n BIGINT`.")
    key: str = Field(
        description="Columns of its key; empty if there is none or a function computes it."
    )


class PortsOut(Model):
    """What a translator reads, writes and keeps."""

    inputs: list[PortOut] = Field(
        description="Inputs that a document must wire; loopbacks are wired automatically."
    )
    outputs: list[PortOut]
    states: list[PortOut]


class TranslatorOut(Model):
    """A translator that a document may name."""

    name: str
    package: str
    summary: str
    description: str = Field(description="The docstring of its class, with its parameters.")
    parameters: dict[str, str]
    ports: PortsOut | None = Field(
        description="`null` if the inputs and outputs depend on parameters without a default."
    )
    problem: str | None = Field(description="Why it cannot be loaded; `null` if it can.")


InstanceRole = Literal["leads", "follows", "unsure", "retires"]


class Health(Model):
    """Whether the service works."""

    status: Literal["ok"]


class DegradedOut(Model):
    """A dataflow that makes no progress although the service works."""

    dataflow: str
    state: DataflowState
    reason: str = Field(
        description="Why the dataflow is in this state, and when the service retries it, if at all."
    )


class Readiness(Health):
    """Whether the service can work, and the role of this instance."""

    degraded: dict[str, DataflowState] = Field(
        default_factory=dict,
        description="Dataflows that are retrying, stopped or broken; the service is ready "
        "nevertheless.",
    )

    role: InstanceRole
    epoch: int = Field(description="Epoch of the leader's lease.")


class LeaderOut(Model):
    """Which instance leads, as far as the answering instance knows."""

    role: InstanceRole
    epoch: int = Field(description="Epoch of the lease; increases with every change of leader.")
    leader: str | None = Field(
        description="Address of the leader; `null` if unknown, or if there is only one instance."
    )


class Links(Model):
    """Links to the other resources."""

    service: str
    version: str
    links: dict[str, str]
