"""Standing of a sink: figures and the last error, which the store keeps as JSON values. Pure.

States, in the order of what an operator should know first:

    stopped    an operator must choose, or repair the target; it is still retried
    retrying   its last try failed, and it is retried automatically
    paused     by an operator, or by the document
    behind     increments wait
    current    everything is published
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from cbp.errors import CbpError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.schedule.backoff import Backoff
from controller.sinks.errors import CHOICES, SinkChoiceError
from controller.sinks.notes import identity_of
from controller.store.records import Desired, SinkRecord

State = Literal["stopped", "retrying", "paused", "behind", "current"]
RETRY = Backoff((1.0, 5.0), 300.0)
CHOOSING = frozenset(
    {"sink_rolled_back", "sink_gap", "sink_target_foreign", "sink_delivery_refused"}
)
"""Codes of errors that an operator's choice ends, where the target allows it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Figures of a sink since it was registered, and its last error.

    Attributes:
        dead: Number of refused deliveries that an operator skipped.
        published_ms: When it last published; 0 means never.
        error: The output of `CbpError.as_dict`; `None` if the last attempt did not fail.
        retry_ms: Time of the next attempt; 0 means at once.
    """

    first: int = 0
    increments: int = 0
    records: int = 0
    dead: int = 0
    published_ms: int = 0
    error: Mapping[str, Any] | None = None
    since_ms: int = 0
    failures: int = 0
    retry_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `standing_of` reads them."""
        return asdict(self)

    def published(self, records: int, now_ms: int) -> Standing:
        """Return the standing after an increment was published."""
        return replace(
            self.mended(),
            increments=self.increments + 1,
            records=self.records + records,
            published_ms=now_ms,
        )

    def mended(self) -> Standing:
        """Return the standing without an error."""
        return replace(self, error=None, since_ms=0, failures=0, retry_ms=0)

    def failed(self, error: CbpError, now_ms: int, drawn: float) -> Standing:
        """Return the standing after a failed attempt."""
        failures = self.failures + 1
        retry_ms = now_ms + int(RETRY.seconds(failures, drawn) * 1000)
        return replace(
            self,
            error=error.as_dict(),
            since_ms=self.since_ms or now_ms,
            failures=failures,
            retry_ms=retry_ms,
        )


def standing_of(record: SinkRecord) -> Standing:
    """Return the standing that a record holds."""
    return Standing(**record.standing)


def state_of(record: SinkRecord) -> State:
    """Return the state of a sink."""
    if (error := standing_of(record).error) is not None and record.desired != "paused":
        return "stopped" if error["error_code"] in CHOOSING else "retrying"
    if record.desired == "paused":
        return "paused"
    return "behind" if record.end > record.next else "current"


def trouble_of(record: SinkRecord) -> str:
    """Return the error of a sink, in words; `""` if there is none."""
    if state_of(record) not in ("stopped", "retrying"):
        return ""
    standing = standing_of(record)
    assert standing.error is not None
    since = datetime.fromtimestamp(standing.since_ms / 1000, UTC)
    return (
        f"sink {record.sink}: {standing.error['message']} (since {since:%Y-%m-%d %H:%M:%S} UTC; "
        f"the stages continue; `cbp sinks show {record.dataflow} {record.sink}`)"
    )


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One sink, with its target, progress and error; figures are initial until it has `begun`."""

    node: SinkNode
    record: SinkRecord
    standing: Standing
    state: State
    begun: bool
    waiting: int
    lag_seconds: float | None
    choices: tuple[str, ...]


def report_sinks(dataflow: Dataflow, rows: Iterable[SinkRecord], now: datetime) -> list[SinkReport]:
    """Return a report of each sink of a dataflow, by name; pure."""
    known = {row.sink: row for row in rows}
    sinks = sorted(dataflow.sinks.items())
    return [_report(dataflow, node, known.get(name), now) for name, node in sinks]


def choices_of(node: SinkNode, standing: Standing) -> tuple[str, ...]:
    """Return the present choices of an operator for a sink; pure."""
    code = (standing.error or {}).get("error_code")
    if code == "sink_rolled_back":
        return CHOICES
    if code == "sink_target_foreign" and node.to == "delta" and standing.increments:
        return CHOICES if node.view else ("keep",)
    return ("keep",) if code in ("sink_gap", "sink_delivery_refused") else ()


def require_choosing(dataflow: Dataflow, row: SinkRecord, choice: str | None) -> None:
    """Refuse a choice that a sink does not wait for; raises `SinkChoiceError`."""
    node = dataflow.sinks.get(row.sink)
    choices = () if node is None else choices_of(node, standing_of(row))
    if choice is not None and choice not in choices:
        waits = f"waits for {' or '.join(choices)}" if choices else "does not wait for a decision"
        raise SinkChoiceError(row.sink, f"{waits}, so {choice!r} does not apply")


def _report(
    dataflow: Dataflow, node: SinkNode, row: SinkRecord | None, now: datetime
) -> SinkReport:
    identity = identity_of(dataflow.name, node)
    begun = row is not None and row.identity == identity
    if row is None or not begun:
        desired: Desired = "paused" if node.paused else "running"
        row = SinkRecord(dataflow.name, node.name, identity, node.reads, 0, 0, desired)
    standing, since = standing_of(row), row.waits_since
    waiting = max(row.end - row.next, 0)
    return SinkReport(
        node,
        row,
        standing,
        state_of(row),
        begun,
        waiting,
        None if since is None or not waiting else max(0.0, (now - since).total_seconds()),
        choices_of(node, standing),
    )


def find_row(rows: Iterable[SinkRecord], dataflow: str, sink: str) -> SinkRecord:
    """Return the row of a sink; raises `NotFoundError`."""
    row = next((one for one in rows if one.sink == sink), None)
    if row is None:
        raise NotFoundError(kind="sink", name=f"{dataflow}.{sink}")
    return row
