"""Runs queries, each in a process of its own, within limits.

Guaranteed: a query that takes too long or too much memory ends, and takes nothing else with it.
It reads the versions of one snapshot. Garbage collection leaves their files alone at least until
`readable_until`; a query may not last longer than that.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import controller
from cbp.clock import MACHINE
from cbp.errors import VersionGoneError
from cbp.model.flow.snapshot import Snapshot
from controller.query.errors import (
    NOT_HELD,
    QueriesBusyError,
    QueryFailedError,
    QueryInvalidError,
    QueryRefusedError,
    QueryTimeError,
    QueryTooLargeError,
)
from controller.query.query_limits import QueryLimits, Request

_CODE = (
    "import sys; sys.path.append({path!r}); from controller.query.query_process import main; main()"
)
_OWN = {"PYTHONSAFEPATH": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A query; `reads` and `values` as in `Request`, and `rows` may lower the limit of rows."""

    sql: str
    snapshot: Snapshot
    reads: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query.

    Attributes:
        columns: Name and type of each column; names may repeat.
        tables: The tables that it read, by their names in SQL.
    """

    columns: tuple[tuple[str, str], ...]
    rows: list[tuple[Any, ...]]
    truncated: bool
    tables: tuple[str, ...]
    seconds: float


class Queries:
    """Runs queries; safe to use from several threads."""

    def __init__(self, limits: QueryLimits, seconds: Callable[[], float] = MACHINE.seconds) -> None:
        self.limits, self._seconds = limits, seconds
        self._free = threading.BoundedSemaphore(limits.parallel)

    def run(self, question: Question) -> Answer:
        """Return the answer to a question.

        Raises `QueriesBusyError`, `QueryRefusedError`, `QueryInvalidError`, `QueryTimeError`,
        `QueryTooLargeError`, `QueryFailedError`; `VersionGoneError` if a version was collected.
        After an error no process of the question is left.
        """
        if not self._free.acquire(blocking=False):
            raise QueriesBusyError(self.limits.parallel)
        try:
            began = self._seconds()
            header, rows = self._ask(question)
            return Answer(
                tuple((name, type_) for name, type_ in header["columns"]),
                rows,
                bool(header["truncated"]),
                tuple(header["tables"]),
                self._seconds() - began,
            )
        finally:
            self._free.release()

    def _ask(self, question: Question) -> tuple[Mapping[str, Any], list[tuple[Any, ...]]]:
        limits = asdict(self.limits)
        if question.rows is not None:
            limits["rows"] = min(limits["rows"], question.rows)
        snapshot = question.snapshot
        tables = {name: one.version for name, one in snapshot.tables.items()}
        request = Request(
            question.sql, snapshot.folder, tables, limits, question.reads, question.values
        )
        code = _CODE.format(path=str(Path(controller.__file__).parents[1]))
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-c", code],
                input=request.to_json().encode(),
                capture_output=True,
                env={**_environment(), **_OWN},
                timeout=self.limits.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:  # the process was killed, and is gone
            raise QueryTimeError(self.limits.seconds) from error
        line, _, stream = ended.stdout.partition(b"\n")
        return self._header(line, ended, snapshot), _rows(stream)

    def _header(
        self, line: bytes, ended: subprocess.CompletedProcess[bytes], snapshot: Snapshot
    ) -> Mapping[str, Any]:
        try:
            header = json.loads(line)
        except ValueError as error:
            text = ended.stderr[-4000:].decode(errors="replace")
            _log.warning("the process of a query ended without an answer; its stderr: %s", text)
            if b"MemoryError" in ended.stderr or b"bad_alloc" in ended.stderr:
                raise self._too_large() from error
            raise QueryFailedError(ended.returncode) from error
        assert isinstance(header, Mapping)
        match header.get("error"):
            case None:
                return header
            case QueryRefusedError.code:
                raise QueryRefusedError(header["details"]["why"])
            case VersionGoneError.code:
                raise VersionGoneError(**header["details"])
            case "gone":
                _log.warning("a query could not read its files: %s", header["message"])
                versions = (one.version for one in snapshot.tables.values())
                raise VersionGoneError(snapshot.folder, max(versions, default=0))
            case "memory":
                raise self._too_large()
            case "answer":
                raise QueryTooLargeError("the answer", self.limits.answer_bytes, "")
            case _:
                raise QueryInvalidError(header["message"])

    def _too_large(self) -> QueryTooLargeError:
        return QueryTooLargeError("the query", self.limits.memory_bytes, "CBP_QUERY_MEMORY_BYTES")


def _rows(stream: bytes) -> list[tuple[Any, ...]]:
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    columns = [
        _values(name, column)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return list(zip(*columns, strict=True)) if columns else []


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; refuse values that an answer cannot hold unchanged."""
    try:
        return list(column.to_pylist(maps_as_pydicts="lossy"))
    except (OverflowError, TypeError, ValueError) as error:
        # a time that is infinite or outside of the years 1 to 9999; a map whose key is not a scalar
        raise QueryInvalidError(NOT_HELD.format(f"a value of column {name!r}")) from error


def _environment() -> dict[str, str]:
    """Return this process's environment without the service's own variables."""
    kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "HOME")
    return {name: value for name, value in os.environ.items() if name in kept}
