"""Exchange of tasks in several processes, by Arrow Flight: a server, and a stream to each task.

    task a: server <-- stream of task b (opened once; a message per round)
            stream --> server of task b

Every task starts a server on a free port of one interface, and learns the addresses of all others
(`Gather`), with a secret of each. Every call needs a token made of all secrets, so calls of other
processes are refused, also those of tasks of another run or of an earlier try. The secrets never
leave the channel by which addresses are gathered. Messages are not encrypted.

A message is one or more batches of a column of bytes: its tables as Arrow streams, one after the
other. The metadata of the first batch is a JSON text that describes them.

Guaranteed: a wait ends when a stream breaks, as it does when the other process ends, and a stream
that is never opened is waited for `START_SECONDS` at most. When the block ends, so do the server
and all streams; a peer that does not close its own is waited for `CLOSE_SECONDS` at most.
Not guaranteed: that a machine that vanishes without closing its connections is noticed here. On a
cluster Spark notices it, and ends the other tasks.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from cbp.clock import MACHINE
from cbp.engine.shuffle.exchange import LOOPBACK, Exchange, Gather, Message, PeerGoneError, Tables

START_SECONDS, CLOSE_SECONDS = 60.0, 10.0
"""How long a task waits for the streams of all others, and until all are closed."""

_POLL_SECONDS = 1.0
_BATCH_BYTES = 64 << 20
_ALIGNMENT = 64
_BYTES = pa.schema([("data", pa.uint8())])
_BREAKS = (flight.FlightError, pa.ArrowException, OSError)
"""The exceptions that Arrow raises when the other end has ended."""

_OPTIONS = [("grpc.enable_http_proxy", 0)]
"""A proxy from the environment must not be between the tasks of one run."""

_ROUND, _DONE, _FAILED, _BROKEN = "round", "done", "failed", "broken"

_log = logging.getLogger(__name__)


class _Token(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # it has no types
    """Refuses every call without the token; an early call waits until the token is known."""

    def __init__(self, start_seconds: float) -> None:
        super().__init__()
        self._seconds, self._token, self._known = start_seconds, b"", threading.Event()

    def know(self, token: str) -> None:
        self._token = _credential(token)
        self._known.set()

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> None:
        """Let a call with the token pass; see `flight.ServerMiddlewareFactory`."""
        del info
        self._known.wait(self._seconds)
        given = "".join(headers.get("authorization", ())).encode()
        if not self._token or not hmac.compare_digest(given, self._token):
            message = "the call does not have the token of this run"
            raise flight.FlightUnauthenticatedError(message)


def _credential(token: str) -> bytes:
    return f"Bearer {token}".encode()


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # it has no types
    """Receives a stream from each other task; tasks in `awaited` have not opened theirs yet.

    `inboxes` has the batches of each that were not read yet; `None` marks the end of its stream.
    """

    def __init__(self, host: str, part: int, tasks: int, start_seconds: float) -> None:
        self.inboxes: dict[int, queue.SimpleQueue[Any]] = {
            other: queue.SimpleQueue() for other in range(tasks) if other != part
        }
        self.awaited = set(self.inboxes)
        self.token = _Token(start_seconds)
        self._lock = threading.Lock()
        super().__init__(f"grpc://{host}:0", middleware={"token": self.token})

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Receive a stream to its end; see `flight.FlightServerBase`."""
        del context, writer
        part = int(descriptor.command)
        with self._lock:
            if part not in self.awaited:
                message = f"task {part} has already opened its stream"
                raise flight.FlightServerError(message)
            self.awaited.discard(part)
        inbox = self.inboxes[part]
        try:
            with suppress(StopIteration, *_BREAKS):
                while True:
                    inbox.put(reader.read_chunk())
        finally:
            inbox.put(None)


class _Stream:
    def __init__(self, address: str, own: int, token: str) -> None:
        self._client = flight.FlightClient(f"grpc://{address}", generic_options=_OPTIONS)
        options = flight.FlightCallOptions(headers=[(b"authorization", _credential(token))])
        descriptor = flight.FlightDescriptor.for_command(str(own).encode())
        self._writer, self._answers = self._client.do_put(descriptor, _BYTES, options)

    def send(self, kind: str, facts: Mapping[str, Any], tables: Tables) -> None:
        """Send a message; raises one of `_BREAKS` if the stream is broken."""
        sink, places = pa.BufferOutputStream(), []
        for name, table in tables.items():
            if table.num_rows:
                sink.write(bytes(-sink.tell() % _ALIGNMENT))
                start = sink.tell()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                places.append([name, start, sink.tell() - start])
        body = sink.getvalue()
        head = {"kind": kind, "facts": dict(facts), "tables": places, "bytes": body.size}
        text = json.dumps(head).encode()
        self._writer.write_with_metadata(_batch(body, 0), text)
        for start in range(_BATCH_BYTES, body.size, _BATCH_BYTES):
            self._writer.write_batch(_batch(body, start))

    def close(self) -> None:
        """End the stream, once the other task has received all of it."""
        with suppress(*_BREAKS):
            self._writer.close()
        with suppress(*_BREAKS):
            self._client.close()


def _batch(body: pa.Buffer, start: int) -> pa.RecordBatch:
    part = body.slice(start, min(_BATCH_BYTES, body.size - start))
    return pa.record_batch([pa.Array.from_buffers(pa.uint8(), part.size, [None, part])], _BYTES)


def _bytes_of(chunk: Any) -> pa.Buffer:
    column = chunk.data.column(0)
    content = column.buffers()[1] or pa.py_buffer(b"")
    return content.slice(column.offset, len(column))


class FlightExchange:
    """The rounds of one task of several; see `Exchange`.

    It waits for streams to be opened until the time `until` of the clock `seconds`.
    """

    def __init__(
        self,
        part: int,
        server: _Server,
        streams: Mapping[int, _Stream],
        *,
        until: float,
        seconds: Callable[[], float],
    ) -> None:
        self.part, self.tasks = part, len(streams) + 1
        self._server, self._streams = server, streams
        self._until, self._seconds = until, seconds
        self._told = False

    def swap(self, facts: Mapping[str, Any], tables: Sequence[Tables]) -> list[Message]:
        """Do a round; see `Exchange.swap`."""
        for part in self._streams:
            self._send(part, _ROUND, facts, tables[part])
        return [
            Message(facts, tables[part]) if part == self.part else self._receive(part)
            for part in range(self.tasks)
        ]

    def finish(self, *, done: bool) -> None:
        """End the last round; see `Exchange.finish`."""
        if not done:
            self.tell_failed(broken=False)
            return
        for part in self._streams:
            self._send(part, _DONE, {}, {})
        for part in self._streams:
            self._receive(part)

    def tell_failed(self, *, broken: bool) -> None:
        """Report once to all others that this task failed; `broken`: a third task is gone."""
        if not self._told:
            self._told = True
            for stream in self._streams.values():
                with suppress(*_BREAKS):
                    stream.send(_BROKEN if broken else _FAILED, {}, {})

    def _send(self, part: int, kind: str, facts: Mapping[str, Any], tables: Tables) -> None:
        try:
            self._streams[part].send(kind, facts, tables)
        except _BREAKS as exc:
            raise PeerGoneError(part, self._is_broken(part)) from exc

    def _is_broken(self, part: int) -> bool:
        """Return whether a task that no longer receives has ended without reporting a failure."""
        with suppress(queue.Empty):
            while (chunk := self._server.inboxes[part].get(timeout=CLOSE_SECONDS)) is not None:
                head = chunk.app_metadata
                if head is not None and json.loads(head.to_pybytes())["kind"] == _FAILED:
                    return False
        return True

    def _receive(self, part: int) -> Message:
        chunk = self._next(part)
        head = json.loads(chunk.app_metadata.to_pybytes())
        if head["kind"] in (_FAILED, _BROKEN):
            raise PeerGoneError(part, head["kind"] == _BROKEN)
        pieces = [_bytes_of(chunk)]
        while (size := sum(piece.size for piece in pieces)) < head["bytes"]:
            pieces.append(_bytes_of(self._next(part)))
        assert size == head["bytes"], "a message has as many bytes as its header says"
        body = pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))
        tables = {
            name: pa.ipc.open_stream(body.slice(start, length)).read_all()
            for name, start, length in head["tables"]
        }
        return Message(head["facts"], tables)

    def _next(self, part: int) -> Any:
        while True:
            try:
                chunk = self._server.inboxes[part].get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if part in self._server.awaited and self._seconds() > self._until:
                    raise PeerGoneError(part, True) from None
                continue
            if chunk is None:
                raise PeerGoneError(part, True)
            return chunk


@contextmanager
def connected(
    part: int,
    tasks: int,
    gather: Gather,
    *,
    host: str = LOOPBACK,
    start_seconds: float = START_SECONDS,
    seconds: Callable[[], float] = MACHINE.seconds,
) -> Iterator[Exchange]:
    """Connect a task with all others until the block ends; `PeerGoneError` if one is late.

    If the block raises, the other tasks learn that this one has failed. The server listens only at
    `host`, an address of this machine at which all others reach it.
    """
    place = f"[{host}]" if ":" in host else host
    server = _Server(place, part, tasks, start_seconds)
    streams: dict[int, _Stream] = {}
    try:
        secret, address = secrets.token_hex(16), f"{place}:{server.port}"
        told = [json.loads(text) for text in gather(json.dumps([address, secret]))]
        token = hashlib.sha256("".join(its for _, its in told).encode()).hexdigest()
        server.token.know(token)
        for other, (its, _) in enumerate(told):
            if other != part:
                try:
                    streams[other] = _Stream(its, part, token)
                except _BREAKS as exc:
                    raise PeerGoneError(other, True) from exc
        until = seconds() + start_seconds
        exchange = FlightExchange(part, server, streams, until=until, seconds=seconds)
        try:
            yield exchange
        except PeerGoneError as gone:
            exchange.tell_failed(broken=gone.broken)
            raise
        except Exception:
            exchange.tell_failed(broken=False)
            raise
    finally:
        _close(server, streams.values())


def _close(server: _Server, streams: Any) -> None:
    """End the server and all streams; wait only briefly for a peer that keeps its own open."""

    def close() -> None:
        for stream in streams:
            stream.close()
        server.shutdown()

    closing = threading.Thread(target=close, name="cbp-exchange", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    if closing.is_alive():
        _log.warning("a task of the same run keeps its stream open; this task continues")
