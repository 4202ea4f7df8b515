"""A dataflow as a whole: each broken rule is found, with its place, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from cbp.errors import DataflowInvalidError, Mistake
from cbp.model.dataflow.dataflow import Dataflow, SourceNode, StageNode
from cbp.model.dataflow.runnable import Align, CountWindow, Phases, RunAny, StaticTable
from cbp.model.dataflow.stage import InputSpec, OutputSpec, RunnableSpec, TranslatorSpec
from cbp.model.flow.schema import Schema
from cbp.model.graph.drawing import FlowEdge
from tests.cbp.model.dataflow.random_graphs import random_flow


def spec(
    inputs: Mapping[str, str] | None = None, outputs: Mapping[str, str] | None = None
) -> TranslatorSpec:
    made = inputs if inputs is not None else {"items": "url STRING"}
    return TranslatorSpec(
        "Count",
        None,
        tuple(InputSpec(name, Schema.parse(schema)) for name, schema in made.items()),
        tuple(OutputSpec(n, Schema.parse(s)) for n, s in (outputs or {"out": "n BIGINT"}).items()),
        (),
        lambda *_: None,
        "count.py:7",
    )


def dataflow(
    *,
    name: str = "flow",
    sources: Mapping[str, SourceNode] | None = None,
    **stages: StageNode,
) -> Dataflow:
    urls = SourceNode("urls", Schema.parse("url STRING, extra INT"))
    nodes = stages or {"count": StageNode("count", spec(), {"items": "urls"})}
    return Dataflow(name, MappingProxyType(sources or {"urls": urls}), MappingProxyType(nodes))


def mistakes(flow: Dataflow) -> list[Mistake]:
    with pytest.raises(DataflowInvalidError) as caught:
        flow.check()
    return list(caught.value.mistakes)


def only(flow: Dataflow) -> Mistake:
    (mistake,) = mistakes(flow)
    return mistake


def stage(**changes: Any) -> StageNode:
    values: dict[str, Any] = {"name": "count", "translator": spec(), "wiring": {"items": "urls"}}
    return StageNode(**{**values, **changes})


def test_a_right_dataflow_passes() -> None:
    """A flow may have columns that the input leaves out; a stage may feed itself."""
    loop = stage(
        translator=spec({"items": "url STRING", "back": "n BIGINT"}),
        wiring={"items": "urls", "back": "count.out"},
        rule=RunnableSpec(RunAny()),
    )
    flow = dataflow(count=loop)
    flow.check()
    assert set(flow.flows()) == {"urls", "count.out"}
    assert list(flow.consumers("count.out")) == [("count", "back")]
    assert list(flow.consumers("urls")) == [("count", "items")]


@pytest.mark.parametrize("buckets", [2, 8, 4096])
def test_buckets_are_a_power_of_two(buckets: int) -> None:
    """Two to 4096."""
    dataflow(count=stage(buckets=buckets)).check()


@pytest.mark.parametrize("buckets", [-8, 0, 1, 3, 12, 8192])
def test_other_numbers_of_buckets_are_refused(buckets: int) -> None:
    """Anything else cannot be split by high bits."""
    mistake = only(dataflow(count=stage(buckets=buckets)))
    assert (mistake.code, mistake.where) == ("buckets_invalid", "stages.count.buckets")
    assert str(buckets) in mistake.message


@pytest.mark.parametrize(
    ("flow", "where"),
    [
        (dataflow(name="My Flow"), "name"),
        (dataflow(name=""), "name"),
        (
            dataflow(
                sources={
                    "urls": SourceNode("urls", Schema.parse("url STRING")),
                    "A": SourceNode("A", Schema.parse("url STRING")),
                }
            ),
            "sources.A",
        ),
        (dataflow(a_B=stage(name="a_B")), "stages.a_B"),
    ],
)
def test_names_are_checked(flow: Dataflow, where: str) -> None:
    """Dataflow, sources and stages become folders and tables: one spelling only."""
    mistake = only(flow)
    assert (mistake.code, mistake.where) == ("name_invalid", where)


def test_a_source_and_a_stage_cannot_share_a_name() -> None:
    """Flow names would be ambiguous."""
    mistake = only(dataflow(urls=stage(name="urls")))
    assert (mistake.code, mistake.where) == ("name_twice", "stages.urls")


def test_a_dataflow_without_stages_does_nothing() -> None:
    """It is a mistake, not an empty success."""
    flow = Dataflow("flow", {}, {})
    assert (only(flow).code, only(flow).where) == ("stages_missing", "stages")


def test_an_unknown_format_says_which_there_are() -> None:
    """The allowed formats stand in the message."""
    source = SourceNode("urls", Schema.parse("url STRING"), "orc")
    mistake = only(dataflow(sources={"urls": source}))
    assert (mistake.code, mistake.where) == ("format_unknown", "sources.urls.format")
    assert "jsonl, csv, parquet" in mistake.message


@pytest.mark.parametrize("type_", ["ARRAY<STRING>", "MAP<STRING, INT>", "STRUCT<a: INT>", "BINARY"])
def test_csv_holds_no_nested_and_no_binary_columns(type_: str) -> None:
    """A column that the format cannot hold is found at registration; JSON lines hold it."""
    schema = Schema.parse(f"url STRING, x {type_}")
    mistake = only(dataflow(sources={"urls": SourceNode("urls", schema, "csv")}))
    assert (mistake.code, mistake.where) == ("format_type", "sources.urls.schema")
    assert "'x'" in mistake.message
    dataflow(sources={"urls": SourceNode("urls", schema, "jsonl")}).check()


def test_every_input_is_wired() -> None:
    """A declared input without a flow is named, with the author's place."""
    mistake = only(dataflow(count=stage(wiring={})))
    assert (mistake.code, mistake.where) == ("input_unwired", "stages.count.inputs.items")
    assert mistake.place == "count.py:7"


def test_only_declared_inputs_are_wired() -> None:
    """A wired name that the translator does not declare lists those that it does."""
    mistake = only(dataflow(count=stage(wiring={"items": "urls", "item": "urls"})))
    assert (mistake.code, mistake.where) == ("input_unknown", "stages.count.inputs.item")
    assert "it has items" in mistake.message


@pytest.mark.parametrize(
    ("flow", "near"), [("urlz", "count.out, urls"), ("count.nothing", "count.out")]
)
def test_a_flow_that_nobody_declares_is_named_with_what_is_near(flow: str, near: str) -> None:
    """An output nobody declared lists the outputs of that stage; else all flows."""
    mistake = only(dataflow(count=stage(wiring={"items": flow})))
    assert (mistake.code, mistake.where) == ("flow_unknown", "stages.count.inputs.items")
    assert mistake.message.endswith(f"use one of {near}")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("url STRING, site STRING", "column 'site' (STRING) is missing"),
        ("url BIGINT", "column 'url' is STRING, expected BIGINT"),
        ("extra BIGINT", "column 'extra' is INT, expected BIGINT"),
    ],
)
def test_a_flow_must_have_the_columns_of_the_input(wanted: str, says: str) -> None:
    """Columns are matched by name, and types are equal: nothing is cast silently."""
    mistake = only(dataflow(count=stage(translator=spec({"items": wanted}))))
    assert (mistake.code, mistake.where) == ("schema_mismatch", "stages.count.inputs.items")
    assert says in mistake.message


def test_all_mistakes_are_found_at_once() -> None:
    """An author mends a registration in one go."""
    reported_mistakes = mistakes(
        dataflow(
            name="My Flow",
            sources={"urls": SourceNode("urls", Schema.parse("url STRING"), "orc")},
            count=stage(wiring={"item": "urls"}, buckets=3),
            again=stage(name="again", wiring={"items": "nowhere"}),
        )
    )
    assert sorted(mistake.code for mistake in reported_mistakes) == [
        "buckets_invalid",
        "flow_unknown",
        "format_unknown",
        "input_unknown",
        "input_unwired",
        "name_invalid",
    ]


KEYS = {"out": "k STRING"}


def test_a_cycle_that_never_runs_is_refused() -> None:
    """A stage that waits for what only its own run brings never runs; another rule is named."""
    two = {"a": "k STRING", "b": "k STRING"}
    one = stage(name="one", translator=spec(two, KEYS), wiring={"a": "s", "b": "two.out"})
    back = stage(name="two", translator=spec({"a": "k STRING"}, KEYS), wiring={"a": "one.out"})
    source = {"s": SourceNode("s", Schema.parse("k STRING"))}
    mistake = only(dataflow(sources=source, one=one, two=back))
    assert (mistake.code, mistake.where) == ("cycle_never_runs", "stages.one.runnable")
    assert "RunAny" in mistake.message
    rules = {
        "RunAny": RunAny(),
        "Phases": Phases(("a", "b")),  # type: ignore[arg-type]  # names stand for phases
        "Align": Align(("a",)),
        "StaticTable": StaticTable(("b",), RunAny()),
        "CountWindow": CountWindow(2),
    }
    refused = set()
    for name, rule in rules.items():
        ruled = replace(one, rule=RunnableSpec(rule))  # type: ignore[arg-type]
        try:
            dataflow(sources=source, one=ruled, two=back).check()
        except DataflowInvalidError:
            refused.add(name)
    assert refused == {"StaticTable", "CountWindow"}


def test_a_cycle_without_an_outside_is_refused() -> None:
    """Stages that only feed each other never have a first increment."""
    one = stage(name="one", translator=spec({"a": "k STRING"}, KEYS), wiring={"a": "two.out"})
    back = stage(name="two", translator=spec({"a": "k STRING"}, KEYS), wiring={"a": "one.out"})
    reported_mistakes = mistakes(dataflow(one=replace(one, rule=RunnableSpec(RunAny())), two=back))
    assert {(m.code, m.where) for m in reported_mistakes} == {
        ("cycle_never_runs", "stages.one.runnable"),
        ("cycle_never_runs", "stages.two.runnable"),
    }


@pytest.mark.parametrize("seed", range(20))
def test_every_flow_of_a_stage_has_readers_or_is_a_result(seed: int):
    """A stage has one edge from each flow that it reads; what nobody reads is a result."""
    flow = random_flow(seed)
    read = {(wired, name) for name, stage in flow.stages.items() for wired in stage.wiring.values()}
    edges = [FlowEdge(wired.partition(".")[0], name, wired) for wired, name in read]
    assert sorted(flow.edges(), key=str) == sorted(edges, key=str)
    unread = flow.flows().keys() - flow.sources.keys() - {wired for wired, _ in read}
    assert {(edge.begin, edge.end, edge.flow) for edge in flow.results()} == {
        (name.partition(".")[0], name, name) for name in unread
    }
