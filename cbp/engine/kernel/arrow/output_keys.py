"""Keys of records that groups emit to keyed outputs: checked on whole columns.

An epoch has at most one record of each key of an output of which the last record counts
(`OutputSpec.single`). The output's key holds the stage's key, and a group is called once in an
epoch. So it is enough that a group emits only its own key, and no key twice.

Guaranteed: exact within one `take`. Not guaranteed: if a group is too large for a window, its keys
are compared with those of earlier parts by hash. The oracle's counterpart, record by record, is
`cbp/engine/reference/views.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.key_hash import hash_columns
from cbp.engine.columnar.row_codes import first_twice
from cbp.engine.kernel.arrow.groups import author_schema, group_numbers
from cbp.model.dataflow.call_rules import refuse_output_foreign, refuse_output_twice
from cbp.model.dataflow.stage import OutputSpec, TranslatorSpec


class OutputKeys:
    """Checks emitted records of some groups; `begin` comes before each set of groups."""

    def __init__(self, spec: TranslatorSpec) -> None:
        self._spec = spec
        self._outputs = {one.name: one for one in spec.outputs if one.single and not one.view}
        self._groups = pa.table({})
        self._seen: dict[str, pa.Table | Int64s] = {}

    def begin(self, groups: pa.Table) -> None:
        """Begin with other groups."""
        self._groups, self._seen = groups, {}

    def take(self, output: str, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        """Check records that the groups emitted.

        Raises:
            AuthorMisuse: A key belongs to none of these groups, or was emitted before.
        """
        spec = self._outputs.get(output)
        if spec is None or not len(columns[0]):
            return
        assert self._spec.key is not None, "only groups emit to such an output"
        schema = author_schema(spec.schema.select(spec.key))
        at = [spec.schema.index(name) for name in spec.key]
        keys = pa.Table.from_arrays([columns[place] for place in at], names=schema.names)
        keys = keys.cast(pa.schema([field.with_nullable(True) for field in schema]))
        own = keys.select(list(self._spec.key.names))
        groups = self._groups.rename_columns(own.column_names).cast(own.schema)
        numbers = group_numbers(groups, own)
        foreign = np.flatnonzero(numbers < 0)
        if len(foreign):
            refuse_output_foreign(output, _row(own, int(foreign[0])))
        rest = [name for name in spec.key if name not in self._spec.key]
        again = None
        if not np.all(numbers[1:] > numbers[:-1]):
            again = first_twice(keys.select(rest), numbers)
        if again is None:
            again = self._came_before(spec, keys)
        if again is not None:
            refuse_output_twice(output, _row(keys, again))

    def _came_before(self, spec: OutputSpec, keys: pa.Table) -> int | None:
        """Return a row whose key also occurs in an earlier part, found by its hash."""
        types = [spec.schema[name].type for name in spec.key]
        if not all(type_.can_be_key for type_ in types):
            return None
        before = self._seen.get(spec.name)
        if before is None:  # most groups have only one part, whose hashes nobody needs
            self._seen[spec.name] = keys
            return None
        hashes = hash_columns(keys.columns, types)
        if isinstance(before, pa.Table):
            before = hash_columns(before.columns, types)
        self._seen[spec.name] = np.concatenate([before, hashes])
        known = np.flatnonzero(np.isin(hashes, before))
        return int(known[0]) if len(known) else None


def _row(table: pa.Table, at: int) -> tuple[object, ...]:
    return tuple(table.slice(at, 1).to_pylist()[0].values())
