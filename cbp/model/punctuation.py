"""Punctuations: what closes the open frames of a flow, though no other key has come.

A punctuation stands between two increments of its flow, behind all that were there when
it was made. It closes the open frame of every framed input that reads the flow, or of one
input only; records behind it begin a new frame, whatever their key. Made by an operator
(`request`), by a marker in a drop folder (`marker`), or because nothing has come for as
long as the input allows (`idle`).

A roll-back leaves punctuations where they stand, as it leaves what arrived, unless both are
dropped: one may then wait for increments that its flow had and will have again.

Where a punctuation stands is recorded before anybody frames what comes behind it, so
frames are a function of the flow and its punctuations: after a loss they come again, under
the same numbers.

Absent on purpose: clocks and files. `idle_at` is told what time it is.

Source: CBP (SoCC'10), footnote 3 of section 4.1; idle time is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from cbp.model.connector import Connector

__all__ = ["Punctuation", "Reason", "idle_at"]

Reason = Literal["request", "marker", "idle"]


@dataclass(frozen=True, slots=True)
class Punctuation:
    """One punctuation of one flow.

    Attributes:
        number: Counts those of a dataflow, from 0 without gaps.
        at: Index of the first increment of the flow behind it.
        key: Chosen by whoever asked: asking again with it makes no second one.
        closed_ms: When it was made, in milliseconds since 1970.
        input: The only input that it is for, `stage.input`; `""`: all that frame the flow.
    """

    number: int
    flow: str
    at: int
    reason: Reason
    key: str
    closed_ms: int
    input: str = ""

    def meant_for(self, stage: str, input_: str, flow: str) -> bool:
        """Tell whether it closes the open frame of an input that reads `flow`."""
        return flow == self.flow and self.input in ("", f"{stage}.{input_}")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "number": self.number,
            "flow": self.flow,
            "at": self.at,
            "reason": self.reason,
            "key": self.key,
            "closed_ms": self.closed_ms,
            "input": self.input,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Punctuation:
        """Read what `to_json` wrote."""
        return cls(**value)


def idle_at(connector: Connector, since: datetime, idle_seconds: float) -> datetime | None:
    """Return when the open frame of an input is to be closed; `None`: not by idle time.

    Args:
        connector: Of a framed input, at which no close is due.
        since: When the last record of its flow came.
        idle_seconds: How long nothing may come; 0: for ever.
    """
    framing = connector.framing
    if not idle_seconds or framing is None or framing.open is None:
        return None
    if connector.arrived:
        return None  # what is there already comes first
    return since + timedelta(seconds=idle_seconds)
