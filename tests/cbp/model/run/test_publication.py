"""When a dataflow publishes, and what it publishes together."""

from __future__ import annotations

import pytest

from cbp.model.dataflow.dataflow import PublishPolicy
from cbp.model.run.intention import Intention
from cbp.model.run.publication import due


def record(stage: str, epoch: int, prepared_ms: int) -> Intention:
    return Intention("d", stage, epoch, "r", prepared_ms, {}, {}, {}, ())


A = tuple(record("a", epoch, 1_000 * epoch) for epoch in range(3))
B = (record("b", 0, 2_500),)


def test_every_epoch_by_default() -> None:
    """One finished record is enough."""
    actual = due(PublishPolicy(), {"a": A[:1]}, now_ms=0)
    assert actual is not None
    assert actual.covers == {"a": A[:1]}


@pytest.mark.parametrize(("epochs", "is_due"), [(3, True), (4, False)])
def test_a_stage_that_reached_its_epochs_publishes_all_stages(epochs: int, is_due: bool) -> None:
    """State and outputs of a dataflow are published together, at the newest record's time."""
    actual = due(PublishPolicy(epochs), {"a": A, "b": B, "c": ()}, now_ms=2_500)
    assert (actual is not None) == is_due
    if actual:
        assert actual.covers == {"a": A, "b": B}
        assert actual.timestamp_ms == 2_500


@pytest.mark.parametrize(("now_ms", "is_due"), [(4_999, False), (5_000, True)])
def test_no_record_waits_longer_than_its_seconds(now_ms: int, is_due: bool) -> None:
    """Time counts from the oldest record that is not published."""
    assert (due(PublishPolicy(9, 5.0), {"a": A}, now_ms=now_ms) is not None) == is_due


def test_at_once_publishes_what_there_is() -> None:
    """Stopping a dataflow leaves nothing unpublished; nothing is published without a reason."""
    assert due(PublishPolicy(9), {"a": A[:1]}, now_ms=0, at_once=True) is not None
    assert due(PublishPolicy(), {"a": ()}, now_ms=10**9, at_once=True) is None
