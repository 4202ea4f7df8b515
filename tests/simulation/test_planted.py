"""What the simulator is worth: small wrong changes, each of which it must find.

Each is a mistake that somebody could make in one place of the product, planted by a patch.
Those that another part of the product would still put right are planted with that part.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cbp.engine.commit.table_entries import Entry
from cbp.engine.storage import parquet_writer as sink
from cbp.engine.storage.files import Files, LocalFiles, Written
from cbp.errors import OperatingError
from cbp.model.dataflow import fusion
from cbp.model.flow.retention import KeptFlow, kept_flow
from cbp.model.version import succession
from cbp.model.version.rollback_goal import find_cut
from controller.ingest import drop_folder
from controller.ingest.claims import Claims, OpenClaims
from controller.ingest.identity import NEW, Identities
from controller.ingest.source_log import SourceEntry, SourceLog
from controller.loop.author.punctuations import PunctuationLog, Punctuations
from controller.loop.housekeeping.collector import Housekeeping
from controller.loop.leadership.lease_keeper import Leadership
from controller.loop.leadership.terms import Terms
from controller.loop.operations.amendments import Amendments
from controller.loop.operations.registration import Versions
from controller.loop.records.description_log import Descriptions
from controller.loop.recovery import rollback
from controller.loop.recovery.redo import Recovery
from controller.loop.recovery.rollback import Rollbacks
from controller.loop.runs import output_retention as keeping
from controller.loop.runs.finisher import Finisher
from controller.store.sql import SqlStore
from tests.simulation import operations, plan
from tests.simulation.run import simulate
from tests.simulation.world import Bench

Plant = Callable[[pytest.MonkeyPatch], None]


def connectors_move_first(patch: pytest.MonkeyPatch) -> None:
    """The store commits a run before its record is put."""
    finish = Finisher.finish

    def planted(self: Any, record: Any, node: Any, intention: Any) -> bool:
        self._store.commit(intention, finished_at=self._clock())
        return finish(self, record, node, intention)

    patch.setattr(Finisher, "finish", planted)


def claim_comes_last(patch: pytest.MonkeyPatch) -> None:
    """A file is renamed before its claim is recorded, and nobody searches for it."""

    class Late:
        """A store that is told of a claim only once its file was moved."""

        def __init__(self, store: Any) -> None:
            self.store = store

        def add_claims(self, new: Any) -> Any:
            return new

        def update_claims(self, changed: Any) -> None:
            self.store.update_claims(self.store.add_claims(changed))

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
    patch.setattr(Identities, "judge", lambda *given: NEW)


def collector_forgets_a_queue(patch: pytest.MonkeyPatch) -> None:
    """What waits in connectors is not kept from the collector."""
    patch.setattr(
        Housekeeping,
        "_needed",
        lambda self, dataflow, past: self._publisher.files_needed(dataflow),
    )


def one_increment_too_many_goes(patch: pytest.MonkeyPatch) -> None:
    """Of an output, the first increment that something waits for, or may be replayed, goes too."""

    def planted(*arguments: Any, **more: Any) -> KeptFlow:
        found = kept_flow(*arguments, **more)
        return replace(
            found,
            first_replayed=found.first_replayed + (found.first_replayed > 0),
            first_waiting=found.first_waiting + 1,
        )

    patch.setattr(plan, "KEPT_SHARE", 1.0)
    patch.setattr(keeping, "kept_flow", planted)


def a_horizon_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Increments of an output go, and the table does not say so."""
    patch.setattr(plan, "KEPT_SHARE", 1.0)
    patch.setattr(Entry, "_marks", {})


def newest_record_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Recovery takes the last record for one that is still being written."""
    redo = Recovery._redo

    def planted(self: Any, record: Any, node: Any, stage: Any, on_redo: Any) -> bool:
        behind = self._open_log(record.folder).read(stage.stage, stage.epoch + 1)
        return behind is not None and redo(self, record, node, stage, on_redo)

    patch.setattr(Recovery, "_redo", planted)


def tables_publish_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Every table of a publication has a timestamp of its own."""
    put_into = Entry.put_into
    made: list[Any] = []

    def planted(self: Any, table: Any, timestamp_ms: int) -> int:
        made.append(table)
        return put_into(self, table, timestamp_ms + len(made))

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
    """A close is told to the store, and not put beside the tables."""
    patch.setattr(operations, "MIXES", (("close", "marker"),))
    patch.setattr(PunctuationLog, "put", lambda self, punctuation, *, staged="": None)


def closes_are_told_by_recovery_only(patch: pytest.MonkeyPatch) -> None:
    """A close that recovery could not tell the store is not told it before the next one."""
    patch.setattr(operations, "MIXES", (("close", "marker"),))
    patch.setattr(Punctuations, "catch_up", lambda self, record: None)


def tables_go_back_first(patch: pytest.MonkeyPatch) -> None:
    """A roll-back changes the tables before it is recorded."""
    patch.setattr(operations, "MIXES", (("back",),))
    carry_out = Rollbacks.carry_out

    def planted(self: Any, record: Any, plan: Any) -> None:
        self._tables(record, plan.generation, dry_run=False)
        carry_out(self, record, plan)

    patch.setattr(Rollbacks, "carry_out", planted)


def closes_stand_again_though_they_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """The record of a roll-back does not say which closes it dropped."""
    patch.setattr(operations, "MIXES", (("close", "marker", "back"),))
    look = Rollbacks.plan

    def planted(self: Any, *args: Any, **more: Any) -> Any:
        found = look(self, *args, **more)
        return replace(found, generation=replace(found.generation, closes_dropped=()))

    patch.setattr(Rollbacks, "plan", planted)


def times_mean_the_begin(patch: pytest.MonkeyPatch) -> None:
    """A roll-back to a time goes to before everything."""
    patch.setattr(operations, "MIXES", (("back",),))

    def planted(goal: Any, *args: Any) -> Any:
        return find_cut(goal if goal.at_ms is None else replace(goal, at_ms=0), *args)

    patch.setattr(rollback, "find_cut", planted)


def times_are_refused(patch: pytest.MonkeyPatch) -> None:
    """No roll-back to a time is possible."""
    patch.setattr(operations, "MIXES", (("back",),))

    def planted(goal: Any, *args: Any) -> Any:
        return find_cut(goal, *args) if goal.at_ms is None else None

    patch.setattr(rollback, "find_cut", planted)


def begins_of_versions_are_refused(patch: pytest.MonkeyPatch) -> None:
    """A roll-back to where the version began is refused, not only one behind that."""
    patch.setattr(operations, "MIXES", (("back", "change"),))
    begins = Descriptions.begins

    def planted(self: Any, record: Any) -> Any:
        found, at_ms = begins(self, record)
        return {stage: epoch + 1 for stage, epoch in found.items()}, at_ms

    cut = Rollbacks._cut

    def planted_cut(self: Any, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as late:
            late.setattr(Descriptions, "begins", planted)
            return cut(self, *args)

    patch.setattr(Rollbacks, "_cut", planted_cut)


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
    patch.setattr(Leadership, "check", lambda self: None)


def neither_leases_nor_epochs_are_asked(patch: pytest.MonkeyPatch) -> None:
    """The same, and the store takes what an old epoch of the lease writes."""
    leases_are_not_asked(patch)
    patch.setattr(SqlStore, "fence", lambda self, epoch: setattr(self._database, "fence", None))


def terms_never_end(patch: pytest.MonkeyPatch) -> None:
    """Who led before puts what it was about to put, as nobody has taken its folder away."""
    patch.setattr(plan, "LEASED_SHARE", 1.0)
    patch.setattr(Terms, "begin", lambda self, epoch: None)


def a_lost_store_forgets_the_quarantine(patch: pytest.MonkeyPatch) -> None:
    """Rejected files lie in their folder, and a database that is rebuilt lists none of them."""
    patch.setattr(drop_folder, "restore_quarantined", lambda place, store, faults: 0)


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
LOSSES: list[Plant] = [names_are_not_synced, content_is_not_synced, new_folders_are_not_synced]
SEEDS_MAX = 150
FIRST_SEEDS: dict[Plant, int] = {collector_forgets_a_queue: 70}
"""Where to begin, for what only many seeds bring to light."""

MISTAKES = (TypeError, AttributeError, NameError)
"""A fault that is found by one of these is planted wrong: the code has changed below it."""


def first_found(bench: Bench, plant: Plant, *, power: bool = False, seeds: int = SEEDS_MAX) -> int:
    """Return how many seeds do not find a planted fault before one does; `seeds`: none did."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        first = FIRST_SEEDS.get(plant, 0)
        for seed in range(first, first + seeds):
            outcome = simulate(bench, seed, power=power)
            if outcome.failure:
                assert f"--from {seed} " in outcome.report()
                how = outcome.failure.splitlines()[-1]
                assert not how.startswith(tuple(kind.__name__ for kind in MISTAKES)), how
                print(f"{plant.__name__}: seed {seed}:", how)
                return seed - first
    return seeds


def found(bench: Bench, plant: Plant, *, power: bool) -> bool:
    """Tell whether any seed finds a planted fault."""
    return first_found(bench, plant, power=power) < SEEDS_MAX


@pytest.mark.parametrize("plant", CRASHES, ids=[p.__name__ for p in CRASHES])
def test_a_planted_fault_is_found(bench: Bench, plant: Plant) -> None:
    """Crashes, errors and repetitions of few seeds bring it to light."""
    assert found(bench, plant, power=False), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", OPERATIONS, ids=[p.__name__ for p in OPERATIONS])
def test_a_fault_in_an_operation_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one in what operators do; here all of them do something."""
    monkeypatch.setattr(plan, "OPERATED_SHARE", 1.0)
    assert found(bench, plant, power=False), f"{SEEDS_MAX} seeds did not find it"


def test_only_the_fence_stops_a_leader_that_does_not_know_that_it_was_deposed(
    bench: Bench,
) -> None:
    """By a lease that nobody asks nothing comes to harm, unless the store's fence is gone too.

    What a zombie commits behind the back of its successor is missing in the successor's memory.
    """
    first = first_found(bench, neither_leases_nor_epochs_are_asked)
    assert first < SEEDS_MAX, f"{SEEDS_MAX} seeds did not find it"
    seeds = max(first + 1, 12)
    assert first_found(bench, leases_are_not_asked, seeds=seeds) == seeds, "the fence let it pass"


@pytest.mark.parametrize(
    ("verb", "effect"),
    [("change", "description"), ("back", "generation"), ("close", "punctuation")],
)
def test_what_a_term_that_ended_puts_is_found(
    bench: Bench, verb: str, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version, a roll-back or a close that comes behind a take-over does harm."""
    monkeypatch.setattr(plan, "OPERATED_SHARE", 1.0)
    monkeypatch.setattr(plan, "STALLS", {verb: (f"{effect}.before",)})
    monkeypatch.setattr(operations, "MIXES", ((verb,),))
    assert found(bench, terms_never_end, power=False), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", LOSSES, ids=[p.__name__ for p in LOSSES])
def test_a_missing_sync_is_found(bench: Bench, plant: Plant) -> None:
    """A loss of power brings to light what was acknowledged and not durable."""
    assert found(bench, plant, power=True), f"{SEEDS_MAX} seeds did not find it"
