"""Recovery: bring the store up to what the intention logs say, after any crash.

A roll-back that was begun is finished before anything else. Three more things can be left
behind:

    a record that is not committed      published and committed again (redo)
    a committed record                  what may not be published is published, the newest
                                        in any case; this changes nothing unless the crash
                                        came before, or a table lost its last entry
    a run without a record              interrupted: its read set is still queued,
                                        and the stage runs again

A store that lost everything since some time is filled the same way: every record
is redone, oldest first, as soon as the increments that it read are queued. Where the
log begins later than that, the newest position comes first (`cbp.model.position`).

Invariant: after `recover` no run that nobody executes is INTENDED, unless its
record could not be finished, and then its stage says so
(tests/controller/test_recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

import structlog

from cbp.engine.base import Engine
from cbp.errors import CbpError, InvariantError
from cbp.model.dataflow import StageNode
from cbp.model.intention import Intention
from controller.loop.catalog import Catalog
from controller.loop.frames import Framer
from controller.loop.punctuations import Punctuations
from controller.loop.rollback import Rollbacks
from controller.loop.runs import Runs
from controller.store.base import DataflowRecord, RunRecord, StageRecord, Store

__all__ = ["Recovery"]

_log = structlog.get_logger(__name__)


class Recovery:
    """Redoes what is recorded and settles what is not; idempotent, one at a time.

    Attributes:
        on_redo: Told each record before it is redone; for those who watch.
    """

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        catalog: Catalog,
        runs: Runs,
        framer: Framer,
        punctuations: Punctuations,
        rollbacks: Rollbacks,
        clock: Callable[[], datetime],
    ) -> None:
        self._rollbacks = rollbacks
        self._store, self._engine, self._catalog, self._runs = store, engine, catalog, runs
        self.on_redo: Callable[[Intention], None] = lambda intention: None
        self._framer, self._punctuations, self._clock = framer, punctuations, clock

    def recover(self, *, without: Collection[str] = ()) -> None:
        """Recover every dataflow; one that cannot be recovered does not stop the others.

        Args:
            without: Dataflows that are left alone: their store is not that of their version.
        """
        for record in self._store.dataflows():
            if record.name in without:
                continue
            try:
                self.recover_dataflow(record)
            except CbpError as error:
                # Its stages wait: every tick finds the same cause and shows it.
                _log.error("recovery.failed", dataflow=record.name, error=error.as_dict())
        self.settle()

    def recover_dataflow(self, record: DataflowRecord) -> None:
        """Redo what the log of one dataflow holds beyond the store."""
        nodes = self._catalog.compiled(record).stages
        if self._rollbacks.finish(record):
            record = self._store.dataflow(record.name)
        self._bring_forward(record)
        self._punctuations.recover(record)  # before anything is framed
        for stage in self._store.stages(record.name):
            self._keep(record, stage)
        # What one stage's record read may be what another one's brings: until nothing moves.
        moved = True
        while moved:
            stages = self._store.stages(record.name)
            moved = any([self._redo(record, nodes[stage.stage], stage) for stage in stages])
        # A publication that died is made whole; one that was not due yet does no harm.
        self._runs.publish(record)

    def settle(self) -> None:
        """Mark runs as interrupted that nobody executes and no record finishes."""
        # Taken before the runs: one that ends meanwhile is then not INTENDED any more.
        owned = self._runs.busy().keys() | self._runs.parked().keys()
        for run in self._store.intended_runs():
            if (run.dataflow, run.stage) in owned:
                continue
            try:
                if not self._recorded(run):
                    self._runs.interrupt(run)
            except CbpError as error:
                _log.error("run.not_settled", run=run.id, error=error.as_dict())

    def read(self, record: DataflowRecord, stage: str, epoch: int) -> Intention | None:
        """Return the record of an epoch, or `None`.

        Raises:
            InvariantError: If it is there and cannot be read; the stage is paused.
        """
        try:
            return self._runs.log(record.folder).read(stage, epoch)
        except (ValueError, KeyError, TypeError, InvariantError) as error:
            because = f"the record of epoch {epoch} cannot be read: {error}"
            broken = InvariantError(because, dataflow=record.name, stage=stage, epoch=epoch)
            self._store.pause_stage(record.name, stage, because, broken.as_dict())
            raise broken from error

    def _bring_forward(self, record: DataflowRecord) -> None:
        """Restore the newest position where what is before it is not all there.

        Records and closes may be gone, and the files of what was framed.
        """
        log = self._runs.log(record.folder)
        try:
            position = log.position()
        except (ValueError, KeyError, TypeError) as error:
            message = f"the position of {record.name!r} cannot be read: {error}"
            raise InvariantError(message, dataflow=record.name) from error
        if position is None or position.version != record.version:
            return
        epochs = {stage.stage: stage.epoch for stage in self._store.stages(record.name)}
        punctuations = self._store.next_punctuation(record.name)
        trails = log.trails(epochs, position, punctuations=punctuations)
        if trails or self._store.position(record.name).framed_less(position):
            _log.info("recovery.restored", dataflow=record.name, position=position.number)
            self._store.restore(position, at=self._clock())

    def _redo(self, record: DataflowRecord, node: StageNode, stage: StageRecord) -> bool:
        """Finish the record of the stage's next epoch; tell whether it is committed."""
        key = record.name, stage.stage
        if key in self._runs.parked():
            return False
        intention = self.read(record, stage.stage, stage.epoch)
        if intention is None:
            return False
        if node.translator.framed:
            self._framer.frame(record, node)
        if not self._queued(intention):
            return False
        self.on_redo(intention)
        _log.info("recovery.redo", dataflow=record.name, stage=stage.stage, epoch=stage.epoch)
        return self._runs.finish(record, node, intention)

    def _keep(self, record: DataflowRecord, stage: StageRecord) -> None:
        """Find the records of a stage that may not be published."""
        try:
            self._runs.publisher.before(record, stage.stage, stage.epoch)
        except InvariantError as error:
            # Without them its state is not known: it never runs, and the others go on.
            told = error.as_dict()
            self._store.pause_stage(record.name, stage.stage, error.message, told)

    def _queued(self, intention: Intention) -> bool:
        """Tell whether the store holds everything that a record read."""
        connectors = self._store.connectors(intention.dataflow)[intention.stage]
        return intention.finds_what_it_read(connectors)

    def _recorded(self, run: RunRecord) -> bool:
        """Tell whether the log holds this very run, so that a redo settles it."""
        record = self._store.dataflow(run.dataflow)
        intention = self.read(record, run.stage, run.epoch)
        return intention is not None and intention.run == run.id
