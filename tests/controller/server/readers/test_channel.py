"""Messages between the service and a reader, with connections and long bodies."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from controller.server.readers.channel import Channel, Message


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Give both ends of a channel."""
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_a_message_arrives_as_it_was_sent(ends: tuple[Channel, Channel]) -> None:
    """In order, either way; nothing is not an end."""
    one, two = ends
    assert two.receive() is None
    assert one.send(b"R")
    assert one.send(b"T", b"counts")
    assert [(m.kind, m.body, m.connection) for m in map(_received, (two, two))] == [
        (b"R", b"", None),
        (b"T", b"counts", None),
    ]
    assert two.send(b"B", b"x")
    assert _received(one).body == b"x"


@pytest.mark.parametrize("length", [0, 1, 40_000, 3_000_000])
def test_a_connection_is_carried_with_all_that_was_read(
    ends: tuple[Channel, Channel], length: int
) -> None:
    """The receiver goes on with it, and the sender's descriptor is its own to close."""
    one, two = ends
    client, server = socket.socketpair()
    read = os.urandom(length)
    with closing(client):
        with closing(server):
            assert one.send(b"B", read, server.fileno())
        message = _received(two)
        assert message.body == read
        assert message.connection is not None
        with message.connection as carried:
            client.sendall(b"more")
            assert carried.recv(10) == b"more"
            carried.sendall(b"answer")
            assert client.recv(10) == b"answer"
        assert client.recv(10) == b""


def test_a_channel_that_is_full_or_gone_takes_nothing(ends: tuple[Channel, Channel]) -> None:
    """The sender gets the error, and does not wait; the receiver sees the end."""
    one, two = ends
    sent = 0
    while one.send(b"T", b"x" * 1000):
        sent += 1
    assert sent > 10
    for _ in range(sent):
        assert _received(two).body == b"x" * 1000
    assert two.receive() is None
    two.close()
    assert not one.send(b"R")
    with pytest.raises(EOFError):
        one.receive()


def _received(end: Channel) -> Message:
    message = end.receive()
    assert message is not None
    return message
