"""Translators of whole runs: the reference's results, for records of any key, in one call."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Input, State, TranslateRun, View
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS, EngineLimits
from cbp.errors import AuthorCodeError, CbpError, RunTooLargeError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.explain import PhysicalLimits, explain
from cbp.model.plan.fusion import choose_leaders
from cbp.model.run.account import ways
from cbp.testing import check_split
from tests.cbp.engine.epochs import NARROW, assert_same
from tests.cbp.engine.kept_runs import merging_limits
from tests.cbp.engine.task.test_supersteps import Dying
from tests.driver import Driver
from tests.sampling import examples

ORDERS = "k STRING, to STRING, part DOUBLE, verb STRING, n INT"
_order = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "to": st.sampled_from(["a", "b", "c", "l", "f", None]),
        "part": st.sampled_from([0.0, -0.0, 1.0, float("nan"), None]),
        "verb": st.sampled_from(["put", "put", "put", "delete", "find", "of", "all"]),
        "n": st.one_of(st.none(), st.integers(0, 3)),
    }
)


class Shelves(TranslateRun):
    """Each order puts, deletes or looks for records of some other key, and says what it found."""

    orders = Input(ORDERS, route_by="k")
    late = Input("k STRING, n INT", route_by="k")
    shelf = State("part DOUBLE, n INT, k STRING, by STRING", keep=True, key="k, part")
    board = View("k STRING, part DOUBLE, said STRING", key="k, part", keep=True)
    last = View("k STRING, n INT, run BIGINT", key="k", keep=True)

    def translate(self, tables: Any, out: Any) -> None:
        """Do what the orders say, in an order of their own."""
        board: list[dict[str, Any]] = []
        for order in sorted(tables.orders.to_pylist(), key=repr):
            keys = {"k": pa.array([order["to"]], pa.string()), "part": pa.array([order["part"]])}
            if order["verb"] == "put":
                put = {"n": [order["n"]], "by": [order["k"]]}
                out.shelf(pa.table({**keys, **put}, schema=SHELF))
            elif order["verb"] == "delete":
                out.shelf.delete(pa.table(keys, schema=SHELF_KEY))
                out.board.delete(pa.table(keys, schema=SHELF_KEY))
            else:
                said = self._look(tables.shelf, order["verb"], pa.table(keys, schema=SHELF_KEY))
                board.append({"k": order["to"], "part": order["part"], "said": said})
        out.board(pa.Table.from_pylist(board, schema=BOARD))
        late = [(row["k"], row["n"], tables.run.epoch) for row in tables.late.to_pylist()]
        columns = zip(*late, strict=True) if late else [[], [], []]
        out.last(dict(zip(("k", "n", "run"), map(list, columns), strict=True)))

    @staticmethod
    def _look(shelf: Any, verb: str, keys: pa.Table) -> str:
        if verb == "find":
            rows, found = shelf.find(keys)
            return f"{rows.tolist()} {found.to_pylist()}"
        found = shelf.of(keys.select(["k"])) if verb == "of" else shelf.all()
        return f"{shelf.size} {sorted(map(repr, found.to_pylist()))}"


BOARD = pa.schema([("k", pa.string()), ("part", pa.float64()), ("said", pa.string())])
SHELF_KEY = pa.schema([("k", pa.string()), ("part", pa.float64())])
SHELF = pa.schema([*SHELF_KEY, ("n", pa.int32()), ("by", pa.string())])


def dataflow_of(translator: TranslateRun, schemas: Mapping[str, str]) -> Dataflow:
    """Return a dataflow of one stage `stage` that reads the sources `s_<input>`."""
    flow = DataflowBuilder("whole")
    wiring = {name: flow.source(f"s_{name}", schema) for name, schema in schemas.items()}
    flow.stage("stage", translator, buckets=4, **wiring)
    return flow.build()


SHELVES = {"orders": ORDERS, "late": "k STRING, n INT"}


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@settings(max_examples=examples(6), deadline=None)
@given(
    epochs=st.lists(
        st.fixed_dictionaries(
            {
                "orders": st.lists(_order, max_size=12),
                "late": st.lists(
                    st.fixed_dictionaries({"k": st.sampled_from("abc"), "n": st.integers(0, 3)}),
                    max_size=4,
                ),
            }
        ),
        min_size=1,
        max_size=5,
    ),
    merging=st.booleans(),
)
def test_every_epoch_equals_the_reference(
    hash_mask: int, epochs: list[dict[str, list[dict[str, Any]]]], merging: bool
) -> None:
    """Null, NaN and zeros as keys; keys that share a hash; files that are merged all the time.

    What is found is what there was before the run, whichever of its orders look for it.
    """
    dataflow = dataflow_of(Shelves(), SHELVES)
    limits = merging_limits() if merging else DEFAULT_LIMITS
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, epochs, ordered=hash_mask == -1)


class Degrees(TranslateRun):
    """Count the links of both ends of each link that comes."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    degrees = View("node BIGINT, n BIGINT", key="node", keep=True)
    key = "node BIGINT"

    def translate(self, tables: Any, out: Any) -> None:
        """Add one for each end."""
        ends = pa.concat_arrays(
            [tables.links[name].combine_chunks() for name in ("src", "dst")]
        ).value_counts()
        table = pa.table({"node": ends.field("values"), "more": ends.field("counts")})
        known = tables.degrees.of(table.select(["node"])).to_pydict()
        before = dict(zip(known["node"], known["n"], strict=True))
        pairs = zip(table["node"].to_pylist(), table["more"].to_pylist(), strict=True)
        now = {node: before.get(node, 0) + more for node, more in pairs}
        out.degrees({"node": [*now], "n": [*now.values()]})


LINKS = {"links": "src BIGINT, dst BIGINT"}


def test_a_run_costs_what_it_touches(tmp_path: Path) -> None:
    """One link in a large graph reads and writes the records of its ends, and their buckets."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), dataflow_of(Degrees(), LINKS), tmp_path / "t"
    )
    driver.feed("s_links", [{"src": n, "dst": n + 1} for n in range(5_000)])
    driver.feed("s_links", [{"src": 0, "dst": 7}])
    driver.run_until_idle()
    figures = driver.figures[-1]
    assert (figures["groups"], figures["state_written"], figures["state_removed"]) == (1, 2, 2)
    assert 0 < figures["bytes_read"] < 200
    assert [row["n"] for row in driver.state("stage", "degrees") if row["node"] in (0, 7)] == [2, 3]
    runs = Path(driver.folder, "state", "stage.degrees", "_runs").rglob("*.parquet")
    assert sum("000000000001-" in path.name for path in runs) <= 2, "a file for each bucket"


@pytest.mark.parametrize("epochs", [1, 2], ids=["puts", "reads"])
def test_a_call_without_room_is_refused_and_changes_nothing(epochs: int, tmp_path: Path) -> None:
    """In time: before it holds all that it asked for; with room, the same run ends."""
    dataflow = dataflow_of(Hoard(), {"items": "k BIGINT"})
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), dataflow, tmp_path / "t")
    for epoch in range(epochs):
        items = [{"k": at} for at in range(1_000 if epoch == 0 else 1)]
        driver.feed("s_items", items)
        if epoch < epochs - 1:
            driver.run_until_idle()
    before = len(driver.state("stage", "held"))
    small = EngineLimits(whole_run_bytes=15_000, whole_run_spill=0)
    with_room, driver.engine = driver.engine, LocalEngine(cache=f"{tmp_path}/c", limits=small)
    with pytest.raises(RunTooLargeError, match="CBP_WHOLE_RUN_BYTES_MAX"):
        driver.run_until_idle()
    assert len(driver.state("stage", "held")) == before
    driver.engine = with_room
    driver.run_until_idle()
    assert len(driver.state("stage", "held")) == 1_000


class Rounds(TranslateRun):
    """Count in rounds, and note how far it came."""

    items = Input("k BIGINT", route_by="k")
    rounds = View("k BIGINT, rounds BIGINT", key="k", keep=True)
    note: Any = None

    def translate(self, tables: Any, out: Any) -> None:
        """Begin where another try was broken off."""
        done = tables.noted["rounds"]["done"][0].as_py() if tables.noted else 0
        begun = done
        while done < 9:
            done += 1
            out.note(self.note or partial(self._noted, done))
        keys = tables.items["k"]
        out.rounds({"k": keys, "rounds": [done - begun] * len(keys)})

    @staticmethod
    def _noted(done: int) -> dict[str, Any]:
        return {"rounds": {"done": [done]}}


def test_a_call_is_given_what_another_try_noted(tmp_path: Path) -> None:
    """It does the rest; the next run, of other input, has nothing to go on from."""
    dataflow = dataflow_of(Rounds(), {"items": "k BIGINT"})
    limits = replace(DEFAULT_LIMITS, superstep_log_ms=0)
    engine = LocalEngine(cache=f"{tmp_path}/c", limits=limits)
    driver = Dying(engine, dataflow, tmp_path / "t", passages=[6, 3])
    for k in range(2):
        driver.feed("s_items", [{"k": k}])
        driver.run_until_idle()
    rounds = {row["k"]: row["rounds"] for row in driver.state("stage", "rounds")}
    assert rounds == {0: 9 - (5 + 2), 1: 9}
    assert ways(driver.figures[0]) == [
        "continued from the notes that an earlier, interrupted attempt had saved"
    ]
    assert not list(tmp_path.rglob("*.log"))


@pytest.mark.parametrize("wrong", [3, lambda: {"rounds": 3}, lambda: 3])
def test_what_is_no_note_names_the_line(wrong: Any, tmp_path: Path) -> None:
    """As any wrong record does."""

    class Wrong(Rounds):
        note = staticmethod(wrong) if callable(wrong) else wrong

    limits = replace(DEFAULT_LIMITS, superstep_log_ms=0)
    dataflow = dataflow_of(Wrong(), {"items": "k BIGINT"})
    engine = LocalEngine(cache=f"{tmp_path}/c", limits=limits)
    driver = Driver(engine, dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": 1}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert "test_run_work.py" in str(caught.value.details["place"])


class Hoard(TranslateRun):
    """Keep what comes, and look at all that was kept."""

    items = Input("k BIGINT", route_by="k")
    held = State("k BIGINT, more BIGINT", keep=True, key="k")

    def translate(self, tables: Any, out: Any) -> None:
        """Keep it."""
        tables.held.all()
        out.held(tables.items.append_column("more", tables.items["k"]))


class Sips(Hoard):
    """Keep what comes, one record at a time, but no odd key; then one of these after all."""

    def translate(self, tables: Any, out: Any) -> None:
        """Put, delete, put."""
        keys = tables.items["k"].to_pylist()
        for k in keys:
            out.held({"k": [k], "more": [k]})
        out.held.delete({"k": [k for k in keys if k % 2]})
        out.held({"k": [3], "more": [-3]})


def test_many_small_puts_go_to_files_together(tmp_path: Path) -> None:
    """Each alone is too small for a file; the last put or deletion of a key counts."""
    limits = EngineLimits(whole_run_bytes=15_000)
    dataflow = dataflow_of(Sips(), {"items": "k BIGINT"})
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c", limits=limits), dataflow, tmp_path / "t")
    driver.feed("s_items", [{"k": k} for k in range(1_500)])
    driver.run_until_idle()
    held = {row["k"]: row["more"] for row in driver.state("stage", "held")}
    assert held == {3: -3} | {k: k for k in range(0, 1_500, 2)}


def test_any_split_gives_the_degrees_of_one_batch() -> None:
    """The test kit runs them as all others."""
    chance = random.Random(1)
    links = [{"src": chance.randrange(9), "dst": chance.randrange(9)} for _ in range(30)]
    result = check_split(Degrees, [{"links": links[at : at + 7]} for at in range(0, 30, 7)])
    ends = [end for link in links for end in link.values()]
    assert {row.node: row.n for row in result.view("degrees")} == {n: ends.count(n) for n in ends}


def test_a_stage_of_whole_runs_has_one_task() -> None:
    """`cbp explain` says so."""
    dataflow = dataflow_of(Degrees(), LINKS)
    plan = explain(dataflow, choose_leaders(dataflow), PhysicalLimits(4, {"run": 10}))
    ((stage,),) = (unit.stages for unit in plan.units)
    assert (stage.form, stage.tasks_max) == ("run", 1)


class Wrong(Degrees):
    """Does what `wrong` says with a link."""

    wrong = ""

    def translate(self, tables: Any, out: Any) -> None:
        """Make a mistake."""
        if self.wrong == "column":
            out.degrees({"node": [1]})
        elif self.wrong == "keys":
            tables.degrees.of({"nodes": [1]})
        elif self.wrong == "name":
            _ = tables.nodes
        elif self.wrong == "table":
            _ = tables.degrees.to_pylist()
        elif self.wrong == "set":
            tables.degrees = 1


@pytest.mark.parametrize("wrong", ["column", "keys", "name", "table", "set"])
def test_a_mistake_is_named_and_changes_nothing(wrong: str, tmp_path: Path) -> None:
    """With the author's line and the first records; the increment is read again."""
    translator = type("Named", (Wrong,), {"wrong": wrong})()
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), dataflow_of(translator, LINKS), tmp_path / "t"
    )
    driver.feed("s_links", [{"src": 1, "dst": 2}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.run_until_idle()
    assert "test_run_work.py" in caught.value.message
    assert caught.value.details["inputs"] == {"links": ["(1, 2)"]}
    with pytest.raises(CbpError):
        driver.run_until_idle()
    assert driver.state("stage", "degrees") == []


class Twice(TranslateRun):
    """Keep what comes, and at once put the odd ones again, or delete them."""

    items = Input("k BIGINT, verb STRING", route_by="k")
    held = View("k BIGINT, n BIGINT", key="k", keep=True)

    def translate(self, tables: Any, out: Any) -> None:
        """The last of both counts."""
        keys = tables.items["k"].to_numpy()
        odd = keys[keys % 2 == 1]
        out.held({"k": keys[:0], "n": keys[:0]})
        out.held({"k": keys, "n": keys})
        if "again" in tables.items["verb"].to_pylist():
            out.held({"k": odd, "n": -odd})
        elif "delete" in tables.items["verb"].to_pylist():
            out.held.delete({"k": odd})


@pytest.mark.parametrize("verb", ["once", "again", "delete"])
def test_what_is_put_after_many_records_counts(verb: str, tmp_path: Path) -> None:
    """Also where the halves of a state are settled beside each other."""
    dataflow = dataflow_of(Twice(), {"items": "k BIGINT, verb STRING"})
    limits = replace(DEFAULT_LIMITS, beside_bytes=1)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c", limits=limits), dataflow, tmp_path / "t")
    for _ in range(2):
        driver.feed("s_items", [{"k": k, "verb": verb} for k in range(200)])
        driver.run_until_idle()
    right = {
        k: -k if k % 2 and verb == "again" else k
        for k in range(200)
        if k % 2 == 0 or verb != "delete"
    }
    assert {row["k"]: row["n"] for row in driver.state("stage", "held")} == right
