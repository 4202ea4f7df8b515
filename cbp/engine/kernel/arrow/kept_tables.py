"""A kept state as a vectorised translator sees it: the records of the call's groups, by key.

    groups.orders.get({"customer": [...], "id": [...]})   -> table of the records that exist
    groups.orders.all()                                   -> table of all records, in order
    out.orders(table), out.orders.delete(keys)

`KeptTables` only checks arguments. Each engine has its own `KeptTableReader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cbp.engine.kernel.arrow.groups import as_table, row_at
from cbp.engine.kernel.arrow.type_check import conform
from cbp.errors import AuthorMisuse, StateKeyForeignError
from cbp.model.dataflow.stage import StateSpec, TranslatorSpec
from cbp.model.flow.schema import Schema


class KeptTableReader(Protocol):
    """Finds the records of the groups of a call as they were before it."""

    def get(self, keys: pa.Table) -> pa.Table:
        """Return the records with these keys, in their order; missing ones are left out."""

    def all(self) -> pa.Table:
        """Return all records, group by group, in order of the second key."""


class ReachedReader(Protocol):
    """Finds the records of any key, as they were before the run."""

    @property
    def size(self) -> int:
        """Number of records."""

    def find(self, keys: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the rows of `keys` whose record exists, ascending, and these records."""

    def all(self) -> pa.Table:
        """Return all records, in any order."""

    def of(self, keys: pa.Table) -> pa.Table:
        """Return all records with these keys of the stage, in any order."""


class KeptTables:
    """One kept state in one call: its author reads records by key, any number of times."""

    __slots__ = ("_key", "_name", "_reader")

    def __init__(self, name: str, key: Schema, reader: KeptTableReader) -> None:
        self._name, self._key, self._reader = name, key, reader

    def get(self, keys: Any) -> pa.Table:
        """Return the records with these keys, in their order; missing ones are left out.

        Raises `AuthorMisuse` for a key that no group of the call has, `TypeError` for one of
        another type.
        """
        return self._reader.get(conformed_table(f"groups.{self._name}.get", keys, self._key))

    def all(self) -> pa.Table:
        """Return all records of the groups, group by group, in order of the second key."""
        return self._reader.all()

    def __getattr__(self, name: str) -> NoReturn:
        message = (
            f"groups.{self._name} is kept state, not a table, and has no {name!r}: use "
            f"groups.{self._name}.get(keys) or groups.{self._name}.all()"
        )
        raise AttributeError(message)


class ReachedTables:
    """A kept state as a translator of whole runs sees it: records of any key."""

    __slots__ = ("_key", "_many", "_name", "_reader")

    def __init__(self, spec: TranslatorSpec, state: StateSpec, reader: ReachedReader) -> None:
        self._name, self._reader, self._key = state.name, reader, kept_key(spec, state)
        self._many = len(spec.key_of(state))

    @property
    def size(self) -> int:
        """The number of records; nothing is read for it."""
        return self._reader.size

    def find(self, keys: Any) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """Return the rows of `keys` whose record exists, ascending, and these records."""
        return self._reader.find(conformed_table(f"tables.{self._name}.find", keys, self._key))

    def of(self, keys: Any) -> pa.Table:
        """Return all records with these keys of the stage, in any order; no key may repeat."""
        key = self._key.select(self._key.names[: self._many])
        return self._reader.of(conformed_table(f"tables.{self._name}.of", keys, key))

    def all(self) -> pa.Table:
        """Return all records of the state, in any order."""
        return self._reader.all()

    def __getattr__(self, name: str) -> NoReturn:
        message = (
            f"tables.{self._name} is kept state, not a table, and has no {name!r}: use "
            "find(keys), of(keys), all() or size"
        )
        raise AttributeError(message)


def kept_tables(
    spec: TranslatorSpec, readers: Mapping[str, KeptTableReader]
) -> dict[str, KeptTables]:
    """Return the object that an author gets for each kept state, by name."""
    return {
        one.name: KeptTables(one.name, kept_key(spec, one), readers[one.name]) for one in spec.kept
    }


def kept_key(spec: TranslatorSpec, state: StateSpec) -> Schema:
    """Return the columns that name a record of a kept state: the stage's key, the second key."""
    return state.schema.select((*spec.key_of(state).names, *state.second_key))


def conformed_table(function: str, given: Any, schema: Schema) -> pa.Table:
    """Return the table that an author passed to a function; `TypeError` for wrong columns."""
    try:
        return conform(as_table(given), schema)
    except (TypeError, pa.ArrowException) as exc:
        message = f"{function}: {exc}"
        raise TypeError(message) from exc


def refuse_foreign_key(state: str, keys: pa.Table, numbers: npt.NDArray[np.int64]) -> None:
    """Refuse keys of groups that are not called (number -1); the error names the first one."""
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        key = row_at(keys, int(unknown[0]))
        message = (
            f"state {state!r} was read at the key {key!r}, but this call has no group with that "
            "key. Read the state in the call that has the group, or with a Lookup in another stage"
        )
        raise AuthorMisuse(StateKeyForeignError, message)
