"""The command `cbp alerts`: what holds is printed, whether or not there is a receiver."""

from __future__ import annotations

from controller.alerts import AlertLimits, AlertWatch, Channel, DataflowHealth, WebhookChannel
from controller.api import create_api
from controller.cli.session import Session, Waits
from controller.terminal import clock
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp
from tests.controller.rest import lead_alone


def _alerts_over(service: Service, health: DataflowHealth, *channels: Channel) -> Session:
    """Return a session with a service whose one dataflow is in this state."""
    watch = AlertWatch(
        health=lambda: [health],
        leads=lambda: True,
        channels=channels,
        limits=AlertLimits(),
        clock=lambda: NOON,
    )
    app = create_api(
        controller=service.controller,  # type: ignore[arg-type]
        store=service.store,  # type: ignore[arg-type]
        drop_folder=service.drop_folder,  # type: ignore[arg-type]
        settings=service.settings,
        access=service.access,
        standing=lead_alone,
        alerts=watch,
    )
    return Session(service.settings, AppTransport(app), Waits(poll_seconds=0))


def test_alerts_that_hold_are_printed_without_a_receiver(cbp: Cbp, service: Service) -> None:
    """What is wrong, since when and what to do; and that nobody gets a message."""
    stopped = DataflowHealth("clicks", "stopped", "a bug", quarantined={"urls": 3})
    outcome = cbp("alerts", session=_alerts_over(service, stopped))
    assert (outcome.status, outcome.err) == (0, "")
    for part in ("clicks has stopped", "cbp retry clicks", "3 files in quarantine"):
        assert part in outcome.out
    assert clock(NOON.isoformat()) in outcome.out
    assert "no channel for alerts is configured" in outcome.out
    assert "nothing is wrong" not in outcome.out


def test_a_receiver_that_got_nothing_yet_is_named(cbp: Cbp, service: Service) -> None:
    """Nobody is asked to set what is set."""
    hook = WebhookChannel("http://127.0.0.1:9/x", service_url="http://127.0.0.1:1")
    outcome = cbp("alerts", session=_alerts_over(service, DataflowHealth("clicks", "ok"), hook))
    assert (outcome.status, outcome.err) == (0, "")
    assert "nothing is wrong" in outcome.out
    assert "sent by: webhook 127.0.0.1" in outcome.out
    assert "nothing was sent yet" in outcome.out
    assert "no channel for alerts is configured" not in outcome.out
