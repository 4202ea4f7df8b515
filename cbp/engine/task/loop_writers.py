"""Writers of a task that runs a loop: messages and changes of views are held meanwhile.

A message is read by the next superstep, or waits until the loops inside its own are at rest; if no
superstep follows, it is written. The net changes of views are written at the end. The next
superstep sees state that groups emitted for other keys. Any other output is written immediately,
superstep after superstep; task 0 writes it for all tasks, since it is ordered by superstep first.

Held records are in memory while there is room (`EngineLimits.whole_run_bytes`), and in mapped
temporary files beyond that (`cbp.engine.storage.held_records`). If there is no room in files
either, the loop is refused.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.kernel.loop_net_changes import NetChanges
from cbp.engine.shuffle.exchange import exact_parts
from cbp.engine.shuffle.superstep_rounds import Waited
from cbp.engine.state.run_files import state_rows
from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.engine.task.writers import TaskWriters
from cbp.model.dataflow.stage import OutputSpec


@dataclass
class LoopWriters(TaskWriters):
    """The writers of a task of a loop; see the module header. `room` keeps the loop's records."""

    room: Room = field(init=False)
    _outputs_of: Mapping[str, OutputSpec] = field(init=False)
    _held: dict[str, HeldRecords] = field(init=False)
    _waiting: dict[str, int] = field(init=False)
    _outgoing: dict[str, HeldRecords] = field(init=False)
    _ends: dict[str, list[tuple[int, int]]] = field(init=False, default_factory=dict)
    _read: list[HeldRecords] = field(init=False, default_factory=list)
    _written_now: dict[str, list[pa.Table]] = field(init=False)
    _late: dict[str, HeldRecords] = field(init=False)
    _remote: dict[str, HeldRecords] = field(init=False)
    _net: Mapping[str, NetChanges] = field(init=False)
    _bytes_net: Counter[str] = field(init=False, default_factory=Counter)
    _bytes_written: int = field(init=False, default=0)
    _numbers: dict[str, array[float]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.plan.spec
        self._go_on_with({one.name: None for one in spec.aggregates}, first=True)
        self.room = Room.of(self.plan.stage, self.plan.limits)
        held = {loopback.name for loopback in spec.loopbacks} | {v.changes for v in spec.views}
        self._outputs_of = {one.name: one for one in spec.outputs}
        self._held = {name: HeldRecords(self.room) for name in sorted(held)}
        self._waiting = {one.name: 0 for one in spec.loopbacks}
        sent_later = [one.name for one in spec.loopbacks if one.microsteps]
        self._outgoing = {name: HeldRecords(self.room) for name in sent_later}
        others = sorted(self._outputs_of.keys() - held)
        self._written_now = {name: [] for name in others} if self.plan.depends_on else {}
        self._late = {name: HeldRecords(self.room) for name in (others if self.part else ())}
        self._remote = {state.name: HeldRecords(self.room) for state in spec.states}
        mask = self.plan.hash_mask
        self._net = {
            view.changes: NetChanges(view, spec.key_of(view), mask, self.room)
            for view in spec.views
        }

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Take records of an output; write them immediately unless they are held."""
        if name in self._numbers:
            self._numbers[name].frombytes(np.asarray(columns[0]).tobytes())
            return
        names = self._outputs_of[name].schema.names
        records = pa.Table.from_arrays(columns, names=list(names))
        if name in self._held:
            self.hold(name, records)
        elif name in self._late:
            self._late[name].add(records)
        else:
            super().write_output(name, columns)
            if self.can_be_saved:
                self._keep_written(name, records)
                if self._bytes_written > self.plan.limits.spool_bytes:
                    self._written_now = {}

    def write_for_others(self, outputs: Iterable[tuple[str, pa.Table]]) -> None:
        """Write records of outputs that the other tasks emitted in a superstep.

        All of them are kept for the snapshot after the superstep: the tasks agreed on it before the
        size of these records was known.
        """
        if not self.can_be_saved:
            self._written_now = {}
        for name, records in outputs:
            for part in records.to_batches():
                super().write_output(name, part.columns)
            if name in self._written_now:
                self._keep_written(name, records)

    def _keep_written(self, name: str, records: pa.Table) -> None:
        self._written_now[name].append(records)
        self._bytes_written += int(records.nbytes)

    def write_remote(self, state: str, columns: list[pa.Array]) -> None:
        """Take state records that a group emitted for other keys."""
        plan = self.plan
        records = state_rows(plan.spec, plan.spec.state(state), columns, plan.hash_mask)
        self._remote[state].add(records)
        self.counts["state_remote"] += records.num_rows

    @property
    def can_be_saved(self) -> bool:
        """Whether memory can hold the records of outputs that are not views, too."""
        return bool(self.plan.depends_on) and self._bytes_written <= self.plan.limits.spool_bytes

    @property
    def bytes_held(self) -> int:
        """The approximate size of the tables of `saved`, in bytes."""
        held = sum(one.nbytes for one in self._held.values())
        return held + (self._bytes_written if self._written_now else 0)

    def hold(self, name: str, records: pa.Table) -> None:
        """Hold messages of a loopback, or changes of a view, behind those held before."""
        self._held[name].add(records)
        if name in self._waiting:
            self._waiting[name] += records.num_rows

    @property
    def waiting(self) -> dict[str, int]:
        """How many messages are held, by loopback that has some."""
        return {name: rows for name, rows in self._waiting.items() if rows}

    def end_superstep(self, number: int) -> None:
        """Note how many waiting messages were emitted so far, so that receivers can order them."""
        for name in self.plan.spec.loops.around_others & self.waiting.keys():
            ends = self._ends.setdefault(name, [])
            if not ends or ends[-1][1] < self._waiting[name]:
                ends.append((number, self._waiting[name]))

    def drop(self, loopbacks: Collection[str], emitted: Mapping[str, pa.Table]) -> None:
        """Drop the messages of loopbacks whose loops have ended, including those just emitted."""
        if not loopbacks:
            return
        rows = sum(emitted[name].num_rows for name in loopbacks if name in emitted)
        for name in loopbacks:
            rows += self._waiting[name]
            self._taken(name).take()
        self.counts["messages_dropped"] = self.counts.get("messages_dropped", 0) + rows

    def _taken(self, loopback: str) -> HeldRecords:
        """Return a holder of all messages of a loopback; none of them waits any more."""
        self._waiting[loopback] = 0
        self._ends.pop(loopback, None)
        return self._held[loopback].move()

    def saved(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return counts and facts, and written and held records, for another try of the run."""
        aggregates = {
            name: None if value is None else value.hex()
            for name, value in self.plan.context.aggregates.items()
        }
        facts = {
            "counts": dict(self.counts),
            "timer_us": self._timer_us,
            "aggregates": aggregates,
            **({"ends": self._ends} if self._ends else {}),
        }
        saved = {}
        # Each window of each superstep added a table. The next snapshot finds one instead.
        for name in (name for name, held in self._held.items() if held.tables):
            saved[f"held/{name}"] = table = pa.concat_tables(self._held[name].take())
            self._held[name].add(table.combine_chunks())
        for name in (name for name, tables in self._written_now.items() if tables):
            saved[f"output/{name}"] = pa.concat_tables(self._written_now[name]).combine_chunks()
            self._written_now[name] = [saved[f"output/{name}"]]
        return facts, saved

    def go_on_from(self, facts: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Continue from a snapshot of another try: write what it wrote, hold what it held."""
        values = facts.get("aggregates", {}).items()
        self._go_on_with({n: None if v is None else float.fromhex(v) for n, v in values})
        ends = facts.get("ends", {}).items()
        self._ends = {name: [(at, rows) for at, rows in many] for name, many in ends}
        self.counts.update(facts["counts"])
        self.note_timer(facts["timer_us"])
        for key, table in tables.items():
            kind, _, name = key.partition("/")
            if kind == "held":
                self.hold(name, table)
            elif kind == "output":
                for part in table.to_batches():
                    self.write_output(name, part.columns)

    def take_messages(self, loopbacks: Collection[str]) -> dict[str, pa.Table]:
        """Return all messages of loopbacks, in the order of their emission; see `read`."""
        names = [name for name in self._waiting if name in loopbacks]
        return self.read({name: [self._taken(name)] for name in names})

    def take_by_superstep(self, loopbacks: Collection[str]) -> list[Waited]:
        """Return all messages of loopbacks that have waited, by the superstep that emitted them."""
        ends = {name: self._ends.get(name, []) for name in loopbacks}
        tables = self.take_messages(loopbacks)
        return [
            (name, at, table.slice(start, stop - start))
            for name, table in tables.items()
            for (at, stop), start in zip(
                ends[name], [0, *(end for _, end in ends[name])], strict=False
            )
        ]

    def send_later(self, messages: Mapping[str, pa.Table]) -> None:
        """Hold messages of microsteps for other tasks until the next exchange."""
        for name, table in messages.items():
            self._outgoing[name].add(table)

    def take_outgoing(self, emitted: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the messages that wait for the exchange, then those just emitted; see `read`."""
        held = {name: [one.move()] for name, one in self._outgoing.items()}
        early = self.read(held)
        names = [name for name in held if name in early or name in emitted]
        return {
            name: pa.concat_tables([some[name] for some in (early, emitted) if name in some])
            for name in names
        }

    def read(self, messages: Mapping[str, Sequence[HeldRecords]]) -> dict[str, pa.Table]:
        """Hold messages until `free_read`, by loopback; return them."""
        self._read += chain.from_iterable(messages.values())
        return _joined({n: [t for one in held for t in one.tables] for n, held in messages.items()})

    def free_read(self) -> None:
        """Free the room of the messages that were read or taken."""
        for one in self._read:
            one.take()
        self._read = []

    def take_remote(self, state: str) -> list[pa.Table]:
        """Return the records of a state that groups emitted for other keys in this superstep."""
        return self._remote[state].take()

    def take_all_remote(self) -> dict[str, pa.Table]:
        """Return the result of `take_remote` for each state that has such records."""
        return _joined({name: self.take_remote(name) for name in self._remote})

    def take_late(self) -> dict[str, pa.Table]:
        """Return the records of outputs that task 0 writes for this one."""
        return _joined({name: one.take() for name, one in self._late.items()})

    def given(self) -> dict[str, list[float]]:
        """Return parts of the numbers that groups gave to each aggregate in this superstep."""
        many = self.plan.spec.aggregates
        return {one.name: exact_parts(one.how, self._numbers[one.name]) for one in many}

    def go_on(
        self, read: Collection[str], given: Mapping[str, Sequence[float]] | None = None
    ) -> frozenset[str]:
        """End a superstep; return the loopbacks whose loops end with it because of an aggregate.

        Args:
            read: The loopbacks whose messages were read; none in the first superstep.
            given: Numbers that groups of all tasks gave to each aggregate; `None`: use this task's.
        """
        values = self.plan.spec.aggregated(self._numbers if given is None else given)
        self._go_on_with(values)
        # Changes of views that cancel out are dropped once there are many changes. So these take as
        # much room as what the loop changed, whatever the number of its supersteps.
        for name, net in self._net.items():
            held = self._held[name]
            if held.nbytes > self.plan.limits.spool_bytes + 2 * self._bytes_net[name]:
                net.drop_cancelled(held)
                self._bytes_net[name] = held.nbytes
        return self.plan.spec.ended(values, read)

    def _go_on_with(self, aggregates: Mapping[str, float | None], *, first: bool = False) -> None:
        """Let a superstep read the aggregates of the previous one; only the first has timers."""
        self._numbers = {name: array("d") for name in aggregates}
        plan = self.plan
        if aggregates or plan.context.aggregates:
            context = replace(plan.context, aggregates=aggregates)
            self.plan = plan = replace(plan, context=context)
        if not first and (plan.wakes or plan.ages):
            self.plan = replace(plan, wakes=False, ages=False)

    def release(self, left: Mapping[str, pa.Table]) -> None:
        """Write the messages that no superstep reads, and the net changes of the views."""
        for name, table in left.items():
            for part in table.to_batches():
                super().write_output(name, part.columns)
        for name, net in self._net.items():
            net.write(self._held[name], super().write_output)


def _joined(tables: Mapping[str, Sequence[pa.Table]]) -> dict[str, pa.Table]:
    return {name: pa.concat_tables(some) for name, some in tables.items() if some}
