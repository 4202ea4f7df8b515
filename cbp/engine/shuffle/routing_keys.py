"""Computes the keys and orders of records, and puts them into the slots of the shuffle.

The reader of the file (Spark's JVM, or Arrow in the local engine) reads keys and orders that are
plain columns. Values that the author's functions compute are computed here, in
Python, once per record, before the shuffle. Records with several destinations have copies:
see `cbp.engine.shuffle.several_destinations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.engine.columnar.author_errors import author_error
from cbp.engine.columnar.row_codec import decode_table, encode_column, rows_maker
from cbp.engine.columnar.values import Row, typed_key
from cbp.engine.shuffle.layout import FlowRoute
from cbp.errors import AuthorCodeError, is_authors
from cbp.model.dataflow.call_rules import Watches
from cbp.model.dataflow.routing import KeyMismatch, one_key
from cbp.model.dataflow.stage import Computed, InputSpec, TranslatorSpec
from cbp.model.flow.schema import DataType

Column: TypeAlias = pa.Array | pa.ChunkedArray

_WINDOW_ROWS = 16_384


def computes(input_: InputSpec) -> bool:
    """Return whether an author's function, not SQL, computes a key or an order of this input."""
    return any(not by.sql for by in input_.computed)


def sql_columns(input_: InputSpec) -> dict[str, str]:
    """Return the expressions of columns that Spark computes: first the key, then the order."""
    first, expressions = 0, {}
    for by in input_.computed:
        expressions.update({sql_column(first + at): text for at, text in enumerate(by.sql)})
        first += len(by.types)
    return expressions


def sql_column(position: int) -> str:
    """Return the name of the column that holds a value computed by Spark."""
    return f"_sql{position}"


def slot_columns(table: pa.Table, route: FlowRoute) -> dict[str, Column]:
    """Return every slot that a flow fills, computed ones included.

    If Spark has not computed a value (`sql_columns`), the author's function is called for it;
    raises `AuthorCodeError` if that fails, or returns a value of another type.
    """
    computed = _computed(table, route.spec, route.input, route.stage, route.input.computed)
    return {
        slot: table.column(source) if isinstance(source, str) else computed[source]
        for slot, source in route.layout.flows[route.flow].sources().items()
    }


def key_of(table: pa.Table, spec: TranslatorSpec, input_: InputSpec, *, stage: str) -> list[Column]:
    """Return each record's key, for an input with one key per record; raises as `slot_columns`."""
    by = input_.route_by
    assert by is not None, "single records have no key"
    if isinstance(by, Computed):
        computed = _computed(table, spec, input_, stage, (by,))
        return [computed[at] for at in range(len(by.types))]
    return [table.column(name) for name in by]


def order_columns(table: pa.Table, route: FlowRoute) -> dict[str, Column]:
    """Return the slots that order the records of a flow; raises as `slot_columns`."""
    order = route.input.order_by
    by = (order,) if isinstance(order, Computed) else ()
    computed = _computed(table, route.spec, route.input, route.stage, by)
    return {
        slot: table.column(source) if isinstance(source, str) else computed[source]
        for slot, source in route.layout.flows[route.flow].order
    }


def records_of(table: pa.Table, input_: InputSpec) -> Iterator[tuple[int, list[Row]]]:
    """Yield a table's records as the author sees them, in batches, each with its first row."""
    make = rows_maker(input_.name, input_.schema.names)
    for start in range(0, table.num_rows, _WINDOW_ROWS):
        yield start, make(decode_table(table.slice(start, _WINDOW_ROWS), input_.schema))


def _computed(
    table: pa.Table, spec: TranslatorSpec, input_: InputSpec, stage: str, wanted: Sequence[Computed]
) -> dict[int, Column]:
    """Return the values of some functions, by their positions among all computed values."""
    first = 0
    columns: dict[int, Column] = {}
    for by in input_.computed:
        here = range(first, first + len(by.types))
        first += len(by.types)
        if by not in wanted:
            continue
        names = [sql_column(at) for at in here]
        if by.sql and names[0] in table.column_names:
            key_columns: Sequence[Column] = [table.column(name) for name in names]
        else:
            key_columns = _called(table, spec, input_, stage, by)
        columns.update(zip(here, key_columns, strict=True))
    return columns


def _called(
    table: pa.Table, spec: TranslatorSpec, input_: InputSpec, stage: str, by: Computed
) -> list[pa.ChunkedArray]:
    windows = []
    watches = Watches(spec, stage=stage)
    function = watches.fresh(by.function, option_of(input_, by), by.place)
    for start, rows in records_of(table, input_):
        keys: list[Row] = []
        try:
            for row in rows:
                keys.append(_called_once(function, by, row))
            windows.append(key_columns(keys, by.types))
        except BaseException as exc:
            if not is_authors(exc):
                raise
            at, cause = _first_wrong(keys, by, exc)
            at = min(at, len(rows) - 1)
            error = record_error(cause, spec, input_, stage, by, rows[at])
            if isinstance(error, AuthorCodeError) and "_seq" in table.column_names:
                error.places = {input_.name: table.column("_seq")[start + at].as_py()}
            raise error from exc
    watches.check()
    columns = zip(*windows, strict=True) if windows else ((),) * len(by.types)
    return [
        pa.chunked_array(list(parts), arrow_type(type_))
        for parts, type_ in zip(columns, by.types, strict=True)
    ]


def _called_once(function: Callable[[Any], Any], by: Computed, row: Row) -> Row:
    given = one_key(function(row))
    if len(by.types) == 1:
        return (given,)
    if len(given) != len(by.types):
        message = f"returned {len(given)} values, expected one for each of {len(by.types)} types"
        raise KeyMismatch(message)
    return tuple(given)


def _first_wrong(
    keys: Sequence[Row], by: Computed, exc: BaseException
) -> tuple[int, BaseException]:
    """Return the first record with an invalid key, and why; if there is none, (length, `exc`)."""
    for at, key in enumerate(keys):
        try:
            typed_key(key[0] if len(key) == 1 else key, by.types)
        except TypeError as wrong:
            return at, wrong
    return len(keys), exc


def key_columns(keys: Sequence[Row], types: Sequence[DataType]) -> list[pa.Array]:
    """Return keys, or `order_by` values, as columns."""
    columns = zip(*keys, strict=True) if keys else ((),) * len(types)
    return list(map(encode_column, columns, types))


def record_error(
    exc: BaseException, spec: TranslatorSpec, input_: InputSpec, stage: str, by: Computed, row: Row
) -> Exception:
    """Return the error for an exception, or a wrong result, of an input's function."""
    return author_error(
        exc,
        replace(spec, place=by.place or spec.place),
        stage=stage,
        inputs={input_.name: [row]},
        function=option_of(input_, by),
    )


def option_of(input_: InputSpec, by: Computed) -> str:
    """Return the name of an input's function, such as `urls.route_by`."""
    return f"{input_.name}.{'route_by' if by is input_.route_by else 'order_by'}"
