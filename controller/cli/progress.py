"""The progress of a job of the service, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


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
