"""The command `cbp snapshot`: versions of all tables that belong together, and how to read them."""

from __future__ import annotations

import keyword
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from controller.cli.maintenance.machine_checks import needs_encoding
from controller.cli.options import DataflowName, SnapshotMoment
from controller.cli.session import Session
from controller.terminal import clock, print_items, print_table, print_text

Reader = Literal["spark", "polars", "deltalake", "duckdb"]

_ARROW = (
    'QueryBuilder().register("t", DeltaTable({path!r}, version={version}))'
    '.execute("SELECT * FROM t").read_all()'
)

SNIPPETS: dict[Reader, tuple[str, str]] = {
    "spark": ("", "{name} = spark.sql({sql!r})"),
    "polars": ("import polars", "{name} = polars.read_delta({path!r}, version={version})"),
    "deltalake": ("from deltalake import DeltaTable, QueryBuilder", f"{{name}} = {_ARROW}"),
    "duckdb": (
        "import duckdb\nfrom deltalake import DeltaTable, QueryBuilder",
        f"{{name}} = duckdb.from_arrow({_ARROW})",
    ),
}
"""Reader -> its imports and its line per table.

A delta-rs table is read through its query engine, since `to_pyarrow_table` refuses tables with
deletion vectors. DuckDB gets those Arrow tables: its own Delta extension is another download.
"""

_POLARS_BY_ARROW = (
    "import polars\nfrom deltalake import DeltaTable, QueryBuilder",
    f"{{name}} = polars.DataFrame({_ARROW})",
)
"""For tables whose path must be percent-encoded, where Polars finds no files."""

Latest = Annotated[bool, typer.Option("--latest", help="The newest snapshot; this is the default.")]
For = Annotated[Reader | None, typer.Option("--for", help="Print Python code for this reader.")]


def snapshot_command(
    session: Session,
    dataflow: DataflowName,
    moment: SnapshotMoment = SnapshotMoment(),
    latest: Latest = False,
    reader: For = None,
) -> None:
    """Show versions of all tables of a dataflow that belong to the same moment."""
    if latest and (moment.epoch is not None or moment.at is not None):
        raise typer.BadParameter("--latest cannot be combined with --epoch or --at")  # noqa: EM101
    answer = session.rest.get("dataflows", dataflow, "snapshot", **moment)
    python = {name: snippet(name, answer["tables"]) for name in SNIPPETS}
    session.exit_if_json({**answer, "python": python})
    if reader is not None:
        print_text(python[reader])
    else:
        _print(answer)


def snippet(reader: Reader, tables: list[dict[str, Any]]) -> str:
    """Return Python code that reads every table of a snapshot into a variable."""
    head, line = SNIPPETS[reader]
    if reader == "polars" and any(needs_encoding(table["path"]) for table in tables):
        head, line = _POLARS_BY_ARROW
    names = _variables([table["table"] for table in tables])
    lines = [
        line.format(name=names[t["table"]], path=t["path"], version=t["version"], sql=_spark_sql(t))
        for t in tables
    ]
    return "\n".join([*([head, ""] if head else []), *lines])


def _spark_sql(table: dict[str, Any]) -> str:
    path = table["path"].replace("`", "``")
    return f"SELECT * FROM delta.`{path}` VERSION AS OF {table['version']}"


def _variables(tables: list[str]) -> dict[str, str]:
    """Return a variable for each table: `count_counts` for `state/count.counts`."""
    names: dict[str, str] = {}
    for table in tables:
        name = table.rpartition("/")[2].replace(".", "_")
        while keyword.iskeyword(name) or name in names.values():
            name += "_"
        names[table] = name
    return names


def _print(answer: dict[str, Any]) -> None:
    kind = "the newest" if answer["newest"] else "an older"
    print_text(
        f"{answer['dataflow']} as of {clock(answer['at'])}: {kind} state of all its tables; "
        f"readable until {clock(answer['readable_until'])}"
    )
    columns = ("stage", "last epoch")
    print_table(columns, list(answer["epochs"].items()), empty="no stages")
    print_text("")
    names = ("table", "version", "epoch")
    print_items(answer["tables"], {name: name for name in names}, empty="no tables")
    print_text(
        "\nin Spark: SELECT * FROM delta.`PATH` VERSION AS OF N, or TIMESTAMP AS OF "
        f"'{_spark_time(answer['at'])}' on every table (session time zone UTC)"
    )
    print_text(f"in Python: cbp snapshot {answer['dataflow']} --for {', '.join(SNIPPETS)}", "dim")


def _spark_time(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
