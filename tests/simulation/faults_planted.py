"""Small wrong changes of the product, each planted by a patch, which the simulator must find.

Each is a mistake that somebody could make in one place. Those that another part of the product
would still put right are planted with that part (`test_planted.py`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cbp.engine.commit import table_entries
from cbp.engine.commit.table_entries import Entry
from cbp.engine.interface.runs import RunPlan
from cbp.engine.kernel.expiry import Expiry
from cbp.engine.kernel.group_batch import Window
from cbp.engine.run import assembly, recomputation
from cbp.engine.run.set_aside import SettingAside
from cbp.engine.storage import parquet_writer as sink
from cbp.engine.storage.files import Files, LocalFiles, Written
from cbp.engine.task.task_plan import LeftOut
from cbp.engine.task.writers import TaskWriters
from cbp.errors import OperatingError
from cbp.model.dataflow.stage import StateSpec
from cbp.model.flow.retention import KeptFlow, kept_flow
from cbp.model.plan import fusion
from cbp.model.version import succession
from cbp.model.version.rollback_point import find_point
from controller.ingest import drop_folder
from controller.ingest.folder.claims import Claims, OpenClaims
from controller.ingest.quarantine_decisions import QuarantineDecisions
from controller.ingest.repeated_files import NEW, RepeatedFiles
from controller.ingest.replacement import Replacements
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.loop.author.punctuations import PunctuationLog, Punctuations
from controller.loop.housekeeping.collector import Collector
from controller.loop.leadership.lease_keeper import LeaseKeeper
from controller.loop.leadership.terms import Terms
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.priorities import Priorities
from controller.loop.operations.versions import Versions
from controller.loop.rebuild import build_beside, rebuild_jobs
from controller.loop.records.version_log import Descriptions
from controller.loop.recovery import rollback
from controller.loop.recovery.redo import Recovery
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs import output_retention as keeping
from controller.loop.runs.retained_inputs import RetainedInputs
from controller.loop.runs.run_commit import RunCommit
from controller.loop.verification.recomputation import below
from controller.loop.verification.valid_inputs import ValidInputs
from controller.store.base import Store
from tests.simulation import operations, plan
from tests.simulation.planting import Plant


def connectors_move_first(patch: pytest.MonkeyPatch) -> None:
    """The store commits a run before its record is put."""
    finish = RunCommit._finish

    def planted(self: Any, run: Any) -> bool:
        self.store.commit(run.intention, finished_at=self.clock())
        return finish(self, run)

    patch.setattr(RunCommit, "_finish", planted)


def records_outlive_their_age(patch: pytest.MonkeyPatch) -> None:
    """The timer of an idle group goes, and its records stay."""

    def planted(self: Expiry, state: StateSpec, window: Window, group: int) -> Any:
        return next(one for one in window.states if one.name == state.name).of(group)

    patch.setattr(Expiry, "emissions_of", planted)


def due_times_of_others_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A run that looks at no timer records only those that it sets itself."""
    next_timer = assembly.next_timer

    def planted(plan: RunPlan, reported: Any) -> int | None:
        return next_timer(plan if plan.wakes else replace(plan, due_ms=None), reported)

    patch.setattr(assembly, "next_timer", planted)


def builds_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What is built beside is lost with the process."""
    patch.setattr(rebuild_jobs, "open_order", lambda files, folder: None)


def builds_take_nothing_back(patch: pytest.MonkeyPatch) -> None:
    """A build applies what a replacement brings, and not what it takes back."""

    def planted(depth: str, increment: Any) -> Any:
        return below(depth, replace(increment, gone=()))

    patch.setattr(build_beside, "below", planted)
    patch.setattr(ValidInputs, "of", lambda *found: {})


def later_records_overtake(patch: pytest.MonkeyPatch) -> None:
    """A group is called again while earlier records of it are set aside."""

    def planted(self: SettingAside) -> LeftOut:
        return LeftOut(tuple(self.failed), 10_000)

    patch.setattr(SettingAside, "left_out", property(planted))


def what_is_given_back_stays(patch: pytest.MonkeyPatch) -> None:
    """An epoch applies what it gives back, and leaves it in the table."""
    change = SettingAside.change

    def planted(self: SettingAside, *arguments: Any, **more: Any) -> Any:
        made, figures = change(self, *arguments, **more)
        return None if self.gives_back else made, figures

    patch.setattr(SettingAside, "change", planted)


def deletes_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """Records of a view that go are no changes."""
    _leave_out(patch, "delete")


def befores_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """An update has the record that a key has now, and not the one that it had."""
    _leave_out(patch, "update_before")


def _leave_out(patch: pytest.MonkeyPatch, kind: str) -> None:
    write_output = TaskWriters.write_output

    def planted(self: Any, name: str, columns: list[pa.Array]) -> None:
        if self.plan.spec.output(name).view:
            rows = pc.not_equal(columns[-2], kind)
            columns = [column.filter(rows) for column in columns]
        write_output(self, name, columns)

    patch.setattr(TaskWriters, "write_output", planted)


def changes_come_without_the_state(patch: pytest.MonkeyPatch) -> None:
    """A run that deletes nothing puts the changes of a view into its record, and no state."""
    state_changes = assembly._state_changes

    def planted(table: str, state: str, reported: Any, now_ms: int) -> list[Any]:
        actual = state_changes(table, state, reported, now_ms)
        return actual if state != "top" or any(one.deletes for one in actual) else []

    patch.setattr(assembly, "_state_changes", planted)


def claim_comes_last(patch: pytest.MonkeyPatch) -> None:
    """A file is renamed before its claim is recorded, and nobody searches for it."""

    class Late:
        """A store that learns of a claim only once its file was moved."""

        def __init__(self, store: Any) -> None:
            self.store = store

        def add_claims(self, new: Any) -> Any:
            return new

        def claims_moved(self, moved: Any) -> None:
            self.store.claims_moved(self.store.add_claims(moved))

    make = Claims.make_all

    def planted(self: Any, *args: Any, **kwargs: Any) -> Any:
        store, self._store = self._store, Late(self._store)
        try:
            return make(self, *args, **kwargs)
        finally:
            self._store = store

    patch.setattr(Claims, "make_all", planted)
    patch.setattr(OpenClaims, "strays", lambda self: {})


def redo_is_doubled(patch: pytest.MonkeyPatch) -> None:
    """Who gets no answer takes the next number, and does not look whether its entry is there."""
    put = SourceLog.put

    def planted(self: Any, entries: Any) -> None:
        try:
            put(self, entries)
        except OperatingError:
            put(self, [_numbered(entry, entry.increment.index + 1) for entry in entries])

    patch.setattr(SourceLog, "put", planted)


def _numbered(entry: SourceEntry, index: int) -> SourceEntry:
    return replace(entry, increment=replace(entry.increment, index=index))


def duplicates_are_not_known(patch: pytest.MonkeyPatch) -> None:
    """A file that comes twice is accepted twice."""
    patch.setattr(RepeatedFiles, "judge", lambda _self, _place, files, *_: [NEW] * len(files))


def collector_forgets_a_queue(patch: pytest.MonkeyPatch) -> None:
    """What waits in connectors is not kept from the collector."""
    patch.setattr(
        Collector,
        "_needed",
        lambda self, dataflow, past: self.publisher.files_needed(dataflow),
    )


def one_increment_too_many_goes(patch: pytest.MonkeyPatch) -> None:
    """The first increment of an output that something waits for, or may be replayed, goes too."""

    def planted(*arguments: Any, **more: Any) -> KeptFlow:
        actual = kept_flow(*arguments, **more)
        return replace(
            actual,
            first_replayed=actual.first_replayed + (actual.first_replayed > 0),
            first_waiting=actual.first_waiting + 1,
        )

    patch.setattr(plan, "KEPT_SHARE", 1.0)
    patch.setattr(keeping, "kept_flow", planted)


def a_horizon_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Increments of an output go, and the table does not say so."""
    patch.setattr(plan, "KEPT_SHARE", 1.0)
    patch.setattr(table_entries, "horizon_mark", lambda name, below, generation: {})


def newest_record_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Recovery takes the last record for one that is still being written."""
    redo = Recovery._redo

    def planted(self: Any, record: Any, node: Any, stage: Any, on_redo: Any) -> bool:
        behind = self.read(record, stage.stage, stage.epoch + 1)
        return behind is not None and redo(self, record, node, stage, on_redo)

    patch.setattr(Recovery, "_redo", planted)


def tables_publish_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Every table of a publication has a timestamp of its own."""
    put_into = Entry.put_into
    made: list[Any] = []

    def planted(self: Any, table: Any, timestamp_ms: int, **more: Any) -> int:
        made.append(table)
        return put_into(self, table, timestamp_ms + len(made), **more)

    patch.setattr(Entry, "put_into", planted)


def records_are_replaced(patch: pytest.MonkeyPatch) -> None:
    """Who led before and goes on writes over what its successor has recorded."""
    patch.setattr(plan, "LEASED_SHARE", 1.0)
    patch.setattr(plan, "STALLS", {"work": ("log_entry.before",)})

    def planted(self: Files, path: str, data: bytes, *, what: str = "log_entry", **_: Any) -> Any:
        self.write_durable(path, data, what=what)
        return Written()

    patch.setattr(LocalFiles, "put_if_absent", planted)


def corrections_forget_their_request(patch: pytest.MonkeyPatch) -> None:
    """Who asks again after a death corrects a second time."""
    patch.setattr(operations, "MIXES", (("correct",),))
    correct = Amendments.correct

    def planted(self: Any, *args: Any, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as blind:  # only who asks, not who is asked later
            blind.setattr(self, "corrections", lambda name: [])
            return correct(self, *args, **more)

    patch.setattr(Amendments, "correct", planted)


def closes_are_in_the_store_only(patch: pytest.MonkeyPatch) -> None:
    """A close is stored, and not put beside the tables."""
    patch.setattr(operations, "MIXES", (("close", "marker"),))
    patch.setattr(PunctuationLog, "put", lambda self, punctuation, *, staged="": None)


def closes_are_told_by_recovery_only(patch: pytest.MonkeyPatch) -> None:
    """A close that recovery could not store is not stored before the next one."""
    patch.setattr(operations, "MIXES", (("close", "marker"),))
    patch.setattr(Punctuations, "catch_up", lambda self, record: None)


def tables_go_back_first(patch: pytest.MonkeyPatch) -> None:
    """A roll-back changes the tables before it is recorded."""
    patch.setattr(operations, "MIXES", (("back",),))
    carry_out = Rollbacks.carry_out

    def planted(self: Any, record: Any, plan: Any, *tell: Any) -> None:
        self._tables(record, plan.generation, dry_run=False)
        carry_out(self, record, plan, *tell)

    patch.setattr(Rollbacks, "carry_out", planted)


def closes_stand_again_though_they_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The record of a roll-back does not say which closes it dropped."""
    patch.setattr(operations, "MIXES", (("close", "marker", "back"),))
    look = Rollbacks.plan

    def planted(self: Any, *args: Any, **more: Any) -> Any:
        actual = look(self, *args, **more)
        return replace(actual, generation=replace(actual.generation, closes_dropped=()))

    patch.setattr(Rollbacks, "plan", planted)


def times_mean_the_begin(patch: pytest.MonkeyPatch) -> None:
    """A roll-back to a time goes to before everything."""
    patch.setattr(operations, "MIXES", (("back",),))

    def planted(goal: Any, *args: Any) -> Any:
        return find_point(goal if goal.at_ms is None else replace(goal, at_ms=0), *args)

    patch.setattr(rollback, "find_point", planted)


def times_are_refused(patch: pytest.MonkeyPatch) -> None:
    """No roll-back to a time is possible."""
    patch.setattr(operations, "MIXES", (("back",),))

    def planted(goal: Any, *args: Any) -> Any:
        return find_point(goal, *args) if goal.at_ms is None else None

    patch.setattr(rollback, "find_point", planted)


def begins_of_versions_are_refused(patch: pytest.MonkeyPatch) -> None:
    """A roll-back to where the version began is refused, not only one behind that."""
    patch.setattr(operations, "MIXES", (("back", "change"),))
    begins = Descriptions.begins

    def planted(self: Any, record: Any) -> Any:
        actual, at_ms = begins(self, record)
        return {stage: epoch + 1 for stage, epoch in actual.items()}, at_ms

    cut = Rollbacks._point

    def planted_point(self: Any, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as late:
            late.setattr(Descriptions, "begins", planted)
            return cut(self, *args)

    patch.setattr(Rollbacks, "_point", planted_point)


def unfinished_versions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A version that was put is not brought to the store by a restart."""
    patch.setattr(operations, "MIXES", (("change",),))
    patch.setattr(Versions, "_finish", lambda self, record: True)


def rebuilt_stages_wait_behind_their_writer(patch: pytest.MonkeyPatch) -> None:
    """A rebuilt stage goes on behind a stage that is not: its old input is in no queue."""
    patch.setattr(plan, "ONE_INPUT", ("note", "total"))
    patch.setattr(operations, "MIXES", (("change",),))
    keep = fusion.keep_leaders

    def planted(*args: Any, **more: Any) -> Any:
        return keep(*args)

    patch.setattr(succession, "keep_leaders", planted)


def leases_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Who led before goes on as if it still did: no failpoint asks whether it leads."""
    patch.setattr(plan, "LEASED_SHARE", 1.0)
    patch.setattr(plan, "STALLS", {"work": ("log_entry.before",)})
    patch.setattr(LeaseKeeper, "check", lambda self: None)


def neither_leases_nor_epochs_are_asked(patch: pytest.MonkeyPatch) -> None:
    """The same, and the store takes what an old epoch of the lease writes."""
    leases_are_not_asked(patch)
    patch.setattr(Store, "fence", lambda self, epoch: setattr(self._database, "fence", None))


def terms_never_end(patch: pytest.MonkeyPatch) -> None:
    """Who led before puts what it was about to put, as nobody has taken its folder away."""
    patch.setattr(plan, "LEASED_SHARE", 1.0)
    patch.setattr(Terms, "begin", lambda self, epoch: None)


def a_lost_store_forgets_the_quarantine(patch: pytest.MonkeyPatch) -> None:
    """Rejected files lie in their folder, and a database that is rebuilt lists none of them."""
    patch.setattr(drop_folder, "restore_quarantined", lambda place, store, faults: 0)


def files_in_place_of_others_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """Recovery takes every readmission for one whose claim was never made."""
    patch.setattr(plan, "DECIDED_SHARE", 1.0)
    patch.setattr(QuarantineDecisions, "_was_made", lambda *given: False)


def decisions_are_taken_back_without_a_note(patch: pytest.MonkeyPatch) -> None:
    """A file moves back to quarantine, and no restart knows that its claim is to follow."""
    patch.setattr(plan, "DECIDED_SHARE", 1.0)
    put = QuarantineDecisions._put

    def planted(self: Any, place: Any, claim: Any, note: Any) -> None:
        if note.action != "restore":
            put(self, place, claim, note)

    patch.setattr(QuarantineDecisions, "_put", planted)


def decisions_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A decision is acknowledged, and its note has a name and no bytes on the disk."""
    patch.setattr(plan, "DECIDED_SHARE", 1.0)
    write = LocalFiles.write_durable

    def planted(self: Any, path: str, data: bytes, *, what: str = "data_file") -> None:
        if what != "decision":
            write(self, path, data, what=what)
            return
        Path(path).write_bytes(data)
        self.sync_dir(os.path.dirname(path))

    patch.setattr(LocalFiles, "write_durable", planted)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A file is synced, the folder that holds its name is not."""
    patch.setattr(LocalFiles, "sync_dir", lambda self, path: None)


def content_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Data files have their names synced, and not their bytes."""
    sync = sink._sync
    patch.setattr(sink, "_sync", lambda path: sync(path) if os.path.isdir(path) else None)


def new_folders_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The folder of a data file is synced, and not the new folder around it."""
    patch.setattr(sink, "_folders", lambda path: [os.path.dirname(path)])


def priorities_are_not_brought(patch: pytest.MonkeyPatch) -> None:
    """A recovery leaves the store's priorities as they are."""
    patch.setattr(Priorities, "bring", lambda self, record: None)


def what_is_gone_still_counts(patch: pytest.MonkeyPatch) -> None:
    """Groups are computed anew from all of their records, and nothing is taken out."""
    patch.setattr(recomputation, "subtract_rows", lambda rows, gone: (rows, gone.slice(0, 0)))


def only_what_came_is_computed_anew(patch: pytest.MonkeyPatch) -> None:
    """A group is given the run's records alone, without those from before."""
    patch.setattr(RetainedInputs, "of", lambda self, record, node: {})


def a_replacement_forgets_what_an_earlier_one_took_back(patch: pytest.MonkeyPatch) -> None:
    """The history of a name is its newest file alone."""
    history = Replacements._history

    def planted(self: Any, *given: Any) -> Any:
        yield next(history(self, *given))

    patch.setattr(Replacements, "_history", planted)


CRASHES: list[Plant] = [
    connectors_move_first,
    claim_comes_last,
    redo_is_doubled,
    duplicates_are_not_known,
    collector_forgets_a_queue,
    newest_record_is_skipped,
    tables_publish_one_by_one,
    records_are_replaced,
    a_lost_store_forgets_the_quarantine,
    one_increment_too_many_goes,
    a_horizon_is_forgotten,
    files_in_place_of_others_are_not_looked_for,
    decisions_are_taken_back_without_a_note,
]
OPERATIONS: list[Plant] = [
    corrections_forget_their_request,
    closes_are_in_the_store_only,
    closes_are_told_by_recovery_only,
    tables_go_back_first,
    closes_stand_again_though_they_are_dropped,
    times_mean_the_begin,
    times_are_refused,
    begins_of_versions_are_refused,
    unfinished_versions_are_forgotten,
    rebuilt_stages_wait_behind_their_writer,
]
VIEWS: list[Plant] = [
    deletes_are_not_told,
    befores_are_not_told,
    changes_come_without_the_state,
]
LOSSES: list[Plant] = [
    names_are_not_synced,
    content_is_not_synced,
    new_folders_are_not_synced,
    decisions_are_not_synced,
]
KNOWN_SEEDS: dict[Plant, int] = {
    connectors_move_first: 1,
    duplicates_are_not_known: 4,
    collector_forgets_a_queue: 131,
    later_records_overtake: 54,
    what_is_given_back_stays: 38,
    newest_record_is_skipped: 1,
    records_are_replaced: 1,
    a_lost_store_forgets_the_quarantine: 6,
    one_increment_too_many_goes: 3,
    files_in_place_of_others_are_not_looked_for: 5,
    decisions_are_taken_back_without_a_note: 8,
    corrections_forget_their_request: 2,
    closes_are_in_the_store_only: 23,
    closes_are_told_by_recovery_only: 3,
    tables_go_back_first: 9,
    closes_stand_again_though_they_are_dropped: 20,
    times_mean_the_begin: 24,
    times_are_refused: 4,
    begins_of_versions_are_refused: 4,
    rebuilt_stages_wait_behind_their_writer: 38,
    due_times_of_others_are_forgotten: 71,
    records_outlive_their_age: 8,
    deletes_are_not_told: 78,
    befores_are_not_told: 8,
    changes_come_without_the_state: 8,
    neither_leases_nor_epochs_are_asked: 1,
    terms_never_end: 3,
    names_are_not_synced: 1,
    new_folders_are_not_synced: 2,
}
"""Seeds that found a fault when they were last looked up, and are played first; 0 found the others.
Where such a seed means something else by now, all seeds are played in order."""
REPLACEMENTS = (
    what_is_gone_still_counts,
    only_what_came_is_computed_anew,
    a_replacement_forgets_what_an_earlier_one_took_back,
)
BUILDS: list[Plant] = [builds_are_forgotten, builds_take_nothing_back]
EVERY: list[Plant] = [
    *CRASHES,
    *OPERATIONS,
    *VIEWS,
    *LOSSES,
    *REPLACEMENTS,
    *BUILDS,
    due_times_of_others_are_forgotten,
    later_records_overtake,
    leases_are_not_asked,
    neither_leases_nor_epochs_are_asked,
    priorities_are_not_brought,
    records_outlive_their_age,
    terms_never_end,
    what_is_given_back_stays,
]
"""All of them."""
