"""Outputs with a retention."""

from __future__ import annotations

from cbp.model.flow.retention import FlowRetention, KeptFlow
from tests.cbp.engine.merged_outputs import feed
from tests.driver import Driver

KEPT = KeptFlow(FlowRetention(0.0, 0), first_replayed=20)


def run(driver: Driver, number: int) -> None:
    for _ in range(number):
        feed(driver, 1)
        driver.run_until_idle()
