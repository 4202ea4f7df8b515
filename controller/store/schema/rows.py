"""Conversion of records to database rows and back, both directions side by side."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, cast

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


_COLUMNS = {"index": "idx", "key": "request_key"}
"""Columns whose names differ from the fields of their records."""


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    assert is_dataclass(kind)
    return tuple(field.name for field in fields(kind))


def row_of(record: Any) -> Values:
    """Return the row of a record, with mappings as plain dicts for JSON."""
    row = {}
    for name in _names(cast(Hashable, type(record))):
        value = getattr(record, name)
        row[_COLUMNS.get(name, name)] = dict(value) if isinstance(value, Mapping) else value
    return row


def fields_of(kind: type[Any], row: Row[Any]) -> Values:
    """Return the fields of a row's record by name; as an attribute, `count` would be a method."""
    values = row._mapping
    return {name: values[_COLUMNS.get(name, name)] for name in _names(cast(Hashable, kind))}


def dataflow_of(row: Row[Any]) -> DataflowRecord:
    """Return the dataflow of a row."""
    return DataflowRecord(**fields_of(DataflowRecord, row))


def stage_of(row: Row[Any]) -> StageRecord:
    """Return the stage of a row."""
    return StageRecord(**fields_of(StageRecord, row))


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
    value = {"flow": row.flow, "index": row.idx, "framing_key": row.framing_key, "files": row.files}
    return Increment.from_json(value | files_beside(row.bindings))


def _beside(value: Values) -> Any:
    """Return the column that names the files beside an increment's records; null if it has none.

    Only messages have bindings, and only increments of sources have records that are gone.
    """
    return {"gone": value["gone"]} if "gone" in value else value.get("bindings")


def files_beside(column: Any) -> Values:
    """Return the value that `_beside` stored in the column, as a part of the increment's JSON."""
    return column if isinstance(column, dict) else {"bindings": column or ()}


def increment_record_of(row: Row[Any]) -> IncrementRecord:
    """Return the increment of a row, with the known facts about its arrival."""
    return IncrementRecord(row.dataflow, increment_of(row), row.created_at, row.origin)


def run_row(record: RunRecord) -> Values:
    """Return the row of a run."""
    lists = {"read": _lists(record.read), "remove": _lists(record.remove)}
    return row_of(record) | lists | {"status": record.status.value}


def run_of(row: Row[Any]) -> RunRecord:
    """Return the run of a row."""
    tuples = {"read": _tuples(row.read), "remove": _tuples(row.remove)}
    return RunRecord(**(fields_of(RunRecord, row) | tuples | {"status": RunStatus(row.status)}))


def claim_row(record: ClaimRecord) -> Values:
    """Return the row of a claim."""
    return row_of(record) | {"request_key": record.key or None}


def claim_of(row: Row[Any]) -> ClaimRecord:
    """Return the claim of a row."""
    return ClaimRecord(**(fields_of(ClaimRecord, row) | {"key": row.request_key or ""}))


def _lists(read: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: list(indexes) for name, indexes in read.items()}


def _tuples(read: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(indexes) for name, indexes in read.items()}
