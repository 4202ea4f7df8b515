"""Alerts: the current ones, the channels, the last deliveries, and a test notice."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import AlertsDep
from controller.api.routing.router_factory import Scope, needs, router

routes = router("alerts")


class AlertOut(Model):
    """An alert that is firing."""

    kind: str = Field(
        description="`stopped`, `broken`, `retrying`, `late`, `quarantine`, `set_aside`, `rebuild` "
        "or `disk`."
    )
    severity: str = Field(
        description="`critical` is sent immediately, `warning` once the alert has lasted a minute."
    )
    dataflow: str = Field(
        description="The dataflow; empty if the alert is about the service itself."
    )
    summary: str
    detail: str = Field(description="The reason, as the service gives it.")
    action: str = Field(description="What to do.")
    since: datetime
    sent_at: datetime | None = Field(
        description="When the alert was last sent; null if it was not sent yet."
    )


class DeliveryOut(Model):
    """One attempt to send notices."""

    at: datetime
    channel: str
    summaries: list[str]
    error: str | None = Field(
        description="Why the attempt failed; `null` if the notices were sent."
    )


class AlertsOut(Model):
    """Alerts, and the channels by which they are sent."""

    channels: list[str] = Field(
        description="The channels, without secrets; empty if none is configured."
    )
    standing: list[AlertOut]
    deliveries: list[DeliveryOut] = Field(description="The last deliveries, newest first.")


class AlertTestOut(Model):
    """The result of a test notice, for each channel."""

    deliveries: list[DeliveryOut]


@routes.get("/alerts")
@needs(Scope.VIEWER, leader_only=True)
def show(alerts: AlertsDep) -> AlertsOut:
    """Show current alerts, the channels, and the last attempts to send.

    Alerts are listed even if no channel is configured; then none of them is sent.
    """
    return AlertsOut.of(
        channels=[channel.name for channel in alerts.channels],
        standing=[AlertOut.of(one, one.alert) for one in alerts.standing()],
        deliveries=alerts.deliveries(),
    )


@routes.post("/alerts/test")
@needs(Scope.OPERATOR)
def test(alerts: AlertsDep) -> AlertTestOut:
    """Send a test notice to every channel; takes up to 10 s for each."""
    return AlertTestOut.of(deliveries=alerts.test())
