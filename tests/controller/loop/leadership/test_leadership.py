"""An instance acts only while it holds the lease, and others go on without it.

An effect passes only inside the lease's time; of two services one works, the other answers reads
and takes over.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import LeaseLostError, OperatingError
from cbp.model.schedule.lease import ACTING_SHARE, Lease, Role
from controller.api.answers.request_errors import LedElsewhereError, NotLeadingError
from controller.app import Service, api_of
from controller.client.service_client import ServiceClient
from controller.loop import Fence, LeaseKeeper
from controller.loop.leadership.lease_keeper import boot_seconds
from controller.settings import Settings, load_settings
from controller.store.methods import leases
from tests.controller.api.app_transport import AppTransport
from tests.controller.small_app import DOCUMENT, TOKEN, count, drop
from tests.controller.world import until
from tests.lease_rows import released, renewed, taken
from tests.planned_faults import PlannedFaults

SECONDS = 10.0
LEASE_SECONDS = 600.0
"""Of services: no lease ends unless a test moves a clock."""


class FakeStore:
    """A lease in memory; the test moves its clock.

    Attributes:
        away: Whether the database does not answer.
    """

    shared = True

    def __init__(self) -> None:
        self.row, self.now, self.away = Lease(), 0.0, False
        self.fences: list[int | None] = []

    def lease(self) -> tuple[Lease, int]:
        self._ask()
        return self.row, int(self.now * 1000)

    def take_lease(self, holder: str, address: str, *, milliseconds: int) -> Lease | None:
        self._ask()
        now_ms = int(self.now * 1000)
        got = taken(self.row, holder, address, now_ms=now_ms, milliseconds=milliseconds)
        self.row = got or self.row
        return got

    def renew_lease(self, epoch: int, *, milliseconds: int) -> bool:
        self._ask()
        now_ms = int(self.now * 1000)
        got = renewed(self.row, epoch, now_ms=now_ms, milliseconds=milliseconds)
        self.row = got or self.row
        return got is not None

    def release_lease(self, epoch: int) -> None:
        self._ask()
        self.row = released(self.row, epoch)

    def fence(self, epoch: int | None) -> None:
        self.fences.append(epoch)

    def _ask(self) -> None:
        if self.away:
            message = "the database is away"
            raise OperatingError(message)


def instance(store: FakeStore, name: str, **more: Any) -> LeaseKeeper:
    return LeaseKeeper(
        store=store,  # type: ignore[arg-type]  # the part that this needs
        address=f"http://{name}",
        seconds=SECONDS,
        clock=lambda: store.now,
        holder=name,
        **more,
    )


def test_an_effect_passes_only_inside_the_time_of_the_lease() -> None:
    """Shorter than the lease, by the instance's own clock; a renewal that comes late mends it."""
    store = FakeStore()
    one = instance(store, "one")
    fence = Fence(passed := PlannedFaults(), one.check)
    with pytest.raises(LeaseLostError):
        fence("intention.before")
    one.keep()
    fence("intention.before")
    store.now, store.away = ACTING_SHARE * SECONDS, True
    one.keep()
    assert one.role is Role.UNSURE
    with pytest.raises(LeaseLostError) as refused:
        fence("intention.before")
    assert refused.value.retryable
    fence("intention.after")
    store.away = False
    one.keep()
    fence("intention.before")
    assert passed.passed == {"intention.before": 2, "intention.after": 1}


def test_who_lost_the_lease_retires_and_stands_again_only_when_it_is_idle() -> None:
    """The store stays fenced with the old epoch until nothing of the term is under way."""
    store, reasons = FakeStore(), []  # type: FakeStore, list[str]
    one, other = instance(store, "one", on_retire=reasons.append), instance(store, "other")
    one.keep()
    store.now = SECONDS
    other.keep()
    one.keep()
    assert (one.role, other.role) == (Role.RETIRES, Role.LEADS)
    assert ["http://other" in reason for reason in reasons] == [True]
    assert store.fences == [1, 2]
    store.now = 2 * SECONDS
    one.keep()
    assert store.row.epoch == 2, "it stood before its runs had ended"
    one.follow()
    assert store.fences == [1, 2, None]
    one.keep()
    assert store.row.holder == "other", "it gave nobody else the chance"
    store.now = 4 * SECONDS
    one.keep()
    assert (one.role, store.row.epoch) == (Role.LEADS, 3)


def test_who_follows_says_who_leads_until_the_lease_runs_out() -> None:
    """A stale address is not shown: the instance there may be gone."""
    store = FakeStore()
    one, other = instance(store, "one"), instance(store, "other")
    one.keep()
    other.keep()
    assert other.standing().leader == "http://one"
    store.now, store.away = SECONDS, True
    other.keep()
    assert (other.role, other.standing().leader) == (Role.FOLLOWS, "")


def test_the_fence_stays_in_its_process() -> None:
    """In a worker nobody can ask for the lease, and nobody need to: the driver decides."""
    fence = Fence(NO_FAULTS, lambda: pytest.fail("asked"))
    pickle.loads(pickle.dumps(fence))("data_file.before")


# two services on one database


class Seconds:
    """Seconds of an instance, which the test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """Services on one PostgreSQL database and one folder; the database's clock is moved by hand.

    Attributes:
        database_seconds: How far its clock is ahead.
    """

    def __init__(self, root: Path, url: str, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self._root, self._url, self._stack = root, url, stack
        self.database_seconds, now_ms = 0.0, leases._now_ms
        patch.setattr(
            leases,
            "_now_ms",
            lambda connection: now_ms(connection) + int(self.database_seconds * 1000),
        )

    def make(self, port: int, seconds: Callable[[], float] = boot_seconds) -> Service:
        """Return a service that is stopped in the end."""
        service = Service(settings_of(self._root, self._url, port), seconds=seconds)
        self._stack.callback(service.stop)
        return service


@pytest.fixture
def pair(
    tmp_path: Path, new_postgres_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pair]:
    """Give what makes services."""
    with ExitStack() as stack:
        yield Pair(tmp_path, new_postgres_database(), stack, monkeypatch)


def settings_of(root: Path, url: str, port: int) -> Settings:
    return load_settings(
        root=root,
        cache=root / f"cache-{port}",
        database_url=url,
        port=port,
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
        scan_seconds=0.1,
        tick_seconds=0.1,
        drain_seconds=10,
        lease_seconds=LEASE_SECONDS,
    )


@pytest.mark.service
def test_of_two_services_one_works_and_the_other_takes_over(pair: Pair) -> None:
    """Every increment is counted once, and both answer reads, before and after."""
    one, other = pair.make(18501), pair.make(18502)
    one.start()
    one.controller.register(DOCUMENT)
    other.start()
    assert (one.leadership.role, other.leadership.role) == (Role.LEADS, Role.FOLLOWS)
    until(lambda: "18501" in other.controller.problem)
    drop(one, "a", "b", name="1.jsonl")
    until(lambda: count(other, "a") == 1)
    until(lambda: "18501" in other.controller.waiting("urls").get("count", ""))
    assert other._duties.scheduler is None, "a follower lists no folders"
    one.stop()
    other.leadership.keep()
    assert other.leadership.role is Role.LEADS, "the lease was released"
    drop(other, "a", name="2.jsonl")
    until(lambda: count(other, "a") == 2)
    assert count(other, "b") == 1
    epochs = [
        json.loads(file.read_text())["leader_epoch"]
        for file in sorted((other.settings.root / "tables/urls/_intentions/count").iterdir())
    ]
    assert epochs == [1, 2], "a record names the epoch under which it was put"


@pytest.mark.service
def test_a_leader_that_lost_its_lease_writes_nothing_and_comes_back_as_a_follower(
    pair: Pair,
) -> None:
    """Its lease gone, its run ends without a record; what it kept in memory is forgotten."""
    seconds = Seconds()
    one, other = pair.make(18501, seconds), pair.make(18502)
    one.start()
    one.controller.register(DOCUMENT)
    other.start()
    # It hears of nothing while its lease ends, as if it were stopped.
    seconds.now += LEASE_SECONDS
    pair.database_seconds = LEASE_SECONDS
    other.leadership.keep()
    assert (one.leadership.role, other.leadership.role) == (Role.UNSURE, Role.LEADS)
    with pytest.raises(LeaseLostError):
        one.store.pause_stage("urls", "count", "by the one that was replaced")
    with pytest.raises(LeaseLostError):
        one.controller.register({**DOCUMENT, "name": "late"})
    one.leadership.keep()
    until(lambda: one.leadership.role is Role.FOLLOWS)
    drop(other, "a")
    until(lambda: count(one, "a") == 1)
    assert [stage.paused_because for stage in one.store.stages("urls")] == [""]


@pytest.mark.service
def test_a_clock_of_the_database_that_jumps_applies_nothing_twice(pair: Pair) -> None:
    """Set ahead, it ends the lease of one that may still act by its own clock, while runs go on.

    Both act then, and the records tell one after the other. Set back, it prolongs the lease, which
    the leader's next renewal makes as long as it should be.
    """
    seconds = Seconds()
    one, other = pair.make(18501), pair.make(18502, seconds)

    def leads() -> bool:
        # If it has met an entry of the other one in a log, it retires, and competes again later.
        if other.leadership.role is not Role.LEADS:
            seconds.now += LEASE_SECONDS
            other.leadership.keep()
        return other.leadership.role is Role.LEADS

    one.start()
    one.controller.register(DOCUMENT)
    other.start()
    for number in range(4):
        drop(one, "a", f"u{number}", name=f"{number}.jsonl")
    until(lambda: count(other, "a") > 0)
    pair.database_seconds = 3600
    other.leadership.keep()
    assert (other.leadership.role, one.leadership.role) == (Role.LEADS, Role.LEADS)
    drop(other, "a", "late", name="late.jsonl")
    until(lambda: leads() and count(other, "a") == 5)
    one.leadership.keep()
    until(lambda: one.leadership.role is Role.FOLLOWS)
    pair.database_seconds = -3600
    until(leads)
    other.leadership.keep()
    lease, database_ms = other.store.lease()
    assert lease.expires_ms - database_ms <= LEASE_SECONDS * 1000
    drop(other, "a", "back", name="back.jsonl")
    until(lambda: count(one, "a") == 6)
    records = sorted((other.settings.root / "tables/urls/_intentions/count").iterdir())
    epochs = [json.loads(file.read_text())["leader_epoch"] for file in records]
    assert (len(epochs), epochs) == (6, sorted(epochs))
    assert set(epochs) >= {1, 2}


@pytest.mark.service
def test_any_instance_takes_what_the_store_can_hold_and_names_the_leader_for_the_rest(
    tmp_path: Path, new_postgres_database: Callable[[], str]
) -> None:
    """Reading, pausing, resuming anywhere; the rest is answered with 421 and an address."""
    url = new_postgres_database()
    leader = Service(settings_of(tmp_path, url, 18501))
    leader.start()
    leader.controller.register(DOCUMENT)
    settings = settings_of(tmp_path, url, 18502)
    service = Service(settings)
    following = service.leadership
    try:
        following.keep()
        with ServiceClient(settings, transport=AppTransport(api_of(service))) as client:
            assert client.get("health", "ready")["role"] == "follows"
            told = client.get("leader")
            assert (told["leader"], told["epoch"]) == ("http://127.0.0.1:18501", 1)
            assert client.post("dataflows", "urls", "pause")["desired"] == "paused"
            until(lambda: leader.store.dataflow("urls").desired == "paused")
            client.post("dataflows", "urls", "resume")
            following.keep()
            for path in ("dataflows/urls/verifications", "verifications/v1"):
                answer = client._request("GET", settings.url, path)
                assert (answer.status_code, path) == (421, path)
            answer = client._request("DELETE", settings.url, "dataflows/urls")
            assert answer.status_code == 421
            assert answer.json()["error_code"] == LedElsewhereError.code
            assert answer.json()["details"]["leader"] == "http://127.0.0.1:18501"
            leader.stop()
            following._seen_until = 0.0
            answer = client._request("DELETE", settings.url, "dataflows/urls")
            assert (answer.status_code, answer.json()["error_code"]) == (503, NotLeadingError.code)
            assert answer.headers["retry-after"]
    finally:
        leader.stop()
        service.store.close()
