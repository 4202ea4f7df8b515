"""The commands `cbp register` and `cbp validate`: a document becomes a dataflow, or is checked."""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cbp.client.calls import content_of_document
from cbp.client.errors import ServiceProblemError
from cbp.errors import ChangeRefusedError, DataflowInvalidError, NotFoundError
from cbp.errors.counts import format_count
from controller.cli.options import DryRun
from controller.cli.progress import progress_bar
from controller.cli.records.applied import WaitForStages, wait_until_applied
from controller.cli.session import Session
from controller.client.service_client import FileUnreadableError
from controller.registry.ready_dataflows import GROUP
from controller.terminal import one_line, print_table, print_text

_IN_PLACE = (
    "nothing was built. To rebuild in place, use --in-place; readers then see the tables empty at "
    "first, and then growing"
)

Document = Annotated[
    str, typer.Argument(help="JSON or YAML file, or the name of a ready dataflow.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Keep the state and the outputs of this changed stage."),
]
Rebuild = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="Recompute the results of this stage from the retained input. All tables of the "
        "dataflow are built beside the present ones; with --in-place, only those of the stage are "
        "rebuilt.",
    ),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place",
        help="With --rebuild: recompute the stages in their present tables, which readers see "
        "empty at first, and then growing.",
    ),
]
Retained = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Let this added stage read the retained input first."),
]
Expected = Annotated[
    int | None,
    typer.Option("--expect-version", min=1, help="Refuse unless this is the registered version."),
]


def register_command(
    session: Session,
    file: Document,
    plan: DryRun = False,
    keep: Keep = None,
    rebuild: Rebuild = None,
    retained: Retained = None,
    in_place: InPlace = False,
    expected_version: Expected = None,
    wait: WaitForStages = False,
) -> None:
    """Register a dataflow, or replace a registered one by a new version.

    If the document is wrong, every mistake is listed with its place. --plan shows how a new version
    would change each stage, its state and its queues; the exit status is 1 if the version would be
    refused. With --rebuild, all tables are rebuilt beside the present ones, which are still updated
    and read, and then swapped in at one time. `cbp rebuild DATAFLOW --cancel` ends the rebuild, and
    `--back` undoes the swap.
    """
    document = document_of(file)
    client, beside = session.client, bool(rebuild) and not in_place
    answer: dict[str, Any]
    name = client.validate(document).name
    if name in {one.name for one in client.dataflows()}:
        try:
            answer = client.change(
                name,
                document,
                keep=keep or (),
                rebuild=rebuild or (),
                retained=retained or (),
                beside=beside,
                expected_version=expected_version,
                dry_run=plan,
            )
        except ServiceProblemError as error:
            if beside and error.error_code == ChangeRefusedError.code:
                print_text(_IN_PLACE, on_stderr=True)
            raise
        if answer.get("rebuild"):
            with progress_bar(hidden=session.as_json) as show:
                job = client.follow_rebuild(name, answer["rebuild"], report=show)
            answer |= {"done": job.status == "swapped"}
    elif plan:
        answer = {"name": name, "version": 1, "changed": True, "done": False}
    else:
        answer = dict(client.register(document).answer)
    if wait and answer.get("done", True):
        wait_until_applied(session, name)
    session.exit_if_json(answer, status=int(bool(answer.get("refused"))))
    if "summary" in answer:
        _print_registered(answer)
        return
    print_change(answer, dry_run="--plan", retained=retained or ())
    if answer.get("refused"):
        if beside:
            print_text(_IN_PLACE)
        raise typer.Exit(1)


def _print_registered(answer: dict[str, Any]) -> None:
    summary = answer["summary"]
    stages = format_count(summary["stages"], "stage")
    print_text(f"registered {summary['name']} with {stages}", "green")
    epochs = ", ".join(f"{one['name']} {one['epoch']}" for one in answer["stages"])
    if summary["version"] > 1 or any(one["epoch"] for one in answer["stages"]):
        at = f"at version {summary['version']} (epochs: {epochs})"
        print_text(f"continues with its existing tables {at}")
    for source in answer["sources"]:
        print_text(arrival_line(summary["name"], source))
        if source["uncorrectable"]:
            print_text(uncorrectable_line(source), "yellow")


def arrival_line(dataflow: str, source: Mapping[str, Any]) -> str:
    """Return a line that says how records arrive at a source, given its REST description."""
    if source["format"] == "delta":
        return f"source {source['name']} follows the Delta table {source['options']['table']}"
    if source["location"]:
        return f"source {source['name']} takes in files below {source['location']}"
    return f"feed it with: cbp drop {dataflow} {source['name']} FILE..."


def uncorrectable_line(source: Mapping[str, Any]) -> str:
    """Return a line that says why files of a source cannot be corrected."""
    why = source["uncorrectable"]
    return f"no file of {source['name']} can be replaced or taken back: {why}"


def validate_command(session: Session, file: Document) -> None:
    """Check a document as `cbp register` does; change nothing.

    Each mistake is one line on stderr, `file:line:column: code: message`, as editors read it.
    Exit status: 0 if the document can be registered; 1 if it has mistakes, or the service refused;
    2 for a usage error.
    """
    document = document_of(file)
    try:
        valid = session.client.validate(document)
    except ServiceProblemError as error:
        mistakes = error.details.get("mistakes")
        if session.as_json or error.error_code != DataflowInvalidError.code or not mistakes:
            raise
        for mistake in mistakes:
            print_text(_mistake_line(file, mistake), on_stderr=True)
        most = error.details.get("mistakes_max")
        count = f"more than {most} mistakes; the first ones are shown" if most else ""
        print_text(count or format_count(len(mistakes), "mistake"), "red", on_stderr=True)
        raise typer.Exit(1) from error
    session.exit_if_json(valid)
    print_text(f"{valid.name} is valid and can be registered", "green")
    print_table(("flow", "columns"), list(valid.flows.items()), empty="no flows")


def _mistake_line(file: str, mistake: Mapping[str, Any]) -> str:
    """Return a mistake as one line that begins with its place."""
    place = f"{file}:{mistake['line']}:{mistake['column']}" if mistake.get("line") else file
    code = f" (at {mistake['place']})" if mistake.get("place") else ""
    message = f"{mistake['where']}: {mistake['message']}{code}"
    return one_line(f"{place}: {mistake['code']}: {message}")


def document_of(file: str) -> tuple[bytes, str]:
    """Return the text of a document, and its media type."""
    path = Path(file)
    if path.name == file and not path.suffix and not os.path.exists(path):
        return json.dumps(_ready(file)).encode(), "application/json"
    try:
        return content_of_document(path)
    except OSError as error:
        raise FileUnreadableError(path, error.strerror or str(error)) from error


def _ready(name: str) -> Any:
    """Return the document of a dataflow that an installed package provides."""
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name == name:
            return point.load()()
    hint = f"ready dataflows are: {', '.join(sorted({point.name for point in points})) or 'none'}"
    raise NotFoundError(kind="file or ready dataflow", name=name, hint=hint)


_STATE = {"none": "", "kept": "state kept", "new": "empty state", "rebuilt": "state rebuilt"}

_VIEW = {
    "filled": "begins with the last record of each key of its flow",
    "rebuilt": "is rebuilt with its stage",
    "empty": "begins empty",
}


def print_change(answer: dict[str, Any], *, dry_run: str, retained: Collection[str] = ()) -> None:
    """Print what a change did, or would do; `dry_run` is the command's option for that."""
    name, version = answer["name"], answer["version"]
    for line in _without_effect(answer, retained):
        print_text(line)
    if not answer["changed"] and not answer.get("refused"):
        print_text(f"{name} is already at version {version}; nothing changes", "green")
        return
    if "stages" not in answer:
        print_text(f"{name} is not registered yet: there is no state to keep")
        return
    rows = [("source", *_row(node)) for node in answer["sources"] if _is_shown(node)]
    rows += [("stage", *_row(node)) for node in answer["stages"]]
    print_table(("", "name", "becomes", "what differs"), rows, empty="no stages")
    queues = [
        (
            f"{queue['stage']}.{queue['input']}",
            f"{queue['dropped_increments']} ({format_count(queue['dropped_records'], 'record')})",
            f"{queue['queued_increments']} ({format_count(queue['queued_records'], 'record')})",
        )
        for queue in answer["queues"]
        if queue["dropped_increments"] or queue["queued_increments"]
    ]
    if queues:
        print_table(("input", "increments dropped", "increments queued"), queues, empty="")
    for line in (*_skipped(answer), *answer["meanwhile"]):
        print_text(line)
    for reason in answer["refused"]:
        print_text(f"refused: {reason['where']}: {reason['message']}", "red")
    if answer["done"]:
        print_text(f"{name} is at version {version}", "green")
    elif not answer["refused"]:
        text = f"Dry run: version {version} is valid. Run again without {dry_run} to apply it."
        print_text(text, "green")


def _skipped(answer: dict[str, Any]) -> Iterator[str]:
    """Yield for each input the increments that it skips, and how to read them."""
    for queue in answer["queues"]:
        if not queue["skipped_increments"]:
            continue
        stage, input_ = queue["stage"], queue["input"]
        before = format_count(queue["skipped_increments"], "increment")
        line = f"{stage}.{input_} reads new input only, not the {before} before it. To read all"
        if answer["done"]:
            yield f"{line}: cbp backfill {answer['name']} {stage}"
        else:
            yield f"{line}, register with --retained {stage}"


def _without_effect(answer: dict[str, Any], retained: Collection[str]) -> Iterator[str]:
    """Yield advice for each stage of --retained that is not new: the option has no effect on it."""
    for node in answer.get("stages", ()):
        stage = node["name"]
        if stage in retained and node["kind"] != "added" and not node["rewired"]:
            yield (
                f"--retained {stage} applies only to stages that this version adds, but {stage} "
                f"exists already. To let {stage} read all retained input, use --rebuild {stage}, "
                f"or cbp backfill {answer['name']} {stage}"
            )


def _is_shown(node: dict[str, Any]) -> bool:
    return bool(node["kind"] != "kept" or node["columns"] or node["settings"])


def _row(node: dict[str, Any]) -> tuple[str, str, str]:
    state = _STATE[node["state"]]
    becomes = f"{node['kind']}, {state}" if state and node["kind"] != "removed" else node["kind"]
    changes_ = list(node["differences"])
    if node["buckets"]:
        changes_.append(f"{node['buckets'][0]} -> {node['buckets'][1]} buckets")
    changes_ += [f"{flow}: {'; '.join(changes)}" for flow, changes in node["columns"].items()]
    if node["kind"] != "added":
        changes_ += [f"input {name} reads another flow" for name in node["rewired"]]
    changes_ += node["settings"]
    changes_ += [f"view {name} {_VIEW[fate]}" for name, fate in node["views"].items()]
    return node["name"], becomes, "; ".join(changes_)
