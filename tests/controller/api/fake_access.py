"""The part of the store that knows tokens, sessions and the audit log, in memory.

It passes the conformance tests of the real one (`tests/conformance/test_access.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from cbp.errors import AlreadyExistsError, NotFoundError
from controller.store.access import (
    AuditFilter,
    AuditRecord,
    CodeRecord,
    SessionRecord,
    TokenRecord,
)
from controller.store.base import Page
from tests.controller.api.fake_pages import page_of

__all__ = ["FakeAccessStore"]


class FakeAccessStore:
    """What `Store` does for tokens, sessions and the audit log.

    Attributes:
        fails_with: Raised by every method that audits.
        lookups: How often a digest was looked up.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, TokenRecord] = {}
        self._sessions: dict[str, SessionRecord] = {}
        self._codes: dict[str, CodeRecord] = {}
        self._lock = threading.Lock()
        self.entries: list[AuditRecord] = []
        self.numbers = 0
        self.fails_with: Exception | None = None
        self.lookups = 0
        self.uses: list[tuple[str, datetime]] = []

    def add_token(self, token: TokenRecord) -> None:
        if token.name in self._tokens:
            raise AlreadyExistsError(kind="token", name=token.name)
        self._tokens[token.name] = token

    def tokens(self, *, cursor: str | None = None, limit: int = 100) -> Page[TokenRecord]:
        return page_of(list(reversed(self._tokens.values())), cursor, limit)

    def token(self, name: str) -> TokenRecord:
        if name not in self._tokens:
            raise NotFoundError(kind="token", name=name)
        return self._tokens[name]

    def find_token(self, sha256: str) -> TokenRecord | None:
        self.lookups += 1
        for token in self._tokens.values():
            if sha256 in (token.sha256, token.old_sha256):
                return token
        return None

    def replace_token(self, token: TokenRecord, *, instead_of: str) -> bool:
        old = self.token(token.name)
        if old.revoked_at is not None or old.sha256 != instead_of:
            return False
        self._tokens[token.name] = token
        self._sessions = {i: s for i, s in self._sessions.items() if s.token != token.name}
        self._codes = {i: c for i, c in self._codes.items() if c.token != token.name}
        return True

    def use_token(self, name: str, at: datetime) -> None:
        self.uses.append((name, at))
        self._tokens[name] = replace(self._tokens[name], last_used_at=at)

    def add_code(self, code: CodeRecord) -> None:
        self._codes[code.sha256] = code

    def take_code(self, sha256: str) -> CodeRecord | None:
        with self._lock:
            return self._codes.pop(sha256, None)

    def add_session(self, session: SessionRecord, *, most: int) -> None:
        self._sessions[session.id] = session
        while len(self._sessions) > most:
            del self._sessions[next(iter(self._sessions))]

    def find_session(self, sha256: str) -> SessionRecord | None:
        self.lookups += 1
        return next((one for one in self._sessions.values() if one.sha256 == sha256), None)

    def use_session(self, id_: str, at: datetime) -> None:
        self.uses.append((id_, at))
        self._sessions[id_] = replace(self._sessions[id_], last_seen_at=at)

    def sessions(self, *, cursor: str | None = None, limit: int = 100) -> Page[SessionRecord]:
        return page_of(list(reversed(self._sessions.values())), cursor, limit)

    def end_session(self, id_: str) -> bool:
        return self._sessions.pop(id_, None) is not None

    def add_audit(self, entries: Sequence[AuditRecord]) -> None:
        if self.fails_with is not None:
            raise self.fails_with
        for entry in entries:
            self.numbers += 1
            self.entries.append(replace(entry, number=self.numbers))

    def audit(
        self, chosen: AuditFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditRecord]:
        actual = [entry for entry in reversed(self.entries) if _matches(entry, chosen)]
        return page_of(actual, cursor, limit)

    def forget_access(self, now: datetime, *, before: datetime, seen_before: datetime) -> int:
        count = len(self._codes) + len(self._sessions) + len(self._tokens)
        self._codes = {i: c for i, c in self._codes.items() if c.expires_at > now}
        self._sessions = {
            i: s
            for i, s in self._sessions.items()
            if s.expires_at > now and s.last_seen_at >= seen_before
        }
        self._tokens = {
            name: t
            for name, t in self._tokens.items()
            if not any(end is not None and end < before for end in (t.revoked_at, t.expires_at))
        }
        return count - len(self._codes) - len(self._sessions) - len(self._tokens)

    def forget_audit(self, before: datetime, *, rows_max: int) -> int:
        kept = [
            entry
            for entry in self.entries
            if entry.at >= before and entry.number > self.numbers - rows_max
        ]
        gone = len(self.entries) - len(kept)
        self.entries = kept
        return gone


def _matches(entry: AuditRecord, chosen: AuditFilter) -> bool:
    if chosen.since is not None and entry.at < chosen.since:
        return False
    if chosen.until is not None and entry.at >= chosen.until:
        return False
    wanted: dict[str, Any] = {
        name: getattr(chosen, name)
        for name in ("actor", "action", "dataflow", "outcome", "error_code")
    }
    return all(value in (None, getattr(entry, name)) for name, value in wanted.items())
