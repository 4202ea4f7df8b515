"""Wait: why a stage does not start now, by kind and in words.

    input       its Runnable wants more than is queued; the words name the input
    frame       as `input`, and an input has an open frame
    timer       as `input`, and it has timers that are not due
    framing     as `input`, and increments that arrived are still being framed
    asking      its author's Runnable has not answered yet
    readers     back-pressure: the queues of all its readers are full
    place       it can run, but runs that waited longer or have a higher priority hold all places
    running     it runs
    retry       its last try failed, and the time of the next one has not come
    paused      an operator paused it or its dataflow
    stopped     it stopped by itself, or its Runnable failed

Absent on purpose: decisions. `cbp.model.schedule.scheduler` decides and explains itself with these
values.

Source: ours; eligibility of frames: CBP (SoCC'10), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cbp.errors import CbpError
from cbp.errors.counts import format_count
from cbp.model.flow.connector import Connector

Kind = Literal[
    "input",
    "frame",
    "timer",
    "framing",
    "asking",
    "readers",
    "place",
    "running",
    "retry",
    "paused",
    "stopped",
]


@dataclass(frozen=True, slots=True)
class Wait:
    """Why one stage does not start.

    Attributes:
        since: When it could first have run, or last started.
        behind: The upstream stage for which it waits; `""` if there is none.
        error: The error that stopped it, or that its cycle does not drain; `None` if neither.
    """

    kind: Kind
    words: str
    since: datetime
    behind: str = ""
    error: CbpError | None = None


def open_frames(connectors: Iterable[Connector]) -> tuple[Kind, str]:
    """Return which inputs have records, but no eligible frame: `framing` or `frame`, and a text.

    Without such an input: `input`, and an empty text.
    """
    kind: Kind = "input"
    words = []
    for connector in connectors:
        if connector.unread or connector.framing is None:
            continue
        if connector.arrived:
            kind, count = "framing", len(connector.arrived)
            what = "increment is" if count == 1 else "increments are"
            words.append(f"`{connector.input}`: {count} {what} being framed")
        elif (open_ := connector.framing.open) is not None:
            kind = "frame" if kind == "input" else kind
            words.append(
                f"`{connector.input}`: frame {open_.framing_key} is open with "
                f"{format_count(open_.records, 'record')}, until a record with another key arrives "
                "or `cbp close` closes the frame"
            )
    return kind, "; ".join(words)
