"""A PostgreSQL that takes everything and answers nothing, and one that locks: neither for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from controller.store.base import Store
from controller.store.database.connections import (
    ANSWER_SECONDS,
    LOCK_SECONDS,
    STUCK_SECONDS,
    Database,
)
from controller.store.database.migrate import migrate
from controller.store.errors import DatabaseSilentError
from tests.system.processes import until
from tests.system.wire import Wire

pytestmark = pytest.mark.service

LONG = 600_000
PATIENCE_SECONDS = 0.3
SOON_SECONDS = 120.0
"""Far more than patience needs on a slow machine, and far less than for ever."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store behind a wire, and a way to its database beside both."""

    store: Store
    wire: Wire
    beside: Engine


@pytest.fixture(scope="module")
def place(new_postgres_database: Callable[[], str]) -> Iterator[Place]:
    """Give a store that waits `PATIENCE_SECONDS`; each test leaves the wire as it was."""
    url = make_url(new_postgres_database()).set(drivername="postgresql+psycopg")
    with ExitStack() as stack:
        wire = Wire(f"{url.query['host']}/.s.PGSQL.5432")
        stack.callback(wire.close)
        through = url.set(host="127.0.0.1", port=wire.port, query={})
        opened = Database(
            through.render_as_string(hide_password=False), answer_seconds=PATIENCE_SECONDS
        )
        store = stack.enter_context(closing(Store(opened)))
        migrate(opened)
        beside = create_engine(url)
        stack.callback(beside.dispose)
        yield Place(store, wire, beside)


@contextmanager
def soon() -> Iterator[None]:
    """Fail when what is inside took longer than patience explains."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON_SECONDS


def test_a_connection_that_hangs_is_given_up_and_another_one_works(place: Place) -> None:
    """In the middle of a transaction, and while it rests; nobody needs to restart anything."""
    with soon(), pytest.raises(DatabaseSilentError):
        _read(place, "SELECT 1", place.wire.strand)
    with soon():
        assert place.store.dataflows() == []
        place.wire.strand()
        assert place.store.dataflows() == []


def test_a_commit_whose_answer_is_held_back_may_have_happened(place: Place) -> None:
    """The caller gets the error in time, and finds out afterwards, as after a break."""
    before = place.store.lease()[0].epoch
    with soon(), pytest.raises(DatabaseSilentError):
        _lead_on(place, place.wire.stall)
    place.wire.flow()
    assert place.store.lease()[0].epoch in (before, before + 1)


def test_a_renewal_of_the_lease_takes_two_answers(place: Place) -> None:
    """Where each is late, a leader that needs more is replaced, or acts in what time is left.

    One says that the connection works, the other that the lease is renewed, for all to see.
    """
    held = place.store.take_lease("one", "", milliseconds=1)
    assert held is not None
    before = place.wire.answers
    assert place.store.renew_lease(held.epoch, milliseconds=LONG)
    assert place.wire.answers - before <= 2
    with place.beside.connect() as other:
        left = text("SELECT expires_ms - extract(epoch FROM now()) * 1000 FROM leases")
        assert other.execute(left).scalar_one() > LONG / 2
    assert not place.store.renew_lease(held.epoch - 1, milliseconds=LONG)
    place.store.release_lease(held.epoch)


def test_a_wait_for_a_lock_ends_here_and_at_the_server(place: Place) -> None:
    """A caller that gave up leaves nothing in the queue: no reader, and no late writer."""
    before = place.store.lease()[0].epoch
    with place.beside.begin() as other, place.beside.connect() as watching:
        other.execute(text("LOCK TABLE leases"))
        with soon(), pytest.raises(DatabaseSilentError):
            place.store.lease()
        with soon(), pytest.raises(DatabaseSilentError):
            place.store.take_lease("one", "", milliseconds=LONG)
        until(lambda: _waiting(watching) == 0, "somebody still waits", SOON_SECONDS)
    taken = place.store.take_lease("one", "", milliseconds=LONG)
    assert taken is not None
    assert taken.epoch == before + 1, "it was done behind our back"


def test_the_server_ends_the_wait_of_a_writer_whose_process_stopped(place: Place) -> None:
    """Before our patience does where both run, so that the reason is known."""
    with place.store._database.write() as connection:
        shown = connection.execute(text("SHOW lock_timeout")).scalar_one()
    assert shown == f"{LOCK_SECONDS}s"
    assert STUCK_SECONDS < LOCK_SECONDS < ANSWER_SECONDS


def test_a_migration_may_take_as_long_as_it_takes(place: Place) -> None:
    """It is not given up in the middle; whatever comes after it is, as before."""
    with place.store._database.write_schema() as connection:
        connection.execute(text(f"SELECT pg_sleep({3 * PATIENCE_SECONDS})"))
    with pytest.raises(DatabaseSilentError):
        _read(place, "SELECT pg_sleep(60)")


def _waiting(connection: Connection) -> int:
    """Return how many wait for a lock in any database of the server."""
    waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    connection.rollback()
    return int(connection.execute(waits).scalar_one())


def _read(place: Place, query: str, then: Callable[[], None] = lambda: None) -> None:
    with place.store._database.read() as connection:
        then()
        connection.execute(text(query))


def _lead_on(place: Place, then: Callable[[], None]) -> None:
    with place.store._database.write(fenced=False) as connection:
        connection.execute(text("UPDATE leases SET epoch = epoch + 1"))
        then()
