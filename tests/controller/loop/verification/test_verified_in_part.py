"""Verification in part: what depends on more than the input is repeated, or left out with why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, StaticTable, Translate
from cbp.errors import ChangeRefusedError
from cbp.model.run.correction import Correction
from cbp.model.verification import Request
from cbp.model.version.version_change import Choice
from tests.controller.verified import EACH_WAY, WAYS, fed, verified, world_of
from tests.controller.world import DIAMOND, ONE, SCHEMA, Sum, World, only_stage


class Told(Sum):
    """Its output is a history: epoch by epoch."""

    items = Input(SCHEMA, route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", history=True)


class Priced(Translate):
    """Multiplies with a table."""

    runnable = StaticTable(("prices",))
    items = Input(SCHEMA, route_by="word")
    prices = Input(SCHEMA, route_by="word")
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        price = sum(r.n for r in group.prices)
        n = price * sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_of(tmp_path, told=Told, priced=Priced)
    yield made
    made.close()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("rebuild", [True, False], ids=["rebuilt", "added"])
def test_what_an_earlier_version_wrote_is_not_made_again_from_scratch(world: World, rebuild: bool):
    """Nor what is behind it: both are repeated, or left out by the reference engine with why."""

    def document(**stages: Any) -> dict[str, Any]:
        given = {name: {"translator": "sum", "inputs": {"items": f}} for name, f in stages.items()}
        return {**ONE, "stages": given}

    fed(world, document(old="a", other="a"))
    choice = Choice(rebuild=frozenset({"other"})) if rebuild else Choice()
    world.controller.change(
        document(old="a", other="a", new="a", after="other.totals"), choice=choice
    )
    world.arrive("one", "a", ("a", 7), ("d", 7))
    world.ticks()
    wanted = {"state/old.sums", "flows/old.totals"}
    if not rebuild:
        wanted |= {"state/other.sums", "flows/other.totals"}
    for request in WAYS:
        verification = verified(world, "one", request)
        status = "equal" if request.engine == "direct" else "undecided"
        assert (verification.status, verification.error) == (status, None)
        scratch = {v.table for v in verification.tables if v.status == "equal" and v.since is None}
        assert scratch == wanted
        others = [v for v in verification.tables if v.table not in wanted]
        assert len(others) == 8 - len(wanted)
        if request.engine == "direct":
            assert all(v.status == "equal" and v.records for v in others)
        else:
            assert all("earlier version" in v.because for v in others)


@pytest.mark.parametrize("drop_later", [False, True], ids=["again", "dropped"])
def test_what_was_rolled_back_is_compared_without_what_was_dropped(world: World, drop_later: bool):
    """Rolled back in the middle, and on from there: epochs come again, or others do."""
    fed(world, ONE)
    world.controller.amendments.roll_back("one", "1", who="me", why="", drop_later=drop_later)
    world.arrive("one", "a", ("a", 5))
    world.ticks()
    for request in WAYS:
        verification = verified(world, "one", request)
        assert (verification.status, verification.error) == ("equal", None)
        assert (verification.epochs or {})["sum"] == (2 if drop_later else 4)
        assert all(v.records for v in verification.tables)


@EACH_WAY
def test_batches_are_no_difference(world: World, request_: Request):
    """How many increments a run took, time decided: a history of it is left out."""
    world.controller.register(_ruled({"run_all": {"batch": 5}}))
    for number in range(7):
        world.arrive("one", "a", ("x", number + 1))
    world.ticks()
    assert only_stage(world).epoch == 2
    verification = verified(world, "one", request_)
    assert (verification.status, verification.error) == ("undecided", None)
    assert {v.table: v.status for v in verification.tables} == {
        "state/sum.sums": "equal",
        "flows/sum.totals": "undecided",
    }


def test_a_table_that_grew_meanwhile_is_no_difference(world: World):
    """What was joined with it depends on when that ran: undecided, in words."""
    stage = {"translator": "priced", "inputs": {"items": "a", "prices": "b"}, "buckets": 2}
    world.controller.register({**DIAMOND, "stages": {"sum": stage}})
    for source, n in (("b", 1), ("a", 1), ("b", 10)):
        world.arrive("diamond", source, ("x", n))
        world.clock.advance(1)
        world.ticks()
    for request in WAYS:
        verification = verified(world, "diamond", request)
        assert (verification.status, verification.error) == ("undecided", None)
        assert [v.status for v in verification.tables] == ["undecided", "undecided"]
        assert "`sum`: the input that StaticTable gives to a run" in verification.tables[0].because


def test_what_another_rule_let_a_stage_read_is_not_made_again(world: World):
    """Under its old rule; what the new one let it read is repeated, if anything can do that."""
    world.controller.register(_ruled({"count_window": {"size": 3}}))
    for number in range(7):
        world.arrive("one", "a", ("x", number + 1))
    world.ticks()
    with pytest.raises(ChangeRefusedError, match=r"count_window\(size=3\) -> run_all"):
        world.controller.change(_ruled("run_all"), choice=Choice())
    world.controller.change(_ruled("run_all"), choice=Choice(keep=frozenset({"sum"})))
    world.ticks()
    assert only_stage(world).epoch == 3
    for request in (Request(), Request(engine="reference")):
        verification = verified(world, "one", request)
        assert (verification.status, verification.error) == ("undecided", None)
        assert {v.status for v in verification.tables} == {"undecided"}
        if request.engine == "direct":
            assert {v.since for v in verification.tables} == {2}
            assert all(v.records and not v.because for v in verification.tables)
            continue
        assert all("earlier version" in v.because for v in verification.tables)


def _ruled(rule: Any) -> dict[str, Any]:
    stage = {**ONE["stages"]["sum"], "translator": "told", "buckets": 2, "runnable": rule}
    return {**ONE, "stages": {"sum": stage}}


def test_what_was_corrected_is_repeated_from_there(world: World):
    """Its epochs have no counterpart in a recomputation; undone, it is made again from scratch."""
    stages = {
        "left": {"translator": "sum", "inputs": {"items": "a"}},
        "behind": {"translator": "sum", "inputs": {"items": "left.totals"}},
        "other": {"translator": "sum", "inputs": {"items": "a"}},
    }
    fed(world, {**ONE, "stages": stages})
    amendments = world.controller.amendments
    right = [Correction({"word": "a"}, "records", ({"n": 100},))]
    amendments.correct("one", "left", "sums", right, who="me", why="wrong")
    world.arrive("one", "a", ("a", 1))
    world.ticks()
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("undecided", None)
    statuses = {v.table: v.status for v in verification.tables}
    assert {table for table, status in statuses.items() if status == "undecided"} == {
        "state/left.sums",
        "flows/left.totals",
    }
    since = {v.table: v.since for v in verification.tables if not v.because}
    assert since == {
        "state/left.sums": 5,
        "flows/left.totals": 5,
        "state/behind.sums": 0,
        "flows/behind.totals": 0,
        "state/other.sums": None,
        "flows/other.totals": None,
    }
    amendments.roll_back("one", "left:3", who="me", why="not so")
    world.ticks()
    verification = verified(world, "one")
    assert (verification.status, verification.error) == ("equal", None)
    assert {v.status for v in verification.tables} == {"equal"}
