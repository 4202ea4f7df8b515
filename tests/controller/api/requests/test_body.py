"""Bounds of request bodies, in simulated seconds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

import pytest
from starlette.requests import Request
from starlette.types import Message, Scope

from controller.api.answers.request_errors import BodyTooLargeError, ClientTooSlowError
from controller.api.app import describe_api
from controller.api.requests.body import BYTES_PER_SECOND_MIN, Bounds, read_body
from tests.simulated_time import play, sleep

IDLE_SECONDS = 30.0
BYTES_MAX = 1 << 20
SCOPE: Scope = {"type": "http", "method": "POST", "path": "/api/v1/dataflows/x", "headers": []}


def read(pieces: Iterable[tuple[float, bytes]], *, route_seconds: float = 0.0) -> tuple[int, float]:
    """Read a body whose pieces come after so many seconds each.

    Returns:
        Its bytes, and when the last one was read.
    """
    coming = iter(pieces)

    async def receive() -> Message:
        seconds, body = next(coming, (0.0, b""))
        await sleep(seconds)
        return {"type": "http.request", "body": body, "more_body": bool(body)}

    async def whole() -> tuple[int, float]:
        bounds = Bounds(BYTES_MAX, 1 << 30, IDLE_SECONDS)
        request, size = Request(SCOPE, bounds.bounded(SCOPE, receive)), 0
        if route_seconds:
            async for piece in request.stream():
                size += len(piece)
                await sleep(route_seconds)
        else:
            size = len(await read_body(request))
        return size, asyncio.get_running_loop().time()

    return play(whole())


def test_every_upload_may_be_larger_than_a_document() -> None:
    """Each route that takes a file has the bound of uploads, and no other has."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 2, "more_body": False}

    async def is_bounded(path: str) -> bool:
        scope: Scope = {**SCOPE, "path": path}
        try:
            await Bounds(1, 2, IDLE_SECONDS).bounded(scope, receive)()
        except BodyTooLargeError:
            return True
        return False

    for path, operations in describe_api()["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        takes_file = "application/octet-stream" in content
        assert play(is_bounded(re.sub(r"\{\w+\}", "x", path))) is not takes_file, path


def test_who_sends_nothing_is_given_up() -> None:
    """Up to the patience it may be silent; a little longer, and its request is ended."""
    assert read([(IDLE_SECONDS - 1, b"x")]) == (1, IDLE_SECONDS - 1)
    with pytest.raises(ClientTooSlowError) as refused:
        read([(1, b"x"), (IDLE_SECONDS + 1, b"x")])
    assert refused.value.details == {
        "idle_seconds": IDLE_SECONDS,
        "bytes_per_second_min": BYTES_PER_SECOND_MIN,
    }


def test_who_trickles_is_given_up() -> None:
    """A byte now and then keeps no place: below a rate that any network has, it ends."""
    arrived = list[int]()

    def trickle() -> Iterable[tuple[float, bytes]]:
        for number in range(100):
            arrived.append(number)
            yield 20, b"x"

    with pytest.raises(ClientTooSlowError):
        read(trickle())
    assert len(arrived) == 2, "40 s for two bytes, of which 30 s may be waited"


def test_who_is_slow_and_steady_is_not_given_up() -> None:
    """An upload may take long: what came already gives more time, and so does the route's own."""
    steady = [(2.0, bytes(2 * BYTES_PER_SECOND_MIN))] * 300
    assert read(steady) == (600 * BYTES_PER_SECOND_MIN, 600)
    slow_route = [(1.0, b"x")] * 20
    assert read(slow_route, route_seconds=60) == (20, 20 + 21 * 60)


def test_one_byte_beyond_the_limit_is_refused() -> None:
    """Whether or not the client announced its length."""
    assert read([(0, bytes(BYTES_MAX))])[0] == BYTES_MAX
    with pytest.raises(BodyTooLargeError):
        read([(0, bytes(BYTES_MAX)), (0, b"x")])
