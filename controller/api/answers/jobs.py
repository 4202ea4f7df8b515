"""What every job shows of itself, whatever it does."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from controller.api.answers.problems import problem
from controller.api.answers.schemas import Model, Problem
from controller.loop.operations.jobs import Job

__all__ = ["JobOut", "shown_job"]


class JobOut(Model):
    """A job that is under way, or has ended."""

    id: str
    dataflow: str
    status: Literal["running", "done", "failed"]
    ended: bool
    step: str = Field(description="What it does now.")
    done: int
    total: int = Field(description="How many there are; 0 if it is not known.")
    unit: str = Field(description="What `done` and `total` count, such as `runs`.")
    began_at: datetime
    seconds: float
    error: Problem | None = Field(description="Why it failed, as a request would be refused.")


def shown_job(one: Job[Any], path: str) -> dict[str, Any]:
    """Return the fields of `JobOut`; the path is that of the job, for its error."""
    return {
        "id": one.id,
        "dataflow": one.dataflow,
        "status": one.status,
        "ended": one.ended,
        "step": one.step,
        "done": one.done,
        "total": one.total,
        "unit": one.unit,
        "began_at": one.began_at,
        "seconds": one.seconds,
        "error": None if one.error is None else Problem.model_validate(problem(one.error, path)[1]),
    }
