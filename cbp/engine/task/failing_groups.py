"""Sets records aside in a task: leaves groups out of a run, and finds the groups that fail.

    arrived records -> those of groups that are left out -> `SetAside` reports
                    '-> all others -> the kernel -> fails -> which groups? -> `GroupFailed` reports

A task whose author's code fails writes nothing that counts. It looks for all groups that fail, by
calling smaller and smaller parts of them without a writer, and reports them; the driver runs the
job again without them (`cbp.engine.run.set_aside`). So all other groups are called in the same
order as in any run. An author's code is deterministic: the same group fails again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.groups import FlowRun, union
from cbp.engine.columnar.json_records import read_record, record_text
from cbp.engine.columnar.key_hash import key_hash
from cbp.engine.columnar.looked_up import WholeTable
from cbp.engine.columnar.values import Row, unify
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.shuffle.multicast_bindings import Binding
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.task.bucket_work import author_work, looked_up, woken_groups
from cbp.engine.task.reports import Failed, GroupFailed, SetAside
from cbp.engine.task.set_aside_reports import SetAsideReports, arrivals, find_failing
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.stage import InputSpec


@dataclass
class LeftOutGroups:
    """The groups that one task leaves out of its run."""

    writers: TaskWriters
    reports: SetAsideReports
    packed: bool
    _texts: dict[Row, str] = field(init=False)
    _hashes: Int64s = field(init=False)

    def __post_init__(self) -> None:
        plan = self.writers.plan
        assert plan.set_aside is not None, "the stage must set groups aside"
        assert plan.spec.key is not None, "a record-wise stage leaves no groups out"
        self._key = plan.spec.key
        types = [column.type for column in self._key.fields]
        keys = {unify(read_record(text, self._key)): text for text in plan.set_aside.keys}
        hashes = [np.int64(key_hash(key, types)) & np.int64(plan.hash_mask) for key in keys]
        self._texts, self._hashes = keys, np.array(sorted(hashes), np.int64)

    def others(self, hashes: Int64s) -> Int64s:
        """Return the hashes that belong to no group that is left out."""
        kept: Int64s = hashes[~np.isin(hashes, self._hashes)]
        return kept

    def left(self, run: FlowRun) -> FlowRun:
        """Return the records of all other groups; report those of groups that are left out."""
        rows = np.flatnonzero(np.isin(run.hashes, self._hashes))
        if not len(rows):
            return run
        some = replace(run, table=run.table.take(pa.array(rows)))
        keys = some.keys_of(0, len(rows))
        mine = np.array([key in self._texts for key in keys], np.bool_)  # hashes can be shared
        self._report(replace(some, table=some.table.filter(pa.array(mine))))
        others = np.ones(len(run.hashes), np.bool_)
        others[rows[mine]] = False
        return replace(run, table=run.table.filter(pa.array(others)))

    def _report(self, run: FlowRun) -> None:
        plan = self.writers.plan
        schema, files = plan.spec.input(run.name).schema, plan.inputs.get(run.name, ())
        count = min(len(run.hashes), self.reports.room)
        sequences = run.table.column("_seq").to_numpy()[:count]
        at = arrivals(sequences, files, packed=self.packed).tolist()
        for place, key, row in zip(at, run.keys_of(0, count), run.rows(0, count), strict=True):
            text = record_text(row, schema)
            self.reports.add(SetAside(run.name, place, self._texts[key], text))

    def failing(
        self, buckets: tuple[int, ...], runs: Sequence[FlowRun], cache: IndexCache
    ) -> list[GroupFailed]:
        """Return the failing groups of some buckets."""
        trials = _Trials(self.writers, buckets, runs, cache, self.others)
        found = find_failing(trials.hashes.tolist(), trials.attempt, most=self.reports.most)
        return [
            GroupFailed(record_text(error.group, self._key), Failed.of(error))
            for _, error in found
            if error.group is not None
        ]


@dataclass(frozen=True, slots=True)
class RoutedRecords:
    """Sets aside records without a key or order: each task routes all, the first one reports."""

    part: int
    reports: SetAsideReports
    unrouted: Counter[str]

    def route(
        self, input_: InputSpec, records: pa.Table, route: Callable[[pa.Table], pa.Table]
    ) -> pa.Table:
        """Return the records of an input in the layout of the shuffle, without those that fail."""
        try:
            return route(records)
        except AuthorCodeError:
            others, failing = self.reports.without_failing(records, route)
            if not failing:
                raise
        if self.part == 0:
            self.unrouted[input_.name] += records.num_rows - others.num_rows
            for row, error in failing:
                self.reports.add_record(input_, records.slice(row, 1), row, error)
        return route(others)


@dataclass
class _Trials:
    """Calls of the author's code for parts of the groups of some buckets; nothing is written."""

    writers: TaskWriters
    buckets: tuple[int, ...]
    runs: Sequence[FlowRun]
    cache: IndexCache
    others: Callable[[Int64s], Int64s]

    @cached_property
    def hashes(self) -> Int64s:
        """The hashes of all groups to call, ascending."""
        woken = woken_groups(self.writers.plan, self._states())
        timers = [] if woken is None else [self.others(woken.hashes)]
        return union([*timers, *(run.hashes for run in self.runs)])

    def attempt(self, hashes: Sequence[int]) -> AuthorCodeError | None:
        chosen = np.array(hashes, np.int64)
        runs = [
            replace(run, table=run.table.filter(pa.array(np.isin(run.hashes, chosen))))
            for run in self.runs
        ]
        lookups = looked_up(self.writers.plan, self.buckets, self.cache)
        trial = _TrialWriters(self.writers)
        work = author_work(
            trial,
            self.writers.plan.spec,
            runs,
            self._states(),
            lambda name, rows: None,
            None,
            lookups,
            among=lambda woken: woken[np.isin(woken, chosen)],
        )
        try:
            work.run()
        except AuthorCodeError as error:
            return error
        return None

    def _states(self) -> dict[str, BucketState]:
        plan = self.writers.plan
        return {
            name: BucketState(table, self.cache, self.buckets, plan.buckets)
            for name, table in plan.states.items()
        }


class _TrialWriters:
    """Takes the place of a task's writers for the kernels; drops everything."""

    def __init__(self, writers: TaskWriters) -> None:
        self.plan: TaskPlan = writers.plan
        self.emitted = Emitted(writers.plan.spec)
        self._writers = writers

    @property
    def whole_tables(self) -> Mapping[str, WholeTable]:
        return self._writers.whole_tables

    @property
    def whole_arrow_tables(self) -> Mapping[str, pa.Table]:
        return self._writers.whole_arrow_tables

    def write_output(self, name: str, columns: list[pa.Array]) -> None: ...

    def write_remote(self, state: str, columns: list[pa.Array]) -> None: ...

    def write_bindings(self, bindings: Sequence[Binding]) -> None: ...

    def note_timer(self, at_us: int | None) -> None: ...
