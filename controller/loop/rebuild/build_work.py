"""Build work: carries out a build until it is ready, from the beginning or from where it stopped.

    tables of an earlier process          -> continues with them
    tables from before a fault            -> continues with them
    damaged tables, or corrected input    -> starts over, and says why
    caught up with the dataflow           -> compared with the tables that readers see: ready

Guaranteed: a build continues only with tables that the same code built from the same input
(tests/controller/loop/rebuild/test_build_after_restart.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from cbp.errors import FileDamagedError, NotFoundError
from cbp.model.flow.snapshot import Snapshot
from cbp.model.schedule.left_to_do import left_to_do
from controller.loop.reading.snapshots import Snapshots
from controller.loop.rebuild.build_beside import Build, BuildParts, CorrectedMeanwhileError
from controller.loop.rebuild.build_in_progress import Job, Planned
from controller.loop.rebuild.build_plans import BuildPlans
from controller.loop.rebuild.checkpoint import Checkpoint, folder_of, read_checkpoint, take_over
from controller.loop.records.dataflow_folder import remove_scratch
from controller.store.base import DataflowRecord

READINGS_MAX = 25
"""How often a comparison waits for the dataflow to apply what the build has applied."""

_BEHIND_MIN = 10
"""A build that lacks no more increments than this can still catch up with its dataflow."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class BuildWork(BuildParts):
    """Carries out builds, each in the caller's thread."""

    snapshots: Snapshots
    tables_root: str
    build_plans: BuildPlans
    readings_max: int = READINGS_MAX

    def build(self, job: Job, planned: Planned) -> None:
        """Build the tables of a job, and compare them with the present ones; see `Build.feed`."""
        record = self.store.dataflow(job.shown.dataflow)
        job.check()
        if job.rest is not None:
            self._take_up(job)
        job.pace.begin()
        checkpoint: Checkpoint | None = None
        if self.files.exists(job.scratch):
            checkpoint, why = read_checkpoint(self.files, job.scratch)
            if checkpoint is None:
                self.begin_anew(job, why)
        while True:
            try:
                self._carry_out(job, record, planned, checkpoint)
                job.failures, job.rest = 0, None
                return
            except CorrectedMeanwhileError as error:
                self.begin_anew(job, str(error))
            except (FileDamagedError, NotFoundError, FileNotFoundError) as error:
                if checkpoint is None:
                    raise
                self.begin_anew(job, f"the tables built so far are damaged ({error})")
            checkpoint = None

    def _take_up(self, job: Job) -> None:
        """Let a job that has waited continue with its tables, in the folder of the next try."""
        _, job.tries = take_over(self.files, self.tables_root, job.order.id, faults=self.faults)
        job.scratch = folder_of(self.tables_root, job.order.id, job.tries)
        job.show(step="continues", error=None, again_at=None)

    def begin_anew(self, job: Job, why: str) -> None:
        """Discard the tables that a job has built, and note why."""
        _log.warning("rebuild.starts_over", dataflow=job.shown.dataflow, job=job.shown.id, why=why)
        job.show(step="starts over", anew=why)
        if job.build is not None:
            job.build.close()
        job.build = None
        remove_scratch(self.files, job.scratch, faults=self.faults)
        job.tries += 1
        job.scratch = folder_of(self.tables_root, job.shown.id, job.tries)

    def _carry_out(
        self, job: Job, record: DataflowRecord, planned: Planned, begins: Checkpoint | None
    ) -> None:
        build = job.build = Build(
            f"{job.shown.id}t{job.tries}",
            record,
            planned.dataflow,
            planned.leaders,
            f"{job.scratch}/1",
            job,
            self,
            self.build_plans.seeds(job.order.seeds),
            self.build_plans.firsts(record, job.order.seeds),
            slots_max=job.pace.slots_of(self.engine.preparer.limits().slots),
            begins=begins,
        )
        present, before = self.catalog.compiled(record), 0
        for left in reversed(range(self.readings_max)):
            build.feed()
            snapshot = self.snapshots.take(record.name)
            if exact := self._at_rest(record, snapshot, build):
                break
            # More arrives than it can apply in its share of the time: the swap applies the rest.
            behind = build.behind
            if _BEHIND_MIN < before <= behind:
                break
            before = behind
            if left:
                job.wait({})
        tables = tuple(build.compare(present, snapshot))
        job.show(tables=tables, exact=exact, behind=build.behind)

    def _at_rest(self, record: DataflowRecord, snapshot: Snapshot, build: Build) -> bool:
        """Return whether a snapshot shows exactly the increments that the build has applied."""
        position = self.store.position(record.name)
        units = self.catalog.units(record)
        rules = {leader: unit.leader.runnable for leader, unit in units.items()}
        shown = all(
            snapshot.epochs[name] + 1 == stage.epoch for name, stage in position.stages.items()
        )
        return shown and not build.behind and not left_to_do(rules, position, set())
