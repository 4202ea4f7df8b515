"""80 seeds of random dataflows, arrivals and faults: every promise holds after each.

`python -m tests.simulation --seeds 100000 --from 0 --jobs 2` plays more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from cbp.engine.storage.failpoints import POINTS
from tests.simulation.many import play_all
from tests.simulation.plan import plan_of
from tests.simulation.run import Outcome, simulate
from tests.simulation.world import Bench

SEEDS = int(os.environ.get("CBP_SIMULATION_SEEDS", "80"))
POWER_SEEDS = max(SEEDS // 10, 1)
SECONDS_MAX = float(os.environ.get("CBP_SIMULATION_SECONDS", "900"))
SEEDS_MIN = 70
"""At least so many are played in that time, even by a machine that is busy."""
FIRST = int(os.environ.get("CBP_SIMULATION_FROM", "0"))
REPOSITORY = Path(__file__).resolve().parents[2]


class Played:
    """What all seeds did together."""

    def __init__(self) -> None:
        self.passed, self.figures = Counter[str](), Counter[str]()
        self.seeds, self.late = 0, False

    def play(self, seeds: int, *, power: bool) -> list[Outcome]:
        """Play seeds until the time is over; return those that failed, and what plays them."""
        failed, end = [], time.monotonic() + SECONDS_MAX
        # Where tests are shared out, the other processes have the other processors.
        jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else min(os.cpu_count() or 1, 2)
        for outcome in play_all(range(FIRST, FIRST + seeds), power=power, jobs=jobs):
            self.seeds += 1
            self.passed += outcome.passed
            self.figures += outcome.figures
            if outcome.failure:
                failed.append(outcome)
                print(outcome.report())
            if time.monotonic() > end:
                self.late = True
                print(f"{SECONDS_MAX:.0f} s are over after {self.seeds} seeds")
                break
        return failed


@pytest.fixture(scope="module")
def played() -> Played:
    return Played()


@pytest.mark.timeout(1800)
def test_every_seed_keeps_every_promise(played: Played) -> None:
    """P1 to P7 hold after every recovery and in the end, whatever fails on the way."""
    failed = played.play(SEEDS, power=False)
    assert [outcome.seed for outcome in failed] == []
    assert played.seeds >= min(SEEDS, SEEDS_MIN), "this machine is too slow"
    assert played.figures["deaths"] > played.seeds / 2, "the seeds do something"
    assert played.figures["errors"] > played.seeds / 2
    assert played.figures["epochs"] > played.seeds
    operations = ("corrections", "closes", "rollbacks", "versions", "decisions", "priorities")
    for operation in (*operations, "wakes", "lookups", "bags", "passes", "versions_followed"):
        assert played.figures[operation] > played.seeds / 50, operation


@pytest.mark.timeout(1800)
def test_what_was_acknowledged_outlives_a_loss_of_power(played: Played) -> None:
    """The same, where a death takes everything with it that was not synced."""
    failed = played.play(POWER_SEEDS, power=True)
    assert [outcome.seed for outcome in failed] == []


def test_the_seeds_reach_every_failpoint(played: Played) -> None:
    """An effect that no seed reaches is not tested: it gets a step."""
    if played.late or played.seeds < SEEDS:
        pytest.skip("needs all seeds of the tests before")
    assert set(POINTS) - set(played.passed) == set()
    assert played.figures["retentions"] > 0, "outputs are collected"


def test_a_seed_determines_everything(bench: Bench) -> None:
    """The same seed gives the same trace, passage by passage, whatever was played before."""
    played = [(seed, power) for seed in (2, 3, 7) for power in (False, True)]
    first = [simulate(bench, seed, power=power) for seed, power in played]
    for (seed, power), before in zip(played, first, strict=True):
        assert simulate(bench, seed, power=power).trace == before.trace
        assert len(before.trace) > 20
    assert plan_of(1) != plan_of(2)


@pytest.mark.soak
def test_another_process_plays_a_seed_again(bench: Bench) -> None:
    """The printed command gives the same trace, with another order of Python's sets too."""
    seed = 3
    expected = simulate(bench, seed).report()
    command = [sys.executable, "-m", "tests.simulation", "--from", str(seed), "--seeds", "1"]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(REPOSITORY)}
    actual = subprocess.run(
        [*command, "--trace"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert actual.stdout.strip() == expected.strip()
