"""Objects of a bucket over HTTP: each counts once, and is judged as a dropped file is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from controller.ingest.limits import IngestLimits
from tests.controller.bucket_server import BucketServer
from tests.controller.ingest.folder.located import Located
from tests.controller.ingest.harness import lines


def test_objects_come_once_in_the_order_of_their_keys(located: Located):
    """Two passes fetch nothing twice; a new object comes alone; the bucket stays as it is."""
    server = located.server
    for number in (3, 1, 2):
        server.put(f"orders/2026/{number}.jsonl", lines(1, start=number))
    server.put("other/9.jsonl", lines(1, start=9))
    assert located.take_in() == (3, 0, 0)
    assert located.take_in() == (0, 0, 0)
    server.put("orders/0.jsonl", lines(1, start=4))
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == [1, 2, 3, 4]
    assert set(server.gets.values()) == {1}
    assert located.names() == ["2026/1.jsonl", "2026/2.jsonl", "2026/3.jsonl", "0.jsonl"]
    assert len(server.keys()) == 5


def test_a_location_is_listed_once_per_interval(located: Located):
    """However often the service asks."""
    for _ in range(5):
        located.drop.fetch()
        located.drop.pass_seconds(6)
    assert located.server.lists == 1
    located.drop.pass_seconds(6)
    located.drop.fetch()
    assert located.server.lists == 2


def test_what_was_seen_outlives_a_restart(located: Located):
    """A new process, and nothing is fetched again."""
    located.server.put("orders/a", lines(1))
    located.take_in()
    located.drop.start()
    assert located.take_in() == (0, 0, 0)
    assert located.server.gets == {"orders/a": 1}


def test_a_replaced_object_is_put_aside_unless_it_is_added(server: BucketServer, tmp_path: Path):
    """As a file of a known name; the former content is a retry."""
    located = Located(tmp_path / "quarantine", server)
    server.put("orders/a", lines(1, start=1))
    located.take_in()
    server.put("orders/a", lines(1, start=2))
    assert located.take_in() == (0, 0, 0)  # settled when it was fetched
    assert [reason["code"] for reason in located.drop.reasons()] == ["same_name"]
    located = Located(tmp_path / "add", server, same_name="add")
    server.put("orders/a", lines(1, start=1))
    located.take_in()
    server.put("orders/a", lines(1, start=2))
    assert located.take_in() == (1, 0, 0)
    server.put("orders/a", lines(1, start=1))
    accepted, _, quarantined = located.take_in()  # within a second it is not even fetched
    assert (accepted, quarantined) == (0, 0)
    assert located.ids() == [1, 2]


def test_equal_content_under_another_key_is_data(server: BucketServer, tmp_path: Path):
    """Unless the source says otherwise, as for files."""
    for number, (duplicates, expected) in enumerate(
        (("accept", (2, 0, 0)), ("skip", (1, 1, 0)), ("quarantine", (1, 0, 1)))
    ):
        prefix = f"{duplicates}/"
        server.put(f"{prefix}a", lines(1))
        server.put(f"{prefix}b", lines(1))
        located = Located(
            tmp_path / str(number), server, location=server.location(prefix), duplicates=duplicates
        )
        assert located.take_in() == expected


def test_empty_compressed_and_bad_objects_are_what_such_files_are(located: Located):
    """A content encoding of HTTP changes nothing; what is no sound file goes to quarantine."""
    server = located.server
    server.put("orders/a", b"")
    server.put("orders/b.gz", gzip.compress(lines(2)), ContentEncoding="gzip")
    server.put("orders/c", b"no json\n")
    assert located.take_in() == (2, 0, 1)
    assert located.ids() == [0, 1]
    (reason,) = located.drop.reasons()
    assert (reason["file"], reason["code"]) == ("c", "json_invalid")


ODD = (
    "a b+c&d=e?versionId=1#x%41.jsonl",
    "über/日本/😀.jsonl",
    "a//b.jsonl",
    "back\\slash:colon*|.jsonl",
    "a\ttab.jsonl",
    "l" * 900,
    "/".join(["é" * 20] * 20),
)


@pytest.mark.parametrize("key", ODD, ids=range(len(ODD)))
def test_odd_keys_are_fetched_as_they_are_and_never_become_paths(located: Located, key: str):
    """Names on disk are the service's; a key that is too long is cut, and stays distinct."""
    server, drop = located.server, located.drop
    server.put(f"orders/{key}", lines(1))
    server.put(f"orders/{key}2", lines(1, start=1))
    assert located.take_in() == (2, 0, 0)
    assert located.ids() == [0, 1]
    assert len(set(located.names())) == 2
    below = {path.relative_to(drop.root / "drop") for path in (drop.root / "drop").rglob("*")}
    assert all(len(path.parts) <= 4 for path in below)
    assert located.take_in() == (0, 0, 0)


def test_marks_and_unfinished_objects_are_left_out(located: Located):
    """What jobs write beside their data is no data; it is shown, except for folders."""
    server = located.server
    left_out = ("_SUCCESS", "_temporary/0/a", ".hidden", "x/../a", "a.jsonl.part", "x/")
    for name in left_out:
        server.put(f"orders/{name}", lines(1))
    for name in ("orders/", "orders/sub/", "orders/sub_$folder$"):
        server.put(name, b"")
    server.put("orders/a", lines(1))
    assert located.take_in() == (1, 0, 0)
    assert located.server.gets == {"orders/a": 1}
    (folder,) = located.drop.folder.look(located.drop.record, located.drop.dataflow)
    bucket = folder["bucket"]
    assert (bucket["objects"], bucket["waiting"], bucket["left_out"]) == (10, 0, 6)
    assert {one["name"] for one in bucket["oldest_left_out"]} == set(left_out)
    assert folder["warning"] == ""


def test_a_huge_object_is_refused_unfetched_and_the_others_come(
    server: BucketServer, tmp_path: Path
):
    """It is shown once among the refused, and comes by itself when the limit is raised."""
    located = Located(tmp_path, server, limits=IngestLimits(file_bytes_max=100))
    server.put("orders/a", lines(20))
    server.put("orders/b", lines(1, start=50))
    assert located.take_in() == (1, 0, 0)
    located.drop.start()
    located.take_in()
    refused = [c for c in located.drop.store.claim_rows.values() if c.status == "quarantined"]
    assert [(c.path, (c.reason or {})["code"]) for c in refused] == [("a", "file_too_large")]
    assert server.gets == {"orders/b": 1}
    located.drop.limit(IngestLimits())
    located.drop.start()
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == [50, *range(20)]
