"""Mistakes of sinks, planted one by one, each of which the simulator must find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.sinks import SinkPublishing
from controller.sinks.delta_table import DeltaAppend
from controller.sinks.increment_files import IncrementFiles
from tests.simulation import operations, plan
from tests.simulation.bench import Bench
from tests.simulation.planting import SEEDS_MAX, Plant, finding_seed


def notes_come_first(patch: pytest.MonkeyPatch) -> None:
    """A note says that an increment is published before its target has it."""
    publish_waiting = SinkPublishing._publish_waiting

    def planted(self: Any, work: Any, stopping: Any) -> bool:
        note, name = work.note, work.node.name
        if note.next < work.row.end:
            ahead = replace(note, next=note.next + 1)
            self.notes.save(work.record.folder, name, work.row.identity, ahead)
        return publish_waiting(self, work, stopping)

    patch.setattr(SinkPublishing, "_publish_waiting", planted)


def tables_are_not_asked_for_transactions(patch: pytest.MonkeyPatch) -> None:
    """An increment that a crash left without its note is appended again."""
    patch.setattr("deltalake.DeltaTable.transaction_version", lambda self, app_id: None)


def rewriting_leaves_what_was_undone(patch: pytest.MonkeyPatch) -> None:
    """What a roll-back undid stays beside what took its place."""
    for target in (IncrementFiles, DeltaAppend):
        patch.setattr(target, "withdraw", lambda self, note, generations, first: note)


PLANTS: dict[Plant, int] = {
    notes_come_first: 1,
    tables_are_not_asked_for_transactions: 14,
    rewriting_leaves_what_was_undone: 0,
}
"""With a seed that found the fault when it was last looked up, and is played first."""


@pytest.mark.part(every=4)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_fault_of_sinks_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the targets, which lack increments, have them twice, or have what is no longer true."""
    monkeypatch.setattr(plan, "SUNK_SHARE", 1.0)
    if plant is rewriting_leaves_what_was_undone:
        monkeypatch.setattr(plan, "OPERATED_SHARE", 1.0)
        monkeypatch.setattr(operations, "MIXES", (("back",),))
    found = finding_seed(bench, plant, first=PLANTS[plant])
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"
