"""One bench for all simulations of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.bench import Bench


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("simulation"))
    yield made
    made.close()
