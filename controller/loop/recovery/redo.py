"""Redo: after any crash, brings the store up to the state of the intention logs.

A roll-back that was begun is finished before anything else. A crash can leave three more things:

    a record that is not committed      published and committed again (redo)
    a committed record                  published if it may be unpublished, and always if it
                                        is the newest; this changes nothing, unless the crash
                                        came before or a table lost its last entry
    a run without a record              interrupted: its read set is still queued,
                                        and the stage runs again

A store that lost its newest part, or everything, is filled the same way: every record is redone,
oldest first, as soon as the increments that it read are queued. If the log begins later than the
store ends, the newest position is restored first (`cbp.model.flow.position`).

Invariant: after `recover` every INTENDED run is being executed, or has a record that could not be
finished yet; its stage then shows why (tests/controller/loop/recovery/test_recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from cbp.engine.storage.table_names import source_folder
from cbp.errors import FileDamagedError, FileLostError, InvariantError
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.flow.position import Position
from cbp.model.run.intention import Intention
from controller.loop.author.framing import Framer
from controller.loop.author.punctuations import Punctuations
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.recovery_notes import RecoveryNotes
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.planned_run import RecordedRun
from controller.loop.runs.publisher import Publisher
from controller.loop.runs.retry_policy import Failures
from controller.loop.runs.run_commit import ParkedRuns, RunCommit
from controller.store.base import DataflowRecord, RunRecord, StageRecord

SETTLED = "updated after an interrupted run"

_log = structlog.get_logger(__name__)


def ignore(intention: Intention) -> None:
    """Do nothing; the default of `on_redo`."""


@dataclass(kw_only=True, eq=False)
class Recovery(DataflowPart):
    """Redoes recorded runs, and settles all other runs; idempotent, one call at a time."""

    in_flight: InFlight
    parked: ParkedRuns
    failures: Failures
    publisher: Publisher
    run_commit: RunCommit
    framer: Framer
    punctuations: Punctuations
    rollback: Rollbacks
    isolation: Isolation
    recovery_notes: RecoveryNotes

    def recover_dataflow(
        self, record: DataflowRecord, *, on_redo: Callable[[Intention], object] = ignore
    ) -> None:
        """Redo the records of one dataflow that the store lacks; raises `FileDamagedError`."""
        dataflow = self.catalog.compiled(record)
        nodes = dataflow.stages
        if self.rollback.finish(record):
            record = self.store.dataflow(record.name)
            self.recovery_notes.rolled_back(record.name, record.generation)
        if dropped := self.dropped(record):  # marks claims, also in a store that was lost
            self.store.withdraw(record.name, dropped)
        self._bring_forward(record)
        self.punctuations.recover(record)  # before anything is framed
        for stage in self.store.stages(record.name):
            self._keep(record, stage)
        # A record may read the output of another stage's record: repeat until none is redone.
        moved = True
        while moved:
            stages = self.store.stages(record.name)
            moved = any([self._redo(record, nodes[one.stage], one, on_redo) for one in stages])
        for stage in self.store.stages(record.name):
            self._require_arrived(record, dataflow, stage)
        # Completes a publication that a crash interrupted. It may publish more than was due.
        self.run_commit.publish(record)

    def forget_removed(self, record: DataflowRecord, began: Position | None) -> None:
        """Forget increments that retention removed before the store was lost.

        The logs of sources name all increments forever. Retention removes only increments from
        before the oldest position: later files that are missing are lost.

        Args:
            began: Where its version began; `None` if it is the first.
        """
        oldest = self.open_log(record.folder).oldest_position() or began
        ends = {} if oldest is None else {one.flow: one.index + 1 for one in oldest.newest}
        for source in self.catalog.compiled(record).sources:
            below = 0
            for one in self.store.oldest_increments(record.name, source):
                files = [f"{record.folder}/{file.path}" for file in one.increment.kept]
                if one.increment.index >= ends.get(source, 0) or (
                    files and all(map(self.files.exists, files))
                ):
                    break
                below = one.increment.index + 1 if files else below
            while below and self.store.forget_increments(record.name, source, below=below):
                pass  # some thousand at a time

    def _require_arrived(
        self, record: DataflowRecord, dataflow: Dataflow, stage: StageRecord
    ) -> None:
        """Refuse to continue if a stage has read increments that its source has lost.

        Otherwise the next file would get the number of the lost increment. The stage would then
        never read that file, since by its record it has read this number. Raises `FileLostError`.
        """
        if (record.name, stage.stage) in self.parked.all():
            return
        intention = self.read(record, stage.stage, stage.epoch)
        node = dataflow.stages[stage.stage]
        framed = {one.name for one in node.translator.framed}  # their frames have other numbers
        for input_, indexes in (intention.read if intention else {}).items():
            source = node.wiring.get(input_, "")
            if source not in dataflow.sources or input_ in framed:
                continue
            end = self.store.next_index(record.name, source)
            path = f"{record.folder}/{source_folder(source)}/_log/{end:020d}.json"
            # If the entry exists, this is no loss: its source's error says why it cannot be read.
            if max(indexes, default=-1) >= end and not self.files.exists(path):
                why = (
                    f"epoch {stage.epoch} of stage {stage.stage!r} read the increment that this "
                    "entry describes"
                )
                raise FileLostError(path, why)

    def settle(self) -> None:
        """Mark as interrupted every run that has no record and that nothing executes."""
        # Read before the runs: a run that ends in between is then no longer INTENDED.
        owned = self.in_flight.busy().keys() | self.parked.all().keys()
        for run in self.store.intended_runs():
            if (run.dataflow, run.stage) not in owned:
                self.isolation.attempt(run.dataflow, SETTLED, partial(self._settle, run))

    def _settle(self, run: RunRecord) -> None:
        intention = self.read(self.store.dataflow(run.dataflow), run.stage, run.epoch)
        if intention is None or intention.run != run.id:  # otherwise a redo settles it
            self.failures.bury(run)
            self.recovery_notes.interrupted(run.dataflow, run.stage, run.epoch)

    def read(self, record: DataflowRecord, stage: str, epoch: int) -> Intention | None:
        """Return the record of an epoch, or `None`; a damaged one pauses the stage, and raises."""
        try:
            return self.open_log(record.folder).read(stage, epoch)
        except InvariantError as error:
            self.store.pause_stage(record.name, stage, error.message, error.as_dict())
            raise

    def _bring_forward(self, record: DataflowRecord) -> None:
        """Restore the newest position if something from before it is missing.

        Records, closes, and files of framed increments may be missing.
        """
        log = self.open_log(record.folder)
        position = log.position()
        if position is not None and position.dataflow != record.name:
            path = f"{record.folder}/_intentions/_positions"
            why = f"its newest position belongs to dataflow {position.dataflow!r}"
            raise FileDamagedError(path, why)
        if position is None or position.version != record.version:
            return
        epochs = {stage.stage: stage.epoch for stage in self.store.stages(record.name)}
        punctuations = self.store.next_punctuation(record.name)
        trails = log.trails(epochs, position, punctuations=punctuations)
        if trails or self.store.position(record.name).framed_less(position):
            _log.info("recovery.restored", dataflow=record.name, position=position.number)
            self.store.restore(position, at=self.clock())
            self.recovery_notes.restored(record.name, position.number)

    def _redo(
        self,
        record: DataflowRecord,
        node: StageNode,
        stage: StageRecord,
        on_redo: Callable[[Intention], object],
    ) -> bool:
        """Finish the record of the stage's next epoch; return whether it is committed."""
        key = record.name, stage.stage
        if key in self.parked.all():
            return False
        intention = self.read(record, stage.stage, stage.epoch)
        if intention is None:
            return False
        if node.translator.framed:
            self.framer.frame(record, node)
        connectors = self.store.connectors(intention.dataflow)[intention.stage]
        if not intention.finds_what_it_read(connectors):
            return False
        on_redo(intention)
        _log.info("recovery.redo", dataflow=record.name, stage=stage.stage, epoch=stage.epoch)
        finished = self.run_commit.finish(RecordedRun(record, node, intention))
        if finished:
            self.recovery_notes.redone(record.name, stage.stage, stage.epoch)
        return finished

    def _keep(self, record: DataflowRecord, stage: StageRecord) -> None:
        """Load a stage's records that may be unpublished."""
        try:
            self.publisher.before(record, stage.stage, stage.epoch)
        except InvariantError as error:
            # Without these records its state is unknown: it never runs; other stages continue.
            details = error.as_dict()
            self.store.pause_stage(record.name, stage.stage, error.message, details)
