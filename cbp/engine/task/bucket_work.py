"""Work on a task's buckets: which ones run together, and one batch of them from start to end.

    arrived records -> batches of neighboring buckets -> flow runs, states -> a kernel -> state

A parameter says what a batch applies: the author's translator (`author_work`), or results that a
plan in SQL has computed. A batch reads looked-up tables only in the buckets of its own groups
(`looked_up`). Tables that every group reads in full are read by `cbp.engine.task.writers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import FlowRun, union
from cbp.engine.columnar.looked_up import WholeTable
from cbp.engine.kernel.arrow.run import VectorisedRun
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.kernel.groupwise import GroupwiseRun
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import BucketState, neighbors, parted, state_weight
from cbp.engine.state.due_groups import Woken, due_groups
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.state.run_files import state_file_schema
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters, count_look_ups
from cbp.model.dataflow.expiry import expires_at
from cbp.model.dataflow.run_context import RunContext
from cbp.model.dataflow.stage import TIMER_COLUMN, StateSpec, TranslatorSpec

Lookups = Mapping[str, BucketState]
"""Looked-up tables by name, each with the files of the buckets that hold the groups."""

NO_LOOKUPS: Lookups = MappingProxyType({})

WriteState = Callable[[str, pa.Table], None]
"""Takes a state's name and new records of it, which ascend by hash."""


class KernelWriters(Protocol):
    """The part of a task's writers that the kernels need (`cbp.engine.task.writers`)."""

    plan: TaskPlan
    emitted: Emitted

    @property
    def whole_tables(self) -> Mapping[str, WholeTable]:
        """The looked-up tables whose records all go to every group."""

    @property
    def whole_arrow_tables(self) -> Mapping[str, pa.Table]:
        """The looked-up tables whose records all go to every group, as Arrow tables."""

    def write_output(self, name: str, columns: list[pa.Array]) -> None:
        """Take records of an output."""

    def write_remote(self, state: str, columns: list[pa.Array]) -> None:
        """Take state records that a group emitted for other keys."""

    def write_bindings(self, bindings: Sequence[Binding]) -> None:
        """Take bindings of groups to addresses."""

    def note_timer(self, at_us: int | None) -> None:
        """Take the time of a pending timer."""


class BucketWork(Protocol):
    """The work on one batch of buckets; `groups` is the number of groups that were called."""

    groups: int

    def run(self) -> None:
        """Do the work; called once."""


def bucket_batches(
    plan: TaskPlan, part: int, spool: Spool, shared: Shared | None = None
) -> list[tuple[int, ...]]:
    """Return the buckets that a task runs, as tuples of neighbors that run together.

    These are the buckets with records. If groups are called for their state alone, the
    task's buckets with state are added. State is counted without a look-up.
    """
    size_by_bucket = Counter(spool.sizes())
    if shared:
        size_by_bucket.update(shared.sizes())
    for spec in plan.spec.states:
        live = plan.states[spec.name].live
        if (spec.timers and plan.wakes) or (spec.expire_ms and plan.ages):
            size_by_bucket.update({b: 0 for b in live if plan.owner(b) == part})
        whole = spec.grouping == "outer" or bool(shared and shared.reaches(spec.name))
        mine = {bucket for bucket in live if plan.owner(bucket) == part} if whole else set()
        for bucket in mine if whole else size_by_bucket.keys() & live.keys():
            rows = sum(file.live for file in live[bucket])
            size_by_bucket[bucket] += state_weight(rows, whole=whole)
    return neighbors(dict(size_by_bucket), buckets=plan.buckets, most=plan.limits.window_rows)


def count_arrived(plan: TaskPlan, spool: Spool, counts: dict[str, float]) -> None:
    """Count the records of every flow, and the records that a combiner merged into others."""
    for i, flow in enumerate(spool.layout.flows):
        counts[f"records_in.{flow.name}"] = spool.records(i)
    count_combined(plan, spool, counts)


def count_combined(plan: TaskPlan, spool: Spool, counts: dict[str, float]) -> None:
    """Count the records that combiners merged into others."""
    for i, input_ in enumerate(plan.spec.inputs):
        if input_.combine is not None:
            counts["records_combined"] += spool.records(i) - spool.arrived(i)


def shared_records(
    plan: TaskPlan, part: int, spool: Spool, counts: dict[str, float]
) -> Shared | None:
    """Return the records that several groups of a task share; `None` if there are none."""
    if not any(spool.arrived(spool.layout.tag(flow)) for flow in spool.layout.shared):
        return None
    files, tasks = plan.bindings, plan.tasks
    shared = Shared(plan.spec, spool, part=part, tasks=tasks, buckets=plan.buckets, files=files)
    counts["bytes_broadcast"] = shared.bytes
    counts["bytes_bindings"] = shared.bytes_bindings
    return shared


def deliveries_of(
    plan: TaskPlan, buckets: Sequence[int], runs: Sequence[FlowRun], shared: Shared | None
) -> Deliveries | None:
    """Return the shared records for the groups of some buckets; `None` if there are none."""
    if not shared:
        return None
    assert plan.layout is not None, "a plan without a layout has no shared records"
    return Deliveries(plan.spec, shared, buckets, runs=runs, orders=plan.layout.orders)


def flow_runs(
    plan: TaskPlan, spool: Spool, buckets: Sequence[int], *, flips: bool = False
) -> list[FlowRun]:
    """Return the arrived records of some neighboring buckets, input by input; see `FlowRun`."""
    return [
        flow_run(plan, at, spool.between(at, buckets[0], buckets[-1]), spool.row_bytes(at), flips)
        for at in range(len(spool.layout.flows))
    ]


def flow_run(
    plan: TaskPlan, at: int, table: pa.Table, row_bytes: int = 0, flips: bool = False
) -> FlowRun:
    """Return sorted records of the input number `at` as a kernel reads them."""
    layout, spec = plan.layout, plan.spec
    assert layout is not None
    assert spec.key is not None
    return FlowRun(
        spec.inputs[at].name,
        table,
        layout.keys,
        tuple(f.type for f in spec.key.fields),
        layout.flows[at].columns,
        tuple(f.type for f in spec.inputs[at].schema.fields),
        row_bytes,
        flips,
    )


def run_batch(
    writers: TaskWriters,
    buckets: tuple[int, ...],
    cache: IndexCache,
    start: Callable[[dict[str, BucketState], Lookups, WriteState], BucketWork],
) -> None:
    """Open the states of some neighboring buckets, do the work on them, and record the states."""
    plan, of = writers.plan, writers.plan.buckets
    states = {name: BucketState(table, cache, buckets, of) for name, table in plan.states.items()}
    lookups = looked_up(plan, buckets, cache)
    files = {n: {b: writers.state.files(n, b, cache) for b in buckets} for n in states}

    def write(name: str, rows: pa.Table) -> None:
        writers.note_records(name, rows)
        hashes = rows.column("_hash").to_numpy()
        for bucket, first, stop in parted(hashes, buckets, buckets=of):
            files[name][bucket].add(rows.slice(first, stop - first))

    work = start(states, lookups, write)
    work.run()
    writers.counts["groups"] += work.groups
    for name, state in states.items():
        writers.state.finish(name, state, files[name])
    for one in (*states.values(), *lookups.values()):
        count_look_ups(writers.counts, one)


def looked_up(
    plan: TaskPlan, buckets: Sequence[int], cache: IndexCache, *, flips: bool = False
) -> Lookups:
    """Return the looked-up tables, each with its buckets for the groups of the given buckets."""
    tables = ((spec.name, plan.lookups[spec.name]) for spec in plan.spec.lookups if spec.by)
    return {
        name: BucketState(one.table, cache, one.beside(buckets, plan.buckets), one.buckets, flips)
        for name, one in tables
    }


def author_work(
    writers: KernelWriters,
    spec: TranslatorSpec,
    runs: list[FlowRun],
    states: dict[str, BucketState],
    write_state: WriteState,
    deliveries: Deliveries | None = None,
    lookups: Lookups = NO_LOOKUPS,
    among: Callable[[Int64s], Int64s] | None = None,
) -> BucketWork:
    """Return the work that calls the translator; `among` chooses groups with a due timer."""
    plan, woken = writers.plan, woken_groups(writers.plan, states, writers.note_timer)
    if woken is not None and among is not None:
        woken = replace(woken, hashes=among(woken.hashes))

    def start(write_state: WriteState) -> GroupwiseRun | VectorisedRun:
        if spec.form == "arrow":
            return VectorisedRun(
                plan.stage,
                spec,
                runs,
                states,
                writers.write_output,
                write_state,
                deliveries=deliveries,
                limits=plan.limits,
                context=plan.context,
                woken=woken,
                lookups=lookups,
                whole_tables=writers.whole_arrow_tables,
            )
        return GroupwiseRun(
            stage=plan.stage,
            spec=spec,
            runs=runs,
            states=states,
            emitted=writers.emitted,
            write_output=writers.write_output,
            write_state=write_state,
            write_remote=writers.write_remote,
            write_bindings=writers.write_bindings,
            limits=plan.limits,
            deliveries=deliveries,
            context=plan.context,
            woken=woken,
            lookups=lookups,
            whole_tables=writers.whole_tables,
        )

    if woken is None or not plan.ages or not spec.expiries:
        return start(write_state)
    shared = [] if deliveries is None else [deliveries.hashes]
    busy = [woken.hashes, *shared, *(run.hashes for run in runs)]
    return AgingWork(spec, states, plan.context, start, write_state, busy)


def woken_groups(
    plan: TaskPlan,
    states: Mapping[str, BucketState],
    note: Callable[[int | None], None] = lambda at_us: None,
) -> Woken | None:
    """Return the groups to call for their timers; `None` if the run does not look for any."""
    if not plan.wakes or not plan.spec.timers:
        return None
    timers = [states[one.name] for one in plan.spec.timers]
    woken, later_us = due_groups(timers, plan.context.time)
    note(later_us)
    return woken


@dataclass
class AgingWork:
    """The work on a batch of buckets, and timers for groups that have none.

    A version can add `expire=` to a state that is kept. Its groups have no hidden timers then, and
    would never expire unless they are called. So the first run that looks at the timers after a
    change of version gives each of them one, as if it were called now. That reads all keys of the
    state, once. Groups are distinguished by their hash alone here. So if a group without a timer
    has the same hash as a group that is called or has a timer, it gets its own only when it is
    called next.

    Attributes:
        start: Makes the work; it gets the function that takes new state records.
        busy: Hashes of groups that the work may call.
    """

    spec: TranslatorSpec
    states: Mapping[str, BucketState]
    context: RunContext
    start: Callable[[WriteState], BucketWork]
    write_state: WriteState
    busy: Sequence[Int64s]
    groups: int = field(init=False, default=0)

    def run(self) -> None:
        """Do the work, and write the timers of other groups among its own."""
        # Search before the work, which deletes records; files of a state ascend by hash.
        new = {one.name: [self._missing(one)] for one in self.spec.expiries}

        def take(name: str, rows: pa.Table) -> None:
            if name in new:
                new[name].append(rows)
            else:
                self.write_state(name, rows)

        work = self.start(take)
        work.run()
        self.groups = work.groups
        for name, tables in new.items():
            table = pa.concat_tables(tables).sort_by("_hash")
            if table.num_rows:
                self.write_state(name, table)

    def _missing(self, timers: StateSpec) -> pa.Table:
        """Return timers for those groups of a state that have no timer and are not called."""
        state = self.spec.state(timers.expires)
        records = self.states[state.name].find(None)
        hashes, first = np.unique(records.hashes, return_index=True)
        with_timer = self.states[timers.name].find(None).hashes
        missing = first[~np.isin(hashes, union([*self.busy, np.unique(with_timer)]))]
        schema = state_file_schema(timers)
        if not len(missing):
            return schema.empty_table()
        some = records.at(missing)
        keys = self.states[state.name].take(some, list(self.spec.key_of(state).names))
        expires = expires_at(self.context.time, state.expire_ms)
        at = pa.scalar(expires, schema.field(TIMER_COLUMN).type)
        columns = [*keys.columns, pa.repeat(at, len(missing)), pa.array(some.hashes)]
        return pa.table(columns, names=schema.names).cast(schema)
