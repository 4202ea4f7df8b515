"""A drop folder in memory, with canned files that lie in it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

from cbp.errors import NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.retention import Expiry, Held
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.quarantine_decisions import Decided
from controller.ingest.replacement import Compared
from controller.ingest.uploads import Author
from controller.store.base import (
    ClaimRecord,
    DataflowRecord,
    Judged,
    Uploaded,
)
from tests.controller.api.clicks import NOON

__all__ = ["LYING", "FakeDropFolder"]

LYING: dict[str, Any] = {
    "name": "urls",
    "folder": "/drop/clicks/urls/incoming",
    "waiting": 2,
    "waiting_bytes": 20,
    "oldest_at": None,
    "unclaimed": 1,
    "oldest_unclaimed": [{"name": "a\nb\udcff", "why": "a FIFO", "since": None}],
    "gone": [
        {"name": "b\nc", "claim": "c1", "since": "2026-01-01T12:00:00+00:00", "lost": True},
    ],
    "warning": "links lie there",
    "bucket": {
        "location": "s3://bucket/clicks/",
        "listed_at": None,
        "objects": 3,
        "waiting": 1,
        "left_out": 1,
        "oldest_left_out": [{"name": "_SUCCESS", "why": "a mark", "since": None}],
    },
    "trouble": {
        "error": {"error_code": "source_failed", "message": "look: the pass failed"},
        "since": "2026-01-01T12:00:00+00:00",
        "tries": 3,
        "retry_at": "2026-01-01T12:00:30+00:00",
    },
}


class FakeReplacements:
    """Takes every request."""

    def __init__(self, folder: FakeDropFolder) -> None:
        self._folder = folder

    def ask(
        self,
        place: SourcePlace,
        name: str,
        stream: BinaryIO | None,
        author: Author,
        key: str = "",
    ) -> Uploaded:
        content = io.BytesIO() if stream is None else stream
        return self._folder.upload(place, name, content, key)

    def repeated(self, place: SourcePlace, key: str, *, retracts: bool) -> bool:
        return False

    def compare(self, place: SourcePlace, name: str, stream: BinaryIO | None) -> Compared:
        return Compared(came=2, gone=1, groups={"count": 3})


class FakeQuarantine:
    """Has no file."""

    def restore(self, place: SourcePlace, claim: str) -> Decided:
        raise NotFoundError(kind="quarantined file", name=f"{place.dataflow}/{place.name}/{claim}")


class FakeDropFolder:
    """Keeps what was uploaded, if it arrived as a whole."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.quarantine = FakeQuarantine()
        self.replacements = FakeReplacements(self)
        self.judged = Judged("accepted")
        self.cleaned: list[bool] = []
        self.lying: list[dict[str, Any]] = [LYING]
        self.trouble: list[str] = []

    def troubled(self, dataflow: str) -> list[str]:
        return self.trouble

    def arriving(self, record: DataflowRecord, dataflow: Dataflow) -> dict[str, int]:
        return {one["name"]: one["waiting"] for one in self.lying if one["waiting"]}

    def look(self, record: DataflowRecord, dataflow: Dataflow) -> list[dict[str, Any]]:
        return self.lying

    def clean(
        self, record: DataflowRecord, dataflow: Dataflow, *, dry_run: bool = False
    ) -> dict[str, Expiry]:
        self.cleaned.append(not dry_run)
        old = Held(0, 50, record.created_at, ("x",))
        return {"urls": Expiry((old,), "is older than the number of hours that its flow keeps", "")}

    def place(self, record: DataflowRecord, dataflow: Dataflow, source: str) -> SourcePlace:
        if source not in dataflow.sources:
            raise NotFoundError(kind="source", name=f"{dataflow.name}.{source}")
        return SourcePlace.of(record, dataflow, dataflow.sources[source], Path("/drop"))

    def upload(self, place: SourcePlace, name: str, stream: BinaryIO, key: str = "") -> Uploaded:
        content = b""
        while chunk := stream.read(1000):
            content += chunk
        self.files[name] = content
        claim = ClaimRecord(
            "c1", place.dataflow, place.name, 0, name, len(content), "claimed", NOON
        )
        return Uploaded(claim)

    def open_quarantined(self, place: SourcePlace, claim: ClaimRecord) -> BinaryIO:
        return io.BytesIO(b"\x00content of " + claim.id.encode())

    def foresee(self, place: SourcePlace, name: str, sha256: str) -> Judged:
        return self.judged
