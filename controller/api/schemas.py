"""What the API sends and receives, as closed models (no unknown fields).

Times are UTC in ISO 8601; sizes are in bytes, durations in seconds. Every listing
is a `Page`: its `cursor` gets the next part, `null` at the end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

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
    "SourceOut",
    "StageOut",
    "StateOut",
    "TranslatorOut",
    "Validation",
    "WaitOut",
    "Waits",
]

PAGE_SIZE_MAX = 500

T = TypeVar("T")

StageState = Literal["running", "waiting", "retrying", "paused", "stopped"]
DataflowState = Literal["ok", "retrying", "paused", "stopped"]


class Model(BaseModel):
    """A closed model."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PageQuery(Model):
    """Which part of a listing a client wants."""

    cursor: str | None = Field(None, max_length=1000, description="Of the page before.")
    limit: int | None = Field(None, ge=1, le=PAGE_SIZE_MAX, description="Most items to return.")


class Page(Model, Generic[T]):
    """Part of a listing."""

    items: list[T]
    cursor: str | None = None


class Problem(BaseModel):
    """An error, as RFC 9457 has it, with this service's own fields."""

    type: str = Field(description="`urn:cbp:error:<error_code>`; stable.")
    title: str
    status: int
    detail: str = Field(description="For people; may change.")
    instance: str = Field(description="Path of the request.")
    error_code: str = Field(description="Stable snake_case name.")
    message: str
    details: dict[str, Any]


class QueueOut(Model):
    """What waits at one input of a stage."""

    input: str
    flow: str
    increments: int = Field(description="Queued, read marks included.")
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
    """For how long increments of an output stay once everything has read them."""

    hours: float | None = Field(description="Since they came; `null`: however old.")
    bytes: int = Field(description="That the newest may have; 0: any number.")


class StageOut(Model):
    """One stage and how it gets on."""

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
    """For how long inputs stay once everything has read them."""

    hours: float = Field(description="Since they arrived.")
    bytes: int = Field(description="That the newest of a source may have; 0: any number.")
    by: Literal["dataflow", "service"] = Field(description="Who says so of one of them at least.")


class SourceOut(Model):
    """One flow that is fed from outside."""

    name: str
    columns: str
    format: str
    options: dict[str, str]
    keep: KeepOut


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
    """A document that may be registered."""

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
    """One file that was met in a drop folder."""

    id: str
    dataflow: str
    source: str
    sequence: int
    path: str
    bytes: int
    status: str
    sha256: str
    index: int | None = Field(description="Of the increment that it became.")
    reason: dict[str, Any] | None = Field(description="Why it is in quarantine.")
    created_at: datetime


class RunOut(Model):
    """One attempt to execute an epoch."""

    id: str
    dataflow: str
    stage: str = Field(description="The one that leads; others may run with it.")
    stages: list[str] = Field(description="All that run; of each, `<stage>/<figure>`.")
    epoch: int
    attempt: int
    status: str
    read: dict[str, list[int]]
    remove: dict[str, list[int]]
    started_at: datetime
    finished_at: datetime | None
    seconds: float | None
    figures: dict[str, float]
    error: dict[str, Any] | None


class Records(Model):
    """Records of a flow or a state, columns by name."""

    items: list[dict[str, Any]]
    cursor: str | None = None


class FrameOut(Model):
    """The frame of an input that may still grow."""

    number: int
    framing_key: int | str
    records: int


class InputWaitOut(Model):
    """What waits at one input, and what is on its way there."""

    input: str
    flow: str
    unread: int = Field(description="Increments, or frames, that a run may read.")
    records: int
    bytes: int
    kept: int = Field(description="Increments that were read and stay.")
    framing: int = Field(description="Increments that are being framed.")
    closes: int = Field(description="Closes that are behind what is being framed.")
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
    """What the stages of a dataflow wait for; those that lead their runs."""

    items: list[WaitOut]


class LeftOut(Model):
    """What a dataflow still does if nothing else arrives."""

    stages: dict[str, str] = Field(description="Stage to what is left; none: all is applied.")


class PunctuationOut(Model):
    """What closed the open frames of a flow."""

    number: int = Field(description="Counts those of a dataflow.")
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


class Readiness(Health):
    """Whether the service can work, and its part in it."""

    role: InstanceRole
    epoch: int = Field(description="Of the lease by which a controller leads.")


class LeaderOut(Model):
    """Who leads, as the instance knows it that was asked."""

    role: InstanceRole
    epoch: int = Field(description="Of the lease; rises with every change of the leader.")
    leader: str | None = Field(description="Its address; `null`: not known, or there is one only.")


class Links(Model):
    """Where to go from here."""

    service: str
    version: str
    links: dict[str, str]
