"""The direct engine on Spark: the reference's results, from every reader.

The flows, and the comparison, are those of tests/cbp/engine/test_direct.py; here they run
as Spark jobs, with the shuffle and without it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp import DataflowBuilder, by_sql
from cbp.engine.direct import DirectEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.spark import SparkExecutor
from cbp.engine.storage.checked_parquet import CHECKED, seal
from cbp.errors import AuthorCodeError, DataflowInvalidError, IncrementDamagedError
from tests.cbp.engine.epochs import CASES, NARROW, assert_same, dataflow_of, order_free
from tests.chains import WrongSums, chain, hosts, other_key, sums
from tests.columns import form_of, records_of
from tests.driver import Driver
from tests.kernel import with_kernel
from tests.keys import COMPOSED, dataflow_of_keys, epochs_of_keys
from tests.limited import SHUFFLED, limits_of, with_limits
from tests.loops import Components, loop_of
from tests.spark.spark_epochs import epochs_of

pytestmark = pytest.mark.spark


@pytest.fixture
def engine(spark: Any, tmp_path: Path) -> DirectEngine:
    """Give an engine on the session of the test run."""
    return DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"))


@pytest.mark.part(every=24)
@pytest.mark.parametrize(
    ("case", "shuffled"),
    list((case, way) for way in (False, True) for case in CASES if case != "parting_items"),
)
def test_every_epoch_equals_the_reference(
    case: str,
    shuffled: bool,
    engine: DirectEngine,
    tmp_path: Path,
) -> None:
    """Spark gives the reference's outputs in its order, whichever way the records came."""
    engine = with_limits(engine, limits_of(shuffled=shuffled))
    dataflow = dataflow_of(case)
    assert_same(dataflow, Driver(engine, dataflow, tmp_path / "t"), epochs_of(case, seed=7))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("shuffled", "hash_mask"),
    [
        pytest.param(False, -1, marks=pytest.mark.soak),
        pytest.param(True, -1),
        pytest.param(True, NARROW, marks=pytest.mark.soak),
    ],
    ids=["arranged", "shuffled", "colliding"],
)
def test_keys_of_every_type_make_the_references_groups(
    shuffled: bool, hash_mask: int, spark: Any, tmp_path: Path
) -> None:
    """The JVM hashes, sorts and carries the keys of tests/keys.py as Python does."""
    keys = [("STRING",), ("BINARY",), ("DOUBLE", "FLOAT"), *COMPOSED]
    dataflow = dataflow_of_keys(*keys)
    engine = DirectEngine(
        SparkExecutor(spark),
        cache=str(tmp_path / "cache"),
        hash_mask=hash_mask,
        limits=limits_of(shuffled=shuffled),
    )
    rows = [epochs_of_keys(types, seed=at) for at, types in enumerate(keys)]
    epochs = [{str(at): many[epoch] for at, many in enumerate(rows)} for epoch in range(2)]
    driver = Driver(engine, dataflow, tmp_path / "t")
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1, source="r")


@pytest.mark.part(every=2)
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_loop_equals_the_reference(shuffled: bool, engine: DirectEngine, tmp_path: Path) -> None:
    """All supersteps run in one Spark task, whichever way the first one's records came."""
    engine = with_limits(engine, limits_of(shuffled=shuffled))
    dataflow = loop_of(Components(), links="src BIGINT, dst BIGINT")
    driver = Driver(engine, dataflow, tmp_path / "t")
    path = [{"src": node, "dst": node + 1} for node in range(12)]
    assert_same(dataflow, driver, [{"links": path}, {"links": [{"src": 12, "dst": -1}]}])
    assert [figures["jobs_spark"] for figures in driver.figures] == [1, 1]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("several", [False, True], ids=["one task", "two jobs"])
def test_fused_stages_equal_the_reference(
    several: bool, engine: DirectEngine, tmp_path: Path
) -> None:
    """A chain in one Spark task, or in two jobs with a shuffle, gives what its stages give."""
    if several:
        engine = with_limits(engine, limits_of(shuffled=True, rows_per_record_task=5))
    driver = Driver(engine, chain(), tmp_path / "t", fused=True)
    reference = ReferenceEngine(chain())
    for epoch in range(2):
        for one in (driver, reference):
            one.feed("src", [{"k": n % 7 + epoch, "v": f"v{n}"} for n in range(30)])
            one.run_until_idle()
    assert [figures["stage"] for figures in driver.figures] == ["first", "first"]
    for flow in ("first.o", "first.p", "count.o", "count.p", "last.o", "last.p"):
        assert driver.outputs(flow) == reference.outputs(flow), flow
    assert order_free(driver.state("count", "seen")) == order_free(reference.state("count", "seen"))


def test_combined_records_are_not_shuffled(engine: DirectEngine, tmp_path: Path) -> None:
    """A combiner spares records their way, changes no result, and loses none unnoticed."""
    engine = with_limits(engine, SHUFFLED)
    driver, reference = Driver(engine, sums(), tmp_path / "t"), ReferenceEngine(sums())
    for epoch in range(2):
        items = [{"url": f"{n % 3}{n}", "x": 0.5, "unit": "kg", "n": n} for n in range(60)]
        plain = [{"site": f"{n}", "x": 0.5, "unit": "m", "n": epoch} for n in range(4)]
        for one in (driver, reference):
            one.feed("items", items)
            one.feed("plain", plain)
            one.run_until_idle()
    assert driver.outputs("sums.totals") == reference.outputs("sums.totals")
    assert order_free(driver.state("sums", "sums")) == order_free(reference.state("sums", "sums"))
    assert [f["records_combined"] for f in driver.figures] == [57, 57]
    assert [f["records_in"] for f in driver.figures] == [64, 64]


def test_an_error_before_the_shuffle_names_the_author(engine: DirectEngine, tmp_path: Path) -> None:
    """What fails in the task that reads, not in the one that groups, is reported as well."""
    engine = with_limits(engine, SHUFFLED)
    driver = Driver(engine, sums(WrongSums(other_key)), tmp_path / "t")
    driver.feed("items", [{"url": "a", "x": 1.0, "unit": "kg", "n": n} for n in range(3)])
    driver.feed("plain", [])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert caught.value.details["function"] == "WrongSums.items.combine"


def test_keys_in_sql_equal_their_functions(engine: DirectEngine, tmp_path: Path) -> None:
    """Spark's expressions route and order a small increment as their Python twins do."""
    driver, reference = Driver(engine, hosts(), tmp_path / "t"), ReferenceEngine(hosts())
    for epoch in range(2):
        visits = [
            {"url": f"http://{'aB'[n % 2]}.C", "at": n % 23, "agent": str(epoch)} for n in range(40)
        ]
        more = [{"url": "http://A.c", "at": n} for n in range(3)]
        for one in (driver, reference):
            one.feed("visits", visits)
            one.feed("more", more)
            one.run_until_idle()
    assert driver.outputs("hosts.last") == reference.outputs("hosts.last")
    assert order_free(driver.state("hosts", "seen")) == order_free(reference.state("hosts", "seen"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lower(url", "is refused by Spark"),
        ("lower(uri)", "is refused by Spark"),
        ("length(url)", "has type INT, but is declared as STRING"),
        ("max(url)", "one value for each record"),
        ("explode(split(url, ''))", "one value for each record"),
        ("first(url) over (order by at)", "one value for each record"),
        ("(select max(id) from range(3))", "one value for each record"),
        ("uuid()", "the same value every time"),
        ("cast(now() as string)", "the same value every time"),
    ],
)
def test_sql_that_can_be_no_key_is_refused(
    text: str, said: str, engine: DirectEngine, tmp_path: Path
) -> None:
    """What does not parse, names no column, has another type or no fixed value for a record."""
    flow = hosts(route_by=by_sql([text, "1L"], "STRING, BIGINT"))
    with pytest.raises(DataflowInvalidError) as caught:
        engine.control.refuse("hosts", list(flow.stages.values()))
    (mistake,) = caught.value.mistakes
    assert mistake.code == "by_sql_invalid"
    assert said in mistake.message
    assert mistake.place.startswith(__file__)


def test_a_value_that_sql_cannot_take_names_the_expression(
    engine: DirectEngine, tmp_path: Path
) -> None:
    """What fails on a record's content is the author's error, with the expression's place."""
    flow = hosts(route_by=by_sql(["url", "cast(agent as bigint)"], "STRING, BIGINT"))
    driver = Driver(engine, flow, tmp_path / "t")
    driver.feed("visits", [{"url": "a", "at": 1, "agent": "no number"}])
    driver.feed("more", [])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert "CAST_INVALID_INPUT" in caught.value.details["cause"]
    assert caught.value.details["place"].startswith(__file__)


def test_small_runs_use_the_same_workers_again(spark: Any) -> None:
    """A worker that is thrown away costs the next run its start and all imports."""
    runs = SparkExecutor(spark)
    # Spark takes the worker that has been idle for the longest time; some are left by other tests.
    *earlier, last = (
        {int(text) for text in runs._run_numbered(2, lambda: [str(os.getpid())])} for _ in range(8)
    )
    assert last <= set().union(*earlier)


def test_a_new_worker_is_a_fork_that_has_the_engine_imported(spark: Any) -> None:
    """What replaces a worker that was idle too long need not import anything first."""

    def parent() -> list[str]:
        return [Path(f"/proc/{os.getppid()}/cmdline").read_text(encoding="utf-8")]

    actual = SparkExecutor(spark)._run_numbered(2, parent)
    assert all("cbp.engine.spark.daemon" in text for text in actual)


def read_by_all(spark: Any, path: str, *columns: str) -> list[list[str]]:
    """Return what Spark, Delta Kernel, Polars and delta-rs read of some columns of a state."""
    by_spark = [
        r.asDict() for r in spark.read.format("delta").load(path).select(*columns).collect()
    ]
    by_polars = pl.scan_delta(path).select(columns).collect().to_dicts()
    query = deltalake.QueryBuilder().register("state", deltalake.DeltaTable(path))
    asked = ", ".join(f'"{column}"' for column in columns)
    by_delta_rs = pa.table(query.execute(f"SELECT {asked} FROM state").read_all()).to_pylist()
    by_kernel = with_kernel(spark, path, *columns)
    return [order_free(rows) for rows in (by_spark, by_kernel, by_polars, by_delta_rs)]


@pytest.mark.soak
def test_four_readers_see_exactly_the_state(
    engine: DirectEngine, spark: Any, tmp_path: Path
) -> None:
    """Spark, Kernel, Polars and delta-rs read the published state, and no later one."""
    dataflow = dataflow_of("members")
    driver = Driver(engine, dataflow, tmp_path / "t", publish_every=2)
    reference = ReferenceEngine(dataflow)
    published: list[str] = []
    for number, epoch in enumerate(epochs_of("members", seed=3)):
        for one in (driver, reference):
            one.feed("s_items", epoch["items"])
            one.run_until_idle()
        if number == 1:
            published = order_free(reference.state("stage", "urls"))
    path = str(tmp_path / "t" / "state/stage.urls")
    assert published
    assert read_by_all(spark, path, "site", "url", "at") == [published] * 4
    driver.publish()
    now = order_free(reference.state("stage", "urls"))
    assert now != published
    assert read_by_all(spark, path, "site", "url", "at") == [now] * 4


@pytest.mark.soak
def test_a_keyword_is_a_column_in_every_form(spark: Any, tmp_path: Path) -> None:
    """Groupwise and in SQL, shuffled; and four readers read it.

    All forms without Spark, and all names, are in tests/cbp/sdk/test_column_names.py.
    """
    forms = ("groupwise", "sql")
    made, same = DataflowBuilder("keywords"), DataflowBuilder("keywords")
    for form in forms:
        for builder, translator in (
            (made, form_of(form, "from")),
            (same, form_of("groupwise", "from")),
        ):
            source = builder.source(f"s_{form}", str(translator.spec().input("links").schema))
            builder.stage(form, translator, buckets=2, links=source)
    engine = DirectEngine(SparkExecutor(spark), cache=str(tmp_path / "cache"), limits=SHUFFLED)
    driver = Driver(engine, made.build(), tmp_path / "t")
    epochs = [dict.fromkeys(forms, epoch) for epoch in records_of("from")[:2]]
    assert_same(same.build(), driver, epochs, ordered=False)
    read = read_by_all(spark, str(tmp_path / "t/state/sql.kept"), "from", "n")
    assert read == [read[0]] * 4
    assert len(read[0]) == 3  # of which one is null


def test_an_authors_error_names_place_key_and_input(engine: DirectEngine, tmp_path: Path) -> None:
    """The error crosses Spark with file, line, key and records, and is not retried."""
    dataflow = dataflow_of("sequences")
    driver = Driver(engine, dataflow, tmp_path / "t")
    driver.feed("s_left", [{"k": 1, "t": 1, "v": "x"}])
    driver.feed("s_right", [{"k": 1, "v": "y"}])
    spec = dataflow.stages["stage"].translator
    object.__setattr__(spec, "translate", _fails)
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert "ZeroDivisionError" in caught.value.details["cause"]
    assert caught.value.details["key"] == "(1,)"
    assert caught.value.details["inputs"]["left"] == ["(1, 1, 'x')"]


def _fails(key: Any, group: Any, out: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
def test_a_flipped_bit_of_an_input_file_fails_the_run(
    shuffled: bool, engine: DirectEngine, tmp_path: Path
) -> None:
    """Spark's own reader checks pages, as ours does: no other record is counted."""
    engine = with_limits(engine, limits_of(shuffled=shuffled))
    dataflow = dataflow_of("url_count")
    driver = Driver(engine, dataflow, tmp_path / "t")
    driver.feed("s_urls", [{"url": "a" * 500}])
    (file,) = (tmp_path / "t" / "sources").rglob("*.parquet")
    pq.write_table(pq.read_table(file), file, compression="none", use_dictionary=False, **CHECKED)
    seal(str(file))
    data = file.read_bytes()
    at = data.index(b"a" * 500) + 250
    file.write_bytes(data[:at] + b"b" + data[at + 1 :])
    with pytest.raises(IncrementDamagedError):
        driver.run_until_idle()


@pytest.mark.parametrize("shuffled", [False, True], ids=["arranged", "shuffled"])
def test_a_missing_input_file_is_named(
    shuffled: bool, engine: DirectEngine, tmp_path: Path
) -> None:
    """A lost file fails the run; it never looks like a smaller increment."""
    engine = with_limits(engine, limits_of(shuffled=shuffled))
    dataflow = dataflow_of("url_count")
    driver = Driver(engine, dataflow, tmp_path / "t")
    driver.feed("s_urls", [{"url": "a"}])
    for file in (tmp_path / "t" / "sources").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(IncrementDamagedError):
        driver.run_until_idle()
