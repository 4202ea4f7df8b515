"""The audit log: who changed what, and how many requests were refused.

Each request that changes something is one entry in the store and one line in the log. An entry is
an `AuditRecord` (`controller.store.access`), made by `controller.api.security.guard`. Refused
requests are only counted, so that nobody can fill the store from outside: per minute one entry for
each actor, address, action and error, at most `KINDS_MAX`. An entry has no body and no secret.
"""

from __future__ import annotations

import contextvars
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import structlog

from cbp.errors import CbpError
from controller.store.access import AuditFilter, AuditRecord
from controller.store.base import Store
from controller.store.records import Page

KINDS_MAX = 100
"""Kinds of refused requests that are counted separately between two flushes."""

OTHERS = "(others)"
"""The address under which all further kinds are counted."""

_SAME = ("actor", "session", "scope", "action", "dataflow", "error_code", "status", "address")
"""Refused requests are of one kind if these fields are equal."""

_BEFORE = ("actor", "session", "scope", "user", "action", "dataflow")
_AFTER = ("reason", "outcome", "status", "error_code", "request", "address")
"""The fields of an entry's line in the log, before and after its target."""

_log = structlog.get_logger(__name__)


class Audit:
    """See the module header."""

    def __init__(
        self, store: Store, now: Callable[[], datetime], *, keep: timedelta, rows_max: int
    ) -> None:
        self._store, self.now = store, now
        self._keep, self._rows_max = keep, rows_max
        self._lock = threading.Lock()
        self._refused: Counter[tuple[Any, ...]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._unstored = 0

    @property
    def refusals(self) -> dict[str, int]:
        """Error code -> requests that this process refused since its start."""
        with self._lock:
            return dict(self._refusals)

    @property
    def unstored(self) -> int:
        """Entries since the start that could not be stored; only the log has them."""
        with self._lock:
            return self._unstored

    def record(self, entry: AuditRecord) -> None:
        """Write one entry. If the store fails, only the log gets it, and the change remains."""
        _write_line(entry)
        try:
            self._store.add_audit([entry])
        except CbpError as error:
            with self._lock:
                self._unstored += 1
            _log.error("audit.not_stored", request=entry.request, error=error.as_dict())

    def count_refusal(self, entry: AuditRecord) -> None:
        """Count a refused request; `flush` writes the counts."""
        kind = attrgetter(*_SAME)(entry)
        with self._lock:
            self._refusals[entry.error_code] += 1
            if kind not in self._refused and len(self._refused) >= KINDS_MAX:
                kind = ("", "", "", "", "", entry.error_code, entry.status, OTHERS)
            self._refused[kind] += 1

    def flush(self) -> None:
        """Store the counts of refused requests since the last flush; a failure keeps the counts."""
        with self._lock:
            counts, self._refused = self._refused, Counter()
        if not counts:
            return
        entries = [
            AuditRecord(
                at=self.now(), outcome="refused", count=count, **dict(zip(_SAME, kind, strict=True))
            )
            for kind, count in counts.items()
        ]
        try:
            self._store.add_audit(entries)
        except CbpError:
            with self._lock:
                self._refused.update(counts)
            raise
        for entry in entries:
            # In an empty context: the fields bound to the request that flushes do not belong here.
            contextvars.Context().run(_write_line, entry)

    def list(self, chosen: AuditFilter, *, cursor: str | None, limit: int) -> Page[AuditRecord]:
        """List entries, newest first; first stores the refusals that this process has counted."""
        self.flush()
        return self._store.audit(chosen, cursor=cursor, limit=limit)

    def forget(self) -> int:
        """Remove entries beyond the limits, at most some thousand; return how many."""
        return self._store.forget_audit(self.now() - self._keep, rows_max=self._rows_max)


def _write_line(entry: AuditRecord) -> None:
    fields = {name: getattr(entry, name) for name in _BEFORE} | dict(entry.target)
    fields |= {name: getattr(entry, name) for name in _AFTER}
    if entry.count > 1:
        fields["count"] = entry.count
    _log.info("audit", **{name: value for name, value in fields.items() if value != ""})
