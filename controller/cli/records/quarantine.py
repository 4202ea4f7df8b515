r"""The commands `cbp quarantine ...`: refused files, why, and what becomes of them.

cbp quarantine list clicks urls
cbp quarantine show clicks urls 01970e...
cbp quarantine readmit clicks urls 01970e... --file mended.jsonl --reason "text for a number"
cbp quarantine readmit clicks urls --all --code column_unknown --reason "declared now"
cbp quarantine add-columns clicks urls
cbp quarantine discard clicks urls 01970e... --reason "a test"

The command `cbp rejects`: rejected records of files whose other records were taken in.

cbp rejects clicks urls
cbp rejects clicks urls --text >mended.jsonl
cbp drop clicks urls mended.jsonl                  # once the lines are mended

The text is what the service keeps of a record, so stderr says which texts are not complete:
those that were cut, and those with bytes that are not text, which are spelled out as `\xff`.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cbp.client.errors import ConflictRefusedError, RequestRefusedError, ResourceMissingError
from cbp.errors.counts import format_count
from controller.cli.errors import FilesRefusedError, FolderUnwritableError
from controller.cli.paging import FileLimit, read_pages
from controller.cli.records.applied import Applied, progress
from controller.cli.records.drop import ThenRebuild, rebuild_and_swap
from controller.cli.records.sources import Code, Increment, reason_text
from controller.cli.session import (
    AsJson,
    Cursor,
    DataflowName,
    Limit,
    Since,
    SourceName,
    Until,
    fetch,
    session,
)
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    one_line,
    print_items,
    print_json,
    print_page,
    print_text,
)

quarantine_app = typer.Typer(
    help="List, show, admit or discard refused files.", no_args_is_help=True
)

Claim = Annotated[str, typer.Argument(help="Id of the file's claim.")]
Reason = Annotated[str, typer.Option(help="Reason; kept with the file.")]
ClaimIds = Annotated[list[str] | None, typer.Argument(help="Ids of the files' claims.")]
All = Annotated[bool, typer.Option("--all", help="All files of the source that are in quarantine.")]
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


@quarantine_app.command("list")
def list_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the files of a source that wait for a decision."""
    at = ("dataflows", dataflow, "sources", source, "quarantine")
    chosen = {"code": code, "since": since, "until": until}
    answer = fetch(context, json_, *at, **chosen, limit=limit, cursor=cursor)
    columns: dict[str, Cell] = {
        "claim": "id",
        "file": (one_line, "path"),
        "since": (clock, "created_at"),
        "reason": (reason_text, "reason"),
    }
    print_page(answer, columns, empty="nothing is in quarantine")


@quarantine_app.command("show")
def show_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    claim: Claim,
    json_: AsJson = False,
) -> None:
    """Show why a file was refused, and the lines around its mistakes."""
    answer = fetch(context, json_, "dataflows", dataflow, "sources", source, "quarantine", claim)
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


@quarantine_app.command("fetch")
def fetch_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    claim: Claim,
    to: Annotated[Path, typer.Option(dir_okay=False, help="File to write.")],
    json_: AsJson = False,
) -> None:
    """Save the original content of a refused file, also after a decision about it."""
    at = ("dataflows", dataflow, "sources", source, "quarantine", claim, "content")
    count = 0
    with session(context).connect() as service, service.stream_bytes(*at) as parts:
        try:
            with to.open("xb") as file:
                for part in parts:
                    count += file.write(part)
        except OSError as error:
            raise FolderUnwritableError(to, error.strerror or str(error)) from error
    if json_:
        print_json({"path": str(to), "bytes": count})
    else:
        print_text(f"wrote {bytes_text(count)} to {to}", "green")


@quarantine_app.command("readmit")
def readmit_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    reason: Reason,
    claims: ClaimIds = None,
    all_: All = False,
    code: OfCode = None,
    file: Mended = None,
    wait: WaitForFiles = False,
    then_rebuild: ThenRebuild = False,
    json_: AsJson = False,
) -> None:
    """Admit refused files: unchanged, or one file with corrected content.

    A refused file that was to replace or retract another file still does so. If a stage cannot
    apply that, the file is refused again, unless --then-rebuild is given. The original files are
    kept.
    With --all, all files in quarantine are admitted, oldest first. If the service refuses some of
    several files, each refusal is reported, and the exit status is 1.
    The exit status is also 1 if, with --wait, a file is in quarantine again.
    """
    _require_claims(claims, all_=all_, code=code)
    if file is not None and (all_ or len(claims or ()) > 1):
        raise typer.BadParameter("can be used with one claim only", param_hint="--file")  # noqa: EM101
    if then_rebuild and (all_ or len(claims or ()) > 1):
        raise typer.BadParameter("can be used with one claim only", param_hint="--then-rebuild")  # noqa: EM101
    applied = Applied(session(context), dataflow, source) if wait or then_rebuild else None
    decision = Decision(context, (dataflow, source), "readmit", reason, file, rebuild=then_rebuild)
    if claims and len(claims) == 1:
        answer = decision.take(claims[0])
        if applied is not None:
            (answer["readmitted"],) = _follow(
                applied, [answer["readmitted"]], dataflow, hidden=json_, stages=not then_rebuild
            )
        if then_rebuild and answer["readmitted"]["status"] == "accepted":
            with session(context).client() as client:
                rebuild_and_swap(client, dataflow, hidden=json_)
        _print(answer, as_json=json_)
        return
    readmit_many(decision, claims or _waiting(decision, code), applied, as_json=json_)


def readmit_many(
    decision: Decision, claims: Sequence[str], applied: Applied | None, *, as_json: bool
) -> None:
    """Admit files one by one, wait until they are applied, and print the result for each.

    Args:
        claims: Ids of the files, oldest first.
        applied: Waits for them; `None` means not to wait.

    Raises `FilesRefusedError`.
    """
    items = _take_many(decision, claims, hidden=as_json)
    made = [one["readmitted"] for one in items if one["error"] is None]
    if applied is not None and made:
        _follow(applied, made, decision.at[0], hidden=as_json)
    _print_many(items, "is admitted", as_json=as_json)


def _follow(
    applied: Applied,
    readmitted: Sequence[Mapping[str, Any]],
    dataflow: str,
    *,
    hidden: bool,
    stages: bool = True,
) -> list[dict[str, Any]]:
    """Return the claims of readmitted files once they are taken in, and by `stages` applied.

    Raises `FilesRefusedError`, `StagesStoppedError`.
    """
    claims = applied.wait_for_claims(readmitted, hidden=hidden)
    refused = [one for one in claims if one["status"] == "quarantined"]
    if refused:
        why = {one["path"]: reason_text(one["reason"], whole=True) for one in refused}
        raise FilesRefusedError(dataflow, why, claims)
    if stages:
        applied.wait_for_stages(hidden=hidden)
    return claims


@quarantine_app.command("discard")
def discard_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    reason: Reason,
    claims: ClaimIds = None,
    all_: All = False,
    code: OfCode = None,
    json_: AsJson = False,
) -> None:
    """Discard refused files. They are kept like finished files, and can be restored."""
    _require_claims(claims, all_=all_, code=code)
    decision = Decision(context, (dataflow, source), "discard", reason)
    if claims and len(claims) == 1:
        _print(decision.take(claims[0]), as_json=json_)
        return
    items = _take_many(decision, claims or _waiting(decision, code), hidden=json_)
    _print_many(items, "is discarded", as_json=json_)


@quarantine_app.command("restore")
def restore_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    claim: Claim,
    json_: AsJson = False,
) -> None:
    """Undo a decision: the file is in quarantine again."""
    _print(Decision(context, (dataflow, source), "restore").take(claim), as_json=json_)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about files of a source: `readmit`, `discard` or `restore`.

    Attributes:
        at: Names of the dataflow and the source.
        reason: `None` if a decision is undone.
        mended: The corrected file; `None` admits a file unchanged.
        rebuild: Whether stages that cannot apply an admitted replacement wait for a rebuild.
    """

    context: typer.Context
    at: tuple[str, str]
    action: Literal["readmit", "discard", "restore"]
    reason: str | None = None
    mended: Path | None = None
    rebuild: bool = False

    def take(self, claim: str) -> dict[str, Any]:
        """Send the decision about a file; return the answer. Raises the refusals of the service."""
        by = None if self.reason is None else getpass.getuser()
        with session(self.context).client() as client:
            decided = client.decide(
                *self.at,
                claim,
                self.action,
                mended=self.mended,
                reason=self.reason,
                by=by,
                rebuild=self.rebuild,
            )
        return dict(decided.answer)


def _require_claims(claims: list[str] | None, *, all_: bool, code: str | None) -> None:
    if bool(claims) is all_:
        raise typer.BadParameter("give the ids of claims, or --all")  # noqa: EM101
    if code is not None and not all_:
        raise typer.BadParameter("chooses among --all", param_hint="--code")


def _waiting(decision: Decision, code: str | None) -> list[str]:
    """Return the ids of all files that wait for a decision, oldest first."""
    dataflow, source = decision.at
    return [one["id"] for one in waiting_claims(decision.context, dataflow, source, code)]


def waiting_claims(
    context: typer.Context, dataflow: str, source: str, code: str | None
) -> list[dict[str, Any]]:
    """Return all files that wait for a decision, oldest first; with a code, only its files."""
    query = {"source": source, "status": "quarantined", "code": code, "limit": 100}
    claims = list[dict[str, Any]]()
    with session(context).connect() as service:

        def read(place: str | None) -> tuple[list[dict[str, Any]], str | None]:
            answer = service.get("dataflows", dataflow, "claims", cursor=place, **query)
            return answer["items"], answer["cursor"]

        for items in read_pages(read, None, limit=None):
            claims += items
    return claims[::-1]


def _take_many(decision: Decision, claims: Sequence[str], *, hidden: bool) -> list[dict[str, Any]]:
    """Decide on files one by one; a file that is refused stops no other.

    Raises:
        ServiceProblemError: The service cannot decide now; what was decided stays.
    """
    items = list[dict[str, Any]]()
    with progress(session(decision.context).clock, hidden=hidden) as report:
        for claim in claims:
            report(f"{len(items)} of {format_count(len(claims), 'file')}")
            try:
                answer = decision.take(claim)
            except (ConflictRefusedError, RequestRefusedError, ResourceMissingError) as error:
                items.append({"id": claim, "readmitted": None, "error": error.as_dict()})
            else:
                items.append({"id": claim, "readmitted": answer["readmitted"], "error": None})
    return items


def _print_many(items: Sequence[Mapping[str, Any]], done: str, *, as_json: bool) -> None:
    """Print what became of each file; end with 1 if any was refused."""
    if as_json:
        print_json({"items": items})
    else:
        columns: dict[str, Cell] = {
            "claim": "id",
            "report": (lambda error: error["message"] if error else done, "error"),
        }
        print_items(items, columns, empty="nothing is in quarantine")
    if any(one["error"] is not None for one in items):
        raise typer.Exit(1)


def _print(answer: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    claim, other = answer["claim"], answer["readmitted"]
    became = "" if other is None else f"; its new claim is {other['id']} ({other['status']})"
    print_text(f"{one_line(claim['path'])} is {claim['status']}{became}", "green")


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
_LIMIT = 20
_CUT_LENGTH = 1_001
"""Length of a text that was cut: 1,000 characters and an ellipsis."""


def rejects_command(
    context: typer.Context,
    dataflow: DataflowName,
    source: SourceName,
    code: Code = None,
    increment: Increment = None,
    since: Since = None,
    until: Until = None,
    limit: FileLimit = None,
    cursor: Cursor = None,
    text: AsText = False,
    json_: AsJson = False,
) -> None:
    """List rejected records, whose files were otherwise taken in.

    The list is a history: records of files that were replaced or taken back later stay in it, and
    `cbp status` counts them, too.
    """
    with session(context).connect() as service:
        at = ("dataflows", dataflow, "sources", source, "rejects")
        chosen = {"code": code, "increment": increment, "since": since, "until": until}

        def read(place: str | None, size: int | None) -> dict[str, Any]:
            return dict(service.get(*at, **chosen, limit=size, cursor=place))

        if text and not json_:
            _print_texts(read, limit, cursor)
            return
        answer = read(cursor, limit or _LIMIT)
    if json_:
        print_json(answer)
        return
    names = ("increment", "file", "line", "code", "message")
    columns: dict[str, Cell] = {name: (lambda value: one_line(str(value)), name) for name in names}
    print_page(answer, columns, empty="no record was rejected")


def _print_texts(
    ask: Callable[[str | None, int | None], Mapping[str, Any]],
    limit: int | None,
    cursor: str | None,
) -> None:
    """Print the text of every record, and say on stderr which ones are not as they came."""

    def read(place: str | None) -> tuple[list[dict[str, Any]], str | None]:
        answer = ask(place, limit)
        return answer["items"], answer["cursor"]

    cut = spelled = 0
    for items in read_pages(read, cursor, limit=limit):
        for one in items:
            typer.echo(one["text"])
            cut += _is_cut(one)
            spelled += one["code"] == "encoding"
    if cut:
        said = "of which only the first 1,000 characters are kept"
        print_text(f"{format_count(cut, 'record')} {said}", on_stderr=True)
    if spelled:
        said = "with bytes that are not in the source's encoding: they are written as \\xff"
        print_text(f"{format_count(spelled, 'record')} {said}", on_stderr=True)


def _is_cut(one: Mapping[str, Any]) -> bool:
    return len(one["text"]) >= _CUT_LENGTH and str(one["text"]).endswith("…")
