"""Places for work: what is slow or hangs stalls no other dataflow, and nobody starves.

Where the engine takes no slot back, who is late gives way, and runs again beside the others.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from cbp.model.schedule.parallel_runs import STARVED_SECONDS, ActiveRun, Places

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
SLOW = 120.0


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def chosen(places: Places, running: dict[str, float], *waiting: str) -> str | None:
    """Return who gets a place; names are `dataflow.stage`, times how long somebody runs."""
    taken = [
        ActiveRun(dataflow, stage, at(-age))
        for (dataflow, stage), age in ((name.split("."), age) for name, age in running.items())
    ]
    actual = places.next(taken, [name.split(".")[0] for name in waiting], NOW)
    return None if actual is None else waiting[actual]


def test_whoever_waited_longest_gets_a_free_place() -> None:
    """As long as there is one."""
    assert chosen(Places(2), {}, "a.1", "b.1") == "a.1"
    assert chosen(Places(2), {"c.1": 1, "d.1": 1}, "a.1") is None
    assert chosen(Places(2), {}) is None


def test_the_last_place_is_somebody_elses() -> None:
    """Who has all the others gets it only while nobody else waits."""
    assert chosen(Places(2), {"a.1": 1}, "a.2", "b.1") == "b.1"
    assert chosen(Places(2), {"a.1": 1}, "a.2") == "a.2"
    assert chosen(Places(3), {"a.1": 1}, "a.2", "b.1") == "a.2"
    assert chosen(Places(1), {}, "a.1", "b.1") == "a.1"


def express(places: Places, running: dict[str, float], *waiting: str) -> str | None:
    """Return who gets the express place; arguments as for `chosen`."""
    names = ((name.split("."), age) for name, age in running.items())
    active = [ActiveRun(dataflow, stage, at(-age)) for (dataflow, stage), age in names]
    actual = places.next_express(active, [name.split(".")[0] for name in waiting], NOW)
    return None if actual is None else waiting[actual]


def test_one_small_run_at_a_time_has_a_place_beside_the_others() -> None:
    """A second one only of a dataflow that has none; the longest waiting run comes first."""
    assert express(Places(2), {"a.1": 1, "a.2": 1}, "b.1", "a.3", "c.1") == "b.1"
    assert express(Places(2), {"a.1": 1, "a.2": 1}, "a.3", "b.1", "c.1") == "a.3"
    assert express(Places(2), {"a.1": 1, "a.2": 1, "b.1": 1}, "a.3", "b.2", "c.1") == "c.1"
    assert express(Places(2), {"a.1": 1, "a.2": 1, "a.3": 1}, "a.4", "c.1") == "c.1"
    assert express(Places(2), {"a.1": 1, "a.2": 1, "b.1": 1, "c.1": 1}, "d.1") is None
    assert express(Places(1), {"a.1": 1}, "b.1") == "b.1"
    hung = {"a.1": SLOW, "a.2": SLOW, "b.1": 1, "c.1": 1, "f.1": 1}
    assert express(Places(2, SLOW), hung, "d.1") == "d.1"
    assert express(Places(2, SLOW), hung | {"e.1": 1}, "d.1") is None


def test_a_small_run_passes_long_runs_of_its_own_dataflow_only() -> None:
    """Small runs of one dataflow take turns, and those that hang use up its share."""
    assert express(Places(2), {"a.1": 0.1, "a.2": 0.1}, "a.3") is None
    assert express(Places(2), {"a.1": 1, "a.2": 0.1}, "a.3") == "a.3"
    assert express(Places(2), {"a.1": 1, "b.1": 0.1}, "a.2") == "a.2"
    assert express(Places(2), {"a.1": 0.1, "b.1": 1}, "a.2") is None
    active = [late(name, 0.1, read_bytes=2) for name in ("a.1", "a.2")]
    assert Places(2, express_bytes=15).next_express(active, ["a"], NOW) == 0
    assert Places(2, express_bytes=16).next_express(active, ["a"], NOW) is None
    hung = {"a.1": SLOW, "a.2": SLOW, "a.3": SLOW}
    assert express(Places(2, SLOW), hung, "a.4") is None
    assert express(Places(2, SLOW), hung, "b.1") == "b.1"


def test_who_is_slow_holds_no_place() -> None:
    """So many at a time; the ones that began last hold places again."""
    places = Places(2, SLOW, slow_most=3)
    assert chosen(places, {"a.1": SLOW - 1, "b.1": SLOW - 1}, "c.1") is None
    assert chosen(places, {"a.1": SLOW, "b.1": SLOW - 1}, "c.1") == "c.1"
    hung = {"a.1": SLOW, "a.2": SLOW + 1, "b.1": SLOW, "b.2": SLOW}
    assert chosen(places, hung, "c.1") == "c.1"
    assert chosen(places, hung | {"d.1": SLOW}, "c.1") is None
    assert chosen(Places(2, 0), {"a.1": 10 * SLOW, "b.1": 10 * SLOW}, "c.1") is None


def test_what_hangs_uses_up_its_own_dataflows_runs() -> None:
    """The surplus is for others; its dataflow has no more runs than there are places."""
    hung = {"a.1": SLOW, "a.2": SLOW}
    assert chosen(Places(2, SLOW), hung, "a.3") is None
    assert chosen(Places(2, SLOW), hung, "a.3", "b.1") == "b.1"


@pytest.mark.part(every=2)
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_nobody_starves_and_nobody_waits_for_what_hangs(first: int) -> None:
    """Random dataflows with work at all times; some of it never ends.

    A dataflow none of whose runs hangs starts each of its stages again and again, however
    many stages of few others hang, and never more goes on than places and surplus.
    """
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        places = Places(chance.randint(1, 3), 10, slow_most=6)
        count = chance.randint(2, 4)
        stages = [(f"d{n}", f"s{m}") for n in range(count) for m in range(chance.randint(1, 4))]
        # So few dataflows hang that what they have of runs fits into the surplus.
        bad = {f"d{n}" for n in range(min(6 // places.most, count - 1))}
        hangs = {key for key in stages if key[0] in bad and chance.random() < 0.7}
        ends: dict[tuple[str, str], float] = {}
        since: dict[tuple[str, str], float] = dict.fromkeys(stages, 0.0)
        started = dict.fromkeys(stages, 0)
        for now in range(400):
            ends = {key: end for key, end in ends.items() if end > now}
            waiting = sorted((k for k in stages if k not in ends), key=lambda k: (since[k], k))
            while True:
                taken = [ActiveRun(*key, at(since[key])) for key in ends]
                actual = places.next(taken, [key[0] for key in waiting], at(now))
                if actual is None:
                    break
                key = waiting.pop(actual)
                ends[key] = float("inf") if key in hangs else now + chance.randint(1, 4)
                since[key], started[key] = now, started[key] + 1
            assert len(ends) <= places.most + 6, seed
            for dataflow, _ in ends:
                assert sum(name == dataflow for name, _ in ends) <= places.most, seed
        good = [key for key in stages if key[0] not in bad]
        assert min(started[key] for key in good) > 10, f"seed {seed}: {started}"


def late(name: str, seconds: float = SLOW, **more: bool | int | datetime) -> ActiveRun:
    dataflow, stage = name.split(".")
    return ActiveRun(dataflow, stage, at(-seconds), name, **more)  # type: ignore[arg-type]


def yields(
    places: Places,
    taken: list[ActiveRun],
    waiting: tuple[str, ...] = (),
    narrow: tuple[str, ...] = (),
) -> tuple[str, str] | None:
    """Return whose run gives way, and to which dataflow."""
    actual = places.gives_way(taken, waiting, narrow, NOW)
    return None if actual is None else (actual[0].run, actual[1])


def test_who_is_late_gives_way_to_who_has_no_slot() -> None:
    """It is of another dataflow, and its time is over; the first to begin, and one at a time."""
    places, b = Places(2, SLOW), late("b.1", 9, starved=True)
    assert yields(places, [late("a.1", SLOW - 1), b]) is None
    assert yields(places, [late("a.1"), late("b.1", 9)]) is None
    assert yields(places, [late("a.1"), late("a.2", SLOW + 1), b]) == ("a.2", "b")
    assert yields(places, [late("b.2"), b]) is None, "what hangs is its own dataflow's"
    assert yields(places, [late("a.1"), late("c.1", ending=True), b]) is None
    assert yields(places, [late("a.1", recorded=True), b]) is None
    assert yields(places, [late("a.1", starved=True), b]) is None, "it has no slot to give"
    assert yields(Places(2, 0), [late("a.1", 10 * SLOW), b]) is None
    for seconds, actual in ((SLOW - 1, None), (SLOW, ("a.1", "b"))):  # of its own turn
        had_none = late("a.1", 5 * SLOW, starved_at=at(-seconds))
        assert yields(places, [had_none, b]) == actual


def test_who_is_late_gives_way_to_who_has_no_place() -> None:
    """Once more are late than may go on without one; not to a dataflow with all its runs."""
    places, two = Places(2, SLOW, slow_most=2), [late("a.1", SLOW + 1), late("b.1")]
    assert yields(places, two, waiting=("c",)) is None
    assert yields(places, [*two, late("d.1")], waiting=("c",)) == ("a.1", "c")
    assert yields(places, [*two, late("a.2")], waiting=("a",)) is None
    narrow = late("d.1", 3 * SLOW, gave_way=1)
    assert yields(places, [*two, narrow], waiting=("c",)) is None, "it holds no place"


def test_the_narrow_place_is_one_and_goes_round() -> None:
    """Who is in it is late after twice the time, then four times..., and gives it to the next."""
    places = Places(2, SLOW)
    assert [places.share(slots) for slots in (1, 2, 3, 8)] == [1, 1, 1, 4]
    assert places.next_narrow([late("a.1"), late("b.1")], ["c", "d"]) == 0
    assert places.next_narrow([late("a.1", 1, gave_way=1)], ["c"]) is None
    assert places.next_narrow([late("c.1"), late("c.2")], ["c", "d"]) == 1
    for gave_way, turn in ((1, 2 * SLOW), (3, 8 * SLOW)):
        for seconds, actual in ((turn - 1, None), (turn, ("a.1", "b"))):
            taken = [late("a.1", seconds, gave_way=gave_way)]
            assert yields(places, taken, narrow=("b",)) == actual
    assert yields(places, [late("a.1", 10**6, gave_way=1)], narrow=("a",)) is None
    held = [late("a.1", 3 * SLOW, gave_way=1), late("b.1", 9, starved=True)]
    assert yields(places, [*held, late("c.1")]) == ("c.1", "b"), "it leaves slots, others do not"
    assert yields(places, held) == ("a.1", "b"), "an engine of one slot has no half"


def test_what_gave_way_holds_no_place() -> None:
    """Nor does it count among those that are slow."""
    narrow = late("a.1", 1, gave_way=1)
    assert Places(1, SLOW).next([narrow], ["b"], NOW) == 0
    both = [narrow, late("b.1")]
    assert Places(1, SLOW, slow_most=1).slow([late("a.1", 9 * SLOW, gave_way=1), both[1]], NOW) == [
        both[1]
    ]


def test_nobody_is_asked_for_slots_in_peace_time() -> None:
    """Only once somebody is late, and another dataflow runs."""
    places = Places(2, SLOW)
    assert not places.matters([late("a.1", SLOW - 1), late("b.1", 1)], NOW)
    assert not places.matters([late("a.1"), late("a.2", 1)], NOW)
    assert not places.matters([late("a.1"), late("b.1", 1, recorded=True)], NOW)
    assert places.matters([late("a.1"), late("b.1", 1)], NOW)


@dataclass
class Stage:
    """A stage with work at all times, and its run.

    Attributes:
        seconds: That each task of a run on all slots takes.
        order: The order of those that wait.
        tasks: Seconds that each task of its run which has a slot still takes.
        wants: Tasks of its run that have no slot yet.
    """

    dataflow: str
    seconds: float
    order: float = 0.0
    run: ActiveRun | None = None
    tasks: tuple[float, ...] = ()
    wants: int = 0
    gave_way: int = 0
    starves_since: float | None = None
    starved_at: datetime | None = None
    ended: tuple[int, ...] = (0,)


class Shared:
    """Places, and an engine that takes no slot back; a second a step."""

    def __init__(self, places: Places, slots: int, stages: list[Stage]) -> None:
        self.places, self.slots, self.stages = places, slots, stages

    def step(self, now: int) -> None:
        for stage in self.stages:
            self._go_on(stage, now)
        while sum(len(stage.tasks) for stage in self.stages) < self.slots:
            wanting = [stage for stage in self.stages if stage.wants]
            if not wanting:
                break
            stage = min(wanting, key=lambda stage: len(stage.tasks))
            stage.wants -= 1
            stage.tasks += (self._seconds(stage),)
        for stage in self.stages:
            starves = stage.wants and not stage.tasks
            stage.starves_since = (stage.starves_since or now) if starves else None
            stage.starved_at = at(now) if starves else stage.starved_at
        self._decide(now)

    def _go_on(self, stage: Stage, now: int) -> None:
        if stage.run is None:
            return
        if stage.run.ending:
            stage.run, stage.order, stage.gave_way = None, now, stage.gave_way + 1
            stage.tasks, stage.wants = (), 0
            return
        stage.tasks = tuple(left - 1 for left in stage.tasks if left > 1)
        if not stage.tasks and not stage.wants:
            stage.run, stage.order, stage.gave_way = None, now, 0
            stage.ended += (now,)

    def _seconds(self, stage: Stage) -> float:
        assert stage.run is not None
        narrow = self.slots / self.places.share(self.slots)
        return stage.seconds * (narrow if stage.run.gave_way else 1)

    def _decide(self, now: int) -> None:
        taken = [self._told(stage, now) for stage in self.stages if stage.run is not None]
        idle = [stage for stage in self.stages if stage.run is None]
        idle.sort(key=lambda stage: stage.order)
        ready = [stage for stage in idle if not stage.gave_way]
        narrow = [stage for stage in idle if stage.gave_way]
        while (n := self.places.next(taken, [s.dataflow for s in ready], at(now))) is not None:
            taken.append(self._start(ready.pop(n), now))
        if (n := self.places.next_narrow(taken, [s.dataflow for s in narrow])) is not None:
            taken.append(self._start(narrow.pop(n), now))
        names = ([s.dataflow for s in ready], [s.dataflow for s in narrow])
        if (actual := self.places.gives_way(taken, *names, at(now))) is not None:
            stage = next(s for s in self.stages if s.run and s.run.run == actual[0].run)
            stage.run = replace(actual[0], ending=True)

    def _told(self, stage: Stage, now: int) -> ActiveRun:
        assert stage.run is not None
        since = stage.starves_since
        starved = since is not None and now - since >= STARVED_SECONDS
        return replace(stage.run, starved=starved, starved_at=stage.starved_at)

    def _start(self, stage: Stage, now: int) -> ActiveRun:
        stage.wants = self.places.share(self.slots) if stage.gave_way else self.slots
        name = str(self.stages.index(stage))
        stage.run = ActiveRun(stage.dataflow, name, at(now), name, stage.gave_way)
        stage.order, stage.starved_at = now, None
        return stage.run


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_what_holds_all_slots_stalls_nobody_for_long(first: int) -> None:
    """Random dataflows on an engine that takes no slot back; some hang, some have much to do.

    A dataflow of short runs goes on after each stall, which lasts for the time after which a
    run is late, and what it takes to see that it starves, once per dataflow that hangs or has
    much to do; and what has much to do is done, too.
    """
    slow = 10
    for seed in range(first, first + 10):
        chance = random.Random(seed)
        places = Places(chance.randint(1, 3), slow, slow_most=chance.randint(0, 3))
        stages = [Stage("good", chance.randint(1, 3))]
        stages += [Stage(f"hangs{n}", float("inf")) for n in range(chance.randint(1, 3))]
        stages += [Stage(f"long{n}", chance.randint(12, 20)) for n in range(chance.randint(0, 2))]
        for stage in stages:
            stage.order = chance.random()
        shared = Shared(places, chance.randint(2, 6), stages)
        for now in range(1, 1_000):
            shared.step(now)
        stall = (slow + STARVED_SECONDS + 3) * (len(stages) - 1) + 5
        ends = (*stages[0].ended, 1_000)
        gap = max(later - end for end, later in itertools.pairwise(ends))
        assert gap <= stall, f"seed {seed}: {gap} s without a run, {shared.slots} slots, {places}"
        for stage in stages:
            if stage.seconds < float("inf"):
                assert len(stage.ended) > 1, f"seed {seed}: {stage.dataflow} never ended"
