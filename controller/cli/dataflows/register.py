"""The commands `cbp register` and `cbp validate`: a document becomes a dataflow, or is checked."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.client.errors import ServiceProblemError
from cbp.errors import DataflowInvalidError, NotFoundError
from cbp.errors.counts import format_count
from controller.cli.dataflows.version_change import print_change
from controller.cli.records.applied import WaitForStages, wait_until_applied
from controller.cli.session import AsJson, DryRun, session
from controller.client.errors import FileUnreadableError
from controller.terminal import one_line, print_json, print_table, print_text

__all__ = ["arrival_line", "document_of", "register_command", "validate_command"]

GROUP = "cbp.dataflows"
JSON_TYPE, YAML_TYPE = "application/json", "application/yaml"

Document = Annotated[
    str,
    typer.Argument(help="JSON or YAML file, or the name of a ready dataflow.", show_default=False),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Keep the state of this stage, which is replaced."),
]
Rebuild = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Compute the state of this stage again from its input."),
]
Retained = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Let this added stage begin with the retained input."),
]
Expected = Annotated[
    int | None,
    typer.Option("--expect-version", min=1, help="Refuse unless this version is registered now."),
]


def register_command(
    context: typer.Context,
    file: Document,
    plan: DryRun = False,
    keep: Keep = None,
    rebuild: Rebuild = None,
    retained: Retained = None,
    expected_version: Expected = None,
    wait: WaitForStages = False,
    json_: AsJson = False,
) -> None:
    """Register a dataflow, or replace a registered one by a new version.

    If the document is wrong, every mistake is listed with its place. --plan shows what a new
    version would do to each stage, its state and its queues; it ends with status 1 if the version
    would be refused.
    """
    content, content_type = document_of(file)
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
    if wait and answer.get("done", True):
        wait_until_applied(session(context), name, hidden=json_)
    if json_:
        print_json(answer)
    elif "summary" not in answer:
        print_change(answer, dry_run="--plan", retained=retained or ())
    else:
        summary = answer["summary"]
        stages = format_count(summary["stages"], "stage")
        print_text(f"registered {summary['name']} with {stages}", "green")
        epochs = ", ".join(f"{one['name']} {one['epoch']}" for one in answer["stages"])
        if summary["version"] > 1 or any(one["epoch"] for one in answer["stages"]):
            print_text(f"took up its tables at version {summary['version']} (epochs: {epochs})")
        for source in answer["sources"]:
            print_text(arrival_line(summary["name"], source))
    if answer.get("refused"):
        raise typer.Exit(1)


def arrival_line(dataflow: str, source: Mapping[str, Any]) -> str:
    """Return a line that says how records come to a source, as REST describes it."""
    if source["format"] == "delta":
        return f"source {source['name']} follows the Delta table {source['options']['table']}"
    if source["location"]:
        return f"source {source['name']} takes in what is put below {source['location']}"
    return f"feed it with: cbp drop {dataflow} {source['name']} FILE..."


def validate_command(context: typer.Context, file: Document, json_: AsJson = False) -> None:
    """Check a document as `cbp register` does; change nothing.

    Each mistake is one line on stderr, `file:line:column: code: message`, as editors read it.
    Status 0: the document can be registered; 1: it has mistakes, or the service refused; 2: a
    wrong call.
    """
    content, content_type = document_of(file)
    with session(context).connect() as service:
        try:
            answer = service.post(
                "dataflows", "validate", content=content, content_type=content_type
            )
        except ServiceProblemError as error:
            mistakes = error.details.get("mistakes")
            if json_ or error.error_code != DataflowInvalidError.code or not mistakes:
                raise
            _print_mistakes(file, mistakes, error.details.get("mistakes_max"))
            raise typer.Exit(1) from error
    if json_:
        print_json(answer)
        return
    print_text(f"{answer['name']} is valid and can be registered", "green")
    print_table(("flow", "columns"), list(answer["flows"].items()), empty="no flows")


def _print_mistakes(file: str, mistakes: Sequence[Mapping[str, Any]], most: int | None) -> None:
    for mistake in mistakes:
        print_text(_mistake_line(file, mistake), on_stderr=True)
    count = f"more than {most} mistakes; the first ones are shown" if most else ""
    print_text(count or format_count(len(mistakes), "mistake"), "red", on_stderr=True)


def _mistake_line(file: str, mistake: Mapping[str, Any]) -> str:
    """Return a mistake as one line that begins with its place."""
    place = f"{file}:{mistake['line']}:{mistake['column']}" if mistake.get("line") else file
    code = f" (at {mistake['place']})" if mistake.get("place") else ""
    message = f"{mistake['where']}: {mistake['message']}{code}"
    return one_line(f"{place}: {mistake['code']}: {message}")


def document_of(file: str) -> tuple[bytes, str]:
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
    raise NotFoundError(
        kind="file or ready dataflow", name=name, hint=f"ready dataflows are: {known}"
    )
