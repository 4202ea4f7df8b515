"""Random secrets, their digests (see the README), and the mask for tokens in texts."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from dataclasses import dataclass
from typing import Any

from cbp.errors.masks import MASK

TOKEN_START = "cbp_"
"""Prefix of every named token, which scanners for leaked secrets look for."""

MARK_LENGTH = 16
_SECRET_BYTES = 32
_TOKEN = re.compile(r"(cbp_[a-z0-9]{8}_)[A-Za-z0-9_-]{8,}")
_PROVIDER_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*")
_SECRET = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[A-Z0-9_-]*[a-z])(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"
)
"""Secrets of `new_secret`: links, cookies, the admin's token. Digests have no capitals."""
_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token: `text` is shown once, `prefix` and `sha256` are kept."""

    text: str
    prefix: str
    sha256: str

    @classmethod
    def make(cls) -> NewToken:
        """Return a token of 256 random bits after a prefix that may be shown."""
        prefix = TOKEN_START + new_id()
        text = f"{prefix}_{new_secret()}"
        return cls(text, prefix, digest(text))

    def __repr__(self) -> str:
        """Return the token without its secret."""
        return f"NewToken({self.prefix})"


def new_secret() -> str:
    """Return 256 random bits as text for URLs and cookies."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def new_id() -> str:
    """Return a short random name that is not a secret."""
    return "".join(secrets.choice(_LETTERS) for _ in range(8))


def digest(text: str) -> str:
    """Return the SHA-256 of a secret, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def mark_of(sha256: str) -> str:
    """Return the beginning of a digest, which distinguishes a secret from its successor."""
    return sha256[:MARK_LENGTH]


def is_provider_token(text: str) -> bool:
    """Return whether a text has the form of a signed token of an identity provider (a JWT)."""
    return text.count(".") == 2 and not text.startswith(TOKEN_START)


def mask_tokens(value: Any) -> Any:
    """Mask text that looks like a credential in a JSON value, such as a pasted token."""
    if isinstance(value, str):
        value = _PROVIDER_TOKEN.sub(MASK, value)
        return _SECRET.sub(MASK, _TOKEN.sub(rf"\1{MASK}", value))
    if isinstance(value, dict):
        return {name: mask_tokens(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mask_tokens(item) for item in value]
    return value
