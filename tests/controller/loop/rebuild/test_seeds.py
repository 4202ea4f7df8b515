"""Seeds of a rebuild beside: an operator's own files in place of input that is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from cbp.engine.storage.failpoints import NO_FAULTS
from cbp.errors import ChangeRefusedError
from cbp.model.flow.retention import FlowRetention
from controller.allowed_folders import AllowedFolders
from controller.cli import main
from controller.cli.session import Session
from controller.loop.housekeeping.input_retention import Keep
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.loop.rebuild.beside_world import Beside, arrive, document
from tests.controller.rest import api_of_world
from tests.planned_faults import Crash, PlannedFaults

pytestmark = pytest.mark.usefixtures("without_syncs")

KEPT_FROM, COME = 4, 8


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Beside]:
    """Give a world whose first increments are gone."""
    mine = tmp_path / "mine"
    mine.mkdir()
    allowed = AllowedFolders("CBP_SOURCE_ROOTS", (mine,))
    made = Beside(tmp_path / "world", seed_folders=allowed, keep=Keep(FlowRetention(1e9), 100))
    made.controller.register(document())
    for number in range(COME):
        arrive(made, number, number + 1)
        made.ticks()
    record = made.store.dataflow("d")
    for number in range(KEPT_FROM):
        for file in made.store.increment("d", "a", number).increment.files:
            Path(record.folder, file.path).unlink()
    made.store.forget_increments("d", "a", below=KEPT_FROM)
    yield made
    made.close()


def gone() -> pa.Table:
    """Return the records of the increments that are gone."""
    rows = [row for n in range(KEPT_FROM) for row in (("x", n), (f"w{n % 3}", 1))]
    return pa.table({"n": [n for _, n in rows], "word": [word for word, _ in rows]})


def start(world: Beside, wanted: Any, **seeds: str) -> Any:
    jobs = world.controller.rebuild_jobs
    return jobs.start(wanted, world.controller.validate(wanted), seeds=seeds)


def write(tmp_path: Path, kind: str, table: pa.Table) -> str:
    path = tmp_path / "mine" / kind
    if kind == "delta":
        write_deltalake(str(path), table)
    elif kind == "folder":
        path.mkdir()
        pq.write_table(table.slice(0, 3), path / "1.parquet")
        pq.write_table(table.slice(3), path / "2.parquet")
    else:
        pq.write_table(table, path)
    return str(path)


@pytest.mark.parametrize("kind", ["file", "folder", "delta"])
def test_a_seed_stands_for_what_is_gone(world: Beside, tmp_path: Path, kind: str) -> None:
    """The tables are those of all input, and nothing differs from the present ones."""
    same = world.shown(start(world, document(), a=write(tmp_path, kind, gone())))
    assert same.status == "ready", same.error
    # What a stage emits again for each increment depends on how many there are.
    tables = [one for one in same.tables if one.table != "flows/best.seen"]
    assert {(one.added, one.gone, one.changed) for one in tables} == {(0, 0, 0)}
    world.swap(same)
    arrive(world, COME, COME + 1)
    world.ticks()
    assert world.sums()["x"] == sum(range(COME + 1))


def test_without_a_seed_the_refusal_offers_it(world: Beside) -> None:
    """It says since when input is kept, and what to name."""
    with pytest.raises(ChangeRefusedError, match=r"kept from 2026.*--seed a=PATH") as caught:
        world.start(document("tripled"))
    assert {one.code for one in caught.value.mistakes} == {"input_not_retained"}


def test_what_cannot_be_a_seed_is_refused_before_anything_is_built(
    world: Beside, tmp_path: Path
) -> None:
    """No such source, a path elsewhere, nothing there, a column that lacks or does not fit."""
    wrong = pa.table({"n": ["one"], "word": ["x"]})
    pq.write_table(gone(), tmp_path / "elsewhere")
    cases = {
        "no such source": {"b": write(tmp_path, "file", gone())},
        "is not below any of the folders": {"a": str(tmp_path / "elsewhere")},
        "is neither a Parquet file": {"a": str(tmp_path / "mine" / "nothing")},
        "has no column word": {"a": write(tmp_path, "lacks", gone().select(["n"]))},
        "cannot be read as": {"a": write(tmp_path, "wrong", wrong)},
    }
    for words, seeds in cases.items():
        with pytest.raises(ChangeRefusedError, match=words) as caught:
            start(world, document(), **seeds)
        assert "seed_invalid" in {one.code for one in caught.value.mistakes}
    assert world.controller.rebuild_jobs.all("d") == []


def test_a_seed_that_nothing_needs_is_refused(tmp_path: Path) -> None:
    """Its records would count twice."""
    world = Beside(tmp_path / "world")
    world.controller.register(document())
    arrive(world, 0, 1)
    world.ticks()
    with pytest.raises(ChangeRefusedError, match="all of its input is kept"):
        start(world, document(), a="mine")
    world.close()


def test_a_build_with_a_seed_begins_anew_after_a_kill(world: Beside, tmp_path: Path) -> None:
    """Its order names the seed."""
    path = write(tmp_path, "file", gone())
    world.faults.to = PlannedFaults("data_file.before", passage=3)
    with pytest.raises(Crash):
        start(world, document("tripled"), a=path)
    world.faults.to = NO_FAULTS
    world.restart()
    world.controller.recover()
    world.ticks()
    (job,) = world.controller.rebuild_jobs.all("d")
    world.swap(job)
    assert world.sums()["x"] == 3 * sum(range(COME))


def test_operators_name_it_by_command(
    world: Beside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--seed SOURCE=PATH`; anything else is a wrong call."""
    wanted = tmp_path / "d.json"
    wanted.write_text(json.dumps(document("tripled")))
    settings = Settings(root=world.root, token=TOKEN)
    session = Session(settings, AppTransport(api_of_world(world, settings)))
    path = write(tmp_path, "file", gone())
    with pytest.raises(SystemExit) as ended:
        main(["rebuild", "d", str(wanted), "--yes", "--seed", f"a={path}"], session=session)
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    assert "input is kept from increment 4 on" in " ".join(printed.err.split())
    assert world.sums()["x"] == 3 * sum(range(COME))
    with pytest.raises(SystemExit) as ended:
        main(["rebuild", "d", "--seed", path], session=session)
    assert ended.value.code
