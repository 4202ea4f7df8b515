"""The values of the vectorised interface: the groups given to a translator, and its outputs.

    groups.keys                 one row per group
    groups.urls                 the records of all groups, group after group
    groups.offsets("urls")      [0, 2, 2, 5]: group 0 has rows 0 and 1, group 1 none

Both engines pass these values to authors; each engine builds them in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_type
from cbp.model.dataflow.call_rules import nothing_is_kept
from cbp.model.flow.schema import Schema

__all__ = ["Groups", "Outputs", "as_table", "author_schema"]

Int64s = npt.NDArray[np.int64]

_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_INT64_END = float(1 << 63)


def author_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which an author sees a flow.

    Strings and bytes are wide, so that a table of any size is one chunk. Fields inside
    nested types keep the types of the files.
    """
    types = [arrow_type(field.type) for field in schema.fields]
    return pa.schema(
        [(f.name, _WIDE.get(type_, type_)) for f, type_ in zip(schema.fields, types, strict=True)]
    )


class Groups:
    """Some complete groups; see `cbp.sdk.forms.TranslateArrow`.

    Args:
        keys: The keys, one row per group.
        flows: Input or state to its records and offsets; there is one offset more than groups.
    """

    keys: pa.Table
    _flows: Mapping[str, tuple[pa.Table, Int64s]]

    def __init__(self, keys: pa.Table, flows: Mapping[str, tuple[pa.Table, Int64s]]) -> None:
        for _, offsets in flows.values():
            offsets.flags.writeable = False  # the engine reads them again after the call
        tables = {name: table for name, (table, _) in flows.items()}
        self.__dict__.update(keys=keys, _flows=flows, **tables)

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: the engine compares these values with what was emitted."""
        message = f"groups.{name} is given, and cannot be set; use a name of your own for it"
        raise AttributeError(message)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no input {name!r}; there is {', '.join(self.__dict__['_flows'])}"
        raise AttributeError(message)

    def offsets(self, flow: str) -> Int64s:
        """Return where each group's records begin; the last entry is the end of all."""
        return self._flow(flow)[1]

    def sizes(self, flow: str) -> Int64s:
        """Return the number of records of each group."""
        return np.diff(self.offsets(flow))

    def ids(self, flow: str) -> Int64s:
        """Return the group of each record, ascending."""
        return np.repeat(np.arange(len(self)), self.sizes(flow))

    def sums(self, flow: str, column: str) -> npt.NDArray[Any]:
        """Return the sum of a number column per group; null counts as 0.

        Raises:
            TypeError: The column is not an integer or floating point column.
            OverflowError: A sum has more than 64 bits.
        """
        table, offsets = self._flow(flow)
        values = table.column(column)
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            message = f"sums takes a column of numbers; {flow}.{column} is {values.type}"
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
    """Raise if an integer sum overflows; NumPy does not tell, so a float sum is compared."""
    rough = np.add.reduceat(numbers.astype(np.float64), starts)
    if np.abs(rough).max() >= _INT64_END:
        message = f"a sum of {name} has more than 64 bits"
        raise OverflowError(message)


class Outputs:
    """The functions of `out`, by name; an unknown name raises an error that lists them."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.__dict__.update(functions)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: calls of other groups, but not all of them, would see the value."""
        raise nothing_is_kept(name)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no output {name!r}; there is {', '.join(self.__dict__)}"
        raise AttributeError(message)


def as_table(value: Any) -> pa.Table:
    """Return what an author emitted as an Arrow table.

    Raises:
        TypeError: The value is no table.
    """
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
        "emit a table of pyarrow, pandas or Polars, a record batch, or a dict of columns; "
        f"got {type(value).__name__}"
    )
    raise TypeError(message)
