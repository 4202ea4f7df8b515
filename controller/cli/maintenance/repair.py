"""The commands `cbp repair` and `cbp release`: for a table to which other programs write.

cbp repair TABLE     undo what they wrote, and restore the fence
cbp release TABLE    leave the table to them, for good
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.cli.options import Yes
from controller.cli.session import Session
from controller.terminal import print_text

Table = Annotated[Path, typer.Argument(help="Folder of the table.")]


def repair_command(session: Session, table: Table, yes: Yes = False) -> None:
    """Undo the writes of other programs to a table, and restore its fence.

    Their versions stay readable in the table's history. Run `cbp resume` afterwards.
    """
    if not (yes or session.as_json):
        _ask(f"Readers of {table} will no longer see what other programs wrote to it.")
    # Imported here, as below: other commands do not wait for the engine to load.
    from cbp.engine.commit.change_feed import feed_of_repair
    from cbp.engine.delta.repair import repair
    from cbp.engine.storage.files import files_for

    path, now_ms = str(table.absolute()), session.clock.now_ms()
    files = files_for(path)
    repaired = repair(path, files=files, now_ms=now_ms, feed=feed_of_repair(path, files))
    names = ("version", "operation", "engine")
    undone = [{name: getattr(one, name) for name in names} for one in repaired.undone]
    document = {"version": repaired.version, "shows": repaired.shows, "undone": undone}
    session.exit_if_json({"repaired": str(table), **document})
    for entry in undone:
        print_text(f"undone: version {entry['version']}, {entry['operation']} by {entry['engine']}")
    print_text(
        f"{table} shows version {repaired.shows} again, as version {repaired.version}", "green"
    )


def release_command(session: Session, table: Table, yes: Yes = False) -> None:
    """Let other programs write to a table; the service never writes to it again.

    Runs that are recorded and not published yet are published first.
    """
    if not (yes or session.as_json):
        _ask(f"From then on, only other programs write to {table}; the service never does again.")
    from cbp.engine.commit.release import release_table
    from cbp.engine.storage.files import files_for

    path = str(table.absolute())
    version = release_table(path, files=files_for(path), now_ms=session.clock.now_ms())
    text = f"{table} is released for other programs from version {version} on"
    session.report({"released": str(table), "version": version}, text)


def _ask(consequence: str) -> None:
    typer.confirm(f"{consequence} Continue?", abort=True, err=True)
