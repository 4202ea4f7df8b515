"""The commands `cbp sinks`: how far sinks are, and what steers one.

cbp sinks list clicks
cbp sinks show clicks totals
cbp sinks resume clicks totals --rewrite
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from cbp.errors.counts import format_count
from controller.cli.session import AsJson, Cursor, DataflowName, Limit, done, fetch
from controller.terminal import Cell, clock, print_page, print_table, print_text

sinks_app = typer.Typer(
    name="sinks",
    help="Show and control sinks, which publish results outside the service.",
    no_args_is_help=True,
)

SinkName = Annotated[str, typer.Argument(help="Name of the sink.")]
States = Literal["stopped", "retrying", "paused", "behind", "current"]


@sinks_app.command("list")
def list_command(
    context: typer.Context,
    dataflow: DataflowName,
    state: Annotated[States | None, typer.Option(help="Only sinks in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the sinks of a dataflow with their progress."""
    answer = fetch(
        context, json_, "dataflows", dataflow, "sinks", state=state, limit=limit, cursor=cursor
    )
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


@sinks_app.command("show")
def show_command(
    context: typer.Context, dataflow: DataflowName, sink: SinkName, json_: AsJson = False
) -> None:
    """Show a sink: its target, its progress, and its last error."""
    answer = fetch(context, json_, "dataflows", dataflow, "sinks", sink)
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


@sinks_app.command("pause")
def pause_command(
    context: typer.Context, dataflow: DataflowName, sink: SinkName, json_: AsJson = False
) -> None:
    """Pause a sink; unpublished increments are kept until it is resumed."""
    text = f"{dataflow}.{sink} is paused"
    done(context, json_, text, lambda client: client.pause_sink(dataflow, sink))


@sinks_app.command("resume")
def resume_command(
    context: typer.Context,
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
    json_: AsJson = False,
) -> None:
    """Resume a sink that is paused, or that needs a choice after a roll-back."""
    if rewrite and keep:
        raise typer.BadParameter("choose one of --rewrite and --keep")  # noqa: EM101
    undone: Literal["rewrite", "keep"] | None = "rewrite" if rewrite else "keep" if keep else None
    text = f"{dataflow}.{sink} is resumed"
    done(context, json_, text, lambda client: client.resume_sink(dataflow, sink, undone=undone))


@sinks_app.command("retry")
def retry_command(
    context: typer.Context, dataflow: DataflowName, sink: SinkName, json_: AsJson = False
) -> None:
    """Retry a failed sink now, without waiting for the end of its pause."""
    text = f"{dataflow}.{sink} will be retried"
    done(context, json_, text, lambda client: client.retry_sink(dataflow, sink))
