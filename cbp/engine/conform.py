"""Records written before their schema grew, as the schema has them now.

A column that was added later is null; a narrower type is widened (`cbp.model.evolution`
says which). Files of an output increment never change, and may wait in a queue while their
flow's schema evolves: whoever reads them conforms them. State is rewritten instead, so no
look-up ever meets two schemas.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["conform"]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of `schema`, in its order; costs nothing where they are there.

    Only numbers are cast: strings and nested values stay as their file has them, wide or not.

    Raises:
        ArrowInvalid: If a value does not fit: the schema did not grow, it changed.
    """
    columns = []
    for field in schema:
        at = table.schema.get_field_index(field.name)
        column = pa.nulls(table.num_rows, field.type) if at < 0 else table.column(at)
        columns.append(column.cast(field.type) if _narrow(column.type, field.type) else column)
    return pa.table(columns, names=schema.names)


def _narrow(found: pa.DataType, wanted: pa.DataType) -> bool:
    return found != wanted and any(
        of(wanted) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    )
