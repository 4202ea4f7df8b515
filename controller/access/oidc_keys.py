"""The signing keys of an identity provider: found by discovery, kept, and renewed on rotation.

A token names the key that signed it. Keys are fetched anew each hour, and when a token names one
that is not known: the provider may have begun to use a new one. Anybody can send tokens with
unknown names, so that happens at most every `REFETCH_SECONDS`, by one thread, while tokens with
known keys go on. A provider that does not answer changes nothing for `KEPT_SECONDS`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import structlog

from cbp.errors import CbpError
from controller.access.errors import IdentityProviderError

__all__ = ["KEPT_SECONDS", "REFETCH_SECONDS", "SigningKeys"]

FRESH_SECONDS = 3600.0
REFETCH_SECONDS = 30.0
KEPT_SECONDS = 24 * 3600.0
KEYS_MAX = 100

K = TypeVar("K")
Fetch = Callable[[str], Mapping[str, Any]]
"""Returns the JSON object at a URL; raises a `CbpError`."""

_log = structlog.get_logger(__name__)


class SigningKeys(Generic[K]):
    """Keys by their names.

    Args:
        issuer: The provider's address, as tokens name it.
        fetch: Asks the provider.
        load: Makes a key of its description; returns `None` for one that signs nothing here.
        monotonic: A clock in seconds that is never set.
    """

    def __init__(
        self,
        issuer: str,
        fetch: Fetch,
        load: Callable[[Mapping[str, Any]], K | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._issuer, self._fetch, self._load, self._monotonic = issuer, fetch, load, monotonic
        self._fetching = threading.Lock()
        self._keys: dict[str, K] = {}
        self._fetched_at = self._tried_at = float("-inf")

    def find(self, name: str) -> K | None:
        """Return the key of a name; `None` if the provider has none.

        Raises:
            IdentityProviderError: If its keys were not read for too long.
        """
        now = self._monotonic()
        wanted = name not in self._keys or now - self._fetched_at >= FRESH_SECONDS
        is_due = now - self._tried_at >= REFETCH_SECONDS
        # Without any keys all wait for the first; later, those that need none go on.
        if wanted and is_due and self._fetching.acquire(blocking=not self._keys):
            try:
                self._refetch()
            finally:
                self._fetching.release()
        if self._monotonic() - self._fetched_at >= KEPT_SECONDS:
            raise IdentityProviderError(self._issuer)
        return self._keys.get(name)

    def _refetch(self) -> None:
        if self._monotonic() - self._tried_at < REFETCH_SECONDS:  # another thread has
            return
        self._tried_at = self._monotonic()
        try:
            keys = self._read()
        except CbpError as error:
            _log.warning("oidc.keys_not_read", issuer=self._issuer, error=error.as_dict())
            return
        self._keys, self._fetched_at = keys, self._monotonic()

    def _read(self) -> dict[str, K]:
        found = self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        address = found.get("jwks_uri")
        if found.get("issuer") != self._issuer:
            raise IdentityProviderError(self._issuer, "its discovery names another issuer")
        if not isinstance(address, str) or not _is_as_safe(address, self._issuer):
            raise IdentityProviderError(self._issuer, "its discovery names no safe jwks_uri")
        described = self._fetch(address).get("keys")
        if not isinstance(described, list):
            raise IdentityProviderError(self._issuer, "its jwks_uri has no keys")
        keys: dict[str, K] = {}
        for one in described[:KEYS_MAX]:
            name = one.get("kid") if isinstance(one, dict) else None
            if isinstance(name, str) and (key := self._load(one)) is not None:
                keys[name] = key
        return keys


def _is_as_safe(address: str, issuer: str) -> bool:
    """Tell whether keys come by TLS, or by what the operator chose for the issuer."""
    return urlsplit(address).scheme in ("https", urlsplit(issuer).scheme)
