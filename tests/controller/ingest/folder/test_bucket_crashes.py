"""A crash at any effect, and a lost database: each object counts once, and nobody helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.errors import LogConflictError
from controller.ingest.folder.bucket_listing import ObjectIndex
from controller.ingest.limits import FetchLimits
from tests.controller.bucket_server import BucketServer
from tests.controller.ingest.folder.located import Located
from tests.controller.ingest.harness import lines
from tests.controller.ingest.test_recovery import Machine
from tests.planned_faults import Crash, PlannedFaults

POINTS = tuple(
    f"{effect}.{side}"
    for effect in ("feed_position", "claim", "rename", "data_sync", "increment_file", "source_log")
    for side in ("before", "after")
)
ONE_BY_ONE = FetchLimits(noted_together=1, index_records=2)


def located_on(root: Path, server: BucketServer, limits: FetchLimits) -> tuple[Located, Machine]:
    """Return a source over SQLite, with three objects of which the last is refused."""
    machine = Machine(root, "sqlite")
    machine.drop.store.close()
    located = Located(root, server, store=machine.drop.store, reach={"limits": limits})
    machine.drop = located.drop
    machine.restart()
    for number, name in enumerate("ab"):
        server.put(f"orders/{name}", lines(1, start=number))
    server.put("orders/c", b"no json\n")
    return located, machine


def check_once(located: Located, ids: list[int]) -> None:
    """Each sound object is one increment, the other is in quarantine once."""
    drop = located.drop
    for _ in range(2):
        located.take_in()
    assert sorted(located.ids()) == ids
    assert [reason["file"] for reason in drop.reasons()] == ["c"]
    assert drop.names("claimed") == drop.names("incoming") == []
    gets = located.server.gets.copy()
    located.take_in()
    assert located.server.gets == gets
    drop.store.close()


@pytest.mark.part(every=6)
@pytest.mark.parametrize(
    ("point", "passage"),
    [(p, at) for p in POINTS for at in ((2, 1, 3) if p.startswith("feed") else (2,))],
)
def test_a_crash_anywhere_gives_each_object_once(
    point: str, passage: int, server: BucketServer, tmp_path: Path
):
    """A crash at any effect of a fetch and of a pass, a restart, no help."""
    located, machine = located_on(tmp_path, server, ONE_BY_ONE)
    located.drop.start(faults := PlannedFaults(point, passage=passage))

    def play() -> None:
        for number in range(2, 5):
            located.take_in()
            server.put(f"orders/d{number}", lines(1, start=number))

    with pytest.raises(Crash):
        play()
    assert faults.passed[point] == passage
    for number in range(2, 5):
        server.put(f"orders/d{number}", lines(1, start=number))
    machine.restart()
    located.drop.recover()
    check_once(located, [0, 1, 2, 3, 4])


@pytest.mark.part(every=3)
@pytest.mark.parametrize("point", POINTS[1::2])
def test_a_crash_and_a_lost_database_give_each_object_once(
    point: str, server: BucketServer, tmp_path: Path
):
    """The index, the source's log and the folders say what came."""
    located, machine = located_on(tmp_path, server, FetchLimits())
    located.drop.start(PlannedFaults(point))
    with pytest.raises(Crash):
        located.take_in()
    machine.lose_store()
    located.drop.recover()
    check_once(located, [0, 1])


def test_a_lost_database_costs_no_second_fetch(server: BucketServer, tmp_path: Path):
    """Not of a refused object either."""
    located, machine = located_on(tmp_path, server, FetchLimits())
    located.take_in()
    machine.lose_store()
    located.drop.recover()
    located.take_in()
    assert set(server.gets.values()) == {1}
    check_once(located, [0, 1])


def test_a_lost_index_costs_nothing_but_questions(server: BucketServer, tmp_path: Path):
    """The claims are known by their keys; those of accepted files also without the database."""
    located, machine = located_on(tmp_path, server, FetchLimits())
    located.take_in()
    for lose, quarantined, gets in ((machine.restart, 0, {1}), (machine.lose_store, 1, {1, 2})):
        for path in Path(located.drop.record.folder).rglob("_objects/*"):
            path.unlink()
        lose()
        located.drop.recover()
        assert located.take_in() == (0, 0, quarantined)
        assert set(server.gets.values()) == gets
    assert located.ids() == [0, 1]
    located.drop.store.close()


def test_what_a_roll_back_dropped_does_not_come_again(located: Located):
    """Neither if a crash kept it from being noted."""
    server, drop = located.server, located.drop
    server.put("orders/a", lines(1))
    drop.start(PlannedFaults("feed_position.before"))
    with pytest.raises(Crash):
        drop.fetch()
    drop.start()
    drop.scan()
    claims = drop.store.claim_rows
    (claim,) = claims.values()
    claims[claim.id] = replace(claim, status="withdrawn")
    assert located.take_in() == (0, 0, 0)
    assert server.gets == {"orders/a": 1}


def test_an_object_whose_file_was_lost_before_it_was_noted_is_fetched_again(located: Located):
    """Somebody removed the copy: a producer would be asked to drop the file again."""
    server, drop = located.server, located.drop
    server.put("orders/a", lines(1))
    drop.start(PlannedFaults("feed_position.before"))
    with pytest.raises(Crash):
        drop.fetch()
    (copy,) = drop.place("claimed").iterdir()
    copy.unlink()
    drop.start()
    drop.scan()
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == [0]


def test_another_controller_that_noted_objects_meanwhile_is_noticed(
    server: BucketServer, tmp_path: Path
):
    """The one that comes second stops leading, as with a source's log."""
    located = Located(tmp_path, server)

    def other_was_first() -> None:
        files = LocalFiles()
        index = ObjectIndex.load(f"{located.drop.record.folder}/sources/orders", "x", files)
        index.put([("b", next(server.store.pages(server.bucket, ""))[0])])

    server.put("orders/a", lines(1))
    server.on_get("orders/a", other_was_first)
    with pytest.raises(LogConflictError):
        located.drop.fetch()
