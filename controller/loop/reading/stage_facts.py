"""Facts of one stage for people: the size of its state, its code, its limits, its last error.

The size comes from the log of the table: its cost grows with the number of files, and no record
is read. Reads only.

`SetAsideCounts` counts the records that each stage has set aside now, from the logs of the tables.
So the count is the same after a restart, with a rebuilt store, and in an instance that only reads.
Counts are kept until the dataflow changes. A table may be published some time after its run was
committed, so a count is kept only once it agrees with the figures of the stage's newest run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.delta.managed_table import open_table
from cbp.engine.interface.readers import RecordReader
from cbp.engine.storage.files import files_for, local_path
from cbp.engine.storage.table_names import set_aside_table
from cbp.errors import CbpError, FileDamagedError, NotFoundError
from cbp.model.flow.back_pressure import DEFAULT_LIMIT, FlowLimit
from cbp.model.flow.skew import Spread, spread
from cbp.model.run.account import LookedUpTable, looked_up
from cbp.model.run.compactions import Compaction, last_compactions
from cbp.model.run.intention import Intention, RunStatus
from controller.loop.records.dataflow_part import DataflowPart
from controller.store.base import DataflowRecord, StageRecord, Store

RECORDS_EXAMINED = 10


@dataclass(frozen=True, slots=True)
class StageCode:
    """The code of a stage.

    Attributes:
        registered: Fingerprint with which this version was registered; empty if unknown.
        drift: How the loaded code differs, in words; empty if it may run.
        newer_files: Files of the code that have changed on disk since this process loaded them.
            Runs continue with the loaded code.
    """

    version: int
    registered: str
    loaded: str
    drift: str
    place: str
    newer_files: tuple[str, ...] = ()


@dataclass(kw_only=True, eq=False)
class StageFacts(DataflowPart):
    """Answers questions about one stage; safe to use from several threads."""

    records: RecordReader

    def states(self, dataflow: str, stage: str) -> dict[str, Spread]:
        """Return the size of each state of a stage, and its skew, as published."""
        _, node = self.catalog.stage(dataflow, stage)
        names = [(stage, state.name) for state in node.translator.states]
        return {state: one for (_, state), one in self.sizes(dataflow, names).items()}

    def state_names(self, dataflow: str) -> list[tuple[str, str]]:
        """Return the stage and the name of each state, sorted; raises `NotFoundError`."""
        _, compiled = self.catalog.find(dataflow)
        return sorted(
            (stage, state.name)
            for stage, node in compiled.stages.items()
            for state in node.translator.states
        )

    def sizes(
        self, dataflow: str, names: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], Spread]:
        """Return the published sizes of states, by stage and name."""
        record, compiled = self.catalog.find(dataflow)
        self.catalog.require_same_tables(record)
        return {
            (stage, state): spread(
                self.records.state_size(record.folder, node, state), node.buckets
            )
            for stage, state in names
            for node in (compiled.stages[stage],)
        }

    def code(self, dataflow: str, stage: str) -> StageCode:
        """Return the code of a stage, registered and loaded; raises `NotFoundError`."""
        record, node = self.catalog.stage(dataflow, stage)
        shape = self.descriptions.of(record).shape
        registered = None if shape is None else shape.stages.get(stage)
        return StageCode(
            version=record.version,
            registered="" if registered is None else registered.code.text,
            loaded=node.translator.code.text,
            drift=self.catalog.drift_of(record, stage),
            place=node.translator.place,
            newer_files=self.catalog.newer_files(record, stage),
        )

    def moments(self, dataflow: str, stage: str) -> dict[str, LookedUpTable]:
        """Return, by look-up, the moment as of which the last recorded run read its table.

        Corrections have no look-ups, so the records before them are read, too, up to
        `RECORDS_EXAMINED`. Empty if none of these has look-ups, or if a record is damaged,
        which recovery reports. Raises `NotFoundError`.
        """
        record, node = self.catalog.stage(dataflow, stage)
        if not node.translator.lookups:
            return {}
        _, compiled = self.catalog.find(dataflow)
        units, log = self.catalog.units(record), self.open_log(record.folder)
        leader = next(name for name, unit in units.items() if stage in unit.names)
        end = log.next_epochs().get(leader, 0)
        for epoch in range(end - 1, max(end - RECORDS_EXAMINED, 0) - 1, -1):
            try:
                intention = log.read(leader, epoch)
            except FileDamagedError:
                break
            if intention is None:
                break
            if tables := looked_up(intention, compiled.stages, stage):
                return {one.lookup: one for one in tables}
        return {}

    def compactions(self, dataflow: str) -> list[Compaction]:
        """Return the newest compaction of each table, by table; raises `NotFoundError`.

        Tables without a compaction in the examined records are left out. Damaged records are
        skipped; the code that needs them reports the damage.
        """
        log = self.open_log(self.store.dataflow(dataflow).folder)
        stages = self.store.stages(dataflow)
        each = max(RECORDS_LEAST, RECORDS_MOST // max(len(stages), 1))
        return last_compactions(one for stage in stages for one in _newest(log, stage, each))

    def limits(self, dataflow: str, stage: str) -> Mapping[str, FlowLimit]:
        """Return, by input, how much can wait there before the stage that writes it must wait.

        Inputs that no stage waits for are left out: those that read a source, and those inside
        the stage's own cycle.
        """
        _, node = self.catalog.stage(dataflow, stage)
        _, compiled = self.catalog.find(dataflow)
        cycle = compiled.cycles().get(stage, (stage,))
        limits = {}
        for name, flow in node.wiring.items():
            writer, _, output = flow.partition(".")
            if writer in compiled.stages and writer not in cycle:
                limits[name] = compiled.stages[writer].limits.get(output, DEFAULT_LIMIT)
        return limits


RECORDS_MOST = 256
"""Number of records of a dataflow that are read, divided among its stages."""

RECORDS_LEAST = 16
"""Number of records of a stage that are read, however many stages there are."""


def _newest(log: IntentionLog, stage: StageRecord, most: int) -> Iterator[Intention]:
    for epoch in range(max(0, stage.epoch - most), stage.epoch):
        try:
            record = log.read(stage.stage, epoch)
        except FileDamagedError:
            continue
        if record is not None:
            yield record


KEPT_MAX = 10_000
"""Number of dataflows whose counts are kept."""

_log = structlog.get_logger(__name__)


class SetAsideCounts:
    """Counts of all dataflows; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[object, dict[str, int]]] = {}

    def of(
        self, record: DataflowRecord, revisions: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Return how many records are set aside now, by stage; a stage without any is left out.

        A stage whose table cannot be read is also left out, and logged; `cbp doctor` names it.

        Args:
            revisions: Revisions of all dataflows (`Store.revisions`), if they are read already.
        """
        stages = list(_able(record))
        if not stages:
            return {}
        known = self._store.revisions() if revisions is None else revisions
        key = (known.get(record.name), record.folder, record.version)
        with self._lock:
            kept = self._kept.get(record.name)
        if kept is not None and kept[0] == key:
            return dict(kept[1])
        counts = {stage: _count(record, stage) for stage in stages}
        found = {stage: count for stage, count in counts.items() if count}
        if key[0] is not None and self._are_shown(record, counts):
            with self._lock:
                self._kept.pop(record.name, None)
                self._kept[record.name] = key, found
                while len(self._kept) > KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
        return dict(found)

    def _are_shown(self, record: DataflowRecord, counts: Mapping[str, int | None]) -> bool:
        """Return whether the tables show the newest runs of their stages."""
        epochs = {one.stage: one.epoch for one in self._store.stages(record.name)}
        for stage, count in counts.items():
            runs = self._store.runs(
                record.name, stage=stage, status=RunStatus.COMMITTED, limit=1
            ).items
            now = runs[0].figures.get("set_aside_now") if runs else None
            newest = bool(runs) and runs[0].epoch + 1 == epochs.get(stage)
            if count is None or (newest and now is not None and now != count):
                return False
        return True


def _able(record: DataflowRecord) -> Iterator[str]:
    stages = record.document.get("stages")
    for stage, node in stages.items() if isinstance(stages, Mapping) else ():
        if isinstance(node, Mapping) and node.get("on_error") == "set_aside":
            yield stage


def _count(record: DataflowRecord, stage: str) -> int | None:
    path = f"{local_path(record.folder)}/{set_aside_table(stage)}"
    try:
        live = open_table(path, files_for(path)).snapshot.live.values()
    except NotFoundError:  # the tables of a new version are not made yet
        return None
    except CbpError as error:
        _log.warning("set_aside.unreadable", table=path, error=error.message)
        return None
    return sum(file.rows - file.dead for file in live)
