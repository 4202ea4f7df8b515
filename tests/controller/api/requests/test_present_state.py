"""The state of the service as another process receives it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, cast

from cbp.errors import NotFoundError
from cbp.model.schedule.waiting import Wait
from controller.api.requests.present_state import Answers, OwnState, Part, ToldState

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
WAITS = {
    ("a", "count"): Wait("retry", "tries again", NOON, "first", NotFoundError("run", "r1")),
    ("a", "first"): Wait("input", "waits for input", NOON),
    ("b", "only"): Wait("place", "waits for a place", NOON),
}


class _Words:
    def __init__(self, words: str) -> None:
        self.words = words


class _Parts:
    """A controller and a drop folder that know something."""

    def every_wait(self) -> dict[tuple[str, str], Wait]:
        return WAITS

    def waits(self, name: str) -> dict[str, Wait]:
        return {stage: wait for (flow, stage), wait in WAITS.items() if flow == name}

    def troubles(self, name: str) -> list[_Words]:
        return [_Words("its log is damaged")] if name == "b" else []

    def troubled(self, name: str) -> list[str]:
        return [f"source s of {name} is away"] if name != "c" else []

    def phases(self, run: str) -> dict[str, float]:
        return self.every_phase().get(run, {})

    def every_phase(self) -> dict[str, dict[str, float]]:
        return {"r1": {"begin_00_start": 0.0, "begin_01_plan": 0.5}}


def _own() -> OwnState:
    parts = cast(Any, _Parts())
    return OwnState(parts, parts)


def _told(asked: list[Part]) -> ToldState:
    def ask(part: Part) -> bytes:
        asked.append(part)
        return _own().describe(part.encode(), lambda: ["a", "b", "c"])

    return ToldState(Answers(ask))


def test_what_is_told_is_what_the_service_knows() -> None:
    """Waits with their errors, troubles of all kinds, phases; nothing of what nobody knows."""
    own, told = _own(), _told([])
    for name in ("a", "b", "c", "unknown"):
        heard, known = told.waits(name), own.waits(name)
        assert list(heard) == list(known)
        for stage, wait in known.items():
            other = heard[stage]
            assert (other.kind, other.words, other.since, other.behind) == (
                wait.kind,
                wait.words,
                wait.since,
                wait.behind,
            )
            error = wait.error and wait.error.as_dict()
            assert (other.error and other.error.as_dict()) == error
            assert type(other.error) is type(wait.error)
    for name in ("a", "b", "c"):
        assert list(told.troubles(name)) == list(own.troubles(name))
    assert told.phases("r1") == own.phases("r1")
    assert told.phases("r2") == {}


def test_a_request_asks_once_and_only_for_what_it_needs() -> None:
    """A page of a thousand runs needs one answer, and no waits."""
    asked: list[Part] = []
    told = _told(asked)
    for _ in range(3):
        told.phases("r1")
    assert asked == ["runs"]
    for _ in range(3):
        told.waits("a")
        told.troubles("b")
    assert asked == ["runs", "dataflows"]


def test_an_answer_is_never_older_than_its_request() -> None:
    """Each later request asks anew."""
    asked: list[Part] = []
    answers = Answers(lambda part: asked.append(part) or str(len(asked)).encode())  # type: ignore[func-returns-value]
    assert [answers.get("runs") for _ in range(3)] == [1, 2, 3]


def test_requests_at_a_time_share_a_question_that_began_after_them() -> None:
    """Those that wait while one asks get the next answer together, and never that one."""
    begun, go_on, numbers = threading.Event(), threading.Event(), iter(range(1, 100))

    def ask(part: Part) -> bytes:
        number = next(numbers)
        if number == 1:
            begun.set()
            assert go_on.wait(120)
        return str(number).encode()

    answers = Answers(ask)
    came: list[int] = []
    moments = answers._moments

    class Counted:
        def __next__(self) -> int:
            came.append(1)
            return next(moments)

    answers._moments = Counted()  # type: ignore[assignment]
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(answers.get, "runs")
        assert begun.wait(120)
        others = [threads.submit(answers.get, "runs") for _ in range(8)]
        while len(came) < 10:  # all have come: 1 and its question, and 8
            threading.Event().wait(0.001)
        go_on.set()
        assert first.result(120) == 1
        assert [one.result(120) for one in others] == [2] * 8
