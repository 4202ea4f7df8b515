"""Where a run is, asked of a whole service: the author's lines, by REST, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from cbp.model.author.source_modules import load_sources
from controller.app import Service
from controller.app.asgi import api_of
from controller.settings import load_settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.small_app import TOKEN
from tests.waiting import until

AUTHOR = """
from pathlib import Path
from time import sleep

from cbp import Input, Translate, View


def wait_for(name):
    while not Path(name).exists():
        sleep(0.05)


class Waiting(Translate):
    files = Input("file STRING", route_by="file")
    seen = View("file STRING, n BIGINT", key="file")

    def translate(self, key, group, out):
        wait_for(key.file)
        out.seen(file=key.file, n=1)
"""
DOCUMENT = {
    "name": "waiting",
    "sources": {"a": {"schema": "file STRING"}},
    "stages": {"one": {"translator": "Waiting", "inputs": {"files": "a"}}},
}


@pytest.mark.timeout(180)
def test_the_lines_of_the_author_are_marked_and_the_run_goes_on(tmp_path: Path) -> None:
    """The translator is in a file; the code may be in any folder, also of a name beyond ASCII."""
    folder = tmp_path / "Müller"
    folder.mkdir()
    (folder / "authored_waiting.py").write_text(AUTHOR)
    settings = load_settings(
        root=tmp_path / "data",
        engine="local",
        reader_processes=False,
        token=TOKEN,
        settle_seconds=0,
        translators=[folder / "authored_waiting.py"],
    )
    service = Service(settings)
    try:
        service.leadership.begin()
        service.controller.lead(service.leadership.epoch)
        service.controller.register(DOCUMENT)
        go = tmp_path / "go"
        incoming = settings.drop_root / "waiting" / "a" / "incoming"
        (incoming / "a.jsonl").write_text(f'{{"file": "{go}"}}\n')
        service.scan()
        service.scan()
        service.controller.tick()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        transport = AppTransport(api_of(service))
        with httpx.Client(transport=transport, base_url=settings.url, headers=headers) as client:
            (run,) = client.get("/api/v1/runs").json()["items"]
            path = f"/api/v1/runs/{run['id']}/stack"

            def authors() -> list[dict[str, Any]]:
                processes = client.get(path).json()["processes"]
                return [call for one in processes for call in one["calls"] if call["authors"]]

            calls = until(authors)
            assert [call["function"] for call in calls] == ["translate", "wait_for"]
            go.touch()
            assert service.parts.in_flight.wait(timeout=120)
            ended = client.get(path).json()
            assert (ended["status"], ended["processes"]) == ("COMMITTED", [])
        found = service.controller.reading.look_up("waiting", "one", "seen", {"file": str(go)})
        assert [row["n"] for row in found] == [1]
    finally:
        service.stop()
        load_sources(str(folder), lambda _: None, [])
