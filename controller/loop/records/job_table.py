"""A table of jobs: operations of this process that continue in threads of their own.

    begin -> running, step by step -> ended: done, or failed

A job is shown as a frozen value, which is replaced when the job changes. The table ends with the
process; the operation itself records what has to outlive it.

Guaranteed: an ended job no longer changes; only the newest jobs are remembered, and all that have
not ended, except those of deleted dataflows (tests/controller/loop/records/test_job_table.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from cbp.clock import MACHINE

KEPT_MAX = 20
"""Number of jobs of one kind that a process remembers."""


class Shown(Protocol):
    """The public view of a job: a frozen dataclass with its duration as the field `seconds`."""

    @property
    def dataflow(self) -> str:
        """The dataflow that the job concerns."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""


J = TypeVar("J", bound=Shown)


class JobTable(Generic[J]):
    """The newest jobs of one kind; safe to use from several threads.

    Args:
        most: Number of jobs above which ended ones are forgotten; `None` means never.
    """

    def __init__(
        self, monotonic: Callable[[], float] = MACHINE.seconds, most: int | None = KEPT_MAX
    ) -> None:
        self._monotonic, self._most, self._lock = monotonic, most, threading.Lock()
        self._jobs: dict[str, tuple[J, float]] = {}

    def begin(
        self, id_: str, job: J, refuse: Callable[[str, J], None] = lambda id_, job: None
    ) -> J:
        """Add a job; replaces an ended job of that id.

        Args:
            refuse: Called with the id and the value of each other job under way; raises if the
                new job must wait for that job.
        """
        with self._lock:
            if id_ in self._jobs and not self._jobs[id_][0].ended:
                return self._now(id_)
            for other, (known, _) in self._jobs.items():
                if not known.ended:
                    refuse(other, known)
            self._jobs.pop(id_, None)
            self._jobs[id_] = job, self._monotonic()
            if self._most is not None and (surplus := len(self._jobs) - self._most) > 0:
                ended = [one for one, (known, _) in self._jobs.items() if known.ended]
                for old in ended[:surplus]:
                    del self._jobs[old]
        return job

    def get(self, id_: str) -> J | None:
        """Return the present view of a job; `None` if it is not remembered."""
        with self._lock:
            return self._now(id_) if id_ in self._jobs else None

    def all(self) -> list[J]:
        """Return the present views of all jobs, oldest first."""
        with self._lock:
            return [self._now(id_) for id_ in self._jobs]

    def show(self, id_: str, **changed: Any) -> None:
        """Change the view of a job, unless it has ended or is not remembered."""
        with self._lock:
            if id_ in self._jobs and not self._jobs[id_][0].ended:
                self._jobs[id_] = replace(self._now(id_), **changed), self._jobs[id_][1]  # type: ignore[type-var]

    def forget(self, id_: str) -> None:
        """Drop a job, such as one that could not begin."""
        with self._lock:
            self._jobs.pop(id_, None)

    def forget_all(self, dataflow: str) -> None:
        """Drop the jobs of a dataflow that was deleted; one under way is no longer shown."""
        with self._lock:
            kept = self._jobs.items()
            self._jobs = {id_: one for id_, one in kept if one[0].dataflow != dataflow}

    def _now(self, id_: str) -> J:
        job, began = self._jobs[id_]
        return job if job.ended else replace(job, seconds=self._monotonic() - began)  # type: ignore[type-var]
