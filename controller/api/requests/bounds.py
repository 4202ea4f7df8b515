"""Bounds of every request body: its size, and how long a client may send nothing or only trickle.

They apply before any route, so that a new route has them without declaring them. A route for
uploads is recognised by its path and has its own bound, for a stream that is never held in memory.
A body of exactly the limit is accepted; one byte more is refused, whether or not the client
announced its length. A client that sends nothing for a while, or only trickles, holds no thread
forever: its request is ended. The time that the route takes between two pieces does not count.

Guaranteed: tests/controller/api/requests/test_bounds.py, in simulated seconds.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from controller.api.answers.request_errors import BodyTooLargeError, ClientTooSlowError

BYTES_PER_SECOND_MIN = 1024
"""A client that is slower than this is treated like one that sends nothing."""

_UPLOADS = re.compile(
    r"/api/v1/dataflows/[^/]+/sources/[^/]+/"
    r"(files|replacements(/preview)?|quarantine/[^/]+/readmit)/?\Z"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of request bodies.

    Attributes:
        body_bytes_max: Largest body of a route that reads it whole.
        upload_bytes_max: Largest upload.
        idle_seconds: How long a client may send nothing in the middle of a body.
    """

    body_bytes_max: int
    upload_bytes_max: int
    idle_seconds: float

    def bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` function that enforces the bounds on a request's body.

        Raises:
            BodyTooLargeError: If the client announces more than the limit; the returned function
                raises it if more arrives.
        """
        upload = scope["method"] == "POST" and _UPLOADS.match(scope["path"])
        most = self.upload_bytes_max if upload else self.body_bytes_max
        setting = "CBP_UPLOAD_BYTES_MAX" if upload else "CBP_BODY_BYTES_MAX"
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and len(announced) <= 20 and int(announced) > most:
            raise BodyTooLargeError(most, setting=setting)
        total, waited, complete = 0, 0.0, False

        async def read() -> Message:
            nonlocal total, waited, complete
            if complete:
                return await receive()
            clock = asyncio.get_running_loop().time
            began = clock()
            try:
                message = await asyncio.wait_for(receive(), self.idle_seconds)
            except TimeoutError as error:
                raise _too_slow(self.idle_seconds) from error
            waited += clock() - began
            total += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if total > most:
                raise BodyTooLargeError(most, setting=setting)
            if not complete and waited > self.idle_seconds + total / BYTES_PER_SECOND_MIN:
                raise _too_slow(self.idle_seconds)
            return message

        return read


def _too_slow(idle_seconds: float) -> ClientTooSlowError:
    return ClientTooSlowError(idle_seconds, bytes_per_second_min=BYTES_PER_SECOND_MIN)
