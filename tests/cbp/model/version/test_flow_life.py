"""Where the records of a flow begin that mean what they mean now, over all versions."""

from __future__ import annotations

from typing import Any

from cbp import View
from cbp.model.version.dataflow_shape import DataflowShape, shape_of
from cbp.model.version.flow_life import Beginning, FlowLife, lives_of_flows
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from tests.cbp.model.versions import Count, Echo, flow_of


class Viewed(Count):
    """Its output is a view."""

    totals = View("word STRING, n INT", key="word")  # type: ignore[assignment]


def shape(**stages: Any) -> DataflowShape:
    return shape_of(flow_of(**stages))


def test_a_flow_lives_from_the_last_time_its_stage_began_with_nothing() -> None:
    """A version that keeps a stage changes nothing of it; one that empties it does."""
    one, two = shape(a=Count()), shape(a=Count(), b=Count())
    versions = [Beginning(one, {}), Beginning(two, {"a": 3, "b": 0}, {"b"})]
    assert lives_of_flows(versions) == {}
    versions.append(Beginning(two, {"a": 5, "b": 2}, {"a"}))
    assert lives_of_flows(versions) == {"a.totals": FlowLife(5, 5)}
    versions.append(Beginning(two, {"a": 9, "b": 6}, {"b"}))
    assert lives_of_flows(versions)["a.totals"] == FlowLife(5, 5)
    assert lives_of_flows(versions)["b.totals"] == FlowLife(6, 6)


def test_the_changes_of_a_filled_view_do_not_add_up() -> None:
    """They begin where the version did; a later rebuild lets them begin with nothing."""
    versions = [Beginning(shape(a=Count()), {}), Beginning(shape(a=Viewed()), {"a": 4})]
    life = lives_of_flows(versions)["a.totals"]
    assert (life, life.adds_up) == (FlowLife(0, 4), False)
    versions.append(Beginning(shape(a=Viewed()), {"a": 6}))
    assert lives_of_flows(versions)["a.totals"] == life
    versions.append(Beginning(shape(a=Viewed()), {"a": 7}, {"a"}))
    assert lives_of_flows(versions)["a.totals"] == FlowLife(7, 7)
    rebuilt = [Beginning(shape(a=Count()), {}), Beginning(shape(a=Viewed()), {"a": 4}, {"a"})]
    assert lives_of_flows(rebuilt)["a.totals"].adds_up


def test_a_stage_that_runs_behind_another_has_its_epochs() -> None:
    """A version gives the epochs of leaders; a version of unknown shape changes nothing."""
    both = shape(a=Count(), b=(Echo(), 4, "a.totals"))
    versions = [Beginning(None, {}), Beginning(both, {"a": 5}, {"a", "b"})]
    assert lives_of_flows(versions)["b.copies"] == FlowLife(5, 5)


def test_a_cycle_without_leaders_has_no_epochs() -> None:
    """The first version names no leader; the way back through a cycle ends."""
    cycle = shape_of(pagerank())
    assert lives_of_flows([Beginning(cycle, {}), Beginning(cycle, {})]) == {}
    emptied = [Beginning(cycle, {}), Beginning(cycle, {}, set(cycle.stages))]
    assert lives_of_flows(emptied) == {}
