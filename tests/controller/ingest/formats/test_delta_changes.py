"""What a Delta table's log says became of its rows, read as signed records.

`tests/fixtures/delta_by_spark` is a table that Spark wrote, with deletion vectors, partitions, null
values, a merge and an OPTIMIZE; `BY_SPARK` is what Spark's own reader of its change feed gave.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from controller.ingest.formats.delta import ChangeGroup
from tests.controller.ingest.harness import Drop

SPARK = Path(__file__).parents[3] / "fixtures" / "delta_by_spark"
ID = "39716b38-6e59-4148-b810-494a073200a4"
SCHEMA = "id BIGINT, day DATE, n STRING, sign INT, change STRING"
FIRST, SECOND, THIRD = (date(2026, 1, day) for day in (1, 2, 3))
BY_SPARK: dict[int, list[tuple[Any, ...]]] = {
    0: [],
    1: [(number, FIRST, "a b", 1, "insert") for number in range(5)],
    2: [(number, SECOND, None, 1, "insert") for number in range(5, 8)],
    3: [(1, FIRST, "a b", -1, "delete"), (3, FIRST, "a b", -1, "delete")],
    4: [
        (0, FIRST, "a b", -1, "update_before"),
        (0, FIRST, "x", 1, "update_after"),
        (6, SECOND, None, -1, "update_before"),
        (6, SECOND, "x", 1, "update_after"),
    ],
    5: [(2, FIRST, "a b", -1, "delete")],
    6: [
        (4, FIRST, "a b", -1, "update_before"),
        (4, FIRST, "m", 1, "update_after"),
        (9, THIRD, "new", 1, "insert"),
    ],
    7: [],
    8: [
        (6, SECOND, "x", -1, "delete"),
        (5, SECOND, None, -1, "delete"),
        (7, SECOND, None, -1, "delete"),
    ],
}
VERSIONS = range(9)


def group(first: int, last: int | None = None, *, snapshot: bool = False) -> ChangeGroup:
    return ChangeGroup(ID, first, first if last is None else last, ("day",), snapshot)


def read(
    root: Path, one: ChangeGroup | bytes, table: Path = SPARK, schema: str = SCHEMA, **more: Any
) -> Drop:
    """Drop a group of versions into a source of a table, and take it in."""
    more["options"] = {"table": table.name, "change_type": "change"} | more.get("options", {})
    root.mkdir(exist_ok=True)
    os.symlink(table.parent, root / "warehouse")
    drop = Drop(root, schema, "delta", **more)
    drop.put("one", one if isinstance(one, bytes) else one.encoded())
    drop.scan()
    return drop


def rows(root: Path, one: ChangeGroup, **more: Any) -> list[tuple[Any, ...]]:
    """Return the records that a group became."""
    drop = read(root, one, **more)
    assert "one" not in [reason["file"] for reason in drop.reasons()], drop.reasons()
    if not drop.increments()[0].files:
        return []
    return [tuple(row.values()) for row in drop.table(0).to_pylist()]


def refused(root: Path, one: ChangeGroup | bytes, **more: Any) -> dict[str, Any]:
    """Return why a group was refused."""
    drop = read(root, one, **more)
    (reason,) = [reason for reason in drop.reasons() if reason["file"] == "one"]
    return reason


def test_changes_are_those_that_spark_reads(tmp_path: Path):
    """Files of changes, deletion vectors, added and removed files; an OPTIMIZE changes nothing."""
    for version in VERSIONS:
        assert rows(tmp_path / str(version), group(version)) == BY_SPARK[version]
    assert rows(tmp_path / "all", group(0, 8)) == [row for v in VERSIONS for row in BY_SPARK[v]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_snapshot_has_what_the_changes_up_to_it_sum_up_to(version: int, tmp_path: Path):
    """Each row once, as an insert: no row that a deletion vector marks, and no other."""
    sums: Counter[Any] = Counter()
    for row in (row for at in range(version + 1) for row in BY_SPARK[at]):
        sums[row[:3]] += row[3]
    actual = rows(tmp_path, group(version, snapshot=True))
    assert {row[3:] for row in actual} <= {(1, "insert")}
    assert Counter(row[:3] for row in actual) == Counter({r: n for r, n in sums.items() if n})


def test_columns_are_declared_and_ordered_as_the_source_likes(tmp_path: Path):
    """A sign of another name and type, columns in any order, and no type of change."""
    drop = read(
        tmp_path,
        group(3),
        schema="w BIGINT, day DATE, id INT",
        options={"sign": "w", "change_type": "", "unknown": "ignore"},
    )
    assert drop.table(0).to_pylist() == [
        {"w": -1, "day": FIRST, "id": 1},
        {"w": -1, "day": FIRST, "id": 3},
    ]


@pytest.mark.parametrize(
    ("schema", "code", "column"),
    [
        ("id BIGINT, day DATE, sign INT, change STRING", "column_unknown", "n"),
        ("id BIGINT, n STRING, sign INT, change STRING", "column_unknown", "day"),
        ("id BIGINT, day INT, n STRING, sign INT, change STRING", "value_type", "day"),
        ("id STRING, day DATE, n STRING, sign INT, change STRING", "column_type", "id"),
        (f"{SCHEMA}, more INT NOT NULL", "column_missing", "more"),
        ("id BIGINT, day DATE, n STRING NOT NULL, sign INT, change STRING", "value_missing", "n"),
    ],
)
def test_a_table_that_is_not_as_declared_is_refused(
    schema: str, code: str, column: str, tmp_path: Path
):
    """By the same rules as a dropped file, with versions, file and column."""
    reason = refused(tmp_path, group(1, 2), schema=schema)
    assert (reason["code"], reason["column"]) == (code, column)


def test_wrong_rows_are_put_aside_by_policy_and_counted_over_all_files(tmp_path: Path):
    """The others come; rows that are not of the version are neither counted nor put aside."""
    schema = SCHEMA.replace("n STRING", "n STRING NOT NULL")
    drop = read(tmp_path, group(1, 3), schema=schema, on_bad_records="reject_rows")
    assert drop.table(0).num_rows == 7
    (entry,) = (Path(drop.record.folder) / "sources" / "orders" / "_log").glob("*0.json")
    value = json.loads(entry.read_text())
    value = value["files"][0] if "files" in value else value
    assert [row[0] for row in value["notes"]["rejected"]] == [6, 7, 8]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Give a copy of the table that tests may damage."""
    copy = tmp_path / "tables" / "copy"
    shutil.copytree(SPARK, copy)
    return copy


def edit(table: Path, version: int, change: Callable[[dict[str, Any]], object]) -> None:
    path = table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        change(action)
    path.write_text("\n".join(map(json.dumps, actions)))


def _body(action: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = action.get("add") or action.get("remove") or {}
    return body


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret", "link"])
def test_a_log_leads_to_no_file_outside_of_its_table(path: str, table: Path, tmp_path: Path):
    """Neither by a path, nor by a link: otherwise the writer of a table could read any file."""
    (file,) = (table / "day=2026-01-02").glob("part-00000-8ae*")
    shutil.copy(file, table.parent / "secret")
    os.symlink(table.parent / "secret", table / "link")
    edit(table, 2, lambda action: _body(action).update(path=path))
    reason = refused(tmp_path / "d", group(2), table=table)
    assert reason["code"] == "delta_unsupported"


def test_a_deletion_vector_outside_of_its_table_is_not_read(table: Path, tmp_path: Path):
    """Its folder is part of its name."""

    def lead_out(action: dict[str, Any]) -> None:
        if vector := _body(action).get("deletionVector"):
            vector["pathOrInlineDv"] = "../x" + vector["pathOrInlineDv"]

    edit(table, 3, lead_out)
    assert refused(tmp_path / "d", group(3), table=table)["code"] == "delta_unsupported"


@pytest.mark.parametrize(
    ("pattern", "version", "code"),
    [
        ("day=2026-01-02/part-00000-8ae*", 2, "delta_version_gone"),
        ("*.bin", 3, "delta_version_gone"),
        ("_change_data/day=2026-01-01/*", 4, "delta_version_gone"),
        ("_delta_log/*5.json", 5, "delta_version_gone"),
    ],
)
def test_a_file_that_is_gone_refuses_its_versions(
    pattern: str, version: int, code: str, table: Path, tmp_path: Path
):
    """VACUUM, or the clean-up of the log: the reason says so."""
    for file in table.glob(pattern):
        file.unlink()
    assert refused(tmp_path / "d", group(version), table=table)["code"] == code


def test_a_damaged_deletion_vector_is_seen(table: Path, tmp_path: Path):
    """Otherwise rows would be deleted that are there."""
    for file in table.glob("*.bin"):
        data = bytearray(file.read_bytes())
        data[20] ^= 1
        file.write_bytes(data)
    assert refused(tmp_path / "d", group(3), table=table)["code"] == "delta_damaged"


@pytest.mark.parametrize("version", [1, 2, 4, 8])
def test_a_file_that_is_not_as_the_log_says_is_seen(version: int, table: Path, tmp_path: Path):
    """Bytes of each file and rows of added ones; what the log does not say is not compared."""

    def lose(action: dict[str, Any]) -> None:
        (body,) = [value for value in action.values() if isinstance(value, dict)]
        body.pop("stats", None)
        if "remove" in action:
            body.pop("size", None)

    edit(table, version, lose)
    assert rows(tmp_path / "less", group(version), table=table) == BY_SPARK[version]

    def lie(action: dict[str, Any]) -> None:
        for kind in ("add", "remove", "cdc"):
            if kind in action:
                action[kind]["size"] = action[kind].get("size", 0) + 1

    edit(table, version, lie)
    assert refused(tmp_path / "bytes", group(version), table=table)["code"] == "delta_damaged"


def test_a_file_that_has_fewer_rows_than_the_log_says_is_seen(table: Path, tmp_path: Path):
    """Statistics are optional, and true where they are."""

    def lie(action: dict[str, Any]) -> None:
        if stats := json.loads(action.get("add", {}).get("stats") or "{}"):
            action["add"]["stats"] = json.dumps(stats | {"numRecords": stats["numRecords"] + 1})

    edit(table, 1, lie)
    assert refused(tmp_path / "d", group(1), table=table)["code"] == "delta_damaged"


def test_a_table_whose_disk_is_away_is_tried_again(table: Path, tmp_path: Path):
    """Its versions stay claimed, and nothing is put into quarantine."""
    table.rename(table.with_name("away"))
    drop = read(tmp_path / "d", group(1), table=table)
    assert len(drop.names("claimed")) == 1
    assert not drop.names("quarantine")
    table.with_name("away").rename(table)
    drop.pass_seconds(60)
    assert drop.scan().accepted == 2


def test_other_files_are_refused(tmp_path: Path):
    """A source of a table takes in its versions only, and of no other table."""
    for number, data in enumerate((b"", b"{}", b"[]", b'{"id": 1}\n', b"PAR1", b"[" * 60_000)):
        assert refused(tmp_path / str(number), data)["code"] == "format_mismatch"
    other = ChangeGroup("another", 0, 1)
    assert refused(tmp_path / "other", other)["code"] == "delta_table_replaced"


def test_partitions_by_delta_rs_are_read(tmp_path: Path):
    """Values that paths escape, null, and times, which the log keeps as text."""
    path, moment = tmp_path / "t", pa.array([1_000_000, None], pa.timestamp("us", "UTC"))
    data = pa.table({"id": [1, 2], "at": moment, "name": ["a b/%20", None]})
    configuration = {"delta.enableChangeDataFeed": "true"}
    by = ["at", "name"]
    write_deltalake(str(path), data, partition_by=by, configuration=configuration)
    DeltaTable(str(path)).delete("id = 1")
    metadata = DeltaTable(str(path)).metadata()
    schema, options = "id BIGINT, at TIMESTAMP, name STRING, sign INT", {"change_type": ""}
    one = ChangeGroup(str(metadata.id), 0, 1, ("at", "name"))
    drop = read(tmp_path / "d", one, table=path, schema=schema, options=options)
    assert not drop.reasons()
    expected = [(*row.values(), 1) for row in data.to_pylist()]
    actual = [tuple(row.values()) for row in drop.table(0).to_pylist()]
    assert sorted(actual, key=repr) == sorted([*expected, (*expected[0][:3], -1)], key=repr)


def test_a_column_that_a_table_gets_is_null_in_older_files(tmp_path: Path):
    """Declared already: rows of before have none. Not declared: refused, or left out by policy."""
    path = tmp_path / "t"
    old, new = pa.table({"id": [1]}), pa.table({"id": [2], "more": ["x"]})
    write_deltalake(str(path), old, configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(str(path), new, mode="append", schema_mode="merge")
    one = ChangeGroup(str(DeltaTable(str(path)).metadata().id), 0, 1)
    schema, plain = "id BIGINT, more STRING, sign INT", {"change_type": ""}
    both = rows(tmp_path / "a", one, table=path, schema=schema, options=plain)
    assert both == [(1, None, 1), (2, "x", 1)]
    schema = "id BIGINT, sign INT"
    reason = refused(tmp_path / "b", one, table=path, schema=schema, options=plain)
    assert (reason["code"], reason["column"]) == ("column_unknown", "more")
    ignoring = plain | {"unknown": "ignore"}
    assert rows(tmp_path / "c", one, table=path, schema=schema, options=ignoring) == [
        (1, 1),
        (2, 1),
    ]
