"""One task of a stage, for all groups of its buckets: group, call the author, write the results.

The task does not depend on its caller (a Spark task or the local engine) nor on the way its
records arrived. Records come as sorted Arrow batches in the layout of
`cbp.engine.shuffle.layout`; the result is a list of plain descriptors of the files that were
written. The task commits nothing.

The same records give files of the same contents in the same order, whatever the number of
tasks: groups are visited by (hash, key), records within a group in the total order.

Memory: one window of records at a time is in Python. Records that arrived are in Arrow, beyond
`SPOOL_BYTES` on disk. A single group larger than a window is read lazily, flow by flow.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from cbp.engine.columnar.file_slices import InputShare, Share
from cbp.engine.columnar.groups import FlowRun
from cbp.engine.kernel.arrow.run import VectorisedRun
from cbp.engine.kernel.author_call import Emitted
from cbp.engine.kernel.groupwise import WINDOW_ROWS, BucketRun
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.delivery import Deliveries
from cbp.engine.shuffle.multicast_bindings import Binding, BindingSink
from cbp.engine.shuffle.replicated_read import arrange
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_batches import neighbors, parted, state_weight
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import IndexCache, index_cache
from cbp.engine.storage.parquet_writer import sync_files
from cbp.engine.task.message_reader import Mail, Misplaced
from cbp.engine.task.output_writer import TaskOutputs
from cbp.engine.task.plan import TaskPlan
from cbp.engine.task.record_task import RecordRun
from cbp.engine.task.state_writer import TaskState
from cbp.errors import CbpError
from cbp.model.dataflow.call_rules import Fresh
from cbp.model.dataflow.stage import TranslatorSpec

__all__ = ["BEHIND", "MISPLACED", "StageTask", "arranged_records"]

BEHIND = 2
"""`phase` in the descriptors of the downstream groupwise stage that a record-wise task also ran."""

MISPLACED = "misplaced"
"""The kind of the only descriptor of a task that found a message in a wrong bucket."""

THEN_RECORDS_MAX = 4_000
"""Up to this many records, a record-wise task also runs the groupwise stage downstream of it.

For more records, a job of several tasks saves more time than its start costs.
"""

Descriptor = dict[str, Any]

_COUNTED = (
    "groups",
    "records_combined",
    "state_written",
    "state_removed",
    "state_remote",
    "bytes_read",
    "bytes_shuffled",
    "bytes_broadcast",
    "bytes_bindings",
    "lookups_index",
    "lookups_scan",
)


def arranged_records(plan: TaskPlan, part: int) -> pa.Table | None:
    """Return one task's records of a small increment, which the task reads itself (`arrange`).

    Messages that are read in place are not among them (`cbp.engine.task.message_reader`).

    Returns:
        The records; `None` if no input has a file, so that groups are called only for their
        state or for messages.
    """
    assert plan.layout is not None, "a record-wise stage has shares"
    inputs = {name: many for name, many in plan.inputs.items() if name not in plan.in_place}
    if not any(inputs.values()):
        return None
    return arrange(
        inputs,
        plan.spec,
        plan.layout,
        stage=plan.stage,
        buckets=plan.buckets,
        tasks=plan.tasks,
        part=part,
        hash_mask=plan.hash_mask,
        replicate=plan.replication(),
    )


@dataclass
class StageTask:
    """One task of a run, with its output and state writers and the counts of its work."""

    plan: TaskPlan
    part: int
    attempt: str
    emitted: Emitted = field(init=False)
    counts: dict[str, float] = field(init=False)
    _outputs: TaskOutputs = field(init=False)
    _done: list[Descriptor] = field(init=False, default_factory=list)
    _written: list[str] = field(init=False, default_factory=list)
    _bindings: BindingSink | None = field(init=False, default=None)
    _state: TaskState = field(init=False)
    _fresh: list[Fresh] = field(init=False)

    def __post_init__(self) -> None:
        self._fresh = self._fresh_instances()
        self.emitted = Emitted(self.plan.spec)
        self.counts = dict.fromkeys(_COUNTED, 0)
        self._state = TaskState(
            self.plan,
            self._number,
            self.attempt,
            done=self._done,
            written=self._written,
            counts=self.counts,
        )
        self._outputs = TaskOutputs(
            self.plan.stage,
            self.plan.spec,
            self.plan.followers,
            folder=self.plan.folder,
            epoch=self.plan.epoch,
            part=self._number,
            suffix=f"{self.plan.run}-{self.attempt}",
            faults=self.plan.faults,
            receivers=self.plan.receivers(self.part),
        )

    def _fresh_instances(self) -> list[Fresh]:
        """Give this task its own translator instances, since its process may run other tasks."""
        own = Fresh(self.plan.spec, stage=self.plan.stage)
        behind = [Fresh(one.spec, stage=one.stage) for one in self.plan.followers]
        followers = tuple(
            replace(one, spec=fresh.spec)
            for one, fresh in zip(self.plan.followers, behind, strict=True)
        )
        self.plan = replace(self.plan, spec=own.spec, followers=followers)
        return [own, *behind]

    @property
    def _number(self) -> int:
        """This task's number in file names."""
        return self.plan.first_number + self.part

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[Descriptor]:
        """Run the groups of all records that arrived, and return descriptors.

        An author's error is returned as a descriptor too: an exception would make Spark
        retry the task, which would fail again.
        """
        return self._guarded(lambda: self._run_groups(chain(self._shuffled(batches), self._mail())))

    def _shuffled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.counts["bytes_shuffled"] += batch.nbytes
            yield batch

    def run_arranged(self) -> list[Descriptor]:
        """Run this task's groups of a small increment, which the task reads itself."""
        return self._guarded(lambda: self._run_groups(chain(self._arranged(), self._mail())))

    def _mail(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages that this task reads in place."""
        if self.plan.in_place:
            mail = Mail(self.plan, self.part)
            yield from mail.batches()
            self.counts.update(mail.figures)

    def _arranged(self) -> Iterator[pa.RecordBatch]:
        table = arranged_records(self.plan, self.part)
        if table is not None:
            yield from table.to_batches()

    def run_shares(self, work: Sequence[InputShare]) -> list[Descriptor]:
        """Run shares of a record-wise stage's inputs, and return descriptors.

        If the plan has a downstream groupwise stage (`then`), and this gets at most
        `THEN_RECORDS_MAX` records, this task runs it too, on the files just written. Its
        descriptors have the phase `BEHIND`.
        """
        done = self._guarded(lambda: self._run_records(work))
        then = self.plan.then
        if then is None:
            return done
        files = tuple(
            Share(f"{self.plan.folder}/{d['path']}", d["rows"], 0, d["rows"])
            for d in done
            if d["kind"] == "output" and d["flow"] == then.flow
        )
        if not 0 < sum(file.rows for file in files) <= THEN_RECORDS_MAX:
            return done
        (input_,) = then.plan.spec.inputs
        behind = StageTask(replace(then.plan, inputs={input_.name: files}), 0, self.attempt)
        return done + [{**d, "phase": BEHIND} for d in behind.run_arranged()]

    def _guarded(self, work: Callable[[], None]) -> list[Descriptor]:
        started = time.perf_counter()
        gc.disable()  # a window's records are all in use: collection runs between windows
        try:
            work()
            self._state.close_remote()
            self._close_outputs()
            for fresh in self._fresh:
                fresh.check()
            sync_files(self._written, faults=self.plan.faults)
        except Misplaced:
            return [{"kind": MISPLACED}]
        except CbpError as error:
            return [{"kind": "error", "type": type(error).__name__, **error.as_dict()}]
        finally:
            gc.enable()
        self.counts["seconds_task"] = time.perf_counter() - started
        self._done.append({"kind": "counts", **self.counts})
        return self._done

    def open_cache(self) -> IndexCache:
        """Return the cache of index copies on this worker."""
        return index_cache(self.plan.cache)

    def _run_records(self, work: Sequence[InputShare]) -> None:
        run = RecordRun(
            self.plan.stage,
            self.plan.spec,
            self.emitted,
            self._write_output,
            self._write_remote,
            self._write_bindings,
        )
        run.run(work)
        self.counts.update({f"records_in.{name}": seen for name, seen in run.records.items()})
        self.counts["groups"] = run.records.total()

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        layout = self.plan.layout
        assert layout is not None, "a record-wise stage has a task of its own"
        cache = self.open_cache()
        visited: set[int] = set()
        with Spool(layout) as spool:
            self._spool(spool, batches)
            self._count_arrived(spool)
            shared = self._shared(spool)
            for some in self._worked(spool, shared):
                runs = [
                    self._flow_run(i, spool.between(i, some[0], some[-1]), spool.row_bytes(i))
                    for i in range(len(layout.flows))
                ]
                self._buckets(some, runs, cache, shared)
                visited.update(some)
            self.counts.update(shared.counts() if shared else {})
        self._state.compact_others(visited, cache)
        self._state.write_deletes()

    def _count_arrived(self, spool: Spool) -> None:
        """Count the records of every flow, and the records that a combiner merged into others."""
        for i, flow in enumerate(spool.layout.flows):
            self.counts[f"records_in.{flow.name}"] = spool.records(i)
            if self.plan.spec.inputs[i].combine is not None:
                self.counts["records_combined"] += spool.records(i) - spool.arrived(i)

    def _spool(self, spool: Spool, batches: Iterable[pa.RecordBatch]) -> None:
        spool.take(batches)

    def _worked(self, spool: Spool, shared: Shared | None = None) -> list[tuple[int, ...]]:
        """Return the buckets to run, as tuples of neighboring small buckets that run together."""
        sizes = self._sizes(spool, shared)
        return neighbors(sizes, buckets=self.plan.buckets, most=WINDOW_ROWS)

    def _shared(self, spool: Spool) -> Shared | None:
        """Return the records that several groups of this task share; `None` if there are none."""
        plan = self.plan
        if not any(spool.arrived(spool.layout.tag(flow)) for flow in spool.layout.shared):
            return None
        shared = Shared(
            plan.spec,
            spool,
            part=self.part,
            tasks=plan.tasks,
            buckets=plan.buckets,
            files=plan.bindings,
        )
        self.counts["bytes_broadcast"] = shared.bytes
        self.counts["bytes_bindings"] = shared.bytes_bindings
        return shared

    def _deliveries(
        self, buckets: Sequence[int], runs: Sequence[FlowRun], shared: Shared | None
    ) -> Deliveries | None:
        if not shared:
            return None
        assert self.plan.layout is not None, "what is shared has arrived in some layout"
        orders = self.plan.layout.orders
        return Deliveries(self.plan.spec, shared, buckets, runs=runs, orders=orders)

    def _sizes(self, spool: Spool, shared: Shared | None = None) -> dict[int, int]:
        """Return the buckets to run, each with its number of records as far as it is known.

        These are the buckets with records. If groups are called for their state alone, the
        task's buckets with state are added. State is counted without a look-up.
        """
        found = Counter(spool.sizes())
        if shared:
            found.update(shared.sizes())
        for spec in self.plan.spec.states:
            live = self.plan.states[spec.name].live
            whole = spec.grouping == "outer" or bool(shared and shared.reaches(spec.name))
            called = set(filter(self._owns, live)) if whole else found.keys() & live.keys()
            for bucket in called:
                rows = sum(file.rows - file.dead for file in live[bucket])
                found[bucket] += state_weight(rows, whole=whole)
        return dict(found)

    def _owns(self, bucket: int) -> bool:
        return self.plan.owner(bucket) == self.part

    def _flow_run(self, at: int, table: pa.Table, row_bytes: int = 0) -> FlowRun:
        layout, spec = self.plan.layout, self.plan.spec
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
        )

    def _buckets(
        self,
        buckets: tuple[int, ...],
        runs: list[FlowRun],
        cache: IndexCache,
        shared: Shared | None = None,
    ) -> None:
        of = self.plan.buckets
        states = {
            name: BucketState(table, cache, buckets, of) for name, table in self.plan.states.items()
        }
        files = {
            name: {bucket: self._state.files(name, bucket, cache) for bucket in buckets}
            for name in states
        }

        def write(name: str, rows: pa.Table) -> None:
            hashes = rows.column("_hash").to_numpy()
            for bucket, start, stop in parted(hashes, buckets, buckets=of):
                files[name][bucket].add(rows.slice(start, stop - start))

        deliveries = self._deliveries(buckets, runs, shared)
        work = self._bucket_run(buckets, self.plan.spec, runs, states, write, deliveries)
        work.run()
        self.counts["groups"] += work.groups
        for name, state in states.items():
            self._state.finish(name, state, files[name])
            self.count_look_ups(state)

    def count_look_ups(self, state: BucketState) -> None:
        """Add the bytes and look-ups of a state's buckets to the counts."""
        self.counts["bytes_read"] += state.bytes_read
        for way, lookups in state.lookups.items():
            self.counts[f"lookups_{way}"] += lookups

    def _bucket_run(
        self,
        buckets: tuple[int, ...],
        spec: TranslatorSpec,
        runs: list[FlowRun],
        states: dict[str, BucketState],
        write_state: Callable[[str, pa.Table], None],
        deliveries: Deliveries | None = None,
    ) -> BucketRun | VectorisedRun:
        stage = self.plan.stage
        if spec.form == "arrow":
            write = self._write_output
            return VectorisedRun(
                stage, spec, runs, states, write, write_state, deliveries=deliveries
            )
        return BucketRun(
            stage=stage,
            spec=spec,
            runs=runs,
            states=states,
            emitted=self.emitted,
            write_output=self._write_output,
            write_state=write_state,
            write_remote=self._write_remote,
            write_bindings=self._write_bindings,
            deliveries=deliveries,
        )

    def _write_bindings(self, bindings: Sequence[Binding]) -> None:
        plan = self.plan
        if self._bindings is None:
            self._bindings = BindingSink(
                plan.stage,
                plan.spec,
                folder=plan.folder,
                epoch=plan.epoch,
                part=self._number,
                suffix=f"{plan.run}-{self.attempt}",
                hash_mask=plan.hash_mask,
                faults=plan.faults,
            )
        self._bindings.write(bindings)

    def _write_remote(self, state: str, columns: list[pa.Array]) -> None:
        self._state.write_remote(state, columns, self.open_cache())

    def _write_output(self, name: str, columns: list[pa.Array]) -> None:
        self._outputs.write(self.plan.stage, name, columns)

    def _close_outputs(self) -> None:
        files = self._outputs.close()
        if self._bindings is not None:
            files += self._bindings.close()
            self.counts["bindings"] = self._bindings.rows
        self._written.extend(f"{self.plan.folder}/{file['path']}" for file in files)
        self._done.extend(files)
        self.counts.update(self._outputs.counts())
