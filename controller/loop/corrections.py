"""Corrections of state: prepared and recorded as an epoch of its own, and told for good.

The run's record is the commit point, and holds the note of who and why; what follows is redo,
as of any run (`controller.loop.runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cbp.engine.base import Engine, RunPlan
from cbp.engine.files import Files
from cbp.errors import DataflowBusyError, NotFoundError
from cbp.model.correction import Correction, CorrectionNote, check_corrections
from cbp.model.generation import home_of
from cbp.model.intention import Intention, RunStatus
from controller.loop.catalog import Catalog
from controller.loop.notes import Corrected, corrected_by, read_notes
from controller.loop.runs import Runs
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["Corrections"]


@dataclass(frozen=True, slots=True)
class Corrections:
    """Makes corrections; the caller sees to it that nothing of the dataflow runs.

    Attributes:
        new_id: Returns unique ids that rise.
    """

    store: Store
    engine: Engine
    files: Files
    catalog: Catalog
    runs: Runs
    clock: Callable[[], datetime]
    new_id: Callable[[], str]

    def check(
        self, name: str, stage: str, state: str, corrections: Sequence[Correction]
    ) -> DataflowRecord:
        """Refuse what cannot be corrected.

        Raises:
            NotFoundError: If there is no such dataflow, stage or state.
            CodeDriftedError: If what is installed would write other columns.
            DefinitionError: Rule `correction_invalid`.
        """
        record, node = self.catalog.stage(name, stage)
        self.catalog.require_same(record)
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
            DataflowBusyError: If an epoch before it, or it itself, cannot be finished now.
            CbpError: If it cannot be prepared; nothing changed.
        """
        unit = self.catalog.units(record)[self.catalog.leader(record.name, note.stage)]
        leader, *fused = unit.members
        stage = next(s for s in self.store.stages(record.name) if s.stage == leader.name)
        if (parked := self.runs.parked().get((record.name, stage.stage))) is not None:
            raise DataflowBusyError(record.name, f"its stage {stage.stage!r} {parked.reason}")
        unpublished = self.runs.publisher.before(record, stage.stage, stage.epoch)
        plan = RunPlan(
            record.folder,
            record.name,
            leader,
            stage.epoch,
            self.new_id(),
            {},
            tuple(fused),
            unpublished,
        )
        prepared, path = self.engine.correct(plan, note.stage, note.state, corrections)
        run = self._intended(record, stage, plan)
        now_ms = int(self.clock().timestamp() * 1000)
        intention = Intention(
            dataflow=record.name,
            stage=stage.stage,
            epoch=stage.epoch,
            run=run.id,
            prepared_ms=self.runs.publisher.next_ms(record.name, now_ms),
            read={},
            remove={},
            outputs=prepared.outputs,
            changes=prepared.changes,
            dataflow_version=record.version,
            unpublished_from=unpublished[0].epoch if unpublished else stage.epoch,
            leader_epoch=self.runs.leader_epoch,
            memo=stage.memo,
            figures=prepared.figures,
            generation=record.generation,
            correction=replace(note, path=path),
        )
        if not self.runs.finish(record, leader, intention):
            why = "the correction is prepared and could not be recorded or finished; see its stage"
            raise DataflowBusyError(record.name, why)
        self.runs.publish(record)
        return corrected_by(intention)

    def of(self, record: DataflowRecord) -> list[Corrected]:
        """Return the corrections of a dataflow that were recorded, oldest first."""
        generations = self.runs.log(record.folder).generations
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
