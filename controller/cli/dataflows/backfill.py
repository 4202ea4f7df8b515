"""The command `cbp backfill`: let a stage read all retained input, from the first increment on.

cbp backfill clicks by_site --dry-run
cbp backfill clicks by_site --keep report

For a stage that was added to a running dataflow and began with the next increment. A backfill is a
new version of the same document that builds the stage's state again. So it has all guarantees of a
version change, and it is refused if some of the stage's input was removed.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.dataflows.register import print_change
from controller.cli.options import DataflowName, DryRun
from controller.cli.records.applied import WaitForStages, wait_until_applied
from controller.cli.session import Session
from controller.terminal import bytes_text, print_text

Stages = Annotated[list[str], typer.Argument(metavar="STAGE...", help="Stages to rebuild.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="A downstream stage that is not rebuilt: it reads the repeated output as new input.",
    ),
]


def backfill_command(
    session: Session,
    dataflow: DataflowName,
    stages: Stages,
    keep: Keep = None,
    dry_run: DryRun = False,
    wait: WaitForStages = False,
) -> None:
    """Rebuild the state of stages from all retained input, and continue from there.

    A rebuilt stage writes its output again, and its readers read this output in addition to the
    earlier one. So name each reader, too: as a further STAGE to rebuild it as well, or with
    --keep to keep its state. The command is refused if some of the input was removed.
    """
    registered = session.client.dataflow(dataflow)
    answer = session.client.change(
        dataflow,
        registered.document,
        rebuild=stages,
        keep=keep or (),
        expected_version=registered.summary.version,  # a newer one is not overwritten
        dry_run=dry_run,
    )
    if wait and answer["done"]:
        wait_until_applied(session, dataflow)
    session.exit_if_json(answer, status=int(bool(answer["refused"])))
    print_change(answer, dry_run="--dry-run")
    for line in _read_again(answer, set(stages)):
        print_text(line)
    if answer["refused"]:
        raise typer.Exit(1)


def _read_again(answer: dict[str, Any], stages: set[str]) -> list[str]:
    return [
        f"{queue['stage']}.{queue['input']} reads "
        f"{format_count(queue['queued_increments'], 'increment')} again: "
        f"{format_count(queue['queued_records'], 'record')}, {bytes_text(queue['queued_bytes'])}"
        for queue in answer["queues"]
        if queue["stage"] in stages and queue["queued_increments"]
    ]
