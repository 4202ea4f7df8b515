"""Kept state of vectorised translators: found, put and deleted by tables, at the cost of these.

`test_forms.py` holds that short runs equal the groupwise form (`ledger`, `parting_items`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp import DataflowBuilder, Input, Output, State, TranslateArrow
from cbp.engine.columnar.key_hash import flipped
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel.arrow.kept_state import KeptCall
from cbp.engine.state.bucket_state import BucketState, LiveFile, StateTable
from cbp.engine.state.index_cache import IndexCache
from cbp.errors import AuthorCodeError
from cbp.testing import run_epochs
from tests import flows, kept_flows
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.kept_runs import ledger_driver, ledger_of, merging_limits, orders_of
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver


@pytest.mark.part(every=2)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("view", [False, True])
def test_long_runs_equal_the_groupwise_form(view: bool, hash_mask: int, tmp_path: Path) -> None:
    """Also where files are merged, split and copied all the time; a view's changes, too."""
    chance = random.Random(int(view))
    dataflow = ledger_of(kept_flows.LedgerView() if view else kept_flows.Ledger())
    limits = replace(merging_limits(), call_rows=9)
    driver = ledger_driver(tmp_path, in_arrow(dataflow), hash_mask=hash_mask, limits=limits)
    epochs = [{"orders": orders_of(chance, records=chance.randrange(1, 25))} for _ in range(10)]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)
    assert max(figures["state_written"] for figures in driver.figures) > 3


def test_one_record_per_group_equals_the_groupwise_form(tmp_path: Path) -> None:
    """A second key without columns; also of groups that share a hash."""
    builder = DataflowBuilder("single")
    urls = builder.source("s_urls", "url STRING, n BIGINT")
    builder.stage("stage", flows.Single(), buckets=4, urls=urls)
    dataflow, chance = builder.build(), random.Random(0)
    limits = merging_limits()
    driver = ledger_driver(tmp_path, in_arrow(dataflow), hash_mask=NARROW, limits=limits)
    epochs = [
        {"urls": [{"url": chance.choice("abl"), "n": chance.choice([None, 1, 2])}] * 2}
        for _ in range(8)
    ]
    assert_same(dataflow, driver, epochs, ordered=False)


class Carts(TranslateArrow):
    """Adds what is ordered to the cart; nothing more means that the article goes."""

    orders = Input("customer STRING, article BIGINT, n BIGINT", route_by="customer")
    carts = State(orders.schema, keep=True, key="customer, article")
    lines = Output(orders.schema)
    sizes = Output("n BIGINT")

    def translate(self, groups: Any, out: Any) -> None:
        keys = ["customer", "article"]
        sums = groups.orders.group_by(keys).aggregate([("n", "sum")])
        before = groups.carts.get(sums.select(keys))
        both = pa.concat_tables([sums.rename_columns([*keys, "n"]), before])
        now = both.group_by(keys).aggregate([("n", "sum")]).rename_columns([*keys, "n"])
        out.carts(now)
        out.carts.delete(now.filter(pa.compute.equal(now["n"], 0)).select(keys))
        out.lines(before)
        out.sizes({"n": [groups.carts.all().num_rows]})


def carts_driver(folder: Path) -> Driver:
    """Return a driver of the carts, in small calls."""
    builder = DataflowBuilder("carts")
    orders = builder.source("orders", Carts.orders.schema)
    builder.stage("stage", Carts(), buckets=2, orders=orders)
    return Driver(LocalEngine(cache=str(folder / "cache")), builder.build(), folder / "t")


def test_a_file_has_places_only_for_groups_of_its_bucket(tmp_path: Path) -> None:
    """What a call keeps in memory grows with its groups, not with groups times buckets."""
    buckets, many = 8, 5
    live: dict[int, tuple[LiveFile, ...]] = {}
    for bucket in range(buckets):
        records = {
            "customer": [f"{bucket}-{n}" for n in range(many)],
            "article": list(range(many)),
            "n": [1] * many,
            "_hash": first_hash(bucket) + np.arange(many),
        }
        path = tmp_path / f"{bucket}.parquet"
        pq.write_table(pa.table(records), path)
        live[bucket] = (LiveFile(path.name, path.stat().st_size, many),)
    cache, table = IndexCache(str(tmp_path / "c")), StateTable(str(tmp_path), "id", live)
    state = BucketState(table, cache, tuple(range(buckets)), buckets, flips=True)
    spec = carts_driver(tmp_path / "driver").dataflow.stages["stage"].translator
    names = [f"{bucket}-{n}" for bucket in range(buckets) for n in range(many)]
    hashes = flipped(np.concatenate([first_hash(bucket) + np.arange(many) for bucket in live]))
    keys = pa.table({"customer": pa.array(names, pa.large_string())})
    call = KeptCall(spec.state("carts"), spec, state, keys=keys, hashes=hashes)
    assert sum(len(one.starts) for one in call.ranges) == buckets * many
    for groups in (np.arange(40), np.arange(40)[::-1], np.array([3, 39, 17])):
        rows, positions = call.locate(groups, pa.table({"article": groups % many}))
        assert rows.tolist() == [*range(len(groups))]
        assert positions.file.tolist() == (groups // many).tolist()
        assert positions.position.tolist() == (groups % many).tolist()
        assert call.take(call.found(groups)[1]).column("customer").to_pylist() == [
            names[group] for group in call.found(groups)[0]
        ]


def first_hash(bucket: int) -> Any:
    """Return the first hash of one of eight buckets."""
    return np.array([bucket << 61], np.uint64).view(np.int64)[0]


def test_the_test_kit_and_the_engine_give_the_same(tmp_path: Path) -> None:
    """The reference engine reads and writes kept state by tables, too."""
    epochs = [
        [("a", 1, 2), ("a", 2, 1), ("b", 1, 1), ("a", 1, 1)],
        [("a", 1, -3), ("b", 2, 5), ("c", 1, 1)],
        [("a", 1, 4), ("b", 2, 0), ("c", 1, -1)],
    ]
    result = run_epochs(Carts, epochs)
    carts = [("a", 1, 4), ("a", 2, 1), ("b", 1, 1), ("b", 2, 5)]
    assert sorted(map(tuple, result.state["carts"])) == carts
    driver, names = carts_driver(tmp_path), ("customer", "article", "n")
    for records in epochs:
        driver.feed("orders", [dict(zip(names, record, strict=True)) for record in records])
    driver.run_until_idle()
    assert sorted(tuple(r[n] for n in names) for r in driver.state("stage", "carts")) == carts
    mine = [
        sorted(tuple(r[n] for n in names) for r in rows) for rows in driver.outputs("stage.lines")
    ]
    assert mine == [sorted(map(tuple, rows)) for rows in result.outputs["lines"]]
    assert [sum(row.n for row in rows) for rows in result.outputs["sizes"]] == [0, 3, 4]
    assert [sum(r["n"] for r in rows) for rows in driver.outputs("stage.sizes")] == [0, 3, 4]


class Touching(Carts):
    """The same, without a look at the whole carts."""

    def translate(self, groups: Any, out: Any) -> None:
        super().translate(_Partly(groups), out)


class _Partly:
    def __init__(self, groups: Any) -> None:
        self.orders, self.carts = groups.orders, self
        self.get, self.all = groups.carts.get, lambda: pa.table({"n": []})


def test_one_more_record_reads_and_writes_one(tmp_path: Path) -> None:
    """What a call does not touch of its group is neither read nor written."""
    driver = carts_driver(tmp_path)
    node = driver.dataflow.stages["stage"]
    stages = {"stage": replace(node, translator=Touching().spec())}
    driver.dataflow = replace(driver.dataflow, stages=stages)
    driver.feed("orders", [{"customer": "a", "article": at, "n": 1} for at in range(20_000)])
    driver.run_until_idle()
    orders = [("a", 7, 1), ("a", 8, -1), ("a", 30_000, 1), ("a", 9, 0)]
    for record in orders:
        driver.feed("orders", [dict(zip(("customer", "article", "n"), record, strict=True))])
        driver.run_until_idle()
    counts = [(one["state_written"], one["state_removed"]) for one in driver.figures[1:]]
    assert counts == [(1, 1), (0, 1), (1, 0), (0, 0)]
    assert max(one["bytes_read"] for one in driver.figures[1:]) < 400


class Misuses(TranslateArrow):
    """Keeps state, and changes it as its input says."""

    urls = Input("url STRING", route_by="url")
    seen = State("url STRING, n BIGINT", keep=True, key="url, n")
    totals = Output("url STRING")

    def __init__(self, act: Any) -> None:
        self.act = act

    def translate(self, groups: Any, out: Any) -> None:
        self.act(groups, out)


@pytest.mark.parametrize(
    ("code", "says", "act"),
    [
        (
            "state_key_foreign",
            "'z'",
            lambda groups, out: groups.seen.get({"url": ["a", "z"], "n": [1, 1]}),
        ),
        ("state_key_foreign", "'z'", lambda groups, out: out.seen({"url": ["z"], "n": [1]})),
        ("state_key_foreign", "'z'", lambda groups, out: out.seen.delete({"url": ["z"], "n": [1]})),
        ("author_code_failed", "seen.get", lambda groups, out: groups.seen.get({"url": ["a"]})),
        ("author_code_failed", "out.seen.delete", lambda groups, out: out.seen.delete({"n": [1]})),
        ("author_code_failed", "groups.seen.all()", lambda groups, out: groups.seen.num_rows),
        ("author_code_failed", "'seen'", lambda groups, out: groups.offsets("seen")),
    ],
)
def test_what_an_author_does_wrong_is_named(code: str, says: str, act: Any, tmp_path: Path) -> None:
    """In the engine and in the test kit, with the same code."""
    builder = DataflowBuilder("misuses")
    urls = builder.source("urls", "url STRING")
    builder.stage("stage", Misuses(act), buckets=2, urls=urls)
    engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(engine, builder.build(), tmp_path / "t")
    driver.feed("urls", [{"url": "a"}])
    for run in (driver.run_until_idle, lambda: run_epochs(Misuses(act), [["a"]])):
        with pytest.raises(AuthorCodeError) as caught:
            run()
        assert caught.value.code == code
        assert says in caught.value.details["cause"]
