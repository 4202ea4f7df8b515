"""Every kind of damage, made on real files: it is named, found, and mended as the page says.

Real tables of the engine without Spark. A damage stops its stage with a code, a file and a next
step; a scrub and `cbp doctor` name the same file; the command of `cbp help damage` gives the
tables of a service to which nothing happened; the other dataflow never stops.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.engine.read.scrub import scrub
from cbp.engine.state.index_cache import index_cache
from cbp.errors import CbpError, FileDamagedError
from cbp.model.version.version_change import Choice
from controller.cli import main
from controller.cli.maintenance.doctor import examine
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.damaging import (
    cut,
    flip,
    remove,
    the_last,
    zero,
)
from tests.controller.live import live
from tests.controller.lost import lose_the_store
from tests.controller.world import ONE, World
from tests.guides.damages import DAMAGES

OTHER = {**ONE, "name": "other"}


ARRIVALS = 5


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Give a service that has one arrival to come."""
    made = World(tmp_path / "world", engine=LocalEngine)
    made.controller.register(ONE)
    made.controller.register(OTHER)
    for number in range(ARRIVALS - 1):
        arrive(made, number)
    yield made
    made.close()


def arrive(world: World, number: int) -> None:
    """Bring an increment to both dataflows."""
    for name in ("one", "other"):
        world.arrive(name, "a", ("x", 1), (f"y{number % 2}", number))
    world.ticks()


pytestmark = pytest.mark.usefixtures("without_syncs")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What is in the tables where nothing is damaged."""
    world = World(tmp_path_factory.mktemp("unbroken"), engine=LocalEngine)
    world.controller.register(ONE)
    world.controller.register(OTHER)
    for number in range(ARRIVALS):
        arrive(world, number)
    yield world.picture()
    world.close()


def restart(world: World) -> None:
    """Start the service anew: nothing that was read before is in memory."""
    index_cache.cache_clear()
    world.restart()
    world.controller.recover()


def looked(world: World) -> dict[str, str]:
    """Return what a scrub of both dataflows finds: path to code."""
    actual = {}
    for name in ("one", "other"):
        for look in scrub(f"{world.tables}/{name}", world.files):
            if look.damage is not None:
                actual[look.damage.path] = look.damage.code
    return actual


def doctor(world: World) -> list[str]:
    """Return what `cbp doctor` says of damages."""
    settings = Settings(root=world.root, tables=world.tables, database_url="sqlite:///none.db")
    checks = examine(Session(settings))
    return [check.found for check in checks if check.name == "damage"]


def backfill(world: World) -> None:
    """Do what `cbp backfill one sum` does."""
    world.controller.change(ONE, choice=Choice(rebuild=frozenset({"sum"})))


def state_of(picture: dict[str, Any]) -> Any:
    return picture["one sum.sums"]


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("pattern", "damage", "code"),
    [
        ("state/*/_runs/*/*.parquet", flip, "file_damaged"),
        ("state/*/_runs/*/*.parquet", remove, "file_lost"),
        ("_intentions/sum/*.json", flip, "file_damaged"),
        ("_intentions/sum/*.json", remove, "file_lost"),
    ],
)
def test_a_damage_of_state_or_record_stops_its_stage_and_a_backfill_mends_it(
    pattern: str,
    damage: Callable[[Path], None],
    code: str,
    world: World,
    unbroken: dict[str, Any],
) -> None:
    """It is tried once, not three times; the state is then that of an undamaged run."""
    path = the_last(world, pattern)
    damage(path)
    assert looked(world) == {str(path): code}
    (told,) = doctor(world)
    assert str(path) in told
    assert code in told
    if "_intentions" in pattern:
        # A publication that died: not all tables show the epoch, so its record is needed.
        remove(the_last(world, "flows/sum.totals/_delta_log/*.json"))
    restart(world)
    arrive(world, ARRIVALS - 1)
    (stage,) = world.store.stages("one")
    assert str(path) in stage.paused_because
    assert "`cbp backfill one sum`" in stage.paused_because
    assert stage.failures <= 1
    assert world.store.stages("other")[0].epoch == ARRIVALS
    if stage.error is not None:
        assert stage.error["error_code"] == code

    backfill(world)
    world.ticks()
    world.controller.resume("one")
    world.ticks()
    picture = world.picture()
    assert world.store.stages("one")[0].paused_because == ""
    assert state_of(picture) == state_of(unbroken)
    assert picture["other sum.sums"] == unbroken["other sum.sums"]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("damage", [flip, cut, zero, remove])
def test_a_damaged_record_of_an_epoch_that_the_tables_show_stops_nothing(
    damage: Callable[[Path], None], world: World, unbroken: dict[str, Any]
) -> None:
    """The tables name all entries of its publication, and all are there: nobody needs it."""
    path = the_last(world, "_intentions/sum/*.json")
    damage(path)
    assert set(looked(world)) == {str(path)}
    restart(world)
    arrive(world, ARRIVALS - 1)
    restart(world)
    assert world.picture() == unbroken


@pytest.mark.part(every=9)
@pytest.mark.parametrize("damage", [flip, cut, zero, remove])
@pytest.mark.parametrize(
    "pattern",
    ["_description/*.json", "state/sum.sums/_delta_log/*0.json", "flows/*/_delta_log/*2.json"],
)
def test_a_damaged_log_or_description_stops_its_dataflow_and_names_its_file(
    damage: Callable[[Path], None], pattern: str, world: World, unbroken: dict[str, Any]
) -> None:
    """Nothing is guessed, a scrub finds it, the other dataflow goes on, and a backup mends it."""
    path = the_last(world, pattern)
    whole = path.read_bytes()
    damage(path)
    code = "file_lost" if damage is remove else "file_damaged"
    assert looked(world) == {str(path): code}
    restart(world)
    arrive(world, ARRIVALS - 1)
    told = [stage.error or {} for stage in world.store.stages("one")]
    waits = [world.controller.tick().waits.get(("one", "sum"))]
    errors = [one.error.as_dict() for one in waits if one and isinstance(one.error, CbpError)]
    assert [one["details"].get("path") for one in (*told, *errors) if one][:1] == [str(path)]
    assert {one["error_code"] for one in (*told, *errors) if one} == {code}
    assert world.store.stages("one")[0].epoch == ARRIVALS - 1
    assert world.store.stages("other")[0].epoch == ARRIVALS
    path.write_bytes(whole)
    restart(world)
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == unbroken


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    "pattern",
    [
        "state/*/_runs/_bucket=*/*.parquet",
        "flows/*/_runs/*.parquet",
        "sources/a/*.parquet",
        "_intentions/sum/*.json",
        "state/*/_delta_log/*.json",
    ],
)
def test_a_whole_file_in_place_of_another_is_found(
    pattern: str, world: World, unbroken: dict[str, Any]
) -> None:
    """Two files exchanged, or an old copy put back, are no damage by their checksums alone."""
    first, second = sorted((Path(world.tables) / "one").glob(pattern))[-2:]
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert looked(world) == dict.fromkeys(map(str, (first, second)), "file_damaged")
    restart(world)
    arrive(world, ARRIVALS - 1)
    refused = world.store.stages("one")[0].paused_because
    with suppress(FileDamagedError):
        assert world.picture() == unbroken or refused
    assert world.store.stages("other")[0].epoch == ARRIVALS
    first.write_bytes(one)
    second.write_bytes(two)
    assert looked(world) == {}


@pytest.mark.parametrize("table", ["state/sum.sums", "flows/sum.totals"])
def test_an_old_copy_of_a_tables_log_is_no_table_to_go_on_from(
    table: str, world: World, unbroken: dict[str, Any]
) -> None:
    """What was published last is made again; of more than that the log is missed, by its path."""
    logs = sorted((Path(world.tables) / "one" / table / "_delta_log").glob("*.json"))
    remove(logs[-1])
    restart(world)
    assert logs[-1].exists()
    whole = [path.read_bytes() for path in logs[-2:]]
    for path in logs[-2:]:
        remove(path)
    restart(world)
    arrive(world, ARRIVALS - 1)
    (stage,) = world.store.stages("one")
    assert (stage.epoch, stage.error and stage.error["error_code"]) == (ARRIVALS - 1, "file_lost")
    assert str(logs[-2]) in stage.paused_because
    assert world.store.stages("other")[0].epoch == ARRIVALS
    for path, data in zip(logs[-2:], whole, strict=True):
        path.write_bytes(data)
    restart(world)
    world.controller.resume("one")
    world.ticks()
    assert world.picture() == unbroken


def test_a_flipped_bit_of_state_is_never_an_answer(world: World) -> None:
    """Who asks for a key, or reads the state, gets the error with its file, and no other record."""
    path = the_last(world, "state/*/_runs/*/*.parquet")
    whole = path.read_bytes()
    node = world.controller.dataflow("one").stages["sum"]
    folder = world.store.dataflow("one").folder
    expected = sorted(map(repr, world.engine.records.read_state(folder, node, "sums")))
    refused = 0
    for place in range(4, len(whole), len(whole) // 16):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        restart(world)
        try:
            actual = sorted(map(repr, world.engine.records.read_state(folder, node, "sums")))
        except FileDamagedError as error:
            refused += 1
            if error.details["path"] != str(path):
                raise
        else:
            assert actual == expected
    assert refused >= 15


def test_repair_of_a_table_that_lost_a_file_says_that_it_cannot(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no table that others wrote to: 1 is its status, and the next step is named."""
    path = the_last(world, "state/*/_runs/*/*.parquet")
    remove(path)
    with pytest.raises(SystemExit) as ended:
        main(["repair", f"{world.tables}/one/state/sum.sums", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1
    assert told["error_code"] == "table_not_repairable"
    assert str(path) in told["message"]
    assert "cbp backfill one sum" in told["message"]


def test_a_roll_back_mends_a_damaged_output(world: World, unbroken: dict[str, Any]) -> None:
    """Runs make the records of the epoch again, from input that is retained."""
    path = the_last(world, "flows/sum.totals/_runs/*.parquet")
    flip(path)
    (look,) = (one for one in scrub(f"{world.tables}/one", world.files) if one.damage)
    assert look.damage is not None
    assert "`cbp rollback one --to POINT`" in look.damage.next_step
    amendments = world.controller.amendments
    amendments.roll_back("one", f"sum:{ARRIVALS - 3}", who="me", why="a damaged output")
    world.ticks()
    arrive(world, ARRIVALS - 1)
    picture = world.picture()
    for name in ("one sum.sums", "one sum.totals", "one epochs", "other sum.totals"):
        assert picture[name] == unbroken[name]


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("pattern", "damage", "code"),
    [
        ("state/*/_delta_log/*0.json", flip, "file_damaged"),
        ("flows/*/_delta_log/*2.json", remove, "file_lost"),
        ("_description/*.json", flip, "file_damaged"),
        ("_description/*.json", remove, "file_lost"),
    ],
)
def test_a_dataflow_whose_log_is_damaged_can_be_deleted_and_begin_anew(
    pattern: str,
    damage: Callable[[Path], None],
    code: str,
    world: World,
    unbroken: dict[str, Any],
) -> None:
    """The way that the page names where no backup is: it goes, with its tables, and comes again."""
    path = the_last(world, pattern)
    damage(path)
    assert looked(world) == {str(path): code}
    restart(world)
    world.controller.delete("one", purge=True)
    world.controller.register(ONE)
    for number in range(ARRIVALS):
        world.arrive("one", "a", ("x", 1), (f"y{number % 2}", number))
        world.ticks()
    picture = world.picture()
    assert picture["one sum.sums"] == unbroken["one sum.sums"]
    assert picture["one sum.totals"] == unbroken["one sum.totals"]
    assert looked(world) == {}


@pytest.mark.parametrize(
    ("pattern", "damage", "code"),
    [
        ("_runs/BUCKET/000000000000-*.parquet", flip, "file_damaged"),
        ("_runs/BUCKET/000000000000-*.parquet", remove, "file_lost"),
        ("_vectors/*.bin", flip, "file_damaged"),
        ("_vectors/*.bin", remove, "file_lost"),
    ],
)
def test_a_request_for_a_key_says_which_file_is_damaged(
    pattern: str,
    damage: Callable[[Path], None],
    code: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is no key that is missing (404): over REST and `cbp state`, with file and next step."""
    service = live(tmp_path / "world")
    service.world.controller.register(ONE)
    service.world.arrive("one", "a", *((f"k{number}", number) for number in range(3000)))
    service.world.ticks()
    service.world.arrive("one", "a", ("k7", 1))
    service.world.ticks()
    bucket = the_last(service.world, "state/sum.sums/_runs/*/000000000001-*").parent.name
    path = the_last(service.world, f"state/sum.sums/{pattern.replace('BUCKET', bucket)}")
    damage(path)
    service.world.close()
    index_cache.cache_clear()
    shutil.rmtree(tmp_path / "world" / "cache", ignore_errors=True)
    service = live(tmp_path / "world")
    with pytest.raises(SystemExit) as ended:
        main(["state", "one", "sum.sums", "word=k7", "--json"], session=service.session)
    told = json.loads(capsys.readouterr().out)
    assert (ended.value.code, told["error_code"]) == (1, code)
    assert told["details"]["path"] == str(path)
    assert "cbp backfill one sum" in told["message"]
    service.world.close()


def test_a_lost_database_is_brought_back_and_the_next_epochs_are_exact(
    tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    """Tables, records and descriptions are enough; what was damaged of them is said before."""
    world = World(tmp_path / "world", engine=LocalEngine)
    world.controller.register(ONE)
    for number in range(ARRIVALS - 1):
        world.arrive("one", "a", ("x", 1), (f"y{number % 2}", number))
        world.ticks()
    new = lose_the_store(world, tmp_path / "new", {"a": ARRIVALS - 1})
    new.arrive("one", "a", ("x", 1), (f"y{(ARRIVALS - 1) % 2}", ARRIVALS - 1))
    new.ticks()
    picture = new.picture()
    assert picture == {name: unbroken[name] for name in picture}
    assert picture["one epochs"] == {"sum": ARRIVALS}
    new.close()
    world.close()


def test_a_damaged_checkpoint_is_passed_over_where_the_entries_are_there(world: World) -> None:
    """It repeats the log; the scrub says it all the same."""
    log = Path(world.tables) / "one" / "state" / "sum.sums" / "_delta_log"
    checkpoint = log / f"{2:020d}.checkpoint.parquet"
    checkpoint.write_bytes(b"PAR1 is not enough PAR1")
    assert looked(world) == {str(checkpoint): "file_damaged"}
    restart(world)
    arrive(world, ARRIVALS - 1)
    assert world.store.stages("one")[0].epoch == ARRIVALS


def test_a_scrub_finds_each_damage_by_itself_and_none_in_what_is_whole(world: World) -> None:
    """One of every kind at a time, and all of them together; nothing is said of the others."""
    assert looked(world) == {}
    patterns = (
        "state/*/_runs/*/*.parquet",
        "flows/*/_runs/*.parquet",
        "sources/a/*.parquet",
        "_intentions/sum/*.json",
        "_description/*.json",
        "flows/*/_delta_log/*.json",
    )
    every = []
    for pattern in patterns:
        path = the_last(world, pattern)
        whole = path.read_bytes()
        flip(path)
        assert set(looked(world)) == {str(path)}, pattern
        assert all(str(path) in told for told in doctor(world))
        path.write_bytes(whole)
        every.append(path)
    middle = sorted((Path(world.tables) / "one" / "_intentions" / "sum").glob("*.json"))[1]
    whole = middle.read_bytes()
    middle.unlink()
    assert looked(world) == {str(middle): "file_lost"}
    middle.write_bytes(whole)
    for path in every:
        flip(path)
    assert set(looked(world)) == set(map(str, every))


@pytest.mark.parametrize("pattern", ["state/*/_runs/*/*.parquet", "flows/*/_runs/*.parquet"])
def test_what_no_record_names_is_no_damage(world: World, pattern: str) -> None:
    """A run that a loss of power ended leaves cut files; no table shows them, nobody reads them."""
    path = the_last(world, pattern)
    left = path.with_name(f"000000000099-00000-{'0' * 20}-0.parquet")
    left.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert looked(world) == {}
    cut(path)
    assert set(looked(world)) == {str(path)}


def test_idle_work_finds_a_damage_shows_it_and_forgets_it_once_it_is_mended(
    tmp_path: Path,
) -> None:
    """A round reads everything within its time, slowly; a restart knows what was found."""
    world = World(tmp_path / "world", engine=LocalEngine, scrub_seconds=86400.0)
    world.controller.register(ONE)
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    scrubbing = world.controller.housekeeping.scrubbing

    def round_() -> None:
        world.clock.advance(3600)  # the rest after a round
        ended = scrubbing.progress("one").ended_at
        for _ in range(1000):
            world.clock.advance(1)
            world.controller.tick()
            if scrubbing.progress("one").ended_at != ended:
                return
        raise AssertionError

    round_()
    assert scrubbing.progress("one").files > 5
    assert world.controller.troubles("one") == []
    path = the_last(world, "flows/*/_runs/*.parquet")
    whole = path.read_bytes()
    flip(path)
    round_()
    (trouble,) = world.controller.troubles("one")
    assert trouble.error.code == "file_damaged"
    assert str(path) in trouble.words
    assert "`cbp scrub one`" in trouble.words
    world.restart()
    assert [one.words for one in world.controller.troubles()] == [trouble.words]
    path.write_bytes(whole)
    scrubbing = world.controller.housekeeping.scrubbing
    round_()
    assert world.controller.troubles("one") == []
    world.close()


def test_the_commands_say_what_they_found(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`cbp scrub` ends with 1 where something is damaged; a lost database is reported as one."""
    settings = Settings(
        root=world.root, tables=world.tables, database_url=f"sqlite:///{tmp_path}/none.db"
    )

    def cbp(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=Session(settings))
        return ended.value.code, capsys.readouterr().out

    status, out = cbp("scrub", "--json")
    assert not status
    assert json.loads(out)["damages"] == []
    assert json.loads(out)["files"] > 20
    path = the_last(world, "sources/a/*.parquet")
    flip(path)
    status, out = cbp("scrub", "one", "--rate", "1000", "--json")
    assert status == 1
    (damage,) = json.loads(out)["damages"]
    assert (damage["path"], damage["code"], damage["kind"]) == (str(path), "file_damaged", "source")
    assert cbp("scrub", "other", "--json")[0] in (0, None)
    (lost,) = (check for check in examine(Session(settings)) if check.name == "tables")
    assert (lost.status, lost.remedy) == ("fail", "restore them with: cbp recover --rebuild")
    status, out = cbp("help", "damage")
    assert not status
    for row in DAMAGES:
        assert row.what in out
        assert row.mends in out
