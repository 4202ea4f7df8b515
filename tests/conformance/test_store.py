"""What every metadata store must hold, on every database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from cbp.engine.faults import Crash, Faults, PlannedFaults
from cbp.errors import AlreadyExistsError, CbpError, InvariantError, NotFoundError
from cbp.model.framing import Framing
from cbp.model.increment import DataFile, Increment
from cbp.model.intention import RunStatus
from cbp.model.position import Position
from cbp.model.punctuation import Punctuation
from controller.store import SqlStore, open_store
from controller.store.base import ClaimStatus, IncrementRecord
from controller.store.errors import CursorInvalidError
from controller.store.queues import next_index
from tests.conformance.records import (
    START,
    a_claim,
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)

Reopen = Callable[[Faults], SqlStore]
CHAIN = {"s": {"i": "a"}, "t": {"j": "s.out", "k": "a"}}


@pytest.fixture
def chain(store: SqlStore) -> SqlStore:
    """Give a store with the dataflow `d`: source a -> stage s -> stage t, and a -> t."""
    store.register(a_dataflow(), CHAIN)
    return store


# dataflows


def test_what_was_registered_is_returned(store: SqlStore) -> None:
    """A dataflow comes back as it went in, the order of its document's keys included."""
    document = {"b": 1, "a": [None, 1.5, "ä\x00\ud800"], "A": {"z": {}, "y": True}}
    record = a_dataflow(document=document, folder="/ta\udce9bles", version=7)
    store.register(record, {})
    found = store.dataflow("d")
    assert found == record
    assert list(found.document) == ["b", "a", "A"]


def test_dataflows_are_listed_by_name_byte_by_byte(store: SqlStore) -> None:
    """The order of names does not depend on the locale of the database."""
    for name in ("b", "a_b", "ab", "a", "a1"):
        store.register(a_dataflow(name), {})
    assert [record.name for record in store.dataflows()] == ["a", "a1", "a_b", "ab", "b"]


def test_a_name_is_registered_once(chain: SqlStore) -> None:
    """A second dataflow of a name is refused and changes nothing."""
    with pytest.raises(AlreadyExistsError):
        chain.register(a_dataflow(version=2), {"x": {}})
    assert chain.dataflow("d").version == 1
    assert [stage.stage for stage in chain.stages("d")] == ["s", "t"]


def test_new_stages_wait_for_epoch_0_with_empty_connectors(chain: SqlStore) -> None:
    """Registering makes every stage and every input, before anything arrived."""
    first, second = chain.stages("d")
    assert (first.epoch, first.waiting_since, first.memo, first.failures) == (0, START, None, 0)
    assert (first.retry_at, first.paused_because, second.stage) == (None, "", "t")
    assert waiting(chain) == {"s": {"i": []}, "t": {"j": [], "k": []}}


def test_inputs_keep_the_order_of_their_registration(store: SqlStore) -> None:
    """Connectors of a stage come in the order in which its inputs were wired."""
    store.register(a_dataflow(), {"s": {"z": "a", "b": "a", "y": "a"}, "no_inputs": {}})
    assert list(store.connectors("d")["s"]) == ["z", "b", "y"]
    assert store.connectors("d")["no_inputs"] == {}


def test_running_clears_failures_and_pauses_of_its_own_stages(chain: SqlStore) -> None:
    """`set_desired(running)` is a new beginning for the stages of that dataflow only."""
    chain.register(a_dataflow("e"), {"s": {}})
    for dataflow in ("d", "e"):
        chain.intend(a_run(f"r{dataflow}", dataflow=dataflow))
        chain.fail(f"r{dataflow}", {}, finished_at=at(1), retry_at=at(9), pause="broken")
    chain.set_desired("d", "paused")
    assert chain.stages("d")[0].failures == 1
    chain.set_desired("d", "running")
    cleared, kept = chain.stages("d")[0], chain.stages("e")[0]
    assert (cleared.failures, cleared.retry_at, cleared.paused_because) == (0, None, "")
    assert (kept.failures, kept.retry_at, kept.paused_because) == (1, at(9), "broken")


def test_what_the_operator_wants_is_kept(chain: SqlStore) -> None:
    """The desired status of a dataflow is what was set last."""
    chain.set_desired("d", "paused")
    assert chain.dataflow("d").desired == "paused"


def test_delete_leaves_nothing_behind(chain: SqlStore) -> None:
    """After a delete the name is free, and its next bearer begins at 0 in everything."""
    chain.register(a_dataflow("e"), CHAIN)
    for dataflow in ("d", "e"):
        arrive(chain, dataflow=dataflow)
        run = a_run(f"r{dataflow}", dataflow=dataflow)
        chain.intend(run)
        chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    before = waiting(chain, "e")
    chain.delete("d")
    chain.register(a_dataflow(), CHAIN)
    assert waiting(chain) == {"s": {"i": []}, "t": {"j": [], "k": []}}
    assert [stage.epoch for stage in chain.stages("d")] == [0, 0]
    assert not chain.runs("d").items
    assert not chain.claims("d").items
    assert not chain.increments("d").items
    assert waiting(chain, "e") == before
    assert chain.run("re").status is RunStatus.COMMITTED


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.dataflow("x"),
        lambda store: store.set_desired("x", "paused"),
        lambda store: store.delete("x"),
        lambda store: store.add_claim(a_claim(dataflow="x")),
        lambda store: store.update_claim(a_claim("x")),
        lambda store: store.accept(a_claim(dataflow="x"), an_arrival(0, dataflow="x")),
        lambda store: store.intend(a_run(dataflow="x")),
        lambda store: store.intend(a_run(stage="x")),
        lambda store: store.commit(an_intention(a_run(stage="x")), finished_at=START),
        lambda store: store.fail("x", {}, finished_at=START, retry_at=None),
        lambda store: store.pause_stage("d", "x", "why"),
        lambda store: store.run("x"),
        lambda store: store.increment("d", "a", 0),
    ],
)
def test_what_does_not_exist_is_not_found(
    chain: SqlStore, call: Callable[[SqlStore], object]
) -> None:
    """A call on a name that nobody knows says so, and never makes it up."""
    with pytest.raises(NotFoundError):
        call(chain)


def test_listings_of_unknown_names_are_empty(store: SqlStore) -> None:
    """Listings do not judge names; they show what there is."""
    assert store.stages("x") == []
    assert store.connectors("x") == {}
    assert store.next_index("x", "a") == 0
    assert store.open_claims("x", "a") == []
    assert store.increments("x").items == []


# arrivals


def an_arrival(index: int, *, dataflow: str = "d", records: int = 1) -> IncrementRecord:
    """Return an increment of source `a`, as ingestion hands it in."""
    return IncrementRecord(dataflow, an_increment("a", index, records), at(index), {"n": [index]})


def test_claims_of_a_source_are_numbered_from_0(chain: SqlStore) -> None:
    """The sequence counts per source, whatever the caller wrote into it."""
    sources = ["a", "a", "b", "a"]
    got = [
        chain.add_claim(a_claim(f"c{n}", source=source, sequence=99)).sequence
        for n, source in enumerate(sources)
    ]
    assert got == [0, 1, 0, 2]


def test_an_id_of_a_claim_is_used_once(chain: SqlStore) -> None:
    """A second claim of an id is refused."""
    chain.add_claim(a_claim())
    with pytest.raises(AlreadyExistsError):
        chain.add_claim(a_claim())


def test_a_claim_comes_back_as_it_went_in(chain: SqlStore) -> None:
    """Names of files may hold whatever a file system allows."""
    claim = chain.add_claim(a_claim(path="\udcff\n'%{};--ß"))
    changed = replace(
        claim,
        status="quarantined",
        sha256="ab",
        reason={"code": "csv", "line": 3, "message": "x\x00y"},
    )
    chain.update_claim(changed)
    assert chain.claims("d").items == [changed]


def test_open_claims_are_those_not_settled_in_order(chain: SqlStore) -> None:
    """Recovery sees `claiming` and `claimed` of its own source, by sequence."""
    statuses: list[ClaimStatus] = ["claimed", "accepted", "claiming", "duplicate", "quarantined"]
    for n, status in enumerate(statuses):
        chain.update_claim(replace(chain.add_claim(a_claim(f"c{9 - n}")), status=status))
    chain.add_claim(a_claim("other", source="b"))
    assert [claim.id for claim in chain.open_claims("d", "a")] == ["c9", "c7"]


def test_only_accepted_content_of_this_source_counts_as_known(chain: SqlStore) -> None:
    """The same bytes in quarantine, or in another source, are no duplicate."""
    for n, (source, status) in enumerate([("a", "quarantined"), ("b", "accepted")]):
        claim = chain.add_claim(a_claim(f"c{n}", source=source))
        chain.update_claim(replace(claim, sha256="ff", status=status))  # type: ignore[arg-type]
    assert chain.accepted_claim("d", "a", "ff") is None
    claim = replace(chain.add_claim(a_claim("c2")), sha256="ff")
    chain.accept(claim, an_arrival(0))
    assert chain.accepted_claim("d", "a", "ff") == replace(claim, status="accepted", index=0)


def test_an_accepted_increment_waits_at_every_consumer(chain: SqlStore) -> None:
    """Acceptance stores, enqueues and settles together."""
    claim = chain.add_claim(a_claim())
    chain.accept(claim, an_arrival(0))
    assert waiting(chain) == {"s": {"i": ["a/0"]}, "t": {"j": [], "k": ["a/0"]}}
    assert chain.increment("d", "a", 0) == an_arrival(0)
    assert chain.claims("d").items == [replace(claim, status="accepted", index=0)]
    assert chain.next_index("d", "a") == 1


def test_bindings_wait_with_their_messages(store: SqlStore) -> None:
    """What an increment of messages names comes back from a queue, too."""
    store.register(a_dataflow(), {"s": {"i": "a", "mail": "s.mail"}})
    arrive(store)
    run = a_run()
    store.intend(run)
    sent = replace(an_increment("s.mail", 0), bindings=(DataFile("bound", 3, 30),))
    store.commit(an_intention(run, sent), finished_at=at(1))
    assert store.connectors("d")["s"]["mail"].waiting == (sent,)


def test_accepting_again_changes_nothing(chain: SqlStore) -> None:
    """A redo after a crash enqueues nothing twice, not even what was consumed since."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    before = waiting(chain)
    claim = chain.claims("d").items[0]
    chain.accept(claim, an_arrival(0))
    assert waiting(chain) == before
    assert chain.next_index("d", "a") == 1


def test_a_lost_claim_is_restored_by_its_acceptance(chain: SqlStore) -> None:
    """A store that lost its rows learns them again from the log of the source."""
    chain.accept(a_claim("lost", sequence=4, sha256="aa"), an_arrival(0))
    found = chain.accepted_claim("d", "a", "aa")
    assert found is not None
    assert (found.id, found.sequence, found.index) == ("lost", 4, 0)


def test_an_increment_never_changes(chain: SqlStore) -> None:
    """A second increment of a name with other files is refused, not dropped."""
    chain.accept(a_claim("c0"), an_arrival(0))
    with pytest.raises(InvariantError):
        chain.accept(a_claim("c1"), an_arrival(0, records=2))
    assert [claim.id for claim in chain.claims("d").items] == ["c0"]


def test_the_indexes_of_a_flow_have_no_gap(chain: SqlStore) -> None:
    """An increment whose predecessor is missing is refused."""
    with pytest.raises(InvariantError):
        chain.accept(a_claim(), an_arrival(1))
    assert chain.next_index("d", "a") == 0


# runs


def test_an_intended_run_is_found_again(chain: SqlStore) -> None:
    """What was decided is there after a crash, the read set included."""
    run = a_run(read={"i": [3, 1], "k": []}, remove={"i": [1]}, started_at=at(5), attempt=2)
    chain.intend(run)
    (found,) = chain.intended_runs()
    assert found == replace(run, read={"i": (3, 1), "k": ()}, remove={"i": (1,)})
    assert chain.run("r0") == found
    assert {s.stage: s.waiting_since for s in chain.stages("d")} == {"s": at(5), "t": START}


def test_a_stale_decision_is_refused(chain: SqlStore) -> None:
    """A run of an epoch that is not the next one is not recorded."""
    with pytest.raises(InvariantError):
        chain.intend(a_run(epoch=1))
    assert chain.intended_runs() == []


def test_an_id_of_a_run_is_used_once(chain: SqlStore) -> None:
    """A second run of an id is refused."""
    chain.intend(a_run())
    with pytest.raises(AlreadyExistsError):
        chain.intend(a_run(stage="t"))


def test_a_commit_moves_everything_together(chain: SqlStore) -> None:
    """Queues, outputs, epoch, memo and run change in one step."""
    arrive(chain)
    arrive(chain)
    run = a_run(started_at=at(1))
    chain.intend(run)
    out = an_increment("s.out", 0)
    intention = an_intention(run, out, memo={"seen": [1]}, figures={"records_in": 1.0})
    chain.commit(intention, finished_at=at(2))
    assert waiting(chain) == {"s": {"i": ["a/1"]}, "t": {"j": ["s.out/0"], "k": ["a/0", "a/1"]}}
    stage = chain.stages("d")[0]
    assert (stage.epoch, stage.memo, stage.waiting_since) == (1, {"seen": [1]}, at(1))
    committed = chain.run("r0")
    assert (committed.status, committed.finished_at) == (RunStatus.COMMITTED, at(2))
    assert committed.figures == {"records_in": 1.0}
    assert chain.increment("d", "s.out", 0) == IncrementRecord("d", out, at(2), {"run": "r0"})
    assert chain.intended_runs() == []


def test_epochs_are_counted_over_all_stages(chain: SqlStore) -> None:
    """What was committed since somebody looked is told by one number per dataflow."""
    chain.register(a_dataflow("e"), CHAIN)
    for number, stage in enumerate(("s", "t", "s")):
        run = a_run(f"r{number}", stage=stage, epoch=number // 2, read={}, remove={})
        chain.commit(an_intention(run), finished_at=at(1))
    assert chain.epochs() == {"d": 3, "e": 0}


def test_what_is_read_and_not_removed_keeps_a_mark(chain: SqlStore) -> None:
    """A read mark stays with its increment; removal drops it without reading."""
    for _ in range(3):
        arrive(chain)
    run = a_run(read={"i": [0, 1]}, remove={"i": [2]})
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0*", "a/1*"]}
    again = a_run("r1", epoch=1, read={"i": [1]}, remove={"i": [1]})
    chain.commit(an_intention(again), finished_at=at(2))
    assert waiting(chain)["s"] == {"i": ["a/0*"]}
    arrive(chain)
    assert waiting(chain)["s"] == {"i": ["a/0*", "a/3"]}


def test_a_stage_can_feed_itself(store: SqlStore) -> None:
    """An output that is wired to its own stage waits there for the next epoch."""
    store.register(a_dataflow(), {"s": {"i": "a", "back": "s.out"}})
    arrive(store)
    run = a_run()
    store.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    second = a_run("r1", epoch=1, read={"back": [0]})
    store.commit(an_intention(second, an_increment("s.out", 1)), finished_at=at(2))
    assert waiting(store) == {"s": {"i": [], "back": ["s.out/1"]}}


def test_empty_outputs_are_enqueued_too(chain: SqlStore) -> None:
    """Consumers stay aligned: an epoch without records still is an increment."""
    arrive(chain)
    chain.commit(an_intention(a_run(), an_increment("s.out", 0, records=0)), finished_at=at(1))
    assert waiting(chain)["t"]["j"] == ["s.out/0"]
    assert chain.connectors("d")["t"]["j"].queue[0].increment.files == ()


def test_committing_again_changes_nothing(chain: SqlStore) -> None:
    """A redo after a crash is no second effect, even once consumers moved on."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    intention = an_intention(run, an_increment("s.out", 0))
    chain.commit(intention, finished_at=at(1))
    other = a_run("r1", stage="t", read={"j": [0], "k": [0]})
    chain.commit(an_intention(other), finished_at=at(2))
    before = waiting(chain), chain.stages("d"), chain.runs().items
    chain.commit(intention, finished_at=at(3))
    assert (waiting(chain), chain.stages("d"), chain.runs().items) == before


def test_epochs_are_committed_in_order(chain: SqlStore) -> None:
    """An intention from the future is refused and changes nothing."""
    arrive(chain)
    with pytest.raises(InvariantError):
        chain.commit(an_intention(a_run(epoch=1, read={"i": [0]})), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0"]}
    assert chain.stages("d")[0].epoch == 0


@pytest.mark.parametrize(
    "chosen", [{"read": {"i": [1]}}, {"remove": {"i": [0, 1]}}, {"read": {"x": [0]}}]
)
def test_a_run_takes_only_what_waits(chain: SqlStore, chosen: dict[str, Any]) -> None:
    """An intention that names what is not queued is refused as a whole."""
    arrive(chain)
    run = a_run(**{"read": {"i": [0]}, "remove": {}, **chosen})
    with pytest.raises(InvariantError):
        chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    assert waiting(chain)["s"] == {"i": ["a/0"]}
    assert chain.next_index("d", "s.out") == 0


def test_a_commit_restores_a_lost_run(chain: SqlStore) -> None:
    """A store that lost its rows learns the run again from the intention."""
    arrive(chain)
    run = a_run("lost")
    chain.commit(an_intention(run, figures={"groups": 2.0}), finished_at=at(1))
    found = chain.run("lost")
    assert (found.status, found.attempt, found.started_at) == (RunStatus.COMMITTED, 1, START)
    assert (found.read, found.figures) == ({"i": (0,)}, {"groups": 2.0})


def test_a_commit_forgets_failures_and_keeps_a_pause(chain: SqlStore) -> None:
    """Success resets the count of tries; only an operator lifts a pause."""
    arrive(chain)
    chain.intend(a_run("r0"))
    chain.fail("r0", {"error_code": "disk_full"}, finished_at=at(1), retry_at=at(2))
    chain.pause_stage("d", "s", "by hand")
    second = a_run("r1", attempt=2)
    chain.intend(second)
    chain.commit(an_intention(second), finished_at=at(3))
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (0, None, "by hand")


def test_a_failure_is_counted_and_explained(chain: SqlStore) -> None:
    """A failed try is shown with its error; its increments stay queued."""
    arrive(chain)
    error = {"error_code": "author_code_failed", "message": "a\x00\ud800", "details": {"n": 1}}
    for n in range(2):
        chain.intend(a_run(f"r{n}"))
        chain.fail(
            f"r{n}", error, finished_at=at(n), retry_at=at(n + 1), pause="gave up" if n else ""
        )
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (2, at(2), "gave up")
    run = chain.run("r1")
    assert (run.status, run.finished_at, run.error) == (RunStatus.FAILED, at(1), error)
    assert waiting(chain)["s"] == {"i": ["a/0"]}


def test_a_failure_without_a_reason_keeps_a_pause(chain: SqlStore) -> None:
    """A stage that was stopped while it ran stays stopped when its run fails."""
    chain.intend(a_run())
    chain.pause_stage("d", "s", "by hand")
    chain.fail("r0", {}, finished_at=at(1), retry_at=at(2))
    assert chain.stages("d")[0].paused_because == "by hand"


def test_a_try_fails_once(chain: SqlStore) -> None:
    """Failing a failed run again is no second failure."""
    chain.intend(a_run())
    for second in (1, 2):
        chain.fail("r0", {}, finished_at=at(second), retry_at=None)
    assert chain.stages("d")[0].failures == 1
    assert chain.run("r0").finished_at == at(1)


def test_a_committed_run_cannot_fail(chain: SqlStore) -> None:
    """What was published is never shown as failed."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    with pytest.raises(InvariantError):
        chain.fail("r0", {}, finished_at=at(2), retry_at=None)
    assert chain.run("r0").status is RunStatus.COMMITTED


def test_a_superseded_try_leaves_the_stage_alone(chain: SqlStore) -> None:
    """The late failure of a try whose epoch another one committed is only recorded."""
    arrive(chain)
    chain.intend(a_run("r0"))
    chain.commit(an_intention(a_run("r1")), finished_at=at(1))
    chain.fail("r0", {}, finished_at=at(2), retry_at=at(9), pause="late")
    stage = chain.stages("d")[0]
    assert (stage.failures, stage.retry_at, stage.paused_because) == (0, None, "")
    assert chain.run("r0").status is RunStatus.FAILED


def test_an_empty_reason_lifts_a_pause(chain: SqlStore) -> None:
    """`pause_stage` sets the reason, whatever it is, of one stage."""
    error = {"error_code": "disk_full", "message": "disk full", "details": {"path": "/x"}}
    chain.pause_stage("d", "s", "disk full", error)
    assert [s.paused_because for s in chain.stages("d")] == ["disk full", ""]
    assert [s.error for s in chain.stages("d")] == [error, None]
    chain.pause_stage("d", "s", "")
    assert [s.paused_because for s in chain.stages("d")] == ["", ""]
    assert [s.error for s in chain.stages("d")] == [None, None]
    chain.pause_stage("d", "s", "disk full", error)
    chain.set_desired("d", "running")
    assert [s.error for s in chain.stages("d")] == [None, None]


# listings


def everything(listing: Callable[[str | None], Any]) -> list[Any]:
    """Turn all pages of a listing."""
    items: list[Any] = []
    cursor = None
    while True:
        page = listing(cursor)
        items += page.items
        if (cursor := page.cursor) is None:
            return items


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
def test_pages_hold_every_item_once_newest_first(chain: SqlStore, limit: int) -> None:
    """Whatever the size of a page: no item twice, none missing, the newest first."""
    for n in range(5):
        arrive(chain)
        chain.commit(an_intention(a_run(f"r{n}", epoch=n)), finished_at=at(n))
    increments = everything(lambda c: chain.increments("d", cursor=c, limit=limit))
    runs = everything(lambda c: chain.runs("d", cursor=c, limit=limit))
    claims = everything(lambda c: chain.claims("d", cursor=c, limit=limit))
    assert [i.increment.index for i in increments] == [4, 3, 2, 1, 0]
    assert [run.id for run in runs] == ["r4", "r3", "r2", "r1", "r0"]
    assert [claim.sequence for claim in claims] == [4, 3, 2, 1, 0]


def test_the_last_page_has_no_cursor(chain: SqlStore) -> None:
    """A listing that fits exactly does not promise more."""
    arrive(chain)
    arrive(chain)
    assert chain.increments("d", limit=2).cursor is None
    assert chain.increments("d", limit=1).cursor is not None


def test_what_arrives_meanwhile_does_not_shift_pages(chain: SqlStore) -> None:
    """The next page goes on after the last item that was shown."""
    for _ in range(3):
        arrive(chain)
    first = chain.increments("d", limit=2)
    arrive(chain)
    second = chain.increments("d", cursor=first.cursor, limit=2)
    assert [i.increment.index for i in (*first.items, *second.items)] == [2, 1, 0]


def test_listings_are_filtered(chain: SqlStore) -> None:
    """Each filter leaves exactly what it names."""
    chain.register(a_dataflow("e"), {"s": {}})
    arrive(chain)
    chain.commit(an_intention(a_run("r0"), an_increment("s.out", 0)), finished_at=at(1))
    chain.intend(a_run("r1", stage="t"))
    chain.intend(a_run("r2", dataflow="e"))
    chain.add_claim(a_claim("open", source="b"))

    def ids(**filters: Any) -> list[str]:
        return [run.id for run in chain.runs(**filters).items]

    assert ids() == ["r2", "r1", "r0"]
    assert ids(dataflow="d") == ["r1", "r0"]
    assert ids(dataflow="d", stage="s") == ["r0"]
    assert ids(status=RunStatus.INTENDED) == ["r2", "r1"]
    assert [i.increment.name for i in chain.increments("d", "s.out").items] == ["s.out/0"]
    assert [c.id for c in chain.claims("d", "b").items] == ["open"]
    assert [c.id for c in chain.claims("d", status="accepted").items] == ["da0"]


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "W10", "WyJydW5zIl0", "bnVsbA", "WyJydW5zIiwxXQ", "eyJhIjoxLCJiIjoyfQ"]
)
def test_an_invented_cursor_is_refused(chain: SqlStore, cursor: str) -> None:
    """A cursor that no listing handed out is the caller's mistake, said as such."""
    with pytest.raises(CursorInvalidError):
        chain.runs(cursor=cursor)


def test_a_cursor_belongs_to_its_listing(chain: SqlStore) -> None:
    """The cursor of one kind of listing is refused by another."""
    arrive(chain)
    arrive(chain)
    with pytest.raises(CursorInvalidError):
        chain.claims("d", cursor=chain.increments("d", limit=1).cursor)


# time, transactions, threads


def test_times_come_back_in_utc(chain: SqlStore) -> None:
    """An instant keeps its microseconds and loses only its zone."""
    local = datetime(2026, 7, 1, 1, 2, 3, 456789, tzinfo=timezone(timedelta(hours=5.5)))
    chain.intend(a_run(started_at=local))
    found = chain.run("r0").started_at
    assert found == local
    assert found.utcoffset() == timedelta(0)


def test_a_time_without_a_zone_is_refused(chain: SqlStore) -> None:
    """What could mean two instants is not stored as one of them."""
    with pytest.raises(InvariantError):
        chain.intend(a_run(started_at=START.replace(tzinfo=None)))


def test_what_is_not_json_is_refused(chain: SqlStore) -> None:
    """A memo that would not come back as it went in is not stored."""
    arrive(chain)
    with pytest.raises(InvariantError):
        chain.commit(an_intention(a_run(), memo=object()), finished_at=at(1))
    assert chain.stages("d")[0].epoch == 0


WRITES: dict[str, Callable[[SqlStore], object]] = {
    "register": lambda store: store.register(a_dataflow("e"), CHAIN),
    "set_desired": lambda store: store.set_desired("d", "paused"),
    "delete": lambda store: store.delete("d"),
    "add_claim": lambda store: store.add_claim(a_claim("c9")),
    "update_claim": lambda store: store.update_claim(a_claim("da0", status="claimed")),
    "accept": lambda store: store.accept(a_claim("c8"), an_arrival(1)),
    "intend": lambda store: store.intend(a_run("r9")),
    "commit": lambda store: store.commit(
        an_intention(a_run("r1"), an_increment("s.out", 0)), finished_at=at(1)
    ),
    "fail": lambda store: store.fail("r1", {}, finished_at=at(1), retry_at=None),
    "pause_stage": lambda store: store.pause_stage("d", "s", "why"),
}


def picture(store: SqlStore) -> list[Any]:
    """Return everything that the store shows."""
    names = [record.name for record in store.dataflows()]
    per_dataflow = [
        (store.stages(n), store.connectors(n), store.claims(n).items, store.increments(n).items)
        for n in names
    ]
    return [store.dataflows(), store.runs().items, *per_dataflow]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_crash_leaves_all_of_a_write_or_nothing(
    chain: SqlStore, store_with_faults: Reopen, name: str, side: str
) -> None:
    """Dying before the commit leaves the old picture; dying after it, the new one."""
    arrive(chain)
    chain.intend(a_run("r1"))
    old = picture(chain)
    dying = store_with_faults(PlannedFaults(f"sql_commit.{side}"))
    with pytest.raises(Crash):
        WRITES[name](dying)
    assert (picture(chain) == old) is (side == "before")


def test_readers_never_see_half_of_a_write(chain: SqlStore, store_with_faults: Reopen) -> None:
    """While a commit is under way, others see the state before it, and do not wait."""
    arrive(chain)
    old, seen = picture(chain), list[Any]()
    slow = store_with_faults(lambda point: seen.append(picture(chain)))
    slow.commit(an_intention(a_run(), an_increment("s.out", 0)), finished_at=at(1))
    before, after = seen
    assert before == old
    assert after == picture(chain) != old


def test_one_transaction_reads_one_state(chain: SqlStore) -> None:
    """What is committed between two reads of one transaction shows in neither."""
    with chain._database.read() as connection:
        first = next_index(connection, "d", "a")
        arrive(chain)
        second = next_index(connection, "d", "a")
    assert (first, second) == (0, 0)
    assert chain.next_index("d", "a") == 1


def test_two_threads_that_commit_one_intention_have_one_effect(
    chain: SqlStore, store_with_faults: Reopen
) -> None:
    """A zombie's commit and the redo of its heir, in any order, count once.

    first    BEGIN, moves the queues, waits ................ COMMIT
    second                             enters commit, waits         sees the new epoch
    """
    second_enters, errors = threading.Event(), list[BaseException]()

    def wait_for_the_second(point: str) -> None:
        if point == "sql_commit.before" and not second_enters.is_set():
            holds.set()
            assert second_enters.wait(30)

    holds = threading.Event()
    arrive(chain)
    run = a_run()
    chain.intend(run)
    intention = an_intention(run, an_increment("s.out", 0))
    slow = store_with_faults(wait_for_the_second)

    def commit(first: bool) -> None:
        try:
            if not first:
                assert holds.wait(30)
                second_enters.set()
            slow.commit(intention, finished_at=at(1))
        except BaseException as exc:
            errors.append(exc)

    in_threads(commit, [True, False])
    assert errors == []
    assert waiting(chain) == {"s": {"i": []}, "t": {"j": ["s.out/0"], "k": ["a/0"]}}
    assert [stage.epoch for stage in chain.stages("d")] == [1, 0]
    assert len(chain.increments("d", "s.out").items) == 1


def in_threads(work: Callable[[Any], None], arguments: Iterable[Any]) -> None:
    """Run a function once per argument, each in its own thread; wait for all."""
    threads = [threading.Thread(target=work, args=(argument,)) for argument in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_many_threads_lose_nothing(store: SqlStore) -> None:
    """Claims, arrivals and reads from many threads leave no gap and no double."""
    store.register(a_dataflow(), CHAIN)
    errors: list[CbpError] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        try:
            for n in range(5):
                claim = store.add_claim(a_claim(f"w{number}n{n}"))
                with lock:
                    store.accept(claim, an_arrival(store.next_index("d", "a")))
                store.connectors("d")
        except CbpError as exc:
            errors.append(exc)

    in_threads(work, range(4))
    assert errors == []
    names = [f"a/{n}" for n in range(20)]
    assert waiting(store) == {"s": {"i": names}, "t": {"j": [], "k": names}}
    assert [claim.sequence for claim in store.claims("d").items] == list(range(19, -1, -1))


@pytest.mark.service
def test_a_server_that_restarted_is_found_again(
    new_postgres_database: Callable[[], str],
) -> None:
    """Connections that the server closed are replaced before a method uses them."""
    url = new_postgres_database()
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with closing(open_store(url)) as store:
        store.register(a_dataflow(), CHAIN)
        engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as connection:
            ended = connection.execute(text(f"SELECT pg_terminate_backend(pid, 10000) {others}"))
            assert ended.all() == [(True,)]
        engine.dispose()
        store.set_desired("d", "paused")
        assert store.dataflow("d").desired == "paused"


LOOP = {"s": {"i": "a", "back": "t.out"}, "t": {"j": "s.out"}, "u": {"k": "s.out"}}


def test_empties_are_not_enqueued_inside_a_cycle(store: SqlStore) -> None:
    """They would go round for ever; readers outside get them, to stay aligned."""
    store.register(a_dataflow(), LOOP)
    arrive(store)
    run = a_run()
    store.intend(run)
    store.commit(an_intention(run, an_increment("s.out", 0, records=0)), finished_at=at(1))
    assert waiting(store) == {"s": {"i": [], "back": []}, "t": {"j": []}, "u": {"k": ["s.out/0"]}}
    arrive(store)
    run = a_run("r1", epoch=1)
    store.intend(run)
    store.commit(an_intention(run, an_increment("s.out", 1)), finished_at=at(2))
    assert waiting(store)["t"] == {"j": ["s.out/1"]}
    assert waiting(store)["u"] == {"k": ["s.out/0", "s.out/1"]}


def test_turns_count_epochs_without_input_from_outside(store: SqlStore) -> None:
    """On a cycle only; one increment from outside begins anew."""
    store.register(a_dataflow(), LOOP)
    seen = []
    arrive(store)
    for epoch, read in enumerate(({"i": (0,)}, {"back": (0,)}, {"back": (1,)}, {"i": (1,)})):
        run = a_run(f"s{epoch}", epoch=epoch, read=read)
        store.intend(run)
        store.commit(an_intention(run, an_increment("s.out", epoch)), finished_at=at(1))
        seen.append({stage.stage: stage.turns for stage in store.stages("d")}["s"])
        run = a_run(f"t{epoch}", stage="t", epoch=epoch, read={"j": (epoch,)})
        store.intend(run)
        store.commit(an_intention(run, an_increment("t.out", epoch)), finished_at=at(1))
        if epoch == 2:
            arrive(store)
    assert seen == [0, 1, 2, 0]
    assert [(stage.stage, stage.turns) for stage in store.stages("d")] == [
        ("s", 0),
        ("t", 4),
        ("u", 0),
    ]


# positions


def test_a_position_is_brought_back_into_an_empty_store(chain: SqlStore) -> None:
    """Epochs, memos, read marks, queues and the next indexes of flows are what they were."""
    for _ in range(3):
        arrive(chain)
    for epoch in range(2):
        run = a_run(f"r{epoch}", epoch=epoch)
        chain.intend(run)
        chain.commit(
            an_intention(run, an_increment("s.out", epoch), memo=[epoch]), finished_at=at(1)
        )
    run = a_run("t0", stage="t", read={"j": (0,)}, remove={})
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(2))
    position = chain.position("d")
    before, stages = waiting(chain), chain.stages("d")
    chain.delete("d")
    chain.register(a_dataflow(), CHAIN)
    for _ in range(4):  # the source's log knows one more by now
        arrive(chain)
    chain.restore(position, at=at(3))
    found = waiting(chain)
    assert found == {
        "s": {"i": [*before["s"]["i"], "a/3"]},
        "t": {"j": before["t"]["j"], "k": [*before["t"]["k"], "a/3"]},
    }
    assert before["t"]["j"][0].endswith("*")
    assert [(s.epoch, s.memo) for s in chain.stages("d")] == [(s.epoch, s.memo) for s in stages]
    assert chain.next_index("d", "s.out") == 2
    assert chain.position("d").stages["t"].connectors["j"] == position.stages["t"].connectors["j"]
    chain.restore(position, at=at(4))
    assert waiting(chain) == found


def test_a_position_never_moves_a_stage_back(chain: SqlStore) -> None:
    """Ahead of it: nothing happens. Partly ahead, or other stages: refused."""
    arrive(chain)
    early = chain.position("d")
    run = a_run("r0")
    chain.intend(run)
    chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    before = waiting(chain)
    chain.restore(early, at=at(2))
    assert waiting(chain) == before
    torn = {**early.stages, "t": replace(early.stages["t"], epoch=1)}
    with pytest.raises(InvariantError):
        chain.restore(replace(early, stages=torn), at=at(2))
    with pytest.raises(InvariantError):
        chain.restore(replace(early, stages={"s": early.stages["s"]}), at=at(2))
    with pytest.raises(NotFoundError):
        chain.restore(replace(early, dataflow="nobody"), at=at(2))
    with pytest.raises(NotFoundError):
        chain.position("nobody")


def test_frames_replace_what_arrived(store: SqlStore) -> None:
    """At a framed input only: in one step, each output increment once; runs consume frames."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    first, second = arrive(store), arrive(store)
    connector = store.connectors("d")["s"]["i"]
    assert (connector.queue, connector.arrived) == ((), (first, second))
    assert connector.framing == Framing()
    assert waiting(store)["t"] == {"j": [], "k": ["a/0", "a/1"]}
    frames = [Increment("a", n, "A", (first.files[0].slice(0, 1),)) for n in range(2)]
    state = Framing({"n": 1}, 3, Increment("a", 2, "B", second.files))
    store.frame("d", "s", "i", index=0, framing=state, frames=frames)
    connector = store.connectors("d")["s"]["i"]
    assert [queued.increment for queued in connector.queue] == frames
    assert (connector.framing, connector.arrived) == (state, (second,))
    assert connector.held == (*frames, second, state.open)
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=0, framing=state, frames=frames)
    with pytest.raises(InvariantError):
        store.frame("d", "t", "k", index=0, framing=state, frames=())
    run = a_run(read={"i": (0, 1)}, remove={"i": (0,)})
    store.intend(run)
    store.commit(an_intention(run), finished_at=at(1))
    queue = store.connectors("d")["s"]["i"].queue
    assert [(queued.increment.index, queued.read) for queued in queue] == [(1, True)]
    run = a_run("r1", epoch=1, read={"i": (0,)})
    store.intend(run)
    with pytest.raises(InvariantError):
        store.commit(an_intention(run), finished_at=at(2))


def test_a_punctuation_waits_until_all_before_it_is_framed(store: SqlStore) -> None:
    """Recorded once, in order; applied once, behind what stands before it and before the rest."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i"), ("t", "k")})
    first = arrive(store)
    made = Punctuation(0, "a", 1, "request", "monday", 5)
    for _ in range(2):
        store.punctuate("d", made)
    with pytest.raises(InvariantError):
        store.punctuate("d", replace(made, number=2, key="x"))
    only = Punctuation(1, "a", 1, "idle", "tuesday", 6, "t.k")
    store.punctuate("d", only)
    assert (store.next_punctuation("d"), store.punctuation("d", "monday")) == (2, made)
    assert store.punctuation("d", "sunday") is None
    assert list(store.punctuations("d").items) == [only, made]
    second = arrive(store)
    found = store.connectors("d")
    assert (found["s"]["i"].closes, found["t"]["k"].closes) == ((1,), (1, 1))
    state = Framing(None, 1, None, 0)
    step: dict[str, Any] = {"framing": state, "frames": ()}
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=None, **step)  # the first increment is before it
    store.frame("d", "s", "i", index=0, framing=state, frames=[first])
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=1, **step)  # the punctuation is before it
    store.frame("d", "s", "i", index=None, **step)
    with pytest.raises(InvariantError):
        store.frame("d", "s", "i", index=None, **step)
    store.frame("d", "s", "i", index=1, framing=state, frames=[replace(second, index=1)])
    connector = store.connectors("d")["s"]["i"]
    assert (connector.closes, connector.arrived, len(connector.queue)) == ((), (), 2)
    with pytest.raises(NotFoundError):
        store.next_punctuation("nobody")
    with pytest.raises(NotFoundError):
        store.punctuate("nobody", made)


def test_a_position_holds_where_framing_stands(store: SqlStore) -> None:
    """Frames, the open one, what is not framed, closes: brought back into an empty store."""
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    first, second = arrive(store), arrive(store)
    open_ = Increment("a", 1, "B", second.files)
    frame = Increment("a", 0, "A", (first.files[0].slice(0, 1),))
    store.frame("d", "s", "i", index=0, framing=Framing([1], 2, open_, 0), frames=[frame])
    store.punctuate("d", Punctuation(0, "a", 2, "request", "monday", 5))
    position, before = store.position("d"), store.connectors("d")
    assert Position.from_json(position.to_json()) == position
    run = a_run(read={"i": (0,)})
    store.intend(run)
    store.commit(an_intention(run), finished_at=at(1))
    later, kept = store.position("d"), store.connectors("d")
    store.delete("d")
    store.register(a_dataflow(), CHAIN, framed={("s", "i")})
    for _ in range(3):  # the source's log knows one more by now
        arrive(store)
    store.restore(later, at=at(2))
    found = store.connectors("d")["s"]["i"]
    assert found == replace(kept["s"]["i"], arrived=(*kept["s"]["i"].arrived, found.arrived[-1]))
    assert (found.closes, found.arrived[-1].index, store.next_punctuation("d")) == ((2,), 2, 1)
    assert before["s"]["i"].queue != found.queue
    store.delete("d")
    store.register(a_dataflow(), CHAIN)
    with pytest.raises(InvariantError):
        store.restore(later, at=at(3))  # here the input is not framed
