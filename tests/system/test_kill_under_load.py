"""`kill -9` under load: ready again within ten seconds, and each file has its fate, once.

A backlog of small files, 20 large ones, 50 clients that read while files come, files and uploads
that lie (as `python -m tests.fuzz --structured --service`). Stages count what comes, over a state
with many keys; in the end each has counted all files and all lines once.

`CBP_KILLS` sets the number of kills of each (1 by default), `CBP_SEED` the instants, `CBP_LOAD` the
size: 1 is 200 files of 100 lines, 20 files of 2,000, 10,000 keys; 100 is what the service is
measured with. With `-s` the seconds are printed: by the clock, from the start of the process, and
of the processor. Limited are the processor's, so that a machine under load is no reason to fail: an
idle one takes no longer by the clock.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from cbp.client import Client
from controller.client.service_client import ServiceClient
from tests.bench.end_to_end.load_client import Plan as Reading
from tests.bench.end_to_end.measured_service import (
    BACKLOG,
    BESIDE,
    IDLE,
    Counted,
    MeasuredService,
)
from tests.fuzz.service import PACKAGE, Plan, install_names, is_idle, wrong
from tests.fuzz.structured import structured_case
from tests.system.processes import REPOSITORY, TOKEN, Instance, descendants, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(1_800)]

KILLS = int(os.environ.get("CBP_KILLS", "1"))
SEED = int(os.environ.get("CBP_SEED", "1"))
LOAD = int(os.environ.get("CBP_LOAD", "1"))
KEYS = 10_000 * LOAD
LYING = 63
READY_SECONDS = 10.0
BEFORE_A_KILL_SECONDS = 3.0
CLIENTS = 50


class Load(Protocol):
    """What a service has to do while it is killed."""

    def more(self, kill: int) -> None:
        """Give it something to do, before the kill of this number; after the last one, too."""
        ...

    def check(self) -> None:
        """Wait until all is done, and compare."""
        ...


class Files:
    """Files that are counted; all are there before the first kill."""

    def __init__(self, service: Instance, client: ServiceClient, counted: Counted) -> None:
        self._client, self._counted, self._lines = Client.over(client), counted, 0
        self.measured = MeasuredService(
            service.settings, client, lambda: None, keys=KEYS, seed=SEED, counted=counted
        )
        self.measured.register(*((BESIDE,) if counted is BACKLOG else ()))

    def come(self, files: int, lines: int) -> None:
        """Let files come."""
        written = [self.measured.write_file(lines, durable=False) for _ in range(files)]
        for path in written:
            self.measured.rename_in(path)
        self._lines += files * lines

    def check(self) -> None:
        """Each file's mark, and each line, is counted once by each stage, beside the first keys."""
        self.measured.wait_until_readable(poll_seconds=0.2)
        for stage in self._counted.stages:
            sql = f"SELECT CAST(sum(n) AS BIGINT) FROM {stage}.counts"
            answer = self._client.query(self._counted.dataflow, sql)
            assert answer.rows == [[KEYS + self._lines]], stage


class Backlog(Files):
    """Many small files at once."""

    FILES, LINES = 200 * LOAD, 100

    def more(self, kill: int) -> None:
        """Let all come at once."""
        if kill == 0:
            self.come(self.FILES, self.LINES)


class Large(Backlog):
    """A few large ones."""

    FILES, LINES = 20, 2_000 * LOAD


class Readers(Files):
    """Clients that read all the time, and try again where nobody answers."""

    def more(self, kill: int) -> None:
        """Let files come one by one."""
        self.come(10, 1_000)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read from a process of their own."""
        settings = self.measured.settings
        urls = self.measured.urls
        plan = Reading(
            host=settings.host,
            port=settings.port,
            token=TOKEN,
            reads=self.measured.reads,
            keys=urls.urls(urls.ids(0, 1_000) % KEYS),
            clients=CLIENTS,
            seconds=1_800.0,
        )
        module = "tests.bench.end_to_end.load_client"
        command = [sys.executable, "-W", "ignore::RuntimeWarning", "-m", module]
        with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY, text=True) as child:
            assert child.stdin is not None, "it is a pipe"
            child.stdin.write(json.dumps(asdict(plan)))
            child.stdin.close()
            try:
                yield
                assert child.poll() is None, "they read until the end"
            finally:
                child.kill()


class Lying:
    """Files and uploads of every format that are wrong in one place."""

    def __init__(self, service: Instance, client: httpx.Client) -> None:
        self._client, self._drop_root = client, service.settings.drop_root
        self._plan = Plan(range(LYING * (KILLS + 1)), structured_case, uploads=True)
        answer = client.post("/api/v1/dataflows", json=self._plan.document)
        assert answer.status_code == 201, answer.text

    def more(self, kill: int) -> None:
        """Drop and upload some."""
        files = self._plan.files[kill * LYING : (kill + 1) * LYING]
        self._plan.drop(self._drop_root, files)
        assert self._plan.upload(self._client, files) == []

    def check(self) -> None:
        """Each is accepted as another reader reads it, or in quarantine with its code, once."""
        plan, client = self._plan, self._client
        until(lambda: not plan.waits(self._drop_root), "files wait")
        until(lambda: is_idle(client), "something goes on")
        outcomes, actual = wrong(plan, client, self._drop_root)
        assert actual == []
        assert sum(outcomes.values()) == len(plan.files)
        assert outcomes["accepted"] > len(plan.files) // 10


@contextmanager
def loaded(name: str, service: Instance) -> Iterator[Load]:
    """Give the load of a name."""
    if name == "files that lie":
        headers, url = {"Authorization": f"Bearer {TOKEN}"}, service.settings.url
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            yield Lying(service, client)
        return
    with ServiceClient(service.settings) as client:
        if name == "readers":
            readers = Readers(service, client, IDLE)
            with readers.reading():
                yield readers
        else:
            yield (Backlog if name == "backlog" else Large)(service, client, BACKLOG)


def processor_seconds(pid: int) -> float:
    """Return the processor's time that a process took so far; 0 if it has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@pytest.mark.soak
@pytest.mark.parametrize("name", ["backlog", "large files", "readers", "files that lie"])
def test_a_service_is_ready_in_ten_seconds_and_every_file_has_its_fate(
    name: str, tmp_path: Path
) -> None:
    """Whatever it was doing, after each kill."""
    chance = random.Random(SEED)
    install_names(tmp_path / "packages")
    service = Instance(
        tmp_path,
        "one",
        environment={"PYTHONPATH": f"{REPOSITORY}:{tmp_path / 'packages'}"},
        engine="local",
        allowed_packages=("cbp", PACKAGE),
    )
    service.start()
    try:
        service.wait()
        with loaded(name, service) as load:
            clock, processor = list[float](), list[float]()
            for kill in range(KILLS):
                load.more(kill)
                time.sleep(chance.uniform(0, BEFORE_A_KILL_SECONDS))
                service.kill()
                begun = time.monotonic()
                service.start()
                service.wait()
                clock.append(time.monotonic() - begun)
                tree = [service.pid, *descendants(service.pid)]
                processor.append(sum(map(processor_seconds, tree)))
            figures = {"kills": KILLS, "clock": max(clock), "processor": max(processor)}
            print(f"\n{name}: {json.dumps({key: round(n, 2) for key, n in figures.items()})}")
            assert 0.1 < min(processor) <= max(processor) < READY_SECONDS
            load.more(KILLS)
            load.check()
    finally:
        service.kill()
