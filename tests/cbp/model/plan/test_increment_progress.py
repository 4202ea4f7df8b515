"""Where an increment has got to, followed through small graphs by hand."""

from __future__ import annotations

from typing import Any

from cbp.model.plan.increment_progress import Cell, StageProgress, follow


def stage(flow: str, output: str = "", input_: str = "i", **more: Any) -> StageProgress:
    """Return a stage with one input and at most one output."""
    named: dict[str, Any] = {name: {input_: value} for name, value in more.items()}
    return StageProgress({input_: flow}, (output,) if output else (), **named)


def test_a_wave_follows_the_epochs_of_runs() -> None:
    """A stage behind another one applied what came of the increment, in an epoch of its own."""
    stages = {
        "s": stage("a", "s.out", applied={5: ("r1", 8)}),
        "t": stage("s.out", "t.out", applied={8: ("r2", 3)}),
        "u": stage("t.out", waiting=frozenset({3})),
    }
    assert follow("a", 5, ["s", "t", "u"], stages) == {
        "s": Cell("applied", "r1", 8),
        "t": Cell("applied", "r2", 3),
        "u": Cell("waiting"),
    }


def test_stages_behind_one_that_waits_are_upstream() -> None:
    """Also far behind it; and a stage that the increment never reaches has none."""
    stages = {
        "s": stage("a", "s.out", waiting=frozenset({5})),
        "t": stage("s.out", "t.out", applied={8: ("r2", 3)}),
        "u": stage("t.out"),
        "other": stage("b"),
    }
    cells = follow("a", 5, ["s", "t", "u", "other"], stages)
    told = {name: cell.status for name, cell in cells.items()}
    assert told == {"s": "waiting", "t": "upstream", "u": "upstream", "other": "none"}


def test_the_worst_of_several_inputs_counts() -> None:
    """Running beats waiting, failed beats both; one that read all is applied by the newest run."""
    both = {"i": "a", "j": "s.out"}
    s = stage("a", "s.out", applied={5: ("r1", 8)})

    def cell(**more: Any) -> Cell:
        return follow("a", 5, ["s", "t"], {"s": s, "t": StageProgress(both, (), **more)})["t"]

    applied = {"i": {5: ("r2", 1)}, "j": {8: ("r3", 2)}}
    assert cell(applied=applied) == Cell("applied", "r3", 2)
    waiting = {"j": frozenset({8})}
    assert cell(applied=applied, waiting=waiting).status == "waiting"
    assert cell(waiting=waiting, running={"i": frozenset({5})}).status == "running"
    assert cell(waiting=waiting, failed={"j": frozenset({8})}).status == "failed"
    # The failed run read something else.
    assert cell(waiting=waiting, failed={"j": frozenset({7})}).status == "waiting"


def test_a_loop_is_followed_once() -> None:
    """What a stage writes back into its cycle is not followed again."""
    stages = {
        "s": StageProgress(
            {"i": "a", "back": "t.out"}, ("s.out",), applied={"i": {5: ("r1", 8)}, "back": {}}
        ),
        "t": stage("s.out", "t.out", applied={8: ("r2", 3)}),
    }
    cells = follow("a", 5, ["s", "t"], stages)
    assert [cell.epoch for cell in cells.values()] == [8, 3]


def test_behind_a_run_that_is_forgotten_nothing_is_claimed() -> None:
    """The stage itself applied it, without a run; what came of it is unknown."""
    stages = {"s": stage("a", "s.out"), "t": stage("s.out")}
    cells = follow("a", 5, ["s", "t"], stages)
    assert cells == {"s": Cell("applied"), "t": Cell("unknown")}
