"""What is compared with a recomputation, and what is left out and why."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate
from cbp.model.dataflow.runnable import CountWindow, RunAll, RunAny, StaticTable
from cbp.model.dataflow.stage import RunnableSpec
from cbp.model.flow.connector import Decision
from cbp.model.verification import comparisons, first_stage, merged, timeless
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from stages.flows.set_diff import set_diff
from tests.chains import SCHEMA, Spread, chain, sums


class Kept(Translate):
    """Has a state."""

    items = Input("word STRING", route_by="word")
    sums = State("word STRING")
    totals = Output("word STRING")

    def translate(self, key, group, out):
        """Never called here."""


@pytest.mark.parametrize("split", ["increments", "at_once"])
@pytest.mark.parametrize("make", [crawl_queue, pagerank, clustering, set_diff, chain, sums])
def test_every_table_is_compared_or_left_out_with_a_reason(make, split):
    """States and outputs of all stages, each once; a state is never left out."""
    flow = make()
    actual = list(comparisons(flow, split))
    specs = {name: node.translator for name, node in flow.stages.items()}
    states = {f"state/{n}.{s.name}" for n, spec in specs.items() for s in spec.states}
    outputs = {f"flows/{n}.{o.name}" for n, spec in specs.items() for o in spec.outputs}
    assert len(actual) == len(states | outputs)
    assert {one.table for one in actual} == states | outputs
    assert {one.table for one in actual if not one.left_out} >= states


def test_a_history_is_compared_only_where_its_epochs_are_a_function_of_the_input():
    """As it arrived, behind rules that wait; never all at once."""
    actual = comparisons(set_diff(), "increments")
    histories = {c.table: c.left_out for c in actual if c.kind == "history"}
    assert histories == {"flows/diff.a_diff": "", "flows/diff.b_diff": ""}
    at_once = [c for c in comparisons(crawl_queue(), "at_once") if c.kind == "history"]
    assert len(at_once) == 3
    assert all(c.left_out for c in at_once)


def test_all_at_once_what_follows_changes_is_left_out():
    """A view has fewer changes in one batch, so every reader of its changes sees fewer too."""
    left = {c.table for c in comparisons(chain(), "at_once") if c.left_out}
    assert left == set()  # nothing in it declares a key: every record counts
    told = {c.table: c.left_out for c in comparisons(pagerank(), "at_once") if c.kind == "records"}
    assert told
    assert all(told.values())


def test_what_follows_changes_is_left_out_where_epochs_depend_on_time():
    """Without a key, behind a cycle; what only sources decide is compared, however it runs."""
    told = {c.table: c.left_out for c in comparisons(pagerank(), "increments") if c.left_out}
    assert {"flows/rank.moved", "flows/verdict.converged"} < told.keys()
    assert "depend on the start times of runs" in told["flows/rank.moved"]
    flow = chain()
    stages = {n: replace(s, rule=RunnableSpec(RunAny())) for n, s in flow.stages.items()}
    again = list(comparisons(replace(flow, stages=stages), "increments"))
    assert {c.kind for c in again} >= {"records"}
    assert not any(c.left_out for c in again if c.kind == "records")


def test_how_closely_is_told_as_declared():
    """Ranks within what the threshold leaves, rounds and scores not at all; all else exactly."""
    near = {c.table: c.within for c in comparisons(pagerank(threshold=0.0), "increments")}
    assert near["state/rank.nodes"] == "within 1e-06, ignoring shared, weight, round"
    assert near["flows/rank.pages"] == "within 1e-06"
    assert near["state/verdict.last"] == "ignoring round"
    within = {c.table: c.within for c in comparisons(crawl_queue(), "increments") if c.within}
    assert within == dict.fromkeys(
        ("state/threshold.queue", "flows/threshold.queue"), "ignoring score"
    )


def test_messages_are_left_out():
    """What a stage feeds itself depends on the split."""
    left = {c.table for c in comparisons(clustering(), "increments") if c.left_out}
    assert left == {"flows/coefficients.fof"}


def test_time_matters_on_cycles_and_behind_rules_that_take_what_is_there():
    """One such stage is enough for all behind it."""
    assert timeless(crawl_queue()) == set(crawl_queue().stages)
    assert timeless(set_diff()) == {"diff"}
    assert timeless(pagerank()) == frozenset()
    builder = DataflowBuilder("mixed")
    first = builder.stage("first", Spread(), items=builder.source("a", SCHEMA))
    any_ = builder.stage("any", Spread(), items=first.o)
    builder.stage("behind", Spread(), items=any_.o)
    flow = builder.build()
    stages = {**flow.stages, "any": replace(flow.stages["any"], rule=RunnableSpec(RunAny()))}
    assert timeless(replace(flow, stages=stages)) == {"first"}


def test_a_batch_is_what_is_there_when_it_runs():
    """Epochs of the same rule without batches are a function of the input."""
    flow = chain()
    for batch, actual in ((1, set(flow.stages)), (5, set())):
        rule = RunnableSpec(RunAll(batch))
        stages = {n: replace(s, rule=rule) for n, s in flow.stages.items()}
        assert timeless(replace(flow, stages=stages)) == actual


def _own(connectors: Any, memo: Any) -> Decision:
    """Never called here."""
    return Decision()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (StaticTable(("items",)), "the input that StaticTable gives to a run depends on the start"),
        (_own, "the input that _own gives to a run depends on the start"),
    ],
)
@pytest.mark.parametrize("split", ["increments", "at_once"])
def test_what_depends_on_when_it_is_read_is_left_out_with_all_behind_it(rule, words, split):
    """States and views too, with the stage and the reason; what is before it is compared."""
    actual = _compared_with_rule(rule, split)
    assert {name for name, why in actual.items() if not why} == {"state/before.sums"}
    left = {why for name, why in actual.items() if why}
    assert len(left) == 1
    assert left.pop().startswith(f"`timed`: {words}")


def test_windows_are_compared_where_they_hold_the_same():
    """As it arrived, if all before it waits; never all at once."""
    assert not any(_compared_with_rule(CountWindow(3), "increments").values())
    left = _compared_with_rule(CountWindow(3), "at_once")
    assert "hold different records if all input is read in one batch" in left["state/timed.sums"]
    assert left["state/behind.sums"] == left["state/timed.sums"]
    timed = _compared_with_rule(CountWindow(3), "increments", before=RunAny())
    assert "if earlier runs start at other times" in timed["state/timed.sums"]
    assert not any(_compared_with_rule(RunAny(), "at_once").values())


def _compared_with_rule(rule: Any, split: Any, before: Any = None) -> dict[str, str]:
    """Return table to why it is left out, of three stages in a row; `rule`: of the second."""
    builder = DataflowBuilder("three")
    first = builder.stage("before", Kept(), items=builder.source("a", "word STRING"))
    timed = builder.stage("timed", Kept(), items=first.totals)
    builder.stage("behind", Kept(), items=timed.totals)
    flow = builder.build()
    given = {"timed": RunnableSpec(rule, "f.py:1")}
    given |= {"before": RunnableSpec(before)} if before else {}
    stages = {n: replace(s, rule=given.get(n)) for n, s in flow.stages.items()}
    actual = comparisons(replace(flow, stages=stages), split)
    return {one.table: one.left_out for one in actual if one.kind == "state"}


def test_the_suspect_is_the_first_stage_upstream():
    """Whatever order the tables come in."""
    flow = crawl_queue()
    assert first_stage(flow, ["flows/threshold.queue", "state/merge.known"]) == "merge"
    assert first_stage(flow, []) == ""


@pytest.mark.parametrize("seed", range(20))
def test_what_becomes_one_ends_at_every_punctuation(seed):
    """All increments, each once and in order; at most so many as one, none across a break."""
    draw = random.Random(seed)
    end, most = draw.randrange(12), draw.randint(1, 5)
    breaks = {draw.randint(0, 12) for _ in range(draw.randrange(4))}
    parts = merged(end, breaks, most=most)
    assert [index for part in parts for index in part] == list(range(end)), f"seed {seed}"
    assert all(1 <= len(part) <= most for part in parts)
    assert not any(at in part and at != part.start for part in parts for at in breaks)
    stops = {0, end, *breaks}
    assert all(part.stop in stops or len(part) == most for part in parts)
