"""The commands `cbp drop`, `cbp replace` and `cbp retract`: send files to a source; correct them.

On the service's own machine files are copied into the drop folder; with `--upload` they are sent
over REST. Either way the answer says at once for each file whether it is new or repeats an earlier
one. If no service answers, it says that this is not known yet.

Exit status of `cbp drop`: 0, all are taken as data; 3, some repeat earlier files and are not
applied again; 1, an error, such as a file that goes to quarantine.

cbp replace clicks urls tuesday.jsonl right.jsonl --dry-run
cbp replace clicks urls tuesday.jsonl right.jsonl --reason "a bad clock"
cbp retract clicks urls tuesday.jsonl --reason "a test"
"""

from __future__ import annotations

import getpass
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import DownloadColumn, TransferSpeedColumn

from cbp.client import Client, Replaced
from cbp.client.errors import StagesStoppedError
from cbp.errors import CbpError, NotFoundError
from cbp.errors.counts import format_count
from controller.access.errors import ScopeTooLowError
from controller.access.scopes import Scope
from controller.cli.errors import FilesRefusedError
from controller.cli.maintenance.gc import print_input_reach
from controller.cli.options import (
    DataflowName,
    DryRun,
    OptionGroup,
    Reason,
    SourceName,
    require_reason,
)
from controller.cli.progress import new_progress, progress_bar
from controller.cli.records.applied import Applied
from controller.cli.records.set_aside import print_set_aside
from controller.cli.records.sources import reason_text
from controller.cli.session import Session
from controller.client.drop_folder import Advance, copy_into
from controller.client.service_client import FileUnreadableError
from controller.ingest.errors import DropFolderError
from controller.settings import Settings
from controller.terminal import print_json, print_text

KNOWN_STATUS = 3
"""Exit status if some file repeats an earlier one."""

Files = Annotated[list[Path], typer.Argument(help="Files to drop.")]
Upload = Annotated[
    bool, typer.Option("--upload", help="Send the files over REST instead of copying them.")
]

Wait = Annotated[
    bool, typer.Option("--wait", help="Return once all stages have applied the files.")
]

Target = tuple[str, str]


def drop_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    files: Files,
    upload: Upload = False,
    wait: Wait = False,
) -> None:
    """Send files to a source; each becomes an increment, or goes to quarantine.

    A file with the name and content of an accepted file is a retry: it is not applied again,
    and the exit status is 3.
    """
    sizes = [_size(file) for file in files]
    applied = Applied(session, dataflow, source) if wait else None
    with new_progress(DownloadColumn(), TransferSpeedColumn(), hidden=session.as_json) as progress:
        task = progress.add_task("files", total=sum(sizes))
        advance = partial(progress.advance, task)
        items = _send(session, (dataflow, source), files, upload, advance)
    if applied is not None:
        items = applied.wait_for_claims(items)
        _wait_for_stages(session, applied, items)
    refused = {
        item["path"]: _why(item, whole=True) for item in items if item["status"] == "quarantined"
    }
    if not session.as_json:
        for file, item in zip(files, items, strict=True):
            print_text(f"{file} -> {item['path']}{_became(item, source)}")
        if applied is not None:
            print_set_aside(applied.summary())
    elif not (refused and wait):
        print_json({"items": items})
    if refused and (wait or not session.as_json):
        raise FilesRefusedError(dataflow, refused, items)
    if refused:
        raise typer.Exit(1)
    if any(item["status"] in ("duplicate", "waits") for item in items):
        raise typer.Exit(KNOWN_STATUS)


def _wait_for_stages(
    session: Session, applied: Applied, items: Sequence[Mapping[str, Any]]
) -> None:
    """Wait until the accepted files are applied; if stages stop, print the refused files first."""
    refused = [item for item in items if item["status"] == "quarantined"]
    if len(refused) == len(items):
        return
    try:
        applied.wait_for_stages()
    except StagesStoppedError:
        for item in () if session.as_json else refused:
            print_text(f"{item['path']}, quarantined: {_why(item)}")
        raise


def _became(item: Mapping[str, Any], source: str) -> str:
    """Return the state of a file in words."""
    same = item.get("same_as") or {}
    at = f" (increment {same['index']} of {source})" if same.get("index") is not None else ""
    earlier = f"the content of {same.get('file')}{at}"
    if item["status"] == "waits":
        return ", not copied: the same file is already waiting there"
    if item["status"] == "duplicate" and same.get("by") == "content":
        return f", duplicate: it has {earlier}, and its source skips duplicates"
    if item["status"] == "duplicate":
        return f", duplicate: a file of this name and content arrived before{at}; not applied again"
    if item["status"] == "quarantined":
        return f", quarantined: {_why(item)}"
    counts = f"; it has {earlier}; both are applied" if same else ""
    if same.get("by") == "replaced":
        counts = f"; it replaces the file of this name{at}"
    index = item.get("index")
    if index is not None:
        return f", increment {index} of {source}, applied{_put_aside(item, source)}{counts}"
    unknown = (
        "" if item.get("compared", True) else f"; not compared with earlier files: {item['why']}"
    )
    return f"{counts}{unknown}"


def _put_aside(item: Mapping[str, Any], source: str) -> str:
    """Return the number of rejected records of a file, and how to list them, in words."""
    if not item.get("rejected"):
        return ""
    count = format_count(item["rejected"], "record")
    return f"; {count} rejected (see: cbp rejects {item['dataflow']} {source})"


def _why(item: Mapping[str, Any], *, whole: bool = False) -> str:
    same = item.get("same_as") or {}
    reason = reason_text(item.get("reason"), whole=whole)
    if not reason and same.get("by") == "name":
        return f"an earlier file of this name has other content: increment {same['index']}"
    return reason or f"it has the content of {same.get('file')}"


def _send(
    session: Session, target: Target, files: list[Path], upload: bool, advance: Advance
) -> list[dict[str, Any]]:
    if upload:
        return [_upload(session.client, target, file, advance) for file in files]
    folder = _incoming(session.settings, *target)
    _require_upload_scope(session)
    return [_copy(session, target, folder, file, advance) for file in files]


def _require_upload_scope(session: Session) -> None:
    """Raise `ScopeTooLowError` if the given token may not upload, as an upload would.

    Otherwise only the permissions of the folder would protect it. The service is asked only about
    a token from the settings: the token file is the admin's.
    """
    if session.settings.token is None:
        return
    try:
        scope = Scope(session.rest.get("session")["scope"])
    except CbpError:  # no service; a token that it refuses is reported with each file
        return
    if not scope.includes(Scope.OPERATOR):
        raise ScopeTooLowError(Scope.OPERATOR, scope, "cbp drop")


def _copy(
    session: Session, target: Target, folder: Path, file: Path, advance: Advance
) -> dict[str, Any]:
    item: dict[str, Any] = {"path": file.name, "folder": str(folder), "status": "dropped"}
    copied = copy_into(
        folder,
        file,
        advance,
        before=lambda sha256: item.update(_foreseen(session, target, file.name, sha256)),
        patience=_patience(session, lambda: bool(item["compared"])),
    )
    return item | ({"status": "waits"} if copied.waited else {})


def _foreseen(session: Session, target: Target, name: str, sha256: str) -> dict[str, Any]:
    """Return what the service says about a file, or why it could not be asked."""
    dataflow, source = target
    fields: dict[str, Any] = {"sha256": sha256, "compared": False, "same_as": None}
    if not _is_text(name):
        return fields | {"why": "its name is not valid text, so the service was not asked about it"}
    try:
        at = ("dataflows", dataflow, "sources", source, "identity")
        answer = session.rest.get(*at, name=name, sha256=sha256)
    except CbpError as error:  # no service, or none that knows this dataflow
        return fields | {"why": error.message}
    status = "dropped" if answer["outcome"] == "accepted" else answer["outcome"]
    return fields | {"compared": True, "same_as": answer["same_as"], "status": status}


def _is_text(name: str) -> bool:
    """Return whether a name can be sent as text; on a disk, a name can be any bytes."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _patience(session: Session, answers: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that waits for a service to take in files; `False`: wait no longer."""
    waits, clock = session.waits, session.clock
    until = clock.seconds() + waits.patience_seconds

    def wait() -> bool:
        if not answers() or clock.seconds() > until:
            return False
        clock.wait(waits.poll_seconds)
        return True

    return wait


def _upload(client: Client, target: Target, file: Path, advance: Advance) -> dict[str, Any]:
    if not _is_text(file.name):
        why = (
            "the name of the file is not valid text; rename the file, or drop it on the service's "
            "machine"
        )
        raise FileUnreadableError(file, why)
    try:
        return dict(client.drop(*target, file, advance=advance).answer)
    except OSError as error:
        raise FileUnreadableError(file, error.strerror or str(error)) from error


def _incoming(settings: Settings, dataflow: str, source: str) -> Path:
    """Return the drop folder of a source on this machine."""
    folder = settings.drop_root / dataflow / source / "incoming"
    plain = all(name not in ("", ".", "..") and "/" not in name for name in (dataflow, source))
    if not plain or not folder.is_dir():
        if plain:
            _check_names(settings.drop_root, dataflow, source)
        hint = "register the dataflow first, or use --upload if the service runs on another machine"
        raise NotFoundError(kind="drop folder", name=str(folder), hint=hint)
    for one in (folder.parent.parent, folder.parent, folder):
        if one.is_symlink():  # the file might become another source's
            raise DropFolderError(str(one), "is a symbolic link; use a real folder")
    return folder


_ELSEWHERE = "If the service runs on another machine, use --upload"


def _check_names(drop_root: Path, dataflow: str, source: str) -> None:
    """Raise `NotFoundError` with the near names if a name looks misspelt."""
    dataflows = _folders(drop_root)
    if dataflow in dataflows:
        sources = _folders(drop_root / dataflow)
        if sources:
            near = get_close_matches(source, sources)
            hint = f"did you mean {' or '.join(near)}?" if near else ""
            hint = hint or f"its sources are {', '.join(sources)}."
            kind = f"source of {dataflow}"
            raise NotFoundError(kind, source, hint=f"{hint} {_ELSEWHERE}")
    elif near := get_close_matches(dataflow, dataflows):
        hint = f"did you mean {' or '.join(near)}? {_ELSEWHERE}"
        raise NotFoundError(kind="dataflow", name=dataflow, hint=hint)


def _folders(folder: Path) -> list[str]:
    """Return the names of the folders in a folder; none if it cannot be read."""
    try:
        return sorted(one.name for one in folder.iterdir() if one.is_dir())
    except OSError:
        return []


def _size(file: Path) -> int:
    try:
        status = file.stat()
    except OSError as error:
        raise FileUnreadableError(file, error.strerror or str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        raise FileUnreadableError(file, "it is not a regular file")
    return status.st_size


FileName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the file, as `cbp claims` lists it.")
]
NewFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The corrected file.")]
ThenRebuild = Annotated[
    bool,
    typer.Option(
        "--then-rebuild",
        help="Accept the file even if some stages cannot apply it. Then rebuild all tables "
        "separately, and swap the new ones in.",
    ),
]


@dataclass(frozen=True)
class Correcting(OptionGroup):
    """How a file is replaced or taken back."""

    reason: Reason = ""
    dry_run: DryRun = False
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once all stages have applied the correction.")
    ] = False
    then_rebuild: ThenRebuild = False


def replace_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    name: FileName,
    file: NewFile,
    how: Correcting = Correcting(),
) -> None:
    """Replace a file of a source: apply only the differences between both files.

    If a stage cannot apply the correction, the command is refused, and nothing changes. With
    --then-rebuild such a stage stops, with its tables unchanged, until new tables are swapped in.
    """
    _correct(session, (dataflow, source, name), file, how)


def retract_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    name: FileName,
    how: Correcting = Correcting(),
) -> None:
    """Take back all records of a file of a source.

    If a stage cannot apply the correction, the command is refused, and nothing changes. With
    --then-rebuild such a stage stops, with its tables unchanged, until new tables are swapped in.
    """
    _correct(session, (dataflow, source, name), None, how)


def _correct(
    session: Session, named: tuple[str, str, str], file: Path | None, how: Correcting
) -> None:
    """Replace a file by another one, or take it back if there is no other."""
    require_reason(how.reason, how.dry_run)
    (dataflow, source, name), client = named, session.client
    waits = (how.wait or how.then_rebuild) and not how.dry_run
    applied = Applied(session, dataflow, source) if waits else None
    print_input_reach(session, dataflow, source)
    asked: dict[str, Any] = {"file": name, "rebuild": how.then_rebuild}
    if how.dry_run:
        if file is None:
            shown = client.plan_retract(dataflow, source, **asked)
        else:
            shown = client.plan_replace(dataflow, source, file, **asked)
        session.report(shown, _would_change(shown), "")
        return
    asked |= {"reason": how.reason, "by": getpass.getuser()}
    if file is None:
        answer = client.retract(dataflow, source, **asked).answer
    else:
        answer = client.replace(dataflow, source, file, **asked).answer
    if applied is not None:
        (answer,) = applied.wait_for_claims([answer])
    if how.then_rebuild and answer["status"] == "accepted":
        rebuild_and_swap(session, dataflow)
    elif applied is not None:
        _wait_for_stages(session, applied, [answer])
    if answer["status"] == "quarantined":
        raise FilesRefusedError(dataflow, {name: _why(answer, whole=True)}, [answer])
    session.exit_if_json(answer)
    if answer["status"] == "duplicate":
        known = "is already taken back" if file is None else f"already has the content of {file}"
        print_text(f"{name} of {source} {known}: nothing changes (claim {answer['id']})")
    else:
        what = "is taken back" if file is None else f"is replaced by {file}"
        became = f"claim {answer['id']}, {answer['status']}{_put_aside(answer, source)}"
        print_text(f"{name} of {source} {what}: {became}", "green")


def rebuild_and_swap(session: Session, dataflow: str) -> None:
    """Rebuild all tables and swap the new ones in; if this process ends, the service continues."""
    with progress_bar(hidden=session.as_json) as show:
        job = session.client.rebuild(dataflow, report=show)
        if job.status == "ready":
            job = session.client.swap(dataflow, job, report=show)
    if session.as_json:
        return
    if job.status == "swapped":
        print_text("all tables were rebuilt, and the new ones are swapped in", "green")
    else:
        print_text(f"the rebuild {job.step}", "yellow")


def _would_change(shown: Replaced) -> str:
    """Return a preview in words."""
    groups = [f"{format_count(n, 'group')} of {stage}" for stage, n in sorted(shown.groups.items())]
    came = format_count(shown.records_came, "record")
    gone = format_count(shown.records_gone, "record")
    return (
        f"{came} would be added, {gone} would be taken back; {', '.join(groups) or 'no group'} "
        "would be recomputed"
    )
