"""Wrong records are put aside, the others are an increment: both exactly once, under any crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cbp.engine.read.scrub import scrub
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import rejects_table
from cbp.model.dataflow.nodes import FileBatch
from controller.ingest.limits import IngestLimits
from controller.ingest.rejects_table import read_rejects
from tests.controller.ingest.harness import DictStore, Drop
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT NOT NULL, name STRING"
FILES = {
    "a": b'{"id": 1}\n{"id": "x"}\n{"id": 2}\n{oops\n',
    "b": b'{"id": 3}\n',
    "c": b'{"name": "n"}\n{"id": 4}\n',
}
LOG = b'oops\nh - - [10/Oct/2026:13:55:36 +0200] "-" 200 -\n'
IDS = [1, 2, 3, 4]
PLACES = [(0, "a", 2, "value_type"), (0, "a", 4, "json_invalid"), (2, "c", 1, "value_missing")]
EFFECTS = ("claim", "rename", "increment_file", "source_log", "data_file", "log_entry")


def drop_of(root: Path, schema: str = SCHEMA, format_: str = "jsonl", **more: Any) -> Drop:
    return Drop(root, schema, format_, **{"on_bad_records": "reject_rows"} | more)


def table_path(drop: Drop) -> str:
    return f"{drop.record.folder}/{rejects_table('orders')}"


def rejects(drop: Drop) -> list[dict[str, Any]]:
    """Return the table, as another reader of Delta has it."""
    if not Path(table_path(drop)).exists():
        return []
    return pl.read_delta(table_path(drop)).sort("increment", "line").to_dicts()


def places(drop: Drop) -> list[tuple[Any, ...]]:
    return [tuple(row[n] for n in ("increment", "file", "line", "code")) for row in rejects(drop)]


def test_wrong_records_are_put_aside_and_the_others_are_taken_in(tmp_path: Path):
    """Each has its file, line, text, code, message and column; the origin says how many."""
    drop = drop_of(tmp_path)
    for name, data in FILES.items():
        drop.put(name, data)
    assert drop.scan().accepted == 3
    assert sorted(row["id"] for row in drop.rows()) == IDS
    assert places(drop) == PLACES
    first = rejects(drop)[0]
    assert (first["text"], first["column_name"]) == ('{"id": "x"}', "id")
    assert "expected BIGINT" in first["message"]
    origins = [record.origin for record in drop.store.increment_rows.values()]
    assert [origin.get("rejected_rows", 0) for origin in origins] == [2, 0, 1]
    assert all("rejected" not in origin for origin in origins)
    assert not drop.names("quarantine")


def test_any_reader_of_delta_reads_the_table(tmp_path: Path):
    """delta-rs and Polars have the same rows; the table is one as all others of a dataflow are."""
    drop = drop_of(tmp_path)
    drop.put("a", FILES["a"])
    drop.scan()
    table = QueryBuilder().register("t", DeltaTable(table_path(drop)))
    rows = pa.table(table.execute("SELECT * FROM t ORDER BY line")).to_pylist()
    assert rows == rejects(drop)


def test_a_source_that_does_not_say_so_refuses_the_file(tmp_path: Path):
    """The default stays: one wrong record, and nothing of the file is taken in."""
    drop = Drop(tmp_path, SCHEMA)
    drop.put("a", FILES["a"])
    assert drop.scan().quarantined == 1
    assert not drop.increments()
    assert not Path(table_path(drop)).exists()


@pytest.mark.parametrize(
    ("policy", "wrong", "sound", "accepted"),
    [
        ({"reject_rows": {"count": 3}}, 3, 10, 1),
        ({"reject_rows": {"count": 3}}, 4, 1000, 0),
        ({"reject_rows": {"share": 0.5}}, 2, 2, 1),
        ({"reject_rows": {"share": 0.5}}, 3, 2, 0),
        ("reject_rows", 100, 1, 1),
        ("reject_rows", 101, 10_000, 0),
        ("reject_rows", 5, 0, 1),
    ],
)
def test_a_file_with_more_wrong_records_than_allowed_is_refused_whole(
    policy: Any, wrong: int, sound: int, accepted: int, tmp_path: Path
):
    """As a count and as a share; the reason lists the records, and nothing is put aside."""
    drop = drop_of(tmp_path, on_bad_records=policy, limits=IngestLimits(batch_rows=50))
    drop.put("a", b'{"id": 1}\n' * sound + b'{"id": "x"}\n' * wrong)
    assert drop.scan().accepted == accepted
    assert len(rejects(drop)) == wrong * accepted
    if not accepted:
        (reason,) = drop.reasons()
        assert (reason["code"], reason["line"]) == ("bad_records", sound + 1)
        assert len(reason["lines"]) == min(wrong, 100)
    else:
        assert len(drop.rows() if sound else []) == sound


def test_records_of_many_files_are_put_aside_by_file(tmp_path: Path):
    """In one increment: each with its own file and line, and the sound ones in their order."""
    drop = drop_of(tmp_path, batch=FileBatch())
    for number in range(3):
        drop.put(f"f{number}", b'{"id": %d}\n{"id": "x"}\n' % number)
    assert drop.scan().accepted == 3
    assert len(drop.increments()) == 1
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    shown = [(row["file"], row["line"], row["increment"]) for row in rejects(drop)]
    assert sorted(shown) == [(f"f{number}", 2, 0) for number in range(3)]
    assert len({row["claim"] for row in rejects(drop)}) == 3
    (record,) = drop.store.increment_rows.values()
    assert record.origin["rejected_rows"] == 3


def test_what_makes_the_rest_unreadable_refuses_the_file(tmp_path: Path):
    """A cut stream, an open quote, bytes that are no text where a record may hold line ends."""
    for number, data in enumerate(
        (b'id,name\nx,a\n1,"b\n', b"id,name\nx,a\n1,\xff\n", b"id,name\nx,a\n1,b")
    ):
        drop = drop_of(tmp_path / str(number), format_="csv")
        drop.put("a", data)
        assert drop.scan().quarantined == 1
        assert not rejects(drop)


@pytest.mark.parametrize(
    ("format_", "schema", "data", "kept", "texts"),
    [
        pytest.param(
            *("csv", SCHEMA, b'id,name\n1,a\nx,"b\nc"\n2\n3,"d ""e"""\n,"z"\n'),
            [{"id": 1, "name": "a"}, {"id": 3, "name": 'd "e"'}],
            ['x,"b\nc"', "2", ",z"],
            id="csv",
        ),
        pytest.param(
            *("text", "line STRING", b"a\n\xff\xfeb\nc\0d\ne\n"),
            [{"line": "a"}, {"line": "e"}],
            ["\\xff\\xfeb", "c\0d"],
            id="text",
        ),
        pytest.param(
            *(
                "access_log",
                "status INT",
                b"oops\n" + b'h - - [10/Oct/2026:13:55:36 +0200] "-" 200 -\n',
            ),
            [{"status": 200}],
            ["oops"],
            id="access_log",
        ),
        pytest.param(
            *("jsonl", SCHEMA, b'{"id": 1, "nmae": 2}\n\xff\n{"id": 2}\n[1]\n'),
            [{"id": 2, "name": None}],
            ['{"id": 1, "nmae": 2}', "\\xff", "[1]"],
            id="jsonl",
        ),
    ],
)
def test_each_format_puts_aside_what_is_wrong(
    format_: str,
    schema: str,
    data: bytes,
    kept: list[dict[str, Any]],
    texts: list[str],
    tmp_path: Path,
):
    """Sound records keep their order and values; the text of the others can be mended."""
    options = {"layout": "common"} if format_ == "access_log" else {}
    drop = drop_of(tmp_path, schema, format_, options=options)
    drop.put("a", data)
    assert drop.scan().accepted == 1, drop.reasons()
    assert drop.rows() == kept
    assert [row["text"] for row in rejects(drop)] == texts


def test_rows_of_a_binary_file_are_put_aside_by_their_number(tmp_path: Path):
    """Parquet and Avro: the row as an object, over batches."""
    pl.DataFrame({"id": [1, None, 3, None], "name": ["a", "b", "c", "d"]}).write_parquet(
        tmp_path / "p"
    )
    drop = drop_of(tmp_path, format_="parquet", limits=IngestLimits(batch_rows=2))
    drop.put("a", (tmp_path / "p").read_bytes())
    assert drop.scan().accepted == 1, drop.reasons()
    assert [row["id"] for row in drop.rows()] == [1, 3]
    assert [(row["line"], row["text"]) for row in rejects(drop)] == [
        (2, '{"id": null, "name": "b"}'),
        (4, '{"id": null, "name": "d"}'),
    ]


@pytest.mark.part(every=2)
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_crash_anywhere_leaves_each_record_once(effect: str, tmp_path: Path):
    """Whatever is cut, the next passes have each sound record and each wrong one once."""
    passage, crashed = 1, True
    while crashed:
        for side in ("before", "after"):
            store, root = DictStore(), tmp_path / f"{passage}{side}"
            drop = drop_of(root, store=store)
            for name, data in FILES.items():
                drop.put(name, data)
            drop.start(PlannedFaults(f"{effect}.{side}", passage=passage))
            try:
                drop.scan()
                crashed = False
            except Crash:
                crashed = True
            drop.start()
            drop.recover()
            drop.scan()
            drop.scan()
            assert sorted(row["id"] for row in drop.rows()) == IDS
            assert sorted(row[1:] for row in places(drop)) == sorted(row[1:] for row in PLACES)
        passage += 1
    assert passage > 2, "the effect was never passed"


def test_a_store_that_was_lost_or_a_table_that_is_behind_is_caught_up(tmp_path: Path):
    """The source's log is the truth: the table is redone from it, and nothing comes twice."""
    drop = drop_of(tmp_path)
    drop.put("a", FILES["a"])
    drop.scan()
    before = rejects(drop)
    drop.store = DictStore()
    drop.start()
    drop.recover()
    drop.put("c", FILES["c"])
    drop.scan()
    assert rejects(drop)[: len(before)] == before
    assert len(rejects(drop)) == len(before) + 1


def test_a_scrub_finds_the_table_whole(tmp_path: Path):
    """It is checked as every table is: a byte that was changed is found."""
    drop = drop_of(tmp_path)
    drop.put("a", FILES["a"])
    drop.scan()

    def damaged() -> list[str]:
        looked = list(scrub(drop.record.folder, LocalFiles()))
        assert any("/rejects/" in one.path for one in looked)
        return [one.path for one in looked if one.damage and "/rejects/" in one.path]

    assert damaged() == []
    (path,) = Path(table_path(drop)).glob("*.parquet")
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert damaged() == [str(path)]


def test_pages_of_rejects_are_whole_and_newest_first(tmp_path: Path):
    """Pages of any size give all records once; an unknown source has none."""
    drop = drop_of(tmp_path)
    for name, data in FILES.items():
        drop.put(name, data)
        drop.scan()
    for limit in (1, 2, 10):
        seen, place = list[tuple[Any, ...]](), None
        while True:
            page, place = read_rejects(drop.record.folder, "orders", below=place, limit=limit)
            seen += [(row["increment"], row["line"]) for row in page]
            if place is None:
                break
        assert seen == [(2, 1), (0, 2), (0, 4)]
    assert read_rejects(drop.record.folder, "other", below=None, limit=5) == ([], None)


def test_mended_records_come_in_as_a_file_of_their_own(tmp_path: Path):
    """The texts of what was put aside, mended, are the records that were missing."""
    drop = drop_of(tmp_path)
    drop.put("a", FILES["a"])
    drop.scan()
    texts = "\n".join(row["text"] for row in rejects(drop))
    mended = texts.replace('"x"', "7").replace("{oops", '{"id": 8}')
    drop.put("mended", f"{mended}\n".encode())
    assert drop.scan().accepted == 1
    assert sorted(row["id"] for row in drop.rows()) == [1, 2, 7, 8]


def test_a_dataflow_that_was_deleted_and_made_again_has_its_own_table(tmp_path: Path):
    """The process remembers how far the former table was, and publishes from the start."""
    drop = drop_of(tmp_path)
    for name, data in FILES.items():
        drop.put(name, data)
    drop.scan()
    drop.make_again()
    drop.put("a", FILES["a"])
    assert drop.scan().accepted == 1
    assert places(drop) == PLACES[:2]
