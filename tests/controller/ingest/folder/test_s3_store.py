"""The client of S3: what it reads is what was asked for, or an error with a code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.ingest.errors import BucketFailedError, ObjectChangedError, ObjectGoneError
from controller.ingest.folder.object_store import S3Store, StoredObject
from tests.controller.bucket_server import KEY, SECRET, BucketServer


def the_object(server: BucketServer) -> StoredObject:
    (page,) = server.store.pages(server.bucket, "")
    (one,) = page
    return one


def test_a_listing_of_several_pages_is_whole_and_in_order(server: BucketServer):
    """A request shows a thousand objects at most."""
    names = [f"a/{number}" for number in range(5)]
    for name in names:
        server.put(name, b"x")
    store = S3Store(server.url, KEY, SECRET, page=2)
    pages = [[one.key for one in page] for page in store.pages(server.bucket, "a/")]
    assert pages == [names[:2], names[2:4], names[4:]]
    assert [*store.pages(server.bucket, "none/")] == [[]]


def test_a_part_of_an_object_is_that_part(server: BucketServer):
    """Also at its end, and of an object that has nothing."""
    server.put("a", b"0123456789")
    one = the_object(server)
    assert server.store.read(server.bucket, one, 0, 4) == b"0123"
    assert server.store.read(server.bucket, one, 8, 2) == b"89"
    server.put("a", b"")
    assert server.store.read(server.bucket, the_object(server), 0, 0) == b""


def test_an_object_that_is_not_what_was_listed_is_not_read(server: BucketServer):
    """Changed, shorter or gone; a service that knows no ETag is read without."""
    server.put("a", b"0123456789")
    one = the_object(server)
    with pytest.raises(ObjectChangedError):
        server.store.read(server.bucket, replace(one, etag='"0"'), 0, 4)
    with pytest.raises(ObjectChangedError):
        server.store.read(server.bucket, one, 20, 4)
    with pytest.raises(BucketFailedError, match="more bytes"):
        server.store.read(server.bucket, replace(one, size=0), 0, 0)
    assert server.store.read(server.bucket, replace(one, etag=""), 0, 4) == b"0123"
    server.delete("a")
    with pytest.raises(ObjectGoneError):
        server.store.read(server.bucket, one, 0, 4)
