"""The command `cbp snapshot`: versions of all tables that belong together, and how to read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from controller.cli.moments import At, Epoch, Stage, moment
from controller.cli.output import clock, print_json, print_table, print_text
from controller.cli.session import AsJson, DataflowName, session

__all__ = ["SNIPPETS", "snapshot_command"]

Reader = Literal["spark", "polars", "deltalake"]

SNIPPETS: dict[Reader, tuple[str, str]] = {
    "spark": (
        "",
        '{name} = spark.sql("SELECT * FROM delta.`{path}` VERSION AS OF {version}")',
    ),
    "polars": (
        "import polars",
        "{name} = polars.read_delta({path!r}, version={version})",
    ),
    "deltalake": (
        "from deltalake import DeltaTable, QueryBuilder",
        "{name} = DeltaTable({path!r}, version={version})",
    ),
}
"""Reader to its import and its line per table."""

Latest = Annotated[bool, typer.Option("--latest", help="The newest one; that is the default.")]
For = Annotated[
    Reader | None, typer.Option("--for", help="Print Python for this reader.", show_default=False)
]


def snapshot_command(
    context: typer.Context,
    dataflow: DataflowName,
    epoch: Epoch = None,
    stage: Stage = None,
    at: At = None,
    latest: Latest = False,
    reader: For = None,
    json_: AsJson = False,
) -> None:
    """Show versions of all tables of a dataflow that belong together, while runs go on."""
    if latest and (epoch is not None or at is not None):
        raise typer.BadParameter("--latest goes without --epoch and --at")  # noqa: EM101
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "snapshot", **moment(epoch, stage, at))
    if json_:
        snippets = {name: snippet(name, answer["tables"]) for name in SNIPPETS}
        print_json({**answer, "python": snippets})
    elif reader is not None:
        print_text(snippet(reader, answer["tables"]))
    else:
        _print(answer)


def snippet(reader: Reader, tables: list[dict[str, Any]]) -> str:
    """Return Python that reads every table of a snapshot."""
    head, line = SNIPPETS[reader]
    lines = [
        line.format(name=_variable(t["table"]), path=t["path"], version=t["version"])
        for t in tables
    ]
    return "\n".join([*([head, ""] if head else []), *lines])


def _variable(table: str) -> str:
    """Return a name for a table: `count_counts` of `state/count.counts`."""
    return table.rpartition("/")[2].replace(".", "_")


def _print(answer: dict[str, Any]) -> None:
    kind = "the newest" if answer["newest"] else "an older"
    print_text(
        f"{answer['dataflow']} as of {clock(answer['at'])}: {kind} state of all its tables; "
        f"readable until {clock(answer['readable_until'])}"
    )
    columns = ("stage", "last epoch in it")
    print_table(columns, list(answer["epochs"].items()), empty="no stages")
    rows = [(item["table"], item["version"], item["epoch"]) for item in answer["tables"]]
    print_text("")
    print_table(("table", "version", "epoch"), rows, empty="no tables")
    print_text(
        "\nin Spark: SELECT * FROM delta.`PATH` VERSION AS OF N, or TIMESTAMP AS OF "
        f"'{_spark_time(answer['at'])}' on every table (session time zone UTC)"
    )
    print_text("in Python: cbp snapshot ... --for spark, polars or deltalake", "dim")


def _spark_time(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
