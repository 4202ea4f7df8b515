"""A source whose files lie in a bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from controller.ingest.folder.bucket_feed import Buckets
from controller.ingest.folder.bucket_listing import AllowedLocations
from tests.controller.bucket_server import BucketServer
from tests.controller.ingest.harness import Drop

SCHEMA = "id BIGINT, name STRING"


class Located:
    """A source whose files lie in a bucket."""

    def __init__(self, root: Path, server: BucketServer, **more: Any) -> None:
        self.server = server
        allowed = more.pop("allowed", (server.location(""),))
        buckets = Buckets(AllowedLocations(allowed), lambda: server.store, **more.pop("reach", {}))
        location = more.pop("location", server.location())
        self.drop = Drop(root, SCHEMA, location=location, buckets=buckets, **more)

    def take_in(self) -> tuple[int, int, int]:
        """Fetch and read once the interval is over; return what was settled."""
        self.drop.pass_seconds(30)
        self.drop.fetch()
        report = self.drop.scan()
        assert not report.failures
        return report.accepted, report.duplicates, report.quarantined

    def failure(self) -> str:
        """Return the code of what stops the location; `""` if nothing does."""
        trouble = self.drop.folder.buckets.troubles.of(self.drop.place("incoming").parent)
        return "" if trouble is None else trouble.error.code

    def ids(self) -> list[int]:
        return [row["id"] for row in self.drop.rows()]

    def names(self) -> list[str]:
        return [claim.path for claim in self.drop.store.claim_rows.values()]
