"""Which stages are computed anew after a file was saved."""

from __future__ import annotations

from typing import Any

from controller.cli.saved_code import NOTHING_CHOSEN, Chosen, choose_next, describe_change


def node(name: str, kind: str = "kept", *differences: str, state: str = "kept") -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "state": state,
        "columns": {},
        "differences": list(differences),
        "rewired": [],
    }


def plan(*stages: dict[str, Any], refused: dict[str, str] | None = None) -> dict[str, Any]:
    refusals = [
        {"code": code, "where": where, "message": ""} for where, code in (refused or {}).items()
    ]
    return {
        "name": "d",
        "version": 3,
        "stages": list(stages),
        "refused": refusals,
        "queues": [],
        "meanwhile": [],
    }


def test_a_rebuild_takes_what_differs_and_then_what_reads_it() -> None:
    """Until the plan refuses nothing that a rebuild answers; also a stage without state."""
    first = plan(
        node("a", "replaced", "its code: m.A"), node("b"), refused={"stages.a": "state_undecided"}
    )
    chosen = choose_next(first, NOTHING_CHOSEN, "rebuild")
    assert chosen == Chosen(rebuild=frozenset("a"))
    second = plan(
        node("a", "replaced", "its code: m.A", state="rebuilt"),
        node("b"),
        refused={"stages.b.inputs.x": "behind_rebuilt"},
    )
    assert choose_next(second, chosen, "rebuild").rebuild == {"a", "b"}
    stateless = plan(node("a", "replaced", "its code: m.A", state="none"))
    assert choose_next(stateless, NOTHING_CHOSEN, "rebuild").rebuild == {"a"}


def test_what_is_kept_is_only_what_the_plan_asks_about() -> None:
    """What cannot be kept stays refused: no state is lost because of a saved file."""
    asked = plan(
        node("a", "replaced", "its code: m.A"),
        node("b", "replaced", "its code: m.B"),
        refused={"stages.a": "state_undecided", "stages.b.states.s": "schema_incompatible"},
    )
    chosen = choose_next(asked, NOTHING_CHOSEN, "keep")
    assert chosen == Chosen(keep=frozenset("a"))
    assert choose_next(asked, chosen, "keep") == chosen


def test_a_refusal_that_no_choice_answers_ends_the_search() -> None:
    """For example an output that would lose a column."""
    refused = plan(node("a"), refused={"stages.a.outputs.o": "schema_incompatible"})
    assert choose_next(refused, NOTHING_CHOSEN, "rebuild") == NOTHING_CHOSEN


def test_an_added_stage_reads_the_retained_input_where_it_can() -> None:
    """As `--retained` does; what cannot be read is asked for once. `keep` reads new input only."""
    added = plan(node("a"), node("b", "added", state="new"), node("c", "added", state="new"))
    chosen = choose_next(added, NOTHING_CHOSEN, "rebuild")
    assert chosen.query() == {"keep": [], "rebuild": [], "retained": ["b", "c"]}
    added["refused"] = plan(refused={"stages.b.inputs.x": "input_not_retained"})["refused"]
    fewer = choose_next(added, chosen, "rebuild")
    assert fewer.query()["retained"] == ["c"]
    added["refused"] = []
    assert choose_next(added, fewer, "rebuild") == fewer
    assert choose_next(added, NOTHING_CHOSEN, "keep") == NOTHING_CHOSEN


def test_what_an_added_stage_reads_is_told() -> None:
    """All retained input, or new input only, with how much came before, and what helps."""
    queue = {"stage": "b", "input": "x", "queued_increments": 3, "queued_records": 9}
    answer = plan(node("b", "added", state="new"), node("gone", "removed"))
    answer["queues"] = [{**queue, "skipped_increments": 0}]
    lines = "\n".join(describe_change(answer, "rebuild"))
    assert "b: added (new in the document)" in lines
    assert "b.x reads: 3 increments, 9 records" in lines
    assert "emitted again" not in lines
    answer["queues"] = [{**queue, "queued_increments": 0, "skipped_increments": 3}]
    lines = "\n".join(describe_change(answer, "keep"))
    assert "b.x reads new input only, not the 3 increments before it" in lines
    assert "cbp backfill d b" in lines


def test_a_change_is_told_stage_by_stage() -> None:
    """With what differs, what became of the state, and how much is read again."""
    answer = plan(node("a", "replaced", "its code: m.A", state="rebuilt"), node("b"))
    answer["queues"] = [
        {
            "stage": "a",
            "input": "x",
            "queued_increments": 2,
            "queued_records": 20_000,
            "skipped_increments": 0,
        }
    ]
    answer["meanwhile"] = ["Until a has read 2 increments again, readers see a.s empty."]
    lines = "\n".join(describe_change(answer, "rebuild"))
    assert "version 3" in lines
    assert "readers see a.s empty" in lines
    assert "a: recomputed from its retained input (its code: m.A)" in lines
    assert "a.x reads again: 2 increments, 20,000 records" in lines
    assert "b:" not in lines
