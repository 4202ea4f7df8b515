"""The common fields of every kind of job."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from controller.api.answers.problems import problem
from controller.api.answers.schemas import Model, Problem

JobStatus = Literal["running", "done", "failed"]
"""The status of a job that changes a dataflow's tables."""


class JobOut(Model):
    """A job that is under way, or has ended."""

    id: str
    dataflow: str
    ended: bool
    step: str = Field(description="The current step of the job.")
    done: int
    total: int = Field(description="Number of units in all; 0 if unknown.")
    unit: str = Field(description="What `done` and `total` count, such as `runs`.")
    began_at: datetime
    seconds: float
    error: Problem | None = Field(
        description="Why the job failed, in the same form as the answer to a refused request."
    )

    @classmethod
    def at(cls, path: str, job: Any, **more: Any) -> Self:
        """Return the answer for a job, from its attributes and `more`; its error names `path`."""
        error = None if job.error is None else Problem.model_validate(problem(job.error, path)[1])
        return cls.of(job, error=error, **more)
