"""The commands `cbp recover`, `cbp intentions` and `cbp recoveries`.

    cbp recover                      what is open, and what a service that starts would recover
    cbp recover --rebuild            fill a lost database again from the folders beside the tables
    cbp intentions clicks            committed and not yet published, by stage and epoch
    cbp recoveries --dataflow clicks what the last recoveries of the service did

With --rebuild the command leads while it works: stop the services first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn

from cbp.errors.counts import format_count
from controller.cli.options import DataflowName, DryRun, Paging, Period
from controller.cli.progress import new_progress
from controller.cli.session import Session
from controller.settings import Settings
from controller.terminal import Cell, age, clock, print_items, print_page, print_table, print_text

Names = Annotated[list[str] | None, typer.Argument(help="Only these dataflows.")]
Rebuild = Annotated[
    bool, typer.Option("--rebuild", help="Finish unfinished work, and restore missing dataflows.")
]


def recover_command(
    session: Session, dataflows: Names = None, rebuild: Rebuild = False, dry_run: DryRun = False
) -> None:
    """Show work that a crash left unfinished, and dataflows that the database lacks.

    A service that starts finishes such work automatically. With --rebuild, the command finishes it,
    and restores missing dataflows from their folders; stop the service first. Deleted dataflows
    whose tables were kept are restored, too, unless you name the dataflows to restore.
    """
    settings = session.settings
    if dry_run or not rebuild:
        outlooks = _chosen(_outlooks(settings), dataflows)
        session.exit_if_json({"items": [_document(one) for one in outlooks]})
        _print(outlooks)
        return
    from controller.store.database.damage import put_damaged_aside  # loads SQLAlchemy

    with _umask_of(settings):
        moved = put_damaged_aside(settings.database_url)
        if moved is not None and not session.as_json:
            aside, why = moved
            print_text(f"the database was damaged ({why}) and was moved to {aside}", "yellow")
        before, rebuilt = _rebuild(settings, dataflows or (), hidden=session.as_json)
    session.exit_if_json({"rebuilt": rebuilt, "recovered": [_document(one) for one in before]})
    steps = sum(outlook.steps for outlook in before)
    names = ", ".join(rebuilt) or "none was lost"
    indexed = format_count(steps, "record or increment", "records and increments")
    print_text(f"restored dataflows: {names}; indexed again: {indexed}", "green")
    print_text("start the service with: cbp serve")


@contextmanager
def _umask_of(settings: Settings) -> Iterator[None]:
    """Apply the umask of the service, so that other users cannot read the new database."""
    before = os.umask(int(settings.umask, 8))
    try:
        yield
    finally:
        os.umask(before)


def _rebuild(
    settings: Settings, only: Sequence[str], *, hidden: bool
) -> tuple[list[Any], list[str]]:
    """Recover known dataflows and rebuild others; return what was open, and the rebuilt names."""
    # Imported here, as below: `cbp --help` does not wait for the service and the engine to load.
    from cbp.engine.direct import LocalEngine
    from controller.app import Service, configure_logging

    configure_logging(settings.model_copy(update={"log_level": "WARNING"}))
    # No run starts, so no engine with a cluster is needed: the tables are the same for both.
    service = Service(settings, engine=LocalEngine(cache=str(settings.cache)))
    try:
        before = [one for one in _chosen(service.controller.outlook(), only) if one.open]
        with new_progress(MofNCompleteColumn(), hidden=hidden) as progress:
            task = progress.add_task("records", total=sum(one.steps for one in before))
            service.lead()
            rebuilt = service.controller.rebuild(
                only,
                on_dataflow=lambda name: progress.update(task, description=name),
                on_record=lambda record: progress.advance(task),
            )
    finally:
        service.stop()
    return before, rebuilt


def _outlooks(settings: Settings) -> list[Any]:
    """Read what recovery would do; changes nothing."""
    from cbp.engine.storage.files import files_for
    from controller.loop.reading.recovery_preview import preview_recovery
    from controller.store.base import open_unchanged

    url, tables = settings.database_url, settings.tables
    with (
        tempfile.TemporaryDirectory(prefix="cbp-recover-") as scratch,
        closing(open_unchanged(url, Path(scratch))) as store,
    ):
        return preview_recovery(store, files_for(tables), tables.rstrip("/"))


def _chosen(outlooks: Sequence[Any], names: Sequence[str] | None) -> list[Any]:
    return [one for one in outlooks if not names or one.dataflow in names]


def _print(outlooks: Sequence[Any]) -> None:
    rows = [(one.dataflow, "yes" if one.known else "no", _words(one)) for one in outlooks]
    print_table(("dataflow", "in the database", "what recovery does"), rows, empty="no dataflow")
    if any(not one.known for one in outlooks):
        print_text("restore dataflows that the database lacks with: cbp recover --rebuild")


def _words(outlook: Any) -> str:
    if outlook.problem:
        return str(outlook.problem)
    parts = [] if outlook.known else ["register it from the description beside its tables"]
    if outlook.position is not None:
        parts.append(f"begin at position {outlook.position}")
    for stage in outlook.stages:
        if stage.redo:
            first = stage.recorded - stage.redo
            parts.append(f"{stage.stage}: redo epochs {first} to {stage.recorded - 1}")
        if stage.interrupted:
            parts.append(f"{stage.stage}: run epoch {stage.epoch} again")
    parts += [
        f"{source}: index {format_count(n, 'increment')}" for source, n in outlook.arrivals.items()
    ]
    return "; ".join(parts) or "nothing to do"


def _document(outlook: Any) -> dict[str, Any]:
    return {**asdict(outlook), "open": outlook.open}


OfStage = Annotated[str | None, typer.Option("--stage", help="Only runs of this stage.")]
OfDataflow = Annotated[
    str | None, typer.Option("--dataflow", help="Only actions on this dataflow.")
]


def intentions_command(
    session: Session,
    dataflow: DataflowName,
    stage: OfStage = None,
    paging: Paging = Paging(limit=50),
) -> None:
    """List committed runs that are not yet published, so that readers do not see them."""
    answer = session.fetch("dataflows", dataflow, "intentions", stage=stage, **paging)
    columns: dict[str, Cell] = {
        "stage": "stage",
        "epoch": "epoch",
        "committed": (clock, "since"),
        "records": "records",
        "state": (lambda why: why or "waits for the next publication", "because"),
    }
    print_page(answer, columns, empty="nothing is open: the tables show every committed run")


def recoveries_command(
    session: Session, dataflow: OfDataflow = None, period: Period = Period()
) -> None:
    """List the last recoveries of the service and their actions, newest first."""
    answer = session.fetch("recoveries", dataflow=dataflow, **period)
    columns: dict[str, Cell] = {
        "at": (clock, "at"),
        "term": "term",
        "took": (age, "seconds"),
        "what was done": _note,
    }
    print_items(answer["items"], columns, empty="no recovery is recorded")


def _note(note: dict[str, Any]) -> str:
    parts = [f"{one['dataflow']}: {_of_dataflow(one)}" for one in note["dataflows"]]
    parts += [f"removed {path}" for path in note["removed"]]
    return "; ".join(parts) or "nothing was left to do"


def _of_dataflow(one: dict[str, Any]) -> str:
    parts = [f"finished epochs {r['first']} to {r['last']} of {r['stage']}" for r in one["redone"]]
    if one["interrupted"]:
        parts.append(f"{', '.join(one['interrupted'])} run again")
    if one["position"] is not None:
        parts.append(f"began at position {one['position']}")
    if one["generation"] is not None:
        parts.append(f"finished roll-back {one['generation']}")
    if one["problem"]:
        parts.append(one["problem"])
    return ", ".join(parts)
