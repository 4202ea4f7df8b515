"""Waiting for a dataflow: it ends when all is applied, and every stop has its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.client.service_client import ServiceClient
from controller.demo.errors import DemoStalledError
from controller.demo.service.watch import DataflowWatch, Progress
from controller.server.errors import ServiceFailedError
from controller.server.service_process import settings_of
from controller.settings import Settings

DOCUMENT = {"name": "counts", "sources": {"urls": {}}, "stages": {"count": {}}}
RUN = {
    "stages": ["count"],
    "epoch": 0,
    "seconds": 1.0,
    "finished_at": "2126-01-01T00:00:00+00:00",
    "figures": {"groups": 2.0},
}


def stage(epoch: int, queued: int, state: str = "waiting") -> dict[str, Any]:
    queue = {"increments": queued}
    return {"name": "count", "epoch": epoch, "state": state, "waiting": "why", "queues": [queue]}


class FakeService:
    """Answers as the service would at each successive look at the dataflow."""

    def __init__(self, stages: list[dict[str, Any]], *, accepted: int = 1) -> None:
        self.stages, self.accepted = iter(stages), accepted
        self.quarantined: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=self.answer(request))

    def answer(self, request: httpx.Request) -> Any:
        path = request.url.path.removeprefix("/api/v1/")
        if path == "dataflows/counts":
            return {"stages": [next(self.stages)]}
        if path == "dataflows/counts/increments":
            return {"items": [{"index": self.accepted - 1}] if self.accepted else []}
        if path == "dataflows/counts/claims":
            return {"items": self.quarantined}
        return {"items": self.failed if request.url.params["status"] == "FAILED" else [RUN]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = settings_of(tmp_path, port=8420, engine="local")
    settings.ensure_token()
    (settings.drop_root / "counts" / "urls" / "incoming").mkdir(parents=True)
    return settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "one.jsonl"
    path.write_text("{}\n")
    return path


def watch(
    service: FakeService, settings: Settings, alive: Any = lambda: None, **more: Any
) -> DataflowWatch:
    client = ServiceClient(settings, httpx.MockTransport(service))
    return DataflowWatch(client, settings, DOCUMENT, alive=alive, wait=lambda _: None, **more)


def test_it_waits_until_the_last_queue_is_empty(settings: Settings, file: Path):
    """Neither an accepted file nor a finished run is the end, an empty queue is."""
    looks: list[Progress] = []
    service = FakeService([stage(0, 1), stage(0, 1, "running"), stage(1, 0)])
    applied = watch(service, settings).drop(file, looks.append)
    assert [look.queued for look in looks] == [1, 1, 0]
    assert [run.count("groups") for run in applied.runs] == [2]


def test_the_file_lies_in_the_drop_folder_as_a_whole(settings: Settings, file: Path):
    """What is dropped has its name and content at once, and leaves no part behind."""
    watch(FakeService([stage(1, 0)]), settings).drop(file, lambda _: None)
    incoming = settings.drop_root / "counts" / "urls" / "incoming"
    assert [(path.name, path.read_text()) for path in incoming.iterdir()] == [("one.jsonl", "{}\n")]


def test_empty_queues_before_the_arrival_are_not_the_end(settings: Settings, file: Path):
    """An idle dataflow that has not seen the file yet is not done with it."""
    service = FakeService([stage(0, 0), stage(0, 0), stage(1, 0)], accepted=0)
    looks: list[Progress] = []

    def look(progress: Progress) -> None:
        looks.append(progress)
        service.accepted = len(looks) // 2

    watch(service, settings).drop(file, look)
    assert len(looks) == 3


def test_a_stage_that_stopped_is_told_with_its_error(settings: Settings, file: Path):
    """What the service says about the failed run ends the wait."""
    service = FakeService([stage(0, 1, "stopped")])
    service.failed = [{"error": {"message": "no space", "details": {"path": "x"}}}]
    with pytest.raises(DemoStalledError, match=r"count stopped, why: no space") as caught:
        watch(service, settings).drop(file, lambda _: None)
    assert caught.value.details == {"cause": {"path": "x"}}


def test_a_file_in_quarantine_is_told_with_its_reason(settings: Settings, file: Path):
    """A refused file is never waited for."""
    service = FakeService([], accepted=0)
    service.quarantined = [{"path": "one.jsonl", "reason": {"message": "line 1"}}]
    with pytest.raises(DemoStalledError, match=r"one.jsonl is in quarantine: line 1"):
        watch(service, settings).drop(file, lambda _: None)


def test_the_end_of_the_service_ends_the_wait(settings: Settings, file: Path):
    """A service that died is not asked again and again."""

    def dead() -> None:
        raise ServiceFailedError("ended", log="x", last_lines=[])

    with pytest.raises(ServiceFailedError):
        watch(FakeService([stage(0, 1)]), settings, dead).drop(file, lambda _: None)


def test_no_progress_for_long_is_an_error(settings: Settings, file: Path):
    """A dataflow that hangs does not hang the demo."""
    impatient = watch(FakeService([stage(0, 1)] * 3), settings, stalled_seconds=-1.0)
    with pytest.raises(DemoStalledError) as caught:
        impatient.drop(file, lambda _: None)
    assert caught.value.code == "demo_stalled"
