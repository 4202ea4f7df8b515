"""Answers made from the API's document: every list has one item, every value is of its type."""

from __future__ import annotations

from typing import Any

from controller.api.app import describe_api

__all__ = ["EXAMPLES"]

TEXTS = {"date-time": "2026-11-01T12:00:00Z"}
DEEPEST = 12


def _examples() -> dict[str, Any]:
    """Return, for each operation that answers with JSON, an answer as its schema allows it."""
    document = describe_api()
    schemas = document["components"]["schemas"]
    examples = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            answers = [
                answer.get("content", {}).get("application/json", {}).get("schema")
                for status, answer in operation["responses"].items()
                if status.startswith("2")
            ]
            if answers and answers[0]:
                examples[operation["operationId"]] = _value(answers[0], schemas, 0)
    return examples


def _value(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> Any:
    if reference := schema.get("$ref"):
        return _value(schemas[reference.rpartition("/")[2]], schemas, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for ways in ("anyOf", "oneOf", "allOf"):
        if ways in schema:
            return _value(schema[ways][0], schemas, depth + 1)
    return _plain(schema, schemas, depth)


def _plain(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> Any:
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        value = {
            name: _value(one, schemas, depth + 1)
            for name, one in schema.get("properties", {}).items()
        }
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and depth < DEEPEST:
            value["a"] = _value(more, schemas, depth + 1)
        return value
    if kind == "array":
        return [_value(schema.get("items", {}), schemas, depth + 1)] if depth < DEEPEST else []
    if kind == "string":
        return TEXTS.get(schema.get("format", ""), "a")
    return {"integer": 7, "number": 7.5, "boolean": True}.get(str(kind))


EXAMPLES = _examples()
