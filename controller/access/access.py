"""The access control of a service as one value, and its periodic work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from cbp.clock import MACHINE
from cbp.errors import CbpError
from controller.access.audit import Audit
from controller.access.authentication import Authentication
from controller.access.held_sign_ins import HeldSignIns
from controller.access.oidc import provider_tokens
from controller.access.rate_limits import Attempts
from controller.access.sessions import SessionLimits, Sessions
from controller.access.tokens import Tokens
from controller.settings import Settings
from controller.store.base import Store

FLUSH_SECONDS = 60.0
"""Time between two entries of the audit log that count refused requests."""

FORGET_SECONDS = 600.0
"""Time between two removals of expired credentials."""

STORE_SECONDS = 15.0
"""Time between two attempts to store held sign-ins."""

_log = structlog.get_logger(__name__)


class Access:
    """Tokens, sessions and the audit log over one store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        now: Callable[[], datetime] = MACHINE.now,
        monotonic: Callable[[], float] = MACHINE.seconds,
    ) -> None:
        self._store, self._now, self._monotonic = store, now, monotonic
        self._idle = timedelta(minutes=settings.session_idle_minutes)
        self._keep = timedelta(days=settings.keep_audit_days)
        limits = SessionLimits(timedelta(hours=settings.session_hours), self._idle)
        self._held = HeldSignIns()
        provider = provider_tokens(settings, monotonic)
        self.authentication = Authentication(
            store,
            self._held,
            token=settings.ensure_token(),
            limits=limits,
            now=now,
            monotonic=monotonic,
            identify_foreign=None if provider is None else provider.identify,
        )
        self.tokens = Tokens(store, now, self._forget_ended)
        self.sessions = Sessions(store, self._held, now, limits, self.authentication.forget)
        self.audit = Audit(store, now, keep=self._keep, rows_max=settings.audit_rows_max)
        self.attempts = Attempts(monotonic)
        self._flush_at = monotonic() + FLUSH_SECONDS
        self._forget_at = self._store_at = monotonic()

    def do_due_work(self) -> None:
        """Write counts of refusals, store held sign-ins, remove expired credentials, if due.

        Called often; a failure is logged, and retried at the next call.
        """
        now = self._monotonic()
        try:
            if now >= self._store_at:
                self._store_at = now + STORE_SECONDS
                self.sessions.store_held()
            if now >= self._flush_at:
                self._flush_at = now + FLUSH_SECONDS
                self.audit.flush()
            if now >= self._forget_at:
                self._forget_at = now + FORGET_SECONDS
                self._forget()
        except CbpError as error:
            _log.warning("access.upkeep_failed", error=error.as_dict())

    def _forget_ended(self) -> None:
        self._held.drop_codes()
        self.authentication.forget()

    def _forget(self) -> None:
        now = self._now()
        self._store.forget_access(now, before=now - self._keep, seen_before=now - self._idle)
        if self.audit.forget():  # there may be more than one transaction removes
            self._forget_at = self._monotonic()
