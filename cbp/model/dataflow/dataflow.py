"""Dataflow: sources, stages and the wiring between them; all checked together.

The graph can have cycles. A source's flow has the name of the source, a stage's flow is
`stage.output`.

Invariant: a `Dataflow` that passed `check` has every input of every stage wired
to exactly one existing flow of the same schema (tests/cbp/model/dataflow/test_dataflow.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, replace
from html import escape
from itertools import chain, islice
from types import MappingProxyType

from cbp.errors import DataflowInvalidError, Mistake
from cbp.errors.counts import format_count
from cbp.errors.message_limits import MISTAKES_MAX
from cbp.model.dataflow.node_mistakes import (
    changes_mistakes,
    lookup_mistakes,
    name_mistake,
    never_run,
    source_mistakes,
    stage_mistakes,
)
from cbp.model.dataflow.nodes import SourceNode, StageNode
from cbp.model.dataflow.reading_together import TOGETHER, sources_cut_anywhere, stages_together
from cbp.model.dataflow.replacement_obstacles import obstacles
from cbp.model.dataflow.sinks import SinkNode, sink_mistakes
from cbp.model.dataflow.stage import CHANGES_OF, StateSpec, TranslatorSpec
from cbp.model.flow.increment import Increment
from cbp.model.flow.schema import Schema
from cbp.model.graph.cycles import components, cycles, inner_inputs, predecessors
from cbp.model.graph.drawing import Drawing, FlowEdge, Node, draw_graph

__all__ = ["Dataflow", "SourceNode", "StageNode", "name_mistakes", "too_many"]

SOURCES_MAX, STAGES_MAX, FLOWS_MAX = 500, 500, 2000
"""Limits of one dataflow, since each tick looks at all of its sources, stages and flows."""

EPOCHS_MAX = 1_000
SECONDS_MAX = 86_400.0
SECONDS_DEFAULT = 60.0


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """How long a dataflow runs before it publishes; the first limit that is reached counts.

    More epochs per publication make tables less fresh and restarts slower. They save writing the
    deletion vectors of the epochs in between, which pays off if the state is huge and the
    increments are small.

    Attributes:
        epochs: Epochs of one stage after which all stages publish.
        seconds: Longest time that a finished record waits while the service runs.
    """

    epochs: int = 1
    seconds: float = SECONDS_DEFAULT

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield the field and a message for each value that is out of bounds."""
        if not 1 <= self.epochs <= EPOCHS_MAX:
            allowed = f"a number from 1 (publish every epoch) to {EPOCHS_MAX}"
            yield "epochs", f"got {self.epochs} epochs; expected {allowed}"
        if not 0 < self.seconds <= SECONDS_MAX:
            allowed = f"more than 0 and at most {SECONDS_MAX:.0f} (a day)"
            yield "seconds", f"got {self.seconds} seconds; expected {allowed}"


EVERY_EPOCH = PublishPolicy()


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Sources and stages of one dataflow, by name; see the module's invariant."""

    name: str
    sources: Mapping[str, SourceNode]
    stages: Mapping[str, StageNode]
    publish: PublishPolicy = EVERY_EPOCH
    sinks: Mapping[str, SinkNode] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        together = stages_together(self.sources, self.stages)
        rules = {name: TOGETHER if name in together else None for name in self.stages}
        if any(node.together != rules[name] for name, node in self.stages.items()):
            stages = {n: replace(one, together=rules[n]) for n, one in self.stages.items()}
            object.__setattr__(self, "stages", MappingProxyType(stages))
        published = {sink.flow for sink in self.sinks.values()}
        cut = sources_cut_anywhere(self.sources, self.stages, published)
        if any(node.cut_anywhere != (name in cut) for name, node in self.sources.items()):
            sources = {n: replace(one, cut_anywhere=n in cut) for n, one in self.sources.items()}
            object.__setattr__(self, "sources", MappingProxyType(sources))

    def draw(self) -> Drawing:
        """Return a picture of the graph, as SVG text that a notebook shows as a picture."""
        nodes = [Node(name, "source", node.format) for name, node in self.sources.items()]
        nodes += [Node(name, "stage", node.translator.name) for name, node in self.stages.items()]
        nodes += [Node(edge.flow, "result") for edge in self.results()]
        edges = [*self.edges(), *self.looks_up(), *self.results()]
        return draw_graph(f"dataflow {self.name}", nodes, edges)

    def _repr_html_(self) -> str:
        sources = format_count(len(self.sources), "source")
        counts = f"{sources}, {format_count(len(self.stages), 'stage')}"
        return f"<p><b>{escape(self.name)}</b>: {counts}</p>\n{self.draw()}"

    def flows(self) -> dict[str, Schema]:
        """Return every flow's schema, sources first, by flow name."""
        return {name: source.schema for name, source in self.sources.items()} | {
            f"{stage.name}.{output.name}": output.schema
            for stage in self.stages.values()
            for output in stage.translator.outputs
        }

    def tables(self) -> dict[str, tuple[TranslatorSpec, StateSpec]]:
        """Return every state that can be looked up, with its translator, by `stage.state`."""
        return {
            f"{stage.name}.{state.name}": (stage.translator, state)
            for stage in self.stages.values()
            for state in stage.translator.states
            if not state.timers
        }

    def edges(self) -> Iterator[FlowEdge]:
        """Yield one edge from each flow's writer to each stage that reads it; sources first."""
        for flow in self.flows():
            for reader in dict.fromkeys(stage for stage, _ in self.consumers(flow)):
                yield FlowEdge(_writer(flow), reader, flow)

    def looks_up(self) -> Iterator[FlowEdge]:
        """Yield an edge from the stage of each looked-up table to each stage that looks it up."""
        for stage in self.stages.values():
            for table in dict.fromkeys(stage.lookups.values()):
                yield FlowEdge(_writer(table), stage.name, f"{table} (look-up)")

    def results(self) -> Iterator[FlowEdge]:
        """Yield an edge for each flow of a stage that no stage reads; its end is the flow."""
        for flow in self.flows():
            if flow not in self.sources and not any(self.consumers(flow)):
                yield FlowEdge(_writer(flow), flow, flow)

    def changes(self) -> frozenset[str]:
        """Return the flows that are the changes of views."""
        return frozenset(
            f"{stage.name}.{output.name}"
            for stage in self.stages.values()
            for output in stage.translator.outputs
            if output.view
        )

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

    def upstream_first(self) -> Iterator[str]:
        """Yield the stages, upstream first; those of a cycle together, by name."""
        return chain.from_iterable(components(predecessors(self.wiring())))

    def cycles(self) -> dict[str, tuple[str, ...]]:
        """Return, for each stage that is on a cycle, the stages of its cycle."""
        return cycles(predecessors(self.wiring()))

    def receivers(self, increment: Increment) -> Iterator[tuple[str, str]]:
        """Yield the (stage, input) pairs at which a new increment is enqueued.

        An empty one is not enqueued inside a cycle, where it would circulate forever.
        """
        skip = frozenset[tuple[str, str]]() if increment.records else inner_inputs(self.wiring())
        return (pair for pair in self.consumers(increment.flow) if pair not in skip)

    def never_run(self) -> dict[str, Mistake]:
        """Return the mistake of each stage that waits for itself around a cycle."""
        return {mistake.where.split(".")[1]: mistake for mistake in _never_run(self)}

    def check(self) -> None:
        """Raise one error that lists all mistakes, so that an author can correct them together.

        The search ends once there are more than `MISTAKES_MAX`.

        Raises:
            DataflowInvalidError: With one `Mistake` per broken rule.
        """
        found = islice(_mistakes(self), MISTAKES_MAX + 1)
        mistakes = [*too_many(self.sources, self.stages)] or [*found]
        if mistakes:
            raise DataflowInvalidError(self.name, mistakes)


def _writer(flow: str) -> str:
    return flow.partition(".")[0]


def too_many(sources: Sized, stages: Sized) -> Iterator[Mistake]:
    """Yield a mistake if a dataflow has too many sources or too many stages."""
    for kind, nodes, most in (("sources", sources, SOURCES_MAX), ("stages", stages, STAGES_MAX)):
        if len(nodes) > most:
            message = (
                f"the dataflow has {len(nodes)} {kind}, but the limit is {most}: split the "
                "dataflow into several"
            )
            yield Mistake(f"{kind}_too_many", kind, message)


def name_mistakes(name: str, sources: Iterable[str], stages: Iterable[str]) -> Iterator[Mistake]:
    """Yield a mistake for each invalid name, and for each name of both a source and a stage."""
    sources, stages = dict.fromkeys(sources), dict.fromkeys(stages)
    names = [("name", name)]
    names += [(f"sources.{name}", name) for name in sources]
    names += [(f"stages.{name}", name) for name in stages]
    for where, name in names:
        yield from name_mistake(where, name)
    for name in stages:
        if name in sources:
            message = f"a source is also named {name!r}; rename one of them"
            yield Mistake("name_twice", f"stages.{name}", message)


def _mistakes(dataflow: Dataflow) -> Iterator[Mistake]:
    yield from name_mistakes(dataflow.name, dataflow.sources, dataflow.stages)
    for field_, message in dataflow.publish.mistakes():
        yield Mistake("publish_invalid", f"publish.{field_}", message)
    if not dataflow.stages:
        yield Mistake("stages_missing", "stages", "a dataflow needs at least one stage")
    for source in dataflow.sources.values():
        yield from source_mistakes(source)
        if source.same_name != "replace":
            continue
        for one in obstacles(source, dataflow.sources, dataflow.stages, dataflow.sinks):
            message = f"source {source.name!r} declares `same_name: replace`, but {one.why}"
            yield Mistake("replacement_unfollowed", one.reader, message)
    flows = dataflow.flows()
    if len(flows) > FLOWS_MAX:
        message = (
            f"the dataflow has {len(flows)} sources and outputs, but the limit is {FLOWS_MAX}: "
            "split the dataflow into several"
        )
        yield Mistake("flows_too_many", "stages", message)
    changes, tables, sources = dataflow.changes(), dataflow.tables(), dataflow.sources
    for stage in dataflow.stages.values():
        wrong = [*lookup_mistakes(stage.name, stage.translator, stage.lookups, tables)]
        follows = {CHANGES_OF.format(mistake.where) for mistake in wrong}
        misread = changes_mistakes(stage, flows, changes, sources)
        others = chain(stage_mistakes(stage, flows), misread)
        yield from (*wrong, *(one for one in others if one.where not in follows))
    messages = dataflow.own_messages()
    yield from sink_mistakes(dataflow.sinks, flows, views=changes, messages=messages)
    yield from _never_run(dataflow)


def _never_run(dataflow: Dataflow) -> Iterator[Mistake]:
    """Yield a mistake for each stage that can never run; a check may need only the first ones."""
    runnables = {name: stage.runnable for name, stage in dataflow.stages.items()}
    return never_run(runnables, dataflow.wiring(), dataflow.flows())
