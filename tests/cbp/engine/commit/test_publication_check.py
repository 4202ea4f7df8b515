"""Whether the tables alone show that an epoch was published as a whole."""

from __future__ import annotations

from pathlib import Path

from cbp.engine.direct import LocalEngine
from tests.cbp.engine.epochs import dataflow_of
from tests.driver import Driver


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    """A crash while tables are created leaves such folders; they show no epoch, and hide none."""
    engine = LocalEngine(cache=str(tmp_path / "cache"))
    driver = Driver(engine, dataflow_of("url_count", buckets=2), tmp_path / "tables")
    driver.feed("s_urls", [{"url": "/"}])
    driver.run_until_idle()
    (stage,) = driver.units
    Path(driver.folder, "flows", f"{stage}.later", "_delta_log").mkdir(parents=True)
    assert driver.log.applied_ms(stage, 0) is not None
    assert driver.log.applied_ms(stage, 1) is None
