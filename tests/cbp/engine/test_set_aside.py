"""What a stage sets aside and gets back, on the direct engine and on the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Input,
    State,
    Translate,
    route,
)
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.run.set_aside import GIVEN_BACK
from cbp.errors import (
    AuthorCodeError,
    DataflowInvalidError,
    DefinitionError,
    SetAsideFullError,
)
from cbp.model.dataflow.set_aside import BEHIND_CODE
from cbp.model.flow.schema import Schema
from tests.cbp.engine.epochs import NARROW, order_free
from tests.cbp.engine.set_aside_pair import FORMS, Lines, Pair, flow_of
from tests.driver import Driver


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


def test_files_of_records_that_are_given_back_do_not_stay(tmp_path: Path) -> None:
    """Those of a killed run go with the next one, and a record that no longer fits leaves none."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 1, "raise")], more=[("a", 7)])
    folder = Path(pair.driver.folder, GIVEN_BACK, "stage")
    folder.mkdir(parents=True)
    (folder / f"{0:012d}-00000-killed-rows.parquet").write_bytes(b"left")
    pair.mend()
    pair.give_back()
    assert list(folder.iterdir()) == []
    broken = Pair(tmp_path / "more", "groups")
    broken.feed(rows=[("a", 1, "raise")], more=[("a", 7)])
    node = broken.driver.dataflow.stages["stage"]
    rows, more = node.translator.inputs
    other = replace(more, schema=Schema.parse("k STRING, n BOOLEAN"))
    spec = replace(node.translator, inputs=(rows, other))
    stages = {"stage": replace(node, translator=spec)}
    broken.driver.dataflow = replace(broken.driver.dataflow, stages=stages)
    with pytest.raises(DefinitionError):
        broken.driver.give_back("stage")
    assert not Path(broken.driver.folder, GIVEN_BACK).exists()


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
    with pytest.raises(SetAsideFullError, match="more records to set aside than") as caught:
        pair.feed(rows=[("c", 1, "raise"), ("a", 2, None)])
    assert "set_aside_pair.py:" in caught.value.details["place"]
    assert len(pair.aside()) == 1
    assert [row["k"] for row in pair.driver.state("stage", "sums")] == ["b"]


def test_behind_others_is_too_much_as_well(tmp_path: Path) -> None:
    """Records that only wait count too: the message says to give them back."""
    pair = Pair(tmp_path, "groups", most=1)
    pair.feed(rows=[("a", 1, "raise")])
    pair.driver.feed("rows", [{"k": "a", "n": 2, "how": None}])
    pair.driver.feed("more", [])
    with pytest.raises(SetAsideFullError, match="give the earlier records back"):
        pair.driver.run_until_idle()


@pytest.mark.parametrize("form", ["lines", "keyed"])
def test_many_records_without_a_group_are_too_much_as_well(tmp_path: Path, form: str) -> None:
    """However many records fail, the error is that of the limit."""
    pair = Pair(tmp_path, form, most=2)
    with pytest.raises(SetAsideFullError, match="more records to set aside than"):
        pair.feed(rows=[(None, n, "raise") for n in range(1, 9)])
    assert pair.aside() == []


@pytest.mark.parametrize("form", ["groups", "tables", "both", "lines", "keyed"])
def test_a_lower_limit_loses_nothing_that_is_given_back(tmp_path: Path, form: str) -> None:
    """All records that wait can fail again, though a new version sets fewer aside."""
    pair = Pair(tmp_path, form, most=100)
    pair.feed(rows=[(None if form == "keyed" else "a", n, "raise") for n in range(1, 9)])
    before = pair.aside()
    assert len(before) == 8
    pair.driver.dataflow = flow_of(form, broken=True, most=2)
    pair.reference.take_over(pair.driver.dataflow)
    pair.give_back()
    pair.compare()
    assert pair.aside() == before


def test_a_call_of_a_timer_that_is_given_back_alone_is_made_again(tmp_path: Path) -> None:
    """No record waits with it: its timer is due, so the group is called, and fails again or not."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 3, "late")])
    pair.wake(2)
    assert [(one[0], one[2]) for one in pair.aside()] == [(None, None)]
    pair.give_back()
    pair.compare()
    assert len(pair.aside()) == 1
    pair.mend()
    pair.give_back()
    pair.compare()
    assert not pair.aside()
    assert not pair.driver.state("stage", "wake")


def test_a_timer_that_fails_first_when_others_are_given_back_is_not_forgotten(
    tmp_path: Path,
) -> None:
    """It became due since the last run. Its group was left out, so its call waits, too."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 3, "late"), ("b", 1, "raise")])
    pair.tick(2)
    pair.give_back()
    pair.compare()
    assert [one[0] for one in pair.aside()] == ["rows", None]
    assert pair.driver.figures[-1]["given_back"] == 0
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.aside() == []
    assert pair.driver.state("stage", "wake") == []


def test_a_call_of_a_timer_that_fails_with_records_waits_as_these(tmp_path: Path) -> None:
    """As when it fails for the first time: only a call without records has a row of its own."""
    pair = Pair(tmp_path, "groups")
    pair.feed(rows=[("a", 3, "late")])
    pair.wake(2)
    pair.feed(rows=[("a", 3, None)])
    assert [one[0] for one in pair.aside()] == [None, "rows"]
    pair.give_back()
    pair.compare()
    assert [one[0] for one in pair.aside()] == ["rows"]


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
        st.tuples(st.just("give_back"), st.integers(0, 2)),
        st.tuples(st.just("wake"), st.integers(1, 3)),
    ),
    max_size=6,
)


@pytest.mark.part(every=2)
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
            pair.tick(step[1])  # timers can be due that no run has seen
            pair.give_back()
        pair.compare()
    last = ([("z", 9, None)], list[Any]())  # its frame takes along what has none
    fed.append(last)
    pair.feed(rows=last[0], more=last[1])
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
    """The author's error is raised, and no table is made."""
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
