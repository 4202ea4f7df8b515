"""Conversion of records to database rows and back, both directions side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row

from cbp.model.flow.increment import Increment
from cbp.model.run.intention import RunStatus
from controller.store.records import (
    ClaimRecord,
    DataflowRecord,
    IncrementRecord,
    RunRecord,
    StageRecord,
)

Values = dict[str, Any]


def dataflow_row(record: DataflowRecord) -> Values:
    """Return the row of a dataflow."""
    return {
        "name": record.name,
        "version": record.version,
        "document": dict(record.document),
        "folder": record.folder,
        "desired": record.desired,
        "created_at": record.created_at,
        "generation": record.generation,
    }


def dataflow_of(row: Row[Any]) -> DataflowRecord:
    """Return the dataflow of a row."""
    return DataflowRecord(
        row.name,
        row.version,
        row.document,
        row.folder,
        row.desired,
        row.created_at,
        row.generation,
    )


def stage_row(record: StageRecord) -> Values:
    """Return the row of a stage."""
    return {
        "dataflow": record.dataflow,
        "stage": record.stage,
        "epoch": record.epoch,
        "waiting_since": record.waiting_since,
        "memo": record.memo,
        "failures": record.failures,
        "retry_at": record.retry_at,
        "paused_because": record.paused_because,
        "error": None if record.error is None else dict(record.error),
        "turns": record.turns,
        "priority": record.priority,
        "due_ms": record.due_ms,
    }


def stage_of(row: Row[Any]) -> StageRecord:
    """Return the stage of a row."""
    return StageRecord(
        dataflow=row.dataflow,
        stage=row.stage,
        epoch=row.epoch,
        waiting_since=row.waiting_since,
        memo=row.memo,
        failures=row.failures,
        retry_at=row.retry_at,
        paused_because=row.paused_because,
        error=row.error,
        turns=row.turns,
        priority=row.priority,
        due_ms=row.due_ms,
    )


def increment_row(record: IncrementRecord) -> Values:
    """Return the row of an increment."""
    value = record.increment.to_json()
    return {
        "dataflow": record.dataflow,
        "flow": value["flow"],
        "idx": value["index"],
        "framing_key": value["framing_key"],
        "files": value["files"],
        "bindings": _beside(value),
        "created_at": record.created_at,
        "origin": dict(record.origin),
    }


def increment_of(row: Row[Any]) -> Increment:
    """Return the increment of a row that has `flow`, `idx`, `framing_key`, `files`, `bindings`."""
    return Increment.from_json(
        {
            "flow": row.flow,
            "index": row.idx,
            "framing_key": row.framing_key,
            "files": row.files,
            **files_beside(row.bindings),
        }
    )


def _beside(value: Values) -> Any:
    """Return the column of the files that an increment has beside its records; null: none.

    Only messages have bindings, and only increments of sources have records that are gone.
    """
    return {"gone": value["gone"]} if "gone" in value else value.get("bindings")


def files_beside(column: Any) -> Values:
    """Return what `_beside` put into the column, as a part of the increment's JSON values."""
    return column if isinstance(column, dict) else {"bindings": column or ()}


def increment_record_of(row: Row[Any]) -> IncrementRecord:
    """Return the increment of a row, with what is known about its arrival."""
    return IncrementRecord(row.dataflow, increment_of(row), row.created_at, row.origin)


def run_row(record: RunRecord) -> Values:
    """Return the row of a run."""
    return {
        "id": record.id,
        "dataflow": record.dataflow,
        "stage": record.stage,
        "epoch": record.epoch,
        "attempt": record.attempt,
        "status": record.status.value,
        "read": _lists(record.read),
        "remove": _lists(record.remove),
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "figures": dict(record.figures),
        "error": None if record.error is None else dict(record.error),
    }


def run_of(row: Row[Any]) -> RunRecord:
    """Return the run of a row."""
    return RunRecord(
        id=row.id,
        dataflow=row.dataflow,
        stage=row.stage,
        epoch=row.epoch,
        attempt=row.attempt,
        status=RunStatus(row.status),
        read={name: tuple(indexes) for name, indexes in row.read.items()},
        remove={name: tuple(indexes) for name, indexes in row.remove.items()},
        started_at=row.started_at,
        finished_at=row.finished_at,
        figures=row.figures,
        error=row.error,
    )


def claim_row(record: ClaimRecord) -> Values:
    """Return the row of a claim."""
    return {
        "id": record.id,
        "dataflow": record.dataflow,
        "source": record.source,
        "sequence": record.sequence,
        "path": record.path,
        "bytes": record.bytes,
        "status": record.status,
        "created_at": record.created_at,
        "sha256": record.sha256,
        "idx": record.index,
        "reason": None if record.reason is None else dict(record.reason),
        "request_key": record.key or None,
        "same_as": None if record.same_as is None else dict(record.same_as),
    }


def claim_of(row: Row[Any]) -> ClaimRecord:
    """Return the claim of a row."""
    return ClaimRecord(
        id=row.id,
        dataflow=row.dataflow,
        source=row.source,
        sequence=row.sequence,
        path=row.path,
        bytes=row.bytes,
        status=row.status,
        created_at=row.created_at,
        sha256=row.sha256,
        index=row.idx,
        reason=row.reason,
        key=row.request_key or "",
        same_as=row.same_as,
    )


def _lists(read: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: list(indexes) for name, indexes in read.items()}
