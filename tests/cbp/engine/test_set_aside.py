"""What a stage sets aside and gets back, on the direct engine and on the reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Input,
    Output,
    RunAny,
    State,
    Timers,
    Translate,
    TranslateArrow,
    TranslateRecords,
    View,
    by,
    framed,
    route,
)
from cbp.engine.columnar.json_records import record_text
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.engine import Engine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.errors import AuthorCodeError, DataflowInvalidError, SetAsideFullError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.run_context import time_of
from cbp.model.dataflow.set_aside import BEHIND_CODE
from tests.cbp.engine.epochs import FIRST_MS, NARROW, order_free
from tests.driver import Driver


class Ledger(Translate):
    """Adds numbers up and keeps the last one; broken code fails on what a record says."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT", route_by="k", order_by="n")
    sums = State("k STRING, n BIGINT, last BIGINT")
    seen = View("k STRING, id BIGINT, n BIGINT", keep=True, key="k, id")
    wake = Timers()
    log = Output("k STRING, n BIGINT, last BIGINT", key="k")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, key: Any, group: Any, out: Any) -> Any:
        old = next(iter(group.sums), None)
        n, last = (old.n, old.last) if old else (0, 0)
        hows, times = [], dict[int, int]()
        for row in group.rows:
            n, last = n + row.n, row.n
            before = group.seen.get(row.n)
            times[row.n] = times.get(row.n, before.n if before else 0) + 1
            out.seen(k=key.k, id=row.n, n=times[row.n])
            hows.append(row.how)
            if row.how == "late":
                out.wake(k=key.k, at=group.run.time + timedelta(minutes=90))
        n += sum(row.n for row in group.more)
        if any(timer.at <= group.run.time for timer in group.wake) and last == 3 and self.broken:
            raise ValueError("woken too late")
        out.sums(k=key.k, n=n, last=last)
        out.log(k=key.k, n=n, last=last)
        return self._fail(key, out, hows) if self.broken else None

    def _fail(self, key: Any, out: Any, hows: list[str | None]) -> Any:
        if "raise" in hows:
            raise ValueError(f"no {key.k}")
        if "type" in hows:
            out.log(k=key.k, n="text", last=None)
        if "foreign" in hows:
            out.sums(k=f"{key.k}!", n=0, last=0)
        if "twice" in hows:
            out.log(k=key.k, n=0, last=0)
        return "lost" if "returns" in hows else None


class SumArrow(TranslateArrow):
    """The sums of the ledger, by tables; broken code fails on the whole call."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT", route_by="k", order_by="n")
    kept = State("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, groups: Any, out: Any) -> None:
        hows = set(groups.rows.column("how").to_pylist())
        if self.broken and "raise" in hows:
            message = "a call with a bad record"
            raise ValueError(message)
        n = groups.sums("rows", "n") + groups.sums("more", "n") + groups.sums("kept", "n")
        wrong = self.broken and "type" in hows
        out.kept(groups.keys.append_column("n", pa.array(n.astype(str) if wrong else n)))
        if self.broken and "foreign" in hows:
            out.kept(pa.table({"k": ["nobody"], "n": [0]}))


class Lines(TranslateRecords):
    """Numbers of lines; a line that is no number fails."""

    rows = Input("k STRING, n BIGINT, how STRING")
    numbers = Output("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, record: Any, out: Any) -> Any:
        out.numbers(k=record.k, n=record.n)
        if self.broken and record.how == "raise":
            raise ValueError(record.k)
        if self.broken and record.how == "type":
            out.numbers(k=record.k, n="text")
        return "lost" if self.broken and record.how == "returns" else None


class Both(Translate):
    """Groups, and beside them single records; each fails on its own."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT")
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        if self.broken and any(row.how == "raise" for row in rows):
            raise ValueError(key.k)
        if self.broken and any(row.n == 3 for row in more):
            raise ValueError(more)
        for row in more:
            out.log(k=row.k, n=row.n)
        if key is not None:
            out.sums(k=key.k, n=sum(row.n for row in (*rows, *group.sums)))


class Keyed(Translate):
    """Functions for key and order; a record without a text has no key, one with 0 no order."""

    key = "k STRING"
    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by=by(lambda row: row.k.upper(), "STRING"),
        order_by=by(lambda row: 12 // row.n, "BIGINT"),
    )
    more = Input("k STRING, n BIGINT", route_by="k")
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        for row in rows:
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


class MendedKeyed(Keyed):
    """The same with functions that never fail."""

    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by=by(lambda row: (row.k or "none").upper(), "STRING"),
        order_by=by(lambda row: 12 // (row.n or 1), "BIGINT"),
    )


class Framed(Translate):
    """Frames by a number; a record that says so has no frame, and another one a wrong one."""

    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by="k",
        frame_by=framed(lambda row, memo: _frame(row, memo), memo=True),
    )
    more = Input("k STRING, n BIGINT", route_by="k")
    runnable = RunAny()
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        if any(row.how == "late" for row in rows):
            raise ValueError(key.k)
        for row in (*rows, *more):
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


def _frame(row: Any, memo: Any) -> Any:
    seen = memo or []
    seen.append(row.n)
    if row.how == "raise":
        message = "no frame"
        raise ValueError(message)
    return (None if row.how == "type" else row.n), seen[-3:]


class MendedFramed(Framed):
    """The same with functions that never fail."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k", frame_by=framed(lambda row: row.n))

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        for row in (*rows, *more):
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


FORMS: dict[str, Callable[[bool], Translate | TranslateArrow | TranslateRecords]] = {
    "groups": lambda broken: Ledger(broken=broken),
    "tables": lambda broken: SumArrow(broken=broken),
    "lines": lambda broken: Lines(broken=broken),
    "both": lambda broken: Both(broken=broken),
    "keyed": lambda broken: Keyed() if broken else MendedKeyed(),
    "framed": lambda broken: Framed() if broken else MendedFramed(),
}


def flow_of(form: str, *, broken: bool, most: int | None = 10_000) -> Dataflow:
    """Return a dataflow of one stage that sets aside up to `most` records."""
    builder = DataflowBuilder("flow")
    sources = {"rows": builder.source("rows", "k STRING, n BIGINT, how STRING")}
    if form != "lines":
        sources["more"] = builder.source("more", "k STRING, n BIGINT")
    builder.stage(
        "stage",
        FORMS[form](broken),
        buckets=4,
        on_error="set_aside",
        set_aside_max=most,
        **sources,
    )
    return builder.build()


class Pair:
    """One dataflow on both engines, step by step."""

    def __init__(
        self,
        folder: Path,
        form: str,
        *,
        mask: int = -1,
        most: int = 10_000,
        engine: Engine | None = None,
    ) -> None:
        self.form, self.most, self.hour = form, most, 0
        dataflow = flow_of(form, broken=True, most=most)
        if engine is None:
            engine = LocalEngine(cache=str(folder / "cache"), hash_mask=mask)
        self.driver = Driver(engine, dataflow, folder / "tables")
        self.reference = ReferenceEngine(dataflow)

    def tick(self, hours: int = 1) -> None:
        """Let time pass."""
        self.hour += hours
        self.driver.time_ms = FIRST_MS + self.hour * 3_600_007
        self.reference.time = time_of(self.driver.time_ms)

    def feed(self, **records: list[tuple[Any, ...]]) -> None:
        """Bring an increment of every source, and let both run."""
        self.tick(0)
        names = {"rows": ("k", "n", "how"), "more": ("k", "n")}
        for source in self.driver.dataflow.sources:
            given = records.get(source, [])
            rows = [dict(zip(names[source], row, strict=True)) for row in given]
            self.driver.feed(source, rows)
            self.reference.feed(source, rows)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def wake(self, hours: int) -> None:
        """Let time pass, and both run for their timers."""
        self.tick(hours)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def close(self) -> None:
        """Close all open frames, and let both run."""
        for source in self.driver.dataflow.sources:
            self.driver.close(source)
            self.reference.close(source)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def mend(self) -> None:
        """Take code that fails no more; states and what is set aside stay."""
        after = flow_of(self.form, broken=False, most=self.most)
        self.driver.dataflow = after
        self.reference.take_over(after)

    def give_back(self) -> None:
        """Give back what is set aside."""
        self.tick(0)
        self.driver.give_back("stage")
        self.reference.give_back("stage")

    def compare(self) -> None:
        """Compare states, outputs and what is set aside."""
        spec = self.driver.dataflow.stages["stage"].translator
        for state in spec.states:
            kept = order_free(self.driver.state("stage", state.name))
            assert kept == order_free(self.reference.state("stage", state.name)), state.name
        for output in spec.outputs:
            mine, theirs = (
                [rows for rows in one.outputs(f"stage.{output.name}") if rows]
                for one in (self.driver, self.reference)
            )
            assert list(map(order_free, mine)) == list(map(order_free, theirs)), output.name
        assert self.aside() == self.reference_aside()

    def aside(self) -> list[tuple[Any, ...]]:
        """Return (input, key, record, code) of what is set aside, in order."""
        return [
            (one["input"], one["key"], one["record"], one["code"])
            for one in self.driver.set_aside("stage")
        ]

    def reference_aside(self) -> list[tuple[Any, ...]]:
        """Return the same of the reference engine."""
        spec = self.driver.dataflow.stages["stage"].translator

        def text(values: dict[str, Any] | None, schema: Any) -> str | None:
            return None if values is None else record_text(tuple(values.values()), schema)

        return [
            (
                one["input"],
                text(one["key"], spec.key),
                text(one["record"], one["input"] and spec.input(one["input"]).schema),
                one["code"],
            )
            for one in self.reference.set_aside("stage")
        ]


def test_a_group_that_fails_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    """Its state stays, nothing that it emitted counts, later records wait behind earlier ones."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 1, None), ("b", 1, None)])
    pair.feed(rows=[("a", 2, None), ("a", 3, "raise"), ("b", 2, None)])
    pair.feed(rows=[("a", 4, None), ("b", 3, None)], more=[("a", 7)])
    pair.compare()
    sums = {row["k"]: (row["n"], row["last"]) for row in pair.driver.state("stage", "sums")}
    assert sums == {"a": (1, 1), "b": (6, 3)}
    seen = pair.driver.set_aside("stage")
    assert [(one["epoch"], one["number"], one["code"]) for one in seen] == [
        (1, 0, "author_code_failed"),
        (1, 1, "author_code_failed"),
        (2, 0, BEHIND_CODE),
        (2, 1, BEHIND_CODE),
    ]
    assert "no a" in seen[0]["message"]
    assert "Ledger.translate" in seen[0]["message"]
    assert pair.driver.figures[-1]["set_aside_now"] == 4
    pair.mend()
    pair.give_back()
    pair.compare()
    sums = {row["k"]: (row["n"], row["last"]) for row in pair.driver.state("stage", "sums")}
    assert sums == {"a": (17, 4), "b": (6, 3)}
    assert pair.driver.set_aside("stage") == []


def test_any_reader_sees_what_is_set_aside(tmp_path: Path) -> None:
    """The table is plain Delta: key and record are JSON, with the increment they came in."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 1, "raise")])
    frame = polars.read_delta(f"{pair.driver.folder}/set_aside/stage")
    row = frame.row(0, named=True)
    assert json.loads(row["key"]) == {"k": "a"}
    assert json.loads(row["record"]) == {"k": "a", "n": 1, "how": "raise"}
    assert (row["input"], row["increment"], row["file"], row["line"]) == ("rows", 0, None, None)


@pytest.mark.parametrize("how", ["raise", "type", "foreign", "twice", "returns"])
def test_every_way_to_fail_sets_the_group_aside(tmp_path: Path, how: str) -> None:
    """What raises, and what is refused once it is emitted."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[(f"g{n}", n, how if n % 3 == 0 else None) for n in range(20)])
    pair.compare()
    assert len(pair.aside()) == 7
    assert len(pair.driver.state("stage", "sums")) == 13


def test_a_timer_that_fails_is_given_back_as_a_call(tmp_path: Path) -> None:
    """Without a new record there is a row without one; the timer stays, and wakes nothing."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 3, "late"), ("b", 4, "late")])
    pair.wake(2)
    pair.compare()
    assert [(one[0], one[2]) for one in pair.aside()] == [(None, None)]
    epochs = dict(pair.driver.epochs)
    pair.wake(2)
    assert pair.driver.epochs == epochs
    assert [row["k"] for row in pair.driver.state("stage", "wake")] == ["a"]
    pair.feed(rows=[("a", 5, None)])
    pair.compare()
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.driver.state("stage", "wake") == []
    assert pair.aside() == []


def test_what_fails_again_stays_in_its_order(tmp_path: Path) -> None:
    """Given back to the same code, nothing changes but the error of what stood behind."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 1, "raise"), ("b", 1, "raise")])
    pair.feed(rows=[("a", 2, None)])
    pair.give_back()
    pair.compare()
    rows = [
        (one["epoch"], json.loads(one["record"])["n"]) for one in pair.driver.set_aside("stage")
    ]
    assert rows == [(0, 1), (0, 1), (1, 2)]
    assert {one[3] for one in pair.aside()} == {"author_code_failed"}


def test_more_than_the_limit_fails_the_run(tmp_path: Path) -> None:
    """Beyond `set_aside_max` the epoch fails, with the author's error, and changes nothing."""
    pair = Pair(tmp_path, "groups", most=2)
    pair.feed(rows=[("a", 1, "raise"), ("b", 1, None)])
    with pytest.raises(SetAsideFullError, match="would be set aside") as caught:
        pair.feed(rows=[("c", 1, "raise"), ("a", 2, None)])
    assert "test_set_aside.py:" in caught.value.details["place"]
    assert len(pair.aside()) == 1
    assert [row["k"] for row in pair.driver.state("stage", "sums")] == ["b"]


def test_behind_others_is_too_much_as_well(tmp_path: Path) -> None:
    """Records that only wait count too: the message says to give them back."""
    pair = Pair(tmp_path, "groups", most=1)
    pair.feed(rows=[("a", 1, "raise")])
    pair.driver.feed("rows", [{"k": "a", "n": 2, "how": None}])
    pair.driver.feed("more", [])
    with pytest.raises(SetAsideFullError, match="give them back"):
        pair.driver.run_until_idle()


def test_keys_that_share_a_hash_are_told_apart(tmp_path: Path) -> None:
    """Only the group that fails is left out."""
    pair = Pair(tmp_path, "groups", mask=NARROW)
    pair.feed(rows=[(f"g{n}", n, None) for n in range(60)])
    pair.feed(rows=[(f"g{n}", n, "raise" if n == 7 else None) for n in range(60)])
    pair.feed(rows=[(f"g{n}", n, None) for n in range(60)])
    pair.compare()
    assert {one[1] for one in pair.aside()} == {'{"k":"g7"}'}


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("feed"),
            st.lists(
                st.tuples(
                    st.sampled_from(["a", "b", "c", None]),
                    st.integers(0, 4),
                    st.sampled_from([None, None, None, "raise", "type", "late"]),
                ),
                max_size=6,
            ),
            st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 4)), max_size=3),
        ),
        st.tuples(st.just("give_back")),
        st.tuples(st.just("wake"), st.integers(1, 3)),
    ),
    max_size=6,
)


@pytest.mark.parametrize("form", FORMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_both_engines_set_the_same_aside(
    tmp_path_factory: pytest.TempPathFactory, form: str, steps: list[Any]
) -> None:
    """After every step; and once the code is mended, nothing is lost: what was given is in."""
    pair = Pair(tmp_path_factory.mktemp("pair"), form)
    fed: list[tuple[Any, Any]] = []
    for step in steps:
        if step[0] == "feed":
            fed.append((step[1], step[2]))
            pair.feed(rows=step[1], more=step[2])
        elif step[0] == "wake":
            pair.wake(step[1])
        else:
            pair.give_back()
        pair.compare()
    pair.close()
    pair.compare()
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.aside() == []
    sound = ReferenceEngine(flow_of(form, broken=False))
    for rows, more in fed:
        sound.feed("rows", rows)
        if form != "lines":
            sound.feed("more", more)
        sound.run_until_idle()
    for source in pair.driver.dataflow.sources:
        sound.close(source)
    sound.run_until_idle()
    for state in pair.driver.dataflow.stages["stage"].translator.states:
        if not state.timers:
            kept = order_free(pair.driver.state("stage", state.name))
            assert kept == order_free(sound.state("stage", state.name)), state.name
    if form == "lines":
        mine, theirs = pair.driver.outputs("stage.numbers"), sound.outputs("stage.numbers")
        assert order_free([*chain(*mine)]) == order_free([*chain(*theirs)])


class Many(Translate):
    """Records with several destinations."""

    key = "k STRING"
    rows = Input("k STRING", route_by=route(lambda row: [row.k], "STRING"))

    def translate(self, key: Any, group: Any, out: Any) -> None: ...


class Outer(Translate):
    """Calls every group."""

    rows = Input("k STRING", route_by="k")
    ages = State("k STRING", grouping="outer")

    def translate(self, key: Any, group: Any, out: Any) -> None: ...


@pytest.mark.parametrize("translator", [Many, Outer])
def test_what_cannot_be_left_out_is_refused(translator: Any) -> None:
    """At registration, with the reason."""
    builder = DataflowBuilder("flow")
    rows = builder.source("rows", "k STRING")
    builder.stage("stage", translator(), rows=rows, on_error="set_aside")
    with pytest.raises(DataflowInvalidError) as caught:
        builder.build()
    assert [one.code for one in caught.value.mistakes] == ["set_aside_impossible"]


def test_without_the_option_the_epoch_fails(tmp_path: Path) -> None:
    """As before."""
    dataflow = flow_of("groups", broken=True)
    node = dataflow.stages["stage"]
    assert node.sets_aside
    builder = DataflowBuilder("flow")
    rows = builder.source("rows", "k STRING, n BIGINT, how STRING")
    builder.stage("stage", Lines(broken=True), rows=rows)
    driver = Driver(LocalEngine(cache=str(tmp_path / "c")), builder.build(), tmp_path / "t")
    driver.feed("rows", [{"k": "a", "n": 1, "how": "raise"}])
    with pytest.raises(AuthorCodeError):
        driver.run_until_idle()
    assert not (tmp_path / "t" / "set_aside").exists()


def test_a_record_without_a_key_is_set_aside_alone(tmp_path: Path) -> None:
    """What a key or an order fails on has no group, so nothing waits behind it."""
    pair = Pair(tmp_path, "keyed")
    pair.feed(rows=[("a", 1, None), (None, 2, None), ("a", 0, None), ("b", 3, None)])
    pair.feed(rows=[("a", 4, None)])
    pair.compare()
    seen = pair.driver.set_aside("stage")
    assert [(one["key"], json.loads(one["record"])["n"]) for one in seen] == [(None, 2), (None, 0)]
    assert "rows.route_by" in seen[0]["message"]
    assert "rows.order_by" in seen[1]["message"]
    assert [one["increment"] for one in seen] == [0, 0]
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.aside() == []


def test_the_table_stays_small(tmp_path: Path) -> None:
    """Many epochs that set a record aside leave few files."""
    pair = Pair(tmp_path, "lines")
    for number in range(40):
        pair.feed(rows=[("a", number, "raise")])
    table = pair.driver.engine.history.tables.table(  # type: ignore[attr-defined]
        f"{pair.driver.folder}/set_aside/stage"
    )
    assert len(table.refresh().live) <= 16
    assert [json.loads(one["record"])["n"] for one in pair.driver.set_aside("stage")] == [
        *range(40)
    ]


def test_a_publication_may_cover_many_epochs(tmp_path: Path) -> None:
    """Between publications, the records of the runs say what is set aside."""
    pair = Pair(tmp_path, "groups")
    pair.driver.publish_every = 100
    pair.feed(rows=[("a", 1, "raise"), ("b", 1, None)])
    pair.feed(rows=[("a", 2, None), ("b", 2, "raise")])
    pair.mend()
    pair.give_back()
    pair.feed(rows=[("c", 2, "raise")])
    pair.driver.publish()
    pair.compare()
    assert pair.aside() == []
