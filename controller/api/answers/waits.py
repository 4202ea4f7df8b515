"""Models of what the stages of a dataflow wait for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from controller.api.answers.schemas import Model


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
    closes: int = Field(description="Closes that are not applied yet.")
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
    ] = Field(description="Empty if it can start at the next tick.")
    words: str
    since: datetime = Field(
        description="When the stage could first have run, or when its last run started."
    )
    behind: str = Field(
        description="The upstream stage for which this one waits; empty if there is none."
    )
    turns: int = Field(description="Epochs in a row without input from outside its cycle.")
    error: dict[str, Any] | None = Field(
        description=(
            "The error that stopped the stage, or that its cycle does not drain, with code and "
            "details."
        )
    )
    inputs: list[InputWaitOut]


class Waits(Model):
    """What the stages of a dataflow wait for; only stages that lead their runs."""

    items: list[WaitOut]
