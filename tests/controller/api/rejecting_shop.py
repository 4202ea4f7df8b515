"""A source that puts wrong records aside, behind a real API; passes are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World

__all__ = ["AT", "SOUND", "WRONG", "Shop"]

AT = "/api/v1/dataflows/one/sources/a"
SOUND = [json.dumps({"word": "x", "n": n}) for n in range(4)]
WRONG = ['{"word": "<b>y</b>", "n": "many"}', "[1]", '{"n": null, "word": 7}']


class Shop:
    """One source that puts records aside, with a real API; passes are made by hand."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.world = World(root)
        policy = {"on_bad_records": {"reject_rows": {"count": 5}}}
        source = ONE["sources"]["a"] | policy | more
        self.world.controller.register(ONE | {"sources": {"a": source}})
        settings = Settings(root=root, token=TOKEN)
        self.settings = settings
        self.incoming = settings.drop_root / "one" / "a" / "incoming"
        self._open()

    def restart(self) -> None:
        """Forget everything in memory."""
        self.client.close()
        self.world.restart()
        self._open()

    def close(self) -> None:
        self.client.close()
        self.world.close()

    def _open(self) -> None:
        self.app = api_of_world(self.world, self.settings)
        self.session = Session(self.settings, AppTransport(self.app))
        self.client = httpx.Client(
            transport=AppTransport(self.app),
            base_url="http://127.0.0.1:8420",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def drop(self, name: str, lines: list[str]) -> None:
        self.put(name, lines)
        self.take_in()

    def put(self, name: str, lines: list[str]) -> None:
        (self.incoming / name).write_text("\n".join([*lines, ""]))

    def take_in(self) -> None:
        record = self.world.store.dataflow("one")
        for _ in range(3):
            dataflow = self.world.controller.dataflow("one")
            self.app.state.parts.drop_folder.scan(record, dataflow)
            self.world.clock.advance(5)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def numbers(self) -> list[int]:
        records = self.get("/api/v1/dataflows/one/flows/a/records", limit=100)
        return sorted(row["n"] for row in records["items"])
