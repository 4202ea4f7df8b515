"""A task that dies at any of its files: the next attempt gives the same, by its own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.engine.storage.files import LocalFiles
from tests.cbp.engine.epochs import assert_same, dataflow_of
from tests.driver import Driver
from tests.planned_faults import Crash, PlannedFaults

ROWS: list[dict[str, Any]] = [{"url": f"{i % 7}{i}", "drop": False} for i in range(60)]
EPOCHS = [{"items": ROWS}, {"items": [{**row, "drop": row["url"] > "3"} for row in ROWS[::2]]}]


STORED = EngineLimits(inline_deletes_bytes=0)
"""No deleted rows are so few that they need no file."""


class Crashing(Driver):
    """A driver that begins anew, with no faults, whenever an attempt dies."""

    def __init__(self, folder: Path, faults: PlannedFaults) -> None:
        self.cache, self.crashes = str(folder / "cache"), 0
        engine = LocalEngine(cache=self.cache, limits=STORED)
        super().__init__(engine, dataflow_of("members"), folder / "t")
        engine.preparer.faults = faults

    def run_until_idle(self) -> None:
        while True:
            try:
                super().run_until_idle()
            except Crash:
                self.crashes += 1
                self.engine = LocalEngine(cache=self.cache, faults=NO_FAULTS, limits=STORED)
            else:
                return


PASSAGES = {"data_file": (1, 3), "data_sync": (1, 2), "vectors_file": (1,)}


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(
    ("effect", "passage"), [(effect, at) for effect, many in PASSAGES.items() for at in many]
)
def test_a_task_that_died_leaves_files_that_nobody_names(
    effect: str, passage: int, side: str, tmp_path: Path
) -> None:
    """Outputs and state are the reference's; the table shows no file of the dead attempt."""
    driver = Crashing(tmp_path, PlannedFaults(f"{effect}.{side}", passage=passage))
    assert_same(driver.dataflow, driver, EPOCHS)
    assert driver.crashes == 1
    runs = {intention.run for intention in driver.log.since("stage", 0)}
    table = open_table(str(tmp_path / "t/state/stage.urls"), LocalFiles())
    assert {path.split("-")[2] for path in table.snapshot.live} <= runs
    assert len(runs) == 2


def test_a_run_passes_every_point_of_a_task(tmp_path: Path) -> None:
    """No test waits for a point that tasks do not pass."""
    faults = PlannedFaults()
    driver = Crashing(tmp_path, faults)
    assert_same(driver.dataflow, driver, EPOCHS)
    for effect in (*PASSAGES, "job"):
        assert faults.passed[f"{effect}.before"] == faults.passed[f"{effect}.after"] > 0
