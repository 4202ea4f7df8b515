"""Figures of all dataflows at once are those that the queues of each dataflow have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from controller.store.base import Store, open_store
from tests.conformance.records import a_claim, a_dataflow, arrive


def test_gauges_are_what_the_queues_hold(chain: Store) -> None:
    """Increments, records and bytes of every input, the empty ones too, and the oldest unread."""
    chain.register(a_dataflow("other"), {"s": {"i": "x"}})
    for records in (3, 4):
        arrive(chain, records=records)
    chain.pause_stage("d", "t", "by hand")
    gauges = chain.gauges()
    shown = {
        (q.dataflow, q.stage, q.input): (q.increments, q.records, q.bytes) for q in gauges.queues
    }
    assert shown == {
        (name, stage, input_): (len(connector.queue), connector.records, connector.bytes)
        for name in ("d", "other")
        for stage, inputs in chain.connectors(name).items()
        for input_, connector in inputs.items()
    }
    assert shown["d", "s", "i"] == (2, 7, 70)
    oldest = {(q.stage, q.input): q.oldest_at for q in gauges.queues if q.dataflow == "d"}
    assert oldest["s", "i"] == chain.increment("d", "a", 0).created_at
    assert oldest["t", "j"] is None
    stages = {(s.dataflow, s.stage): s.paused_because for s in gauges.stages}
    assert stages == {("d", "s"): "", ("d", "t"): "by hand", ("other", "s"): ""}
    assert gauges.unreadable == frozenset()


def test_files_in_quarantine_are_counted_by_source(chain: Store) -> None:
    """Neither claims of other states nor other sources count."""
    for number, status in enumerate(("quarantined", "quarantined", "claimed")):
        claim = chain.add_claim(a_claim(f"c{number}"))
        chain.update_claim(a_claim(claim.id, sequence=claim.sequence, status=status))
    assert chain.quarantined() == {("d", "a"): 2}
    assert chain.quarantined_of("d", ["a", "b"]) == {"a": 2}
    assert chain.quarantined_of("d", ["b"]) == chain.quarantined_of("other", ["a"]) == {}


def test_counting_files_in_quarantine_reads_few_claims(tmp_path: Path) -> None:
    """Each count reads an index that has only these files: it is made often, over many claims."""
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        statements.append((statement, values))

    with closing(open_store(f"sqlite:///{tmp_path}/cbp.db")) as store:
        event.listen(Engine, "before_cursor_execute", note)
        try:
            store.quarantined_of("d", ["a"])
            store.quarantined()
        finally:
            event.remove(Engine, "before_cursor_execute", note)
    counts = [one for one in statements if "FROM claims" in one[0]]
    assert len(counts) == 2
    with closing(sqlite3.connect(tmp_path / "cbp.db")) as connection:
        plans = [
            connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
            for text, values in counts
        ]
        (index,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'ix_claims_quarantined'"
        ).fetchone()
    assert all("ix_claims_quarantined" in plan[0][-1] for plan in plans), plans
    assert index.endswith("WHERE status = 'quarantined'")


def test_the_stages_of_all_dataflows_are_those_of_each(chain: Store) -> None:
    """One statement has the same records as one for each dataflow, in the same order."""
    chain.register(a_dataflow("other"), {"s": {"i": "x"}})
    chain.pause_stage("d", "t", "by hand")
    assert chain.all_stages() == [*chain.stages("d"), *chain.stages("other")]
    assert len(chain.all_stages()) == 3


def test_what_is_queued_and_what_is_paused_is_found_without_the_rest(chain: Store) -> None:
    """Names of dataflows with an increment in any queue; of stages only those that are paused."""
    chain.register(a_dataflow("other"), {"s": {"i": "x"}})
    assert chain.queued() == set()
    assert chain.paused_stages() == {}
    arrive(chain, records=3)
    chain.pause_stage("d", "t", "by hand")
    assert chain.queued() == {"d"} == {q.dataflow for q in chain.gauges().queues if q.increments}
    assert chain.paused_stages() == {"d": {"t": "by hand"}}


def test_the_oldest_increment_that_waits_is_that_of_any_queue(chain: Store) -> None:
    """Each dataflow has its own; one with empty queues has none."""
    chain.register(a_dataflow("other"), {"s": {"i": "x"}})
    for records in (3, 4):
        arrive(chain, records=records)
    assert chain.gauges().oldest_waiting() == {"d": chain.increment("d", "a", 0).created_at}
