"""What every job shows of itself, whatever it does."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import Field

from controller.api.answers.problems import problem
from controller.api.answers.schemas import Model, Problem

JobStatus = Literal["running", "done", "failed"]
"""How an amendment's job is."""


class JobOut(Model):
    """A job that is under way, or has ended."""

    id: str
    dataflow: str
    ended: bool
    step: str = Field(description="What it does now.")
    done: int
    total: int = Field(description="How many there are; 0 if it is not known.")
    unit: str = Field(description="What `done` and `total` count, such as `runs`.")
    began_at: datetime
    seconds: float
    error: Problem | None = Field(description="Why it failed, as a refused request says it.")

    @classmethod
    def at(cls, path: str, job: Any, **more: Any) -> Self:
        """Return what a job shows.

        Args:
            path: The job's path, for its error.
            job: The job; its attributes are taken by their names.
            more: What is shown in another form.
        """
        error = None if job.error is None else Problem.model_validate(problem(job.error, path)[1])
        return cls.of(job, error=error, **more)
