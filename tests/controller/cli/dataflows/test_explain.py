"""`cbp explain` against the real controller: the plan, and the story of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.model.plan.explain import PhysicalLimits
from stages.translators.components_arrow import ComponentsArrow
from tests.controller.cli.conftest import Cbp
from tests.controller.live import Live, live
from tests.controller.world import FUSED


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    """Replace the fakes: a dataflow with two increments behind it."""
    made = live(tmp_path)
    made.world.controller.register(FUSED)
    for records in ([("a", 1), ("b", 2)], [("a", 3)]):
        made.world.arrive("fused", "a", *records)
        made.world.ticks()
    yield made
    made.world.close()


def test_the_plan_is_drawn_and_told(cbp: Cbp, service: Live):
    """The graph, what runs together, and which way records take."""
    outcome = cbp("explain", "fused", session=service.session)
    assert outcome.status == 0, outcome.err
    assert "+ sum" in outcome.out
    assert "lanes: every job is `local`" in outcome.out
    assert "upper + sum + again: one run, one or two jobs" in outcome.out
    assert "keeps sums: looked up by the keys of the inputs" in outcome.out


@pytest.mark.parametrize("slots", [1, 64])
def test_buckets_that_leave_slots_idle_are_told(
    cbp: Cbp, service: Live, slots: int, monkeypatch: pytest.MonkeyPatch
):
    """And how many would not; where they are enough, nothing is said."""
    preparer = type(service.world.engine.preparer)
    monkeypatch.setattr(preparer, "limits", lambda _: PhysicalLimits(slots))
    outcome = cbp("explain", "fused", session=service.session)
    assert ("with 256 buckets, its runs could use all 64 slots" in outcome.out) == (slots == 64)
    assert ("could use all" in outcome.out) == (slots == 64)


@pytest.mark.parametrize(("shape", "head"), [("mermaid", "flowchart LR"), ("dot", "digraph fused")])
def test_the_graph_is_exported(cbp: Cbp, service: Live, shape: str, head: str):
    """In the language that was asked for, and nothing besides."""
    outcome = cbp("explain", "fused", "--format", shape, session=service.session)
    assert outcome.out.startswith(head)


def test_a_run_is_told_from_what_is_recorded(cbp: Cbp, service: Live):
    """Why it ran, on which increments, what it wrote, and since which version tables show it."""
    run = service.world.store.runs("fused").items[0]
    told = cbp("explain", "--run", run.id, "--json", session=service.session).json
    assert told["run"]["lanes"] == ["local"]
    assert told["why"].startswith("RunAll decided to read increment 1 of `words`")
    assert [(i["flow"], i["index"], i["records"]) for i in told["consumed"]] == [("a", 1, 1)]
    produced = {(i["flow"], i["index"]): i["records"] for i in told["produced"]}
    assert produced == {("upper.capitals", 1): 1, ("sum.totals", 1): 1, ("again.capitals", 1): 1}
    state = next(c for c in told["changes"] if c["table"] == "state/sum.sums")
    assert (state["rows_added"], state["rows_deleted"], state["files_dropped"]) in {
        (1, 1, 0),
        (1, 0, 1),
        (2, 0, 1),
    }
    assert set(told["versions"].values()) == {2}
    assert told["run"]["figures"]["records_in"] == 1
    text = cbp("explain", "--run", run.id, session=service.session)
    assert "why: RunAll decided" in text.out
    assert "since version" in text.out
    dataflow = service.world.controller.dataflow("fused")
    codes = {name: stage.translator.code.text for name, stage in dataflow.stages.items()}
    assert (told["version"], told["codes"]) == (1, codes)
    assert f"code: version 1 (upper {codes['upper']}" in text.out


def test_a_run_whose_record_is_gone_is_told_without_it(cbp: Cbp, service: Live):
    """The store still knows its increments; what is not known is not shown as nothing."""
    run = service.world.store.runs("fused").items[-1]
    folder = Path(service.world.store.dataflow("fused").folder)
    before = cbp("explain", "--run", run.id, "--json", session=service.session).json
    (folder / "_intentions" / "upper" / f"{run.epoch:020d}.json").unlink()
    told = cbp("explain", "--run", run.id, "--json", session=service.session).json
    assert (told["recorded"], told["changes"]) == (False, [])
    assert (told["version"], told["codes"]) == (1, before["codes"])
    assert len(told["produced"]) == 3
    assert "the log no longer has" in cbp("explain", "--run", run.id, session=service.session).out


def test_a_run_can_be_named_beside_its_dataflow(cbp: Cbp, service: Live):
    """As stages/README.md writes it; a run of another dataflow is refused, and its own named."""
    run = service.world.store.runs("fused").items[0].id
    alone = cbp("explain", "--run", run, session=service.session)
    assert cbp("explain", "fused", "--run", run, session=service.session) == alone
    outcome = cbp("explain", "other", "--run", run, "--json", session=service.session)
    assert (outcome.status, outcome.json["error_code"]) == (1, "not_found")
    assert "it is a run of 'fused'" in outcome.json["message"]


def test_a_call_without_a_name_or_with_an_unknown_one_is_refused(cbp: Cbp, service: Live):
    """A wrong call ends with status 2; an unknown name with the service's own code."""
    assert cbp("explain", session=service.session).status == 2
    for arguments in (("explain", "nobody"), ("explain", "--run", "nobody")):
        outcome = cbp(*arguments, "--json", session=service.session)
        assert (outcome.status, outcome.json["error_code"]) == (1, "not_found")


def test_a_loop_says_which_way_it_goes_and_went(cbp: Cbp, tmp_path: Path):
    """The plan says what decides, and the story of a run what was read of each state."""
    (tmp_path / "graph").mkdir()
    made = live(tmp_path / "graph", translators={"components": ComponentsArrow})
    made.world.controller.register(
        {
            "name": "graph",
            "sources": {"edges": {"schema": "src BIGINT, dst BIGINT, gone BOOLEAN"}},
            "stages": {
                "parts": {
                    "translator": "components",
                    "parameters": {"changes": False},
                    "inputs": {"edges": "edges"},
                }
            },
        }
    )
    for edge in ((1, 2, None), (2, 3, None)):
        made.world.arrive("graph", "edges", edge)
        made.world.ticks()
    plan = cbp("explain", "graph", session=made.session)
    assert "how: by what changed: looks up by key only the links" in plan.out
    newest = made.world.store.runs("graph").items[0]
    story = cbp("explain", "--run", newest.id, session=made.session)
    assert "how: anew; read 2 records of held as a whole; read 2 records of links" in story.out
    made.world.close()
