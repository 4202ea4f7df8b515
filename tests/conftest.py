"""Fixtures that every test may use; the Spark session starts only where one is asked for."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.gate.plugins import pytest_configure
from tests.sampling import examples, keep_a_part

__all__ = ["pytest_configure"]

# No test depends on the time that an example takes: that is also a matter of who else computes.
# The default run plays the same examples each time; the long one others, and prints how to repeat.
settings.register_profile(
    "cbp",
    deadline=None,
    max_examples=examples(40),
    derandomize="CBP_RANDOM" not in os.environ,
    database=None,
    print_blob=True,
)
settings.load_profile("cbp")
if "CBP_RANDOM" not in os.environ:
    # Hypothesis also tries constants of the modules that are loaded: which examples a test plays
    # would depend on the tests that its process ran before.
    providers._get_local_constants = lambda: providers._local_constants

gc.disable()  # until all tests are collected

_PROCESSES = {"cluster", "system"}
_LONG = (
    "processes",
    "spark",
    "simulation",
    "page",
    "tests/test_guides.py",
    "tests/test_readme.py",
    "tests/service/test_service.py",
    "tests/fuzz/test_fuzz.py",
    "tests/security/test_canary.py",
)
"""Groups that take longest, and long files that would come last, when the other processes have
nothing left to do: they are handed out first, in this order (`--no-loadscope-reorder`)."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together, where several processes share the tests, what is not to run side by side.

    A file's tests, for their fixtures; all tests with the Spark session, since one serves them;
    all that start processes of their own, of which some are killed and some have the time; and
    the simulation, which counts together what its seeds did.
    """
    keep_a_part(items)
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
    if path.startswith("tests/ui/"):  # they share one browser
        return "page"
    return "simulation" if path.endswith("simulation/test_simulation.py") else path


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to share tests out where the groups are passed over, as xdist does with pytest 9.2.

    What was imported and collected stays to the end: some 500,000 objects, over which each full
    collection of garbage goes in vain (0.3 to 0.6 s). None does so before or from here on.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
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

    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # With few records, to compile Java code for each query takes longer than it saves: two
        # fifths of the time of two files. Spark does so in the service, and in the cluster tests.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = start_session(SparkSettings(master="local[2]", app_name="cbp-tests", conf=conf))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _settings_of_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves another setting behind, which would slow down those after it."""
    session = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    if not hasattr(session, "conf"):  # a parameter of this name
        yield
        return
    before = _own_settings(session)
    yield
    assert before.items() <= _own_settings(session).items()


def _own_settings(session: Any) -> dict[str, str]:
    """Return what can be set, without what Delta notes in a session by itself."""
    return {
        name: value
        for name, value in dict(session.conf.getAll).items()
        if name.startswith(("spark.sql.", "spark.databricks.delta."))
        and name != "spark.databricks.delta.lastCommitVersionInSession"
    }
