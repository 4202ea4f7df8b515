"""Sign-in of the page: codes that work once, the sessions made from them, and their end.

While the disk of the database is full, both are held in the memory of this process instead
(`held_sign_ins.py`), and the sessions are stored once there is room.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cbp.errors import DiskFullError, InvariantError, NotFoundError
from controller.access.errors import CodeRefusedError, ScopeTooLowError, TokenNeededError
from controller.access.held_sign_ins import HeldSignIns
from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.access.secret_text import digest, new_id, new_secret
from controller.store.access import CodeRecord, SessionRecord
from controller.store.base import Store
from controller.store.records import Page

CODE_LIFE = timedelta(minutes=10)
SESSIONS_MAX = 1_000
"""Maximum number of sessions; a further one ends the oldest."""

_AGENT_LENGTH = 200


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a session lasts: `life` at most, and `idle` without a request."""

    life: timedelta
    idle: timedelta


class Sessions:
    """See the module header; `on_change` is called after a session was ended."""

    def __init__(
        self,
        store: Store,
        held: HeldSignIns,
        now: Callable[[], datetime],
        limits: SessionLimits,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._held = store, held
        self._now, self._on_change = now, on_change
        self.limits = limits

    def make_code(
        self, caller: Identity, scope: Scope | None = None, code: str = ""
    ) -> tuple[str, CodeRecord]:
        """Return a sign-in code, which is stored nowhere and works once, and its stored record.

        Args:
            caller: Must have sent a token: a session could renew itself by codes, and never end.
            scope: What the session may do; `None` means what the caller may do.

        Raises `ScopeTooLowError`, and `TokenNeededError` for a session or a limited token.
        """
        scope = scope or caller.scope
        _require_whole_token(caller)
        if not caller.scope.includes(scope):
            raise ScopeTooLowError(scope, caller.scope, "a link of this scope")
        code = code or new_secret()
        record = CodeRecord(
            sha256=digest(code),
            token=caller.token,
            mark=caller.mark,
            scope=scope.value,
            expires_at=self._now() + CODE_LIFE,
        )
        try:
            self._store.add_code(record)
        except DiskFullError:
            self._held.add_code(record)
        return code, record

    def begin(
        self, credential: CodeRecord | Identity, *, address: str, agent: str
    ) -> tuple[str, SessionRecord]:
        """Begin a session from a code that was taken, or from a token that was checked.

        Returns the value of the cookie, which is stored nowhere, and the session. Raises
        `TokenNeededError`.
        """
        if isinstance(credential, Identity):
            _require_whole_token(credential)
        secret, now = new_secret(), self._now()
        record = SessionRecord(
            id=new_id(),
            sha256=digest(secret),
            token=credential.token,
            mark=credential.mark,
            scope=Scope(credential.scope).value,
            created_at=now,
            expires_at=now + self.limits.life,
            last_seen_at=now,
            address=address,
            agent=agent[:_AGENT_LENGTH],
        )
        try:
            self._store.add_session(record, most=SESSIONS_MAX)
        except DiskFullError:
            self._held.add_session(record)
        return secret, record

    def take_code(self, code: str) -> CodeRecord:
        """Use up a code.

        Raises `CodeRefusedError`, and `DiskFullError` if there is no space to mark a stored code
        as used: sign in with a new code, which is held in memory, or with a token.
        """
        sha256 = digest(code)
        record = self._held.take_code(sha256) or self._store.take_code(sha256)
        if record is None or record.expires_at <= self._now():
            raise CodeRefusedError
        return record

    def list(self, *, cursor: str | None, limit: int) -> Page[SessionRecord]:
        """List sessions, newest first; some may have ended since the last upkeep.

        The first page begins with held sessions, in addition to `limit`.
        """
        stored = self._store.sessions(cursor=cursor, limit=limit)
        held = self._held.sessions() if cursor is None else []
        return replace(stored, items=[*held, *stored.items])

    def end(self, id_: str) -> None:
        """End a session at once; raises `NotFoundError` if there is none."""
        if not (self._held.end_session(id_) or self._store.end_session(id_)):
            raise NotFoundError(kind="session", name=id_)
        self._on_change()

    def is_held(self, id_: str) -> bool:
        """Return whether a session ends with this process, since it could not be stored."""
        return any(one.id == id_ for one in self._held.sessions())

    def store_held(self) -> None:
        """Store held sessions if there is space by now; otherwise they stay held."""
        with suppress(DiskFullError):
            self._held.move(self._store_session, self._store.end_session)

    def _store_session(self, record: SessionRecord) -> None:
        with suppress(InvariantError):  # stored by a try whose answer was lost
            self._store.add_session(record, most=SESSIONS_MAX)


def _require_whole_token(caller: Identity) -> None:
    if caller.session:
        why = "a session cannot create a link for another session"
        raise TokenNeededError(why)
    if caller.subject:
        why = "a session cannot be made from a token of the identity provider"
        raise TokenNeededError(why)
    if caller.dataflows is not None:
        why = "the page shows all dataflows, but this token is limited to some of them"
        raise TokenNeededError(why)
