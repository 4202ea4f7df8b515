"""Calls of author's code outside of runs, with a time limit, in threads beside the tick.

Each call is a question; a stage has one at a time. A question that is not answered within its time
limit is given up: its thread is left alone, since a thread cannot be ended, and its answer is
dropped.

    ask ---> asked ---> answered                 `wanted` is true until the end
               |---> dropped                     the answer is no longer needed
               '---> given up                    `give_up_late`, its stage stops

Guaranteed: a question that is no longer wanted never becomes wanted again. So code that records
an answer calls `wanted` first (tests/controller/loop/author/test_calls_outside_runs.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from cbp.errors import AnswerLateError
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import Isolation
from controller.store.base import Store

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class TimedCall:
    """One call of the author's code of a stage.

    Attributes:
        function, place: Name of the author's function, and its place, such as `file.py:12`.
        since: When the present part of the call began; set by `TimedCalls`.
        begun: When the call began; set by `TimedCalls`.
    """

    key: StageId
    function: str
    place: str
    seconds_max: float
    setting: str
    since: datetime | None = None
    begun: datetime | None = None


class TimedCalls:
    """The open calls; every method can be called from any thread."""

    def __init__(self, *, threads: Executor, clock: Callable[[], datetime]) -> None:
        self._threads, self._clock = threads, clock
        self._lock = threading.Lock()
        self._open: dict[StageId, TimedCall] = {}
        self._stopping = False

    def ask(self, question: TimedCall, answer: Callable[[], _T]) -> Future[_T] | None:
        """Open a call; return `None` if its stage has an open one, or if the service stops."""
        with self._lock:
            if self._stopping or question.key in self._open:
                return None
            question.since = question.begun = self._clock()
            self._open[question.key] = question
        try:
            return self._threads.submit(self._answered, question, answer)
        except RuntimeError:  # no thread can be started: free the stage, so that it is asked again
            self.drop_one(question)
            raise

    def wanted(self, question: TimedCall) -> bool:
        """Return whether a call is still open."""
        with self._lock:
            return self._open.get(question.key) is question

    def goes_on(self, question: TimedCall, function: str, place: str) -> None:
        """Begin the next part of a call; each part has the whole time limit."""
        with self._lock:
            question.since, question.function, question.place = self._clock(), function, place

    def busy(self) -> dict[StageId, datetime | None]:
        """Return each stage with an open call, and when the call began."""
        with self._lock:
            return {key: question.begun for key, question in self._open.items()}

    def give_up_late(self) -> list[tuple[TimedCall, AnswerLateError]]:
        """Close the calls beyond their time limit; their threads are left alone."""
        now = self._clock()
        with self._lock:
            late = [one for one in self._open.values() if _is_late(one, now)]
            for question in late:
                del self._open[question.key]
        return [(question, _late(question)) for question in late]

    def drop(self, chosen: Callable[[StageId], bool]) -> list[StageId]:
        """Close the calls of the chosen stages; return the stages that had one."""
        with self._lock:
            dropped = [key for key in self._open if chosen(key)]
            for key in dropped:
                del self._open[key]
        return dropped

    def drop_one(self, question: TimedCall) -> None:
        """Close this call."""
        with self._lock:
            if self._open.get(question.key) is question:
                del self._open[question.key]

    def begin(self) -> None:
        """Accept calls again after `stop`."""
        with self._lock:
            assert not self._open, f"a term begins while calls are open: {[*self._open]}"
            self._stopping = False

    def stop(self) -> list[StageId]:
        """Close all calls and accept no more; return the stages that had one."""
        self._stopping = True
        return self.drop(lambda key: True)

    def _answered(self, question: TimedCall, answer: Callable[[], _T]) -> _T:
        try:
            return answer()
        finally:
            self.drop_one(question)


def pause_late(
    late: Iterable[tuple[TimedCall, AnswerLateError]],
    event: str,
    store: Store,
    isolation: Isolation,
) -> None:
    """Pause the stages of calls that were given up."""
    for question, error in late:
        details = error.as_dict()
        _log.warning(event, dataflow=question.key[0], error=details)
        stop = partial(store.pause_stage, *question.key, error.message, details)
        isolation.attempt(question.key[0], "paused after a time-out", stop)


def _is_late(question: TimedCall, now: datetime) -> bool:
    assert question.since is not None, "an open call has no start time"
    return 0 < question.seconds_max < (now - question.since).total_seconds()


def _late(question: TimedCall) -> AnswerLateError:
    return AnswerLateError(
        stage=question.key[1],
        function=question.function,
        place=question.place,
        seconds=question.seconds_max,
        setting=question.setting,
    )
