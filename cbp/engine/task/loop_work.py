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
an exchange (`cbp.engine.shuffle.superstep_rounds`): a task sends each other one the messages and
the remote state records for its buckets, and all of them how many messages are under way, and its
part of each aggregate. By these all end after the same superstep.

Guaranteed: the results are those of the reference engine, also where tries of the run were broken
off (tests/cbp/engine/task/test_loop_work.py), whatever the number of tasks
(tests/cbp/engine/task/test_loops_in_tasks.py).

Writers of a task that runs a loop: what its supersteps emit is held until the loop ends.

A message is read by the next superstep; if none follows, it is written. What became of the records
of views is written at the end: what is left of all their changes. State of another key is seen by
the next superstep. Any other output is written at once, superstep after superstep; task 0 does that
for all tasks, since its order is that of supersteps first.

What a loop holds is in memory while there is room (`EngineLimits.whole_run_bytes`), and in mapped
temporary files beyond (`cbp.engine.storage.held_records`): messages, records of states that it
wrote, and changes of views. A loop for which files have no room either is refused.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.key_hash import bucket_shift, hash_columns
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.kernel.net_changes import NetChanges
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.exchange import ALONE, Exchange, exact_parts
from cbp.engine.shuffle.replicated_read import arrange_messages
from cbp.engine.shuffle.spool import Spool
from cbp.engine.shuffle.superstep_rounds import Arrived, Round, SuperstepRounds
from cbp.engine.state.bucket_state import BucketState, parted
from cbp.engine.state.loop_state import LoopState
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.storage.held_records import HeldRecords, Room
from cbp.engine.task.bucket_work import (
    Lookups,
    author_work,
    count_arrived,
    count_combined,
    deliveries_of,
    flow_runs,
    looked_up,
    shared_records,
)
from cbp.engine.task.superstep_log import Snapshot, SuperstepLog
from cbp.engine.task.writers import TaskWriters, count_look_ups
from cbp.model.dataflow.stage import OutputSpec


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
        exchange: With the other tasks, if there are several.
    """

    writers: LoopWriters
    part: int
    exchange: Exchange = ALONE
    _log: SuperstepLog = field(init=False)
    _halves: list[_Half] = field(init=False)

    def __post_init__(self) -> None:
        plan, cache = self.writers.plan, self.writers.cache()
        assert self.exchange.tasks == plan.tasks, "the tasks of a loop run at the same time"
        self._log = SuperstepLog(plan, part=self.part)
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
                        plan.states[state.name],
                        cache,
                        buckets,
                        plan.buckets,
                        spec=state,
                        room=self.writers.room,
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
        alone = self.writers.plan.tasks == 1
        left = (self._run_alone if alone else self._run_together)(batches, sent=sent)
        writers = self.writers
        if self._log.spent and self.part == 0:
            writers.counts["seconds_superstep_log"] = self._log.spent
        writers.release(left)
        touched = {bucket for half in self._halves for bucket in self._finish(half)}
        writers.state.compact_others(touched, writers.cache())
        writers.state.write_deletes()

    def _run_alone(
        self, batches: Iterable[pa.RecordBatch], *, sent: bool
    ) -> Mapping[str, pa.Table]:
        """Run all supersteps of a loop in one task; return the messages that are left."""
        writers = self.writers
        most, number, left = writers.plan.spec.supersteps, 0, dict[str, pa.Table]()
        if (snapshot := self._log.newest()) is not None:
            if sent:
                deque(batches, maxlen=0)
            number, left = snapshot.supersteps, self._go_on_from(snapshot)
        while number < most and (number == 0 or left):
            writers.plan.faults("superstep.before")
            writers.room.superstep = number + 1
            self._superstep(self._arranged(left) if number else batches, first=number == 0)
            left, number = writers.take_messages(), number + 1
            self._turn(writers.take_remote)
            if writers.go_on() and number > 1:
                writers.counts["messages_dropped"] = sum(table.num_rows for table in left.values())
                left = {}
            writers.plan.faults("superstep.after")
            if left and number < most:
                self._keep(number, left)
        writers.counts["supersteps"] = number
        return left

    def _run_together(
        self, batches: Iterable[pa.RecordBatch], *, sent: bool
    ) -> Mapping[str, pa.Table]:
        """Run all supersteps of this task of a loop; return those of its messages that are left."""
        writers, rounds = self.writers, self._rounds()
        most, number, left = writers.plan.spec.supersteps, 0, dict[str, pa.Table]()
        if (snapshot := self._broken_off(rounds)) is not None:
            if sent:
                deque(batches, maxlen=0)
            number, left = snapshot.supersteps, self._go_on_from(snapshot)
        saved = 0
        while True:
            writers.plan.faults("superstep.before")
            writers.room.superstep = number + 1
            self._superstep(self._arranged(left) if number else batches, first=number == 0)
            left, emitted, number = {}, writers.take_messages(), number + 1
            done = self._exchanged(rounds, emitted, last=number == most)
            if saved:  # all have put theirs, since they did this round
                self._log.keep_only(saved)
                saved = 0
            left = self._taken(rounds.arrived)
            converged = writers.go_on(done.aggregates) and number > 1
            if converged:
                dropped = sum(table.num_rows for table in emitted.values())
                writers.counts["messages_dropped"] = dropped
                emitted = {}
            writers.plan.faults("superstep.after")
            if converged or number == most or not done.waiting:
                break
            del emitted  # each message is with its task
            done.require_routed()
            if done.saves:
                self._log.put(partial(self._snapshot, number, left))
                saved = number
        if self.part == 0:
            writers.counts["supersteps"] = number
        return emitted

    def _rounds(self) -> SuperstepRounds:
        plan = self.writers.plan
        assert plan.layout is not None, "every input of a loop has groups"
        return SuperstepRounds(
            self.exchange,
            plan.spec,
            plan.layout,
            plan.stage,
            plan.tasks,
            plan.buckets,
            plan.hash_mask,
            Arrived(self.writers.room),
        )

    def _broken_off(self, rounds: SuperstepRounds) -> Snapshot | None:
        """Return the snapshot from which all tasks go on; `None` if they begin anew."""
        numbers: list[Any] = rounds.ask("snapshots", self._log.numbers())
        common = max(set.intersection(*map(set, numbers)), default=0)
        snapshot = self._log.after(common) if common else None
        # One of a later superstep is of a try that ended before all had theirs. It goes before any
        # task puts another of that superstep: a try goes on from snapshots of one try alone.
        self._log.keep_only(common)
        if all(rounds.ask("sound", snapshot is not None)):
            return snapshot
        self._log.keep_only(0)
        return None

    def _exchanged(
        self, rounds: SuperstepRounds, emitted: Mapping[str, pa.Table], *, last: bool
    ) -> Round:
        """Do the rounds after a superstep that emitted messages; return what all know then."""
        writers = self.writers
        done = rounds.swap(
            messages=emitted,
            remote=writers.take_all_remote(),
            outputs=writers.take_late(),
            aggregates=writers.given(),
            saves=self._fits and self._is_due(emitted),
            last=last,
        )
        for name, table in rounds.arrived.take_outputs():
            for part in table.to_batches():
                writers.write_output(name, part.columns)
        return done

    def _taken(self, arrived: Arrived) -> dict[str, pa.Table]:
        """Take what the rounds brought; return the messages that the next superstep reads."""
        self._turn(arrived.take_remote)
        return self.writers.read(arrived.move_messages())

    @property
    def _fits(self) -> bool:
        """Whether there is room for a snapshot, which is made in memory."""
        room = self.writers.room
        return room.taken + room.on_disk <= room.most

    def _is_due(self, waiting: Mapping[str, pa.Table]) -> bool:
        """Return whether it is time for a snapshot."""
        return self.writers.can_be_saved and self._log.is_due(partial(self._bytes, waiting))

    def _keep(self, number: int, left: Mapping[str, pa.Table]) -> None:
        """Put a snapshot, if it is time; it is made in memory, so there must be room for it."""
        if self._fits and self._is_due(left):
            self._log.put(partial(self._snapshot, number, left))

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
        for name in names:
            if (key := f"left/{name}") in tables:
                self.writers.hold(name, tables[key])
        return self.writers.take_messages()

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
                count_combined(plan, spool, counts)
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
            partial(_add, half.states),
            deliveries_of(plan, half.buckets, runs, shared),
            half.lookups,
        )
        work.run()
        writers.counts["groups"] += work.groups

    def _turn(self, take_remote: Callable[[str], Sequence[pa.Table]]) -> None:
        """Let the next superstep see what this one wrote, and what groups wrote for other keys."""
        plan = self.writers.plan
        for spec in plan.spec.states:
            remote = take_remote(spec.name)
            for half in self._halves:
                for records in remote:
                    half.states[spec.name].add(half.part_of(records, plan.buckets))
                half.states[spec.name].turn()

    def _arranged(self, messages: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield messages as the records of a superstep, sorted as the shuffle sorts them."""
        plan = self.writers.plan
        assert plan.layout is not None
        for flow, input_ in enumerate(plan.spec.inputs):
            if input_.name in messages:
                for table in arrange_messages(
                    messages[input_.name],
                    plan.spec,
                    plan.layout,
                    flow,
                    stage=plan.stage,
                    buckets=plan.buckets,
                    hash_mask=plan.hash_mask,
                    limits=plan.limits,
                    scarce=self.writers.room.on_disk > 0,
                ):
                    yield from table.to_batches()

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
        schema = state_file_schema(plan.spec.state(name))
        for rows in chain.from_iterable(narrow(part, schema) for part in state.born()):
            writers.note_records(name, rows)
            hashes = rows.column("_hash").to_numpy()
            for bucket, first, stop in parted(hashes, buckets, buckets=plan.buckets):
                files[bucket].add(rows.slice(first, stop - first))
                touched.add(bucket)
        writers.state.finish(name, final, {bucket: files[bucket] for bucket in sorted(touched)})
        return touched


def _add(states: Mapping[str, LoopState], name: str, rows: pa.Table) -> None:
    states[name].add(rows)


@dataclass
class LoopWriters(TaskWriters):
    """The writers of a task of a loop; see the module header.

    Attributes:
        room: Where what the loop holds has place.
    """

    room: Room = field(init=False)
    _outputs_of: Mapping[str, OutputSpec] = field(init=False)
    _held: dict[str, HeldRecords] = field(init=False)
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
        others = sorted(self._outputs_of.keys() - held)
        self._written_now = {name: [] for name in others} if self.plan.depends_on else {}
        late = others if self.part else ()
        self._late = {name: HeldRecords(self.room) for name in late}
        self._remote = {state.name: HeldRecords(self.room) for state in spec.states}
        mask = self.plan.hash_mask
        self._net = {
            view.changes: NetChanges(view, spec.key_of(view), mask, self.room)
            for view in spec.views
        }

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Take records of an output; write them at once unless they are held."""
        if name in self._numbers:
            self._numbers[name].frombytes(np.asarray(columns[0]).tobytes())
            return
        names = self._outputs_of[name].schema.names
        records = pa.Table.from_arrays(columns, names=list(names))
        if name in self._held:
            self._held[name].add(records)
        elif name in self._late:
            self._late[name].add(records)
        else:
            super().write_output(name, columns)
            self._note_written(name, records)

    def _note_written(self, name: str, records: pa.Table) -> None:
        """Keep what was written for a snapshot."""
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
        self._remote[state].add(records)
        self.counts["state_remote"] += len(hashes)

    @property
    def can_be_saved(self) -> bool:
        """Whether outputs that are no views have so few records that memory holds them too."""
        return bool(self.plan.depends_on) and self._bytes_written <= self.plan.limits.spool_bytes

    @property
    def bytes_held(self) -> int:
        """About how many bytes the tables of `saved` have."""
        held = sum(one.nbytes for one in self._held.values())
        return held + (self._bytes_written if self._written_now else 0)

    def hold(self, name: str, records: pa.Table) -> None:
        """Hold messages of a loopback, or changes of a view, behind the others."""
        self._held[name].add(records)

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
        # Every window of every superstep left a table: the next snapshot finds one.
        for name in (name for name, held in self._held.items() if held.tables):
            saved[f"held/{name}"] = table = pa.concat_tables(self._held[name].take())
            self.hold(name, table.combine_chunks())
        for name in (name for name, tables in self._written_now.items() if tables):
            saved[f"output/{name}"] = pa.concat_tables(self._written_now[name]).combine_chunks()
            self._written_now[name] = [saved[f"output/{name}"]]
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
                self.hold(name, table)
            elif kind == "output":
                for part in table.to_batches():
                    self.write_output(name, part.columns)

    def take_messages(self) -> dict[str, pa.Table]:
        """Return the messages of the superstep that ended, in the order of their emission."""
        names = [one.name for one in self.plan.spec.loopbacks]
        return self.read({name: [self._held[name].move()] for name in names})

    def read(self, messages: Mapping[str, Sequence[HeldRecords]]) -> dict[str, pa.Table]:
        """Hold messages until others are read or taken, by loopback; return them."""
        for one in self._read:
            one.take()
        self._read = [*chain.from_iterable(messages.values())]
        tables = {name: [t for one in held for t in one.tables] for name, held in messages.items()}
        return {name: pa.concat_tables(some) for name, some in tables.items() if some}

    def take_remote(self, state: str) -> list[pa.Table]:
        """Return the records of a state that groups emitted for other keys in this superstep."""
        return self._remote[state].take()

    def take_all_remote(self) -> dict[str, pa.Table]:
        """Return what `take_remote` does, of all states that have some."""
        taken = {name: self.take_remote(name) for name in self._remote}
        return {name: pa.concat_tables(tables) for name, tables in taken.items() if tables}

    def take_late(self) -> dict[str, pa.Table]:
        """Return the records of outputs that task 0 writes for this one."""
        taken = {name: one.take() for name, one in self._late.items()}
        return {name: pa.concat_tables(tables) for name, tables in taken.items() if tables}

    def given(self) -> dict[str, list[float]]:
        """Return parts of what the groups of this superstep gave to each aggregate."""
        return {
            one.name: exact_parts(one.how, self._numbers[one.name])
            for one in self.plan.spec.aggregates
        }

    def go_on(self, given: Mapping[str, Sequence[float]] | None = None) -> bool:
        """End a superstep; return whether an aggregate ends the loop with it.

        Args:
            given: What the groups of all tasks gave to each aggregate; `None`: those of this one.
        """
        values = self.plan.spec.aggregated(self._numbers if given is None else given)
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
            held = self._held[name]
            if held.nbytes <= self.plan.limits.spool_bytes + 2 * self._bytes_net[name]:
                continue
            self._net[name].drop_cancelled(held)
            self._bytes_net[name] = held.nbytes

    def release(self, left: Mapping[str, pa.Table]) -> None:
        """Write the messages that no superstep reads, and what became of the views."""
        for name, table in left.items():
            for part in table.to_batches():
                super().write_output(name, part.columns)
        for name, net in self._net.items():
            net.write(self._held[name], super().write_output)
