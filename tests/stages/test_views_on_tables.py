"""The ready stages with views on the direct engine: the reference engine's epochs.

That the reference engine's results are right is held by test_views.py, test_joins.py and
test_time_windows.py; here every change, its order, and state are the same at every epoch.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from tests.cbp.engine.epochs import assert_same
from tests.driver import Driver
from tests.stages.ready_stages import every_stage, random_days


@pytest.mark.part(every=2)
@pytest.mark.parametrize("seed", range(2))
def test_every_epoch_equals_the_reference(seed: int, tmp_path: Path) -> None:
    """With several tasks and small windows, while records come, change and go."""
    limits = EngineLimits(rows_per_task=3, window_rows=5, large_group_rows=5 if seed else 1000)
    dataflow = every_stage()
    engine = LocalEngine(cache=str(tmp_path / "cache"), limits=limits)
    driver = Driver(engine, dataflow, tmp_path / "t", fused=bool(seed))
    assert_same(dataflow, driver, random_days(random.Random(seed), days=3), source="")
    assert all(
        driver.state(name, state.name)
        for name, node in dataflow.stages.items()
        for state in node.translator.states
    )
