"""Snapshots: versions of a dataflow's tables that belong together, while runs continue.

A snapshot is read from the tables' logs and the intention logs alone, without a lock. So every
instance of the service can answer, and no run waits. The tables are read first, then the records,
then the tables again. A publication in between changes the second reading; an earlier one is in
the tables; a later one has left its record (`cbp.model.flow.snapshot` has the rule).

Invariant: no snapshot shows a part of a publication, whatever is published meanwhile and
however publications die (tests/controller/loop/reading/test_snapshots.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.interface.readers import TableHistory
from cbp.engine.storage.table_names import stage_tables
from cbp.errors import InvariantError, NotFoundError
from cbp.model.flow.generation import home_of
from cbp.model.flow.snapshot import Snapshot, TableVersion, earlier
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.intention import Intention
from controller.loop.records.compiled_dataflows import Units
from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord

READINGS_MAX = 1000
"""Largest number of readings of the tables; each repetition follows a publication in between."""

_Tables = Mapping[str, TableVersion]


@dataclass(kw_only=True, eq=False)
class Snapshots(DataflowPart):
    """Finds snapshots; safe to use from several threads."""

    history: TableHistory
    retention: Retention

    def take(
        self,
        name: str,
        *,
        epoch: int | None = None,
        stage: str | None = None,
        at_ms: int | None = None,
    ) -> Snapshot:
        """Return the newest snapshot, or the newest as of an epoch or a time.

        Args:
            epoch: As of the first publication that shows this epoch of `stage`, or of
                every stage.
            stage: Any stage; its epochs are those of the stage that leads it.

        Raises:
            NotFoundError: If there is no such dataflow or stage, or if the epoch or the time
                is not published yet, or no longer readable.
        """
        record, _ = self.catalog.find(name)
        units = self.catalog.units(record)
        if epoch is not None:
            leaders = list(units) if stage is None else [self.catalog.leader(name, stage)]
            shown = [self._published_ms(record, units[leader], epoch) for leader in leaders]
            at_ms = min([max(shown), *(() if at_ms is None else (at_ms,))])
        return self._whole(record, units, at_ms, self.now_ms())

    def _whole(
        self, record: DataflowRecord, units: Units, at_ms: int | None, now_ms: int
    ) -> Snapshot:
        newest, log = at_ms is None, self.open_log(record.folder)
        tables = self._shown(record, units, at_ms)
        for _ in range(READINGS_MAX):
            stamp = max((table.stamp_ms for table in tables.values()), default=0)
            records = {leader: _open(log, leader) for leader in units}
            back = earlier(stamp, _lacking(records, tables))
            if back is not None:
                newest, at_ms = False, back
                tables = self._shown(record, units, back)
                continue
            again = self._shown(record, units, at_ms if newest else stamp)
            if _same(again, tables):
                return self._snapshot(record, units, again, records, newest, now_ms)
            tables = again
        message = (
            f"no consistent snapshot of {record.name!r} was found: its tables changed during each "
            f"of {READINGS_MAX} readings"
        )
        raise InvariantError(message, dataflow=record.name)

    def _snapshot(
        self,
        record: DataflowRecord,
        units: Units,
        tables: _Tables,
        records: Mapping[str, tuple[Intention, ...]],
        newest: bool,
        now_ms: int,
    ) -> Snapshot:
        stamp = max((table.stamp_ms for table in tables.values()), default=0)
        # A record that changed no table is in no table; it counts if nothing else is missing.
        complete = newest and not _lacking(records, tables)
        epochs = {}
        for leader, unit in units.items():
            names = [table for node in unit.members for table in stage_tables(node)]
            shown = max([-1, *(tables[name].epoch for name in names)])
            until = None if complete else stamp
            epochs[leader] = max(shown, self._put_by(record, leader, records[leader], until))
        gone = [t.superseded_ms for t in tables.values() if t.superseded_ms is not None]
        readable = min([now_ms, *gone]) + int(self.retention.seconds * 1000)
        return Snapshot(record.name, record.folder, stamp, epochs, dict(tables), newest, readable)

    def _put_by(
        self, record: DataflowRecord, leader: str, records: tuple[Intention, ...], at_ms: int | None
    ) -> int:
        """Return the last epoch of a stage whose record was put by that time; -1 if none."""
        for one in reversed(records):
            if at_ms is None or one.prepared_ms <= at_ms:
                return one.epoch
        log, epoch = self.open_log(record.folder), records[0].epoch - 1 if records else -1
        while epoch >= 0:
            older = log.read(leader, epoch)
            if older is None or at_ms is None or older.prepared_ms <= at_ms:
                return epoch
            epoch -= 1
        return epoch

    def _shown(
        self, record: DataflowRecord, units: Units, at_ms: int | None
    ) -> dict[str, TableVersion]:
        versions: dict[str, TableVersion] = {}
        for unit in units.values():
            for node in unit.members:
                versions.update(self.history.shown(record.folder, record.name, node, at_ms=at_ms))
        return versions

    def _published_ms(self, record: DataflowRecord, unit: PhysicalStage, epoch: int) -> int:
        """Return when an epoch of a physical stage was published.

        All tables that an epoch changed are published at one time; tables that it did not change
        show it later. An epoch that changed no table counts from when it was recorded.
        """
        leader, log = unit.leader.name, self.open_log(record.folder)
        missing = NotFoundError(
            kind=f"published epoch {epoch} of stage", name=f"{record.name}.{leader}"
        )
        if epoch >= log.next_epochs().get(leader, 0):
            raise missing
        generation = home_of(log.generations, leader, epoch)
        stamps = [
            (version.stamp_ms, version.epoch, node)
            for node in unit.members
            for version in self.history.first_shown(
                record.folder, record.name, node, epoch, generation
            ).values()
        ]
        if not stamps:
            raise missing
        stamp_ms, shown, node = min(stamps, key=lambda one: one[:2])
        if shown <= epoch:
            return stamp_ms
        # Several epochs were published together, or this one changed nothing. Or its version was
        # collected: then no earlier version is readable, and this call raises.
        self.history.shown(record.folder, record.name, node, at_ms=stamp_ms - 1)
        recorded = log.read(leader, epoch)
        if recorded is not None and not any(one.data_change for one in recorded.changes):
            return recorded.prepared_ms
        return stamp_ms


def _open(log: IntentionLog, leader: str) -> tuple[Intention, ...]:
    """Return records that a stage's tables may not show; always includes the newest record."""
    return log.unpublished(leader, log.next_epochs().get(leader, 0))


def _lacking(records: Mapping[str, tuple[Intention, ...]], tables: _Tables) -> list[int]:
    """Return, for each stage with unpublished records, when the first of them was put."""
    lacking_epochs = []
    for many in records.values():
        lacking = (
            one.prepared_ms
            for one in many
            if any(
                # A record of compactions alone does not count: readers see no difference.
                change.data_change and tables[change.table].epoch < one.epoch
                for change in one.changes
                if change.table in tables
            )
        )
        lacking_epochs += [first for first in (next(lacking, None),) if first is not None]
    return lacking_epochs


def _same(left: _Tables, right: _Tables) -> bool:
    return {n: t.version for n, t in left.items()} == {n: t.version for n, t in right.items()}
