"""Epochs of a recomputation: when they are published, and with which times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from cbp.engine.read.recomputed_epochs import PUBLISH_EPOCHS, RecomputedEpochs
from cbp.errors import DiskFullError
from cbp.model.run.intention import Intention


class Publications:
    """An engine that only publishes, and notes what."""

    def __init__(self) -> None:
        self.publisher = self
        self.made: list[tuple[str, list[int], int]] = []
        self.full = False

    def publish(
        self, folder: str, intentions: Sequence[Intention], *, timestamp_ms: int
    ) -> dict[str, int]:
        if self.full:
            raise DiskFullError(folder)
        assert timestamp_ms == intentions[-1].prepared_ms
        epochs = [one.epoch for one in intentions]
        self.made.append((intentions[0].stage, epochs, timestamp_ms))
        return {}


def recomputed(engine: Any, now_ms: Callable[[], int] = lambda: 1_000) -> RecomputedEpochs:
    dataflow: Any = None
    return RecomputedEpochs(engine, dataflow, "/t", "r", lambda run: None, now_ms)


def record(of: RecomputedEpochs, stage: str, epoch: int) -> None:
    of.record(Intention("d", stage, epoch, "r", 0, {}, {}, {}, ()))


def test_each_stage_is_published_every_so_many_epochs_and_at_the_end() -> None:
    """No epoch is published twice or left out, and one stage does not count another's epochs."""
    engine = Publications()
    epochs = recomputed(engine)
    for epoch in range(2 * PUBLISH_EPOCHS + 3):
        record(epochs, "a", epoch)
        if epoch < 5:
            record(epochs, "b", epoch)
    for stage in ("a", "b", "a", "none"):
        epochs.publish(stage)
    first = list(range(PUBLISH_EPOCHS))
    assert [(stage, of) for stage, of, _ in engine.made] == [
        ("a", first),
        ("a", [epoch + PUBLISH_EPOCHS for epoch in first]),
        ("a", [2 * PUBLISH_EPOCHS + epoch for epoch in range(3)]),
        ("b", [0, 1, 2, 3, 4]),
    ]


def test_times_only_rise_whatever_the_clock_does() -> None:
    """Two milliseconds apart at least, over all stages: a publication may add one in between."""
    clock, engine = iter([5_000, 1_000, 5_000]), Publications()
    epochs = recomputed(engine, lambda: next(clock))
    for stage in ("a", "b", "c"):
        record(epochs, stage, 0)
        epochs.publish(stage)
    assert [at for _, _, at in engine.made] == [5_000, 5_002, 5_004]


def test_what_could_not_be_published_is_published_later() -> None:
    """A publication is redo: a failing one forgets no epoch."""
    engine = Publications()
    epochs = recomputed(engine)
    record(epochs, "a", 0)
    engine.full = True
    with pytest.raises(DiskFullError):
        epochs.publish("a")
    engine.full = False
    record(epochs, "a", 1)
    epochs.publish("a")
    assert [of for _, of, _ in engine.made] == [[0, 1]]
