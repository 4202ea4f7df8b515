"""A dataflow as a document: the same graph, and every mistake with its path."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from cbp import (
    CountWindow,
    Input,
    Output,
    PublishPolicy,
    RunAny,
    StaticTable,
    Translate,
    TranslateRecords,
    dataflow_from_document,
)
from cbp.errors import DataflowInvalidError, DefinitionError, Mistake, NotFoundError
from cbp.model.dataflow.nodes import BATCH_BYTES, BATCH_FILES, UNSAID, FileBatch
from cbp.model.flow.back_pressure import FlowLimit
from cbp.model.flow.retention import FOREVER, NO_WISH, FlowRetention, RetentionWish
from cbp.sdk.document import read_rule


class Words(TranslateRecords):
    lines = Input("text STRING")
    words = Output("word STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Emit nothing."""


class CountKey(Translate):
    def __init__(self, key: str = "word") -> None:
        self.items = Input(f"{key} STRING", route_by=key)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


def resolve(name: str, parameters: Mapping[str, Any]) -> Translate | TranslateRecords:
    if name == "words":
        return Words()
    if name == "count":
        return CountKey(**parameters)
    if name == "refused":
        raise DefinitionError(Mistake("parameters_invalid", "refused", "no x", "refused.py:3"))
    raise NotFoundError(kind="translator", name=name)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "word_counts",
        "sources": {"lines": {"schema": "text STRING"}},
        "stages": {
            "split": {"translator": "words", "inputs": {"lines": "lines"}},
            "count": {
                "translator": "count",
                "parameters": {"key": "word"},
                "inputs": {"items": "split.words"},
                "buckets": 4,
            },
        },
        **changes,
    }


def stages(**changes: Any) -> dict[str, Any]:
    made = document()["stages"]
    made["count"].update(changes)
    return document(stages=made)


def codes(value: Any, duplicates: Iterable[str] = ()) -> list[tuple[str, str]]:
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow_from_document(value, resolve, duplicates=duplicates)
    return [(mistake.code, mistake.where) for mistake in caught.value.mistakes]


def test_a_document_gives_the_graph_it_describes() -> None:
    """Translators are made with their parameters; defaults are filled in."""
    flow = dataflow_from_document(document(description="Counts words."), resolve)
    count = flow.stages["count"]
    assert (flow.name, flow.sources["lines"].format) == ("word_counts", "jsonl")
    assert (count.reference, count.parameters, count.buckets) == ("count", {"key": "word"}, 4)
    assert count.wiring == {"items": "split.words"}
    assert flow.stages["split"].buckets == 8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("document_invalid", "document")),
        (document(name=5), ("name_invalid", "name")),
        (document(name="A b"), ("name_invalid", "name")),
        (document(stage={}), ("field_unknown", "document.stage")),
        (document(sources=[]), ("document_invalid", "sources")),
        (document(sources={"lines": {"schema": 5}}), ("schema_invalid", "sources.lines.schema")),
        (document(sources={"lines": {"schema": "a"}}), ("schema_invalid", "sources.lines.schema")),
        (
            document(sources={"lines": {"schema": "text VARIANT"}}),
            ("type_unknown", "sources.lines.schema"),
        ),
        (
            document(sources={"lines": {"schema": "text STRING", "same_name": "rename"}}),
            ("same_name_invalid", "sources.lines.same_name"),
        ),
        (
            document(sources={"lines": {"schema": "text STRING", "unfinished": "~"}}),
            ("unfinished_invalid", "sources.lines.unfinished"),
        ),
        (
            document(sources={"lines": {"schema": "text STRING", "formt": "csv"}}),
            ("field_unknown", "sources.lines.formt"),
        ),
        (
            document(sources={"lines": {"schema": "text STRING", "format": "orc"}}),
            ("format_unknown", "sources.lines.format"),
        ),
        (
            document(sources={"lines": {"schema": "text STRING", "options": 1}}),
            ("document_invalid", "sources.lines.options"),
        ),
        (stages(translator=None), ("translator_unknown", "stages.count.translator")),
        (stages(translator="cuont"), ("not_found", "stages.count.translator")),
        (stages(translator="refused"), ("parameters_invalid", "stages.count.translator")),
        (stages(parameters={"key": "a b"}), ("type_unknown", "stages.count.translator")),
        (stages(parameters=[]), ("document_invalid", "stages.count.parameters")),
        (stages(buckets="4"), ("buckets_invalid", "stages.count.buckets")),
        (stages(buckets=True), ("buckets_invalid", "stages.count.buckets")),
        (stages(buckets=5), ("buckets_invalid", "stages.count.buckets")),
        (stages(input={}), ("field_unknown", "stages.count.input")),
        (stages(inputs={"items": "split.word"}), ("flow_unknown", "stages.count.inputs.items")),
        (stages(inputs={"items": ["split.words"]}), ("flow_unknown", "stages.count.inputs.items")),
        (stages(inputs={}), ("input_unwired", "stages.count.inputs.items")),
        (stages(inputs={"items": "lines"}), ("schema_mismatch", "stages.count.inputs.items")),
        (stages(parameters={"key": "other"}), ("schema_mismatch", "stages.count.inputs.items")),
        (
            stages() | {"stages": {"a.b": {"translator": "words", "inputs": {"lines": "none"}}}},
            ("flow_unknown", "stages.a.b.inputs.lines"),
        ),
        (document(stages={}), ("stages_missing", "stages")),
        (document(stages={5: {}}), ("document_invalid", "stages")),
    ],
)
def test_each_mistake_has_its_rule_and_path(value: Any, expected: tuple[str, str]) -> None:
    """A wrong document names the rule and the path inside the document."""
    assert expected in codes(value)


def test_pairs_that_stood_twice_are_told_apart() -> None:
    """Two stages of one name, and an input wired twice, are found although a mapping holds one."""
    assert codes(document(), ["stages.count", "stages.count.inputs.items", "sources.lines"]) == [
        ("name_twice", "stages.count"),
        ("input_twice", "stages.count.inputs.items"),
        ("name_twice", "sources.lines"),
    ]


def test_a_node_that_cannot_be_read_causes_no_second_mistake() -> None:
    """Flows of a stage or source that is wrong itself are not reported as unknown."""
    broken = document()
    broken["stages"]["split"]["translator"] = "wrods"
    assert codes(broken) == [("not_found", "stages.split.translator")]
    assert codes(document(sources={"lines": {"schema": "a"}})) == [
        ("schema_invalid", "sources.lines.schema")
    ]


def test_mistakes_of_names_and_wiring_are_told_beside_a_translator_that_is_unknown() -> None:
    """Its author would mend the translator, and be told the rest in a second try."""
    stage = {"translator": "wrods", "inputs": {"x": "lines", "y": "nowhere.words", "z": "count"}}
    value = document()
    value["stages"] |= {"lines": stage, "Bad": {"translator": "wrods"}}
    assert sorted(codes(value)) == [
        ("flow_unknown", "stages.lines.inputs.y"),
        ("name_invalid", "stages.Bad"),
        ("name_twice", "stages.lines"),
        ("not_found", "stages.Bad.translator"),
        ("not_found", "stages.lines.translator"),
    ]


def test_all_mistakes_are_listed_at_once_with_the_authors_place() -> None:
    """One answer lists everything; a translator's own mistake keeps its file and line."""
    value = document(name="A b")
    value["stages"]["count"]["translator"] = "refused"
    value["stages"]["split"]["inputs"] = {"lines": "line"}
    with pytest.raises(DataflowInvalidError) as caught:
        dataflow_from_document(value, resolve)
    assert {mistake.code for mistake in caught.value.mistakes} == {
        "parameters_invalid",
        "name_invalid",
        "flow_unknown",
    }
    assert "refused.py:3" in {mistake.place for mistake in caught.value.mistakes}
    assert len(caught.value.as_dict()["details"]["mistakes"]) == 3


def test_a_document_names_the_rule_that_says_when_a_stage_runs() -> None:
    """By name alone, or with arguments; rules may stand inside of rules."""

    def rule_of(value: Any) -> Any:
        return dataflow_from_document(stages(runnable=value), resolve).stages["count"].runnable

    assert rule_of(None).default
    assert rule_of("run_any").function == RunAny()
    assert rule_of({"count_window": {"size": 3, "slide": 1}}).function == CountWindow(3, 1)
    nested = {"static_table": {"tables": "items", "rule": {"run_any": {"batch": 2}}}}
    spec = read_rule(nested, "stages.count.runnable")
    assert spec is not None
    assert spec.function == StaticTable(("items",), RunAny(2))


def test_a_table_that_is_the_only_input_is_a_mistake() -> None:
    """Nothing would ever start a run of the stage."""
    value = stages(runnable={"static_table": {"tables": "items"}})
    assert codes(value) == [("runnable_invalid", "stages.count.runnable")]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("run_al", "runnable_unknown"),
        ({"run_all": {"batch": 0}}, "runnable_invalid"),
        ({"run_all": {"much": 1}}, "runnable_invalid"),
        ({"run_all": 3}, "runnable_invalid"),
        (["run_all"], "runnable_invalid"),
        ({"align": {"inputs": ["other"]}}, "runnable_input_unknown"),
        ({"static_table": {"tables": ["items"], "rule": "x"}}, "runnable_unknown"),
    ],
)
def test_a_wrong_rule_is_a_mistake_with_its_place(value: Any, code: str) -> None:
    """Unknown names, arguments and inputs are found at registration."""
    with pytest.raises(DataflowInvalidError) as refused:
        dataflow_from_document(stages(runnable=value), resolve)
    (mistake,) = refused.value.mistakes
    assert mistake.code == code
    assert mistake.where.startswith("stages.count.runnable")


def test_a_source_is_kept_until_a_snapshot() -> None:
    """Nothing but a queue or a position keeps it; other words, and numbers beside, are wrong."""
    sources = document()["sources"]
    name = next(iter(sources))
    sources[name]["keep"] = {"until": "snapshot"}
    wish = dataflow_from_document(document(sources=sources), resolve).sources[name].keep
    assert wish.over(FlowRetention(9.0, 9, 9)) == FlowRetention(0.0, 0, 0)
    sources[name]["keep"] = {"until": "tomorrow", "hours": 3}
    with pytest.raises(DataflowInvalidError) as refused:
        dataflow_from_document(document(sources=sources), resolve)
    actual = {(m.code, m.where.removeprefix(f"sources.{name}.")) for m in refused.value.mistakes}
    assert actual == {("keep_invalid", "keep.until"), ("keep_invalid", "keep")}


def test_a_document_limits_what_waits_of_an_output() -> None:
    """By output, in increments, records or bytes; anything else is a mistake with its place."""
    made = document()["stages"]
    made["split"]["limits"] = {"words": {"increments": 3, "bytes": 10}}
    limits = dataflow_from_document(document(stages=made), resolve).stages["split"].limits
    assert limits == {"words": FlowLimit(increments=3, bytes=10)}
    made["split"]["limits"] = {"words": {"rows": 0, "records": 0}, "other": {"records": 1, "x": 1}}
    with pytest.raises(DataflowInvalidError) as refused:
        dataflow_from_document(document(stages=made), resolve)
    actual = {
        (m.code, m.where.removeprefix("stages.split.limits.")) for m in refused.value.mistakes
    }
    assert actual == {
        ("field_unknown", "words.rows"),
        ("limit_invalid", "words"),
        ("field_unknown", "other.x"),
        ("limit_output_unknown", "other"),
    }


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ({}, PublishPolicy(1, 60.0)),
        ({"epochs": 8}, PublishPolicy(8, 60.0)),
        ({"epochs": 8, "seconds": 2}, PublishPolicy(8, 2.0)),
        ({"seconds": 0.5}, PublishPolicy(1_000, 0.5)),
    ],
)
def test_a_document_says_when_it_publishes(value: Any, policy: PublishPolicy) -> None:
    """Every epoch unless told; one that only bounds the time goes by time alone."""
    assert dataflow_from_document(stages() | {"publish": value}, resolve).publish == policy


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"epochs": 0}, "publish.epochs"),
        ({"epochs": 1_001}, "publish.epochs"),
        ({"epochs": "8"}, "publish.epochs"),
        ({"epochs": True}, "publish.epochs"),
        ({"seconds": 0}, "publish.seconds"),
        ({"seconds": 86_401}, "publish.seconds"),
        ({"seconds": float("nan")}, "publish.seconds"),
        ({"seconds": 10**400}, "publish.seconds"),
        ({"seconds": "1 min"}, "publish.seconds"),
        ({"minutes": 1}, "publish.minutes"),
        (8, "publish"),
    ],
)
def test_a_wrong_policy_is_a_mistake_with_its_place(value: Any, where: str) -> None:
    """What no publication can keep to is found at registration."""
    with pytest.raises(DataflowInvalidError) as refused:
        dataflow_from_document(stages() | {"publish": value}, resolve)
    assert [mistake.where for mistake in refused.value.mistakes] == [where]


def keeping(value: Any) -> dict[str, Any]:
    made = document()
    made["sources"] = {n: {**one, "keep": value} for n, one in made["sources"].items()}
    return made


@pytest.mark.parametrize(
    ("value", "wish"),
    [
        ({}, NO_WISH),
        ({"hours": 48}, RetentionWish(48 * 3600.0, None)),
        ({"hours": 0, "bytes": 0}, RetentionWish(0.0, 0)),
        ({"bytes": 10**12}, RetentionWish(None, 10**12)),
    ],
)
def test_a_document_says_how_long_inputs_stay(value: Any, wish: RetentionWish) -> None:
    """By source; what it leaves open is what the service does."""
    for source in dataflow_from_document(keeping(value), resolve).sources.values():
        assert source.keep == wish
    service = FlowRetention(7.0, 9)
    assert NO_WISH.over(service) == service
    assert RetentionWish(0.0, None).over(service) == FlowRetention(0.0, 9)
    assert RetentionWish(None, 0).over(service) == FlowRetention(7.0, 0)


def test_a_document_says_how_long_outputs_stay() -> None:
    """By stage and output; what is not named stays, and a mistake has its place."""

    def saying(keep: Any) -> dict[str, Any]:
        made = document()
        made["stages"]["split"]["keep"] = keep
        return made

    actual = dataflow_from_document(saying({"words": {"hours": 2, "bytes": 9}}), resolve)
    assert actual.stages["split"].keep == {"words": RetentionWish(7200.0, 9)}
    assert actual.stages["count"].keep == {}
    assert RetentionWish(None, 9).over(FOREVER) == FlowRetention(math.inf, 9)
    assert codes(saying({"other": {"hours": 2}})) == [
        ("keep_output_unknown", "stages.split.keep.other")
    ]
    assert codes(saying({"words": {"hours": -2}})) == [
        ("keep_invalid", "stages.split.keep.words.hours")
    ]
    assert codes(saying(3)) == [("document_invalid", "stages.split.keep")]


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        ({"hours": -1}, "keep_invalid", ".hours"),
        ({"hours": 10**6}, "keep_invalid", ".hours"),
        ({"hours": float("nan")}, "keep_invalid", ".hours"),
        ({"hours": "2 days"}, "keep_invalid", ".hours"),
        ({"hours": True}, "keep_invalid", ".hours"),
        ({"bytes": -1}, "keep_invalid", ".bytes"),
        ({"bytes": 1.5}, "keep_invalid", ".bytes"),
        ({"bytes": False}, "keep_invalid", ".bytes"),
        ({"days": 2}, "field_unknown", ".days"),
        (48, "document_invalid", ""),
    ],
)
def test_a_wrong_retention_is_a_mistake_with_its_place(value: Any, code: str, field: str) -> None:
    """Found at registration, once for each source that says so."""
    with pytest.raises(DataflowInvalidError) as refused:
        dataflow_from_document(keeping(value), resolve)
    made = document()["sources"]
    actual = [(mistake.code, mistake.where) for mistake in refused.value.mistakes]
    assert actual == [(code, f"sources.{name}.keep{field}") for name in made]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, FileBatch(BATCH_FILES, BATCH_BYTES)),
        ({"files": 50}, FileBatch(50, BATCH_BYTES)),
        ({"bytes": 9, "files": 1}, FileBatch(1, 9)),
        ({"seconds": 1.5}, FileBatch(BATCH_FILES, BATCH_BYTES, 1.5)),
    ],
)
def test_a_source_may_put_many_files_into_an_increment(value: Any, expected: FileBatch) -> None:
    """Without a word about it, every file is an increment of its own, but for a backlog."""
    made = document()
    name = next(iter(made["sources"]))
    assert dataflow_from_document(made, resolve).sources[name].batch == UNSAID
    made["sources"][name]["batch"] = value
    assert dataflow_from_document(made, resolve).sources[name].batch == expected


@pytest.mark.parametrize(
    ("value", "code", "field"),
    [
        ({"files": 0}, "batch_invalid", ".files"),
        ({"files": 10**6}, "batch_invalid", ".files"),
        ({"files": True}, "batch_invalid", ".files"),
        ({"files": "9"}, "batch_invalid", ".files"),
        ({"bytes": 0}, "batch_invalid", ".bytes"),
        ({"bytes": 10**12}, "batch_invalid", ".bytes"),
        ({"seconds": -1}, "batch_invalid", ".seconds"),
        ({"seconds": float("nan")}, "batch_invalid", ".seconds"),
        ({"seconds": True}, "batch_invalid", ".seconds"),
        ({"age": 2}, "field_unknown", ".age"),
        (48, "document_invalid", ""),
    ],
)
def test_a_wrong_batch_is_a_mistake_with_its_place(value: Any, code: str, field: str) -> None:
    """Found at registration."""
    made = document()
    name = next(iter(made["sources"]))
    made["sources"][name]["batch"] = value
    assert codes(made) == [(code, f"sources.{name}.batch{field}")]


NO_SECONDS = [1e12, 1e308, 10**30, -1, float("nan"), float("inf"), True, "60", [60]]


@pytest.mark.parametrize("value", NO_SECONDS, ids=repr)
@pytest.mark.parametrize("field", ["run_seconds_max", "close_idle_seconds"])
def test_a_time_that_no_date_can_hold_is_a_mistake(field: str, value: Any) -> None:
    """Times are numbers from 0 to ten years: what the loop adds to a date stays one."""
    made = document()
    name = next(iter(made["stages"]))
    wrong = {"a": value} if field == "close_idle_seconds" else value
    made["stages"][name] = {**made["stages"][name], field: wrong}
    assert "seconds_invalid" in {code for code, _ in codes(made)}


@pytest.mark.parametrize("most", [-1, True, 1.5, float("inf"), 10**30])
def test_bytes_that_no_column_can_hold_are_a_mistake(most: Any) -> None:
    """A number of bytes fits an integer of 64 bits."""
    assert {code for code, _ in codes(keeping({"bytes": most}))} == {"keep_invalid"}
