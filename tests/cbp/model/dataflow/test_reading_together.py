"""Which stages read what waits in one run, although no rule says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.nodes import BACKLOG_FILES, ONE_FILE, FileBatch
from cbp.model.dataflow.reading_together import TOGETHER
from cbp.model.dataflow.runnable import CountWindow, RunAll
from cbp.model.dataflow.sinks import SinkNode
from cbp.model.dataflow.stage import (
    InputSpec,
    LookupSpec,
    OutputSpec,
    RunnableSpec,
    StateSpec,
    TranslatorSpec,
)
from cbp.model.flow.connector import Connector
from cbp.model.flow.framing import FrameBy
from cbp.model.flow.increment import DataFile, Increment
from cbp.model.flow.schema import Schema
from cbp.model.plan.fusion import choose_leaders
from cbp.model.version.dataflow_shape import shape_of

ONE = Schema.parse("k BIGINT")
MANY = FileBatch()


def stage(
    name: str, *reads: str, key: tuple[str, ...] = ("k",), rule: Any = None, **more: Any
) -> StageNode:
    """Give a groupwise stage with one output, `o`; further arguments are those of its spec."""
    inputs = tuple(InputSpec(f"i{n}", ONE, ("k",)) for n in range(len(reads)))
    given: dict[str, Any] = {
        "key": ONE,
        "inputs": inputs,
        "outputs": (OutputSpec("o", ONE, key),),
        "states": (),
    }
    spec = TranslatorSpec(name, translate=lambda *_: None, **(given | more))
    wiring = {spec.inputs[at].name: flow for at, flow in enumerate(reads)}
    return StageNode(name, spec, wiring, rule=rule)


def together(*stages: StageNode, batch: FileBatch = MANY) -> set[str]:
    """Return the stages that read together, where `src` puts files together and `one` does not."""
    sources = {"src": SourceNode("src", ONE, batch=batch), "one": SourceNode("one", ONE)}
    dataflow = Dataflow("d", sources, {node.name: node for node in stages})
    rules = {node.name: node.runnable for node in dataflow.stages.values()}
    return {name for name, rule in rules.items() if rule == TOGETHER}


def test_a_stage_whose_last_records_count_reads_what_waits() -> None:
    """A chain of them does, as far as nothing else comes in."""
    assert together(stage("a", "src"), stage("b", "a.o")) == {"a", "b"}
    assert together(stage("a", "one")) == set()
    assert together(stage("a", "src"), batch=FileBatch(files=1)) == set()


FRAMED = (InputSpec("i0", ONE, ("k",), frame_by=FrameBy(lambda record: record.k)),)
HISTORY = (OutputSpec("o", ONE, ("k",), history=True),)
TIMERS = (StateSpec("t", ONE, timers=True),)
EXPIRES = (StateSpec("t", ONE, timers=True, expires="s"),)
LOOKS_UP = (LookupSpec("look", ONE, ("k",)),)
CASES: dict[str, Callable[..., StageNode]] = {
    "all records count": lambda *reads: stage("a", *reads, key=()),
    "history": lambda *reads: stage("a", *reads, outputs=HISTORY),
    "rule of its own": lambda *reads: stage("a", *reads, rule=RunnableSpec(RunAll(), "x")),
    "rule of its class": lambda *reads: stage("a", *reads, runnable=RunnableSpec(RunAll(), "x.py")),
    "run": lambda *reads: stage("a", *reads, reads_run=True),
    "timers": lambda *reads: stage("a", *reads, states=TIMERS),
    "expires": lambda *reads: stage("a", *reads, states=EXPIRES),
    "frames": lambda *reads: stage("a", *reads, inputs=FRAMED),
    "look-up": lambda *reads: stage("a", *reads, lookups=LOOKS_UP),
}


@pytest.mark.parametrize("case", CASES)
def test_a_stage_that_may_tell_epochs_apart_reads_one_increment(case: str) -> None:
    """Whatever can see where an increment ends keeps one a run."""
    assert together(CASES[case]("src")) == set()


@pytest.mark.parametrize("case", ["history", "run", "timers", "expires", "frames", "look-up"])
def test_a_stage_before_one_that_tells_epochs_apart_reads_one_increment(case: str) -> None:
    """Its own output would have other increments; so would those of the stages between."""
    reader = replace(CASES[case]("b.o"), name="c")
    reader = replace(reader, wiring={"i0": "b.o"})
    assert together(stage("b", "src"), reader) == set()
    assert together(stage("a", "src"), stage("b", "a.o"), reader) == set()


def test_a_stage_whose_output_stays_in_step_with_another_reads_one_increment() -> None:
    """A stage with two inputs reads the first of one with the first of the other."""
    both = stage("both", "a.o", "b.o")
    assert together(stage("a", "src"), stage("b", "src"), both) == set()
    windows = stage("w", "a.o", rule=RunnableSpec(CountWindow(2)))
    assert together(stage("a", "src"), stage("b", "src"), windows) == {"b"}


def test_records_of_their_own_have_no_last_one() -> None:
    """A record-wise stage without state emits the same records, wherever increments end."""
    plain = (InputSpec("i0", ONE, None),)
    assert together(stage("a", "src", key=(), inputs=plain), stage("b", "a.o")) == {"a", "b"}
    state = (StateSpec("s", ONE),)
    assert together(stage("a", "src", key=(), inputs=plain, states=state)) == set()


def test_neither_the_shape_nor_the_leaders_change() -> None:
    """A dataflow that was registered before goes on: no drift, and the same stages together."""
    stages = {
        "r": stage("r", "src", key=(), inputs=(InputSpec("i0", ONE, None),)),
        "g": stage("g", "r.o"),
    }
    apart, joined = (
        Dataflow("d", {"src": SourceNode("src", ONE, batch=batch)}, stages)
        for batch in (FileBatch(files=1), FileBatch())
    )
    assert joined.stages["r"].runnable == TOGETHER != apart.stages["r"].runnable
    assert shape_of(joined) == shape_of(apart)
    assert choose_leaders(joined) == choose_leaders(apart) == ("r",)
    again = replace(joined, sources=apart.sources)
    assert again.stages["r"].runnable == apart.stages["r"].runnable


def joins(*stages: StageNode, sinks: tuple[SinkNode, ...] = (), **source: Any) -> bool:
    """Return whether a backlog of `src`, whose document says nothing else, is taken together."""
    sources = {"src": SourceNode("src", ONE, **source), "one": SourceNode("one", ONE)}
    named = {node.name: node for node in stages}
    dataflow = Dataflow("d", sources, named, sinks={sink.name: sink for sink in sinks})
    assert replace(dataflow).sources == dataflow.sources  # made again, it says the same
    assert all(node.runnable != TOGETHER for node in dataflow.stages.values())
    return dataflow.sources["src"].batch_of(BACKLOG_FILES) == FileBatch()


def test_a_backlog_is_taken_together_where_only_the_final_state_counts() -> None:
    """Without a word of the document; fewer files, and what else was said, stay as they were."""
    assert joins(stage("a", "src"), stage("b", "a.o"))
    assert not joins(stage("a", "one"))  # nothing reads `src`: nothing says that it may
    assert not joins(stage("a", "src"), batch=ONE_FILE)
    assert not joins(stage("a", "src"), format="delta")
    (source,) = Dataflow("d", {"s": SourceNode("s", ONE)}, {"a": stage("a", "s")}).sources.values()
    assert source.batch_of(BACKLOG_FILES - 1).files == 1
    assert source.batch_of(BACKLOG_FILES).files > 1


@pytest.mark.parametrize("case", CASES)
def test_a_backlog_is_taken_file_by_file_where_a_stage_may_notice(case: str) -> None:
    """One stage that can tell epochs apart is enough, be it the only reader or one of two."""
    assert not joins(CASES[case]("src"))
    assert not joins(stage("b", "src"), CASES[case]("src"))


@pytest.mark.parametrize("flow", ["src", "a.o", "b.o"])
def test_a_backlog_is_taken_file_by_file_where_a_sink_publishes_increments(flow: str) -> None:
    """A sink of a view writes the final records; one of a flow has a file for each increment."""
    stages = stage("a", "src"), stage("b", "a.o")
    assert not joins(*stages, sinks=(SinkNode("s", "parquet", flow=flow, path="/p"),))
    assert joins(*stages, sinks=(SinkNode("s", "delta", view="a.o", path="/p"),))


def queue(*sizes: int) -> Connector:
    connector = Connector("i0")
    for index, size in enumerate(sizes):
        files = (DataFile(f"f{index}", 1, size),)
        connector = connector.append(Increment("src", index, index, files))
    return connector


@pytest.mark.parametrize(
    ("sizes", "read"),
    [((4, 4, 4), 2), ((40, 1), 1), ((1, 40), 1), ((5, 5), 2), ((0,) * 9, 5), ((1,), 1)],
)
def test_a_run_reads_as_many_bytes_as_the_rule_says(sizes: tuple[int, ...], read: int) -> None:
    """The oldest ones, at least one; the rest waits for the next run."""
    decision = RunAll(batch=5, bytes=10)({"i0": queue(*sizes)}, None)
    assert decision.read["i0"] == decision.remove["i0"] == tuple(range(read))


def test_the_bytes_of_all_inputs_count_together() -> None:
    """Inputs stay in step, so one of them cannot be read further than the others."""
    both = {"a": queue(6, 6), "b": queue(1, 1)}
    assert RunAll(batch=5, bytes=13)(both, None).read == {"a": (0,), "b": (0,)}
    assert RunAll(batch=5, bytes=14)(both, None).read == {"a": (0, 1), "b": (0, 1)}
