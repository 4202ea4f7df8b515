"""From a credential to a caller.

The token of the token file is compared in this process; named tokens and sessions are looked up by
their digest. The README says for how long an answer is used again, and why.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from cbp.errors import CbpError, NotFoundError
from controller.access.errors import UnauthenticatedError
from controller.access.held_sign_ins import HeldSignIns
from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.access.secret_text import TOKEN_START, digest, is_provider_token, mark_of
from controller.access.sessions import SessionLimits
from controller.store.access import SessionRecord, TokenRecord
from controller.store.base import Store

REMEMBERED_SECONDS = 2.0
USE_NOTED_EVERY = timedelta(minutes=1)
"""How often the last use of a token or a session is written, at most."""

_REMEMBERED_MAX = 1_000
_LENGTH_MAX = 500

_log = structlog.get_logger(__name__)


class Authentication:
    """Returns the caller of a token or a session; see the module header.

    Args:
        token: The token of the token file; only its digest is kept.
        identify_foreign: Returns the caller of a token of the identity provider, if there is one.

    Attributes:
        on_forget: Called when a token or a session was ended, before the request is answered.
    """

    def __init__(
        self,
        store: Store,
        held: HeldSignIns,
        *,
        token: str,
        limits: SessionLimits,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        identify_foreign: Callable[[str], Identity] | None = None,
    ) -> None:
        assert token.strip(), "an empty token would let everybody in"
        self._store, self._held, self._limits = store, held, limits
        self._now, self._monotonic = now, monotonic
        self._identify_foreign = identify_foreign
        self._digest = digest(token)
        self._lock = threading.Lock()
        self._changes = 0
        self.on_forget: Callable[[], None] = lambda: None
        self._remembered: OrderedDict[str, tuple[float, Identity]] = OrderedDict()

    @property
    def admin(self) -> Identity:
        """The caller that has the token file."""
        return Identity(scope=Scope.ADMIN, mark=mark_of(self._digest))

    def recall_token(self, token: str) -> Identity | None:
        """Return the caller of a token, from the token file or memory; `None` if not found."""
        sha256 = digest(token)
        if hmac.compare_digest(sha256, self._digest):
            return self.admin
        return self._recall(sha256, of_session=False)

    def recall_session(self, cookie: str) -> Identity | None:
        """Return the caller of a session from memory; `None` if it is not remembered."""
        return self._recall(digest(cookie), of_session=True)

    def identify_token(self, token: str, *, note_use: bool = True) -> Identity:
        """Return the caller that has a token; `note_use`: record this as a use of the token.

        Raises `UnauthenticatedError`, and `OperatingError` if the store does not answer.
        """
        changes = self._changes
        if (known := self.recall_token(token)) is not None:
            return known
        if self._identify_foreign is not None and is_provider_token(token):
            return self._remember(digest(token), self._identify_foreign(token), changes)
        if not token.startswith(TOKEN_START) or len(token) > _LENGTH_MAX:
            raise UnauthenticatedError("unknown" if token else "missing")
        sha256, now = digest(token), self._now()
        record = self._store.find_token(sha256)
        if record is None:
            raise UnauthenticatedError("unknown")
        if record.revoked_at is not None:
            raise UnauthenticatedError("revoked")
        end = record.expires_at
        if not hmac.compare_digest(record.sha256, sha256):  # the secret before a rotation
            end = record.old_until or now
        if _is_over(end, now):
            raise UnauthenticatedError("expired")
        if note_use:
            self._note_use(record, now)
        caller = Identity(
            scope=Scope(record.scope),
            token=record.name,
            mark=mark_of(sha256),
            dataflows=record.dataflows,
            expires_at=end,
        )
        return self._remember(sha256, caller, changes)

    def identify_session(self, cookie: str, *, note_use: bool = True) -> Identity:
        """Return the caller that has a session; `note_use`: record a use, which prolongs it.

        Raises `UnauthenticatedError`, and `OperatingError` if the store does not answer.
        """
        changes = self._changes
        if (known := self.recall_session(cookie)) is not None:
            return known
        sha256, now = digest(cookie), self._now()
        record = self._held.find_session(sha256) or self._store.find_session(sha256)
        if record is None or self._has_ended(record, now):
            raise UnauthenticatedError("session_ended")
        if note_use:
            self._note_use(record, now)
        caller = Identity(
            scope=Scope(record.scope),
            token=record.token,
            mark=record.mark,
            session=record.id,
            expires_at=record.expires_at,
        )
        return self._remember(sha256, caller, changes)

    def forget(self) -> None:
        """Forget all remembered callers, because a token or a session was ended."""
        with self._lock:
            self._changes += 1
            self._remembered.clear()
            self.on_forget()

    def _recall(self, sha256: str, *, of_session: bool) -> Identity | None:
        with self._lock:
            until, caller = self._remembered.get(sha256, (0.0, None))
        if caller is None or bool(caller.session) is not of_session or until <= self._monotonic():
            return None
        return None if _is_over(caller.expires_at, self._now()) else caller

    def _has_ended(self, session: SessionRecord, now: datetime) -> bool:
        is_idle = session.last_seen_at + self._limits.idle <= now
        return session.expires_at <= now or is_idle or not self._has_token(session, now)

    def _has_token(self, session: SessionRecord, now: datetime) -> bool:
        """Return whether the token from which a session was made is still valid and unchanged."""
        if not session.token:
            return hmac.compare_digest(session.mark, mark_of(self._digest))
        try:
            token = self._store.token(session.token)
        except NotFoundError:
            return False
        same = hmac.compare_digest(session.mark, mark_of(token.sha256))
        return same and token.revoked_at is None and not _is_over(token.expires_at, now)

    def _note_use(self, record: TokenRecord | SessionRecord, now: datetime) -> None:
        try:
            if isinstance(record, TokenRecord):
                if _is_due(record.last_used_at, now):
                    self._store.use_token(record.name, now)
            elif _is_due(record.last_seen_at, now) and not self._held.use_session(record.id, now):
                self._store.use_session(record.id, now)
        except CbpError as error:  # a note; the request itself is served
            _log.warning("access.use_not_noted", error=error.as_dict())

    def _remember(self, sha256: str, caller: Identity, changes: int) -> Identity:
        with self._lock:
            if self._changes != changes:  # it may have been ended during the look-up
                return caller
            self._remembered[sha256] = self._monotonic() + REMEMBERED_SECONDS, caller
            self._remembered.move_to_end(sha256)
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        return caller


def _is_over(end: datetime | None, now: datetime) -> bool:
    return end is not None and end <= now


def _is_due(last: datetime | None, now: datetime) -> bool:
    return last is None or not timedelta() <= now - last < USE_NOTED_EVERY
