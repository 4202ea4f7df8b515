"""The command `cbp top`: what the service does now, refreshed until `q` is pressed.

Each refresh is one request. Without a terminal, or with `--once`, the state is printed once.
"""

from __future__ import annotations

import io
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from cbp.errors import CbpError
from cbp.errors.counts import format_count
from controller.cli.options import complete_dataflows
from controller.cli.session import Session
from controller.terminal import Cell, age, clock, print_items, print_text, text

Every = Annotated[
    float, typer.Option("--every", min=0.2, max=3600, help="Seconds between two refreshes.")
]
Once = Annotated[bool, typer.Option("--once", help="Print the current state once, and exit.")]

Show = Callable[[Text], object]
WaitForKey = Callable[[float], str]

_STOP_KEYS = ("q", "Q", "\x03", "\x04")


def top_command(
    session: Session,
    dataflow: Annotated[
        str | None, typer.Argument(help="Only this dataflow.", autocompletion=complete_dataflows)
    ] = None,
    every: Every = 2.0,
    once: Once = False,
) -> None:
    """Show all dataflows live: stages, queues, runs and newest errors; q ends the display."""
    look = partial(session.fetch, "activity", dataflow=dataflow)
    if session.as_json or once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        print_activity(look(), Console(highlight=False))
        return
    with Live(screen=True, auto_refresh=False) as live, _keys() as wait_for_key:
        show = partial(live.update, refresh=True)
        refresh(look, show, wait_for_key, every=every, size=lambda: live.console.size)


def refresh(
    look: Callable[[], Any],
    show: Show,
    wait_for_key: WaitForKey,
    *,
    every: float,
    size: Callable[[], tuple[int, int]],
) -> None:
    """Show the activity again and again, until a key that stops is pressed.

    Args:
        look: Returns the activity; its errors are shown, and it is called again.
        wait_for_key: Waits for this many seconds; returns the pressed key, or `""`.
        size: Returns columns and lines of the terminal.
    """
    key = ""
    while key not in _STOP_KEYS:
        width, height = size()
        try:
            show(draw(look(), width, height))
        except CbpError as error:
            show(text(f"{error.message}\n\nretrying every {every:g} s; q quits", "red"))
        key = wait_for_key(every)


def draw(answer: Mapping[str, Any], width: int, height: int) -> Text:
    """Return the picture of an activity, not larger than the terminal."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=True, highlight=False, legacy_windows=False
    )
    print_activity(answer, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    if len(lines) >= height:
        lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more lines"]
    drawn = Text.from_ansi("\n".join([*lines, "q quits"]))
    drawn.no_wrap = True
    return drawn


def print_activity(answer: Mapping[str, Any], console: Console) -> None:
    """Print an activity: dataflows, their stages, runs under way, newest errors."""
    print_text(f"cbp top, {clock(answer['at'])}", "dim", console=console)
    stages = [
        {**stage, "summary": one["summary"]}
        for one in answer["dataflows"]
        for stage in one["stages"]
    ]
    columns: dict[str, Cell] = {
        "stage": lambda one: f"{one['summary']['name']}.{one['name']}",
        "state": _state,
        "epoch": "epoch",
        "waits": "queued_increments",
        "records": "queued_records",
        "lag": (age, "lag_seconds"),
        "failures": "failures",
    }
    optional = ("failures", "records", "epoch")
    print_items(stages, columns, empty="no dataflow yet", optional=optional, console=console)
    if answer["left_out"]:
        print_text(f"and {format_count(answer['left_out'], 'dataflow')} more", console=console)
    for one in answer["dataflows"]:
        if one["summary"]["problem"]:
            said = f"{one['summary']['name']}: {one['summary']['problem']}"
            print_text(said, "red", console=console)
    print_text("", console=console)
    columns = {
        "run": "id",
        "stage": lambda run: f"{run['dataflow']}.{'+'.join(run['stages'])}",
        "epoch": "epoch",
        "since": (clock, "started_at"),
        "phase": (_phase, "phases"),
        "reads": lambda run: sum(map(len, run["read"].values())),
    }
    optional = ("reads", "run", "epoch")
    running = answer["running"]
    print_items(running, columns, empty="nothing runs", optional=optional, console=console)
    print_text("", console=console)
    columns = {
        "failed at": (clock, "at"),
        "stage": lambda one: f"{one['dataflow']}.{one['stage']}",
        "epoch": "epoch",
        "error": (lambda error: (error or {}).get("error_code", ""), "error"),
        "message": (lambda error: (error or {}).get("message", ""), "error"),
    }
    errors, none = answer["errors"], "no run has failed"
    print_items(errors, columns, empty=none, optional=("message", "epoch"), console=console)


def _state(stage: Mapping[str, Any]) -> str:
    desired = str(stage["summary"]["desired"])
    return str(stage["state"]) if desired in ("running", "draining") else desired


def _phase(phases: Sequence[Mapping[str, Any]]) -> str:
    """Return the phase of a run, and its number."""
    return f"{phases[-1]['name']} ({len(phases)})" if phases else "-"


@contextmanager
def _keys() -> Iterator[WaitForKey]:
    """Yield a function that waits for a key; the terminal does not echo keys until the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def wait_for_key(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if ready else ""

    try:
        yield wait_for_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
