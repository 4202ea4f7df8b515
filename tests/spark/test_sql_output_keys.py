"""One epoch has one record per key of an output in SQL: its key has the stage's, and is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, TranslateSql
from cbp.errors import AuthorCodeError
from tests.spark.test_sql_timers import driver_of

pytestmark = pytest.mark.spark


class Parts(TranslateSql):
    """Emits each part of a key, as the query does."""

    rows = Input("k BIGINT, id INT, n BIGINT", route_by="k")
    parts = Output("k BIGINT, id INT, n BIGINT", key="k, id")
    queries = {"parts": "SELECT k, id, sum(n) AS n FROM rows GROUP BY k, id"}  # noqa: RUF012


class Twice(Parts):
    """Emits each record."""

    queries = {"parts": "SELECT k, id, n FROM rows"}  # noqa: RUF012


class Elsewhere(Parts):
    """Emits the parts of another key."""

    queries = {"parts": "SELECT k + 1 AS k, id, max(n) AS n FROM rows GROUP BY k, id"}  # noqa: RUF012


ROWS = [{"k": k, "id": id_, "n": n} for k in (0, 2, 4, 6) for id_ in (1, 2) for n in (1, 2)]


@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize(
    ("translator", "code", "way"),
    [
        (Twice, "output_key_twice", "shuffled"),
        (Elsewhere, "output_key_foreign", "parts"),
        pytest.param(Twice, "output_key_twice", "parts", marks=pytest.mark.soak),
        pytest.param(Elsewhere, "output_key_foreign", "shuffled", marks=pytest.mark.soak),
    ],
)
def test_a_second_record_of_a_key_fails_the_run(
    translator: Any, code: str, way: str, spark: Any, tmp_path: Path
) -> None:
    """In a plan for each task, and in one that Spark shuffles; also another group's key."""
    driver = driver_of(translator(), spark, tmp_path, way)
    driver.feed("r0", ROWS)
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == code
    right = driver_of(Parts(), spark, tmp_path / "right", way)
    right.feed("r0", ROWS)
    right.run_until_idle()
    (epoch,) = right.outputs("t0.parts")
    assert sorted((row["k"], row["id"], row["n"]) for row in epoch) == [
        (k, id_, 3) for k in (0, 2, 4, 6) for id_ in (1, 2)
    ]
