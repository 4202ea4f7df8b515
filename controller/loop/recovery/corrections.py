"""Corrections of state: each is prepared and recorded as an epoch of its own, and kept for good.

The record of the correcting run is the commit point; it also holds who corrected and why.
Everything after it is redo, as for any run (`controller.loop.runs.finisher`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.interface.runs import RunPlan, RunPreparer
from cbp.engine.storage.files import Files
from cbp.errors import CorrectionUnfinishedError, DataflowBusyError, NotFoundError
from cbp.model.flow.generation import home_of
from cbp.model.run.correction import Correction, CorrectionNote, check_corrections
from cbp.model.run.intention import Intention, RunStatus
from controller.loop.leadership.current_term import CurrentTerm
from controller.loop.records.catalog import Catalog
from controller.loop.records.correction_log import Corrected, corrected_by, read_notes
from controller.loop.runs.finisher import Finisher
from controller.loop.runs.parked import ParkedRuns
from controller.loop.runs.publisher import Publisher
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["Corrections"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrections:
    """Makes corrections; the caller makes sure that no run of the dataflow is active.

    Attributes:
        new_id: Returns unique, ascending ids.
    """

    store: Store
    preparer: RunPreparer
    files: Files
    catalog: Catalog
    open_log: Callable[[str], IntentionLog]
    parked: ParkedRuns
    publisher: Publisher
    finisher: Finisher
    term: CurrentTerm
    clock: Callable[[], datetime]
    new_id: Callable[[], str]

    def check(
        self, name: str, stage: str, state: str, corrections: Sequence[Correction]
    ) -> DataflowRecord:
        """Raise an error if these corrections are not possible.

        Raises:
            NotFoundError: If there is no such dataflow, stage or state.
            CodeDriftedError: If the installed code would write other columns.
            DefinitionError: Rule `correction_invalid`.
        """
        record, node = self.catalog.stage(name, stage)
        self.catalog.require_same_tables(record)
        spec = next((one for one in node.translator.states if one.name == state), None)
        if spec is None:
            raise NotFoundError(kind="state", name=f"{name}/{stage}.{state}")
        check_corrections(node.translator, spec, corrections, where="corrections")
        return record

    def make(
        self,
        record: DataflowRecord,
        note: CorrectionNote,
        corrections: Sequence[Correction],
    ) -> Corrected:
        """Run a correction as the next epoch of its stage; it is published at once.

        Raises:
            DataflowBusyError: If an earlier epoch cannot be finished now; nothing changed.
            CorrectionUnfinishedError: If the correction is prepared, and is finished later.
            CbpError: If it cannot be prepared; nothing changed.
        """
        unit = self.catalog.units(record)[self.catalog.leader(record.name, note.stage)]
        leader, *fused = unit.members
        stage = next(s for s in self.store.stages(record.name) if s.stage == leader.name)
        if (parked := self.parked.all().get((record.name, stage.stage))) is not None:
            raise DataflowBusyError(record.name, f"its stage {stage.stage!r} {parked.reason}")
        unpublished = self.publisher.before(record, stage.stage, stage.epoch)
        plan = RunPlan(
            record.folder,
            record.name,
            leader,
            stage.epoch,
            self.new_id(),
            {},
            tuple(fused),
            unpublished,
            time_ms=int(self.clock().timestamp() * 1000),
            due_ms=stage.due_ms,
        )
        prepared, path = self.preparer.correct(plan, note.stage, note.state, corrections)
        run = self._intended(record, stage, plan)
        now_ms = int(self.clock().timestamp() * 1000)
        intention = Intention(
            dataflow=record.name,
            stage=stage.stage,
            epoch=stage.epoch,
            run=run.id,
            prepared_ms=self.publisher.next_ms(record.name, now_ms),
            read={},
            remove={},
            outputs=prepared.outputs,
            changes=prepared.changes,
            dataflow_version=record.version,
            unpublished_from=unpublished[0].epoch if unpublished else stage.epoch,
            leader_epoch=self.term.leader_epoch,
            memo=stage.memo,
            figures=prepared.figures,
            generation=record.generation,
            correction=replace(note, path=path),
            due_ms=prepared.due_ms,
        )
        if not self.finisher.finish(record, leader, intention):
            raise CorrectionUnfinishedError(record.name, note.stage)
        self.finisher.publish(record)
        return corrected_by(intention)

    def of(self, record: DataflowRecord) -> list[Corrected]:
        """Return the recorded corrections of a dataflow, oldest first."""
        generations = self.open_log(record.folder).generations
        return [
            replace(one, undone=home_of(generations, one.leader, one.epoch) != one.generation)
            for one in read_notes(self.files, record.folder)
        ]

    def _intended(self, record: DataflowRecord, stage: StageRecord, plan: RunPlan) -> RunRecord:
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
        return run
