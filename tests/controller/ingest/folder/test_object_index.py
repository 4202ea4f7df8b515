"""The index of claimed objects: small, checked, and enough to fetch nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbp.engine.storage.files import LocalFiles
from cbp.errors import FileDamagedError, FileLostError
from cbp.model.source.bucket_prefix import BucketPrefix
from controller.ingest.folder.bucket_listing import BucketListing, ObjectIndex, list_location
from controller.ingest.folder.object_store import StoredObject
from controller.ingest.limits import FetchLimits
from tests.controller.ingest.folder.located import Located
from tests.controller.ingest.harness import lines

LOCATION = BucketPrefix("bucket", "orders/")
AT = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 12_000


def stored(name: str, etag: str = "e", size: int = 1) -> StoredObject:
    return StoredObject(LOCATION.prefix + name, etag, size, AT)


class Bucket:
    """A bucket that can only be listed, by pages of a thousand."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.pages_asked = list(names), 0

    def pages(self, bucket: str, prefix: str) -> Iterator[Sequence[StoredObject]]:
        for start in range(0, len(self.names), 1_000):
            self.pages_asked += 1
            yield [stored(name) for name in self.names[start : start + 1_000]]

    def read(self, bucket: str, one: StoredObject, offset: int, size: int) -> bytes:
        raise AssertionError(one)


def listed(root: Path, names: Sequence[str], new_max: int = 1 << 20) -> BucketListing:
    return list_location(
        LOCATION,
        str(root),
        store=Bucket(names),
        files=LocalFiles(),
        now=AT,
        new_max=new_max,
        last=(),
        stopping=lambda: False,
    )


def load(root: Path, location: BucketPrefix = LOCATION) -> ObjectIndex:
    return ObjectIndex.load(str(root), str(location), LocalFiles())


def put(root: Path, *names: str) -> None:
    load(root).put([(name, stored(name)) for name in names])


def records(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "_objects").iterdir())


def test_a_large_location_is_listed_without_a_look_at_its_objects(tmp_path: Path):
    """The index of 12,000 objects is one file of a megabyte, and none of them is new again."""
    names = [f"2026/11/{number:05}-part.jsonl" for number in range(MANY)]
    first = listed(tmp_path, names)
    assert len(first.new) == MANY
    first.index.put(first.new)
    (file,) = (tmp_path / "_objects").iterdir()
    assert file.stat().st_size < 100 * MANY
    again = listed(tmp_path, [*names, "2026/12/x"])
    assert [name for name, _ in again.new] == ["2026/12/x"]
    assert len(again.known) == MANY


def test_a_backlog_is_listed_in_parts(tmp_path: Path):
    """The first ones come first; what is behind them is not forgotten."""
    names = [f"{number:04}" for number in range(2_500)]
    first = listed(tmp_path, names, new_max=500)
    assert (len(first.new), first.complete) == (1_000, False)
    first.index.put(first.new)
    second = listed(tmp_path, names, new_max=500)
    assert second.new[0][0] == "1000"


def test_an_object_is_known_by_key_etag_and_size(tmp_path: Path):
    """Another one of these makes it new."""
    put(tmp_path, "a")
    index = load(tmp_path)
    assert index.has("a", stored("a"))
    for other in (stored("a", etag="f"), stored("a", size=2)):
        assert not index.has("a", other)
    assert not index.has("b", stored("b"))


def test_many_records_become_one_without_what_is_gone(tmp_path: Path):
    """Read again, the one says what all said of the objects that are there."""
    for name in "abcd":
        put(tmp_path, name)
    index = load(tmp_path)
    assert index.is_worn(4, FetchLimits(index_records=3))
    assert not index.is_worn(4, FetchLimits())
    assert index.is_worn(1, FetchLimits(index_gone=2))
    index.renew(["a", "c", "no object of it"])
    assert records(tmp_path) == [4]
    again = load(tmp_path)
    assert [again.has(name, stored(name)) for name in "abcd"] == [True, False, True, False]
    put(tmp_path, "e")
    assert records(tmp_path) == [4, 5]
    assert len(load(tmp_path)) == 3


def test_records_that_a_crash_left_before_a_whole_one_are_not_read(tmp_path: Path):
    """And removed with the next renewal."""
    put(tmp_path, "a")
    left = (tmp_path / "_objects" / f"{0:020d}.json").read_bytes()
    load(tmp_path).renew([])
    (tmp_path / "_objects" / f"{0:020d}.json").write_bytes(left)
    assert len(load(tmp_path)) == 0
    load(tmp_path).renew([])
    assert records(tmp_path) == [2]


def test_objects_of_another_location_are_not_known(tmp_path: Path):
    """The same key elsewhere is another object; its content decides."""
    put(tmp_path, "a")
    other = BucketPrefix("bucket", "elsewhere/")
    index = load(tmp_path, other)
    assert not index.has("a", stored("a"))
    index.put([("b", stored("b"))])
    assert len(load(tmp_path, other)) == 1
    assert len(load(tmp_path)) == 1


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_record_is_noticed(tmp_path: Path, lost: int):
    """Those behind it would be believed to be all."""
    for name in "abc":
        put(tmp_path, name)
    (tmp_path / "_objects" / f"{lost:020d}.json").unlink()
    with pytest.raises(FileLostError):
        load(tmp_path)


def test_a_damaged_record_is_noticed(tmp_path: Path):
    """A flipped digit is not believed."""
    put(tmp_path, "a")
    (path,) = (tmp_path / "_objects").iterdir()
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(FileDamagedError) as caught:
        load(tmp_path)
    assert "_objects" in caught.value.message


def test_damage_stops_the_location_and_says_how_it_is_mended(located: Located):
    """Removing the index costs a fetch of every object, and none counts twice."""
    located.server.put("orders/a", lines(1))
    located.take_in()
    folder = Path(located.drop.record.folder, "sources", "orders", "_objects")
    for path in folder.iterdir():
        path.write_bytes(b"{}")
    located.drop.start()
    located.drop.fetch()
    assert located.failure() == "source_failed"
    (trouble,) = located.drop.folder.troubled("shop")
    assert "remove the folder `_objects`" in trouble
    for path in folder.iterdir():
        path.unlink()
    assert located.take_in() == (0, 0, 0)
    assert located.ids() == [0]
