"""The feed of ended runs: each run once, to every exporter, and only from the leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.app import Service
from controller.run_exports import EndedRun, RunFeed
from controller.settings import load_settings
from tests.controller.small_app import DOCUMENT, TOKEN, drop


class Recorder:
    """An exporter that keeps what it is given, or fails."""

    def __init__(self, name: str) -> None:
        self.name, self.fails, self.runs = name, False, list[EndedRun]()

    def export(self, ended: EndedRun) -> None:
        if self.fails:
            raise ConnectionError
        self.runs.append(ended)

    def close(self) -> None:
        """Nothing waits."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(
        load_settings(
            root=tmp_path,
            engine="local",
            reader_processes=False,
            worker_processes=False,
            token=TOKEN,
            settle_seconds=0,
        )
    )
    made.leadership.begin()
    made.controller.lead(made.leadership.epoch)
    made.controller.register(DOCUMENT)
    yield made
    made.stop()


def run_once(service: Service, name: str) -> None:
    drop(service, "/", name=name)
    service.scan()
    service.scan()
    service.controller.tick()
    service.parts.in_flight.wait(timeout=60)


def test_each_run_is_told_once_to_every_exporter(service: Service):
    """What ended before the first look is not exported; an exporter that fails stops no other."""
    first, second, leads = Recorder("first"), Recorder("second"), [True]
    feed = RunFeed(
        service.store,
        describe=service.run_feed._describe,
        leads=lambda: leads[0],
        exporters=[first, second],
    )
    run_once(service, "a.jsonl")
    feed.look()
    assert not first.runs
    first.fails = True
    run_once(service, "b.jsonl")
    feed.look()
    feed.look()
    first.fails = False
    run_once(service, "c.jsonl")
    feed.look()
    assert [one.run.epoch for one in first.runs] == [2]
    assert [one.run.epoch for one in second.runs] == [1, 2]
    assert second.runs[0].members == ("count",)
    assert second.runs[0].folder.endswith("/tables/urls")
    leads[0] = False
    feed.look()
    run_once(service, "d.jsonl")
    leads[0] = True
    feed.look()
    assert [one.run.epoch for one in second.runs] == [1, 2]


def test_a_dataflow_that_is_gone_is_passed_over(service: Service):
    """Its runs cannot be described any more; the next ones are."""
    exporter = Recorder("one")
    feed = RunFeed(
        service.store,
        describe=service.run_feed._describe,
        leads=lambda: True,
        exporters=[exporter],
    )
    feed.look()
    run_once(service, "a.jsonl")
    service.controller.delete("urls", purge=True)
    feed.look()
    assert not exporter.runs


def test_a_run_that_cannot_be_described_makes_no_other_run_come_again(service: Service):
    """An unexpected error ends a look; the next one goes on behind the run."""
    exporter, failing = Recorder("one"), list[int]()

    def describe(dataflow: str, stage: str) -> Any:
        failing.append(len(failing))
        if failing[-1] == 1:
            raise RuntimeError
        return service.run_feed._describe(dataflow, stage)

    feed = RunFeed(service.store, describe=describe, leads=lambda: True, exporters=[exporter])
    feed.look()
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        run_once(service, name)
    with pytest.raises(RuntimeError):
        feed.look()
    feed.look()
    assert [one.run.epoch for one in exporter.runs] == [0, 2]


def test_without_a_receiver_there_is_no_exporter(service: Service):
    """The feed's thread is not started then."""
    assert service.run_feed.exporters == ()
