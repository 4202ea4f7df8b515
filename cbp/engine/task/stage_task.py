"""One task of a stage, for all groups of its buckets: group, call the author, write the results.

The task does not depend on its caller (a Spark task or the local engine) nor on the way its
records arrived. Records come as sorted Arrow batches in the layout of
`cbp.engine.shuffle.layout`; the result is a list of reports of the files that were
written. The task commits nothing.

The same records give files of the same contents in the same order, whatever the number of
tasks: groups are visited by (hash, key), records within a group in the total order.

Memory: one window of records at a time is in Python. Records that arrived are in Arrow, beyond
`EngineLimits.spool_bytes` on disk. A single group larger than a window is read lazily.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import pyarrow as pa

from cbp.engine.columnar.arrow_types import Int64s
from cbp.engine.columnar.file_slices import InputShare, Share
from cbp.engine.columnar.groups import FlowRun
from cbp.engine.shuffle.broadcast import Shared
from cbp.engine.shuffle.exchange import ALONE, Exchange
from cbp.engine.shuffle.replicated_read import Routing, arrange
from cbp.engine.shuffle.spool import Spool
from cbp.engine.state.bucket_state import BucketState
from cbp.engine.state.index_cache import IndexCache
from cbp.engine.task.bucket_work import (
    BucketWork,
    Lookups,
    WriteState,
    author_work,
    bucket_batches,
    count_arrived,
    deliveries_of,
    flow_runs,
    run_batch,
    shared_records,
)
from cbp.engine.task.failing_groups import LeftOutGroups, RoutedRecords
from cbp.engine.task.loop_writers import LoopWriters
from cbp.engine.task.message_reader import MessageReader
from cbp.engine.task.record_task import RecordRun
from cbp.engine.task.reports import (
    GroupFailed,
    GroupsFailed,
    NextPhase,
    OutputFile,
    TaskReport,
    has_succeeded,
)
from cbp.engine.task.run_work import RunWork, reads_files
from cbp.engine.task.set_aside_reports import SetAsideReports, first_arrivals, with_places
from cbp.engine.task.supersteps import LoopWork
from cbp.engine.task.task_plan import TaskPlan
from cbp.engine.task.writers import TaskWriters
from cbp.errors import AuthorCodeError


def arranged_records(
    plan: TaskPlan, part: int, routing: Routing = lambda input_, records, route: route(records)
) -> pa.Table | None:
    """Return one task's records of a small increment, which the task reads itself (`arrange`).

    Messages that are read in place are not among them (`cbp.engine.task.message_reader`). `None` if
    no input has a file, so that groups are called only for their state or for messages.
    """
    inputs = {name: many for name, many in plan.inputs.items() if name not in plan.in_place}
    if not any(inputs.values()):
        return None
    routes, replicate = list(map(plan.route, range(len(plan.spec.inputs)))), plan.replication()
    return arrange(
        inputs, routes, tasks=plan.tasks, part=part, replicate=replicate, routing=routing
    )


def arranged_batches(
    plan: TaskPlan, part: int, routing: Routing = lambda input_, records, route: route(records)
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of `arranged_records`; none if there are no records."""
    table = arranged_records(plan, part, routing)
    if table is not None:
        yield from table.to_batches()


def counting_bytes(
    batches: Iterable[pa.RecordBatch], counts: dict[str, float]
) -> Iterator[pa.RecordBatch]:
    """Yield shuffled batches, and count their bytes."""
    for batch in batches:
        counts["bytes_shuffled"] += batch.nbytes
        yield batch


@dataclass
class StageTask:
    """One task of a run; `exchange` connects the tasks of a loop that has several."""

    plan: TaskPlan
    part: int
    attempt: str
    exchange: Exchange = ALONE
    writers: TaskWriters = field(init=False)
    _shuffled: bool = field(init=False, default=False)
    _unrouted: Counter[str] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        kind = LoopWriters if self.plan.spec.supersteps > 1 else TaskWriters
        self.writers = kind(self.plan, self.part, self.attempt)
        self.plan = self.writers.plan  # with translator instances of this task's own

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[TaskReport]:
        """Run the groups of all records that arrived, and return reports."""
        arrived = counting_bytes(batches, self.writers.counts)
        self._shuffled = True
        return self._reported(lambda: self._run_groups(chain(arrived, self._messages())))

    def run_arranged(self) -> list[TaskReport]:
        """Run this task's groups of a small increment, which the task reads itself."""
        if reads_files(self.plan) and self.plan.set_aside is None:
            return self.writers.report(RunWork(self.writers).run_files)
        own = arranged_batches(self.plan, self.part)
        if (reports := self._set_aside_reports) is not None:
            routed = RoutedRecords(self.part, reports, self._unrouted)
            own = arranged_batches(self.plan, self.part, routed.route)
        return self._reported(lambda: self._run_groups(chain(own, self._messages())))

    def _reported(self, work: Callable[[], None]) -> list[TaskReport]:
        """Do the task's work; return its reports once all tasks of its exchange have succeeded."""
        reports = self.writers.report(work)
        self.exchange.finish(done=has_succeeded(reports))
        return reports

    def run_shares(self, work: Sequence[InputShare]) -> list[TaskReport]:
        """Run shares of a record-wise stage's inputs, and return reports.

        If the plan has a downstream groupwise stage (`then`), and this gets at most
        `EngineLimits.then_rows` records, this task runs it too, on the files just written.
        """
        done = self.writers.report(lambda: self._run_records(work))
        then = self.plan.then
        if then is None:
            return done
        files = tuple(
            Share(f"{self.plan.folder}/{one.path}", one.rows, 0, one.rows)
            for one in done
            if isinstance(one, OutputFile) and one.flow == then.flow
        )
        if not 0 < sum(file.rows for file in files) <= self.plan.limits.then_rows:
            return done
        (input_,) = then.plan.spec.inputs
        behind = StageTask(replace(then.plan, inputs={input_.name: files}), 0, self.attempt)
        return [*done, NextPhase(tuple(behind.run_arranged()))]

    def _messages(self) -> Iterator[pa.RecordBatch]:
        if self.plan.in_place:
            reader = MessageReader(self.plan, self.part)
            yield from reader.batches()
            self.writers.counts.update(reader.figures)

    def _run_records(self, work: Sequence[InputShare]) -> None:
        writers = self.writers
        run = RecordRun(
            self.plan.stage,
            self.plan.spec,
            writers.emitted,
            writers.write_output,
            writers.write_remote,
            writers.write_bindings,
            limits=self.plan.limits,
            context=self.plan.context,
            files=self.plan.inputs,
            set_aside=self._set_aside_reports,
        )
        try:
            run.run(work)
        except AuthorCodeError as error:
            raise with_places(error, error.places) from error
        writers.counts.update({f"records_in.{name}": seen for name, seen in run.records.items()})
        writers.counts["groups"] = run.records.total()

    @cached_property
    def _set_aside_reports(self) -> SetAsideReports | None:
        plan, done = self.plan, self.writers.done
        if plan.set_aside is None:
            return None
        return SetAsideReports(plan.stage, plan.spec, plan.set_aside.most, done.append)

    def _run_groups(self, batches: Iterable[pa.RecordBatch]) -> None:
        if isinstance(self.writers, LoopWriters):
            LoopWork(self.writers, self.part, self.exchange).run(batches, sent=self._shuffled)
        elif self.plan.spec.form == "run":
            RunWork(self.writers).run(batches)
        else:
            try:
                self._run_buckets(batches)
            except AuthorCodeError as error:
                places = first_arrivals(error, self.plan.inputs, packed=self._shuffled)
                raise with_places(error, places) from error

    def _run_buckets(self, batches: Iterable[pa.RecordBatch]) -> None:
        plan, counts = self.plan, self.writers.counts
        assert plan.layout is not None, "run_shares runs a record-wise stage"
        cache = self.writers.cache()
        visited: set[int] = set()
        left_out = None
        if (reports := self._set_aside_reports) is not None:
            left_out = LeftOutGroups(self.writers, reports, packed=self._shuffled)
        failed: list[GroupFailed] = []
        with Spool(plan.layout, plan.limits) as spool:
            spool.take(batches)
            count_arrived(plan, spool, counts)
            for name, unrouted in self._unrouted.items():
                counts[f"records_in.{name}"] += unrouted
            shared = shared_records(plan, self.part, spool, counts)
            for some in bucket_batches(plan, self.part, spool, shared):
                runs = flow_runs(plan, spool, some)
                if left_out is None:
                    self._run_batch(some, runs, cache, shared)
                else:
                    failed += self._try_batch(some, runs, cache, left_out, failed)
                visited.update(some)
            counts.update(shared.counts() if shared else {})
        if failed:
            raise GroupsFailed(failed)
        self.writers.state.compact_others(visited, cache)
        self.writers.state.write_deletes()

    def _try_batch(
        self,
        buckets: tuple[int, ...],
        runs: list[FlowRun],
        cache: IndexCache,
        left_out: LeftOutGroups,
        failed: Sequence[GroupFailed],
    ) -> list[GroupFailed]:
        others = [left_out.left(run) for run in runs]
        if failed:
            return left_out.failing(buckets, others, cache)
        try:
            self._run_batch(buckets, others, cache, None, left_out.others)
        except AuthorCodeError:
            if found := left_out.failing(buckets, others, cache):
                return found
            raise
        return []

    def _run_batch(
        self,
        buckets: tuple[int, ...],
        runs: list[FlowRun],
        cache: IndexCache,
        shared: Shared | None,
        among: Callable[[Int64s], Int64s] | None = None,
    ) -> None:
        deliveries = deliveries_of(self.plan, buckets, runs, shared)

        def start(
            states: dict[str, BucketState], lookups: Lookups, write_state: WriteState
        ) -> BucketWork:
            spec = self.plan.spec
            return author_work(
                self.writers, spec, runs, states, write_state, deliveries, lookups, among
            )

        run_batch(self.writers, buckets, cache, start)
