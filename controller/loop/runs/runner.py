"""Executes runs in threads: prepares each one, and hands it to `RunCommit`.

    intend -> prepare -> finish (`controller.loop.runs.run_commit`)
               '-- fails: the increment stays queued, the try is counted
                   (`controller.loop.runs.retry_policy`)

Invariants (tests/controller/loop/test_loop.py, tests/controller/loop/runs/test_retry_policy.py,
tests/controller/loop/recovery/test_recovery.py): a stage has at most one run under way; a run that
was given up records nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import structlog

from cbp.engine.interface.runs import PreparedRun, RunPreparer
from cbp.errors import RunCancelledError
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.runs.in_flight import InFlight, RunPhases, Work
from controller.loop.runs.output_retention import OutputRetention
from controller.loop.runs.planned_run import PlannedRun, RecordedRun
from controller.loop.runs.retained_inputs import RetainedInputs
from controller.loop.runs.retry_policy import Failures
from controller.loop.runs.run_commit import RunCommit

_ENDS = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions of author's code in a thread of this process; none of these ends the process."""

_log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Runner(DataflowPart):
    """Executes runs; every method can be called from any thread."""

    preparer: RunPreparer
    in_flight: InFlight
    run_commit: RunCommit
    failures: Failures
    keeping: OutputRetention
    retained: RetainedInputs
    run_phases: RunPhases
    run_seconds_max: float

    def start(self, job: PlannedRun) -> None:
        """Record a run as intended and hand it to the executor."""
        self.store.intend(job.run)
        self.run_phases.begin(job.run.id, job.run.started_at)
        own = job.node.run_seconds_max
        limit = self.run_seconds_max if own is None else own
        work = Work(
            job.id,
            job.run.id,
            self.clock(),
            seconds_max=limit,
            give_up=partial(self._give_up, job),
            gave_way=job.view.gave_way,
            epoch=job.run.epoch,
            code=job.code(),
            read_bytes=job.start.read_bytes,
        )
        try:
            self.in_flight.submit(work, lambda: self._run(job, work))
        except RuntimeError:
            # Otherwise it would count as a run during which the service died.
            self.failures.interrupt(job.run, "the run has no thread; the epoch runs again")
            raise

    def redo(self, run: RecordedRun) -> None:
        """Hand a recorded run to the executor, to be published and committed."""
        work = Work(run.id, run.intention.run, self.clock(), epoch=run.intention.epoch)
        self.in_flight.submit(work, lambda: self.run_commit.finish(run))

    def _give_up(self, job: PlannedRun, work: Work) -> None:
        work.runs_again = False  # it hangs, and would hang again
        self.failures.settle(job.run, job.stage, work, RunCancelledError(work.run))

    def _run(self, job: PlannedRun, work: Work) -> None:
        _log.info("run.started", epoch=job.run.epoch, attempt=job.run.attempt)
        try:
            prepared = self._prepare(job, work)
        except _ENDS as error:  # author's code and engines may raise anything
            if self.in_flight.record(work):
                self.failures.settle(job.run, job.stage, work, _ordinary(error))
            return
        if not self.in_flight.record(work):
            _log.warning("run.result_discarded", epoch=job.run.epoch)
            return
        self.run_phases.enter(job.run.id, "finish")
        self.run_commit.record(job, prepared, self.run_phases.figures(job.run.id))

    def _prepare(self, job: PlannedRun, work: Work) -> PreparedRun:
        if work.cancelled_at is not None:
            raise RunCancelledError(job.run.id)
        plan, enter = job.plan, partial(self.run_phases.enter, job.run.id)
        enter("plan")
        if plan.replaces:
            plan = replace(plan, retained=self.retained.of(job.record, plan.node))
        if self.preparer.maintains_outputs(plan.epoch):
            plan = replace(plan, kept=self.keeping.of(job.record, (plan.node, *plan.fused)))
        return self.preparer.prepare(plan, enter)


def _ordinary(error: BaseException) -> Exception:
    """Convert an exception that ends a thread to an ordinary one, which ends only the run."""
    if isinstance(error, Exception):
        return error
    ended = RuntimeError(f"the author's code ended its thread: {error!r}")
    ended.__cause__ = error
    return ended
