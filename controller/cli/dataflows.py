"""Commands on dataflows: register, validate, status, pause, resume, retry, close, delete."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.errors import NotFoundError
from controller.cli.change import print_change
from controller.cli.errors import FileUnreadableError
from controller.cli.output import age, bytes_text, clock, print_json, print_table, print_text
from controller.cli.scrub import folders
from controller.cli.session import AsJson, DataflowName, session
from controller.cli.wait_until_applied import wait_for_stages
from controller.settings import Settings

__all__ = [
    "close_command",
    "delete_command",
    "pause_command",
    "register_command",
    "resume_command",
    "retry_command",
    "status_command",
    "validate_command",
    "waiting_command",
]

GROUP = "cbp.dataflows"
JSON_TYPE, YAML_TYPE = "application/json", "application/yaml"

Document = Annotated[
    str,
    typer.Argument(help="JSON or YAML file, or the name of a ready dataflow.", show_default=False),
]
Plan = Annotated[bool, typer.Option("--plan", help="Show what would happen; change nothing.")]
Keep = Annotated[
    list[str] | None, typer.Option(metavar="STAGE", help="A replaced stage keeps its state.")
]
Rebuild = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Empty a stage's state and make it again from its input."),
]
Retained = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="An added stage begins with the retained input."),
]
Expected = Annotated[
    int | None, typer.Option("--expect-version", min=1, help="Refuse at any other version.")
]
Stage = Annotated[str, typer.Argument(help="Name of the stage.", show_default=False)]
Purge = Annotated[bool, typer.Option("--purge", help="Remove the tables too. Cannot be undone.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing tables.")]


def register_command(
    context: typer.Context,
    file: Document,
    plan: Plan = False,
    keep: Keep = None,
    rebuild: Rebuild = None,
    retained: Retained = None,
    expected_version: Expected = None,
    json_: AsJson = False,
) -> None:
    """Register a dataflow, or let a new version of a registered one take over.

    A wrong document gets every mistake with its place. --plan shows what a new version does
    to every stage, its state and its queues, and changes nothing.
    """
    content, content_type = _document(file)
    sent: dict[str, Any] = {"content": content, "content_type": content_type}
    chosen = {"keep": keep, "rebuild": rebuild, "retained": retained}
    query = {**chosen, "expected_version": expected_version, "dry_run": str(plan).lower()}
    with session(context).connect() as service:
        name = service.post("dataflows", "validate", **sent)["name"]
        known = name in {item["name"] for item in service.get("dataflows")["items"]}
        if known:
            answer = service.put("dataflows", name, query=query, **sent)
        elif plan:
            answer = {"name": name, "version": 1, "changed": True, "done": False}
        else:
            answer = service.post("dataflows", **sent)
    if json_:
        print_json(answer)
    elif "summary" not in answer:
        print_change(answer, dry_run="--plan")
    else:
        summary = answer["summary"]
        print_text(f"registered {summary['name']} with {summary['stages']} stage(s)", "green")
        for source in answer["sources"]:
            print_text(f"feed it with: cbp drop {summary['name']} {source['name']} FILE...")


def validate_command(context: typer.Context, file: Document, json_: AsJson = False) -> None:
    """Check a document as `register` does, and change nothing."""
    content, content_type = _document(file)
    with session(context).connect() as service:
        answer = service.post("dataflows", "validate", content=content, content_type=content_type)
    if json_:
        print_json(answer)
        return
    print_text(f"{answer['name']} may be registered", "green")
    print_table(("flow", "columns"), list(answer["flows"].items()), empty="no flows")


def status_command(
    context: typer.Context,
    dataflow: Annotated[str | None, typer.Argument(help="Show the stages of this one.")] = None,
    json_: AsJson = False,
) -> None:
    """Show how dataflows get on, or the stages of one of them."""
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
    """Say what the stages of a dataflow wait for, and what stands at their inputs."""
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


def pause_command(
    context: typer.Context,
    dataflow: DataflowName,
    stage: Annotated[str | None, typer.Argument(help="Only this stage.")] = None,
    json_: AsJson = False,
) -> None:
    """Start no more runs of a dataflow, or of one of its stages; those under way end."""
    if stage is None:
        _act(context, ("dataflows", dataflow, "pause"), f"{dataflow} is paused", json_)
    else:
        path = ("dataflows", dataflow, "stages", stage, "pause")
        _act(context, path, f"{dataflow}.{stage} is paused", json_)


def resume_command(context: typer.Context, dataflow: DataflowName, json_: AsJson = False) -> None:
    """Run a dataflow again, and clear the failures of its stages."""
    _act(context, ("dataflows", dataflow, "resume"), f"{dataflow} runs", json_)


def retry_command(
    context: typer.Context, dataflow: DataflowName, stage: Stage, json_: AsJson = False
) -> None:
    """Give a stage that stopped by itself one more try."""
    path = ("dataflows", dataflow, "stages", stage, "retry")
    _act(context, path, f"{dataflow}.{stage} tries again", json_)


def close_command(
    context: typer.Context,
    dataflow: DataflowName,
    flow: Annotated[str, typer.Argument(help="`source` or `stage.output`.", show_default=False)],
    key: Annotated[
        str | None, typer.Option(help="Repeated with the same key, it closes only once.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once all stages have applied it.")
    ] = False,
    json_: AsJson = False,
) -> None:
    """Close the open frames of a flow; records that come later begin new ones."""
    with session(context).connect() as service:
        answer = service.post("dataflows", dataflow, "flows", flow, "close", idempotency_key=key)
    if wait:
        wait_for_stages(session(context), dataflow)
    if json_:
        print_json(answer)
        return
    closed = ", ".join(answer["inputs"])
    print_text(f"{flow} is closed before increment {answer['at']}, at {closed}", "green")


def delete_command(
    context: typer.Context,
    dataflow: DataflowName,
    purge: Purge = False,
    yes: Yes = False,
    json_: AsJson = False,
) -> None:
    """Forget a dataflow; its tables stay, unless --purge is given."""
    if purge and not (yes or json_):
        typer.confirm(f"Remove {dataflow} and all of its tables?", abort=True, err=True)
    with session(context).connect() as service:
        service.delete("dataflows", dataflow, purge=str(purge).lower())
    if json_:
        print_json({"deleted": dataflow, "purged": purge})
    else:
        print_text(f"{dataflow} is deleted; its tables " + ("are gone" if purge else "stay"))


def _act(context: typer.Context, path: tuple[str, ...], done: str, as_json: bool) -> None:
    with session(context).connect() as service:
        answer = service.post(*path)
    if as_json:
        print_json(answer)
    else:
        print_text(done, "green")


def _document(file: str) -> tuple[bytes, str]:
    """Return the text of a document, and its media type."""
    path = Path(file)
    if not path.exists() and path.name == file and not path.suffix:
        return json.dumps(_ready(file)).encode(), JSON_TYPE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileUnreadableError(path, error.strerror or str(error)) from error
    return content, JSON_TYPE if path.suffix.lower() == ".json" else YAML_TYPE


def _ready(name: str) -> Any:
    """Return the document of a dataflow that an installed package provides."""
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name == name:
            return point.load()()
    known = ", ".join(sorted({point.name for point in points})) or "none"
    raise NotFoundError(kind="file or ready dataflow", name=f"{name}; ready: {known}")


def _print_leader(instance: dict[str, Any]) -> None:
    """Print which instance leads, if there can be several."""
    if instance["leader"] is None and instance["role"] == "leads":
        return
    where = instance["leader"] or "nobody that this instance knows"
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
    columns = ("stage", "state", "epoch", "lag", "queued", "failures", "last success", "why")
    rows = [
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
        for stage in answer["stages"]
    ]
    print_table(columns, rows, empty="no stages")
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
        for told in (trouble and trouble["error"]["message"], folder["warning"]):
            if told:
                print_text(f"{folder['name']}: {told} (see: cbp sources {summary['name']})", "red")
    outputs = [
        (flow, "for good" if keep["hours"] is None else age(keep["hours"] * 3600), _most(keep))
        for stage in answer["stages"]
        for flow, keep in stage["keep"].items()
    ]
    if outputs:
        print_table(("output", "increments stay", "up to"), outputs, empty="")


def _keep(keep: dict[str, Any]) -> tuple[str, str, str]:
    return age(keep["hours"] * 3600), _most(keep), f"the {keep['by']}"


def _most(keep: dict[str, Any]) -> str:
    return bytes_text(keep["bytes"]) if keep["bytes"] else "any size"
