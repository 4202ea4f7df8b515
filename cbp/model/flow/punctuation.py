"""Punctuations (closes): close the open frames of a flow without a record of another key.

A punctuation is between two increments of its flow, after all increments that existed when it was
made. It closes the open frame of every framed input that reads the flow, or of one input only. The
next record begins a new frame, whatever its key. A punctuation is made by an operator (`request`),
by a marker in a drop folder (`marker`), or because no record came for the idle time of the input
(`idle`).

A roll-back keeps punctuations and arrived increments, unless it is asked to drop both. A kept
punctuation can then wait for increments that the roll-back removed, until its flow has them again.

The position of a punctuation in its flow is recorded before any later increment is framed. So
frames depend only on the flow and its punctuations.

Source: CBP (SoCC'10), footnote 3 of section 4.1; idle time is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from cbp.model.flow.connector import Connector
from cbp.model.json_fields import ADDED, JsonFields

Reason = Literal["request", "marker", "idle"]


@dataclass(frozen=True, slots=True)
class Punctuation(JsonFields):
    """One punctuation of one flow.

    Attributes:
        number: Counts the punctuations of a dataflow, from 0 without gaps.
        at: Index of the first increment of the flow after it.
        key: Idempotency key of the request: a repeated request makes no second punctuation.
        closed_ms: When it was made, in milliseconds since 1970.
        input: The only input that it closes, as `stage.input`; `""`: all inputs that frame the
            flow.
    """

    refuses_unknown = True  # without `input`, a release before it would close all inputs

    number: int
    flow: str
    at: int
    reason: Reason
    key: str
    closed_ms: int
    input: str = field(default="", metadata=ADDED)

    def meant_for(self, stage: str, input_: str, flow: str) -> bool:
        """Return whether this punctuation closes the open frame of an input that reads `flow`."""
        return flow == self.flow and self.input in ("", f"{stage}.{input_}")


def idle_at(connector: Connector, since: datetime, idle_seconds: float) -> datetime | None:
    """Return when idle time will close the open frame of an input; `None` if it will not.

    It is assumed that no punctuation of the input is due. `since` is when the last record of its
    flow arrived; `idle_seconds` of 0 means never.
    """
    framing = connector.framing
    # Increments that have arrived are framed first.
    closes = framing is not None and framing.open is not None and not connector.arrived
    return since + timedelta(seconds=idle_seconds) if idle_seconds and closes else None
