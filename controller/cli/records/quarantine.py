r"""The commands `cbp quarantine ...`: refused files, the reasons, and decisions about them.

cbp quarantine list clicks urls
cbp quarantine show clicks urls 01970e...
cbp quarantine readmit clicks urls 01970e... --file corrected.jsonl --reason "text for a number"
cbp quarantine readmit clicks urls --all --code column_unknown --reason "declared now"
cbp quarantine add-columns clicks urls
cbp quarantine discard clicks urls 01970e... --reason "a test"

The command `cbp rejects`: rejected records of files whose other records were taken in.

cbp rejects clicks urls --text >corrected.jsonl
cbp drop clicks urls corrected.jsonl               # once the lines are corrected

The text is what the service keeps of a record. So stderr says how many texts are not complete:
those that were cut, and those with bytes that are not text.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cbp.client.errors import ConflictRefusedError, RequestRefusedError, ResourceMissingError
from cbp.errors.counts import format_count
from controller.cli.errors import FilesRefusedError, FolderUnwritableError
from controller.cli.options import DataflowName, FilePaging, Listing, Period, SourceName
from controller.cli.paging import read_pages
from controller.cli.records.applied import Applied, progress
from controller.cli.records.drop import ThenRebuild, rebuild_and_swap
from controller.cli.records.sources import Code, Increment, reason_text
from controller.cli.session import Session
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    one_line,
    print_items,
    print_page,
    print_text,
)

Take = Callable[[str], dict[str, Any]]

Claim = Annotated[str, typer.Argument(help="Id of the file's claim.")]
Reason = Annotated[str, typer.Option(help="Reason; kept with the file.")]
ClaimIds = Annotated[list[str] | None, typer.Argument(help="Ids of the files' claims.")]
All = Annotated[bool, typer.Option("--all", help="Choose all files of the source in quarantine.")]
OfCode = Annotated[
    str | None, typer.Option(help="With --all: only files that were refused with this error code.")
]
WaitForFiles = Annotated[
    bool, typer.Option("--wait", help="Return once all stages have applied the files.")
]
Mended = Annotated[
    Path | None,
    typer.Option(
        "--file",
        exists=True,
        dir_okay=False,
        help="A corrected file that replaces the refused one.",
    ),
]


def list_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    code: Code = None,
    listing: Listing = Listing(),
) -> None:
    """List the files of a source that wait for a decision."""
    at = ("dataflows", dataflow, "sources", source, "quarantine")
    columns: dict[str, Cell] = {
        "claim": "id",
        "file": (one_line, "path"),
        "since": (clock, "created_at"),
        "reason": (reason_text, "reason"),
    }
    print_page(session.fetch(*at, code=code, **listing), columns, empty="nothing is in quarantine")


def show_command(
    session: Session, dataflow: DataflowName, source: SourceName, claim: Claim
) -> None:
    """Show why a file was refused, and the lines around its mistakes."""
    answer = session.fetch("dataflows", dataflow, "sources", source, "quarantine", claim)
    print_text(reason_text(answer["claim"]["reason"], whole=True))
    size = answer["file_bytes"]
    print_text(f"{answer['folder_path']} ({'missing' if size is None else bytes_text(size)})")
    for line in answer["lines"]:
        mark = ">" if line["mistakes"] else " "
        print_text(f"{mark} {line['number']:>6}  {one_line(line['text'])}")
    if answer["hint"]:
        print_text(answer["hint"])
    if answer["as_it_is_refused"]:
        print_text(f"The file cannot be admitted unchanged: {answer['as_it_is_refused']}")


def fetch_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    claim: Claim,
    to: Annotated[Path, typer.Option(dir_okay=False, help="File to write.")],
) -> None:
    """Save the original content of a refused file, also after a decision about it."""
    at = ("dataflows", dataflow, "sources", source, "quarantine", claim, "content")
    count = 0
    with session.rest.stream_bytes(*at) as parts, ExitStack() as incomplete:
        try:
            with to.open("xb") as file:
                incomplete.callback(to.unlink, missing_ok=True)
                for part in parts:
                    count += file.write(part)
        except OSError as error:
            raise FolderUnwritableError(to, error.strerror or str(error)) from error
        incomplete.pop_all()
    session.report({"path": str(to), "bytes": count}, f"wrote {bytes_text(count)} to {to}")


def readmit_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    reason: Reason,
    claims: ClaimIds = None,
    all_: All = False,
    code: OfCode = None,
    file: Mended = None,
    wait: WaitForFiles = False,
    then_rebuild: ThenRebuild = False,
) -> None:
    """Admit refused files: unchanged, or one file with corrected content.

    A refused replacement or retraction is then carried out. If a stage cannot apply it, it is
    refused again, unless --then-rebuild is given. The original files are kept.
    With --all, all files in quarantine are admitted, oldest first. If the service refuses some of
    several files, each refusal is reported, and the exit status is 1.
    The exit status is also 1 if, with --wait, a file is in quarantine again.
    """
    _require_claims(claims, all_=all_, code=code)
    for option, is_given in (("--file", file is not None), ("--then-rebuild", then_rebuild)):
        if is_given and (all_ or len(claims or ()) > 1):
            raise typer.BadParameter("can be used with one claim only", param_hint=option)  # noqa: EM101
    applied = Applied(session, dataflow, source) if wait or then_rebuild else None
    take = deciding(
        session, dataflow, source, "readmit", reason=reason, mended=file, rebuild=then_rebuild
    )
    if claims and len(claims) == 1:
        answer = take(claims[0])
        if applied is not None:
            made = [answer["readmitted"]]
            (answer["readmitted"],) = _follow(applied, made, dataflow, stages=not then_rebuild)
        if then_rebuild and answer["readmitted"]["status"] == "accepted":
            rebuild_and_swap(session, dataflow)
        _print(session, answer)
        return
    chosen = claims or _waiting(session, dataflow, source, code)
    readmit_many(session, dataflow, take, chosen, applied)


def readmit_many(
    session: Session, dataflow: str, take: Take, claims: Sequence[str], applied: Applied | None
) -> None:
    """Admit files one by one, oldest first, wait until they are applied, and print each result.

    Raises `FilesRefusedError`.
    """
    items = _take_many(session, take, claims)
    made = [one["readmitted"] for one in items if one["error"] is None]
    if applied is not None and made:
        _follow(applied, made, dataflow)
    _print_many(session, items, "is admitted")


def _follow(
    applied: Applied, readmitted: Sequence[Mapping[str, Any]], dataflow: str, *, stages: bool = True
) -> list[dict[str, Any]]:
    """Return the claims of readmitted files once they are taken in; with `stages`, applied.

    Raises `FilesRefusedError`, `StagesStoppedError`.
    """
    claims = applied.wait_for_claims(readmitted)
    refused = [one for one in claims if one["status"] == "quarantined"]
    if refused:
        why = {one["path"]: reason_text(one["reason"], whole=True) for one in refused}
        raise FilesRefusedError(dataflow, why, claims)
    if stages:
        applied.wait_for_stages()
    return claims


def discard_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    reason: Reason,
    claims: ClaimIds = None,
    all_: All = False,
    code: OfCode = None,
) -> None:
    """Discard refused files. They are kept like finished files, and can be restored."""
    _require_claims(claims, all_=all_, code=code)
    take = deciding(session, dataflow, source, "discard", reason=reason)
    if claims and len(claims) == 1:
        _print(session, take(claims[0]))
    else:
        chosen = claims or _waiting(session, dataflow, source, code)
        _print_many(session, _take_many(session, take, chosen), "is discarded")


def restore_command(
    session: Session, dataflow: DataflowName, source: SourceName, claim: Claim
) -> None:
    """Undo a decision: the file is in quarantine again."""
    _print(session, deciding(session, dataflow, source, "restore")(claim))


def deciding(
    session: Session,
    dataflow: str,
    source: str,
    action: Literal["readmit", "discard", "restore"],
    *,
    reason: str | None = None,
    mended: Path | None = None,
    rebuild: bool = False,
) -> Take:
    """Return a function that sends a decision about the file of a claim, and returns the answer.

    It raises the refusals of the service.

    Args:
        reason: `None` if a decision is undone.
        mended: The corrected file; `None` admits a file unchanged.
        rebuild: Whether stages that cannot apply an admitted replacement wait for a rebuild.
    """

    def take(claim: str) -> dict[str, Any]:
        by = None if reason is None else getpass.getuser()
        decided = session.client.decide(
            dataflow, source, claim, action, mended=mended, reason=reason, by=by, rebuild=rebuild
        )
        return dict(decided.answer)

    return take


def _require_claims(claims: list[str] | None, *, all_: bool, code: str | None) -> None:
    if bool(claims) is all_:
        raise typer.BadParameter("name claims by their ids, or use --all")  # noqa: EM101
    if code is not None and not all_:
        raise typer.BadParameter("can be used with --all only", param_hint="--code")  # noqa: EM101


def _waiting(session: Session, dataflow: str, source: str, code: str | None) -> list[str]:
    return [one["id"] for one in waiting_claims(session, dataflow, source, code)]


def waiting_claims(
    session: Session, dataflow: str, source: str, code: str | None
) -> list[dict[str, Any]]:
    """Return all files that wait for a decision, oldest first; with a code, only its files."""
    query = {"source": source, "status": "quarantined", "code": code, "limit": 100}
    pages = session.pages("dataflows", dataflow, "claims", **query)
    return [claim for page in pages for claim in page["items"]][::-1]


def _take_many(session: Session, take: Take, claims: Sequence[str]) -> list[dict[str, Any]]:
    """Decide on files one by one; a file that is refused stops no other.

    If the service cannot decide now, its error is raised; what was decided stays.
    """
    items = list[dict[str, Any]]()
    with progress(session) as report:
        for claim in claims:
            report(f"{len(items)} of {format_count(len(claims), 'file')}")
            try:
                readmitted, refusal = take(claim)["readmitted"], None
            except (ConflictRefusedError, RequestRefusedError, ResourceMissingError) as error:
                readmitted, refusal = None, error.as_dict()
            items.append({"id": claim, "readmitted": readmitted, "error": refusal})
    return items


def _print_many(session: Session, items: Sequence[Mapping[str, Any]], done: str) -> None:
    """Print what became of each file; end with 1 if any was refused."""
    status = int(any(one["error"] is not None for one in items))
    session.exit_if_json({"items": items}, status=status)
    columns: dict[str, Cell] = {
        "claim": "id",
        "report": (lambda error: error["message"] if error else done, "error"),
    }
    print_items(items, columns, empty="nothing is in quarantine")
    if status:
        raise typer.Exit(status)


def _print(session: Session, answer: Any) -> None:
    claim, other = answer["claim"], answer["readmitted"]
    became = "" if other is None else f"; its new claim is {other['id']} ({other['status']})"
    session.report(answer, f"{one_line(claim['path'])} is {claim['status']}{became}")


AsText = Annotated[
    bool,
    typer.Option(
        "--text",
        help="Print the text of all records, so that you can correct them. Only the first 1,000 "
        "characters of a record are kept, and a byte that is not text in the source's "
        "encoding is written as \\xff. On stderr, the command prints how many records each of "
        "these affects.",
    ),
]
_CUT_LENGTH = 1_001
"""Length of a text that was cut: 1,000 characters and an ellipsis."""


def rejects_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    code: Code = None,
    increment: Increment = None,
    period: Period = Period(),
    page: FilePaging = FilePaging(),
    text: AsText = False,
) -> None:
    """List rejected records, whose files were otherwise taken in.

    The list is a history: records of files that were replaced or taken back later stay in it, and
    `cbp status` counts them, too.
    """
    at = ("dataflows", dataflow, "sources", source, "rejects")
    ask = partial(session.rest.get, *at, code=code, increment=increment, **period)
    if text and not session.as_json:
        _print_texts(ask, page)
        return
    answer = ask(**page.shown())
    session.exit_if_json(answer)
    names = ("increment", "file", "line", "code", "message")
    columns: dict[str, Cell] = {name: (lambda value: one_line(str(value)), name) for name in names}
    print_page(answer, columns, empty="no record was rejected")


def _print_texts(ask: Callable[..., Mapping[str, Any]], page: FilePaging) -> None:
    """Print the text of every record; print on stderr how many are cut or were not valid text."""

    def read(place: str | None) -> tuple[list[dict[str, Any]], str | None]:
        answer = ask(limit=page.limit, cursor=place)
        return answer["items"], answer["cursor"]

    cut = spelled = 0
    for items in read_pages(read, page):
        for one in items:
            typer.echo(one["text"])
            cut += _is_cut(one)
            spelled += one["code"] == "encoding"
    if cut:
        what = format_count(cut, "record is", "records are")
        print_text(f"{what} cut: only the first 1,000 characters are kept", on_stderr=True)
    if spelled:
        what = format_count(spelled, "record has", "records have")
        said = "bytes that are not text in the source's encoding; each is written as \\xff"
        print_text(f"{what} {said}", on_stderr=True)


def _is_cut(one: Mapping[str, Any]) -> bool:
    return len(one["text"]) >= _CUT_LENGTH and str(one["text"]).endswith("…")
