"""One controller leads at a time, whatever instances, clocks and the network do.

Epochs of the lease only rise (200 simulated minutes of stops, lost answers and drift).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from cbp.model.schedule.lease import ACTING_SHARE, Lease, Role, Step, Term, next_step, role_of
from tests.lease_rows import released, renewed, taken

SECONDS = 5.0
MILLISECONDS = int(SECONDS * 1000)
DRIFT = 0.1
"""So much faster or slower than the database's an instance's clock runs; see `ACTING_SHARE`."""


@pytest.mark.parametrize(
    ("now_ms", "expected"), [(9_999, None), (10_000, Lease(4, "b", "B", 15_000))]
)
def test_a_lease_is_free_from_its_last_millisecond_on(now_ms: int, expected: Lease | None) -> None:
    """Taking is refused while there is time left, and raises the epoch when there is none."""
    held = Lease(3, "a", "A", 10_000)
    assert taken(held, "b", "B", now_ms=now_ms, milliseconds=5_000) == expected


def test_only_the_epoch_that_holds_a_lease_renews_or_releases_it() -> None:
    """Who was replaced can do neither; who ran out and was not can do both."""
    held = Lease(3, "a", "A", 10_000)
    assert renewed(held, 2, now_ms=1, milliseconds=5_000) is None
    assert renewed(held, 3, now_ms=20_000, milliseconds=5_000) == Lease(3, "a", "A", 25_000)
    assert released(held, 2) == held
    assert taken(released(held, 3), "b", "B", now_ms=0, milliseconds=1) == Lease(4, "b", "B", 1)


@pytest.mark.parametrize(
    ("role", "now", "expected"),
    [
        (Role.LEADS, 0.0, Step.RENEW),
        (Role.UNSURE, 0.0, Step.RENEW),
        (Role.RETIRES, 9.0, Step.REST),
        (Role.FOLLOWS, 4.9, Step.REST),
        (Role.FOLLOWS, 5.0, Step.STAND),
    ],
)
def test_what_an_instance_does_next(role: Role, now: float, expected: Step) -> None:
    """No instance is a candidate with runs of an earlier term, or just after it gave way."""
    assert next_step(role, now=now, not_before=5.0) is expected


@dataclass
class Instance:
    """A controller in the simulation; `speed` is that of its clock."""

    name: str
    speed: float
    term: Term | None = None
    retiring: bool = False
    stopped_until: float = 0.0
    epochs: tuple[int, ...] = ()

    def now(self, time: float) -> float:
        return 1000.0 + time * self.speed

    def acts(self, time: float) -> bool:
        """A stopped process does not act; one that goes on asks its clock first."""
        role = role_of(self.term, retiring=self.retiring, now=self.now(time))
        return role is Role.LEADS and time >= self.stopped_until


@pytest.mark.parametrize("seed", range(200))
def test_at_most_one_instance_acts_and_epochs_only_rise(seed: int) -> None:
    """Three instances that stop, lose answers and have clocks that drift, for a minute each."""
    chance = random.Random(seed)
    assert (1 + DRIFT) * ACTING_SHARE < 1
    instances = [Instance(name, 1 + chance.uniform(-DRIFT, DRIFT)) for name in "abc"]
    lease, led, time = Lease(), 0, 0.0
    while time < 60.0:
        time += chance.uniform(0.0, 0.4)
        one = chance.choice(instances)
        if time >= one.stopped_until:
            if chance.random() < 0.05:
                one.stopped_until = time + chance.uniform(0, 3 * SECONDS)
            lease = step(one, lease, time, lost=chance.random() < 0.1)
        acting = [other.name for other in instances if other.acts(time)]
        assert len(acting) <= 1, f"seed {seed}: {acting} at {time:.3f}"
        led += bool(acting)
        assert list(one.epochs) == sorted(set(one.epochs)), f"seed {seed}"
    everyone = [epoch for one in instances for epoch in one.epochs]
    assert len(everyone) == len(set(everyone)), f"seed {seed}: an epoch with two leaders"
    assert led, f"seed {seed}: nobody ever led"


def step(one: Instance, lease: Lease, time: float, *, lost: bool) -> Lease:
    """Let an instance do what is due; the answer of the database may get lost."""
    now, now_ms = one.now(time), int(time * 1000)
    role = role_of(one.term, retiring=one.retiring, now=now)
    if role is Role.RETIRES:  # its runs have ended
        one.term, one.retiring = None, False
        return lease
    match next_step(role, now=now, not_before=0.0):
        case Step.RENEW:
            assert one.term is not None
            now_held = renewed(lease, one.term.epoch, now_ms=now_ms, milliseconds=MILLISECONDS)
            if lost:
                return now_held or lease
            if now_held is None:
                one.retiring = True
                return lease
            one.term = Term.granted(one.term.epoch, asked_at=now, seconds=SECONDS)
            return now_held
        case Step.STAND:
            got = taken(lease, one.name, "", now_ms=now_ms, milliseconds=MILLISECONDS)
            if got is not None and not lost:
                one.term = Term.granted(got.epoch, asked_at=now, seconds=SECONDS)
                one.epochs += (got.epoch,)
            return got or lease
    return lease
