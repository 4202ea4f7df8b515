"""Runs and other work in flight: which stage is busy, with which run, since when, for how long.

An operator or a time limit can cancel work: it is asked to stop. If it does not end, it is given up
(`time_limit.py`): its stage is free again.

Guaranteed: a stage has one piece of work at a time; work that `record` has accepted is never
freed (tests/controller/loop/runs/test_time_limit.py).

`RunPhases` keeps which phase each run is in; when the run ends, that is recorded with its figures
(`cbp.model.run.timeline`). Only the newest runs of this process are known.

`Starving` finds runs that have had work but no slot of the engine for some seconds. The engine is
asked only when its answer can make another run give way (`Places.matters`). The time starts again
at 0 once the run has had a slot, and whenever a run was asked to end, even if that run ended
between two calls (tests/controller/loop/runs/test_giving_way.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from cbp.engine.interface.runs import RunControl
from cbp.errors import OperatingError
from cbp.model.run.timeline import begin_figures
from cbp.model.schedule.parallel_runs import STARVED_SECONDS, ActiveRun, Places

StageId = tuple[str, str]

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Work:
    """One piece of work for a stage.

    Attributes:
        run: Id of the run; `""` for work that is not a run.
        seconds_max: Its time limit; 0 means no limit.
        give_up: Called with the work when it is given up; `None` if it is never given up.
        gave_way: How often runs of its epoch gave way before.
        gives_way_to: The dataflow for which it was cancelled; `""` if there is none.
        runs_again: Whether it was cancelled only because its dataflow must be idle, so its epoch
            runs again unless the dataflow is deleted or rolled back.
        epoch: The epoch of its run; `None` for work that is not a run.
        code: The functions that its run calls, each with `file.py:12`.
    """

    key: StageId
    run: str
    since: datetime
    seconds_max: float = 0.0
    give_up: Callable[[Work], None] | None = None
    cancelled_at: datetime | None = None
    late: bool = False
    gave_way: int = 0
    gives_way_to: str = ""
    runs_again: bool = False
    recording: bool = False
    epoch: int | None = None
    code: str = ""
    read_bytes: int = 0

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of every log entry about it."""
        fields = {"dataflow": self.key[0], "stage": self.key[1]}
        return fields if self.epoch is None else {**fields, "epoch": self.epoch, "run": self.run}


class InFlight:
    """The work in flight; every method can be called from any thread."""

    def __init__(
        self,
        *,
        executor: Executor,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        control: RunControl,
    ) -> None:
        self._executor, self._clock, self._wake, self._control = executor, clock, wake, control
        self._lock = threading.Lock()
        self.asked_to_end = 0
        self._busy: dict[StageId, Work] = {}
        self._futures: dict[StageId, Future[None]] = {}

    def busy(self) -> dict[StageId, str]:
        """Return the busy stages, with the ids of their runs."""
        with self._lock:
            return {key: work.run for key, work in self._busy.items()}

    def active_runs(self) -> dict[StageId, ActiveRun]:
        """Return the busy stages, with their work in the scheduler's form."""
        with self._lock:
            return {
                key: ActiveRun(
                    *key,
                    work.since,
                    work.run,
                    work.gave_way,
                    ending=work.cancelled_at is not None,
                    recorded=work.recording or work.give_up is None,
                    read_bytes=work.read_bytes,
                )
                for key, work in self._busy.items()
            }

    def submit(self, work: Work, function: Callable[[], object]) -> None:
        """Hand work to the executor; its stage must be free."""
        with self._lock:
            assert work.key not in self._busy, f"{work.key} has a run under way"
            self._busy[work.key] = work
        try:
            future = self._executor.submit(self._guarded, work, function)
        except RuntimeError:  # no thread can be started: free the stage, to be tried again
            with self._lock:
                del self._busy[work.key]
            raise
        with self._lock:
            self._futures[work.key] = future

    def all(self) -> list[Work]:
        """Return all work in flight."""
        with self._lock:
            return list(self._busy.values())

    def cancel(self, run: str, *, runs_again: bool = False) -> None:
        """Ask a run to stop; does nothing if the run is not in flight.

        Args:
            runs_again: As in `Work`; a run that was cancelled for another reason stays cancelled.
        """
        with self._lock:
            for work in self._busy.values():
                if work.run == run:
                    free = work.cancelled_at is None or bool(work.gives_way_to)
                    work.runs_again = runs_again and (free or work.runs_again)
                    self.asked_to_end += work.cancelled_at is None
                    work.cancelled_at = work.cancelled_at or self._clock()
                    work.gives_way_to = ""  # an explicit cancel is more than giving way
        self._ask_to_stop(run)

    def give_way(self, run: str, to: str) -> None:
        """Ask a run to give way to dataflow `to`, unless it is stopping or being recorded."""
        with self._lock:
            works = [work for work in self._busy.values() if work.run == run]
            asked = [w for w in works if w.cancelled_at is None and not w.recording]
            for work in asked:
                work.cancelled_at, work.gives_way_to = self._clock(), to
                self.asked_to_end += 1
        if asked:
            self._ask_to_stop(run)

    def _ask_to_stop(self, run: str) -> None:
        try:
            self._control.cancel(run)
        except Exception:  # the engine is lost: the run is given up later
            _log.exception("run.not_cancelled", run=run)

    def record(self, work: Work) -> bool:
        """Return whether the result of ended work is still wanted; if so, it cannot be given up."""
        with self._lock:
            work.recording = self._busy.get(work.key) is work
            return work.recording

    def free(self, work: Work) -> bool:
        """Free the stage of work that is given up; return false if it has ended or is recorded."""
        with self._lock:
            if work.recording or self._busy.get(work.key) is not work:
                return False
            del self._busy[work.key]
            self._futures.pop(work.key, None)
            return True

    def wait(self, dataflow: str | None = None, *, timeout: float | None = None) -> bool:
        """Wait for the work of one or all dataflows; return whether all has ended."""
        with self._lock:
            chosen = [f for (name, _), f in self._futures.items() if dataflow in (None, name)]
        return not wait(chosen, timeout=timeout).not_done

    def begin(self) -> None:
        """Begin a new term; nothing may be in flight."""
        with self._lock:
            assert not self._busy, f"a term begins while work is under way: {[*self._busy]}"
            self._futures.clear()

    def forget(self, dataflow: str) -> None:
        """Forget a deleted dataflow."""
        with self._lock:
            for key in [key for key in self._futures if key[0] == dataflow]:
                del self._futures[key]

    def _guarded(self, work: Work, function: Callable[[], object]) -> None:
        with structlog.contextvars.bound_contextvars(**work.log_fields):
            try:
                function()
            except Exception:  # last resort of a worker: the store failed while recording
                _log.exception("run.result_not_recorded")
            finally:
                with self._lock:
                    if self._busy.get(work.key) is work:
                        del self._busy[work.key]
                self._wake()


_RUNS_MAX = 1000
"""Number of remembered runs: far more than can be under way at a time."""


class RunPhases:
    """The phases of the newest runs; safe to use from several threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._runs: OrderedDict[str, tuple[datetime, list[tuple[str, float]]]] = OrderedDict()

    def begin(self, run: str, at: datetime) -> None:
        """Begin a run, in its first phase."""
        with self._lock:
            self._runs[run] = at, [("start", 0.0)]
            while len(self._runs) > _RUNS_MAX:
                self._runs.popitem(last=False)

    def enter(self, run: str, phase: str) -> None:
        """Note that a run is in another phase now; ignores unknown runs."""
        now = self._clock()
        with self._lock:
            if run in self._runs:
                began_at, begins = self._runs[run]
                begins.append((phase, (now - began_at).total_seconds()))

    def figures(self, run: str) -> dict[str, float]:
        """Return when each phase of a run began, as figures; empty for an unknown run."""
        with self._lock:
            return begin_figures(self._runs[run][1]) if run in self._runs else {}


class Starving:
    """Remembers since when each run has no slot; used only by the thread that ticks."""

    def __init__(
        self, *, control: RunControl, clock: Callable[[], datetime], places: Places
    ) -> None:
        self._control, self._clock, self._places = control, clock, places
        self._since: dict[str, datetime] = {}
        self._last: dict[str, datetime] = {}
        self._asked_to_end = 0

    def mark(
        self, active: Mapping[StageId, ActiveRun], *, asked_to_end: int = 0
    ) -> dict[StageId, ActiveRun]:
        """Return the work under way, with the starving runs marked.

        Args:
            asked_to_end: How many pieces of work were asked to end so far. Work that ended
                between two calls is missing in `active`.
        """
        now = self._clock()
        going = [work for work in active.values() if work.run and not work.recorded]
        runs = [work.run for work in going]
        starved = self._without_slots(runs) if self._places.matters(going, now) else ()
        self._last = {run: at for run, at in self._last.items() if run in runs}
        self._last |= dict.fromkeys(starved, now)
        # Slots of runs that are ending, or have just ended, may become free.
        ending = any(work.ending for work in going) or asked_to_end != self._asked_to_end
        self._asked_to_end = asked_to_end
        self._since = {} if ending else {run: self._since.get(run, now) for run in starved}
        return {key: self._marked(work, now) for key, work in active.items()}

    def _marked(self, work: ActiveRun, now: datetime) -> ActiveRun:
        since = self._since.get(work.run)
        starved = since is not None and (now - since).total_seconds() >= STARVED_SECONDS
        return replace(work, starved=starved, starved_at=self._last.get(work.run))

    def _without_slots(self, runs: Sequence[str]) -> Collection[str]:
        try:
            return self._control.starved(runs)
        except OperatingError as error:  # then no run gives way, as without contention
            _log.warning("run.slots_unknown", error=error.as_dict())
            return ()
