"""Supersteps of a task: calls groups until no message is left, and writes what they leave.

    arrived records -> superstep 0 -> messages -> superstep 1 -> ... -> messages that are left
                         '-> LoopState ---------------'-> LoopState ... -> state, changes of views

Each superstep calls the kernel that any run calls, on messages and state that lie in memory. Only
the end is written: what the last superstep leaves in the states, the messages that nobody read, and
what became of the records of views. So a loop costs its files, its intention and its publication
once, whatever the number of supersteps, and the files are those that one epoch with the same
effect would have written. A long loop leaves snapshots of what it did, from which another try of
the run goes on (`cbp.engine.task.superstep_log`).

A loop may have several tasks, each with its own buckets. After each superstep they do a round of
an exchange (`cbp.engine.shuffle.exchange`): a task sends each other one the messages and the remote
state records for its buckets, and all of them how many messages are under way, and its part of each
aggregate. By these all end after the same superstep. Task 0 decides by its clock when all put a
snapshot. The buckets of a task have neighboring hashes, so records that come task by task are in
the order of one task that emits all of them.

Guaranteed: the results are those of the reference engine, also where tries of the run were broken
off (tests/cbp/engine/task/test_loop_work.py), whatever the number of tasks
(tests/cbp/engine/task/test_loops_in_tasks.py).

Writers of a task that runs a loop: what its supersteps emit is held until the loop ends.

A message is read by the next superstep; if none follows, it is written. What became of the records
of views is written at the end: what is left of all their changes. State of another key is seen by
the next superstep. Any other output is written at once, superstep after superstep; task 0 does that
for all tasks, since its order is that of supersteps first.

What a loop holds has a bound (`EngineLimits.whole_run_bytes`): messages, records of states that it
wrote, and changes of views. A loop that would hold more is refused while there is still memory.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s, conform
from cbp.engine.columnar.file_slices import file_columns
from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.reached_state import Room
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.kernel.net_changes import rows_left, rows_that_count
from cbp.engine.kernel.view_changes import ViewChanges
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.exchange import ALONE, Exchange, exact_parts
from cbp.engine.shuffle.replicated_read import arrange_messages
from cbp.engine.shuffle.spool import Spool
from cbp.engine.shuffle.superstep_rounds import Round, SuperstepRounds
from cbp.engine.state.bucket_state import BucketState, parted
from cbp.engine.state.loop_state import LoopState
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.external_sort import order_by_columns
from cbp.engine.task.bucket_work import (
    Lookups,
    author_work,
    count_arrived,
    deliveries_of,
    flow_runs,
    looked_up,
    shared_records,
)
from cbp.engine.task.superstep_log import Snapshot, SuperstepLog
from cbp.engine.task.writers import TaskWriters, count_look_ups
from cbp.model.dataflow.stage import OutputSpec, StateSpec
from cbp.model.flow.changes import SIGN
from cbp.model.flow.schema import Schema


@dataclass
class _Half:
    """The buckets of a task whose hashes have one sign, so that they ascend over all of them.

    Attributes:
        states: As the last superstep left them.
    """

    buckets: tuple[int, ...]
    states: dict[str, LoopState]
    lookups: Lookups

    def part_of(self, records: pa.Table, buckets: int) -> pa.Table:
        """Return the state records that lie in these buckets."""
        hashes = records.column("_hash").to_numpy().view(np.uint64)
        at = (hashes >> np.uint64(bucket_shift(buckets))).astype(np.int64)
        return records.filter(pa.array((at >= self.buckets[0]) & (at <= self.buckets[-1])))


@dataclass
class LoopWork:
    """All supersteps of one run in one task; `run` is called once.

    Attributes:
        part: The task's number.
        exchange: The rounds with the other tasks, of which this one does the same number.
    """

    writers: LoopWriters
    part: int
    exchange: Exchange = ALONE
    _log: SuperstepLog = field(init=False)
    _rounds: SuperstepRounds = field(init=False)
    _halves: list[_Half] = field(init=False)

    def __post_init__(self) -> None:
        plan, cache = self.writers.plan, self.writers.cache()
        self._log = SuperstepLog(plan, part=self.part)
        assert plan.layout is not None, "every input of a loop has groups"
        self._rounds = SuperstepRounds(
            self.exchange,
            plan.spec,
            plan.layout,
            plan.stage,
            plan.tasks,
            plan.buckets,
            plan.hash_mask,
        )
        own = [bucket for bucket in range(plan.buckets) if plan.owner(bucket) == self.part]
        halves = (
            tuple(bucket for bucket in own if (bucket < plan.buckets // 2) == lower)
            for lower in (True, False)
        )
        self._halves = [
            _Half(
                buckets,
                {
                    state.name: LoopState(
                        plan.states[state.name], cache, buckets, plan.buckets, spec=state
                    )
                    for state in plan.spec.states
                },
                looked_up(plan, buckets, cache),
            )
            for buckets in halves
            if buckets
        ]

    def run(self, batches: Iterable[pa.RecordBatch], *, sent: bool) -> None:
        """Run all supersteps, the first one on the records that arrived; write what is left.

        Args:
            batches: The records.
            sent: Whether another process sends them, and waits until all are taken.
        """
        writers = self.writers
        most, number, left = writers.plan.spec.supersteps, 0, dict[str, pa.Table]()
        if (snapshot := self._broken_off()) is not None:
            if sent:
                deque(batches, maxlen=0)
            number, left = snapshot.supersteps, self._go_on_from(snapshot)
        emitted, goes_on, saved = dict[str, pa.Table](), True, 0
        while goes_on:
            writers.plan.faults("superstep.before")
            self._make_room(left, number + 1)
            self._superstep(self._arranged(left) if number else batches, first=number == 0)
            emitted, number = writers.take_messages(), number + 1
            done = self._exchanged(emitted, last=number == most)
            if saved:
                self._log.forget_before(saved)
            left = self._turn(done)
            if writers.go_on(done.aggregates) and number > 1:
                dropped = sum(table.num_rows for table in emitted.values())
                writers.counts["messages_dropped"] = dropped
                emitted, goes_on = {}, False
            goes_on = goes_on and number < most and done.waiting > 0
            writers.plan.faults("superstep.after")
            if goes_on:
                done.require_routed()
                if done.saves:
                    self._log.put(partial(self._snapshot, number, left))
                    saved = number if writers.plan.tasks > 1 else 0
        if self.part == 0:
            writers.counts["supersteps"] = number
            if self._log.spent:
                writers.counts["seconds_superstep_log"] = self._log.spent
        writers.release(emitted)
        touched = {bucket for half in self._halves for bucket in self._finish(half)}
        writers.state.compact_others(touched, writers.cache())
        writers.state.write_deletes()

    def _make_room(self, left: Mapping[str, pa.Table], superstep: int) -> None:
        """Count what the loop holds before a superstep."""
        room, held = self.writers.room, self._bytes(left)
        room.taken, room.superstep = held, superstep
        if self.writers.plan.tasks > 1:
            room.hold(0)  # other tasks may have sent more than this one emitted

    def _broken_off(self) -> Snapshot | None:
        """Return the snapshot from which all tasks go on; `None` if they begin anew."""
        if self.writers.plan.tasks == 1:
            return self._log.newest()
        numbers: list[Any] = self._rounds.ask("snapshots", self._log.numbers())
        common = set.intersection(*map(set, numbers))
        if not common:
            return None
        snapshot = self._log.after(max(common))
        return snapshot if all(self._rounds.ask("sound", snapshot is not None)) else None

    def _exchanged(self, emitted: Mapping[str, pa.Table], *, last: bool) -> Round:
        """Do the round after a superstep; return what all tasks know then.

        Args:
            emitted: The messages of this task.
            last: Whether no superstep can follow.
        """
        writers = self.writers
        done = self._rounds.swap(
            messages=emitted,
            remote=writers.take_remote(),
            outputs=writers.take_late(),
            aggregates=writers.given(),
            saves=self.part == 0 and self._is_due(emitted),
            last=last,
        )
        for name, tables in done.outputs.items():
            for table in tables:
                writers.write_now(name, table)
        return done

    def _is_due(self, emitted: Mapping[str, pa.Table]) -> bool:
        """Return whether it is time that all tasks put a snapshot."""
        return self.writers.can_be_saved and self._log.is_due(partial(self._bytes, emitted))

    def _bytes(self, left: Mapping[str, pa.Table]) -> int:
        """Return about how many bytes a snapshot has."""
        states = (state for half in self._halves for state in half.states.values())
        waiting = sum(int(table.nbytes) for table in left.values())
        return waiting + self.writers.bytes_held + sum(one.bytes_changed for one in states)

    def _snapshot(self, number: int, left: Mapping[str, pa.Table]) -> Snapshot:
        """Return all that further supersteps, and the end of the loop, need."""
        facts, tables = self.writers.saved()
        tables.update((f"left/{name}", table) for name, table in left.items())
        for at, half in enumerate(self._halves):
            for name, state in half.states.items():
                gone, written = state.changes()
                tables |= {f"gone/{at}/{name}": gone, f"written/{at}/{name}": written}
        return Snapshot(number, facts, tables)

    def _go_on_from(self, snapshot: Snapshot) -> dict[str, pa.Table]:
        """Take up what supersteps of another try did; return the messages that they left."""
        tables = snapshot.tables
        for at, half in enumerate(self._halves):
            for name, state in half.states.items():
                state.go_on_from(tables[f"gone/{at}/{name}"], tables[f"written/{at}/{name}"])
        self.writers.go_on_from(snapshot.facts, tables)
        if self.part == 0:
            self.writers.counts["supersteps_before"] = snapshot.supersteps
        names = (one.name for one in self.writers.plan.spec.loopbacks)
        return {name: tables[key] for name in names if (key := f"left/{name}") in tables}

    def _superstep(self, batches: Iterable[pa.RecordBatch], *, first: bool) -> None:
        plan, counts = self.writers.plan, self.writers.counts
        assert plan.layout is not None, "every input of a loop has groups"
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            shared = None
            if first:
                count_arrived(plan, spool, counts)
                shared = shared_records(plan, self.part, spool, counts)
            else:
                counts["messages"] = counts.get("messages", 0) + sum(
                    spool.arrived(flow) for flow in range(len(plan.layout.flows))
                )
            for half in self._halves:
                self._call(half, spool, shared)
            counts.update(shared.counts() if shared else {})

    def _call(self, half: _Half, spool: Spool, shared: Shared | None) -> None:
        """Call the groups of some buckets."""
        writers, plan = self.writers, self.writers.plan
        runs = flow_runs(plan, spool, half.buckets)
        outer = any(state.grouping == "outer" for state in plan.spec.states)
        if not (outer or plan.wakes or shared or any(run.table.num_rows for run in runs)):
            return
        work = author_work(
            writers,
            plan.spec,
            runs,
            {**half.states},
            partial(_add, half.states, writers.room),
            deliveries_of(plan, half.buckets, runs, shared),
            half.lookups,
        )
        work.run()
        writers.counts["groups"] += work.groups

    def _turn(self, done: Round) -> dict[str, pa.Table]:
        """Let the next superstep see what this one wrote; return the messages that it reads."""
        plan, remote = self.writers.plan, done.remote
        for spec in plan.spec.states:
            for half in self._halves:
                for records in remote.get(spec.name, ()):
                    half.states[spec.name].add(half.part_of(records, plan.buckets))
                half.states[spec.name].turn()
        return {name: pa.concat_tables(tables) for name, tables in done.messages.items()}

    def _arranged(self, messages: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield messages as the records of a superstep, sorted as the shuffle sorts them."""
        plan = self.writers.plan
        assert plan.layout is not None
        for flow, input_ in enumerate(plan.spec.inputs):
            if input_.name in messages:
                table = conform(messages[input_.name], file_columns(input_))
                yield from arrange_messages(
                    table,
                    plan.spec,
                    plan.layout,
                    flow,
                    stage=plan.stage,
                    buckets=plan.buckets,
                    hash_mask=plan.hash_mask,
                    limits=plan.limits,
                ).to_batches()

    def _finish(self, half: _Half) -> set[int]:
        """Write what the loop left in the states of some buckets; return those that changed."""
        touched = set[int]()
        for name, state in half.states.items():
            touched |= self._finish_state(name, state, half.buckets)
            count_look_ups(self.writers.counts, state)
        for table in half.lookups.values():
            count_look_ups(self.writers.counts, table)
        return touched

    def _finish_state(self, name: str, state: LoopState, buckets: Sequence[int]) -> set[int]:
        writers, plan, cache = self.writers, self.writers.plan, self.writers.cache()
        final = BucketState(plan.states[name], cache, tuple(buckets), plan.buckets)
        gone = state.gone()
        final.kill(gone)
        files = {bucket: writers.state.files(name, bucket, cache) for bucket in buckets}
        dead = set(gone.file.tolist())
        touched = {b for b in buckets if not dead.isdisjoint(final.places(b))}
        for rows in narrow(state.born(), state_file_schema(plan.spec.state(name))):
            writers.note_records(name, rows)
            hashes = rows.column("_hash").to_numpy()
            for bucket, first, stop in parted(hashes, buckets, buckets=plan.buckets):
                files[bucket].add(rows.slice(first, stop - first))
                touched.add(bucket)
        writers.state.finish(name, final, {bucket: files[bucket] for bucket in sorted(touched)})
        return touched


def _add(states: Mapping[str, LoopState], room: Room, name: str, rows: pa.Table) -> None:
    states[name].add(room.take(rows))


_HASH = "_hash"


@dataclass
class LoopWriters(TaskWriters):
    """The writers of a task of a loop; see the module header.

    Attributes:
        room: Where what the loop holds has place.
    """

    room: Room = field(init=False)
    _outputs_of: Mapping[str, OutputSpec] = field(init=False)
    _held: dict[str, list[pa.Table]] = field(init=False)
    _written_now: dict[str, list[pa.Table]] = field(init=False)
    _late: dict[str, list[pa.Table]] = field(init=False)
    _remote: dict[str, list[pa.Table]] = field(init=False)
    _bytes_held: Counter[str] = field(init=False, default_factory=Counter)
    _bytes_net: Counter[str] = field(init=False, default_factory=Counter)
    _bytes_written: int = field(init=False, default=0)
    _numbers: dict[str, array[float]] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.plan.spec
        self._go_on_with({one.name: None for one in spec.aggregates}, first=True)
        self.room = Room(self.plan.stage, self.plan.limits.whole_run_bytes)
        held = {loopback.name for loopback in spec.loopbacks} | {v.changes for v in spec.views}
        self._outputs_of = {one.name: one for one in spec.outputs}
        self._held = {name: [] for name in sorted(held)}
        others = self._outputs_of.keys() - held if self.plan.depends_on else ()
        self._written_now = {name: [] for name in sorted(others)}
        self._late = {}
        self._remote = {state.name: [] for state in spec.states}

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Take records of an output; write them at once unless they are held."""
        if name in self._numbers:
            self._numbers[name].frombytes(np.asarray(columns[0]).tobytes())
            return
        names = self._outputs_of[name].schema.names
        records = pa.Table.from_arrays(columns, names=list(names))
        if name in self._held:
            self._hold(name, self.room.take(records))
        elif self.part:
            self._late.setdefault(name, []).append(self.room.take(records))
        else:
            self.write_now(name, records)

    def write_now(self, name: str, records: pa.Table) -> None:
        """Write records of an output that is not held."""
        for part in records.to_batches():
            super().write_output(name, part.columns)
        if self.can_be_saved:
            self._written_now[name].append(records)
            self._bytes_written += int(records.nbytes)
            if self._bytes_written > self.plan.limits.spool_bytes:
                self._written_now = {}

    def write_remote(self, state: str, columns: list[pa.Array]) -> None:
        """Take state records that a group emitted for other keys."""
        spec = self.plan.spec.state(state)
        key, schema = self.plan.spec.key_of(spec), state_file_schema(spec)
        keys = [columns[spec.schema.index(name)] for name in key.names]
        hashes = hash_columns(keys, [f.type for f in key.fields]) & np.int64(self.plan.hash_mask)
        records = pa.Table.from_arrays([*columns, pa.array(hashes)], schema=schema)
        self._remote[state].append(self.room.take(records))
        self.counts["state_remote"] += len(hashes)

    @property
    def can_be_saved(self) -> bool:
        """Whether outputs that are no views have so few records that memory holds them too."""
        return bool(self.plan.depends_on) and self._bytes_written <= self.plan.limits.spool_bytes

    @property
    def bytes_held(self) -> int:
        """About how many bytes the tables of `saved` have."""
        return self._bytes_held.total() + (self._bytes_written if self._written_now else 0)

    def _hold(self, name: str, records: pa.Table) -> None:
        self._held[name].append(records)
        self._bytes_held[name] += int(records.nbytes)

    def saved(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what was counted, and what was written or is held, for another try of the run."""
        aggregates = {
            name: None if value is None else value.hex()
            for name, value in self.plan.context.aggregates.items()
        }
        facts = {
            "counts": dict(self.counts),
            "timer_us": self._timer_us,
            "aggregates": aggregates,
        }
        saved = {}
        for kind, flows in (("held", self._held), ("output", self._written_now)):
            for name in (name for name, tables in flows.items() if tables):
                # Every window of every superstep left a table: the next snapshot finds one.
                flows[name] = [pa.concat_tables(flows[name]).combine_chunks()]
                saved[f"{kind}/{name}"] = flows[name][0]
        return facts, saved

    def go_on_from(self, facts: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take up what another try saved: write what it wrote, hold what it held."""
        values = facts.get("aggregates", {}).items()
        self._go_on_with({n: None if v is None else float.fromhex(v) for n, v in values})
        self.counts.update(facts["counts"])
        self.note_timer(facts["timer_us"])
        for key, table in tables.items():
            kind, _, name = key.partition("/")
            if kind == "held":
                self._hold(name, table)
            elif kind == "output":
                for part in table.to_batches():
                    self.write_output(name, part.columns)

    def take_messages(self) -> dict[str, pa.Table]:
        """Return the messages of the superstep that ended, in the order of their emission."""
        return {
            loopback.name: pa.concat_tables(tables)
            for loopback in self.plan.spec.loopbacks
            if (tables := self._take(self._held, loopback.name))
        }

    def take_remote(self) -> dict[str, pa.Table]:
        """Return the records that groups emitted for other keys in this superstep, by state."""
        return {
            name: pa.concat_tables(tables)
            for name in self._remote
            if (tables := self._take(self._remote, name))
        }

    def take_late(self) -> dict[str, pa.Table]:
        """Return the records of outputs that task 0 writes for this one."""
        late, self._late = self._late, {}
        return {name: pa.concat_tables(tables) for name, tables in late.items()}

    def given(self) -> Mapping[str, Sequence[float]]:
        """Return what the groups of this superstep gave to each aggregate, or parts of as much."""
        if self.plan.tasks == 1:
            return self._numbers
        return {
            one.name: exact_parts(one.how, self._numbers[one.name])
            for one in self.plan.spec.aggregates
        }

    def go_on(self, given: Mapping[str, Sequence[float]]) -> bool:
        """End a superstep; return whether an aggregate ends the loop with it.

        Args:
            given: What all tasks gave to each aggregate.
        """
        values = self.plan.spec.aggregated(given)
        self._go_on_with(values)
        self._drop_cancelled()
        return self.plan.spec.is_converged(values)

    def _go_on_with(self, aggregates: Mapping[str, float | None], *, first: bool = False) -> None:
        """Show a superstep the aggregates of the one before; only the first calls for timers."""
        self._numbers = {name: array("d") for name in aggregates}
        context = replace(self.plan.context, aggregates=aggregates)
        self.plan = replace(self.plan, context=context)
        if not first:
            self.plan = replace(self.plan, wakes=False, ages=False)

    def _drop_cancelled(self) -> None:
        """Drop what cancelled out among the changes of views, once they are many.

        So they take the room of what the loop changed, whatever the number of its supersteps.
        """
        for name in (view.changes for view in self.plan.spec.views):
            if self._bytes_held[name] <= self.plan.limits.spool_bytes + 2 * self._bytes_net[name]:
                continue
            changes = pa.concat_tables(self._take(self._held, name))
            self._hold(name, changes.take(pa.array(rows_that_count(changes))))
            self._bytes_net[name] = self._bytes_held[name]

    def release(self, left: Mapping[str, pa.Table]) -> None:
        """Write the messages that no superstep reads, and what became of the views."""
        for name, table in left.items():
            for part in table.to_batches():
                super().write_output(name, part.columns)
        for view in self.plan.spec.views:
            if tables := self._take(self._held, view.changes):
                self._release_view(view, pa.concat_tables(tables))

    def _release_view(self, view: StateSpec, changes: pa.Table) -> None:
        records = changes.select(list(view.schema.names))
        signs = changes.column(SIGN).to_numpy().astype(np.int64)
        (codes,) = row_codes([records])
        sums = np.bincount(codes, weights=signs).astype(np.int64)
        died, born = rows_left(codes, signs, -sums), rows_left(codes, -signs, sums)
        rows = np.concatenate([died, born])
        if not len(rows):
            return
        left = records.take(pa.array(rows))
        groups = self._visits(left, self.plan.spec.key_of(view))
        gone, came = left.slice(0, len(died)), left.slice(len(died))
        write = ViewChanges(view, super().write_output).write
        write(gone, groups[: len(died)], came, groups[len(died) :])

    def _visits(self, records: pa.Table, key: Schema) -> Int64s:
        """Return a number for the group of each record, ascending in visiting order."""
        keys = records.select(list(key.names)).combine_chunks()
        arrays = [column.chunk(0) for column in keys.columns]
        hashes = hash_columns(arrays, [f.type for f in key.fields]) & np.int64(self.plan.hash_mask)
        keys = keys.append_column(_HASH, pa.array(hashes.view(np.uint64)))
        order = order_by_columns(keys, [_HASH, *key.names])
        (codes,) = row_codes([keys])
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.cumsum(np.diff(codes[order], prepend=codes[order[:1]]) != 0)
        return numbers

    def _take(self, held: dict[str, list[pa.Table]], name: str) -> list[pa.Table]:
        if held is self._held:
            self._bytes_held[name] = 0
        tables, held[name] = held[name], []
        return tables
