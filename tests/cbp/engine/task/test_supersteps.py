"""Loops within a run: the reference's results, at the cost of one epoch, ended by a count."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Input,
    Loopback,
    Output,
    RunAny,
    Translate,
    TranslateArrow,
    View,
)
from cbp.engine.direct import LocalEngine
from cbp.engine.kernel.arrow.emission import Emission
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from cbp.engine.task.superstep_log import Snapshot, SuperstepLog, remove_logs
from cbp.errors import AuthorCodeError, RunTooLargeError
from cbp.testing import check_split
from tests.cbp.engine.epochs import NARROW, assert_same, order_free
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.loops import (
    Components,
    ComponentsByEpochs,
    Fails,
    Gains,
    Ripples,
    Swells,
    Tides,
    Waves,
    WavesMerged,
    least_labels,
    loop_of,
)
from tests.nested_loops import PROGRAM, Nested
from tests.planned_faults import Crash, PlannedFaults
from tests.sampling import examples

_node = st.integers(0, 24)
_links = st.lists(st.fixed_dictionaries({"src": _node, "dst": _node}), max_size=12)
_orders = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c"]),
        "to": st.sampled_from(["a", "b", "c"]),
        "verb": st.sampled_from(["put", "take", "far", "echo", "forget", "drop", "zero"]),
        "n": st.integers(0, 6),
    }
)

_programs = st.fixed_dictionaries(
    {
        "k": st.integers(0, 4),
        "n": st.integers(-4, 9),
        "program": st.text(alphabet="ymdwt", max_size=7),
    }
)

NUMBERS = [0.0, -0.0, 1.0, -1.0, float("nan"), None]
CASES: dict[str, tuple[type, str, str, st.SearchStrategy[Any]]] = {
    "components": (Components, "links", "src BIGINT, dst BIGINT", _links),
    "ripples": (
        Ripples,
        "orders",
        "k STRING, to STRING, verb STRING, n INT",
        st.lists(_orders, max_size=8),
    ),
    "tides": (
        Tides,
        "items",
        "x DOUBLE, n INT",
        st.lists(
            st.fixed_dictionaries({"x": st.sampled_from(NUMBERS), "n": st.integers(0, 8)}),
            max_size=6,
        ),
    ),
    "waves": (Waves, "edges", "src BIGINT, dst BIGINT", _links),
    "merged": (WavesMerged, "edges", "src BIGINT, dst BIGINT", _links),
    "gains": (
        Gains,
        "items",
        "k BIGINT, n BIGINT, at DOUBLE, note STRING",
        st.lists(
            st.fixed_dictionaries(
                {
                    "k": st.integers(0, 4),
                    "n": st.integers(-20_000, 20_000),
                    "at": st.sampled_from(NUMBERS),
                    "note": st.sampled_from(["a", "b", None]),
                }
            ),
            max_size=6,
        ),
    ),
    "nested": (Nested, "programs", PROGRAM, st.lists(_programs, max_size=8)),
}


def components(folder: Path, translator: Translate | None = None) -> Driver:
    dataflow = loop_of(translator or Components(), links="src BIGINT, dst BIGINT")
    return Driver(LocalEngine(cache=str(folder / "cache")), dataflow, folder / "t")


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("case", "hash_mask"),
    [*((case, -1) for case in CASES), ("ripples", NARROW), ("tides", NARROW)],
    ids=[*CASES, "ripples-colliding", "tides-colliding"],
)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(case: str, hash_mask: int, data: st.DataObject) -> None:
    """States, changes of views, other outputs, messages that are left: all are the reference's.

    Also when keys share a hash, windows are tiny, and supersteps are over before the messages are.
    """
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=4))
    limits = small_limits() if data.draw(st.booleans()) else DEFAULT_LIMITS
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, [{name: rows} for rows in epochs], ordered=hash_mask == -1)


@settings(max_examples=examples(3), deadline=None)
@given(epochs=st.lists(_links, min_size=1, max_size=4))
def test_a_loop_ends_where_the_chain_of_epochs_ends(epochs: list[list[dict[str, int]]]) -> None:
    """Labels and neighbours are those of a superstep an epoch, and the labels those of a forest."""
    states = []
    for translator in (Components(), ComponentsByEpochs()):
        with tempfile.TemporaryDirectory() as folder:
            driver = components(Path(folder), translator)
            for links in epochs:
                driver.feed("s_links", links)
                driver.run_until_idle()
            states.append({s: order_free(driver.state("stage", s)) for s in ("near", "labels")})
            runs = len(driver.figures)
            if isinstance(translator, ComponentsByEpochs):
                continue
            assert runs == len(epochs), "one epoch for each increment"
            records = driver.state("stage", "labels")
            every = [(link["src"], link["dst"]) for links in epochs for link in links]
            assert {one["src"]: one["label"] for one in records} == least_labels(every)
    assert states[0] == states[1]


def test_a_loop_writes_what_one_epoch_would(tmp_path: Path) -> None:
    """Files, changed records and messages do not grow with the supersteps that led there."""
    driver = components(tmp_path)
    driver.feed("s_links", [{"src": node, "dst": node + 1} for node in range(40)])
    driver.run_until_idle()
    driver.feed("s_links", [{"src": 40, "dst": -1}])
    driver.run_until_idle()
    figures = driver.figures[-1]
    assert figures["supersteps"] > 40
    assert figures["state_written"] == 41 + 1 + 2, "new labels, one of -1; two neighbours"
    assert figures["state_removed"] == 41
    files = [
        path for path in Path(driver.folder).rglob("*.parquet") if "000000000001-" in path.name
    ]
    assert len(files) <= 2 * 8 + 1, "a file for each bucket and state, and one of changes"
    assert not driver.increments["stage.news"][-1].records


class Rounds(TranslateArrow):
    """Each key is called so often; a call says how many groups it had."""

    starts = Input("k BIGINT, left BIGINT", route_by="k")
    again = Loopback("k BIGINT, left BIGINT", route_by="k", supersteps=9)
    calls = Output("many BIGINT")

    def translate(self, groups: Any, out: Any) -> None:
        """Pass on what is left."""
        came = pa.concat_tables([groups.starts, groups.again])
        came = came.filter(pc.greater(came.column("left"), 0))
        out.again({"k": came.column("k"), "left": pc.subtract(came.column("left"), 1)})
        out.calls({"many": [len(groups)]})


def test_few_groups_of_all_buckets_are_called_together(tmp_path: Path) -> None:
    """A superstep of a task costs one call on tables, in whatever buckets its groups are."""
    dataflow = loop_of(Rounds(), starts="k BIGINT, left BIGINT")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_starts", [{"k": k, "left": 3} for k in range(40)])
    driver.run_until_idle()
    (calls,) = driver.outputs("stage.calls")
    assert [row["many"] for row in calls] == [40] * 4


class CountedRounds(Rounds):
    """A call says how many calls still hold what they emitted."""

    def translate(self, groups: Any, out: Any) -> None:
        """Pass on what is left."""
        super().translate(groups, SimpleNamespace(again=out.again, calls=len))
        out.calls({"many": [sum(type(one) is Emission for one in gc.get_objects())]})


def test_a_loop_on_columns_frees_what_its_calls_emitted(tmp_path: Path) -> None:
    """No cycle keeps it until the task ends, which has collection off."""
    dataflow = loop_of(CountedRounds(), starts="k BIGINT, left BIGINT")
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    driver.feed("s_starts", [{"k": k, "left": 5} for k in range(4)])
    driver.run_until_idle()
    (calls,) = driver.outputs("stage.calls")
    assert len(calls) == 6
    assert len({row["many"] for row in calls}) == 1


class Dying(Driver):
    """A driver whose runs die after some supersteps, and are tried again.

    Attributes:
        passages: After which superstep the next tries die, counted from 1 in each.
        deaths: How many died.
    """

    def __init__(self, *args: Any, passages: list[int], **options: Any) -> None:
        self.passages, self.deaths = passages, 0
        super().__init__(*args, **options)

    def run(self, stage: str) -> bool:
        """See `Driver.run`; every try is a new run."""
        while self.passages:
            try:
                return self.run_or_die(stage, self.passages.pop(0))
            except Crash:
                self.deaths += 1
        return super().run(stage)

    def run_or_die(self, stage: str, passage: int) -> bool:
        """Run an epoch, if it is over before this superstep is."""
        engine: Any = self.engine
        engine.preparer.faults = PlannedFaults("superstep.after", passage=passage)
        try:
            return super().run(stage)
        finally:
            engine.preparer.faults = NO_FAULTS


LOGGED = replace(DEFAULT_LIMITS, superstep_log_ms=0)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_another_try_goes_on_where_one_died(case: str, data: st.DataObject) -> None:
    """Whatever supersteps the tries die in, all is as in the reference, which never dies."""
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=3))
    passages = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    limits = replace(LOGGED, spool_bytes=data.draw(st.sampled_from([100, 1 << 20])))
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", limits=limits)
        driver = Dying(engine, dataflow, Path(folder) / "t", passages=passages)
        assert_same(dataflow, driver, [{name: rows} for rows in epochs])
        left = [path for path in Path(folder).rglob("*.log") if path.is_file()]
        assert not left, "published, so nothing is needed"


def path_that_dies(folder: Path, *passages: int, translator: Translate | None = None) -> Dying:
    """Return a driver with a path of 40 links, whose run dies after these supersteps."""
    dataflow = loop_of(translator or Components(), links="src BIGINT, dst BIGINT")
    engine = LocalEngine(cache=str(folder / "cache"), limits=LOGGED)
    driver = Dying(engine, dataflow, folder / "t", passages=[*passages])
    driver.feed("s_links", [{"src": node, "dst": node + 1} for node in range(40)])
    return driver


def test_a_try_does_what_is_left(tmp_path: Path) -> None:
    """It goes on after the superstep of the last snapshot; figures are those of all supersteps."""
    whole = path_that_dies(tmp_path / "whole")
    whole.run_until_idle()
    driver = path_that_dies(tmp_path / "dying", 30, 5)
    driver.run_until_idle()
    assert driver.deaths == 2
    figures, expected = driver.figures[-1], whole.figures[-1]
    assert figures["supersteps_before"] == 29 + 4, "a death comes before the snapshot"
    for name in ("supersteps", "groups", "messages", "records_in", "state_written"):
        assert figures[name] == expected[name], name
    assert order_free(driver.state("stage", "labels")) == order_free(whole.state("stage", "labels"))
    assert driver.outputs("stage.labels") == whole.outputs("stage.labels")


def test_a_snapshot_of_another_name_is_not_used(tmp_path: Path) -> None:
    """The name has the format, too: the loop begins anew, is right, and leaves no snapshot."""
    driver = path_that_dies(tmp_path)
    with pytest.raises(Crash):
        driver.run_or_die("stage", 30)
    (log,) = tmp_path.rglob("*.log")
    epoch, _, depends_on = log.name.partition("-")
    log.rename(log.with_name(f"{epoch}-0{depends_on}"))
    driver.run_until_idle()
    assert "supersteps_before" not in driver.figures[0]
    labels = {row["src"]: row["label"] for row in driver.state("stage", "labels")}
    assert labels == least_labels([(node, node + 1) for node in range(40)])
    assert not [*tmp_path.rglob("*.log")]


class Together(Components):
    """Components of all that waits."""

    runnable = RunAny(batch=9)


@pytest.mark.parametrize("damage", ["cut", "flipped", "input"])
def test_what_is_no_snapshot_of_the_run_is_not_used(tmp_path: Path, damage: str) -> None:
    """A damaged file, or one of a run on other input: the run begins anew, and is right."""
    driver = path_that_dies(tmp_path, translator=Together())
    links = [(node, node + 1) for node in range(40)]
    with pytest.raises(Crash):
        driver.run_or_die("stage", 30)
    (log,) = tmp_path.rglob("*.log")
    data = log.read_bytes()
    if damage == "cut":
        log.write_bytes(data[:-1])
    elif damage == "flipped":
        log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        driver.feed("s_links", [{"src": 40, "dst": -1}])
        links.append((40, -1))
    driver.run_until_idle()
    assert "supersteps_before" not in driver.figures[0]
    labels = {row["src"]: row["label"] for row in driver.state("stage", "labels")}
    assert labels == least_labels(links)


class Started(Components):
    """Components whose code asks for the time of its run."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """See `Components`."""
        assert group.run.time
        super().translate(key, group, out)


def test_a_loop_that_knows_its_time_goes_on_only_at_that_time(tmp_path: Path) -> None:
    """Every other run has another time, which its supersteps could have used."""
    driver = path_that_dies(tmp_path, translator=Started())
    with pytest.raises(Crash):
        driver.run_or_die("stage", 30)
    driver.time_ms += 1
    driver.run_until_idle()
    assert "supersteps_before" not in driver.figures[0]


def test_a_snapshot_waits_until_it_is_worth_its_cost(tmp_path: Path) -> None:
    """At most one part in twenty of a loop's time, however fast or slow files are."""
    folder = str(tmp_path)
    plan = SimpleNamespace(
        folder=folder,
        stage="s",
        epoch=3,
        depends_on="ab",
        tasks=1,
        faults=NO_FAULTS,
        limits=DEFAULT_LIMITS,
    )
    now = [0.0]
    log = SuperstepLog(cast(Any, plan), seconds=lambda: now[0])
    assert not log.is_due(lambda: 0)
    now[0] = 1.9
    assert not log.is_due(lambda: 0)
    now[0] = 2.0
    assert log.is_due(lambda: 0)
    assert not log.is_due(lambda: 40_000_000), "it is expected to take 0.2 s"
    now[0] = 4.0
    assert log.is_due(lambda: 40_000_000)
    log.put(lambda: Snapshot(7, {"a": 1}, {"t": pa.table({"x": [1, 2, 3]})}))
    again = SuperstepLog(cast(Any, plan)).newest()
    assert again is not None
    assert (again.supersteps, again.facts, again.tables["t"]["x"].to_pylist()) == (
        7,
        {"a": 1},
        [1, 2, 3],
    )
    other = SimpleNamespace(**{**vars(plan), "depends_on": "cd"})
    assert SuperstepLog(cast(Any, other)).newest() is None
    remove_logs(LocalFiles(), folder, "s", up_to=2)
    assert SuperstepLog(cast(Any, plan)).newest() is not None
    remove_logs(LocalFiles(), folder, "s", up_to=3)
    assert SuperstepLog(cast(Any, plan)).newest() is None


@pytest.mark.parametrize("spill", [0, 1], ids=["memory", "disk"])
@pytest.mark.parametrize("case", ["messages", "state"])
def test_a_loop_without_room_is_refused_and_changes_nothing(
    case: str, spill: int, tmp_path: Path
) -> None:
    """Before memory is gone: with its stage, superstep and bytes; with room, the same run ends."""
    many = case == "messages"
    dataflow = loop_of(Swells(), items="k BIGINT, n BIGINT") if many else None
    dataflow = dataflow or loop_of(Components(), links="src BIGINT, dst BIGINT")
    most = 100_000 if many else 3_000
    small = replace(DEFAULT_LIMITS, whole_run_bytes=most, whole_run_spill=spill)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c", limits=small), dataflow, tmp_path / "t")
    path = [{"src": node, "dst": node + 1} for node in range(40)]
    driver.feed(*("s_items", [{"k": 1, "n": 12}]) if many else ("s_links", path))
    with pytest.raises(RunTooLargeError, match="CBP_WHOLE_RUN_BYTES_MAX") as caught:
        driver.run_until_idle()
    details = caught.value.details
    assert details["bytes"] > details["bytes_max"] == small.whole_run_bytes
    assert (details["stage"], details["on_disk"]) == ("stage", bool(spill))
    if not spill:
        assert details["superstep"] == (10 if many else 1)
    driver.engine = LocalEngine(cache=f"{tmp_path}/c")
    driver.run_until_idle()
    (figures,) = driver.figures
    assert figures["supersteps"] > 10


# What "gains" holds is so little that in a room too small for it each record would have a file.
@pytest.mark.parametrize("case", [case for case in CASES if case != "gains"])
def test_a_loop_larger_than_its_memory_ends_as_one_that_fits(case: str, tmp_path: Path) -> None:
    """Refused without temporary files; with them, states, views and outputs are the reference's."""
    translator, name, schema, _ = CASES[case]
    dataflow = loop_of(translator(), **{name: schema})
    rows: dict[str, list[dict[str, Any]]] = {
        "links": [{"src": node, "dst": node + 1} for node in range(20)],
        "edges": [{"src": node, "dst": node + 1} for node in range(20)],
        "orders": [{"k": k, "to": "a", "verb": "put", "n": n} for k in "abc" for n in range(7)],
        "programs": [{"k": n % 5, "n": n, "program": "ymdwymd"} for n in range(12)],
        "items": [{"x": float(n), "k": n % 5, "n": n, "at": n / 2, "note": "a"} for n in range(12)],
    }
    names = {field.partition(" ")[0] for field in schema.split(", ")}
    epochs = [
        {name: [{k: v for k, v in row.items() if k in names} for row in rows[name]]} for _ in "ab"
    ]
    small = replace(
        DEFAULT_LIMITS, whole_run_bytes=800, whole_run_spill=0, message_sort_bytes=4_000
    )
    refused = Driver(LocalEngine(cache=f"{tmp_path}/r", limits=small), dataflow, tmp_path / "r")
    refused.feed(f"s_{name}", epochs[0][name])
    with pytest.raises(RunTooLargeError):
        refused.run_until_idle()
    limits = replace(small, whole_run_spill=1 << 20)
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c", limits=limits), dataflow, tmp_path / "t")
    assert_same(dataflow, driver, epochs)


def test_a_failed_loop_leaves_nothing(tmp_path: Path) -> None:
    """An author's error in a late superstep names the line; the increment is read again."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")),
        loop_of(Fails(), items="k BIGINT, n BIGINT"),
        tmp_path / "t",
    )
    driver.feed("s_items", [{"k": 0, "n": 9}])
    for _ in range(2):
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        assert caught.value.code == "author_code_failed"
        assert "(7,)" in caught.value.message
    assert driver.state("stage", "calls") == []


class Inner(Translate):
    """Count down within a run, to the next multiple of four."""

    starts = Input("k BIGINT, n BIGINT", route_by="k")
    again = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=50)
    ends = Output("k BIGINT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Go on, or end."""
        for one in (*group.starts, *group.again, *group.on):
            if one.n % 4:
                out.on(key.k, one.n - 1)
            else:
                out.ends(key.k, one.n)


class Outer(Translate):
    """Begin the inner loop again below each multiple of four, and count how often."""

    ends = Input("k BIGINT, n BIGINT", route_by="k")
    again = Output("k BIGINT, n BIGINT")
    rounds = View("k BIGINT, rounds BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count, and go on."""
        numbers = [one.n for one in group.ends]
        out.rounds(key.k, len(numbers) + sum(row.rounds for row in group.rounds))
        for n in numbers:
            if n:
                out.again(key.k, n - 1)


def test_a_cycle_of_stages_goes_around_a_loop_within_a_run(tmp_path: Path) -> None:
    """The outer loop takes an epoch for each step, the inner one a superstep."""
    flow = DataflowBuilder("nested")
    starts = flow.source("s_starts", "k BIGINT, n BIGINT")
    flow.stage("inner", Inner(), starts=starts, again="outer.again")
    flow.stage("outer", Outer(), ends="inner.ends")
    dataflow = flow.build()
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "t")
    assert_same(dataflow, driver, [{"starts": [{"k": 1, "n": 11}, {"k": 2, "n": 5}]}])
    rounds = {row["k"]: row["rounds"] for row in driver.state("outer", "rounds")}
    assert rounds == {1: 3, 2: 2}
    assert [run["supersteps"] for run in driver.figures if "supersteps" in run] == [4, 4, 4]


def test_the_test_kit_runs_loops() -> None:
    """Any split of the links gives the labels of one batch."""
    links = [{"src": node % 7, "dst": node} for node in range(20)]
    result = check_split(Components, [{"links": links[at : at + 6]} for at in range(0, 20, 6)])
    labels = {row.src: row.label for row in result.view("labels")}
    assert labels == least_labels((link["src"], link["dst"]) for link in links)
