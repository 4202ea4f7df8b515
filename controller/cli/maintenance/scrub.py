"""The command `cbp scrub`: read everything on disk, and report what is damaged.

    cbp scrub                     all dataflows, as fast as the disk allows
    cbp scrub clicks --rate 20    one of them, 20 MB a second

If a service runs here, it reads its dataflows itself, and shows its findings from then on.
Otherwise, and with `--rate`, this command reads the folders and changes nothing. A service also
scrubs automatically, but slowly (`scrub_days`). `cbp help damage` explains each damage and its
repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cbp.errors import CbpError, NotFoundError
from cbp.errors.counts import format_count
from controller.cli.errors import DamagesFoundError
from controller.cli.session import Session
from controller.client.service_client import FileUnreadableError
from controller.settings import Settings
from controller.terminal import bytes_text, print_table, print_text

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[DATAFLOW]...", help="Names of the dataflows to read; by default all."),
]
Rate = Annotated[
    float, typer.Option(min=0, help="Read at most this many MB a second; 0 means no limit.")
]


@dataclass(slots=True)
class ScrubTotals:
    """The amount that was read, and the damaged files."""

    files: int = 0
    bytes: int = 0
    damages: list[dict[str, Any]] = field(default_factory=list)


def scrub_command(session: Session, dataflows: Names = None, rate: Rate = 0.0) -> None:
    """Read all files on disk; list damaged ones, and how to repair them."""
    settings, clock = session.settings, session.clock
    console = Console(stderr=True)
    result = ScrubTotals()
    with console.status("reading") as status:
        done = set() if rate else _read_by_service(session, dataflows or (), result)
        here = [name for name in dataflows or folders(settings) if name not in done]
        began = clock.seconds()
        for looked in look(settings, here) if here else ():
            result.files += 1
            result.bytes += looked.bytes
            if looked.damage is not None:
                result.damages.append(looked.damage.to_json())
            status.update(
                f"{format_count(result.files, 'file')}, {bytes_text(result.bytes)}: {looked.path}"
            )
            if rate:
                due = result.bytes / (rate * 1e6) - (clock.seconds() - began)
                clock.wait(max(0.0, due))
    answer = {"files": result.files, "bytes": result.bytes, "damages": result.damages}
    session.exit_if_json(answer, status=int(bool(result.damages)))
    if result.damages:
        rows = [(one["code"], one["path"], one["why"], one["next_step"]) for one in result.damages]
        print_table(("code", "file", "what is wrong", "what to do"), rows, empty="")
        raise DamagesFoundError(len(rows))
    read = f"{format_count(result.files, 'file')}, {bytes_text(result.bytes)}"
    print_text(f"{read}: nothing is damaged", "green")


def _read_by_service(session: Session, names: Sequence[str], totals: ScrubTotals) -> set[str]:
    """Let a running service read its own dataflows among these; return those that it read."""
    done: set[str] = set()
    try:
        if session.rest.get("settings")["tables"] != session.settings.tables:
            return done  # a service with other folders
        for name in (one.name for one in session.client.dataflows()):
            if names and name not in names:
                continue
            answer = session.client.scrub(name)
            if answer["status"] in ("whole", "damaged"):
                totals.files += answer["files"]
                totals.bytes += answer["bytes"]
                totals.damages += answer["damages"]
                done.add(name)
    except CbpError:  # no service answers, or it cannot scrub: the folders are read here
        pass
    return done


def look(
    settings: Settings, names: Sequence[str], *, going_on: Callable[[], bool] = lambda: True
) -> Iterator[Any]:
    """Yield the result for every file of some dataflows, or of all if no name is given.

    Args:
        going_on: Called before each result is yielded; if it returns false, that result is
            dropped and the reading ends.

    Raises `NotFoundError`, `FileUnreadableError`.
    """
    # Imported here: `cbp --help` does not wait for the engine to load.
    from cbp.engine.read.scrub import scrub
    from cbp.engine.storage.files import files_for

    files = files_for(settings.tables)
    there = folders(settings)
    for name in sorted(set(names) - there.keys()):
        raise NotFoundError(kind="folder of the dataflow", name=name)
    for name, folder in there.items():
        if not names or name in names:
            for looked in scrub(folder, files):
                if not going_on():
                    return
                yield looked


def folders(settings: Settings) -> dict[str, str]:
    """Return the folders of all dataflows, by name. Raises `FileUnreadableError`."""
    from cbp.engine.storage.files import local_path

    if "://" in settings.tables:
        return {}
    root = Path(local_path(settings.tables))
    try:
        shown = (path for path in sorted(root.iterdir()) if not path.name.startswith("."))
        return {path.name: str(path) for path in shown if (path / "_description").is_dir()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise FileUnreadableError(error.filename or root, error.strerror or str(error)) from error
