"""How many readers a service has."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import threading
from itertools import islice
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import DefinitionError
from controller.api.requests.request_counts import RequestCounts
from controller.server.readers.supervisor import (
    ASKED_MIN,
    ReaderSupervisor,
    _answer,
    readers_count,
)
from controller.settings import Settings


def test_readers_are_as_many_as_the_machine_can_spare(tmp_path: Path) -> None:
    """One core is left to runs; none where connections cannot be passed; else as asked."""

    def count(cores: int, *, linux: bool = True, **given: Any) -> int:
        return readers_count(Settings(root=tmp_path, **given), cores=cores, linux=linux)

    assert [count(cores) for cores in (1, 2, 3, 4, 5, 6, 64)] == [1, 1, 2, 3, 4, 4, 4]
    assert count(64, engine="local") == 4
    assert (count(1, readers=3), count(64, readers=0)) == (3, 0)
    assert count(1, engine="local", readers=2) == 2
    assert count(64, linux=False, readers=2) == 0


def test_readers_and_tls_are_not_asked_for_together(tmp_path: Path) -> None:
    """The state of an encrypted connection cannot be passed; asking for both is refused."""
    pair: dict[str, Any] = {"tls_cert": tmp_path / "c.pem", "tls_key": tmp_path / "k.pem"}
    assert readers_count(Settings(root=tmp_path, **pair), cores=64) == 0
    with pytest.raises(DefinitionError) as refused:
        readers_count(Settings(root=tmp_path, readers=1, **pair), cores=64)
    assert "readers_without_tls" in str(refused.value.as_dict())


class Begun(ReaderSupervisor):
    """Starts no process, and notes which places would have one."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings, count=2, changes=-1, counts=RequestCounts(), describe=lambda part: part
        )
        self.places: list[int] = []

    def _begin(self, place: int) -> None:
        self.places.append(place)


async def _unused(_connection: socket.socket, _read: bytes) -> None:
    raise AssertionError


def test_readers_start_when_clients_ask_often(tmp_path: Path) -> None:
    """Once, for the requests of a second; an operator who says how many gets them at once."""

    async def go() -> None:
        asked = Begun(Settings(root=tmp_path, readers=2))
        asked.start(_unused)
        assert asked.places == [0, 1]
        needed = Begun(Settings(root=tmp_path))
        needed.start(_unused)
        for requests in (ASKED_MIN - 1, ASKED_MIN - 1):
            assert not any(needed.pass_on(0, b"") for _ in range(requests))
            needed._look()
            assert needed.places == []
        for _ in range(2):
            for _ in range(ASKED_MIN):
                needed.pass_on(0, b"")
            needed._look()
            assert needed.places == [0, 1]
        for one in (asked, needed):
            await one.stop()

    asyncio.run(go())


def test_a_reader_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """Without descriptors no process starts: it counts as a failure, and nothing stays open."""

    async def go() -> None:
        supervisor = ReaderSupervisor(
            Settings(root=tmp_path, readers=1),
            count=1,
            changes=-1,
            counts=RequestCounts(),
            describe=lambda part: part,
        )
        before = os.listdir("/proc/self/fd")
        free = (number for number in range(10_000) if str(number) not in before)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Enough for the channel, but not for the pipe after it.
        resource.setrlimit(resource.RLIMIT_NOFILE, (list(islice(free, 4))[-1], limits[1]))
        try:
            supervisor.start(_unused)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert supervisor._failures == [1]
        assert os.listdir("/proc/self/fd") == before
        await supervisor.stop()

    asyncio.run(go())


def test_a_question_that_fails_ends_no_answers() -> None:
    """A fault of ours in one answer is an empty answer, and the next question is answered."""

    def describe(part: bytes) -> bytes:
        return bytes([100 // len(part)])

    ours, theirs = Pipe()
    thread = threading.Thread(target=_answer, args=(ours, describe), daemon=True)
    thread.start()
    with theirs:
        for part, answer in ((b"", b""), (b"ab", b"2")):
            theirs.send_bytes(part)
            assert theirs.recv_bytes() == answer
    thread.join(60)
