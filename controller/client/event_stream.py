"""Server-sent events, as a client reads them: messages out of lines, and a stream that comes again.

Source: the HTML standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cbp.client.errors import ServiceUnreachableError
from cbp.clock import MACHINE
from controller.client.service_client import ServiceClient

RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream.

    Attributes:
        id: The last id of the stream; `""` if there is none yet.
        data: `None` if the message only changed the id.
    """

    event: str
    id: str
    data: Any = None


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """Yield the messages of a stream; an incomplete last message is dropped."""
    id_, event, data = "", "message", list[str]()
    for line in lines:
        if not line:
            yield Message(event, id_, json.loads("\n".join(data)) if data else None)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            id_ = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


def follow_events(
    service: ServiceClient,
    *,
    after: str | None = None,
    dataflow: str | None = None,
    wait: Callable[[float], object] = MACHINE.wait,
) -> Generator[Message, None, None]:
    """Yield `changed` and `reset` forever; reconnects with the last id whenever a stream ends.

    Raises:
        ServiceUnreachableError: If the service cannot be reached at first; later it waits for
            the service.
        ServiceProblemError: If it refuses.
    """
    began = False
    while True:
        try:
            with service.stream_lines("events", after=after, dataflow=dataflow) as lines:
                began = True
                for message in messages(lines):
                    after = message.id or after
                    if message.event in ("changed", "reset"):
                        yield message
        except ServiceUnreachableError:
            if not began:
                raise
        wait(RETRY_SECONDS)
