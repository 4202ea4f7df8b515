"""What a translator declares: inputs, outputs, state, and where their records go.

    urls   = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

Values only: `cbp.sdk.compile` checks them together and turns them into a `TranslatorSpec`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cbp.errors import DefinitionError, Mistake
from cbp.model.framing import FrameBy
from cbp.model.schema import Schema
from cbp.model.stage import Computed, Grouping
from cbp.sdk.fingerprint import ONE_PARSES

__all__ = [
    "Input",
    "Loopback",
    "Output",
    "State",
    "by",
    "by_sql",
    "framed",
    "place_of",
    "route",
]


def place_of(function: Callable[..., Any] | type) -> str:
    """Return `file.py:12`, where a function or class is defined; `""` if unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        with ONE_PARSES:
            return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return ""


def route(function: Callable[[Any], Any], type_: str) -> Computed:
    """Send a record to any groups: several keys, `ALL`, multicast addresses, or none.

        Input("src BIGINT, dst BIGINT", route_by=route(lambda e: [e.src, e.dst], "BIGINT"))
        Input("total DOUBLE", route_by=route(lambda r: All("ranks"), "BIGINT"))
        Loopback("src BIGINT, n INT", route_by=route(lambda m: Multicast(m.src), "BIGINT"))

    Args:
        function: `record -> destination`, or a list or set of destinations. A destination
            is a key (a tuple when `type_` names several), `ALL`, `All("flow", ...)`, or, on
            a `Loopback`, `Multicast(address)`; see `cbp.model.routing`.
        type_: Types of the key, such as `"STRING"` or `"STRING, BIGINT"`.
    """
    return replace(by(function, type_), many=True)


def by(function: Callable[[Any], Any], type_: str) -> Computed:
    """Compute a routing or ordering key from a record.

    Args:
        function: `record -> value`; a tuple of values when `type_` names several.
        type_: Types of the key, such as `"STRING"` or `"STRING, BIGINT"`.
    """
    parts = Schema.parse(
        ", ".join(f"k{i} {t}" for i, t in enumerate(_split_types(type_))), where=type_
    )
    return Computed(function, tuple(f.type for f in parts.fields), place_of(function))


def framed(function: Callable[..., Any], *, memo: bool = False) -> FrameBy:
    """Cut a flow into the increments of one input, by a key of each record.

        Input("url STRING, at TIMESTAMP", frame_by=framed(lambda r: f"{r.at:%Y-%m-%d %H}"))
        Input("n BIGINT", frame_by=framed(lambda r, total: ..., memo=True))

    Args:
        function: `record -> key`: the records of each output increment are grouped by key.
            With memo, `(record, memo) -> (key, memo)`: one pass in order, `A A B A` are three
            increments. A key is a number, a text, a date or a time.
        memo: Whether it remembers; JSON values, `None` at first.
    """
    return FrameBy(function, memo, "", place_of(function))


def by_sql(
    expression: str | Sequence[str],
    type_: str,
    *,
    function: Callable[[Any], Any] | None = None,
) -> Computed:
    """Compute a routing or ordering key by an expression of Spark SQL, without Python.

        Input("url STRING", route_by=by_sql("parse_url(url, 'HOST')", "STRING"))

    Such an input always takes Spark's way, however small it is, since no other evaluates
    the expression to the same value. So it pays where increments are large.

    Args:
        expression: Over the columns of one record, deterministic; several for a key of
            several columns.
        type_: Types of the key, which the expressions have to have.
        function: `record -> value`, the very same value, for engines without Spark: the
            test kit, and `local`. Without it the dataflow runs on Spark only.
    """
    texts = (expression,) if isinstance(expression, str) else tuple(expression)
    frame = sys._getframe(1)
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def needs_spark(record: Any) -> Any:
        message = f"Spark alone evaluates {texts}; give by_sql a function= to run without it"
        raise NotImplementedError(message)

    types = by(needs_spark, type_).types
    if len(types) != len(texts):
        message = f"{len(texts)} expressions for {len(types)} types; give one for each"
        raise DefinitionError(Mistake("by_sql_types", type_, message, place))
    return Computed(function or needs_spark, types, place, sql=texts)


def _split_types(text: str) -> list[str]:
    """Split at commas outside of `<...>` and `(...)`."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


@dataclass(frozen=True)
class Input:
    """An input flow.

    Args:
        schema: DDL, such as `"url STRING, n BIGINT"`; a wired flow may have more columns.
        route_by: Column or comma-separated columns of the group's key, `by(...)`, or
            `route(...)` for several groups. The key's types must be the same on every input
            of one translator that has it. Default: every record is a group of its own.
        order_by: Columns, or `by(...)`, that order the records of a group.
        frame_by: Column, or `framed(...)`, whose value labels the input's increments; an
            increment is read once a record with another value, or a close, is behind it.
            Default: what one epoch of the writer wrote is one increment, read at once.
        close_idle_seconds: With `frame_by`: close the open increment once no record has come
            for so long; 0: never. A dataflow may say otherwise.
        combine: `records -> records`, run on some records of one group, a list, before they
            are shuffled, to shuffle fewer. The law: whatever records of a group it is given,
            replacing them by its result must not change what `translate` does; as adding up
            does for a sum. It runs on large increments only, so nothing may depend on it,
            and gives at least one record, of the same columns and key. Not with `order_by`.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None
    frame_by: str | FrameBy | None = None
    combine: Callable[[list[Any]], Iterable[Any]] | None = None
    close_idle_seconds: float = 0.0


@dataclass(frozen=True)
class Loopback:
    """Messages that groups of a stage send to groups of the same stage.

    What `out.<name>(...)` emits in one epoch comes back as `group.<name>` in a later one (the
    next, unless the stage's Runnable prefers other inputs) and calls the groups that it
    reaches. It wires itself. On a loopback with `route(...)`, `out.associate(key, address)`
    binds a key to the address of a `Multicast` for the messages of the same epoch.

    Args:
        schema: DDL of a message.
        route_by: Who gets it; as of an `Input`.
        order_by: As of an `Input`.
    """

    schema: str
    route_by: str | Computed | None = None
    order_by: str | Computed | None = None


@dataclass(frozen=True)
class Output:
    """An output flow.

    Args:
        schema: DDL of its records.
        key: Columns whose last value counts (an updated view); default: every record counts.
        history: The sequence of epochs is the result; compared epoch by epoch.
        tolerance: When two runs are compared (`cbp verify`, `cbp.testing`), numbers of FLOAT and
            DOUBLE columns may differ by this part of the larger one, and by this much where
            they are smaller than 1; for what is computed until it changes little. 0: exactly.
        not_compared: Columns that are left out then, such as a counter of rounds.
    """

    schema: str
    key: str | None = None
    history: bool = False
    tolerance: float = 0.0
    not_compared: str | None = None


@dataclass(frozen=True)
class State:
    """Records that are kept between epochs, grouped by the key.

    The records of a *called* group are kept only if `translate` emits them again;
    groups that are not called keep theirs. Writes are visible in the next epoch. A record
    of another key is appended to that key's, and does not call it.

        ranks = State("page BIGINT, rank DOUBLE", route_by="page", order_by="rank")

    Args:
        schema: DDL; holds the columns of the stage's key.
        grouping: `"inner"`: only groups that some input carries; `"outer"`: every key in state.
        tolerance: As of an `Output`; the key is compared exactly.
        not_compared: As of an `Output`.
        route_by: Column or comma-separated columns that hold the key, in its order and of its
            types. They say whose a record is, and by them it is looked up and corrected.
            Default: the columns that are named like the key's.
        order_by: Column or comma-separated columns by which the records of a group come, nulls
            first; those that agree in them come by all columns. Default: by all columns, in
            the order of the schema. Not in SQL.
    """

    schema: str
    grouping: Grouping = "inner"
    tolerance: float = 0.0
    not_compared: str | None = None
    route_by: str | None = None
    order_by: str | None = None
