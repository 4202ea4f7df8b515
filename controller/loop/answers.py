"""What authors' Runnables answer, beside the thread that ticks.

A tick asks them all at once and waits `GRACE_SECONDS` at most: most answer in microseconds.
Who has not answered by then is waited for by nobody. Its stage says so, the others go on, and the
answer wakes the next tick. Rules that we ship look at lists and are asked in place.

An answer belongs to what was asked: a version, generation and epoch of a dataflow, and the
increments that waited then. More may have come meanwhile, and nothing went: only the commit of
an epoch takes from a queue. So a decision to read is as good as one of an earlier tick; that
nothing is to be read yet is asked again.

Guaranteed (tests/controller/test_answers.py): a Runnable that never returns stops its
stage only, with its line, and no tick waits for it twice; an answer to an earlier question
starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from cbp.errors import AuthorCodeError, CbpError
from cbp.model.connector import Connector, Decision
from cbp.model.consult import consult
from cbp.model.schedule import Answer, StageView
from controller.loop.questions import Question, Questions
from controller.loop.underway import StageId
from controller.store.base import Store

__all__ = ["GRACE_SECONDS", "Answers"]

GRACE_SECONDS = 0.05
"""How long a tick waits for all answers together, real time."""

SETTING = "runnable_seconds_max"

Life = tuple[int, int]
"""Version and generation of a dataflow."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a Runnable was asked, and what came.

    Attributes:
        of: Life of the dataflow, and epoch of the stage.
        answer: Its decision, or why there is none.
    """

    of: tuple[Life, int]
    connectors: Mapping[str, Connector]
    memo: Any
    answer: Future[Decision]


class Answers:
    """Asks Runnables; used by one thread at a time, but for `forget` and `stop`.

    Args:
        threads: Where authors answer.
        wake: Called when an answer came that no tick waited for.
        seconds_max: Time limit of one answer; 0: none.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Callable[[], datetime],
        threads: Executor,
        wake: Callable[[], None],
        seconds_max: float = 0.0,
    ) -> None:
        self._store, self._wake, self._seconds_max = store, wake, seconds_max
        self._questions = Questions(threads=threads, clock=clock)
        self._asked: dict[StageId, _Asked] = {}

    def keep_time(self) -> None:
        """Stop the stages whose Runnable hangs; their threads are left alone."""
        late = self._questions.give_up_late()
        for question, _ in late:  # all of them, though the store should fail at the first
            self._asked.pop(question.key, None)
        for question, error in late:
            told = error.as_dict()
            _log.warning("runnable.gave_up", dataflow=question.key[0], error=told)
            self._store.pause_stage(*question.key, error.message, told)

    def given(self, views: Iterable[tuple[StageView, Life]]) -> dict[StageId, StageView]:
        """Ask those that may be asked; return the views with what they answered.

        Args:
            views: Stages of which a Runnable is asked now, with the lives of their dataflows.
        """
        found = list(views)
        mine = {view.id: self._ask(view, life) for view, life in found if view.by_author}
        # Those that were asked before had their grace.
        fresh = [asked.answer for asked, new in mine.values() if new]
        for late in wait(fresh, timeout=GRACE_SECONDS).not_done:
            late.add_done_callback(lambda _: self._wake())
        return {
            view.id: replace(view, answer=self._answer(view, mine[view.id][0]))
            if view.id in mine
            else view
            for view, _ in found
        }

    def forget(self, dataflow: str) -> None:
        """Want nothing any more of a dataflow that is deleted, or has become another."""
        self._questions.drop(lambda key: key[0] == dataflow)
        for key in [key for key in list(self._asked) if key[0] == dataflow]:
            self._asked.pop(key, None)

    def begin(self) -> None:
        """Ask again after `stop`, with nothing kept of before."""
        self._asked.clear()
        self._questions.begin()

    def stop(self) -> None:
        """Want nothing any more."""
        self._questions.stop()

    def _ask(self, view: StageView, life: Life) -> tuple[_Asked, bool]:
        """Return what a stage was asked last, if it still counts, or ask; and whether it did."""
        of = life, view.epoch
        known = self._asked.get(view.id)
        if known is not None and _counts(known, of, view):
            return known, False
        self._questions.drop(lambda key: key == view.id)
        runnable, connectors, memo = view.runnable, view.connectors, view.memo
        question = Question(view.id, runnable.name, runnable.place, self._seconds_max, SETTING)
        answer = self._questions.ask(
            question, lambda: consult(view.stage, runnable, connectors, memo)
        )
        if answer is None:  # the service stops
            answer = Future()
        asked = _Asked(of, connectors, memo, answer)
        self._asked[view.id] = asked
        return asked, True

    def _answer(self, view: StageView, asked: _Asked) -> Answer:
        if not asked.answer.done():
            return Answer()
        error = asked.answer.exception()
        if error is None:
            return Answer(decision=asked.answer.result())
        # Told once: whoever mends it and retries is asked anew.
        self._asked.pop(view.id, None)
        return Answer(error=error if isinstance(error, CbpError) else _ended(view, error))


def _ended(view: StageView, error: BaseException) -> AuthorCodeError:
    """Return the error of a Runnable that ended its thread."""
    return AuthorCodeError(
        stage=view.stage,
        function=view.runnable.name,
        place=view.runnable.place,
        cause=f"{type(error).__name__}: {error}",
    )


def _counts(asked: _Asked, of: tuple[Life, int], view: StageView) -> bool:
    """Tell whether a question is still the one to ask, and its answer, if any, holds."""
    if (asked.of, asked.memo) != (of, view.memo):
        return False
    if not asked.answer.done() or asked.answer.exception() is not None:
        return True
    decision = asked.answer.result()
    # Meanwhile something may have come, and nothing went: what it reads still waits.
    return decision.runnable or asked.connectors == view.connectors
