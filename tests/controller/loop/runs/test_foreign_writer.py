"""Somebody else writes into a table of a service at work: it stops, is mended, and goes on.

Real writes of another engine (delta-rs), through the whole way: `cbp release`, the write, the run
that meets it, the paused stage, `cbp repair`, resume. What Spark's own INSERT, OPTIMIZE and RESTORE
leave is recognised, and undone, in `tests/cbp/engine/delta/test_readers.py`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from cbp import Input, Translate, View
from cbp.engine.delta.actions import CommitInfo, RemoveFile, encode
from cbp.engine.delta.log import DeltaLog
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.failpoints import NO_FAULTS
from controller.cli import main
from tests.change_feeds import apply_feed, feed_by_delta_rs, records_at
from tests.controller.crashes import rows
from tests.controller.world import ONE, World, only_stage

pytestmark = pytest.mark.usefixtures("without_syncs")

STATE, OUTPUT = "state/sum.sums", "flows/sum.totals"
IDLE = "idle"
ARRIVALS = 5
MET_AT = 3
"""The arrival whose run meets the foreign writer."""

Cbp = Callable[..., Any]


@pytest.fixture
def cbp(capsys: pytest.CaptureFixture[str]) -> Cbp:
    """Run a command that needs no service, and return its JSON."""

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--json"])
        printed = capsys.readouterr()
        assert not ended.value.code, printed
        return json.loads(printed.out)

    return run


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same arrivals, and nobody else."""
    made = World(tmp_path_factory.mktemp("unbroken"), engine=LocalEngine)
    made.controller.register(ONE)
    for number in range(ARRIVALS):
        arrive(made, number)
    yield made
    made.close()


def arrive(world: World, number: int) -> None:
    world.arrive("one", "a", ("x", 1), (f"y{number % 2}", number))
    world.ticks()


def insert(path: str) -> None:
    """Append what the table shows: every record is there twice."""
    shown = QueryBuilder().register("t", DeltaTable(path)).execute("select * from t").read_all()
    write_deltalake(path, shown, mode="append")


def optimize(path: str) -> None:
    """Write small files together: a redo by paths would then double their rows."""
    assert DeltaTable(path).optimize.compact()["numFilesRemoved"] > 1


def restore(path: str) -> None:
    """Go back to an earlier version; Delta's transactions do not go back with it."""
    assert DeltaTable(path).restore(2)["numRemovedFile"] > 0


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("write", "operation", "table", "moment"),
    [
        (insert, "WRITE", STATE, IDLE),
        (restore, "RESTORE", STATE, IDLE),
        (optimize, "OPTIMIZE", STATE, "intention.before"),
        (restore, "RESTORE", OUTPUT, "intention.after"),
        (insert, "WRITE", OUTPUT, "log_entry.before"),
        (optimize, "OPTIMIZE", STATE, "log_entry.before"),
    ],
)
def test_a_run_meets_a_foreign_writer_and_goes_on_once_it_is_repaired(
    write: Callable[[str], None],
    operation: str,
    table: str,
    moment: str,
    tmp_path: Path,
    unbroken: World,
    cbp: Cbp,
) -> None:
    """Whenever it writes: version and engine are named, nothing is lost, guessed or doubled.

    Before the run reads; when the job is done and not recorded; recorded and not published;
    between the look at the log and the put of the entry.
    """
    world = World(tmp_path / "world", engine=LocalEngine)
    path = f"{world.tables}/one/{table}"
    wrote: list[int] = []

    def intrude(point: str) -> None:
        if point == moment and not wrote:
            wrote.append(cbp("release", path)["version"] + 1)
            write(path)

    world.controller.register(ONE)
    for number in range(ARRIVALS):
        if number == MET_AT:
            intrude(IDLE)
            world.faults.to = intrude
        arrive(world, number)
    world.faults.to = NO_FAULTS

    (version,) = wrote
    paused = only_stage(world).paused_because
    assert f"version {version} was written by delta-rs" in paused
    assert f"({operation})" in paused
    assert "cbp repair" in paused
    assert DeltaTable(path).version() == version
    assert only_stage(world).epoch == MET_AT

    undone = cbp("repair", path)["undone"]
    assert [(one["version"], one["operation"]) for one in undone] == [(version, operation)]
    world.controller.resume("one")
    world.ticks()
    assert only_stage(world).paused_because == ""
    assert world.picture() == unbroken.picture()
    assert world.picture()["one sum.sums"] == rows(("x", 5), ("y0", 6), ("y1", 4))
    for name in (STATE, OUTPUT):
        mine, expected = (
            pl.scan_delta(f"{one.tables}/one/{name}").collect() for one in (world, unbroken)
        )
        assert sorted(mine.rows()) == sorted(expected.rows())
    world.close()


class Newest(Translate):
    """The newest number of each word."""

    items = Input("word STRING, n BIGINT", route_by="word")
    newest = View("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit it."""
        out.newest(key.word, [row.n for row in (*group.newest, *group.items)][-1])


@pytest.mark.part(every=3)
@pytest.mark.parametrize("write", [insert, optimize, restore])
def test_the_feed_of_a_view_undoes_what_a_foreign_writer_wrote(
    write: Callable[[str], None], tmp_path: Path, cbp: Cbp
) -> None:
    """A follower from before the foreign entry has the view's records after the repair."""
    limits = EngineLimits(state_fanout=50)
    world = World(tmp_path / "world", engine=LocalEngine, engine_limits=limits)
    world.translators["newest"] = Newest
    world.restart()
    stage = {"translator": "newest", "inputs": {"items": "a"}, "buckets": 2}
    world.controller.register({**ONE, "stages": {"newest": stage}})

    def come(numbers: range) -> None:
        for number in numbers:
            words = [("x", number), (f"y{number % 2}", number), (f"z{number}", 0)]
            world.arrive("one", "a", *words)
            world.clock.advance(1)
            world.ticks()

    come(range(4))
    path = f"{world.tables}/one/state/newest.newest"
    before = DeltaTable(path).version()
    shown = records_at(path)
    cbp("release", path)
    write(path)
    foreign = DeltaTable(path).version()
    cbp("repair", path)
    feed = feed_by_delta_rs(path)
    changes = feed.get(foreign + 1, Counter())
    back = records_at(path, foreign)
    for (kind, record), times in changes.items():
        back[record] += times if kind in ("insert", "update_postimage") else -times
    assert +back == records_at(path) == shown
    assert sum(changes.values()) <= 2 * len(shown)
    world.restart()
    world.controller.recover()
    world.controller.resume("one")
    come(range(4, 6))
    after = {
        version: rows_ for version, rows_ in feed_by_delta_rs(path).items() if version > foreign
    }
    now = records_at(path, foreign + 1)
    for version in sorted(after):
        if version > foreign + 1:
            now = apply_feed(now, after[version], [0])
    assert now == records_at(path)
    assert before < foreign
    world.close()


def test_a_restart_meets_who_ignores_the_fence_with_epochs_waiting(
    tmp_path: Path, unbroken: World, cbp: Cbp
) -> None:
    """Recorded epochs are not published over its entry; repaired, they are."""
    world = World(tmp_path / "world", engine=LocalEngine)
    world.controller.register({**ONE, "publish": {"epochs": MET_AT, "seconds": 60.0}})
    for number in range(MET_AT + 1):
        arrive(world, number)
    path = f"{world.tables}/one/{STATE}"
    log = DeltaLog(path, world.files)
    shown = log.snapshot()
    removed = [RemoveFile.of(file, deletion_ms=1) for file in shown.live.values()]
    entry = encode([CommitInfo(1, "DELETE", engine="Someone/1"), *removed])
    world.files.put_if_absent(log.entry_path(shown.version + 1), entry)

    world.restart()
    world.controller.recover()
    for number in range(MET_AT + 1, ARRIVALS):
        arrive(world, number)
    paused = only_stage(world).paused_because
    assert f"version {shown.version + 1} was written by Someone/1 (DELETE)" in paused
    assert log.latest_version() == shown.version + 1
    cbp("repair", path)
    world.controller.resume("one")
    world.ticks()
    world.controller.drain(1.0)
    assert world.picture() == unbroken.picture()
    world.close()
