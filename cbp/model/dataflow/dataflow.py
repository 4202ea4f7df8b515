"""Dataflow: sources, stages and the wiring between them; checked as a whole.

The graph can have cycles. `check` collects every mistake with its place, so that an author can
correct all of them at once. Flow names: a source's flow has the name of the source, a stage's flow
is `stage.output`.

Invariant: a `Dataflow` that passed `check` has every input of every stage wired
to exactly one existing flow of the same schema (tests/cbp/model/dataflow/test_dataflow.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any

from cbp.errors import DataflowInvalidError, Mistake
from cbp.errors.message_limits import MISTAKES_MAX, listed
from cbp.model.dataflow.graph import cycles, inner_inputs, predecessors
from cbp.model.dataflow.publish_policy import EVERY_EPOCH, PublishPolicy
from cbp.model.dataflow.source_options import ReadOptions
from cbp.model.dataflow.stage import RunnableSpec, TranslatorSpec
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.increment import Increment
from cbp.model.flow.retention import NO_WISH, RetentionWish
from cbp.model.flow.schema import Schema, is_name

__all__ = ["DUPLICATES", "FORMATS", "Dataflow", "SourceNode", "StageNode", "too_many"]

FORMATS = ("jsonl", "csv", "parquet")
DUPLICATES = ("accept", "skip", "quarantine")
BUCKETS_DEFAULT = 8
BUCKETS_MAX = 4096
SOURCES_MAX, STAGES_MAX, FLOWS_MAX = 500, 500, 2000
"""Limits of one dataflow, since each tick looks at all of its sources, stages and flows."""


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A flow that is fed from outside.

    Attributes:
        format: Format of dropped files, one of `FORMATS`.
        options: Options of the format, such as `{"header": "true", "delimiter": ";"}` for CSV.
        keep: How long its increments are kept once all readers have read them.
        duplicates: One of `DUPLICATES`: what happens to a file that has the content of an
            accepted file but another name.
    """

    name: str
    schema: Schema
    format: str = "jsonl"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    keep: RetentionWish = NO_WISH
    duplicates: str = "accept"


@dataclass(frozen=True, slots=True)
class StageNode:
    """A node of the graph: one translator with its wiring and parallelism.

    Attributes:
        reference: The registered name of the translator; `""` if built in code.
        parameters: The parameters of the translator, as JSON values.
        wiring: Maps input names to flow names; loopbacks are added by themselves.
        buckets: Number of hash partitions of its groups and state; a power of two.
        fuse: Whether it can run together with its neighbours; see `cbp.model.dataflow.fusion`.
        rule: Overrides when the translator runs; see `runnable`.
        limits: Maps output names to how much of the output can wait at a reader.
        idle: Maps framed inputs to the seconds without a record after which the open frame is
            closed, overriding the translator; 0: never.
        run_seconds_max: Time limit of one run in seconds; `None`: that of the service.
        keep: Maps output names to how long their increments are kept; increments of other
            outputs are kept for good.
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
        """When the stage runs: the rule of its dataflow, else that of its translator."""
        return self.rule or self.translator.runnable

    def close_idle_seconds(self, input_: str) -> float:
        """Return the seconds without a record after which an open frame is closed; 0: never."""
        return self.idle.get(input_, self.translator.input(input_).close_idle_seconds)

    def __post_init__(self) -> None:
        own = {spec.name: f"{self.name}.{spec.name}" for spec in self.translator.loopbacks}
        if own:
            # Wiring that an author gave for a loopback is kept, so that `check` can report it.
            object.__setattr__(self, "wiring", MappingProxyType({**own, **self.wiring}))


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Sources and stages of one dataflow, by name; see the module's invariant.

    Attributes:
        publish: When its tables show the results of its runs.
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
        """Return the flows of loopbacks that only their own stage reads."""
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
        """Return, for each stage that lies on a cycle, the stages of its cycle."""
        return cycles(predecessors(self.wiring()))

    def receivers(self, increment: Increment) -> Iterator[tuple[str, str]]:
        """Yield the (stage, input) pairs at which a new increment is enqueued.

        Empty increments keep consumers aligned. They are not enqueued inside a cycle, since they
        would circulate for ever.
        """
        skip = frozenset[tuple[str, str]]() if increment.records else inner_inputs(self.wiring())
        return (pair for pair in self.consumers(increment.flow) if pair not in skip)

    def check(self) -> None:
        """Raise one error that lists the mistakes; return if there is none.

        The search ends once there are more than `MISTAKES_MAX`.

        Raises:
            DataflowInvalidError: With one `Mistake` per broken rule.
        """
        mistakes = [*too_many(self.sources, self.stages)] or _first(_mistakes(self))
        if mistakes:
            raise DataflowInvalidError(self.name, mistakes)


def too_many(sources: Sized, stages: Sized) -> Iterator[Mistake]:
    """Yield a mistake if a dataflow has too many sources or too many stages."""
    for kind, nodes, most in (("sources", sources, SOURCES_MAX), ("stages", stages, STAGES_MAX)):
        if len(nodes) > most:
            message = f"{len(nodes)} {kind}; at most {most}: split the dataflow"
            yield Mistake(f"{kind}_too_many", kind, message)


def _first(mistakes: Iterator[Mistake]) -> list[Mistake]:
    """Return the first `MISTAKES_MAX` mistakes, and one more if there are more."""
    return list(islice(mistakes, MISTAKES_MAX + 1))


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
    if len(flows) > FLOWS_MAX:
        message = f"{len(flows)} flows of sources and outputs; at most {FLOWS_MAX}"
        yield Mistake("flows_too_many", "stages", f"{message}: split the dataflow")
    for stage in dataflow.stages.values():
        yield from _stage_mistakes(stage, flows)
    yield from _waiting_mistakes(dataflow, flows)


def _source_mistakes(source: SourceNode) -> Iterator[Mistake]:
    where = f"sources.{source.name}"
    if source.format not in FORMATS:
        allowed = ", ".join(FORMATS)
        yield Mistake(
            "format_unknown", f"{where}.format", f"{source.format!r}; use one of {allowed}"
        )
    else:
        try:
            ReadOptions.parse(source.format, source.options)
        except ValueError as exc:
            yield Mistake("option_invalid", f"{where}.options", str(exc))
    if source.duplicates not in DUPLICATES:
        message = f"{source.duplicates!r}; use one of {', '.join(DUPLICATES)}"
        yield Mistake("duplicates_invalid", f"{where}.duplicates", message)
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


def _waiting_mistakes(dataflow: Dataflow, flows: Collection[str]) -> Iterator[Mistake]:
    """Find stages that can never run, since their first run needs its own output.

    A stage can run once every input that its rule waits for can have an increment, from a source
    or from a stage that can run. The stages left over wait for themselves, around a cycle.
    """
    stuck = dict(dataflow.stages)
    while more := [name for name, stage in stuck.items() if _can_run(stage, stuck, flows)]:
        for name in more:
            del stuck[name]
    on_cycle = cycles(predecessors(dataflow.wiring()))
    inside = inner_inputs(dataflow.wiring())
    begins = {s for s in on_cycle if any((s, i) not in inside for i in dataflow.stages[s].wiring)}
    for name, stage in stuck.items():
        if name not in on_cycle:
            continue  # it waits for a stage that is reported
        cycle = on_cycle[name]
        if name not in begins and begins.intersection(cycle):
            continue  # it waits for the one at which the cycle begins
        inner = [i for i, flow in stage.wiring.items() if flow.partition(".")[0] in cycle]
        if len(inner) == len(stage.wiring):
            hint = "nothing comes from outside of the cycle: wire an input to a source"
        else:
            hint = "use RunAny(), or Phases(...) for an order (in a document: `runnable: run_any`)"
        yield Mistake(
            "cycle_never_runs",
            f"stages.{name}.runnable",
            f"{stage.runnable.name} waits for {', '.join(inner)}, which only comes after a run of "
            f"this stage (the cycle {' -> '.join((*cycle, cycle[0]))}), so it never runs; {hint}",
            stage.runnable.place,
        )


def _can_run(stage: StageNode, stuck: Collection[str], flows: Collection[str]) -> bool:
    """Tell whether a stage can have a first run while the stages in `stuck` have none.

    An input that is wired to an unknown flow counts as fed; it is another mistake.
    """
    fed = {
        name
        for name, flow in stage.wiring.items()
        if flow not in flows or "." not in flow or flow.partition(".")[0] not in stuck
    }
    return stage.runnable.can_start(fed, tuple(stage.wiring))


def _unknown_flow(at: str, flow: str, flows: Mapping[str, Schema]) -> Mistake:
    stage = flow.partition(".")[0]
    near = sorted(name for name in flows if name.partition(".")[0] == stage) or sorted(flows)
    return Mistake(
        "flow_unknown", at, f"nobody declares the flow {flow!r}; there is {listed(near)}"
    )


def _schema_mismatch(flow: Schema, expected: Schema) -> str:
    """Return a text that says how a flow's schema differs from an input's; `""` if it fits.

    Columns are matched by name. A flow can have columns that the input does not have.
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
