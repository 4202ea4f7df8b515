"""Outputs whose files are merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cbp import DataflowBuilder
from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.managed_table import open_table
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.storage.files import LocalFiles
from tests import flows
from tests.driver import Driver

NONE_KEPT = Retention(versions_min=0, versions_max=0, seconds=0, attempt_seconds=0)


def file(first: int, last: int, size: int, part: int = 0) -> AddFile:
    epochs = {"_epoch": first}, {"_epoch": last}
    name = f"_runs/{first:012d}-{part:05d}-r{last}-{part}.parquet"
    return AddFile(name, {}, size, 1, 1, min_values=epochs[0], max_values=epochs[1])


def epochs(files: list[AddFile]) -> set[int]:
    ends = ((dict(f.min_values or {}), dict(f.max_values or {})) for f in files)
    return {e for low, high in ends for e in range(low["_epoch"], high["_epoch"] + 1)}


def merged(chosen: list[AddFile]) -> AddFile:
    first, last = dict(chosen[0].min_values or {}), dict(chosen[-1].max_values or {})
    return file(first["_epoch"], last["_epoch"], sum(f.size for f in chosen))


def driver_on(folder: Path, *, publish_every: int = 1, **options: Any) -> Driver:
    builder = DataflowBuilder("words")
    lines = builder.source("lines", "text STRING")
    split = builder.stage("split", flows.Split(), lines=lines)
    builder.stage("count", flows.UrlCount(), buckets=2, urls=split.words)
    engine = LocalEngine(cache=str(folder / "cache"), **options)
    return Driver(engine, builder.build(), folder / "df", publish_every=publish_every)


def feed(driver: Driver, epochs: int) -> None:
    for _ in range(epochs):
        number = driver.indexes["lines"]
        driver.feed("lines", [{"text": f"w{number} x{number % 3} z"}, {"text": f"w{number}"}])


def collect(driver: Driver) -> None:
    queued = [
        f.path
        for connectors in driver.connectors.values()
        for connector in connectors.values()
        for waiting in connector.queue
        for f in waiting.increment.files
    ]
    for node in driver.dataflow.stages.values():
        for name in driver.engine.garbage.collect(
            driver.folder, node, queued=queued.copy, retention=NONE_KEPT
        ):
            table = open_table(f"{driver.folder}/{name}", LocalFiles())
            table.checkpoint()
        driver.engine.garbage.collect(driver.folder, node, queued=queued.copy, retention=NONE_KEPT)
