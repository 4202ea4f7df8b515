"""Look-ups on the direct engine: what a group is given of another stage's table is the reference's.

Random customers come, change and go between random orders, under hashes that keys share, in groups
of all sizes, and in tables with more or fewer buckets than those of the stage.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Lookup, Loopback, Translate, View
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.task.task_plan import LookupTable
from cbp.errors import CbpError
from tests.bench.candidates.ours.blackbox import LocalBlackboxExecutor
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.small_limits import small_limits
from tests.cbp.engine.vectorised.arrow_forms import in_arrow
from tests.driver import Driver
from tests.lookup_dataflows import (
    orders_dataflow,
    prices_dataflow,
    random_arrivals,
    random_prices,
)


def same_as_reference(
    folder: Path, seed: int, *, hash_mask: int = -1, arrow: bool = False, black_box: bool = False
) -> None:
    dice = random.Random(seed)
    limits = replace(
        small_limits(pending_rows=dice.choice([4, 1000])),
        large_group_rows=dice.choice([3, 1000]),
    )
    executor = LocalBlackboxExecutor() if black_box else None
    engine = LocalEngine(
        executor=executor, cache=str(folder / "cache"), hash_mask=hash_mask, limits=limits
    )
    dataflow = orders_dataflow(
        buckets=dice.choice([2, 4, 16]), of_customers=dice.choice([2, 4, 16])
    )
    if arrow:
        dataflow = in_arrow(dataflow, ["orders"])
    driver = Driver(engine, dataflow, folder / "t", fused=dice.random() < 0.5)
    epochs = [{name: rows} for name, rows in random_arrivals(dice)]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_what_is_looked_up_is_the_references(seed: int, hash_mask: int, tmp_path: Path) -> None:
    """Records, their order and what `get` and `range` find are the reference's, in every epoch."""
    same_as_reference(tmp_path, seed, hash_mask=hash_mask)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
def test_tables_of_groups_have_what_is_looked_up(seed: int, hash_mask: int, tmp_path: Path) -> None:
    """A vectorised stage is given the same records, in the same order."""
    same_as_reference(tmp_path, seed, hash_mask=hash_mask, arrow=True)


def test_tables_are_joined_with_what_is_looked_up(tmp_path: Path) -> None:
    """A vectorised stage written with tables gives what the groupwise one gives."""
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=small_limits())
    driver = Driver(engine, prices_dataflow("arrow"), tmp_path / "t")
    arrivals = random_prices(random.Random(1), most=6)
    epochs = [{name: rows} for name, rows in arrivals]
    assert_same(prices_dataflow("groupwise"), driver, epochs, ordered=False)


def test_all_records_of_a_table_are_few(tmp_path: Path) -> None:
    """A table that every group is given is refused once it has too many records."""
    limits = replace(small_limits(), settings_rows=2)
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, prices_dataflow("groupwise"), tmp_path / "t")
    for number in range(3):
        driver.feed("s_settings", [{"name": f"s{number}", "value": 1}])
        driver.run_until_idle()
        driver.feed("s_orders", [{"name": "s0", "n": number}])
        if number < 2:
            driver.run_until_idle()
    with pytest.raises(CbpError) as caught:
        driver.run_until_idle()
    assert caught.value.code == "lookup_too_large"


def test_files_that_a_run_looks_up_are_not_collected(tmp_path: Path) -> None:
    """A collection during the run, after newer versions, leaves them; one after it does not."""
    none = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
    limits = replace(small_limits(), checkpoint_entries=2)
    left: list[set[str]] = []
    during: list[Callable[[], None]] = []

    def faults(point: str, *_: object) -> None:
        if point == "job.before":
            now, during[:] = during[:], []
            for one in now:
                one()

    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits, faults=faults)
    dataflow = orders_dataflow()
    driver = Driver(engine, dataflow, tmp_path / "t")

    def renew() -> None:
        for number in range(6):
            row = {"k": "a", "part": 1.0, "id": 1, "verb": "put", "name": f"n{number}"}
            driver.feed("s_customers", [row])
            driver.run("customers")

    def collect() -> None:
        node, folder = dataflow.stages["customers"], str(tmp_path / "t")
        engine.garbage.collect(folder, node, queued=set, retention=none)
        files = (tmp_path / "t/state/customers.current/_runs").rglob("*.parquet")
        left.append({path.name for path in files})

    renew()
    driver.feed("s_orders", [{"k": "a", "part": 1.0, "n": 1}])
    live = engine.history.tables.table(f"{tmp_path}/t/state/customers.current").snapshot.live
    looked_up = {Path(path).name for path in live}
    during.extend([renew, collect])
    driver.run("orders")
    collect()
    (found,) = driver.outputs("orders.found")[0]
    assert "n5" in found["what"]
    during_run, after = left
    assert looked_up <= during_run
    assert looked_up.isdisjoint(after)


LINK = "src BIGINT, dst BIGINT"


class Links(Translate):
    """Keeps the links of each node."""

    items = Input(LINK, route_by="src")
    current = View(LINK, key="src, dst")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new ones."""
        for dst in {row.dst for row in (*group.items, *group.current)}:
            out.current(key.src, dst)


class Walks(Translate):
    """Walks along links that are looked up, in a loop; its own groups are nodes, too."""

    starts = Input("src BIGINT, left BIGINT", route_by="src")
    again = Loopback("src BIGINT, left BIGINT", route_by="src", supersteps=9)
    links = Lookup(LINK, by="src")
    visits = View("src BIGINT, n BIGINT", key="src")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count a visit, and go on."""
        came = [row.left for row in (*group.starts, *group.again)]
        out.visits(key.src, len(came) + sum(row.n for row in group.visits))
        for left in set(came):
            for row in group.links if left else ():
                out.again(row.dst, left - 1)


@pytest.mark.parametrize("of_links", [2, 16])
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("arrow", [False, True])
def test_a_loop_looks_up_the_same(
    of_links: int, hash_mask: int, arrow: bool, tmp_path: Path
) -> None:
    """In every superstep; in a table with fewer or more buckets than the loop has."""
    dice = random.Random(of_links)
    flow = DataflowBuilder("walks")
    links = flow.stage("links", Links(), buckets=of_links, items=flow.source("s_links", LINK))
    starts = flow.source("s_starts", Walks.starts.schema)
    flow.stage("walks", Walks(), buckets=4, starts=starts, links=links.current)
    dataflow = flow.build()
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask, limits=small_limits())
    run = in_arrow(dataflow, ["walks"]) if arrow else dataflow
    epochs: list[dict[str, list[dict[str, int]]]] = []
    for _ in range(3):
        nodes = [(dice.randrange(20), dice.randrange(20)) for _ in range(8)]
        epochs.append({"links": [{"src": a, "dst": b} for a, b in nodes]})
        epochs.append({"starts": [{"src": a, "left": b % 7} for a, b in nodes[:3]]})
    assert_same(dataflow, Driver(engine, run, tmp_path / "t"), epochs, ordered=False)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("arrow", [False, True])
def test_the_black_box_looks_up_the_same(seed: int, arrow: bool, tmp_path: Path) -> None:
    """It shuffles its own state; what it looks up it finds by the other table's index."""
    same_as_reference(tmp_path, seed, arrow=arrow, black_box=True)


def test_a_look_up_in_other_buckets_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison fails when the table is searched in the buckets of the stage itself."""
    monkeypatch.setattr(LookupTable, "beside", lambda self, chosen, buckets: tuple(chosen))
    with pytest.raises((AssertionError, IndexError, KeyError, ValueError)):
        same_as_reference(tmp_path, 1)
