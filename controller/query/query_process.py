"""Main program of a query: one process runs one query, and ends.

    stdin     a `Request` as JSON
    stdout    a line of JSON, then, if that has no `error`, the answer as an Arrow stream

The parent kills it when it takes too long, since a query engine may not check a flag. If the parent
is gone, an alarm signal ends it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from cbp.engine.read.version_files import read_version_files
from cbp.engine.storage.files import LocalFiles
from cbp.errors import VersionGoneError
from controller.query.database import add_table, lock, open_database, parse
from controller.query.errors import NOT_HELD, QueryInvalidError, QueryRefusedError
from controller.query.query_limits import QueryLimits, Request
from controller.query.sql_types import unheld_type
from controller.query.statement import is_flow, sql_names, tables_of

_BATCH_ROWS = 1_000
_LATER_SECONDS = 5
_ROOM_BYTES = 2 << 30
"""Address space in addition to the engine's memory: threads, libraries, buffers of files."""


def main() -> None:
    """Answer the request on stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal signals the whole group
    request = Request(**json.load(sys.stdin))
    limits = QueryLimits(**request.limits)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(limits.seconds) + _LATER_SECONDS)
    _bound_memory(limits)
    try:
        header, table = answer(request, limits)
    except (QueryInvalidError, QueryRefusedError, VersionGoneError) as error:
        _write({"error": error.code, "message": error.message, "details": error.details})
        return
    except (duckdb.OutOfMemoryException, MemoryError, pa.ArrowMemoryError):
        _write({"error": "memory"})
        return
    except duckdb.IOException as error:
        _write({"error": "gone", "message": str(error)})
        return
    except duckdb.Error as error:
        _write({"error": QueryInvalidError.code, "message": str(error)})
        return
    _write(header)
    if table is not None:
        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as stream:
            stream.write_table(table)


def answer(request: Request, limits: QueryLimits) -> tuple[dict[str, Any], pa.Table | None]:
    """Return the header of the answer, and its rows; `None` instead of rows that are too large."""
    names = sql_names(request.tables)
    folders = [f"{request.folder}/{table}" for table in request.tables]
    database = open_database(folders, limits)
    used = list(request.reads) or tables_of(parse(database, request.sql), names)
    for name in used:
        table, flow = names[name], is_flow(names[name])
        path, version = f"{request.folder}/{table}", request.tables[table]
        files = read_version_files(path, version, is_flow=flow, files=LocalFiles())
        add_table(database, name, files, is_flow=flow)
    lock(database)
    values = list(request.values)
    relation = database.sql(request.sql, params=values) if values else database.sql(request.sql)
    columns = list(zip(relation.columns, map(str, relation.types), strict=True))
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if unheld := unheld_type(kind):
            raise QueryInvalidError(NOT_HELD.format(f"the type {unheld} of column {name!r}"))
    batches, rows, size, whole = [], 0, 0, True
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        left = limits.rows - rows
        whole = batch.num_rows <= left
        part = batch.slice(0, min(left, batch.num_rows))
        batches.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
        if size > limits.answer_bytes:
            return {"error": "answer"}, None
        if not whole:
            break
    header = {"columns": columns, "truncated": not whole, "tables": used}
    return header, pa.Table.from_batches(batches, reader.schema)


def _bound_memory(limits: QueryLimits) -> None:
    with open("/proc/self/statm", "rb") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = now + 2 * limits.memory_bytes + _ROOM_BYTES
    resource.setrlimit(
        resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )


def _write(header: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    sys.stdout.buffer.flush()
