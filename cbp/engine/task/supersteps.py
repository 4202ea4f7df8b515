"""Supersteps of a task: calls groups until no message is left, and writes what they leave.

    arrived records -> superstep 0 -> messages -> superstep 1 -> ... -> messages that are left
                         '-> LoopState ---------------'-> LoopState ... -> state, changes of views

Each superstep calls the kernel that any run calls, on messages and state in memory. Only the final
result is written (`cbp.engine.task.loop_writers`), as one epoch with the same effect would write
it. A long loop leaves snapshots, from which another try of the run continues
(`cbp.engine.task.superstep_log`).

Loops may be inside each other (`cbp.model.graph.loop_nesting`). Messages of an outer loop are held,
and read once no message of its inner loops is left. Such messages of earlier epochs are not among
the records that arrive: the task reads them from their files, and holds them likewise.

A loop may have several tasks, each with its own buckets. After each superstep they do a round of
an exchange (`cbp.engine.shuffle.superstep_rounds`), by which all end after the same superstep. If
the order of messages does not matter (`Loopback.microsteps`), a task continues alone with those
for its own groups until it has none, and then does the exchange: it has several microsteps in a
superstep. Snapshots belong to exchanges, when no message is under way.

Guaranteed: the results are those of the reference engine, also if tries of the run were
interrupted (tests/cbp/engine/task/test_supersteps.py), whatever the number of tasks
(tests/cbp/engine/task/test_loops_in_tasks.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema, as_type
from cbp.engine.columnar.file_slices import windows
from cbp.engine.columnar.key_hash import bucket_shift, flipped
from cbp.engine.kernel.arrow.type_check import narrow
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.exchange import ALONE, Exchange
from cbp.engine.shuffle.replicated_read import arrange_messages
from cbp.engine.shuffle.spool import Spool
from cbp.engine.shuffle.superstep_rounds import Arrived, Round, SuperstepRounds
from cbp.engine.state.bucket_state import BucketState, parted
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.loop_state import LoopState
from cbp.engine.state.run_files import state_file_schema
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
from cbp.engine.task.loop_writers import LoopWriters
from cbp.engine.task.superstep_log import Snapshot, SuperstepLog
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import count_look_ups
from cbp.errors import CbpError


@dataclass
class _Share:
    """Buckets of a task over which hashes ascend, and their states after the last superstep.

    Attributes:
        flips: Whether these are all of the task's buckets, so that the signs of hashes are flipped
            (`cbp.engine.state.bucket_state`); otherwise they are of one half of all buckets.
    """

    buckets: tuple[int, ...]
    states: dict[str, LoopState]
    lookups: Lookups
    flips: bool

    def part_of(self, records: pa.Table, buckets: int) -> pa.Table:
        """Return the state records of these buckets, with the hashes of the states."""
        hashes = records.column("_hash").to_numpy()
        at = (hashes.view(np.uint64) >> np.uint64(bucket_shift(buckets))).astype(np.int64)
        mine = (at >= self.buckets[0]) & (at <= self.buckets[-1])
        return self.with_signs(records.filter(pa.array(mine)))

    def with_signs(self, records: pa.Table) -> pa.Table:
        """Return records with the states' hashes in place of the files' hashes, or vice versa."""
        if not self.flips:
            return records
        at = records.schema.get_field_index("_hash")
        hashes = flipped(records.column(at).to_numpy())
        return records.set_column(at, records.schema.field(at), pa.array(hashes))


@dataclass
class LoopWork:
    """All supersteps of one run in one task, number `part`; `run` is called once."""

    writers: LoopWriters
    part: int
    exchange: Exchange = ALONE
    _log: SuperstepLog = field(init=False)
    _shares: list[_Share] = field(init=False)

    def __post_init__(self) -> None:
        plan, cache = self.writers.plan, self.writers.cache()
        assert self.exchange.tasks == plan.tasks, "the exchange must connect all tasks of the plan"
        self._log = SuperstepLog(plan, part=self.part)
        own = tuple(bucket for bucket in range(plan.buckets) if plan.owner(bucket) == self.part)
        flips = calls_together(plan)
        by_halves = halves_of(own, plan.buckets)
        self._shares = [
            self._share(buckets, cache, flips=flips)
            for buckets in ([own] if flips and own else by_halves)
        ]

    def _share(self, buckets: tuple[int, ...], cache: IndexCache, *, flips: bool) -> _Share:
        plan, room = self.writers.plan, self.writers.room
        states = {
            state.name: LoopState(
                plan.states[state.name], cache, buckets, plan.buckets, flips, spec=state, room=room
            )
            for state in plan.spec.states
        }
        return _Share(buckets, states, looked_up(plan, buckets, cache, flips=flips), flips)

    def run(self, batches: Iterable[pa.RecordBatch], *, sent: bool) -> None:
        """Run all supersteps, the first one on the records that arrived; write what is left.

        `sent`: another process sends the records, and waits until all are read.
        """
        alone = self.writers.plan.tasks == 1
        left = (self._run_alone if alone else self._run_together)(batches, sent=sent)
        writers = self.writers
        if self._log.spent and self.part == 0:
            writers.counts["seconds_superstep_log"] = self._log.spent
        writers.release(left)
        touched = {bucket for share in self._shares for bucket in self._finish(share)}
        writers.state.compact_others(touched, writers.cache())
        writers.state.write_deletes()

    def _run_alone(
        self, batches: Iterable[pa.RecordBatch], *, sent: bool
    ) -> Mapping[str, pa.Table]:
        """Run all supersteps of a loop in one task; return the messages that are left."""
        writers, loops = self.writers, self.writers.plan.spec.loops
        most, number, left = writers.plan.spec.supersteps, 0, dict[str, pa.Table]()
        if (snapshot := self._log.newest()) is not None:
            if sent:
                deque(batches, maxlen=0)
            number, left = snapshot.supersteps, self._go_on_from(snapshot)
        else:
            self._hold_arrived()
        while number < most and (number == 0 or left):
            writers.plan.faults("superstep.before")
            writers.room.superstep = number + 1
            self._superstep(self._arranged(left) if number else batches, first=number == 0)
            read, left, number = [*left], {}, number + 1
            writers.free_read()
            self._turn(writers.take_remote)
            writers.drop(writers.go_on(read), {})
            waiting = writers.waiting
            left = writers.take_messages(waiting if number == most else loops.next_of(waiting))
            writers.plan.faults("superstep.after")
            if left and number < most and self._fits and self._is_due(left):
                self._log.put(partial(self._snapshot, number, left))
        writers.counts["supersteps"] = number
        return left

    def _run_together(
        self, batches: Iterable[pa.RecordBatch], *, sent: bool
    ) -> Mapping[str, pa.Table]:
        """Run all supersteps of this task of a loop; return the messages that it writes."""
        writers, loops, rounds = self.writers, self.writers.plan.spec.loops, self._rounds()
        most, number, left = writers.plan.spec.supersteps, 0, dict[str, pa.Table]()
        read, microsteps = frozenset[str](), any(i.microsteps for i in writers.plan.spec.loopbacks)
        if (snapshot := self._broken_off(rounds)) is not None:
            if sent:
                deque(batches, maxlen=0)
            number, left = snapshot.supersteps, self._go_on_from(snapshot)
            taken: list[Any] = rounds.ask("read", [*left])
            read = frozenset(chain.from_iterable(taken))
        elif self.part == 0:
            self._hold_arrived()
        saved = 0
        while True:
            writers.plan.faults("superstep.before")
            writers.room.superstep = number + 1
            self._superstep(self._arranged(left) if number else batches, first=number == 0)
            left, number = {}, number + 1
            writers.free_read()
            writers.end_superstep(number)
            emitted = writers.take_messages(loops.outer.keys() - loops.around_others)
            emitted = self._go_on_alone(rounds, emitted) if microsteps else emitted
            done = self._exchanged(rounds, emitted, last=number == most)
            if saved:  # all have put theirs, since they did this round
                self._log.keep_only(saved)
                saved = 0
            self._turn(rounds.arrived.take_remote)
            ended = writers.go_on(read, done.aggregates)
            writers.drop(ended, emitted)
            waiting = done.waiting.keys() - ended
            writers.plan.faults("superstep.after")
            if number == most or not waiting:
                break
            del emitted  # each message is with its task
            read = loops.next_of(waiting)
            left = self._taken(rounds, done, read)
            if done.saves:
                self._log.put(partial(self._snapshot, number, left))
                saved = number
        if self.part == 0:
            writers.counts["supersteps"] = number
        left = {name: table for name, table in emitted.items() if name in waiting}
        if late := waiting & loops.around_others:
            rounds.deliver(writers.take_by_superstep(late), last=True)
            left |= writers.read(rounds.arrived.move_left())
        return left

    def _go_on_alone(
        self, rounds: SuperstepRounds, emitted: dict[str, pa.Table]
    ) -> dict[str, pa.Table]:
        """Continue with messages for groups of this task; return all others, in their order.

        It ends after a bounded number of steps, since snapshots need exchanges. Then messages for
        groups of this task are among the others.
        """
        writers, limits = self.writers, self.writers.plan.limits
        loopbacks, steps, rows = writers.plan.spec.loops.outer.keys(), 0, 0
        while emitted and steps < limits.microsteps:
            rows += sum(table.num_rows for table in emitted.values())
            if rows > limits.microstep_rows:
                break
            try:
                own, others = rounds.own(self.part, emitted)
            except CbpError:
                break  # the exchange fails again, and raises if a superstep reads the message
            writers.send_later(others)
            emitted, steps = {}, steps + 1
            if not own:
                break
            # Records for other keys wait for the exchange: those keys may belong to another task.
            self._turn(lambda state: ())
            writers.go_on(own.keys())
            writers.plan.faults("superstep.before")
            self._superstep(self._arranged(own), first=False)
            writers.free_read()
            emitted = writers.take_messages(loopbacks)
            writers.counts["microsteps"] = writers.counts.get("microsteps", 0) + 1
        return writers.take_outgoing(emitted)

    def _hold_arrived(self) -> None:
        """Hold the messages of files that the first superstep does not read."""
        writers, plan = self.writers, self.writers.plan
        for name, files in plan.held.items():
            input_ = plan.spec.input(name)
            schema = arrow_schema(input_.schema)  # emitted messages that are held have it, too
            for table in chain.from_iterable(
                windows(file, input_, plan.limits.message_group_rows_max) for file in files
            ):
                columns = [as_type(table.column(one.name), one.type) for one in schema]
                writers.hold(name, pa.Table.from_arrays(columns, names=schema.names))
        writers.end_superstep(0)

    def _rounds(self) -> SuperstepRounds:
        plan = self.writers.plan
        routes = [plan.route(flow) for flow in range(len(plan.spec.inputs))]
        return SuperstepRounds(self.exchange, routes, plan.tasks, Arrived(self.writers.room))

    def _broken_off(self, rounds: SuperstepRounds) -> Snapshot | None:
        """Return the snapshot from which all tasks continue; `None` if they start over."""
        numbers: list[Any] = rounds.ask("snapshots", self._log.numbers())
        common = max(set.intersection(*map(set, numbers)), default=0)
        snapshot = self._log.after(common) if common else None
        # A snapshot of a later superstep is from a try that ended before all tasks had theirs.
        # It is removed before any task puts another one: no try mixes snapshots of two tries.
        self._log.keep_only(common)
        if all(rounds.ask("sound", snapshot is not None)):
            return snapshot
        self._log.keep_only(0)
        return None

    def _exchanged(
        self, rounds: SuperstepRounds, emitted: Mapping[str, pa.Table], *, last: bool
    ) -> Round:
        writers = self.writers
        done = rounds.swap(
            messages=emitted,
            remote=writers.take_all_remote(),
            outputs=writers.take_late(),
            aggregates=writers.given(),
            saves=self._fits and self._is_due(emitted),
            last=last,
            waiting=writers.waiting,
        )
        writers.write_for_others(rounds.arrived.take_outputs())
        return done

    def _taken(
        self, rounds: SuperstepRounds, done: Round, read: frozenset[str]
    ) -> dict[str, pa.Table]:
        """Return the messages of the loopbacks that the next superstep reads (`read`).

        Messages that have waited are sent now. Arrived messages of other loopbacks are dropped,
        since their loops have ended.
        """
        writers = self.writers
        done.require_routed(read)
        if waited := read & writers.plan.spec.loops.around_others:
            rounds.deliver(writers.take_by_superstep(waited), last=False).require_routed(read)
        writers.free_read()
        messages = rounds.arrived.move_messages()
        for held in chain.from_iterable(messages.pop(n) for n in messages.keys() - read):
            held.take()
        return writers.read(messages)

    @property
    def _fits(self) -> bool:
        """Whether there is room for a snapshot, which is made in memory."""
        room = self.writers.room
        return room.taken + room.on_disk <= room.most

    def _is_due(self, waiting: Mapping[str, pa.Table]) -> bool:
        return self.writers.can_be_saved and self._log.is_due(partial(self._bytes, waiting))

    def _bytes(self, left: Mapping[str, pa.Table]) -> int:
        states = (state for share in self._shares for state in share.states.values())
        waiting = sum(int(table.nbytes) for table in left.values())
        return waiting + self.writers.bytes_held + sum(one.bytes_changed for one in states)

    def _snapshot(self, number: int, left: Mapping[str, pa.Table]) -> Snapshot:
        facts, tables = self.writers.saved()
        tables.update((f"left/{name}", table) for name, table in left.items())
        for at, share in enumerate(self._shares):
            for name, state in share.states.items():
                gone, written = state.changes()
                tables[f"gone/{at}/{name}"] = gone
                tables[f"written/{at}/{name}"] = share.with_signs(written)
        return Snapshot(number, facts, tables)

    def _go_on_from(self, snapshot: Snapshot) -> dict[str, pa.Table]:
        """Continue from a snapshot of another try; return the messages that it left."""
        tables = snapshot.tables
        for at, share in enumerate(self._shares):
            for name, state in share.states.items():
                written = share.with_signs(tables[f"written/{at}/{name}"])
                state.go_on_from(tables[f"gone/{at}/{name}"], written)
        self.writers.go_on_from(snapshot.facts, tables)
        if self.part == 0:
            self.writers.counts["supersteps_before"] = snapshot.supersteps
        loopbacks = [one.name for one in self.writers.plan.spec.loopbacks]
        left = [name for name in loopbacks if f"left/{name}" in tables]
        for name in left:
            self.writers.hold(name, tables[f"left/{name}"])
        return self.writers.take_messages(left)

    def _superstep(self, batches: Iterable[pa.RecordBatch], *, first: bool) -> None:
        plan, counts = self.writers.plan, self.writers.counts
        assert plan.layout is not None, "every input of a loop has groups"
        came = self.writers.waiting
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            shared = None
            if first:
                count_arrived(plan, spool, counts)
                for name, rows in came.items():
                    counts[f"records_in.{name}"] += rows
                shared = shared_records(plan, self.part, spool, counts)
            else:
                counts["messages"] = counts.get("messages", 0) + sum(
                    spool.arrived(flow) for flow in range(len(plan.layout.flows))
                )
                count_combined(plan, spool, counts)
            for share in self._shares:
                for buckets in self._called_together(share, spool):
                    self._call(share, buckets, spool, shared)
            counts.update(shared.counts() if shared else {})

    def _called_together(self, share: _Share, spool: Spool) -> Sequence[tuple[int, ...]]:
        """Return parts of a share whose groups are called together.

        Many groups are called in two parts, since the memory of a part grows with its records.
        """
        plan, flows = self.writers.plan, range(len(spool.layout.flows))
        if not share.flips or sum(map(spool.arrived, flows)) <= plan.limits.call_rows:
            return [share.buckets]
        return halves_of(share.buckets, plan.buckets)

    def _call(
        self, share: _Share, buckets: tuple[int, ...], spool: Spool, shared: Shared | None
    ) -> None:
        writers, plan = self.writers, self.writers.plan
        runs = flow_runs(plan, spool, buckets, flips=share.flips)
        outer = any(state.grouping == "outer" for state in plan.spec.states)
        if not (outer or plan.wakes or shared or any(run.table.num_rows for run in runs)):
            return
        work = author_work(
            writers,
            plan.spec,
            runs,
            {**share.states},
            lambda name, rows: share.states[name].add(rows),
            deliveries_of(plan, buckets, runs, shared),
            share.lookups,
        )
        work.run()
        writers.counts["groups"] += work.groups

    def _turn(self, take_remote: Callable[[str], Sequence[pa.Table]]) -> None:
        """Let the next superstep see all state that groups wrote, also for other keys."""
        plan = self.writers.plan
        for spec in plan.spec.states:
            remote = take_remote(spec.name)
            for share in self._shares:
                for records in remote:
                    share.states[spec.name].add(share.part_of(records, plan.buckets))
                share.states[spec.name].turn()
        for share in self._shares:
            for table in share.lookups.values():
                table.forget_parts()

    def _arranged(self, messages: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        plan, scarce = self.writers.plan, self.writers.room.on_disk > 0
        for flow, input_ in enumerate(plan.spec.inputs):
            if input_.name in messages:
                own, route = messages[input_.name], plan.route(flow)
                for table in arrange_messages(own, route, limits=plan.limits, scarce=scarce):
                    yield from table.to_batches()

    def _finish(self, share: _Share) -> set[int]:
        touched = set[int]()
        for name, state in share.states.items():
            touched |= self._finish_state(name, state, share)
            count_look_ups(self.writers.counts, state)
        for table in share.lookups.values():
            count_look_ups(self.writers.counts, table)
        return touched

    def _finish_state(self, name: str, state: LoopState, share: _Share) -> set[int]:
        writers, plan, cache = self.writers, self.writers.plan, self.writers.cache()
        buckets, flips = share.buckets, share.flips
        final = BucketState(plan.states[name], cache, buckets, plan.buckets)
        gone = state.gone()
        final.kill(gone)
        files = {bucket: writers.state.files(name, bucket, cache) for bucket in buckets}
        dead = set(gone.file.tolist())
        touched = {b for b in buckets if not dead.isdisjoint(final.places(b))}
        schema, last = state_file_schema(plan.spec.state(name)), buckets[0]
        for rows in chain.from_iterable(narrow(part, schema) for part in state.born()):
            writers.note_records(name, rows)
            hashes = rows.column("_hash").to_numpy()
            signed = share.with_signs(rows)
            for bucket, first, stop in parted(hashes, buckets, buckets=plan.buckets, flips=flips):
                if bucket != last:
                    files[last].close()  # it gets no more records; memory holds one open file
                    last = bucket
                files[bucket].add(signed.slice(first, stop - first))
                touched.add(bucket)
        writers.state.finish(name, final, {bucket: files[bucket] for bucket in sorted(touched)})
        return touched


def calls_together(plan: TaskPlan) -> bool:
    """Return whether groups of all buckets of a task can be called together, by flipped hashes.

    That needs groups that are called for their own records alone: neither for those of their
    states, nor for records that several groups share.
    """
    assert plan.layout is not None, "every input of a loop has groups"
    plain = all(one.grouping == "inner" and not one.timers for one in plan.spec.states)
    return plain and not plan.spec.expiries and not plan.layout.shared


def halves_of(buckets: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Return the buckets, of `count`, whose hashes have one sign, then the others, if any."""
    halves = (tuple(b for b in buckets if (b < count // 2) == low) for low in (True, False))
    return [half for half in halves if half]
