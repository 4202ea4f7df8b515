"""Codes and sessions that the database could not store, since its disk is full (see the README).

They are held in the memory of this process: other instances do not know them, and they end with it.

Guaranteed: only one of two callers gets a held code; there are never more than `HELD_MAX` of each
kind (tests/controller/access/test_held_sign_ins.py).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from controller.store.access import CodeRecord, SessionRecord

HELD_MAX = 20
"""Maximum of held codes, and of held sessions; a further one ends the oldest."""


class HeldSignIns:
    """See the module header; every method can be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._codes: OrderedDict[str, CodeRecord] = OrderedDict()
        self._sessions: OrderedDict[str, SessionRecord] = OrderedDict()

    def add_code(self, code: CodeRecord) -> None:
        """Hold a code."""
        with self._lock:
            self._codes[code.sha256] = code
            while len(self._codes) > HELD_MAX:
                self._codes.popitem(last=False)

    def take_code(self, sha256: str) -> CodeRecord | None:
        """Remove a code and return it; `None` if it is not held."""
        with self._lock:
            return self._codes.pop(sha256, None)

    def drop_codes(self) -> None:
        """Forget all codes, because a token was ended that may have made them."""
        with self._lock:
            self._codes.clear()

    def add_session(self, session: SessionRecord) -> None:
        """Hold a session."""
        with self._lock:
            self._sessions[session.sha256] = session
            while len(self._sessions) > HELD_MAX:
                self._sessions.popitem(last=False)

    def find_session(self, sha256: str) -> SessionRecord | None:
        """Return the session with this digest; `None` if it is not held."""
        with self._lock:
            return self._sessions.get(sha256)

    def sessions(self) -> list[SessionRecord]:
        """Return the held sessions, newest first."""
        with self._lock:
            return list(reversed(self._sessions.values()))

    def use_session(self, id_: str, at: datetime) -> bool:
        """Set when a session was last used; return whether it is held."""
        with self._lock:
            for sha256, session in self._sessions.items():
                if session.id == id_:
                    self._sessions[sha256] = replace(session, last_seen_at=at)
                    return True
        return False

    def end_session(self, id_: str) -> bool:
        """Forget a session; return whether it was held."""
        with self._lock:
            held = [sha256 for sha256, one in self._sessions.items() if one.id == id_]
            for sha256 in held:
                del self._sessions[sha256]
        return bool(held)

    def move(self, store: Callable[[SessionRecord], None], end: Callable[[str], object]) -> None:
        """Store the held sessions, oldest first, and stop holding them.

        If `store` raises, the others stay held. `end` ends a stored session that was ended here
        while it was being stored.
        """
        for session in reversed(self.sessions()):
            store(session)
            if not self.end_session(session.id):
                end(session.id)
