"""Which columns a source of each format can declare; pure.

csv, xml     any, but no nested types and no BINARY: a cell is text
text         one STRING column for the line, and the columns that options name
access_log   some of `ACCESS_LOG`, and the columns that options name
delta        those of the table, and the columns that options name
others       any
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from cbp.errors import Mistake
from cbp.model.dataflow.nodes import SourceNode
from cbp.model.dataflow.source_options import DeltaOptions, LineOptions, ReadOptions
from cbp.model.flow.changes import CHANGE_TYPE, SIGN, SIGN_TYPES, ChangesRead
from cbp.model.flow.schema import Field

_INTEGERS = ("BIGINT", "INT")
ACCESS_LOG: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "host": ("STRING",),
        "identity": ("STRING",),
        "user": ("STRING",),
        "time": ("TIMESTAMP",),
        "request": ("STRING",),
        "method": ("STRING",),
        "path": ("STRING",),
        "protocol": ("STRING",),
        "status": ("SMALLINT", *_INTEGERS),
        "bytes": ("BIGINT",),
        "referer": ("STRING",),
        "user_agent": ("STRING",),
    }
)
"""Maps each column of an access log to the types that it can have."""

COMBINED_ONLY = ("referer", "user_agent")
"""Columns that only the combined layout has."""


def column_mistakes(source: SourceNode, options: ReadOptions) -> Iterator[Mistake]:
    """Find columns that files of the source's format cannot fill."""
    where = f"sources.{source.name}"
    if source.format in ("csv", "xml"):
        name = source.format.upper()
        for column in source.schema.fields:
            if column.type.arguments or column.type.kind == "BINARY":
                message = (
                    f"column {column.name!r}: {name} cannot hold {column.type}; "
                    "use jsonl, parquet or avro"
                )
                yield Mistake("format_type", f"{where}.schema", message)
    if source.format == "delta":
        yield from _delta_mistakes(source, options.delta)
    if source.format not in ("text", "access_log"):
        return
    yield from _named_mistakes(source, options.lines)
    rest = [field for field in source.schema.fields if field.name not in _named(options.lines)]
    if source.format == "text":
        if len(rest) != 1 or rest[0].type.kind != "STRING":
            listed = ", ".join(f"{field.name} {field.type}" for field in rest) or "none"
            message = (
                f"text needs one STRING column for the line, beside those that the options "
                f"file_name and line_number name; got {listed}"
            )
            yield Mistake("format_type", f"{where}.schema", message)
        return
    for column in rest:
        if problem := _access_log_problem(column, combined=options.combined):
            yield Mistake("format_type", f"{where}.schema", f"column {column.name!r}: {problem}")


def source_changes(source: SourceNode) -> Iterator[ChangesRead]:
    """Yield how inputs can read a source as the changes of a view: it has the columns of these."""
    signs = (field.type.kind for field in source.schema.fields if field.name == SIGN)
    if source.format != "delta" and next(signs, "") in SIGN_TYPES:
        yield "signed"  # each record has its sign, as its producer wrote it
    if source.format == "delta" and source.options.get("sign", SIGN) == SIGN:
        yield "signed"
        if source.options.get("change_type") == CHANGE_TYPE:
            yield "after"


def _named(options: LineOptions) -> tuple[str, ...]:
    return tuple(name for name in (options.file_name, options.line_number) if name)


def _delta_mistakes(source: SourceNode, options: DeltaOptions) -> Iterator[Mistake]:
    named = {"sign": (options.sign, SIGN_TYPES), "change_type": (options.change_type, ("STRING",))}
    yield from _option_mistakes(source, named)
    names = {options.sign, options.change_type}
    if options.sign == options.change_type or all(
        field.name in names for field in source.schema.fields
    ):
        message = "the schema needs a column of the table besides those that options name"
        yield Mistake("format_type", f"sources.{source.name}.schema", message)
    if source.batch.seconds:
        message = "versions of a table do not wait for more; leave `seconds` out"
        yield Mistake("batch_invalid", f"sources.{source.name}.batch.seconds", message)


def _option_mistakes(
    source: SourceNode, named: Mapping[str, tuple[str, Sequence[str]]]
) -> Iterator[Mistake]:
    """Find options that name no column, or one of another type.

    Args:
        named: Option to the column that it names (`""`: none) and the types that it can have.
    """
    where = f"sources.{source.name}.options"
    types = {field.name: field.type.kind for field in source.schema.fields}
    for option, (name, allowed) in named.items():
        if name and types.get(name) not in allowed:
            has = f"is {types[name]}" if name in types else "is not in the schema"
            message = f"{option}: column {name!r} {has}; declare it as {' or '.join(allowed)}"
            yield Mistake("option_invalid", where, message)


def _named_mistakes(source: SourceNode, options: LineOptions) -> Iterator[Mistake]:
    where = f"sources.{source.name}.options"
    named = {
        "file_name": (options.file_name, ("STRING",)),
        "line_number": (options.line_number, _INTEGERS),
    }
    yield from _option_mistakes(source, named)
    if options.file_name and options.file_name == options.line_number:
        message = f"file_name and line_number name the same column {options.file_name!r}"
        yield Mistake("option_invalid", where, message)


def _access_log_problem(column: Field, *, combined: bool) -> str:
    """Return why an access log cannot fill a column; `""` if it can."""
    if column.name not in ACCESS_LOG:
        return f"an access log has no such column; use some of {', '.join(ACCESS_LOG)}"
    if column.name in COMBINED_ONLY and not combined:
        return "the common layout does not have it; use options: {layout: combined}"
    allowed = ACCESS_LOG[column.name]
    return "" if column.type.kind in allowed else f"is {column.type}; use {' or '.join(allowed)}"
