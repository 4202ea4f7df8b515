"""What a dataflow's description remembers of it, to be compared with the next version.

A document only names translators: the same document means something else once a package
is upgraded. So the description of a version also holds the *shape* of what was registered:
schemas, keys and wiring as they were compiled, and the fingerprint of each author's code.

    DataflowShape -> sources: SourceShape     stages: StageShape -> inputs, outputs, states

Invariant: `DataflowShape.from_json(s.to_json()) == s` (tests/cbp/model/test_change.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cbp.model.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.schema import Schema
from cbp.model.stage import Computed, InputSpec, StateSpec

__all__ = ["RULE", "DataflowShape", "InputShape", "SourceShape", "StageShape", "shape_of"]

RULE = "runnable"
"""The detail that says when a stage runs, as `RunnableSpec.text` does."""


@dataclass(frozen=True, slots=True)
class SourceShape:
    """Of a source: its columns, and how its files are written."""

    schema: Schema
    format: str
    options: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": str(self.schema),
            "format": self.format,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceShape:
        """Read what `to_json` wrote."""
        return cls(Schema.parse(value["schema"]), value["format"], value["options"])


@dataclass(frozen=True, slots=True)
class InputShape:
    """Of an input: the flow that it reads, and how it routes, orders and frames it.

    Attributes:
        rules: `route_by`, `order_by`, `frame_by`, `combine` as text, those that there are.
        framing_code: Fingerprint of the function that frames it; `""`: not known, or none.
    """

    flow: str
    schema: Schema
    loopback: bool
    rules: Mapping[str, str]
    framing_code: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "flow": self.flow,
            "schema": str(self.schema),
            "loopback": self.loopback,
            "rules": dict(self.rules),
            "framing_code": self.framing_code,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> InputShape:
        """Read what `to_json` wrote."""
        return cls(
            value["flow"],
            Schema.parse(value["schema"]),
            value["loopback"],
            value["rules"],
            value.get("framing_code", ""),
        )


@dataclass(frozen=True, slots=True)
class StageShape:
    """Of a stage: everything that decides what its state and outputs mean.

    Attributes:
        code: Fingerprint of the author's class; `""`: not known, and not compared.
        key: Columns of the group's key; `None`: record-wise.
        outputs, states: Name to columns.
        details: What else makes it another translator when it differs: grouping of states,
            declared keys of outputs, and `RULE`. One that a description lacks, since it is of
            an earlier release, is not compared.
        state_rules: State to `route_by` and `order_by` as text, of those that have some.
    """

    reference: str
    parameters: Mapping[str, Any]
    code: str
    form: str
    key: Schema | None
    inputs: Mapping[str, InputShape]
    outputs: Mapping[str, Schema]
    states: Mapping[str, Schema]
    buckets: int
    details: Mapping[str, str] = field(default_factory=dict)
    state_rules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; without rules of states, those of releases before them."""
        rules = {name: dict(each) for name, each in self.state_rules.items()}
        return {
            "reference": self.reference,
            "parameters": dict(self.parameters),
            "code": self.code,
            "form": self.form,
            "key": None if self.key is None else str(self.key),
            "inputs": {name: shape.to_json() for name, shape in self.inputs.items()},
            "outputs": {name: str(schema) for name, schema in self.outputs.items()},
            "states": {name: str(schema) for name, schema in self.states.items()},
            "buckets": self.buckets,
            "details": dict(self.details),
            **({"state_rules": rules} if rules else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StageShape:
        """Read what `to_json` wrote."""
        return cls(
            value["reference"],
            value["parameters"],
            value["code"],
            value["form"],
            None if value["key"] is None else Schema.parse(value["key"]),
            {name: InputShape.from_json(shape) for name, shape in value["inputs"].items()},
            {name: Schema.parse(text) for name, text in value["outputs"].items()},
            {name: Schema.parse(text) for name, text in value["states"].items()},
            value["buckets"],
            value["details"],
            value.get("state_rules", {}),
        )


@dataclass(frozen=True, slots=True)
class DataflowShape:
    """Of a dataflow: sources and stages, by name."""

    sources: Mapping[str, SourceShape]
    stages: Mapping[str, StageShape]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {
            "sources": {name: shape.to_json() for name, shape in self.sources.items()},
            "stages": {name: shape.to_json() for name, shape in self.stages.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataflowShape:
        """Read what `to_json` wrote."""
        return cls(
            {name: SourceShape.from_json(shape) for name, shape in value["sources"].items()},
            {name: StageShape.from_json(shape) for name, shape in value["stages"].items()},
        )


def shape_of(dataflow: Dataflow) -> DataflowShape:
    """Return the shape of a checked dataflow."""
    return DataflowShape(
        {name: _of_source(source) for name, source in dataflow.sources.items()},
        {name: _of_stage(stage) for name, stage in dataflow.stages.items()},
    )


def _of_source(source: SourceNode) -> SourceShape:
    return SourceShape(source.schema, source.format, dict(source.options))


def _of_stage(stage: StageNode) -> StageShape:
    spec = stage.translator
    details: dict[str, str] = {RULE: stage.runnable.text}
    details |= {f"grouping of {state.name}": state.grouping for state in spec.states}
    for output in spec.outputs:
        history = " history" if output.history else ""
        details[f"key of {output.name}"] = ",".join(output.key) + history
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
    rules = {"route_by": _rule(state.route_by), "order_by": _rule(state.order_by)}
    return {name: text for name, text in rules.items() if text}


def _of_input(stage: StageNode, input_: InputSpec) -> InputShape:
    rules = {
        "route_by": _rule(input_.route_by),
        "order_by": _rule(input_.order_by),
        "frame_by": "" if input_.frame_by is None else input_.frame_by.column or "function",
        "combine": "function" if input_.combine else "",
    }
    kept = {name: text for name, text in rules.items() if text}
    code = "" if input_.frame_by is None else input_.frame_by.code
    return InputShape(stage.wiring[input_.name], input_.schema, input_.loopback, kept, code)


def _rule(rule: tuple[str, ...] | Computed | None) -> str:
    """Return columns, or the types of what a function gives: its code has a fingerprint."""
    if rule is None:
        return ""
    if not isinstance(rule, Computed):
        return ", ".join(rule)
    types = ", ".join(map(str, rule.types))
    return f"{'sql' if rule.sql else 'function'} -> {types}{' (many)' if rule.many else ''}"
