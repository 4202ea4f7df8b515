"""One of three controllers loses its PostgreSQL in the middle of runs, and the others keep theirs.

Real processes, each behind a wire of its own. The worst zombie: it runs, it has its files, and
only its database is away, does not answer, or does so too late for its lease. Another one takes
over and has recorded a run within ten seconds; the one that was cut off records nothing any
more and follows, without a restart. In the end the tables equal an unbroken run (`workload.py`).
By `-m soak`: a database that refuses, connections that hang for ever, and answers that come too
late for a renewal.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests.system.deployment import Deployment
from tests.system.processes import until
from tests.system.wire import Wire
from tests.system.workload import Workload

pytestmark = [pytest.mark.system, pytest.mark.service, pytest.mark.timeout(600)]

SEED = int(os.environ.get("CBP_SEED", "1"))
ANSWER_SECONDS = 5.0


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Workload]]:
    """Give a deployment without Spark, and its workload; each test leaves both whole."""
    root = tmp_path_factory.mktemp("cut off")
    print(f"seed {SEED}")
    with ExitStack() as stack:
        deployment = Deployment(root, stack, spark=False)
        deployment.start()
        work = Workload(deployment.leader().settings, root, random.Random(SEED))
        work.register()
        yield deployment, work


def away(wire: Wire) -> None:
    """Break what is open and refuse what is new."""
    wire.down = True
    wire.cut()


def back(wire: Wire) -> None:
    """Accept connections again."""
    wire.down = False


def slow(wire: Wire) -> None:
    """Let each answer take `ANSWER_SECONDS`: a renewal, of two, takes longer than the lease."""
    wire.delay_seconds = ANSWER_SECONDS / 2


def fast(wire: Wire) -> None:
    """Answer at once again."""
    wire.delay_seconds = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one instance's wire, and how that ends."""

    begin: Callable[[Wire], None]
    end: Callable[[Wire], None]


FAULTS: dict[str, Any] = {
    "away": pytest.param(Fault(away, back), marks=pytest.mark.soak),
    "stalled-and-then-handed-on-late": Fault(Wire.stall, Wire.flow),
    "slow": pytest.param(Fault(slow, fast), marks=pytest.mark.soak),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_leader_that_alone_loses_its_database_is_replaced_and_records_nothing_more(
    deployed: tuple[Deployment, Workload], fault: Fault
) -> None:
    """Beyond its lease, in the middle of runs; it follows as soon as it has a database again."""
    deployment, work = deployed
    zombie = deployment.leader()
    wire = deployment.wires[zombie.name]
    midway = begin_midway(work, lambda: fault.begin(wire))
    deployment.take_over(zombie, work)
    work.wait_until_idle(*(one.settings for one in deployment.others(zombie)))
    led = work.leaders()
    fault.end(wire)
    late = until(lambda: zombie.answers() == "follows", "it did not find that it was replaced")
    print(f"{deployment.told()}; follows after {late:.1f} s")
    assert midway, "nothing ran when it lost its database"
    assert work.leaders() == led
    assert all(epochs == sorted(epochs) for epochs in led.values()), led
    work.check()
    assert deployment.in_time()


@pytest.mark.soak
def test_connections_of_a_leader_that_hang_for_ever_stop_nothing(
    deployed: tuple[Deployment, Workload],
) -> None:
    """It gives them up and goes on with others, as who leads or as who follows, by itself."""
    deployment, work = deployed
    leader = deployment.leader()
    midway = begin_midway(work, deployment.wires[leader.name].strand)
    work.drop()
    late = until(leader.answers, "it hangs")
    work.wait_until_idle(*(one.settings for one in deployment.instances))
    print(f"answers after {late:.1f} s, and {leader.answers()}")
    assert midway, "nothing ran when its connections hung"
    assert all(epochs == sorted(epochs) for epochs in work.leaders().values())
    work.check()


def begin_midway(work: Workload, fault: Callable[[], None]) -> bool:
    """Let a fault begin while runs are under way; tell whether they were."""
    before = work.epochs()
    for _ in range(4):
        work.drop()
    until(lambda: work.epochs() != before, "nothing runs")
    fault()
    return min(work.epochs().values()) < work.files
