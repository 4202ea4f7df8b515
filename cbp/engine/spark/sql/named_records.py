"""Records of kept states that the records of an input name, by key and second key.

    items = View("k BIGINT, id INT, n BIGINT", keep=True, key="k, id")
    orders = Input("k BIGINT, id INT, ...", route_by="k")
    ... FROM items_of_orders        the records of `items` with the `k` and `id` of some order

They are found by the index of the state, so a query costs what its input names, and not what the
called groups have.

Guaranteed: each such record comes once, however many records of the input name it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.groups import author_schema, group_numbers
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table that queries can name.

    Attributes:
        state: The kept state whose records it has.
        input: The input that names them.
        own: Columns of the state: those of the key, then those of the second key.
        theirs: The columns of the input that they are compared with.
    """

    name: str
    state: StateSpec
    input: InputSpec
    own: tuple[str, ...]
    theirs: tuple[str, ...]


def named_tables(spec: TranslatorSpec) -> Iterator[NamedTable]:
    """Yield a table for each kept state and each input that has the columns of its second key.

    A table whose name is that of an input, a state or a look-up is left out.
    """
    taken = {one.name for one in spec.inputs}
    taken |= {one.name for one in spec.states} | {one.name for one in spec.lookups}
    for state in spec.kept:
        for input_ in spec.inputs:
            name, second = f"{state.name}_of_{input_.name}", state.second_key
            fits = all(
                column in input_.schema and input_.schema[column].type == state.schema[column].type
                for column in second
            )
            if fits and name not in taken:
                assert isinstance(input_.route_by, tuple), "routed by columns"
                own = (*spec.key_of(state).names, *second)
                yield NamedTable(name, state, input_, own, (*input_.route_by, *second))


def named_records(table: NamedTable, kept: KeptCall, records: pa.Table) -> pa.Table:
    """Return the records of a call's groups that some records of the input name.

    Args:
        table: The table.
        kept: The state of the call.
        records: Records of the input, of any groups.
    """
    many = kept.keys.num_columns
    second = author_schema(table.state.schema.select(table.state.second_key)).types
    types = [*kept.keys.schema.types, *second]
    columns = [
        records.column(name).cast(type_) for name, type_ in zip(table.theirs, types, strict=True)
    ]
    wanted = pa.table(columns, names=[str(at) for at in range(len(columns))])
    groups = group_numbers(kept.keys, wanted.select(range(many)))
    some = np.flatnonzero(groups >= 0)
    groups, wanted = groups[some], wanted.select(range(many, len(columns))).take(pa.array(some))
    (codes,) = row_codes([wanted], [groups])
    firsts = np.unique(codes, return_index=True)[1]
    return kept.take(kept.locate(groups[firsts], wanted.take(pa.array(firsts)))[1])
