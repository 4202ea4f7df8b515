"""Which file is which: name and content, the key of an upload, what a source says of equals.

A file is the same file by name and content, or by the key of its upload; also after a restart,
sealed or with the database lost. Equal content under another name is data unless its source says
`duplicates: skip` or `quarantine`. The answer says at once which it is.
"""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.ingest.folder.source_place import claimed_of, evidence
from controller.ingest.limits import IngestLimits
from controller.store.base import Uploaded
from tests.controller.ingest.harness import DictStore, Drop, lines
from tests.planned_faults import Crash, PlannedFaults

SCHEMA = "id BIGINT, name STRING"


def upload(drop: Drop, name: str, data: bytes, key: str = "") -> Uploaded:
    return drop.folder.upload(drop.source(), name, io.BytesIO(data), key)


def statuses(drop: Drop) -> list[tuple[str, str]]:
    return [(c.path, c.status) for c in drop.store.claim_rows.values()]


def test_equal_content_under_another_name_is_data(tmp_path: Path):
    """P1: every file counts, and the claim says which earlier one it equals."""
    drop = Drop(tmp_path, SCHEMA)
    for name in ("tuesday", "wednesday"):
        drop.put(name, lines(1))
        assert drop.scan().accepted == 1
    first, second = drop.store.claim_rows.values()
    assert first.same_as is None
    assert second.same_as == {
        "by": "content",
        "claim": first.id,
        "file": "tuesday",
        "index": 0,
    }
    assert [row["id"] for row in drop.rows()] == [0, 0]


def test_a_setting_may_return_to_an_old_value(tmp_path: Path):
    """300, 100, 300: the last one counts."""
    drop = Drop(tmp_path, "n BIGINT")
    for number, value in enumerate((300, 100, 300)):
        drop.put(f"setting{number}", f'{{"n": {value}}}\n'.encode())
        assert drop.scan().accepted == 1
    assert [row["n"] for row in drop.rows()] == [300, 100, 300]


def test_every_empty_file_is_an_increment(tmp_path: Path):
    """Inputs that are aligned pair the increments that belong together."""
    drop = Drop(tmp_path, SCHEMA)
    for name in "abc":
        drop.put(name, b"")
    assert drop.scan().accepted == 3
    drop.put("b", b"")
    assert drop.scan().duplicates == 1
    assert [increment.records for increment in drop.increments()] == [0, 0, 0]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_retry_is_known_by_name_and_content_for_good(lost: bool, sealed: bool, tmp_path: Path):
    """Also once its entry is sealed, and when the database is lost; and says what it repeats."""
    drop = Drop(tmp_path, SCHEMA, limits=IngestLimits(sealed_entries=2))
    for number in range(6):
        drop.put(f"f{number}", lines(1))
        drop.scan()
    if sealed:
        drop.folder.clean(drop.record, drop.dataflow)
        assert list(Path(drop.record.folder).rglob("sealed/*.jsonl"))
    if lost:
        drop.store = DictStore()
        drop.start()
        drop.recover()
    for number in (0, 5):
        drop.put(f"f{number}", lines(1))
        assert drop.scan().duplicates == 1
        shown = list(drop.store.claim_rows.values())[-1].same_as
        assert (shown["by"], shown["file"], shown["index"]) == (
            "name_and_content",
            f"f{number}",
            number,
        )
    assert len(drop.increments()) == 6


@pytest.mark.parametrize(
    ("says", "becomes"), [("skip", "duplicate"), ("quarantine", "quarantined")]
)
@pytest.mark.parametrize("way", ["drop", "upload"])
def test_a_source_may_say_otherwise(says: str, becomes: str, way: str, tmp_path: Path):
    """Equal content under another name is left out, or put aside with its reason."""
    drop = Drop(tmp_path, SCHEMA, duplicates=says)
    upload(drop, "a", lines(2))
    drop.scan()
    if way == "drop":
        drop.put("b", lines(2))
        drop.scan()
    else:
        answer = upload(drop, "b", lines(2)).claim
        assert answer.status == becomes
    claim = list(drop.store.claim_rows.values())[-1]
    assert (claim.path, claim.status) == ("b", becomes)
    assert claim.same_as["by"] == "content"
    assert [reason["code"] for reason in drop.reasons()] == ["content_known"] * (
        becomes == "quarantined"
    )
    assert drop.names("incoming") == drop.names("claimed") == []
    assert len(drop.increments()) == 1
    assert drop.scan().accepted == 0


def test_a_new_version_may_say_something_else(tmp_path: Path):
    """What counts is what the source says when the file is taken in."""
    drop = Drop(tmp_path, SCHEMA, duplicates="skip")
    for name, says, report in (
        ("a", "skip", "accepted"),
        ("b", "skip", "duplicates"),
        ("c", "accept", "accepted"),
        ("d", "quarantine", "quarantined"),
    ):
        node = replace(drop.dataflow.sources["orders"], duplicates=says)
        drop.dataflow = replace(drop.dataflow, sources={"orders": node})
        drop.put(name, lines(1))
        assert getattr(drop.scan(), report) == 1, name


def test_what_was_refused_is_not_known(tmp_path: Path):
    """A file in quarantine comes anew: fixed, or as it was once its source reads it."""
    drop = Drop(tmp_path, "n BIGINT")
    for name in "ab":
        drop.put(name, b'{"n": "x"}\n')
    assert drop.scan().quarantined == 2
    drop.put("a", b'{"n": 1}\n')
    assert drop.scan().accepted == 1
    text = Drop(tmp_path, "n STRING", store=drop.store)
    text.put("b", b'{"n": "x"}\n')
    assert text.scan().accepted == 1


def test_files_of_a_manifest_are_known_by_their_own_names(tmp_path: Path):
    """Two of equal content are two; the same manifest with its files again is none."""
    drop = Drop(tmp_path, SCHEMA)
    manifest = {"files": [{"name": name, "bytes": len(lines(1))} for name in "ab"]}
    for accepted, duplicates in ((2, 0), (0, 2)):
        for name in "ab":
            drop.put(name, lines(1))
        drop.put("_MANIFEST.json", json.dumps(manifest).encode())
        report = drop.scan()
        assert (report.accepted, report.duplicates) == (accepted, duplicates)


def test_names_that_look_alike_are_not_one(tmp_path: Path):
    """Bytes that are no text are distinct from text that spells them."""
    names = (b"a\xff", rb"a\xff", rb"a\\xff", b"a\\\xff", b"a\xfe", b"a\\b", b"a\\\\b", rb"\xff\\")
    accents = ("a\N{COMBINING ACUTE ACCENT}".encode(), "á".encode())
    shown = {evidence(name.decode("utf-8", "surrogateescape")) for name in (*names, *accents)}
    assert len(shown) == len(names) + len(accents)
    drop = Drop(tmp_path, SCHEMA)
    for name in (*names, *accents):
        drop.put(name, lines(1))
    assert drop.scan().accepted == len(shown)


def test_an_upload_says_at_once_what_it_is(tmp_path: Path):
    """New, equal to another one, or a retry, which is settled and leaves nothing behind."""
    drop = Drop(tmp_path, SCHEMA)
    first = upload(drop, "a", lines(1)).claim
    assert (first.status, first.same_as) == ("claimed", None)
    waits = upload(drop, "a", lines(1)).claim
    assert (waits.status, waits.same_as) == (
        "claimed",
        {"by": "name_and_content", "claim": first.id, "file": "a"},
    )
    report = drop.scan()
    assert (report.accepted, report.duplicates) == (1, 1)
    other = upload(drop, "b", lines(1)).claim
    assert (other.status, other.same_as) == (
        "claimed",
        {"by": "content", "claim": first.id, "file": "a", "index": 0},
    )
    again = upload(drop, "a", lines(1)).claim
    assert (again.status, (again.same_as or {})["index"]) == ("duplicate", 0)
    assert drop.names("claimed") == [f"{other.id}-b"]
    assert drop.names("incoming") == []


def test_a_key_names_one_request(tmp_path: Path):
    """Repeated, it gets the first answer and leaves nothing; with another file it is refused."""
    drop = Drop(tmp_path, SCHEMA)
    first = upload(drop, "a", lines(1), "k").claim
    drop.scan()
    drop.start()
    again = upload(drop, "a", lines(1), "k")
    assert (again.repeated, again.same_request) == (True, True)
    assert again.answer == first
    for name, data in (("a", lines(2)), ("b", lines(1))):
        assert not upload(drop, name, data, "k").same_request
    assert len(drop.store.claim_rows) == 1
    assert [p.name for p in drop.incoming.iterdir()] == []
    known = upload(drop, "a", lines(1), "other").claim
    assert known.status == "duplicate"
    assert upload(drop, "a", lines(1), "other").answer == known


@pytest.mark.parametrize("passage", [1, 2, 3, 4])
@pytest.mark.parametrize("point", ["claim.before", "claim.after", "rename.before", "rename.after"])
@pytest.mark.parametrize("key", ["", "k"])
def test_a_retry_after_a_crash_counts_once(key: str, point: str, passage: int, tmp_path: Path):
    """Killed anywhere between the upload and its acceptance; a client without an answer retries."""
    drop = Drop(tmp_path, SCHEMA)
    drop.start(PlannedFaults(point, passage=passage))
    with suppress(Crash):
        upload(drop, "a", lines(1), key)
        drop.scan()
    drop.start()
    drop.recover()
    upload(drop, "a", lines(1), key)
    drop.scan()
    upload(drop, "a", lines(1), key)
    drop.scan()
    assert len(drop.increments()) == 1
    assert drop.names("incoming") == drop.names("claimed") == []


@pytest.mark.parametrize("passage", [1, 2])
@pytest.mark.parametrize("point", ["claim.before", "claim.after", "rename.before", "rename.after"])
@pytest.mark.parametrize("says", ["accept", "quarantine"])
def test_a_crash_while_a_known_upload_is_settled(
    says: str, point: str, passage: int, tmp_path: Path
):
    """Recovery leaves no half of it: neither a part that waits nor a claim without its file."""
    drop = Drop(tmp_path, SCHEMA, duplicates=says)
    upload(drop, "a", lines(1))
    drop.scan()
    drop.start(PlannedFaults(point, passage=passage))
    name = "a" if says == "accept" else "b"
    with suppress(Crash):
        upload(drop, name, lines(1))
    drop.start()
    drop.recover()
    upload(drop, name, lines(1))
    drop.scan()
    assert len(drop.increments()) == 1
    assert [p.name for p in drop.incoming.iterdir()] == drop.names("claimed") == []
    kept = {c.status for c in drop.store.claim_rows.values()}
    assert kept == {"accepted", "duplicate" if says == "accept" else "quarantined"}


def test_a_claimed_file_keeps_its_name_when_the_store_is_lost(tmp_path: Path):
    """Else its retry would count twice."""
    drop = Drop(tmp_path, SCHEMA)
    names = ("tag 1/2 é.jsonl".replace("/", "-"), "x" * 255)
    for name in names:
        drop.put(name, lines(1))
    drop.start(PlannedFaults("increment_file.before"))
    with pytest.raises(Crash):
        drop.scan()
    drop.store = DictStore()
    drop.start()
    drop.recover()
    drop.scan()
    drop.scan()
    shown = [path for path, status in statuses(drop) if status == "accepted"]
    assert sorted(shown) == sorted(names)
    for name in names:
        drop.put(name, lines(1))
    assert drop.scan().duplicates == 2


def test_a_name_that_is_too_long_is_left_out_of_the_copy(tmp_path: Path):
    """The copy of an earlier version has no name either: it comes back under another one."""
    assert claimed_of("0123abc.jsonl") == ("0123abc", "")
    drop = Drop(tmp_path, SCHEMA)
    (drop.place("claimed") / "0123abc.jsonl").write_bytes(lines(1))
    assert drop.scan().accepted == 1
    assert statuses(drop) == [("recovered-0123abc.jsonl", "accepted")]


def test_what_the_log_says_comes_back_as_it_was(tmp_path: Path):
    """Key and earlier file stand in the entry, and so in a store that was lost."""
    drop = Drop(tmp_path, SCHEMA)
    for name, key in (("a", "k"), ("b", "")):
        upload(drop, name, lines(1), key)
        drop.scan()
    before: list[Any] = list(drop.store.claim_rows.values())
    drop.store = DictStore()
    drop.start()
    drop.recover()
    after: list[Any] = list(drop.store.claim_rows.values())
    assert [(c.id, c.key, c.same_as) for c in after] == [(c.id, c.key, c.same_as) for c in before]
    assert upload(drop, "a", lines(1), "k").repeated


@pytest.mark.parametrize("says", ["accept", "skip", "quarantine"])
def test_what_equals_a_dropped_increment_is_taken_in_again(says: str, tmp_path: Path):
    """By name, by content and by its key: what is withdrawn was applied before by no roll-back."""
    drop = Drop(tmp_path, SCHEMA, duplicates=says)
    name = "a" if says == "accept" else "b"
    upload(drop, "a", lines(1), "first")
    drop.scan()
    assert upload(drop, name, lines(1), "second").claim.status in ("duplicate", "quarantined")
    (accepted,) = (c for c in drop.store.claim_rows.values() if c.status == "accepted")
    drop.store.claim_rows[accepted.id] = replace(accepted, status="withdrawn")
    again = upload(drop, name, lines(1), "second")
    assert (again.claim.status, again.repeated) == ("claimed", False)
    assert drop.scan().accepted == 1
    upload(drop, name, lines(1), "second")
    drop.scan()
    assert len(drop.increments()) == 2
