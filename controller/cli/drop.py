"""The command `cbp drop`: hand files to a source.

On the service's own machine files are copied into the drop folder as a producer
should: a hidden part, synced, then linked to its name in one step, so that nobody
sees half of it. With `--upload` they go over REST.

Guaranteed: a file that waits under the same name is never replaced
(tests/controller/cli/test_drop.py).
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from cbp.errors import DiskFullError, NotFoundError
from controller.cli.applied import Applied
from controller.cli.client import ServiceClient
from controller.cli.errors import FileUnreadableError
from controller.cli.output import print_json, print_text
from controller.cli.session import AsJson, DataflowName, Session, session
from controller.settings import Settings

__all__ = ["copy_into", "drop_command"]

CHUNK_BYTES = 1 << 20

SourceName = Annotated[str, typer.Argument(help="Name of the source.", show_default=False)]
Files = Annotated[list[Path], typer.Argument(help="Files to hand over.", show_default=False)]
Upload = Annotated[bool, typer.Option("--upload", help="Send them over REST.")]

Wait = Annotated[
    bool,
    typer.Option("--wait", help="Return once all stages have applied them."),
]

Advance = Callable[[int], None]


def drop_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    files: Files,
    upload: Upload = False,
    wait: Wait = False,
    json_: AsJson = False,
) -> None:
    """Hand files to a source; each becomes an increment, or goes to quarantine."""
    sizes = [_size(file) for file in files]
    applied = Applied(session(context), dataflow, source) if wait else None
    with _progress(hidden=json_) as progress:
        task = progress.add_task("files", total=sum(sizes))
        taken = _hand_over(
            session(context), (dataflow, source), files, upload, lambda n: progress.advance(task, n)
        )
    if applied is not None:
        taken = applied.wait([item["path"] for item in taken], hidden=json_)
    if json_:
        print_json({"items": taken})
        return
    for file, item in zip(files, taken, strict=True):
        print_text(f"{file} -> {item['path']}{_became(item)}")


def _became(item: Mapping[str, Any]) -> str:
    if item.get("status") == "duplicate":
        return ", known already: what is in it was applied before"
    index = item.get("index")
    return "" if index is None else f", increment {index} of {item['source']}, applied"


def copy_into(folder: Path, file: Path, advance: Advance = lambda _: None) -> Path:
    """Copy a file into a drop folder; durable and whole once this returns.

    Returns:
        Where it lies: its own name, or one with a number where that is taken.

    Raises:
        FileUnreadableError: If the file cannot be read.
        DiskFullError: If there is no space; nothing is left behind.
    """
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as target:
            for chunk in _chunks(file, advance):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        placed = _link(part, folder, file.name)
        _sync(folder)
    except OSError as error:
        if DiskFullError.is_told_by(error):
            raise DiskFullError(str(folder)) from error
        raise FileUnreadableError(folder, error.strerror or str(error)) from error
    finally:
        part.unlink(missing_ok=True)
    return placed


def _hand_over(
    given: Session,
    target: tuple[str, str],
    files: list[Path],
    upload: bool,
    advance: Advance,
) -> list[dict[str, Any]]:
    if upload:
        with given.connect() as service:
            return [_upload(service, target, file, advance) for file in files]
    folder = _incoming(given.settings, *target)
    placed = [copy_into(folder, file, advance) for file in files]
    return [{"path": path.name, "folder": str(folder), "status": "dropped"} for path in placed]


def _upload(
    service: ServiceClient, target: tuple[str, str], file: Path, advance: Advance
) -> dict[str, Any]:
    dataflow, source = target
    answer = service.post(
        "dataflows",
        dataflow,
        "sources",
        source,
        "files",
        content=_chunks(file, advance),
        content_type="application/octet-stream",
        query={"name": file.name},
    )
    assert isinstance(answer, dict)
    return answer


def _incoming(settings: Settings, dataflow: str, source: str) -> Path:
    """Return the drop folder of a source on this machine."""
    folder = settings.drop_root / dataflow / source / "incoming"
    plain = all(name not in ("", ".", "..") and "/" not in name for name in (dataflow, source))
    if not plain or not folder.is_dir():
        here = f"{dataflow}.{source} in {settings.drop_root}"
        hint = "register the dataflow first, or use --upload if the service is elsewhere"
        raise NotFoundError(kind="drop folder", name=f"{here}; {hint}")
    return folder


def _link(part: Path, folder: Path, name: str) -> Path:
    """Give a finished part its name; `link` fails where `rename` would replace."""
    for number in range(1, 10_000):
        stem, dot, suffix = name.partition(".")
        placed = folder / (name if number == 1 else f"{stem}-{number}{dot}{suffix}")
        try:
            os.link(part, placed)
        except FileExistsError:
            continue
        return placed
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _chunks(file: Path, advance: Advance) -> Iterator[bytes]:
    try:
        with file.open("rb") as content:
            while chunk := content.read(CHUNK_BYTES):
                yield chunk
                advance(len(chunk))
    except OSError as error:
        raise FileUnreadableError(file, error.strerror or str(error)) from error


def _size(file: Path) -> int:
    if file.exists() and not file.is_file():
        raise FileUnreadableError(file, "it is no regular file")
    try:
        return file.stat().st_size
    except OSError as error:
        raise FileUnreadableError(file, error.strerror or str(error)) from error


def _progress(*, hidden: bool) -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    disable = hidden or not console.is_terminal
    return Progress(*columns, console=console, disable=disable, transient=True)
