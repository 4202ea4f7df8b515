"""`kill -9` of the service while sinks publish: their files are the flow, each record once.

Real processes and real files, `engine=local`. `CBP_KILLS` sets the number of kills (1 by default),
`CBP_SEED` the instants.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

from cbp.client.errors import ServiceProblemError
from controller.client.service_client import ServiceClient
from tests.system.processes import Instance, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("CBP_KILLS", "1"))
SEED = int(os.environ.get("CBP_SEED", "1"))
RUN_SECONDS = 1.0
FILES, LINES, URLS = 8, 20, 9
DOCUMENT: dict[str, Any] = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
    "sinks": {
        "totals": {"flow": "count.totals", "to": "parquet", "path": "totals"},
        "lines": {"flow": "count.totals", "to": "csv", "path": "lines"},
    },
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Instance]:
    """Give a service that is killed at the end."""
    instance = Instance(tmp_path, "one", engine="local")
    yield instance
    instance.kill()


@pytest.mark.soak
def test_files_after_kills_are_the_flow(service: Instance, tmp_path: Path) -> None:
    """Nothing is lost, nothing is there twice, no file is half, and nobody helps."""
    chance, number = random.Random(SEED), 0
    incoming = tmp_path / "drop/urls/visits/incoming"
    service.start()
    service.wait()
    with ServiceClient(service.settings) as client:
        body = json.dumps(DOCUMENT).encode()
        client.post("dataflows", content=body, content_type="application/json")
    for _ in range(KILLS):
        for _ in range(FILES):
            lines = "".join(f'{{"url": "/{chance.randrange(URLS)}"}}\n' for _ in range(LINES))
            (incoming / f"{number}.part").write_text(lines)
            (incoming / f"{number}.part").rename(incoming / f"{number}.jsonl")
            number += 1
        time.sleep(chance.uniform(0, RUN_SECONDS))
        service.kill()
        service.start()
        service.wait()
    with ServiceClient(service.settings) as client:

        def is_done() -> bool:
            path = ("dataflows", "urls", "state", "count", "counts")
            try:
                found = [client.get(*path, url=f"/{url}")["items"] for url in range(URLS)]
            except ServiceProblemError:  # no record of one yet
                return False
            sinks = client.get("dataflows", "urls", "sinks")["items"]
            counted = sum(one["n"] for items in found for one in items) == number * LINES
            return counted and all(one["begun"] and not one["waiting"] for one in sinks)

        until(is_done, "the sinks did not catch up")
        flow: list[Any] = []
        cursor = None
        while True:
            query = {"limit": 500, "cursor": cursor}
            page = client.get("dataflows", "urls", "flows", "count.totals", "records", **query)
            flow += page["items"]
            cursor = page["cursor"]
            if cursor is None:
                break
    expected = [{k: v for k, v in one.items() if k[0] != "_"} for one in flow]
    for folder, read in (("totals", polars.read_parquet), ("lines", polars.read_csv)):
        names = sorted((tmp_path / "sinks" / folder).glob("urls.*"))
        assert 0 < len(names) <= number
        assert expected
        assert [row for name in names for row in read(name).to_dicts()] == expected
        assert [path.name for path in (tmp_path / "sinks" / folder).glob(".*")] == []
