"""A dataflow: sources, stages and the wiring between them; checked as a whole.

The graph may have cycles. `check` collects every mistake with its place, so
that an author mends a registration in one go. Flow names: a source's flow is
named like the source, a stage's like `stage.output`.

Invariant: a `Dataflow` that passed `check` has every input of every stage wired
to exactly one existing flow of the same schema (tests/cbp/model/test_dataflow.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cbp.errors import DataflowInvalidError, Mistake
from cbp.model.graph import cycles, inner_inputs, predecessors
from cbp.model.increment import Increment
from cbp.model.pressure import FlowLimit
from cbp.model.publication import EVERY_EPOCH, PublishPolicy
from cbp.model.retention import NO_WISH, RetentionWish
from cbp.model.schema import Schema, is_name
from cbp.model.stage import RunnableSpec, TranslatorSpec

__all__ = ["FORMATS", "Dataflow", "SourceNode", "StageNode"]

FORMATS = ("jsonl", "csv", "parquet")
BUCKETS_DEFAULT = 8
BUCKETS_MAX = 4096


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A flow that is fed from outside.

    Attributes:
        format: One of `FORMATS`: how dropped files are written.
        options: Of the format, such as `{"header": "true", "delimiter": ";"}` for CSV.
        keep: For how long its inputs stay once everything has read them.
    """

    name: str
    schema: Schema
    format: str = "jsonl"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    keep: RetentionWish = NO_WISH


@dataclass(frozen=True, slots=True)
class StageNode:
    """A node of the graph: one translator with its wiring and parallelism.

    Attributes:
        reference: The registered name of the translator; `""` when built in code.
        parameters: What the translator was made with, as JSON values.
        wiring: Input name to flow name; loopbacks wire themselves.
        buckets: Hash partitions of its groups and state; a power of two.
        fuse: Whether it may run together with its neighbours; see `cbp.model.fusion`.
        rule: When it runs, if not as the translator says; see `runnable`.
        limits: Output name to how much of it may wait at a reader.
        idle: Framed input to the seconds without a record after which its open frame is
            closed, if not as the translator says; 0: never.
        run_seconds_max: Time limit of one run, if not that of the service.
        keep: Output name to how long its increments stay; others stay for good.
    """

    name: str
    translator: TranslatorSpec
    wiring: Mapping[str, str]
    reference: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    buckets: int = BUCKETS_DEFAULT
    fuse: bool = True
    rule: RunnableSpec | None = None
    limits: Mapping[str, FlowLimit] = field(default_factory=dict)
    idle: Mapping[str, float] = field(default_factory=dict)
    run_seconds_max: float | None = None
    keep: Mapping[str, RetentionWish] = field(default_factory=dict)

    @property
    def runnable(self) -> RunnableSpec:
        """When the stage runs: as its dataflow says, else as its translator does."""
        return self.rule or self.translator.runnable

    def close_idle_seconds(self, input_: str) -> float:
        """Return after how long without a record an input's open frame is closed; 0: never."""
        return self.idle.get(input_, self.translator.input(input_).close_idle_seconds)

    def __post_init__(self) -> None:
        own = {spec.name: f"{self.name}.{spec.name}" for spec in self.translator.loopbacks}
        if own:
            # What an author wired by hand stays, so that `check` can say what is wrong.
            object.__setattr__(self, "wiring", MappingProxyType({**own, **self.wiring}))


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Sources and stages of one dataflow, by name; see the module's invariant.

    Attributes:
        publish: When its tables show what its runs made.
    """

    name: str
    sources: Mapping[str, SourceNode]
    stages: Mapping[str, StageNode]
    publish: PublishPolicy = EVERY_EPOCH

    def flows(self) -> dict[str, Schema]:
        """Return every flow's schema, sources first, by flow name."""
        flows = {name: source.schema for name, source in self.sources.items()}
        for stage in self.stages.values():
            for output in stage.translator.outputs:
                flows[f"{stage.name}.{output.name}"] = output.schema
        return flows

    def consumers(self, flow: str) -> Iterator[tuple[str, str]]:
        """Yield the (stage, input) pairs that read a flow, in the order of the stages."""
        for stage in self.stages.values():
            for input_, wired in stage.wiring.items():
                if wired == flow:
                    yield stage.name, input_

    def own_messages(self) -> frozenset[str]:
        """Return the loopbacks, by flow, that nobody reads but their own stage."""
        readers = Counter(flow for stage in self.stages.values() for flow in stage.wiring.values())
        flows = (
            f"{stage.name}.{loopback.name}"
            for stage in self.stages.values()
            for loopback in stage.translator.loopbacks
        )
        return frozenset(flow for flow in flows if readers[flow] == 1)

    def wiring(self) -> dict[str, Mapping[str, str]]:
        """Return stage -> input -> flow."""
        return {name: stage.wiring for name, stage in self.stages.items()}

    def cycles(self) -> dict[str, tuple[str, ...]]:
        """Return, for each stage that lies on a cycle, the stages of it."""
        return cycles(predecessors(self.wiring()))

    def receivers(self, increment: Increment) -> Iterator[tuple[str, str]]:
        """Yield the (stage, input) pairs at which a new increment is enqueued.

        Empties keep consumers aligned, but are not enqueued inside a cycle: they would go
        round for ever.
        """
        skip = frozenset[tuple[str, str]]() if increment.records else inner_inputs(self.wiring())
        return (pair for pair in self.consumers(increment.flow) if pair not in skip)

    def check(self) -> None:
        """Raise one error that lists every mistake; return when there is none.

        Raises:
            DataflowInvalidError: With one `Mistake` per broken rule.
        """
        mistakes = list(_mistakes(self))
        if mistakes:
            raise DataflowInvalidError(self.name, mistakes)


def _mistakes(dataflow: Dataflow) -> Iterator[Mistake]:
    names = [("name", dataflow.name)]
    names += [(f"sources.{name}", name) for name in dataflow.sources]
    names += [(f"stages.{name}", name) for name in dataflow.stages]
    for where, name in names:
        if not is_name(name):
            yield Mistake(
                "name_invalid",
                where,
                f"{name!r} is no valid name: use a-z, 0-9 and '_', beginning with a letter, "
                "at most 63 characters",
            )
    for name in dataflow.sources.keys() & dataflow.stages.keys():
        yield Mistake("name_twice", f"stages.{name}", f"a source is named {name!r} too; rename one")
    for field_, message in dataflow.publish.mistakes():
        yield Mistake("publish_invalid", f"publish.{field_}", message)
    if not dataflow.stages:
        yield Mistake("stages_missing", "stages", "a dataflow needs at least one stage")
    for source in dataflow.sources.values():
        yield from _source_mistakes(source)
    flows = dataflow.flows()
    for stage in dataflow.stages.values():
        yield from _stage_mistakes(stage, flows)


def _source_mistakes(source: SourceNode) -> Iterator[Mistake]:
    where = f"sources.{source.name}"
    if source.format not in FORMATS:
        allowed = ", ".join(FORMATS)
        yield Mistake(
            "format_unknown", f"{where}.format", f"{source.format!r}; use one of {allowed}"
        )
    if source.format == "csv":
        for column in source.schema.fields:
            if column.type.arguments or column.type.kind == "BINARY":
                message = (
                    f"column {column.name!r}: CSV cannot hold {column.type}; use jsonl or parquet"
                )
                yield Mistake("format_type", f"{where}.schema", message)


def _stage_mistakes(stage: StageNode, flows: Mapping[str, Schema]) -> Iterator[Mistake]:
    where, spec = f"stages.{stage.name}", stage.translator
    if not (2 <= stage.buckets <= BUCKETS_MAX and stage.buckets & (stage.buckets - 1) == 0):
        yield Mistake(
            "buckets_invalid",
            f"{where}.buckets",
            f"{stage.buckets} buckets; use a power of two from 2 to {BUCKETS_MAX}",
        )
    yield from _rule_mistakes(stage)
    outputs = [output.name for output in spec.outputs]
    for name in stage.limits.keys() - set(outputs):
        message = f"{spec.name} has no output {name!r}; it has {', '.join(outputs) or 'none'}"
        yield Mistake("limit_output_unknown", f"{where}.limits.{name}", message, spec.place)
    for name in stage.keep.keys() - set(outputs):
        message = f"{spec.name} has no output {name!r}; it has {', '.join(outputs) or 'none'}"
        yield Mistake("keep_output_unknown", f"{where}.keep.{name}", message, spec.place)
    framed = [input_.name for input_ in spec.framed]
    for name in stage.idle.keys() - set(framed):
        message = f"{spec.name} does not frame {name!r}; it frames {', '.join(framed) or 'nothing'}"
        yield Mistake(
            "idle_input_unframed", f"{where}.close_idle_seconds.{name}", message, spec.place
        )
    declared = {input_.name for input_ in spec.inputs}
    for name in declared - stage.wiring.keys():
        yield Mistake(
            "input_unwired",
            f"{where}.inputs.{name}",
            f"{spec.name} reads {name!r}, but nothing is wired to it",
            spec.place,
        )
    for name, flow in stage.wiring.items():
        at = f"{where}.inputs.{name}"
        if name not in declared:
            has = ", ".join(sorted(declared))
            yield Mistake(
                "input_unknown", at, f"{spec.name} has no input {name!r}; it has {has}", spec.place
            )
        elif spec.input(name).loopback and flow != f"{stage.name}.{name}":
            yield Mistake(
                "loopback_wired",
                at,
                f"{spec.name}.{name} is a loopback: it wires itself, leave it out",
                spec.place,
            )
        elif flow not in flows:
            yield _unknown_flow(at, flow, flows)
        elif mismatch := _schema_mismatch(flows[flow], spec.input(name).schema):
            yield Mistake(
                "schema_mismatch",
                at,
                f"flow {flow!r} does not fit {spec.name}.{name}: {mismatch}",
                spec.place,
            )


def _rule_mistakes(stage: StageNode) -> Iterator[Mistake]:
    has = [input_.name for input_ in stage.translator.inputs]
    for name in stage.runnable.named:
        if name not in has:
            yield Mistake(
                "runnable_input_unknown",
                f"stages.{stage.name}.runnable",
                f"{stage.runnable.name} names the input {name!r}; there is {', '.join(has)}",
                stage.runnable.place,
            )


def _unknown_flow(at: str, flow: str, flows: Mapping[str, Schema]) -> Mistake:
    stage = flow.partition(".")[0]
    near = sorted(name for name in flows if name.partition(".")[0] == stage) or sorted(flows)
    return Mistake(
        "flow_unknown", at, f"nobody declares the flow {flow!r}; there is {', '.join(near)}"
    )


def _schema_mismatch(flow: Schema, expected: Schema) -> str:
    """Say how a flow's schema differs from an input's; `""` when it fits.

    Columns are matched by name; a flow may have columns that the input leaves out.
    """
    wrong = []
    for column in expected.fields:
        if column.name not in flow:
            wrong.append(f"column {column.name!r} ({column.type}) is missing")
        elif flow[column.name].type != column.type:
            wrong.append(
                f"column {column.name!r} is {flow[column.name].type}, expected {column.type}"
            )
    return "; ".join(wrong)
