"""`cbp explain` of a stage that frames its input: by which key, and what the frames were.

A run names the frames that it took by their keys, also when they are gone, and none whose number
another frame may have now.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate
from tests.controller.cli.conftest import Cbp
from tests.controller.live import Live, live

SCHEMA = "word STRING, n BIGINT"


class Days(Translate):
    """Add up words, day by day; `bad` is refused."""

    items = Input(SCHEMA, route_by="word", frame_by="n", close_idle_seconds=30)
    sums = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        assert key.word != "bad"
        n = sum(1 for _ in group.items) + sum(r.n for r in group.sums)
        out.sums(word=key.word, n=n)
        out.totals(word=key.word, n=n)


DOCUMENT: dict[str, Any] = {
    "name": "days",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {"days": {"translator": "days", "inputs": {"items": "a"}, "buckets": 2}},
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    """Replace the fakes: two arrivals that make one whole frame, and one that is open."""
    made = live(tmp_path, translators={"days": Days})
    made.world.controller.register(DOCUMENT)
    made.world.arrive("days", "a", ("x", 1), ("y", 1))
    made.world.arrive("days", "a", ("z", 1), ("x", 2), ("bad", 2))
    made.world.ticks()
    yield made
    made.world.close()


def told(cbp: Cbp, service: Live, run: str = "") -> Any:
    """Return the account of a run; by default of the newest."""
    run = run or service.world.store.runs("days").items[0].id
    return cbp("explain", "--run", run, "--json", session=service.session).json


def test_the_plan_names_what_frames_an_input(cbp: Cbp, service: Live) -> None:
    """The framing key, how it is gone over, and when an open frame ends by itself."""
    plan = cbp("explain", "days", "--json", session=service.session).json["plan"]
    (items,) = plan["units"][0]["stages"][0]["inputs"]
    framing = ("framed", "frame_by", "memo", "close_idle_seconds")
    assert [items[name] for name in framing] == [True, "n", False, 30.0]
    text = cbp("explain", "days", session=service.session).out
    assert "cut into frames by n, with each increment grouped by this key" in text
    assert "automatically after 30 s without a record" in text


def test_a_run_tells_the_frames_that_it_read(cbp: Cbp, service: Live) -> None:
    """Their keys, records and bytes, though the frames are gone; also after a restart."""
    service.world.restart()
    account = told(cbp, service)
    assert account["why"].startswith("RunAll decided to read frame 0 (key 1) of `items`")
    (frame,) = account["consumed"]
    assert (frame["frame"], frame["index"], frame["framing_key"]) == (True, 0, 1)
    assert frame["records"] == account["run"]["figures"]["records_in"] == 3
    assert frame["bytes"] > 0
    text = cbp("explain", "--run", account["run"]["id"], session=service.session).out
    assert "read frame 0 (key 1)" in text
    assert "frame 0 of a" in text


def test_a_failed_run_tells_the_frame_that_waits_still(cbp: Cbp, service: Live) -> None:
    """Until the past is amended: then the number may be another frame's, and none is named."""
    world = service.world
    world.arrive("days", "a", ("x", 3))
    world.ticks()
    account = told(cbp, service)
    failed = account["run"]["id"]
    assert account["run"]["status"] == "FAILED"
    assert [(f["index"], f["framing_key"], f["records"]) for f in account["consumed"]] == [
        (1, 2, 2)
    ]
    world.clock.advance(1)
    world.controller.amendments.roll_back("days", "0", who="me", why="a test")
    world.clock.advance(1)
    world.ticks()
    assert [f["framing_key"] for f in told(cbp, service, failed)["consumed"]] == [None]
    again = told(cbp, service)
    assert (again["run"]["id"] == failed, again["consumed"][0]["framing_key"]) == (False, 2)


def test_of_a_record_that_is_gone_no_frame_is_told(cbp: Cbp, service: Live) -> None:
    """A frame is known by its run's record alone once it is consumed; nothing is guessed."""
    folder = Path(service.world.store.dataflow("days").folder)
    (folder / "_intentions" / "days" / f"{0:020d}.json").unlink()
    account = told(cbp, service)
    assert account["why"].startswith("RunAll decided to read frame 0 of `items`")
    assert [(f["index"], f["framing_key"]) for f in account["consumed"]] == [(0, None)]
