"""Who leads: keeps the lease, and lets durable effects pass only while it is held.

    keep()    by a thread of its own: renew, or look, or stand for it
    fence     told at every durable effect: refuses it unless this instance leads
    retire()  the lease is lost, or given up; `follow()` once nothing is under way

The decisions are `cbp.model.lease`. A process that has its database for itself leads
without a thread: the lock file decided, and its term has no end.

Invariants (tests/controller/test_leadership.py): an effect passes the fence only inside
the time that the lease was granted for; the store is fenced with the epoch from the first
write of a term until nothing of that term is under way. Not guaranteed by the clock: that
a process which is stopped between the fence and its effect does not finish that effect.
Then the epoch refuses it in the store, and `put_if_absent` in the logs (`controller.loop.terms`).
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

from cbp.engine.faults import NO_FAULTS, Faults
from cbp.errors import CbpError, LeaseLostError
from cbp.model.lease import Lease, Role, Standing, Step, Term, next_step, role_of
from controller.store.base import Store

__all__ = ["Fence", "Leadership", "boot_seconds"]

KEEPS_PER_LEASE = 5
"""So often within the time of a lease an instance renews it, or looks whether it is free."""

_log = structlog.get_logger(__name__)


def boot_seconds() -> float:
    """Return the seconds since this machine started; they pass while it sleeps, too."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Fence:
    """Asks whether this instance leads before every durable effect, by its failpoint.

    In another process, a Spark worker say, it is what it stands in front of: tasks write
    files that nobody sees before the driver has recorded them.
    """

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        self._faults = faults
        self.check: Callable[[], object] = lambda: None

    def __call__(self, point: str) -> None:
        """Pass a point; raises `LeaseLostError` in front of an effect."""
        if point.endswith(".before"):
            self.check()
        self._faults(point)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the question behind: it can be answered in this process only."""
        return functools.partial, (self._faults,)


class Leadership:
    """One instance's part in who leads; safe to use from several threads.

    Args:
        store: Holds the lease; fenced by this.
        address: Where this instance answers.
        seconds: For how long the lease is taken.
        on_change: Called when the role may have changed.
        on_retire: Called with the reason as soon as the lease is lost; must not block long.
        clock: Seconds that never go back; see `boot_seconds`.
        holder: Id of this instance, new at every start.
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
        """Time between two calls of `keep`."""
        return self._seconds / KEEPS_PER_LEASE

    @property
    def role(self) -> Role:
        """What this instance is now."""
        with self._lock:
            return role_of(self._term, retiring=bool(self._retiring), now=self._clock())

    @property
    def epoch(self) -> int:
        """The epoch under which this instance leads, or led until it has retired; else 0."""
        with self._lock:
            return self._term.epoch if self._term else 0

    def standing(self) -> Standing:
        """Return what clients are told."""
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
        """Say in words why nothing is started here."""
        standing = self.standing()
        if role is Role.RETIRES:
            return self._retiring
        if role is Role.UNSURE:
            return "the lease could not be renewed in time; it goes on when that works again"
        if standing.leader:
            return f"the controller at {standing.leader} leads (epoch {standing.epoch})"
        return "no controller is known to lead at the moment"

    def keep(self) -> None:
        """Do what is due about the lease; what the database refuses is tried next time."""
        try:
            self._keep()
        except CbpError as error:
            if self._complaint != error.code:
                _log.warning("lease.not_kept", role=self.role, error=error.as_dict())
            self._complaint = error.code
        else:
            self._complaint = ""

    def begin(self) -> None:
        """Take the lease if it is free; raises what the database raises.

        Raises:
            LeaseLostError: If another one holds the lease of a database that is ours alone.
        """
        if self._store.shared:
            self._keep()
            return
        lease = self._store.take_lease(self._holder, self._address, milliseconds=0)
        if lease is None:
            raise LeaseLostError(None, "its database has a lease that is not free")
        self._store.fence(lease.epoch)
        with self._lock:
            self._seen, self._term = lease, Term(lease.epoch, math.inf)

    def retire(self, reason: str) -> None:
        """Stop leading; what is under way ends, and `follow` finishes it."""
        with self._lock:
            if self._retiring or self._term is None:
                return
            self._retiring = reason
        _log.error("lease.lost", reason=reason, epoch=self.epoch)
        self._on_retire(reason)
        self._on_change()

    def follow(self) -> None:
        """Become one of those who follow: nothing of the term is under way any more."""
        with self._lock:
            term, self._term, self._retiring = self._term, None, ""
            # Others first: whoever gave way may be the one that does not work.
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
