"""Preparer of a run: plans its phases, executes and assembles them; sometimes compacts outputs.

Guaranteed: nothing is published. No record names the files of a run that failed, so garbage
collection removes them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import get_args

from cbp.engine.commit.table_entries import live_adds
from cbp.engine.interface.runs import PreparedRun, RunPlan, enter_unseen
from cbp.engine.outputs.output_compaction import WHOLE, due, merged_change
from cbp.engine.outputs.retention import expired_change, grain_of
from cbp.engine.run.assembly import (
    Reported,
    assemble,
    empty_outputs,
    located,
    next_timer,
    raise_first_error,
)
from cbp.engine.run.corrections import correcting_plan, write_corrections
from cbp.engine.run.executor import Executor
from cbp.engine.run.framing import without_refused
from cbp.engine.run.phases import joined, phases, reading, with_members
from cbp.engine.run.recomputation import recomputing_groups
from cbp.engine.run.set_aside import SetAsideTable, SettingAside, refused_records
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.run.task_planner import Planner
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table
from cbp.engine.task.reports import Counts, GroupFailed, ProcessChanged, SetAside, TaskReport
from cbp.engine.task.task_plan import TaskPlan
from cbp.errors import AuthorCodeError, DefinitionError, Mistake
from cbp.model.dataflow.stage import Form
from cbp.model.flow.retention import KeptFlow
from cbp.model.plan.explain import PhysicalLimits
from cbp.model.run.account import LOOP_WORTH
from cbp.model.run.correction import Correction
from cbp.model.run.intention import LookupMoment, TableChange

_logger = logging.getLogger(__name__)


@dataclass
class Preparer:
    """Plans, executes and assembles runs; implements `RunPreparer`."""

    executor: Executor
    planner: Planner
    tables: OpenTables
    files: Files
    now_ms: Callable[[], int]
    faults: Faults

    def limits(self) -> PhysicalLimits:
        """Return the limits that decide how a run is executed; see `RunPreparer.limits`."""
        limits, bypass = self.planner.limits, self.executor.bypass
        rows = {form: limits.rows_per_task_of(form) for form in get_args(Form)}
        most: tuple[int | None, int | None] = (None, None)
        if self.executor.shuffles:
            most = limits.arranged_reads, limits.arranged_bytes
        return PhysicalLimits(
            self.executor.slots,
            rows,
            *most,
            bypass,
            limits.whole_run_bytes,
            self.executor.loop_tasks_max,
            limits.rows_per_loop_task,
        )

    def maintains_outputs(self, epoch: int) -> bool:
        """Return whether a run maintains its outputs; see `RunPreparer.maintains_outputs`."""
        return due(epoch, self.planner.limits)

    def prepare(self, plan: RunPlan, enter: Callable[[str], object] = enter_unseen) -> PreparedRun:
        """Run stages over their increments; see `RunPreparer.prepare`."""
        with (
            self._pinned(plan) as pinned,
            recomputing_groups(pinned, files=self.files, faults=self.faults) as run,
        ):
            prepared = self._run(run, enter)
        changes = prepared.changes
        if changes and plan.kept is not None:
            enter("tidy")
            changes = (*changes, *self._tidied_outputs(plan, plan.kept))
        return replace(prepared, changes=changes, lookups=_moments(pinned))

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state; see `RunPreparer.correct`."""
        node = next(one for one in (plan.node, *plan.fused) if one.name == stage)
        increment = write_corrections(plan, node, state, corrections, files=self.files)
        run = correcting_plan(plan, node, state, increment)
        prepared, _ = self._phase(run, enter_unseen)
        written = {one.flow: one for one in prepared.outputs.values()}
        outputs = {key: written.get(one.flow, one) for key, one in empty_outputs(plan).items()}
        due_ms = prepared.due_ms if node.translator.timers else plan.due_ms
        whole = replace(prepared, outputs=outputs, due_ms=due_ms)
        return whole, increment.files[0].path

    def give_back(
        self, plan: RunPlan, enter: Callable[[str], object] = enter_unseen
    ) -> PreparedRun:
        """Read the set-aside records of a stage again; see `RunPreparer.give_back`."""
        table = SetAsideTable.of(plan, self.tables)
        try:
            inputs = table.given_back(plan, self.files)
        except (TypeError, ValueError, ArithmeticError) as exc:
            where = f"stages.{plan.node.name}.set_aside"
            raise DefinitionError(Mistake("set_aside_unfit", where, str(exc))) from exc
        try:
            with self._pinned(plan) as pinned:
                # Groups left out may have due timers that no earlier run noted: read all timers.
                run = replace(pinned, inputs=inputs, due_ms=0)
                aside = SettingAside(run, table, gives_back=True, again=lambda: enter("again"))
                prepared = self._run(run, enter, aside)
        finally:
            for increment in (one for many in inputs.values() for one in many):
                self.files.remove(f"{plan.folder}/{increment.files[0].path}")
        return replace(prepared, lookups=_moments(pinned))

    @contextmanager
    def _pinned(self, plan: RunPlan) -> Iterator[RunPlan]:
        """Pin each looked-up table to a version, whose files stay as long as the run reads it."""
        pinned = {name: self.tables.pinned(one) for name, one in plan.lookups.items()}
        with self.tables.in_use(pinned.values()):
            yield replace(plan, lookups=pinned)

    def _run(
        self, plan: RunPlan, enter: Callable[[str], object], aside: SettingAside | None = None
    ) -> PreparedRun:
        first, behind = phases(plan)
        if not plan.fused:
            if aside is None and plan.node.sets_aside:
                table, refused = SetAsideTable.of(plan, self.tables), tuple(refused_records(plan))
                aside = SettingAside(plan, table, refused=refused)
                plan = without_refused(plan)
            return self._phase(plan, enter, aside=aside)[0]
        if behind is None:
            return with_members(first, self._phase(first, enter)[0])
        prepared, more = self._phase(first, enter, behind)
        behind = reading(behind, prepared)
        # A single task may have done both phases; otherwise the second is a separate job.
        if more:
            rest = assemble(behind, Reported(more), now_ms=self.now_ms())
        else:
            rest, _ = self._phase(behind, enter)
        return joined(plan, with_members(first, prepared), with_members(behind, rest))

    def _phase(
        self,
        plan: RunPlan,
        enter: Callable[[str], object],
        behind: RunPlan | None = None,
        aside: SettingAside | None = None,
    ) -> tuple[PreparedRun, list[TaskReport]]:
        """Run one phase; return it, and the reports of `behind` if the same task ran both."""
        started = time.perf_counter()
        enter("plan")
        self.executor.refuse(plan.dataflow, [plan.node, *plan.fused])
        records = sum(i.records for increments in plan.inputs.values() for i in increments)
        if not records and not plan.wakes:
            nothing: dict[str, float] = {"records_in": 0, "groups": 0}
            prepared = PreparedRun(empty_outputs(plan), (), nothing, next_timer(plan, []))
            if aside is not None:
                prepared = self._with_set_aside(prepared, aside, [])
            return prepared, []
        jobs = list(self.planner.jobs(plan, faults=self.faults))
        if behind is not None:
            then = self.planner.then(plan, behind, faults=self.faults)
            jobs = [(part, replace(task, then=then)) for part, task in jobs]
        ready = time.perf_counter()
        enter("job")
        reports = [one for part, task in jobs for one in self._job(part, task, aside)]
        done = time.perf_counter()
        enter("assemble")
        reported = Reported(reports)
        prepared = assemble(plan, reported, now_ms=self.now_ms())
        if aside is not None:
            prepared = self._with_set_aside(prepared, aside, reported.all(SetAside))
        figures = {
            **prepared.figures,
            **_task_figures([task for _, task in jobs], reported),
            "seconds_plan": ready - started,
            "seconds_job": done - ready,
            "seconds_assemble": time.perf_counter() - done,
        }
        return replace(prepared, figures=figures), reported.next_phase

    def _job(self, part: RunPlan, task: TaskPlan, aside: SettingAside | None) -> list[TaskReport]:
        """Execute a job; repeat it while groups fail that can be set aside."""
        self.faults("job.before")
        for tries in count():
            if aside is not None:
                # Run under another name, since the files of an earlier try are garbage.
                run = f"{task.run}s{tries}" if tries else task.run
                # Messages are routed like other records, so that those without a key are found.
                apart, left = frozenset[str](), aside.left_out
                task = replace(task, run=run, set_aside=left, in_place=apart, by_bucket=apart)
            reports = self._executed(part, task)
            reported = Reported(reports)
            try:
                raise_first_error(reported)
            except AuthorCodeError as error:
                raise located(error, part) from error
            failed = reported.all(GroupFailed)
            if aside is None or not failed:
                break
            aside.leave_out(failed)
        self.faults("job.after")
        self.planner.reach.note(part, reported.groups)
        return reports

    def _with_set_aside(
        self, prepared: PreparedRun, aside: SettingAside, reports: Sequence[SetAside]
    ) -> PreparedRun:
        change, figures = aside.change(reports, files=self.files, now_ms=self.now_ms())
        changes = prepared.changes if change is None else (*prepared.changes, change)
        figures = {**prepared.figures, **figures}
        figures["records_in"] = figures.get("records_in", 0) + len(aside.refused)
        return replace(prepared, changes=changes, figures=figures)

    def _executed(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Execute a job; execute it again with a shuffle if messages are in wrong buckets."""
        tries = [self.executor.execute(plan, task)]
        if Reported(tries[0]).misplaced:
            _logger.warning(
                "stage %r, epoch %d: queued messages were written for another route_by, so they "
                "are routed again",
                task.stage,
                task.epoch,
            )
            # Under another name, since the first job's garbage files must not be overwritten.
            again = replace(task, run=f"{task.run}x", in_place=frozenset())
            tries.append(self.executor.execute(plan, again))
        changed = (one for done in tries for one in Reported(done).all(ProcessChanged))
        for one in dict.fromkeys(changed):
            _logger.warning(
                "stage %r: %s %s (%s) changed %s of the process that runs it. Other stages are "
                "not affected, since the process is replaced, but starting another process costs "
                "time. Undo the change before the function returns, or keep values in the "
                "translator",
                one.stage,
                "loading the code of" if one.by == "loading" else "a call of",
                one.function,
                one.place,
                ", ".join(one.what),
            )
        return tries[-1]

    def _tidied_outputs(
        self, plan: RunPlan, kept_flows: Mapping[str, KeptFlow]
    ) -> list[TableChange]:
        """Drop old records of a run's outputs, and compact the rest.

        Only files that earlier runs recorded are touched, so no two changes of a run name one file.
        """
        changes = []
        for node in (plan.node, *plan.fused):
            for output in node.translator.outputs:
                table = flow_table(node.name, output.name)
                path, kept = f"{plan.folder}/{table}", kept_flows.get(f"{node.name}.{output.name}")
                live = live_adds(self.tables.table(path).snapshot, table, plan.unpublished)
                grain = WHOLE
                if kept is not None:
                    gone = expired_change(table, live, kept, now_ms=self.now_ms())
                    changes += [gone] if gone else []
                    live = [file for file in live if gone is None or file.path not in gone.drops]
                    grain = grain_of(live, kept, now_ms=self.now_ms())
                change = merged_change(
                    table,
                    path,
                    live,
                    epoch=plan.epoch,
                    run=plan.run,
                    faults=self.faults,
                    grain=grain,
                    limits=self.planner.limits,
                )
                changes += [change] if change else []
        return changes


def _task_figures(jobs: Sequence[TaskPlan], reported: Reported) -> dict[str, float]:
    """Return how many tasks ran, and how many a loop would have had if slots had been free."""
    if not jobs or jobs[0].spec.supersteps == 1:
        return {"tasks": max((job.tasks for job in jobs), default=0)}
    (job,), ran = jobs, len(reported.all(Counts))  # an executor may run fewer tasks
    return {"tasks": ran, **({LOOP_WORTH: job.worth} if job.worth > ran else {})}


def _moments(plan: RunPlan) -> dict[str, LookupMoment]:
    return {name: one.moment for name, one in plan.lookups.items() if one.moment is not None}
