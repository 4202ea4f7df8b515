"""Alerts of a whole service: what is wrong is listed, sent over a real webhook, and tested."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import event

from cbp.clock import MACHINE
from cbp.errors import DefinitionError
from controller.alerts.conditions import PAUSE_FACTOR, SWAP_WAITS_SECONDS
from controller.app import Service
from controller.app.asgi import api_of
from controller.app.construction import HOLD_SECONDS, alert_watch_for
from controller.loop.rebuild.build_in_progress import RebuildJob
from controller.settings import Settings, load_settings
from controller.store.base import DataflowRecord
from tests.controller.api.app_transport import AppTransport
from tests.controller.http_sink import HttpSink
from tests.controller.small_app import DOCUMENT, TOKEN, drop
from tests.waiting import until


@pytest.fixture
def webhook() -> Iterator[HttpSink]:
    sink = HttpSink()
    yield sink
    sink.close()


def settings_with(tmp_path: Path, webhook: HttpSink | None) -> Settings:
    return load_settings(
        root=tmp_path,
        engine="local",
        reader_processes=False,
        worker_processes=False,
        token=TOKEN,
        settle_seconds=0,
        alert_webhook_url=None if webhook is None else SecretStr(f"{webhook.url}/s3cret"),
    )


@pytest.fixture
def service(tmp_path: Path, webhook: HttpSink) -> Iterator[Service]:
    made = Service(settings_with(tmp_path, webhook))
    made.leadership.begin()
    made.controller.lead(made.leadership.epoch)
    made.controller.register(DOCUMENT)
    yield made
    made.stop()


class Clock:
    """Does not move by itself."""

    def __init__(self) -> None:
        self.now = MACHINE.now()

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def clock(service: Service) -> Clock:
    """Give the clock of the service's alerts."""
    clock = Clock()
    service.alerts = alert_watch_for(
        service.settings,
        controller=service.controller,
        store=service.store,
        drop_folder=service.drop_folder,
        leads=lambda: True,
        clock=clock,
    )
    return clock


def client_of(service: Service) -> httpx.Client:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.Client(
        transport=AppTransport(api_of(service)), base_url=service.settings.url, headers=headers
    )


def notices(webhook: HttpSink) -> list[tuple[str, str, str]]:
    return [
        (alert["status"], alert["kind"], alert["dataflow"])
        for body in webhook.bodies
        for alert in body["alerts"]
    ]


def test_a_file_in_quarantine_is_told_once_it_has_held(
    service: Service, clock: Clock, webhook: HttpSink
):
    """Until it has held it is only listed; then it is sent, once; its end is sent too."""
    drop(service, "/")
    (service.settings.drop_root / "urls/visits/incoming/bad.jsonl").write_text("no json\n")
    service.scan()
    service.scan()
    service.alerts.look()
    clock.move(seconds=HOLD_SECONDS - 1)
    service.alerts.look()
    assert not webhook.bodies
    with client_of(service) as client:
        (standing,) = client.get("/api/v1/alerts").json()["standing"]
    assert (standing["kind"], standing["dataflow"]) == ("quarantine", "urls")
    assert standing["sent_at"] is None
    assert "source visits of urls has 1 file in quarantine" in standing["summary"]
    clock.move(seconds=1)
    service.alerts.look()
    fired = clock.now
    assert notices(webhook) == [("firing", "quarantine", "urls")]
    clock.move(seconds=HOLD_SECONDS)
    service.alerts.look()
    assert len(webhook.bodies) == 1, "it was sent already, and got no worse"
    with client_of(service) as client:
        (standing,) = client.get("/api/v1/alerts").json()["standing"]
        assert datetime.fromisoformat(standing["sent_at"]) == fired
        (claim,) = client.get("/api/v1/dataflows/urls/claims?status=quarantined").json()["items"]
        discard = f"/api/v1/dataflows/urls/sources/visits/quarantine/{claim['id']}/discard"
        assert client.post(discard, params={"reason": "a test"}).is_success
    service.alerts.look()
    assert notices(webhook)[1:] == [("resolved", "quarantine", "urls")]


def test_a_source_of_which_nothing_is_taken_in_is_told(
    service: Service, clock: Clock, webhook: HttpSink
):
    """The stages have nothing to do and look well: only the drop folder knows of it."""
    incoming = service.settings.drop_root / "urls/visits/incoming"
    incoming.rename(incoming.with_name("elsewhere"))
    incoming.symlink_to(incoming.with_name("elsewhere"))
    service.scan()
    for _ in range(2):
        service.alerts.look()
        clock.move(seconds=HOLD_SECONDS)
    assert notices(webhook) == [("firing", "retrying", "urls")]
    (alert,) = webhook.bodies[0]["alerts"]
    assert "source visits" in alert["detail"]


def test_an_increment_that_waits_for_long_is_late_and_at_a_pause_for_longer(
    service: Service, clock: Clock, webhook: HttpSink
):
    """The lag is that of the oldest increment which a stage has not read; a pause is named."""
    drop(service, "/")
    service.scan()
    service.scan()
    clock.move(seconds=service.settings.alert_lag_seconds - 60)
    service.alerts.look()
    assert service.alerts.standing() == []
    clock.move(seconds=120)
    service.alerts.look()
    (standing,) = service.alerts.standing()
    assert (standing.alert.kind, standing.alert.dataflow) == ("late", "urls")
    service.controller.pause("urls")
    service.alerts.look()
    assert service.alerts.standing() == []
    clock.move(seconds=PAUSE_FACTOR * service.settings.alert_lag_seconds)
    (standing,) = service.alerts.standing()
    assert "urls is paused" in standing.alert.summary
    service.controller.resume("urls")
    service.controller.pause_stage("urls", "count")
    (standing,) = service.alerts.standing()
    assert "an operator paused count" in standing.alert.detail


@pytest.mark.parametrize("nested", [False, True])
def test_files_that_wait_for_a_drain_are_told(service: Service, clock: Clock, nested: bool):
    """However long ago the drain was asked for; a file that is not whole yet does not count."""
    if nested:
        source = {"schema": "url STRING", "format": "jsonl", "nested": True}
        service.controller.change({**DOCUMENT, "sources": {"visits": source}})
    incoming = service.settings.drop_root / "urls/visits/incoming"
    service.controller.drain_dataflow("urls")
    (incoming / "a.jsonl.part").write_text("{}\n")
    clock.move(seconds=PAUSE_FACTOR * service.settings.alert_lag_seconds + 60)
    assert service.alerts.standing() == []
    folder = incoming / "below" if nested else incoming
    folder.mkdir(exist_ok=True)
    (folder / "b.jsonl").write_text("{}\n")
    service.scan()
    service.controller.tick()
    (standing,) = service.alerts.standing()
    assert "urls is drained, and a file has waited in its drop folders" in standing.alert.summary
    service.controller.resume("urls")
    assert service.alerts.standing() == []


def test_a_rebuild_whose_swap_was_forgotten_is_told(service: Service, clock: Clock):
    """Once its tables have been ready for an hour, until they are swapped in."""
    jobs = service.controller.rebuild_jobs
    job = jobs.start_present("urls")
    until(lambda: jobs.show("urls", job.id).status == "ready")
    service.alerts.look()
    assert service.alerts.standing() == []
    clock.move(seconds=SWAP_WAITS_SECONDS + 60)
    (standing,) = service.alerts.standing()
    assert (standing.alert.kind, standing.alert.dataflow) == ("rebuild", "urls")
    jobs.swap("urls", job.id)
    until(lambda: jobs.show("urls", job.id).status == "swapped")
    assert service.alerts.standing() == []


@pytest.mark.part(every=2)
@pytest.mark.parametrize("breaks", ["increments SET files", "stages SET memo"])
def test_a_dataflow_whose_rows_cannot_be_read_is_told_and_hides_no_other(
    breaks: str, service: Service, clock: Clock, webhook: HttpSink
):
    """It is broken, which is critical, so it is sent at once; the file of the other one too."""
    service.controller.register({**DOCUMENT, "name": "other"})
    for name in ("urls", "other"):
        drop(service, "/", dataflow=name)
    (service.settings.drop_root / "other/visits/incoming/bad.jsonl").write_text("no json\n")
    service.scan()
    service.scan()
    with service.store._database._engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {breaks} = 'x' WHERE dataflow = 'urls'")
    for _ in range(2):
        service.alerts.look()
        clock.move(seconds=HOLD_SECONDS)
    assert notices(webhook) == [
        ("firing", "broken", "urls"),
        ("firing", "quarantine", "other"),
    ]


def test_a_fault_in_the_alerts_of_a_dataflow_hides_no_other(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    """Whatever it is; the dataflow keeps the alerts that do not depend on it."""
    service.controller.register({**DOCUMENT, "name": "another"})
    for name in ("another", "urls"):
        drop(service, "/", dataflow=name)
        (service.settings.drop_root / name / "visits/incoming/bad.jsonl").write_text("no json\n")
    service.scan()
    needs_person = service.controller.rebuild_jobs.needs_person

    def faulty(record: DataflowRecord) -> RebuildJob | None:
        if record.name == "another":
            raise KeyError(record.name)
        return needs_person(record)

    monkeypatch.setattr(service.controller.rebuild_jobs, "needs_person", faulty)
    standing = {one.alert.key for one in service.alerts.standing()}
    assert standing == {"quarantine:another/visits", "quarantine:urls/visits"}


def test_a_fault_ends_no_alert(service: Service, monkeypatch: pytest.MonkeyPatch):
    """What cannot be found out in a round is as it was in the last one, until it can be."""
    answers: list[Any] = [SimpleNamespace(status="failed", error="full"), KeyError("urls"), None]

    def answer(record: DataflowRecord) -> RebuildJob | None:
        if isinstance(answers[0], KeyError):
            raise answers[0]
        return cast("RebuildJob | None", answers[0])

    monkeypatch.setattr(service.controller.rebuild_jobs, "needs_person", answer)
    standing = list[set[str]]()
    while answers:
        standing.append({one.alert.key for one in service.alerts.standing()})
        answers.pop(0)
    assert standing == [{"rebuild:urls"}, {"rebuild:urls"}, set()]


def test_a_look_costs_the_same_for_many_dataflows(service: Service, clock: Clock):
    """The number of statements is fixed: a look comes every half minute."""
    statements: list[str] = []

    def hear(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements.append(statement)

    event.listen(service.store._database._engine, "before_cursor_execute", hear)
    asked = {}
    for count in (2, 12):
        for number in range(len(service.store.dataflows()), count):
            service.controller.register({**DOCUMENT, "name": f"urls{number}"})
        statements.clear()
        service.alerts.look()
        asked[count] = len([one for one in statements if one.startswith("SELECT")])
    assert asked[2] == asked[12] <= 10


def test_a_test_notice_arrives_and_shows_in_the_deliveries(service: Service, webhook: HttpSink):
    """The answer says for each channel what became of it; no secret of the address is shown."""
    with client_of(service) as client:
        sent = client.post("/api/v1/alerts/test").json()["deliveries"]
        webhook.status = 500
        failed = client.post("/api/v1/alerts/test").json()["deliveries"]
        shown = client.get("/api/v1/alerts")
        effective = client.get("/api/v1/settings").text
    assert [one["error"] for one in (*sent, *failed)] == [
        None,
        "RuntimeError: the webhook answered 500",
    ]
    assert [body["alerts"][0]["status"] for body in webhook.bodies] == ["test", "test"]
    assert [one["error"] is None for one in shown.json()["deliveries"]] == [False, True]
    assert shown.json()["channels"] == ["webhook 127.0.0.1"]
    assert "s3cret" not in shown.text + effective


def test_without_a_channel_nobody_is_told_and_what_is_wrong_is_listed(tmp_path: Path):
    """The listing has the file in quarantine at once, and no channel; a test does nothing."""
    quiet = Service(settings_with(tmp_path, None))
    try:
        quiet.leadership.begin()
        quiet.controller.lead(quiet.leadership.epoch)
        quiet.controller.register(DOCUMENT)
        incoming = quiet.settings.drop_root / "urls/visits/incoming"
        (incoming / "bad.jsonl").write_text("no json\n")
        quiet.scan()
        quiet.scan()
        with client_of(quiet) as client:
            answer = client.get("/api/v1/alerts").json()
            assert answer["channels"] == []
            assert [one["kind"] for one in answer["standing"]] == ["quarantine"]
            assert client.post("/api/v1/alerts/test").json() == {"deliveries": []}
    finally:
        quiet.stop()


@pytest.mark.parametrize("url", ["ftp://a/s3cret", "http:///s3cret", "s3cret", "http://[s3cret"])
def test_an_address_that_is_none_is_refused_and_not_repeated(tmp_path: Path, url: str):
    """What came can be a secret."""
    with pytest.raises(DefinitionError) as error:
        load_settings(root=tmp_path, alert_webhook_url=url)
    assert error.value.mistake.code == "settings_invalid"
    assert "s3cret" not in str(error.value)


def test_recipients_need_a_mail_server(tmp_path: Path):
    """Otherwise alerts would be configured, and nobody would get them."""
    with pytest.raises(DefinitionError) as error:
        load_settings(root=tmp_path, alert_email_to="ops@example")
    assert error.value.mistake.code == "settings_invalid"
    assert load_settings(root=tmp_path, alert_email_to="ops@example", smtp_url="smtp://mail:25")
