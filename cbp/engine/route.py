"""From records as they lie in files to the slots of the shuffle: keys and order.

Keys and orders that are plain columns are taken by whoever reads the file (Spark's JVM,
or Arrow in the local engine). What the author computes is computed here, in Python,
once per record, before the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cbp.engine.arrow import arrow_type
from cbp.engine.call import author_error
from cbp.engine.layout import FlowLayout, ShuffleLayout
from cbp.engine.rows import Row, decode_columns, row_type
from cbp.engine.values import typed
from cbp.model.schema import DataType
from cbp.model.stage import Computed, InputSpec, TranslatorSpec

__all__ = ["computes", "slot_columns", "sql_column", "sql_columns"]

_WINDOW_ROWS = 16_384


def computes(input_: InputSpec) -> bool:
    """Whether a key or an order of this input is the author's function, not SQL."""
    return any(not by.sql for by in input_.computed)


def sql_columns(input_: InputSpec) -> dict[str, str]:
    """Return the columns that Spark computes of an input, with their expressions.

    They are named by the position of the value: the key's first, then the order's.
    """
    first, found = 0, {}
    for by in input_.computed:
        found.update({sql_column(first + at): text for at, text in enumerate(by.sql)})
        first += len(by.types)
    return found


def sql_column(position: int) -> str:
    """Return the name of the column that holds a value computed by Spark."""
    return f"_sql{position}"


def slot_columns(
    table: pa.Table, spec: TranslatorSpec, layout: ShuffleLayout, flow: int, *, stage: str
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return every slot that this flow fills, computed ones included.

    What Spark has computed is in the table (`sql_columns`); where no Spark has been, the
    author's function is called for it.

    Raises:
        AuthorCodeError: The author's function raised, or gave what its type does not fit.
    """
    input_, place = spec.inputs[flow], layout.flows[flow]
    types = dict(layout.slots)
    computed = _computed(table, spec, input_, stage)
    columns: dict[str, Any] = {}
    for slot, source in place.sources().items():
        if isinstance(source, str):
            columns[slot] = table.column(source)
        elif source in computed:
            columns[slot] = _array(computed[source], types[slot], spec, input_, stage, place)
        else:
            columns[slot] = table.column(sql_column(source))
    return columns


def _computed(
    table: pa.Table, spec: TranslatorSpec, input_: InputSpec, stage: str
) -> dict[int, list[Any]]:
    """Return the values that are to be computed here, by their positions."""
    functions: list[Computed] = []
    values: dict[int, list[Any]] = {}
    first = 0
    for by in input_.computed:
        if sql_column(first) not in table.column_names:
            functions.append(by)
            values.update({first + at: [] for at in range(len(by.types))})
        first += len(by.types)
    if not functions:
        return values
    make = row_type(input_.name, input_.schema.names)._make
    types = [f.type for f in input_.schema.fields]
    for start in range(0, table.num_rows, _WINDOW_ROWS):
        part = table.slice(start, _WINDOW_ROWS)
        for row in map(make, decode_columns(part, input_.schema.names, types)):
            found = _call(functions, row, spec, input_, stage)
            for into, value in zip(values.values(), found, strict=True):
                into.append(value)
    return values


def _call(
    functions: Iterable[Computed], row: Row, spec: TranslatorSpec, input_: InputSpec, stage: str
) -> Iterator[Any]:
    for function in functions:
        try:
            value = function.function(row)
            if len(function.types) == 1:
                yield value
            else:
                if len(value) != len(function.types):
                    message = f"gave {len(value)} values, {len(function.types)} are declared"
                    raise ValueError(message)
                yield from value
        except Exception as exc:
            raise _failure(exc, spec, input_, stage, function, row) from exc


def _array(
    values: list[Any],
    type_: DataType,
    spec: TranslatorSpec,
    input_: InputSpec,
    stage: str,
    place: FlowLayout,
) -> pa.Array:
    try:
        return pa.array([typed(value, type_) for value in values], arrow_type(type_))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
        function = next(f for f in (input_.route_by, input_.order_by) if isinstance(f, Computed))
        message = TypeError(f"a key of input {place.name!r} is declared {type_}: {exc}")
        raise _failure(message, spec, input_, stage, function, None) from exc


def _failure(
    exc: Exception,
    spec: TranslatorSpec,
    input_: InputSpec,
    stage: str,
    function: Computed,
    row: Row | None,
) -> Exception:
    inputs = {input_.name: [row]} if row is not None else None
    named = "route_by" if function is input_.route_by else "order_by"
    error = author_error(exc, spec, stage=stage, inputs=inputs, function=f"{input_.name}.{named}")
    return error
