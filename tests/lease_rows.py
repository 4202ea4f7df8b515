"""What a store does to the row of the lease, as plain values."""

from __future__ import annotations

from dataclasses import replace

from cbp.model.schedule.lease import Lease


def taken(
    lease: Lease, holder: str, address: str, *, now_ms: int, milliseconds: int
) -> Lease | None:
    """Return the lease taken by `holder`; `None` if it is not free."""
    if lease.expires_ms > now_ms:
        return None
    return Lease(lease.epoch + 1, holder, address, now_ms + milliseconds)


def renewed(lease: Lease, epoch: int, *, now_ms: int, milliseconds: int) -> Lease | None:
    """Return the lease extended, even if it ran out; `None` if another instance took it."""
    return replace(lease, expires_ms=now_ms + milliseconds) if lease.epoch == epoch else None


def released(lease: Lease, epoch: int) -> Lease:
    """Return the lease free from now on, if this epoch still holds it."""
    return replace(lease, expires_ms=0) if lease.epoch == epoch else lease
