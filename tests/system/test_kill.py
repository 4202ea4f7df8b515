"""`kill -9` of the whole service at random instants: restart alone brings the same tables.

Real processes, real Spark, real Delta, real files. After the last kill the tables must
equal the reference engine's over the accepted increments, and every dropped record must
have been accepted exactly once.

`CBP_KILLS` sets the number of kills (3 by default; 20 take some five minutes), `CBP_SEED`
the instants.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cbp.engine.files import LocalFiles
from controller.cli.client import ServiceClient
from controller.cli.drop import copy_into
from controller.demo import checks, dataflow
from controller.demo.service import ServiceProcess, choose_port, settings_of
from controller.demo.tables import tables_of
from controller.ingest.source_log import SourceLog
from controller.settings import Settings

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("CBP_KILLS", "3"))
SEED = int(os.environ.get("CBP_SEED", "1"))
RUN_SECONDS = 4.0
"""From a drop to its last commit takes about as long: most kills hit some run."""
IDLE_SECONDS_MAX = 300


class Killable:
    """A service that is killed and started again on the same folder."""

    def __init__(self, root: Path) -> None:
        self.settings: Settings = settings_of(root, port=choose_port(18420), engine="spark")
        self._log = root / "service.log"
        self.process: ServiceProcess | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = ServiceProcess(self.settings, log=self._log)
        self.process.wait_until_ready()

    def kill(self) -> None:
        """Kill service, JVM and Python workers at once; nobody gets to say goodbye."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.stop()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Killable]:
    """Give a service that is stopped at the end."""
    killable = Killable(tmp_path)
    yield killable
    if killable.process is not None:
        killable.process.stop()


def pages(chance: random.Random, number: int) -> list[dict[str, Any]]:
    """Make some pages of a small web; a page's content may come again."""
    names = [f"site{s}.page{p}" for s in range(6) for p in range(12)]
    return [
        {
            "url": f"{name}.v{number}",
            "site": name.partition(".")[0],
            "links": chance.choices(names, k=chance.randrange(6)),
        }
        for name in chance.sample(names, 15)
    ]


def drop(settings: Settings, folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    """Put a file of pages into the drop folder, as a producer does."""
    file = folder / f"pages-{number}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    copy_into(settings.drop_root / "crawl_queue" / "pages" / "incoming", file)


def wait_until_idle(client: ServiceClient, increments: int) -> None:
    """Return once every stage has done as many epochs as files were dropped."""
    until = time.monotonic() + IDLE_SECONDS_MAX
    while time.monotonic() < until:
        stages = client.get("dataflows/crawl_queue")["stages"]
        if all(stage["epoch"] >= increments for stage in stages):
            return
        time.sleep(0.2)
    raise AssertionError(stages)


def test_tables_after_kills_equal_an_unbroken_run(service: Killable, tmp_path: Path) -> None:
    """Nothing is lost, nothing is applied twice, and nobody helps."""
    chance = random.Random(SEED)
    print(f"seed {SEED}, {KILLS} kills")
    dropped: list[dict[str, Any]] = []
    service.start()
    document = dataflow.document()
    with ServiceClient(service.settings) as client:
        client.post(
            "dataflows", content=json.dumps(document).encode(), content_type="application/json"
        )
    for number in range(KILLS):
        rows = pages(chance, number)
        dropped += rows
        drop(service.settings, tmp_path, number, rows)
        time.sleep(chance.uniform(0, RUN_SECONDS))
        service.kill()
        service.start()
    with ServiceClient(service.settings) as client:
        wait_until_idle(client, KILLS)
    flow = dataflow.compiled(document, service.settings)
    folder = service.settings.tables.rstrip("/") + "/crawl_queue"
    accepted = [
        [row for file in entry.increment.files for row in read(f"{folder}/{file.path}")]
        for entry in SourceLog(folder, "pages", LocalFiles()).since(0)
    ]
    assert frozen(row for rows in accepted for row in rows) == frozen(dropped)
    tables = tables_of(flow, folder)
    check = checks.against_reference(tables, checks.reference(flow, "pages", accepted))
    assert check.ok, check.differences
    assert checks.readers_agree(tables).ok


def read(path: str) -> list[dict[str, Any]]:
    """Return the records of one accepted file."""
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return rows


def frozen(rows: Any) -> Counter[str]:
    """Count records whatever their order."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
