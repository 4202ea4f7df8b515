"""A new version compared with the old one: by stage, before anything happens.

A change compared with itself keeps everything, queues and epochs included; what would lose values
is refused column by column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, RunAny, State, Translate
from cbp.model.author.code_fingerprint import Code
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.runnable import CountWindow
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.schema import Schema
from cbp.model.version.dataflow_shape import RULE, DataflowShape, shape_of
from cbp.model.version.version_change import ChangePlan, Choice, compare_versions, flow_schemas
from tests.cbp.model.versions import (
    ByOther,
    Count,
    CountLess,
    CountMore,
    Echo,
    EchoOtherwise,
    Named,
    Renamed,
    Talks,
    flow_of,
)


def plan_of(before: Dataflow, after: Dataflow, **choice: Any) -> ChangePlan:
    chosen = Choice(**{word: frozenset(names) for word, names in choice.items()})
    return compare_versions(shape_of(before), shape_of(after), chosen)


def rules(plan: ChangePlan) -> list[tuple[str, str]]:
    return [(mistake.code, mistake.where) for mistake in plan.refused]


def test_a_version_compared_with_itself_keeps_everything() -> None:
    """Nothing is asked for and nothing happens, also once it was written as JSON."""
    shape = shape_of(flow_of(a=Count(), b=(Echo(), 4, "a.totals")))
    again = DataflowShape.from_json(shape.to_json())
    assert again == shape
    plan = compare_versions(shape, again)
    assert not plan.changed
    assert plan.refused == ()
    assert {name: stage.state for name, stage in plan.stages.items()} == {"a": "kept", "b": "none"}


def test_stages_are_added_and_removed_while_others_are_kept() -> None:
    """A stage that stays is not touched by those that come and go."""
    plan = plan_of(flow_of(a=Count(), b=Count()), flow_of(a=Count(), c=Count()))
    actual = {name: (stage.kind, stage.state) for name, stage in plan.stages.items()}
    assert actual == {"a": ("kept", "kept"), "b": ("removed", "kept"), "c": ("added", "new")}
    assert plan.stages["c"].rewired == ("words",)


def test_a_replaced_stage_with_state_needs_the_authors_word() -> None:
    """Kept or rebuilt, never guessed; a stage that is removed needs no word."""
    before, after = flow_of(a=Count()), flow_of(a=CountMore())
    plan = plan_of(before, after)
    assert rules(plan) == [("state_undecided", "stages.a")]
    assert f"its code: {CountMore.__module__}.CountMore" in plan.refused[0].message
    assert rules(plan_of(before, after, keep=["a"])) == []
    rebuilt = plan_of(before, after, rebuild=["a"])
    assert not rebuilt.refused
    assert rebuilt.rebuilt == {"a"}
    one, other = flow_of(a=(Echo(), 4, "b.totals"), b=Count()), flow_of(b=Count())
    assert rules(plan_of(one, other)) == []
    assert rules(plan_of(flow_of(a=Talks()), flow_of(a=Count()))) == [
        ("state_undecided", "stages.a")
    ]


def test_a_replaced_stage_without_state_needs_the_authors_word_too() -> None:
    """Its earlier code is in what it wrote; the question names all stages that have read that."""
    behind: dict[str, Any] = {"b": (Count(), 4, "a.copies"), "c": (Count(), 4, "b.totals")}
    numbered = "word STRING, n INT"
    before = flow_of(source=numbered, a=Echo(), d=Count(), **behind)
    after = flow_of(source=numbered, a=EchoOtherwise(), d=Count(), **behind)
    plan = plan_of(before, after)
    assert rules(plan) == [("state_undecided", "stages.a")]
    assert "come from the earlier code of this stage: b, c" in plan.refused[0].message
    kept = plan_of(before, after, keep=["a"])
    assert (rules(kept), kept.stages["a"].behind) == ([], ("b", "c"))
    assert rules(plan_of(before, after, rebuild=["a"])) == [
        ("behind_rebuilt", "stages.b.inputs.words")
    ]
    rebuilt = plan_of(before, after, rebuild=["a", "b", "c"])
    assert (rules(rebuilt), rebuilt.stages["a"].behind) == ([], ())
    assert rebuilt.stages["a"].emptied == ("copies",)
    unread = plan_of(
        flow_of(source=numbered, a=Echo()), flow_of(source=numbered, a=EchoOtherwise())
    )
    assert "made of them" not in unread.refused[0].message


def test_a_stage_that_never_ran_has_nothing_to_decide() -> None:
    """Only that stage; columns that do not fit are refused all the same, as before."""
    before, after = flow_of(a=Count(), b=Count()), flow_of(a=CountMore(), b=CountMore())
    plan = compare_versions(shape_of(before), shape_of(after), never_ran={"a"})
    assert rules(plan) == [("state_undecided", "stages.b")]
    assert plan.stages["a"].state == "kept"


def test_a_plan_names_the_tables_that_readers_see_empty_meanwhile() -> None:
    """Those of a rebuilt stage that has run; neither new ones, nor those of kept stages."""
    before, after = flow_of(a=Count(), b=Count()), flow_of(a=CountMore(), b=Count(), c=Count())
    plan = plan_of(before, after, rebuild=["a"])
    assert {name: stage.emptied for name, stage in plan.stages.items()} == {
        "a": ("counts", "totals"),
        "b": (),
        "c": (),
    }
    assert plan.stages["a"].emptied
    choice = Choice(rebuild=frozenset(["a"]))
    empty = compare_versions(shape_of(before), shape_of(after), choice, never_ran={"a"})
    assert empty.stages["a"].emptied == ()


def test_another_rule_is_another_stage() -> None:
    """What it reads is other input; a description that does not tell the rule says nothing."""
    before, after = flow_of(a=Count()), flow_of(a=Count())
    node = after.stages["a"]
    changed = replace(node, rule=RunnableSpec(CountWindow(3), "document"))
    after = replace(after, stages={"a": changed})
    plan = plan_of(before, after)
    assert rules(plan) == [("state_undecided", "stages.a")]
    assert "runnable: run_all -> count_window(size=3)" in plan.refused[0].message
    kept = plan_of(before, after, keep=["a"]).stages["a"]
    assert (kept.kind, kept.other_rule) == ("replaced", True)
    old = shape_of(before).to_json()
    del old["stages"]["a"]["details"][RULE]
    del old["stages"]["a"]["inputs"]["words"]["framing_code"]
    past = compare_versions(DataflowShape.from_json(old), shape_of(after))
    assert (past.changed, past.stages["a"].other_rule) == (False, False)


def test_columns_of_state_and_outputs_grow_and_never_shrink() -> None:
    """A wider state is kept; a narrower one only rebuilt, and the difference is shown."""
    wide, narrow = flow_of(a=CountMore()), flow_of(a=CountLess())
    grown = plan_of(flow_of(a=Count()), wide, keep=["a"])
    assert [str(c) for c in grown.stages["a"].columns["a.counts"]] == ["n INT -> BIGINT (widened)"]
    plan = plan_of(wide, narrow, keep=["a"])
    assert rules(plan) == [("schema_incompatible", "stages.a.states.counts")]
    assert "n BIGINT -> TINYINT (narrowed)" in plan.refused[0].message
    assert rules(plan_of(wide, narrow, rebuild=["a"])) == []


class Answers(Count):
    """Counts, and is answered."""

    answers = Input("word STRING", route_by="word")
    runnable = RunAny()


class Asks(Translate):
    """Has no state: it remembers nothing."""

    words = Input("word STRING", route_by="word")
    totals = Output("word STRING", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Never called here."""


def test_a_cycle_is_not_rebuilt_in_part() -> None:
    """What one stage remembers of the rounds that were would answer one that begins again."""

    def round_(other: type) -> Dataflow:
        builder = DataflowBuilder("d")
        builder.source("words", "word STRING")
        builder.stage("a", Answers(), words="words", answers="b.totals", buckets=4)
        builder.stage("b", other(), words="a.totals", buckets=4)
        builder.stage("behind", Count(), words="b.totals", buckets=4)
        return builder.build()

    flow = round_(Count)
    for again, kept in (("a", "b"), ("b", "a")):
        plan = plan_of(flow, flow, rebuild=[again], keep=[kept, "behind"])
        assert rules(plan) == [("cycle_rebuilt_in_part", f"stages.{kept}")]
        assert f"rebuild={kept}" in plan.refused[0].message
    assert rules(plan_of(flow, flow, rebuild=["a", "b"], keep=["behind"])) == []
    assert rules(plan_of(flow, flow, rebuild=["behind"])) == []
    without = round_(Asks)
    assert rules(plan_of(without, without, rebuild=["a"], keep=["b"])) == []


def test_a_state_is_never_looked_up_by_another_key() -> None:
    """Its records lie by the hash of the old key: the stage is rebuilt, or stays as it is."""
    before = flow_of(a=Count())
    after = flow_of(source="word BINARY", a=ByOther())
    actual = rules(plan_of(before, after, keep=["a"]))
    assert ("key_changed", "stages.a") in actual
    assert ("schema_incompatible", "sources.words.schema") in actual


def test_a_state_that_lies_by_other_columns_is_not_kept() -> None:
    """Both are shown; a rebuilt stage lays it anew; another order only needs the author's word."""
    named, renamed = flow_of(a=Named()), flow_of(a=Renamed())
    plan = plan_of(named, renamed, keep=["a"])
    (mistake,) = plan.refused
    assert (mistake.code, mistake.where) == ("key_changed", "stages.a.states.counts")
    assert "keyed by (term)" in mistake.message
    assert "looks records up by (word)" in mistake.message
    assert {
        "route_by of state counts: term -> none",
        "order_by of state counts: none -> n",
    } <= set(plan.stages["a"].differences)
    assert rules(plan_of(renamed, named, keep=["a"])) == rules(plan)
    assert rules(plan_of(named, renamed, rebuild=["a"])) == []
    ordered = shape_of(renamed)
    usual = replace(ordered, stages={"a": replace(ordered.stages["a"], state_rules={})})
    assert rules(compare_versions(usual, ordered)) == [("state_undecided", "stages.a")]
    assert rules(compare_versions(usual, ordered, Choice(keep=frozenset({"a"})))) == []


def test_a_description_of_an_earlier_release_says_nothing_of_states() -> None:
    """And one of a dataflow whose states say nothing is letter by letter what it was."""
    told = shape_of(flow_of(a=Count())).to_json()
    assert "state_rules" not in told["stages"]["a"]
    shape = shape_of(flow_of(a=Named()))
    assert shape.stages["a"].state_rules == {"counts": {"route_by": "term"}}
    assert DataflowShape.from_json(shape.to_json()) == shape


def test_buckets_move_only_where_there_is_state() -> None:
    """A number of buckets is no other translator; without state nothing moves."""
    plan = plan_of(flow_of(a=(Count(), 4, "words")), flow_of(a=(Count(), 8, "words")))
    assert (plan.refused, plan.stages["a"].kind, plan.stages["a"].buckets) == ((), "kept", (4, 8))
    plan = plan_of(
        flow_of(a=Count(), b=(Echo(), 4, "a.totals")), flow_of(a=Count(), b=(Echo(), 8, "a.totals"))
    )
    assert not plan.changed


def test_who_reads_a_rebuilt_stage_is_asked_too() -> None:
    """It emits everything again: a reader that adds up would count twice."""
    one = flow_of(a=Count(), b=(Echo(), 4, "a.totals"))
    plan = plan_of(one, one, rebuild=["a"])
    assert rules(plan) == [("behind_rebuilt", "stages.b.inputs.words")]
    for words in ({"rebuild": ["a", "b"]}, {"rebuild": ["a"], "keep": ["b"]}):
        assert rules(plan_of(one, one, **words)) == []


@pytest.mark.parametrize("word", ["keep", "rebuild", "retained"])
def test_a_choice_names_what_it_can_be_about(word: str) -> None:
    """A name that does not exist, or is not new, is refused with a list of those that are."""
    one = flow_of(a=Count())
    assert rules(plan_of(one, one, **{word: ["x"]})) == [("choice_unknown", "stages.x")]
    twice = plan_of(one, one, keep=["a"], rebuild=["a"])
    assert rules(twice) == [("choice_twice", "stages.a")]


def test_a_flow_that_comes_back_holds_what_was_written_to_it() -> None:
    """Grown it may; its old increments are behind those of the new stage, or of the source."""
    empty = shape_of(flow_of(other=Count()))
    narrow = shape_of(flow_of(stage=Count(), other=Count()))
    past = flow_schemas(narrow) | {"stage.gone": Schema.parse("x INT")}
    assert past["stage.totals"] == Schema.parse("word STRING, n INT")
    assert compare_versions(empty, narrow, past=past).refused == ()
    past["stage.totals"] = Schema.parse("word STRING, n SMALLINT")
    assert compare_versions(empty, narrow, past=past).refused == ()
    past["stage.totals"] = Schema.parse("word STRING, n BIGINT, by STRING")
    (mistake,) = compare_versions(empty, narrow, past=past).refused
    assert (mistake.code, mistake.where) == ("schema_incompatible", "stages.stage.outputs.totals")
    assert "- by STRING; n BIGINT -> INT (narrowed)); an earlier version" in mistake.message
    assert compare_versions(narrow, narrow, past=past).refused == ()


def test_code_without_a_fingerprint_is_not_compared() -> None:
    """An earlier description has no code: nothing is reported as different."""
    shape = shape_of(flow_of(a=Count()))
    unknown = replace(shape, stages={"a": replace(shape.stages["a"], code=Code())})
    assert not compare_versions(unknown, shape).changed


class Kept(Count):
    """Its records are named within their group."""

    counts = State("word STRING, n INT", keep=True, key="word, n")


def test_records_that_are_to_be_named_by_a_key_are_rebuilt() -> None:
    """Kept records may have the same key twice; without a key again, nothing can be wrong."""
    before, after = flow_of(a=Count()), flow_of(a=Kept())
    assert rules(plan_of(before, after, keep=["a"])) == [
        ("second_key_changed", "stages.a.states.counts")
    ]
    assert rules(plan_of(before, after, rebuild=["a"])) == []
    assert rules(plan_of(after, before, keep=["a"])) == []
    told = plan_of(before, after, rebuild=["a"]).stages["a"].differences
    assert {"second_key of state counts: none -> n", "keep of state counts: none -> yes"} <= set(
        told
    )
