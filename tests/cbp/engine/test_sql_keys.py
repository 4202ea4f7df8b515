"""Keys in SQL where there is no Spark: their functions, or a clear refusal.

A key in SQL is the key that its function gives; what cannot be a key is refused before it runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cbp import Input, by_sql
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.errors import AuthorCodeError, DefinitionError
from tests.chains import Hosts, hosts
from tests.driver import Driver


def test_without_spark_the_function_is_called(tmp_path: Path) -> None:
    """The local engine routes and orders by the functions, as the reference does."""
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), hosts(), tmp_path / "t")
    reference = ReferenceEngine(hosts())
    for one in (driver, reference):
        visits = [{"url": f"http://{'aB'[n % 2]}.C", "at": n % 23, "agent": ""} for n in range(40)]
        one.feed("visits", visits)
        one.feed("more", [{"url": "http://A.c", "at": n} for n in range(3)])
        one.run_until_idle()
    assert driver.outputs("hosts.last") == reference.outputs("hosts.last")
    assert {row["host"] for row in driver.outputs("hosts.last")[0]} == {"a.c", "b.c"}


def test_without_a_function_it_needs_spark(tmp_path: Path) -> None:
    """An engine without Spark says what to give, and where."""
    flow = hosts(route_by=by_sql(["lower(url)", "1L"], "STRING, BIGINT"))
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), flow, tmp_path / "t")
    driver.feed("visits", [{"url": "a", "at": 1, "agent": ""}])
    driver.feed("more", [])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.details["function"] == "Hosts.visits.route_by"
    assert "pass function=... to by_sql" in caught.value.details["cause"]


def test_every_type_has_its_expression() -> None:
    """One expression for two types is a mistake at definition, at its place."""
    with pytest.raises(DefinitionError) as caught:
        by_sql("lower(url)", "STRING, INT")
    assert caught.value.mistake.code == "by_sql_types"
    assert caught.value.mistake.place.startswith(__file__)


def test_a_combiner_needs_a_key_that_python_knows() -> None:
    """What Spark computes is not there where records are combined."""
    translator = Hosts()
    route = by_sql(["lower(url)", "1L"], "STRING, BIGINT")
    translator.visits = Input("url STRING, at INT, agent STRING", route_by=route, combine=list)
    with pytest.raises(DefinitionError) as caught:
        translator.spec()
    assert caught.value.mistake.code == "combine_invalid"
