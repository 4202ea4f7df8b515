"""Housekeeping: what a dataflow leaves on disk stays bounded by what is still needed.

Every `every` epochs of a dataflow, at the first tick that starts nothing, and after
twice as many at any tick, its position is put beside the records of its runs. Then its
tables are collected (`cbp.engine.collect`): a bounded part at a time, on the thread that
ticks, beside the runs under way. Last go the records that the position stands for, and
inputs that were kept for long enough. Outputs that were, go with runs of their stages.

Invariant: nothing goes that a connector or a record which is not finished still needs,
wherever it crashes (tests/controller/test_housekeeping.py). Nothing here is remembered:
a restart looks at everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass

import structlog

from cbp.engine.base import Engine
from cbp.engine.collect import Retention, TablePlan
from cbp.engine.intentions import RECORDS_KEPT
from cbp.errors import CbpError
from cbp.model.connector import Connector
from cbp.model.dataflow import StageNode
from cbp.model.position import Position
from cbp.model.retention import Expiry
from controller.loop.catalog import Catalog
from controller.loop.exclusion import Exclusion
from controller.loop.punctuations import Punctuations
from controller.loop.retention import Inputs
from controller.loop.runs import Runs
from controller.store.base import DataflowRecord, Store

__all__ = ["Garbage", "Housekeeping"]

BUSY_TICKS = 32
"""Ticks that start something pass, until one looks all the same whether much is due."""

_COLLECTED = "is collected"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a collection of one dataflow removes, and what stays, with the reasons.

    Attributes:
        tables: Table folder to what goes and stays of it.
        inputs: Source to what goes of its increments, and why the first one stays.
        outputs: The same of the files of outputs that are not kept for good, by flow; they go
            with a run of their stage, not by this collection.
    """

    tables: Mapping[str, TablePlan]
    inputs: Mapping[str, Expiry]
    outputs: Mapping[str, Expiry]


class Housekeeping:
    """Collects what nobody needs; called by one thread.

    Args:
        store: Where the connectors are.
        engine: Whose tables they are.
        catalog: Of compiled dataflows.
        runs: Those under way.
        punctuations: Of flows that are framed.
        exclusion: A dataflow whose turn is taken is left to a later tick.
        held: Returns the dataflows that are changed or amended; they are passed over.
        retention: How long a table's past stays readable.
        inputs: Knows what of the inputs goes.
        every: Epochs of a dataflow between two collections, over all its stages.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        catalog: Catalog,
        runs: Runs,
        punctuations: Punctuations,
        exclusion: Exclusion,
        held: Callable[[], Collection[str]],
        retention: Retention,
        inputs: Inputs,
        every: int,
    ) -> None:
        self._store, self._engine, self._catalog, self._runs = store, engine, catalog, runs
        self._exclusion, self._retention, self._every = exclusion, retention, every
        self._punctuations, self._inputs = punctuations, inputs
        self._held = held
        self._kept_at: dict[str, int] = {}
        self._ticks = 0

    def keep(self, *, calm: bool) -> None:
        """Collect what is due.

        Args:
            calm: Whether the tick before started nothing.
        """
        self._ticks += 1
        if not calm and self._ticks % BUSY_TICKS:
            return
        patience = self._every if calm else 2 * self._every
        for name, epochs in self._store.epochs().items():
            # A change may take stages, hence epochs, away: then look at once.
            since = epochs - self._kept_at.get(name, -patience)
            if name in self._held() or not epochs or 0 <= since < patience:
                continue
            with self._exclusion.attempt(name, _COLLECTED) as free:
                if free:
                    self._kept_at[name] = epochs
                    self._keep(name)

    def look(self, name: str) -> Garbage:
        """Return what of a dataflow a collection would remove now, and why the rest stays.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        record = self._store.dataflow(name)
        past = self._past(record)
        nodes = [node for unit in self._catalog.units(record).values() for node in unit.members]
        return Garbage(
            {
                table: plan
                for node in nodes
                for table, plan in self._planned(record, node, past, dry_run=True).items()
            },
            self._inputs.plan(record, self._needed(name, past)),
            self._engine.expired(record.folder, self._runs.keeping.of(record, nodes)),
        )

    def collect(self, name: str) -> Garbage:
        """Collect a dataflow now; return what was found before.

        Raises:
            NotFoundError: If there is no such dataflow.
        """
        with self._exclusion.hold(name, _COLLECTED):
            found = self.look(name)
            self._kept_at[name] = self._store.epochs().get(name, 0)
            self._keep(name)
            return found

    def _keep(self, name: str) -> None:
        try:
            record = self._store.dataflow(name)
            # First: what was framed before it need never be framed again, so its files may go.
            position = self._keep_position(record)
            past = self._past(record)
            parked = self._runs.parked()
            for leader, unit in self._catalog.units(record).items():
                # A publication that stopped half-way names files in no table yet.
                if (record.name, leader) not in parked:
                    for node in unit.members:
                        self._collect(record, node, past)
            self._trim(record, position)
            self._inputs.remove(record, self._inputs.plan(record, self._needed(name, past)))
            self._inputs.forget(record, position)
        except CbpError as error:
            # Nothing is lost by waiting: the next time finds the same, and more.
            _log.warning("collection.failed", dataflow=name, error=error.as_dict())

    def _collect(self, record: DataflowRecord, node: StageNode, past: Set[str]) -> None:
        for table, plan in self._planned(record, node, past, dry_run=False).items():
            if plan.dead or plan.entries:
                figures = {"files": len(plan.dead), "bytes": sum(f.bytes for f in plan.dead)}
                figures |= {"entries": plan.entries, "base": plan.base}
                _log.info("table.collected", dataflow=record.name, table=table, **figures)

    def _planned(
        self, record: DataflowRecord, node: StageNode, past: Set[str], *, dry_run: bool
    ) -> Mapping[str, TablePlan]:
        return self._engine.collect(
            record.folder,
            node,
            queued=lambda: self._needed(record.name, past),
            retention=self._retention,
            dry_run=dry_run,
        )

    def _needed(self, dataflow: str, past: Set[str]) -> set[str]:
        """Return the files that unpublished records name, or that wait in connectors.

        Asked anew for each table, behind the look at it.

        Args:
            dataflow: Its name.
            past: What waited in them at a position that is kept: a roll-back needs it.
        """
        waiting = self._store.connectors(dataflow).values()
        return self._runs.publisher.files_needed(dataflow) | _files_of(waiting) | past

    def _past(self, record: DataflowRecord) -> Set[str]:
        """Return the files that waited at the positions that are kept; only we put positions."""
        kept = self._runs.log(record.folder).positions()
        return _files_of(stage.connectors for one in kept for stage in one.stages.values())

    def _keep_position(self, record: DataflowRecord) -> Position:
        """Put where the dataflow stands, if it frames or has records to spare; return it."""
        log = self._runs.log(record.folder)
        position = self._store.position(record.name)
        frames = any(
            connector.framing is not None
            for stage in position.stages.values()
            for connector in stage.connectors.values()
        )
        if frames or self._limits(record, position):
            return log.put_position(position, keep_seconds=self._retention.seconds)
        return position

    def _trim(self, record: DataflowRecord, position: Position) -> None:
        """Remove the records that a position stands for.

        A record stays while its tables may not show it, and the newest in any case: it
        tells which ones these are. And those behind the oldest position that is kept stay:
        a roll-back may go there.
        """
        limits = self._limits(record, position)
        if not limits:
            return
        oldest = self._runs.log(record.folder).oldest_position() or position
        for name in limits:
            kept = oldest.stages[name].epoch if name in oldest.stages else 0
            limits[name] = min(limits[name], kept - RECORDS_KEPT)
        # So do the closes made since: a roll-back puts them where they stood.
        closes = min(position.punctuations, oldest.punctuations)
        self._punctuations.log(record.folder).trim(closes)
        removed = self._runs.log(record.folder).trim(limits)
        if removed:
            _log.info("records.trimmed", dataflow=record.name, records=removed)

    def _limits(self, record: DataflowRecord, position: Position) -> dict[str, int]:
        """Return stage -> the first epoch whose record stays; empty when all do."""
        log = self._runs.log(record.folder)
        limits: dict[str, int] = {}
        for name, stage in position.stages.items():
            newest = log.read(name, stage.epoch - 1) if stage.epoch else None
            if newest is not None:
                limits[name] = min(newest.unpublished_from, newest.epoch) - RECORDS_KEPT
        return limits if any(limit > 0 for limit in limits.values()) else {}


def _files_of(stages: Iterable[Mapping[str, Connector]]) -> set[str]:
    """Return the files of everything that connectors hold, stage by stage."""
    return {
        file.path
        for connectors in stages
        for connector in connectors.values()
        for increment in connector.held
        for file in increment.kept
    }
