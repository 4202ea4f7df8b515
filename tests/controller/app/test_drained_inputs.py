"""A drop folder that hangs does not hold up the alerts of other dataflows."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
import structlog

from cbp.model.dataflow.dataflow import Dataflow
from controller.app.drained_inputs import DrainedInputs
from controller.store.base import DataflowRecord
from tests.waiting import until

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
DATAFLOW = cast("Dataflow", None)


def named(name: str, created_at: datetime = SINCE) -> DataflowRecord:
    return DataflowRecord(name, 1, {}, f"/{name}", "drained", created_at)


def asked(inputs: DrainedInputs, name: str) -> datetime | None:
    """Make a round about one dataflow."""
    return inputs.round([named(name)])(named(name), DATAFLOW)


def test_a_drop_folder_that_hangs_holds_up_nobody() -> None:
    """It is not known whether files wait there, until it answers; one thread looks at it."""
    answers, seen = threading.Event(), list[str]()

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        seen.append(record.name)
        if record.name.startswith("hangs"):
            answers.wait()
        return SINCE

    inputs = DrainedInputs(look, 0.05)
    names = [*(f"hangs{n}" for n in range(20)), "well"]
    try:
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                waits_since = inputs.round(map(named, names))
                found = {name: waits_since(named(name), DATAFLOW) for name in names[:-1]}
                assert set(found.values()) == {None}
        assert until(lambda: sorted(seen) == sorted(names[:-1]))
        assert {one["event"] for one in logs} == {"alerts.drop_folder_is_late"}
        assert until(lambda: asked(inputs, "well")) == SINCE
    finally:
        answers.set()
    assert until(lambda: asked(inputs, "hangs0")) == SINCE


def test_an_outage_ends_no_alert_and_a_late_answer_counts() -> None:
    """The last answer counts until there is another one, which may come after its round."""
    answers, hangs, faults = threading.Event(), [False], [False]

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        if faults[0]:
            raise OSError("gone")
        if hangs[0]:
            answers.wait()
            return LATER
        return SINCE

    inputs = DrainedInputs(look, 0.05)
    assert until(lambda: asked(inputs, "d")) == SINCE
    faults[0] = True
    assert asked(inputs, "d") == SINCE
    faults[0], hangs[0] = False, True
    try:
        assert asked(inputs, "d") == SINCE
    finally:
        answers.set()
    assert until(lambda: asked(inputs, "d") == LATER)


class Fading:
    """Answers once; then the folder cannot be read."""

    def __init__(self) -> None:
        self.is_gone = False

    def __call__(self, record: DataflowRecord, dataflow: Dataflow) -> datetime:
        if self.is_gone:
            raise OSError("gone")
        self.is_gone = True
        return SINCE


@pytest.mark.parametrize(
    "other", [[], [replace(named("d"), desired="running")], [named("d", LATER)]]
)
def test_an_answer_ends_with_its_dataflow(other: list[DataflowRecord]) -> None:
    """One that is resumed, deleted or created again under the name has no files that waited."""
    inputs = DrainedInputs(Fading())
    assert asked(inputs, "d") == SINCE
    inputs.round(other)
    for record in other:
        assert inputs.round(other)(record, DATAFLOW) is None
    assert asked(inputs, "d") is None


def test_a_round_that_asks_nothing_ends_no_alert() -> None:
    """As one that fails before it has come to the folder, or one beside it in another thread."""
    inputs = DrainedInputs(Fading())
    assert asked(inputs, "d") == SINCE
    inputs.round([named("d")])
    inputs.round([named("d")])
    assert asked(inputs, "d") == SINCE


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("a fault of ours")])
def test_an_error_is_no_answer(error: Exception) -> None:
    """Whatever it is, it reaches the log only."""

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        raise error

    with structlog.testing.capture_logs() as logs:
        assert asked(DrainedInputs(look), "d") is None
    assert [one["event"] for one in logs] == ["alerts.drop_folder_not_read"]
