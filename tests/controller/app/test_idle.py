"""What a leader does by the clock for dataflows in which nothing happens."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cbp.clock import MACHINE
from controller.app import Service
from controller.app.leader_duties import LeaderDuties, _OneOfEach
from controller.settings import load_settings
from tests.controller.small_app import DOCUMENT, TOKEN
from tests.counting import Counting

MANY = 20


class Asked:
    """Rounds of work that nobody does."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ask(self, names: Iterable[str]) -> None:
        self.names.extend(names)

    def take(self) -> list[str]:
        names, self.names = self.names, []
        return names


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(
        load_settings(
            root=tmp_path,
            engine="local",
            reader_processes=False,
            worker_processes=False,
            token=TOKEN,
            scan_seconds=3600,
        )
    )
    yield made
    made.stop()


@pytest.fixture
def duties(service: Service) -> LeaderDuties:
    for number in range(MANY):
        service.controller.register({**DOCUMENT, "name": f"d{number:02d}"})
    made = service._duties
    made.scans, made.publications = Asked(), Asked()  # type: ignore[assignment]
    return made


def scanned(duties: LeaderDuties) -> list[str]:
    duties._ask_scans()
    asked: Any = duties.scans
    return list(asked.take())


def test_an_interval_lists_no_idle_dataflow_but_the_one_whose_turn_it_is(
    duties: LeaderDuties,
) -> None:
    """One statement of the store for all of them; none, and no folder, for each."""
    assert len(scanned(duties)) == MANY
    counting: Any = Counting(duties._store)
    duties._store = counting
    turns = [scanned(duties) for _ in range(MANY)]
    assert all(len(names) == 1 for names in turns)
    assert len({names[0] for names in turns}) == MANY
    assert counting.calls == {"revisions": MANY}


def test_what_lets_files_in_has_its_folders_listed(service: Service, duties: LeaderDuties) -> None:
    """A resume after a drain, by whichever instance: its files made their events before."""
    scanned(duties)
    service.store.set_desired("d07", "drained")
    scanned(duties)
    service.store.set_desired("d07", "running")
    assert "d07" in scanned(duties)
    assert "d07" not in (scanned(duties) + scanned(duties))


def test_an_event_that_comes_while_a_dataflow_is_held_is_made_up_for(
    service: Service, duties: LeaderDuties
) -> None:
    """As during a version change that is refused in the end, which leaves no trace in the store."""
    scanned(duties)
    service.parts.holds.hold("d07", "is changed")
    duties.scheduler = SimpleNamespace()
    duties._scan_soon(["d07", "d08"])
    assert duties.scans.take() == ["d08"]  # type: ignore[attr-defined]
    service.parts.holds.release("d07")
    assert "d07" in scanned(duties)
    duties.scheduler = None


def test_a_clock_that_is_set_back_delays_no_file(duties: LeaderDuties) -> None:
    """The time of a timer would come again late: each folder is listed once more."""
    scanned(duties)
    hour = timedelta(hours=1)
    duties._now = lambda: MACHINE.now() - hour
    duties.bring_forward()
    assert len(scanned(duties)) == MANY
    duties.bring_forward()
    assert len(scanned(duties)) == 1


def test_no_pass_is_asked_for_where_no_sink_is(duties: LeaderDuties) -> None:
    """No dataflow is read that has not changed."""
    duties._ask_sinks()
    counting: Any = Counting(duties._sinks.store)
    duties._sinks.store = counting
    duties._ask_sinks()
    assert counting.calls == {"revisions": 1, "sinks": 1}


def test_a_job_that_is_due_while_it_runs_is_left_out_without_a_warning() -> None:
    """A busy machine is no news; the next time of the job does what is left."""
    jobs, free, begun = _OneOfEach(2), threading.Event(), list[int]()

    def work() -> None:
        begun.append(1)
        free.wait()

    jobs.start(
        SimpleNamespace(_create_lock=threading.RLock, _dispatch_event=lambda _: None), "default"
    )
    job = SimpleNamespace(
        id="scan",
        max_instances=1,
        func=work,
        args=(),
        kwargs={},
        misfire_grace_time=None,
        _jobstore_alias="default",
    )
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    jobs.submit_job(job, now)
    jobs.submit_job(job, now)
    free.set()
    jobs.shutdown(wait=True)
    assert len(begun) == 1
