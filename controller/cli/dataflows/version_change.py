"""Output of a version change on a terminal: by source, stage and queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from cbp.errors.counts import format_count
from controller.terminal import print_table, print_text

__all__ = ["print_change"]

_STATE = {"none": "", "kept": "state kept", "new": "empty state", "rebuilt": "state rebuilt"}

_VIEW = {
    "filled": "begins with the last record of each key of its flow",
    "rebuilt": "is made again with its stage",
    "empty": "begins empty",
}


def print_change(answer: dict[str, Any], *, dry_run: str, retained: Collection[str] = ()) -> None:
    """Print what a change did, or would do.

    Args:
        answer: The service's answer.
        dry_run: The command's option for a dry run, such as `--plan`.
        retained: Stages that were asked to begin with the retained input.
    """
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
        print_text(
            f"Dry run: version {version} is valid. Run again without {dry_run} to apply it.",
            "green",
        )


def _skipped(answer: dict[str, Any]) -> Iterator[str]:
    """Yield what each input that begins with the next increment does not read, and the options."""
    for queue in answer["queues"]:
        if not queue["skipped_increments"]:
            continue
        stage, input_ = queue["stage"], queue["input"]
        before = format_count(queue["skipped_increments"], "increment")
        line = f"{stage}.{input_} reads new input only; {before} came before. To read all"
        if answer["done"]:
            yield f"{line}: cbp backfill {answer['name']} {stage}"
        else:
            yield f"{line}, register with --retained {stage}"


def _without_effect(answer: dict[str, Any], retained: Collection[str]) -> Iterator[str]:
    """Yield what helps instead for each stage that is not new, so that it goes on where it is."""
    for node in answer.get("stages", ()):
        stage = node["name"]
        if stage in retained and node["kind"] != "added" and not node["rewired"]:
            yield (
                f"--retained {stage}: is for a stage that this version adds, and {stage} is there "
                f"already. To let it read all retained input: --rebuild {stage}, or "
                f"cbp backfill {answer['name']} {stage}"
            )


def _is_shown(node: dict[str, Any]) -> bool:
    return bool(node["kind"] != "kept" or node["columns"])


def _row(node: dict[str, Any]) -> tuple[str, str, str]:
    state = _STATE[node["state"]]
    becomes = f"{node['kind']}, {state}" if state and node["kind"] != "removed" else node["kind"]
    changes_ = list(node["differences"])
    if node["buckets"]:
        changes_.append(f"{node['buckets'][0]} -> {node['buckets'][1]} buckets")
    changes_ += [f"{flow}: {'; '.join(changes)}" for flow, changes in node["columns"].items()]
    if node["kind"] != "added":
        changes_ += [f"input {name} reads another flow" for name in node["rewired"]]
    changes_ += [f"view {name} {_VIEW[fate]}" for name, fate in node["views"].items()]
    return node["name"], becomes, "; ".join(changes_)
