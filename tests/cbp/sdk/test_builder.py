"""Wiring in code: the graph it gives, and every mistake in one error."""

from __future__ import annotations

from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, RetentionWish, Translate, TranslateRecords, View
from cbp.errors import DataflowInvalidError
from cbp.model.dataflow.sinks import SinkNode


class Words(TranslateRecords):
    lines = Input("text STRING")
    words = Output("word STRING")

    def translate(self, record: Any, out: Any) -> None:
        """Emit nothing."""


class Broken(Translate):
    lines = Input("text STRING", route_by="txt")
    words = Output("word STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


def codes(flow: DataflowBuilder) -> list[tuple[str, str]]:
    with pytest.raises(DataflowInvalidError) as caught:
        flow.build()
    return [(mistake.code, mistake.where) for mistake in caught.value.mistakes]


def test_stages_are_wired_by_handle_or_by_name() -> None:
    """Both spellings give the same graph, so a stage may be wired before it exists."""
    flow = DataflowBuilder("words")
    lines = flow.source("lines", "text STRING", format="csv", options={"header": "true"})
    flow.stage("second", Words(), lines="words_of.texts")
    flow.stage("words_of", Texts(), lines=lines, buckets=2)
    built = flow.build()
    assert built.stages["words_of"].wiring == {"lines": "lines"}
    assert built.stages["words_of"].buckets == 2
    assert (built.sources["lines"].format, built.sources["lines"].options["header"]) == (
        "csv",
        "true",
    )


class Texts(Words):
    texts = Output("text STRING")


def test_handles_name_the_outputs() -> None:
    """A stage gives a handle per output, by attribute."""
    flow = DataflowBuilder("words")
    texts = flow.stage("split", Texts(), lines=flow.source("lines", "text STRING"))
    assert texts.texts.name == "split.texts"
    assert dir(texts) == ["texts", "words"]


def test_outputs_are_kept_as_long_as_is_said() -> None:
    """By handle or by name; others for good; who is not there is named."""
    flow = DataflowBuilder("words")
    texts = flow.stage("split", Texts(), lines=flow.source("lines", "text STRING"))
    flow.keep(texts.texts, RetentionWish(0.0))
    assert flow.build().stages["split"].keep == {"texts": RetentionWish(0.0)}
    flow.keep("split.nothing", RetentionWish(0.0))
    flow.keep("nobody.words", RetentionWish(0.0))
    assert sorted(codes(flow)) == [
        ("keep_output_unknown", "keep.nobody.words"),
        ("keep_output_unknown", "stages.split.keep.nothing"),
    ]


def test_sinks_publish_flows_by_handle_or_by_name() -> None:
    """A sink of the builder is that of a document; its mistakes are reported like a stage's."""
    flow = DataflowBuilder("words")
    texts = flow.stage("split", Texts(), lines=flow.source("lines", "text STRING"))
    flow.sink("files", to="parquet", flow=texts.texts, path="out/texts")
    flow.sink("told", to="webhook", flow="split.words", url="https://example.org/", begin="now")
    built = flow.build()
    assert built.sinks == {
        "files": SinkNode("files", "parquet", "split.texts", path="out/texts"),
        "told": SinkNode("told", "webhook", "split.words", url="https://example.org/", begin="now"),
    }
    flow.sink("files", to="paper", flow="split.words")
    flow.sink("gone", to="csv", flow="split.nothing", path="gone")
    assert sorted(codes(flow)) == [
        ("flow_unknown", "sinks.gone.flow"),
        ("name_twice", "sinks.files"),
        ("sink_to_unknown", "sinks.files.to"),
    ]


def test_an_output_nobody_declared_is_named() -> None:
    """A handle that does not exist is found by `build`."""
    flow = DataflowBuilder("words")
    words = flow.stage("split", Words(), lines=flow.source("lines", "text STRING"))
    flow.stage("again", Words(), lines=words.sentences)
    assert codes(flow) == [("flow_unknown", "stages.again.inputs.lines")]


def test_names_that_are_declared_twice_are_named() -> None:
    """Two sources or two stages of one name are mistakes, not overwrites."""
    flow = DataflowBuilder("words")
    flow.source("lines", "text STRING")
    flow.source("lines", "text STRING")
    flow.stage("split", Words(), lines="lines")
    flow.stage("split", Words(), lines="lines")
    assert codes(flow) == [("name_twice", "sources.lines"), ("name_twice", "stages.split")]


def test_values_of_another_type_are_named() -> None:
    """What is no text, no batch or no whole number is a mistake, with its place."""
    flow = DataflowBuilder("words")
    flow.source("lines", ["text STRING"])  # type: ignore[arg-type]
    flow.source("batched", "text STRING", batch=10, location=5)  # type: ignore[arg-type]
    lines = flow.source("others", "text STRING")
    flow.stage("split", Words(), lines=lines, buckets="8")  # type: ignore[arg-type]
    assert codes(flow) == [
        ("schema_invalid", "sources.lines.schema"),
        ("batch_invalid", "sources.batched.batch"),
        ("location_invalid", "sources.batched.location"),
        ("buckets_invalid", "stages.split.buckets"),
    ]


def test_two_sinks_never_write_to_one_folder() -> None:
    """However its path is written; a webhook has no path."""
    flow = DataflowBuilder("words")
    words = flow.stage("split", Words(), lines=flow.source("lines", "text STRING")).words
    flow.sink("hook", to="webhook", flow=words, url="http://localhost/words")
    flow.sink("root", to="parquet", flow=words, path="/")
    flow.sink("one", to="parquet", flow=words, path="exports/words")
    flow.sink("two", to="parquet", flow=words, path="./exports//words/")
    assert codes(flow) == [("sink_path_twice", "sinks.two.path")]


class Joined(Translate):
    left = Input("text STRING", route_by="text")
    right = Input("text STRING", route_by="text")
    texts = View("text STRING", key="text")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


def test_an_unwired_input_beside_a_source_whose_files_are_replaced_is_named() -> None:
    """Whether the stage could apply a replacement is asked of its wired inputs only."""
    flow = DataflowBuilder("words")
    lines = flow.source("lines", "text STRING", same_name="replace")
    flow.stage("joined", Joined(), left=lines, any_order=True)
    assert codes(flow) == [("input_unwired", "stages.joined.inputs.right")]


def test_every_mistake_is_listed() -> None:
    """Schemas, translators and wiring are all checked before anything is raised."""
    flow = DataflowBuilder("words")
    flow.source("lines", "text STRING")
    flow.source("bad", "text VARIANT")
    flow.stage("broken", Broken(), lines="lines")
    flow.stage("split", Words(), line="lines")
    assert codes(flow) == [
        ("type_unknown", "sources.bad.schema"),
        ("route_by_unknown", "Broken.lines"),
        ("input_unwired", "stages.split.inputs.lines"),
        ("input_unknown", "stages.split.inputs.line"),
    ]
