"""Scrubs: read everything that a dataflow has on disk, and report damage."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from controller.api.answers.schemas import Model
from controller.api.routing.dependencies import ScrubsDep
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.loop.housekeeping.scrubbing import Scrub

routes = router("scrubs")


class DamageOut(Model):
    """One file whose content differs from what was written."""

    code: str
    path: str
    kind: str
    dataflow: str
    table: str
    stage: str
    why: str
    next_step: str


class ScrubOut(Model):
    """Progress or result of a scrub, with the damages found so far."""

    dataflow: str
    status: Literal["never", "running", "whole", "damaged", "failed"]
    ended: bool
    by: Literal["request", "idle work"]
    began_at: datetime | None
    ended_at: datetime | None
    files: int
    bytes: int
    files_total: int = Field(description="Number of files when the scrub began; 0 if unknown.")
    bytes_total: int
    damages: list[DamageOut]
    error: dict[str, object] | None


@routes.post("/dataflows/{name}/scrub", status_code=202, responses=problems(404))
@needs(Scope.OPERATOR)
def start(name: str, scrubs: ScrubsDep) -> ScrubOut:
    """Start to check all files of a dataflow on disk; a running scrub continues."""
    return _shown(scrubs.start(name))


@routes.get("/dataflows/{name}/scrub", responses=problems(404))
@needs(Scope.VIEWER, leader_only=True)
def show(name: str, scrubs: ScrubsDep) -> ScrubOut:
    """Show the progress or the result of the last scrub of a dataflow."""
    return _shown(scrubs.show(name))


def _shown(one: Scrub) -> ScrubOut:
    return ScrubOut.of(
        one,
        damages=[DamageOut(**damage.to_json()) for damage in one.damages],
        error=None if one.error is None else one.error.as_dict(),
    )
