"""The commands `cbp sinks`: the progress of sinks, and commands that control one.

cbp sinks list clicks
cbp sinks show clicks totals
cbp sinks resume clicks totals --rewrite
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from cbp.errors.counts import format_count
from controller.cli.options import DataflowName, Paging
from controller.cli.session import Session
from controller.terminal import Cell, clock, print_page, print_table, print_text

SinkName = Annotated[str, typer.Argument(help="Name of the sink.")]
States = Literal["stopped", "retrying", "paused", "behind", "current"]


def list_command(
    session: Session,
    dataflow: DataflowName,
    state: Annotated[States | None, typer.Option(help="Only sinks in this state.")] = None,
    paging: Paging = Paging(limit=100),
) -> None:
    """List the sinks of a dataflow with their progress."""
    answer = session.fetch("dataflows", dataflow, "sinks", state=state, **paging)
    columns: dict[str, Cell] = {
        "sink": "name",
        **{name: name for name in ("to", "flow", "state")},
        "newest published": (lambda following: following - 1 if following else "-", "next"),
        "waiting": "waiting",
        "what is wrong": (lambda error: (error or {}).get("message", ""), "error"),
    }
    print_page(answer, columns, empty="no sinks; a document declares them under `sinks:`")
    for one in answer["items"]:
        _print_left_out(one)


def show_command(session: Session, dataflow: DataflowName, sink: SinkName) -> None:
    """Show a sink: its target, its progress, and its last error."""
    answer = session.fetch("dataflows", dataflow, "sinks", sink)
    error = answer["error"] or {}
    rows = [
        ("publishes", f"{answer['flow']} to {answer['to']} {answer['target']}"),
        ("state", answer["state"]),
        (
            "published",
            f"{format_count(answer['increments'], 'increment')}, "
            f"{format_count(answer['records'], 'record')}",
        ),
        ("refused and skipped", format_count(answer["dead"], "delivery", "deliveries")),
        ("next increment", answer["next"]),
        ("waiting", format_count(answer["waiting"], "increment")),
        ("last published", clock(answer["published_at"])),
        ("what is wrong", f"{error['error_code']}: {error['message']}" if error else "nothing"),
        ("next try", clock(answer["retry_at"])),
    ]
    print_table(("", ""), rows, empty="")
    _print_left_out(answer)


def _print_left_out(sink: dict[str, Any]) -> None:
    """Print which increments of its flow a sink never publishes; a mirror has the whole view."""
    first = sink["first"]
    if not sink["begun"] or not first or sink["mirrors_view"]:
        return
    before = format_count(first, "increment before it is", "increments before it are")
    print_text(
        f"{sink['name']} begins at increment {first:,}; the {before} not published, because of "
        "`begin: now` in the document, or because earlier increments were no longer kept, as after "
        "a rebuild",
        "yellow",
    )


def pause_command(session: Session, dataflow: DataflowName, sink: SinkName) -> None:
    """Pause a sink; unpublished increments are kept until it is resumed."""
    session.report(session.client.pause_sink(dataflow, sink), f"{dataflow}.{sink} is paused")


def resume_command(
    session: Session,
    dataflow: DataflowName,
    sink: SinkName,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite",
            help=(
                "After a roll-back: remove the undone records from the destination, and publish "
                "their replacements."
            ),
        ),
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="After a roll-back: leave the undone records in the destination, and continue.",
        ),
    ] = False,
) -> None:
    """Resume a sink that is paused, or that needs a choice after a roll-back."""
    if rewrite and keep:
        raise typer.BadParameter("choose one of --rewrite and --keep")  # noqa: EM101
    undone: Literal["rewrite", "keep"] | None = "rewrite" if rewrite else "keep" if keep else None
    resumed = session.client.resume_sink(dataflow, sink, undone=undone)
    session.report(resumed, f"{dataflow}.{sink} is resumed")


def retry_command(session: Session, dataflow: DataflowName, sink: SinkName) -> None:
    """Retry a failed sink now, and not only when its next attempt is due."""
    session.report(session.client.retry_sink(dataflow, sink), f"{dataflow}.{sink} will be retried")
