"""Models of requests and responses; closed (no unknown fields).

Times are UTC in ISO 8601; sizes are in bytes, durations in seconds. Every listing is a `Page`: its
`cursor` fetches the next part, and is `null` at the end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from cbp.model.dataflow.lanes import Lane

__all__ = [
    "PAGE_SIZE_MAX",
    "ClaimOut",
    "DataflowDetail",
    "DataflowSummary",
    "FileOut",
    "FrameOut",
    "Health",
    "IncrementOut",
    "InputWaitOut",
    "KeepOut",
    "Links",
    "Model",
    "Page",
    "PageQuery",
    "Problem",
    "PunctuationOut",
    "QueueOut",
    "Records",
    "RunOut",
    "SourceFolderOut",
    "SourceFolders",
    "SourceOut",
    "SourceTroubleOut",
    "StageOut",
    "StateOut",
    "TranslatorOut",
    "UnclaimedOut",
    "Validation",
    "WaitOut",
    "Waits",
]

PAGE_SIZE_MAX = 500

T = TypeVar("T")

StageState = Literal["running", "waiting", "retrying", "paused", "stopped"]
DataflowState = Literal["ok", "retrying", "paused", "stopped", "broken"]


class Model(BaseModel):
    """A closed model."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PageQuery(Model):
    """The part of a listing that a client wants."""

    cursor: str | None = Field(None, max_length=1000, description="Cursor of the previous page.")
    limit: int | None = Field(None, ge=1, le=PAGE_SIZE_MAX, description="Most items to return.")


class Page(Model, Generic[T]):
    """Part of a listing."""

    items: list[T]
    cursor: str | None = None


class Problem(BaseModel):
    """An error as defined by RFC 9457, with this service's own fields."""

    type: str = Field(description="`urn:cbp:error:<error_code>`; stable.")
    title: str
    status: int
    detail: str = Field(description="For people; may change.")
    instance: str = Field(description="Path of the request.")
    error_code: str = Field(description="Stable snake_case name.")
    message: str
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


class StateOut(Model):
    """One state of a stage."""

    name: str
    columns: str
    key: str
    grouping: str


class KeptOut(Model):
    """How long increments of an output stay once everything has read them."""

    hours: float | None = Field(description="Age limit, counted from arrival; `null`: none.")
    bytes: int = Field(description="Size limit for all kept increments; 0: none.")


class StageOut(Model):
    """One stage and its progress."""

    name: str
    runs_with: str = Field(description="The stage in whose runs it runs; mostly itself.")
    translator: str
    buckets: int | None
    state: StageState
    waiting: str = Field(description="Why it does not start now, in words; empty: it may.")
    epoch: int = Field(description="Number of its next run.")
    lag_seconds: float | None = Field(description="Age of its oldest unread increment.")
    failures: int = Field(description="Failed tries of the next run, in a row.")
    retry_at: datetime | None
    last_success_at: datetime | None
    runnable: str = Field(description="The rule or function that says when it runs.")
    memo: Any = Field(description="What that rule remembers of its last run.")
    cycle: list[str] = Field(description="Stages of the cycle that it lies on.")
    turns: int = Field(description="Epochs in a row without input from outside its cycle.")
    queues: list[QueueOut]
    outputs: dict[str, str] = Field(description="Flow to its columns.")
    keep: dict[str, KeptOut] = Field(
        description="Flow to how long its increments stay once all have read them; others stay "
        "for good."
    )
    states: list[StateOut]


class KeepOut(Model):
    """How long inputs stay once everything has read them."""

    hours: float = Field(description="Since they arrived.")
    bytes: int = Field(description="Size limit for each source; 0: none.")
    by: Literal["dataflow", "service"] = Field(
        description="`dataflow` if it sets `hours` or `bytes`."
    )


class SourceOut(Model):
    """One flow that receives files from outside."""

    name: str
    columns: str
    format: str
    options: dict[str, str]
    keep: KeepOut
    duplicates: str = Field(description="What to do with known content under a new name.")


class UnclaimedOut(Model):
    """A name in a drop folder that will not be taken in."""

    name: str
    why: str
    since: datetime | None = Field(description="When it was last changed.")


class GoneOut(Model):
    """A file that went away after it was claimed."""

    name: str
    claim: str
    since: datetime = Field(description="When it was claimed.")
    lost: bool = Field(description="Whether it was acknowledged; if so, drop it again.")


class SourceTroubleOut(Model):
    """What stopped the intake of one source."""

    error: dict[str, Any]
    since: datetime
    tries: int = Field(description="Consecutive failed tries.")
    retry_at: datetime


class SourceFolderOut(Model):
    """What lies in the drop folder of one source."""

    name: str
    folder: str = Field(description="Where producers put files.")
    waiting: int = Field(description="Files that are not claimed yet.")
    waiting_bytes: int
    oldest_at: datetime | None = Field(description="When the oldest of these was last changed.")
    unclaimed: int = Field(description="Names that are not going to be taken in.")
    oldest_unclaimed: list[UnclaimedOut] = Field(description="The first 100 of them.")
    gone: list[GoneOut] = Field(
        description="Files that disappeared after they were claimed, newest first. Each is listed "
        "for a day, or until a file of that name is taken in; at most 100, seen by this instance."
    )
    warning: str = Field(description="What somebody should do.")
    trouble: SourceTroubleOut | None = Field(description="As the answering instance knows it.")


class SourceFolders(Model):
    """The drop folders of a dataflow."""

    items: list[SourceFolderOut]


class DataflowSummary(Model):
    """One dataflow in the list."""

    name: str
    version: int
    desired: Literal["running", "paused"]
    state: DataflowState
    stages: int
    queued_increments: int
    queued_records: int
    lag_seconds: float | None = Field(description="Age of the oldest unprocessed increment.")
    last_success_at: datetime | None
    failures: int = Field(description="Failed tries in a row, over all stages.")
    problem: str | None = Field(
        default=None,
        description="Why it is retrying, stopped or broken, with the next try; `null`: it is not.",
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
        description="Why its translators cannot be loaded any more; `null`: they can."
    )


class Validation(Model):
    """The result for a document that can be registered."""

    name: str
    sources: list[str]
    stages: list[str]
    flows: dict[str, str] = Field(description="Flow to its columns.")


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
    reason: dict[str, Any] | None = Field(description="Why it is in quarantine.")
    same_as: dict[str, Any] | None = Field(
        description="The earlier file with this content. `by` says what is equal: "
        "`name_and_content` (a retry) or `content`."
    )
    created_at: datetime


class RunOut(Model):
    """One attempt to execute an epoch."""

    id: str
    dataflow: str
    stage: str = Field(description="The one that leads; others may run with it.")
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
    figures: dict[str, float]
    lanes: list[Lane] = Field(
        description="The lanes that its jobs took; empty while it runs, or if it had no jobs."
    )
    error: dict[str, Any] | None


class Records(Model):
    """Records of a flow or a state, by column name."""

    items: list[dict[str, Any]]
    cursor: str | None = None


class FrameOut(Model):
    """The frame of an input that may still grow."""

    number: int
    framing_key: int | str
    records: int


class InputWaitOut(Model):
    """The records that wait at one input, or are on their way to it."""

    input: str
    flow: str
    unread: int = Field(description="Increments, or frames, that a run may read.")
    records: int
    bytes: int
    kept: int = Field(description="Increments that were read and stay.")
    framing: int = Field(description="Increments that are being framed.")
    closes: int = Field(description="Closes that are not applied yet.")
    open_frame: FrameOut | None


class WaitOut(Model):
    """Why a stage does not start now."""

    stage: str
    kind: Literal[
        "",
        "input",
        "frame",
        "framing",
        "asking",
        "readers",
        "place",
        "running",
        "retry",
        "paused",
        "stopped",
    ] = Field(description="Empty: it may start at the next tick.")
    words: str
    since: datetime = Field(description="When it could first have run, or last started.")
    behind: str = Field(description="The stage before it that keeps it waiting; empty: none.")
    turns: int = Field(description="Epochs in a row without input from outside its cycle.")
    error: dict[str, Any] | None = Field(
        description="What stopped it, or its cycle that does not drain, with code and details."
    )
    inputs: list[InputWaitOut]


class Waits(Model):
    """What the stages of a dataflow wait for; only stages that lead their runs."""

    items: list[WaitOut]


class LeftOut(Model):
    """The work that a dataflow still has if nothing else arrives."""

    stages: dict[str, str] = Field(description="Stage to what is left; none: all is applied.")


class PunctuationOut(Model):
    """A punctuation, which closed the open frames of a flow."""

    number: int = Field(description="Counts the closes of the dataflow, from 0.")
    flow: str
    at: int = Field(description="Index of the first increment behind it.")
    reason: Literal["request", "marker", "idle"]
    inputs: list[str] = Field(description="The inputs that it is for, as `stage.input`.")
    closed_at: datetime


class TranslatorOut(Model):
    """A translator that a document may name."""

    name: str
    package: str
    summary: str
    parameters: dict[str, str]
    problem: str | None = Field(description="Why it cannot be loaded; `null`: it can.")


InstanceRole = Literal["leads", "follows", "unsure", "retires"]


class Health(Model):
    """Whether the service works."""

    status: Literal["ok"]


class DegradedOut(Model):
    """A dataflow that makes no progress although the service works."""

    dataflow: str
    state: DataflowState
    reason: str = Field(description="Why, and when it is retried, if it is.")


class Readiness(Health):
    """Whether the service can work, and the role of this instance."""

    degraded: dict[str, DataflowState] = Field(
        default_factory=dict,
        description="Dataflows that are retrying, stopped or broken; they do not make it unready.",
    )

    role: InstanceRole
    epoch: int = Field(description="Epoch of the leader's lease.")


class LeaderOut(Model):
    """Which instance leads, as far as the asked instance knows."""

    role: InstanceRole
    epoch: int = Field(description="Epoch of the lease; increases with every change of leader.")
    leader: str | None = Field(description="Its address; `null`: unknown, or only one instance.")


class Links(Model):
    """Links to the other resources."""

    service: str
    version: str
    links: dict[str, str]
