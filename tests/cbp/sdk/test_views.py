"""Mistakes with views, and with inputs that read their changes: found early, and by code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, Translate, TranslateArrow, View
from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError, DataflowInvalidError, DefinitionError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.sdk.translate import spec_of
from cbp.testing import run_dataflow
from tests.cbp.sdk.mistakes import Run, failure
from tests.driver import Driver


class Top(Translate):
    """Keeps what it was given in one line."""

    urls = Input("url STRING", route_by="url")
    top = View("url STRING, place INT, score DOUBLE", key="url, place")
    seen = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit one record."""
        out.top(key.url, 1, 0.5)


def declared(view: Any) -> type[Translate]:
    return type("Declared", (Top,), {"top": view, "__module__": __name__})


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (View("url STRING, place INT", key=""), "key_unknown"),
        (View("place INT"), "state_key_missing"),
        (View("url STRING, tags ARRAY<STRING>"), "view_bag_type"),
        (View("url STRING, sign INT"), "view_column_reserved"),
        (View("url STRING, n INT", keep=True), "keep_key_missing"),
        (View("url STRING, place INT", key="place"), "view_key_incomplete"),
        (View("url STRING, place INT", key="url, rank"), "key_unknown"),
        (View("url STRING, tags ARRAY<STRING>", key="url, tags"), "view_key_type"),
        (View("url STRING, sign INT", key="url"), "view_column_reserved"),
        (View("url STRING, Change_Type INT", key="url"), "view_column_reserved"),
        (View("place INT", key="place"), "state_key_missing"),
        (View("url STRING, n INT", key="url, n", not_compared="n"), "not_compared_invalid"),
        (View("url STRING, n INT", key="url", keep=True, order_by="n"), "keep_unsupported"),
    ],
)
def test_a_view_names_a_record_by_columns_that_can(view: View, code: str) -> None:
    """Its key has the stage's key and atoms; its columns are not those of changes."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(declared(view)())
    assert caught.value.mistake.code == code
    assert "Declared.top" in caught.value.mistake.where


def test_a_view_is_a_state_and_its_changes_are_an_output() -> None:
    """Both have its name; its records are ordered by what names them in their group."""
    spec = spec_of(Top())
    state, output = spec.state("top"), spec.output("top")
    assert (state.second_key, state.changes, state.order_by) == (("place",), "top", ("place",))
    assert (output.view, output.schema.names[-2:]) == ("top", ("change_type", "sign"))
    assert [each.name for each in spec.emitted] == ["seen"]
    assert spec.views == (state,)


def test_a_view_without_a_key_is_a_bag() -> None:
    """No column names a record, so each counts as often as it is there; others look up by group."""
    spec = spec_of(declared(View("url STRING, place INT"))())
    state = spec.state("top")
    assert (state.bag, state.second_key, state.changes) == (True, (), "top")
    assert (spec.views, spec.keyed_views) == ((state,), ())
    assert spec_of(Top()).keyed_views == spec_of(Top()).views


def reads(changes: str, columns: str = "url STRING") -> Translate:
    class Reads(Translate):
        rows = Input(columns, route_by="url", changes=changes)  # type: ignore[arg-type]
        seen = Output("url STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    return Reads()


def behind(reader: Translate, flow: str = "one.top") -> Dataflow:
    builder = DataflowBuilder("flow")
    builder.stage("one", Top(), urls=builder.source("urls", "url STRING"))
    builder.stage("two", reader, rows=flow)
    return builder.build()


@pytest.mark.parametrize(
    ("changes", "columns", "code"),
    [
        ("all", "url STRING", "changes_invalid"),
        ("after", "url STRING, sign INT", "changes_columns"),
    ],
)
def test_an_input_says_in_known_words_how_it_reads_changes(
    changes: str, columns: str, code: str
) -> None:
    """Either all changes, or the new records, which have no sign."""
    with pytest.raises(DefinitionError) as caught:
        spec_of(reads(changes, columns))
    assert caught.value.mistake.code == code


@pytest.mark.parametrize(
    ("changes", "flow", "code"),
    [
        ("", "one.top", "changes_undeclared"),
        ("signed", "urls", "changes_without_view"),
        ("after", "one.seen", "changes_without_view"),
    ],
)
def test_who_reads_a_view_says_how(changes: str, flow: str, code: str) -> None:
    """Nobody adds up deleted records by mistake; what is no view has no changes."""
    with pytest.raises(DataflowInvalidError) as caught:
        behind(reads(changes), flow)
    assert [mistake.code for mistake in caught.value.mistakes] == [code]
    for right in ("signed", "after"):
        assert behind(reads(right)).changes() == {"one.top"}


class Twice(Top):
    """Emits two records of one key."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit a record, another one, and the first key again."""
        out.top(key.url, 1, 0.5)
        out.top(key.url, 2, 0.5)
        out.top(key.url, 1, 0.75)  # this line


class Remote(Top):
    """Emits a record of a view for another key."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Append one."""
        out.top.remote("z", 1, 0.5)  # this line


class Alone(Translate):
    """A record that is a group of its own has no records in a view."""

    urls = Input("url STRING", route_by="url")
    others = Input("url STRING")
    top = View("url STRING", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit what is in no group."""
        for other in group.others:
            out.top(other.url)  # this line


@pytest.mark.parametrize("engine", ["kit", "engine"])
def test_a_record_without_a_group_has_no_record_in_a_view(engine: str, tmp_path: Path) -> None:
    """It would belong to nobody who could replace it."""
    builder = DataflowBuilder("flow")
    urls = builder.source("urls", "url STRING")
    builder.stage("one", Alone(), urls=urls, others=urls)
    dataflow = builder.build()

    def in_engine() -> None:
        driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), dataflow, tmp_path / "t")
        driver.feed("urls", [{"url": "a"}])
        driver.run_until_idle()

    runs = {"kit": lambda: run_dataflow(dataflow, {"urls": [["a"]]}), "engine": in_engine}
    with pytest.raises(CbpError) as caught:
        runs[engine]()
    assert caught.value.code == "view_remote"


@pytest.mark.parametrize(
    ("translator", "code"), [(Twice(), "view_key_twice"), (Remote(), "view_remote")]
)
def test_a_group_emits_one_record_per_key_and_only_its_own(
    run: Run, translator: Translate, code: str
) -> None:
    """The error names the author's line."""
    error = failure(run, translator)
    assert error.code == code
    line = int(error.details["place"].rpartition(":")[2])
    assert "# this line" in Path(__file__).read_text().splitlines()[line - 1]
    run(Top())


class ArrowTwice(TranslateArrow):
    """Emits a key twice, in one table or in two."""

    urls = Input("url STRING", route_by="url")
    top = View("url STRING, place INT", key="url, place")

    def __init__(self, *, apart: bool) -> None:
        self.apart = apart

    def translate(self, groups: Any, out: Any) -> None:
        """Emit."""
        if self.apart:
            out.top({"url": ["a"], "place": [1]})
            out.top({"url": ["b", "a"], "place": [1, 1]})
        else:
            out.top({"url": ["a", "b", "a"], "place": [1, 1, 1]})


@pytest.mark.parametrize("apart", [False, True])
def test_tables_have_one_record_per_key_too(run: Run, apart: bool) -> None:
    """In one emission, and over several."""
    error = failure(run, ArrowTwice(apart=apart))
    assert error.code == "view_key_twice"
    assert "('a', 1)" in error.details["cause"]


class PutTwice(Top):
    """Puts two records of one key, which is allowed, and one that does not fit."""

    top = View("url STRING, place INT, score DOUBLE", key="url, place", keep=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Put."""
        out.top(key.url, 1, 0.5)
        out.top(key.url, 1, 0.75)
        out.top(key.url, 2, "much")  # this line


def test_an_error_beside_two_puts_of_a_key_is_told_as_it_is(run: Run) -> None:
    """The last put of a key counts in a kept view; what does not fit is the mistake."""
    error = failure(run, PutTwice())
    assert error.code == "author_code_failed"
    line = int(error.details["place"].rpartition(":")[2])
    assert "# this line" in Path(__file__).read_text().splitlines()[line - 1]
