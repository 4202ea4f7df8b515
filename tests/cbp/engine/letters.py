"""Messages that lie by bucket."""

from __future__ import annotations

import random
from typing import Any

from cbp import DataflowBuilder
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.dataflow import Dataflow
from tests import message_flows
from tests.driver import Driver


def letters(translator: Any = None, *, buckets: int = 8) -> Dataflow:
    """Wire one translator to a source per input."""
    translator = translator or message_flows.Letters()
    flow = DataflowBuilder("letters")
    sources: dict[str, Any] = {
        spec.name: flow.source(f"s_{spec.name}", str(spec.schema))
        for spec in translator.spec().inputs
        if not spec.loopback
    }
    flow.stage("stage", translator, buckets=buckets, **sources)
    return flow.build()


def small_limits(rows_min: int = 1) -> EngineLimits:
    """Return limits that a few records reach: of tasks, windows, blocks, stretches."""
    return EngineLimits(
        rows_per_task=3,
        window_rows=3,
        message_rows_min=rows_min,
        message_block_bytes=400,
        message_group_rows_min=3,
        message_group_rows_max=5,
        message_sort_bytes=300,
        sort_run_bytes=300,
        sort_block_bytes=100,
    )


def many(seed: int = 5, records: int = 40) -> list[dict[str, Any]]:
    """Return items of random keys, with a few letters each."""
    chance = random.Random(seed)
    return [
        {
            "k": chance.randrange(40),
            "to": [chance.randrange(40) for _ in range(6)],
            "n": chance.randrange(3),
        }
        for _ in range(records)
    ]


def fed(driver: Driver | ReferenceEngine, rows: list[Any]) -> None:
    """Feed items and let them, and their letters, be worked on."""
    driver.feed("s_items", rows)
    driver.run_until_idle()
