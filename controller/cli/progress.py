"""The progress of a job of the service, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from cbp.client.answers import Answer


def new_progress(*columns: ProgressColumn, hidden: bool) -> Progress:
    """Return a display of tasks on stderr: their names, bars and these columns."""
    console = Console(stderr=True)
    disable = hidden or not console.is_terminal
    shown = (TextColumn("{task.description}", markup=False), BarColumn(), *columns)
    return Progress(*shown, console=console, disable=disable, transient=True)


@contextmanager
def progress_bar(*, hidden: bool) -> Iterator[Callable[[Answer], None]]:
    """Yield a function that shows the progress of a job: its `step`, and `done` of `total`."""
    with new_progress(MofNCompleteColumn(), TimeElapsedColumn(), hidden=hidden) as progress:
        bar = progress.add_task("", total=None)

        def show(job: Answer) -> None:
            step, done, total = (job.answer[name] for name in ("step", "done", "total"))
            progress.update(bar, description=step, completed=done, total=total or None)

        yield show
