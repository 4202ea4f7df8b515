"""The progress of a job of the service, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


def new_progress(*columns: ProgressColumn, hidden: bool) -> Progress:
    """Return a display of tasks on stderr: their names, bars and these columns."""
    console = Console(stderr=True)
    disable = hidden or not console.is_terminal
    shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns)
    return Progress(*shown, console=console, disable=disable, transient=True)


@contextmanager
def progress_bar(*, hidden: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that shows the progress of a job: its `step`, and `done` of `total`."""
    with new_progress(MofNCompleteColumn(), TimeElapsedColumn(), hidden=hidden) as progress:
        bar = progress.add_task("", total=None)

        def show(job: Mapping[str, Any]) -> None:
            total = job["total"] or None
            progress.update(bar, description=job["step"], completed=job["done"], total=total)

        yield show
