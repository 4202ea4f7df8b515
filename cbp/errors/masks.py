"""Masks for secrets, so that none appears in a message, a listing or a command line.

>>> mask_credentials("s3a://user:secret@bucket/x?sig=abc")
's3a://user:********@bucket/x?sig=********'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

MASK = "********"
SECRET_NAME = re.compile(r"(?i)secret|passw|token|credential|accesskey|(^|[._-])key([._-]|$)")
"""Matches the names of settings whose values are secret."""

_USER_INFO = re.compile(r"(://)([^/?#\s]*)@")
_PLAIN_USER = re.compile(r"[A-Za-z][A-Za-z_-]{0,15}")
_QUERY_SECRET = re.compile(
    r"(?i)([?&;][^=&;\s]*(?:secret|passw|token|credential|key|sig)[^=&;\s]*=)([^&;#\s]+)"
)
_ANY_USER_INFO = re.compile(r"://(.*)@", re.DOTALL)
"""Like SQLAlchemy, accepts any character in a password."""


class Masker:
    """Masks secrets in JSON values: by the name of a field, in addresses, and by value.

    Secrets of fewer than `length_min` characters are not masked by value: they occur in ordinary
    words, so masking them would make texts unreadable.
    """

    def __init__(self, secrets: Iterable[str], *, length_min: int = 1) -> None:
        # Longest first: a value may be part of another one.
        long_enough = {secret for secret in secrets if len(secret) >= max(1, length_min)}
        self._secrets = sorted(long_enough, key=lambda secret: (-len(secret), secret))

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return str(mask_credentials(text))

    def secrets_in(self, value: Any) -> Any:
        """Return a value without its secrets, found by value only; a tuple stays a tuple."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, MASK)
            return value
        if isinstance(value, dict):
            return {self.secrets_in(name): self.secrets_in(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.secrets_in(item) for item in value]
        if type(value) is tuple:
            return tuple(self.secrets_in(item) for item in value)
        return value

    def value(self, value: Any) -> Any:
        """Return a JSON value without its secrets; a tuple becomes a list."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self.field(name, item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def field(self, name: Any, value: Any) -> Any:
        """Return a field's value without secrets; its name can mark the entire value as secret."""
        if isinstance(value, str) and value and SECRET_NAME.search(str(name)):
            return MASK
        return self.value(value)


_of_process = Masker(())


def keep_secret(secrets: Iterable[str], *, length_min: int = 1) -> None:
    """Leave these values out of every error that this process makes from now on.

    An error of an author's code or of a library can quote an address; it is stored, listed and
    sent, so it is masked when it is made.
    """
    global _of_process
    _of_process = Masker(secrets, length_min=length_min)


def hide_secrets(value: Any) -> Any:
    """Return a value without the secrets given to `keep_secret`."""
    return _of_process.secrets_in(value)


def secrets_of_address(address: str) -> Iterator[str]:
    """Yield the secrets of an address, both as written and decoded.

    >>> list(secrets_of_address("postgresql://cbp:a%20b@host/x?sslpassword=c"))
    ['a%20b', 'a b', 'c']
    """
    if match := _ANY_USER_INFO.search(address):
        user, colon, password = match[1].partition(":")
        secret = password if colon else "" if _PLAIN_USER.fullmatch(user) else user
        yield from _spellings(secret)
    for match in _QUERY_SECRET.finditer(address):
        yield from _spellings(match[2])


def _spellings(secret: str) -> Iterator[str]:
    yield from filter(None, dict.fromkeys((secret, unquote(secret))))


def mask_credentials(value: Any) -> Any:
    """Mask the credentials in a value's URIs: user information and query parameters."""
    if isinstance(value, str):
        value = _USER_INFO.sub(_masked_user, value)
        return _QUERY_SECRET.sub(rf"\1{MASK}", value)
    if isinstance(value, dict):
        return {name: mask_credentials(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mask_credentials(item) for item in value]
    return value


def mask_database_url(url: str) -> str:
    """Mask a database URL; like SQLAlchemy, accept any character in the password."""
    if url.startswith("sqlite"):
        return url
    host = url.partition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]
    _, colon, port = host.rpartition(":")
    if "://" not in url or (colon and not port.isdigit() and not port.endswith("]")):
        return MASK  # an unparsable URL may hold a password anywhere
    masked = re.sub(r"(://)(.*)@", _masked_user, url, flags=re.DOTALL)
    return _QUERY_SECRET.sub(rf"\1{MASK}", masked)


def _masked_user(match: re.Match[str]) -> str:
    """Mask a password, not its user name; without a password, mask a name that may be a token."""
    user, colon, _ = match[2].partition(":")
    return f"{match[1]}{user}:{MASK}@" if colon else f"{match[1]}{_alone(user)}@"


def _alone(user: str) -> str:
    return user if _PLAIN_USER.fullmatch(user) else MASK
