"""Tokens, sessions and the audit log: the part of the store that no folder can rebuild.

There are no secrets here, only SHA-256 digests of tokens, sessions and sign-in codes, in hex.
Writes do not name the lease, since every instance signs people in and records its actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Outcome = Literal["done", "failed", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A named token.

    Attributes:
        name: Unique among the kept tokens, including revoked ones.
        scope: `viewer`, `operator` or `admin`.
        prefix: Beginning of the token, to recognise it by; not part of the 256 random bits.
        dataflows: The dataflows to which it is limited; `None` means all.
        expires_at: `None` means never.
        rotated_at: When its secret was last replaced.
        old_sha256, old_until: The previous digest, accepted until that time.
        last_used_at: To the minute.
    """

    name: str
    scope: str
    prefix: str
    sha256: str
    created_by: str
    created_at: datetime
    dataflows: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None
    old_sha256: str = ""
    old_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A browser that is signed in.

    Attributes:
        id: Name of the session for people; unrelated to its secret.
        sha256: Digest of the cookie's value.
        token: The token that it was made from; `""` means the token file.
        mark: Beginning of that token's digest: a session ends when the token is replaced.
        scope: At most that of the token.
        last_seen_at: To the minute.
        agent: The browser's own description of itself.
    """

    id: str
    sha256: str
    token: str
    mark: str
    scope: str
    created_at: datetime
    expires_at: datetime
    last_seen_at: datetime
    address: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRecord:
    """A code that signs a browser in once; `token`, `mark` and `scope` are as in a session."""

    sha256: str
    token: str
    mark: str
    scope: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One request that changed something, or a count of refused requests of the same kind.

    Attributes:
        number: Assigned by the store; rises.
        actor: Owner of the credential: `token-file`, `token:NAME`, or `""` if none was
            recognised; `service` for an action of the service without a request.
        session: The session of the page, which was made from that token; `""` for a program.
        user: What the client says about its user; not verified.
        action: The operationId of the OpenAPI document, such as `dataflows_pause`; `columns_add`.
        target: Further names in the request's path, such as `stage` or `run`.
        count: Number of counted refused requests; otherwise 1.
    """

    number: int = 0
    at: datetime
    actor: str
    scope: str
    action: str
    outcome: Outcome
    status: int
    session: str = ""
    user: str = ""
    dataflow: str = ""
    target: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    error_code: str = ""
    request: str = ""
    address: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries of the audit log to list; `None` means any, and `until` is exclusive."""

    since: datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    action: str | None = None
    dataflow: str | None = None
    outcome: Outcome | None = None
    error_code: str | None = None
