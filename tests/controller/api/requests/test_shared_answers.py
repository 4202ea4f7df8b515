"""Shared answers are those that each request would have got, and never older than it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import Response

from cbp.model.run.intention import RunStatus
from controller.api.requests.shared_answers import JSON, Made, SharedAnswers
from controller.api.routing.scope_check import ScopedRoute, need_of
from tests.controller.api.all_routes import whole_app
from tests.controller.api.fake_service import Service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """Give a service with increments, claims and runs, whose store says when it changes."""
    made = Service(tmp_path)
    made.fill()
    STAMP[0] = 0
    made.app.state.parts.answers = SharedAnswers(lambda: STAMP[0])
    return made


STAMP: list[Any] = [0]


def test_an_answer_is_the_same_until_the_store_changes(service: Service) -> None:
    """Then it is made anew; and so it is where the store does not say whether it changed."""
    client = service.client()
    path = "/api/v1/dataflows/clicks/increments"
    first = client.get(path)
    assert first.status_code == 200
    kept = service.store.increment_records
    service.store.increment_records = kept[:1]
    again = client.get(path)
    assert again.content == first.content
    own = {name: text for name, text in first.headers.items() if name != "x-request-id"}
    assert own == {name: text for name, text in again.headers.items() if name != "x-request-id"}
    assert len(client.get(f"{path}?limit=5").json()["items"]) == 1, "another query"
    STAMP[0] += 1
    assert len(client.get(path).json()["items"]) == 1
    service.store.increment_records = kept
    STAMP[0] = None
    assert len(client.get(path).json()["items"]) == 2


def test_refusals_are_not_kept_nor_given_to_others(service: Service) -> None:
    """A key that is not known is refused each time; a wrong query too."""
    path = "/api/v1/dataflows/clicks/increments"
    assert service.client().get(path).status_code == 200
    assert service.client("wrong").get(path).status_code == 401
    for _ in range(2):
        assert service.client().get(f"{path}?limit=x").status_code == 422
        assert service.client().get("/api/v1/dataflows/none/increments").status_code == 404


def test_runs_under_way_are_shown_as_they_are(service: Service) -> None:
    """Their phases are not in the store, so an answer that has one is not kept; others are."""
    client, runs = service.client(), service.store.run_records
    under_way = [one for one in runs if one.status is RunStatus.INTENDED]
    for path in ("/api/v1/runs", f"/api/v1/runs/{under_way[0].id}"):
        service.store.run_records = under_way
        assert client.get(path).status_code == 200
        service.store.run_records = []
        assert client.get(path).json().get("items", []) == []
    STAMP[0] += 1
    service.store.run_records = [one for one in runs if one not in under_way]
    ended = client.get("/api/v1/runs").json()
    assert len(ended["items"]) == 2
    service.store.run_records = []
    assert client.get("/api/v1/runs").json() == ended


class Maker:
    """Makes answers that say how often it was asked, once the test lets it.

    Attributes:
        begun: How many it has begun.
        status: Of the next answers.
    """

    def __init__(self) -> None:
        self.begun, self.status, self._gates = 0, 200, list[asyncio.Event]()

    async def __call__(self) -> Made:
        self.begun += 1
        number, gate = self.begun, asyncio.Event()
        self._gates.append(gate)
        await gate.wait()
        if self.status == 500:
            raise ZeroDivisionError
        return Response(b"%d" % number, self.status, media_type=JSON), True

    async def finish(self) -> None:
        """Let the oldest one that is being made end."""
        self._gates.pop(0).set()
        await settled()


async def settled() -> None:
    """Let everything go on that can."""
    for _ in range(20):
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()


def ask(
    answers: SharedAnswers, make: Maker, *, lasts: bool = False, key: str = "k"
) -> asyncio.Task[Response]:
    """Ask for an answer."""
    return asyncio.ensure_future(answers.answer(key, make, lasts=lasts))


def test_who_comes_while_an_answer_is_made_shares_the_next() -> None:
    """The one under way may have read what has changed since; another key shares nothing."""

    async def go() -> None:
        answers, make, other = SharedAnswers(lambda: None), Maker(), Maker()
        first = ask(answers, make)
        await settled()
        later = [ask(answers, make) for _ in range(5)]
        apart = ask(answers, other, key="other")
        await settled()
        assert (make.begun, other.begun) == (1, 1)
        await make.finish()
        assert first.result().body == b"1"
        assert not any(one.done() for one in later)
        latest = ask(answers, make)  # the second one is being made by now
        await settled()
        assert make.begun == 2
        await make.finish()
        assert [one.result().body for one in later] == [b"2"] * 5
        await make.finish()
        assert latest.result().body == b"3"
        await other.finish()
        assert apart.result().body == b"1"
        assert len({id(one.result()) for one in later}) == 5, "each may get its own headers"

    asyncio.run(go())


@pytest.mark.parametrize("status", [404, 500])
def test_an_error_is_each_request_s_own(status: int) -> None:
    """Others do not get it: each asks by itself, and the next ones share again."""

    async def go() -> None:
        answers, make = SharedAnswers(lambda: None), Maker()
        first = ask(answers, make)
        await settled()
        later = [ask(answers, make) for _ in range(3)]
        await settled()
        await make.finish()
        make.status = status
        await make.finish()
        assert make.begun == 4
        make.status = 200
        await make.finish()
        await make.finish()
        ends = await asyncio.gather(first, *later, return_exceptions=True)
        wrong = [one for one in ends if not isinstance(one, Response) or one.status_code != 200]
        assert len(wrong) == 1

    asyncio.run(go())


@pytest.mark.parametrize("who", ["makes", "makes next", "shares"])
def test_nobody_waits_for_one_who_is_gone(who: str) -> None:
    """A request that is cancelled takes no other one with it."""

    async def go() -> None:
        answers, make = SharedAnswers(lambda: None), Maker()
        every = [ask(answers, make)]
        await settled()
        every += [ask(answers, make) for _ in range(3)]
        await settled()
        gone = every.pop({"makes": 0, "makes next": 1, "shares": 2}[who])
        gone.cancel()
        await settled()
        while not all(one.done() for one in every):
            await make.finish()
        assert all(one.result().status_code == 200 for one in every)
        assert gone.cancelled()
        again = ask(answers, make)
        await settled()
        await make.finish()
        assert again.result().body == b"%d" % make.begun
        assert not answers._making, "nothing is remembered of what is over"

    asyncio.run(go())


def test_what_lasts_is_not_made_again_until_the_stamp_differs() -> None:
    """The stamp is from before anything was read; who waited for it shares it, too."""

    async def go() -> None:
        stamp = [1]
        answers, make = SharedAnswers(lambda: stamp[0], bytes_max=1600), Maker()
        first = ask(answers, make, lasts=True)
        await settled()
        later = ask(answers, make, lasts=True)
        await settled()
        await make.finish()
        assert (first.result().body, later.result().body) == (b"1", b"1")
        assert (await ask(answers, make, lasts=True)).body == b"1"
        stamp[0] = 2
        changed = ask(answers, make, lasts=True)
        await settled()
        stamp[0] = 3  # while it was made
        await make.finish()
        assert changed.result().body == b"2"
        again = ask(answers, make, lasts=True)
        await settled()
        await make.finish()
        assert again.result().body == b"3"
        large = b"x" * 101
        assert (await answers.answer("l", _made(large), lasts=True)).body == large
        assert (await answers.answer("l", _made(b"y"), lasts=True)).body == b"y"
        for number in range(40):
            await answers.answer(number, _made(b"x" * 100), lasts=True)
        assert len(answers._kept[1]) <= 17

    asyncio.run(go())


def _made(body: bytes) -> Callable[[], Awaitable[Made]]:
    async def make() -> Made:
        return Response(body, media_type=JSON), True

    return make


def test_only_these_routes_last() -> None:
    """Each was looked at: it reads no header, no table and no clock."""
    every = [one for one in whole_app().routes if isinstance(one, ScopedRoute)]
    lasting = {one.path for one in every if need_of(one.endpoint).lasting}
    assert lasting == {
        f"/api/v1/{path}"
        for path in (
            "dataflows/{name}/claims",
            "dataflows/{name}/increments",
            "dataflows/{name}/increments/{flow}/{index}",
            "events/recent",
            "runs",
            "runs/{run}",
        )
    }
    assert all(
        need_of(one.endpoint).read_anywhere for one in every if need_of(one.endpoint).lasting
    )


def test_no_shared_answer_depends_on_a_header() -> None:
    """The key of an answer has the path, the query and the caller; so nothing else may count."""
    for route in whole_app().routes:
        if isinstance(route, ScopedRoute) and need_of(route.endpoint).read_anywhere:
            assert route.methods == {"GET"}
            assert not route.dependant.header_params
            assert not route.dependant.cookie_params
            assert route.dependant.response_param_name is None


def test_an_answer_with_a_header_of_its_own_is_not_shared() -> None:
    """Its text does not say all of it: each request gets one that was made for it."""

    async def go() -> None:
        answers, begun = SharedAnswers(lambda: 0), list[int]()

        async def make() -> Made:
            begun.append(1)
            return Response(b"1", headers={"ETag": '"1"'}, media_type=JSON), True

        for _ in range(2):
            response = await answers.answer("k", make, lasts=True)
            assert response.headers["etag"] == '"1"'
        assert len(begun) == 2

    asyncio.run(go())
