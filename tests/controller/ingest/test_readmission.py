"""Decisions on quarantined files: admitted once or kept in quarantine, wherever it is killed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.failpoints import NO_FAULTS, Faults
from cbp.model.dataflow.dataflow import Dataflow, SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.errors import FileDecidedError, ReadmitRefusedError
from controller.ingest.quarantine_decisions import Decided
from controller.ingest.uploads import Author
from controller.store.base import ClaimRecord, open_store
from tests.controller.ingest.harness import Drop
from tests.planned_faults import Crash, PlannedFaults

BAD = b'{"id": 1, "name": "a"}\n{"id": "two", "name": "b"}\n'
MENDED = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'
ME = Author("me", "the producer wrote text")
SIDES = ("before", "after")
ADMITTING = [
    (f"{effect}.{side}", passage)
    for effect, passages in (("decision", 1), ("claim", 1), ("rename", 4), ("sql_commit", 3))
    for passage in range(1, passages + 1)
    for side in SIDES
]
DISCARDING = [
    (f"{effect}.{side}", passage)
    for effect, passages in (("decision", 1), ("rename", 3), ("sql_commit", 1))
    for passage in range(1, passages + 1)
    for side in SIDES
]
RESTORING = [
    (f"{effect}.{side}", passage)
    for effect, passages in (("decision", 3), ("rename", 2), ("sql_commit", 1))
    for passage in range(1, passages + 1)
    for side in SIDES
]

pytestmark = pytest.mark.usefixtures("without_syncs")


def with_stores(crashes: list[tuple[str, int]]) -> list[Any]:
    """Return each crash with a store that is kept or lost, by turns, and the other way."""
    return [
        (point, passage, lost)
        for number, (point, passage) in enumerate(crashes)
        for lost in ((False, True) if number % 2 else (True, False))
    ]


class Shop:
    """A drop folder with a real store, which a crash leaves as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults: Faults = NO_FAULTS
        self.drop = Drop(root, "id BIGINT, name STRING", store=self._store())
        self._register()

    def _store(self) -> Any:
        return open_store(
            f"sqlite:///{self.root}/store.db", faults=lambda point: self.faults(point)
        )

    def _register(self) -> None:
        self.drop.store.register(self.drop.record, {"count": {"items": "orders"}})

    def quarantined(self, data: bytes = BAD) -> str:
        """Drop a bad file; return its claim."""
        self.drop.put("day 1 ü<script>.jsonl", data)
        assert self.drop.scan().quarantined == 1
        return str(self.claims()[0].id)

    def claims(self) -> list[ClaimRecord]:
        """Return all claims, newest first."""
        return list(self.drop.store.claims("shop").items)

    def die_at(self, point: str, passage: int) -> None:
        self.faults = PlannedFaults(point, passage=passage)
        self.drop.start(self.faults)

    def restart(self, *, lose_store: bool = False) -> None:
        self.faults = NO_FAULTS
        self.drop.store.close()
        if lose_store:
            for path in self.root.glob("store.db*"):
                path.unlink()
        self.drop.store = self._store()
        if lose_store:
            self._register()
        self.drop.start()
        self.drop.recover()
        self.drop.scan()

    def readmit(self, claim: str, data: bytes | None) -> Decided:
        mended = None if data is None else io.BytesIO(data)
        drop = self.drop
        return drop.folder.readmit(drop.source(), claim, mended, ME)

    def discard(self, claim: str) -> Decided:
        return self.drop.folder.quarantine.discard(self.drop.source(), claim, ME)

    def restore(self, claim: str) -> Decided:
        return self.drop.folder.quarantine.restore(self.drop.source(), claim)

    def ids(self) -> list[Any]:
        return [row["id"] for row in self.drop.rows()]

    def status(self, claim: str) -> str:
        actual = self.drop.store.find_claims([claim])
        return str(actual[claim].status) if claim in actual else "lost"

    def in_quarantine(self, claim: str) -> list[str]:
        return [name for name in self.drop.names("quarantine") if name.startswith(claim)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.drop.store.close()


def test_a_mended_file_is_admitted_and_the_original_is_kept(shop: Shop) -> None:
    """The new claim has its content; original, reason and note of the decision lie in finished."""
    claim = shop.quarantined()
    decided = shop.readmit(claim, MENDED)
    assert (decided.claim.status, decided.repeated) == ("readmitted", False)
    shop.drop.scan()
    assert shop.ids() == [1, 2]
    assert shop.drop.names("quarantine") == []
    kept = [name for name in shop.drop.names("finished") if name.startswith(claim)]
    (file,) = [name for name in kept if not name.endswith(".json")]
    assert shop.drop.place("finished").joinpath(file).read_bytes() == BAD
    note = json.loads((shop.drop.place("finished") / f"{file}.decision.json").read_bytes())
    assert (note["by"], note["why"], note["mended"]) == ("me", "the producer wrote text", True)
    assert f"{file}.reason.json" in kept
    (settled,) = shop.drop.store.find_claims([claim]).values()
    assert settled.reason["decision"] == note
    assert settled.reason["line"] == 2


def test_a_file_is_admitted_as_it_is_once_its_source_takes_it(shop: Shop) -> None:
    """Refused again while nothing changed; both files then have their reasons."""
    claim = shop.quarantined()
    again = shop.readmit(claim, None).readmitted
    assert again is not None
    assert shop.drop.scan().quarantined == 1
    assert (shop.status(claim), shop.status(again.id)) == ("readmitted", "quarantined")
    assert shop.ids() == []
    lenient = SourceNode("orders", Schema.parse("name STRING"), "jsonl", {"unknown": "ignore"})
    shop.drop.dataflow = Dataflow("shop", {"orders": lenient}, {})
    shop.readmit(again.id, None)
    shop.drop.scan()
    assert [row["name"] for row in shop.drop.rows()] == ["a", "b"]


def test_a_request_that_is_repeated_admits_nothing_more(shop: Shop) -> None:
    """As it is: the first answer. With another file: refused, naming the claim in its place."""
    claim = shop.quarantined()
    first = shop.readmit(claim, None)
    assert first.readmitted is not None
    again = shop.readmit(claim, None)
    assert again.repeated
    assert again.readmitted is not None
    assert again.readmitted.id == first.readmitted.id
    with pytest.raises(FileDecidedError) as caught:
        shop.readmit(claim, MENDED)
    assert caught.value.details["claim"] == first.readmitted.id
    assert len(shop.claims()) == 2


def test_a_discarded_file_can_be_put_back(shop: Shop) -> None:
    """It is in quarantine as before, and can be admitted then."""
    claim = shop.quarantined()
    before = shop.drop.names("quarantine"), shop.drop.store.find_claims([claim])
    assert shop.discard(claim).claim.status == "discarded"
    assert shop.discard(claim).repeated
    assert shop.drop.names("quarantine") == []
    with pytest.raises(FileDecidedError):
        shop.readmit(claim, MENDED)
    shop.restore(claim)
    assert (shop.drop.names("quarantine"), shop.drop.store.find_claims([claim])) == before
    assert shop.restore(claim).repeated
    shop.readmit(claim, MENDED)
    shop.drop.scan()
    assert shop.ids() == [1, 2]


def test_what_counts_is_not_put_back(shop: Shop) -> None:
    """Its records are applied; a roll-back takes them out. A wrong mending can be put back."""
    claim = shop.quarantined()
    shop.readmit(claim, BAD.replace(b"1", b"3"))
    with pytest.raises(FileDecidedError):  # still to be read
        shop.restore(claim)
    shop.drop.scan()
    shop.restore(claim)
    assert shop.status(claim) == "quarantined"
    shop.readmit(claim, MENDED)
    shop.drop.scan()
    assert shop.ids() == [1, 2]
    with pytest.raises(FileDecidedError) as caught:
        shop.restore(claim)
    assert caught.value.details["claim_status"] == "accepted"


def test_a_file_that_grew_is_not_admitted_as_it_is(shop: Shop) -> None:
    """Its first records are applied already; what is missing can be sent in its place."""
    shop.drop.put("log.jsonl", b'{"id": 1, "name": "a"}\n')
    shop.drop.scan()
    (finished,) = shop.drop.place("finished").iterdir()
    with finished.open("ab") as file:
        file.write(b'{"id": 2, "name": "b"}\n')
    assert shop.drop.scan().quarantined == 1
    (grown,) = [one for one in shop.claims() if one.status == "quarantined"]
    with pytest.raises(ReadmitRefusedError):
        shop.readmit(grown.id, None)
    shop.readmit(grown.id, b'{"id": 2, "name": "b"}\n')
    shop.drop.scan()
    assert shop.ids() == [1, 2]


@pytest.mark.part(every=8)
@pytest.mark.parametrize(("point", "passage", "lose_store"), with_stores(ADMITTING))
def test_a_crash_leaves_it_in_quarantine_or_admitted_once(
    shop: Shop, point: str, passage: int, lose_store: bool
) -> None:
    """A crash at one passage of one point, a restart, no help; then the request again."""
    claim = shop.quarantined()
    shop.die_at(point, passage)
    with pytest.raises(Crash):
        shop.readmit(claim, MENDED)
    shop.restart(lose_store=lose_store)
    if shop.in_quarantine(claim):
        assert shop.ids() == []
        assert shop.status(claim) == "quarantined"
        assert len(shop.in_quarantine(claim)) == 2
        shop.readmit(claim, MENDED)
        shop.drop.scan()
    assert shop.ids() == [1, 2]
    assert shop.in_quarantine(claim) == []
    assert shop.status(claim) in (("readmitted", "lost") if lose_store else ("readmitted",))
    assert shop.drop.names("incoming") == shop.drop.names("claimed") == []
    shop.restart()
    assert shop.ids() == [1, 2]


@pytest.mark.parametrize(("point", "passage"), DISCARDING)
def test_a_crash_leaves_it_discarded_or_not(shop: Shop, point: str, passage: int) -> None:
    """The file, its reason and its claim agree after a restart."""
    claim = shop.quarantined()
    shop.die_at(point, passage)
    with pytest.raises(Crash):
        shop.discard(claim)
    shop.restart()
    status = shop.status(claim)
    assert (status, len(shop.in_quarantine(claim))) in (("quarantined", 2), ("discarded", 0))
    assert len(list(shop.drop.root.rglob(f"{claim}*"))) == (2 if status == "quarantined" else 3)
    shop.restore(claim)
    assert shop.status(claim) == "quarantined"


@pytest.mark.part(every=6)
@pytest.mark.parametrize(("point", "passage", "lose_store"), with_stores(RESTORING))
def test_a_crash_leaves_a_decision_or_takes_it_back(
    shop: Shop, point: str, passage: int, lose_store: bool
) -> None:
    """The file, its reason and its claim agree after a restart; no note stays without its file."""
    claim = shop.quarantined()
    shop.discard(claim)
    shop.die_at(point, passage)
    with pytest.raises(Crash):
        shop.restore(claim)
    shop.restart(lose_store=lose_store)
    outcome = (shop.status(claim), len(shop.in_quarantine(claim)))
    assert outcome in (("quarantined", 2), ("lost" if lose_store else "discarded", 0))
    taken_back = (point, passage) != ("decision.before", 1)
    assert outcome[1] == (2 if taken_back else 0), "the note is what takes it back"
    assert len(list(shop.drop.root.rglob(f"{claim}*"))) == (2 if taken_back else 3)
    if taken_back:
        shop.discard(claim)
        shop.restart(lose_store=lose_store)
        assert shop.in_quarantine(claim) == [], "a decision after that holds"


def test_a_file_that_was_never_refused_is_not_put_into_quarantine(shop: Shop) -> None:
    """Its records are applied: admitted from there, they would count twice."""
    shop.drop.put("fine", MENDED)
    shop.drop.scan()
    (claim,) = shop.claims()
    assert claim.status == "accepted"
    with pytest.raises(FileDecidedError):
        shop.restore(claim.id)
    assert shop.status(claim.id) == "accepted"
    assert shop.drop.names("quarantine") == []


def test_a_note_that_a_person_wrote_decides_nothing(shop: Shop) -> None:
    """It is no decision, whatever it holds; the file stays in quarantine."""
    claim = shop.quarantined()
    (file,) = [n for n in shop.drop.names("quarantine") if not n.endswith(".json")]
    whole = json.dumps({"action": [], "claim": claim, "by": "", "why": "", "at": ""})
    for text in ("{", "[]", '{"action": "drop"}', "null", whole):
        (shop.drop.place("quarantine") / f"{file}.decision.json").write_text(text)
        shop.restart()
        assert shop.status(claim) == "quarantined"
    shop.readmit(claim, MENDED)
    shop.drop.scan()
    assert shop.ids() == [1, 2]
