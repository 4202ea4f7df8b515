"""Runnables: calls authors' Runnables in threads beside the tick, and keeps their answers.

An answer belongs to its question: version, generation and epoch of a dataflow, and the increments
that waited then. When the answer comes, more increments may wait, but none are gone: only the
commit of an epoch removes increments from a queue. So a decision to read is still valid. After a
decision to read nothing yet, the Runnable is asked again once more increments wait.

Guaranteed (tests/controller/loop/author/test_calls_outside_runs.py): a Runnable that never returns
stops only its stage, and the error names its line; no tick waits for it twice; an answer to an
outdated question starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from cbp.errors import AuthorCodeError, CbpError, text_of
from cbp.model.flow.connector import Connector, Decision
from cbp.model.schedule.runnable_call import call_runnable
from cbp.model.schedule.scheduler import Answer, StageView
from controller.loop.author.calls_outside_runs import TimedCall, TimedCalls, pause_late
from controller.loop.runs.in_flight import StageId
from controller.loop.runs.isolation import Isolation
from controller.store.base import Store

GRACE_SECONDS = 0.05
"""How long a tick waits for all answers together, in real time."""

SETTING = "runnable_seconds_max"

Life = tuple[int, int]
"""Version and generation of a dataflow."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to a Runnable, and its answer."""

    of: tuple[Life, int]
    connectors: Mapping[str, Connector]
    memo: Any
    answer: Future[Decision]


@dataclass(kw_only=True, eq=False)
class RunnableAnswers:
    """Calls Runnables; used by one thread at a time, except `forget` and `stop`."""

    store: Store
    clock: Callable[[], datetime]
    threads: Executor
    wake: Callable[[], None]
    isolation: Isolation
    runnable_seconds_max: float = 0.0

    def __post_init__(self) -> None:
        self._questions = TimedCalls(threads=self.threads, clock=self.clock)
        self._asked: dict[StageId, _Asked] = {}

    def keep_time(self) -> None:
        """Pause the stages whose Runnable hangs; their threads are left alone."""
        late = self._questions.give_up_late()
        for question, _ in late:  # first, since the store may fail below
            self._asked.pop(question.key, None)
        pause_late(late, "runnable.timed_out", self.store, self.isolation)

    def given(self, views: Iterable[tuple[StageView, Life]]) -> dict[StageId, StageView]:
        """Call the Runnables that may be called; return the views with their answers."""
        all_views = list(views)
        mine = {view.id: self._ask(view, life) for view, life in all_views if view.by_author}
        # An earlier tick has waited for the other questions.
        fresh = [asked.answer for asked, new in mine.values() if new]
        for late in wait(fresh, timeout=GRACE_SECONDS).not_done:
            late.add_done_callback(lambda _: self.wake())
        return {
            view.id: replace(view, answer=self._answer(view, mine[view.id][0]))
            if view.id in mine
            else view
            for view, _ in all_views
        }

    def forget(self, dataflow: str) -> None:
        """Drop the pending calls of a dataflow that was deleted or replaced."""
        self._questions.drop(lambda key: key[0] == dataflow)
        for key in [key for key in list(self._asked) if key[0] == dataflow]:
            self._asked.pop(key, None)

    def begin(self) -> None:
        """Begin a term: allow calls again after `stop`, and drop answers of earlier terms."""
        self._asked.clear()
        self._questions.begin()

    def stop(self) -> None:
        """Drop all pending calls of Runnables, and results of running ones, until `begin`."""
        self._questions.stop()

    def _ask(self, view: StageView, life: Life) -> tuple[_Asked, bool]:
        """Return a stage's open question if it is valid, else a new one; and whether it is new."""
        of = life, view.epoch
        known = self._asked.get(view.id)
        if known is not None and _counts(known, of, view):
            return known, False
        self._questions.drop(lambda key: key == view.id)
        runnable, connectors, memo = view.runnable, view.connectors, view.memo
        question = TimedCall(
            view.id, runnable.name, runnable.place, self.runnable_seconds_max, SETTING
        )
        answer = self._questions.ask(
            question, lambda: call_runnable(view.stage, runnable, connectors, memo)
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
        # Report an error once: after a repair and a retry the Runnable is asked again.
        self._asked.pop(view.id, None)
        return Answer(error=error if isinstance(error, CbpError) else _ended(view, error))


def _ended(view: StageView, error: BaseException) -> AuthorCodeError:
    return AuthorCodeError(
        stage=view.stage,
        function=view.runnable.name,
        place=view.runnable.place,
        cause=f"{type(error).__name__}: {text_of(error)}",
    )


def _counts(asked: _Asked, of: tuple[Life, int], view: StageView) -> bool:
    """Return whether a question is unchanged, and its answer, if there is one, still valid."""
    if (asked.of, asked.memo) != (of, view.memo):
        return False
    if not asked.answer.done() or asked.answer.exception() is not None:
        return True
    decision = asked.answer.result()
    # More may have arrived meanwhile, but nothing is gone: what the decision reads still waits.
    return decision.runnable or asked.connectors == view.connectors
