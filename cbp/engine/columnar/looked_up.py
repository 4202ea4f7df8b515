"""Look-ups as an author sees them: the records of the group's key, or the whole table.

group.customers.one()           -> the only record, or None
for one in group.customers:     -> its records, in order; any number of times
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cbp.errors import AuthorMisuse, LookupSeveralError


class LookedUp:
    """The records of one group, for its author."""

    __slots__ = ("_name", "_records")
    __hash__ = object.__hash__

    def __init__(self, records: Iterable[Any], name: str) -> None:
        self._records, self._name = records, name

    def __iter__(self) -> Iterator[Any]:
        """Yield the records, in order."""
        return iter(self._records)

    def one(self) -> Any | None:
        """Return the only record; `None` if there is none; refuse several."""
        first = list(islice(self._records, 2))
        if len(first) > 1:
            message = (
                f"group.{self._name}.one(): the key has several records. Read them in a loop, or "
                f"declare Lookup(..., key=...) and read group.{self._name}.get(...)"
            )
            raise AuthorMisuse(LookupSeveralError, message)
        return first[0] if first else None

    def __bool__(self) -> bool:
        """Refuse a truth test, which would always be true."""
        message = (
            f"the look-up {self._name!r} cannot be used as a condition; to test for a record, "
            f"write group.{self._name}.one() is not None"
        )
        raise TypeError(message)

    def __eq__(self, other: object) -> bool:
        """Refuse a comparison, which would never be true."""
        message = f"the look-up {self._name!r} cannot be compared; compare its records"
        raise TypeError(message)


@dataclass(frozen=True, slots=True)
class WholeTable:
    """All records of a looked-up table, in order."""

    rows: list[Any]
    copies: Callable[[list[Any]], list[Any]] | None = None

    def records(self) -> list[Any]:
        """Return the records in the form that an author gets."""
        return self.rows if self.copies is None else self.copies(self.rows)
