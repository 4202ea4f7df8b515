"""Idempotency-Key on registrations: a repeated request gets the first one's answer.

What makes a repetition harmless is durable: a key together with the very document
that is registered under this name is answered like the first time, also after a
restart. What this process remembers in addition finds a key that is used for
another request (422) or whose first request is still being served (409).

Source: draft-ietf-httpapi-idempotency-key-header-06.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from controller.api.problems import IdempotencyKeyBusyError, IdempotencyKeyReusedError

__all__ = ["IdempotencyKeys"]

KEYS_MAX = 10_000


class IdempotencyKeys:
    """The keys that this process has seen, the latest `keys_max` of them."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._digests: OrderedDict[str, bytes] = OrderedDict()
        self._busy: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def use(self, key: str | None, body: bytes) -> Iterator[None]:
        """Serve one request under its key; `None` does nothing.

        Raises:
            IdempotencyKeyReusedError: If the key came with another body before.
            IdempotencyKeyBusyError: If the first request is still being served.
        """
        if key is None:
            yield
            return
        self._begin(key, hashlib.sha256(body).digest())
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(key)

    def _begin(self, key: str, digest: bytes) -> None:
        with self._lock:
            if self._digests.get(key, digest) != digest:
                raise IdempotencyKeyReusedError
            if key in self._busy:
                raise IdempotencyKeyBusyError
            self._busy.add(key)
            self._digests[key] = digest
            self._digests.move_to_end(key)
            while len(self._digests) > self._keys_max:
                self._digests.popitem(last=False)
