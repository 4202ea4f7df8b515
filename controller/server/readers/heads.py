"""Which requests a reader serves: decided by the head alone, before any of it is used.

A reader serves a GET without a body, whose path meets a marked route. Everything else, and all that
is not exactly what browsers and HTTP libraries send, is left to the service, which gets the same
bytes. So two processes never read one request in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote

HEAD_BYTES_MAX = 64 * 1024
"""A longer head is left to the service, which refuses it."""

_END = re.compile(rb"\n\r?\n")
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.1\r\n")
_MORE_THAN_A_HEAD = re.compile(
    rb"\n[ \t]|\n(?:content-length|transfer-encoding|expect|upgrade|te|trailer)[ \t]*:", re.I
)
"""Headers that announce a body or another protocol, and lines that go on."""


def head_length(received: bytes) -> int:
    """Return the length of the head that these bytes begin with; 0 if it is not complete."""
    found = _END.search(received)
    return 0 if found is None else found.end()


class HeadFilter:
    """Knows what a reader serves.

    Args:
        is_served: Returns it for a path.
    """

    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served = is_served

    def serves(self, head: bytes) -> bool:
        """Return whether a reader serves the request with this complete head."""
        request = _REQUEST.match(head)
        if request is None or not head.endswith(b"\r\n\r\n") or _MORE_THAN_A_HEAD.search(head):
            return False
        path, _, _ = request[1].partition(b"?")
        return b"#" not in request[1] and self._is_served(unquote(path.decode("ascii")))
