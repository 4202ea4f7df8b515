"""Starts readers, passes connections to them, and restarts those that end.

Unless an operator has set their number, they start only once clients send so many requests that the
service's own process would be busy for most of each second. Until then they would only use memory.

A reader gets connections once it has reported that it is ready. It reports every second that it is
alive; a silent one is killed. A reader that ends, for whatever reason, is restarted after a pause,
which grows. While none is ready, the service serves all connections itself.

Guaranteed: a reader ends with the service, also if the service is killed, since the kernel signals
the reader when the pipe `alive` is closed (tests/system/test_readers.py).
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import structlog

import controller
from cbp.errors import CbpError, DefinitionError, Mistake
from cbp.model.schedule.backoff import Backoff
from controller.api.requests.request_counts import RequestCounts
from controller.server.readers.channel import Channel, Message
from controller.settings import Settings

READERS_MAX = 4
"""Maximum number of readers, unless an operator asks for more."""

ASKED_MIN = 200
"""Readers are started once the service itself answers this many requests in one second."""

START_SECONDS = 120.0
"""Longest time until a reader is ready."""
SILENT_SECONDS = 10.0
"""Longest time without a message from a ready reader."""
STOP_SECONDS = 5.0
"""Longest time for readers to finish their requests."""
STEADY_SECONDS = 60.0
"""A reader that ran for longer than this is restarted without a longer pause."""
AGAIN = Backoff((0.1, 1.0), 30.0)
"""Pauses before a reader is restarted."""

_CODE = "import sys; sys.path.append({path!r}); from {module} import main; main({fds})"
_MODULE = "controller.server.readers.reader_process"

_log = structlog.get_logger(__name__)

Adopt = Callable[[socket.socket, bytes], Coroutine[Any, Any, None]]


def readers_count(settings: Settings, *, cores: int, linux: bool = True) -> int:
    """Return how many readers a service has, from its start or once they are needed.

    Raises `DefinitionError` (rule `readers_without_tls`) if the settings have readers and TLS.
    """
    if settings.tls_cert is not None:
        if settings.readers:
            message = (
                "CBP_READERS cannot be combined with TLS of the service; unset CBP_READERS, or "
                "let a proxy in front of the service terminate TLS"
            )
            raise DefinitionError(Mistake("readers_without_tls", "readers", message))
        return 0
    if not linux:
        return 0
    if settings.readers is not None:
        return settings.readers
    return min(READERS_MAX, max(1, cores - 1))


@dataclass(slots=True, eq=False)
class _Reader:
    """One reader: its process, our end of its channel, and the time of its last message."""

    place: int
    process: subprocess.Popen[bytes]
    channel: Channel
    alive: int
    begun: float
    heard: float
    ready: bool = False


class ReaderSupervisor:
    """The readers of one service; all methods are called in the loop of its server.

    Args:
        changes: Descriptor of the count of ended tokens and sessions; it stays open.
        counts: Counts of requests, to which those of readers are added.
        describe: Returns a part of the present state of the service; called in threads.
    """

    _loop: asyncio.AbstractEventLoop
    _adopt: Adopt

    def __init__(
        self,
        settings: Settings,
        *,
        count: int,
        changes: int,
        counts: RequestCounts,
        describe: Callable[[bytes], bytes],
    ) -> None:
        self._settings, self._changes, self._counts = settings, changes, counts
        self._describe = describe
        self._failures = [0] * count
        self._readers: dict[int, _Reader] = {}
        self._turn = self._asked = 0
        self._stopped = True
        self._waits = settings.readers is None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> Sequence[int]:
        """Process ids of the readers that get connections."""
        return [one.process.pid for one in self._readers.values() if one.ready]

    def start(self, adopt: Adopt) -> None:
        """Start all readers, or wait until they are needed; `adopt` serves what they pass back."""
        self._loop, self._adopt, self._stopped = asyncio.get_running_loop(), adopt, False
        if not self._waits:
            self._begin_all()
        self._loop.call_later(1.0, self._look)

    def pass_on(self, connection: int, read: bytes) -> bool:
        """Pass a connection to the next reader; return whether a reader accepted it."""
        ready = [one for _, one in sorted(self._readers.items()) if one.ready]
        for _ in ready:
            self._turn += 1
            if ready[self._turn % len(ready)].channel.send(b"C", read, connection):
                return True
        self._asked += 1
        return False

    async def stop(self) -> None:
        """End all readers: they finish their requests, and are killed if that takes too long."""
        self._stopped = True
        readers, self._readers = list(self._readers.values()), {}
        for one in readers:
            one.ready = False
            one.process.terminate()
        clock = asyncio.get_running_loop().time
        until = clock() + STOP_SECONDS
        while clock() < until and any(one.process.poll() is None for one in readers):
            await asyncio.sleep(0.02)
        for one in readers:
            self._end(one)

    def _begin_all(self) -> None:
        self._waits = False
        for place in range(len(self._failures)):
            self._begin(place)

    def _begin(self, place: int) -> None:
        if self._stopped:
            return
        now = self._loop.time()
        try:
            process, channel, alive, questions = self._launch()
        except OSError as error:
            _log.warning("reader.not_started", place=place, reason=str(error))
            self._begin_again(place, now)
            return
        reader = _Reader(place, process, channel, alive, now, now)
        assert process.stdin is not None, "it is a pipe"
        with suppress(OSError), process.stdin:
            process.stdin.write(pickle.dumps(self._settings))
        self._readers[place] = reader
        threading.Thread(
            target=_answer, args=(questions, self._describe), name="reader", daemon=True
        ).start()
        self._loop.add_reader(channel.fileno(), self._listen, reader)

    def _launch(self) -> tuple[subprocess.Popen[bytes], Channel, int, Connection]:
        """Start a process; return it with our ends of its channel, `alive` and its questions."""
        with ExitStack() as ours, ExitStack() as theirs:
            channel, end = Channel.pair()
            ours.callback(channel.close)
            theirs.callback(end.close)
            watched, alive = os.pipe()
            ours.callback(os.close, alive)
            theirs.callback(os.close, watched)
            questions, asking = Pipe()
            ours.callback(questions.close)
            theirs.callback(asking.close)
            process = _process(end.fileno(), watched, self._changes, asking.fileno())
            ours.pop_all()
            return process, channel, alive, questions

    def _listen(self, reader: _Reader) -> None:
        try:
            while (message := reader.channel.receive()) is not None:
                self._take(reader, message)
        except EOFError:
            self._ended(reader)

    def _take(self, reader: _Reader, message: Message) -> None:
        reader.heard = self._loop.time()
        if message.kind == b"R":
            reader.ready = True
            _log.info("reader.ready", pid=reader.process.pid, place=reader.place)
        elif message.kind == b"T":
            self._counts.merge(message.body)
        elif message.connection is not None:
            task = self._loop.create_task(self._adopt(message.connection, message.body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _look(self) -> None:
        """Start readers if they are needed; kill and restart those that do not answer."""
        if self._stopped:
            return
        asked, self._asked = self._asked, 0
        if self._waits and asked >= ASKED_MIN:
            _log.info("reader.needed", requests=asked, readers=len(self._failures))
            self._begin_all()
        now = self._loop.time()
        for one in list(self._readers.values()):
            patience = SILENT_SECONDS if one.ready else START_SECONDS
            if now - one.heard > patience:
                _log.warning("reader.silent", pid=one.process.pid, seconds=now - one.heard)
                one.ready = False
                one.process.kill()
        self._loop.call_later(1.0, self._look)

    def _ended(self, reader: _Reader) -> None:
        if self._readers.get(reader.place) is not reader:
            return
        del self._readers[reader.place]
        self._end(reader)
        _log.warning("reader.ended", pid=reader.process.pid, status=reader.process.returncode)
        self._begin_again(reader.place, reader.begun)

    def _begin_again(self, place: int, begun: float) -> None:
        steady = self._loop.time() - begun > STEADY_SECONDS
        self._failures[place] = 1 if steady else self._failures[place] + 1
        pause = AGAIN.seconds(self._failures[place])
        self._loop.call_later(pause, self._begin, place)

    def _end(self, reader: _Reader) -> None:
        self._loop.remove_reader(reader.channel.fileno())
        reader.channel.close()
        os.close(reader.alive)
        reader.process.kill()
        reader.process.wait()


def _answer(questions: Connection, describe: Callable[[bytes], bytes]) -> None:
    """Answer a reader's questions until the reader ends."""
    with questions, suppress(OSError, EOFError):
        while True:
            asked = questions.recv_bytes()
            answer = b""  # with which the reader passes the request back
            try:
                answer = describe(asked)
            except CbpError as error:
                _log.warning("reader.not_told", error=error.as_dict())
            except Exception as error:  # whatever it is, the next question is answered
                _log.warning("reader.not_told", exc_info=error)
            questions.send_bytes(answer)


def _process(*fds: int) -> subprocess.Popen[bytes]:
    code = _CODE.format(
        path=str(Path(controller.__file__).parents[1]), module=_MODULE, fds=", ".join(map(str, fds))
    )
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        stdin=subprocess.PIPE,
        pass_fds=fds,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
