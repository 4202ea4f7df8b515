"""Punctuations in the service: durable, once each, between two increments of a flow."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cbp import Input
from cbp.engine.interface.runs import RunPlan
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import FlowUnframedError, NotFoundError, OperatingError
from cbp.model.flow.framing import Framing, Keyed, segments
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.punctuation import Punctuation
from controller.loop import LoopLimits
from tests.controller.file_engine import FileEngine
from tests.controller.hourly import Hourly, Impatient
from tests.controller.lost import SourceLogs
from tests.controller.world import DIAMOND, ONE, SCHEMA, Deferred, Sum, World
from tests.planned_faults import Crash, PlannedFaults

Frame = tuple[int, int, int]
"""Number, framing key, records."""


class Seen:
    """A service that frames, and the frames that its runs read."""

    def __init__(self, root: Path, translator: type = Hourly, **more: Any) -> None:
        self.frames: list[Frame] = []
        self.world = World(root, engine=self._engine, **more)
        self.world.translators["sum"] = translator
        self.world.restart()

    def _engine(self, **options: Any) -> FileEngine:
        engine = FileEngine(**options)
        engine.on_prepare = self._saw
        return engine

    def _saw(self, plan: RunPlan) -> None:
        actual = plan.inputs["items"]
        self.frames += [(f.index, int(f.framing_key), f.records) for f in actual]

    def close(self, key: str | None = None) -> int:
        return self.world.controller.close("one", "a", key=key).number


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Seen]:
    made = Seen(tmp_path)
    made.world.controller.register(ONE)
    yield made
    made.world.close()


def test_a_close_ends_the_open_frame(seen: Seen) -> None:
    """What was open is read; a later record of the same key begins a new frame."""
    seen.world.arrive("one", "a", ("x", 7), ("y", 7))
    seen.world.ticks()
    assert seen.frames == []
    seen.close()
    seen.world.ticks()
    assert seen.frames == [(0, 7, 2)]
    seen.world.arrive("one", "a", ("z", 7))
    seen.world.arrive("one", "a", ("z", 8))
    seen.world.ticks()
    assert seen.frames == [(0, 7, 2), (1, 7, 1)]


def test_a_close_is_behind_what_has_arrived(tmp_path: Path) -> None:
    """Though nothing of it is framed yet: what comes later is not in its frame."""
    framers = Deferred()
    seen = Seen(tmp_path, framers=framers)
    seen.world.controller.register(ONE)
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.close()
    seen.world.arrive("one", "a", ("x", 7), ("y", 7))
    while framers.waiting:
        framers.run_next()
        seen.world.ticks()
    assert seen.frames == [(0, 7, 1)]
    seen.close()
    seen.world.ticks()
    framers.run_next()
    seen.world.ticks()
    assert seen.frames == [(0, 7, 1), (1, 7, 2)]
    seen.world.close()


def test_asking_again_with_a_key_closes_once(seen: Seen) -> None:
    """Also after a restart; another key closes again."""
    seen.world.arrive("one", "a", ("x", 7))
    assert seen.close("monday") == 0
    seen.world.ticks()
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.world.restart()
    assert seen.close("monday") == 0
    seen.world.ticks()
    assert seen.frames == [(0, 7, 1)]
    assert seen.close("tuesday") == 1
    seen.world.ticks()
    assert seen.frames == [(0, 7, 1), (1, 7, 1)]


def test_only_a_framed_flow_can_be_closed(seen: Seen) -> None:
    """Another one is refused, with those that can; nothing is recorded."""
    with pytest.raises(FlowUnframedError) as refused:
        seen.world.controller.close("one", "sum.totals")
    assert refused.value.details["framed"] == ["a"]
    with pytest.raises(NotFoundError):
        seen.world.controller.close("one", "nothing")
    assert seen.world.store.next_punctuation("one") == 0


def test_every_consumer_of_the_flow_is_closed(tmp_path: Path) -> None:
    """Two stages that frame one flow, one by a key of its own and one by a coarser one."""

    class Coarse(Sum):
        """Cuts the same flow by tens."""

        items = Input(SCHEMA, route_by="word", frame_by="word")

    seen = Seen(tmp_path)
    seen.world.translators["coarse"] = Coarse
    document = copy.deepcopy(ONE)
    document["stages"]["coarse"] = {"translator": "coarse", "inputs": {"items": "a"}}
    seen.world.restart()
    seen.world.controller.register(document)
    seen.world.arrive("one", "a", ("1", 1), ("1", 2), ("2", 2))
    seen.world.ticks()
    seen.world.controller.close("one", "a")
    seen.world.ticks()
    assert sorted(seen.frames) == [(0, 1, 1), (0, 1, 2), (1, 2, 1), (1, 2, 2)]
    assert seen.world.controller.framed_inputs("one", "a") == ["sum.items", "coarse.items"]
    seen.world.close()


POINTS = [
    f"{effect}.{side}" for effect in ("punctuation", "sql_commit") for side in ("before", "after")
]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("live", [False, True], ids=["killed", "failed"])
def test_a_close_happens_once_wherever_it_fails(tmp_path: Path, point: str, live: bool) -> None:
    """Killed, or refused by disk or database in a service that lives on: ask again.

    What arrives meanwhile is on the side that the log says, however often framing is tried.
    """
    seen = Seen(tmp_path)
    seen.world.controller.register(ONE)
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    error: BaseException = OperatingError("disk") if live else Crash(point)
    seen.world.faults.to = PlannedFaults(point, error=error)
    with pytest.raises(type(error)):
        seen.close("monday")
    seen.world.faults.to = NO_FAULTS
    if not live:
        seen.world.restart()
        seen.world.controller.recover()
    recorded = seen.world.parts.punctuations.log(f"{seen.world.tables}/one")
    stands = list(recorded.since(0))
    seen.world.arrive("one", "a", ("y", 7), ("z", 7))
    seen.world.ticks()
    assert seen.close("monday") == 0
    seen.world.ticks()
    expected = [(0, 7, 1)] if stands else [(0, 7, 3)]
    assert (seen.frames, len(list(recorded.since(0)))) == (expected, 1)
    assert bool(stands) == (point != "punctuation.before")
    seen.world.close()


def test_a_close_that_recovery_could_not_tell_is_told_before_the_next(seen: Seen) -> None:
    """Killed behind the log entry, and no database at the restart: the next close goes on."""
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.world.faults.to = PlannedFaults("punctuation.after")
    with pytest.raises(Crash):
        seen.close("monday")
    seen.world.restart()
    seen.world.faults.to = PlannedFaults("sql_commit.before", error=OperatingError("away"))
    seen.world.controller.recover()
    seen.world.faults.to = NO_FAULTS
    seen.world.arrive("one", "a", ("y", 7), ("z", 7))
    assert (seen.close("tuesday"), seen.close("monday")) == (1, 0)
    seen.world.clock.advance(2)  # its recovery is tried again after a second
    seen.world.ticks()
    assert seen.frames == [(0, 7, 1), (1, 7, 2)]
    assert seen.world.controller.problem == ""


def test_a_close_of_another_leader_is_told_before_the_next(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died behind the log entry; who leads again, and could not recover, learns of it."""
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.close("sunday")
    controller = seen.world.controller
    controller.follow("another one leads")
    log = seen.world.parts.punctuations.log(seen.world.store.dataflow("one").folder)
    log.put(Punctuation(1, "a", 1, "request", "request/monday", 5))
    lease = seen.world.store.take_lease("again", "", milliseconds=0)
    assert lease is not None
    with monkeypatch.context() as patch:
        patch.setattr(seen.world.parts.recovery, "recover_dataflow", lambda record: None)
        controller.lead(lease.epoch)
    assert (seen.close("tuesday"), seen.close("monday")) == (2, 1)
    assert controller.problem == ""


def test_idle_time_closes_an_input(tmp_path: Path) -> None:
    """A minute after the last record, not before; an empty increment is no record."""
    seen = Seen(tmp_path, Impatient)
    seen.world.controller.register(ONE)
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.world.clock.advance(40)
    seen.world.arrive("one", "a", ("y", 7))
    seen.world.ticks()
    seen.world.clock.advance(59)
    seen.world.enqueue("one", Increment("a", 2, 2))
    seen.world.ticks()
    assert seen.frames == []
    seen.world.clock.advance(1)
    seen.world.ticks()
    assert seen.frames == [(0, 7, 2)]
    seen.world.clock.advance(3600)
    seen.world.ticks()
    (made,) = seen.world.store.punctuations("one").items
    assert (made.reason, made.input, made.at) == ("idle", "sum.items", 3)
    seen.world.close()


def test_a_dataflow_says_how_long_idle_is(tmp_path: Path) -> None:
    """Its document overrules the translator; 0 is for ever."""
    seen = Seen(tmp_path, Impatient)
    document = copy.deepcopy(ONE)
    document["stages"]["sum"]["close_idle_seconds"] = {"items": 0}
    seen.world.controller.register(document)
    seen.world.arrive("one", "a", ("x", 7))
    seen.world.ticks()
    seen.world.clock.advance(10**6)
    seen.world.ticks()
    assert seen.frames == []
    seen.world.close()


@dataclass
class Model:
    """What must come out: the frames of the flow and its closes, in their order."""

    framing: Framing = field(default_factory=Framing)
    done: list[Frame] = field(default_factory=list)
    index: int = 0

    def arrive(self, keys: list[int]) -> None:
        file = DataFile(f"{self.index}", len(keys), 1)
        actual = segments([Keyed.of(file, keys)], ordered=False) if keys else []
        increment = Increment("a", self.index, self.index)
        self.framing, done = self.framing.take(increment, actual, None)
        self.index += 1
        self._note(done)

    def close(self) -> None:
        self.framing, done = self.framing.close()
        self._note(done)

    def _note(self, done: tuple[Increment, ...]) -> None:
        self.done += [(f.index, int(f.framing_key), f.records) for f in done]


@pytest.mark.part(every=12)
@pytest.mark.parametrize("seed", range(25))
def test_frames_are_a_function_of_the_flow_and_its_closes(tmp_path: Path, seed: int) -> None:
    """Whatever order framing, arrivals, closes, crashes, house-keeping and restarts take.

    In the end the store is lost as well, and what is left beside the tables says the same.
    """
    print(f"seed {seed}")
    chance, model, framers = random.Random(seed), Model(), Deferred()
    often: dict[str, Any] = {
        "collect_every": chance.choice([2, 1000]),
        "limits": LoopLimits(records_kept=1),
    }
    seen = Seen(tmp_path / "old", framers=framers, **often)
    world = seen.world
    world.controller.register(ONE)
    for _ in range(40):
        step = chance.choice(["arrive", "arrive", "close", "tick", "frame", "frame", "restart"])
        if step == "arrive":
            keys = [chance.randint(1, 2) for _ in range(chance.randint(0, 3))]
            world.arrive("one", "a", *[("x", key) for key in keys])
            model.arrive(keys)
        elif step == "close":
            seen.close()
            model.close()
        elif step == "tick":
            world.controller.tick()
        elif step == "frame" and framers.waiting:
            framers.run_next()
        elif step == "restart" and chance.random() < 0.5:
            framers.waiting.clear()  # its threads die with it
            world.restart()
            world.controller.recover()
    _end(world, framers)
    assert seen.frames == model.done
    before = world.store.connectors("one")["sum"]["items"]
    assert _stands(before.framing) == _stands(model.framing)
    increments = [world.store.increment("one", "a", n).increment for n in range(model.index)]
    epoch = world.store.stages("one")[0].epoch
    world.close()
    later = Deferred()
    lost = Seen(tmp_path / "new", framers=later)
    lost.world.tables = world.tables
    lost.world.restart()

    lost.world.arrivals = SourceLogs(lost.world, "one", increments)
    assert lost.world.controller.rebuild() == ["one"]
    _end(lost.world, later)
    after = lost.world.store.connectors("one")["sum"]["items"]
    assert (after, lost.world.store.stages("one")[0].epoch) == (before, epoch)
    assert lost.frames == []
    lost.world.close()


def _stands(framing: Framing | None) -> Any:
    """Return the position of a framing; the model names its files otherwise."""
    assert framing is not None
    open_ = framing.open and (framing.open.index, framing.open.framing_key, framing.open.records)
    return framing.next, framing.last, open_


def _end(world: World, framers: Any) -> None:
    """Frame and run until nothing is left to do."""
    for _ in range(200):
        schedule = world.controller.tick()
        if framers.waiting:
            framers.run_next()
        elif not schedule.starts:
            return
    raise AssertionError(world.controller.waiting("one"))


def test_a_diamond_without_frames_takes_no_position_early(tmp_path: Path) -> None:
    """House-keeping of dataflows that frame nothing is as it was: no record, no position."""
    world = World(tmp_path, collect_every=1)
    world.controller.register(DIAMOND)
    world.arrive("diamond", "a", ("x", 1))
    world.ticks()
    assert world.parts.open_log(f"{world.tables}/diamond").position() is None
    world.close()
