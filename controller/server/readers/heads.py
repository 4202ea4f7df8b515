"""Which requests a reader serves: decided by the head alone, before any of it is used.

A reader serves a GET without a body, whose path meets a marked route. Everything else, and all that
is not exactly what browsers and HTTP libraries send, is left to the service, which gets the same
bytes. So two processes, which parse HTTP by two libraries, never read one request in two ways.

Every head is read in time that grows with its length alone: its sender may be anybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import unquote

HEAD_BYTES_MAX = 64 * 1024
"""A longer head is left to the service, which refuses it."""

_END = re.compile(rb"\n\r?\n")
_REQUEST = re.compile(rb"GET (/[!-~]*) HTTP/1\.1")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_MORE_THAN_A_HEAD = frozenset(
    (b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer")
)
"""Headers that announce a body or another protocol."""

_PATHS_KEPT, _KEPT_LENGTH_MAX = 1024, 256


def head_length(received: bytes) -> int:
    """Return the length of the request head at the start of these bytes; 0 if incomplete."""
    found = _END.search(received)
    return 0 if found is None else found.end()


class HeadFilter:
    """Finds out which requests a reader serves; `is_served` returns it for a path."""

    def __init__(self, is_served: Callable[[str], bool]) -> None:
        self._is_served, self._known = is_served, lru_cache(_PATHS_KEPT)(is_served)

    def serves(self, head: bytes) -> bool:
        """Return whether a reader serves the request with this complete head."""
        first, *lines = head.split(b"\r\n")
        request = _REQUEST.fullmatch(first)
        if request is None or lines[-2:] != [b"", b""] or b"#" in request[1]:
            return False
        path, _, _ = request[1].partition(b"?")
        is_served = self._known if len(path) <= _KEPT_LENGTH_MAX else self._is_served
        if not is_served(unquote(path.decode("ascii"))):
            return False
        hosts = 0
        for line in lines[:-2]:
            name, colon, value = line.partition(b":")
            if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
                return False
            if value[-1:] in (b" ", b"\t"):  # one parser would keep it
                return False
            name = name.lower()
            if name in _MORE_THAN_A_HEAD:
                return False
            hosts += name == b"host"
        return hosts == 1
