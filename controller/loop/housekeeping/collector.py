"""Garbage collection: removes files of a dataflow that are no longer needed.

A collection is due every `every` epochs of a dataflow, at the first tick that starts nothing;
after twice as many epochs, at any tick. First, the dataflow's position is saved with the records of
its runs. Then its tables are collected (`cbp.engine.direct.table_collector`): a bounded part
at a time, on the thread that ticks, beside the runs under way. Finally, the collection removes the
records that the position replaces, and inputs that were kept for long enough.

Invariant: nothing is removed that a connector or an unfinished record still needs, wherever a crash
happens (tests/controller/loop/housekeeping/test_housekeeping.py). Nothing is stored about
collections: after a restart every dataflow is examined once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

import structlog

from cbp.engine.interface.garbage_collector import GarbageCollector, Retention, TablePlan
from cbp.errors import CbpError
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.position import Position
from cbp.model.flow.retention import Expiry
from controller.loop.author.punctuations import Punctuations
from controller.loop.housekeeping.input_retention import Inputs, files_of
from controller.loop.housekeeping.scrubbing import Scrubbing
from controller.loop.reading.reach import Reach, reach_of
from controller.loop.reading.rebuild_backlog import Rebuilding
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.output_retention import OutputRetention
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.run_commit import ParkedRuns
from controller.store.base import DataflowRecord

BUSY_TICKS = 32
"""While every tick starts runs, only one tick in this many checks whether much is due."""

_COLLECTED = "is garbage-collected"
_MARGIN_SECONDS = 60.0
"""Added to a retention time: the engine reads the clock again up to this many seconds later."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Garbage:
    """The result of a collection of one dataflow: removed and kept files, with reasons.

    Attributes:
        tables: Table folder -> its removed and kept files.
        inputs: Source -> its removed increments, and why the first remaining one stays.
        outputs: Flow -> the same for outputs that are not kept forever. A run of their stage
            removes their files, not this collection.
    """

    tables: Mapping[str, TablePlan]
    inputs: Mapping[str, Expiry]
    outputs: Mapping[str, Expiry]


@dataclass(frozen=True, slots=True)
class LastCollection:
    """The last collection of a dataflow."""

    at: datetime
    by: Literal["request", "idle work"]
    files: int
    bytes: int


@dataclass(kw_only=True, eq=False)
class Collector(DataflowPart):
    """Collects garbage; called by one thread.

    A dataflow whose lock (`exclusion`) is held is left to a later tick. While a rebuild is under
    way, the tables from before it also stay readable, up to `retention.versions_max` versions.

    Attributes:
        every: Number of epochs of a dataflow, over all stages, between two collections.
        records_kept: As in `LoopLimits`.
    """

    garbage: GarbageCollector
    publisher: Publisher
    parked: ParkedRuns
    keeping: OutputRetention
    punctuations: Punctuations
    exclusion: DataflowLocks
    isolation: Isolation
    held: Callable[[], Collection[str]]
    retention: Retention
    rebuilding: Rebuilding
    inputs: Inputs
    every: int
    records_kept: int
    scrubbing: Scrubbing
    epochs: Callable[[], Mapping[str, int]]

    def __post_init__(self) -> None:
        self._kept_at: dict[str, int] = {}
        self._last = dict[str, LastCollection]()
        self._ticks = 0

    def keep(self, *, calm: bool) -> None:
        """Collect dataflows that are due."""
        self._ticks += 1
        if calm:
            self.scrubbing.step()
        if not calm and self._ticks % BUSY_TICKS:
            return
        patience = self.every if calm else 2 * self.every
        for name, epochs in self.epochs().items():
            # If a change removed stages, there are fewer epochs than before: it is due now.
            since = epochs - self._kept_at.get(name, -patience)
            if name in self.held() or not epochs or 0 <= since < patience:
                continue
            with self.exclusion.attempt(name, _COLLECTED) as free:
                if free:
                    self._kept_at[name] = epochs
                    self.isolation.attempt(name, "garbage-collected", partial(self._keep, name))

    def look(self, name: str) -> Garbage:
        """Return the files that a collection would remove now, and why the others stay."""
        record = self.store.dataflow(name)
        past = self._past(record)
        nodes = [node for unit in self.catalog.units(record).values() for node in unit.members]
        return Garbage(
            {
                table: plan
                for node in nodes
                for table, plan in self._planned(record, node, past, dry_run=True).items()
            },
            self.inputs.plan(record, self._needed(name, past)),
            self.garbage.expired(record.folder, self.keeping.of(record, nodes)),
        )

    def collect(self, name: str) -> Garbage:
        """Collect a dataflow now; return the result of `look` from just before.

        Raises `NotFoundError`, or the error because of which garbage is left.
        """
        with self.exclusion.hold(name, _COLLECTED):
            garbage = self.look(name)
            self._kept_at[name] = self.store.epochs().get(name, 0)
            self._carry_out(name, "request")
            return garbage

    def forget(self, name: str, folder: str) -> None:
        """Forget a deleted dataflow; `folder` is where its tables were."""
        self._kept_at.pop(name, None)
        self._last.pop(name, None)
        self.rebuilding.forget(folder)

    def reach(self, name: str) -> Reach:
        """Return how far back a replacement, a rebuild or a roll-back can go; reads only."""
        return reach_of(self.store.dataflow(name), self)

    def needed(self, record: DataflowRecord) -> set[str]:
        """Return the files that a dataflow needs, besides the files of its tables."""
        return self._needed(record.name, self._past(record))

    def last(self, name: str) -> LastCollection | None:
        """Return the last collection since this instance leads; `None` if there was none."""
        return self._last.get(name)

    def _keep(self, name: str) -> None:
        try:
            self._carry_out(name, "idle work")
        except CbpError as error:
            # Waiting loses nothing: the next collection finds the same, and more.
            _log.warning("collection.failed", dataflow=name, error=error.as_dict())

    def _carry_out(self, name: str, by: Literal["request", "idle work"]) -> None:
        files = bytes_ = 0
        record = self.store.dataflow(name)
        # First: what was framed before the position is never framed again, so its files can go.
        position = self._keep_position(record)
        past = self._past(record)
        parked = self.parked.all()
        for leader, unit in self.catalog.units(record).items():
            # Not while parked: the files of an interrupted publication are in no table yet.
            if (record.name, leader) not in parked:
                for node in unit.members:
                    removed = self._collect(record, node, past)
                    files, bytes_ = files + removed[0], bytes_ + removed[1]
        self._trim(record, position)
        self.inputs.remove(record, self.inputs.plan(record, self._needed(name, past)))
        self.inputs.forget(record, position)
        self._last[name] = LastCollection(self.clock(), by, files, bytes_)

    def _collect(self, record: DataflowRecord, node: StageNode, past: Set[str]) -> tuple[int, int]:
        """Collect a stage's tables; return how many files and bytes were removed."""
        files = bytes_ = 0
        for table, plan in self._planned(record, node, past, dry_run=False).items():
            if plan.dead or plan.entries:
                figures = {"files": len(plan.dead), "bytes": sum(f.bytes for f in plan.dead)}
                figures |= {"entries": plan.entries, "base": plan.base}
                _log.info("table.collected", dataflow=record.name, table=table, **figures)
                files, bytes_ = files + figures["files"], bytes_ + figures["bytes"]
        return files, bytes_

    def _planned(
        self, record: DataflowRecord, node: StageNode, past: Set[str], *, dry_run: bool
    ) -> Mapping[str, TablePlan]:
        return self.garbage.collect(
            record.folder,
            node,
            queued=lambda: self._needed(record.name, past),
            retention=self._retention_of(record),
            dry_run=dry_run,
        )

    def _retention_of(self, record: DataflowRecord) -> Retention:
        """Return how long versions stay; those from before a rebuild stay until its end."""
        since_ms = self.rebuilding.since_ms(record, self.store.connectors(record.name))
        if since_ms is None:
            swapped_ms = self.rebuilding.swapped_ms(record)
            oldest_ms = int((self.clock().timestamp() - self.retention.seconds) * 1000)
            if swapped_ms is None or swapped_ms < oldest_ms:
                return self.retention
            # The tables before a swap stay as long as versions do, however many followed.
            return replace(self.retention, versions_max=sys.maxsize)
        seconds = self.clock().timestamp() - since_ms / 1000 + _MARGIN_SECONDS
        return replace(self.retention, seconds=max(self.retention.seconds, seconds))

    def _needed(self, dataflow: str, past: Set[str]) -> set[str]:
        """Return the files that unpublished records name, or that wait in connectors.

        Called again for each table, after the table was read.
        """
        waiting = self.store.connectors(dataflow).values()
        return self.publisher.files_needed(dataflow) | files_of(waiting) | past

    def _past(self, record: DataflowRecord) -> Set[str]:
        """Return the files that waited at kept positions; only this thread puts positions."""
        positions = self.open_log(record.folder).positions()
        return files_of(stage.connectors for one in positions for stage in one.stages.values())

    def _keep_position(self, record: DataflowRecord) -> Position:
        """Return a dataflow's position; first put it, if it has framed inputs or spare records."""
        log = self.open_log(record.folder)
        position = self.store.position(record.name)
        frames = any(
            connector.framing is not None
            for stage in position.stages.values()
            for connector in stage.connectors.values()
        )
        if frames or self._limits(record, position):
            return log.put_position(position, keep_seconds=self.retention.seconds)
        return position

    def _trim(self, record: DataflowRecord, position: Position) -> None:
        """Remove the records that a position replaces.

        A record stays while its tables may not show it. The newest record always stays: it says
        which records are unpublished. Records after the oldest kept position stay too, since a
        roll-back may go there.
        """
        limits = self._limits(record, position)
        if not limits:
            return
        oldest = self.open_log(record.folder).oldest_position() or position
        for name in limits:
            first_epoch = oldest.stages[name].epoch if name in oldest.stages else 0
            limits[name] = min(limits[name], first_epoch - self.records_kept)
        # Closes made since then stay as well: a roll-back restores them.
        closes = min(position.punctuations, oldest.punctuations)
        self.punctuations.log(record.folder).trim(closes)
        removed = self.open_log(record.folder).trim(limits)
        if removed:
            _log.info("records.trimmed", dataflow=record.name, records=removed)

    def _limits(self, record: DataflowRecord, position: Position) -> dict[str, int]:
        """Return stage -> the first epoch whose record stays; empty if all stay."""
        log = self.open_log(record.folder)
        limits: dict[str, int] = {}
        for name, stage in position.stages.items():
            newest = log.read(name, stage.epoch - 1) if stage.epoch else None
            if newest is not None:
                oldest = min(newest.unpublished_from, newest.epoch)
                limits[name] = oldest - self.records_kept
        return limits if any(limit > 0 for limit in limits.values()) else {}
