"""Output of a version change on a terminal: by source, stage and queue."""

from __future__ import annotations

from typing import Any

from controller.terminal import print_table, print_text

__all__ = ["print_change"]

_STATE = {"none": "", "kept": "state kept", "new": "empty state", "rebuilt": "state rebuilt"}


def print_change(answer: dict[str, Any], *, dry_run: str) -> None:
    """Print what a change did, or would do.

    Args:
        answer: The service's answer.
        dry_run: The command's option for a dry run, such as `--plan`.
    """
    name, version = answer["name"], answer["version"]
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
            f"{queue['dropped_increments']} ({queue['dropped_records']} records)",
            f"{queue['queued_increments']} ({queue['queued_records']} records)",
        )
        for queue in answer["queues"]
    ]
    if queues:
        print_table(("input", "increments dropped", "increments queued"), queues, empty="")
    for reason in answer["refused"]:
        print_text(f"refused: {reason['where']}: {reason['message']}", "red")
    if answer["done"]:
        print_text(f"{name} is at version {version}", "green")
    elif not answer["refused"]:
        print_text(
            f"Dry run: version {version} is valid. Run again without {dry_run} to apply it.",
            "green",
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
    return node["name"], becomes, "; ".join(changes_)
