"""Alerts: messages by webhook and e-mail about failures that need a person.

`conditions` says what is wrong, `notices` decides when it is sent, and both are pure. `channels`
sends it, and `watch` does all three in a thread of its own, on the leader.
"""

from controller.alerts.channels import Channel, EmailChannel, WebhookChannel
from controller.alerts.conditions import Alert, DataflowHealth
from controller.alerts.notices import AlertLimits, Notice
from controller.alerts.watch import AlertWatch, Delivery, silent_watch

__all__ = [
    "Alert",
    "AlertLimits",
    "AlertWatch",
    "Channel",
    "DataflowHealth",
    "Delivery",
    "EmailChannel",
    "Notice",
    "WebhookChannel",
    "silent_watch",
]
