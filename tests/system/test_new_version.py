"""A new version in which an output is a view, killed while the view is filled.

A real service without Spark: killed with its files half written, started again, asked again; then
it goes on, is rolled back, and is verified. On PostgreSQL it is a soak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from controller.client.service_client import ServiceClient
from controller.settings import Settings
from tests.authored import install, write
from tests.system.test_rebuild import (
    cbp,
    drop,
    environment,
    postgresql,
    run,
    serving,
    settings_of,
    sqlite,
    until,
)

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

KEYS = 20_000
"""So many that their view is filled in more than the time of a look at the disk."""

FLOWS = '''
from cbp import Input, Output, State, Translate, View

ROWS = "url STRING, n BIGINT"


class Counts(Translate):
    """A state, and an output of the same."""

    urls = Input("url STRING", route_by="url")
    counts = State(ROWS)
    totals = Output(ROWS, key="url")

    def translate(self, key, group, out):
        n = sum(row.n for row in group.counts) + sum(1 for _ in group.urls)
        out.counts(key.url, n)
        out.totals(key.url, n)


class Totals(Translate):
    """The same as a view."""

    urls = Input("url STRING", route_by="url")
    totals = View(ROWS, key="url")

    def translate(self, key, group, out):
        n = sum(row.n for row in group.totals) + sum(1 for _ in group.urls)
        out.totals(key.url, n)
'''


DATABASES = [sqlite, pytest.param(postgresql, marks=[pytest.mark.service, pytest.mark.soak])]
"""The store takes part in one step of a change only, so one database is enough each time."""


def document(translator: str) -> bytes:
    stage = {"translator": translator, "inputs": {"urls": "visits"}, "buckets": 4}
    sources = {"visits": {"schema": "url STRING", "format": "jsonl"}}
    return json.dumps({"name": "urls", "sources": sources, "stages": {"count": stage}}).encode()


def current(settings: Settings) -> dict[str, int]:
    frame = polars.read_delta(f"{settings.root}/tables/urls/state/count.totals")
    return dict(frame.select("url", "n").rows())


@pytest.mark.soak
@pytest.mark.parametrize("database", DATABASES)
def test_a_view_is_filled_though_the_service_is_killed_meanwhile(
    database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what was written and what waits is lost, and a roll-back ends at the change."""
    author = tmp_path / "author"
    write(author, {"viewflows.py": FLOWS})
    install(author, "viewflows", {"counts": "viewflows:Counts", "totals": "viewflows:Totals"})
    monkeypatch.setenv("PYTHONPATH", str(author))
    monkeypatch.setenv("CBP_ALLOWED_PACKAGES", "cbp,viewflows")
    with database(tmp_path) as (url, _):
        settings = settings_of(tmp_path, url)
        incoming = settings.drop_root / "urls" / "visits" / "incoming"
        (tmp_path / "new.json").write_bytes(document("totals"))
        register = ("register", str(tmp_path / "new.json"), "--keep", "count")
        first = "".join(f'{{"url": "u{n}"}}\n' for n in range(KEYS))
        with serving(settings) as client:
            client.post("dataflows", content=document("counts"), content_type="application/json")
            drop(incoming, "1.jsonl", first)
            until(lambda: epoch(client) == 1, "the first file is counted")
            client.post("dataflows", "urls", "stages", "count", "pause")
            drop(incoming, "2.jsonl", '{"url": "u7"}\n{"url": "new"}\n')
            until(lambda: waiting(client) == 1, "the second file waits")
            planned = cbp(settings, *register, "--plan")
            assert planned["stages"][0]["views"] == {"totals": "filled"}
        kill_while_it_is_filled(settings, *register)
        with serving(settings) as client:
            assert cbp(settings, *register)["version"] == 2
            assert not differing(current(settings))
            client.post("dataflows", "urls", "resume")
            until(lambda: epoch(client) == 2, "what waited is counted")
            assert differing(current(settings)) == {"u7": (2, 1), "new": (1, None)}
            code, refused = run(settings, "rollback", "urls", "--to", "0", "--reason", "x")
            assert (code, refused["error_code"]) == (1, "rollback_impossible")
            cbp(settings, "rollback", "urls", "--to", "1", "--reason", "again", "--pause")
            assert not differing(current(settings))
            client.post("dataflows", "urls", "resume")
            until(lambda: current(settings).get("u7") == 2, "it is counted again")
            _, verified = run(settings, "verify", "urls")
            assert verified["status"] == "equal", json.dumps(verified, indent=1)


def differing(counts: dict[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """Map each URL to its count and its count in the first file, where these differ."""
    first = {f"u{n}": 1 for n in range(KEYS)}
    pairs = {url: (counts.get(url), first.get(url)) for url in counts | first}
    return {url: (count, once) for url, (count, once) in pairs.items() if count != once}


def epoch(client: ServiceClient) -> int:
    (stage,) = client.get("dataflows", "urls")["stages"]
    return int(stage["epoch"])


def waiting(client: ServiceClient) -> int:
    (stage,) = client.get("dataflows", "urls")["stages"]
    return sum(queue["increments"] for queue in stage["queues"])


def kill_while_it_is_filled(settings: Settings, *register: str) -> None:
    """Kill a service as soon as the first file of the view is there."""
    files = settings.root / "tables" / "urls" / "state" / "count.totals"
    command = [sys.executable, "-m", "controller.cli", *register]
    with (
        serving(settings),
        subprocess.Popen(
            command, env=environment(settings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as asking,
    ):
        until(lambda: any(files.glob("_runs/*/*")), "the view is being filled")
        asking.kill()
