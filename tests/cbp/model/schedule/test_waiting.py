"""Why a stage does not start: by kind, in words, and who before it keeps it waiting."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cbp.model.dataflow.runnable import Align, RunAll
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.connector import Connector, Queued
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.schedule.parallel_runs import Places
from cbp.model.schedule.scheduler import StageView, decide
from cbp.model.schedule.waiting import Wait, open_frames

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)


def frame(number: int, key: int | str, records: int = 2) -> Increment:
    return Increment("flow", number, key, (DataFile("x", records, 9),))


def framed(name: str, *keys: int | str, open_: int | str | None = None, **more: Any) -> Connector:
    queue = tuple(Queued(frame(n, key)) for n, key in enumerate(keys))
    still = None if open_ is None else frame(len(keys), open_)
    return Connector(name, queue, Framing(None, len(keys), still), **more)


def stage(name: str, *connectors: Connector, **more: Any) -> StageView:
    inputs = {connector.input: connector for connector in connectors}
    return StageView("d", name, 0, inputs, NOW - timedelta(seconds=9), **more)


def wait(one: StageView, *others: StageView, places: int = 9) -> Wait:
    return decide([one, *others], now=NOW, places=Places(places)).waits["d", one.stage]


def test_an_open_frame_is_said_with_its_key() -> None:
    """Two records of 10 o'clock are there, and nothing says that there will be no more."""
    actual = wait(stage("s", framed("a", open_="2026-11-21 10:00")))
    assert actual == Wait(
        "frame",
        "waits for an increment on a; `a`: frame 2026-11-21 10:00 is open with 2 records, until a "
        "record with another key arrives or `cbp close` closes the frame",
        NOW - timedelta(seconds=9),
    )


def test_alignment_says_who_is_there_and_who_is_not() -> None:
    """By framing keys, and where the missing one has come to."""
    rule = RunnableSpec(Align())
    views = framed("a", "2026-11-21 10:00"), framed("b", open_="2026-11-21 09:00")
    actual = wait(stage("s", *views, runnable=rule))
    wanted = "an increment on `b` with framing key 2026-11-21 10:00 or a later one"
    assert actual.words.startswith(f"waits for {wanted}; `a` has one; `b`: ")
    assert "frame 2026-11-21 09:00 is open" in actual.words
    assert actual.kind == "frame"


def test_what_is_being_framed_is_said_first() -> None:
    """An input with something eligible is not what the stage waits for."""
    arrived = (frame(0, 0), frame(1, 1))
    busy, eligible = framed("a", open_=1, arrived=arrived), framed("b", 7, open_=8)
    assert open_frames([busy, eligible]) == ("framing", "`a`: 2 increments are being framed")
    assert open_frames([framed("a", open_=1), replace(busy, arrived=arrived[:1])])[0] == "framing"
    assert open_frames([Connector("a"), framed("b")]) == ("input", "")


def test_a_reason_has_its_kind() -> None:
    """Each way of not starting, and nothing for who starts."""
    ready = Connector("i").append(frame(0, 0))
    kinds = {
        "running": stage("s", ready, running=True),
        "paused": stage("s", ready, active=False, paused_because="by hand"),
        "stopped": stage("s", ready, active=False, stopped=True, paused_because="3 failures"),
        "retry": stage("s", ready, retry_at=NOW + timedelta(seconds=1)),
        "input": stage("s", Connector("i")),
    }
    assert {kind: wait(view).kind for kind, view in kinds.items()} == {k: k for k in kinds}
    failing = RunnableSpec(lambda connectors, memo: 1 / 0, "x.py:1")  # type: ignore[arg-type,return-value]
    assert wait(stage("s", ready, runnable=failing)).kind == "stopped"
    assert wait(stage("s", ready), stage("r", ready), places=1).kind == "place"
    assert decide([stage("s", ready)], now=NOW, places=Places(1)).waits == {}


def test_back_pressure_and_who_is_behind_it() -> None:
    """A writer waits for its only reader; what waits for a stopped writer names it."""
    ready = Connector("i").append(frame(0, 0))
    writer = stage("w", ready, wiring={"i": "source"}, limits={"w.out": FlowLimit(1)})
    full = Connector("o").append(frame(0, 0))
    reader = stage("r", full, wiring={"o": "w.out"}, active=False, paused_because="by hand")
    actual = wait(writer, reader)
    assert (actual.kind, actual.behind) == ("readers", "")
    assert actual.words.endswith("`r.o` has 1 increment (limit 1) in its queue")
    stopped = replace(writer, active=False, stopped=True, paused_because="3 failures")
    between = stage("m", Connector("o"), wiring={"o": "w.more"})
    actual = wait(stage("z", Connector("m"), wiring={"m": "m.out"}), between, stopped, reader)
    assert (actual.kind, actual.behind) == ("input", "w")
    assert actual.words.endswith("; upstream stage `w`: 3 failures")


@pytest.mark.parametrize("places", [1, 2])
def test_who_gets_no_place_says_since_when(places: int) -> None:
    """The one that waited longest is the first to get one."""
    ready = Connector("i").append(frame(0, 0))
    views = [
        replace(
            stage(f"s{n}", ready, runnable=RunnableSpec(RunAll())),
            waiting_since=NOW - n * timedelta(seconds=1),
        )
        for n in range(4)
    ]
    schedule = decide(views, now=NOW, places=Places(places))
    assert [start.stage for start in schedule.starts] == ["s3", "s2"][:places]
    assert schedule.waits["d", "s0"].since == NOW
