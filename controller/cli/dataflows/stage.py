"""The command `cbp stage`: one stage, its queues, its state and its latest runs."""

from __future__ import annotations

from typing import Any

import typer

from cbp.errors.counts import format_count
from controller.cli.session import AsJson, DataflowName, StageName, session
from controller.terminal import (
    Cell,
    age,
    bytes_text,
    print_items,
    print_json,
    print_table,
    print_text,
)

RUNS_SHOWN = 10
_PHASES = ("start", "plan", "job", "assemble", "tidy", "finish")


def stage_command(
    context: typer.Context, dataflow: DataflowName, stage: StageName, json_: AsJson = False
) -> None:
    """Show one stage: why it waits, its queues, the size of its state, its latest runs."""
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "stages", stage)
        answer["states"] = []
        if answer["code"] is not None and not answer["code"]["drift"]:
            states = service.get("dataflows", dataflow, "stages", stage, "states")
            answer["states"] = states["items"]
        answer["runs"] = service.get(
            "runs", dataflow=dataflow, stage=stage, status="COMMITTED", limit=RUNS_SHOWN
        )["items"]
    if json_:
        print_json(answer)
        return
    _print_head(answer)
    _print_inputs(answer)
    _print_lookups(answer)
    _print_states(answer["states"])
    _print_runs(answer["runs"], stage)


def _print_head(answer: dict[str, Any]) -> None:
    stage, code = answer["stage"], answer["code"]
    print_text(
        f"{stage['name']}: {stage['state'].replace('_', ' ')}, next epoch {stage['epoch']}", "bold"
    )
    if stage["runs_with"] != stage["name"]:
        print_text(f"runs with {stage['runs_with']}")
    print_text(stage["waiting"] or "can start at the next tick")
    print_text(f"priority: {stage['priority']}")
    if code is not None:
        print_text(f"code: version {code['version']}, {code['registered']}, {code['place']}")
        if code["drift"]:
            print_text(f"the loaded code differs: {code['drift']}", "red")
        for file in code["newer_files"]:
            print_text(f"{file} is newer on disk; runs use the loaded code", "yellow")
    if answer["error"] is not None:
        print_text(answer["error"].get("message", ""), "red")
    if (aside := answer["set_aside"]) is not None:
        what = format_count(aside["records"], "record is", "records are")
        line = "" if aside["line"] is None else f", line {aside['line']}"
        origin = f" (the record is from {aside['file']}{line})" if aside["file"] else ""
        print_text(f"{what} set aside; the newest error: {aside['message']}{origin}", "red")


def _print_inputs(answer: dict[str, Any]) -> None:
    rows = [
        (
            one["input"],
            one["flow"],
            one["unread"],
            one["records"],
            bytes_text(one["bytes"]),
            _limit(answer["limits"].get(one["input"])),
        )
        for one in answer["stage"]["queues"]
    ]
    columns = ("input", "flow", "unread", "records", "size", "limit")
    print_text("\ninputs", "bold")
    print_table(columns, rows, empty="no queue of its own")


def _print_lookups(answer: dict[str, Any]) -> None:
    rows = [
        (
            one["name"],
            one["table"],
            ", ".join(one["by"]) or "every group has all records",
            "yes" if one["wakes"] else "no",
            _moment(answer["moments"].get(one["name"])),
        )
        for one in answer["stage"]["lookups"]
    ]
    if rows:
        print_text("\nlook-ups", "bold")
        columns = ("look-up", "table", "by", "changes call groups", "last run read")
        print_table(columns, rows, empty="")


def _moment(moment: dict[str, Any] | None) -> str:
    if moment is None:
        return "no run yet"
    epoch = "before epoch 0" if moment["epoch"] < 0 else f"epoch {moment['epoch']}"
    return f"{epoch} (version {moment['version']})"


def _limit(limit: dict[str, Any] | None) -> str:
    given = [f"{value:,} {name}" for name, value in (limit or {}).items() if value is not None]
    return " or ".join(given) or "-"


def _print_states(states: list[dict[str, Any]]) -> None:
    columns: dict[str, Cell] = {
        "state": "state",
        "records": "rows",
        "deleted": "dead",
        "size": (bytes_text, "bytes"),
        "files": "files",
        "buckets": lambda one: f"{one['used']:,} of {one['buckets']:,}",
        "skew": lambda one: (
            "-" if one["skew"] is None else f"{one['skew']:.2f} (bucket {one['fullest']})"
        ),
    }
    print_text("\nstates", "bold")
    print_items(states, columns, empty="no state")


def _print_runs(runs: list[dict[str, Any]], stage: str) -> None:
    rows = [
        (
            run["epoch"],
            run["id"],
            _figure(run, stage, "records_in"),
            _figure(run, stage, "groups"),
            _hits(run["figures"]),
            age(run["seconds"]),
            *(_seconds(run["phases"], name) for name in _PHASES),
        )
        for run in runs
    ]
    columns = ("epoch", "run", "in", "groups", "by index", "took", *_PHASES)
    print_text("\nlatest runs", "bold")
    print_table(columns, rows, empty="none yet")


def _figure(run: dict[str, Any], stage: str, name: str) -> Any:
    """Return a figure of the stage itself, also if several stages run together."""
    figures = run["figures"]
    value = figures.get(f"{stage}/{name}", figures.get(name))
    return "-" if value is None else int(value)


def _hits(figures: dict[str, float]) -> str:
    """Return the share of look-ups that used an index instead of reading a file."""
    index, scan = figures.get("lookups_index", 0), figures.get("lookups_scan", 0)
    return f"{index / (index + scan):.0%}" if index + scan else "-"


def _seconds(phases: list[dict[str, Any]], name: str) -> str:
    times = [one["end_seconds"] - one["begin_seconds"] for one in phases if one["name"] == name]
    return f"{sum(times):.3f} s" if times else "-"
