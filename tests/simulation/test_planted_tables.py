"""Faults of look-ups, of corrected views and of change data feeds; each must be found.

As in `test_planted`: each is a mistake that somebody could make in one place of the product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cbp.engine.commit import change_feed
from cbp.engine.direct import publication_writer
from cbp.engine.interface.runs import looked_up_tables
from cbp.engine.run import corrections
from cbp.engine.run.preparer import Preparer
from cbp.engine.storage.files import Files
from cbp.engine.task.writers import TaskWriters
from cbp.model.run.correction import correcting
from controller.ingest.folder import table_feed
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.folder.table_feed import FeedPosition, save_position
from controller.ingest.uploads import Uploads
from controller.loop.tick import run_starts
from tests.simulation import operations, plan
from tests.simulation.bench import Bench
from tests.simulation.planting import SEEDS_MAX, Plant, finding_seed


def moments_are_those_of_the_end(patch: pytest.MonkeyPatch) -> None:
    """A record names what its run would find in a table when it ends, not what it found."""
    prepare = Preparer.prepare

    def planted(self: Any, run: Any, *more: Any) -> Any:
        prepared = prepare(self, run, *more)
        moments = {name: self.tables.pinned(one).moment for name, one in run.lookups.items()}
        return replace(prepared, lookups=moments)

    patch.setattr(Preparer, "prepare", planted)


def changes_call_before_they_are_looked_up(patch: pytest.MonkeyPatch) -> None:
    """A run that is called for changes sees what is published, and not yet their table."""

    def planted(*given: Any, unpublished: Any) -> Any:
        return looked_up_tables(*given)

    patch.setattr(run_starts, "looked_up_tables", planted)


def corrected_views_tell_nobody(patch: pytest.MonkeyPatch) -> None:
    """A correction of a view changes its table, and is no change that others read."""
    patch.setattr(plan, "VIEWED_SHARE", 1.0)
    patch.setattr(plan, "OPERATED_SHARE", 1.0)
    patch.setattr(operations, "MIXES", (("correct",),))

    def planted(*given: Any) -> Any:
        return replace(correcting(*given), outputs=())

    patch.setattr(corrections, "correcting", planted)


def feeds_lack_what_records_were(patch: pytest.MonkeyPatch) -> None:
    """The feed has updates without the record that a key had."""
    as_feed = change_feed._as_feed

    def planted(changes: pa.Table) -> pa.Table:
        return as_feed(changes.filter(pc.not_equal(changes["change_type"], "update_before")))

    patch.setattr(change_feed, "_as_feed", planted)


def feeds_are_derived_by_readers(patch: pytest.MonkeyPatch) -> None:
    """An entry that deletes records has no change files."""
    patch.setattr(publication_writer, "is_derivable", lambda *given: True)


def equal_records_are_told_once(patch: pytest.MonkeyPatch) -> None:
    """Equal records of a bag that come, or go, in one epoch are one change."""
    patch.setattr(plan, "BAGS_SHARE", 1.0)
    write_output = TaskWriters.write_output

    def planted(self: Any, name: str, columns: list[pa.Array]) -> None:
        if self.plan.spec.output(name).view:
            rows = pa.table(columns, names=[str(at) for at in range(len(columns))]).to_pylist()
            first = [row not in rows[:at] for at, row in enumerate(rows)]
            columns = [column.filter(pa.array(first, pa.bool_())) for column in columns]
        write_output(self, name, columns)

    patch.setattr(TaskWriters, "write_output", planted)


def positions_come_first(patch: pytest.MonkeyPatch) -> None:
    """The position in a followed table says that versions are claimed before they are."""

    def planted(folder: str, files: Files, position: FeedPosition) -> None:
        save_position(folder, files, replace(position, claimed=True))

    patch.setattr(table_feed, "save_position", planted)


def groups_are_planned_anew(patch: pytest.MonkeyPatch) -> None:
    """No position says which versions are about to be claimed, and no key knows their claim."""

    def planted(folder: str, files: Files, position: FeedPosition) -> None:
        if position.claimed:
            save_position(folder, files, position)

    patch.setattr(table_feed, "save_position", planted)
    receive = Uploads.receive

    def unkeyed(self: Uploads, place: SourcePlace, name: str, stream: BinaryIO, key: str) -> Any:
        return receive(self, place, name, stream, "" if key.startswith("delta:") else key)

    patch.setattr(Uploads, "receive", unkeyed)


LOOKUPS: dict[Plant, int] = {
    moments_are_those_of_the_end: 2,
    changes_call_before_they_are_looked_up: 192,
}
VIEWS: dict[Plant, int] = {
    corrected_views_tell_nobody: 4,
    feeds_lack_what_records_were: 8,
    feeds_are_derived_by_readers: 8,
    equal_records_are_told_once: 8,
}
FOLLOWED: dict[Plant, int] = {
    positions_come_first: 1,
    groups_are_planned_anew: 2,
}
"""With a seed that found the fault when it was last looked up, and is played first."""


@pytest.mark.part(every=2)
@pytest.mark.parametrize("plant", LOOKUPS, ids=lambda plant: plant.__name__)
def test_a_fault_of_look_ups_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the replay of what each record names, or since runs go on in the middle of others."""
    monkeypatch.setattr(plan, "LOOKED_SHARE", 1.0)
    found = finding_seed(bench, plant, first=LOOKUPS[plant])
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.part(every=2)
@pytest.mark.parametrize("plant", VIEWS, ids=lambda plant: plant.__name__)
def test_a_fault_of_a_views_table_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its readers, or by its feed, which leads from each version to the next."""
    monkeypatch.setattr(plan, "VIEWED_SHARE", 1.0)
    found = finding_seed(bench, plant, first=VIEWS[plant])
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.part(every=2)
@pytest.mark.parametrize("plant", FOLLOWED, ids=lambda plant: plant.__name__)
def test_a_fault_of_a_followed_table_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the versions that came: each once, in order, with the rows that it changed."""
    monkeypatch.setattr(plan, "FOLLOWED_SHARE", 1.0)
    found = finding_seed(bench, plant, first=FOLLOWED[plant])
    assert found is not None, f"{SEEDS_MAX} seeds did not find it"
