"""`kill -9` of the whole service at random instants: restart alone brings the same tables.

Real processes, real Delta, real files, one service on SQLite; its input and what is checked
in the end are in `workload.py`. With engine local by default, with Spark by `-m soak`. Other
victims, and two services on PostgreSQL: `test_victims.py`.

`CBP_KILLS` sets the number of kills (1 by default; 20 take some five minutes with Spark),
`CBP_SEED` the instants.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.processes import Instance
from tests.system.workload import Workload

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("CBP_KILLS", "1"))
SEED = int(os.environ.get("CBP_SEED", "1"))
RUN_SECONDS = {"local": 0.5, "spark": 4.0}
"""From a drop to its last commit takes about as long: most kills hit some run."""


@pytest.fixture(
    params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])]
)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    """Give a service that is killed at the end."""
    instance = Instance(tmp_path, "one", engine=request.param)
    yield instance
    instance.kill()


def test_tables_after_kills_equal_an_unbroken_run(service: Instance, tmp_path: Path) -> None:
    """Nothing is lost, nothing is applied twice, and nobody helps."""
    chance = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    service.start()
    service.wait()
    work = Workload(service.settings, tmp_path, chance)
    work.register()
    for _ in range(KILLS):
        work.drop()
        time.sleep(chance.uniform(0, RUN_SECONDS[service.settings.engine]))
        service.kill()
        service.start()
        service.wait()
    work.wait_until_idle()
    work.check()
