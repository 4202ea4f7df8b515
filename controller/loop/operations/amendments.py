"""Amendments: roll-backs and corrections of a dataflow's past, while none of its runs is active.

    hold     none of its runs starts or is published in the background; other dataflows continue
    quiet    runs under way are cancelled or waited for, and what is finished is published
    amend    one commit point beside the tables, then redo
    release  the dataflow continues from there

Guaranteed: one amendment at a time per dataflow. If an amendment was begun and could not be
finished, the dataflow stays held, and its stages show the reason, until `resume` or a restart
finishes it (tests/controller/loop/recovery/test_rollback_crashes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from cbp.errors import DataflowBusyError, DefinitionError, NotFoundError
from cbp.model.flow.generation import Generation
from cbp.model.run.correction import Correction, CorrectionNote
from cbp.model.version.rollback_point import PointAfterRun
from controller.loop.leadership.terms import CurrentTerm
from controller.loop.records.correction_log import Corrected
from controller.loop.records.dataflow_part import DataflowPart
from controller.loop.recovery.corrections import Corrections, GivenBack
from controller.loop.recovery.past_position import Tell, untold
from controller.loop.recovery.rollback import RollbackPlan, Rollbacks
from controller.loop.runs.dataflow_locks import DataflowLocks
from controller.loop.runs.in_flight import InFlight
from controller.loop.runs.isolation import Isolation
from controller.loop.runs.run_commit import RunCommit
from controller.loop.tick.holds import Holds
from controller.store.base import DataflowRecord

HELD = "checked for an unfinished roll-back"

UNFINISHED = "a roll-back or a correction may be unfinished; resume the dataflow with `cbp resume`"


@dataclass(kw_only=True, eq=False)
class Amendments(DataflowPart):
    """Amends dataflows; safe to use from several threads."""

    in_flight: InFlight
    run_commit: RunCommit
    term: CurrentTerm
    holds: Holds
    rollback: Rollbacks
    correction: Corrections
    exclusion: DataflowLocks
    isolation: Isolation
    wake: Callable[[], None]
    cancel_seconds: float

    def roll_back(
        self,
        name: str,
        to: str,
        *,
        who: str,
        why: str,
        drop_later: bool = False,
        without: Sequence[str] = (),
        pause: bool = False,
        request: str = "",
        tell: Tell = untold,
    ) -> Generation:
        """Take a dataflow back to an earlier point, and let it continue from there.

        Args:
            to: See `cbp.model.version.rollback_point`.
            drop_later: Do not queue later arrivals at sources again, and do not repeat later
                closes.
            without: Files, or increments, that are left out; see
                `controller.loop.recovery.undone_inputs`.
            request: Idempotency key: a request that was carried out is not repeated; `""` if there
                is none.

        Raises:
            NotFoundError: If there is no such dataflow or stage.
            DefinitionError: Rule `rollback_target_invalid` or `rollback_file_invalid`.
            RollbackImpossibleError: If needed data is no longer kept; nothing changed.
            DataflowBusyError: If a run does not end, or another amendment is under way.
            OperatingError: If the roll-back was begun and cannot be finished; the dataflow then
                waits for `resume` or a restart.
        """
        for done in self.rollbacks(name):
            if request and done.request == request:
                return done
        look = partial(
            self.rollback.plan,
            to=to,
            who=who,
            why=why,
            drop_later=drop_later,
            without=without,
            request=request,
            tell=tell,
        )
        self.holds.require_free(name)  # an unfinished amendment has no position yet
        try:
            look(self.store.dataflow(name))  # refuse before anything is cancelled
        except DefinitionError:  # the point may be a run whose record the store still lacks
            for one in self.store.stages(name):
                self.run_commit.require_redone(name, one)
            raise
        tell("waits for runs to end", 0, 0, "")
        with self._quiet(name, "the dataflow is being rolled back", cancel=True) as record:
            if pause:
                self.store.set_desired(name, "paused")
            self.run_commit.finish_all(record)
            # Plan again: a run may have ended by itself meanwhile.
            plan = look(record)
            with self.term.deposing():
                self.rollback.carry_out(record, plan, tell)
        return plan.generation

    def require_free(self, name: str) -> None:
        """Raise `DataflowBusyError` if a dataflow is held, or has an unfinished amendment."""
        self.store.dataflow(name)
        self.holds.require_free(name)

    def plan_roll_back(
        self, name: str, to: str, *, drop_later: bool = False, without: Sequence[str] = ()
    ) -> RollbackPlan:
        """Return the plan of a roll-back; same errors as `roll_back`, changes nothing."""
        record = self.store.dataflow(name)
        return self.rollback.plan(
            record, to, who="", why="", drop_later=drop_later, without=without
        )

    def moments(
        self,
        name: str,
        *,
        limit: int,
        since: datetime | None = None,
        until: datetime | None = None,
        below: int | None = None,
        drop_later: bool = False,
    ) -> Sequence[PointAfterRun]:
        """Return the newest moments to which a dataflow can be rolled back, in a time range.

        Args:
            below: Only positions with a smaller number, for the pages after the first.
            drop_later: As for `roll_back`: some moments can be reached only without it.
        """
        record = self.store.dataflow(name)
        return self.rollback.moments(
            record, limit, since, until, below=below, drop_later=drop_later
        )

    def rollbacks(self, name: str) -> Sequence[Generation]:
        """Return the roll-backs of a dataflow with person, reason and positions, oldest first."""
        return self.open_log(self.store.dataflow(name).folder).generations

    def correct(
        self,
        name: str,
        stage: str,
        state: str,
        corrections: Sequence[Correction],
        *,
        who: str,
        why: str,
        request: str = "",
    ) -> Corrected:
        """Correct records of a state, in a separate epoch, which is published on return.

        Waits for runs under way. The stage may be paused; a correction does not start it.

        Args:
            request: Idempotency key: a request that was carried out is not repeated; `""` if there
                is none.

        Raises:
            NotFoundError: If there is no such dataflow, stage or state.
            DefinitionError: Rule `correction_invalid`.
            DataflowBusyError: If a run does not end, or an earlier amendment is unfinished;
                nothing changed.
            CorrectionUnfinishedError: If the correction is recorded, and is completed later.
            OperatingError: If the correction cannot be prepared; nothing changed.
        """
        self.correction.check(name, stage, state, corrections)
        if (made := self._made(name, request)) is not None:
            return made
        note = CorrectionNote(stage, state, len(corrections), "", who, why, request)
        with self._quiet(name, "the dataflow is being corrected", cancel=False):
            # Check again: the dataflow may have changed meanwhile.
            record = self.correction.check(name, stage, state, corrections)
            self.run_commit.publish(record)
            return self.correction.make(record, note, corrections)

    def _made(self, name: str, request: str) -> Corrected | None:
        made = (one for one in self.corrections(name) if request and one.note.request == request)
        return next(made, None)

    def check_give_back(self, name: str, stage: str) -> None:
        """Raise the error with which `give_back` would refuse to begin; changes nothing."""
        self.correction.check_give_back(name, stage, published=True)

    def give_back(
        self, name: str, stage: str, *, who: str, why: str, request: str = "", tell: Tell = untold
    ) -> GivenBack:
        """Give back the records that a stage set aside, in order, in a separate epoch.

        Records that fail again stay set aside. Waits for runs under way.

        Raises:
            NotFoundError: If there is no such dataflow or stage, or nothing is set aside.
            CodeDriftedError: If the loaded code is not the registered one.
            DataflowBusyError, CorrectionUnfinishedError, OperatingError: As in `correct`.
        """
        if (made := self._made(name, request)) is not None:
            return GivenBack.recorded(made)
        note = CorrectionNote(stage, "", 0, "", who, why, request)
        why = f"the records that stage {stage!r} set aside are being given back"
        with self._with_set_aside(name, stage, why, tell) as record:
            return self.correction.give_back(record, note, tell)

    def try_to_give_back(self, name: str, stage: str, *, tell: Tell = untold) -> GivenBack:
        """Return the effects of `give_back`; changes nothing, and raises the same errors."""
        with self._with_set_aside(
            name, stage, f"a dry run tries the records that stage {stage!r} set aside", tell
        ) as record:
            return self.correction.try_to_give_back(record, stage, tell)

    @contextmanager
    def _with_set_aside(
        self, name: str, stage: str, reason: str, tell: Tell
    ) -> Iterator[DataflowRecord]:
        """Hold a dataflow whose runs have ended and are published; yield its record."""
        self.correction.check_give_back(name, stage)
        tell("waits for runs to end", 0, 0, "")
        with self._quiet(name, reason, cancel=False) as record:
            tell("publishes the runs that have ended", 0, 0, "")
            self.run_commit.publish(record)
            yield self.correction.check_give_back(name, stage, published=True)

    def check_corrections(
        self, name: str, stage: str, state: str, corrections: Sequence[Correction]
    ) -> None:
        """Raise the error with which `correct` would refuse to begin; changes nothing."""
        self.correction.check(name, stage, state, corrections)

    def corrections(self, name: str) -> Sequence[Corrected]:
        """Return the corrections of a dataflow, oldest first; raises `NotFoundError`."""
        return self.correction.of(self.store.dataflow(name))

    def finish(self, name: str) -> None:
        """Finish the unfinished roll-back of a dataflow, if there is one."""
        with self.exclusion.hold(name, "is resumed"):
            if self.holds.held.get(name) == UNFINISHED:
                self.rollback.finish(self.store.dataflow(name))
                self.holds.release(name)

    def hold_unfinished(self) -> None:
        """Hold the dataflows with roll-backs that recovery could not finish."""
        for record in self.store.dataflows():
            # If a roll-back's record is damaged, only its dataflow fails; it is not recovered then.
            if self.isolation.attempt(record.name, HELD, partial(self._open, record)):
                self.holds.held.setdefault(record.name, UNFINISHED)

    def cancel_all(self, name: str | None) -> None:
        """Ask the runs of one or all dataflows to stop; returns at once.

        Their stages are not paused: what the caller begins may not be carried out.
        """
        for (dataflow, _), run in self.in_flight.busy().items():
            if run and name in (None, dataflow):
                self.in_flight.cancel(run, runs_again=True)

    @contextmanager
    def _quiet(self, name: str, reason: str, *, cancel: bool) -> Iterator[DataflowRecord]:
        self.holds.hold(name, reason)
        try:
            if cancel:
                self.cancel_all(name)
            if not self.in_flight.wait(name, timeout=self.cancel_seconds):
                why = f"a run has not ended within {self.cancel_seconds:.0f} s"
                raise DataflowBusyError(name, why)
            with self.exclusion.hold(name, reason):
                yield self.store.dataflow(name)
        finally:
            # If the store does not answer now, the dataflow stays held.
            self.holds.held[name] = UNFINISHED
            if not self._is_unfinished(name):
                self.holds.release(name)
            self.wake()

    def _is_unfinished(self, name: str) -> bool:
        try:
            return self._open(self.store.dataflow(name))
        except NotFoundError:  # deleted while the amendment waited for runs
            return False

    def _open(self, record: DataflowRecord) -> bool:
        return self.open_log(record.folder).generation > record.generation
