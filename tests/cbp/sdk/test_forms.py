"""The other forms of a translator: what is compiled, refused, and refused without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import Aggregate, DataflowBuilder, Input, Loopback, Output, State, TranslateSql, by, route
from cbp.engine.direct import LocalEngine
from cbp.errors import DefinitionError
from cbp.testing import run_epochs
from stages.translators.url_count import UrlCount
from stages.translators.url_count_arrow import UrlCountArrow
from stages.translators.url_count_sql import UrlCountSql
from tests.driver import Driver

COMPUTED = Input("url STRING", route_by=by(str, "STRING"))


class Sql(TranslateSql):
    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT")
    queries = {"counts": "SELECT 1", "totals": "SELECT 1"}  # noqa: RUF012


def _mistaken(**attributes: Any) -> str:
    """Return the rule that a class with these attributes breaks."""
    with pytest.raises(DefinitionError) as caught:
        type("Mistaken", (Sql,), attributes)().spec()
    return caught.value.mistake.code


def test_only_queries_alone_are_declared() -> None:
    """Where a function of the author's makes the plan, it is not known by its queries."""

    class Made(Sql):
        def translate(self, frames: Any, out: Any) -> None:
            super().translate(frames, out)

    actual = [form().spec().declared for form in (Sql, UrlCountSql, Made, UrlCount, UrlCountArrow)]
    assert actual == [True, True, False, False, False]


def test_the_form_is_plain_data() -> None:
    """All forms declare the same flows; only the form and the function differ."""
    specs = [form().spec() for form in (UrlCount, UrlCountArrow, UrlCountSql)]
    assert [spec.form for spec in specs] == ["groupwise", "arrow", "sql"]
    assert len({(spec.key, spec.inputs, spec.outputs, spec.states) for spec in specs}) == 1


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        ({"queries": {"counts": "SELECT 1"}}, "query_missing"),
        ({"queries": {**Sql.queries, "urls": "SELECT 1"}}, "query_name"),
        ({"queries": {}}, "translate_missing"),
        ({"urls": Input("url STRING", route_by="url", order_by="url")}, "sql_shape"),
        (
            {"key": "url STRING", "urls": Input("url STRING", route_by=by(str, "STRING"))},
            "sql_shape",
        ),
        (
            {"key": "url STRING", "urls": Input("url STRING", route_by=route(str, "STRING"))},
            "sql_shape",
        ),
        ({"mail": Loopback("url STRING", route_by="url")}, "sql_shape"),
        ({"counts": State("url STRING, n BIGINT", order_by="n")}, "sql_shape"),
        ({"moved": Aggregate("sum")}, "sql_shape"),
        ({"sql": State("url STRING")}, "name_invalid"),
        ({"keys": State("url STRING")}, "name_invalid"),
        ({"keys": Input("url STRING", route_by="url")}, "name_invalid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_in_sql_is_found_without_data(attributes: dict[str, Any], rule: str) -> None:
    """A query too few, a name that is taken, and what the JVM cannot route, are refused."""
    assert _mistaken(**attributes) == rule


def test_an_input_named_keys_is_sound_in_sql_without_state() -> None:
    """Only the look-up of groups would be hidden, and nothing is looked up without state."""

    class Stateless(TranslateSql):
        keys = Input("url STRING", route_by="url")
        copies = Output("url STRING")
        queries = {"copies": "SELECT url FROM keys"}  # noqa: RUF012

    assert [spec.name for spec in Stateless().spec().inputs] == ["keys"]


def test_the_place_of_queries_is_their_class() -> None:
    """Where the author wrote no function, messages point at the class."""
    assert Path(UrlCountSql().spec().place.rpartition(":")[0]).name == "url_count_sql.py"


def test_without_spark_sql_is_refused(tmp_path: Path) -> None:
    """The engine without Spark and the test kit say what to do instead."""
    builder = DataflowBuilder("counts")
    builder.stage("count", UrlCountSql(), buckets=2, urls=builder.source("urls", "url STRING"))
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), builder.build(), tmp_path / "t")
    driver.feed("urls", [{"url": "a"}])
    for run in (driver.run_until_idle, lambda: run_epochs(UrlCountSql, [["a"]])):
        with pytest.raises(DefinitionError, match="use the Spark engine") as caught:
            run()
        assert caught.value.mistake.code == "spark_needed"
