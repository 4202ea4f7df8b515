"""A wire between a service and its database that a test can delay, stall, strand and cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

__all__ = ["Wire"]

CHUNK_BYTES = 1 << 16


class Wire:
    """Listens on a TCP port and forwards to a socket file.

    Attributes:
        port: Where it listens.
        delay_seconds: Before each piece of data goes on, either way.
        down: New connections are refused.
        answers: Pieces of data that came from the other end.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.delay_seconds, self.down, self.answers = 0.0, False, 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._stranded: set[socket.socket] = set()
        self._flows, self._closed = threading.Event(), threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Break every connection, in the middle of whatever it carries."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """From now on take what comes, of new connections too, and hand nothing on."""
        self._flows.clear()

    def flow(self) -> None:
        """Hand on what was held back by `stall`, however late."""
        self._flows.set()

    def strand(self) -> None:
        """Take what comes over the connections of now, and never hand it on; others work."""
        with self._lock:
            self._stranded |= self._open

    def close(self) -> None:
        """Stop listening and break everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing it would not wake its thread
        self._accepting.join()
        self._listener.close()
        self._closed.set()
        self._flows.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                if self.down:
                    raise ConnectionRefusedError
                far.connect(self._target)
            except OSError:
                near.close()
                far.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(CHUNK_BYTES):
                with self._lock:
                    self.answers += one.family == socket.AF_UNIX
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                self._flows.wait()
                if one in self._stranded:
                    self._closed.wait()
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {one, other}
            self._stranded -= {one, other}
        # The other direction may still be in recv: closed by the last of both.
        with suppress(OSError):
            one.close()
