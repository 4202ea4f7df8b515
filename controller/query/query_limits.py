"""What a query may read, and its limits, as they are sent to its process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SQL_CHARACTERS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of queries.

    Attributes:
        seconds: Time limit of a query, including the start of its process.
        rows: Largest number of rows of an answer; further rows are left out.
        answer_bytes: Largest size of an answer in Arrow.
        memory_bytes: Memory of the query engine; nothing is spilled to disk.
        parallel: Largest number of queries at a time.
    """

    seconds: float = 30.0
    rows: int = 10_000
    answer_bytes: int = 32 << 20
    memory_bytes: int = 512 << 20
    parallel: int = 2
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Request:
    """A query, the tables that it may read, and its limits.

    Attributes:
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
        """Return the request as text."""
        return json.dumps(asdict(self))
