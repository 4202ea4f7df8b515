"""What is shortened of FastAPI's way through a request, and what has to stay the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import httpx
from anyio import to_thread
from fastapi import Depends, FastAPI, Header, Request, Response
from pydantic import BaseModel

from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.api.routing.scope_check import ScopedRoute, needs
from controller.api.routing.short_path import Shortened
from controller.api.security.exchange import Exchange
from tests.controller.api.app_transport import AppTransport
from tests.waiting import PATIENCE_SECONDS


class Answer(BaseModel):
    """What the endpoints of this module return."""

    words: list[str]


@dataclass
class Heard:
    """What happened during a request, and in which threads."""

    calls: list[str] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def note(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.current_thread().name)


HEARD = Heard()


async def _first(request: Request) -> str:
    HEARD.note("first")
    return f"first of {request.url.path}"


async def _second(first: Annotated[str, Depends(_first)]) -> str:
    HEARD.note("second")
    return f"second and {first}"


def _blocking() -> str:
    HEARD.note("blocking")
    return "blocking"


async def _named(x_name: Annotated[str, Header()] = "nobody") -> str:
    return x_name


FirstDep = Annotated[str, Depends(_first)]
SecondDep = Annotated[str, Depends(_second)]


@needs(Scope.VIEWER)
def both(first: FirstDep, second: SecondDep, number: int) -> Answer:
    HEARD.note("both")
    return Answer(words=[first, second, str(number)])


@needs(Scope.VIEWER)
async def waiting(second: SecondDep, request: Request) -> Answer:
    return Answer(words=[second, request.method])


@needs(Scope.VIEWER)
def mixed(
    blocking: Annotated[str, Depends(_blocking)], name: Annotated[str, Depends(_named)]
) -> Answer:
    return Answer(words=[blocking, name])


@needs(Scope.VIEWER)
def marked(response: Response) -> Answer:
    response.headers["X-Mark"] = "1"
    return Answer(words=[])


@needs(Scope.VIEWER)
def wrong() -> Answer:
    return {"words": 7}  # type: ignore[return-value]


@needs(Scope.VIEWER)
def own() -> Answer:
    return Response("mine", 203)  # type: ignore[return-value]


def _ask(
    endpoint: Callable[..., Any],
    *,
    status: int | None = None,
    path: str = "/x",
    name: str = "nobody",
) -> httpx.Response:
    HEARD.calls.clear()
    HEARD.threads.clear()
    app = FastAPI()
    app.router.routes.append(ScopedRoute("/x", endpoint, status_code=status))

    async def with_caller(scope: Any, receive: Any, send: Any) -> None:
        Exchange(id="1", caller=Identity(scope=Scope.ADMIN)).put(scope)
        await app(scope, receive, send)

    transport = AppTransport(with_caller)  # type: ignore[arg-type]
    with httpx.Client(transport=transport, base_url="http://test") as client:
        return client.get(path, headers={"X-Name": name})


def test_a_dependency_that_needs_only_the_request_is_called_once() -> None:
    """Who asks for the same part twice gets the same value, as FastAPI promises."""
    answer = _ask(both, path="/x?number=3")
    assert answer.json() == {"words": ["first of /x", "second and first of /x", "3"]}
    assert HEARD.calls == ["first", "second", "both"]
    assert not Shortened.of(ScopedRoute("/x", both)).dependant.dependencies


def test_parameters_are_still_checked() -> None:
    """FastAPI solves them; a missing one is its error, and the endpoint is not called."""
    assert _ask(both).status_code == 422
    assert "both" not in HEARD.calls


def test_an_endpoint_that_waits_gets_its_parts_too() -> None:
    """A coroutine stays in the loop."""
    assert _ask(waiting).json() == {"words": ["second and first of /x", "GET"]}


def test_other_dependencies_are_left_to_fastapi() -> None:
    """What blocks gets a thread, and what reads a header gets its text."""
    answer = _ask(mixed, name="ada")
    assert answer.json() == {"words": ["blocking", "ada"]}
    here = threading.current_thread().name
    assert here not in HEARD.threads


def test_what_an_endpoint_adds_to_the_response_is_not_lost() -> None:
    """FastAPI merges the headers only into an answer that it wrote itself."""
    assert _ask(marked).headers["X-Mark"] == "1"


def test_the_status_and_the_type_are_those_of_the_route() -> None:
    """The answer is written in the thread, and is what FastAPI would have written."""
    answer = _ask(both, status=201, path="/x?number=3")
    assert (answer.status_code, answer.headers["content-type"]) == (201, "application/json")
    assert _ask(own).status_code == 203


def test_a_list_does_not_wait_for_look_ups() -> None:
    """Answers made of the store alone have threads of their own, however busy the others are."""
    begun, free = threading.Event(), threading.Event()

    @needs(Scope.VIEWER)
    def look_up() -> Answer:
        begun.set()
        assert free.wait(PATIENCE_SECONDS)
        return Answer(words=["found"])

    @needs(Scope.VIEWER, of_store=True)
    def listed() -> Answer:
        return Answer(words=[threading.current_thread().name])

    app = FastAPI()
    app.router.routes += [ScopedRoute("/look-up", look_up), ScopedRoute("/list", listed)]

    async def with_caller(scope: Any, receive: Any, send: Any) -> None:
        Exchange(id="1", caller=Identity(scope=Scope.ADMIN)).put(scope)
        await app(scope, receive, send)

    async def ask() -> list[str]:
        to_thread.current_default_thread_limiter().total_tokens = 1
        transport = httpx.ASGITransport(with_caller)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            busy = asyncio.create_task(client.get("/look-up"))
            assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    listed = (await client.get("/list")).json()
            finally:
                free.set()
            return [*listed["words"], *(await busy).json()["words"]]

    thread, found = asyncio.run(ask())
    assert thread != threading.current_thread().name, "it may block on the store"
    assert found == "found"


def test_an_answer_that_is_no_instance_of_its_schema_is_refused() -> None:
    """A mistake of ours is an error, and never an answer that breaks a client."""
    assert _ask(wrong).status_code == 500
