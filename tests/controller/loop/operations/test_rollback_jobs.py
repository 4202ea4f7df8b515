"""A roll-back over REST is a job: begun at once, shown with its progress, found again when done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.client import Client
from cbp.client.errors import RequestRefusedError, ServiceProblemError
from cbp.engine.direct import LocalEngine
from cbp.errors import DataflowBusyError, NotFoundError
from controller.client.service_client import ServiceClient
from controller.loop.operations.jobs import RollbackJobs, id_of
from controller.loop.runs.threads import Here
from tests.controller.live import Live, live
from tests.controller.rollbacks import play
from tests.controller.world import ONE, Deferred, Stopped, World

pytestmark = pytest.mark.usefixtures("without_syncs")

PATH = ("dataflows", "one", "rollback")
BACK = {"to": "1", "reason": "a bad file"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path, engine=LocalEngine)
    made.world.controller.register(ONE)
    play(made.world, 3, name="one")
    yield made
    made.world.close()


@pytest.fixture
def client(service: Live) -> Iterator[ServiceClient]:
    with service.session.connect() as made:
        yield made


def jobs_of(world: World, executor: Any) -> RollbackJobs:
    """Return jobs of a world that are carried out by this executor."""
    return RollbackJobs(
        amendments=world.controller.amendments,
        executor=executor,
        random_hex=lambda size: "0f" * size,
        clock=world.clock,
    )


def start(jobs: RollbackJobs, to: str, **more: Any) -> Any:
    return jobs.start("one", to, who="me", why="a bad file", **more)


def test_a_roll_back_is_begun_and_done_later(service: Live) -> None:
    """The request returns at once; one job at a time; the same request is the same job."""
    threads = Deferred()
    jobs = jobs_of(service.world, threads)
    begun = start(jobs, "1", request="key")
    assert (begun.status, begun.ended, begun.step) == ("running", False, "waits to begin")
    assert start(jobs, "1", request="key").id == begun.id
    assert len(threads.waiting) == 1
    with pytest.raises(DataflowBusyError):
        start(jobs, "2")
    assert service.world.store.stages("one")[0].epoch == 3
    threads.run_next()
    done = jobs.show("one", begun.id)
    assert (done.status, done.error) == ("done", None)
    assert done.result == service.world.controller.amendments.rollbacks("one")[0]
    assert service.world.store.stages("one")[0].epoch == 1


def test_every_step_is_shown(service: Live) -> None:
    """What is done, of how much: runs that are read again, and stages whose tables change."""
    seen: list[tuple[str, int, int, str]] = []
    service.world.controller.amendments.roll_back(
        "one", "2", who="me", why="x", tell=lambda *step: seen.append(step)
    )
    assert list(dict.fromkeys(step for step, *_ in seen)) == [
        "reads past epochs",
        "reads tables",
        "waits for runs to end",
        "changes tables",
        "fills the queues",
    ]
    assert ("reads past epochs", 1, 2, "runs") in seen
    assert ("changes tables", 0, 1, "stages") in seen


def test_a_job_that_fails_says_so_as_a_refusal(client: ServiceClient) -> None:
    """With the document of a refused request; what is no name at all is refused at once."""
    for to, status in (("9", 422), ("sum:9", 422), ("nobody:0", 404)):
        begun = client.post(*PATH, query={**BACK, "to": to})
        assert (begun["status"], begun["ended"]) == ("running", False)
        job = client.get(*PATH, "jobs", begun["id"])
        assert (job["status"], job["rollback"]) == ("failed", None)
        assert job["error"]["status"] == status
    with pytest.raises(ServiceProblemError) as refused:
        client.post(*PATH, query={**BACK, "to": "soon"})
    assert refused.value.status == 422
    assert client.get("dataflows", "one", "rollbacks")["items"] == []


def test_a_job_that_failed_can_be_asked_for_again(service: Live) -> None:
    """Under the same request: what it lacked may be there now."""
    threads = Deferred()
    jobs = jobs_of(service.world, threads)
    failed = start(jobs, "4", request="key")
    threads.run_next()
    assert jobs.show("one", failed.id).status == "failed"
    play(service.world, 1, name="one", start=3)
    assert start(jobs, "4", request="key").id == failed.id
    threads.run_next()
    assert jobs.show("one", failed.id).status == "done"


def test_a_job_that_was_done_is_found_after_a_restart(service: Live) -> None:
    """By its id; another one is not."""
    for request in ("", "a key of a client"):
        jobs = jobs_of(service.world, Here())
        job = start(jobs, "1", request=request)
        done = jobs.show("one", job.id)
        assert done.status == "done"
        again = jobs_of(service.world, Here())
        assert again.show("one", job.id).result == done.result
        service.world.ticks()
    with pytest.raises(NotFoundError):
        again.show("one", "b000000000000")


def test_a_client_waits_for_the_job(client: ServiceClient) -> None:
    """It returns what was done, or raises what the job failed with."""
    service = Client.over(client)
    with pytest.raises(RequestRefusedError):
        service.roll_back("one", 9, reason="too far")
    done = service.roll_back("one", "1", reason="a bad file", without=["a/1"])
    assert (done.position, done.left_out, done.dropped) == (1, {"a": [1]}, {})
    assert service.rollbacks("one").first() == done


def test_a_job_without_a_thread_blocks_no_other(service: Live) -> None:
    """If no thread can be started, the request fails, and the next one begins a job."""
    jobs = jobs_of(service.world, Stopped())
    for _ in range(2):
        with pytest.raises(RuntimeError):
            start(jobs, "1", request="key")
    with pytest.raises(NotFoundError):
        jobs.show("one", id_of("key"))


def test_a_request_that_comes_twice_at_the_same_time_is_one_job(
    service: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although neither has found the other one's job."""
    threads = Deferred()
    jobs = jobs_of(service.world, threads)
    monkeypatch.setattr(jobs, "_find", lambda name, id_: None)
    assert start(jobs, "1", request="key").id == start(jobs, "1", request="key").id
    assert len(threads.waiting) == 1
    service.world.controller.register({**ONE, "name": "two"})
    with pytest.raises(DataflowBusyError, match="has the same id"):
        jobs.start("two", "0", who="me", why="a bad file", request="key")


def test_a_dataflow_of_a_deleted_ones_name_has_no_jobs(service: Live) -> None:
    """A request that was carried out for the deleted one can be made again."""
    controller = service.world.controller
    begun = start(controller.rollback_jobs, "1", request="key")
    assert controller.rollback_jobs.show("one", begun.id).status == "done"
    controller.delete("one", purge=True)
    controller.register(ONE)
    with pytest.raises(NotFoundError):
        controller.rollback_jobs.show("one", begun.id)
