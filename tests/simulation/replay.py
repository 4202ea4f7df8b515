"""The reference engine, fed with what happened: it has what must be there, and decides nothing.

It applies the runs that are recorded, the corrections that operators asked for, and the closes
of frames where they stand. A new version takes over what the one before had, by what its
author chose. It knows no files, tables, buckets or crashes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cbp.engine.columnar.values import Row
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.reference.stage import ReferenceStage
from cbp.engine.reference.views import group_changes
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.run_context import time_of
from cbp.model.dataflow.stage import CHANGES_OF, TIMER_COLUMN
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.punctuation import Punctuation
from cbp.model.plan.fusion import PhysicalStage
from cbp.model.run.correction import Correction
from cbp.model.run.intention import Intention, LookupMoment
from cbp.model.version.version_change import Choice
from tests.simulation.model import Broken, multiset

__all__ = ["Recorded", "Replay"]

Table = Mapping[Row, list[Row]]
"""The records of a state by key."""

Asked = Mapping[str, tuple[str, str, Correction]]
"""Request to the stage and state that it corrects, and how."""


@dataclass
class Recorded:
    """The records of one stage that leads.

    Attributes:
        start: Epoch of the first one; 0, but of stages that came with a version.
    """

    start: int = 0
    records: list[Intention] = field(default_factory=list)

    @property
    def stop(self) -> int:
        """The epoch behind the last one."""
        return self.start + len(self.records)


class Replay(ReferenceEngine):
    """What every flow, state and queue has to be.

    Attributes:
        past: `stage.state` to its records after 0, 1, 2 ... epochs; `None` of epochs before
            the state began.
        applied: Leader to the number of its epochs that were applied.
        fed: Source to the number of its increments.
        begun: Stage that a version added or rebuilt to its first epoch: nobody reads what it wrote
            before.
    """

    def __init__(self, dataflow: Dataflow, units: Mapping[str, PhysicalStage]) -> None:
        self._closes: list[Punctuation] = []
        super().__init__(dataflow, self._closes)
        self.dataflow, self.units = dataflow, units
        self.applied = dict.fromkeys(units, 0)
        self.fed = dict.fromkeys(dataflow.sources, 0)
        self.begun: dict[str, int] = {}
        self.past: dict[str, list[list[str] | None]] = {
            f"{node.name}.{state.name}": [[]]
            for node in dataflow.stages.values()
            for state in node.translator.states
        }
        self._left: dict[str, list[list[Any]]] = {}
        looked_up = {table for node in dataflow.stages.values() for table in node.lookups.values()}
        self._tables: dict[str, list[Table]] = {name: [{}] for name in looked_up}
        self._moments: Mapping[str, LookupMoment] = {}
        self._newest: dict[str, int] = {}
        self._corrected: dict[str, list[Row]] = {}

    @property
    def closes(self) -> Sequence[Punctuation]:
        """The closes that are noted."""
        return tuple(self._closes)

    # what happened

    def feed(self, source: str, records: Any, gone: Any = ()) -> None:
        """Add one increment to a source; see `ReferenceEngine.feed`."""
        super().feed(source, records, gone)
        self.fed[source] += 1

    def close_at(self, closes: Sequence[Punctuation]) -> None:
        """Note the closes that are recorded; those that are known already are passed over."""
        for one in closes[len(self._closes) :]:
            self._closes.append(one)
            came = len(self._contents[one.flow])
            if one.at < came:
                message = f"P1: {one} stands before increments that were framed without it"
                raise Broken(message)
            if one.at == came:
                for consumer in self.dataflow.consumers(one.flow):
                    if one.meant_for(*consumer, one.flow):
                        self._close(consumer)

    def drop(self, source: str, indexes: range) -> None:
        """Take increments of a source out of all queues; what is framed was fed without them."""
        for stage, input_ in self.dataflow.consumers(source):
            if (stage, input_) in self._framings:
                continue
            connector = self._connectors[stage][input_]
            unread = tuple(i for i in indexes if i in [q.index for q in connector.waiting])
            self._connectors[stage][input_] = connector.after((), unread)

    def apply(self, log: Mapping[str, Recorded], asked: Asked) -> None:
        """Apply every recorded run that is not applied yet, each behind those that it read from.

        Args:
            log: Leader to its records.
            asked: What the records that are corrections may be of.
        """
        moved = True
        while moved:
            moved = False
            for leader, recorded in log.items():
                while self.applied[leader] < recorded.stop:
                    intention = recorded.records[self.applied[leader] - recorded.start]
                    if not self._holds(leader, intention):
                        break
                    self._epoch(leader, intention, asked)
                    moved = True
        for leader, recorded in log.items():
            if self.applied[leader] < recorded.stop:
                intention = recorded.records[self.applied[leader] - recorded.start]
                message = (
                    f"P1: {intention.id} read what never was there, or twice: {intention.read}, "
                    f"{intention.lookups}"
                )
                raise Broken(message)

    def queue(self, stage: str) -> Mapping[str, Connector]:
        """Return the connectors of a stage."""
        return self._connectors[stage]

    def waiting(self, flow: str) -> set[int]:
        """Return the increments of a flow that wait at some reader, in frames or as they are."""
        actual: set[int] = set()
        for consumer in self.dataflow.consumers(flow):
            connector = self._connectors.get(consumer[0], {}).get(consumer[1])
            held = [] if connector is None else [*connector.waiting, *connector.arrived]
            framing = self._framings.get(consumer)
            if framing is None:
                actual |= {increment.index for increment in held}
                continue
            held += [] if framing.open is None else [framing.open]
            # Files of this engine are named `flow/index`.
            actual |= {int(f.path.rpartition("/")[2]) for one in held for f in one.files}
        return actual

    def copy(self) -> Replay:
        """Return one that continues automatically."""
        shared: list[Any] = [self._dataflow, self.units, self._schemas, self._order]
        shared += [stage.spec for stage in self._stages.values()]
        kept = {id(one): one for one in shared}
        return copy.deepcopy(self, kept)

    def _holds(self, leader: str, intention: Intention) -> bool:
        """Tell whether all is there that a run read and looked up."""
        connectors = self._connectors[leader]
        return all(
            set(indexes) <= {increment.index for increment in connectors[name].waiting}
            for name, indexes in intention.read.items()
        ) and all(
            moment.epoch < len(self._tables[self._table_name(name)]) - 1
            for name, moment in intention.lookups.items()
        )

    def _table_name(self, name: str) -> str:
        """Return the table of a look-up, which is named `stage.lookup`."""
        stage, _, lookup = name.partition(".")
        return self._dataflow.stages[stage].lookups[lookup]

    def _table(self, stage: str, lookup: str) -> Table:
        """Return a looked-up table as of the moment that the record of the run names."""
        moment = self._moments.get(f"{stage}.{lookup}")
        # A correction calls no group of the stages that run with it, and looks nothing up.
        return (
            {}
            if moment is None
            else self._tables[self._table_name(f"{stage}.{lookup}")][moment.epoch + 1]
        )

    def _require_moments(self, leader: str, intention: Intention) -> None:
        """Check that a run looked up each table once, and none as of an earlier moment than before.

        Also that it saw the changes that it read.
        """
        members = self.units[leader].members
        expected = {f"{m.name}.{one.name}" for m in members for one in m.translator.lookups}
        if set(intention.lookups) != expected:
            message = f"P8: {intention.id} looked up {set(intention.lookups)}, not {expected}"
            raise Broken(message)
        for name, moment in intention.lookups.items():
            changes = intention.read.get(CHANGES_OF.format(name.partition(".")[2]), ())
            least = max([self._newest.get(name, -1), *changes])
            # An epoch that changes no record of a table gives it no version.
            epochs = self._tables[self._table_name(name)]
            if moment.epoch < least and epochs[moment.epoch + 1] != epochs[least + 1]:
                message = f"P8: {intention.id} looked {name} up as of {moment}, not of {least}"
                raise Broken(message)
            self._newest[name] = moment.epoch

    def _epoch(self, leader: str, intention: Intention, asked: Asked) -> None:
        self.time = time_of(intention.time_ms)
        self._moments = intention.lookups
        if intention.correction is None:
            self._require_moments(leader, intention)
        if intention.correction is not None and intention.correction.gives_back:
            self.give_back(leader)
        elif intention.correction is not None:
            self._correct(leader, *asked[intention.correction.request])
        else:
            self._apply(leader, Decision(intention.read, intention.remove, intention.memo))
        self.applied[leader] += 1
        for node in self.units[leader].members[1:]:
            if not self._run(node.name):
                message = f"P1: {node.name} has nothing to read in {intention.id}"
                raise Broken(message)
        for node in self.units[leader].members:
            for state in node.translator.states:
                name = f"{node.name}.{state.name}"
                self.past[name].append(multiset(self.state(node.name, state.name)))
                if name in self._tables:
                    table = self._stages[node.name].state[state.name]
                    self._tables[name].append({key: list(rows) for key, rows in table.items()})
        self._compare_sizes(leader, intention)
        self._require_bound(leader, intention)

    def timers(self, leader: str) -> list[datetime]:
        """Return the pending timers of a stage and those that run with it."""
        return [
            row[TIMER_COLUMN]
            for node in self.units[leader].members
            for state in node.translator.timers
            for row in self.state(node.name, state.name)
        ]

    def _require_bound(self, leader: str, intention: Intention) -> None:
        """Check that no timer is due before the time that the record holds."""
        timers, bound = self.timers(leader), intention.due_ms
        early = min(timers, default=None)
        if early is not None and (bound is None or early <= time_of(bound - 1)):
            message = f"P7: {intention.id} says {bound}, and a timer is due at {early}"
            raise Broken(message)

    def _correct(self, leader: str, stage: str, state: str, correction: Correction) -> None:
        """Put the records of a key right, in an epoch that calls nobody.

        It emits nothing but the changes of a view.
        """
        corrected = self._dataflow.stages[stage].translator.state(state)
        columns = corrected.schema.names
        table, key = self._stages[stage].state[state], tuple(correction.key.values())
        before = table.get(key, [])
        made = [{**correction.key, **record} for record in correction.records]
        if correction.kind == "set":
            old = [dict(zip(columns, row, strict=True)) for row in table.get(key, [])]
            made = [{**record, **made[0]} for record in old] or made
        table.pop(key, None)
        if made:
            table[key] = [tuple(record.get(name) for name in columns) for record in made]
        if corrected.changes:
            changes = list(group_changes(corrected, before, table.get(key, [])))
            self._corrected = {f"{stage}.{corrected.changes}": changes}
        spec = self._dataflow.stages[leader].translator
        self._stages[leader].bindings.append({})
        self._figures[leader].append({})
        for output in spec.outputs:
            self._append(f"{leader}.{output.name}", [])

    def _append(self, flow: str, rows: list[Row], gone: Sequence[Row] = ()) -> None:
        super()._append(flow, rows + self._corrected.pop(flow, []), gone)

    def gone(self, source: str, index: int) -> list[Row]:
        """Return what an increment of a source takes back."""
        return self._gone.get(f"{source}/{index}", [])

    def _compare_sizes(self, leader: str, intention: Intention) -> None:
        for name, increment in intention.outputs.items():
            flow = name if "." in name else f"{leader}.{name}"
            expected = len(self._contents[flow][intention.epoch])
            if increment.records != expected or increment.index != intention.epoch:
                message = f"P2: {increment.name} has {increment.records} records, not {expected}"
                raise Broken(message)

    # a new version

    def succeed(
        self,
        dataflow: Dataflow,
        units: Mapping[str, PhysicalStage],
        *,
        choice: Choice,
        epochs: Mapping[str, int],
    ) -> Replay:
        """Return what holds once a version has taken over; this one is left as it is.

        Args:
            dataflow: The version.
            units: Its stages that lead, with those that run with them.
            choice: What its author said.
            epochs: Leader to its first epoch under this version.
        """
        old, new = self.copy(), Replay(dataflow, units)
        new._closes += old._closes
        new.fed, new.begun = old.fed, dict(old.begun)
        new._gone = old._gone
        contents = {**old._left, **old._contents}
        anew = {n for n in dataflow.stages if n not in old._stages or n in choice.rebuild}
        for leader, unit in units.items():
            new.applied[leader] = epochs[leader]
            for node in unit.members:
                if node.name in anew:
                    new.begun[node.name] = epochs[leader]
                    new._begin(node.name, epochs[leader])
                else:
                    new._keep(node.name, old)
        for flow in dataflow.flows():
            if flow in contents:
                new._contents[flow] = contents.pop(flow)
            if "." in flow:
                due = new._applied_of(flow.partition(".")[0]) - len(new._contents[flow])
                new._contents[flow] += [[] for _ in range(due)]
        new._left = contents
        for name in dataflow.stages:
            if name in choice.rebuild | (choice.retained & anew):
                new._queue_again(name, anew)
        return new

    def _applied_of(self, stage: str) -> int:
        return next(self.applied[n] for n, unit in self.units.items() if stage in unit.names)

    def _begin(self, stage: str, epoch: int) -> None:
        self._stages[stage].bindings += [{} for _ in range(epoch)]
        self._figures[stage] += [{} for _ in range(epoch)]
        for state in self._stages[stage].state:
            self.past[f"{stage}.{state}"] = [*(None for _ in range(epoch)), []]
            if f"{stage}.{state}" in self._tables:
                self._tables[f"{stage}.{state}"] = [{} for _ in range(epoch + 1)]

    def _keep(self, stage: str, old: Replay) -> None:
        was = old._stages[stage]
        node = self._dataflow.stages[stage]
        self._stages[stage] = ReferenceStage(
            stage,
            node.translator,
            was.state,
            was.bindings,
            set_aside_max=node.set_aside_max,
            aside=was.aside,
        )
        self._connectors[stage] = old._connectors[stage]
        self._memos[stage] = old._memos[stage]
        self._read |= {at: many for at, many in old._read.items() if at[0] == stage}
        self._figures[stage] = old._figures[stage]
        for state in was.state:
            self.past[f"{stage}.{state}"] = old.past[f"{stage}.{state}"]
            if f"{stage}.{state}" in self._tables:
                self._tables[f"{stage}.{state}"] = old._tables[f"{stage}.{state}"]
        for consumer in self._framings:
            if consumer[0] == stage:
                self._framings[consumer] = old._framings[consumer]

    def _queue_again(self, stage: str, anew: Collection[str]) -> None:
        """Let a stage read from the first increment on what does not come anew by itself."""
        for input_, flow in self._dataflow.stages[stage].wiring.items():
            self._connectors[stage][input_] = Connector(input_)
            if (stage, input_) in self._framings:
                self._framings[stage, input_] = Framing()
            if flow.partition(".")[0] in {*anew, stage}:
                continue
            for index, rows in enumerate(self._contents[flow]):
                if index < self.begun.get(flow.partition(".")[0], 0):
                    continue
                files = (DataFile(f"{flow}/{index}", len(rows), 0),) if rows else ()
                increment = Increment(flow, index, index, files)
                if (stage, input_) not in self._dataflow.receivers(increment):
                    continue
                framed = (stage, input_) in self._framings
                given = self._frames(stage, input_, increment) if framed else [increment]
                self._enqueue(stage, input_, given)
