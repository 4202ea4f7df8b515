"""Publication: keeps records that are committed and not published yet, and publishes them.

    finish a run ----> due? --no--> kept here, and passed to the next run of its stage
                        '--yes-> published with everything that is kept of its dataflow

What is kept is an index of the intention logs. After a crash it is read from the logs again, as
far back as each newest record says (`Intention.unpublished_from`). One lock per dataflow guards
both putting records and publishing. So the contents and the timestamp of a publication follow
from the newest records alone, and an interrupted publication can be completed.

Invariants (tests/controller/loop/runs/test_publication.py): a run gets every record of its stage
that its tables do not show; no record is dropped here before it is published.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.commit.table_entries import KINDS, files_named
from cbp.engine.interface.tables import TablePublisher
from cbp.errors import CbpError, FileDamagedError
from cbp.model.dataflow.dataflow import EVERY_EPOCH, PublishPolicy
from cbp.model.run.intention import Intention
from cbp.model.run.publication import Publication, due
from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Unpublished:
    """The records of one dataflow.

    Attributes:
        waiting: Stage -> its records that may be unpublished, oldest first; a stage that was
            not looked up yet is missing.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    waiting: dict[str, tuple[Intention, ...]] = field(default_factory=dict)
    last_ms: int = 0


@dataclass(kw_only=True, eq=False)
class Publisher(DataflowPart):
    """Keeps records until they are published; safe to use from several threads."""

    tables: TablePublisher

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting_by_dataflow: defaultdict[str, _Unpublished] = defaultdict(_Unpublished)

    def lock(self, dataflow: str) -> threading.RLock:
        """Return the lock that guards putting records of a dataflow, and publishing it."""
        return self._of(dataflow).lock

    def before(self, record: DataflowRecord, stage: str, epoch: int) -> tuple[Intention, ...]:
        """Return the records from before an epoch that the tables of a stage may not show yet.

        Raises `InvariantError` if such a record is damaged or missing.
        """
        unpublished = self._of(record.name)
        if stage not in unpublished.waiting:
            with unpublished.lock:
                self._load(unpublished, record, stage, epoch)
        return tuple(one for one in unpublished.waiting[stage] if one.epoch < epoch)

    def next_ms(self, dataflow: str, now_ms: int | None = None) -> int:
        """Return the present time, or a later one if a record has a later time.

        Clocks may be set back, but the times of records only rise.

        A compaction is a second table entry, one millisecond later, and a retention a third one.
        With records three milliseconds apart, all tables of a publication have equal timestamps,
        and a reader AS OF one of them sees the complete publication.

        Args:
            now_ms: The present time, if the caller has read the clock.
        """
        unpublished = self._of(dataflow)
        with unpublished.lock:
            now_ms = self.now_ms() if now_ms is None else now_ms
            return max(now_ms, unpublished.last_ms + len(KINDS))

    def add(self, record: DataflowRecord, intention: Intention) -> None:
        """Keep a record; the caller holds the lock. Raises as `before`."""
        unpublished = self._of(record.name)
        older = self.before(record, intention.stage, intention.epoch)
        unpublished.waiting[intention.stage] = (*older, intention)
        unpublished.last_ms = max(unpublished.last_ms, intention.prepared_ms)

    def due(
        self,
        record: DataflowRecord,
        now_ms: int,
        *,
        without: Collection[str] = (),
        at_once: bool = False,
    ) -> Publication | None:
        """Return the publication that is due; `None` if none is.

        Args:
            without: Stages whose records stay unpublished.
            at_once: Publish everything now, whatever the dataflow's `publish` says.
        """
        waiting = self.records(record.name)
        for stage in without:
            waiting.pop(stage, None)
        return due(self._policy(record), waiting, now_ms=now_ms, at_once=at_once)

    def publish(self, record: DataflowRecord, publication: Publication) -> dict[str, Exception]:
        """Publish stage by stage; a stage that fails does not hold up the others.

        The caller holds the lock.

        Returns:
            Stage -> its failure; the records of such a stage stay here.
        """
        unpublished = self._of(record.name)
        failures: dict[str, Exception] = {}
        for stage, records in publication.covers.items():
            try:
                self.tables.publish(record.folder, records, timestamp_ms=publication.timestamp_ms)
            except Exception as error:  # any failure: the records stay, publishing is repeated
                failures[stage] = error
            else:
                last = records[-1].epoch
                left = (one for one in unpublished.waiting.get(stage, ()) if one.epoch > last)
                unpublished.waiting[stage] = tuple(left)
        covers = {stage: records[-1].epoch for stage, records in publication.covers.items()}
        _log.info("dataflow.published", dataflow=record.name, epochs=covers, failed=[*failures])
        return failures

    def newest(self, dataflow: str, stage: str) -> Intention:
        """Return the newest unpublished record of a stage."""
        return self._of(dataflow).waiting[stage][-1]

    def files_needed(self, dataflow: str) -> set[str]:
        """Return the files that unpublished records name, relative to the dataflow's folder.

        The garbage collection must not remove them. Call this after reading the tables, so that
        a file published in between is not missed.
        """
        waiting = self.records(dataflow)
        return files_named(one for records in waiting.values() for one in records)

    def unpublished_dataflows(self) -> list[str]:
        """Return the dataflows whose records are kept here."""
        with self._lock:
            kept = list(self._waiting_by_dataflow.items())
        return [name for name, one in kept if any(list(one.waiting.values()))]

    def unpublished(self, dataflow: str) -> Mapping[str, int]:
        """Return, by stage, how many epochs readers of its tables do not see yet."""
        return {stage: len(records) for stage, records in self.records(dataflow).items()}

    def records(self, dataflow: str) -> dict[str, tuple[Intention, ...]]:
        """Return, by stage, the records that readers of its tables do not see yet, oldest first.

        Does not wait for a publication under way.
        """
        return dict(self._of(dataflow).waiting)

    def forget(self, dataflow: str, *, since_ms: int = 0) -> None:
        """Drop the records of a dataflow that was deleted, rolled back or changed.

        Args:
            since_ms: Time of the amendment. Every later record gets a later time, even if the clock
                was set back.
        """
        with self._lock:
            last_ms = max(self._waiting_by_dataflow[dataflow].last_ms, since_ms)
            self._waiting_by_dataflow[dataflow] = _Unpublished(last_ms=last_ms)

    def forget_all(self) -> None:
        """Drop all records, since another controller may have written newer ones."""
        with self._lock:
            self._waiting_by_dataflow.clear()

    def _of(self, dataflow: str) -> _Unpublished:
        with self._lock:
            return self._waiting_by_dataflow[dataflow]

    def _policy(self, record: DataflowRecord) -> PublishPolicy:
        try:
            return self.catalog.compiled(record).publish
        except CbpError:
            # Its translators are gone, but its runs must be finished: leave nothing unpublished.
            return EVERY_EPOCH

    def _load(
        self, unpublished: _Unpublished, record: DataflowRecord, stage: str, epoch: int
    ) -> None:
        if stage not in unpublished.waiting:
            # Of this version only: before it took over, everything was published.
            begins, at_ms = self.descriptions.begins(record)
            new = epoch > begins.get(stage, 0)
            log = self.open_log(record.folder)
            records, applied = _unpublished(log, record.name, stage, epoch) if new else ((), 0)
            published = records[0].epoch if records else epoch
            if published > begins.get(stage, 0) and not applied:
                log.require_shown(stage, published - 1)
            begun = (one.prepared_ms for one in log.generations[-1:])
            ended = (one.prepared_ms for one in records[-1:])
            # The tables were made at `created_at`, or earlier if the dataflow was brought back.
            created_ms = int(record.created_at.timestamp() * 1000)
            unpublished.last_ms = max(
                [unpublished.last_ms, created_ms, at_ms, applied, *begun, *ended]
            )
            unpublished.waiting[stage] = records


def _unpublished(
    log: IntentionLog, dataflow: str, stage: str, epoch: int
) -> tuple[tuple[Intention, ...], int]:
    """Return the records that may be unpublished, and the time up to which the tables are current.

    A damaged or missing record is not needed if the tables show its complete epoch.
    """
    try:
        return log.unpublished(stage, epoch), 0
    except FileDamagedError as error:
        applied = log.applied_ms(stage, epoch - 1)
        if applied is None:
            raise
        _log.warning(
            "record.damaged_but_not_needed",
            dataflow=dataflow,
            stage=stage,
            epoch=epoch - 1,
            because="the tables already show its epoch",
            error=error.as_dict(),
        )
        return (), applied
