"""Wire translators into a dataflow in code; the same graph that a document names.

    flow = DataflowBuilder("word_counts")
    lines = flow.source("lines", "text STRING")
    words = flow.stage("split", SplitWords(), lines=lines)
    flow.stage("count", CountPerKey("word STRING"), items=words.words)
    dataflow = flow.build()

A flow may be wired before its stage exists, by name (`items="split.words"`), so
cycles need no special form. `build` raises one error that lists every mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake
from cbp.model.dataflow import BUCKETS_DEFAULT, Dataflow, SourceNode, StageNode
from cbp.model.publication import EVERY_EPOCH, PublishPolicy
from cbp.model.retention import NO_WISH, RetentionWish
from cbp.model.schema import Schema
from cbp.sdk.translate import Declared

__all__ = ["DataflowBuilder", "Flow", "StageFlows"]


@dataclass(frozen=True, slots=True)
class Flow:
    """A handle to a flow, for wiring."""

    name: str


class StageFlows:
    """Handles to the outputs of one stage, as attributes."""

    def __init__(self, stage: str, outputs: tuple[str, ...]) -> None:
        self._stage, self._outputs = stage, outputs

    def __getattr__(self, output: str) -> Flow:
        if output.startswith("_"):
            raise AttributeError(output)
        return Flow(f"{self._stage}.{output}")

    def __dir__(self) -> list[str]:
        return list(self._outputs)


class DataflowBuilder:
    """Collects sources and stages; not thread-safe.

    Args:
        name: Of the dataflow.
        publish: When its tables show what its runs made; every epoch unless told.
    """

    def __init__(self, name: str, *, publish: PublishPolicy = EVERY_EPOCH) -> None:
        self._name, self._publish = name, publish
        self._sources: dict[str, SourceNode] = {}
        self._stages: dict[str, StageNode] = {}
        self._kept: dict[str, RetentionWish] = {}
        self._mistakes: list[Mistake] = []

    def source(
        self,
        name: str,
        schema: str,
        *,
        format: str = "jsonl",
        options: Mapping[str, str] = MappingProxyType({}),
        keep: RetentionWish = NO_WISH,
    ) -> Flow:
        """Declare a flow that is fed from outside, and return its handle."""
        if name in self._sources:
            self._mistakes.append(Mistake("name_twice", f"sources.{name}", "is declared twice"))
        try:
            parsed = Schema.parse(schema, where=f"sources.{name}.schema")
            self._sources[name] = SourceNode(name, parsed, format, options, keep)
        except DefinitionError as error:
            self._mistakes.append(error.mistake)
        return Flow(name)

    def stage(
        self,
        name: str,
        translator: Declared,
        *,
        buckets: int = BUCKETS_DEFAULT,
        fuse: bool = True,
        **wiring: Flow | str,
    ) -> StageFlows:
        """Add a stage, wire its inputs to flows, and return handles to its outputs.

        Args:
            name: Of the stage, unique in the dataflow.
            translator: What it executes.
            buckets: Hash partitions of its groups and state; a power of two.
            fuse: Whether it may run together with its neighbours, as one job.
            **wiring: Input name to the flow that it reads.
        """
        if name in self._stages:
            self._mistakes.append(
                Mistake("name_twice", f"stages.{name}", "two stages have this name; rename one")
            )
        wired = {i: flow.name if isinstance(flow, Flow) else flow for i, flow in wiring.items()}
        try:
            spec = translator.spec()
        except DefinitionError as error:
            self._mistakes.append(error.mistake)
            return StageFlows(name, ())
        self._stages[name] = StageNode(
            name, spec, MappingProxyType(wired), buckets=buckets, fuse=fuse
        )
        return StageFlows(name, tuple(output.name for output in spec.outputs))

    def keep(self, output: Flow | str, wish: RetentionWish) -> None:
        """Say how long increments of a stage's output stay once all have read them.

        Those of other outputs stay for good. A source is told by its own `keep`.
        """
        self._kept[output.name if isinstance(output, Flow) else output] = wish

    def build(self) -> Dataflow:
        """Return the checked dataflow.

        Raises:
            DataflowInvalidError: Listing every mistake with its place.
        """
        kept: dict[str, dict[str, RetentionWish]] = {}
        for flow, wish in self._kept.items():
            stage, _, output = flow.partition(".")
            kept.setdefault(stage, {})[output] = wish
            if stage not in self._stages:
                message = f"there is no stage {stage!r}"
                self._mistakes.append(Mistake("keep_output_unknown", f"keep.{flow}", message))
        stages = {
            name: replace(node, keep=MappingProxyType(kept.get(name, {})))
            for name, node in self._stages.items()
        }
        dataflow = Dataflow(
            self._name,
            MappingProxyType(self._sources),
            MappingProxyType(stages),
            self._publish,
        )
        try:
            dataflow.check()
        except DataflowInvalidError as error:
            self._mistakes.extend(error.mistakes)
        if self._mistakes:
            raise DataflowInvalidError(self._name, self._mistakes)
        return dataflow
