"""Places for work: what is slow or hangs stalls no other dataflow, and nobody starves."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from cbp.model.places import Places, Taken

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
SLOW = 120.0


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def chosen(places: Places, running: dict[str, float], *waiting: str) -> str | None:
    """Return who gets a place; names are `dataflow.stage`, times how long somebody runs."""
    taken = [
        Taken(dataflow, stage, at(-age))
        for (dataflow, stage), age in ((name.split("."), age) for name, age in running.items())
    ]
    found = places.next(taken, [name.split(".")[0] for name in waiting], NOW)
    return None if found is None else waiting[found]


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
        for now in range(600):
            ends = {key: end for key, end in ends.items() if end > now}
            waiting = sorted((k for k in stages if k not in ends), key=lambda k: (since[k], k))
            while True:
                taken = [Taken(*key, at(since[key])) for key in ends]
                found = places.next(taken, [key[0] for key in waiting], at(now))
                if found is None:
                    break
                key = waiting.pop(found)
                ends[key] = float("inf") if key in hangs else now + chance.randint(1, 4)
                since[key], started[key] = now, started[key] + 1
            assert len(ends) <= places.most + 6, seed
            for dataflow, _ in ends:
                assert sum(name == dataflow for name, _ in ends) <= places.most, seed
        good = [key for key in stages if key[0] not in bad]
        assert min(started[key] for key in good) > 10, f"seed {seed}: {started}"
