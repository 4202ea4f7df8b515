"""Store methods for the leader's lease: one row, judged by the database's clock.

A renewal changes only the time; a take-over also changes the epoch, which is part of a key. So on
PostgreSQL a writer that holds the epoch (`FOR KEY SHARE`) never blocks a renewal, while a take-over
waits for the writers under way. A write of an old epoch is either before the take-over or refused.

Renewing the lease, and what an instance may do under it, are in `controller.loop.leadership`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    cast,
    extract,
    func,
    select,
    update,
)

from cbp.errors import LeaseLostError
from cbp.model.schedule.lease import Lease
from controller.store.base import Event
from controller.store.database.connections import Database
from controller.store.methods.events import tell
from controller.store.schema.tables import leases

__all__ = ["LEADER", "Leases", "require_epoch"]

LEADER = "leader"
_MS_PER_DAY = 86_400_000
_UNIX_EPOCH_AS_JULIAN_DAY = 2440587.5


class Leases:
    """Methods of `SqlStore`; see `controller.store.base` for what they guarantee."""

    _database: Database

    @property
    def shared(self) -> bool:
        """See `Store.shared`."""
        return not self._database.exclusive

    def end_time_left(self) -> None:
        """Free the lease at once; only for a database that no other process can use."""
        with self._database.write(fenced=False) as connection:
            connection.execute(update(leases).values(expires_ms=0))

    def lease(self) -> tuple[Lease, int]:
        """See `Store.lease`."""
        with self._database.read() as connection:
            now = _now_ms(connection)
            row = connection.execute(select(leases, now.label("now_ms"))).one()
        return Lease(row.epoch, row.holder, row.address, row.expires_ms), row.now_ms

    def take_lease(self, holder: str, address: str, *, milliseconds: int) -> Lease | None:
        """See `Store.take_lease`."""
        with self._database.write(fenced=False) as connection:
            # The lease's time starts once the row is locked, not when the wait for it began:
            # behind a stalled writer that wait takes as long as a lease.
            row_of = leases.c.name == LEADER
            connection.execute(select(leases.c.epoch).where(row_of).with_for_update())
            now = _now_ms(connection)
            statement = (
                update(leases)
                .where(row_of, leases.c.expires_ms <= now)
                .values(
                    epoch=leases.c.epoch + 1,
                    holder=holder,
                    address=address,
                    expires_ms=now + milliseconds,
                )
                .returning(leases)
            )
            row = connection.execute(statement).first()
            if row is not None:
                tell(connection, _led_by(row.epoch))
        return None if row is None else Lease(row.epoch, row.holder, row.address, row.expires_ms)

    def renew_lease(self, epoch: int, *, milliseconds: int) -> bool:
        """See `Store.renew_lease`; one statement: a slow answer costs little of a lease."""
        with self._database.write_at_once() as connection:
            renewed = (
                update(leases)
                .where(leases.c.name == LEADER, leases.c.epoch == epoch)
                .values(expires_ms=_now_ms(connection) + milliseconds)
                .returning(leases.c.epoch)
            )
            return connection.execute(renewed).first() is not None

    def release_lease(self, epoch: int) -> None:
        """See `Store.release_lease`."""
        with self._database.write(fenced=False) as connection:
            released = connection.execute(
                update(leases)
                .where(leases.c.name == LEADER, leases.c.epoch == epoch)
                .values(expires_ms=0)
            )
            if released.rowcount:
                tell(connection, _led_by(epoch))

    def fence(self, epoch: int | None) -> None:
        """See `Store.fence`."""
        if epoch is None:
            self._database.fence = None
        else:
            self._database.fence = lambda connection: require_epoch(connection, epoch)


def require_epoch(connection: Connection, epoch: int) -> None:
    """Keep the lease's epoch unchanged until the transaction ends.

    Raises:
        LeaseLostError: If it has another epoch: another instance leads.
    """
    query = (
        select(leases.c.epoch, leases.c.address)
        .where(leases.c.name == LEADER)
        .with_for_update(read=True, key_share=True)
    )
    lease = connection.execute(query).one()
    if lease.epoch != epoch:
        raise LeaseLostError(epoch, f"epoch {lease.epoch} leads at {lease.address}")


def _led_by(epoch: int) -> Event:
    return Event(kind="leader.changed", subject=str(epoch))


def _now_ms(connection: Connection) -> ColumnElement[int]:
    """Return the database's time when the statement runs, in milliseconds since 1970."""
    if connection.dialect.name == "sqlite":
        days = func.julianday("now") - _UNIX_EPOCH_AS_JULIAN_DAY
        return cast(days * _MS_PER_DAY, Integer)
    return cast(extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
