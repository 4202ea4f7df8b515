"""Reads over REST as of a snapshot: several tables agree, and pages are whole, while runs go on.

Tables agree at every log entry, and each record comes once. What is not kept, or was before a
change, is a coded error.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.delta.log import DeltaLog
from cbp.engine.direct import LocalEngine
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import CbpError, VersionUnreadableError
from cbp.model.version.version_change import Choice
from controller.api.routing.cursors import ListCursors
from controller.loop.reading.reader import AsOf, Reader
from tests.controller.diamond import KEPT, bystander, shared, started
from tests.controller.reading_client import Client
from tests.controller.world import DIAMOND, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, retention=KEPT)
    yield made
    made.close()


WORDS = ("a", "b", "c", "d", "e")

pytestmark = pytest.mark.usefixtures("without_syncs")


class Follower:
    """Another instance of the service: it answers reads, from a memory of its own."""

    def __init__(self, world: World) -> None:
        self._leader = world.controller
        engine = LocalEngine(cache=str(world.root / "cache-2"))
        self.snapshots = bystander(world, engine)
        self.reading = Reader(
            records=engine.records,
            increments=engine.increments,
            snapshots=self.snapshots,
            **shared(world),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leader, name)


class Expected:
    """What plain Python makes of the arrivals: the tables behind every epoch."""

    def __init__(self, world: World, seed: int = 5) -> None:
        self._world, self._draw = world, random.Random(seed)
        self._last: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.sums: list[dict[str, int]] = []
        self.both: list[dict[str, int]] = []
        self.totals: list[list[tuple[str, int, int]]] = []

    def arrive(self) -> None:
        """Let one increment of each source arrive; nothing runs."""
        epoch = len(self.sums)
        for source, sums in self._last.items():
            drawn = [(self._draw.choice(WORDS), self._draw.randrange(9)) for _ in range(3)]
            self._world.arrive("diamond", source, *drawn)
            for word, n in drawn:
                sums[word] = sums.get(word, 0) + n
            if source == "a":
                told = {word: sums[word] for word, _ in drawn}
                before = self.totals[-1] if self.totals else []
                self.totals.append([*before, *((w, n, epoch) for w, n in sorted(told.items()))])
        self.sums.append(dict(self._last["a"]))
        words = self._last["a"].keys() | self._last["b"].keys()
        self.both.append({w: sum(s.get(w, 0) for s in self._last.values()) for w in words})
        self._world.clock.advance(1)


def check(client: Client, expected: Expected, epochs: dict[str, int], **moment: Any) -> None:
    """Check three tables, and a key, against what the epochs of one snapshot made."""
    left, join = epochs["left"], epochs["join"]
    sums = {} if left < 0 else expected.sums[left]
    kept = client.all("state/left.sums", **moment)
    assert len(kept) == len(sums)
    assert {row["word"]: row["n"] for row in kept} == sums
    told = [(r["word"], r["n"], r["_epoch"]) for r in client.all("flows/left.totals", **moment)]
    assert sorted(told, key=lambda r: (r[2], r[0])) == (expected.totals[left] if left >= 0 else [])
    pairs = {row["word"]: row["l"] + row["r"] for row in client.all("state/join.pairs", **moment)}
    assert pairs == ({} if join < 0 else expected.both[join])
    for word in sums and sorted(sums)[:1]:
        named = {f"_{name}": value for name, value in moment.items()}
        (row,) = client.get("state", "left", "sums", word=word, **named)["items"]
        assert row["n"] == sums[word]


def test_tables_read_over_rest_agree_at_every_log_entry(world: World):
    """Whatever is published meanwhile: state, flows and keys of one snapshot's time."""
    started(world)
    client, expected, seen = Client(world, Follower(world)), Expected(world), set()

    def look(point: str) -> None:
        if point == "log_entry.after":
            taken = client.get("snapshot")
            check(client, expected, taken["epochs"], at=taken["at"])
            seen.add(tuple(taken["epochs"].values()))

    for _ in range(3):
        expected.arrive()
        world.faults.to = look
        world.ticks()
        world.faults.to = lambda point: None
    assert len(seen) > 3


@pytest.mark.parametrize("table", ["state/left.sums", "flows/left.totals"])
def test_pages_are_whole_while_runs_go_on(world: World, table: str):
    """Every record of the first page's snapshot, once; new first pages see what came since."""
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    for _ in range(3):
        expected.arrive()
        world.ticks()
    records, cursor, pages = [], None, 0
    moment: dict[str, Any] = {"epoch": 2} if table.startswith("flows") else {}
    while True:
        answer = client.page(table, cursor, 1, **moment)
        records += [(row["word"], row["n"]) for row in answer["items"]]
        expected.arrive()
        world.ticks()
        pages += 1
        if (cursor := answer["cursor"]) is None:
            break
    assert pages > 2
    wanted = list(expected.sums[2].items())
    if table.startswith("flows"):
        wanted = [(word, n) for word, n, _ in expected.totals[2]]
    assert sorted(records) == sorted(wanted)
    now = {row["word"]: row["n"] for row in client.all("state/left.sums")}
    assert now == expected.sums[-1] != expected.sums[2]


@pytest.mark.soak
def test_every_epoch_can_be_read_again(world: World):
    """Over compactions of states and outputs, and what a roll-back undid, by its time."""
    world.engine_limits = EngineLimits(state_fanout=3)
    world.restart()
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    for _ in range(10):
        expected.arrive()
        world.ticks()
    for epoch in (0, 4, 7, 9):
        check(client, expected, {"left": epoch, "join": epoch}, epoch=epoch)
        for limit in (1, 3, 100):
            own = client.all("state/left.sums", limit, epoch=epoch, stage="left")
            assert {row["word"]: row["n"] for row in own} == expected.sums[epoch]
    before = client.get("snapshot")["at"]
    to = str(3 * 4)  # four epochs of each of the three stages
    world.controller.amendments.roll_back("diamond", to, who="me", why="", pause=True)
    world.ticks()
    now = client.get("snapshot")
    assert set(now["epochs"].values()) == {3}
    check(client, expected, now["epochs"], at=now["at"])
    check(client, expected, {"left": 9, "join": 9}, at=before)


def test_what_is_not_kept_is_told(world: World):
    """A cursor whose version is collected, and an epoch: coded errors, never fewer records."""
    world.engine_limits = EngineLimits(checkpoint_entries=4)
    world.restart()
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    for _ in range(3):
        expected.arrive()
        world.ticks()
    tables = ("state/left.sums", "flows/left.totals")
    cursors = {table: client.page(table, epoch=0, limit=1)["cursor"] for table in tables}
    for _ in range(3):  # all tables begin at one checkpoint then
        expected.arrive()
        world.ticks()
    world.clock.advance(7200)
    expected.arrive()
    world.ticks()
    folder = world.store.dataflow("diamond").folder
    for node in world.controller.dataflow("diamond").stages.values():
        world.engine.garbage.collect(folder, node, queued=set, retention=KEPT)
    for table, cursor in cursors.items():
        assert code_of(partial(client.page, table, cursor)) == "version_gone"
    names = (("name", "diamond"), ("stage", "left"), ("state", "sums"))
    unknown = ListCursors(("state_page", *names)).seal("v999.0.0")
    assert code_of(lambda: client.page("state/left.sums", unknown)) == "version_gone"
    for epoch in (0, 900):
        assert code_of(partial(client.page, "flows/left.totals", epoch=epoch)) == "not_found"
        for stage in DIAMOND["stages"]:
            ask = partial(client.get, "snapshot", epoch=epoch, stage=stage)
            assert code_of(ask) == "not_found", stage
    check(client, expected, dict.fromkeys(("left", "join"), len(expected.sums) - 1), at=None)


def test_a_file_that_is_collected_meanwhile_is_told(world: World):
    """Between the version and its files: an error, not a page with less."""
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    expected.arrive()
    world.ticks()
    before = client.get("snapshot")["at"]
    table = Path(world.store.dataflow("diamond").folder) / "state/left.sums"
    old = set(DeltaLog(str(table), world.files).snapshot().live)
    while old & (live := set(DeltaLog(str(table), world.files).snapshot().live)):
        world.clock.advance(1)
        expected.arrive()
        world.ticks()
    for file in old - live:
        (table / file).unlink()
    index_cache.cache_clear()
    world.restart()
    client = Client(world, world.controller)
    assert code_of(lambda: client.all("state/left.sums", at=before)) == "version_gone"


def test_a_file_of_the_newest_version_that_is_gone_was_not_collected(world: World):
    """No operator may remove it, so it is a damage, and is reported as one."""
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    expected.arrive()
    world.ticks()
    folder = Path(world.store.dataflow("diamond").folder)
    for file in (folder / "flows/left.totals").rglob("*.parquet"):
        file.unlink()
    assert code_of(lambda: client.page("flows/left.totals", epoch=0)) == "file_lost"


def test_a_state_from_before_a_change_is_refused(world: World):
    """Its buckets are others, so that a key would be looked for in the wrong files."""
    started(world)
    client, expected = Client(world, world.controller), Expected(world)
    expected.arrive()
    world.ticks()
    before = client.get("snapshot")["at"]
    world.clock.advance(1)
    stages = {**DIAMOND["stages"], "left": {**DIAMOND["stages"]["left"], "buckets": 4}}
    world.controller.change({**DIAMOND, "stages": stages}, choice=Choice())
    world.clock.advance(1)
    assert code_of(lambda: client.all("state/left.sums", at=before)) == "version_unreadable"
    as_of = AsOf(at_ms=int(world.clock().timestamp() * 1000) - 1500)
    with pytest.raises(VersionUnreadableError) as unreadable:
        world.controller.reading.look_up("diamond", "left", "sums", {"word": "a"}, as_of)
    assert str(unreadable.value.details["path"]).endswith("state/left.sums")
    now = {row["word"]: row["n"] for row in client.all("state/left.sums")}
    assert now == expected.sums[0]


def test_what_cannot_be_read_so_is_refused(world: World):
    """A source has no epochs; a cursor of other pages is none of these."""
    started(world)
    client = Client(world, world.controller)
    assert code_of(lambda: client.page("flows/a", epoch=0)) == "source_unversioned"
    assert code_of(lambda: client.page("state/left.sums", "0.0")) == "cursor_invalid"
    assert code_of(lambda: client.page("flows/left.totals", "0.0", at=when(world))) == (
        "cursor_invalid"
    )
    assert code_of(lambda: client.page("state/left.no")) == "not_found"


def when(world: World) -> str:
    return world.clock().isoformat()


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(CbpError) as caught:
        call()
    return str(caught.value.details.get("rule") or caught.value.as_dict()["error_code"])
