"""The commands `cbp sql` and `cbp last`: a query over a snapshot, and current records by key."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cbp.client import Client
from cbp.client.rest import NULL_PARAMETER
from cbp.errors.counts import format_count
from controller.cli.paging import AsCsv, FileLimit, print_csv
from controller.cli.records.state import pair
from controller.cli.session import AsJson, At, Cursor, DataflowName, Epoch, Stage, moment, session
from controller.terminal import (
    clock,
    print_items,
    print_json,
    print_more,
    print_records,
    print_table,
    print_text,
)

_LIMIT = 20
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
    context: typer.Context,
    dataflow: DataflowName,
    sql: Sql = None,
    limit: Rows = None,
    epoch: Epoch = None,
    stage: Stage = None,
    at: At = None,
    csv: AsCsv = False,
    json_: AsJson = False,
) -> None:
    """Run one SELECT over a consistent snapshot of all tables of a dataflow.

    A query can read only these tables. Its time, memory and rows are limited (CBP_QUERY_SECONDS,
    CBP_QUERY_MEMORY_BYTES, CBP_QUERY_ROWS_MAX).
    """
    with session(context).connect() as service:
        if sql is None:
            _print_tables(service.get("dataflows", dataflow, "query", "tables"), as_json=json_)
            return
        text = typer.get_text_stream("stdin").read() if sql == "-" else sql
        client = Client.over(service)
        when: dict[str, Any] = moment(epoch, stage, at)
        if csv:
            content, is_cut = client.query_csv(dataflow, text, limit=limit, **when)
            typer.echo(content, nl=False)
            if is_cut:
                print_text(_CUT, on_stderr=True)
            return
        answer = client.query(dataflow, text, limit=limit, **when).answer
    if json_:
        print_json(answer)
        return
    columns = [column["name"] for column in answer["columns"]]
    print_table(columns, answer["rows"], empty="no row")
    rows = format_count(len(answer["rows"]), "row")
    more = "; there are more" if answer["truncated"] else ""
    print_text(f"{rows}{more}, as of {clock(answer['at'])}, {answer['seconds']:.2f} s", "dim")


def _print_tables(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    columns = {"table": "name", "columns": "columns"}
    print_items(answer["items"], columns, empty="no stage has a state or an output")


def last_command(
    context: typer.Context,
    dataflow: DataflowName,
    table: Table,
    where: Where = None,
    null: Null = None,
    by: By = None,
    limit: FileLimit = None,
    cursor: Cursor = None,
    epoch: Epoch = None,
    stage: Stage = None,
    at: At = None,
    csv: AsCsv = False,
    json_: AsJson = False,
) -> None:
    """Show the current record per key: cbp last clicks count.totals url=/docs.

    For a state or a view, show its records; for an output, the last record of each key. Without
    values, show all keys, page by page. With --csv, print the whole table, unless you give a
    --limit.
    """
    size = limit if csv else limit or _LIMIT
    asked = {"_limit": size, **moment(epoch, stage, at, prefix="_")}
    query = [pair(text) for text in where or ()]
    query += [(NULL_PARAMETER, column) for column in null or ()]
    query += [("_by", column) for column in by or ()]
    query += [(name, str(value)) for name, value in asked.items() if value is not None]
    path = ("dataflows", dataflow, "current", table)
    with session(context).connect() as service:
        if csv:
            query.append(("_format", "csv"))
            print_csv(service, path, query, ("_cursor", cursor), limit=limit)
            return
        query += [] if cursor is None else [("_cursor", cursor)]
        answer = service.get_pairs(*path, query=query)
    if json_:
        print_json(answer)
        return
    print_records(answer["items"], empty="no record")
    print_more(answer)
