"""The promises of the service, looked for on the disk: what P1 to P6 say, after any crash.

    P1  every good file is accepted once, every bad one is quarantined, every increment is
        consumed as the recorded runs say, and those say what a Runnable may say
    P2  states, flows, queues and epochs are those of the reference engine
    P3  at every timestamp, all tables of a run show the same epoch of it
    P5  what lies in `finished` is in a source's log; what is recorded stays recorded
    P6  the same holds when the database was lost

P4 is P2: the reference engine computes from scratch what the service computed epoch by epoch.
Files are read by the log and Parquet alone, as any reader of Delta tables does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from cbp.engine.base import flow_table, state_table
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.log import DeltaLog
from cbp.engine.files import LocalFiles
from cbp.engine.reference import ReferenceEngine
from cbp.engine.state.vectors import read_vector
from cbp.model.dataflow import Dataflow, StageNode
from cbp.model.fusion import PhysicalStage, choose_leaders, physical_stages
from cbp.model.intention import Intention
from controller.ingest.source_log import SourceEntry, SourceLog
from tests.simulation.model import Broken, Record, Replay, multiset
from tests.simulation.world import NAME, World

__all__ = ["Checker"]


class Checker:
    """Looks at one world from outside; knows what it saw before.

    Attributes:
        records: Leader to its intentions, from epoch 0 on, also those removed since.
        entries: Source to the entries of its log.
    """

    def __init__(self, world: World) -> None:
        self.world, self._files = world, LocalFiles()
        self.dataflow: Dataflow = world.controller.registry.compile(world.plan.document)
        leaders = choose_leaders(self.dataflow)
        self.units: dict[str, PhysicalStage] = physical_stages(self.dataflow, leaders)
        self.records: dict[str, list[Intention]] = {name: [] for name in self.units}
        self.entries: dict[str, list[SourceEntry]] = {name: [] for name in self.dataflow.sources}
        self.replay = Replay(self.dataflow, self.units)
        self._rows: dict[tuple[str, int], list[Record]] = {}
        self._seen: set[int] = set()

    # what is recorded

    def observe(self) -> None:
        """Read what was recorded since, and that what was recorded stands; cheap."""
        log = self.world.log()
        for leader, records in self.records.items():
            if records:
                again = log.read(leader, len(records) - 1)
                _require(again == records[-1], f"P5: the record {records[-1].id} changed or went")
            records += log.since(leader, len(records))
        for source, entries in self.entries.items():
            log_of = SourceLog(self.world.folder, source, self._files)
            if entries:
                again_entry = next(log_of.since(len(entries) - 1), None)
                _require(again_entry == entries[-1], f"P5: the last entry of {source} changed")
            entries += log_of.since(len(entries))
        self._acknowledged()

    def _acknowledged(self) -> None:
        """Check the drop folder against the sources' logs."""
        for source, entries in self.entries.items():
            accepted = [entry.sha256 for entry in entries]
            _require(len(set(accepted)) == len(accepted), f"P1: {source} accepted a file twice")
            for name, data in self._files_in(source, "finished"):
                known = hashlib.sha256(data).hexdigest() in accepted
                _require(known, f"P5: {name} of {source} is finished, and in no log")
            for name, data in self._files_in(source, "quarantine"):
                if not name.endswith(".reason.json"):
                    bad = self.world.deliveries.bad(data)
                    _require(bad, f"P1: {name} of {source} is good and quarantined")
                    reason = self.world.place(source, "quarantine") / f"{name}.reason.json"
                    _require(reason.stat().st_size > 0, f"P5: {name} has no reason")

    def _files_in(self, source: str, folder: str) -> Iterator[tuple[str, bytes]]:
        place = self.world.place(source, folder)
        if place.is_dir():
            for name in sorted(os.listdir(place)):
                if not name.startswith("."):
                    yield name, (place / name).read_bytes()

    # after a recovery

    def recovered(self) -> None:
        """Check everything that holds once `recover` has returned and nothing failed in it."""
        self.observe()
        if not self.world.registered:
            return
        self._follow()
        self._check_store()
        self._check_tables()

    def settled(self) -> None:
        """Check that nothing is left to be done."""
        self.recovered()
        for source, entries in self.entries.items():
            missing = self.world.deliveries.missing(source, {e.sha256 for e in entries})
            _require(not missing, f"P1: {source} never accepted {missing}")
            for folder in ("incoming", "claimed"):
                left = [name for name, _ in self._files_in(source, folder)]
                _require(not left, f"P1: {left} of {source} stay in {folder}")
            claims = self.world.store.open_claims(NAME, source)
            _require(not claims, f"P1: open claims of {source}: {claims}")
        self._check_flows()
        if all(s.runnable.default and not s.translator.framed for s in self._nodes()):
            self._check_from_scratch()

    def _follow(self) -> None:
        """Bring the model to where the logs are."""
        for source, entries in self.entries.items():
            for entry in entries[self.replay.fed[source] :]:
                rows = self.world.deliveries.rows(source, entry.sha256)
                found = [
                    row
                    for file in entry.increment.files
                    for row in self._parquet(f"{self.world.folder}/{file.path}")
                ]
                _require(found == rows, f"P1: {entry.increment.name} has {found}, not {rows}")
                self.replay.feed(source, rows)
        self.replay.apply(self.records)

    def _check_store(self) -> None:
        world = self.world
        _require(not world.controller.problem, f"deposed: {world.controller.problem}")
        open_ = {run.stage for run in world.store.intended_runs()}
        waiting = world.controller._runs.parked().keys() | world.controller._runs.busy().keys()
        connectors = world.store.connectors(NAME)
        for stage in world.store.stages(NAME):
            if stage.paused_because or (NAME, stage.stage) in waiting:
                _require(world.injured, f"{stage.stage} stopped by itself: {stage.paused_because}")
                continue
            done = len(self.records[stage.stage])
            _require(stage.epoch == done, f"P2: {stage} in the store, {done} records in the log")
            _require(stage.stage not in open_, f"P2: a run of {stage.stage} is never ended")
            for name, connector in connectors[stage.stage].items():
                if connector.arrived:
                    continue  # frames are made at a tick
                found = [(q.increment.index, q.read) for q in connector.queue]
                model = self.replay.queue(stage.stage)[name].queue
                expected = [(q.increment.index, q.read) for q in model]
                what = f"P2: {stage.stage}.{name} holds {found}, not {expected}"
                _require(found == expected, what)

    # tables

    def _nodes(self) -> list[StageNode]:
        return list(self.dataflow.stages.values())

    def _check_tables(self) -> None:
        """Check the newest version of every table, and every timestamp not looked at before."""
        stopped = {name for _, name in self.world.controller._runs.parked()} | {
            stage.stage for stage in self.world.store.stages(NAME) if stage.paused_because
        }
        tables = {path: self._stamps(path) for unit in self.units for path in self._tables(unit)}
        for unit in self.units.keys() - stopped:
            epochs = self._epochs(unit, {path: None for path in self._tables(unit)})
            done = self.replay.applied[unit]
            _require(done in epochs, f"P2: the tables of {unit} show {epochs}, not epoch {done}")
        readable = max(min(stamps.values()) for stamps in tables.values())
        for stamp in sorted({s for stamps in tables.values() for s in stamps.values()}):
            if stamp < readable or stamp in self._seen:
                continue
            for unit in self.units:
                at = {
                    path: max(v for v, s in tables[path].items() if s <= stamp)
                    for path in self._tables(unit)
                }
                what = f"P3: at {stamp}, the tables of {unit} show no one epoch: {at}"
                _require(bool(self._epochs(unit, at)), what)
            if not stopped:
                self._seen.add(stamp)

    def _tables(self, unit: str) -> dict[str, str]:
        """Return table folder to what it is of: a state or a flow."""
        found = {}
        for node in self.units[unit].members:
            for state in node.translator.states:
                found[state_table(node.name, state.name)] = f"{node.name}.{state.name}"
            for output in node.translator.outputs:
                found[flow_table(node.name, output.name)] = f"{node.name}.{output.name}"
        return found

    def _stamps(self, table: str) -> dict[int, int]:
        log = DeltaLog(f"{self.world.folder}/{table}", self._files)
        return {version: log.stamp(version) for version in log.readable()}

    def _epochs(self, unit: str, at: Mapping[str, int | None]) -> set[int]:
        """Return the numbers of epochs after which the tables of a unit look like this."""
        fit = set(range(self.replay.applied[unit] + 1))
        for table, name in self._tables(unit).items():
            rows = self._table(table, at[table])
            if table.startswith("state/"):
                found = multiset({n: row[n] for n in row if n[0] != "_"} for row in rows)
                past = self.replay.past[name]
                fit = {epoch for epoch in fit if past[epoch] == found}
            else:
                fit &= self._shown(name, rows)
        return fit

    def _shown(self, flow: str, rows: list[Record]) -> set[int]:
        """Return after which epochs a flow has these records."""
        shown: dict[int, list[Record]] = {}
        for row in rows:
            plain = {name: value for name, value in row.items() if name != "_epoch"}
            shown.setdefault(row["_epoch"], []).append(plain)
        contents = self.replay.outputs(flow)
        whole = [multiset(shown.get(i, [])) == multiset(c) for i, c in enumerate(contents)]
        return {
            epoch
            for epoch in range(len(contents) + 1)
            if all(whole[:epoch]) and not any(i >= epoch for i in shown)
        }

    def _table(self, table: str, version: int | None) -> list[Record]:
        path = f"{self.world.folder}/{table}"
        snapshot = DeltaLog(path, self._files).snapshot(version)
        return [row for add in snapshot.live.values() for row in self._live(path, add)]

    def _live(self, table: str, add: AddFile) -> list[Record]:
        rows = self._parquet(f"{table}/{add.path}")
        _require(len(rows) == add.rows, f"P2: {add.path} has {len(rows)} rows, not {add.rows}")
        if add.deletion_vector is None:
            return rows
        dead = read_vector(table, add.deletion_vector, files=self._files)
        return [row for number, row in enumerate(rows) if number not in dead]

    def _parquet(self, path: str) -> list[Record]:
        found = os.stat(path)
        key = (path, found.st_ino)
        if key not in self._rows:
            self._rows[key] = pq.ParquetFile(path).read(use_threads=False).to_pylist()
        return self._rows[key]

    # at the end

    def _check_flows(self) -> None:
        """Check every flow as a service shows it: all records, in order."""
        for node in self._nodes():
            for output in node.translator.outputs:
                flow = f"{node.name}.{output.name}"
                found, _ = self.world.controller.read_flow(NAME, flow, None, 10_000)
                expected = [
                    {**row, "_epoch": epoch}
                    for epoch, rows in enumerate(self.replay.outputs(flow))
                    for row in rows
                ]
                _require([dict(row) for row in found] == expected, f"P2: {flow} reads {found}")

    def _check_from_scratch(self) -> None:
        """Check against an engine that decided by itself: nothing depends on when things ran."""
        alone = ReferenceEngine(self.dataflow)
        for source in self.dataflow.sources:
            for rows in self.replay.outputs(source):
                alone.feed(source, rows)
        alone.run_until_idle()
        for flow in self.dataflow.flows():
            same = alone.outputs(flow) == self.replay.outputs(flow)
            _require(same, f"P4: {flow} is not what an unbroken run gives")


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise Broken(message)
