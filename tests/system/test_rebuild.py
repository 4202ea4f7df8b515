"""A service whose database was deleted: `cbp recover --rebuild` brings everything back.

Real processes: the service is killed, its SQLite file or PostgreSQL schema is removed, the
command fills a new one from the folders, and the service goes on where it stood.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from cbp.client.errors import ResourceMissingError
from controller.client.service_client import ServiceClient
from controller.server.service_process import free_port
from controller.settings import Settings, load_settings
from controller.store.base import open_store
from tests.conformance.postgres import PostgresMissingError, postgres_server
from tests.gate.service_logs import ended, watch
from tests.machine import needs, needs_postgres_driver

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DOCUMENT = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}
WAIT_SECONDS = 120


def settings_of(root: Path, database_url: str, **more: Any) -> Settings:
    return load_settings(
        root=root,
        port=free_port(),
        engine="local",
        settle_seconds=0,
        scan_seconds=0.1,
        tick_seconds=0.1,
        database_url=database_url,
        **more,
    )


def environment(settings: Settings) -> dict[str, str]:
    names = ["root", "port", "engine", "settle_seconds", "scan_seconds", "database_url"]
    names.append("rebuild_share")
    chosen = {f"CBP_{name.upper()}": str(getattr(settings, name)) for name in names}
    return {**os.environ, **chosen}


def run(settings: Settings, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "controller.cli", *arguments, "--json"]
    done = subprocess.run(
        command, env=environment(settings), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout)


def cbp(settings: Settings, *arguments: str) -> Any:
    code, answer = run(settings, *arguments)
    assert code == 0, answer
    return answer


def drop(incoming: Path, name: str, text: str) -> None:
    """Drop a file as a whole: the service takes at once what it finds there."""
    beside = incoming.parent / name
    beside.write_text(text)
    beside.rename(incoming / name)


def until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def serving(settings: Settings) -> Iterator[ServiceClient]:
    """Run the service; it is killed in the end, not stopped."""
    command = [sys.executable, "-m", "controller.cli", "serve"]
    service_log = settings.root.with_name(f"{settings.root.name}.log")
    watch(service_log)
    with service_log.open("ab") as log:
        child = subprocess.Popen(command, env=environment(settings), stdout=log, stderr=log)
    ready = f"{settings.url}/api/v1/health/ready"

    def is_ready() -> bool:
        assert child.poll() is None
        try:
            return httpx.get(ready, trust_env=False, timeout=5).is_success
        except httpx.TransportError:
            return False

    try:
        until(is_ready, "the service is ready")
        with ServiceClient(settings) as client:
            yield client
    finally:
        child.kill()
        child.wait()
        ended(service_log)


@contextmanager
def sqlite(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    def lose() -> None:
        for path in root.glob("cbp.db*"):
            path.unlink()

    yield f"sqlite:///{root}/cbp.db", lose


@contextmanager
def postgresql(root: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    del root
    needs_postgres_driver()
    with ExitStack() as stack:
        with needs("postgres", PostgresMissingError):
            template = stack.enter_context(postgres_server())
        url = template.format("postgres")
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        stack.callback(engine.dispose)

        def lose() -> None:
            with engine.begin() as connection:
                connection.execute(text("DROP SCHEMA public CASCADE"))
                connection.execute(text("CREATE SCHEMA public"))

        yield url, lose


@pytest.mark.soak
@pytest.mark.parametrize(
    "database", [sqlite, pytest.param(postgresql, marks=[pytest.mark.service, pytest.mark.soak])]
)
def test_a_deleted_database_is_rebuilt_and_the_service_goes_on(
    tmp_path: Path, database: Any
) -> None:
    """Dataflow, epochs, state and what was seen of files are back; the next file is added up."""
    with database(tmp_path) as (url, lose):
        settings = settings_of(tmp_path, url)
        incoming = settings.drop_root / "urls" / "visits" / "incoming"

        def count(client: ServiceClient, expected: int) -> Callable[[], bool]:
            def look() -> bool:
                try:
                    actual = client.get_pairs(
                        "dataflows", "urls", "state", "count", "counts", query=[("url", "a")]
                    )
                except Exception:
                    return False
                return bool(actual["items"][0]["n"] == expected)

            return look

        def rejected(client: ServiceClient) -> list[dict[str, Any]]:
            actual = client.get_pairs(
                "dataflows", "urls", "claims", query=[("status", "quarantined")]
            )
            # Its id says when and in which order it was claimed, to the millisecond.
            return [{**one, "sequence": 0, "created_at": ""} for one in actual["items"]]

        with serving(settings) as client:
            body = json.dumps(DOCUMENT).encode()
            client.post("dataflows", content=body, content_type="application/json")
            for number in (1, 2, 3):
                drop(incoming, f"{number}.jsonl", '{"url": "a"}\n' * number)
                until(count(client, sum(range(number + 1))), f"file {number} is counted")
            drop(incoming, "bad.jsonl", '{"url": 1}\n')
            until(lambda: bool(rejected(client)), "the bad file is in quarantine")
            refusals = rejected(client)
            code, refused = run(settings, "recover", "--rebuild")
            # The service leads: in a lock file, or by a lease that it renews.
            assert (code, refused["error_code"]) in ((1, "database_in_use"), (1, "lease_lost"))
        lose()
        (seen,) = cbp(settings, "recover")["items"]
        assert (seen["known"], seen["open"], seen["arrivals"]) == (False, True, {"visits": 3})
        assert cbp(settings, "recover", "--rebuild", "--dry-run")["items"] == [seen]
        assert cbp(settings, "recover", "--rebuild")["rebuilt"] == ["urls"]
        (after,) = cbp(settings, "recover")["items"]
        assert (after["known"], after["open"]) == (True, False)
        with serving(settings) as client:
            assert rejected(client) == refusals
            drop(incoming, "3.jsonl", '{"url": "a"}\n' * 3)
            drop(incoming, "4.jsonl", '{"url": "a"}\n' * 4)
            until(count(client, 10), "the next file is added to the state")
            with closing(open_store(url, exclusive=False)) as store:
                # A view is published before the store knows the run.
                until(lambda: store.stages("urls")[0].epoch == 4, "epochs are counted on")
                kinds = sorted(claim.status for claim in store.claims("urls").items)
                assert kinds == ["accepted"] * 4 + ["duplicate", "quarantined"]


@pytest.mark.soak
def test_a_rebuild_beside_goes_on_after_real_kills(tmp_path: Path) -> None:
    """It does not read the first files again; those that came meanwhile are in its tables."""
    files, url = 60, f"sqlite:///{tmp_path}/cbp.db"
    slow = settings_of(tmp_path, url, rebuild_share=0.05)
    incoming = slow.drop_root / "urls" / "visits" / "incoming"
    jobs = ("dataflows", "urls", "rebuilds")

    def applied(client: ServiceClient) -> bool:
        record = ("dataflows", "urls", "state", "count", "counts")
        try:
            answer = client.get_pairs(*record, query=[("url", "a")])
        except ResourceMissingError:  # the first file is not applied yet
            return False
        return bool(answer["items"][0]["n"] == dropped)

    def done(client: ServiceClient) -> int:
        job = client.get(*jobs)["items"][0]
        assert job["anew"] == "", job
        return int(job["done"]) if job["step"] == "builds" else 0

    def has(client: ServiceClient, parts: int) -> bool:
        return done(client) >= parts

    dropped = 0
    with serving(slow) as client:
        body = json.dumps(DOCUMENT).encode()
        client.post("dataflows", content=body, content_type="application/json")
        for _ in range(files):
            drop(incoming, f"{dropped:03d}", '{"url": "a"}\n')
            dropped += 1
            until(lambda: applied(client), "a file is applied")
        client.post(*jobs)
        until(lambda: done(client) >= 20, "a part is built")
    for reached in (16, 32):
        with serving(slow) as client:
            until(lambda: done(client) > 0, "it goes on")
            assert done(client) >= reached
            drop(incoming, f"{dropped:03d}", '{"url": "a"}\n')
            dropped += 1
            until(partial(has, client, reached + 20), "more is built")
    with serving(settings_of(tmp_path, url, rebuild_share=1.0)) as client:
        until(lambda: client.get(*jobs)["items"][0]["status"] == "ready", "it is ready")
        job = client.get(*jobs)["items"][0]
        assert job["anew"] == ""
        client.post(*jobs, job["id"], "swap")
        until(lambda: client.get(*jobs)["items"][0]["status"] == "swapped", "it is swapped in")
        until(lambda: applied(client), "all is in the new tables")
    with serving(slow) as client:
        (job,) = client.get(*jobs)["items"]
        assert (job["status"], job["by"], job["ended_by"]) == (
            "swapped",
            "token-file",
            "token-file",
        )
