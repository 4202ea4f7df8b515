"""Report on sinks: each with its target, how far it is, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.sinks import SinkNode
from controller.sinks.errors import CHOICES, SinkChoiceError
from controller.sinks.notes import identity_of
from controller.sinks.standing import Standing, State, standing_of, state_of
from controller.store.records import Desired, SinkRecord


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One sink.

    Attributes:
        state: See `controller.sinks.standing`.
        begun: Whether the service has seen it; else the figures are those of a new one.
        waiting: Increments of its flow that it has not published.
        lag_seconds: How long the oldest of them waits; `None` if none does, or it is not known.
        choices: What an operator may choose, if it waits for that.
    """

    node: SinkNode
    record: SinkRecord
    standing: Standing
    state: State
    begun: bool
    waiting: int
    lag_seconds: float | None
    choices: tuple[str, ...]


def report_sinks(dataflow: Dataflow, rows: Iterable[SinkRecord], now: datetime) -> list[SinkReport]:
    """Return a report of each sink of a dataflow, by name; pure.

    Args:
        rows: Its sinks, as the store has them.
        now: Aware, in UTC.
    """
    known = {row.sink: row for row in rows}
    return [_report(dataflow, node, known.get(name), now) for name, node in _sorted(dataflow)]


def choices_of(node: SinkNode, standing: Standing) -> tuple[str, ...]:
    """Return what an operator may choose for a sink now; pure."""
    code = (standing.error or {}).get("error_code")
    if code == "sink_rolled_back":
        return CHOICES
    if code == "sink_target_foreign" and node.to == "delta" and standing.increments:
        return CHOICES if node.view else ("keep",)
    return ("keep",) if code in ("sink_gap", "sink_delivery_refused") else ()


def require_choosing(dataflow: Dataflow, row: SinkRecord, choice: str | None) -> None:
    """Refuse a choice that a sink does not wait for.

    Raises:
        SinkChoiceError: With what it waits for.
    """
    node = dataflow.sinks.get(row.sink)
    choices = () if node is None else choices_of(node, standing_of(row))
    if choice is not None and choice not in choices:
        waits = f"it waits for {' or '.join(choices)}" if choices else "it waits for no choice"
        raise SinkChoiceError(row.sink, f"{waits}, not for {choice}")


def _sorted(dataflow: Dataflow) -> list[tuple[str, SinkNode]]:
    return sorted(dataflow.sinks.items())


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
