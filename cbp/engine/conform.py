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

    Raises:
        ArrowInvalid: If a value does not fit: the schema did not grow, it changed.
    """
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        at = table.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            column = table.column(at)
            columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.table(columns, schema=schema)
