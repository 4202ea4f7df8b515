"""What a vectorised translator is given, and what it may emit; the values of its interface.

    groups.keys                 one row per group
    groups.urls                 the records of all groups, one group behind the other
    groups.offsets("urls")      [0, 2, 2, 5]: group 0 has rows 0 and 1, group 1 none

Both engines hand out these values, and each makes them in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.arrow import arrow_type
from cbp.model.schema import Schema

__all__ = ["Groups", "Outputs", "as_table", "author_schema"]

Int64s = npt.NDArray[np.int64]

_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_INT64_END = float(1 << 63)


def author_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema in which an author sees a flow.

    Texts and bytes are wide, so that a table of any size is one chunk; fields inside of
    nested types are as they lie in files.
    """
    types = [arrow_type(field.type) for field in schema.fields]
    return pa.schema(
        [(f.name, _WIDE.get(type_, type_)) for f, type_ in zip(schema.fields, types, strict=True)]
    )


class Groups:
    """Some whole groups; see `cbp.sdk.forms.TranslateArrow`.

    Args:
        keys: A row per group.
        flows: Input or state to its records and their offsets, one more than groups.
    """

    def __init__(self, keys: pa.Table, flows: Mapping[str, tuple[pa.Table, Int64s]]) -> None:
        self.keys = keys
        self._flows = flows
        for name, (table, _) in flows.items():
            setattr(self, name, table)

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no input {name!r}; there is {', '.join(self.__dict__['_flows'])}"
        raise AttributeError(message)

    def offsets(self, flow: str) -> Int64s:
        """Return where each group's records begin; the last entry is where all end."""
        return self._flow(flow)[1]

    def sizes(self, flow: str) -> Int64s:
        """Return how many records each group has."""
        return np.diff(self.offsets(flow))

    def ids(self, flow: str) -> Int64s:
        """Return the group of each record, ascending."""
        return np.repeat(np.arange(len(self)), self.sizes(flow))

    def sums(self, flow: str, column: str) -> npt.NDArray[Any]:
        """Return the sum of a number column per group; null counts as 0.

        Raises:
            TypeError: The column holds no numbers that NumPy knows.
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
    """NumPy's integers overflow without a word; the sums of floats tell."""
    rough = np.add.reduceat(numbers.astype(np.float64), starts)
    if np.abs(rough).max() >= _INT64_END:
        message = f"a sum of {name} has more than 64 bits"
        raise OverflowError(message)


class Outputs:
    """The functions of `out`, by name; asking for another says which there are."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> NoReturn:
        message = f"there is no output {name!r}; there is {', '.join(self.__dict__)}"
        raise AttributeError(message)


def as_table(value: Any) -> pa.Table:
    """Return what an author emitted as an Arrow table.

    Raises:
        TypeError: It is no table.
    """
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    if isinstance(value, Mapping):
        return pa.table(dict(value))
    if type(value).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    if hasattr(value, "__arrow_c_stream__"):  # Polars, and whoever else speaks Arrow
        return pa.table(value)
    message = (
        "emit a table of pyarrow, pandas or Polars, a record batch, or a dict of columns; "
        f"got {type(value).__name__}"
    )
    raise TypeError(message)
