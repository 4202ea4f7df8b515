"""Dataflows as the store keeps them: registered, listed, changed, deleted; on every database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cbp.errors import AlreadyExistsError, NotFoundError
from cbp.model.run.intention import RunStatus
from controller.store.access import AuditFilter, AuditRecord
from controller.store.base import Store
from tests.conformance.access_records import a_token
from tests.conformance.records import (
    CHAIN,
    START,
    a_claim,
    a_dataflow,
    a_run,
    an_arrival,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)


def test_what_was_registered_is_returned(store: Store) -> None:
    """A dataflow comes back as it went in, the order of its document's keys included."""
    document = {"b": 1, "a": [None, 1.5, "ä\x00\ud800"], "A": {"z": {}, "y": True}}
    record = a_dataflow(document=document, folder="/ta\udce9bles", version=7)
    store.register(record, {})
    actual = store.dataflow("d")
    assert actual == record
    assert list(actual.document) == ["b", "a", "A"]


def test_dataflows_are_listed_by_name_byte_by_byte(store: Store) -> None:
    """The order of names does not depend on the locale of the database."""
    for name in ("b", "a_b", "ab", "a", "a1"):
        store.register(a_dataflow(name), {})
    assert [record.name for record in store.dataflows()] == ["a", "a1", "a_b", "ab", "b"]


def test_a_name_is_registered_once(chain: Store) -> None:
    """A second dataflow of a name is refused and changes nothing."""
    with pytest.raises(AlreadyExistsError):
        chain.register(a_dataflow(version=2), {"x": {}})
    assert chain.dataflow("d").version == 1
    assert [stage.stage for stage in chain.stages("d")] == ["s", "t"]


def test_new_stages_wait_for_epoch_0_with_empty_connectors(chain: Store) -> None:
    """Registering makes every stage and every input, before anything arrived."""
    first, second = chain.stages("d")
    assert (first.epoch, first.waiting_since, first.memo, first.failures) == (0, START, None, 0)
    assert (first.retry_at, first.paused_because, second.stage) == (None, "", "t")
    assert waiting(chain) == {"s": {"i": []}, "t": {"j": [], "k": []}}


def test_inputs_keep_the_order_of_their_registration(store: Store) -> None:
    """Connectors of a stage come in the order in which its inputs were wired."""
    store.register(a_dataflow(), {"s": {"z": "a", "b": "a", "y": "a"}, "no_inputs": {}})
    assert list(store.connectors("d")["s"]) == ["z", "b", "y"]
    assert store.connectors("d")["no_inputs"] == {}


def test_running_clears_failures_and_pauses_of_its_own_stages(chain: Store) -> None:
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


def test_what_the_operator_wants_is_kept(chain: Store) -> None:
    """The desired status of a dataflow is what was set last."""
    chain.set_desired("d", "paused")
    assert chain.dataflow("d").desired == "paused"


def test_a_state_may_be_set_only_instead_of_another(chain: Store) -> None:
    """What an operator asked for meanwhile stays, and there is no event."""
    began = chain.newest_event()
    chain.set_desired("d", "draining")
    chain.set_desired("d", "running", instead_of="paused")
    assert chain.dataflow("d").desired == "draining"
    chain.set_desired("d", "drained", instead_of="draining")
    assert chain.dataflow("d").desired == "drained"
    told = [one.event.kind for one in chain.events_after(began.cursor, limit=10) or []]
    assert told == ["dataflow.draining", "dataflow.drained"]


def test_delete_leaves_nothing_behind(chain: Store) -> None:
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


def test_delete_keeps_what_belongs_to_no_dataflow(chain: Store) -> None:
    """Tokens go on, and the audit log says afterwards who deleted the dataflow."""
    chain.add_token(a_token("deleter"))
    entry = AuditRecord(
        at=at(0),
        actor="token:deleter",
        scope="admin",
        action="dataflows_delete",
        outcome="done",
        status=204,
        dataflow="d",
    )
    chain.add_audit([entry])
    chain.delete("d")
    assert chain.token("deleter") == a_token("deleter")
    assert [kept.actor for kept in chain.audit(AuditFilter(dataflow="d")).items] == [entry.actor]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.dataflow("x"),
        lambda store: store.set_desired("x", "paused"),
        lambda store: store.delete("x"),
        lambda store: store.add_claim(a_claim(dataflow="x")),
        lambda store: store.update_claim(a_claim("x")),
        lambda store: store.accept_all([(a_claim(dataflow="x"), an_arrival(0, dataflow="x"))]),
        lambda store: store.intend(a_run(dataflow="x")),
        lambda store: store.intend(a_run(stage="x")),
        lambda store: store.commit(an_intention(a_run(stage="x")), finished_at=START),
        lambda store: store.fail("x", {}, finished_at=START, retry_at=None),
        lambda store: store.pause_stage("d", "x", "why"),
        lambda store: store.retry_stage("d", "x"),
        lambda store: store.resume_stage("d", "x"),
        lambda store: store.run("x"),
        lambda store: store.increment("d", "a", 0),
    ],
)
def test_what_does_not_exist_is_not_found(chain: Store, call: Callable[[Store], object]) -> None:
    """A call on a name that nobody knows says so, and never makes it up."""
    with pytest.raises(NotFoundError):
        call(chain)


def test_listings_of_unknown_names_are_empty(store: Store) -> None:
    """Listings do not judge names; they show what there is."""
    assert store.stages("x") == []
    assert store.connectors("x") == {}
    assert store.next_index("x", "a") == 0
    assert store.open_claims("x", "a") == []
    assert store.increments("x").items == []
