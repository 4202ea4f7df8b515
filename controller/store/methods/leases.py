"""Store methods for the leader's lease: one row, judged by the database's clock.

A renewal changes only the time; a take-over also changes the epoch, which is part of a key. So on
PostgreSQL a writer that holds the epoch (`FOR KEY SHARE`) never blocks a renewal, while a take-over
waits for the writers under way. A write of an old epoch is either before the take-over or refused.

`hold` is the lock that every writing method takes first, before any other, so that no two writers
deadlock: on PostgreSQL the dataflow's row is locked until the transaction ends; SQLite has only one
writer at a time. The statement that locks also gives the dataflow its next revision. So what was
read of a dataflow is current for as long as its revision is, whichever instance writes
(tests/conformance/test_store_model.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    bindparam,
    cast,
    extract,
    func,
    select,
    update,
)

from cbp.errors import LeaseLostError, NotFoundError
from cbp.model.schedule.lease import Lease
from controller.store.database.connections import Database
from controller.store.methods.events import tell
from controller.store.records import Event, StageRecord
from controller.store.schema import rows
from controller.store.schema.tables import dataflows, leases, stages

LEADER = "leader"
_MS_PER_DAY = 86_400_000
_UNIX_EPOCH_AS_JULIAN_DAY = 2440587.5


class Leases:
    """Store methods for the leader's lease; see `Store`."""

    _database: Database

    @property
    def shared(self) -> bool:
        """Whether other processes may use the same database; then the lease decides the leader."""
        return not self._database.exclusive

    def end_time_left(self) -> None:
        """Free the lease at once; only for a database that no other process can use."""
        with self._database.write(fenced=False) as connection:
            connection.execute(update(leases).values(expires_ms=0))

    def lease(self) -> tuple[Lease, int]:
        """Return the lease, and the database's time in milliseconds since 1970."""
        with self._database.read() as connection:
            now = _now_ms(connection)
            row = connection.execute(select(leases, now.label("now_ms"))).one()
        return Lease(row.epoch, row.holder, row.address, row.expires_ms), row.now_ms

    def take_lease(self, holder: str, address: str, *, milliseconds: int) -> Lease | None:
        """Take the lease if it is free by the database's clock.

        Waits for writers of the previous epoch to end; later writes of that epoch are refused.
        Returns `None` while another instance holds the lease.
        """
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
        """Extend the lease, even if it has expired; `False` if it now has another epoch."""
        with self._database.write_at_once() as connection:
            renewed = (
                update(leases)
                .where(leases.c.name == LEADER, leases.c.epoch == epoch)
                .values(expires_ms=_now_ms(connection) + milliseconds)
                .returning(leases.c.epoch)
            )
            return connection.execute(renewed).first() is not None

    def release_lease(self, epoch: int) -> None:
        """Free the lease at once; does nothing if it now has another epoch."""
        with self._database.write(fenced=False) as connection:
            released = connection.execute(
                update(leases)
                .where(leases.c.name == LEADER, leases.c.epoch == epoch)
                .values(expires_ms=0)
            )
            if released.rowcount:
                tell(connection, _led_by(epoch))

    def fence(self, epoch: int | None) -> None:
        """Let this object write only while `epoch` is the lease's; `None` lifts the fence.

        A fenced write raises `LeaseLostError` if another instance leads; it then has no effect,
        even later.
        """
        if epoch is None:
            self._database.fence = None
        else:
            self._database.fence = lambda connection: require_epoch(connection, epoch)


def require_epoch(connection: Connection, epoch: int) -> None:
    """Keep the lease's epoch unchanged until the transaction ends. Raises `LeaseLostError`."""
    query = (
        select(leases.c.epoch, leases.c.address)
        .where(leases.c.name == LEADER)
        .with_for_update(read=True, key_share=True)
    )
    lease = connection.execute(query).one()
    if lease.epoch != epoch:
        why = f"the controller at {lease.address} leads (epoch {lease.epoch})"
        raise LeaseLostError(epoch, why)


def _led_by(epoch: int) -> Event:
    return Event(kind="leader.changed", subject=str(epoch))


def _now_ms(connection: Connection) -> ColumnElement[int]:
    """Return the database's time when the statement runs, in milliseconds since 1970."""
    if connection.dialect.name == "sqlite":
        days = func.julianday("now") - _UNIX_EPOCH_AS_JULIAN_DAY
        return cast(days * _MS_PER_DAY, Integer)
    return cast(extract("epoch", func.clock_timestamp()) * 1000, BigInteger)


_NEXT_REVISION = (
    update(dataflows)
    .where(dataflows.c.name == bindparam("held"))
    .values(revision=dataflows.c.revision + 1)
)


def hold(connection: Connection, dataflow: str) -> None:
    """Lock a dataflow against other writers until the transaction ends; increase its revision.

    Raises `NotFoundError`.
    """
    if not connection.execute(_NEXT_REVISION, {"held": dataflow}).rowcount:
        raise NotFoundError(kind="dataflow", name=dataflow)


@contextmanager
def held(database: Database, dataflow: str) -> Iterator[Connection]:
    """Open a transaction that writes, and that holds a dataflow. Raises `NotFoundError`."""
    with database.write() as connection:
        hold(connection, dataflow)
        yield connection


def hold_stage(connection: Connection, dataflow: str, stage: str) -> StageRecord:
    """Like `hold`; return the stage, which cannot change until the transaction ends.

    Raises `NotFoundError`.
    """
    hold(connection, dataflow)
    query = select(stages).where(stages.c.dataflow == dataflow, stages.c.stage == stage)
    row = connection.execute(query).first()
    if row is None:
        raise NotFoundError(kind="stage", name=f"{dataflow}.{stage}")
    return rows.stage_of(row)
