"""A known name with other content: put aside, unless its source or an operator says it is added."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cbp.model.dataflow.nodes import FileBatch
from controller.ingest.quarantine_decisions import refusal
from controller.ingest.uploads import Author
from controller.store.base import ClaimRecord, Uploaded
from tests.controller.ingest.harness import DictStore, Drop, lines

SCHEMA = "id BIGINT, name STRING"
ME = Author("me", "further records")


def upload(drop: Drop, name: str, data: bytes) -> Uploaded:
    return drop.folder.upload(drop.source(), name, io.BytesIO(data))


def bring(drop: Drop, way: str, name: str, data: bytes) -> ClaimRecord:
    """Hand a file over by drop or upload, and let it be taken in; return its claim."""
    if way == "upload":
        upload(drop, name, data)
    else:
        drop.put(name, data)
    drop.scan()
    return newest(drop)


def newest(drop: Drop) -> ClaimRecord:
    claim: ClaimRecord = list(drop.store.claim_rows.values())[-1]
    return claim


def ids(drop: Drop) -> list[Any]:
    return [row["id"] for row in drop.rows()]


@pytest.mark.parametrize("batch", [FileBatch(files=1), FileBatch()])
@pytest.mark.parametrize("way", ["drop", "upload"])
def test_a_day_that_is_sent_again_is_not_counted_twice(
    way: str, batch: FileBatch, tmp_path: Path
) -> None:
    """Other content under a known name goes to quarantine, with the earlier increment named."""
    drop = Drop(tmp_path, SCHEMA, batch=batch)
    bring(drop, way, "other", lines(1, start=7))
    first = bring(drop, way, "day", lines(2))
    again = bring(drop, way, "day", lines(3))
    assert (again.status, again.index) == ("quarantined", None)
    (reason,) = drop.reasons()
    assert reason["code"] == "same_name"
    assert "increment 1" in reason["message"]
    assert "same_name: add" in reason["message"]
    same = {name: (again.same_as or {}).get(name) for name in ("by", "claim", "file", "index")}
    assert same == {"by": "name", "claim": first.id, "file": "day", "index": 1}
    assert ids(drop) == [7, 0, 1]
    assert drop.names("incoming") == drop.names("claimed") == []
    assert bring(drop, way, "day", lines(2)).status == "duplicate"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_name_is_known_for_good(lost: bool, sealed: bool, tmp_path: Path) -> None:
    """Once its entry is sealed, and once the database was lost."""
    drop = Drop(tmp_path, SCHEMA)
    for number in range(3):
        bring(drop, "drop", f"f{number}", lines(1, start=number))
    if sealed:
        drop.folder.clean(drop.record, drop.dataflow)
    if lost:
        drop.store = DictStore()
        drop.start()
        drop.recover()
    assert bring(drop, "drop", "f1", lines(9)).status == "quarantined"


def test_files_that_wait_together_are_judged_in_turn(tmp_path: Path) -> None:
    """The first of two uploads with one name counts; each is compared with those before it."""
    for number, batch in enumerate((FileBatch(files=1), FileBatch())):
        drop = Drop(tmp_path / str(number), SCHEMA, batch=batch)
        for count in (1, 2, 1):
            upload(drop, "day", lines(count))
        report = drop.scan()
        assert (report.accepted, report.quarantined, report.duplicates) == (1, 1, 1)
        assert ids(drop) == [0]


@pytest.mark.parametrize("batch", [FileBatch(files=1), FileBatch()])
def test_a_source_may_add_what_has_a_known_name(batch: FileBatch, tmp_path: Path) -> None:
    """`same_name: add`: a constant name says nothing; the same content is still a retry."""
    drop = Drop(tmp_path, SCHEMA, same_name="add", batch=batch)
    for count, status in ((1, "accepted"), (2, "accepted"), (1, "duplicate")):
        assert bring(drop, "drop", "day", lines(count)).status == status
    assert ids(drop) == [0, 0, 1]


def test_content_that_a_source_skips_is_skipped_under_a_known_name_too(tmp_path: Path) -> None:
    """Nothing of it is new, as when logs are rotated by renaming them."""
    drop = Drop(tmp_path, SCHEMA, duplicates="skip")
    for name, count, status in (("log.1", 1, "accepted"), ("log.2", 2, "accepted")):
        assert bring(drop, "drop", name, lines(count)).status == status
    assert bring(drop, "drop", "log.2", lines(1)).status == "duplicate"


@pytest.mark.parametrize(
    ("setting", "name"), [({}, "day"), ({"duplicates": "quarantine"}, "day again")]
)
def test_an_operator_may_add_it(setting: dict[str, str], name: str, tmp_path: Path) -> None:
    """Readmitted, a file counts although its name or its content is known; once."""
    drop = Drop(tmp_path, SCHEMA, **setting)  # type: ignore[arg-type]
    bring(drop, "drop", "day", lines(1))
    data = lines(1) if setting else lines(1, start=5)
    refused = bring(drop, "drop", name, data)
    assert refused.status == "quarantined"
    made = drop.folder.readmit(drop.source(), refused.id, None, ME)
    drop.scan()
    assert drop.store.claim_rows[refused.id].status == "readmitted"
    assert made.readmitted is not None
    assert drop.store.claim_rows[made.readmitted.id].status == "accepted"
    assert len(drop.increments()) == 2
    drop.put(name, data)
    assert drop.scan().duplicates == 1


def test_a_mended_file_is_still_compared_by_name(tmp_path: Path) -> None:
    """Who mends a wrong value has not decided that the file is an addition."""
    drop = Drop(tmp_path, SCHEMA)
    bring(drop, "drop", "day", lines(1))
    wrong = bring(drop, "drop", "day", b'{"id": "x"}\n')
    assert (wrong.reason or {})["code"] == "value_type"
    mended = io.BytesIO(lines(1, start=5))
    drop.folder.readmit(drop.source(), wrong.id, mended, ME)
    drop.scan()
    claim = newest(drop)
    assert (claim.status, (claim.reason or {})["code"]) == ("quarantined", "same_name")
    drop.folder.readmit(drop.source(), claim.id, None, ME)
    drop.scan()
    assert ids(drop) == [0, 5]


def test_what_a_file_lacked_may_be_added_under_its_name(tmp_path: Path) -> None:
    """The rest of a file that grew after it was read, sent in its place."""
    drop = Drop(tmp_path, SCHEMA)
    claim = bring(drop, "drop", "day", lines(1))
    grown = replace(claim, id=f"{claim.id}g", status="quarantined", reason={"code": "file_grew"})
    drop.store.claim_rows[grown.id] = grown
    (drop.place("quarantine") / f"{grown.id}-day").write_bytes(lines(2))
    rest = io.BytesIO(lines(1, start=1))
    drop.folder.readmit(drop.source(), grown.id, rest, ME)
    drop.scan()
    assert ids(drop) == [0, 1]


def test_what_a_roll_back_took_out_frees_its_name(tmp_path: Path) -> None:
    """A corrected file comes in once the wrong one counts no more."""
    drop = Drop(tmp_path, SCHEMA)
    claim = bring(drop, "drop", "day", lines(1))
    drop.store.claim_rows[claim.id] = replace(drop.store.claim_rows[claim.id], status="withdrawn")
    assert bring(drop, "drop", "day", lines(2)).status == "accepted"


def test_a_manifest_that_names_a_known_name_is_refused_whole(tmp_path: Path) -> None:
    """Part of what was announced is no increment."""
    drop = Drop(tmp_path, SCHEMA)
    bring(drop, "drop", "a", lines(1))
    for name, data in (("a", lines(2)), ("b", lines(3))):
        drop.put(name, data)
    files = [{"name": "a", "bytes": len(lines(2))}, {"name": "b", "bytes": len(lines(3))}]
    drop.put("_MANIFEST.json", json.dumps({"files": files}).encode())
    assert drop.scan().quarantined == 2
    assert sorted(reason["code"] for reason in drop.reasons()) == ["manifest_refused", "same_name"]
    assert ids(drop) == [0]


def test_the_question_before_a_copy_has_the_same_answer(tmp_path: Path) -> None:
    """`foresee` says of name and content what the intake will say."""
    drop = Drop(tmp_path, SCHEMA)
    first = bring(drop, "drop", "day", lines(1))
    shown = drop.folder.foresee(drop.source(), "day", "0" * 64)
    assert shown.outcome == "quarantined"
    assert dict(shown.same_as or {})["claim"] == first.id
    assert drop.folder.foresee(drop.source(), "b", "0" * 64).outcome == ("accepted")


@pytest.mark.parametrize("again", [False, True])
def test_no_file_of_a_manifest_replaces(again: bool, tmp_path: Path) -> None:
    """All files of one are an increment; readmitted, each is one of its own, and can replace.

    That is where names are overwritten, and of a file that was retracted.
    """
    drop = Drop(tmp_path, SCHEMA, same_name="quarantine" if again else "replace")
    bring(drop, "drop", "a", lines(3))
    if again:
        drop.folder.replacements.ask(drop.source(), "a", None, ME)
        drop.scan()
    for name, data in (("a", lines(2)), ("b", lines(1, start=7))):
        drop.put(name, data)
    files = [{"name": "a", "bytes": len(lines(2))}, {"name": "b", "bytes": len(lines(1, start=7))}]
    drop.put("_MANIFEST.json", json.dumps({"files": files}).encode())
    assert drop.scan().quarantined == 2
    reasons = {reason["file"]: reason for reason in drop.reasons()}
    assert {name: one["code"] for name, one in reasons.items()} == {
        "a": "manifest_replaces",
        "b": "manifest_refused",
    }
    assert "same_name" not in reasons["a"]["message"]
    for name in ("a", "b"):
        claim = reasons[name]["claim"]
        drop.folder.readmit(drop.source(), claim, None, ME)
    drop.scan()
    gone = [sum(file.rows for file in one.gone) for one in drop.increments()]
    assert gone == ([0, 3, 0, 0] if again else [0, 1, 0])
    assert sorted(ids(drop)) == [0, *([0, 1] if again else []), 1, 2, 7]


def test_a_replacement_of_what_a_roll_back_took_out_is_data_if_it_is_readmitted(
    tmp_path: Path,
) -> None:
    """There is nothing to replace, and its records count nowhere else."""
    drop = Drop(tmp_path, SCHEMA)
    claim = bring(drop, "drop", "day", lines(1))
    right = io.BytesIO(lines(2))
    drop.folder.replacements.ask(drop.source(), "day", right, ME)
    drop.store.claim_rows[claim.id] = replace(drop.store.claim_rows[claim.id], status="withdrawn")
    drop.scan()
    (reason,) = drop.reasons()
    assert reason["code"] == "nothing_to_replace"
    drop.folder.readmit(drop.source(), reason["claim"], None, ME)
    drop.scan()
    assert newest(drop).status == "accepted"
    assert ids(drop) == [0, 0, 1]


@pytest.mark.parametrize("change", ["grew", "rewritten"])
def test_a_file_that_changed_replaces_its_first_content_where_names_are_overwritten(
    change: str, tmp_path: Path
) -> None:
    """Readmitted as it is, it is the newest file of its name; its records count once."""
    drop = Drop(tmp_path, SCHEMA, same_name="replace")
    claim = bring(drop, "drop", "day", lines(2))
    path = drop.place("finished") / f"{claim.id}-day"
    path.write_bytes(lines(3) if change == "grew" else lines(2, start=1))
    drop.scan()
    (reason,) = drop.reasons()
    assert reason["code"] == f"file_{change}"
    assert "readmit it unchanged" in reason["message"]
    assert refusal(newest(drop), drop.dataflow.sources["orders"]) == ""
    other = replace(drop.dataflow.sources["orders"], same_name="add")
    assert "would count twice" in refusal(newest(drop), other)
    drop.folder.readmit(drop.source(), reason["claim"], None, ME)
    drop.scan()
    assert ids(drop) == [0, 1, 2]
    (increment,) = drop.increments()[1:]
    assert sum(file.rows for file in increment.gone) == (change == "rewritten")


@pytest.mark.parametrize("batch", [FileBatch(files=1), FileBatch()])
@pytest.mark.parametrize(("duplicates", "known"), [("skip", "duplicate"), ("quarantine",) * 2])
def test_content_that_was_retracted_or_replaced_comes_under_another_name(
    duplicates: str, known: str, batch: FileBatch, tmp_path: Path
) -> None:
    """It equals no file that counts; once it came, it is known again."""
    drop = Drop(tmp_path, SCHEMA, duplicates=duplicates, batch=batch)
    bring(drop, "drop", "a", lines(1))
    bring(drop, "drop", "b", lines(1, start=5))
    for name, stream in (("a", None), ("b", io.BytesIO(lines(1, start=6)))):
        drop.folder.replacements.ask(drop.source(), name, stream, ME)
    drop.scan()
    status = "quarantined" if known == "quarantine" else known
    for name, start in (("c", 0), ("d", 5)):
        shown = drop.folder.foresee(drop.source(), name, sha256(lines(1, start=start)).hexdigest())
        assert shown.outcome == "accepted"
        assert bring(drop, "drop", name, lines(1, start=start)).status == "accepted"
        assert bring(drop, "drop", f"{name} again", lines(1, start=start)).status == status
    assert ids(drop) == [0, 5, 6, 0, 5]
