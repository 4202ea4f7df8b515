"""Translators in Spark SQL against the same ones groupwise, on random data over some epochs.

State is the groupwise form's; outputs are the same multisets per epoch, with one task, in parts,
and shuffled. In a shuffled run every outer state is found by one task, once, whatever is beside
it in the author's plan: a record has a task's number, not Spark, which counts through a union.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp import State
from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.sql.data_frames import Frames, Results
from cbp.engine.spark.sql.job import TEXT_BYTES_MAX, parts_of
from cbp.engine.storage.checked_parquet import open_parquet
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import (
    AuthorCodeError,
    FileDamagedError,
    IncrementDamagedError,
    RunCancelledError,
)
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.schema import Schema
from cbp.sdk.translate import Declared
from stages.translators.url_count_sql import UrlCountSql
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.controller.world import until
from tests.driver import Driver
from tests.keys import epochs_of_keys
from tests.limited import SHUFFLED
from tests.spark.sql_dataflows import dataflow_of, records_of
from tests.sql_forms import FAILING, PAIRS, Hangs, totals_by

pytestmark = pytest.mark.spark


KEYS = [("DOUBLE", "BINARY", "DECIMAL(18,2)"), ("STRING", "DATE", "TIMESTAMP")]


@pytest.mark.parametrize(
    ("tasks", "reads", "hash_mask"),
    [
        pytest.param(1, 1_000_000, -1, marks=pytest.mark.soak),
        pytest.param(2, 1_000_000, NARROW, marks=pytest.mark.soak),
        (2, 0, NARROW),
    ],
    ids=["one", "parts-colliding", "shuffled-colliding"],
)
def test_every_epoch_equals_the_groupwise_form(
    tasks: int,
    reads: int,
    hash_mask: int,
    spark: Any,
    tmp_path: Path,
) -> None:
    """Outputs of every epoch as multisets, and state, are the same.

    Inner and outer grouping, deleted state, several records per group; as keys null, NaN,
    both zeros, decimals, bytes, dates, times and a megabyte of text, all of several columns.
    """
    limits = EngineLimits(arranged_reads=reads, rows_per_task_sql=50_000 if tasks == 1 else 1)
    pairs = [(wise(), sql()) for wise, sql in PAIRS.values()]
    epochs = records_of(dataflow_of(*(pair[0] for pair in pairs)), seed=tasks, epochs=2)
    for types in KEYS:
        for epoch, records in zip(epochs, epochs_of_keys(types, seed=tasks), strict=True):
            epoch[str(len(pairs))] = records[::2]
        pairs.append(totals_by(types))
    groupwise, in_sql = (dataflow_of(*form) for form in zip(*pairs, strict=True))
    engine = DirectEngine(
        SparkExecutor(spark), cache=str(tmp_path / "cache"), hash_mask=hash_mask, limits=limits
    )
    driver = Driver(engine, in_sql, tmp_path / "t")
    assert_same(groupwise, driver, epochs, ordered=False, source="r")
    assert not list((tmp_path / "cache").rglob("*.called"))


@pytest.mark.soak
def test_every_state_is_called_by_one_task_wherever_a_union_puts_it(
    spark: Any, tmp_path: Path
) -> None:
    """Outer state is there once, also of buckets to which no key came.

    So it is where Spark counts other tasks before those that find it.
    """
    groupwise, in_sql = map(dataflow_of, totals_by(("BIGINT",), grouping="outer"))
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=SHUFFLED)
    driver = Driver(engine, in_sql, tmp_path / "t")
    epochs = [{"0": [{"k0": k, "n": 1} for k in keys]} for keys in (range(12), range(3, 6), [7])]
    assert_same(groupwise, driver, epochs, ordered=False, source="r")
    assert [run["tasks"] for run in driver.figures] == [2, 2, 2]


def test_results_that_are_one_frame_are_evaluated_once(spark: Any) -> None:
    """The same frame, or an equal query, is one result; another one is not."""
    Frames(spark, {"urls": spark.range(9).selectExpr("CAST(id AS STRING) AS url")}, [])
    counted, once = (
        "SELECT url, count(*) AS n FROM urls GROUP BY url",
        "SELECT url, 1L AS n FROM urls",
    )
    frame = spark.sql(counted)
    both = {"counts": "counts", "totals": "counts"}
    cases = [
        (frame, frame, both),
        (frame, spark.sql(counted), both),
        (frame, spark.sql(once), {"counts": "counts", "totals": "totals"}),
    ]
    for counts, totals, wanted in cases:
        results = Results(UrlCountSql().spec())
        results.out.totals(totals)
        results.out.counts(counts)
        frames, actual = results.distinct()
        assert actual == wanted
        assert list(frames) == sorted(set(wanted.values()))


def test_a_state_with_another_key_has_a_result_of_its_own(spark: Any) -> None:
    """Equal rows are not equal records where the key is in another column."""
    spec = UrlCountSql().spec()
    states = [
        StateSpec(name, Schema.parse(text), "inner")
        for name, text in (("a", "k INT, n INT"), ("b", "n INT, k INT"), ("c", "k INT, n INT"))
    ]
    states = [replace(state, route_by=("k",)) for state in states]
    states.append(replace(states[0], name="d", route_by=("n",)))
    results = Results(replace(spec, states=tuple(states), outputs=()))
    frame = spark.range(3).selectExpr("CAST(id AS INT) AS k", "1 AS n")
    results.out.a(frame)
    results.out.b(spark.range(3).selectExpr("CAST(id AS INT) AS n", "1 AS k"))
    results.out.c(frame)
    results.out.d(frame)
    _, actual = results.distinct()
    assert actual == {"a": "a", "b": "b", "c": "a", "d": "d"}


class PageCountSql(UrlCountSql):
    """Keeps the counts under another name; its `url` is something else."""

    counts = State("url BIGINT, n BIGINT, page STRING", route_by="page")
    queries = {  # noqa: RUF012
        **UrlCountSql.queries,
        "seen": "SELECT url, 1L AS n FROM urls UNION ALL SELECT page, n FROM counts",
        "counts": "SELECT -n AS url, n, url AS page FROM summed",
    }


@pytest.mark.soak
def test_a_state_in_sql_is_kept_by_its_own_columns(spark: Any, tmp_path: Path) -> None:
    """Its records are found and placed by the columns that hold the key, whatever their names."""
    dataflow = dataflow_of(PageCountSql())
    driver = Driver(
        DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "c"), limits=SHUFFLED),
        dataflow,
        tmp_path / "t",
    )
    for _ in range(2):
        driver.feed("r0", [{"url": url} for url in ("a", "b", "a")])
        driver.run_until_idle()
    kept = sorted((r["page"], r["n"], r["url"]) for r in driver.state("t0", "counts"))
    assert kept == [("a", 4, -4), ("b", 2, -2)]
    (node,) = dataflow.stages.values()
    (actual,) = driver.engine.records.look_up(driver.folder, node, "counts", {"page": "a"})
    assert actual["n"] == 4


class Doubled(UrlCountSql):
    """A later version of the stage: the same tables, other queries."""

    queries = {**UrlCountSql.queries, "totals": "SELECT url, n * 2 AS n FROM summed"}  # noqa: RUF012


@pytest.mark.part(every=2)
@pytest.mark.parametrize("runs", [3, 4])
def test_a_plan_is_made_once_per_version_and_reads_what_each_run_reads(
    runs: int, spark: Any, tmp_path: Path
) -> None:
    """Two dataflows of one engine, run at the same time, count what they read and nothing else.

    An epoch without records of some task, another version in between, and back again.
    """
    executor = SparkExecutor(spark)
    engine = DirectEngine(
        executor, cache=str(tmp_path / "cache"), limits=EngineLimits(rows_per_task_sql=1)
    )
    first, second = UrlCountSql(), Doubled()
    drivers = [Driver(engine, dataflow_of(first), tmp_path / f"t{at}") for at in range(2)]
    seen: list[Counter[str]] = [Counter(), Counter()]
    plans: list[list[Any]] = [[], []]

    def run(at: int, translator: Declared, urls: str) -> None:
        driver = drivers[at]
        driver.dataflow = dataflow_of(translator)
        driver.feed("r0", [{"url": url} for url in urls])
        driver.run_until_idle()
        seen[at].update(urls)
        times = 2 if translator is second else 1
        actual = {row["url"]: row["n"] for row in driver.outputs("t0.totals")[-1]}
        assert actual == {url: seen[at][url] * times for url in urls}
        kept = [one.kept_plan for one in executor._sessions[(driver.folder, "t0")]]
        assert None not in kept
        plans[at].append(kept)  # held, so that no other one has its place

    each_run = [(first, "ab"), (first, "bcaab"), (second, "cd"), (first, "dd")]
    for translator, urls in each_run[:runs]:
        with ThreadPoolExecutor(2) as threads:
            each = [(0, translator, urls), (1, translator, urls.upper() + "xy")]
            list(threads.map(lambda arguments: run(*arguments), each))
    for made in plans:
        ids = [{id(one) for one in kept} for kept in made]
        assert ids[0] == ids[1]
        assert not ids[1] & ids[2]
    for at, driver in enumerate(drivers):
        assert {row["url"]: row["n"] for row in driver.state("t0", "counts")} == dict(seen[at])


def test_a_text_that_is_too_wide_is_counted_in_bytes(spark: Any, tmp_path: Path) -> None:
    """Records are the same on both sides of the width, and only a wider one changes the way."""
    executor = SparkExecutor(spark)
    engine = DirectEngine(
        executor, cache=str(tmp_path / "cache"), limits=EngineLimits(rows_per_task_sql=1)
    )
    driver = Driver(engine, dataflow_of(UrlCountSql()), tmp_path / "t")
    fits = "ä" * (TEXT_BYTES_MAX // 2)
    for at, (more, wide) in enumerate(((0, False), (1, True))):
        driver.feed("r0", [{"url": fits + "a" * more}, {"url": "b"}])
        driver.run_until_idle()
        assert {one.wide for many in executor._sessions.values() for one in many} == {wide}
        actual = {row["url"]: row["n"] for row in driver.outputs("t0.totals")[at]}
        assert actual == {"b": at + 1, fits + "a" * more: 1}


def test_all_parts_of_a_cancelled_run_end(spark: Any, tmp_path: Path) -> None:
    """Each part is a job of its own; cancelling the run ends them all, and nothing is written."""
    gate = tmp_path / "gate"
    engine = DirectEngine(
        SparkExecutor(spark),
        cache=str(tmp_path / "cache"),
        limits=EngineLimits(rows_per_task_sql=1),
    )
    driver = Driver(engine, dataflow_of(Hangs(str(gate))), tmp_path / "t")
    driver.feed("r0", [{"url": str(at)} for at in range(20)])
    caught: list[Exception] = []

    def run() -> None:
        try:
            driver.run_until_idle()
        except RunCancelledError as exc:
            caught.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(list(tmp_path.glob("gate.*"))) == 2)
    engine.control.cancel("r000000")
    thread.join(90)
    assert not thread.is_alive()
    assert len(caught) == 1
    assert driver.outputs("t0.totals") == []


def test_a_damaged_increment_is_named(spark: Any, tmp_path: Path) -> None:
    """The task that finds the groups or Spark may read it first: the code is the same."""
    for reads in (1_000_000, 0):
        limits = EngineLimits(arranged_reads=reads, rows_per_task_sql=1)
        engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=limits)
        driver = Driver(engine, dataflow_of(UrlCountSql()), tmp_path / f"t{reads}")
        driver.feed("r0", [{"url": "a"}, {"url": "b"}])
        (file,) = (tmp_path / f"t{reads}").glob("sources/r0/**/*.parquet")
        file.write_bytes(file.read_bytes()[:-9])
        with pytest.raises(IncrementDamagedError):
            driver.run_until_idle()


def test_state_of_a_query_is_written_with_checksums_that_its_next_run_compares(
    spark: Any, tmp_path: Path
) -> None:
    """Spark computes it and Python writes it; a flipped bit of it is an error, never a record."""
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of(UrlCountSql()), tmp_path / "t")
    driver.feed("r0", [{"url": "a" * 300}])
    driver.run_until_idle()
    written = [
        path for area in ("state", "flows") for path in (tmp_path / "t" / area).rglob("*.parquet")
    ]
    assert len(written) == 2
    assert all(open_parquet(str(path)).is_sealed for path in written)
    (state,) = (path for path in written if "_bucket" in str(path))
    data = bytearray(state.read_bytes())
    data[len(data) // 3] ^= 1
    state.write_bytes(data)
    fresh = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "other"))
    with pytest.raises(FileDamagedError) as caught:
        Driver(fresh, dataflow_of(UrlCountSql()), tmp_path / "t").state("t0", "counts")
    assert caught.value.details["path"] == str(state)


def test_an_authors_mistakes_are_named(spark: Any, tmp_path: Path) -> None:
    """Wrong types, names and keys, and what fails on a value, have the code and the class."""
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))
    for at, (translator, says) in enumerate(FAILING.items()):
        driver = Driver(engine, dataflow_of(translator()), tmp_path / f"t{at}")
        driver.feed("r0", [{"url": "a"}])
        with pytest.raises(AuthorCodeError, match=translator.__name__) as caught:
            driver.run_until_idle()
        assert says in caught.value.details["cause"]
        assert "sql_forms.py" in caught.value.details["place"]


@pytest.mark.parametrize(("small", "tasks"), [(True, 1), (True, 3), (False, 1), (False, 3)])
def test_only_what_is_small_is_worked_on_in_parts(small: bool, tasks: int) -> None:
    """A part's task holds its records in memory: a large increment is shuffled, to one task too."""
    task: Any = SimpleNamespace(tasks=tasks)
    assert parts_of(task, small=small) == ([*range(tasks)] if small else [None])
