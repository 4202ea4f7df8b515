"""Spark or a worker: the lane of a job, that is, which processes carry out its tasks; pure.

    estimated seconds --> start of a Spark job > a tenth of them? --yes--> resident workers
                               '--no--> a Spark job

A run has one job per phase, so it can take several lanes. `lanes_of` reads them from its figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

JOB_START_SECONDS = 0.1
"""Overhead of a job of a warm local Spark in seconds: its start, its end, and all commits.

Measured on two cores: 100,000 records take 0.38 s without a job and 0.49 s with one.
"""

START_SHARE = 0.1
"""A run bypasses Spark if the start of a job would take more than this share of the run."""

SECONDS_PER_RECORD = {"groupwise": 5e-6, "arrow": 2e-6, "run": 2e-6}
"""Processor seconds per record in one task, by form; measured as `JOB_START_SECONDS`."""

SECONDS_PER_BYTE = 20e-9
"""Seconds to read and decode a byte of an increment's files; every task reads all files."""

_JOBS = "jobs_"


class Lane(StrEnum):
    """The processes that carry out the tasks of a job."""

    LOCAL = "local"
    """Without Spark (`engine=local`): a worker process of the service, or its own."""
    RESIDENT = "resident"
    """Python processes beside a local Spark, without a Spark job."""
    SPARK = "spark"
    """A Spark job of the engine's own tasks, shuffled or not."""
    SQL = "sql"
    """A Spark job that runs the author's SELECTs."""


@dataclass(frozen=True, slots=True)
class Bypass:
    """Which jobs run without Spark, on resident workers.

    Attributes:
        tasks_max: Tasks that resident workers do at the same time; 0 means that every job is a
            Spark job.
        job_start_seconds: Overhead of a Spark job besides its tasks; 0 means that every job is a
            Spark job.
    """

    tasks_max: int
    job_start_seconds: float = JOB_START_SECONDS

    @property
    def seconds_max(self) -> float:
        """The estimated seconds of work below which a job bypasses Spark."""
        return self.job_start_seconds * (1 / START_SHARE - 1)

    def takes(self, tasks: int, seconds: float) -> bool:
        """Return whether a job that needs no shuffle bypasses Spark."""
        return 0 < tasks <= self.tasks_max and seconds < self.seconds_max

    def records_max(self, form: str, tasks: int) -> int:
        """Return the number of small records up to which a job with `tasks` bypasses Spark."""
        return int(self.seconds_max * tasks / _per_record(form))


def work_seconds(records: int, size: int, *, tasks: int, form: str) -> float:
    """Estimate how many seconds a job's tasks work, without the start of the job.

    `records` are those that it reads, or the groups that it calls if these are more; each task
    reads files of `size` bytes.
    """
    return records * _per_record(form) / max(1, tasks) + size * SECONDS_PER_BYTE


def lane_figure(lane: Lane) -> str:
    """Return the name of the figure that counts a run's jobs of a lane."""
    return f"{_JOBS}{lane}"


def lanes_of(figures: Mapping[str, float]) -> tuple[Lane, ...]:
    """Return the lanes that a run's jobs took; empty if there were none, or they are unknown."""
    return tuple(lane for lane in Lane if figures.get(lane_figure(lane)))


def _per_record(form: str) -> float:
    return SECONDS_PER_RECORD.get(form, SECONDS_PER_RECORD["groupwise"])
