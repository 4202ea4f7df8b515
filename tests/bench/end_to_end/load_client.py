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
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

__all__ = ["Load", "Plan", "read_for"]

_LENGTH = b"content-length:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to ask.

    Attributes:
        host, port, token: Of the service.
        reads: Kind to path and query; `{}` is replaced by one of `keys`.
        keys: Keys that the state has.
        clients: Number of connections.
        seconds: How long they ask.
    """

    host: str
    port: int
    token: str
    reads: Mapping[str, str]
    keys: Sequence[str]
    clients: int
    seconds: float


@dataclass(slots=True)
class Load:
    """What the connections met: kind to latencies in seconds, and errors by status."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)


async def read_for(plan: Plan) -> Load:
    """Ask on all connections at a time, for the plan's seconds."""
    load, until = Load({kind: [] for kind in plan.reads}), time.perf_counter() + plan.seconds
    await asyncio.gather(*(_read(plan, load, until, seed) for seed in range(plan.clients)))
    return load


async def _read(plan: Plan, load: Load, until: float, seed: int) -> None:
    chance, kinds = random.Random(seed), sorted(plan.reads)
    while time.perf_counter() < until:
        try:
            reader, writer = await asyncio.open_connection(plan.host, plan.port)
            try:
                while time.perf_counter() < until:
                    kind = chance.choice(kinds)
                    path = plan.reads[kind].format(quote(chance.choice(plan.keys), safe=""))
                    begun = time.perf_counter()
                    writer.write(_request(plan, path))
                    status = await _answer(reader)
                    if status == "200":
                        load.latencies[kind].append(time.perf_counter() - begun)
                    else:
                        load.errors[status] += 1
            finally:
                writer.close()
        except (OSError, EOFError):
            load.errors["broken"] += 1
            await asyncio.sleep(0.1)


def _request(plan: Plan, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {plan.host}:{plan.port}\r\n"
        f"Authorization: Bearer {plan.token}\r\n\r\n"
    ).encode()


async def _answer(reader: asyncio.StreamReader) -> str:
    """Read one answer; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next((int(line[len(_LENGTH) :]) for line in lines if line.startswith(_LENGTH)), 0)
    await reader.readexactly(length)
    return lines[0].split(b" ")[1].decode()


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
