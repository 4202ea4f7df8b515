"""Errors of the event stream: too many clients, and a place after which events are missing."""

from __future__ import annotations

from cbp.errors import OperatingError


class EventStreamsExhaustedError(OperatingError):
    """As many clients follow the events as may at a time."""

    code = "event_streams_exhausted"

    def __init__(self, streams_max: int) -> None:
        super().__init__(
            f"{streams_max} clients follow the events of this instance already; close one, ask "
            "another instance, or raise CBP_EVENT_STREAMS_MAX and restart the service",
            streams_max=streams_max,
        )


class EventsGoneError(OperatingError):
    """Events after a place in the stream are no longer kept, or never were."""

    code = "events_gone"
    retryable = False

    def __init__(self, after: str) -> None:
        super().__init__(
            f"the events after {after[:40]!r} are no longer kept; read everything again, then "
            "follow from the newest event (leave `after` out)",
            after=after[:40],
        )
