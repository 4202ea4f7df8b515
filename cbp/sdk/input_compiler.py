"""Compiles the declarations of inputs: routes, orders, frames and combiners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import cast, get_args

from cbp.model.author.code_fingerprint import Code, fingerprint
from cbp.model.dataflow.stage import SECONDS_MAX, CombineSpec, Computed, InputSpec
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.schema import Schema
from cbp.model.flow.signed_changes import CHANGE_COLUMNS, ChangesRead
from cbp.sdk.declare import Input, Loopback, place_of
from cbp.sdk.option_reader import OptionReader

_FRAMING_KINDS = ("STRING", "BIGINT", "INT", "SMALLINT", "TINYINT", "DATE", "TIMESTAMP")
"""Types that a column in `frame_by` can have."""

_FLOATS = ("DOUBLE", "FLOAT")
_SUMMED = ("BIGINT", "INT", "SMALLINT", "TINYINT")
_ORDERED = (*_SUMMED, *_FLOATS, "DATE", "TIMESTAMP")
"""Types of values that a combiner can sum; types whose minimum or maximum it can keep."""


def input_spec(options: OptionReader, name: str, declared: Input | Loopback) -> InputSpec:
    """Return the plain values of an input; raise `DefinitionError` for its first mistake."""
    schema = options.schema(name, declared.schema)
    changes = "" if isinstance(declared, Loopback) else declared.changes
    if changes not in get_args(ChangesRead):
        options.fail("changes_invalid", name, f"changes={changes!r}; use 'signed' or 'after'")
    for column in schema.names if changes == "after" else ():
        if column.lower() in CHANGE_COLUMNS:
            message = f"with changes='after' there is no column {column!r}"
            advice = "remove the column, or use changes='signed'"
            options.fail("changes_columns", name, f"{message}; {advice}")
    return InputSpec(
        name,
        schema,
        options.columns(name, "route_by", declared.route_by, schema),
        _order(options, name, declared.order_by, schema),
        isinstance(declared, Loopback),
        None if isinstance(declared, Loopback) else _frame_by(options, name, declared, schema),
        _combine(options, name, declared, schema),
        0.0 if isinstance(declared, Loopback) else _idle(options, name, declared),
        changes,
        declared.supersteps if isinstance(declared, Loopback) else 1,
        (declared.inside or "") if isinstance(declared, Loopback) else "",
        isinstance(declared, Loopback) and declared.microsteps,
    )


def _idle(options: OptionReader, name: str, declared: Input) -> float:
    seconds = declared.close_idle_seconds
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= SECONDS_MAX:
        message = (
            f"close_idle_seconds is {seconds!r}; give a number from 0 (never) to {SECONDS_MAX}"
        )
        options.fail("close_idle_invalid", name, message)
    if seconds and declared.frame_by is None:
        message = (
            "close_idle_seconds closes idle frames, so it needs frame_by; declare frame_by, too"
        )
        options.fail("close_idle_invalid", name, message)
    return float(seconds)


def _frame_by(options: OptionReader, name: str, declared: Input, schema: Schema) -> FrameBy | None:
    given = declared.frame_by
    if given is None:
        return None
    if isinstance(given, FrameBy):
        code = fingerprint(given.function)
        return replace(given, code=code + Code.of({"memo": "yes"}) if given.memo else code)
    if not isinstance(cast(object, given), str) or given not in schema:
        has = ", ".join(schema.names)
        message = f"{given!r} is not a column; name one of {has}, or use framed(function)"
        options.fail("frame_by_invalid", name, message)
    if schema[given].type.kind not in _FRAMING_KINDS:
        message = (
            f"column {given!r} is {schema[given].type}, which cannot be a framing key; use "
            "framed(function)"
        )
        options.fail("frame_by_invalid", name, message)
    return FrameBy(attrgetter(given), column=given, place=options.place)


def _combine(
    options: OptionReader, name: str, declared: Input | Loopback, schema: Schema
) -> CombineSpec | None:
    if declared.combine is None:
        return None
    combine, route = declared.combine, declared.route_by
    key = options.columns(name, "route_by", route, schema)
    if problem := _combine_problem(combine, route, declared.order_by):
        options.fail("combine_invalid", name, problem)
    if callable(combine):
        return CombineSpec(combine, place_of(combine))
    if problem := _merge_problem(schema, combine, key if isinstance(key, tuple) else ()):
        options.fail("combine_invalid", name, f"combine={combine!r}: {problem}")
    return CombineSpec(None, options.place, tuple(combine.items()))


def _combine_problem(combine: object, route: object, order_by: object) -> str:
    """Return why the records of an input cannot be combined; empty if they can."""
    if not callable(combine) and not isinstance(combine, Mapping):
        return (
            "combine takes a function from records to records, or a dict of columns, such as "
            "{'n': 'sum'}"
        )
    if route is None or (isinstance(route, Computed) and route.many):
        return "a combined record must belong to one group: route by columns or by(...)"
    if isinstance(route, Computed) and route.sql:
        return (
            "combine runs in Python, which cannot evaluate by_sql(...): route by columns or by(...)"
        )
    if order_by is not None:
        return "an input with order_by cannot be combined; remove order_by or combine"
    if not callable(combine) and not isinstance(route, str):
        return (
            "to combine by columns, route_by must name columns, too: change route_by, or give "
            "combine a function"
        )
    return ""


def _merge_problem(schema: Schema, columns: Mapping[str, str], key: Sequence[str]) -> str:
    """Return why records cannot be merged by these columns; empty if they can."""
    if not columns:
        return "no column is named; name each column and how to merge it, as in {'n': 'sum'}"
    for name, how in columns.items():
        if name not in schema:
            return f"there is no column {name!r}; use {', '.join(schema.names)}"
        if how not in ("sum", "min", "max"):
            return f"{name!r} cannot be merged by {how!r}; use 'sum', 'min' or 'max'"
        if name in key:
            return f"{name!r} is part of the key, which merged records have in common; leave it out"
        kind = schema[name].type.kind
        if how == "sum" and kind in _FLOATS:
            return (
                f"a sum of {kind} values depends on their order; use whole numbers (BIGINT), such "
                "as millionths, or compute the sum in translate with math.fsum"
            )
        if kind not in (_SUMMED if how == "sum" else _ORDERED):
            return f"{name!r} is {schema[name].type}, which has no {how!r}; give combine a function"
    nested = next((one for one in schema.fields if one.type.arguments), None)
    if nested is not None:
        return (
            f"{nested.name!r} is {nested.type}, and records with such a column cannot be merged by "
            "columns; give combine a function"
        )
    return ""


def _order(
    options: OptionReader, name: str, value: str | Computed | None, schema: Schema
) -> tuple[str, ...] | Computed | None:
    if isinstance(value, Computed) and value.many:
        options.fail("order_by_invalid", name, "order_by cannot be a route(...); use by(...)")
    return options.columns(name, "order_by", value, schema)
