"""Actions: what is built is what Delta's readers accept, and a change is a difference."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    Unknown,
    decode,
    difference,
    encode,
)
from cbp.engine.delta.checkpoint import encode_checkpoint, read_checkpoint
from cbp.engine.delta.columns import schema_string
from cbp.errors import InvariantError
from cbp.model.flow.schema import Schema

VECTOR = DeletionVector("u", "_vectors" + "0" * 20, 1, 34, 2)
FILE = AddFile("_runs/_bucket=0/a.parquet", {"_bucket": "0"}, 100, 10, 5)
INFO = CommitInfo(7, "CBP RUN", 7, {"epoch": "1"}, "cbp/1", "d/s/1", blind_append=True)
ALL: list[Action] = [
    INFO,
    Protocol(3, 7, ("deletionVectors",), ("cbp.managed", "deletionVectors")),
    Metadata("id", "{}", ("_bucket",), {"cbp.buckets": "8"}, 3),
    Txn("app", 4, 7),
    RemoveFile.of(replace(FILE, deletion_vector=VECTOR), deletion_ms=9),
    replace(FILE, min_values={"n": 1}, max_values={"n": 2.5}),
    AddFile("_runs/_bucket=0/b.parquet", {"_bucket": None}, 1, 2, 3, VECTOR, data_change=False),
]


def bodies(data: bytes) -> list[tuple[str, Any]]:
    """Return kind and body of each line."""
    return [next(iter(json.loads(line).items())) for line in data.decode().splitlines()]


def test_an_entry_comes_back_as_it_was_built() -> None:
    """Reading is the inverse of writing, action by action."""
    assert decode(encode(ALL)) == ALL


def test_a_text_with_any_line_separator_stays_in_its_line() -> None:
    """JSON need not escape U+2028 and its like; only a line feed ends the line of an action."""
    file = replace(FILE, min_values={"text": "a\u2028b"}, max_values={"text": "\u0085\u2029"})
    assert decode(encode([INFO, file])) == [INFO, file]


def test_commit_info_comes_first_and_holds_texts() -> None:
    """In-commit timestamps need the first line; history needs flat parameters."""
    kind, body = bodies(encode(list(reversed(ALL))))[0]
    assert kind == "commitInfo"
    assert body["inCommitTimestamp"] == 7
    assert body["operationParameters"] == {"epoch": "1"}
    assert body["userMetadata"] == "d/s/1"


def test_a_vector_counts_physical_rows_with_wide_bounds() -> None:
    """With a vector, `numRecords` still counts dead rows and the bounds are not tight."""
    marked = replace(FILE, deletion_vector=VECTOR).to_json()
    assert json.loads(marked["stats"]) == {"numRecords": 10, "tightBounds": False}
    assert json.loads(FILE.to_json()["stats"]) == {"numRecords": 10}


def test_a_remove_names_the_old_vector_and_the_whole_file() -> None:
    """Without these fields a reader keeps the version of the file that goes."""
    body = RemoveFile.of(replace(FILE, deletion_vector=VECTOR), deletion_ms=9).to_json()
    assert body == {
        "path": FILE.path,
        "deletionTimestamp": 9,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"_bucket": "0"},
        "size": 100,
        "deletionVector": VECTOR.to_json(),
    }


def test_what_is_not_known_is_kept() -> None:
    """A foreign entry is never taken for an empty one; foreign fields are passed over."""
    data = b'{"commitInfo":{"operation":"X","operationParameters":{"a":["b"]}}}\n\n'
    data += b'{"domainMetadata":{"domain":"d"}}\n'
    data += b'{"add":{"path":"p","partitionValues":{},"size":1,"modificationTime":2,'
    data += b'"dataChange":true,"tags":{},"baseRowId":4}}\n'
    info, unknown, add = decode(data)
    assert isinstance(info, CommitInfo)
    assert info.parameters == {"a": '["b"]'}
    assert unknown == Unknown("domainMetadata", {"domain": "d"})
    assert isinstance(add, AddFile)
    assert add.rows == -1
    assert "stats" not in add.to_json()


@pytest.mark.parametrize(
    "actions",
    [
        [FILE],
        [INFO, INFO],
        [INFO, FILE, replace(FILE, deletion_vector=VECTOR)],
        [INFO, replace(FILE, modified_ms=1.5)],  # type: ignore[arg-type]
    ],
)
def test_an_entry_that_readers_misread_is_not_written(actions: list[Action]) -> None:
    """No commitInfo or two, a path twice, a float."""
    with pytest.raises(InvariantError):
        encode(actions)


def vectors() -> st.SearchStrategy[DeletionVector | None]:
    """No vector, or one with up to all ten rows."""
    some = st.integers(1, 10).map(lambda n: DeletionVector("u", f"v{n:020d}", n, 34, n))
    return st.none() | some


def live_sets() -> st.SearchStrategy[dict[str, AddFile]]:
    """Live sets over a few paths, with and without vectors."""
    files = st.dictionaries(st.sampled_from("abcd"), vectors())
    return files.map(
        lambda found: {p: replace(FILE, path=p, deletion_vector=v) for p, v in found.items()}
    )


@given(live_sets(), live_sets())
def test_a_difference_leads_from_one_live_set_to_the_other(
    before: dict[str, AddFile], after: dict[str, AddFile]
) -> None:
    """Applied to `before` it gives `after` without dead files, one action of a type per path."""
    actions = difference(before, after, now_ms=9)
    encode([INFO, *actions])
    live = dict(before)
    for action in actions:
        if isinstance(action, RemoveFile):
            old = live.pop(action.path)
            assert action == RemoveFile.of(old, deletion_ms=9)
    for action in actions:
        if isinstance(action, AddFile):
            assert action.path not in live
            live[action.path] = action
    # A dead file that was so before is nobody's business here: the engine never has one.
    unchanged = {path for path in before.keys() & after.keys() if before[path] == after[path]}
    expected = {path: add for path, add in after.items() if add.dead < add.rows}
    assert {p: a for p, a in live.items() if p not in unchanged or p in expected} == expected


def test_the_same_live_set_needs_no_action() -> None:
    """Nothing is rewritten for its flags or times."""
    again = replace(FILE, modified_ms=99, data_change=False)
    assert difference({"a": FILE}, {"a": again}, now_ms=9) == []


def test_compaction_changes_no_data() -> None:
    """Both sides of a compaction say so, and streams skip them."""
    other = replace(FILE, path="_runs/_bucket=0/c.parquet")
    actions = difference({FILE.path: FILE}, {other.path: other}, now_ms=9, data_change=False)
    assert [a.data_change for a in actions if isinstance(a, AddFile | RemoveFile)] == [False] * 2


def test_an_immutable_file_does_not_change() -> None:
    """Another size under the same path is a bug, not a change."""
    with pytest.raises(InvariantError):
        difference({"a": FILE}, {"a": replace(FILE, size=101)}, now_ms=9)


def test_a_checkpoint_comes_back() -> None:
    """Protocol, metadata, transactions and live files survive; null partitions too."""
    adds = [a for a in ALL if isinstance(a, AddFile)]
    data, actions = encode_checkpoint(ALL[1], ALL[2], [Txn("app", 4)], adds)  # type: ignore[arg-type]
    assert actions == 5
    read = list(read_checkpoint(data))
    assert read[:3] == [ALL[1], ALL[2], Txn("app", 4)]
    assert read[3:] == [replace(add, data_change=False) for add in adds]
    with pytest.raises(InvariantError):
        list(read_checkpoint(b"PAR1 is not enough"))


def test_columns_are_spelled_as_delta_does() -> None:
    """Every type of the closed set, nested ones included, and the engine's own columns."""
    text = "a BIGINT NOT NULL, b DECIMAL(10,2), c MAP<STRING, ARRAY<INT>>, d STRUCT<x: DATE>"
    fields = json.loads(schema_string(Schema.parse(text), extra=[("_bucket", "INT")]))["fields"]
    assert [f["name"] for f in fields] == ["a", "b", "c", "d", "_bucket"]
    assert [f["nullable"] for f in fields] == [False, True, True, True, True]
    assert [f["type"] for f in fields[:2]] == ["long", "decimal(10,2)"]
    assert fields[2]["type"]["valueType"]["elementType"] == "integer"
    assert fields[3]["type"]["fields"][0]["type"] == "date"
