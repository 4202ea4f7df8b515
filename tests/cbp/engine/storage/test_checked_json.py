"""Records that tell when they are damaged: JSON with a digest, entries of logs with one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.delta.actions import Action, AddFile, CommitInfo, decode, encode
from cbp.engine.storage.checked_json import digested, parsed, read_record
from cbp.engine.storage.files import LocalFiles
from cbp.errors import FileDamagedError, NotFoundError, place_of

VALUE = {"stage": "count", "epoch": 71, "files": [{"path": "a\\b", "rows": 2}], "memo": None}
RECORD = "tables/clicks/_intentions/count/7.json"


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Take a record as it is, without what an old reader passes over."""
    return {name: value[name] for name in VALUE}


@pytest.mark.parametrize("indent", [None, 1])
def test_no_flipped_bit_of_a_record_is_believed(indent: int | None) -> None:
    """Whichever it is, the record is what was written, or the error names the file."""
    data = digested(json.dumps(VALUE, indent=indent).encode(), RECORD)
    assert parsed(data, RECORD, plain) == VALUE
    assert plain(json.loads(data)) == VALUE  # as an old reader, which knows no digest
    refused = 0
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert parsed(bytes(flipped), RECORD, plain) == VALUE
        except FileDamagedError as error:
            refused += 1
            told = error.details["dataflow"], error.details["stage"]
            if told != ("clicks", "count"):
                raise
    assert refused > 7 * len(data)


def test_a_record_that_lies_under_another_name_is_not_believed() -> None:
    """An old copy, and the record of another epoch or stage, are whole and still not it."""
    data = digested(json.dumps(VALUE).encode(), RECORD)
    for other in ("count/8", "sums/7", "_positions/7", "_generations/1/count/7"):
        with pytest.raises(FileDamagedError) as refused:
            parsed(data, f"tables/clicks/_intentions/{other}.json", plain)
        assert refused.value.details["path"] == f"tables/clicks/_intentions/{other}.json"
    # A folder that was copied as a whole, a record of an earlier version, one looked at elsewhere.
    assert parsed(data, "/backup/of_clicks/_intentions/count/7.json", plain) == VALUE
    assert parsed(digested(json.dumps(VALUE).encode(), ""), RECORD, plain) == VALUE
    assert parsed(data, "/tmp/7.json", plain) == VALUE


def test_an_entry_that_lies_under_another_name_is_not_believed() -> None:
    """Nor is that of another version or table; one without a name is read as it is."""
    actions: list[Action] = [CommitInfo(1, "WRITE", 1, {}, "cbp")]
    data = encode(actions, "tables/clicks/state/count.sums/_delta_log/7.json")
    assert decode(data, "/x/clicks/state/count.sums/_delta_log/7.json") == actions
    assert decode(data) == decode(encode(actions), "tables/clicks/state/a.b/_delta_log/7.json")
    for other in ("state/count.sums/_delta_log/8", "flows/count.sums/_delta_log/7"):
        with pytest.raises(FileDamagedError) as refused:
            decode(data, f"tables/clicks/{other}.json")
        assert refused.value.details["path"] == f"tables/clicks/{other}.json"


def test_a_record_of_an_earlier_version_is_read_as_it_is(tmp_path: Path) -> None:
    """Without a digest it is believed; what is no record is named, what is not there is not."""
    path = f"{tmp_path}/clicks/_intentions/_positions/1.json"
    files = LocalFiles()
    with pytest.raises(NotFoundError):
        read_record(files, path, plain)
    files.write_durable(path, json.dumps(VALUE).encode())
    assert read_record(files, path, plain) == VALUE
    for damage in (b"", b'{"stage": "cou', b"{}", b"[1]", b"\xff", b"null"):
        files.write_durable(path, damage)
        with pytest.raises(FileDamagedError) as actual:
            read_record(files, path, plain)
        assert (actual.value.code, actual.value.details["kind"]) == ("file_damaged", "position")


def test_no_flipped_bit_of_a_log_entry_is_believed() -> None:
    """Its digest is in `commitInfo`, where any writer may write anything."""
    add = AddFile("_runs/_bucket=1/a.parquet", {"_bucket": "1"}, 1234, 71, 5)
    actions: list[Action] = [add, CommitInfo(1, "WRITE", 1, {"epoch": "7"}, "cbp")]
    data = encode(actions)
    (info, _) = map(json.loads, data.splitlines())
    assert len(info["commitInfo"]["cbpDigest"]) == 16
    expected = decode(data)
    assert expected[1] == add
    refused = 0
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert decode(bytes(flipped), "p")[1] == add
        except FileDamagedError:
            refused += 1
    assert refused > 7 * len(data)
    info["commitInfo"].pop("cbpDigest")
    older = b"\n".join(
        json.dumps(line).encode() for line in (info, json.loads(data.splitlines()[1]))
    )
    assert decode(older) == expected


@pytest.mark.parametrize(
    ("path", "kind", "name", "stage"),
    [
        ("state/count.sums/_runs/_bucket=0/a.parquet", "state", "count.sums", "count"),
        ("state/count.sums/_vectors/deletion_vector_1.bin", "state", "count.sums", "count"),
        ("state/count.sums/_delta_log/1.json", "table log", "count.sums", "count"),
        ("flows/count.totals/_runs/a.parquet", "output", "count.totals", "count"),
        ("set_aside/count/_runs/a.parquet", "set aside", "count", "count"),
        ("set_aside/count/_delta_log/1.json", "table log", "count", "count"),
        ("sources/clicks/1.parquet", "source", "clicks", ""),
        ("sources/clicks/_log/sealed/0-9.jsonl", "source log", "clicks", ""),
        ("sources/clicks/_objects/7.json", "source objects", "clicks", ""),
        ("_intentions/count/7.json", "record", "count", "count"),
        ("_intentions/_generations/1.json", "generation", "", ""),
        ("_intentions/_generations/1/count/7.json", "record", "count", "count"),
        ("_intentions/_generations/1/_positions/7.json", "position", "", ""),
        ("_intentions/_positions/7.json", "position", "", ""),
        ("_corrections/run.json", "correction", "", ""),
        ("_punctuations/3.json", "punctuation", "", ""),
        ("_description/1.json", "description", "", ""),
        ("_description/priorities/stages.json", "priorities", "", ""),
    ],
)
def test_a_path_tells_whose_it_is(path: str, kind: str, name: str, stage: str) -> None:
    """So every error about a file can name its dataflow, table and stage, and the next step."""
    place = place_of(f"/data/tables/visits/{path}")
    assert (place.dataflow, place.kind, place.name, place.stage) == ("visits", kind, name, stage)
    assert "visits" in place.next_step or "backup" in place.next_step
    assert place_of("/tmp/other.parquet").kind == ""


@pytest.mark.parametrize(
    ("path", "dataflow", "kind"),
    [
        ("/data/flows/tables/one/state/s.t/_runs/x", "one", "state"),
        ("/srv/state/a.b/one/_intentions/state/00.json", "one", "record"),
        ("/x/one/sources/flows/000-1.parquet", "one", "source"),
        ("/t/state/state/a.b/_delta_log/0.json", "state", "table log"),
    ],
)
def test_folders_above_and_names_of_stages_may_be_called_like_parts(
    path: str, dataflow: str, kind: str
) -> None:
    """The next step names the dataflow, not a folder of the machine that is called `state`."""
    place = place_of(path)
    assert (place.dataflow, place.kind) == (dataflow, kind)
