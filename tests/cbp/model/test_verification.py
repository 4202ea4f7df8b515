"""What is compared with a recomputation, and what is left out and why."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from cbp import DataflowBuilder
from cbp.model.runnable import RunAny
from cbp.model.stage import RunnableSpec
from cbp.model.verification import comparisons, first_stage, merged, timeless
from stages.flows.clustering import clustering
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank import pagerank
from stages.flows.set_diff import set_diff
from tests.chains import SCHEMA, Spread, chain, sums


@pytest.mark.parametrize("split", ["increments", "at_once"])
@pytest.mark.parametrize("make", [crawl_queue, pagerank, clustering, set_diff, chain, sums])
def test_every_table_is_compared_or_left_out_with_a_reason(make, split):
    """States and outputs of all stages, each once; a state is never left out."""
    flow = make()
    found = list(comparisons(flow, split))
    specs = {name: node.translator for name, node in flow.stages.items()}
    states = {f"state/{n}.{s.name}" for n, spec in specs.items() for s in spec.states}
    outputs = {f"flows/{n}.{o.name}" for n, spec in specs.items() for o in spec.outputs}
    assert len(found) == len(states | outputs)
    assert {one.table for one in found} == states | outputs
    assert {one.table for one in found if not one.left_out} >= states


def test_a_history_is_compared_only_where_its_epochs_are_a_function_of_the_input():
    """As it arrived, behind rules that wait; never all at once."""
    found = comparisons(set_diff(), "increments")
    histories = {c.table: c.left_out for c in found if c.kind == "history"}
    assert histories == {"flows/diff.a_diff": "", "flows/diff.b_diff": ""}
    at_once = [c for c in comparisons(crawl_queue(), "at_once") if c.kind == "history"]
    assert len(at_once) == 3
    assert all(c.left_out for c in at_once)


def test_all_at_once_what_follows_changes_is_left_out():
    """A view has fewer changes in one batch, so whatever tells each of them does too."""
    left = {c.table for c in comparisons(chain(), "at_once") if c.left_out}
    assert left == set()  # nothing in it declares a key: every record counts
    told = {c.table: c.left_out for c in comparisons(pagerank(), "at_once") if c.kind == "records"}
    assert told
    assert all(told.values())


def test_what_follows_changes_is_left_out_where_epochs_depend_on_time():
    """Without a key, behind a cycle; what only sources decide is compared, however it runs."""
    told = {c.table: c.left_out for c in comparisons(pagerank(), "increments") if c.left_out}
    assert {"flows/rank.moved", "flows/verdict.converged"} < told.keys()
    assert "depends on when runs were started" in told["flows/rank.moved"]
    flow = chain()
    stages = {n: replace(s, rule=RunnableSpec(RunAny())) for n, s in flow.stages.items()}
    again = list(comparisons(replace(flow, stages=stages), "increments"))
    assert {c.kind for c in again} >= {"records"}
    assert not any(c.left_out for c in again if c.kind == "records")


def test_how_closely_is_told_as_declared():
    """Ranks within what the threshold leaves, rounds not at all; all else exactly."""
    near = {c.table: c.within for c in comparisons(pagerank(threshold=0.0), "increments")}
    assert near["state/rank.nodes"] == "within 1e-06, without shared, weight, round"
    assert near["flows/rank.pages"] == "within 1e-06"
    assert near["state/verdict.last"] == "without round"
    assert not any(c.within for c in comparisons(crawl_queue(), "increments"))


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
