"""The commands `cbp status` and `cbp waiting`: how dataflows are doing, and why a stage waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from cbp.errors.counts import format_count
from cbp.model.schedule.priority import NORMAL
from controller.cli.dataflows.register import uncorrectable_line
from controller.cli.maintenance.scrub import folders
from controller.cli.options import DataflowName, complete_dataflows
from controller.cli.records.set_aside import print_set_aside
from controller.cli.session import Session
from controller.client.service_client import FileUnreadableError
from controller.settings import Settings
from controller.terminal import Cell, age, bytes_text, clock, print_items, print_table, print_text

_STATUSES = {"up_to_date": 0, "catching_up": 3, "stuck": 4}
"""Exit status by freshness, which `cbp.model.schedule.freshness` judges."""

_FAILING = ("retrying", "stopped", "broken")
"""States of a dataflow of which a part fails, such as a sink."""

REASON_LENGTH_MAX = 15
"""If a reason is longer, all reasons are printed below the table of stages, in full width."""


def status_command(
    session: Session,
    dataflow: Annotated[
        str | None,
        typer.Argument(help="Show the stages of this dataflow.", autocompletion=complete_dataflows),
    ] = None,
) -> None:
    """Show whether all dataflows are up to date, or one of them with its stages.

    Exit status: 0 if every stage has applied every file that arrived; 3 if the service is still
    catching up; 4 if an operator is needed; 1 if the service did not answer.
    """
    rest, of = session.rest, ("dataflows", *([] if dataflow is None else [dataflow]))
    answer = rest.get(*of)
    answer["freshness"] = rest.get("freshness", dataflow=dataflow)
    answer["instance"] = rest.get("leader")
    if dataflow is not None and not answer["definition_problem"]:
        answer["folders"] = rest.get(*of, "sources")["items"]
        answer["rebuilds"] = rest.get(*of, "rebuilds")
        answer["reach"] = rest.get(*of, "reach")
    status = _STATUSES[answer["freshness"]["state"]]
    session.exit_if_json(answer, status=status)
    _print_leader(answer["instance"])
    if dataflow is None:
        _print_dataflows(answer, session.settings)
    else:
        _print_stages(answer)
    summaries = answer["items"] if dataflow is None else [answer["summary"]]
    _print_freshness(answer["freshness"], summaries)
    if status:
        raise typer.Exit(status)


def waiting_command(session: Session, dataflow: DataflowName) -> None:
    """Show why each stage of a dataflow waits, and the queues at its inputs."""
    answer = session.fetch("dataflows", dataflow, "waiting")
    for item in answer["items"]:
        kind = item["kind"] or "ready"
        print_text(f"{item['stage']}: {kind}, since {clock(item['since'])}")
        print_text(f"  {item['words'] or 'can start at the next tick'}")
    names = ("stage", "input", "flow", "unread", "records", "kept", "framing")
    columns: dict[str, Cell] = {name: name for name in names}
    columns["open frame"] = (_frame, "open_frame")
    inputs = [{**one, "stage": item["stage"]} for item in answer["items"] for one in item["inputs"]]
    print_items(inputs, columns, empty="no inputs")


def _frame(frame: dict[str, Any] | None) -> str:
    if frame is None:
        return "-"
    return f"{frame['framing_key']} ({format_count(frame['records'], 'record')})"


def _print_leader(instance: dict[str, Any]) -> None:
    """Print which instance leads, if there can be several."""
    if instance["leader"] is None and instance["role"] == "leads":
        return
    where = instance["leader"] or "an unknown instance"
    print_text(f"led by {where} (epoch {instance['epoch']}); this instance {instance['role']}")


def _print_freshness(freshness: dict[str, Any], summaries: Iterable[dict[str, Any]]) -> None:
    """Print the verdict as the last line, after the remaining work.

    A dataflow that is up to date can still fail, as its summary says: the verdict ignores sinks.
    """
    for trouble in freshness["service"]:
        print_text(trouble, "red")
    if not (judged := freshness["dataflows"]):
        return
    behind = [one for one in judged if one["state"] != "up_to_date"]
    for one in behind:
        style = "yellow" if one["state"] == "stuck" else ""
        print_text(f"{one['dataflow']}: {'; '.join(one['left'])}", style)
    if not behind and freshness["service"]:
        print_text("all input is applied, but the service needs an operator", "yellow")
        return
    failing = [one["name"] for one in summaries if one["state"] in _FAILING]
    if not behind and failing:
        count = format_count(len(failing), "dataflow needs", "dataflows need")
        print_text(f"up to date, but {count} attention: {', '.join(failing)}", "yellow")
        return
    if not behind:
        name = judged[0]["dataflow"] if len(judged) == 1 else f"all {len(judged)} dataflows"
        print_text(f"up to date: {name}", "green")
        return
    of_all = f"{len(behind)} of {format_count(len(judged), 'dataflow')}"
    stuck = freshness["state"] == "stuck"
    then = "an operator is needed" if stuck else "the service is catching up"
    print_text(f"not up to date: {of_all}; {then}", "yellow")


def _print_dataflows(answer: dict[str, Any], settings: Settings) -> None:
    items = answer["items"]
    fresh = {one["dataflow"]: one["state"] for one in answer["freshness"]["dataflows"]}
    columns: dict[str, Cell] = {
        "dataflow": "name",
        "state": lambda item: _state_or_drain(item, fresh.get(item["name"], "")),
        "lag": (age, "lag_seconds"),
        "queued": "queued_increments",
        "records": "queued_records",
        "last success": (clock, "last_success_at"),
        "failures": "failures",
    }
    print_items(items, columns, empty="" if items else _nothing_known(settings))
    for item in items:
        for failing in item["failing"]:
            print_text(f"{item['name']}.{failing['stage']}: {_failure(failing)}", "red")
        for trouble in _troubles(item):
            print_text(f"{item['name']}: {trouble}", "red")
        if _says_more(item):
            print_text(f"{item['name']}: {item['problem']}", "red")
        _print_not_applied(item)


def _troubles(summary: dict[str, Any]) -> list[str]:
    """Return what fails outside the stages; a service of an earlier release does not report it."""
    return summary.get("troubles", [])  # type: ignore[no-any-return]


def _says_more(summary: dict[str, Any]) -> bool:
    """Return whether a dataflow's problem is more than its failing stages and troubles.

    A service of an earlier release does not say what its problem is about: it counts as more.
    """
    is_known = summary["failing"] or summary.get("problem_code") == "outside"
    return bool(summary["problem"] and not is_known)


def _state_or_drain(summary: dict[str, Any], freshness: str) -> str:
    """Return the state of a dataflow in words; if nothing is wrong, its drain or its freshness."""
    state, desired = str(summary["state"]), str(summary["desired"])
    calm = state == "ok" or (state == "paused" and summary["problem"] is None)
    if calm and desired in ("draining", "drained"):
        return desired
    return freshness.replace("_", " ") if state == "ok" and freshness else state


def _print_not_applied(summary: dict[str, Any]) -> None:
    """Print how many files and records were refused, rejected or set aside, and how to see them."""
    name = summary["name"]
    for source, files in summary["quarantined"].items():
        what = format_count(files, "file is", "files are")
        where = f"cbp quarantine list {name} {source}"
        print_text(f"{name}.{source}: {what} in quarantine (see: {where})", "red")
    for source, records in summary["rejected"].items():
        what = format_count(records, "record was", "records were")
        print_text(f"{name}.{source}: {what} rejected (see: cbp rejects {name} {source})", "yellow")
    print_set_aside(summary)


def _failure(failing: dict[str, Any]) -> str:
    """Return since when a stage fails, with which error, and when it is tried again."""
    error = failing["error"] or {}
    since = f"fails since {clock(failing['since'])}" if failing["since"] else "fails"
    tries = f"{failing['tries']} tries" if failing["tries"] != 1 else "1 try"
    then = f"; next try {clock(failing['retry_at'])}" if failing["retry_at"] else ""
    what = f": {error.get('message', '')} ({error.get('error_code', '')})" if error else ""
    return f"{since}, {tries}{then}{what}"


def _nothing_known(settings: Settings) -> str:
    """Return advice for a database that knows no dataflow."""
    try:
        lost = ", ".join(folders(settings))
    except FileUnreadableError:  # the folder belongs to the user of the service
        lost = ""
    if not lost:
        return "no dataflow yet; register one with: cbp register FILE"
    return (
        f"the database has no dataflow, but {settings.tables} has tables of: {lost}. If the "
        "database was lost, stop the service and restore them with: cbp recover --rebuild. If this "
        "is another database, correct CBP_DATABASE_URL"
    )


def _print_stages(answer: dict[str, Any]) -> None:
    summary = answer["summary"]
    fresh = next((one["state"] for one in answer["freshness"]["dataflows"]), "")
    state = _state_or_drain(summary, fresh)
    print_text(f"{summary['name']} (version {summary['version']}): {state}")
    if answer["definition_problem"]:
        print_text(answer["definition_problem"], "red")
    _print_not_applied(summary)
    _print_stage_table(answer["stages"])
    for stage in answer["stages"]:
        _print_rebuild(summary["name"], stage)
    _print_beside(summary["name"], answer)
    print_newer_files(answer["stages"], answer.get("rebuilds", {"items": ()})["items"])
    reach = answer.get("reach", {"sources": ()})
    kept = {one["source"]: _kept_from(one) for one in reach["sources"]}
    columns: dict[str, Cell] = {
        "source": "name",
        "format": "format",
        "duplicates": "duplicates",
        "inputs kept": lambda one: age(one["keep"]["hours"] * 3600),
        "up to": (_most, "keep"),
        "set by": lambda one: f"the {one['keep']['by']}",
        "kept since": lambda one: kept.get(one["name"], "-"),
    }
    print_items(answer["sources"], columns, empty="no sources")
    for one in answer["sources"]:
        if one["uncorrectable"]:
            print_text(uncorrectable_line(one), "yellow")
    if reach["sources"]:
        oldest = reach["oldest_position"] or 0
        print_text(f"a roll-back can go back to position {oldest}")
    for folder in answer.get("folders", ()):
        trouble = folder["trouble"]
        for warning in (trouble and trouble["error"]["message"], folder["warning"]):
            if warning:
                print_text(
                    f"{folder['name']}: {warning} (see: cbp sources {summary['name']})", "red"
                )
    for trouble in _troubles(summary):
        # Troubles of sources were printed above with their folders, if those could be listed.
        if not trouble.startswith("source ") or "folders" not in answer:
            print_text(trouble, "red")
    if _says_more(summary):
        print_text(summary["problem"], "red")
    outputs = [
        (flow, "forever" if keep["hours"] is None else age(keep["hours"] * 3600), _most(keep))
        for stage in answer["stages"]
        for flow, keep in stage["keep"].items()
    ]
    if outputs:
        print_table(("output", "increments kept", "up to"), outputs, empty="")


def _print_stage_table(stages: list[dict[str, Any]]) -> None:
    """Print a row for each stage; the reasons are a column if all are short."""
    columns: dict[str, Cell] = {
        "stage": lambda one: ("" if one["runs_with"] == one["name"] else "+ ") + one["name"],
        "state": _state,
        "epoch": "epoch",
        "lag": (age, "lag_seconds"),
        "queued": lambda one: sum(queue["increments"] for queue in one["queues"]),
        "failures": "failures",
        "last success": (clock, "last_success_at"),
    }
    reasons = {one["name"]: one["waiting"] for one in stages if one["waiting"]}
    below = any(len(reason) > REASON_LENGTH_MAX for reason in reasons.values())
    print_items(stages, columns if below else columns | {"why": "waiting"}, empty="no stages")
    for name, reason in reasons.items() if below else ():
        print_text(f"{name}: {reason}")


def _print_rebuild(dataflow: str, stage: dict[str, Any]) -> None:
    """Print how much input a stage has to read again, and how to read its earlier state."""
    rebuild = stage["rebuilding"]
    if not rebuild:
        return
    name = stage["name"]
    left = f"{rebuild['left']:,} of {format_count(rebuild['queued'], 'increment')}"
    what = f"{left} left to read again ({rebuild['percent']} % done)" if rebuild["left"] else ""
    after = f"waiting for {', '.join(rebuild['behind'])}" if rebuild["behind"] else ""
    text = f"{name} is being rebuilt: {', '.join(filter(None, (what, after)))}"
    if rebuild["as_it_was"] and stage["states"]:
        state = f"{name}.{stage['states'][0]['name']}"
        text += f"; its earlier state: cbp state {dataflow} {state} --at {rebuild['as_it_was']}"
    print_text(text, "yellow")


def _print_beside(dataflow: str, answer: dict[str, Any]) -> None:
    """Print the rebuild that is under way, and the sources whose input is not kept completely."""
    rebuilds = answer.get("rebuilds", {"items": (), "back_until": None})
    for job in rebuilds["items"]:
        if job["status"] == "ready":
            text = f"new tables are ready: cbp rebuild {dataflow} --swap (or --cancel)"
            print_text(text, "yellow")
        elif not job["ended"] and job["again_at"]:
            text = f"new tables are being built, and the rebuild waits: {job['error']['detail']}"
            print_text(f"{text}; the next attempt is at {clock(job['again_at'])}", "yellow")
        elif not job["ended"]:
            done = f"{job['done']:,} of {job['total']:,} {job['unit']}" if job["total"] else ""
            text = f"new tables are being built: {' '.join(filter(None, (job['step'], done)))}"
            share = f"{text}, working {job['share']:.0%} of the time (CBP_REBUILD_SHARE)"
            print_text(share if job["share"] < 1 else text, "yellow")
            if job["anew"]:
                print_text(f"the rebuild started over: {job['anew']}")
    for job in rebuilds["items"][:1]:
        if job["status"] == "failed":
            text = f"the last rebuild failed at {clock(job['ended_at'])} (see: cbp rebuild"
            print_text(f"{text} {dataflow} --list)", "yellow")
    if rebuilds["back_until"]:
        until, show = clock(rebuilds["back_until"]), f"cbp rebuild {dataflow} --back"
        print_text(f"the tables from before the swap are kept until {until} (to show them: {show})")
    for one in answer.get("reach", {"sources": ()})["sources"]:
        if not one["complete"]:
            print_text(
                f"{one['source']}: input is kept from increment {one['first']:,} on, so rebuilds "
                "and corrections that recompute groups are refused (see: cbp gc "
                f"{dataflow} --reach)"
            )


def _kept_from(reach: dict[str, Any]) -> str:
    """Return where a source's kept input begins: how far back corrections and rebuilds go."""
    return "the start" if reach["complete"] else f"increment {reach['first']:,}"


def print_newer_files(stages: Iterable[dict[str, Any]], rebuilds: Iterable[dict[str, Any]]) -> None:
    """Print which stages run other code than their files contain, and until when.

    A rebuild that has not ended may have the new code.
    """
    built = any(not job["ended"] for job in rebuilds)
    files: dict[str, list[str]] = {}
    for stage in stages:
        for file in stage["newer_files"]:
            files.setdefault(file, []).append(stage["name"])
    for file, names in files.items():
        run, wait = ("runs", "waits") if len(names) == 1 else ("run", "wait")
        then = f"until the service restarts, and then {wait} until you register again"
        if built:
            then = "until you swap in tables that were built with the new code, or register again"
        print_text(
            f"{file} has changed since it was loaded; {', '.join(names)} {run} the loaded code "
            f"{then} (cbp register FILE --plan shows the effects of the new code)",
            "yellow",
        )


def _state(stage: dict[str, Any]) -> str:
    """Return the state of a stage, with its priority unless that is normal."""
    state, priority = stage["state"].replace("_", " "), stage["priority"]
    return str(state) if priority == NORMAL else f"{state}, {priority}"


def _most(keep: dict[str, Any]) -> str:
    return bytes_text(keep["bytes"]) if keep["bytes"] else "any size"
