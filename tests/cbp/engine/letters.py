"""Messages that lie by bucket."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.shuffle import message_index as receivers
from cbp.engine.storage import external_sort as external
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.task import message_reader as mail
from cbp.model.dataflow.dataflow import Dataflow
from tests import flows
from tests.driver import Driver


def letters(translator: Any = None, *, buckets: int = 8) -> Dataflow:
    """Wire one translator to a source per input."""
    translator = translator or flows.Letters()
    flow = DataflowBuilder("letters")
    sources: dict[str, Any] = {
        spec.name: flow.source(f"s_{spec.name}", str(spec.schema))
        for spec in translator.spec().inputs
        if not spec.loopback
    }
    flow.stage("stage", translator, buckets=buckets, **sources)
    return flow.build()


def make_small(monkeypatch: pytest.MonkeyPatch, rows_min: int = 1) -> EngineLimits:
    """Let a few records be as many as there can be: of tasks, windows, blocks, stretches."""
    monkeypatch.setattr(receivers, "BLOCK_BYTES", 400)
    monkeypatch.setattr(receivers, "_GROUP_ROWS_MIN", 3)
    monkeypatch.setattr(receivers, "ROWS_PER_GROUP", 5)
    monkeypatch.setattr(mail, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(mail, "SORTED_BYTES", 300)
    monkeypatch.setattr(external, "RUN_BYTES", 300)
    monkeypatch.setattr(external, "_BLOCK_BYTES", 100)
    return EngineLimits(rows_per_task=3, message_rows_min=rows_min, window_rows=3)


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
