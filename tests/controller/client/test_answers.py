"""The values of the public client are those of the OpenAPI document."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from cbp.client import answers
from cbp.client.answers import answer_of
from cbp.client.pages import QueryResult
from controller.api.app import describe_api

SCHEMAS: dict[str, Any] = describe_api()["components"]["schemas"]
NAMES = {
    "BulkItem": "BulkItemOut",
    "Claim": "ClaimOut",
    "Column": "ColumnOut",
    "Correction": "CorrectionOut",
    "CorrectionPreview": "PreviewsOut",
    "Dataflow": "DataflowSummary",
    "DataflowDetail": "DataflowDetail",
    "DataflowFreshness": "DataflowFreshnessOut",
    "Decided": "DecidedOut",
    "Difference": "DifferenceOut",
    "DifferingKey": "DifferingOut",
    "File": "FileOut",
    "Freshness": "FreshnessOut",
    "Increment": "IncrementOut",
    "Moment": "MomentOut",
    "KeyPreview": "PreviewOut",
    "QueryResult": "QueryOut",
    "RebuildJob": "RebuildJobOut",
    "Replaced": "ComparedOut",
    "GiveBackJob": "GiveBackJobOut",
    "GivenBack": "GivenBackOut",
    "Rollback": "RollbackOut",
    "SetAside": "SetAsideOut",
    "RollbackJob": "RollbackJobOut",
    "RollbackPlan": "RollbackPlanOut",
    "Run": "RunOut",
    "Snapshot": "SnapshotOut",
    "SnapshotTable": "TableOut",
    "Source": "SourceOut",
    "Stage": "StageOut",
    "TableDifference": "TableDifferenceOut",
    "TableVerdict": "TableVerdictOut",
    "Validation": "Validation",
    "Verification": "VerificationOut",
}
KINDS = {name: getattr(answers, name, QueryResult) for name in NAMES}
TYPES = {"integer": int, "number": float, "string": str, "boolean": bool, "object": dict}


def test_every_value_is_compared() -> None:
    """A further one must be named here, with the schema that it answers for."""
    mine = {
        name for name, one in vars(answers).items() if isinstance(one, type) and is_dataclass(one)
    }
    shared = {"Answer", "Job"}
    assert mine == {*NAMES, *shared} - {"QueryResult"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_field_is_one_of_the_service(name: str) -> None:
    """It exists there, with the same type, and is `None` only where the service says so."""
    schema, hints = SCHEMAS[NAMES[name]]["properties"], get_type_hints(KINDS[name])
    assert issubclass(KINDS[name], answers.Answer)
    for field in fields(KINDS[name]):
        if field.name == "answer":
            continue
        hint, nullable = _without_none(hints[field.name])
        told, told_nullable = _schema_without_null(schema[field.name])
        assert nullable == told_nullable, field.name
        assert _agree(hint, told), (field.name, hint, told)


def _without_none(hint: Any) -> tuple[Any, bool]:
    kinds = [one for one in get_args(hint) if one is not NoneType]
    return (kinds[0], True) if NoneType in get_args(hint) else (hint, False)


def _schema_without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    kinds = schema.get("anyOf")
    if kinds is None or {"type": "null"} not in kinds:
        return schema, False
    return next(one for one in kinds if one != {"type": "null"}), True


def _agree(hint: Any, schema: dict[str, Any]) -> bool:
    if hint is Any or not schema:
        return True
    named: str = schema.get("$ref", "").rpartition("/")[2]
    if named and "enum" in SCHEMAS[named]:
        return hint is str
    if named:
        return NAMES[hint.__name__] == named
    if hint is datetime:
        return schema.get("format") == "date-time"
    if get_origin(hint) is list:
        return schema["type"] == "array" and _agree(get_args(hint)[0], schema["items"])
    kind: type = get_origin(hint) or hint
    return TYPES[schema["type"]] is kind


def test_a_newer_service_is_read() -> None:
    """A field that is not known here is in `answer` alone; nested values and times are values.

    So a command prints with `--json` what the service said, as it said it.
    """
    document = {
        "flow": "urls",
        "index": 0,
        "records": 1,
        "bytes": 2,
        "created_at": "2026-11-01T12:00:00Z",
        "origin": {},
        "files": [{"path": "a", "records": 1, "bytes": 2, "later": 3}],
        "later": 4,
    }
    read = answer_of(answers.Increment, document)
    assert read.created_at == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert read.files == [answers.File(path="a", records=1, bytes=2)]
    assert read.answer == document
    assert read.files[0].answer["later"] == 3
    assert "later" not in repr(read)
