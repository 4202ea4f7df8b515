"""Giving back over REST is a job: begun at once, shown with its progress, found again when done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.client import Client
from cbp.client.errors import ResourceMissingError
from cbp.engine.direct import LocalEngine
from cbp.errors import DataflowBusyError, NotFoundError
from controller.client.service_client import ServiceClient
from controller.loop.operations.jobs import GiveBackJobs
from controller.loop.runs.threads import Here
from tests.controller.live import Live, live
from tests.controller.loop.runs.test_set_aside import Fragile, aside, begin, mend, sums
from tests.controller.world import Deferred, Sum

pytestmark = pytest.mark.usefixtures("without_syncs")

PATH = ("dataflows", "one", "stages", "sum", "give-back")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path, engine=LocalEngine, translators={"fragile": Fragile, "sum": Sum})
    begin(made.world)
    yield made
    made.world.close()


@pytest.fixture
def client(service: Live) -> Iterator[ServiceClient]:
    with service.session.connect() as made:
        yield made


def jobs_of(service: Live, executor: Any) -> GiveBackJobs:
    return GiveBackJobs(
        amendments=service.world.controller.amendments,
        executor=executor,
        random_hex=lambda size: "0f" * size,
        clock=service.world.clock,
    )


def test_it_is_begun_and_done_later(service: Live) -> None:
    """The request returns at once; one job at a time; the same request is the same job."""
    mend(service.world)
    threads = Deferred()
    jobs = jobs_of(service, threads)
    begun = jobs.start("one", "sum", who="me", why="mended", request="key")
    assert (begun.status, begun.stage, begun.step) == ("running", "sum", "waits to begin")
    assert jobs.start("one", "sum", who="me", why="mended", request="key").id == begun.id
    with pytest.raises(DataflowBusyError):
        jobs.start("one", "sum", who="me", why="mended")
    assert len(aside(service.world)) == 3
    threads.run_next()
    done = jobs.show("one", begun.id)
    assert done.result is not None
    assert (done.status, done.result.records, done.result.left) == ("done", 3, 0)
    assert aside(service.world) == []
    assert jobs.start("one", "sum", who="me", why="mended", request="key").result == done.result


def test_every_step_is_shown(service: Live) -> None:
    """While groups fail, the code is called again without them."""
    seen: list[tuple[str, int, int, str]] = []
    service.world.controller.amendments.give_back(
        "one", "sum", who="me", why="x", tell=lambda *step: seen.append(step)
    )
    assert seen == [
        ("waits for runs to end", 0, 0, ""),
        ("publishes the runs that have ended", 0, 0, ""),
        ("reads the records that are set aside", 0, 3, "records"),
        ("calls the stage's code", 0, 3, "records"),
        ("calls the code again, without the records that failed", 0, 3, "records"),
        ("writes the tables", 3, 3, "records"),
        ("records the epoch", 0, 0, ""),
    ]


def test_a_job_that_was_done_is_found_after_a_restart(service: Live) -> None:
    """With what failed again; a trial is not, since it changed nothing."""
    jobs = jobs_of(service, Here())
    trial = jobs.start_trial("one", "sum")
    assert jobs.show("one", trial.id).result == trial.result or trial.result is None
    job = jobs.start("one", "sum", who="me", why="too early", request="a key of a client")
    done = jobs.show("one", job.id)
    assert done.result is not None
    assert (done.status, done.result.records, done.result.left) == ("done", 0, 3)
    again = jobs_of(service, Here())
    assert again.show("one", job.id).result == done.result
    with pytest.raises(NotFoundError):
        again.show("one", trial.id)


def test_what_is_refused_is_refused_at_once(client: ServiceClient, service: Live) -> None:
    """Nothing set aside, no such stage; and a job of another stage is not shown."""
    begun = client.post(*PATH, "preview")
    assert (begun["status"], begun["stage"]) == ("running", "sum")
    shown = client.get(*PATH, "jobs", begun["id"])
    assert shown["given_back"] == {
        "stage": "sum",
        "records": 0,
        "left": 3,
        "epoch": None,
        "run": None,
    }
    elsewhere = ("dataflows", "one", "stages", "again", "give-back")
    for path in ((*elsewhere, "jobs", begun["id"]), (*PATH, "jobs", "b000000000000")):
        with pytest.raises(ResourceMissingError):
            client.get(*path)
    with pytest.raises(ResourceMissingError):
        client.post(*elsewhere, "preview")


def test_a_client_waits_for_the_job(client: ServiceClient, service: Live) -> None:
    """It returns what was done, or raises why nothing could be."""
    python = Client.over(client)
    assert python.give_back("one", "sum", dry_run=True).left == 3
    mend(service.world)
    given = python.give_back("one", "sum", reason="mended")
    assert (given.records, given.left, given.epoch) == (3, 0, 3)
    service.world.ticks()
    assert sums(service.world)["a"] == 20
    with pytest.raises(ResourceMissingError):
        python.give_back("one", "sum", reason="again")
