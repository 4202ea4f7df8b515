"""The progress of a job of the service, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cbp.client.errors import problem_of
from cbp.clock import Clock
from controller.client.service_client import ServiceClient

POLL_SECONDS = 0.2
"""Pause between two looks at a job."""


@contextmanager
def progress_bar(*, hidden: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Give a function that shows a job: its `step`, and `done` of `total`."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    disable = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=disable, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def show(job: Mapping[str, Any]) -> None:
            total = job["total"] or None
            progress.update(bar, description=job["step"], completed=job["done"], total=total)

        yield show


def follow_rebuild(
    service: ServiceClient, dataflow: str, rebuild: str, *, clock: Clock, hidden: bool
) -> dict[str, Any]:
    """Show how far a rebuild beside is, until it is ready, or has ended; raises as `follow_job`."""
    return follow_job(
        service,
        *("dataflows", dataflow, "rebuilds", rebuild),
        clock=clock,
        hidden=hidden,
        busy=lambda one: not one["ended"] and one["status"] in ("building", "swapping"),
    )


def follow_job(
    service: ServiceClient,
    *path: str,
    clock: Clock,
    hidden: bool,
    busy: Callable[[Mapping[str, Any]], bool] = lambda job: not job["ended"],
) -> dict[str, Any]:
    """Show how far a job is until it has ended; it goes on if this command is interrupted.

    Args:
        path: The job's.
        clock: Waits between two looks.
        hidden: Whether to show nothing.
        busy: Whether to look again.

    Raises:
        ServiceProblemError: The job failed.
    """
    with progress_bar(hidden=hidden) as show:
        while busy(job := dict(service.get(*path))):
            show(job)
            clock.wait(POLL_SECONDS)
    if job["error"] is not None:
        raise problem_of(job["error"], job["error"]["status"])
    return job
