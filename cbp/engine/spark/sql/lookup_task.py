"""Look-up task before a Spark plan: finds the state records of the called groups.

    called keys -> LookUpTask -> state records of the called groups -> the author's plan

In a plan of one task, the task reads its records once (`own`) and finds the called groups once
(`called`); later readers use its scratch files. If Spark shuffles, the keys arrive by the shuffle.

For a query in SQL it also finds the records of kept states that the records of an input name, by
key and second key: `FROM items_of_orders` has the records of the state `items` with the `k` and
`id` of some record of the input `orders`. They are found by the index of the state.

Guaranteed: each such record comes once, however many records of the input name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from cbp.engine.columnar.arrow_types import arrow_schema
from cbp.engine.columnar.row_codes import row_codes
from cbp.engine.kernel.arrow.groups import author_schema, group_numbers
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.engine.kernel.arrow.reader import Call, read_calls
from cbp.engine.kernel.arrow.type_check import narrow_batches
from cbp.engine.shuffle.spool import Spool
from cbp.engine.spark.sql.called_groups import Called, CallsFile, read_called
from cbp.engine.spark.sql.task_input import TaskInput
from cbp.engine.spark.sql.task_plans import with_called_keys
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import IndexCache, index_cache
from cbp.engine.task import bucket_work
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import count_look_ups, no_counts
from cbp.model.dataflow.stage import InputSpec, StateSpec, TranslatorSpec


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table that queries can name, and the columns of the input with which `own` are compared.

    `own` are columns of the state: those of the key, then those of the second key.
    """

    name: str
    state: StateSpec
    input: InputSpec
    own: tuple[str, ...]
    theirs: tuple[str, ...]


def named_tables(spec: TranslatorSpec) -> Iterator[NamedTable]:
    """Yield a table for each kept state and input with its second key, unless the name is taken."""
    taken = {one.name for one in spec.inputs}
    taken |= {one.name for one in spec.states} | {one.name for one in spec.lookups}
    for state in spec.kept:
        for input_ in spec.inputs:
            name, second = f"{state.name}_of_{input_.name}", state.second_key
            fits = all(
                column in input_.schema and input_.schema[column].type == state.schema[column].type
                for column in second
            )
            if fits and name not in taken:
                assert isinstance(input_.route_by, tuple), "routed by columns"
                own = (*spec.key_of(state).names, *second)
                yield NamedTable(name, state, input_, own, (*input_.route_by, *second))


def named_records(table: NamedTable, kept: KeptCall, records: pa.Table) -> pa.Table:
    """Return the records of a call's groups that some records of the input name."""
    many = kept.keys.num_columns
    second = author_schema(table.state.schema.select(table.state.second_key)).types
    types = [*kept.keys.schema.types, *second]
    columns = [
        records.column(name).cast(type_) for name, type_ in zip(table.theirs, types, strict=True)
    ]
    wanted = pa.table(columns, names=[str(at) for at in range(len(columns))])
    groups = group_numbers(kept.keys, wanted.select(range(many)))
    some = np.flatnonzero(groups >= 0)
    groups, wanted = groups[some], wanted.select(range(many, len(columns))).take(pa.array(some))
    (codes,) = row_codes([wanted], [groups])
    firsts = np.unique(codes, return_index=True)[1]
    return kept.take(kept.locate(groups[firsts], wanted.take(pa.array(firsts)))[1])


@dataclass
class LookUpTask:
    """Finds the state records of called groups; writes nothing but scratch files.

    `plan` is that of `with_called_keys`. `own` has the records of a plan of one task; `None` if
    keys arrive by the shuffle.
    """

    plan: TaskPlan
    part: int
    own: TaskInput | None = None
    counts: dict[str, float] = field(init=False, default_factory=no_counts)

    @classmethod
    def of(cls, own: TaskInput) -> LookUpTask:
        """Return the look-up task for the records of a plan of one task."""
        return cls(with_called_keys(own.plan), own.part, own)

    def records(self, state: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of a state or a looked-up table for the groups whose keys arrived."""
        yield from self._narrowed(state, self._calls(batches))

    def own_records(self, state: str) -> Iterator[pa.RecordBatch]:
        """Yield the records of a state or a looked-up table for the groups of this part's keys."""
        noted = self._read_called()
        calls = self._noted() if noted is None else _in_order(noted)
        yield from self._narrowed(state, calls)

    def own_named(self, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the records of a kept state that this part's records of an input name."""
        plan, own = self.plan, self._records
        table = next(one for one in named_tables(own.plan.spec) if one.name == name)
        schema = arrow_schema(table.state.schema)
        batches = [*own.records(table.input.name)]
        if not batches:
            return
        records, most = pa.Table.from_batches(batches), plan.limits.jvm_batch_bytes
        noted = self._read_called()
        for buckets, call in self._noted() if noted is None else _in_order(noted):
            kept = self._kept_call(table.state, buckets, call)
            rows = named_records(table, kept, records)
            yield from narrow_batches(rows, schema, rows_max=rows.num_rows, bytes_max=most)

    def called(self) -> Called:
        """Return the called groups of this part's keys."""
        called = self._read_called()
        if called is None:
            for _ in self._noted():
                pass
            called = self._read_called()
        return called or self._look_up_again()

    def forget(self) -> None:
        """Remove the task's scratch files."""
        self._records.forget()

    @property
    def _records(self) -> TaskInput:
        assert self.own is not None, "the keys arrive by the shuffle, so the task reads no records"
        return self.own

    @property
    def _path(self) -> Path:
        return self._records.scratch("called")

    def _look_up_again(self) -> Called:
        """Look up again, into memory: the file could not be written, or a twin removed it."""
        self.counts.update(dict.fromkeys(self.counts, 0))
        calls: dict[tuple[int, ...], list[Call]] = {}
        for buckets, call in self._calls(self._records.keys()):
            calls.setdefault(buckets, []).append(call)
        return Called(calls, self.counts)

    def _read_called(self) -> Called | None:
        return read_called(self._path, self._names)

    @property
    def _names(self) -> list[str]:
        """The states that are not kept, and the tables that are looked up."""
        spec = self.plan.spec
        return [one.name for one in (*spec.replaced, *spec.looked_up)]

    def _noted(self) -> Iterator[tuple[tuple[int, ...], Call]]:
        """Yield the calls of this part's keys, and write them to the scratch file."""
        self._cache().tidy_scratch()
        file = CallsFile(self._path, self._names)
        try:
            for buckets, call in self._calls(self._records.keys()):
                file.write(buckets, call)
                yield buckets, call
            file.finish(self.counts)
        finally:
            file.close()

    def _narrowed(
        self, state: str, calls: Iterable[tuple[tuple[int, ...], Call]]
    ) -> Iterator[pa.RecordBatch]:
        spec, most = self.plan.spec, self.plan.limits.jvm_batch_bytes
        table_spec = next(s for s in (*spec.states, *spec.looked_up) if s.name == state)
        schema = arrow_schema(table_spec.schema)
        kept = any(one.name == state for one in spec.kept)
        for buckets, call in calls:
            tables: Iterable[pa.Table] = (
                self._kept(table_spec, buckets, call) if kept else [call.called_records(state)]
            )
            for table in tables:
                yield from narrow_batches(table, schema, rows_max=table.num_rows, bytes_max=most)

    def _kept(self, spec: StateSpec, buckets: tuple[int, ...], call: Call) -> Iterator[pa.Table]:
        kept = self._kept_call(spec, buckets, call)
        groups = np.arange(len(call.hashes)) if call.called is None else call.called
        return kept.tables(groups, rows_max=self.plan.limits.call_rows)

    def _kept_call(self, spec: StateSpec, buckets: tuple[int, ...], call: Call) -> KeptCall:
        plan = self.plan
        state = BucketState(plan.states[spec.name], self._cache(), buckets, plan.buckets)
        return KeptCall(spec, plan.spec, state, keys=call.groups.keys, hashes=call.hashes)

    def _calls(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, ...], Call]]:
        """Yield the calls of all keys, each with the buckets that run together."""
        plan = self.plan
        assert plan.layout is not None, "the plan has no layout of the keys"
        cache = self._cache()
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            bucket_work.count_arrived(plan, spool, self.counts)
            for some in bucket_work.bucket_batches(plan, self.part, spool):
                runs = bucket_work.flow_runs(plan, spool, some)
                states = {
                    name: BucketState(table, cache, some, plan.buckets)
                    for name, table in plan.states.items()
                }
                tables = {**states, **bucket_work.looked_up(plan, some, cache)}
                woken = bucket_work.woken_groups(plan, states)
                for call in read_calls(plan.spec, runs, tables, limits=plan.limits, woken=woken)[1]:
                    yield some, call
                for state in tables.values():
                    count_look_ups(self.counts, state)

    def _cache(self) -> IndexCache:
        return index_cache(self.plan.cache, self.plan.limits)


def _in_order(called: Called) -> Iterator[tuple[tuple[int, ...], Call]]:
    for buckets in sorted(called.calls):
        for call in called.calls[buckets]:
            yield buckets, call
