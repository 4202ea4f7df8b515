"""Lease keeper: renews the lease, and knows whether this instance leads; the fence asks it.

    keep()    called by a thread of its own: renew the lease, watch it, or apply for it
    check()   called by `Fence` before every durable effect
    retire()  the lease is lost or given up; `follow()` once no work is under way

`cbp.model.schedule.lease` makes the decisions. A process that alone uses its database leads
without a thread: it holds the lock file, and its term has no end.

Invariants (tests/controller/loop/leadership/test_leadership.py): `check` passes only within the
time that the lease was granted for; the store is fenced with the epoch from the first write of a
term until no work of that term is under way.
"""

from __future__ import annotations

import functools
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.errors import CbpError, LeaseLostError
from cbp.model.schedule.lease import Lease, Role, Standing, Step, Term, next_step, role_of
from controller.store.base import Store

KEEPS_PER_LEASE = 5
"""How often, within the time of a lease, an instance renews the lease or checks it."""

_log = structlog.get_logger(__name__)


def boot_seconds() -> float:
    """Return the seconds since this machine started, including sleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class LeaseKeeper:
    """Takes part in the election for one instance; safe to use from several threads.

    Args:
        on_retire: Called with the reason as soon as the lease is lost; must not block long.
        clock: Returns seconds that never go back; see `boot_seconds`.
    """

    def __init__(
        self,
        *,
        store: Store,
        address: str,
        seconds: float,
        on_change: Callable[[], None] = lambda: None,
        on_retire: Callable[[str], None] = lambda reason: None,
        clock: Callable[[], float] = boot_seconds,
        holder: str = "",
    ) -> None:
        self._store, self._address, self._seconds = store, address, seconds
        self._on_change, self._on_retire, self._clock = on_change, on_retire, clock
        self._holder = holder or secrets.token_hex(8)
        self._lock = threading.Lock()
        self._term: Term | None = None if store.shared else Term(0, math.inf)
        self._retiring = ""
        self._seen, self._seen_until = Lease(), 0.0
        self._not_before = 0.0
        self._complaint = ""

    @property
    def interval_seconds(self) -> float:
        """Seconds between two calls of `keep`."""
        return self._seconds / KEEPS_PER_LEASE

    @property
    def role(self) -> Role:
        """The present role of this instance."""
        with self._lock:
            return role_of(self._term, retiring=bool(self._retiring), now=self._clock())

    @property
    def epoch(self) -> int:
        """The epoch in which this instance leads, or led until it has retired; otherwise 0."""
        with self._lock:
            return self._term.epoch if self._term else 0

    def standing(self) -> Standing:
        """Return the clients' view of leadership."""
        role = self.role
        with self._lock:
            if role is Role.LEADS:
                return Standing(role, self._term.epoch if self._term else 0, self._address)
            fresh = role is Role.FOLLOWS and self._clock() < self._seen_until
            return Standing(role, self._seen.epoch, self._seen.address if fresh else "")

    def check(self) -> None:
        """Raise `LeaseLostError` unless this instance leads at this moment."""
        role = self.role
        if role is not Role.LEADS:
            raise LeaseLostError(self.epoch or None, self.reason(role))

    def reason(self, role: Role) -> str:
        """Return why this instance starts no work, in words."""
        standing = self.standing()
        if role is Role.RETIRES:
            return self._retiring
        if role is Role.UNSURE:
            return (
                "the lease could not be renewed in time; this controller continues once it can "
                "renew the lease"
            )
        if standing.leader:
            return f"the controller at {standing.leader} leads (epoch {standing.epoch})"
        return "no controller is known to lead at the moment"

    def keep(self) -> None:
        """Take or renew the lease if due; after an error of the database, the next call retries."""
        try:
            self._keep()
        except CbpError as error:
            if self._complaint != error.code:
                _log.warning("lease.not_renewed", role=self.role, error=error.as_dict())
            self._complaint = error.code
        else:
            self._complaint = ""

    def begin(self) -> None:
        """Take the lease if it is free; raises errors of the database."""
        if self._store.shared:
            self._keep()
            return
        lease = self._store.take_lease(self._holder, self._address, milliseconds=0)
        if lease is None:
            raise LeaseLostError(None, "another controller holds the lease in the database")
        self._store.fence(lease.epoch)
        with self._lock:
            self._seen, self._term = lease, Term(lease.epoch, math.inf)

    def retire(self, reason: str) -> None:
        """Stop leading; once the work under way has ended, call `follow`."""
        with self._lock:
            if self._retiring or self._term is None:
                return
            self._retiring = reason
        _log.error("lease.lost", reason=reason, epoch=self.epoch)
        self._on_retire(reason)
        self._on_change()

    def follow(self) -> None:
        """Become a follower; no work of the term is still under way."""
        with self._lock:
            term, self._term, self._retiring = self._term, None, ""
            # Let other instances try first, since this one may be broken.
            self._not_before = self._clock() + self._seconds
        self._store.fence(None)
        if term is not None:
            self._store.release_lease(term.epoch)

    def _keep(self) -> None:
        now, role = self._clock(), self.role
        step = next_step(role, now=now, not_before=self._not_before)
        if step is Step.RENEW:
            self._renew(now)
        elif step is Step.STAND:
            self._stand(now)
        elif role is Role.FOLLOWS:
            self._look(now)

    def _stand(self, now: float) -> None:
        self._look(now)
        if self._clock() < self._seen_until:
            return
        asked_at, milliseconds = self._clock(), int(self._seconds * 1000)
        lease = self._store.take_lease(self._holder, self._address, milliseconds=milliseconds)
        if lease is None:
            return
        self._store.fence(lease.epoch)
        with self._lock:
            self._seen = lease
            self._term = Term.granted(lease.epoch, asked_at=asked_at, seconds=self._seconds)
        _log.info("lease.taken", epoch=lease.epoch, seconds=self._seconds)
        self._on_change()

    def _look(self, now: float) -> None:
        lease, database_ms = self._store.lease()
        left = max(0, lease.expires_ms - database_ms) / 1000
        with self._lock:
            self._seen, self._seen_until = lease, now + left if left else 0.0

    def _renew(self, now: float) -> None:
        epoch = self.epoch
        if self._store.renew_lease(epoch, milliseconds=int(self._seconds * 1000)):
            with self._lock:
                if not self._retiring:
                    self._term = Term.granted(epoch, asked_at=now, seconds=self._seconds)
            return
        lease, _ = self._store.lease()
        self.retire(f"the controller at {lease.address} has taken the lease (epoch {lease.epoch})")


class Fence:
    """Checks before every durable effect, by its failpoint, that this instance leads.

        effect -> fence("log.before") -> LeaseKeeper.check -> the effect, or LeaseLostError

    A process that stalls between the check and its effect may continue too late. The store then
    refuses the effect by its epoch, and the logs refuse it by `put_if_absent`
    (`controller.loop.leadership.terms`). Another fence keeps foreign writers out of tables:
    `cbp.engine.delta.foreign_writer_fence`.

    In another process, such as a Spark worker, it does not check: tasks write files that no
    reader sees before the driver has recorded them.
    """

    def __init__(
        self, faults: Faults = NO_FAULTS, check: Callable[[], object] = lambda: None
    ) -> None:
        self._faults, self._check = faults, check

    def __call__(self, point: str) -> None:
        """Pass a point; raises `LeaseLostError` before an effect if this instance does not lead."""
        if point.endswith(".before"):
            self._check()
        self._faults(point)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the check: only this process can answer it."""
        return functools.partial, (self._faults,)
