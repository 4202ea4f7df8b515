"""Closing in the whole service: files, markers, threads, idle time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.app import Service
from controller.settings import load_settings
from stages.flows.set_diff import document
from tests.controller.world import until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    settings = load_settings(
        root=tmp_path,
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token="canary-of-the-tests",
        settle_seconds=0,
        scan_seconds=0.05,
        tick_seconds=0.05,
    )
    made = Service(settings)
    made.start()
    yield made
    made.stop()


def drop(service: Service, side: str, name: str, *urls: str) -> None:
    """Write complete, then rename into place."""
    incoming = service.settings.drop_root / "set_diff" / side / "incoming"
    text = "".join(f'{{"url": "{u}", "time": "2026-11-21T10:00:00Z"}}\n' for u in urls)
    (incoming / f"{name}.part").write_text(text)
    os.rename(incoming / f"{name}.part", incoming / name)


def epochs(service: Service) -> int:
    return service.store.stages("set_diff")[0].epoch


@pytest.mark.timeout(120)
def test_a_marker_lets_the_last_hour_be_compared(service: Service) -> None:
    """One side by marker, the other by the operator; without them the hour stays open."""
    service.controller.register(document())
    drop(service, "a", "1.jsonl", "x", "y")
    drop(service, "b", "1.jsonl", "y")
    until(lambda: all(service.store.next_index("set_diff", side) for side in "ab"))
    until(lambda: service.controller.waits("set_diff")["diff"].kind == "frame")
    drop(service, "a", "_CLOSE")
    until(lambda: service.store.next_punctuation("set_diff") == 1)
    words = (
        "waits for an increment on `b` with framing key 2026-11-21 10:00 or a later one; `a` has "
        "one; `b`: frame 2026-11-21 10:00 is"
    )
    until(lambda: service.controller.waits("set_diff")["diff"].words.startswith(words))
    assert epochs(service) == 0
    service.controller.close("set_diff", "b")
    until(lambda: epochs(service) == 1)
    records, _ = service.controller.reading.read_flow("set_diff", "diff.a_diff", None, 10)
    assert [record["url"] for record in records] == ["x"]
    finished = service.settings.drop_root / "set_diff" / "a" / "finished"
    assert sum(path.name.endswith("_CLOSE") for path in finished.iterdir()) == 1


@pytest.mark.timeout(120)
def test_idle_time_lets_the_last_hour_be_compared(service: Service) -> None:
    """By the document's word, on the service's own clock."""
    timed = document()
    timed["stages"]["diff"]["close_idle_seconds"] = {"a": 0.2, "b": 0.2}
    service.controller.register(timed)
    drop(service, "a", "1.jsonl", "x", "y")
    drop(service, "b", "1.jsonl", "y")
    until(lambda: epochs(service) == 1)
    reasons = {one.reason for one in service.store.punctuations("set_diff").items}
    assert reasons == {"idle"}
