"""Views that a new version makes of outputs, and the records with which each begins.

    totals = Output(...)   version 1: the last record of a key is the current one
    totals = View(...)     version 2: the table has the current records; the flow has changes

A view with fewer records than the output had would be silently wrong. So a stage with such a view
is rebuilt from its retained input, or kept; a kept stage's view is filled:

    rebuilt   the stage reads its input again, and emits all records of the view again
    filled    the view begins with the last record of each key of the flow
    empty     no output had its name: it gets the records of the groups that are called from then on

A view is filled only if the output declared its key and had its columns; any other case is refused
(`view_not_fillable`). `controller.loop.operations.version_switch`, which reads tables, checks
whether the flow still has all of its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from cbp.errors import Mistake
from cbp.model.version.dataflow_shape import StageShape

ViewFate = Literal["filled", "rebuilt", "empty"]
"""How a new view gets its first records; see the module header."""


def flows_made_views(before: StageShape, after: StageShape) -> tuple[str, ...]:
    """Return the outputs of a stage that are views in its next version."""
    new = _changes_flows(after) - _changes_flows(before)
    return tuple(output for output in before.outputs if output in new)


def fates_of_views(
    before: StageShape, after: StageShape, *, rebuilt: bool
) -> Mapping[str, ViewFate]:
    """Return, for each new view of a stage, how it gets its first records."""
    made = flows_made_views(before, after)
    new = _changes_flows(after) - before.states.keys()
    return {
        view: "rebuilt" if rebuilt else "filled" if view in made else "empty"
        for view in after.states
        if view in new
    }


def view_mistakes(
    name: str, before: StageShape, after: StageShape, *, rebuilt: bool
) -> Iterator[Mistake]:
    """Yield the mistakes of a new version in views.

    These are states whose old records may not fit, outputs that take over the flow of a view, and
    new views that cannot be filled.
    """
    for state in sorted(before.states.keys() & after.states.keys()):
        old, new = before.state_rules.get(state, {}), after.state_rules.get(state, {})
        # Other changes of a key are found by the rule for second keys.
        if old.get("changes") != new.get("changes"):
            change = "became a view" if "changes" in new else "is no longer a view"
        elif old.get("bag") != new.get("bag"):
            change = "no longer has a key" if "bag" in new else "got a key"
        elif "changes" in new and "second_key" in old and "second_key" not in new:
            change = "lost columns of its key"
        else:
            continue
        if not rebuilt:
            message = (
                f"this state {change}, so old records may not fit. Rebuild the stage (--rebuild "
                f"{name}; REST: rebuild={name}), or rename the view or state"
            )
            yield Mistake("view_changed", f"stages.{name}.states.{state}", message)
    was, is_ = _changes_flows(before), _changes_flows(after)
    for flow in sorted((was - is_) & before.outputs.keys() & after.outputs.keys()):
        message = (
            "this flow carried the changes of a view, so it cannot become the flow of an output: "
            "give the new output another name"
        )
        yield Mistake("view_changed", f"stages.{name}.outputs.{flow}", message)
    for view in flows_made_views(before, after) if not rebuilt else ():
        if why := _why_not_filled(name, view, before, after):
            yield _not_fillable(name, view, why)


def collected_mistake(name: str, view: str, first: int) -> Mistake:
    """Return the mistake for a view whose flow lost old records."""
    return _not_fillable(name, view, f"increments of this flow before {first} were removed")


def _not_fillable(name: str, view: str, why: str) -> Mistake:
    message = (
        f"the view cannot begin with the last record of each key of the earlier output: {why}. "
        f"Rebuild the stage from its retained input (--rebuild {name}; REST: rebuild={name}), or "
        "give the view a new name; it then begins empty"
    )
    return Mistake("view_not_fillable", f"stages.{name}.states.{view}", message)


def _why_not_filled(name: str, view: str, before: StageShape, after: StageShape) -> str:
    """Return why the last record per key of an output is not the view; `""` if it is."""
    declared = before.details.get(f"key of {view}") or ""
    if " latest by " in declared:
        return "the output has latest_by, which may choose a record of a key other than the last"
    old, history, _ = declared.partition(" history")
    if history:
        return "the output was a history, in which a key has a record in each epoch"
    if not old:
        return "the output declared no key, so no record replaced another"
    if "bag" in after.state_rules.get(view, {}):
        return "a view without a key can have equal records"
    key = _key_of(after, view)
    if set(old.split(",")) != set(key):
        return f"the key of the output was ({old}), but that of the view is ({', '.join(key)})"
    had, has = before.outputs[view], after.states[view]
    if frozenset(had.fields) != frozenset(has.fields):
        return f"the output had the columns ({had}), not ({has})"
    return ""


def _key_of(stage: StageShape, view: str) -> tuple[str, ...]:
    parts = (stage.keyed_by(view), stage.state_rules.get(view, {}).get("second_key", ""))
    return tuple(column for part in parts if part for column in part.split(", "))


def _changes_flows(stage: StageShape) -> frozenset[str]:
    rules = stage.state_rules.values()
    return frozenset(rule["changes"] for rule in rules if "changes" in rule)
