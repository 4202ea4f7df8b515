"""Corrections of state: each is an epoch of its own, and is kept forever.

Records that a stage had set aside are given back in the same way.

The record of the correcting run is the commit point; it also holds who corrected and why.
Everything after it is redo, as for any run (`controller.loop.runs.run_commit`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cbp.engine.interface.readers import RecordReader
from cbp.engine.interface.runs import PreparedRun, RunPlan, RunPreparer, looked_up_tables
from cbp.errors import CorrectionUnfinishedError, DataflowBusyError, NotFoundError
from cbp.model.run.correction import Correction, CorrectionNote, check_corrections
from cbp.model.run.intention import Intention, RunStatus
from controller.loop.leadership.terms import CurrentTerm
from controller.loop.records.correction_log import Corrected, corrected_by, is_undone, read_notes
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.past_position import Tell, untold
from controller.loop.runs.planned_run import RecordedRun
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.run_commit import ParkedRuns, RunCommit
from controller.store.base import DataflowRecord, RunRecord, StageRecord

_STEPS = {
    "plan": "reads the records that are set aside",
    "job": "calls the stage's code",
    "again": "calls the code again, without the records that failed",
    "assemble": "writes the tables",
}
"""Phase of the run -> its work, in words."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The outcome for the records that a stage had set aside.

    Attributes:
        left: Number of records that failed again, and stay set aside.
        made: The recorded run; `None` for a trial.
    """

    records: int
    left: int
    made: Corrected | None = None

    @classmethod
    def recorded(cls, made: Corrected) -> GivenBack:
        """Return the result of a recorded run."""
        return cls(made.note.keys, made.note.left, made)

    @classmethod
    def of(cls, prepared: PreparedRun) -> GivenBack:
        """Return the effects of a prepared run."""
        figures = prepared.figures
        return cls(int(figures.get("given_back", 0)), int(figures.get("set_aside_now", 0)))


@dataclass(kw_only=True, eq=False)
class Corrections(DataflowPart):
    """Makes corrections; the caller makes sure that no run of the dataflow is active."""

    records: RecordReader
    preparer: RunPreparer
    parked: ParkedRuns
    publisher: Publisher
    run_commit: RunCommit
    term: CurrentTerm
    new_id: Callable[[], str]

    def check(
        self, name: str, stage: str, state: str, corrections: Sequence[Correction]
    ) -> DataflowRecord:
        """Raise an error if these corrections are not possible, as `Amendments.correct` says."""
        record, node = self.catalog.stage(name, stage)
        self.catalog.require_same_tables(record)
        spec = next((one for one in node.translator.states if one.name == state), None)
        if spec is None:
            raise NotFoundError(kind="state", name=f"{name}/{stage}.{state}")
        check_corrections(node.translator, spec, corrections, where="corrections")
        return record

    def check_give_back(self, name: str, stage: str, *, published: bool = False) -> DataflowRecord:
        """Raise an error if nothing can be given back to a stage.

        Args:
            published: Whether its table shows all recorded runs.

        Raises `NotFoundError` or `CodeDriftedError`.
        """
        record, node = self.catalog.stage(name, stage)
        self.catalog.require_same(record)
        if not node.sets_aside or (published and not self.records.set_aside(record.folder, node)):
            raise NotFoundError(kind="set-aside record of stage", name=f"{name}/{stage}")
        return record

    def make(
        self, record: DataflowRecord, note: CorrectionNote, corrections: Sequence[Correction]
    ) -> Corrected:
        """Run a correction as the next epoch of its stage; it is published at once.

        Raises:
            DataflowBusyError: If an earlier epoch cannot be finished now; nothing changed.
            CorrectionUnfinishedError: If the correction is recorded, and is completed later.
            CbpError: If it cannot be prepared; nothing changed.
        """
        plan, stage = self._next_epoch(record, note.stage)
        prepared, path = self.preparer.correct(plan, note.stage, note.state, corrections)
        return self._record(record, stage, plan, prepared, replace(note, path=path))

    def give_back(
        self, record: DataflowRecord, note: CorrectionNote, tell: Tell = untold
    ) -> GivenBack:
        """Give back a stage's set-aside records, and publish that epoch at once; see `make`."""
        plan, stage = self._next_epoch(record, note.stage)
        prepared = self._given_back(plan, record, note.stage, tell)
        given = GivenBack.of(prepared)
        note = replace(note, keys=given.records, left=given.left)
        tell("records the epoch", 0, 0, "")
        return replace(given, made=self._record(record, stage, plan, prepared, note))

    def try_to_give_back(
        self, record: DataflowRecord, stage: str, tell: Tell = untold
    ) -> GivenBack:
        """Return the effects of `give_back`; changes nothing, and raises the same errors."""
        plan, _ = self._next_epoch(record, stage)
        return GivenBack.of(self._given_back(plan, record, stage, tell))

    def _given_back(
        self, plan: RunPlan, record: DataflowRecord, stage: str, tell: Tell
    ) -> PreparedRun:
        """Prepare the run that reads set-aside records; each call of the code is reported."""
        records = len(
            self.records.set_aside(record.folder, self.catalog.stage(record.name, stage)[1])
        )

        def enter(phase: str) -> None:
            if phase in _STEPS:
                tell(_STEPS[phase], records if phase == "assemble" else 0, records, "records")

        return self.preparer.give_back(plan, enter)

    def _next_epoch(self, record: DataflowRecord, name: str) -> tuple[RunPlan, StageRecord]:
        """Return the plan of a stage's next epoch, without inputs, and the stage that leads it."""
        unit = self.catalog.units(record)[self.catalog.leader(record.name, name)]
        leader, *fused = unit.members
        stage = next(s for s in self.store.stages(record.name) if s.stage == leader.name)
        if (parked := self.parked.all().get((record.name, stage.stage))) is not None:
            raise DataflowBusyError(record.name, f"its stage {stage.stage!r} {parked.reason}")
        self.run_commit.require_redone(record.name, stage)
        dataflow = self.catalog.compiled(record)
        plan = RunPlan(
            record.folder,
            record.name,
            leader,
            stage.epoch,
            self.new_id(),
            {},
            tuple(fused),
            self.publisher.before(record, stage.stage, stage.epoch),
            own_messages=dataflow.own_messages(),
            time_ms=self.publisher.next_ms(record.name),
            due_ms=stage.due_ms,
            lookups=looked_up_tables(
                dataflow, record.folder, unit.members, unpublished=lambda writer: ()
            ),
        )
        return plan, stage

    def _record(
        self,
        record: DataflowRecord,
        stage: StageRecord,
        plan: RunPlan,
        prepared: PreparedRun,
        note: CorrectionNote,
    ) -> Corrected:
        run = RunRecord(
            id=plan.run,
            dataflow=record.name,
            stage=stage.stage,
            epoch=stage.epoch,
            attempt=1,
            status=RunStatus.INTENDED,
            read={},
            remove={},
            started_at=self.clock(),
        )
        self.store.intend(run)
        intention = Intention(
            dataflow=record.name,
            stage=stage.stage,
            epoch=stage.epoch,
            run=run.id,
            prepared_ms=self.publisher.next_ms(record.name),
            read={},
            remove={},
            outputs=prepared.outputs,
            changes=prepared.changes,
            dataflow_version=record.version,
            unpublished_from=plan.unpublished[0].epoch if plan.unpublished else stage.epoch,
            leader_epoch=self.term.leader_epoch,
            memo=stage.memo,
            figures=prepared.figures,
            generation=record.generation,
            correction=note,
            time_ms=plan.time_ms if note.gives_back else 0,
            due_ms=prepared.due_ms,
            lookups=prepared.lookups,
        )
        if not self.run_commit.finish(RecordedRun(record, plan.node, intention)):
            raise CorrectionUnfinishedError(record.name, note.stage)
        self.run_commit.publish(record)
        return corrected_by(intention)

    def of(self, record: DataflowRecord) -> list[Corrected]:
        """Return the recorded corrections of a dataflow, oldest first."""
        notes = list(read_notes(self.files, record.folder))
        if not notes:
            return []
        generations = self.open_log(record.folder).generations
        taken_back = self.descriptions.taken_back(record)  # reads every version
        return [replace(one, undone=is_undone(one, generations, taken_back)) for one in notes]
