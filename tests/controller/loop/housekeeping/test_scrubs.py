"""Scrubs that somebody asks for: begun over REST, shown with progress, outcome and metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cbp.client.errors import ServiceProblemError
from cbp.engine.direct import LocalEngine
from cbp.engine.read.scrub import Damage, ScrubbedFile
from cbp.errors import FileDamagedError, FileLostError
from controller.cli import main
from controller.client.service_client import ServiceClient
from controller.loop.housekeeping.scrubbing import DAMAGES_MAX, Scrubbing
from controller.store.base import DataflowRecord
from tests.controller.damaging import flip, the_last
from tests.controller.live import Live, live
from tests.controller.world import ONE, Deferred

PATH = ("dataflows", "one", "scrub")


@pytest.fixture
def readers() -> Deferred:
    return Deferred()


@pytest.fixture
def service(tmp_path: Path, readers: Deferred) -> Iterator[Live]:
    """Give a dataflow that has run; what reads ends when the test says so."""
    made = live(tmp_path, engine=LocalEngine, removers=readers)
    made.world.controller.register(ONE)
    made.world.arrive("one", "a", ("x", 1))
    made.world.ticks()
    yield made
    made.world.close()


@pytest.fixture
def client(service: Live) -> Iterator[ServiceClient]:
    with service.session.connect() as made:
        yield made


def metric(service: Live, name: str) -> list[float]:
    with service.session.connect() as made:
        text = made._http.get("metrics").text
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{{")]


def test_one_is_begun_shown_and_ends(
    service: Live, client: ServiceClient, readers: Deferred
) -> None:
    """It runs until all is read; who asks meanwhile gets the same one; then it is whole."""
    assert client.get(*PATH)["status"] == "never"
    assert metric(service, "cbp_scrub_timestamp_seconds") == []
    begun = client.post(*PATH)
    assert (begun["status"], begun["ended"], begun["by"]) == ("running", False, "request")
    service.world.clock.advance(5)
    assert client.post(*PATH)["began_at"] == begun["began_at"]
    assert len(readers.waiting) == 1
    readers.run_next()
    actual = client.get(*PATH)
    assert (actual["status"], actual["ended"], actual["damages"]) == ("whole", True, [])
    on_disk = sum(path.is_file() for path in (Path(service.world.tables) / "one").rglob("*"))
    assert actual["files"] >= on_disk > 5
    assert actual["bytes"] > 1000
    now = service.world.clock().timestamp()
    assert metric(service, "cbp_scrub_timestamp_seconds") == [now]
    assert metric(service, "cbp_damaged_files") == [0.0]


def test_a_damage_is_told_everywhere_and_goes_once_it_is_mended(
    service: Live, client: ServiceClient, readers: Deferred
) -> None:
    """Route, metric and troubles say the same, also after a restart; a later one forgets it."""
    path = the_last(service.world, "flows/*/_runs/*.parquet")
    whole = path.read_bytes()
    flip(path)
    client.post(*PATH)
    readers.run_next()
    actual = client.get(*PATH)
    assert actual["status"] == "damaged"
    (damage,) = actual["damages"]
    assert (damage["code"], damage["path"]) == ("file_damaged", str(path))
    assert damage["next_step"]
    assert metric(service, "cbp_damaged_files") == [1.0]
    (trouble,) = service.world.controller.troubles("one")
    assert str(path) in trouble.words
    service.world.restart()
    again = service.world.controller.scrubs.show("one")
    assert (again.status, again.ended_at) == ("damaged", service.world.clock())
    path.write_bytes(whole)
    service.world.clock.advance(60)
    service.world.controller.scrubs.start("one")
    readers.run_next()
    assert service.world.controller.scrubs.show("one").status == "whole"
    assert service.world.controller.troubles("one") == []


def test_a_damage_that_a_read_meets_is_told_everywhere(
    service: Live, client: ServiceClient, readers: Deferred
) -> None:
    """At once, once, also after a restart; a reading that begins later decides anew."""
    path = the_last(service.world, "flows/*/_runs/*.parquet")
    whole = path.read_bytes()
    flip(path)
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(ServiceProblemError) as refused:
                client.get("dataflows", "one", "flows", "sum.totals", "records")
            assert refused.value.error_code == "file_damaged"
    assert [one["event"] for one in logs].count("damage.found_by_read") == 1
    (damage,) = client.get(*PATH)["damages"]
    assert (damage["code"], damage["path"]) == ("file_damaged", str(path))
    assert metric(service, "cbp_damaged_files") == [1.0]
    assert client.get("health", "ready")["degraded"] == {"one": "retrying"}
    (degraded,) = client.get("degraded")["items"]
    assert str(path) in degraded["reason"]
    service.world.restart()
    (trouble,) = service.world.controller.troubles("one")
    assert str(path) in trouble.words
    path.write_bytes(whole)
    service.world.clock.advance(60)
    service.world.controller.scrubs.start("one")
    readers.run_next()
    assert service.world.controller.troubles("one") == []


def test_a_damage_met_while_everything_is_read_stays(service: Live) -> None:
    """The reading may have been past the file; what was met before it began goes."""
    scrubbing, clock = service.world.controller.housekeeping.scrubbing, service.world.clock
    folder = service.world.store.dataflow("one").folder
    began = clock()
    clock.advance(1)
    scrubbing.note(FileDamagedError(f"{folder}/flows/sum.totals/_runs/x.parquet", "a test"))
    record = service.world.store.dataflow("one")
    scrubbing.take(record, {}, clock(), since=began)
    assert len(scrubbing.progress("one").damages) == 1
    scrubbing.take(record, {}, clock(), since=clock())
    assert scrubbing.progress("one").damages == {}


def test_only_lasting_damage_of_a_dataflow_is_noted(service: Live) -> None:
    """Not a file that is there again, nor one of nobody; and no more than can be listed."""
    scrubbing = service.world.controller.housekeeping.scrubbing
    there = the_last(service.world, "flows/*/_runs/*.parquet")
    scrubbing.note(FileLostError(str(there)))
    scrubbing.note(FileDamagedError("/elsewhere/one/flows/sum.totals/x", "a test"))
    assert scrubbing.progress("one").damages == {}
    for n in range(DAMAGES_MAX + 2):
        scrubbing.note(FileDamagedError(f"{there.parent}/{n}.parquet", "a test"))
    assert len(scrubbing.progress("one").damages) == DAMAGES_MAX


@pytest.mark.parametrize("fault", [OSError("input/output error"), MemoryError()])
def test_one_that_fails_says_so_and_the_next_may_begin(
    service: Live,
    client: ServiceClient,
    readers: Deferred,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
) -> None:
    """It is not shown as running for ever, and not as whole."""
    looks: Callable[..., Any] = Scrubbing.looks

    def fail(*_: Any) -> Any:
        raise fault

    client.post(*PATH)
    monkeypatch.setattr(Scrubbing, "looks", fail)
    readers.run_next()
    actual = client.get(*PATH)
    assert (actual["status"], actual["ended"]) == ("failed", True)
    assert type(fault).__name__ in actual["error"]["message"]
    monkeypatch.setattr(Scrubbing, "looks", looks)
    client.post(*PATH)
    readers.run_next()
    assert client.get(*PATH)["status"] == "whole"


def test_the_command_lets_a_service_at_work_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It finds what it would find itself; the service then shows it too."""
    service = live(tmp_path, engine=LocalEngine)
    service.world.controller.register(ONE)
    service.world.arrive("one", "a", ("x", 1))
    service.world.ticks()
    flip(the_last(service.world, "flows/*/_runs/*.parquet"))

    def cbp(*arguments: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["scrub", *arguments, "--json"], session=service.session)
        assert ended.value.code == 1
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    here = cbp("one", "--rate", "100000")
    assert service.world.controller.scrubs.show("one").status == "never"
    assert len(here["damages"]) == 1
    assert cbp("one") == here
    assert service.world.controller.scrubs.show("one").status == "damaged"
    assert cbp() == here
    service.world.close()


def test_a_purged_dataflow_leaves_no_damage(
    service: Live, client: ServiceClient, readers: Deferred
) -> None:
    """Neither what was found, nor what a reading finds that was under way at the deletion."""
    world = service.world
    flip(the_last(world, "flows/*/_runs/*.parquet"))
    client.post(*PATH)
    readers.run_next()
    assert client.get(*PATH)["status"] == "damaged"
    world.clock.advance(1)
    client.post(*PATH)
    world.clock.advance(1)
    record = world.store.dataflow("one")
    world.controller.delete("one", purge=True)
    world.controller.register(ONE)
    assert client.get(*PATH)["status"] == "never"
    assert world.controller.troubles("one") == []
    housekeeping = world.controller.housekeeping
    damage = Damage.of(FileDamagedError("x", "a test"), "")
    began = world.clock() - timedelta(seconds=1)
    housekeeping.scrubbing.take(record, {"x": damage}, world.clock(), since=began)
    assert world.controller.troubles("one") == []


def test_a_round_beside_a_purge_leaves_no_note(
    service: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds of the dataflow that is deleted beneath it is noted nowhere."""
    world, deleted = service.world, list[str]()

    def looks(self: Scrubbing, record: DataflowRecord) -> Iterator[ScrubbedFile]:
        world.controller.delete(record.name, purge=True)
        deleted.append(record.name)
        damage = Damage.of(FileLostError(f"{record.folder}/x.parquet"), "")
        yield ScrubbedFile(damage.path, 0, damage)

    monkeypatch.setattr(Scrubbing, "looks", looks)
    scrubbing = world.controller.housekeeping.scrubbing
    assert len(list(scrubbing._look([world.store.dataflow("one")]))) == len(deleted) == 1
    assert not Path(scrubbing._note("one")).exists()
    world.controller.register(ONE)
    assert world.controller.troubles("one") == []


def test_a_clock_that_goes_back_behind_the_registration_hides_no_damage(
    service: Live, client: ServiceClient, readers: Deferred
) -> None:
    """A dataflow is the same one as long as it is not deleted, whatever the clock shows."""
    flip(the_last(service.world, "flows/*/_runs/*.parquet"))
    service.world.clock.advance(-3600)
    client.post(*PATH)
    readers.run_next()
    assert len(client.get(*PATH)["damages"]) == 1


def test_a_deleted_dataflow_has_no_last_collection(service: Live) -> None:
    """The next dataflow of that name has had none."""
    controller = service.world.controller
    controller.housekeeping.collect("one")
    assert controller.housekeeping.last("one") is not None
    controller.delete("one", purge=True)
    controller.register(ONE)
    assert controller.housekeeping.last("one") is None
