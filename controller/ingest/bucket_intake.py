"""When the locations of sources are listed, and what stops them; `bucket` says how it is done.

A location is listed once per interval; after a failure as `SourceTroubles` says, sooner at first
and with growing pauses. This is apart from the passes over drop folders: a service that hangs keeps
no file of the same source waiting, and one that is full keeps no bucket waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cbp.clock import MACHINE
from cbp.errors import LogConflictError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from controller.ingest.bucket.bucket_feed import BucketFeed
from controller.ingest.bucket.fetch_limits import FetchLimits
from controller.ingest.bucket.fetch_slice import Hold
from controller.ingest.bucket.listing import BucketReport
from controller.ingest.bucket.locations import AllowedLocations
from controller.ingest.bucket.object_store import ObjectStore
from controller.ingest.bucket.s3_store import S3Store
from controller.ingest.errors import IntakeStoppedError
from controller.ingest.folder.source_folders import SourcePlace
from controller.ingest.reports.source_troubles import MOST_SECONDS, SourceTroubles
from controller.store.base import DataflowRecord

__all__ = ["BucketIntake", "Buckets"]

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Buckets:
    """How buckets are reached.

    Attributes:
        allowed: The locations that the operator allows.
        make_store: Makes what reads buckets; called when the first source needs it.
        seconds: Time between two listings of a location.
        executor: Fetches small objects ahead, a thread for each; `None`: none is fetched ahead.
        monotonic: Returns seconds that never go back.
        limits: What a fetch may take.
    """

    allowed: AllowedLocations = field(default_factory=AllowedLocations)
    make_store: Callable[[], ObjectStore] = S3Store
    seconds: float = 30.0
    executor: Executor | None = None
    monotonic: Callable[[], float] = MACHINE.seconds
    limits: FetchLimits = field(default_factory=FetchLimits)


class BucketIntake:
    """Lists locations and claims objects; one call of `fetch` at a time for each source.

    Args:
        feed: Claims the objects.
        clock: Returns an aware time in UTC.
        seconds: Time between two listings of a location.
        drop_root: Holds the drop folders of the sources.
        on_claim: Called with the dataflow after objects were fetched: they wait to be read.

    Attributes:
        troubles: Sources whose location gives nothing for now, by their folder.
    """

    def __init__(
        self,
        feed: BucketFeed,
        *,
        clock: Callable[[], datetime],
        seconds: float,
        drop_root: Path,
        on_claim: Callable[[str], None],
    ) -> None:
        self._feed, self._clock, self._root, self._on_claim = feed, clock, drop_root, on_claim
        self._pause = timedelta(seconds=seconds)
        self._due: dict[Path, datetime] = {}
        self.troubles = SourceTroubles(clock)

    def due(self, record: DataflowRecord, dataflow: Dataflow) -> list[str]:
        """Return the sources whose locations are to be listed now; reads nothing."""
        folder, now = self._root / dataflow.name, self._clock()
        located = [
            name for name, source in dataflow.sources.items() if source.location and record.takes_in
        ]
        for name in self.troubles.below(folder).keys() - set(located):
            self.troubles.works(folder / name)  # it has no location any more, or is drained
        return [name for name in located if self._due.get(folder / name, now) <= now]

    def fetch(
        self,
        record: DataflowRecord,
        dataflow: Dataflow,
        source: str,
        *,
        hold: Hold,
        stopping: Callable[[], bool],
    ) -> None:
        """Claim new objects of a source for some seconds, if it is due.

        A failure is recorded, and does not affect other sources.

        Args:
            record: The dataflow as registered.
            dataflow: The same dataflow, checked.
            source: One of those that `due` returned.
            hold: See `BucketFeed.claim_some`.
            stopping: Called often; returns whether to stop.

        Raises:
            LogConflictError: Another controller takes in files: this one must stop.
            IntakeStoppedError: `stopping` returned true; the next call continues.
            NotFoundError: The dataflow was deleted meanwhile.
        """
        if source not in self.due(record, dataflow):
            return
        place = SourcePlace.of(record, dataflow, dataflow.sources[source], self._root)
        self._due[place.root] = _LAST  # it is not due while it is under way
        due = self._clock()
        try:
            if not self._feed.claim_some(place, hold, stopping):
                due = self._clock() + self._pause
        except (LogConflictError, IntakeStoppedError, NotFoundError):
            raise
        except Exception as error:  # whatever failed: the location is listed again
            self.troubles.failed(place.root, place.name, error)
            due = self._again(place.root)
        else:
            self.troubles.works(place.root)
        finally:
            self._due[place.root] = due
        self._on_claim(place.dataflow)

    def _again(self, root: Path) -> datetime:
        """Return when a location that failed is listed again; in the end once per interval."""
        trouble, now = self.troubles.of(root), self._clock()
        assert trouble is not None, "a failure was recorded"
        lasting = trouble.retry_at - now >= timedelta(seconds=MOST_SECONDS)
        return max(trouble.retry_at, now + self._pause) if lasting else trouble.retry_at

    def forget(self, root: Path) -> None:
        """Forget what is known of a source, by its folder: another instance may have led."""
        self._feed.forget(root)
        self._due.pop(root, None)

    def report(self, place: SourcePlace) -> BucketReport | None:
        """Return what is known of a source's location; `None` if it has none."""
        return self._feed.report(place)
