"""Threads of the service that take turns a thousand times as often as Python lets them.

What two of them do to one value shows in minutes then, not once in a hundred starts.
"""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.machine import folder_in_memory
from tests.system.processes import TOKEN, Instance

pytestmark = [pytest.mark.system, pytest.mark.soak, pytest.mark.timeout(900)]

NAMES = [f"d{number}" for number in range(6)]
REQUESTS = 400
"""How many each of the six clients sends."""

SOON = "import sys; sys.setswitchinterval(2e-6)\n"


def document(name: str) -> dict[str, Any]:
    stage = {"translator": "url_count", "inputs": {"urls": "urls"}, "buckets": 4}
    source = {"schema": "url STRING", "format": "jsonl"}
    return {"name": name, "sources": {"urls": source}, "stages": {"count": stage}}


def readable(client: httpx.Client) -> list[str]:
    """Return the addresses of all that can be read and ends."""
    described: dict[str, Any] = client.get("/openapi.json").json()["paths"]
    return [
        path.removeprefix("/api/v1").format_map(Known())
        for path, methods in described.items()
        if "get" in methods and path != "/api/v1/events"
    ]


class Known(dict[str, str]):
    """Values for the parameters of an address; `{name}` stays."""

    def __missing__(self, parameter: str) -> str:
        values = {"source": "urls", "stage": "count", "flow": "count.totals", "state": "counts"}
        return values.get(parameter, f"{{{parameter}}}" if parameter == "name" else "1")


def change(client: httpx.Client, chosen: random.Random, number: int) -> httpx.Response:
    """Register, delete, pause, resume, or send a file."""
    name, what = chosen.choice(NAMES), chosen.random()
    if what < 0.15:
        return client.post("/dataflows", json=document(name))
    if what < 0.2:
        return client.delete(f"/dataflows/{name}", params={"purge": "true"})
    if what < 0.3:
        return client.post(f"/dataflows/{name}/{chosen.choice(['pause', 'resume'])}")
    content = "".join(json.dumps({"url": f"/{chosen.randrange(50)}"}) + "\n" for _ in range(20))
    return client.post(
        f"/dataflows/{name}/sources/urls/files",
        params={"name": f"f-{number}-{chosen.randrange(10**9)}.jsonl"},
        content=content.encode(),
    )


def test_no_answer_is_an_internal_error(tmp_path: Path) -> None:
    """Four clients read everything and two change everything, at the same time."""
    (tmp_path / "sitecustomize.py").write_text(SOON)
    with folder_in_memory() as folder:
        service = Instance(
            folder, "hammered", engine="local", environment={"PYTHONPATH": str(tmp_path)}
        )
        service.start()
        try:
            service.wait()

            def ask(number: int) -> list[str]:
                chosen = random.Random(number)
                with httpx.Client(
                    base_url=f"{service.settings.url}/api/v1",
                    headers={"Authorization": f"Bearer {TOKEN}"},
                    trust_env=False,
                    timeout=240,
                ) as client:
                    addresses = readable(client)
                    answers = []
                    for _ in range(REQUESTS):
                        if number < 2:
                            answers.append(change(client, chosen, number))
                        else:
                            path = chosen.choice(addresses).format(name=chosen.choice(NAMES))
                            answers.append(client.get(path))
                return [
                    f"{one.request.method} {one.url.path}: {one.text}"
                    for one in answers
                    if one.status_code == httpx.codes.INTERNAL_SERVER_ERROR
                ]

            with ThreadPoolExecutor(6) as threads:
                failed = [one for ones in threads.map(ask, range(6)) for one in ones]
        finally:
            service.kill()
        log = "".join(file.read_text() for file in folder.glob("*.log"))
    traces = [line[-4000:] for line in log.splitlines() if "InternalError" in line]
    assert not failed, "\n".join([*failed, *traces])
