"""Request to the process of a query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """A query, and what it may read and take.

    Attributes:
        sql: The query.
        tables: Folder of each table below it -> the version to read.
        limits: Fields of `QueryLimits`.
        reads: For a query that the service wrote itself: the tables that it reads, by their names
            in SQL, so that it need not be checked; `values` are then its parameters.
    """

    sql: str
    folder: str
    tables: Mapping[str, int]
    limits: Mapping[str, Any]
    reads: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))
