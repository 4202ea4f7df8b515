"""Limits of one query."""

from __future__ import annotations

from dataclasses import dataclass

SQL_CHARACTERS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of queries.

    Attributes:
        seconds: How long a query may take, the start of its process included.
        rows: How many rows an answer may have; further ones are left out.
        answer_bytes: How large an answer may be, as Arrow.
        memory_bytes: Memory of the query engine; nothing is spilled to disk.
        parallel: How many queries may run at a time.
    """

    seconds: float = 30.0
    rows: int = 10_000
    answer_bytes: int = 32 << 20
    memory_bytes: int = 512 << 20
    parallel: int = 2
    threads: int = 2
