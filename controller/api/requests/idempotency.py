"""Idempotency-Key: a repeated request gets the first one's answer.

The protection itself is durable: a repetition is recognised by the registered document, the claim
of an upload, or the note of an operation. The memory of this process adds two refusals: of a key
that was used for a different request (422), and of a key whose first request is still being served
(409).

Source: draft-ietf-httpapi-idempotency-key-header-06.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from controller.api.answers.request_errors import IdempotencyKeyBusyError, IdempotencyKeyReusedError

KEYS_MAX = 10_000


class IdempotencyKeys:
    """The newest `keys_max` keys that this process has seen."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._digests: OrderedDict[str, bytes] = OrderedDict()
        self._busy: set[str] = set()
        self._serving: set[str | None] = set()
        self._lock = threading.Lock()

    @contextmanager
    def use(self, key: str | None, body: bytes) -> Iterator[None]:
        """Serve one request under its key, which must be new or have had the same body before.

        `None` is not checked. Raises `IdempotencyKeyReusedError`, `IdempotencyKeyBusyError`.
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

    @contextmanager
    def busy(self, key: str | None) -> Iterator[None]:
        """Serve one request under a key that is stored elsewhere; `None`: no check."""
        with self._lock:
            if key is not None and key in self._serving:
                raise IdempotencyKeyBusyError
            self._serving |= {key} - {None}
        try:
            yield
        finally:
            with self._lock:
                self._serving.discard(key)

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
