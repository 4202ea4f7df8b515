"""A drop folder that hangs does not hold up the alerts of other dataflows."""

from __future__ import annotations

import threading
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


def named(name: str) -> DataflowRecord:
    return DataflowRecord(name, 1, {}, f"/{name}", "drained", SINCE)


def test_a_drop_folder_that_hangs_holds_up_nobody() -> None:
    """It is not known whether files wait there, until it answers; one thread looks at it."""
    answers, asked = threading.Event(), list[str]()

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        asked.append(record.name)
        if record.name.startswith("hangs"):
            answers.wait()
        return SINCE

    inputs = DrainedInputs(look, 0.05)
    names = [*(f"hangs{n}" for n in range(20)), "well"]
    try:
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                waits_since = inputs.round()
                found = {name: waits_since(named(name), DATAFLOW) for name in names[:-1]}
                assert set(found.values()) == {None}
        assert until(lambda: sorted(asked) == sorted(names[:-1]))
        assert {one["event"] for one in logs} == {"alerts.drop_folder_is_late"}
        assert until(lambda: inputs.round()(named("well"), DATAFLOW)) == SINCE
    finally:
        answers.set()
    assert until(lambda: inputs.round()(named("hangs0"), DATAFLOW)) == SINCE


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
    assert until(lambda: inputs.round()(named("d"), DATAFLOW)) == SINCE
    faults[0] = True
    assert inputs.round()(named("d"), DATAFLOW) == SINCE
    faults[0], hangs[0] = False, True
    try:
        assert inputs.round()(named("d"), DATAFLOW) == SINCE
    finally:
        answers.set()
    assert until(lambda: inputs.round()(named("d"), DATAFLOW) == LATER)


def test_an_answer_ends_with_its_dataflow() -> None:
    """A dataflow that is created again under the name does not inherit files that waited."""
    faults = [False]

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        if faults[0]:
            raise OSError("gone")
        return SINCE

    inputs = DrainedInputs(look)
    assert inputs.round()(named("d"), DATAFLOW) == SINCE
    inputs.round()  # in which it is gone
    faults[0] = True
    assert inputs.round()(named("d"), DATAFLOW) is None


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("a fault of ours")])
def test_an_error_is_no_answer(error: Exception) -> None:
    """Whatever it is, it reaches the log only."""

    def look(record: DataflowRecord, dataflow: Dataflow) -> datetime:
        raise error

    with structlog.testing.capture_logs() as logs:
        assert DrainedInputs(look).round()(named("d"), DATAFLOW) is None
    assert [one["event"] for one in logs] == ["alerts.drop_folder_not_read"]
