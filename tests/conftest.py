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

_PROCESSES = {"cluster", "system"}
_LONG = ("processes", "spark", "simulation")
"""Groups that take longest, in this order: they are handed out first (`--no-loadscope-reorder`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together, where several processes share the tests, what is not to run side by side.

    A file's tests, for their fixtures; all tests with the Spark session, since one serves them;
    all that start processes of their own, of which some are killed and some have the time; and
    the simulation, which counts together what its seeds did.
    """
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    if getattr(config.option, "loadgroup", False):
        places = {group: place for place, group in enumerate(_LONG)}
        items.sort(key=lambda item: places.get(groups[item], len(_LONG)))


def _group(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    if marks & _PROCESSES:
        return "processes"
    if "spark" in marks:
        return "spark"
    path = item.nodeid.partition("::")[0]
    return "simulation" if path.endswith("simulation/test_simulation.py") else path


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to share tests out where the groups are passed over, as xdist does with pytest 9.2."""
    told = getattr(session.config.option, "loadgroup", False)
    if told and session.items and "@" not in session.items[0].nodeid:
        raise pytest.UsageError("pytest-xdist does not see the groups; see pyproject.toml")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give the one Spark session of a test run: the service's, with fewer partitions."""
    # Workers import the tests' translators by name.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    # What Spark listens on is the product's choice, not that of who runs the tests.
    os.environ.pop("SPARK_LOCAL_IP", None)
    from cbp.engine.spark.session import SparkSettings, start_session

    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": warehouse}
    session = start_session(SparkSettings(master="local[2]", app_name="cbp-tests", conf=conf))
    yield session
    session.stop()
