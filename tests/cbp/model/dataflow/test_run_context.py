"""What an author may know of a run, and how it is found out that the code asks for it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cbp import (
    DataflowBuilder,
    Input,
    Output,
    Timers,
    Translate,
    TranslateArrow,
    TranslateRecords,
    TranslateSql,
)
from cbp.engine.direct import LocalEngine
from cbp.errors import AuthorCodeError
from cbp.model.dataflow.run_context import RunContext, context_of, microseconds, time_of
from cbp.model.flow.increment import Increment
from cbp.testing import run_epochs
from tests.driver import Driver
from tests.timed_flows import SingleStamps, Stamps

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def test_a_time_in_milliseconds_is_a_time_in_utc_without_rounding() -> None:
    """Every millisecond is another time, to the microsecond."""
    assert time_of(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert time_of(1_700_000_000_123) == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


def test_frames_are_those_of_the_run() -> None:
    """Only framed inputs have labels; several are no single frame; no other input is one."""
    spec = SingleStamps().spec()
    read = {name: [Increment("s", at, f"f{at}") for at in (3, 4)] for name in ("items", "singles")}
    run = context_of(spec, epoch=7, time=AT, inputs=read)
    assert (run.epoch, run.time) == (7, AT)
    assert run.frames("items") == ()
    assert run.frame("items") is None
    assert run.frames("singles") == ("f3", "f4")
    with pytest.raises(ValueError, match="2 frames"):
        run.frame("singles")
    with pytest.raises(ValueError, match="there is no input 'single'"):
        run.frame("single")
    assert context_of(spec, epoch=0, time=AT).frame("singles") is None


class Handed(Translate):
    """Reads the run in a nested function."""

    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT, epoch BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.items:
            out.lines(n=row.n, epoch=(lambda: group.run.epoch)())


class ArrowStamps(TranslateArrow):
    """Reads the run of its groups in a method of its own."""

    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT, epoch BIGINT")

    @staticmethod
    def _epochs(given: Any) -> list[int]:
        return [given.run.epoch] * len(given)

    def translate(self, groups: Any, out: Any) -> None:
        out.lines({"n": groups.keys.column("n"), "epoch": self._epochs(groups)})


class Named(Translate):
    """Has an input of that name, and a method."""

    run = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT, epoch BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.run:
            out.lines(n=row.n, epoch=1)


class Runs(Translate):
    """Calls a method named `run`."""

    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT, epoch BIGINT")

    def go(self, group: Any) -> int:
        return len(list(group.items))

    run = go

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.lines(n=key.n, epoch=self.run(group))


class Plain(TranslateRecords):
    """Has a column of that name."""

    items = Input("run BIGINT")
    lines = Output("n BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        out.lines(n=record.run)


@pytest.mark.parametrize(
    ("translator", "reads"),
    [
        (Stamps, True),
        (SingleStamps, True),
        (Handed, True),
        (ArrowStamps, True),
        (Named, False),
        (Runs, False),
        (Plain, False),
    ],
)
def test_the_code_shows_whether_it_reads_the_run(translator: Any, reads: bool) -> None:
    """Methods and what is nested in them count; an input, a method or a column does not."""
    assert translator().spec().reads_run is reads


class InSql(TranslateSql):
    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT")

    def __init__(self, query: str, *helpers: str) -> None:
        self.queries = {**{name: "SELECT n FROM items" for name in helpers}, "lines": query}


class FramesInSql(TranslateSql):
    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT")

    def translate(self, frames: Any, out: Any) -> None:
        out.lines(frames.items.join(frames.run).select("n"))


class TextInSql(FramesInSql):
    def translate(self, frames: Any, out: Any) -> None:
        out.lines(frames.sql(f"SELECT {'n'} FROM items JOIN run"))


@pytest.mark.parametrize(
    ("translator", "reads"),
    [
        *((InSql(f"SELECT n FROM items {join}"), True) for join in ("JOIN run", ", `RUN` r")),
        (InSql("SELECT n FROM items CROSS JOIN -- the\n /* one\n */ run"), True),
        (InSql("SELECT n FROM items WHERE n = (SELECT epoch FROM run)"), True),
        (FramesInSql(), True),
        (TextInSql(), True),
        (InSql("SELECT n AS run FROM items"), False),
        (InSql("SELECT n FROM items JOIN runs JOIN re_run"), False),
        (InSql("SELECT n FROM items -- FROM run"), False),
    ],
)
def test_a_query_shows_whether_it_reads_the_run(translator: Any, reads: bool) -> None:
    """It is the table `run`, in declared queries and in those of a method."""
    assert translator.spec().reads_run is reads


@pytest.mark.parametrize("translator", [Handed, ArrowStamps])
def test_epochs_are_counted_from_0(translator: Any) -> None:
    """Each run sees the number of its epoch."""
    result = run_epochs(translator, [[5], [5, 6]])
    assert [[tuple(r) for r in epoch] for epoch in result.outputs["lines"]] == [
        [(5, 0)],
        [(5, 1), (6, 1)],
    ]


def outside(group: Any) -> RunContext:
    return group.run  # type: ignore[no-any-return]


class Outside(Translate):
    """Asks for the run where its own code does not show it."""

    items = Input("n BIGINT", route_by="n")
    lines = Output("n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.lines(n=outside(group).epoch)


def test_a_run_that_the_code_does_not_show_is_refused() -> None:
    """Verification would not know of it: no value is given, but a coded error."""
    with pytest.raises(AuthorCodeError, match=r"group\.run") as caught:
        run_epochs(Outside, [[1]])
    assert caught.value.code == "run_context_hidden"


class Hidden(Translate):
    """Has timers, and an input of that name."""

    run = Input("n BIGINT, at TIMESTAMP", route_by="n")
    wake = Timers()
    lines = Output("n BIGINT, what STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for row in group.run:
            out.lines(row.n, "came")
            out.wake(row.n, row.at)
        for _ in group.wake:
            out.lines(key.n, "woken")


def test_an_input_of_that_name_hides_the_run_and_timers_fire_all_the_same(tmp_path: Path) -> None:
    """In the test kit and on the direct engine."""
    result = run_epochs(Hidden, [[(1, AT)]], times=[AT, AT.replace(hour=14)])
    lines = [tuple(row) for epoch in result.outputs["lines"] for row in epoch]
    assert lines == [(1, "came"), (1, "woken")]
    builder = DataflowBuilder("hidden")
    builder.stage("stage", Hidden(), run=builder.source("s", "n BIGINT, at TIMESTAMP"))
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), builder.build(), tmp_path / "t")
    driver.time_ms = microseconds(AT) // 1000
    driver.feed("s", [{"n": 1, "at": AT}])
    driver.run_until_idle()
    assert [row["what"] for rows in driver.outputs("stage.lines") for row in rows] == [
        "came",
        "woken",
    ]


def test_the_test_kit_gives_the_times_that_a_test_says() -> None:
    """The n-th time is that of the n-th increments; the last one stays; without any it is 1970."""
    times = [AT, AT.replace(hour=13)]
    result = run_epochs(Stamps, [[(1, 0)], [(1, 1)], [(1, 2)]], times=times, close=True)
    lines = [row for epoch in result.outputs["lines"] for row in epoch]
    assert [(r.epoch, r.at, r.first, r.frame) for r in lines] == [
        (0, times[1], times[1], "0"),
        (1, times[1], times[1], "1"),
        (2, times[1], times[1], "2"),
    ]
    untimed = run_epochs(Handed, [[1]])
    assert untimed.outputs["lines"][0][0].epoch == 0
    with pytest.raises(ValueError, match="time zone"):
        run_epochs(Handed, [[1]], times=[datetime(2026, 1, 1)])  # noqa: DTZ001 - what is refused
    with pytest.raises(ValueError, match="earlier"):
        run_epochs(Handed, [[1]], times=times[::-1])
