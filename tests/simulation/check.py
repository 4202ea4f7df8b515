"""The promises of the service, looked for on the disk: what P1 to P6 say, after any crash.

    P1  every good file is accepted once, every bad one is quarantined or was decided about, every
        increment is consumed as the recorded runs say, and those say what a Runnable may say
    P2  states, flows, queues and epochs are those of the reference engine
    P3  at every timestamp, all tables of a run show the same epoch of it
    P5  what is in `finished` is also in a source's log; what is recorded stays recorded
    P6  the same holds when the database was lost
    P7  a timer fires once it is due, and no record says a later time than the earliest timer has

    P8  a run looks up a table as of one moment, which its record names: the newest then, never an
        earlier one than before, and not older than the changes that it reads; it is verified so
    P9  the change data feed of a view leads from each version of its table to the next

P4 is P2: the reference engine computes from scratch what the service computed epoch by epoch.
Files are read by the log and Parquet alone, as any reader of Delta tables does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from cbp.engine.commit.table_entries import horizon
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import read_vector
from cbp.engine.delta.log import DeltaLog
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.file_names import INDEX_PREFIX
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import flow_table, stage_tables, state_table
from cbp.model.dataflow.dataflow import StageNode
from cbp.model.flow.generation import increments_dropped
from cbp.model.verification import Request, behind
from controller.ingest.folder.eligible_files import CLOSE_NAME
from controller.ingest.folder.quarantine_folder import DECISION_SUFFIX, REASON_SUFFIX
from controller.ingest.source_log import SourceEntry
from tests.simulation.decider import Decider
from tests.simulation.feeds import Feeds
from tests.simulation.followed_tables import SOURCE
from tests.simulation.history import Era, History, require
from tests.simulation.model import Record, multiset
from tests.simulation.operations import framed_flows
from tests.simulation.operator import Operator
from tests.simulation.prioritizer import Prioritizer
from tests.simulation.replaced_files import takes_place
from tests.simulation.world import NAME, World

__all__ = ["Checker"]


class Checker:
    """Looks at one world from outside; knows what it saw before.

    Attributes:
        history: What is recorded, and the model that follows it.
    """

    def __init__(
        self, world: World, operator: Operator, decider: Decider, prioritizer: Prioritizer
    ) -> None:
        self.world, self.operator, self._files = world, operator, LocalFiles()
        self._decider, self._prioritizer = decider, prioritizer
        self.history = History(world, operator, self._look)
        self._rows: dict[tuple[str, int], list[Record]] = {}
        self._seen: set[int] = set()
        self._verified = False
        self._feeds = Feeds(world, self._rows_of, self._parquet)

    def observe(self) -> None:
        """Read what was recorded since, and that what was recorded is still there; cheap."""
        self.history.observe()
        self._follow_table()
        self._acknowledged()

    def _follow_table(self, *, settled: bool = False) -> None:
        if self.world.followed is not None:
            self.world.followed.check(self.history.entries[SOURCE], settled=settled)

    def _acknowledged(self) -> None:
        """Check the drop folder against the sources' logs."""
        for source, entries in self.history.entries.items():
            files = self._counted(source)
            require(len(set(files)) == len(files), f"P1: {source} accepted a file twice")
            accepted = {file.sha256 for entry in entries for file in entry.files}
            for name, data in self._files_in(source, "finished"):
                if name.endswith(CLOSE_NAME):
                    key = f"marker/{name.removesuffix(f'-{CLOSE_NAME}')}"
                    closed = any(one.key == key for one in self.history.closes)
                    require(closed, f"P5: {name} of {source} is finished, and closed nothing")
                    continue
                if name.endswith((REASON_SUFFIX, DECISION_SUFFIX)):
                    name = name.removesuffix(REASON_SUFFIX).removesuffix(DECISION_SUFFIX)
                    require(self._decider.kept(source, name), f"P5: nobody decided about {name}")
                    continue
                known = hashlib.sha256(data).hexdigest() in accepted
                known = known or self._decider.kept(source, name)
                require(known, f"P5: {name} of {source} is finished, and in no log")
            for name, data in self._files_in(source, "quarantine"):
                if name.endswith(CLOSE_NAME):
                    framed = source in framed_flows(self.world.plan.document)
                    require(not framed, f"P1: {name} of {source} is quarantined")
                elif not name.endswith((REASON_SUFFIX, DECISION_SUFFIX)):
                    bad = self.world.deliveries.bad(data)
                    require(bad, f"P1: {name} of {source} is good and quarantined")
                    reason = self.world.place(source, "quarantine") / f"{name}{REASON_SUFFIX}"
                    require(reason.stat().st_size > 0, f"P5: {name} has no reason")

    def _counted(self, source: str) -> list[tuple[str, str]]:
        """Return name and SHA-256 of the accepted files that no roll-back dropped."""
        gone = {
            index
            for one in self.world.log().generations
            for flow, part in one.retracted()
            if flow == source
            for index in part
        }
        entries = self.history.entries[source]
        kept = (one for one in entries if one.increment.index not in gone)
        return [(file.path, file.sha256) for one in kept for file in one.files]

    def _files_in(self, source: str, folder: str) -> Iterator[tuple[str, bytes]]:
        place = self.world.place(source, folder)
        if place.is_dir():
            for name in sorted(os.listdir(place)):
                if not name.startswith("."):
                    yield name, (place / name).read_bytes()

    # after a recovery

    def recovered(self, *, just: bool = True) -> None:
        """Check everything that holds once `recover` has returned and nothing failed in it.

        Args:
            just: Whether nothing happened since.
        """
        self.observe()
        if not self.world.registered:
            return
        self.history.follow()
        answered = self.operator.answered
        told = {*self.history.corrections, *(one.key for one in self.history.closes)}
        told |= {era.request for era in self.history.eras}
        require(answered <= told, f"P5: {answered - told} were answered, and are in no log")
        self._decider.check({source: set(self._counted(source)) for source in self.history.entries})
        self._prioritizer.check(recovered=just)
        self._check_store()
        self._check_tables()

    def settled(self) -> None:
        """Check that nothing is left to be done."""
        self.recovered(just=False)
        self._follow_table(settled=True)
        for source, entries in self.history.entries.items():
            came = {(file.path, file.sha256) for entry in entries for file in entry.files}
            missing = self.world.deliveries.missing(source, came)
            require(not missing, f"P1: {source} never accepted {missing}")
            for folder in ("incoming", "claimed"):
                left = [name for name, _ in self._files_in(source, folder)]
                require(not left, f"P1: {left} of {source} stay in {folder}")
            dropped = increments_dropped(self.world.log().generations).get(source, ())
            for one in self.world.store.claims(NAME, source, limit=500).items:
                if one.index is not None:
                    gone = any(one.index in part for part in dropped)
                    told = one.status == "withdrawn"
                    require(told == gone, f"P1: {one} says what is not so: {dropped}")
            claims = self.world.store.open_claims(NAME, source)
            require(not claims, f"P1: open claims of {source}: {claims}")
            self._check_quarantine(source)
        self._check_operations()
        self._check_set_aside()
        self._check_flows()
        for leader in self.history.now.units:
            late = [at for at in self.history.replay.timers(leader) if at <= self.world.now]
            require(not late, f"P7: timers of {leader} did not fire: {late}")
        plain = len(self.history.eras) == 1 and not self.history.corrections
        timed = any(node.translator.reads_run for node in self._nodes())
        rules = all(s.runnable.default or _is_woken(s) for s in self._nodes())
        brittle = any(node.sets_aside for node in self._nodes())
        if plain and not timed and rules and not brittle:
            self._check_from_scratch()
        retained = self.world.plan.inputs_seconds is None
        if retained and any(node.lookups for node in self._nodes()) and not self._verified:
            self._verify()
            self._verified = True

    def _check_quarantine(self, source: str) -> None:
        """Check that what is listed as quarantined is there, also of a lost store."""
        rejected = self.world.store.claims(NAME, source, status="quarantined", limit=500).items
        listed = {one.id for one in rejected if (one.reason or {}).get("code") != "file_gone"}
        names = [name for name, _ in self._files_in(source, "quarantine")]
        kept = [name for name in names if not name.endswith((REASON_SUFFIX, CLOSE_NAME))]
        lies = {name.partition("-")[0] for name in kept}
        require(listed == lies, f"P1: {source} lists {listed} as quarantined, and there lie {lies}")

    def _look(self, entry: SourceEntry, rows: list[Record], gone: list[Record]) -> None:
        """Check the records of an accepted file, unless it was read by all and is gone."""
        taken = [f"{self.world.folder}/{file.path}" for file in entry.increment.gone]
        back = [row for path in taken for row in self._parquet(path)]
        require(
            multiset(back) == multiset(gone), f"P1: {entry.increment.name} takes {back}, not {gone}"
        )
        paths = [f"{self.world.folder}/{file.path}" for file in entry.increment.files]
        if self.world.plan.inputs_seconds is not None and not all(map(os.path.exists, paths)):
            return
        actual = [row for path in paths for row in self._parquet(path)]
        # If several records are equal, the earlier file can have any one of them.
        same = multiset(actual) == multiset(rows) if takes_place(entry) else actual == rows
        require(same, f"P1: {entry.increment.name} has {actual}, not {rows}")

    def _check_operations(self) -> None:
        """Check that what operators did is on record, and markers closed once each."""
        told = self.world.controller.amendments.corrections(NAME)
        requests = [one.note.request for one in told]
        made = self.history.corrections
        require(sorted(requests) == sorted(made), f"P5: corrections {requests}, not {made}")
        undone = {one.note.request for one in told if one.undone}
        gone = self.history.undone
        require(undone == gone, f"P5: {undone} are told to be undone, not {gone}")
        for source, left in self.operator.markers.items():
            closed = {
                one.key
                for one in self.history.closes
                if one.flow == source and one.reason == "marker"
            }
            folder = self._files_in(source, "quarantine")
            refused = [name for name, _ in folder if name.endswith(CLOSE_NAME)]
            many = len(closed) + len(refused)
            require(many == left, f"P1: {left} markers of {source}, and {many} came of them")

    def _check_set_aside(self) -> None:
        """Check that no record is lost: what no call has seen is set aside, in its order."""
        for node in self._nodes():
            if not node.sets_aside:
                continue
            rows = self.world.set_aside(node)
            actual = [
                (row["input"], json.loads(row["key"] or "null"), *_record_and_code(row))
                for row in rows
            ]
            expected = [
                (one["input"], one["key"], one["record"], one["code"])
                for one in self.history.replay.set_aside(node.name)
            ]
            require(actual == expected, f"P1: {node.name} set {actual} aside, not {expected}")

    def _check_store(self) -> None:
        world = self.world
        require(not world.controller.problem, f"deposed: {world.controller.problem}")
        open_ = {run.stage for run in world.store.intended_runs()}
        waiting = world.parts.parked.all().keys() | world.parts.in_flight.busy().keys()
        connectors = world.store.connectors(NAME)
        for stage in world.store.stages(NAME):
            if stage.paused_because or (NAME, stage.stage) in waiting:
                # A roll-back that ended before it was begun leaves the runs that it cancelled.
                excused = world.injured or "was cancelled" in stage.paused_because
                require(excused, f"{stage.stage} stopped by itself: {stage.paused_because}")
                continue
            done = self.history.now.records[stage.stage].stop
            require(stage.epoch == done, f"P2: {stage} in the store, {done} records in the log")
            require(stage.stage not in open_, f"P2: a run of {stage.stage} is never ended")
            for name, connector in connectors[stage.stage].items():
                if connector.arrived or connector.closes:
                    continue  # frames are made at a tick
                actual = [(q.increment.index, q.read) for q in connector.queue]
                model = self.history.replay.queue(stage.stage)[name].queue
                expected = [(q.increment.index, q.read) for q in model]
                what = f"P2: {stage.stage}.{name} holds {actual}, not {expected}"
                require(actual == expected, what)

    # tables

    def _nodes(self) -> list[StageNode]:
        return list(self.history.now.dataflow.stages.values())

    def _check_tables(self) -> None:
        """Check the newest version of every table, and every timestamp not looked at before."""
        stopped = {name for _, name in self.world.parts.parked.all()} | {
            stage.stage for stage in self.world.store.stages(NAME) if stage.paused_because
        }
        now = self.history.now
        for unit in now.units.keys() - stopped:
            epochs = self._epochs(now, unit, {path: None for path in _tables(now, unit)})
            done = self.history.replay.applied[unit]
            require(done in epochs, f"P2: the tables of {unit} show {epochs}, not epoch {done}")
        self._check_retention()
        for node in self._nodes():
            for view in node.translator.views:
                key = (*node.translator.key_of(view).names, *view.second_key)
                key = () if view.bag else key
                self._feeds.check(state_table(node.name, view.name), view.schema.names, key)
        eras = self.history.eras
        for era, after in zip(eras, [*eras[1:], None], strict=True):
            until_ms = 2**62 if after is None else after.since_ms
            self._check_past(era, range(era.since_ms, until_ms), whole=not stopped)

    def _check_retention(self) -> None:
        """Check that nothing went that waits, or did at the oldest position that is kept."""
        oldest = self.world.log().oldest_position()
        dataflow, replay = self.history.now.dataflow, self.history.replay
        for node in self._nodes():
            for output in node.translator.outputs:
                flow = f"{node.name}.{output.name}"
                _, left = self._table(flow_table(node.name, output.name), None)
                if left <= replay.begun.get(node.name, 0):
                    continue
                messages = (era.dataflow.own_messages() for era in self.history.eras)
                may_go = output.name in node.keep or any(flow in each for each in messages)
                require(may_go, f"P1: {flow} is kept for good, and went")
                needed = replay.waiting(flow)
                if oldest is not None:
                    came = {one.flow: one.index + 1 for one in oldest.newest}
                    needed = needed | {came.get(flow, 0)}
                    for stage, input_ in dataflow.consumers(flow):
                        stood = oldest.stages.get(stage)
                        held = stood.connectors[input_] if stood is not None else None
                        if held is not None and held.framing is None:
                            needed |= {one.index for one in held.held}
                what = f"P1: of {flow}, {left} increments went, and {sorted(needed)} are needed"
                require(left <= min(needed, default=left), what)

    def _check_past(self, era: Era, span: range, *, whole: bool) -> None:
        """Check that at every timestamp of an era the tables of each unit show one epoch."""
        tables = {path: self._stamps(path) for unit in era.units for path in _tables(era, unit)}
        if not all(tables.values()):
            return  # what a later version took away
        readable = max(min(stamps.values()) for stamps in tables.values())
        for stamp in sorted({s for stamps in tables.values() for s in stamps.values()}):
            if stamp < readable or stamp in self._seen or stamp not in span:
                continue
            for unit in era.units:
                at = {
                    path: max(v for v, s in tables[path].items() if s <= stamp)
                    for path in _tables(era, unit)
                }
                what = f"P3: at {stamp}, the tables of {unit} show no one epoch: {at}"
                require(bool(self._epochs(era, unit, at)), what)
            if whole:
                self._seen.add(stamp)

    def _rows_of(self, table: str, version: int) -> list[Record]:
        return self._table(table, version)[0]

    def _stamps(self, table: str) -> dict[int, int]:
        log = DeltaLog(f"{self.world.folder}/{table}", self._files)
        return {version: log.stamp(version) for version in log.readable()}

    def _epochs(self, era: Era, unit: str, at: Mapping[str, int | None]) -> set[int]:
        """Return the numbers of epochs after which the tables of a unit look like this."""
        replay = era.replay
        assert replay is not None, "asked for after `follow`"
        fit = set(range(replay.applied[unit] + 1))
        for table, name in _tables(era, unit).items():
            rows, left = self._table(table, at[table])
            if table.startswith("state/"):
                actual = multiset({n: row[n] for n in row if n[0] != "_"} for row in rows)
                past = replay.past[name]
                fit = {epoch for epoch in fit if past[epoch] == actual}
            else:
                fit &= _shown(replay.outputs(name), rows, left)
        return fit

    def _table(self, table: str, version: int | None) -> tuple[list[Record], int]:
        """Return the records of a table, and the first epoch that retention has left of it."""
        path = f"{self.world.folder}/{table}"
        snapshot = DeltaLog(path, self._files).snapshot(version)
        rows = [row for add in snapshot.live.values() for row in self._live(path, add)]
        return rows, horizon(snapshot.txns)

    def _live(self, table: str, add: AddFile) -> list[Record]:
        rows = self._parquet(f"{table}/{add.path}")
        require(len(rows) == add.rows, f"P2: {add.path} has {len(rows)} rows, not {add.rows}")
        if add.deletion_vector is None:
            return rows
        dead = read_vector(table, add.deletion_vector, files=self._files)
        return [row for number, row in enumerate(rows) if number not in dead]

    def _parquet(self, path: str) -> list[Record]:
        actual = os.stat(path)
        key = (path, actual.st_ino)
        if key not in self._rows:
            file = pq.ParquetFile(path)
            names = [one for one in file.schema_arrow.names if not one.startswith(INDEX_PREFIX)]
            self._rows[key] = file.read(names, use_threads=False).to_pylist()
        return self._rows[key]

    # at the end

    def _check_flows(self) -> None:
        """Check every flow as a service shows it: all records, in order."""
        for node in self._nodes():
            for output in node.translator.outputs:
                flow = f"{node.name}.{output.name}"
                actual, _ = self.world.controller.reading.read_flow(NAME, flow, None, 10_000)
                _, left = self._table(flow_table(node.name, output.name), None)
                expected = [
                    {**row, "_epoch": epoch}
                    for epoch, rows in enumerate(self.history.replay.outputs(flow))
                    for row in rows
                    if epoch >= left
                ]
                rows = [dict(row) for row in actual]
                if flow in self.history.now.dataflow.own_messages():
                    # Of messages only the order of each group's counts.
                    rows, expected = map(_by_epoch_and_group, (rows, expected))
                require(rows == expected, f"P2: {flow} reads {actual}")

    def _check_from_scratch(self) -> None:
        """Check against an engine that decided by itself: nothing depends on when things ran."""
        dataflow = self.history.now.dataflow
        alone = ReferenceEngine(dataflow, self.history.closes)
        for source in dataflow.sources:
            for index, rows in enumerate(self.history.replay.outputs(source)):
                alone.feed(source, rows, self.history.replay.gone(source, index))
        alone.run_until_idle()
        looking = {node.name for node in self._nodes() if node.lookups}
        for flow in dataflow.flows():
            if flow.partition(".")[0] in behind(dataflow, looking):
                continue  # what is looked up depends on when a run began
            same = alone.outputs(flow) == self.history.replay.outputs(flow)
            require(same, f"P4: {flow} is not what an unbroken run gives")
        for node in filter(_is_woken, self._nodes()):
            for view in node.translator.views:
                expected = alone.state(node.name, view.name)
                actual = self.history.replay.state(node.name, view.name)
                what = f"P4: {node.name}.{view.name} is {actual}; an unbroken run gives {expected}"
                require(multiset(actual) == multiset(expected), what)

    def _verify(self) -> None:
        """Check that what was looked up is verified as of the moments of the records."""
        verifications = self.world.controller.verifications
        shown = verifications.show(verifications.start(NAME, Request()).id)
        # Other stages can depend on when runs began, which a recomputation does not know.
        looking = {path for node in self._nodes() if node.lookups for path in stage_tables(node)}
        wrong = [v for v in shown.tables if v.table in looking and v.status == "differs"]
        require(shown.error is None and not wrong, f"P8: verified {wrong}: {shown.error}")


def _record_and_code(row: Record) -> tuple[Any, str]:
    return json.loads(row["record"]), row["code"]


def _is_woken(node: StageNode) -> bool:
    """Tell whether a stage is called for all changes of what it looks up."""
    lookups = node.translator.lookups
    return bool(lookups) and all(one.wake for one in lookups)


def _by_epoch_and_group(rows: list[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: (row["_epoch"], row["k"]))


def _tables(era: Era, unit: str) -> dict[str, str]:
    """Return table folder to what it is of: a state or a flow."""
    actual = {}
    for node in era.units[unit].members:
        for state in node.translator.states:
            actual[state_table(node.name, state.name)] = f"{node.name}.{state.name}"
        for output in node.translator.outputs:
            actual[flow_table(node.name, output.name)] = f"{node.name}.{output.name}"
    return actual


def _shown(contents: list[list[Record]], rows: list[Record], left: int) -> set[int]:
    """Return after which epochs a flow of these contents, from one on, has these records."""
    shown: dict[int, list[Record]] = {}
    for row in rows:
        plain = {name: value for name, value in row.items() if name != "_epoch"}
        shown.setdefault(row["_epoch"], []).append(plain)
    contents = [*([] for _ in range(left)), *contents[left:]]
    whole = [multiset(shown.get(i, [])) == multiset(c) for i, c in enumerate(contents)]
    return {
        epoch
        for epoch in range(left, len(contents) + 1)
        if all(whole[:epoch]) and not any(i >= epoch for i in shown)
    }
