"""Events: stored with the change that they tell, read once and in order, and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import create_engine, text

from cbp.errors import CbpError, OperatingError
from controller.store.base import Event, EventCursor, EventRecord, Store, open_store
from tests.conformance.records import a_claim, a_dataflow, a_run, an_increment, an_intention, at
from tests.sampling import examples

WAIT_SECONDS = 120.0


def told_since(store: Store, since: EventRecord) -> list[str]:
    """Return the events behind one, as `kind subject`."""
    events = store.events_after(since.cursor, limit=1000)
    assert events is not None
    return [f"{one.event.kind} {one.event.subject}".strip() for one in events]


def test_each_change_tells_what_changed(chain: Store) -> None:
    """A client that follows the events learns of every change that its screens show."""
    began = chain.newest_event()
    claim = chain.add_claim(a_claim())
    chain.update_claim(a_claim(status="quarantined", reason={"code": "x"}))
    run = a_run(read={})
    chain.intend(run)
    chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(1))
    chain.intend(a_run("r1", epoch=1, read={}))
    chain.fail("r1", {}, finished_at=at(2), retry_at=None, pause="gave up")
    chain.pause_stage("d", "t", "by hand")
    chain.retry_stage("d", "t")
    for _ in range(2):  # the second time changes nothing, so it says nothing
        chain.set_priorities("d", {"s": "normal", "t": "high"})
    chain.set_desired("d", "paused")
    chain.set_desired("d", "running")
    chain.delete("d")
    assert told_since(chain, began) == [
        f"file.arrived {claim.id}",
        f"file.quarantined {claim.id}",
        "run.started r0",
        "run.ended r0",
        "increment.arrived s.out/0",
        "run.started r1",
        "run.failed r1",
        "stage.stopped r1",
        "stage.paused t",
        "stage.resumed t",
        "stage.prioritized t",
        "dataflow.paused",
        "dataflow.resumed",
        "dataflow.deleted",
    ]


def test_many_files_of_one_transaction_are_one_event(chain: Store) -> None:
    """A folder of 20,000 files does not drive all other events out."""
    began = chain.newest_event()
    chain.add_claims([a_claim(f"c{n}") for n in range(50)])
    (event,) = chain.events_after(began.cursor, limit=10) or []
    assert (event.event.kind, event.event.count) == ("file.arrived", 50)


@pytest.mark.parametrize("kept", [False, True])
def test_an_event_shares_the_fate_of_its_change(
    chain: Store, store_with_faults: Callable[..., Store], kept: bool
) -> None:
    """There is no event of a change that was rolled back, and no change without its event."""
    point = "sql_commit.after" if kept else "sql_commit.before"

    def fault(name: str) -> None:
        if name == point:
            message = "here"
            raise OperatingError(message)

    began = chain.newest_event()
    with pytest.raises(OperatingError):
        store_with_faults(fault).intend(a_run(read={}))
    assert [run.id for run in chain.runs("d").items] == (["r0"] if kept else [])
    assert told_since(chain, began) == (["run.started r0"] if kept else [])


def test_an_unknown_place_is_told_apart(store: Store) -> None:
    """A client behind which events are missing must read everything anew."""
    known = store.newest_event()
    assert store.events_after(known.cursor, limit=1) == []
    other_time = EventCursor(known.id, known.at_ms - 1)
    not_yet = EventCursor(known.id + 1, known.at_ms)
    assert store.events_after(other_time, limit=1) is None, "an id of another database"
    assert store.events_after(not_yet, limit=1) is None


def test_old_events_are_forgotten_and_the_newest_stays(store: Store) -> None:
    """Their number and their age have bounds; ids never begin again."""
    store.announce(*(Event(kind="stage.waiting", subject=str(n)) for n in range(10)))
    ten = store.recent_events(limit=10)
    store.forget_events(keep=4, before_ms=0)
    assert store.recent_events(limit=100) == ten[-4:]
    assert store.events_after(ten[5].cursor, limit=9) is None
    assert store.events_after(ten[6].cursor, limit=9) == ten[7:]
    store.forget_events(keep=4, before_ms=ten[-1].at_ms + 1)
    assert store.recent_events(limit=100) == ten[-1:]
    store.announce(Event(kind="stage.waiting"))
    assert store.newest_event().id > ten[-1].id


def test_a_dataflow_is_followed_alone(store: Store) -> None:
    """A filter shows the events of its dataflow, and those that concern all."""
    began = store.newest_event()
    names = ("a", "b", "", "a")
    store.announce(*(Event(kind="stage.waiting", dataflow=name) for name in names))
    events = store.events_after(began.cursor, "a", limit=9) or []
    assert [one.event.dataflow for one in events] == ["a", "", "a"]
    assert [one.event.dataflow for one in store.recent_events("b", limit=2)] == ["b", ""]


@pytest.mark.service
def test_a_writer_that_commits_late_is_not_skipped(
    new_postgres_database: Callable[[], str],
) -> None:
    """On PostgreSQL too, no event appears behind one that a reader has already passed.

    early   writes its event, waits before COMMIT ............. COMMIT
    late                     writes its event: waits for early ........ COMMIT
    reader                                           sees none         sees both, in order
    """
    url, written, go_on = new_postgres_database(), threading.Event(), threading.Event()

    def wait_here(point: str) -> None:
        if point == "sql_commit.before" and threading.current_thread().name.startswith("early"):
            written.set()
            go_on.wait(WAIT_SECONDS)

    with (
        closing(open_store(url, faults=wait_here)) as store,
        ThreadPoolExecutor(1, "early") as early,
        ThreadPoolExecutor(1, "late") as late,
    ):
        for name in ("a", "b"):
            store.register(a_dataflow(name), {})
        place = store.newest_event()
        first = early.submit(store.set_desired, "a", "paused")
        assert written.wait(WAIT_SECONDS)
        second = late.submit(store.set_desired, "b", "paused")
        with _looking(url) as look:
            while not look(_WAITERS) and not second.done():
                pass
            assert look(_LAST_ID) == place.id + 1, "the late one has no id yet"
        seen = store.events_after(place.cursor, limit=9) or []
        go_on.set()
        first.result(WAIT_SECONDS)
        second.result(WAIT_SECONDS)
        behind = seen[-1] if seen else place
        seen += store.events_after(behind.cursor, limit=9) or []
    assert [one.event.dataflow for one in seen] == ["a", "b"]


_WAITERS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
_LAST_ID = "SELECT last_value FROM events_seq_seq"


@contextmanager
def _looking(url: str) -> Iterator[Callable[[str], int]]:
    """Give a function that asks the database for a number, past the store."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect() as connection:
            yield lambda query: int(connection.execute(text(query)).scalar_one())
    finally:
        engine.dispose()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(["a", "b", ""]), st.integers(1, 3)),
        st.tuples(st.just("roll back"), st.sampled_from(["a", "b"]), st.just(1)),
        st.tuples(st.just("read"), st.sampled_from(["a", "all"]), st.integers(1, 3)),
        st.tuples(st.just("forget"), st.just(""), st.integers(1, 6)),
    ),
    max_size=25,
)


def test_every_reader_sees_each_event_once_and_in_order(store: Store) -> None:
    """Whatever is written, rolled back, paged or forgotten in between, unless it must read anew."""

    @settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
    @given(plan=steps)
    def follow(plan: list[tuple[str, str, int]]) -> None:
        place = store.newest_event()
        places = {"a": place.cursor, "all": place.cursor}
        seen: dict[str, list[str]] = {"a": [], "all": []}
        expected: dict[str, list[str]] = {"a": [], "all": []}

        def read(reader: str, limit: int) -> bool:
            actual = store.events_after(
                places[reader], None if reader == "all" else reader, limit=limit
            )
            if actual is None:  # it must read all anew
                places[reader] = store.newest_event().cursor
                expected[reader] = seen[reader][:]
                return False
            seen[reader] += [one.event.subject for one in actual]
            if actual:
                places[reader] = actual[-1].cursor
            return bool(actual)

        for number, (what, name, count) in enumerate(plan):
            subjects = [f"{number}.{n}" for n in range(count)]
            events = [Event(kind="stage.waiting", dataflow=name, subject=s) for s in subjects]
            if what == "write":
                store.announce(*events)
                expected["all"] += subjects
                expected["a"] += subjects if name != "b" else []
            elif what == "roll back":
                with pytest.raises(CbpError):
                    store.intend(a_run(dataflow=name))  # there is no such stage
            elif what == "read":
                read(name, count)
            else:
                store.forget_events(keep=count, before_ms=0)
        for reader in places:
            while read(reader, 2):
                pass
        assert seen == expected

    follow()


def test_ids_of_a_rebuilt_database_are_unknown(tmp_path: Path) -> None:
    """A client of the database until it must read everything anew."""
    with closing(open_store(f"sqlite:///{tmp_path}/before.db")) as store:
        before = store.newest_event()
    with closing(open_store(f"sqlite:///{tmp_path}/after.db")) as store:
        newest = store.newest_event()
        while newest.at_ms == before.at_ms:  # made within one millisecond
            store.announce(Event(kind="stage.waiting"))
            newest = store.newest_event()
        other = EventCursor(newest.id, before.at_ms)
        assert store.events_after(other, limit=1) is None


@pytest.mark.parametrize("word", ["", "7", "7-", "-7", "x-7", "7-7-7", "٣-7", "1" * 19 + "-1"])
def test_a_cursor_that_is_none_is_told_apart(word: str) -> None:
    """What a client sends is no cursor unless the stream could have handed it out."""
    assert EventCursor.parse(word) is None
    assert str(EventCursor.parse("7-1700000000000")) == "7-1700000000000"
