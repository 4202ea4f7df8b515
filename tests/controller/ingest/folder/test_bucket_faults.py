"""What goes wrong with a bucket is that source's trouble: coded, with advice, and tried again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from controller.ingest.folder.object_store import S3Store
from controller.ingest.limits import FetchLimits, IngestLimits
from tests.controller.bucket_server import SECRET, BucketServer
from tests.controller.ingest.folder.located import Located
from tests.controller.ingest.harness import lines


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("403 Forbidden", "AccessDenied", "bucket_denied"),
        ("403 Forbidden", "InvalidAccessKeyId", "bucket_denied"),
        ("403 Forbidden", "SignatureDoesNotMatch", "bucket_denied"),
        ("400 Bad Request", "ExpiredToken", "bucket_denied"),
        ("500 Internal Server Error", "InternalError", "bucket_failed"),
        ("503 Slow Down", "SlowDown", "bucket_failed"),
        ("301 Moved Permanently", "PermanentRedirect", "bucket_failed"),
    ],
)
def test_an_answer_that_is_an_error_stops_the_source_until_it_is_over(
    located: Located, status: str, code: str, expected: str
):
    """Files that are dropped beside it come all the same."""
    server, drop = located.server, located.drop
    server.put("orders/a", lines(1))
    server.broken = (status, code)
    drop.fetch()
    assert located.failure() == expected
    (trouble,) = drop.folder.troubled("shop")
    assert code in trouble
    assert SECRET not in trouble
    drop.put("dropped", lines(1, start=7))
    assert drop.scan().accepted == 1
    server.broken = None
    assert located.take_in() == (1, 0, 0)
    assert located.failure() == ""
    assert drop.folder.troubled("shop") == []


def test_a_redirection_is_not_followed(located: Located):
    """An impostor of the service could send it to any address of the network."""
    server = located.server
    server.put("secret", b"of another service")
    server.elsewhere = f"{server.url}/{server.bucket}/secret"
    located.drop.fetch()
    assert located.failure() == "bucket_failed"
    assert server.gets == {}


def test_failures_are_tried_again_with_growing_pauses(located: Located):
    """Sooner than the interval at first, and never more often than the pauses allow."""
    server, drop = located.server, located.drop
    server.broken = ("403 Forbidden", "AccessDenied")
    asked = list[int]()
    for second in range(120):
        before = server.lists
        drop.fetch()
        if server.lists > before:
            asked.append(second)
        drop.pass_seconds(1)
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 30)


def test_a_failure_that_lasts_is_no_reason_to_list_more_often(server: BucketServer, tmp_path: Path):
    """One object that may not be read, and an interval of an hour."""
    located = Located(tmp_path, server, reach={"seconds": 3600.0})
    server.put("orders/a", lines(1))
    server.denied = {"orders/a"}
    for _ in range(3 * 3600 // 10):
        located.drop.fetch()
        located.drop.pass_seconds(10)
    assert server.lists < 12


def test_a_bucket_that_is_not_there_is_said_to_be_gone(server: BucketServer, tmp_path: Path):
    """Not that its objects are gone: nothing is forgotten."""
    located = Located(tmp_path, server, location="s3://nobody/x/", allowed=("s3://nobody",))
    located.drop.fetch()
    assert located.failure() == "bucket_gone"


def test_a_service_that_does_not_answer_is_away(tmp_path: Path, server: BucketServer):
    """A refused connection is reported within the time limits."""
    located = Located(tmp_path, server)
    feed = located.drop.folder.buckets
    feed._objects = S3Store("http://127.0.0.1:9", "k", "s")
    located.drop.fetch()
    assert located.failure() == "bucket_failed"
    feed._objects = server.store
    server.put("orders/a", lines(1))
    assert located.take_in() == (1, 0, 0)
    assert located.failure() == ""


def test_a_location_beyond_the_settings_is_not_listed(server: BucketServer, tmp_path: Path):
    """Deny by default; and a prefix allows no sibling that begins alike."""
    server.put("orders/a", lines(1))
    for number, allowed in enumerate(((), (server.location("orders2/"),), ("s3://other/",))):
        located = Located(tmp_path / str(number), server, allowed=allowed)
        located.drop.fetch()
        assert located.failure() == "location_refused"
    assert server.lists == 0


def test_an_object_that_goes_or_changes_after_the_listing_is_taken_as_it_is_then(
    located: Located,
):
    """The former is passed over, the latter comes with the next listing; others come at once."""
    server = located.server
    for number, name in enumerate("abc"):
        server.put(f"orders/{name}", lines(1, start=number))
    server.on_get("orders/a", lambda: server.delete("orders/a"))
    server.on_get("orders/b", lambda: server.put("orders/b", lines(1, start=9)))
    assert located.take_in() == (1, 0, 0)
    assert located.failure() == ""
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == [2, 9]


def test_an_object_that_changes_between_its_blocks_is_not_mixed(
    server: BucketServer, tmp_path: Path
):
    """Every request names the ETag of the listing."""
    located = Located(tmp_path, server, reach={"limits": FetchLimits(block_bytes=100)})
    server.put("orders/a", lines(10, start=10))

    def replace_before_the_second() -> None:
        server.on_get("orders/a", lambda: server.put("orders/a", lines(10, start=20)))

    server.on_get("orders/a", replace_before_the_second)
    assert located.take_in() == (0, 0, 0)
    assert server.gets["orders/a"] == 2
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == list(range(20, 30))


def test_a_cut_download_is_tried_again(located: Located):
    """Twice within a fetch; then the source is troubled, and nothing is left of the part."""
    server, drop = located.server, located.drop
    server.put("orders/a", lines(3))
    server.cuts["orders/a"] = 2
    assert located.take_in() == (1, 0, 0)
    server.put("orders/b", lines(1, start=5))
    server.cuts["orders/b"] = 3
    drop.pass_seconds(30)
    drop.fetch()
    assert located.failure() == "bucket_failed"
    assert drop.names("incoming") == []
    assert located.take_in() == (1, 0, 0)
    assert located.ids() == [0, 1, 2, 5]


def test_objects_that_may_not_be_read_do_not_stop_those_behind_them(located: Located):
    """The trouble names the first, and they come once they may be read."""
    server = located.server
    for number, name in enumerate("abcd"):
        server.put(f"orders/{name}", lines(1, start=number))
    server.denied = {"orders/a", "orders/c"}
    located.drop.fetch()
    assert located.failure() == "bucket_denied"
    assert "orders/a" in located.drop.folder.troubled("shop")[0]
    assert located.drop.scan().accepted == 2
    server.denied.clear()
    assert located.take_in() == (2, 0, 0)
    assert sorted(located.ids()) == [0, 1, 2, 3]


def test_a_bucket_whose_objects_cannot_be_read_is_not_tried_object_by_object(located: Located):
    """Some are tried, then the next listing; and these come last there, so that others come."""
    server = located.server
    names = [f"orders/{number:02}" for number in range(20)]
    for number, name in enumerate(names):
        server.put(name, lines(1, start=number))
    server.denied = set(names)
    located.drop.fetch()
    assert located.failure() == "bucket_denied"
    assert server.gets == dict.fromkeys(names[:3], 1)
    server.denied = set(names[:6])
    for _ in range(3):
        located.drop.pass_seconds(30)
        located.drop.fetch()
    located.drop.scan()
    assert sorted(located.ids()) == list(range(6, 20))
    assert located.failure() == "bucket_denied"


def test_an_object_that_comes_too_slowly_is_given_up(server: BucketServer, tmp_path: Path):
    """Its time counts from its begin; the next objects come."""
    seconds = [0.0]
    located = Located(
        tmp_path,
        server,
        limits=IngestLimits(seconds_max=5, bytes_per_second_min=1 << 30),
        reach={"monotonic": lambda: seconds[0], "limits": FetchLimits(block_bytes=100)},
    )

    def wait() -> None:
        seconds[0] += 6

    server.put("orders/a", lines(10))
    server.put("orders/b", lines(1))
    server.on_get("orders/a", wait)
    located.drop.fetch()
    assert located.failure() == "object_too_slow"
    assert located.drop.scan().accepted == 1


def test_a_full_claimed_folder_holds_back_the_fetch(server: BucketServer, tmp_path: Path):
    """A backlog in a bucket does not fill the disk: it waits until files were read."""
    limits = FetchLimits(waiting_files=2)
    located = Located(tmp_path, server, reach={"limits": limits})
    drop = located.drop
    for number in range(5):
        server.put(f"orders/{number}", lines(1, start=number))
    for rest in (2, 2, 1, 0):
        for _ in range(2):
            drop.fetch()
        assert len(drop.names("claimed")) == rest
        drop.scan()
    assert located.ids() == [0, 1, 2, 3, 4]
    assert server.lists == 1


def test_a_dataflow_that_was_made_again_lists_its_location_anew(
    server: BucketServer, tmp_path: Path
):
    """Objects that waited for a deleted dataflow of its name come, and so do all others."""
    located = Located(tmp_path, server, reach={"limits": FetchLimits(waiting_files=2)})
    drop = located.drop
    for number in range(5):
        server.put(f"orders/{number}", lines(1, start=number))
    drop.fetch()
    drop.scan()
    drop.make_again()
    for _ in range(3):
        drop.fetch()
        drop.scan()
    assert located.ids() == [0, 1, 2, 3, 4]
    assert located.take_in() == (0, 0, 0)
    assert located.failure() == ""
