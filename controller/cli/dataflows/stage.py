"""The command `cbp stage`: one stage, its queues, its state and its latest runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from cbp.errors.counts import format_count
from controller.cli.options import DataflowName, StageName
from controller.cli.session import Session
from controller.terminal import Cell, age, bytes_text, print_items, print_text

RUNS_SHOWN = 10
_PHASES = ("start", "plan", "job", "assemble", "tidy", "finish")


def stage_command(session: Session, dataflow: DataflowName, stage: StageName) -> None:
    """Show one stage: why it waits, its queues, the size of its state, its latest runs."""
    at, rest = ("dataflows", dataflow, "stages", stage), session.rest
    answer = rest.get(*at)
    answer["states"] = []
    if answer["code"] is not None and not answer["code"]["drift"]:
        answer["states"] = rest.get(*at, "states")["items"]
    asked = {"dataflow": dataflow, "stage": stage, "status": "COMMITTED", "limit": RUNS_SHOWN}
    answer["runs"] = rest.get("runs", **asked)["items"]
    session.exit_if_json(answer)
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
    columns: dict[str, Cell] = {
        **{name: name for name in ("input", "flow", "unread", "records")},
        "size": (bytes_text, "bytes"),
        "limit": lambda one: _limit(answer["limits"].get(one["input"])),
    }
    print_text("\ninputs", "bold")
    print_items(answer["stage"]["queues"], columns, empty="no queue of its own")


def _print_lookups(answer: dict[str, Any]) -> None:
    columns: dict[str, Cell] = {
        "look-up": "name",
        "table": "table",
        "by": lambda one: ", ".join(one["by"]) or "every group has all records",
        "changes call groups": lambda one: "yes" if one["wakes"] else "no",
        "last run read": lambda one: _moment(answer["moments"].get(one["name"])),
    }
    if lookups := answer["stage"]["lookups"]:
        print_text("\nlook-ups", "bold")
        print_items(lookups, columns)


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
    columns: dict[str, Cell] = {
        "epoch": "epoch",
        "run": "id",
        "in": lambda run: _figure(run, stage, "records_in"),
        "groups": lambda run: _figure(run, stage, "groups"),
        "by index": (_hits, "figures"),
        "took": (age, "seconds"),
        **{name: (partial(_seconds, name=name), "phases") for name in _PHASES},
    }
    print_text("\nlatest runs", "bold")
    print_items(runs, columns, empty="none yet")


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
