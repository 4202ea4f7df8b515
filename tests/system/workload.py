"""The crawl queue under faults: pages are dropped, and in the end everything is checked.

The tables must equal the reference engine's over the accepted increments, every dropped
record must have been accepted exactly once, and every record of the intention logs must
stand under a controller that led when the one before did not any more.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq

from cbp.client.errors import ServiceProblemError, ServiceUnreachableError
from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import LocalFiles
from cbp.model.dataflow.dataflow import Dataflow
from cbp.testing.dataflow_runs import run_dataflow, taking_all
from controller.client.drop_folder import copy_into
from controller.client.service_client import ServiceClient
from controller.demo.run import NAME, by_polars, document, first_difference, read_tables
from controller.ingest.source_log import SourceLog
from controller.registry import Registry
from controller.settings import Settings
from tests.system.processes import until

__all__ = ["Workload", "check_tables", "pages"]


class Workload:
    """What is dropped into one deployment.

    Args:
        settings: Those of any of its instances.
        scratch: Where files are made before they are dropped.
        chance: Makes the pages.
    """

    def __init__(self, settings: Settings, scratch: Path, chance: random.Random) -> None:
        self.settings, self._scratch, self._chance = settings, scratch, chance
        self._dropped: list[dict[str, Any]] = []
        self.files = 0
        self.folder = f"{settings.tables.rstrip('/')}/{NAME}"
        self._document = document()

    def register(self) -> None:
        """Register the dataflow at the instance of `settings`, or at the one that leads."""
        with ServiceClient(self.settings) as client:
            content = json.dumps(self._document).encode()
            client.post("dataflows", content=content, content_type="application/json")

    def drop(self) -> None:
        """Put a file of pages into the drop folder, as a producer does."""
        rows = pages(self._chance, self.files)
        file = self._scratch / f"pages-{self.files}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        copy_into(self.settings.drop_root / NAME / "pages" / "incoming", file)
        self._dropped += rows
        self.files += 1

    def wait_until_idle(self, *instances: Settings) -> None:
        """Return once every stage has done as many epochs as files were dropped.

        Raises:
            AssertionError: A stage has stopped, which an operator would have to mend, or it takes
                too long.
        """
        shown: Any = None

        def idle() -> bool:
            nonlocal shown
            for settings in instances or (self.settings,):
                try:
                    with ServiceClient(settings) as client:
                        shown = client.get("dataflows", NAME)["stages"]
                except (ServiceProblemError, ServiceUnreachableError, httpx.HTTPError) as error:
                    shown = error
                    continue
                stopped = [stage["waiting"] for stage in shown if stage["state"] == "stopped"]
                assert not stopped, stopped
                if all(stage["epoch"] >= self.files for stage in shown):
                    return True
            return False

        try:
            until(idle, "")
        except AssertionError as error:
            raise AssertionError(str(error) or shown) from None

    def check(self) -> None:
        """Compare what is on disk with an unbroken run; everything is idle."""
        check_tables(self._dataflow(), self.folder, self._dropped)

    def _dataflow(self) -> Dataflow:
        return Registry(self.settings.allowed_packages).compile(self._document)

    def epochs(self) -> dict[str, int]:
        """Return how many epochs of each stage are recorded, by the records on disk."""
        return IntentionLog(self.folder, LocalFiles()).next_epochs()

    def read(self, settings: Settings) -> None:
        """Read stages, tables and records of every flow from one instance, as a client may.

        Raises:
            ServiceProblemError, ServiceUnreachableError: It does not answer them.
        """
        with ServiceClient(settings) as client:
            client.get("dataflows", NAME)
            client.get("dataflows", NAME, "snapshot")
            for node in self._dataflow().stages.values():
                for output in node.translator.outputs:
                    flow = ("flows", f"{node.name}.{output.name}", "records")
                    client.get_pairs("dataflows", NAME, *flow, query=[("limit", "5")])

    def tells(self, what: str) -> bool:
        """Tell the dataflow to `pause` or to `resume`; return whether that was taken."""
        try:
            with ServiceClient(self.settings) as client:
                client.post("dataflows", NAME, what)
        except (ServiceProblemError, ServiceUnreachableError):
            return False
        return True

    def leaders(self) -> dict[str, list[int]]:
        """Return, by stage, under which epoch of the lease each of its records was put."""
        log = IntentionLog(self.folder, LocalFiles())
        return {
            stage: [record.leader_epoch for record in log.since(stage, log.oldest(stage) or 0)]
            for stage in log.next_epochs()
        }

    def newest_leader(self) -> int:
        """Return the highest epoch of the lease under which a stage's newest record was put."""
        log = IntentionLog(self.folder, LocalFiles())
        newest = [log.read(stage, epoch - 1) for stage, epoch in log.next_epochs().items() if epoch]
        return max((record.leader_epoch for record in newest if record), default=0)


def check_tables(flow: Dataflow, folder: str, dropped: Iterable[dict[str, Any]]) -> None:
    """Compare a crawl queue with the reference engine, and what it accepted with what came."""
    accepted = [
        [row for file in entry.increment.files for row in read(f"{folder}/{file.path}")]
        for entry in SourceLog(folder, "pages", LocalFiles()).since(0)
    ]
    assert frozen(row for rows in accepted for row in rows) == frozen(dropped)
    expected = run_dataflow(taking_all(flow), {"pages": accepted})
    found = read_tables(flow, folder, expected)
    assert first_difference(expected, found) == ""
    assert first_difference(found, read_tables(flow, folder, expected, by_polars)) == ""


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


def read(path: str) -> list[dict[str, Any]]:
    """Return the records of one accepted file."""
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return rows


def frozen(rows: Iterable[Any]) -> Counter[str]:
    """Count records whatever their order."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
