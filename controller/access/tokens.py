"""Named tokens: made, listed, rotated, revoked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from cbp.errors import AlreadyExistsError
from controller.access.errors import TokenEndedError, TokensTooManyError
from controller.access.identity import TOKEN_FILE
from controller.access.scopes import Scope
from controller.access.secret_text import NewToken
from controller.store.access import TokenRecord
from controller.store.base import Store
from controller.store.records import Page

TOKENS_MAX = 500
"""Most named tokens, including those that were revoked lately."""


class Tokens:
    """See the module header.

    Args:
        now: The machine's clock, since an expiry is a calendar date.
        on_change: Called after a token was rotated or revoked.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self.now, self._on_change = store, now, on_change

    def create(
        self,
        name: str,
        scope: Scope,
        *,
        by: str,
        life: timedelta | None,
        dataflows: tuple[str, ...] | None = None,
    ) -> tuple[TokenRecord, NewToken]:
        """Make a token; only the returned value has its secret text.

        Without a life it is valid until it is revoked; without dataflows it may touch all.
        Raises `AlreadyExistsError`, `TokensTooManyError`.
        """
        if name == TOKEN_FILE:
            raise AlreadyExistsError(kind="token", name=name)
        if len(self._store.tokens(limit=TOKENS_MAX).items) >= TOKENS_MAX:
            raise TokensTooManyError(TOKENS_MAX)
        made, now = NewToken.make(), self.now()
        record = TokenRecord(
            name=name,
            scope=scope.value,
            prefix=made.prefix,
            sha256=made.sha256,
            dataflows=dataflows,
            created_by=by,
            created_at=now,
            expires_at=None if life is None else now + life,
        )
        self._store.add_token(record)
        return record, made

    def list(self, *, cursor: str | None, limit: int) -> Page[TokenRecord]:
        """List tokens, newest first."""
        return self._store.tokens(cursor=cursor, limit=limit)

    def rotate(self, name: str, *, overlap: timedelta) -> tuple[TokenRecord, NewToken]:
        """Give a token a new secret and its full life again; sessions made from it end.

        For the time `overlap` the old secret is accepted, too, but no longer than it was before.
        Raises `NotFoundError`, `TokenEndedError`.
        """
        while True:
            old, now = self._store.token(name), self.now()
            if old.revoked_at is not None:
                raise TokenEndedError(name)
            made, ends_old = NewToken.make(), now + overlap
            end: datetime | None = None
            if old.expires_at is not None:
                end = now + (old.expires_at - (old.rotated_at or old.created_at))
                ends_old = min(ends_old, old.expires_at)
            new = replace(
                old,
                prefix=made.prefix,
                sha256=made.sha256,
                rotated_at=now,
                expires_at=end,
                old_sha256=old.sha256 if overlap else "",
                old_until=ends_old if overlap else None,
            )
            # Otherwise it was rotated or revoked meanwhile, perhaps by another instance.
            if self._store.replace_token(new, instead_of=old.sha256):
                self._on_change()
                return new, made

    def revoke(self, name: str) -> TokenRecord:
        """End a token, and the sessions made from it, at once (idempotent)."""
        while (old := self._store.token(name)).revoked_at is None:
            new = replace(old, revoked_at=self.now())
            if self._store.replace_token(new, instead_of=old.sha256):
                self._on_change()
                return new
        return old
