"""One fixture over every database that the store must work on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import structlog
from sqlalchemy import create_engine, text

from cbp.engine.storage.failpoints import Faults
from controller.store.base import Store, open_store
from tests.conformance.postgres import PostgresMissingError, postgres_server
from tests.conformance.records import CHAIN, a_dataflow
from tests.machine import needs, needs_postgres_driver

_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def silent() -> Iterator[Callable[[], None]]:
    """Drop what the product logs, fixtures of a module included; give what does so again.

    By default structlog draws each stack with its variables: a fifth of a second of the processor.
    """

    def drop(logger: Any, method: str, event: Any) -> Any:
        raise structlog.DropEvent

    def configure() -> None:
        structlog.configure(processors=[drop])

    configure()
    yield configure
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def new_postgres_database() -> Iterator[Callable[[], str]]:
    """Give a function that makes an empty database on a throw-away server."""
    needs_postgres_driver()
    with ExitStack() as stack:
        with needs("postgres", PostgresMissingError):
            url = stack.enter_context(postgres_server())
        engine = create_engine(
            url.format("postgres").replace("postgresql://", "postgresql+psycopg://"),
            isolation_level="AUTOCOMMIT",
        )

        def make() -> str:
            name = f"cbp_{next(_numbers)}"
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
            return url.format(name)

        yield make
        engine.dispose()


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)]
)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the URL of a database that the tests of one backend share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('store')}/cbp.db"
    url: str = request.getfixturevalue("new_postgres_database")()
    return url


@pytest.fixture(scope="session")
def opened(database: str) -> Iterator[Store]:
    """Give the one store of a backend; making a database takes longer than a test."""
    with closing(open_store(database)) as store:
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    """Give an empty store."""
    for record in opened.dataflows():
        opened.delete(record.name)
    return opened


@pytest.fixture
def store_with_faults(store: Store, database: str) -> Iterator[Callable[[Faults], Store]]:
    """Give a function that opens the database of `store` once more, with faults."""
    with ExitStack() as stack:
        yield lambda faults: stack.enter_context(
            closing(open_store(database, faults=faults, exclusive=False))
        )


@pytest.fixture
def chain(store: Store) -> Store:
    """Give a store with the dataflow `d`: source a -> stage s -> stage t, and a -> t."""
    store.register(a_dataflow(), CHAIN)
    return store
