"""SIGTERM: what is under way ends, nothing new begins, and the process ends with status 0.

A stop ends in `drain_seconds` and a little, whatever hangs: it lets runs end, begins none, and
waits for nobody for ever.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import LocalFiles
from controller.client.drop_folder import copy_into
from controller.client.service_client import ServiceClient
from controller.loop.controller import DRAIN_CANCEL_SECONDS
from controller.server.process import FORCED_AFTER_SECONDS, FORCED_STATUS
from tests.authored import install, write
from tests.system.processes import REPOSITORY, TOKEN, Instance, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DOCUMENT: dict[str, Any] = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}
RECORDS = 200_000
"""A run of some seconds."""
SLACK_SECONDS = 15.0
"""For a machine that does other things, too."""
_LOOPING = """
import os
from cbp import Input, Output, State, Translate


class Looping(Translate):
    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, key, group, out):
        while os.path.exists(os.environ["LOOPS"]):
            with open(os.environ["LOOPS"], "a") as file:
                file.write("x")
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(key.url, n)
        out.totals(key.url, n)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Instance]:
    """Give a service that is killed at the end."""
    instance = Instance(tmp_path, "one", engine="local", drain_seconds=60)
    yield instance
    instance.kill()


def test_a_stop_lets_runs_end_and_begins_no_others(service: Instance, tmp_path: Path) -> None:
    """The run under way is recorded; what waits behind it runs after the next start."""
    begin_a_long_run(service, tmp_path)
    drop(service, tmp_path, "second.jsonl", 10)
    with ServiceClient(service.settings) as client:
        until(lambda: len(client.get("dataflows", "urls", "increments")["items"]) == 2, "no file")
        assert [run["status"] for run in client.get("runs")["items"]] == ["INTENDED"]
    assert service.stop() == 0
    assert epochs(service) == 1
    service.start()
    service.wait()
    until(lambda: epochs(service) == 2, "it did not go on")


@pytest.mark.soak
def test_a_stop_waits_for_nobody_for_ever(tmp_path: Path) -> None:
    """A run that takes too long does not keep the process, nor a client amid a body."""
    service = Instance(tmp_path, "one", engine="local", drain_seconds=1)
    try:
        begin_a_long_run(service, tmp_path)
        with socket.create_connection(("127.0.0.1", service.settings.port)) as slow:
            path = "/api/v1/dataflows/urls/sources/visits/files?name=slow.jsonl"
            lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}"]
            slow.sendall("\r\n".join([*lines, "Content-Length: 100", "", "{"]).encode())
            began = time.monotonic()
            assert service.stop() == 0
            assert time.monotonic() - began < 30
        # Without Spark a run cannot be cancelled: it may have ended in the time for that.
        service.start()
        service.wait()
        until(lambda: epochs(service) == 1, "it did not run again")
    finally:
        service.kill()


@pytest.mark.soak
def test_a_run_that_never_ends_is_left_alone(tmp_path: Path) -> None:
    """An author's function that loops keeps the process `drain_seconds`, and a forced stop's time.

    Nothing of its run is there then: after a start it runs again, once, from what waited for it.
    """
    packages, loops = tmp_path / "packages", tmp_path / "loops"
    write(packages, {"looping/__init__.py": "", "looping/stages.py": _LOOPING})
    install(packages, "looping", {"looping": "looping.stages:Looping"})
    loops.touch()
    service = Instance(
        tmp_path,
        "one",
        environment={"PYTHONPATH": f"{REPOSITORY}:{packages}", "LOOPS": str(loops)},
        engine="local",
        drain_seconds=1,
        allowed_packages=("looping",),
    )
    stage = {**DOCUMENT["stages"]["count"], "translator": "looping"}
    try:
        begin_a_long_run(service, tmp_path, {**DOCUMENT, "stages": {"count": stage}}, records=10)
        until(lambda: loops.read_bytes(), "it did not begin to loop")
        began = time.monotonic()
        assert service.stop() in (0, FORCED_STATUS)
        took = time.monotonic() - began
        assert took < 1 + DRAIN_CANCEL_SECONDS + FORCED_AFTER_SECONDS + SLACK_SECONDS
        assert epochs(service) == 0
        loops.unlink()
        service.start()
        service.wait()
        until(lambda: epochs(service) == 1, "it did not run again")
        with ServiceClient(service.settings) as client:
            path = ("dataflows", "urls", "state", "count", "counts", "records")
            rows = client.get(*path)["items"]
            assert {row["url"]: row["n"] for row in rows} == {f"u{n}": 1 for n in range(10)}
    finally:
        service.kill()


def begin_a_long_run(
    service: Instance,
    scratch: Path,
    document: dict[str, Any] = DOCUMENT,
    records: int = RECORDS,
) -> None:
    """Start the service and return once a run is under way."""
    service.start()
    service.wait()
    with ServiceClient(service.settings) as client:
        content = json.dumps(document).encode()
        client.post("dataflows", content=content, content_type="application/json")
        drop(service, scratch, "first.jsonl", records)
        until(lambda: client.get("runs")["items"], "no run began")


def drop(service: Instance, scratch: Path, name: str, records: int) -> None:
    file = scratch / name
    file.write_text("".join(json.dumps({"url": f"u{n}"}) + "\n" for n in range(records)))
    copy_into(service.settings.drop_root / "urls" / "visits" / "incoming", file)


def epochs(service: Instance) -> int:
    """Return how many runs of the stage are recorded."""
    log = IntentionLog(f"{service.settings.tables}/urls", LocalFiles())
    return log.next_epochs().get("count", 0)
