"""Preparer of a run: plans its phases, executes and assembles them; sometimes compacts outputs.

Guaranteed: nothing is published. No record names the files of a run that failed, so `collect`
finds them.
Absent on purpose: where tasks run (`cbp.engine.run.executor`), and what they do
(`cbp.engine.task.stage_task`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cbp.engine.commit.table_entries import live_adds
from cbp.engine.interface.runs import PreparedRun, RunPlan
from cbp.engine.outputs.compaction import WHOLE, due, merged_change
from cbp.engine.outputs.retention import expired_change, grain_of
from cbp.engine.run.assembly import Reported, assemble, empty_outputs, raise_first_error
from cbp.engine.run.corrections import correcting_plan, write_corrections
from cbp.engine.run.executor import Executor
from cbp.engine.run.phases import joined, phases, reading, with_members
from cbp.engine.run.table_cache import OpenTables
from cbp.engine.run.task_planner import Planner
from cbp.engine.storage.failpoints import Faults
from cbp.engine.storage.files import Files
from cbp.engine.storage.table_names import flow_table
from cbp.engine.task.plan import TaskPlan
from cbp.engine.task.reports import TaskReport
from cbp.model.dataflow.explain import PhysicalLimits
from cbp.model.run.correction import Correction
from cbp.model.run.intention import TableChange

__all__ = ["Preparer"]

_logger = logging.getLogger(__name__)

_FORMS = ("groupwise", "arrow", "sql")


@dataclass
class Preparer:
    """Plans, executes and assembles runs; implements `RunPreparer`.

    Attributes:
        faults: Failpoints, called at every durable effect of a run.
    """

    executor: Executor
    planner: Planner
    tables: OpenTables
    files: Files
    now_ms: Callable[[], int]
    faults: Faults

    def limits(self) -> PhysicalLimits:
        """Return the limits that decide how a run is executed; see `RunPreparer.limits`."""
        limits, bypass = self.planner.limits, self.executor.bypass
        rows = {form: limits.rows_per_task_of(form) for form in _FORMS}
        if not self.executor.shuffles:
            return PhysicalLimits(self.executor.slots, rows, bypass=bypass)
        most = limits.arranged_reads, limits.arranged_bytes
        return PhysicalLimits(self.executor.slots, rows, *most, bypass)

    def prepare(self, plan: RunPlan) -> PreparedRun:
        """Run stages over their increments; see `RunPreparer.prepare`."""
        prepared = self._run(plan)
        if not prepared.changes or not due(plan.epoch):
            return prepared
        return replace(prepared, changes=(*prepared.changes, *self._tidied_outputs(plan)))

    def correct(
        self, plan: RunPlan, stage: str, state: str, corrections: Sequence[Correction]
    ) -> tuple[PreparedRun, str]:
        """Correct records of a state; see `RunPreparer.correct`."""
        node = next(one for one in (plan.node, *plan.fused) if one.name == stage)
        increment = write_corrections(plan, node, state, corrections, files=self.files)
        run = correcting_plan(plan, node, state, increment)
        prepared, _ = self._phase(run)
        return replace(prepared, outputs=empty_outputs(plan)), increment.files[0].path

    def _run(self, plan: RunPlan) -> PreparedRun:
        first, behind = phases(plan)
        if not plan.fused:
            return self._phase(plan)[0]
        if behind is None:
            return with_members(first, self._phase(first)[0])
        prepared, more = self._phase(first, behind)
        behind = reading(behind, prepared)
        # A single task may have done both phases; otherwise the second is a job of its own.
        rest = self._assembled(behind, more) if more else self._phase(behind)[0]
        return joined(plan, with_members(first, prepared), with_members(behind, rest))

    def _phase(
        self, plan: RunPlan, behind: RunPlan | None = None
    ) -> tuple[PreparedRun, list[TaskReport]]:
        """Run one phase; return it, and the reports of the next phase if its task ran that."""
        started = time.perf_counter()
        self.executor.refuse(plan.dataflow, [plan.node, *plan.fused])
        records = sum(i.records for increments in plan.inputs.values() for i in increments)
        if not records:
            return PreparedRun(empty_outputs(plan), (), {"records_in": 0, "groups": 0}), []
        jobs = list(self.planner.jobs(plan, faults=self.faults))
        if behind is not None:
            then = self.planner.then(plan, behind, faults=self.faults)
            jobs = [(part, replace(task, then=then)) for part, task in jobs]
        ready = time.perf_counter()
        reports: list[TaskReport] = []
        for part, task in jobs:
            self.faults("job.before")
            part_reports = self._executed(part, task)
            self.faults("job.after")
            reported = Reported.of(part_reports)
            raise_first_error(reported)
            self.planner.reach.note(part, reported.groups)
            reports += part_reports
        done = time.perf_counter()
        reported = Reported.of(reports)
        prepared = assemble(plan, reported, now_ms=self.now_ms())
        figures = {
            **prepared.figures,
            "tasks": max(task.tasks for _, task in jobs),
            "seconds_plan": ready - started,
            "seconds_job": done - ready,
            "seconds_assemble": time.perf_counter() - done,
        }
        return PreparedRun(prepared.outputs, prepared.changes, figures), reported.next_phase

    def _assembled(self, plan: RunPlan, reports: Sequence[TaskReport]) -> PreparedRun:
        return assemble(plan, Reported.of(reports), now_ms=self.now_ms())

    def _executed(self, plan: RunPlan, task: TaskPlan) -> list[TaskReport]:
        """Execute a job; execute it again with a shuffle if messages are in wrong buckets."""
        reports = self.executor.execute(plan, task)
        if not Reported.of(reports).misplaced:
            return reports
        _logger.warning(
            "stage %r, epoch %d: messages that wait were written for another route_by; they are "
            "routed again",
            task.stage,
            task.epoch,
        )
        # Under another name: files of the first job are garbage and must not be overwritten.
        again = replace(task, run=f"{task.run}x", in_place=frozenset())
        return self.executor.execute(plan, again)

    def _tidied_outputs(self, plan: RunPlan) -> list[TableChange]:
        """Drop old records of a run's outputs, and compact the rest.

        Only files that were recorded before this run: two changes of a run never touch one file.
        """
        changes = []
        for node in (plan.node, *plan.fused):
            for output in node.translator.outputs:
                table = flow_table(node.name, output.name)
                path, kept = f"{plan.folder}/{table}", plan.kept.get(f"{node.name}.{output.name}")
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
                )
                changes += [change] if change else []
        return changes
