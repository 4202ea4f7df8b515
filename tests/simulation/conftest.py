"""One bench for all simulations of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.bench import Bench
from tests.simulation.many import bench_root


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    made = Bench(bench_root())
    yield made
    made.close()
