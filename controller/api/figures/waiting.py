"""Why stages wait: the reason of the last decision, and the present queue of each input.

The decision may be older than the queues that are shown with it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from cbp.model.flow.connector import Connector
from controller.api.answers.schemas import Model
from controller.api.figures.degraded import stage_error
from controller.loop.controller import Controller
from controller.store.base import DataflowRecord, Store


class FrameOut(Model):
    """The open frame of an input, which may still grow."""

    number: int
    framing_key: int | str
    records: int


class InputWaitOut(Model):
    """The records that wait at one input, or are on their way to it."""

    input: str
    flow: str
    unread: int = Field(description="Increments, or frames, that a run may read.")
    records: int
    bytes: int
    kept: int = Field(description="Increments that were read and remain queued.")
    framing: int = Field(description="Increments that are being framed.")
    closes: int = Field(description="Requests to close the open frame that are not applied yet.")
    open_frame: FrameOut | None


class WaitOut(Model):
    """Why a stage does not start now."""

    stage: str
    kind: Literal[
        "",
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
    ] = Field(description="Empty if the stage can start at the next tick.")
    words: str
    since: datetime = Field(
        description="Since when the stage could have run, or when its last run started."
    )
    behind: str = Field(
        description="The upstream stage for which this one waits; empty if there is none."
    )
    turns: int = Field(description="Epochs in a row without input from outside its cycle.")
    error: dict[str, Any] | None = Field(
        description="The error that stopped the stage, or that reports a cycle that does not "
        "drain; with code and details."
    )
    inputs: list[InputWaitOut]


class Waits(Model):
    """What the stages of a dataflow wait for; only stages that lead their runs."""

    items: list[WaitOut]


def waits(controller: Controller, store: Store, record: DataflowRecord) -> Waits:
    """Return why each leading stage of a dataflow does not start."""
    reasons = controller.waits(record.name)
    connectors = store.connectors(record.name)
    wiring = record.document.get("stages", {})
    items = []
    for stage in store.stages(record.name):
        flows = wiring.get(stage.stage, {}).get("inputs", {})
        inputs = [
            _input(connector, str(flows.get(name, f"{stage.stage}.{name}")))
            for name, connector in connectors.get(stage.stage, {}).items()
        ]
        wait = reasons.get(stage.stage)
        items.append(
            WaitOut(
                stage=stage.stage,
                kind="" if wait is None else wait.kind,
                words="" if wait is None else wait.words,
                since=stage.waiting_since if wait is None else wait.since,
                behind="" if wait is None else wait.behind,
                turns=stage.turns,
                error=stage_error(stage, wait),
                inputs=inputs,
            )
        )
    return Waits(items=items)


def _input(connector: Connector, flow: str) -> InputWaitOut:
    framing = connector.framing
    open_ = None if framing is None else framing.open
    return InputWaitOut.of(
        connector,
        flow=flow,
        unread=len(connector.unread),
        kept=sum(queued.read for queued in connector.queue),
        framing=len(connector.arrived),
        closes=len(connector.closes),
        open_frame=None
        if open_ is None
        else FrameOut(number=open_.index, framing_key=open_.framing_key, records=open_.records),
    )
