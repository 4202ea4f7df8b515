"""The black-box mode: state travels with the increment, and is rewritten in every epoch.

To the shuffle, state is one more input flow: every task gets all state records of its
buckets, calls the author as the direct engine does, and writes all records again. What `ALL`
and addresses reach is copied for each of its groups before the shuffle
(`cbp.engine.replication`). It is the baseline that the direct engine is measured against;
both run the same author's code and leave the same tables, so each can go on where the
other stopped.

Guaranteed: the results of the direct engine (tests/cbp/engine/test_blackbox.py).
Not guaranteed: to read a table with deletion vectors, which it never writes; it refuses. So
it does translators in SQL, which find their state themselves.

Source: CBP (SoCC'10), section 4.5, "Black-box" execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cbp.engine.base import RunPlan, state_table
from cbp.engine.bucket import state_file_schema
from cbp.engine.destinations import destinations
from cbp.engine.executor import LocalExecutor
from cbp.engine.layout import COUNT, TO, shuffle_layout
from cbp.engine.limits import require_python
from cbp.engine.records import share_of
from cbp.engine.replication import state_flow
from cbp.engine.spool import Spool
from cbp.engine.state.bucket import BucketState, LiveFile, Positions, StateTable
from cbp.engine.state.index import index_cache
from cbp.engine.state.lookup import IndexedFile, StateRows
from cbp.engine.state.vectors import rows_of
from cbp.engine.task import StageTask
from cbp.engine.taskplan import TaskPlan
from cbp.engine.taskstate import dropped
from cbp.errors import InvariantError, TableFeatureError
from cbp.model.dataflow import StageNode
from cbp.model.increment import DataFile, Increment
from cbp.model.stage import InputSpec, StateSpec, TranslatorSpec

__all__ = [
    "BlackboxTask",
    "LocalBlackboxExecutor",
    "moves_nothing_else",
    "require_all_state",
    "with_state_as_input",
]


def with_state_as_input(plan: RunPlan, task: TaskPlan) -> tuple[RunPlan, TaskPlan]:
    """Return plan and task with every state as a further input flow, behind the others.

    Raises:
        TableFeatureError: If a state table has deletion vectors, or deletes to be published.
    """
    spec = task.spec
    more = tuple(InputSpec(state_flow(s.name), s.schema, spec.key_of(s).names) for s in spec.states)
    wide = replace(spec, inputs=(*spec.inputs, *more))
    increments = {
        state_flow(s.name): (_increment(state_table(task.stage, s.name), task.states[s.name]),)
        for s in spec.states
    }
    files = {
        name: tuple(share_of(plan.folder, file) for file in increment.files)
        for name, (increment,) in increments.items()
    }
    return (
        replace(plan, inputs={**plan.inputs, **increments}),
        replace(
            task,
            spec=wide,
            layout=shuffle_layout(wide),
            tasks=task.buckets,
            inputs={**task.inputs, **files},
            in_place=frozenset(),
            by_bucket=frozenset(),
            replicates=True,
        ),
    )


def moves_nothing_else(task: TaskPlan) -> bool:
    """Whether a stage runs as it does on the direct engine: no state, and nothing is shared."""
    layout = task.layout
    return layout is None or not (task.spec.states or layout.shared)


def require_all_state(task: TaskPlan, descriptors: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvariantError unless every state record arrived in some task."""
    for name, table in task.states.items():
        expected = sum(file.rows for files in table.live.values() for file in files)
        found = sum(int(d.get(f"records_in.{state_flow(name)}", 0)) for d in descriptors)
        if found != expected and all(d["kind"] != "error" for d in descriptors):
            message = f"state {name!r} has {expected} records, but {found} reached the tasks"
            raise InvariantError(message, expected=expected, found=found)


class BlackboxTask(StageTask):
    """One task whose state arrived with its input."""

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        layout = self.plan.layout
        assert layout is not None, "only groupwise stages have state"
        with Spool(layout) as spool:
            spool.take(batches)
            for i, flow in enumerate(layout.flows):
                self.counts[f"records_in.{flow.name}"] = spool.records(i)
            self.counts["copies"] = sum(spool.arrived(flow) for flow in layout.shared)
            self.counts["dead_letters"] = _dead_letters(spool)
            for bucket in spool.buckets():
                self._rewrite(bucket, spool)

    def _rewrite(self, bucket: int, spool: Spool) -> None:
        spec = _narrow(self.plan.spec)
        many = len(spec.inputs)
        arrived = {
            state.name: self._records(state, many + i, spool.bucket(many + i, bucket))
            for i, state in enumerate(spec.states)
        }
        states = {name: _Arrived(rows, bucket) for name, rows in arrived.items()}
        written: dict[str, list[pa.Table]] = {name: [] for name in arrived}
        runs = [self._flow_run(i, spool.bucket(i, bucket), spool.row_bytes(i)) for i in range(many)]
        work = self._bucket_run(
            (bucket,),
            spec,
            runs,
            {name: state for name, state in states.items()},
            lambda name, rows: written[name].append(rows),
        )
        work.run()
        self.counts["groups"] += work.groups
        for name, state in states.items():
            self.counts["bytes_read"] += arrived[name].nbytes
            self._write_all(name, bucket, arrived[name], state, written[name])

    def _records(self, state: StateSpec, at: int, table: pa.Table) -> pa.Table:
        """Return state records in the schema of the state's files."""
        layout = self.plan.layout
        assert layout is not None
        schema = state_file_schema(state)
        slots = [*layout.flows[at].columns, "_hash"]
        return table.select(slots).rename_columns(schema.names).cast(schema)

    def _write_all(
        self,
        name: str,
        bucket: int,
        arrived: pa.Table,
        state: BucketState,
        written: list[pa.Table],
    ) -> None:
        """Write what stays and what is new as one file, instead of all files there were."""
        keep = np.ones(arrived.num_rows, np.bool_)
        for dead in state.deaths().values():
            keep[rows_of(dead)] = False
        rows = pa.concat_tables([arrived.filter(pa.array(keep)), *written])
        self.counts["state_removed"] += len(keep) - int(keep.sum())
        self.counts["state_written"] += rows.num_rows
        for file in self.plan.states[name].live.get(bucket, ()):
            self._done.append(dropped(name, file))
        files = self._state.files(name, bucket, None)  # nothing is ever looked up in them
        files.add(rows)
        files.close()
        self._done.extend(files.done)


class _Arrived(BucketState):
    """The state of a bucket as one table in memory, instead of files."""

    def __init__(self, rows: pa.Table, bucket: int) -> None:
        file = LiveFile("arrived", 0, rows.num_rows)
        live: dict[int, tuple[LiveFile, ...]] = {bucket: (file,)} if rows.num_rows else {}
        super().__init__(StateTable("", "", live), index_cache(""), (bucket,))
        self._indexed = IndexedFile(_one_batch(rows)) if rows.num_rows else None

    def open(self, at: int) -> IndexedFile:
        """Return what arrived."""
        assert self._indexed is not None, "only asked when there are records"
        return self._indexed

    def reader(self, at: int, wanted: Positions | None) -> StateRows:
        """Return what arrived."""
        return self.open(at)


class LocalBlackboxExecutor(LocalExecutor):
    """Carries out black-box tasks one after the other in this process, without Spark."""

    def refuse(self, dataflow: str, nodes: Sequence[StageNode]) -> None:
        """Raise for translators in SQL."""
        require_python(dataflow, nodes)

    def execute(self, plan: RunPlan, task: TaskPlan) -> list[dict[str, Any]]:
        """Run the same task code as Spark's workers."""
        if moves_nothing_else(task):
            return super().execute(plan, replace(task, then=None))
        _, wide = with_state_as_input(plan, task)
        runs = (BlackboxTask(wide, part, "0").run_arranged() for part in range(wide.tasks))
        descriptors = [descriptor for run in runs for descriptor in run]
        require_all_state(task, descriptors)
        return descriptors


def _dead_letters(spool: Spool) -> int:
    """Return the destinations that reached nobody; every task has them, and one counts."""
    dead = 0
    for flow in spool.layout.shared:
        table = spool.shared(flow)
        for text in table.filter(pc.equal(table.column(COUNT), 1)).column(TO).to_pylist():
            dead += sum(1 for _ in destinations(text))
    return dead


def _narrow(spec: TranslatorSpec) -> TranslatorSpec:
    """Return the author's spec again."""
    return replace(spec, inputs=spec.inputs[: len(spec.inputs) - len(spec.states)])


def _increment(folder: str, table: StateTable) -> Increment:
    live = [file for files in table.live.values() for file in files]
    if any(file.dead for file in live):
        raise TableFeatureError(table.folder, ["deletionVectors, in the black-box mode"])
    files = tuple(DataFile(f"{folder}/{file.path}", file.rows, file.size) for file in live)
    return Increment(folder, 0, 0, files)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return all rows as one batch, strings widened so that any size fits."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    schema = pa.schema([f.with_type(wide.get(f.type, f.type)) for f in table.schema])
    (batch,) = table.cast(schema).combine_chunks().to_batches()
    return batch
