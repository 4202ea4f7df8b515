"""The rejected records of a source, as a Delta table beside the other tables of its dataflow.

    <root>/tables/<dataflow>/rejects/<source>/     a Parquet file per increment that has some

The source's log is the truth: the entry of an increment holds the rejected records. The table is
made from the log: the rejected records of an increment are published in a transaction with the
number of the increment, and so only once. The table is behind the log until the end of a pass, or,
after a crash, until the end of the next pass.

Any reader of Delta tables can read it. As in the dataflow's other tables, foreign writers are
refused.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.managed_table import ManagedTable, create_table, open_table
from cbp.engine.storage.checked_parquet import CHECKED, open_parquet, sealed
from cbp.engine.storage.files import files_for
from cbp.engine.storage.table_names import rejects_table
from cbp.errors import NotFoundError
from cbp.model.flow.schema import Schema
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.formats.bad_lines import REJECTED
from controller.ingest.ports import Ports
from controller.ingest.rejection import BadLine
from controller.ingest.source_log import SourceEntry, SourceLog

REJECTS_SCHEMA = Schema.parse(
    "increment BIGINT, claim STRING, file STRING, line BIGINT, column_name STRING, code STRING, "
    "message STRING, text STRING, rejected_at TIMESTAMP"
)
"""`line` counts from 1; `column_name` is null where the whole record is wrong; `text` is the record
as it was in the file, cut to a limit (a CSV record is rewritten, on one line if it can be)."""

_APP = "rejects"


class RejectsTables:
    """Publishes rejected records; used by one pass of a source at a time.

    `published` has, by the source's folder, the next increment to examine.
    """

    def __init__(self, ports: Ports) -> None:
        self._files, self._clock, self._store = ports.files, ports.clock, ports.store
        self.published: dict[Path, int] = {}

    def publish(self, place: SourcePlace) -> None:
        """Show the rejected records of all accepted increments; raises `OperatingError`.

        Called for sources that reject single records; after an error the next call continues.
        """
        path = f"{place.folder}/{rejects_table(place.name)}"
        if (start := self.published.get(place.root)) is None:
            self.published[place.root] = start = self._published_before(path)
        end = self._store.next_index(place.dataflow, place.name)
        if start >= end:
            return
        for entry in SourceLog(place.folder, place.name, self._files).since(start):
            if entry.increment.index >= end:
                break
            if rows := _rows_of(entry):
                self._publish_entry(path, place, entry, rows)
            self.published[place.root] = entry.increment.index + 1

    def _published_before(self, path: str) -> int:
        try:
            return open_table(path, self._files).snapshot.txns.get(_APP, -1) + 1
        except NotFoundError:
            return 0

    def _publish_entry(
        self, path: str, place: SourcePlace, entry: SourceEntry, rows: Sequence[dict[str, object]]
    ) -> None:
        index, now_ms = entry.increment.index, int(self._clock().timestamp() * 1000)
        table = self._table(path, place, now_ms)
        # Named after the increment, so that a repetition replaces the file by an equal one.
        name = f"{index:020d}.parquet"
        data = _parquet(rows, f"{path}/{name}")
        self._files.write_durable(f"{path}/{name}", data)
        table.publish(
            app_id=_APP,
            version=index,
            intention_id=entry.claims[0],
            timestamp_ms=now_ms,
            adds=[AddFile(name, {}, len(data), len(rows), now_ms)],
            operation="CBP REJECT",
        )

    def _table(self, path: str, place: SourcePlace, now_ms: int) -> ManagedTable:
        try:
            return open_table(path, self._files)
        except NotFoundError:
            identity = uuid5(NAMESPACE_URL, f"cbp/{place.dataflow}/{place.name}/rejects")
            return create_table(
                path, REJECTS_SCHEMA, files=self._files, table_id=str(identity), now_ms=now_ms
            )


@dataclass(frozen=True, slots=True)
class Chosen:
    """Selects rejected records of files that were taken in at or after `since` and before `until`.

    `None` selects all.
    """

    code: str | None = None
    increment: int | None = None
    since: datetime | None = None
    until: datetime | None = None

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether a record is selected by code and time; the caller checks its increment."""
        return (
            self.code in (None, row["code"])
            and (self.since is None or row["rejected_at"] >= self.since)
            and (self.until is None or row["rejected_at"] < self.until)
        )


ALL = Chosen()


def read_rejects(
    folder: str, source: str, *, below: tuple[int, int] | None, limit: int, chosen: Chosen = ALL
) -> tuple[list[dict[str, object]], tuple[int, int] | None]:
    """Return rejected records, newest increment first, in the order of the file's lines.

    `below` is the end of the last page, as returned with it; `None` means from the beginning. The
    returned end is `None` if nothing follows.
    """
    path, records = f"{folder}/{rejects_table(source)}", list[dict[str, object]]()
    try:
        live = open_table(path, files_for(path)).snapshot.live
    except NotFoundError:
        return [], None
    for name in sorted(live, reverse=True):
        index = int(name.partition(".")[0])
        if (below is not None and index > below[0]) or chosen.increment not in (None, index):
            continue
        first = below[1] if below is not None and index == below[0] else 0
        with open_parquet(f"{path}/{name}") as file:
            rows = file.read().to_pylist()
        for at, row in enumerate(rows):
            if at < first or not chosen.has(row):
                continue
            if len(records) == limit:
                return records, (index, at)
            records.append(row)
    return records, None


def _rows_of(entry: SourceEntry) -> list[dict[str, object]]:
    rejected = [
        (file, BadLine.from_json(one))
        for file in entry.files
        for one in file.notes.get(REJECTED, ())
    ]
    return [
        {
            "increment": entry.increment.index,
            "claim": file.claim,
            "file": _storable(file.path),
            "line": one.line,
            "column_name": None if one.column is None else _storable(one.column),
            "code": one.rule,
            "message": _storable(one.message),
            "text": _storable(one.text),
            "rejected_at": entry.accepted_at,
        }
        for file, one in rejected
    ]


def _storable(text: str) -> str:
    """Return text that every table can hold: half of a surrogate pair is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _parquet(rows: Sequence[dict[str, object]], path: str) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(list(rows), arrow_schema(REJECTS_SCHEMA))
    pq.write_table(table, sink, **CHECKED)
    return sealed(sink.getvalue(), path)
