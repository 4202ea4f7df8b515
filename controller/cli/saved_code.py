"""Saved code: which files were saved, and the choices for the next change of their dataflow.

    plan without a choice  ->  choice  ->  plan  ->  choice  ->  ...  until nothing more is chosen

The plan of a change names the stages that differ, and is refused until each has a choice, as an
author would give it to `cbp register`. `rebuild` recomputes a stage from its retained input, with
all stages after it. `keep` continues from the present state. A stage that a document adds
reads the retained input too if the choice is `rebuild` and this input can be read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cbp.errors.counts import format_count
from controller.registry.loaded_files import file_signature

OnChange = Literal["rebuild", "keep"]

_FOLLOWS = frozenset(
    {
        "state_undecided", "behind_rebuilt", "cycle_rebuilt_in_part", "key_changed",
        "second_key_changed",
    }
)  # fmt: skip
"""Codes of refusals that a rebuild of the named stage resolves."""

_UNREADABLE = frozenset({"input_not_retained", "changes_not_retained"})
"""Refusals of an added stage that do not apply if it begins with the next increment."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Stages to keep and to rebuild, and added stages that read the retained input.

    Attributes:
        only_new: Added stages that cannot read that input, and begin with the next increment; not
            sent.
    """

    keep: frozenset[str] = frozenset()
    rebuild: frozenset[str] = frozenset()
    retained: frozenset[str] = frozenset()
    only_new: frozenset[str] = frozenset()

    def query(self) -> dict[str, Any]:
        """Return the arguments of `cbp.client.Client.change`."""
        return {name: sorted(getattr(self, name)) for name in ("keep", "rebuild", "retained")}


NOTHING_CHOSEN = Chosen()


def choose_next(plan: Mapping[str, Any], chosen: Chosen, on_change: OnChange) -> Chosen:
    """Return the choice to plan with next; the same if there is no better one.

    Args:
        plan: The service's answer to a dry run with `chosen`.
        on_change: `keep` keeps stages where possible; other changes stay refused.
    """
    differing = {
        node["name"]
        for node in plan["stages"]
        if node["kind"] == "replaced" and (node["differences"] or node["columns"])
    }
    if on_change == "keep":
        return replace(chosen, keep=chosen.keep | _refused(plan, {"state_undecided"}))
    added = {node["name"] for node in plan["stages"] if node["kind"] == "added"}
    only_new = chosen.only_new | (chosen.retained & _refused(plan, _UNREADABLE))
    return replace(
        chosen,
        rebuild=chosen.rebuild | differing | _refused(plan, _FOLLOWS),
        retained=(chosen.retained | added) - only_new,
        only_new=only_new,
    )


def _refused(plan: Mapping[str, Any], codes: Collection[str]) -> frozenset[str]:
    """Return the stages that a plan refuses with one of these codes."""
    return frozenset(
        one["where"].split(".")[1]
        for one in plan["refused"]
        if one["code"] in codes and one["where"].startswith("stages.")
    )


def describe_change(answer: Mapping[str, Any], on_change: OnChange) -> Iterator[str]:
    """Yield the effects of a change, a line for each stage that changed."""
    yield f"{answer['name']} is at version {answer['version']}"
    added = {node["name"] for node in answer["stages"] if node["kind"] == "added"}
    for node in answer["stages"]:
        if node["kind"] == "kept" and not node["columns"]:
            continue
        why = "; ".join(node["differences"]) or _why(node)
        yield f"  {node['name']}: {_fate(node, on_change)} ({why})"
    for queue in answer["queues"]:
        if queue["queued_increments"]:
            increments = format_count(queue["queued_increments"], "increment")
            count = f"{increments}, {format_count(queue['queued_records'], 'record')}"
            reads = "reads" if queue["stage"] in added else "reads again"
            yield f"  {queue['stage']}.{queue['input']} {reads}: {count}"
        if queue["skipped_increments"]:
            before = format_count(queue["skipped_increments"], "increment")
            yield (
                f"  {queue['stage']}.{queue['input']} reads new input only, not the {before} "
                f"before it (to read all: cbp backfill {answer['name']} {queue['stage']})"
            )
    yield from (f"  {sentence}" for sentence in answer["meanwhile"])


def _why(node: Mapping[str, Any]) -> str:
    """Return why a stage changed, and the place of its code."""
    if node["columns"]:
        return "other columns"
    if node["kind"] == "added":
        return "new in the document"
    if node["kind"] == "removed":
        return "no longer in the document; its tables stay"
    return "it reads another flow" if node["rewired"] else "it reads repeated input"


def _fate(node: Mapping[str, Any], on_change: OnChange) -> str:
    if node["kind"] != "replaced":
        return str(node["kind"])
    if on_change == "rebuild":
        return "recomputed from its retained input"
    return {
        "kept": "continues from its state; earlier results stay as they are",
        "none": "new input only; earlier results stay as they are",
    }.get(node["state"], f"state {node['state']}")


class SavedFiles:
    """Finds which of some files were saved since the last check; for one thread.

    A file counts as saved once two checks in a row find it unchanged: an editor may still be
    writing. Size, time and inode are compared; an editor may replace a file.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = {path: file_signature(path) for path in paths}
        self._before = dict(self._known)

    def look(self, paths: Iterable[str]) -> list[str]:
        """Return the files saved since the last check, including files that are new in the list."""
        now = {path: file_signature(path) for path in paths}
        saved = [
            path
            for path, one in now.items()
            if one == self._before.get(path) and one != self._known.get(path)
        ]
        self._before = now
        self._known |= {path: now[path] for path in saved}
        return sorted(saved)
