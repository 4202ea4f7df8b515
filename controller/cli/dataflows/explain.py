"""The command `cbp explain`: the plan of a dataflow, or an explanation of one run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from cbp.errors import NotFoundError
from cbp.errors.counts import format_count
from controller.cli.dataflows.runs import print_phases
from controller.cli.options import complete_dataflows
from controller.cli.session import Session
from controller.terminal import bytes_text, print_table, print_text

Name = Annotated[
    str | None,
    typer.Argument(
        help="Name of the dataflow; not needed with --run.", autocompletion=complete_dataflows
    ),
]
Run = Annotated[str | None, typer.Option(help="Explain this run instead of the plan.")]
Shape = Literal["text", "mermaid", "dot"]
Format = Annotated[Shape, typer.Option("--format", help="How to draw the plan of a dataflow.")]


def explain_command(
    session: Session, dataflow: Name = None, run: Run = None, format_: Format = "text"
) -> None:
    """Show the plan of a dataflow; or, with --run, explain one run.

    The plan shows which stages run together, and how records reach them. The explanation of a
    run shows why it started, its input and its output. If you name both a dataflow and a run, the
    run must belong to the dataflow.
    """
    if dataflow is None and run is None:
        raise typer.BadParameter("name a dataflow, or a run with --run")  # noqa: EM101
    if run is None:
        answer = session.fetch("dataflows", str(dataflow), "plan")
        _print_plan(answer) if format_ == "text" else print_text(answer[format_])
        return
    answer = session.rest.get("runs", run, "account")
    if dataflow is not None and dataflow != answer["run"]["dataflow"]:
        hint = f"it is a run of {answer['run']['dataflow']!r}"
        raise NotFoundError(kind=f"run of {dataflow!r} with the id", name=run, hint=hint)
    answer["lineage"] = session.rest.get("runs", run, "lineage")
    session.exit_if_json(answer)
    _print_account(answer)


def _print_plan(answer: dict[str, Any]) -> None:
    # Imported here: `cbp --help` does not wait for the model to load.
    from cbp.model.plan.explain import buckets_advised

    plan = answer["plan"]
    print_text(answer["picture"])
    print_text(f"\nlanes: {plan['lanes']}")
    for unit in plan["units"]:
        names = " + ".join(stage["name"] for stage in unit["stages"])
        jobs = "one job" if unit["jobs"] == 1 else "one or two jobs"
        cycle = f"; on a cycle: {' -> '.join(unit['cycle'])}" if unit["cycle"] else ""
        print_text(f"\n{names}: one run, {jobs}{cycle}", "bold")
        for stage in unit["stages"]:
            _print_stage(stage, leads=stage["name"] == unit["leader"])
            advised = buckets_advised(stage["buckets"], plan["limits"]["slots"])
            if advised is not None:
                slots = format_count(plan["limits"]["slots"], "slot")
                print_text(f"    with {advised} buckets, its runs could use all {slots}")


def _print_stage(stage: dict[str, Any], *, leads: bool) -> None:
    tasks = f"up to {format_count(stage['tasks_max'], 'task')}"
    if stage["rows_per_task"]:
        tasks += f", one per {format_count(stage['rows_per_task'], 'record')}"
    facts = (
        f"{stage['translator']}, {stage['form']}",
        format_count(stage["buckets"], "bucket") if stage["buckets"] else "",
        tasks,
        f"started by rule {stage['runnable']}" if leads else "",
    )
    print_text(f"  {stage['name']}: {'; '.join(filter(None, facts))}")
    if stage["ways"]:
        print_text(f"    how: {stage['ways']}")
    for input_ in stage["inputs"]:
        routed = f" by {input_['route']}" if input_["route"] else ""
        print_text(f"    reads {input_['flow']}{routed}: {input_['words']}")
    for lookup in stage["lookups"]:
        by = f" by {', '.join(lookup['by'])}" if lookup["by"] else ""
        print_text(f"    looks up {lookup['table']} as {lookup['lookup']}{by}: {lookup['words']}")
    for state in stage["states"]:
        print_text(f"    keeps {state['state']}: {state['words']}")
    for output in stage["outputs"]:
        readers = ", ".join(output["readers"]) or "no stage (a result of the dataflow)"
        print_text(f"    writes {output['flow']} ({output['compared']}), read by {readers}")


def _print_account(answer: dict[str, Any]) -> None:
    # Imported here: as above.
    from cbp.model.run.account import ways

    run = answer["run"]
    stages = " + ".join(run["stages"])
    print_text(f"run {run['id']}: epoch {run['epoch']} of {run['dataflow']}.{stages}", "bold")
    lanes = ", ".join(run["lanes"])
    print_text(f"{run['status']}, attempt {run['attempt']}{f'; lane: {lanes}' if lanes else ''}")
    print_text(f"why: {answer['why']}")
    if went := ways(run["figures"]):
        print_text(f"how: {'; '.join(went)}")
    codes = ", ".join(f"{stage} {code}" for stage, code in answer["codes"].items())
    print_text(f"code: version {answer['version']}{f' ({codes})' if codes else ''}")
    if run["phases"]:
        print_text("\ntimeline", "bold")
        print_phases(run)
    print_text("\ninput", "bold")
    print_table(
        ("input", "increment", "framing key", "file", "records", "size", "taken"),
        [_consumed(item) for item in answer["consumed"]],
        empty="nothing",
        optional=("framing key", "size"),
    )
    _print_lookups(answer["lookups"])
    print_text("\noutput", "bold")
    rows = [
        (f"{item['flow']}/{item['index']}", item["records"], bytes_text(item["bytes"]))
        for item in answer["produced"]
    ]
    print_table(("increment", "records", "size"), rows, empty="no increment")
    _print_changes(answer)
    _print_lineage(answer["lineage"])
    if run["error"] is not None:
        print_text(f"error: {run['error'].get('message', '')}", "red")
    _print_part("figures", ("figure", "value"), sorted(run["figures"].items()))


def _print_part(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table below its title, unless it is empty."""
    if rows:
        print_text(f"\n{title}", "bold")
        print_table(columns, rows, empty="")


def _print_lookups(lookups: list[dict[str, Any]]) -> None:
    rows = [
        (
            f"{one['stage']}.{one['lookup']}",
            one["table"] or "-",
            "none yet" if one["epoch"] < 0 else one["epoch"],
            one["version"],
        )
        for one in lookups
    ]
    _print_part("looked up", ("look-up", "table", "as of epoch", "version"), rows)


def _print_lineage(lineage: dict[str, Any]) -> None:
    caused = [
        (f"{one['flow']}/{one['index']}", one["run"]) for one in lineage["causes"] if one["run"]
    ]
    _print_part("caused by", ("increment", "run"), caused)
    read = [
        (
            f"{one['flow']}/{one['index']}",
            f"{one['stage']}.{one['input']}",
            one["run"] or ("waits" if one["waits"] else "not known"),
        )
        for one in lineage["effects"]
    ]
    _print_part("read by", ("increment", "input", "run"), read)


def _print_changes(answer: dict[str, Any]) -> None:
    if not answer["recorded"]:
        title = "tables (changes unknown: the log no longer has the run's record)"
        _print_part(title, ("table", "since version"), list(answer["versions"].items()))
        return
    rows = [
        (
            change["table"] + (" (compaction)" if change["compaction"] else ""),
            answer["versions"].get(change["table"]),
            change["files_added"],
            change["rows_added"],
            change["rows_deleted"],
            change["files_dropped"],
        )
        for change in answer["changes"]
    ]
    columns = ("table", "since version", "new files", "rows", "rows deleted", "files dropped")
    print_text("\ntables", "bold")
    print_table(columns, rows, empty="no table changed")


def _consumed(item: dict[str, Any]) -> tuple[Any, ...]:
    flow, index = item["flow"], item["index"]
    part = {
        (True, True): "read, removed",
        (True, False): "read, kept",
        (False, True): "removed",
        (False, False): "",
    }[item["read"], item["removed"]]
    return (
        item["input"],
        f"frame {index} of {flow}" if item["frame"] else f"{flow}/{index}",
        item["framing_key"],
        item["file"] or None,
        item["records"],
        None if item["bytes"] is None else bytes_text(item["bytes"]),
        part,
    )
