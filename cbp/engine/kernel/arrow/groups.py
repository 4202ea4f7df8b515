"""The values of the vectorised interface: the groups given to a translator, and its outputs.

    groups.keys                 one row per group
    groups.urls                 the records of all groups, group after group
    groups.offsets("urls")      [0, 2, 2, 5]: group 0 has rows 0 and 1, group 1 none

The reference engine builds them in its own way (`cbp.engine.reference.arrow`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, arrow_type
from cbp.engine.columnar.groups import span_rows
from cbp.engine.columnar.row_codes import row_codes
from cbp.model.dataflow.call_rules import nothing_is_kept
from cbp.model.dataflow.run_context import RunContext, hidden
from cbp.model.dataflow.stage import TranslatorSpec
from cbp.model.flow.schema import Schema

_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_INT64_END = float(1 << 63)
_SHOWN_ROWS = 3

_FEW = 4_096
"""Up to this many whole numbers are searched, not encoded: encoding takes Arrow 50 us to begin."""


@lru_cache(maxsize=1024)
def author_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which an author sees a flow.

    Strings and bytes are wide, so that a table of any size is one chunk. Fields inside
    nested types keep the types of the files.
    """
    types = [arrow_type(field.type) for field in schema.fields]
    return pa.schema(
        [(f.name, _WIDE.get(type_, type_)) for f, type_ in zip(schema.fields, types, strict=True)]
    )


@lru_cache(maxsize=1024)
def no_records(schema: Schema) -> pa.Table:
    """Return no records, as an author sees them."""
    return author_schema(schema).empty_table()


class Groups:
    """Some complete groups; see `cbp.sdk.forms.TranslateArrow`.

    `flows` has the records and offsets of inputs, states and looked-up tables; there is one offset
    more than groups. `whole_tables` has the kept states, and the tables whose records all go to
    every group.
    """

    keys: pa.Table
    _flows: Mapping[str, tuple[pa.Table, Int64s]]

    def __init__(
        self,
        keys: pa.Table,
        flows: Mapping[str, tuple[pa.Table, Int64s]],
        whole_tables: Mapping[str, pa.Table] = MappingProxyType({}),
    ) -> None:
        for _, offsets in flows.values():
            offsets.flags.writeable = False  # the engine reads them again after the call
        tables = {name: table for name, (table, _) in flows.items()}
        self.__dict__.update(keys=keys, _flows=flows, **tables, **whole_tables)

    def of_run(self, context: RunContext, spec: TranslatorSpec) -> Groups:
        """Return the same groups with aggregates, and with `groups.run` if the code reads it."""
        run = {"run": context} if spec.gives_run else {}
        return Groups.with_kept(self, {**run, **context.aggregates})

    def with_kept(self, kept: Mapping[str, Any]) -> Groups:
        """Return the same groups with an attribute for each kept state, by name."""
        groups = Groups.__new__(Groups)
        groups.__dict__.update(self.__dict__, **kept)
        return groups

    def only(self, numbers: Int64s, *, hidden: Collection[str]) -> Groups:
        """Return some of the groups, without some of their flows."""
        some = {n: Groups.part(self, n, numbers) for n in self._flows if n not in hidden}
        whole_tables = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("keys", "_flows", *self._flows)
        }
        every = len(numbers) == len(self)
        return Groups(self.keys if every else self.keys.take(pa.array(numbers)), some, whole_tables)

    def without_records(self, flows: Collection[str]) -> Groups:
        """Return the same groups with these flows empty."""
        given = dict(self._flows)
        for name in flows:
            table, offsets = given[name]
            given[name] = table.slice(0, 0), np.zeros_like(offsets)
        return Groups(self.keys, given)

    def part(self, flow: str, numbers: Int64s) -> tuple[pa.Table, Int64s]:
        """Return the records of some groups (ascending) in a flow, and where each group begins."""
        table, offsets = self._flows[flow]
        if len(numbers) == len(self):
            return table, offsets
        starts = offsets[numbers]
        sizes = offsets[numbers + 1] - starts
        rows = pa.array(span_rows(starts, sizes))
        return table.take(rows), np.append(np.int64(0), np.cumsum(sizes))

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse the assignment: the engine compares these values with the emissions."""
        message = f"groups.{name} cannot be assigned; keep the value in a variable"
        raise AttributeError(message)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "run":
            raise hidden()
        message = f"there is no input {name!r}; use one of {', '.join(self.__dict__['_flows'])}"
        raise AttributeError(message)

    def offsets(self, flow: str) -> Int64s:
        """Return where the records of each group begin in the table; the last entry is its end."""
        return self._flow(flow)[1]

    def sizes(self, flow: str) -> Int64s:
        """Return the number of records of each group."""
        return np.diff(self._flow(flow)[1])

    def ids(self, flow: str) -> Int64s:
        """Return the group of each record, ascending."""
        # Not by `sizes`: a flow of a translator in SQL can have the name of a method.
        return np.repeat(np.arange(len(self)), np.diff(self._flow(flow)[1]))

    def sums(self, flow: str, column: str) -> npt.NDArray[Any]:
        """Return the sum of a number column per group; null counts as 0.

        Another column is a `TypeError`; a sum of more than 64 bits an `OverflowError`.
        """
        table, offsets = self._flow(flow)
        values = table.column(column)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            message = f"groups.sums needs integers or floats, but {flow}.{column} is {values.type}"
            raise TypeError(message)
        numbers = (values.fill_null(0) if values.null_count else values).to_numpy()
        kind: Any = np.float64 if pa.types.is_floating(values.type) else np.int64
        sums = np.zeros(len(self), kind)
        full = np.flatnonzero(np.diff(offsets))
        if len(full):
            sums[full] = np.add.reduceat(numbers.astype(kind, copy=False), offsets[full])
            if kind is np.int64:
                _require_64_bits(numbers, offsets[full], f"{flow}.{column}")
        return sums

    def _flow(self, name: str) -> tuple[pa.Table, Int64s]:
        if name not in self._flows:
            self.__getattr__(name)
        return self._flows[name]


def _require_64_bits(numbers: npt.NDArray[Any], starts: Int64s, name: str) -> None:
    """Raise if an integer sum overflows: NumPy wraps silently, so a float sum is compared."""
    rough = np.add.reduceat(numbers.astype(np.float64), starts)
    if np.abs(rough).max() >= _INT64_END:
        message = f"a sum of {name} does not fit into 64 bits"
        raise OverflowError(message)


class Outputs:
    """The functions of `out`, by name; an unknown name raises an error that lists them."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.__dict__.update(functions)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse the assignment: only some of the later calls would see the value."""
        raise nothing_is_kept(name)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no output {name!r}; use one of {', '.join(self.__dict__)}"
        raise AttributeError(message)


def group_numbers(keys: pa.Table, wanted: pa.Table) -> Int64s:
    """Return the group of each wanted key, as its row in `keys`; -1 for a missing key."""
    wanted = wanted.rename_columns(keys.column_names)
    if wanted.num_rows == keys.num_rows and wanted.equals(keys):
        return np.arange(wanted.num_rows)
    if keys.num_columns == 1 and wanted.num_rows <= _FEW and 0 < keys.num_rows <= _FEW:
        (left,), (right,) = keys.columns, wanted.columns
        if pa.types.is_integer(left.type) and not left.null_count and not right.null_count:
            return _few_numbers(left.to_numpy(), right.to_numpy())
    own, other = row_codes([keys, wanted])
    numbers = np.full(max(int(own.max(initial=-1)), int(other.max(initial=-1))) + 1, -1)
    numbers[own] = np.arange(len(own))
    return numbers[other]


def _few_numbers(keys: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Int64s:
    """Return the place of each wanted number among some numbers; -1 for a missing one."""
    order = np.argsort(keys)
    ranked = keys[order]
    at = np.minimum(ranked.searchsorted(wanted), len(ranked) - 1)
    numbers: Int64s = np.where(ranked[at] == wanted, order[at], -1)
    return numbers


def as_table(value: Any) -> pa.Table:
    """Return a table that an author passed, of any library with Arrow's interface."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, Mapping):
        return pa.table(dict(value))
    if type(value).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__"):  # Polars, and any library with Arrow's interface
        return pa.table(value)
    message = (
        "expected a table of pyarrow, pandas or Polars, a record batch, or a dict of columns, "
        f"got {type(value).__name__}"
    )
    raise TypeError(message)


def row_at(table: pa.Table, at: int) -> tuple[object, ...]:
    """Return one row of a table, for an error."""
    return tuple(table.slice(at, 1).to_pylist()[0].values())


def first_rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the first rows of a table, for an error that shows the input."""
    return [tuple(row.values()) for row in table.slice(0, _SHOWN_ROWS).to_pylist()]
