"""The commands `cbp sql` and `cbp last`: a query over a snapshot, and current records by key."""

from __future__ import annotations

from typing import Annotated

import typer

from cbp.errors.counts import format_count
from controller.cli.options import AsCsv, DataflowName, FilePaging, SnapshotMoment, key_pairs, pairs
from controller.cli.paging import print_csv
from controller.cli.session import Session
from controller.terminal import (
    clock,
    print_items,
    print_more,
    print_records,
    print_table,
    print_text,
)

_CUT = "there are more rows: raise --limit, or the service's setting CBP_QUERY_ROWS_MAX"

Sql = Annotated[
    str | None,
    typer.Argument(
        metavar="[SELECT]",
        help=(
            "One SELECT statement; `-` reads it from stdin. Without a statement, list the tables "
            "that a query can name."
        ),
    ),
]
Rows = Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of rows.")]
Table = Annotated[str, typer.Argument(metavar="STAGE.NAME", help="A state, a view or an output.")]
Where = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[COLUMN=VALUE]...",
        help="Only records with these values, such as those of the key.",
    ),
]
Null = Annotated[list[str] | None, typer.Option("--null", help="A column whose value is null.")]
By = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="Key column of an output that declares no key; can be repeated."
    ),
]


def sql_command(
    session: Session,
    dataflow: DataflowName,
    sql: Sql = None,
    limit: Rows = None,
    moment: SnapshotMoment = SnapshotMoment(),
    csv: AsCsv = False,
) -> None:
    """Run one SELECT over a consistent snapshot of all tables of a dataflow.

    A query can read only these tables. Its time, memory and rows are limited (CBP_QUERY_SECONDS,
    CBP_QUERY_MEMORY_BYTES, CBP_QUERY_ROWS_MAX).
    """
    if sql is None:
        answer = session.fetch("dataflows", dataflow, "query", "tables")
        columns = {"table": "name", "columns": "columns"}
        print_items(answer["items"], columns, empty="no stage has a state or an output")
        return
    text = typer.get_text_stream("stdin").read() if sql == "-" else sql
    if csv:
        content, is_cut = session.client.query_csv(dataflow, text, limit=limit, **moment)
        typer.echo(content, nl=False)
        if is_cut:
            print_text(_CUT, on_stderr=True)
        return
    answer = session.client.query(dataflow, text, limit=limit, **moment).answer
    session.exit_if_json(answer)
    names = [column["name"] for column in answer["columns"]]
    print_table(names, answer["rows"], empty="no row")
    rows = format_count(len(answer["rows"]), "row")
    more = "; there are more" if answer["truncated"] else ""
    print_text(f"{rows}{more}, as of {clock(answer['at'])}, {answer['seconds']:.2f} s", "dim")


def last_command(
    session: Session,
    dataflow: DataflowName,
    table: Table,
    where: Where = None,
    null: Null = None,
    by: By = None,
    page: FilePaging = FilePaging(),
    moment: SnapshotMoment = SnapshotMoment(),
    csv: AsCsv = False,
) -> None:
    """Show the current record per key: cbp last clicks count.totals url=/docs.

    For a state or a view, show its records; for an output, the last record of each key. Without
    values, show all keys, page by page. With --csv, print the whole table, unless you give a
    --limit.
    """
    query = key_pairs(where or (), null) + [("_by", column) for column in by or ()]
    query += pairs({"limit": (page if csv else page.shown()).limit, **moment})
    path = ("dataflows", dataflow, "current", table)
    if csv:
        print_csv(session, path, [*query, ("_format", "csv")], page, cursor="_cursor")
        return
    answer = session.rest.get_pairs(*path, query=query + pairs({"cursor": page.cursor}))
    session.exit_if_json(answer)
    print_records(answer["items"], empty="no record")
    print_more(answer)
