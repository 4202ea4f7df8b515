"""The commands `cbp verify`, `cbp verifications` and `cbp differences`.

A verification recomputes a dataflow from its input, and compares every table.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import typer

from cbp.client import Verification
from cbp.errors.counts import format_count
from controller.cli.options import DataflowName, Paging, Period
from controller.cli.progress import progress_bar
from controller.cli.session import Session
from controller.terminal import Cell, age, clock, print_items, print_more, print_table, print_text

ErrorCode = Annotated[str | None, typer.Option(help="Only verifications with this error code.")]

UNFINISHED = 3
"""Exit status of an unfinished verification that has found no difference so far."""

UNDECIDED = 4
"""Exit status of a verification in which nothing differs, but not everything could be compared."""

_STATUSES = {"equal": 0, "timed_out": UNFINISHED, "cancelled": UNFINISHED, "undecided": UNDECIDED}

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)\Z")

TimeLimit = Annotated[str, typer.Option(help="Stop after this time, such as 90s, 10m or 2h.")]
Split = Annotated[
    Literal["increments", "at-once"],
    typer.Option(
        help="`increments`: recompute from the increments, one by one; `at-once`: from all input "
        "in one batch; histories cannot be compared then."
    ),
]
Engine = Annotated[
    Literal["direct", "reference"],
    typer.Option(
        help="`direct`: the engine that runs use; `reference`: shares no code with `direct`, is "
        "slow, and holds everything in memory."
    ),
]
Twice = Annotated[bool, typer.Option("--twice", help="Recompute twice even if nothing differs.")]


def verify_command(
    session: Session,
    dataflow: DataflowName,
    time_limit: TimeLimit = "10m",
    split: Split = "increments",
    engine: Engine = "direct",
    twice: Twice = False,
) -> None:
    """Recompute a dataflow from its retained input, and compare every table.

    Exit status: 0 if all tables are equal; 1 if a table differs, or if the comparison failed; 3 if
    it was cancelled or ran out of time without a difference so far; 4 if no table differs, but one
    is undecided: it could not be compared, or not from its first epoch on.
    """
    verified = _verify(
        session,
        dataflow,
        split="at_once" if split == "at-once" else "increments",
        engine=engine,
        twice=twice,
        seconds_max=seconds_of(time_limit),
    )
    status = _STATUSES.get(verified.status, 1)
    session.exit_if_json(verified, status=status)
    _print(dict(verified.answer))
    if status:
        raise typer.Exit(status)


def seconds_of(text: str) -> float:
    """Return a duration in seconds: `90`, `90s`, `10m`, `2h`, `1d`."""
    match = _DURATION.match(text.strip())
    if match is None or float(match[1]) == 0:
        message = f"expected a duration such as 90s, 10m or 2h, got {text!r}"
        raise typer.BadParameter(message)
    return float(match[1]) * _UNITS[match[2]]


def _verify(session: Session, dataflow: str, **asked: Any) -> Verification:
    """Show a progress bar until the verification ends; an interrupt cancels it."""
    seen = list[str]()
    with progress_bar(hidden=session.as_json) as show:

        def report(verification: Verification) -> None:
            seen.append(verification.id)
            show(verification)

        try:
            return session.client.verify(dataflow, report=report, **asked)
        except KeyboardInterrupt:  # the client has cancelled it
            if not seen:
                raise
            return session.client.verification(seen[-1])


def _print(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "table": "table",
        "compared as": lambda one: ", ".join(filter(None, (one["kind"], one["within"]))),
        "result": (lambda status: status.replace("_", " "), "status"),
        "records read": "records",
        "remark": lambda one: one["because"] or _since(one),
    }
    print_items(answer["tables"], columns, empty="no tables", optional=("compared as",))
    for verdict in answer["tables"]:
        if verdict["differing"]:
            print_text(f"\n{verdict['table']}: the first keys that differ", "red")
        for differing in verdict["differing"]:
            print_text(f"  key {differing['key']}")
            for name in ("expected", "found"):
                for record in differing[name] or ["nothing"]:
                    print_text(f"    {name:<9} {record}")
    print_text("")
    colors = {"equal": "green", "undecided": "yellow"}
    print_text(_sentence(answer), colors.get(answer["status"], "red"))


def _since(verdict: dict[str, Any]) -> str:
    if verdict["since"] is None:
        return ""
    if not verdict["since"]:
        return "each epoch was recomputed from the input that it had read"
    older = "; older epochs are not compared" if verdict["status"] == "undecided" else ""
    return f"from epoch {verdict['since']} on, starting with the state before it{older}"


def _sentence(answer: dict[str, Any]) -> str:
    name, seconds = answer["dataflow"], age(answer["seconds"])
    tables = answer["tables"]
    compared = [v for v in tables if v["status"] not in ("open", "left_out") and not v["because"]]
    records = sum(verdict["records"] for verdict in compared)
    far = (
        f"{format_count(len(compared), 'table')}, {format_count(records, 'record')} read, {seconds}"
    )
    if answer["status"] == "undecided":
        undecided = sum(verdict["status"] == "undecided" for verdict in tables)
        return (
            f"{name} is undecided: no difference was found ({far}), but {undecided} of "
            f"{format_count(len(tables), 'table')} could not be compared, or only from a later "
            "epoch on, for the reasons above"
        )
    if answer["status"] == "equal":
        out = sum(verdict["status"] == "left_out" for verdict in tables)
        rest = f"; {format_count(out, 'table')} left out for the reason above" if out else ""
        if all(verdict["since"] is not None for verdict in compared):
            return f"{name} equals its recomputation from the states named above ({far}){rest}"
        return f"{name} equals its recomputation from scratch ({far}){rest}"
    if answer["status"] == "differs":
        return (
            f"{name} differs from its recomputation ({far}); first at stage "
            f"`{answer['suspect']}`; a second recomputation gave the same result, or did not "
            "finish"
        )
    if answer["status"] == "not_deterministic":
        return (
            f"stage `{answer['suspect']}` of {name} is not deterministic: two recomputations of "
            f"the same input differ ({far})"
        )
    if answer["status"] == "failed":
        return f"{name} could not be verified: {(answer['error'] or {}).get('message', '')}"
    why = "out of time" if answer["status"] == "timed_out" else "cancelled"
    step = f"{answer['step']}, {answer['done']} of {answer['total']}"
    return f"{why}: no difference was found so far ({far}; {step})"


Id = Annotated[str, typer.Argument(metavar="VERIFICATION", help="Id of the verification.")]
OfTable = Annotated[
    str | None, typer.Option("--table", help="Show only this table, such as state/count.counts.")
]


def verifications_command(
    session: Session,
    dataflow: DataflowName,
    cancel: Annotated[
        str | None, typer.Option(metavar="ID", help="Cancel this verification.")
    ] = None,
    error_code: ErrorCode = None,
    period: Period = Period(),
) -> None:
    """List the last verifications of a dataflow, newest first; a restart keeps the last 20."""
    if cancel is not None:
        ended = session.client.cancel_verification(cancel)
        session.report(ended, f"{cancel} is cancelled", "")
        return
    at = ("dataflows", dataflow, "verifications")
    answer = session.fetch(*at, error_code=error_code, **period)
    columns: dict[str, Cell] = {
        "id": "id",
        "began": (clock, "began_at"),
        "result": "status",
        "took": (age, "seconds"),
        "differing keys": lambda one: sum(table["differences"] for table in one["tables"]),
    }
    print_items(answer["items"], columns, empty=f"none yet; begin with: cbp verify {dataflow}")


def differences_command(
    session: Session, verification: Id, table: OfTable = None, paging: Paging = Paging(limit=50)
) -> None:
    """Show the keys that differ, with the expected and the actual value of each column."""
    answer = session.fetch("verifications", verification, "differences", table=table, **paging)
    if not answer["items"]:
        print_text("no differing keys are stored for this verification", "dim")
    for one in answer["items"]:
        key = ", ".join(
            f"{name}={value}" for name, value in zip(one["key_columns"], one["key"], strict=True)
        )
        print_text(f"{one['table']}: {key}", "bold")
        print_table(("", *one["columns"]), _rows(one), empty="")
    print_more(answer)


def _rows(one: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (side, *record)
        for side in ("expected", "found")
        for record in one[side] or [["nothing", *[""] * (len(one["columns"]) - 1)]]
    ]
