"""Alerts: what is wrong now, which channels are notified, what became of it, and a test."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from controller.access.scopes import Scope
from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import AlertsDep
from controller.api.routing.routers import leader_only, router
from controller.api.routing.scopes import needs

routes = router("alerts")


class AlertOut(Model):
    """An alert that holds."""

    kind: str = Field(
        description="`stopped`, `broken`, `retrying`, `late`, `quarantine`, `set_aside` or `disk`."
    )
    severity: str = Field(description="`critical` is sent at once, `warning` after a while.")
    dataflow: str = Field(description="Empty if it is about the service itself.")
    summary: str
    detail: str = Field(description="The reason, as the service gives it.")
    action: str = Field(description="What to do.")
    since: datetime
    sent_at: datetime | None = Field(description="When it was last sent; null: not yet.")


class DeliveryOut(Model):
    """One try to send notices."""

    at: datetime
    channel: str
    summaries: list[str]
    error: str | None = Field(description="Why it failed; `null` if it was sent.")


class AlertsOut(Model):
    """Alerts, and the ways to people."""

    channels: list[str] = Field(description="Without secrets; empty if alerts are sent nowhere.")
    standing: list[AlertOut]
    deliveries: list[DeliveryOut] = Field(description="The last ones, newest first.")


class AlertTestOut(Model):
    """What became of a test notice, for each channel."""

    deliveries: list[DeliveryOut]


@routes.get("/alerts")
@needs(Scope.VIEWER)
@leader_only
def show(alerts: AlertsDep) -> AlertsOut:
    """Show firing alerts, the channels, and the last tries to send.

    What is wrong is listed as of now, also without a channel; then nothing is ever sent.
    """
    return AlertsOut.of(
        channels=[channel.name for channel in alerts.channels],
        standing=[
            AlertOut.of(one.alert, since=one.since, sent_at=one.sent_at)
            for one in alerts.standing()
        ],
        deliveries=alerts.deliveries(),
    )


@routes.post("/alerts/test")
@needs(Scope.OPERATOR)
def test(alerts: AlertsDep) -> AlertTestOut:
    """Send a test notice by every channel, now; takes up to 10 s for each."""
    return AlertTestOut.of(deliveries=alerts.test())
