"""A real service for the tests of the page, and what it has done, asked for over REST."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.system.processes import TOKEN, Instance, until

__all__ = ["CLICKS", "TOKEN", "Served"]

CLICKS: dict[str, Any] = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "urls"}, "buckets": 4}},
}
"""Counts URLs: one stage, one source, one state, one output."""


class Served:
    """A service of `engine=local` as a process of its own.

    Args:
        root: Where it keeps everything.
        name: Its name, if several share the root.
        settings: As `Instance` takes them.

    Attributes:
        url: Where it listens, without a slash at the end.
        rest: Asks it, with the token.
    """

    def __init__(self, root: Path, name: str = "page", **settings: Any) -> None:
        self._instance = Instance(root, name, engine="local", **settings)
        self.url = self._instance.settings.url.rstrip("/")
        self.drop_root = self._instance.settings.drop_root
        self.rest = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers={"Authorization": f"Bearer {TOKEN}"},
            trust_env=False,
            timeout=240.0,
        )

    def start(self) -> None:
        """Start it, and return once it answers."""
        self._instance.start()
        self._instance.wait()

    def kill(self) -> None:
        """Kill it and all of its processes at once; `start` starts it anew, at the same port."""
        self._instance.kill()

    def stop(self) -> None:
        """End it and all of its processes, for good."""
        self.rest.close()
        self.kill()

    def drop(self, dataflow: str, source: str, name: str, content: str) -> None:
        """Put a file whole into the folder of a source."""
        (self.drop_root / "staged").write_text(content)
        incoming = self.drop_root / dataflow / source / "incoming"
        (self.drop_root / "staged").rename(incoming / name)

    def get(self, path: str, **query: Any) -> Any:
        """Return the answer to a question under `/api/v1`, as JSON."""
        return self._json(self.rest.get(path, params=query))

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """Return the answer to a request under `/api/v1`, as JSON."""
        return self._json(self.rest.post(path, json=body, params=query))

    def register(self, document: Mapping[str, Any]) -> None:
        """Register a dataflow."""
        self.post("/dataflows", document)

    def upload(
        self, dataflow: str, source: str, name: str, records: Iterable[Mapping[str, Any]]
    ) -> None:
        """Send records as one file of JSON lines; returns when it is acknowledged."""
        content = "".join(f"{json.dumps(record)}\n" for record in records)
        path = f"/dataflows/{dataflow}/sources/{source}/files"
        self._json(self.rest.post(path, params={"name": name}, content=content.encode()))

    def wait_for_run(self, dataflow: str, stage: str, epoch: int) -> None:
        """Return once a stage has committed an epoch."""

        def is_committed() -> bool:
            stages = self.get(f"/dataflows/{dataflow}")["stages"]
            return any(one["name"] == stage and one["epoch"] > epoch for one in stages)

        until(is_committed, f"{dataflow}.{stage} did not commit epoch {epoch}")

    def apply_clicks(self, days: int = 3, name: str = "clicks") -> None:
        """Register the dataflow that counts URLs, and apply one increment after the other."""
        self.register({**CLICKS, "name": name})
        for day in range(days):
            records = [{"url": f"/page-{n % (day + 2)}"} for n in range(20)]
            self.upload(name, "urls", f"day-{day}.jsonl", records)
            self.wait_for_run(name, "count", day)

    def apply_failing(self, name: str = "failing") -> None:
        """Register a dataflow whose one stage refuses what it is given, and let it fail."""
        source = {"schema": "url STRING, links ARRAY<STRING>", "format": "jsonl"}
        stage = {"translator": "extract_links", "inputs": {"pages": "pages"}}
        self.register({"name": name, "sources": {"pages": source}, "stages": {"extract": stage}})
        self.upload(name, "pages", "bad.jsonl", [{"url": None, "links": ["a"]}])

        def fails() -> bool:
            return bool(self.get(f"/dataflows/{name}")["summary"]["failing"])

        until(fails, f"{name} does not fail")

    @staticmethod
    def _json(answer: httpx.Response) -> Any:
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None
