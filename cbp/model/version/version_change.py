"""Plan of a version change: the effects on every stage, decided before any action.

A stage is *kept*, *added*, *removed* or *replaced*. It is replaced if its code, parameters, keys or
inputs differ. For a replaced stage the author must choose: keep its state and its outputs, or
rebuild them from the retained input. This includes stages without state: the records of the earlier
code stay in their outputs, and in the results of the stages downstream. A stage without an epoch
needs no choice. A change that would lose values, or change the meaning of old records, is refused.

    kept      replaced, keep      state, memo and queues stay
    added     replaced, rebuild   state and outputs are empty; a rebuilt stage reads its input
                                  again from the first increment on, an added one from the next
    kept, with a new view         see `cbp.model.version.new_views`
    removed                       its queues are deleted; its tables stay for readers

A rebuilt stage emits its earlier records again. So each stage that reads them must be rebuilt, too,
or the author chooses `keep` for it, which is safe for a stage that only overwrites.

Invariant (tests/cbp/model/version/test_version_change.py): a version compared with itself keeps
everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cbp.errors import Mistake
from cbp.errors.message_limits import listed
from cbp.model.flow.schema import Schema
from cbp.model.flow.schema_evolution import ColumnChange, compare, refused
from cbp.model.graph.cycles import cycles, predecessors, reached
from cbp.model.version.dataflow_shape import (
    RULE,
    DataflowShape,
    InputShape,
    SourceShape,
    StageShape,
)
from cbp.model.version.new_views import ViewFate, fates_of_views, flows_made_views, view_mistakes
from cbp.model.version.setting_changes import setting_changes

Kind = Literal["kept", "added", "removed", "replaced"]
StateFate = Literal["none", "kept", "new", "rebuilt"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The author's choices for stages that the document alone does not decide.

    Attributes:
        keep: Replaced stages that keep their state, outputs, memo and queues.
        rebuild: Stages whose state and outputs are emptied and rebuilt from the retained input.
        retained: Added stages that begin with the retained input instead of the next increment.
    """

    keep: frozenset[str] = frozenset()
    rebuild: frozenset[str] = frozenset()
    retained: frozenset[str] = frozenset()


NO_CHOICE = Choice()
_NO_PAST: Mapping[str, Schema] = {}


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The change of one source or stage.

    Attributes:
        state: For a stage: what happens to its state; `none` means that it has no state.
        buckets: Number of buckets before and after, if it changes.
        columns: Maps the names of flows and states to their changed columns.
        differences: Other differences, in words.
        rewired: New inputs, and inputs that now read another flow; they begin with an empty queue.
        reframed: Inputs that are known to be framed differently now.
        other_rule: Whether it has another Runnable now, so that the old memo is dropped.
        views: Maps each new view to how it gets its first records.
        emptied: States and outputs that lose their records, and get them again while the stage
            reads its input. Readers of their tables see the difference.
        settings: Changed settings that change no table, in words.
        behind: Stages that have read, directly or indirectly, results that a replaced stage
            keeps from its earlier code. Not in `to_json`.
    """

    name: str
    kind: Kind
    state: StateFate = "none"
    buckets: tuple[int, int] | None = None
    columns: Mapping[str, tuple[ColumnChange, ...]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    rewired: tuple[str, ...] = ()
    reframed: tuple[str, ...] = ()
    other_rule: bool = False
    views: Mapping[str, ViewFate] = field(default_factory=dict)
    emptied: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return self.kind != "kept" or bool(self.columns) or self.buckets is not None

    @property
    def filled(self) -> tuple[str, ...]:
        """The new views that begin with the last record of each key of an output."""
        return tuple(view for view, fate in self.views.items() if fate == "filled")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, for users and their programs."""
        return {
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "buckets": self.buckets and list(self.buckets),
            "columns": {name: [*map(str, changes)] for name, changes in self.columns.items()},
            "differences": list(self.differences),
            "settings": list(self.settings),
            "rewired": list(self.rewired),
            "views": dict(self.views),
            "emptied": list(self.emptied),
        }


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The effects of a new version on a dataflow."""

    sources: Mapping[str, NodeChange]
    stages: Mapping[str, NodeChange]
    refused: tuple[Mistake, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any source or stage is different."""
        return any(node.changed for node in (*self.sources.values(), *self.stages.values()))

    @property
    def rebuilt(self) -> frozenset[str]:
        """Stages whose state is rebuilt."""
        return frozenset(n for n, stage in self.stages.items() if stage.state == "rebuilt")

    @property
    def emptied(self) -> frozenset[str]:
        """Stages that begin with nothing."""
        added = (name for name, stage in self.stages.items() if stage.kind == "added")
        return self.rebuilt.union(added)

    @property
    def tried_again(self) -> frozenset[str]:
        """Stages that are retried, since their code, input or settings have changed."""
        return frozenset(n for n, stage in self.stages.items() if stage.changed or stage.settings)

    def with_settings(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> ChangePlan:
        """Return the plan with the settings that differ between two documents."""
        plans: dict[str, dict[str, NodeChange]] = {}
        for section, nodes in (("sources", self.sources), ("stages", self.stages)):
            settings = setting_changes(before, after, section)
            plans[section] = {n: replace(o, settings=settings.get(n, ())) for n, o in nodes.items()}
        return replace(self, sources=plans["sources"], stages=plans["stages"])


def flow_schemas(shape: DataflowShape) -> dict[str, Schema]:
    """Return the columns of every flow: sources, and outputs as `stage.output`."""
    return {name: source.schema for name, source in shape.sources.items()} | {
        f"{name}.{output}": schema
        for name, stage in shape.stages.items()
        for output, schema in stage.outputs.items()
    }


def compare_versions(
    before: DataflowShape,
    after: DataflowShape,
    choice: Choice = NO_CHOICE,
    past: Mapping[str, Schema] = _NO_PAST,
    never_ran: Collection[str] = (),
) -> ChangePlan:
    """Return the change of every source and stage, and every reason to refuse it.

    Args:
        past: Maps flows that only earlier versions had to their last columns; a flow that is
            declared again continues after its old increments.
        never_ran: Stages without an epoch, whose state is empty.
    """
    mistakes, reads = list(_choice_mistakes(before, after, choice)), predecessors(before.wiring)
    sources = {
        name: _source(name, before.sources.get(name), after.sources.get(name), mistakes)
        for name in dict.fromkeys((*before.sources, *after.sources))
    }
    stages = {
        name: _stage(
            name,
            before.stages.get(name),
            after.stages.get(name),
            choice,
            mistakes,
            never_ran=name in never_ran,
            behind=tuple(reached(reads, [name])[1:]) if name in reads else (),
        )
        for name in dict.fromkeys((*before.stages, *after.stages))
    }
    mistakes += _back(before, after, past)
    plan = ChangePlan(sources, stages)
    mistakes += _behind_rebuilt(after, plan, choice)
    mistakes += _cycles_in_part(after, plan)
    return ChangePlan(sources, stages, tuple(mistakes))


def _choice_mistakes(
    before: DataflowShape, after: DataflowShape, choice: Choice
) -> Iterator[Mistake]:
    both = before.stages.keys() & after.stages.keys()
    for word, names, allowed in (
        ("keep", choice.keep, both),
        ("rebuild", choice.rebuild, both),
        # A stage that already exists is allowed, so that a request can be repeated.
        ("retained", choice.retained, after.stages.keys()),
    ):
        for name in sorted(names - allowed):
            there = ", ".join(sorted(allowed)) or "none"
            message = f"{word} cannot name {name!r}; it can name these stages: {there}"
            yield Mistake("choice_unknown", f"stages.{name}", message)
    for name in sorted(choice.keep & choice.rebuild):
        message = "keep and rebuild both name this stage: choose one"
        yield Mistake("choice_twice", f"stages.{name}", message)


def _source(
    name: str, before: SourceShape | None, after: SourceShape | None, mistakes: list[Mistake]
) -> NodeChange:
    if before is None or after is None:
        return NodeChange(name, "added" if before is None else "removed")
    columns = compare(before.schema, after.schema)
    mistakes += _column_mistakes(f"sources.{name}.schema", columns, "rename the source")
    differences = tuple(
        f"{what}: {old} -> {new}"
        for what, old, new in (
            ("format", before.format, after.format),
            ("options", dict(before.options), dict(after.options)),
        )
        if old != new
    )
    changed = {name: columns} if columns else {}
    kind: Kind = "replaced" if differences else "kept"
    return NodeChange(name, kind, columns=changed, differences=differences)


def _stage(
    name: str,
    before: StageShape | None,
    after: StageShape | None,
    choice: Choice,
    mistakes: list[Mistake],
    *,
    never_ran: bool,
    behind: tuple[str, ...],
) -> NodeChange:
    if after is None:
        return NodeChange(name, "removed", "kept" if before and before.states else "none")
    if before is None:
        fate: StateFate = "new" if after.states else "none"
        return NodeChange(name, "added", fate, rewired=tuple(after.inputs))
    differences = tuple(_differences(before, after))
    rewired = tuple(
        input_
        for input_, shape in after.inputs.items()
        if input_ not in before.inputs or before.inputs[input_].flow != shape.flow
    )
    rebuilt = name in choice.rebuild
    made_views = flows_made_views(before, after)
    chosen = rebuilt or never_ran or name in choice.keep
    if differences and not chosen:
        shown = "; ".join(differences)
        message = (
            f"the translator of this stage has changed ({shown}). Choose whether to keep its state "
            f"and its outputs as they are (--keep {name}; REST: keep={name}), or to rebuild them "
            f"from the retained input (--rebuild {name}; REST: rebuild={name})"
        )
        if behind:
            message += (
                ". The results of these stages come from the earlier code of this stage: "
                f"{listed(behind)}. If you rebuild this stage, you must choose for each of them, "
                "too; if you keep its state, their results stay as they are"
            )
        if made_views:
            message += (
                f". With keep, a new view ({', '.join(made_views)}) begins with the last record of "
                "each key of the earlier output"
            )
        mistakes.append(Mistake("state_undecided", f"stages.{name}", message))
    outputs = _changed_columns(before.outputs, after.outputs)
    states = _changed_columns(before.states, after.states)
    advice = (
        "rename the output, so that old increments stay readable; or rename the stage, which "
        "then begins with the retained input (--retained NEW; REST: retained=NEW)"
    )
    for output, changes in sorted(outputs.items()):
        mistakes += _column_mistakes(f"stages.{name}.outputs.{output}", changes, advice)
    if not rebuilt:
        advice = f"rebuild the state (--rebuild {name}; REST: rebuild={name}), or rename the state"
        for state, changes in sorted(states.items()):
            mistakes += _column_mistakes(f"stages.{name}.states.{state}", changes, advice)
        mistakes += _key_mistakes(name, before, after)
    mistakes += view_mistakes(name, before, after, rebuilt=rebuilt)
    moved = before.buckets != after.buckets and bool(before.states) and not rebuilt
    kind: Kind = "replaced" if differences or rebuilt or rewired else "kept"
    fate = "rebuilt" if rebuilt else "kept" if before.states or made_views else "none"
    if fate == "none" and after.states:
        fate = "new"
    return NodeChange(
        name,
        kind,
        fate,
        (before.buckets, after.buckets) if moved else None,
        {f"{name}.{one}": changes for one, changes in (*outputs.items(), *states.items())},
        differences,
        rewired,
        tuple(i for i, shape in after.inputs.items() if _reframed(before.inputs.get(i), shape)),
        RULE in before.details and before.details[RULE] != after.details.get(RULE),
        fates_of_views(before, after, rebuilt=rebuilt),
        tuple(_tables_of(before, after)) if rebuilt and not never_ran else (),
        behind if differences and name in choice.keep and not never_ran else (),
    )


def _changed_columns(
    before: Mapping[str, Schema], after: Mapping[str, Schema]
) -> dict[str, tuple[ColumnChange, ...]]:
    compared = {name: compare(before[name], after[name]) for name in before.keys() & after.keys()}
    return {name: changes for name, changes in compared.items() if changes}


def _tables_of(before: StageShape, after: StageShape) -> Iterator[str]:
    """Yield the states and outputs that both versions have; no messages, and each view once."""
    yield from (name for name in after.states if name in before.states)
    messages = {name for name, shape in after.inputs.items() if shape.loopback}
    for name in after.outputs:
        if name in before.outputs and name not in after.states and name not in messages:
            yield name


def _differences(before: StageShape, after: StageShape) -> Iterator[str]:
    """Yield the differences that replace a stage; wiring, buckets and columns do not count."""
    yield from _changed(
        ("translator", before.reference, after.reference),
        ("parameters", dict(before.parameters), dict(after.parameters)),
        ("form", before.form, after.form),
        ("key", _text(before.key), _text(after.key)),
    )
    yield from before.code.differences(after.code)
    for what, olds, news in (
        ("input", before.inputs, after.inputs),
        ("output", before.outputs, after.outputs),
        ("state", before.states, after.states),
    ):
        yield from (f"{what} {name} is new" for name in news if name not in olds)
        yield from (f"{what} {name} no longer exists" for name in olds if name not in news)
    for name in (one for one in before.inputs if one in after.inputs):
        yield from _input_differences(name, before.inputs[name], after.inputs[name])
    for name in (one for one in before.states if one in after.states):
        old_rules, new_rules = (one.state_rules.get(name, {}) for one in (before, after))
        yield from _rule_differences(f"state {name}", old_rules, new_rules)
    for name in (one for one in before.details if one in after.details):
        yield from _changed((name, before.details[name], after.details[name]))


def _changed(*values: tuple[str, Any, Any]) -> Iterator[str]:
    """Yield each value that differs between before and after, in words."""
    return (
        f"{what}: {old or 'none'} -> {new or 'none'}" for what, old, new in values if old != new
    )


def _reframed(was: InputShape | None, now: InputShape) -> bool:
    return was is not None and (
        any(was.framing_code.differences(now.framing_code))
        or was.rules.get("frame_by") != now.rules.get("frame_by")
    )


def _input_differences(name: str, before: InputShape, after: InputShape) -> Iterator[str]:
    if before.loopback != after.loopback:
        yield f"input {name} is {'now' if after.loopback else 'no longer'} a loopback"
    for difference in before.framing_code.differences(after.framing_code):
        yield f"frame_by of input {name}: {difference}"
    yield from _rule_differences(f"input {name}", before.rules, after.rules)


def _rule_differences(
    flow: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[str]:
    for rule in sorted(before.keys() | after.keys()):
        yield from _changed((f"{rule} of {flow}", before.get(rule), after.get(rule)))


def _column_mistakes(
    where: str, columns: tuple[ColumnChange, ...], advice: str
) -> Iterator[Mistake]:
    if wrong := refused(columns):
        shown = "; ".join(map(str, wrong))
        message = f"the new columns do not fit the records written before ({shown}); {advice}"
        yield Mistake("schema_incompatible", where, message)


def _back(
    before: DataflowShape, after: DataflowShape, past: Mapping[str, Schema]
) -> Iterator[Mistake]:
    """Yield a mistake for each flow that is added again and whose old records do not fit it."""
    known = flow_schemas(before)
    for flow, schema in flow_schemas(after).items():
        if flow not in known and flow in past:
            stage, _, output = flow.partition(".")
            where = f"stages.{stage}.outputs.{output}" if output else f"sources.{flow}.schema"
            advice = "an earlier version had a flow of this name: choose another name"
            yield from _column_mistakes(where, compare(past[flow], schema), advice)


def _key_mistakes(name: str, before: StageShape, after: StageShape) -> Iterator[Mistake]:
    if before.states and after.states and before.key != after.key:
        message = (
            f"the state of this stage is keyed by ({_text(before.key)}), but this version looks "
            f"records up by ({_text(after.key)}). Rebuild the stage (--rebuild {name}; REST: "
            f"rebuild={name})"
        )
        yield Mistake("key_changed", f"stages.{name}", message)
        return
    for state in sorted(before.states.keys() & after.states.keys()):
        old, new = before.keyed_by(state), after.keyed_by(state)
        if old != new:
            message = (
                f"this state is keyed by ({old}), but this version looks records up by ({new}). "
                f"Rebuild the state (--rebuild {name}; REST: rebuild={name}), or rename it"
            )
            yield Mistake("key_changed", f"stages.{name}.states.{state}", message)
        elif mistake := _second_key_mistake(name, state, before, after):
            yield mistake


def _second_key_mistake(
    name: str, state: str, before: StageShape, after: StageShape
) -> Mistake | None:
    """Refuse to keep records that may have the same second key twice."""
    old, new = (each.state_rules.get(state, {}).get("second_key", "") for each in (before, after))
    if not new or set(old.split(", ")) == set(new.split(", ")):
        return None
    message = (
        f"this version distinguishes the records of a group by ({new}), but several old records "
        "may have the same values in these columns. Rebuild the state "
        f"(--rebuild {name}; REST: rebuild={name}), or rename it"
    )
    return Mistake("second_key_changed", f"stages.{name}.states.{state}", message)


def _behind_rebuilt(after: DataflowShape, plan: ChangePlan, choice: Choice) -> Iterator[Mistake]:
    """Yield a mistake for each reader of a rebuilt stage that would apply its records twice."""
    for name, stage in after.stages.items():
        if plan.stages[name].kind == "added" or name in choice.keep | choice.rebuild:
            continue
        for input_, shape in stage.inputs.items():
            writer = shape.flow.partition(".")[0]
            if writer in plan.rebuilt and writer != name:
                message = (
                    f"this input reads {shape.flow!r}, which will be emitted again, because stage "
                    f"{writer!r} is rebuilt. Rebuild {name!r}, too (--rebuild {name}; REST: "
                    f"rebuild={name}), or keep its state (--keep {name}; REST: keep={name})"
                )
                yield Mistake("behind_rebuilt", f"stages.{name}.inputs.{input_}", message)


def _cycles_in_part(after: DataflowShape, plan: ChangePlan) -> Iterator[Mistake]:
    """Yield a mistake for each stage with memory on a cycle that is rebuilt only in part.

    The stages of a cycle answer each other in rounds, and each remembers the earlier rounds. A
    stage that begins again would get answers from rounds that it has forgotten.
    """
    for name, cycle in cycles(predecessors(after.wiring)).items():
        again = sorted(plan.rebuilt.intersection(cycle))
        stage = after.stages[name]
        holds = stage.states or any(shape.loopback for shape in stage.inputs.values())
        if again and holds and name not in plan.emptied:
            message = (
                f"this stage is on a cycle with stages that start over ({', '.join(again)}), but "
                "still has state from earlier records. Rebuild this stage, too (--rebuild "
                f"{name}; REST: rebuild={name}), or keep all stages of the cycle"
            )
            yield Mistake("cycle_rebuilt_in_part", f"stages.{name}", message)


def _text(key: Schema | None) -> str:
    return "" if key is None else str(key)
