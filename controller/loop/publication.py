"""What is recorded and not published yet, and its publication.

    finish a run ----> due? --no--> kept here, and told to the next run of its stage
                        '--yes-> published with everything that is kept of its dataflow

Kept is an index of the intention logs: after a crash it is read from them again, as far
as each newest record says (`Intention.unpublished_from`). Records are put and
publications are made under one lock per dataflow, so that what a publication covers,
and its timestamp, follow from the newest records alone, and a torn one is made whole.

Invariants (tests/controller/test_publication.py): a run is told every record of its stage
that its tables do not show; nothing is dropped here before it is published.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from cbp.engine.base import Engine
from cbp.engine.intentions import IntentionLog
from cbp.engine.publication import KINDS, files_named
from cbp.errors import CbpError
from cbp.model.intention import Intention
from cbp.model.publication import EVERY_EPOCH, Publication, PublishPolicy, due
from controller.loop.catalog import Catalog
from controller.store.base import DataflowRecord

__all__ = ["Publisher"]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Kept:
    """Of one dataflow.

    Attributes:
        waiting: Stage to its records that may not be published, oldest first; a stage that
            is not in it was not looked up yet.
        last_ms: The newest `prepared_ms` that was seen.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    waiting: dict[str, tuple[Intention, ...]] = field(default_factory=dict)
    last_ms: int = 0


class Publisher:
    """Keeps records until they are published; safe to use from several threads.

    Args:
        engine: Publishes.
        catalog: Knows the policies.
        log: Returns the records of a folder.
        begins: Returns stage to its first epoch under the record's version, and when, in
            milliseconds, the version took over.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        catalog: Catalog,
        log: Callable[[str], IntentionLog],
        begins: Callable[[DataflowRecord], tuple[Mapping[str, int], int]],
    ) -> None:
        self._engine, self._catalog, self._log, self._begins = engine, catalog, log, begins
        self._lock = threading.Lock()
        self._kept: defaultdict[str, _Kept] = defaultdict(_Kept)

    def lock(self, dataflow: str) -> threading.RLock:
        """Return what is held while a record of a dataflow is put, or it is published."""
        return self._of(dataflow).lock

    def before(self, record: DataflowRecord, stage: str, epoch: int) -> tuple[Intention, ...]:
        """Return the records of a stage before an epoch that its tables may not show.

        Raises:
            InvariantError: If the log does not hold them.
        """
        kept = self._of(record.name)
        if stage not in kept.waiting:
            with kept.lock:
                self._load(kept, record, stage, epoch)
        return tuple(one for one in kept.waiting[stage] if one.epoch < epoch)

    def next_ms(self, dataflow: str, now_ms: int) -> int:
        """Return now, but later than every record of the dataflow: clocks may be set back.

        A compaction is a second entry, a millisecond later, and a retention a third one: three
        apart, all tables of a publication keep equal timestamps, and a reader AS OF one of them
        sees it whole.
        """
        kept = self._of(dataflow)
        with kept.lock:
            return max(now_ms, kept.last_ms + len(KINDS))

    def add(self, intention: Intention) -> None:
        """Keep a record; `before` was asked for its epoch."""
        kept = self._of(intention.dataflow)
        with kept.lock:
            older = (one for one in kept.waiting[intention.stage] if one.epoch < intention.epoch)
            kept.waiting[intention.stage] = (*older, intention)
            kept.last_ms = max(kept.last_ms, intention.prepared_ms)

    def due(
        self,
        record: DataflowRecord,
        now_ms: int,
        *,
        without: Collection[str] = (),
        at_once: bool = False,
    ) -> Publication | None:
        """Return the publication that is due.

        Args:
            record: The dataflow.
            now_ms: Milliseconds since 1970.
            without: Stages that cannot be published now.
            at_once: Whatever its policy says.
        """
        waiting = self._waiting(record.name)
        for stage in without:
            waiting.pop(stage, None)
        return due(self._policy(record), waiting, now_ms=now_ms, at_once=at_once)

    def publish(self, record: DataflowRecord, publication: Publication) -> dict[str, Exception]:
        """Publish stage by stage; a stage that fails does not keep back the others.

        Returns:
            Stage to its failure; what it covers stays here.
        """
        kept = self._of(record.name)
        failures: dict[str, Exception] = {}
        with kept.lock:
            for stage, records in publication.covers.items():
                try:
                    self._engine.publish(
                        record.folder, records, timestamp_ms=publication.timestamp_ms
                    )
                except Exception as error:  # whatever it was: the records stand, it is repeated
                    failures[stage] = error
                else:
                    last = records[-1].epoch
                    left = (one for one in kept.waiting.get(stage, ()) if one.epoch > last)
                    kept.waiting[stage] = tuple(left)
        covers = {stage: records[-1].epoch for stage, records in publication.covers.items()}
        _log.info("dataflow.published", dataflow=record.name, epochs=covers, failed=[*failures])
        return failures

    def newest(self, dataflow: str, stage: str) -> Intention:
        """Return the newest record of a stage that is kept."""
        return self._of(dataflow).waiting[stage][-1]

    def files_needed(self, dataflow: str) -> set[str]:
        """Return the files that unpublished records name, relative to the dataflow's folder.

        No collector may remove them; asked after the tables were looked at, nothing that
        was published meanwhile is missing in both.
        """
        waiting = self._waiting(dataflow)
        return files_named(one for records in waiting.values() for one in records)

    def unpublished(self, dataflow: str) -> Mapping[str, int]:
        """Return how many epochs of each stage readers of its tables do not see yet."""
        return {stage: len(records) for stage, records in self._waiting(dataflow).items()}

    def forget(self, dataflow: str, *, since_ms: int = 0) -> None:
        """Drop what is kept about a dataflow that was deleted, rolled back or changed.

        Args:
            dataflow: Its name.
            since_ms: Time of what has amended it; whatever comes next is later, as it is later
                than every record before, though the clock were set back.
        """
        with self._lock:
            last_ms = max(self._kept[dataflow].last_ms, since_ms)
            self._kept[dataflow] = _Kept(last_ms=last_ms)

    def forget_all(self) -> None:
        """Drop what is kept: another controller may have put records since."""
        with self._lock:
            self._kept.clear()

    def _of(self, dataflow: str) -> _Kept:
        with self._lock:
            return self._kept[dataflow]

    def _waiting(self, dataflow: str) -> dict[str, tuple[Intention, ...]]:
        """Return a copy, without waiting for a publication under way."""
        return dict(self._of(dataflow).waiting)

    def _policy(self, record: DataflowRecord) -> PublishPolicy:
        try:
            return self._catalog.compiled(record).publish
        except CbpError:
            # Its translators are gone, its runs still have to be finished: leave nothing open.
            return EVERY_EPOCH

    def _load(self, kept: _Kept, record: DataflowRecord, stage: str, epoch: int) -> None:
        if stage not in kept.waiting:
            # Before a new version took over, everything was published.
            begins, at_ms = self._begins(record)
            new = epoch > begins.get(stage, 0)
            log = self._log(record.folder)
            records = log.unpublished(stage, epoch) if new else ()
            begun = (one.prepared_ms for one in log.generations[-1:])
            ended = (one.prepared_ms for one in records[-1:])
            # Its tables were made at that time, or before it if it was brought back.
            created_ms = int(record.created_at.timestamp() * 1000)
            kept.last_ms = max([kept.last_ms, created_ms, at_ms, *begun, *ended])
            kept.waiting[stage] = records
