"""Frames of a stage that sets aside: records without a framing key, and frames that are late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbp import Align, DataflowBuilder, Input, State, Translate, framed
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.errors import AlignmentError, AuthorCodeError, SetAsideFullError
from cbp.model.dataflow.dataflow import Dataflow
from tests.cbp.engine.epochs import order_free
from tests.cbp.engine.set_aside_pair import Pair
from tests.driver import Driver

WRONG = ("a", None)


def test_a_record_without_a_frame_goes_with_the_open_one(tmp_path: Path) -> None:
    """It is set aside by the run of that frame, with the place where it came from."""
    pair = Pair(tmp_path, "framed")
    pair.feed(rows=[("a", 1, None), ("a", 2, "raise"), ("b", 1, None)])
    assert pair.aside() == []
    pair.feed(rows=[("b", 3, None)])
    pair.compare()
    (one,) = pair.driver.set_aside("stage")
    assert (one["input"], one["key"], one["code"]) == ("rows", None, "author_code_failed")
    assert json.loads(one["record"]) == {"k": "a", "n": 2, "how": "raise"}
    assert "rows.frame_by failed at" in one["message"]
    assert "no frame" in one["message"]
    assert one["increment"] == 0
    sums = {row["k"]: row["n"] for row in pair.driver.state("stage", "sums")}
    assert sums == {"a": 1, "b": 1}


def test_it_is_set_aside_at_once_if_no_frame_is_open(tmp_path: Path) -> None:
    """By a run of its own, which calls nothing: nobody knows when the next frame comes."""
    pair = Pair(tmp_path, "framed")
    pair.feed(rows=[("a", 2, "raise"), ("a", 3, "type")])
    pair.compare()
    codes = [one[3] for one in pair.aside()]
    assert codes == ["author_code_failed", "framing_key_invalid"]
    assert pair.driver.connectors["stage"]["rows"].queue == ()
    pair.feed(rows=[("a", 4, None)])
    pair.close()
    pair.feed(rows=[("b", 5, "raise")])
    pair.compare()
    assert [one[3] for one in pair.aside()] == [*codes, "author_code_failed"]
    assert {row["k"]: row["n"] for row in pair.driver.state("stage", "sums")} == {"a": 4}
    pair.mend()
    pair.give_back()
    pair.compare()
    assert pair.aside() == []


def test_it_waits_for_no_rule(tmp_path: Path) -> None:
    """A rule that waits for another input, or for a later key, is not asked about such a record."""
    dataflow = aligned(aside=True)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "tables")
    driver.feed("left", [{"k": "a", "t": None}])
    driver.run_until_idle()
    (one,) = driver.set_aside("stage")
    assert (one["code"], json.loads(one["record"])) == (
        "framing_key_invalid",
        {"k": "a", "t": None},
    )
    for number in range(2):
        for source in ("left", "right"):
            driver.feed(source, [{"k": "b", "t": number}])
            driver.run_until_idle()
    assert {row["k"]: row["t"] for row in driver.state("stage", "sums")} == {"b": 0}


def test_given_back_into_a_group_that_fails_it_waits_with_its_group(tmp_path: Path) -> None:
    """It has its group's key by then, so that later records of the group do not overtake it."""
    pair = Pair(tmp_path, "framed")
    pair.feed(rows=[("a", 0, "raise"), ("a", 0, "late"), ("a", 1, None)])
    assert [one[1] for one in pair.aside()] == [None, '{"k":"a"}']
    pair.give_back()
    pair.compare()
    assert [one[1] for one in pair.aside()] == ['{"k":"a"}', '{"k":"a"}']


def test_its_order_among_others_is_that_of_the_input(tmp_path: Path) -> None:
    """A group that fails comes before and after it."""
    pair = Pair(tmp_path, "framed")
    pair.feed(
        rows=[("a", 1, "late"), ("a", 9, "raise"), ("b", 1, "late"), ("b", 8, "raise")],
    )
    pair.close()
    pair.compare()
    pair.mend()
    pair.give_back()
    pair.compare()
    assert {row["k"]: row["n"] for row in pair.driver.state("stage", "sums")} == {"a": 10, "b": 9}


def test_more_than_the_limit_stops_the_framing(tmp_path: Path) -> None:
    """With the error of the author's code."""
    pair = Pair(tmp_path, "framed", most=2)
    rows = [{"k": "a", "n": n, "how": "raise"} for n in range(3)]
    with pytest.raises(SetAsideFullError, match="no frame"):
        pair.driver.feed("rows", rows)


class Aligned(Translate):
    """Two inputs in step; a frame that comes too late is an error."""

    left = Input("k STRING, t BIGINT", route_by="k", frame_by="t")
    right = Input("k STRING, t BIGINT", route_by="k", frame_by="t")
    sums = State("k STRING, t BIGINT")
    runnable = Align()

    def translate(self, key: Any, group: Any, out: Any) -> None:
        every = (*group.left, *group.right, *group.sums)
        out.sums(k=key.k, t=sum(row.t for row in every))


def aligned(*, aside: bool) -> Dataflow:
    builder = DataflowBuilder("flow")
    sources = {name: builder.source(name, "k STRING, t BIGINT") for name in ("left", "right")}
    more: dict[str, Any] = {"on_error": "set_aside"} if aside else {}
    builder.stage("stage", Aligned(), buckets=2, **more, **sources)
    return builder.build()


LATE = {
    "left": [[("a", 1), ("b", 2)], [("a", 1), ("c", 3)], [("d", 4)]],
    "right": [[("a", 1), ("b", 2)], [("c", 3)], [("d", 4)]],
}


def test_a_frame_that_comes_too_late_is_set_aside(tmp_path: Path) -> None:
    """As a whole, by a run that calls nothing; the others go on as if it had not come."""
    dataflow = aligned(aside=True)
    driver = Driver(LocalEngine(cache=str(tmp_path / "cache")), dataflow, tmp_path / "tables")
    reference = ReferenceEngine(dataflow)
    for number in range(3):
        for source, files in LATE.items():
            rows = [{"k": k, "t": t} for k, t in files[number]]
            driver.feed(source, rows)
            reference.feed(source, rows)
        driver.run_until_idle()
        reference.run_until_idle()
    assert order_free(driver.state("stage", "sums")) == order_free(reference.state("stage", "sums"))
    (one,) = driver.set_aside("stage")
    assert json.loads(one["record"]) == {"k": "a", "t": 1}
    assert (one["code"], one["increment"]) == ("alignment_backwards", 1)
    (other,) = reference.set_aside("stage")
    assert (other["record"], other["code"]) == ({"k": "a", "t": 1}, "alignment_backwards")
    assert {row["k"]: row["t"] for row in driver.state("stage", "sums")} == {"a": 2, "b": 4, "c": 6}
    driver.give_back("stage")
    assert {row["k"]: row["t"] for row in driver.state("stage", "sums")} == {"a": 3, "b": 4, "c": 6}
    assert driver.set_aside("stage") == []


def test_without_the_option_it_stops_the_stage(tmp_path: Path) -> None:
    """As does a function that frames."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), aligned(aside=False), tmp_path / "tables"
    )
    for source, files in LATE.items():
        for rows in files:
            driver.feed(source, [{"k": k, "t": t} for k, t in rows])
    with pytest.raises(AlignmentError):
        driver.run_until_idle()


class Hours(Translate):
    """Frames by an hour, which is missing at times."""

    rows = Input("k STRING, t BIGINT", route_by="k", frame_by=framed(lambda row: row.t // 10))
    sums = State("k STRING, t BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.sums(k=key.k, t=sum(row.t for row in (*group.rows, *group.sums)))


def test_an_error_of_a_function_that_frames_names_the_record(tmp_path: Path) -> None:
    """Its place in its increment, so that file and line are found."""
    builder = DataflowBuilder("flow")
    builder.stage("stage", Hours(), rows=builder.source("rows", "k STRING, t BIGINT"))
    engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(engine, builder.build(), tmp_path / "tables")
    driver.feed("rows", [{"k": "a", "t": 1}])
    with pytest.raises(AuthorCodeError) as caught:
        driver.feed("rows", [{"k": "a", "t": 1}, {"k": "b", "t": 2}, {"k": "c", "t": None}])
    assert caught.value.details["records"] == {
        "rows": {"flow": "rows", "increment": 1, "record": 2}
    }
