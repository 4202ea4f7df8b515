"""Tokens, sessions and codes for tests of the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from controller.store.access import CodeRecord, SessionRecord, TokenRecord
from tests.conformance.records import at

__all__ = ["FOREVER", "LONG_AGO", "a_code", "a_session", "a_token"]

FOREVER = datetime(9000, 1, 1, tzinfo=UTC)
LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)


def a_token(name: str, **more: Any) -> TokenRecord:
    """Return a token whose digest is made of its name."""
    made = TokenRecord(
        name=name,
        scope="operator",
        prefix="cbp_12345678",
        sha256=f"digest-{name}",
        created_by="token-file",
        created_at=at(0),
    )
    return replace(made, **more)


def a_session(id_: str, **more: Any) -> SessionRecord:
    """Return a session that was made from the token file."""
    made = SessionRecord(
        id=id_,
        sha256=f"digest-{id_}",
        token="",
        mark="0123",
        scope="admin",
        created_at=at(0),
        expires_at=at(1000),
        last_seen_at=at(0),
    )
    return replace(made, **more)


def a_code(sha256: str, **more: Any) -> CodeRecord:
    """Return a code of the token file."""
    made = CodeRecord(sha256=sha256, token="", mark="0123", scope="admin", expires_at=at(1000))
    return replace(made, **more)
