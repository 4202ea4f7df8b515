"""Masks for secrets, so that none appears in a message, a listing or a command line.

>>> mask_credentials("s3a://user:secret@bucket/x?sig=abc")
's3a://user:********@bucket/x?sig=********'
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["MASK", "SECRET_NAME", "mask_credentials", "mask_database_url"]

MASK = "********"
SECRET_NAME = re.compile(r"(?i)secret|passw|token|credential|accesskey|(^|[._-])key([._-]|$)")
"""Found in the names of settings whose values are secret."""

_USER_INFO = re.compile(r"(://)([^/?#\s]*)@")
_PLAIN_USER = re.compile(r"[A-Za-z][A-Za-z_-]{0,15}")
_QUERY_SECRET = re.compile(
    r"(?i)([?&;][^=&;\s]*(?:secret|passw|token|credential|key|sig)[^=&;\s]*=)[^&;#\s]+"
)


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


def _masked_user(found: re.Match[str]) -> str:
    """Keep a user name before a password; without a password it may itself be a token."""
    user, colon, _ = found[2].partition(":")
    return f"{found[1]}{user}:{MASK}@" if colon else f"{found[1]}{_alone(user)}@"


def _alone(user: str) -> str:
    return user if _PLAIN_USER.fullmatch(user) else MASK
