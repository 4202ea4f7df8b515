"""Freshness: up to date, catching up, or waiting for a person; and what is left, in words."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.model.schedule.freshness import Freshness, Left, judge_freshness, worst_of


def judged(**more: Any) -> Freshness:
    nothing: dict[str, Any] = {"arriving": {}, "quarantined": {}, "stages": {}, "held": {}}
    return judge_freshness(Left(**(nothing | more)))


@pytest.mark.parametrize("desired", ["running", "paused", "draining", "drained"])
def test_with_nothing_left_it_is_up_to_date(desired: str) -> None:
    """Also while it is paused or drained, or a stage without work is held."""
    held = {"count": "is paused by the operator"}
    assert judged(desired=desired, held=held) == Freshness("up_to_date")
    assert judged(desired=desired, arriving={"urls": 0}).state == "up_to_date"


def test_what_goes_on_by_itself_is_caught_up() -> None:
    """Files that are not taken in, stages that may run, sources that are tried again."""
    assert judged(arriving={"urls": 1}).left == ("urls: 1 file is not taken in yet",)
    left = judged(arriving={"urls": 2}, stages={"count": "may run"}, troubles=["the disk is full"])
    assert left.state == "catching_up"
    assert left.left == (
        "the disk is full",
        "urls: 2 files are not taken in yet",
        "count: may run",
    )


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"stages": {"a": "may run"}, "held": {"a": "3 tries failed"}}, "a: 3 tries failed"),
        ({"stages": {"a": "may run", "b": "runs"}, "held": {"a": "is paused"}}, "a: is paused"),
        ({"stages": {"a": "may run"}, "desired": "paused"}, "the dataflow is paused"),
        ({"arriving": {"urls": 1}, "desired": "paused"}, "the dataflow is paused"),
        ({"arriving": {"urls": 1}, "desired": "drained"}, "the dataflow is drained"),
        ({"arriving": {"urls": 1}, "desired": "draining"}, "the dataflow is draining"),
        ({"quarantined": {"urls": 1}}, "urls: 1 file is in quarantine"),
        ({"broken": "its package is gone"}, "its package is gone"),
    ],
)
def test_what_waits_for_a_person_is_stuck(left: dict[str, Any], words: str) -> None:
    """It says what waits, whatever else goes on."""
    found = judged(**left)
    assert found.state == "stuck"
    assert any(one.startswith(words) for one in found.left)


def test_a_drain_goes_on_by_itself_while_stages_have_work() -> None:
    """Only files that stay in their folders wait for its end."""
    assert judged(stages={"a": "runs"}, desired="draining").state == "catching_up"


def test_the_worst_dataflow_counts_for_all() -> None:
    """Without any, nothing is left."""
    assert worst_of([]) == "up_to_date"
    assert worst_of(["up_to_date", "catching_up"]) == "catching_up"
    assert worst_of(["stuck", "up_to_date", "catching_up"]) == "stuck"
