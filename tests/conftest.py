"""Fixtures that every test may use; the Spark session starts only where one is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# No test depends on the time that an example takes: that is also a matter of who else computes.
settings.register_profile("cbp", deadline=None)
settings.load_profile("cbp")

_PROCESSES = ("cluster", "service", "system")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together, where several processes share the tests, what is not to run side by side.

    A file's tests, for their fixtures; all tests with the Spark session, since one serves them;
    and all that start processes of their own, of which some are killed and some have the time.
    """
    for item in items:
        group = item.nodeid.partition("::")[0]
        if any(item.get_closest_marker(name) for name in _PROCESSES):
            group = "processes"
        elif item.get_closest_marker("spark"):
            group = "spark"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give the one Spark session of a test run: the service's, with fewer partitions."""
    # Workers import the tests' translators by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    from cbp.engine.spark.session import SparkSettings, start_session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse}
    session = start_session(SparkSettings(master="local[2]", app_name="cbp-tests", conf=conf))
    yield session
    session.stop()
