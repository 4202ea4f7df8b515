"""DataflowShape: the compiled form of a registered version, for comparison with the next one.

A document only names translators, so its meaning changes if a package is upgraded. The description
of a version therefore also holds the *shape* of the registered dataflow: schemas, keys and wiring
as compiled, and the fingerprint of each author's code.

Invariant: `DataflowShape.from_json(s.to_json()) == s`
(tests/cbp/model/version/test_version_change.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cbp.model.author.code_fingerprint import UNKNOWN_CODE, Code
from cbp.model.dataflow.dataflow import Dataflow, StageNode
from cbp.model.dataflow.stage import CombineSpec, Computed, InputSpec, StateSpec
from cbp.model.flow.schema import Schema
from cbp.model.json_fields import ADDED, LEFT_OUT, JsonFields

RULE = "runnable"
"""Name of the detail that says when a stage runs; its value is `RunnableSpec.text`."""


@dataclass(frozen=True, slots=True)
class SourceShape(JsonFields):
    """The shape of a source: its columns, and the format and options of its files."""

    schema: Schema
    format: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InputShape(JsonFields):
    """The shape of an input: the flow that it reads, and how it routes, orders and frames it.

    Attributes:
        rules: `route_by`, `order_by`, `frame_by`, `combine` and `changes` as text, if set.
        framing_code: Fingerprint of its framing function; unknown if there is none.
    """

    flow: str
    schema: Schema
    loopback: bool
    rules: Mapping[str, str]
    framing_code: Code = field(default=UNKNOWN_CODE, metadata=ADDED)


@dataclass(frozen=True, slots=True)
class StageShape(JsonFields):
    """The shape of a stage: all properties that give its state and outputs their meaning.

    Attributes:
        code: Fingerprint of the author's class; an unknown one is not compared.
        key: Columns of the group's key; `None` if it is record-wise.
        outputs, states: Map names to columns.
        details: Other facts that distinguish translators: grouping of states, declared keys of
            outputs, tables of look-ups, and `RULE`. A detail that the description of an earlier
            release lacks is not compared.
        state_rules: Maps states with rules to these rules as text: `route_by`, `order_by`,
            `second_key`, `keep`, `changes`, `timers`, `expire`, `expires`, `bag`.
    """

    reference: str
    parameters: Mapping[str, Any]
    code: Code
    form: str
    key: Schema | None
    inputs: Mapping[str, InputShape]
    outputs: Mapping[str, Schema]
    states: Mapping[str, Schema]
    buckets: int
    details: Mapping[str, str] = field(default_factory=dict)
    state_rules: Mapping[str, Mapping[str, str]] = field(default_factory=dict, metadata=LEFT_OUT)

    def keyed_by(self, state: str) -> str:
        """Return the columns of a state that hold the key."""
        named = "" if self.key is None else ", ".join(self.key.names)
        return self.state_rules.get(state, {}).get("route_by", named)


@dataclass(frozen=True, slots=True)
class DataflowShape(JsonFields):
    """The shape of a dataflow: its sources and stages, by name."""

    sources: Mapping[str, SourceShape]
    stages: Mapping[str, StageShape]

    @property
    def wiring(self) -> dict[str, dict[str, str]]:
        """Stage -> input -> flow."""
        return {
            name: {input_: one.flow for input_, one in stage.inputs.items()}
            for name, stage in self.stages.items()
        }


def shape_of(dataflow: Dataflow) -> DataflowShape:
    """Return the shape of a checked dataflow."""
    sources = {
        name: SourceShape(source.schema, source.format, dict(source.options))
        for name, source in dataflow.sources.items()
    }
    return DataflowShape(sources, {n: _of_stage(stage) for n, stage in dataflow.stages.items()})


def _of_stage(stage: StageNode) -> StageShape:
    spec = stage.translator
    details: dict[str, str] = {RULE: stage.declared_rule.text}
    details |= {f"grouping of {state.name}": state.grouping for state in spec.states}
    for lookup in spec.lookups:
        by = f" by {', '.join(lookup.by)}" if lookup.by else ""
        details[f"look-up {lookup.name}"] = f"{stage.lookups[lookup.name]}{by}"
    for output in spec.outputs:
        more = " history" if output.history else ""
        more += f" latest by {','.join(output.latest_by)}" if output.latest_by else ""
        details[f"key of {output.name}"] = ",".join(output.key) + more
    return StageShape(
        stage.reference,
        dict(stage.parameters),
        spec.code,
        spec.form,
        spec.key,
        {input_.name: _of_input(stage, input_) for input_ in spec.inputs},
        {output.name: output.schema for output in spec.outputs},
        {state.name: state.schema for state in spec.states},
        stage.buckets,
        details,
        {state.name: rules for state in spec.states if (rules := _of_state(state))},
    )


def _of_state(state: StateSpec) -> dict[str, str]:
    rules = {
        "route_by": _rule(state.route_by),
        "order_by": _rule(state.order_by),
        "second_key": ", ".join(state.second_key),
        "changes": state.changes,
        "expire": f"{state.expire_ms} ms" if state.expire_ms else "",
        "expires": state.expires,
    }
    flags = {"keep": state.keep, "timers": state.timers, "bag": state.bag}
    rules |= dict.fromkeys((name for name, holds in flags.items() if holds), "yes")
    return {name: text for name, text in rules.items() if text}


def _of_input(stage: StageNode, input_: InputSpec) -> InputShape:
    rules = {
        "route_by": _rule(input_.route_by),
        "order_by": _rule(input_.order_by),
        "frame_by": "" if input_.frame_by is None else input_.frame_by.column or "function",
        "combine": _combine(input_.combine),
        "changes": input_.changes,
    }
    rules = {name: text for name, text in rules.items() if text}
    code = UNKNOWN_CODE if input_.frame_by is None else input_.frame_by.code
    return InputShape(stage.wiring[input_.name], input_.schema, input_.loopback, rules, code)


def _combine(combine: CombineSpec | None) -> str:
    if combine is None:
        return ""
    return ", ".join(f"{how} of {name}" for name, how in combine.columns) or "function"


def _rule(rule: tuple[str, ...] | Computed | None) -> str:
    """Return a rule as text: its columns, or its result types; its code has a fingerprint."""
    if rule is None:
        return ""
    if not isinstance(rule, Computed):
        return ", ".join(rule)
    types = ", ".join(map(str, rule.types))
    return f"{'sql' if rule.sql else 'function'} -> {types}{' (many)' if rule.many else ''}"
