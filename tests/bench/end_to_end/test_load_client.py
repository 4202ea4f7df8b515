"""The readers: many connections, each with one request at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.bench.end_to_end.load_client import Load, Plan, read_for


async def _read(
    statuses: list[str], *, clients: int, rate: float = 0.0
) -> tuple[Load, Counter[str]]:
    """Read from a server that gives these statuses in turn; return what came, and the requests."""
    asked: Counter[str] = Counter()
    answered = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                assert "authorization: bearer secret" in head.lower()
                asked[head.split(" ")[1]] += 1
                status, answered = statuses[answered % len(statuses)], answered + 1
                if status == "broken":
                    break
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        except EOFError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        plan = Plan(
            host="127.0.0.1",
            port=server.sockets[0].getsockname()[1],
            token="secret",
            reads={"look-up": "/state?url={}", "runs": "/runs"},
            keys=["a/b", "c"],
            clients=clients,
            seconds=0.3,
            rate=rate,
        )
        return await read_for(plan), asked


def test_each_answer_is_counted_once_by_its_kind() -> None:
    """A look-up asks for one of the keys, quoted; each request is an answer of its kind."""
    load, asked = asyncio.run(_read(["200"], clients=3))
    assert set(asked) == {"/state?url=a%2Fb", "/state?url=c", "/runs"}
    assert not load.errors
    assert len(load.latencies["runs"]) == asked["/runs"]
    assert len(load.latencies["look-up"]) == asked.total() - asked["/runs"]
    assert all(one > 0 for taken in load.latencies.values() for one in taken)


def test_an_error_is_no_answer() -> None:
    """A refusal and a broken connection are counted apart, and reading goes on after them."""
    load, asked = asyncio.run(_read(["200", "503", "broken"], clients=1))
    assert load.errors["503"] >= 1
    assert load.errors["broken"] >= 1
    assert sum(map(len, load.latencies.values())) + load.errors.total() == asked.total()


def test_requests_of_a_rate_are_spread_evenly() -> None:
    """No more are sent than were due, however fast the answers are."""
    load, asked = asyncio.run(_read(["200"], clients=3, rate=50.0))
    assert 3 <= asked.total() <= 15
    assert not load.errors
