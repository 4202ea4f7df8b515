"""Work under way: which stage is busy with which run, since when, and for how long at most.

Work that is cancelled, by an operator or by its time limit, is asked to stop. Should it not
end by itself within `GIVE_UP_SECONDS`, it is given up: its stage is free again, nobody waits
for its thread, and what that still brings is recorded by nobody.

Guaranteed: a stage has one piece of work at a time; once `record` allowed it to be recorded
it is never given up (tests/controller/test_time_limit.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass
from datetime import datetime

import structlog

from cbp.errors import CbpError
from cbp.model.places import Taken

__all__ = ["GIVE_UP_SECONDS", "StageId", "UnderWay", "Work"]

StageId = tuple[str, str]

GIVE_UP_SECONDS = 30.0
"""How long a cancelled run may take to end before nobody waits for it any more."""

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Work:
    """One piece of work for a stage.

    Attributes:
        run: Id of the run; `""` for what is no run.
        since: When it was handed in.
        seconds_max: Its time limit; 0: none.
        give_up: Called when nobody waits for it any more; `None`: it is never given up.
        cancelled_at: When it was asked to stop.
        late: Whether its time limit asked.
        gave_way: How often runs of its epoch gave way before.
        gives_way_to: The dataflow that asked it to stop; `""`: none did.
        recording: Whether it is being recorded.
    """

    key: StageId
    run: str
    since: datetime
    seconds_max: float = 0.0
    give_up: Callable[[], None] | None = None
    cancelled_at: datetime | None = None
    late: bool = False
    gave_way: int = 0
    gives_way_to: str = ""
    recording: bool = False


class UnderWay:
    """Keeps the work under way; every method may be called from any thread.

    Args:
        executor: Where work goes.
        wake: Called when some has ended.
        stop: Asks whoever executes a run to stop it; returns at once.
    """

    def __init__(
        self,
        *,
        executor: Executor,
        clock: Callable[[], datetime],
        wake: Callable[[], None],
        stop: Callable[[str], None],
    ) -> None:
        self._executor, self._clock, self._wake, self._stop = executor, clock, wake, stop
        self._lock = threading.Lock()
        self._busy: dict[StageId, Work] = {}
        self._futures: dict[StageId, Future[None]] = {}

    def busy(self) -> dict[StageId, str]:
        """Return the stages that are busy, with the run's id."""
        with self._lock:
            return {key: work.run for key, work in self._busy.items()}

    def taken(self) -> dict[StageId, Taken]:
        """Return the stages that are busy, with what takes their places."""
        with self._lock:
            return {
                key: Taken(
                    *key,
                    work.since,
                    work.run,
                    work.gave_way,
                    ending=work.cancelled_at is not None,
                    recorded=work.recording or work.give_up is None,
                )
                for key, work in self._busy.items()
            }

    def submit(self, work: Work, function: Callable[[], object]) -> None:
        """Hand work to the executor; its stage must be free."""
        with self._lock:
            assert work.key not in self._busy, f"{work.key} has a run under way"
            self._busy[work.key] = work
        future = self._executor.submit(self._guarded, work, function)
        with self._lock:
            self._futures[work.key] = future

    def cancel(self, run: str) -> None:
        """Ask a run to stop; of one that is not under way, nothing is remembered."""
        with self._lock:
            for work in self._busy.values():
                if work.run == run:
                    work.cancelled_at = work.cancelled_at or self._clock()
                    work.gives_way_to = ""  # whoever asks by name wants more than that
        self._stop(run)

    def give_way(self, run: str, to: str) -> None:
        """Ask a run to stop for another dataflow's sake, unless it stops or is recorded."""
        with self._lock:
            found = [work for work in self._busy.values() if work.run == run]
            asked = [w for w in found if w.cancelled_at is None and not w.recording]
            for work in asked:
                work.cancelled_at, work.gives_way_to = self._clock(), to
        if asked:
            self._stop(run)

    def keep_time(self) -> None:
        """Cancel what takes longer than it may; give up what was cancelled and goes on."""
        now = self._clock()
        with self._lock:
            found = list(self._busy.values())
        for work in found:
            if work.give_up is None or work.recording:
                continue
            if work.cancelled_at is not None:
                if (now - work.cancelled_at).total_seconds() >= GIVE_UP_SECONDS:
                    self._give_up(work, work.give_up)
            elif work.seconds_max and (now - work.since).total_seconds() >= work.seconds_max:
                _log.warning("run.late", dataflow=work.key[0], stage=work.key[1], run=work.run)
                work.late = True
                self.cancel(work.run)

    def record(self, work: Work) -> bool:
        """Tell whether work that came to its end is still wanted; from now on it is."""
        with self._lock:
            work.recording = self._busy.get(work.key) is work
            return work.recording

    def wait(self, dataflow: str | None = None, *, timeout: float | None = None) -> bool:
        """Wait for the work of one or all dataflows; tell whether all has ended."""
        with self._lock:
            chosen = [f for (name, _), f in self._futures.items() if dataflow in (None, name)]
        return not wait(chosen, timeout=timeout).not_done

    def begin(self) -> None:
        """Begin anew; nothing may be under way."""
        with self._lock:
            assert not self._busy, f"still under way: {[*self._busy]}"
            self._futures.clear()

    def forget(self, dataflow: str) -> None:
        """Drop what is kept about a dataflow that was deleted."""
        with self._lock:
            for key in [key for key in self._futures if key[0] == dataflow]:
                del self._futures[key]

    def _give_up(self, work: Work, told: Callable[[], None]) -> None:
        with self._lock:
            if work.recording or self._busy.get(work.key) is not work:
                return
            del self._busy[work.key]
            self._futures.pop(work.key, None)
        try:
            told()
        except CbpError as error:  # its run is still intended: it is settled as interrupted
            _log.error("run.not_given_up", run=work.run, error=error.as_dict())
        self._wake()

    def _guarded(self, work: Work, function: Callable[[], object]) -> None:
        dataflow, stage = work.key
        with structlog.contextvars.bound_contextvars(dataflow=dataflow, stage=stage, run=work.run):
            try:
                function()
            except Exception:  # a worker's last resort: the store failed while recording
                _log.exception("run.lost")
            finally:
                with self._lock:
                    if self._busy.get(work.key) is work:
                        del self._busy[work.key]
                self._wake()
