"""A drop folder on a temporary disk with a clock that tests move by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.engine.storage.files import LocalFiles
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.dataflow.nodes import ONE_FILE, FileBatch, StageNode
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from cbp.model.source.bad_records import BadRecords
from cbp.model.source.unfinished_names import UNFINISHED
from controller.allowed_folders import AllowedFolders
from controller.ingest.drop_folder import DropFolder
from controller.ingest.folder.bucket_feed import Buckets
from controller.ingest.folder.folder_report import ScanReport
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader.file_reader import (
    FileReader,
    StuckReader,
    read_files,
)
from controller.ingest.source_log import SourceLog
from controller.store.base import ClaimRecord, DataflowRecord, IncrementRecord, Page, Store

NAME = "shop"


class DictStore:
    """The part of a store that ingestion uses, in memory; survives a "crash" of the rest."""

    def __init__(self) -> None:
        self.claim_rows: dict[str, ClaimRecord] = {}
        self.increment_rows: dict[tuple[str, int], IncrementRecord] = {}

    def add_claim(self, claim: ClaimRecord) -> ClaimRecord:
        assert claim.id not in self.claim_rows
        same = [c for c in self.claim_rows.values() if c.source == claim.source]
        claim = replace(claim, sequence=len(same))
        self.claim_rows[claim.id] = claim
        return claim

    def add_claims(self, new: Sequence[ClaimRecord]) -> list[ClaimRecord]:
        return [self.add_claim(claim) for claim in new]

    def update_claims(self, changed: Sequence[ClaimRecord]) -> None:
        for claim in changed:
            self.update_claim(claim)

    def claims_moved(self, moved: Sequence[ClaimRecord]) -> None:
        for claim in moved:
            before = self.claim_rows[claim.id]
            self.update_claim(replace(before, status=claim.status, bytes=claim.bytes))

    def update_claim(self, claim: ClaimRecord) -> None:
        assert claim.id in self.claim_rows
        self.claim_rows[claim.id] = claim

    def known_claims(self, ids: Sequence[str]) -> set[str]:
        return self.claim_rows.keys() & set(ids)

    def find_claims(self, ids: Sequence[str]) -> dict[str, ClaimRecord]:
        return {one: self.claim_rows[one] for one in ids if one in self.claim_rows}

    def open_claims(self, dataflow: str, source: str) -> list[ClaimRecord]:
        actual = [
            c
            for c in self.claim_rows.values()
            if c.source == source and c.status in ("claiming", "claimed")
        ]
        return sorted(actual, key=lambda c: c.sequence)

    def claims(
        self,
        dataflow: str,
        source: str,
        *,
        limit: int,
        status: str | None = None,
        cursor: str | None = None,
    ) -> Page[ClaimRecord]:
        actual = [
            c for c in self.claim_rows.values() if c.source == source and status in (None, c.status)
        ]
        end = int(cursor or 0) + limit
        return Page(actual[::-1][int(cursor or 0) : end], str(end) if end < len(actual) else None)

    def same_claim(
        self,
        dataflow: str,
        source: str,
        sha256: str,
        *,
        path: str | None = None,
        waiting: bool = False,
    ) -> ClaimRecord | None:
        status = ("claiming", "claimed") if waiting else ("accepted",)
        actual = (
            c
            for c in self.claim_rows.values()
            if (c.source, c.sha256) == (source, sha256)
            and c.status in status
            and path in (None, c.path)
        )
        return next(actual, None)

    def claims_of_content(self, dataflow: str, source: str, sha256: str) -> list[ClaimRecord]:
        mine = [
            c
            for c in self.claim_rows.values()
            if (c.source, c.sha256, c.status) == (source, sha256, "accepted")
        ]
        return sorted(mine, key=lambda c: c.path)

    def same_claims(
        self, dataflow: str, source: str, wanted: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ClaimRecord]:
        same = {}
        for sha256, path in wanted:
            named = self.same_claim(dataflow, source, sha256, path=path)
            if known := named or self.same_claim(dataflow, source, sha256):
                same[sha256, path] = known
        return same

    def named_claims(
        self, dataflow: str, source: str, paths: Collection[str]
    ) -> dict[str, ClaimRecord]:
        mine = [
            c
            for c in self.claim_rows.values()
            if c.source == source and c.status == "accepted" and c.path in paths
        ]
        return {c.path: c for c in sorted(mine, key=lambda c: c.index or 0)}

    def claim_before(self, claim: ClaimRecord) -> ClaimRecord | None:
        mine = [
            c
            for c in self.claim_rows.values()
            if (c.source, c.path, c.status) == (claim.source, claim.path, "accepted")
            and c.id != claim.id
            and (c.index or 0) <= (claim.index or 0)
        ]
        return max(mine, key=lambda c: c.index or 0, default=None)

    def keyed_claim(
        self, dataflow: str, source: str, key: str, *, withdrawn: bool = False
    ) -> ClaimRecord | None:
        actual = (
            c
            for c in self.claim_rows.values()
            if (c.source, c.key) == (source, key) and (withdrawn or c.status != "withdrawn")
        )
        return next(actual, None)

    def accept_all(self, arrivals: Sequence[tuple[ClaimRecord, IncrementRecord]]) -> None:
        known = set(self.increment_rows)
        for claim, record in arrivals:
            key = (record.increment.flow, record.increment.index)
            if key not in known:
                self.increment_rows[key] = record
                self.claim_rows[claim.id] = replace(claim, status="accepted", index=key[1])

    def increment(self, dataflow: str, flow: str, index: int) -> IncrementRecord:
        return self.increment_rows[flow, index]

    def next_index(self, dataflow: str, flow: str) -> int:
        return sum(1 for known, _ in self.increment_rows if known == flow)


class Drop:
    """One dataflow with one source (and its restart), ready to be scanned.

    Args:
        store: Kept over a restart, like a database.
    """

    def __init__(
        self,
        root: Path,
        schema: str,
        format_: str = "jsonl",
        *,
        store: Any = None,
        faults: Faults = NO_FAULTS,
        limits: IngestLimits | None = None,
        settle_seconds: float = 0,
        options: dict[str, str] | None = None,
        sources: tuple[str, ...] = ("orders",),
        reader: FileReader = read_files,
        stuck: Callable[[], Sequence[StuckReader]] = tuple,
        duplicates: str = "accept",
        same_name: str = "quarantine",
        unfinished: tuple[str, ...] = UNFINISHED,
        nested: bool = False,
        on_bad_records: Any = "quarantine_file",
        batch: FileBatch = ONE_FILE,
        stages: Sequence[StageNode] = (),
        on_close: Callable[[str, str, str], object] | None = None,
        location: str = "",
        buckets: Buckets | None = None,
    ) -> None:
        self.root = root
        self.store: Any = store if store is not None else DictStore()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.accepted_calls = 0
        nodes = {
            name: SourceNode(
                name,
                Schema.parse(schema),
                format_,
                options or {},
                duplicates=duplicates,
                same_name=same_name,
                unfinished=unfinished,
                nested=nested,
                on_bad_records=BadRecords.parse(on_bad_records),
                batch=batch,
                location=location,
            )
            for name in sources
        }
        self.dataflow = Dataflow(NAME, nodes, {node.name: node for node in stages})
        folder = str(root / "tables" / NAME)
        self.record = DataflowRecord(NAME, 1, {}, folder, "running", self.now)
        self._arguments: dict[str, Any] = {
            "limits": limits,
            "settle_seconds": settle_seconds,
            "reader": reader,
            "stuck_readers": stuck,
            "on_close": on_close,
            "tables": AllowedFolders("CBP_SOURCE_ROOTS", (root / "warehouse",)),
            "buckets": buckets or Buckets(),
        }
        self.start(faults)
        self.folder.prepare(self.record, self.dataflow)

    def source(self, name: str = "orders") -> SourcePlace:
        """Return the place of a source."""
        return self.folder.place(self.record, self.dataflow, name)

    def start(self, faults: Faults = NO_FAULTS, *, reader: FileReader | None = None) -> None:
        """Make the objects of a process anew; the disk and the store stay."""
        store: Store = self.store
        self.files = LocalFiles(faults)
        self.folder = DropFolder(
            store=store,
            files=self.files,
            clock=lambda: self.now,
            drop_root=self.root / "drop",
            on_accept=self._accepted,
            faults=faults,
            **self._arguments | ({} if reader is None else {"reader": reader}),
        )

    def make_again(self) -> None:
        """Delete the dataflow with its folders, and register it again, in the same process."""
        self.store.claim_rows.clear()
        self.store.increment_rows.clear()
        rmtree(self.record.folder)
        rmtree(self.root / "drop" / NAME)
        self.pass_seconds(60)
        self.record = replace(self.record, created_at=self.now)
        self.folder.prepare(self.record, self.dataflow)

    def limit(self, limits: IngestLimits) -> None:
        """Have other limits from the next start on."""
        self._arguments["limits"] = limits

    def _accepted(self) -> None:
        self.accepted_calls += 1

    @property
    def incoming(self) -> Path:
        return self.place("incoming")

    def place(self, folder: str, source: str = "orders") -> Path:
        return self.root / "drop" / NAME / source / folder

    def put(self, name: str | bytes, data: bytes, source: str = "orders") -> None:
        path = self.place("incoming", source) / (
            name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        )
        path.write_bytes(data)

    def scan(self) -> ScanReport:
        return self.folder.scan(self.record, self.dataflow)

    def fetch(self, source: str = "orders") -> None:
        """Claim objects of the source's location, if it is due."""
        buckets = self.folder.buckets
        buckets.fetch(self.record, self.dataflow, source, hold=nullcontext, stopping=never)

    def recover(self) -> ScanReport:
        return self.folder.recover(self.record, self.dataflow)

    def pass_seconds(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def increments(self, source: str = "orders") -> list[Increment]:
        log = SourceLog(self.record.folder, source, LocalFiles())
        return [entry.increment for entry in log.since(0)]

    def table(self, index: int = 0) -> pa.Table:
        increment = self.increments()[index]
        parts = [pq.read_table(f"{self.record.folder}/{f.path}") for f in increment.files]
        assert [part.num_rows for part in parts] == [f.records for f in increment.files]
        return pa.concat_tables(parts)

    def rows(self) -> list[dict[str, Any]]:
        """Return every accepted record, in order."""
        every = range(len(self.increments()))
        return [
            row for i in every if self.increments()[i].files for row in self.table(i).to_pylist()
        ]

    def reasons(self) -> list[dict[str, Any]]:
        folder = self.place("quarantine")
        return [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.reason.json"))]

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in self.place(folder).iterdir())


def lines(count: int, start: int = 0) -> bytes:
    """Return JSON lines with a growing `id`."""
    rows = (json.dumps({"id": i, "name": f"n{i}"}) for i in range(start, start + count))
    return "".join(f"{row}\n" for row in rows).encode()


def rejected(
    data: bytes, root: Path, schema: str, format_: str = "jsonl", **more: Any
) -> dict[str, Any]:
    """Drop one file, expect it in quarantine and nothing accepted; return its reason."""
    drop = Drop(root / f"r{next(_NUMBERS)}", schema, format_, **more)
    drop.put("bad", data)
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (0, 1)
    assert not drop.increments()
    assert not list(Path(drop.record.folder).rglob("*.parquet"))
    (reason,) = drop.reasons()
    return reason


def accepted(
    data: bytes, root: Path, schema: str, format_: str = "jsonl", **more: Any
) -> list[dict[str, Any]]:
    """Drop one file, expect it accepted; return its records."""
    drop = Drop(root / f"a{next(_NUMBERS)}", schema, format_, **more)
    drop.put("good", data)
    report = drop.scan()
    assert report.accepted == 1, drop.reasons()
    return drop.rows()


_NUMBERS = itertools.count()
Make = Callable[..., Drop]
