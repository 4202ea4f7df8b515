"""Several controllers on PostgreSQL, and Spark; whichever is hit, the tables are the same.

Real processes. Victims of SIGKILL, drawn by a seed: the controller that leads, the one
that follows, an executor of the standalone cluster, a Python worker. After the last one
the tables must equal an unbroken run (`workload.py`). Two controllers share a Spark cluster; where
the engine is local there are three, so that two compete for each lease. What survives the death
of a leader answers reads at once, and within ten seconds one of them leads and has recorded a run.
Databases that only one of the instances loses: `test_cut_off.py`.

`CBP_KILLS` sets how many (4 by default, one of each; from 20 on, every fault of a database comes),
`CBP_SEED` which and when; `CBP_CHECK_EVERY` checks the tables in between, too; `CBP_WAIT_SECONDS`
is the patience with a busy machine. Every take-over is timed strictly up to `FEW_KILLS`, beyond it
their median, as some are late.

A leader that was stopped beyond its lease records nothing any more, also where executors of a
cluster go on writing (`-m soak`). A database that restarts, is slow or away, and clocks that jump
apart in the middle of runs, lose nothing. Two of three instances compete, and all answer reads as
soon as the leader is dead; one leads, and has recorded a run, within ten seconds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.system.deployment import Deployment
from tests.system.processes import until
from tests.system.workload import Workload

pytestmark = [
    pytest.mark.system,
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.service,
    pytest.mark.timeout(6 * 3600),
]

KILLS = int(os.environ.get("CBP_KILLS", "4"))
SEED = int(os.environ.get("CBP_SEED", "1"))
CHECK_EVERY = int(os.environ.get("CBP_CHECK_EVERY", "25"))
RUN_SECONDS = 3.0
FEW_KILLS = 20
VICTIMS = {"worker": 10, "executor": 6, "leader": 3, "follower": 1}


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[[bool], tuple[Deployment, Workload]]]:
    """Give a function that starts a deployment with or without Spark, and its workload."""
    with ExitStack() as stack:

        def make(spark: bool) -> tuple[Deployment, Workload]:
            deployment = Deployment(tmp_path, stack, spark=spark)
            deployment.start()
            work = Workload(deployment.leader().settings, tmp_path, random.Random(SEED))
            work.register()
            return deployment, work

        yield make


@pytest.mark.soak
def test_whoever_is_killed_the_tables_are_those_of_an_unbroken_run(
    deploy: Callable[[bool], tuple[Deployment, Workload]],
) -> None:
    """Nothing is lost, nothing is applied twice, and nobody helps."""
    chance, killed = random.Random(SEED), Counter[str]()
    print(f"seed {SEED}, {KILLS} kills")
    deployment, work = deploy(True)
    settings = [one.settings for one in deployment.instances]
    while killed.total() < KILLS:
        (victim,) = chance.choices(list(VICTIMS), list(VICTIMS.values()))
        if killed.total() < len(VICTIMS):
            victim = list(VICTIMS)[killed.total()]
        if work.files - killed.total() < 3:
            work.drop()
        time.sleep(chance.uniform(0, RUN_SECONDS))
        killed[victim] += _kill(deployment, work, victim, chance)
        if killed.total() % CHECK_EVERY == 0:
            work.wait_until_idle(*settings)
            work.check()
            print(f"{killed.total()} killed, all is as it should be", flush=True)
    work.wait_until_idle(*settings)
    work.check()
    print(f"killed: {dict(killed)}; {deployment.told()}")
    assert deployment.in_time(few=KILLS <= FEW_KILLS)


def _kill(deployment: Deployment, work: Workload, victim: str, chance: random.Random) -> int:
    """Kill one; tell how many were killed: a worker may have ended by itself."""
    assert deployment.cluster is not None
    if victim in ("worker", "executor"):
        of = deployment.cluster
        pids = of.executors() if victim == "executor" else of.python_workers()
        if not pids:
            return 0
        with suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
            return 1
        return 0
    leader = deployment.leader()
    others = deployment.others(leader)
    for one in others:
        one.wait()
    gone = leader if victim == "leader" else chance.choice(others)
    gone.kill()
    if gone is leader:
        deployment.take_over(gone, work)
    gone.start()
    return 1


@pytest.mark.soak
@pytest.mark.parametrize("spark", [False, True], ids=["local", "spark"])
def test_a_leader_that_was_stopped_for_too_long_records_nothing_any_more(
    deploy: Callable[[bool], tuple[Deployment, Workload]], spark: bool
) -> None:
    """SIGSTOP beyond the lease, in the middle of runs; SIGCONT: it finds that it was replaced.

    With Spark its driver is stopped, and tasks on the cluster's executors go on writing.
    """
    chance = random.Random(SEED)
    deployment, work = deploy(spark)
    midway = 0
    for _ in range(2 if KILLS < FEW_KILLS else 3):
        zombie, before_drop = deployment.leader(), work.epochs()
        for _ in range(3):
            work.drop()
        until(lambda: work.epochs() != before_drop, "nothing runs")  # noqa: B023
        time.sleep(chance.uniform(0, RUN_SECONDS if spark else 0.3))
        midway += min(work.epochs().values()) < work.files
        zombie.send(signal.SIGSTOP)
        deployment.take_over(zombie, work)
        successor = deployment.leader()
        work.wait_until_idle(successor.settings)
        before = work.leaders()
        zombie.send(signal.SIGCONT)
        until(lambda: zombie.answers() == "follows", "it did not notice")  # noqa: B023
        assert work.leaders() == before
        assert all(epochs == sorted(epochs) for epochs in before.values())
        work.check()
    assert midway > 0, "it was stopped only while nothing ran"
    assert len({epoch for epochs in work.leaders().values() for epoch in epochs}) > 1
    print(deployment.told())
    assert deployment.in_time()


@pytest.mark.soak
def test_a_database_that_restarts_is_slow_or_goes_away_loses_nothing(
    deploy: Callable[[bool], tuple[Deployment, Workload]],
) -> None:
    """Each in the middle of runs; nobody restarts a controller for it."""
    chance = random.Random(SEED)
    deployment, work = deploy(False)
    wires, postgres = list(deployment.wires.values()), deployment.postgres
    settings = [one.settings for one in deployment.instances]

    def restarted() -> None:
        postgres.stop()
        time.sleep(chance.uniform(0, 1))
        postgres.start()

    def slow() -> None:
        for wire in wires:
            wire.delay_seconds = 0.05
        time.sleep(2)
        for wire in wires:
            wire.delay_seconds = 0.0

    def cut() -> None:
        for _ in range(5):
            for wire in wires:
                wire.cut()
            time.sleep(chance.uniform(0, 0.4))

    def away_for_longer_than_the_lease() -> None:
        for wire in wires:
            wire.down = True
            wire.cut()
        time.sleep(7)
        for wire in wires:
            wire.down = False

    faults = [restarted, away_for_longer_than_the_lease]
    for fault in faults if KILLS < FEW_KILLS else [*faults, slow, cut]:
        for _ in range(2):
            work.drop()
        time.sleep(chance.uniform(0.1, 0.6))
        fault()
        work.wait_until_idle(*settings)
        work.check()


@pytest.mark.soak
def test_clocks_that_jump_change_nothing(
    deploy: Callable[[bool], tuple[Deployment, Workload]],
) -> None:
    """Each instance's by itself, and the database's, in the middle of runs; then the leader dies.

    A lease that ends at once is one that the database's clock, set ahead, ends; nobody may take
    one that it prolongs, and the leader that lives makes it as long as it should be.
    """
    deployment, work = deploy(False)
    settings, midway = [one.settings for one in deployment.instances], 0
    jumps = [((0, -3600, 86_400), 0), ((-86_400, 3600, 0), -3_600_000), ((7200, 0, -60), 3_600_000)]
    for clocks, lease_ms in jumps:
        before = work.epochs()
        for _ in range(4):
            work.drop()
        until(lambda: work.epochs() != before, "nothing runs")  # noqa: B023
        for instance, seconds in zip(deployment.instances, clocks, strict=True):
            instance.clock.write_text(str(seconds))
        deployment.shift_lease(lease_ms)
        midway += min(work.epochs().values()) < work.files
        work.drop()
        work.wait_until_idle(*settings)
    assert midway == len(jumps), "the clocks jumped while nothing ran"
    work.check()
    gone = deployment.leader()
    gone.kill()
    deployment.take_over(gone, work)
    work.wait_until_idle(*(one.settings for one in deployment.others(gone)))
    work.check()
    leaders = work.leaders()
    assert all(epochs == sorted(epochs) for epochs in leaders.values()), leaders
    print(deployment.told())
    assert deployment.in_time()
