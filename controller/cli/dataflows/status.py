"""The commands `cbp status` and `cbp waiting`: how dataflows are doing, and why a stage waits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.maintenance.scrub import folders
from controller.cli.session import AsJson, DataflowName, session
from controller.settings import Settings
from controller.terminal import age, bytes_text, clock, print_json, print_table, print_text

__all__ = ["status_command", "waiting_command"]

REASON_LENGTH_MAX = 15
"""If a reason is longer, all stand below the table of stages, where they have the whole width."""


def status_command(
    context: typer.Context,
    dataflow: Annotated[
        str | None, typer.Argument(help="Show the stages of this dataflow.")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Show the state of all dataflows, or of the stages of one."""
    with session(context).connect() as service:
        answer = (
            service.get("dataflows") if dataflow is None else service.get("dataflows", dataflow)
        )
        answer["instance"] = service.get("leader")
        if dataflow is not None and not answer["definition_problem"]:
            answer["folders"] = service.get("dataflows", dataflow, "sources")["items"]
    if json_:
        print_json(answer)
        return
    _print_leader(answer["instance"])
    if dataflow is None:
        _print_dataflows(answer["items"], session(context).settings)
    else:
        _print_stages(answer)


def waiting_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Show what each stage of a dataflow waits for, and what is queued at its inputs."""
    with session(context).connect() as service:
        answer = service.get("dataflows", dataflow, "waiting")
    if json_:
        print_json(answer)
        return
    for item in answer["items"]:
        kind = item["kind"] or "ready"
        print_text(f"{item['stage']}: {kind}, since {clock(item['since'])}")
        print_text(f"  {item['words'] or 'can start at the next tick'}")
    columns = ("stage", "input", "flow", "unread", "records", "kept", "framing", "open frame")
    rows = [
        (
            item["stage"],
            one["input"],
            one["flow"],
            one["unread"],
            one["records"],
            one["kept"],
            one["framing"],
            _frame(one["open_frame"]),
        )
        for item in answer["items"]
        for one in item["inputs"]
    ]
    print_table(columns, rows, empty="no inputs")


def _frame(frame: dict[str, Any] | None) -> str:
    return "-" if frame is None else f"{frame['framing_key']} ({frame['records']} records)"


def _print_leader(instance: dict[str, Any]) -> None:
    """Print which instance leads, if there can be several."""
    if instance["leader"] is None and instance["role"] == "leads":
        return
    where = instance["leader"] or "an unknown instance"
    print_text(f"led by {where} (epoch {instance['epoch']}); this instance {instance['role']}")


def _print_dataflows(items: list[dict[str, Any]], settings: Settings) -> None:
    columns = ("dataflow", "state", "lag", "queued", "records", "last success", "failures")
    rows = [
        (
            item["name"],
            item["state"],
            age(item["lag_seconds"]),
            item["queued_increments"],
            item["queued_records"],
            clock(item["last_success_at"]),
            item["failures"],
        )
        for item in items
    ]
    print_table(columns, rows, empty=_nothing_known(settings))


def _nothing_known(settings: Settings) -> str:
    """Return advice for a database that knows no dataflow."""
    lost = ", ".join(folders(settings))
    if not lost:
        return "no dataflow yet; register one with: cbp register FILE"
    return (
        f"the database knows no dataflow, but {settings.tables} holds: {lost}. Was the database "
        "lost, or is it another one? Stop the service and bring them back with: "
        "cbp recover --rebuild"
    )


def _print_stages(answer: dict[str, Any]) -> None:
    summary = answer["summary"]
    print_text(f"{summary['name']} (version {summary['version']}): {summary['state']}")
    if answer["definition_problem"]:
        print_text(answer["definition_problem"], "red")
    _print_stage_table(answer["stages"])
    print_table(
        ("source", "format", "equal content", "inputs stay", "up to", "says"),
        [
            (one["name"], one["format"], one["duplicates"], *_keep(one["keep"]))
            for one in answer["sources"]
        ],
        empty="no sources",
    )
    for folder in answer.get("folders", ()):
        trouble = folder["trouble"]
        for warning in (trouble and trouble["error"]["message"], folder["warning"]):
            if warning:
                print_text(
                    f"{folder['name']}: {warning} (see: cbp sources {summary['name']})", "red"
                )
    outputs = [
        (flow, "for good" if keep["hours"] is None else age(keep["hours"] * 3600), _most(keep))
        for stage in answer["stages"]
        for flow, keep in stage["keep"].items()
    ]
    if outputs:
        print_table(("output", "increments stay", "up to"), outputs, empty="")


def _print_stage_table(stages: list[dict[str, Any]]) -> None:
    """Print a row for each stage; reasons stand in their column if all are short."""
    columns: tuple[str, ...] = (
        "stage",
        "state",
        "epoch",
        "lag",
        "queued",
        "failures",
        "last success",
        "why",
    )
    reasons = {one["name"]: one["waiting"] for one in stages if one["waiting"]}
    below = any(len(reason) > REASON_LENGTH_MAX for reason in reasons.values())
    rows: list[tuple[Any, ...]] = [
        (
            stage["name"] if stage["runs_with"] == stage["name"] else f"+ {stage['name']}",
            stage["state"],
            stage["epoch"],
            age(stage["lag_seconds"]),
            sum(queue["increments"] for queue in stage["queues"]),
            stage["failures"],
            clock(stage["last_success_at"]),
            stage["waiting"],
        )
        for stage in stages
    ]
    if below:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(columns, rows, empty="no stages")
    for name, reason in reasons.items() if below else ():
        print_text(f"{name}: {reason}")


def _keep(keep: dict[str, Any]) -> tuple[str, str, str]:
    return age(keep["hours"] * 3600), _most(keep), f"the {keep['by']}"


def _most(keep: dict[str, Any]) -> str:
    return bytes_text(keep["bytes"]) if keep["bytes"] else "any size"
