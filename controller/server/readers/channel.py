"""Messages between the service process and a reader; a message can carry a connection.

The channel is a pair of sockets without a name, which only these two processes have. A connection
is carried as its file descriptor, so the receiver has the client's own socket: it sees the client's
address, and all that the client sends later. A message arrives complete, or not at all.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

Kind = Literal[b"C", b"B", b"R", b"T"]
"""C: a connection; B: a connection passed back, with the bytes read from it; R: the reader is
ready; T: the reader is alive, with the counts of its requests."""

_INLINE_MAX = 32 * 1024
_RECEIVED_MAX = 64 * 1024
_DESCRIPTORS_MAX = 2


@dataclass(frozen=True, slots=True)
class Message:
    """One message; its body is bytes read from the connection, or counts."""

    kind: bytes
    body: bytes
    connection: socket.socket | None


class Channel:
    """One end of a channel, which is a socket of the type SOCK_SEQPACKET; nothing blocks."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    @staticmethod
    def pair() -> tuple[Channel, socket.socket]:
        """Return this process's end, and the other one, which a child inherits."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(ours), theirs

    def fileno(self) -> int:
        """Return the file descriptor on which messages arrive."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end, which the other end notices."""
        self._end.close()

    def send(self, kind: Kind, body: bytes = b"", connection: int | None = None) -> bool:
        """Send a message; return `False` if the other end is too slow or closed.

        A long body is sent in a file without a name. The connection's descriptor stays open here.
        """
        descriptors = [] if connection is None else [connection]
        with suppress(OSError):
            if len(body) <= _INLINE_MAX:
                socket.send_fds(self._end, [kind + body], descriptors)
                return True
            aside = _file_with(body)
            try:
                # The kind in lower case says that the body is in the last descriptor.
                socket.send_fds(self._end, [kind.lower()], [*descriptors, aside])
            finally:
                os.close(aside)
            return True
        return False

    def receive(self) -> Message | None:
        """Return the next message; `None` if there is none yet. Raises `EOFError`."""
        try:
            data, descriptors = _receive(self._end)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        kind, body = data[:1], data[1:]
        if kind.islower():
            with os.fdopen(descriptors.pop(), "rb") as aside:
                aside.seek(0)
                kind, body = kind.upper(), aside.read()
        connection = socket.socket(fileno=descriptors[0]) if descriptors else None
        return Message(kind, body, connection)


def _receive(end: socket.socket) -> tuple[bytes, list[int]]:
    size = struct.calcsize("i") * _DESCRIPTORS_MAX
    data, more, _, _ = end.recvmsg(_RECEIVED_MAX, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in more:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return data, list(descriptors)


def _file_with(content: bytes) -> int:
    descriptor = os.memfd_create("cbp-request", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
