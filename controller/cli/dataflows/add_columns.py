"""The command `cbp quarantine add-columns`: the columns for which a source's files were refused.

cbp quarantine add-columns clicks urls            shows what it would do, and asks
cbp quarantine add-columns clicks urls --yes

A new version of the same document declares them, and the files are admitted again, oldest first.
All other rules of a new version hold (`controller.loop.operations.version_switch`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from controller.cli.dataflows.register import print_change
from controller.cli.options import DataflowName, DryRun, SourceName, Yes
from controller.cli.records.applied import Applied
from controller.cli.records.quarantine import WaitForFiles, deciding, readmit_many, waiting_claims
from controller.cli.session import Session
from controller.terminal import one_line, print_table, print_text

_CODE = "column_unknown"
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="COLUMN",
        help="Add only this column; files with other new columns stay refused.",
    ),
]


def add_columns_command(
    session: Session,
    dataflow: DataflowName,
    source: SourceName,
    only: Only = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    wait: WaitForFiles = False,
) -> None:
    """Add the new columns of refused files to the schema, and admit these files.

    The columns get the types that the files suggest. They are nullable, and older records have null
    in them. Nothing changes until you confirm, since a new column may be a misspelt one. The exit
    status is 1 if there is no column to add, or if two files suggest different types for a column:
    then add the column to the document yourself.
    """
    columns, claims = _chosen(waiting_claims(session, dataflow, source, _CODE), only)
    if not claims:
        print_text(
            f"no file of {source} was refused because of an undeclared column", on_stderr=True
        )
        raise typer.Exit(1)
    if not session.as_json:
        _print_columns(columns, claims)
    registered = session.client.dataflow(dataflow)
    document = _with_columns(registered.document, source, columns)
    version = registered.summary.version  # a newer one is not overwritten
    answer = session.client.change(dataflow, document, expected_version=version, dry_run=True)
    asked = not (dry_run or answer["refused"])
    if asked and (yes or _confirmed(columns, claims)):
        answer = session.client.change(dataflow, document, expected_version=version)
    if not answer["done"]:
        session.exit_if_json(answer, status=int(bool(answer["refused"])))
    if not session.as_json:
        print_change(answer, dry_run="--dry-run")
    if answer["refused"]:
        raise typer.Exit(1)
    if not answer["done"]:
        return
    applied = Applied(session, dataflow, source) if wait else None
    reason = f"version {answer['version']} declares {', '.join(columns.values())}"
    take = deciding(session, dataflow, source, "readmit", reason=reason)
    readmit_many(session, dataflow, take, [one["id"] for one in claims], applied)


def _chosen(
    waiting: Sequence[Mapping[str, Any]], only: Sequence[str] | None
) -> tuple[dict[str, str], list[Mapping[str, Any]]]:
    """Return the columns to add, and the files for which they suffice.

    Says what is disputed, and ends the command, if two files suggest different types of a column.
    """
    columns, disputed = proposed_columns([one["reason"] or {} for one in waiting])
    wrong = [name for name in disputed if only is None or name in only]
    for name in wrong:
        text = (
            f"{name}: files suggest different types ({' and '.join(disputed[name])}); declare the "
            "column in the document"
        )
        print_text(text, "red", on_stderr=True)
    if wrong:
        raise typer.Exit(1)
    chosen = {name: one for name, one in columns.items() if only is None or name in only}
    declared = set(chosen.values())
    return chosen, [one for one in waiting if declared >= set(_new(one)) and _new(one)]


def _new(claim: Mapping[str, Any]) -> list[str]:
    """Return the columns that a refused file suggests, as a schema declares them."""
    return list((claim["reason"] or {}).get("new_columns", ()))


def proposed_columns(
    reasons: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the columns that refused files suggest, and the columns with disputed types.

    Args:
        reasons: Why each of the files was refused, oldest first.

    Returns:
        Column -> its declaration, such as `device STRING`; and disputed column -> its types.
    """
    types: dict[str, dict[str, str]] = {}
    for reason in reasons:
        for declared in reason.get("new_columns", ()):
            name, _, type_ = declared.partition(" ")
            types.setdefault(name, {})[type_] = declared
    agreed = {name: next(iter(of.values())) for name, of in types.items() if len(of) == 1}
    return agreed, {name: list(of) for name, of in types.items() if len(of) > 1}


def _with_columns(
    document: Mapping[str, Any], source: str, columns: Mapping[str, str]
) -> dict[str, Any]:
    """Return a document whose source has these columns too."""
    declared = document["sources"][source]
    schema = ", ".join([declared["schema"], *columns.values()])
    return {**document, "sources": {**document["sources"], source: {**declared, "schema": schema}}}


def _print_columns(columns: Mapping[str, str], claims: Sequence[Mapping[str, Any]]) -> None:
    rows = list[tuple[str, str, int, str]]()
    for name, declared in columns.items():
        files = [one for one in claims if declared in _new(one)]
        first = one_line(files[0]["path"]) if files else ""
        rows.append((name, declared.partition(" ")[2], len(files), first))
    print_table(("new column", "type", "files", "first in"), rows, empty="")


def _confirmed(columns: Mapping[str, str], claims: Sequence[Mapping[str, Any]]) -> bool:
    count = format_count(len(columns), "column")
    files = format_count(len(claims), "refused file")
    return typer.confirm(f"Add {count} to the schema, and admit {files}?", err=True)
