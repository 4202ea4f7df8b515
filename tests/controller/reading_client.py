"""A client that reads while runs go on."""

from __future__ import annotations

from typing import Any

from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import World


class Client:
    """Reads over REST, page by page."""

    def __init__(self, world: World, controller: Any) -> None:
        settings = Settings(root=world.root, token=TOKEN)
        app = api_of_world(world, settings, controller=controller)
        self.session = Session(settings, AppTransport(app))

    def get(self, *path: str, **query: Any) -> Any:
        with self.session.connect() as service:
            return service.get("dataflows", "diamond", *path, **query)

    def page(self, table: str, cursor: str | None = None, limit: int = 2, **query: Any) -> Any:
        kind, _, name = table.partition("/")
        path = ("flows", name) if kind == "flows" else ("state", *name.split("."))
        return self.get(*path, "records", limit=limit, cursor=cursor, **query)

    def all(self, table: str, limit: int = 2, **query: Any) -> list[dict[str, Any]]:
        records, cursor = [], None
        while True:
            answer = self.page(table, cursor, limit, **query)
            assert len(answer["items"]) <= limit
            records += answer["items"]
            if (cursor := answer["cursor"]) is None:
                return records
