"""Holds: the reason why a dataflow starts no runs is also the reason why it is busy."""

from __future__ import annotations

import pytest

from cbp.errors import DataflowBusyError
from controller.loop.operations import amendments, versions
from controller.loop.runs.isolation import UNRECOVERED
from controller.loop.tick.holds import Holds


@pytest.mark.parametrize(
    "because",
    ["the dataflow is being rolled back", UNRECOVERED, amendments.UNFINISHED, versions.UNFINISHED],
)
def test_a_busy_dataflow_is_told_why_it_is_held(because: str) -> None:
    """The reason is a clause of its own, without a second subject before it."""
    holds = Holds()
    holds.hold("one", because)
    with pytest.raises(DataflowBusyError) as caught:
        holds.require_free("one")
    assert caught.value.message == f"'one' is busy: {because}; try again later"


def test_a_dataflow_that_is_being_deleted_is_busy() -> None:
    """A deletion comes before any other reason."""
    holds = Holds()
    holds.hold("one", UNRECOVERED)
    holds.deleting.add("one")
    with pytest.raises(DataflowBusyError, match="is busy: the dataflow is being deleted; try"):
        holds.require_free("one")
