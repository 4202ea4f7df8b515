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
