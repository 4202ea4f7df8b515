"""What RouteBy gives wrongly, through a Spark job, a shuffle and a resident worker.

`tests/cbp/engine/test_routing.py` has every mistake, without Spark; here the coded error has
to arrive from another process. Route functions have names, so that workers can import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import (
    All,
    DataflowBuilder,
    Input,
    Output,
    State,
    Translate,
    TranslateArrow,
    TranslateSql,
    route,
)
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.errors import AuthorCodeError, DefinitionError
from tests.driver import Driver
from tests.limited import limits_of
from tests.spark.resident_workers import started

pytestmark = pytest.mark.spark


def unhashable(record: Any) -> Any:
    return {[record.v]}


def mixed(record: Any) -> Any:
    return [1, record.v]


def nowhere(record: Any) -> Any:
    return All("item")


WRONG: dict[Callable[[Any], Any], tuple[str, str]] = {
    unhashable: ("route_key_invalid", "unhashable"),
    mixed: ("route_key_invalid", "declared types (BIGINT), got 'one'"),
    nowhere: ("route_flow_unknown", "All(...) names 'item'"),
}
"""Route function to the code and the words that have to arrive."""


class Groupwise(Translate):
    key = "k BIGINT"
    seen = Output("v STRING")

    def __init__(self, make: Any) -> None:
        self.items = Input("v STRING", route_by=route(make, "BIGINT"))

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


class Vectorised(TranslateArrow):
    key = "k BIGINT"
    seen = Output("v STRING")

    def __init__(self, make: Any) -> None:
        self.items = Input("v STRING", route_by=route(make, "BIGINT"))

    def translate(self, groups: Any, out: Any) -> None:
        """Emit nothing."""


class Queries(TranslateSql):
    key = "k BIGINT"
    items = Input("v STRING", route_by=route(mixed, "BIGINT"))
    seen = Output("v STRING")
    queries = {"seen": "SELECT v FROM items"}  # noqa: RUF012


@pytest.fixture
def executors(spark: Any) -> Iterator[Callable[[str], Any]]:
    """Make an executor whose runs go one way."""
    made: list[Any] = []

    def make(way: str) -> Any:
        made.append(SparkExecutor(spark, resident_workers=int(way == "resident")))
        if way == "resident":
            started(made[-1].residents, 1)
        return made[-1]

    yield make
    for one in made:
        one.residents.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("form", "way"),
    [(Groupwise, "job"), (Groupwise, "shuffled"), (Groupwise, "resident"), (Vectorised, "job")],
)
def test_a_wrong_destination_arrives_with_its_code_and_place(
    form: type[Any], way: str, executors: Callable[[str], Any], tmp_path: Path
) -> None:
    """Stage, function, file and line of the author's code, and what it gave."""
    limits = limits_of(shuffled=way == "shuffled", resident_after_runs=0)
    engine = DirectEngine(executors(way), cache=str(tmp_path / "cache"), limits=limits)
    for make, (code, words) in WRONG.items():
        flow = DataflowBuilder("wrong")
        flow.stage("stage", form(make), buckets=2, items=flow.source("items", "v STRING"))
        driver = Driver(engine, flow.build(), tmp_path / make.__name__)
        driver.feed("items", [{"v": "one"}])
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        details = caught.value.details
        assert (caught.value.code, details["stage"]) == (code, "stage"), make
        assert details["function"] == f"{form.__name__}.items.route_by"
        line = make.__code__.co_firstlineno
        file, _, at = details["place"].rpartition(":")
        assert (Path(file).name, int(at) - line in (0, 1)) == (Path(__file__).name, True)
        assert words in details["cause"]


def test_a_function_that_routes_is_refused_in_sql() -> None:
    """Before there is a job: of this form keys are columns, so none can be of a wrong type."""
    with pytest.raises(DefinitionError) as refused:
        Queries().spec()
    assert refused.value.details["rule"] == "sql_shape"
    assert refused.value.details["where"] == "Queries.items"
    assert Path(__file__).name in refused.value.details["place"]


class Foreign(TranslateSql):
    """Gives state for keys that nobody called."""

    items = Input("v STRING", route_by="v")
    seen = State("v STRING, n BIGINT")
    queries = {"seen": "SELECT concat(v, '!') AS v, 1L AS n FROM items"}  # noqa: RUF012


@pytest.mark.soak
def test_state_of_another_key_is_refused_in_sql(
    executors: Callable[[str], Any], tmp_path: Path
) -> None:
    """A query's state is of the groups that are called, as in every form; the error has the key."""
    flow = DataflowBuilder("wrong")
    flow.stage("stage", Foreign(), buckets=2, items=flow.source("items", "v STRING"))
    engine = DirectEngine(executors("job"), cache=str(tmp_path / "cache"))
    driver = Driver(engine, flow.build(), tmp_path / "t")
    driver.feed("items", [{"v": "one"}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "state_key_foreign"
    assert "'one!'" in caught.value.details["cause"]
    assert Path(__file__).name in caught.value.details["place"]
    assert driver.state("stage", "seen") == []
