"""The physical plan: which way records take, from the description alone.

The plan names every stage, input, state and output once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Lookup, Loopback, Output, Translate, View, by, framed
from cbp.errors import InvariantError
from cbp.model.dataflow.nodes import BUCKETS_MAX
from cbp.model.plan.explain import PhysicalLimits, Plan, StagePlan, buckets_advised, explain
from cbp.model.plan.fusion import choose_leaders
from cbp.model.plan.spark_or_worker import Bypass
from stages.flows.clustering_by_messages import clustering_by_messages as clustering
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from stages.flows.set_diff import set_diff
from stages.translators.latest import Latest
from tests.chains import SCHEMA, Mixed, Zipped, chain, hosts, sums
from tests.flows import Ranks as CombinedRanks
from tests.loops import Components, Ranks, loop_of
from tests.message_flows import Letters
from tests.nested_loops import PROGRAM, Nested
from tests.sql_forms import JoinedSql

SPARK = PhysicalLimits(4, {"groupwise": 2_000}, 4_000_000, 64 << 20)
LOCAL = PhysicalLimits(2)


def stretch(record: Any, memo: Any) -> tuple[int, Any]:
    return record.n, memo


class Stretches(Translate):
    items = Input("url STRING, n BIGINT", route_by="url", frame_by=framed(stretch, memo=True))
    others = Input("url STRING, n BIGINT", route_by="url")
    urls = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.urls(url=key.url)


def stages_of(plan: Plan) -> dict[str, StagePlan]:
    return {stage.name: stage for unit in plan.units for stage in unit.stages}


def ways(plan: Plan) -> dict[str, str]:
    return {f"{n}.{i.input}": i.way for n, stage in stages_of(plan).items() for i in stage.inputs}


@pytest.mark.parametrize("make", [crawl_queue, pagerank, clustering, set_diff, chain, sums, hosts])
def test_everything_of_a_dataflow_is_told_once(make):
    """Every stage, input, state and output is in the plan exactly once."""
    flow = make()
    plan = explain(flow, choose_leaders(flow), SPARK)
    told = Counter(stage.name for unit in plan.units for stage in unit.stages)
    assert told == Counter(list(flow.stages))
    for name, stage in stages_of(plan).items():
        spec = flow.stages[name].translator
        assert [i.input for i in stage.inputs] == [i.name for i in spec.inputs]
        assert [s.state for s in stage.states] == [s.name for s in spec.states]
        assert [o.flow for o in stage.outputs] == [f"{name}.{o.name}" for o in spec.outputs]


def test_a_fused_chain_hands_records_over():
    """A follower takes records in the task; a groupwise one reads what the first part wrote."""
    flow = chain()
    plan = explain(flow, choose_leaders(flow), SPARK)
    assert [unit.jobs for unit in plan.units] == [2]
    assert ways(plan) == {
        "first.items": "shares",
        "count.items": "behind",
        "last.items": "handed_over",
    }


def test_single_records_are_read_by_shares_and_in_a_job_of_their_own():
    """A stage with both kinds of inputs brings only the groups' records together."""
    builder = DataflowBuilder("kinds")
    src = builder.source("src", SCHEMA)
    zipped = builder.stage("zipped", Zipped(), left=src, right=src)
    builder.stage("mixed", Mixed(), left=zipped.o, right=src)
    flow = builder.build()
    plan = explain(flow, choose_leaders(flow), SPARK)
    assert [(unit.leader, unit.jobs) for unit in plan.units] == [("zipped", 1), ("mixed", 2)]
    assert ways(plan) == {
        "zipped.left": "shares",
        "zipped.right": "shares",
        "mixed.left": "by_size",
        "mixed.right": "shares",
    }
    assert [stage.form for stage in stages_of(plan).values()] == ["record-wise", "groupwise"]


def test_messages_that_only_their_stage_reads_are_read_where_they_lie():
    """Those with one key each; what may have several goes by size, and what others read too."""
    builder = DataflowBuilder("letters")
    items = builder.source("items", "k BIGINT, to ARRAY<BIGINT>, n INT")
    notes = builder.source("notes", "to BIGINT, n INT")
    builder.stage("stage", Letters(), items=items, notes=notes)
    flow = builder.build()
    actual = ways(explain(flow, choose_leaders(flow), SPARK))
    assert [actual[f"stage.{name}"] for name in ("mail", "post")] == ["in_place"] * 2
    assert [actual[f"stage.{name}"] for name in ("items", "cries")] == ["by_size"] * 2


def test_stages_apart_read_their_own_increments():
    """The same dataflow unfused: every stage is a unit, and the groupwise one goes by size."""
    flow = chain()
    plan = explain(flow, tuple(flow.stages), SPARK)
    assert [unit.leader for unit in plan.units] == ["first", "count", "last"]
    assert ways(plan) == {"first.items": "shares", "count.items": "by_size", "last.items": "shares"}


def test_without_a_shuffle_every_task_reads_everything():
    """The local executor has no shuffle, so no size is shown."""
    flow = sums()
    plan = explain(flow, choose_leaders(flow), LOCAL)
    assert set(ways(plan).values()) == {"every_task"}
    assert "4,000,000" not in stages_of(plan)["sums"].inputs[0].words


def test_who_carries_out_the_jobs_is_told_with_the_bound():
    """Without Spark, by Spark alone, and by resident workers up to a number of records."""
    flow = sums()
    leaders = choose_leaders(flow)
    assert "`local`" in explain(flow, leaders, LOCAL).lanes
    bypass = Bypass(2, 0.2)
    told = explain(flow, leaders, replace(SPARK, bypass=bypass)).lanes
    assert "`resident`" in told
    assert f"{bypass.records_max('groupwise', 2):,}" in told
    assert "`resident`" not in explain(flow, leaders, replace(SPARK, bypass=Bypass(0))).lanes


def test_what_happens_before_the_shuffle_is_told():
    """Keys in Python and combiners by size; keys in SQL are shuffled however small."""
    flow = sums()
    items, plain = stages_of(explain(flow, choose_leaders(flow), SPARK))["sums"].inputs
    assert (items.computed, items.combined, plain.computed, plain.combined) == (
        "python",
        True,
        "",
        False,
    )
    limit = (
        "if the number of records times the number of tasks is at most 4,000,000, and the files "
        "have at most 67 MB"
    )
    assert limit in items.words
    flow = hosts()
    visits, _ = stages_of(explain(flow, choose_leaders(flow), SPARK))["hosts"].inputs
    assert (visits.way, visits.computed) == ("shuffled", "sql")
    assert "parse_url" in visits.route


def test_queries_shuffle_nothing_that_is_small():
    """Each task reads what is small itself, as for Python; only keys in SQL need the shuffle."""
    builder = DataflowBuilder("queries")
    builder.stage("count", JoinedSql(), urls=builder.source("a", "url STRING"))
    flow = builder.build()
    (urls,) = stages_of(explain(flow, choose_leaders(flow), SPARK))["count"].inputs
    assert (urls.way, urls.computed) == ("by_size", "")
    assert "if the number of records times the number of tasks is at most 4,000,000" in urls.words


def test_one_key_in_sql_brings_the_other_inputs_to_the_shuffle():
    """Records of a run take one way to their group, whatever gives their own key."""
    flow = hosts(route_by=by(lambda r: (r.url, r.at), "STRING, BIGINT"), order_by=None)
    visits, more = stages_of(explain(flow, choose_leaders(flow), SPARK))["hosts"].inputs
    assert (visits.computed, more.computed) == ("python", "sql")
    assert (visits.way, more.way) == ("shuffled", "shuffled")


def test_what_frames_an_input_is_told():
    """A column or a function by its place, with or without memo; unframed inputs have none."""
    builder = DataflowBuilder("frames")
    src = builder.source("src", "url STRING, n BIGINT")
    builder.stage("stretches", Stretches(), items=src, others=src)
    flow = builder.build()
    items, others = stages_of(explain(flow, choose_leaders(flow), SPARK))["stretches"].inputs
    assert (items.framed, items.memo, others.framed, others.frame_by) == (True, True, False, "")
    assert items.frame_by.startswith("stretch (")
    assert "tests/cbp/model/plan/test_explain.py:" in items.frame_by
    assert f"cut into frames by {items.frame_by}, in the order of the records" in items.words
    assert "frames" not in others.words


def test_what_goes_to_many_and_what_is_scanned_is_told():
    """Multicast inputs are broadcast, outer state is scanned, inner state is looked up."""
    flow = clustering()
    edges, fof = stages_of(explain(flow, choose_leaders(flow), SPARK))["coefficients"].inputs
    assert edges.broadcast
    assert fof.loopback
    leaders = choose_leaders(crawl_queue())
    outer = stages_of(explain(crawl_queue(grouping="outer"), leaders, SPARK))
    inner = stages_of(explain(crawl_queue(), leaders, SPARK))
    assert [s.access for s in outer["merge"].states] == ["scanned"]
    assert [s.access for s in inner["merge"].states] == ["looked_up"]


def test_by_what_a_state_is_kept_and_read_is_told():
    """Only where it says so itself."""
    builder = DataflowBuilder("d")
    builder.stage("a", CombinedRanks(), items=builder.source("s", "k STRING, part DOUBLE, n INT"))
    (kept,) = stages_of(explain(builder.build(), ["a"], LOCAL))["a"].states
    key = "its key has the columns whom, at"
    assert kept.words.endswith(f"; {key}; a group reads it in the order of n")
    flow = crawl_queue()
    usual = stages_of(explain(flow, choose_leaders(flow), LOCAL))["merge"].states
    assert all("its key" not in state.words and "reads it" not in state.words for state in usual)


def test_a_unit_on_a_cycle_names_it():
    """Both stages of PageRank lie on one cycle."""
    flow = pagerank()
    plan = explain(flow, choose_leaders(flow), SPARK)
    assert [unit.cycle for unit in plan.units] == [("rank", "verdict")] * 2


def test_leaders_of_another_dataflow_are_refused():
    """A stage that can run with no other must lead."""
    with pytest.raises(InvariantError):
        explain(set_diff(), [], SPARK)


def test_a_loop_has_one_task_and_reads_what_it_wrote():
    """Its messages do not wait for an epoch; the number of supersteps is shown."""
    flow = loop_of(Components(), links="src BIGINT, dst BIGINT")
    stage = stages_of(explain(flow, tuple(flow.stages), PhysicalLimits(64)))["stage"]
    assert stage.tasks_max == 1
    words = {one.input: one.words for one in stage.inputs}
    assert "1,000 supersteps" in words["news"]
    assert "supersteps" not in words["links"]


def test_a_loop_says_how_it_ends_and_what_it_may_hold():
    """A stage without one says nothing."""
    flow = loop_of(Ranks(), links="src BIGINT, dst BIGINT")
    limits = PhysicalLimits(64, loop_bytes=2 << 30)
    said = stages_of(explain(flow, tuple(flow.stages), limits))["stage"].ways
    assert "up to 300 supersteps" in said
    assert "no message is left or the sum of `moved` is below 1e-09" in said
    assert "one task" in said
    assert "2,147,483,648 bytes at most" in said
    assert [stage.ways for stage in stages_of(explain(chain(), ("first",), limits)).values()] == [
        ""
    ] * 3


def test_nested_loops_say_which_waits_for_which():
    """With what ends some of them alone; of a loop in none, around none, nothing is said."""
    flow = loop_of(Nested(), programs=PROGRAM)
    stage = stages_of(explain(flow, tuple(flow.stages), PhysicalLimits(64)))["stage"]
    assert "`days` inside `months` inside `years`: messages of an outer loop wait" in stage.ways
    assert "`weeks` inside `years`: messages" in stage.ways
    assert "`tides`" not in stage.ways
    assert "the loop of `months` also ends when the sum of `spent` is below 2" in stage.ways
    assert "no message is left or the minimum of `least` is below -8;" in stage.ways
    words = {one.input: one.words for one in stage.inputs}
    assert "once no message of `months` or `weeks` is left" in words["years"]
    assert "once" not in words["days"]


def test_a_loop_says_when_it_has_several_tasks():
    """By what a task is worth, as far as there are slots and buckets."""
    flow = loop_of(Ranks(), links="src BIGINT, dst BIGINT")
    limits = PhysicalLimits(64, loop_bytes=2 << 30, loop_tasks=4, rows_per_loop_task=20_000)
    stage = stages_of(explain(flow, tuple(flow.stages), limits))["stage"]
    assert (stage.tasks_max, stage.rows_per_task) == (4, 20_000)
    assert "in up to 4 tasks that exchange messages: one task for each 20,000 records" in stage.ways
    assert "if enough slots are free" in stage.ways
    alone = stages_of(explain(flow, tuple(flow.stages), PhysicalLimits(64)))["stage"]
    assert (alone.tasks_max, alone.rows_per_task) == (1, 0)


def test_a_loop_says_that_its_tasks_go_on_alone():
    """Where the author says that order does not matter, and there can be several tasks."""

    class Labels(Components):
        news = replace(Components.news, microsteps=True)

    several, alone = PhysicalLimits(64, loop_tasks=4), PhysicalLimits(64)
    for stage, limits, said in (
        (Labels, several, True),
        (Labels, alone, False),
        (Components, several, False),
    ):
        flow = loop_of(stage(), links="src BIGINT, dst BIGINT")
        plan = stages_of(explain(flow, tuple(flow.stages), limits))["stage"]
        assert ("microsteps" in plan.ways) == said


def test_tasks_are_bounded_by_buckets_and_slots():
    """A groupwise stage has no more tasks than buckets, a record-wise one than slots."""
    flow = chain()
    stages = stages_of(explain(flow, tuple(flow.stages), PhysicalLimits(64)))
    assert (stages["count"].tasks_max, stages["first"].tasks_max) == (4, 64)


def test_more_buckets_are_advised_where_slots_would_stay_idle():
    """Fewer than two per slot are too few, about four are enough; a power of two, as all are."""
    actual = {slots: buckets_advised(8, slots) for slots in (1, 4, 5, 16, 2000)}
    assert actual == {1: None, 4: None, 5: 32, 16: 64, 2000: BUCKETS_MAX}
    assert buckets_advised(0, 2000) is None
    assert all(buckets_advised(64, slots) is None for slots in range(1, 33))


class Priced(Translate):
    """A loop that looks up a table by key, and another one as a whole."""

    items = Input("k BIGINT, n BIGINT", route_by="k")
    on = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=9)
    prices = Lookup("k BIGINT, price BIGINT", by="k")
    taxes = Lookup("k BIGINT, rate BIGINT", by=())
    sums = View("k BIGINT, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("limits", "moves"), [(SPARK, "a larger input is shuffled"), (LOCAL, "nothing is")]
)
def test_a_loop_says_how_each_side_reaches_its_tasks(limits: PhysicalLimits, moves: str):
    """What moves, by size or always; what stays where it is; what each task reads whole."""
    flow = DataflowBuilder("loop")
    schemas = {"prices": "k BIGINT, price BIGINT", "taxes": "k BIGINT, rate BIGINT"}
    tables = {
        name: flow.stage(name, Latest(schema, "k"), rows=flow.source(f"{name}_rows", schema)).latest
        for name, schema in schemas.items()
    }
    flow.stage("loop", Priced(), items=flow.source("items", "k BIGINT, n BIGINT"), **tables)
    made = flow.build()
    several = replace(limits, loop_tasks=2)
    stage = stages_of(explain(made, tuple(made.stages), several))["loop"]
    inputs = {one.input: one.words for one in stage.inputs}
    assert moves in inputs["items"]
    assert "sent to the task of the receiving group" in inputs["on"]
    assert "each bucket stays with its task" in stage.states[0].words
    lookups = {one.lookup: one.words for one in stage.lookups}
    assert "each task of the loop reads the buckets of its own groups" in lookups["prices"]
    assert "each task of the loop reads the whole table" in lookups["taxes"]
    alone = stages_of(explain(made, tuple(made.stages), limits))["loop"]
    assert "sent to the task" not in {one.input: one.words for one in alone.inputs}["on"]
