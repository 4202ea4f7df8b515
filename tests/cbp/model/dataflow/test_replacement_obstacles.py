"""Which readers cannot follow a replaced file, judged by their declarations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp import (
    DataflowBuilder,
    Input,
    Lookup,
    Output,
    State,
    Timers,
    Translate,
    TranslateSql,
    View,
    by,
)
from cbp.model.dataflow.replacement_obstacles import is_signed, obstacles

SCHEMA = "k BIGINT, n BIGINT, sign INT"


class Able(Translate):
    """Counts, in any order."""

    rows = Input(SCHEMA, route_by="k")
    counts = View("k BIGINT, times BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Count."""
        known = next(iter(group.counts), None)
        out.counts(key.k, sum(1 for _ in group.rows) + (known.times if known else 0))


class Remote(Able):
    """Writes state of other groups."""

    seen = State("k BIGINT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write one."""
        out.seen.remote(key.k + 1, 1)


class Timed(Able):
    """Reads the time."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Write it."""
        out.counts(key.k, group.run.time.year)


class Signed(Able):
    """Adds up signs."""

    rows = Input(SCHEMA, route_by="k", changes="signed")


class Kept(Signed):
    """Adds them up in state that is kept."""

    counts = View("k BIGINT, times BIGINT", key="k", keep=True)


class KeptInAnyOrder(Able):
    """Counts, in a view that is kept."""

    counts = View("k BIGINT, times BIGINT", key="k", keep=True)


class Outer(Able):
    """Is called for every group in each run."""

    seen = State("k BIGINT, n BIGINT", grouping="outer")


class Framed(Able):
    """Reads records by the hour."""

    rows = Input(SCHEMA, route_by="k", frame_by="n")


class Routed(Able):
    """Is routed by a function."""

    rows = Input(SCHEMA, route_by=by(lambda row: row.k % 7, "BIGINT"))
    key = "k BIGINT"


class Emitting(Able):
    """Has an output that is not a view."""

    changed = Output("k BIGINT")


class Woken(Able):
    """Is called again without input."""

    later = Timers()


class Asking(Able):
    """Looks up a table of another stage."""

    price = Lookup("k BIGINT, times BIGINT", by="k")


class InSql(TranslateSql):
    """Counts, in SQL."""

    rows, counts = Able.rows, Able.counts
    queries = {"counts": "SELECT k, count(*) AS times FROM rows GROUP BY k"}  # noqa: RUF012


def why(
    translator: Translate | TranslateSql, *, any_order: bool = True, taken_back: bool = False
) -> list[tuple[str, str]]:
    """Return the readers that cannot follow, with the reasons."""
    builder = DataflowBuilder("d")
    rows = builder.source("rows", SCHEMA)
    builder.stage("s", translator, rows=rows, any_order=any_order)
    made = builder.build()
    every = made.sources, made.stages, made.sinks
    found = obstacles(made.sources["rows"], *every, taken_back=taken_back)
    return [(one.reader, one.why) for one in found]


def test_a_stage_in_sql_and_one_that_looks_up_do_not_follow() -> None:
    """The reason is named, whatever the stage promises."""
    ((reader, reason),) = why(InSql())
    assert (reader, reason.partition(",")[0]) == ("stages.s", "the stage is written in SQL")
    builder = DataflowBuilder("d")
    rows = builder.source("rows", SCHEMA)
    prices = builder.stage("prices", Kept(), rows=builder.source("signed", SCHEMA))
    builder.stage("s", Asking(), rows=rows, price=prices.counts, any_order=True)
    made = builder.build()
    every = made.sources, made.stages, made.sinks
    (one,) = obstacles(made.sources["rows"], *every)
    assert one.reader == "stages.s"
    assert "the stage reads look-ups" in one.why


def test_a_stage_that_promises_any_order_follows() -> None:
    """And so does one that adds up signs, without a promise."""
    assert why(Able()) == []
    assert why(Signed(), any_order=False) == []
    assert [reader for reader, _ in why(Able(), any_order=False)] == ["stages.s"]


@pytest.mark.parametrize(
    ("translator", "words"),
    [(Remote(), "cannot be recomputed group by group"), (Timed(), "the time")],
)
def test_what_else_decides_its_answer_is_named(translator: Translate, words: str) -> None:
    """State of other groups, and the time."""
    ((reader, reason),) = why(translator)
    assert reader == "stages.s"
    assert words in reason


def test_a_promise_is_asked_for_only_where_it_would_help() -> None:
    """What no declaration mends is named first."""
    assert "`any_order: true`" in why(Able(), any_order=False)[0][1]
    assert "any_order" not in why(Timed(), any_order=False)[0][1]


def test_signs_count_if_all_that_read_them_do() -> None:
    """One reader that does not lets all of them be computed anew."""
    builder = DataflowBuilder("d")
    rows = builder.source("rows", SCHEMA)
    builder.stage("s", Signed(), rows=rows)
    one = builder.build()
    assert is_signed(one.sources["rows"], one.stages)
    builder.stage("t", Able(), rows=rows, any_order=True)
    both = builder.build()
    assert not is_signed(both.sources["rows"], both.stages)
    found = obstacles(both.sources["rows"], both.sources, both.stages)
    assert [one.reader for one in found] == ["stages.s"]


def test_what_was_taken_back_before_is_recomputed_by_readers_of_signs_too() -> None:
    """They need no promise for it, but all that they wrote has to be replaced."""
    assert why(Signed(), any_order=False, taken_back=True) == []
    assert why(Kept(), any_order=False) == []
    ((reader, reason),) = why(Kept(), any_order=False, taken_back=True)
    assert reader == "stages.s"
    assert "'counts' of the stage cannot be recomputed group by group" in reason


@pytest.mark.parametrize(
    ("translator", "remedy"),
    [
        (KeptInAnyOrder(), "without `keep=True`"),
        (Outer(), 'without `grouping="outer"`'),
        (Remote(), "emit such records to a view"),
    ],
)
def test_a_state_that_cannot_be_recomputed_is_named_with_what_to_declare(
    translator: Translate, remedy: str
) -> None:
    """Each reason has its own remedy."""
    ((_, reason),) = why(translator)
    assert "cannot be recomputed group by group" in reason
    assert remedy in reason


@pytest.mark.parametrize(
    ("translator", "words"),
    [
        (Framed(), "closed frames cannot be reopened"),
        (Routed(), "routed by a function"),
        (Emitting(), "'changed' of the stage is not a view"),
        (Woken(), "timers"),
    ],
)
def test_a_promise_does_not_help_what_cannot_be_taken_back(
    translator: Translate, words: str
) -> None:
    """Frames, function keys, emitted records and timers, each with its reason."""
    ((reader, reason),) = why(translator)
    assert reader == "stages.s"
    assert words in reason


def test_readers_beside_groups_are_named() -> None:
    """A sink of the source, an input from a stage, records that are set aside; and a table."""
    builder = DataflowBuilder("d")
    rows = builder.source("rows", SCHEMA)
    first = builder.stage("first", Able(), rows=rows, any_order=True)

    class Both(Able):
        """Reads the source and a stage."""

        more = Input("k BIGINT, times BIGINT, sign INT", route_by="k", changes="signed")

    builder.stage("both", Both(), rows=rows, more=first.counts, any_order=True)
    builder.stage("aside", Able(), rows=rows, any_order=True, on_error="set_aside")
    builder.sink("archive", to="parquet", flow=rows, path="archive")
    made = builder.build()
    every = made.sources, made.stages, made.sinks
    named = {one.reader: one.why for one in obstacles(made.sources["rows"], *every)}
    assert set(named) == {"stages.both", "stages.aside", "sinks.archive"}
    assert "'first.counts', and only records of sources can be read again" in named["stages.both"]
    assert "sets records aside" in named["stages.aside"]
    altered = obstacles(made.sources["rows"], *every, altered=["first"])
    assert "stages.first" in {one.reader for one in altered}
    table = replace(made.sources["rows"], format="delta")
    assert next(obstacles(table, *every)).reader == "sources.rows"
