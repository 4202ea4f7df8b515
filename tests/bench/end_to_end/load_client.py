"""Readers of REST: many connections in one process, each with one request at a time.

    python -m tests.bench.end_to_end.load_client < plan.json > result.json
    python -m tests.bench.end_to_end.load_client constant      a server to measure the client

The client must be much cheaper than the service, with which it shares the machine. So it speaks
just enough HTTP/1.1 for the service's answers: a status, a `Content-Length`, a body. The process
has its own interpreter, so that it delays nothing of the service but by the processor it uses.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

__all__ = ["Load", "Plan", "read_for"]

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask.

    Attributes:
        host, port, token: Of the service.
        reads: Kind to path and query; `{}` is replaced by one of `keys`.
        keys: Keys that the state has.
        clients: Number of connections.
        seconds: How long they ask.
        rate: Requests a second of all connections, evenly spread; 0 means each connection asks
            again as soon as it has an answer. Latencies count from when a request was due, so one
            that waits for its connection waits for the service.
    """

    host: str
    port: int
    token: str
    reads: Mapping[str, str]
    keys: Sequence[str]
    clients: int
    seconds: float
    rate: float = 0.0


@dataclass(slots=True)
class Load:
    """What the connections met: kind to latencies in seconds, and errors by status."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


async def read_for(plan: Plan) -> Load:
    """Ask on all connections at a time, for the plan's seconds."""
    load, until = Load({kind: [] for kind in plan.reads}), time.perf_counter() + plan.seconds
    await asyncio.gather(*(_read(plan, load, until, number) for number in range(plan.clients)))
    return load


class _Turns:
    """When the requests of one connection are due, in seconds of `time.perf_counter`."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._every = plan.clients / plan.rate if plan.rate else 0.0
        self._next = time.perf_counter() + self._every * number / plan.clients

    def take(self) -> float:
        """Return when the next request is due."""
        if not self._every:
            return time.perf_counter()
        due, self._next = self._next, self._next + self._every
        return due


async def _read(plan: Plan, load: Load, until: float, number: int) -> None:
    loop, chance, turns = asyncio.get_running_loop(), random.Random(number), _Turns(plan, number)
    while time.perf_counter() < until:
        try:
            _, asking = await loop.create_connection(
                lambda: _Asking(plan, load, until, chance, turns), plan.host, plan.port
            )
            if not await asking.ended:
                return
        except OSError:
            pass
        load.errors["broken"] += 1
        await asyncio.sleep(0.1)


class _Asking(asyncio.Protocol):
    """One connection; asks when a request is due, and it has the answer to the one before.

    Attributes:
        ended: Whether the connection broke, once it is over.
    """

    def __init__(
        self, plan: Plan, load: Load, until: float, chance: random.Random, turns: _Turns
    ) -> None:
        self._plan, self._load, self._until, self._chance = plan, load, until, chance
        self._turns = turns
        self._kinds = sorted(plan.reads)
        self._head = (
            f" HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\n"
            f"Authorization: Bearer {plan.token}\r\n\r\n"
        ).encode()
        self._received, self._kind, self._begun = b"", "", 0.0
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport
        self._wait()

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(received, 0, end)
        if length is None or len(received) < end + 4 + int(length[1]):
            return
        self._received = b""
        now, status = time.perf_counter(), received[9:12]
        if status == b"200":
            self._load.latencies[self._kind].append(now - self._begun)
        else:
            self._load.errors[status.decode()] += 1
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(True)

    def _wait(self) -> None:
        """Ask when the next request is due; close if that is behind the end."""
        now, due = time.perf_counter(), self._turns.take()
        if max(now, due) >= self._until:
            self.ended.set_result(False)
            self._transport.close()
        elif due > now:
            asyncio.get_running_loop().call_later(due - now, self._ask, due)
        else:
            self._ask(due)

    def _ask(self, due: float) -> None:
        if self.ended.done():  # the connection broke meanwhile
            return
        self._kind = self._chance.choice(self._kinds)
        key = quote(self._chance.choice(self._plan.keys), safe="")
        path = self._plan.reads[self._kind].format(key)
        self._begun = due
        self._transport.write(f"GET {path}".encode() + self._head)


class _Constant(asyncio.Protocol):
    """Answers every request with the same, and computes nothing."""

    _ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n" + 400 * b"x"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data.count(b"\r\n\r\n") * self._ANSWER)


async def _serve_constant() -> None:
    server = await asyncio.get_running_loop().create_server(_Constant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _main() -> None:
    if sys.argv[1:] == ["constant"]:
        asyncio.run(_serve_constant())
    given: dict[str, Any] = json.load(sys.stdin)
    begun = time.process_time()
    load = asyncio.run(read_for(Plan(**given)))
    cpu = time.process_time() - begun
    found = {"latencies": load.latencies, "errors": load.errors, "cpu_seconds": cpu}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    _main()
