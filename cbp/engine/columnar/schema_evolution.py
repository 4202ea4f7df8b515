"""Schema evolution at reading: older records are brought to the current schema.

A column that was added later is filled with null; a narrower type is widened
(`cbp.model.flow.schema_evolution` lists the allowed ones). Files of an output increment never
change, and may wait in a queue while their flow's schema evolves. Their readers therefore conform
them. State is rewritten instead, so no look-up ever meets two schemas.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["conform"]


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of `schema`, in its order; free if the table has them already.

    Only numbers are cast: strings and nested values keep the file's type, wide or not.

    Raises:
        ArrowInvalid: A value does not fit: the schema was not extended but changed.
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
