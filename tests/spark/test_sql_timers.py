"""Timers, expiry, the run and kept state in SQL: all equal to the groupwise form.

Runs have times of their own, an hour apart (`assert_same`), so that timers are due, and records
expire, in runs with input and in runs without any.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import State, TranslateSql
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import AuthorCodeError
from tests.cbp.engine.epochs import FIRST_MS, NARROW, assert_same
from tests.driver import Driver
from tests.sampling import sampled
from tests.spark.sql_dataflows import dataflow_of
from tests.sql_forms import (
    Basket,
    BasketNamedSql,
    BasketSql,
    Lapsing,
    LapsingSql,
    RemindersSql,
    StampsSql,
)
from tests.timed_flows import Reminders, Stamps

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
ALONE = (10**6, 2, -1)
WAYS = {"parts": (10**6, 2, NARROW), "shuffled": (0, 2, NARROW)}


def engine_of(spark: Any, folder: Path, way: str) -> DirectEngine:
    """Return an engine that runs a translator in SQL in one of the ways."""
    reads, rows, hash_mask = WAYS.get(way, ALONE)
    limits = EngineLimits(arranged_reads=reads, rows_per_task_sql=rows)
    cache = str(folder / "cache")
    return DirectEngine(SparkExecutor(spark), cache=cache, hash_mask=hash_mask, limits=limits)


KEYS = ((0, 1, 2, None), (0, 3), (), (1, None))
"""The keys that each epoch calls."""


def driver_of(translator: TranslateSql, spark: Any, folder: Path, way: str) -> Driver:
    """Return a driver of a translator, at the time of the first epoch."""
    driver = Driver(engine_of(spark, folder, way), dataflow_of(translator), folder / "t")
    driver.time_ms = FIRST_MS
    return driver


@pytest.mark.soak
def test_state_expires_as_in_the_groupwise_form(spark: Any, tmp_path: Path) -> None:
    """With other groups called, all at once, and none called; so do records of a view.

    What the author's queries read is that of called groups, and only what expired goes.
    """
    epochs: list[dict[str, Any]] = [
        {
            "0": [
                {"k": k, "wait": wait} for k in keys for wait in (0, 4 if k == 1 and at == 0 else 1)
            ]
        }
        for at, keys in enumerate(KEYS)
    ]
    driver = driver_of(LapsingSql(), spark, tmp_path, "parts")
    assert_same(dataflow_of(Lapsing()), driver, epochs, ordered=False, source="r")
    assert {row["k"] for row in driver.state("t0", "seen")} == {1, None}
    assert len(driver.state("t0", "total")) == 5
    driver.time_ms += 3 * HOUR_MS
    assert driver.run("t0")
    figures = driver.figures[-1]
    assert (figures["groups"], figures["records_in"], figures["state_written"]) == (0, 0, 0)
    assert driver.state("t0", "seen") == driver.state("t0", "top") == []
    assert len(driver.state("t0", "total")) == 5
    assert driver.due_ms["t0"] is None
    assert not driver.run("t0")


@pytest.mark.parametrize(
    ("form", "way"),
    sampled(
        [
            (BasketSql, "parts"),
            (BasketSql, "shuffled"),
            (BasketNamedSql, "shuffled"),
            (BasketNamedSql, "parts"),
        ],
        every=4,
    ),
)
def test_kept_records_equal_those_of_the_groupwise_form(
    form: type[BasketSql], way: str, spark: Any, tmp_path: Path
) -> None:
    """They are put, replaced, deleted by key, and dropped with their age; as are their changes."""
    epochs: list[dict[str, Any]] = [
        {
            "0": [
                {"k": k, "id": id_, "n": -1 if (at, id_) == (1, 0) else 1}
                for k in keys
                for id_ in (0, None)
            ]
        }
        for at, keys in enumerate(KEYS)
    ]
    driver = driver_of(form(), spark, tmp_path, way)
    assert_same(dataflow_of(Basket()), driver, epochs, ordered=False, source="r")
    changes = {row["change_type"] for rows in driver.outputs("t0.items") for row in rows}
    assert changes == {"insert", "update_before", "update_after", "delete"}
    assert len(driver.state("t0", "last")) == 10


class Named(BasketSql):
    """Writes what it is given of the kept records, and changes none that its orders do not name."""

    queries = {  # noqa: RUF012
        "items": "SELECT DISTINCT k, id, CAST(n AS BIGINT) AS n FROM orders",
        "items.delete": "SELECT k, id FROM orders WHERE false",
        "last": "SELECT k, id, n FROM orders WHERE false",
        "log": "SELECT k, id, n FROM items_of_orders",
    }


@pytest.mark.parametrize("way", sampled(WAYS, every=2, first=1))
def test_a_query_is_given_the_kept_records_that_an_input_names(
    way: str, spark: Any, tmp_path: Path
) -> None:
    """Each once, as it was, whether its second key is null or not, and however often it is named.

    Other records of the called groups are not given, nor those of other groups.
    """
    driver = driver_of(Named(), spark, tmp_path, way)
    everything = [{"k": k, "id": id_, "n": 10 * k} for k in range(4) for id_ in (*range(50), None)]
    driver.feed("r0", everything)
    driver.run_until_idle()
    orders = [(1, 7), (1, 7), (2, None), (2, 8), (3, 60), (9, 7)]
    driver.feed("r0", [{"k": k, "id": id_, "n": 5} for k, id_ in orders])
    driver.run_until_idle()
    first, second = driver.outputs("t0.log")
    assert first == []
    given = sorted((row["k"], row["id"] or -1, row["n"]) for row in second)
    assert given == [(1, 7, 10), (2, -1, 20), (2, 8, 20)]


def test_timers_equal_those_of_the_groupwise_form(spark: Any, tmp_path: Path) -> None:
    """They are due, with input and without; pending; and dropped."""
    waits = (2, 1, -1, 3)
    epochs: list[dict[str, Any]] = [
        {"0": [{"k": k, "wait": waits[(n + 3 * at) % 4]} for n, k in enumerate(keys)]}
        for at, keys in enumerate(KEYS)
    ]
    driver = driver_of(RemindersSql(), spark, tmp_path, "shuffled")
    assert_same(dataflow_of(Reminders()), driver, epochs, ordered=False, source="r")
    assert {row["what"] for rows in driver.outputs("t0.log") for row in rows} == {"due", "pending"}


def test_a_query_reads_the_run_of_the_record(spark: Any, tmp_path: Path) -> None:
    """Its epoch, its time and its frame; the plan that reads them is made once."""
    epochs = [{"0": [{"k": k, "t": at} for k in (0, at, None)]} for at in range(3)]
    driver = driver_of(StampsSql(), spark, tmp_path, "parts")
    assert_same(dataflow_of(Stamps()), driver, epochs, ordered=False, source="r")
    lines = [row for rows in driver.outputs("t0.lines") for row in rows]
    assert {(row["epoch"], row["frame"]) for row in lines} == {(0, "0"), (1, "1")}
    engine: Any = driver.engine
    (sessions,) = engine.preparer.executor._sessions.values()
    assert all(one.kept_plan is not None for one in sessions)


class Ageless(LapsingSql):
    """The version before, whose state does not expire."""

    seen = State(Lapsing.seen.schema)


@pytest.mark.soak
def test_a_version_that_adds_an_age_gives_every_group_one(spark: Any, tmp_path: Path) -> None:
    """In the first run after it, also to groups of buckets to which no key comes.

    Not with shared hashes: a group that shares one with a called group gets its age when called.
    """
    driver = driver_of(Ageless(), spark, tmp_path, "alone")
    driver.feed("r0", [{"k": k, "wait": 1} for k in range(12)])
    driver.run_until_idle()
    driver.dataflow = dataflow_of(LapsingSql())
    driver.engine.tables.create_tables(
        driver.folder, driver.dataflow.name, list(driver.dataflow.stages.values())
    )
    driver.due_ms["t0"] = 0
    driver.feed("r0", [{"k": 3, "wait": 1}])
    driver.run_until_idle()
    assert sorted(row["k"] for row in driver.state("t0", "seen_expiry")) == [*range(12)]
    driver.time_ms += HOUR_MS
    driver.feed("r0", [{"k": 4, "wait": 1}])
    driver.run_until_idle()
    assert {row["k"] for row in driver.state("t0", "seen")} == {4}


class Stray(LapsingSql):
    """Emits state of groups that are not called: it learned of them from elsewhere."""

    queries = {**LapsingSql.queries, "seen": "SELECT 1L AS k, 0L AS n, 0 AS wait"}  # noqa: RUF012


@pytest.mark.soak
def test_state_of_a_group_that_is_not_called_is_refused(spark: Any, tmp_path: Path) -> None:
    """Also if the run looks at that group, since its records expire."""
    driver = driver_of(LapsingSql(), spark, tmp_path, "parts")
    driver.feed("r0", [{"k": 1, "wait": 1}])
    driver.run_until_idle()
    node = driver.dataflow.stages["t0"]
    stages = {"t0": replace(node, translator=Stray().spec())}
    driver.dataflow = replace(driver.dataflow, stages=stages)
    driver.time_ms += HOUR_MS
    driver.feed("r0", [{"k": 0, "wait": 1}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "state_key_foreign"


class Touching(BasketSql):
    """Puts and deletes without a look at what was before."""

    queries = {  # noqa: RUF012
        **BasketSql.queries,
        "now": "SELECT * FROM sums",
        "items.delete": "SELECT k, id FROM now WHERE n <= 0",
    }


class Twice(BasketSql):
    """Puts two records of a key, of which either could count."""

    queries = {**BasketSql.queries, "last": "SELECT k, id, n FROM orders"}  # noqa: RUF012


class Elsewhere(BasketSql):
    """Deletes from a group that is not called."""

    queries = {**BasketSql.queries, "items.delete": "SELECT 9L AS k, 0 AS id"}  # noqa: RUF012


@pytest.mark.soak
def test_kept_state_costs_what_is_touched_of_it(spark: Any, tmp_path: Path) -> None:
    """A group of many records, of which a run puts two and deletes one."""
    driver = driver_of(Touching(), spark, tmp_path, "parts")
    driver.feed("r0", [{"k": 1, "id": at, "n": 1} for at in range(5_000)])
    driver.run_until_idle()
    driver.feed("r0", [{"k": 1, "id": at, "n": n} for at, n in ((7, 2), (8, 0), (9_999, 1))])
    driver.run_until_idle()
    figures = driver.figures[-1]
    # Of `items`: 7 and 9,999 are put, 8 goes; of `last`: all three are put.
    assert (figures["state_written"], figures["state_removed"]) == (5, 4)
    assert figures["bytes_read"] < 1_000
    assert len(driver.state("t0", "items")) == 5_000


@pytest.mark.parametrize(
    ("translator", "code"),
    sampled([(Twice, "view_key_twice"), (Elsewhere, "state_key_foreign")], every=2),
)
def test_what_kept_state_cannot_take_is_named(
    translator: Any, code: str, spark: Any, tmp_path: Path
) -> None:
    """Not silently one of two records, nor another group's."""
    driver = driver_of(translator(), spark, tmp_path, "parts")
    driver.feed("r0", [{"k": 1, "id": 1, "n": n} for n in (1, 2)])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.code == code
