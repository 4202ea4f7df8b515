"""The commands `cbp state` and `cbp history`: state records by key, and what changed them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controller.cli.options import (
    Cursor,
    DataflowName,
    Null,
    Paging,
    SnapshotMoment,
    key_pairs,
    pairs,
    stage_and_state,
)
from controller.cli.session import Session
from controller.terminal import (
    Cell,
    bytes_text,
    clock,
    print_items,
    print_more,
    print_page,
    print_records,
    print_text,
)

StateName = Annotated[str, typer.Argument(metavar="STAGE.STATE")]
AnyState = Annotated[
    str,
    typer.Argument(
        metavar="[STAGE.STATE]", help="Name of a state; without it, all states are listed."
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Argument(metavar="COLUMN=VALUE...", help="Key; without it, all records are printed."),
]
Changes = Annotated[int, typer.Option("--limit", min=1, max=50, help="Maximum number of changes.")]


def state_command(
    session: Session,
    dataflow: DataflowName,
    name: AnyState = "",
    key: Key = None,
    null: Null = None,
    paging: Paging = Paging(),
    moment: SnapshotMoment = SnapshotMoment(),
) -> None:
    """Look up the state records of one key: cbp state clicks count.counts url=a.

    Without a key, print all records of one snapshot, page by page. Without a state, list the states
    of the dataflow with their sizes. To print all records as CSV: cbp last clicks count.counts
    --csv.
    """
    if not name:
        _print_sizes(session.fetch("dataflows", dataflow, "states", **paging))
        return
    path = ("dataflows", dataflow, "state", *stage_and_state(name))
    if query := key_pairs(filter(None, key or ()), null):
        query += pairs({**paging, **moment})
        answer = session.rest.get_pairs(*path, query=query)
    else:
        answer = session.rest.get(*path, "records", **paging, **moment)
    session.exit_if_json(answer)
    print_records(answer["items"], empty="no record")
    print_more(answer)


def _print_sizes(answer: Mapping[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "state": lambda one: f"{one['stage']}.{one['state']}",
        "records": "rows",
        "size": (bytes_text, "bytes"),
        "files": "files",
        "skew": (lambda skew: "-" if skew is None else f"{skew:.1f}", "skew"),
    }
    print_page(answer, columns, empty="no stage keeps state")


def history_command(
    session: Session,
    dataflow: DataflowName,
    name: StateName,
    key: Key = None,
    null: Null = None,
    limit: Changes = 20,
    cursor: Cursor = None,
) -> None:
    """Show which epochs changed the records of one key, newest first.

    The history reaches back as far as versions of the state are kept: cbp history clicks
    count.counts url=a. For a view or a kept state, further columns of its key select one record of
    the group.
    """
    query = key_pairs(filter(None, key or ()), null)
    query += pairs({"limit": limit, "cursor": cursor})
    path = ("dataflows", dataflow, "state", *stage_and_state(name), "history")
    answer = session.rest.get_pairs(*path, query=query)
    session.exit_if_json(answer)
    columns: dict[str, Cell] = {
        "epoch": _epochs,
        "at": (clock, "at"),
        "before": (_records_text, "before"),
        "after": (_records_text, "after"),
        "by": _by,
    }
    print_items(answer["items"], columns, empty="no epoch changed this key")
    if answer["ends"] == "not_kept":
        print_text("Older versions of the state are not kept.")
    print_more(answer)


def _epochs(one: Mapping[str, Any]) -> int | str:
    first, last = one["first_epoch"], one["epoch"]
    return int(last) if first == last else f"{first}-{last}"


def _records_text(records: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        ", ".join(
            f"{column}={json.dumps(value, ensure_ascii=False)}" for column, value in r.items()
        )
        for r in records
    )


def _by(one: Mapping[str, Any]) -> str:
    correction = one["correction"]
    by = f"{correction['by']}: {correction['reason']}" if correction else one["run"] or ""
    return f"{by} (undone)" if one["undone"] else by
