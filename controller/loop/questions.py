"""Questions to author's code: what the controller itself asks it, beside the thread that ticks.

A FrameBy (`frames.py`) and a Runnable (`answers.py`) are asked in threads of their own, one
question per stage at a time. A question that has no answer within its time limit is given
up: its thread is left alone, since a thread cannot be ended, its answer counts no more,
and the error names the stage, the function, its line, the limit and what to do.

    ask ---> asked ---> answered                 `wanted` is true until the end
               |---> dropped                     nobody wants it any more
               '---> given up                    `give_up_late`, its stage stops

Guaranteed: what is not wanted any more is never wanted again, so whoever records an answer
asks `wanted` first (tests/controller/test_answers.py).
Absent on purpose: what runs and translators do; those are the engine's (`underway.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from cbp.errors import AnswerLateError
from controller.loop.underway import StageId

__all__ = ["Question", "Questions"]

_T = TypeVar("_T")


@dataclass(eq=False)
class Question:
    """What a stage's author is asked.

    Attributes:
        key: The dataflow and the stage.
        function, place: The author's code, and its `file.py:12`.
        seconds_max: Its time limit; 0: none.
        setting: The name of the setting that this limit comes from.
        since: When it, or its present part, was asked; set by `Questions`, as `begun` is.
        begun: When it was asked.
    """

    key: StageId
    function: str
    place: str
    seconds_max: float
    setting: str
    since: datetime | None = None
    begun: datetime | None = None


class Questions:
    """Keeps the questions that are open; every method may be called from any thread.

    Args:
        threads: Where authors answer.
    """

    def __init__(self, *, threads: Executor, clock: Callable[[], datetime]) -> None:
        self._threads, self._clock = threads, clock
        self._lock = threading.Lock()
        self._open: dict[StageId, Question] = {}
        self._stopping = False

    def ask(self, question: Question, answer: Callable[[], _T]) -> Future[_T] | None:
        """Begin to ask; `None` while its stage is asked already."""
        with self._lock:
            if self._stopping or question.key in self._open:
                return None
            question.since = question.begun = self._clock()
            self._open[question.key] = question
        return self._threads.submit(self._answered, question, answer)

    def wanted(self, question: Question) -> bool:
        """Tell whether a question is still open."""
        with self._lock:
            return self._open.get(question.key) is question

    def goes_on(self, question: Question, function: str, place: str) -> None:
        """Ask the next of several parts of a question; each has the whole time."""
        with self._lock:
            question.since, question.function, question.place = self._clock(), function, place

    def busy(self) -> dict[StageId, datetime | None]:
        """Return the stages that are asked, with when that began."""
        with self._lock:
            return {key: question.begun for key, question in self._open.items()}

    def give_up_late(self) -> list[tuple[Question, AnswerLateError]]:
        """Want those no more that take longer than they may; return them."""
        now = self._clock()
        with self._lock:
            late = [one for one in self._open.values() if _is_late(one, now)]
            for question in late:
                del self._open[question.key]
        return [(question, _late(question)) for question in late]

    def drop(self, chosen: Callable[[StageId], bool]) -> list[StageId]:
        """Want the questions of these stages no more; return those that were asked."""
        with self._lock:
            dropped = [key for key in self._open if chosen(key)]
            for key in dropped:
                del self._open[key]
        return dropped

    def drop_one(self, question: Question) -> None:
        """Want this question no more."""
        with self._lock:
            if self._open.get(question.key) is question:
                del self._open[question.key]

    def begin(self) -> None:
        """Ask again after `stop`."""
        with self._lock:
            assert not self._open, f"still asked: {self._open.keys()}"
            self._stopping = False

    def stop(self) -> list[StageId]:
        """Ask nothing any more, and want nothing; return the stages that were asked."""
        self._stopping = True
        return self.drop(lambda key: True)

    def _answered(self, question: Question, answer: Callable[[], _T]) -> _T:
        try:
            return answer()
        finally:
            self.drop_one(question)


def _is_late(question: Question, now: datetime) -> bool:
    assert question.since is not None, "an open question was asked"
    return 0 < question.seconds_max < (now - question.since).total_seconds()


def _late(question: Question) -> AnswerLateError:
    return AnswerLateError(
        stage=question.key[1],
        function=question.function,
        place=question.place,
        seconds=question.seconds_max,
        setting=question.setting,
    )
