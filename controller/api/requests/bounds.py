"""Bounds of every request body: its size, and how long a client may send nothing or only trickle.

They apply before any route, so that a new route has them without declaring them. A route for
uploads is recognised by its path and has its own bound, for a stream that is never held in memory.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from time import monotonic

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from controller.api.answers.request_errors import BodyTooLargeError, ClientTooSlowError

__all__ = ["BODY_SETTING", "BYTES_PER_SECOND_MIN", "UPLOAD_SETTING", "Bounds", "client_too_slow"]

BODY_SETTING, UPLOAD_SETTING = "CBP_BODY_BYTES_MAX", "CBP_UPLOAD_BYTES_MAX"
"""The settings of the largest body and of the largest upload."""

BYTES_PER_SECOND_MIN = 1024
"""A client that is slower than this is treated like one that sends nothing."""

_UPLOADS = re.compile(r"/api/v1/dataflows/[^/]+/sources/[^/]+/(files|quarantine/[^/]+/readmit)/?\Z")


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
        setting = UPLOAD_SETTING if upload else BODY_SETTING
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and len(announced) <= 20 and int(announced) > most:
            raise BodyTooLargeError(most, setting=setting)
        total, waited, complete = 0, 0.0, False

        async def read() -> Message:
            nonlocal total, waited, complete
            if complete:
                return await receive()
            began = monotonic()
            try:
                message = await asyncio.wait_for(receive(), self.idle_seconds)
            except TimeoutError as error:
                raise client_too_slow(self.idle_seconds) from error
            waited += monotonic() - began
            total += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if total > most:
                raise BodyTooLargeError(most, setting=setting)
            if not complete and waited > self.idle_seconds + total / BYTES_PER_SECOND_MIN:
                raise client_too_slow(self.idle_seconds)
            return message

        return read


def client_too_slow(idle_seconds: float) -> ClientTooSlowError:
    """Return the error for a body that came too slowly."""
    return ClientTooSlowError(idle_seconds, bytes_per_second_min=BYTES_PER_SECOND_MIN)
