"""Claims and accepted increments, on every database."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from cbp.errors import AlreadyExistsError, InvariantError, NotFoundError
from cbp.model.flow.connector import Queued
from cbp.model.flow.increment import DataFile
from controller.store.base import ClaimStatus, Store
from controller.store.methods import queues
from controller.store.schema.tables import increments
from tests.conformance.records import (
    a_claim,
    a_dataflow,
    a_run,
    an_arrival,
    an_increment,
    an_intention,
    arrive,
    at,
    waiting,
)


def test_claims_of_a_source_are_numbered_from_0(chain: Store) -> None:
    """The sequence counts per source, whatever the caller wrote into it."""
    sources = ["a", "a", "b", "a"]
    got = [
        chain.add_claim(a_claim(f"c{n}", source=source, sequence=99)).sequence
        for n, source in enumerate(sources)
    ]
    assert got == [0, 1, 0, 2]


def test_claims_that_come_together_are_numbered_in_their_order(chain: Store) -> None:
    """Behind those that there are; all of them or none."""
    chain.add_claim(a_claim("c0"))
    got = chain.add_claims([a_claim("c9"), a_claim("c1"), a_claim("c5")])
    assert [(claim.id, claim.sequence) for claim in got] == [("c9", 1), ("c1", 2), ("c5", 3)]
    with pytest.raises(AlreadyExistsError):
        chain.add_claims([a_claim("c6"), a_claim("c5")])
    assert chain.known_claims(["c6"]) == set()
    chain.update_claims([replace(claim, status="claimed") for claim in got])
    statuses = [claim.status for claim in chain.open_claims("d", "a")]
    assert statuses == ["claiming", *3 * ["claimed"]]
    with pytest.raises(NotFoundError):
        chain.update_claims([replace(got[0], status="quarantined"), a_claim("c7")])
    assert len(chain.open_claims("d", "a")) == 4


def test_of_a_claim_whose_file_was_moved_status_and_size_change(chain: Store) -> None:
    """What else its record says stays as it is stored; a claim that is not stored is refused."""
    claim = chain.add_claim(a_claim("c0"))
    chain.claims_moved([replace(claim, status="claimed", bytes=77, sha256="other")])
    (now,) = chain.open_claims("d", "a")
    assert now == replace(claim, status="claimed", bytes=77)
    with pytest.raises(NotFoundError):
        chain.claims_moved([replace(now, bytes=78), a_claim("c7")])
    assert chain.open_claims("d", "a") == [now]


def test_increments_that_come_together_wait_in_their_order(chain: Store) -> None:
    """Behind those that wait; all of them or none; a repetition changes nothing."""
    arrive(chain)
    added = chain.add_claims([a_claim(f"c{n}") for n in range(1, 5)])
    arrivals = [(claim, an_arrival(n)) for n, claim in enumerate(added, 1)]
    before = waiting(chain)
    with pytest.raises(InvariantError):
        chain.accept_all([arrivals[0], *arrivals[2:]])
    with pytest.raises(InvariantError):
        chain.accept_all(arrivals[1:])
    assert waiting(chain) == before
    assert len(chain.open_claims("d", "a")) == 4
    chain.accept_all(arrivals[:2])
    lost = replace(arrivals[3][0], id="lost")
    chain.accept_all([*arrivals[:3], (lost, arrivals[3][1])])
    assert waiting(chain)["s"]["i"] == [f"a/{n}" for n in range(5)]
    assert [claim.id for claim in chain.open_claims("d", "a")] == ["c4"]
    actual = chain.find_claims(["c1", "c2", "c3", "lost"])
    assert {id_: claim.index for id_, claim in actual.items()} == {
        "c1": 1,
        "c2": 2,
        "c3": 3,
        "lost": 4,
    }


def test_what_waits_is_parsed_once(chain: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the queues are loaded: at each tick, while thousands wait."""
    parsed, parse = list[tuple[str, int]](), queues._parsed

    def counting(read_mark: int, flow: str, index: int, *texts: str | None) -> Queued:
        parsed.append((flow, index))
        return parse(read_mark, flow, index, *texts)

    monkeypatch.setattr(queues, "_parsed", counting)
    for _ in range(50):
        arrive(chain)
        chain.connectors("d")
    # Increments are queued at two inputs, and loaded fifty times.
    assert parsed == [("a", index) for index in range(50)]
    run = a_run(read={"i": [0, 1]}, remove={"i": [0]})
    chain.intend(run)
    chain.commit(an_intention(run, an_increment("s.out", 0)), finished_at=at(2))
    assert waiting(chain)["s"]["i"] == ["a/1*", *(f"a/{index}" for index in range(2, 50))]
    assert parsed[50:] == [("a", 1), ("s.out", 0)]


@pytest.mark.parametrize("column", ["files", "bindings", "framing_key"])
def test_what_was_loaded_before_hides_no_change(chain: Store, column: str) -> None:
    """A roll-back gives an index to another increment; a retention moves an increment's files."""
    arrive(chain)
    before = chain.connectors("d")["s"]["i"].queue[0].increment
    values = {"files": [["x", 7, 8]], "bindings": [["y", 1, 1]], "framing_key": "k"}
    with chain._database.write() as connection:
        connection.execute(update(increments).values({column: values[column]}))
    after = chain.connectors("d")["s"]["i"].queue[0].increment
    assert after != before
    assert after.to_json() == before.to_json() | {column: values[column]}
    assert chain.connectors("d") == Store(chain._database).connectors("d")


def test_an_id_of_a_claim_is_used_once(chain: Store) -> None:
    """A second claim of an id is refused."""
    chain.add_claim(a_claim())
    with pytest.raises(AlreadyExistsError):
        chain.add_claim(a_claim())


def test_known_claims_are_those_that_are_stored(chain: Store) -> None:
    """They are of any source and in any status; no ids, no claims."""
    chain.add_claim(a_claim("c1"))
    chain.add_claim(a_claim("c2", source="b", status="quarantined"))
    assert chain.known_claims(["c0", "c1", "c2"]) == {"c1", "c2"}
    assert chain.known_claims([]) == set()


def test_claims_are_found_by_their_ids(chain: Store) -> None:
    """They are of any source and in any status, as they are stored; no ids, no claims."""
    one = chain.add_claim(a_claim("c1"))
    other = chain.add_claim(a_claim("c2", source="b", status="quarantined"))
    assert chain.find_claims(["c0", "c1", "c2"]) == {"c1": one, "c2": other}
    assert chain.find_claims([]) == {}


def test_a_claim_comes_back_as_it_went_in(chain: Store) -> None:
    """Names of files may hold whatever a file system allows."""
    claim = chain.add_claim(a_claim(path="\udcff\n'%{};--ß"))
    changed = replace(
        claim,
        status="quarantined",
        sha256="ab",
        reason={"code": "csv", "line": 3, "message": "x\x00y"},
    )
    chain.update_claim(changed)
    assert chain.claims("d").items == [changed]


def test_open_claims_are_those_not_settled_in_order(chain: Store) -> None:
    """Recovery sees `claiming` and `claimed` of its own source, by sequence."""
    statuses: list[ClaimStatus] = ["claimed", "accepted", "claiming", "duplicate", "quarantined"]
    for n, status in enumerate(statuses):
        chain.update_claim(replace(chain.add_claim(a_claim(f"c{9 - n}")), status=status))
    chain.add_claim(a_claim("other", source="b"))
    assert [claim.id for claim in chain.open_claims("d", "a")] == ["c9", "c7"]


def test_only_accepted_content_of_this_source_counts_as_known(chain: Store) -> None:
    """The same bytes in quarantine, or in another source, are no duplicate."""
    for n, (source, status) in enumerate([("a", "quarantined"), ("b", "accepted")]):
        claim = chain.add_claim(a_claim(f"c{n}", source=source))
        chain.update_claim(replace(claim, sha256="ff", status=status))  # type: ignore[arg-type]
    assert chain.same_claim("d", "a", "ff") is None
    claim = replace(chain.add_claim(a_claim("c2")), sha256="ff")
    chain.accept_all([(claim, an_arrival(0))])
    assert chain.same_claim("d", "a", "ff") == replace(claim, status="accepted", index=0)


def test_an_increment_of_several_files_settles_all_their_claims(chain: Store) -> None:
    """It waits once; a repetition changes nothing; a claim that was lost comes back."""
    added = chain.add_claims([a_claim(f"c{n}") for n in range(3)])
    lost = a_claim("lost", sequence=3)
    arrivals = [(claim, an_arrival(0)) for claim in (*added[:2], lost)]
    chain.accept_all([*arrivals, (added[2], an_arrival(1))])
    chain.accept_all(arrivals)
    assert waiting(chain)["s"]["i"] == ["a/0", "a/1"]
    actual = chain.find_claims(["c0", "c1", "c2", "lost"])
    assert {id_: (claim.status, claim.index) for id_, claim in actual.items()} == {
        "c0": ("accepted", 0),
        "c1": ("accepted", 0),
        "c2": ("accepted", 1),
        "lost": ("accepted", 0),
    }
    assert [claim.id for claim in chain.claims_of("d", "a", 0)] == ["c0", "c1", "lost"]
    assert chain.claims_of("d", "b", 0) == []
    listed = chain.claims("d", "a", index=0, limit=2)
    assert [claim.id for claim in listed.items] == ["lost", "c1"]
    (last,) = chain.claims("d", "a", index=0, limit=2, cursor=listed.cursor).items
    assert last.id == "c0"


def test_many_files_are_compared_as_each_by_itself(chain: Store) -> None:
    """The claim of the same name and content, or else the first by name; nothing not accepted."""
    contents = {"p2": "ff", "p1": "ff", "p3": "ee", "p4": "dd"}
    for n, (path, sha256) in enumerate(contents.items()):
        claim = replace(chain.add_claim(a_claim(f"c{n}", path=path)), sha256=sha256)
        status: ClaimStatus = "quarantined" if sha256 == "dd" else "accepted"
        chain.update_claim(replace(claim, status=status))
    asked = [("ff", "p2"), ("ff", "p9"), ("ee", "p1"), ("dd", "p4"), ("aa", "p1")]
    actual = chain.same_claims("d", "a", asked)
    assert {key: claim.path for key, claim in actual.items()} == {
        ("ff", "p2"): "p2",
        ("ff", "p9"): "p1",
        ("ee", "p1"): "p3",
    }
    for sha256, path in asked:
        named = chain.same_claim("d", "a", sha256, path=path)
        assert actual.get((sha256, path)) == (named or chain.same_claim("d", "a", sha256))
    assert chain.same_claims("d", "b", asked) == {}


def test_the_newest_accepted_file_of_a_name_is_found(chain: Store) -> None:
    """It is of this source; not one that waits, was refused or was withdrawn."""
    odd = "day\ud800 \u2028.jsonl"
    for n, name in enumerate([odd, "other", odd, odd]):
        claim = replace(chain.add_claim(a_claim(f"c{n}", path=name)), sha256=f"{n}")
        chain.accept_all([(claim, an_arrival(n))])
    chain.withdraw("d", {"a": [range(3, 4)]})
    statuses: list[ClaimStatus] = ["claimed", "quarantined"]
    for n, status in enumerate(statuses):
        claim = chain.add_claim(a_claim(f"d{n}", path=f"not {n}"))
        chain.update_claim(replace(claim, status=status))
    chain.update_claim(
        replace(chain.add_claim(a_claim("b", source="b", path="b")), status="accepted")
    )
    actual = chain.named_claims("d", "a", [odd, "other", "not 0", "not 1", "b", "none"])
    assert {name: claim.index for name, claim in actual.items()} == {odd: 2, "other": 1}
    assert chain.named_claims("d", "a", []) == {}


def test_the_accepted_files_of_a_content_are_found_by_name(chain: Store) -> None:
    """Those of this source, and no more than were asked for."""
    for n, (path, sha256) in enumerate((("b", "x"), ("a", "x"), ("c", "y"), ("d", "x"))):
        claim = replace(chain.add_claim(a_claim(f"c{n}", path=path)), sha256=sha256)
        chain.accept_all([(claim, an_arrival(n))])
    chain.withdraw("d", {"a": [range(3, 4)]})
    chain.add_claim(a_claim("waits", path="e", sha256="x"))
    assert [one.path for one in chain.claims_of_content("d", "a", "x")] == ["a", "b"]
    assert [one.path for one in chain.claims_of_content("d", "a", "x", limit=1)] == ["a"]
    assert chain.claims_of_content("d", "b", "x") == []


def test_the_file_of_a_name_before_another_one_is_found(chain: Store) -> None:
    """The newest accepted one up to its increment, which can hold several files of the name."""
    names = ("day", "day", "other", "day")
    files = [chain.add_claim(a_claim(f"c{n}", path=name)) for n, name in enumerate(names)]
    for index, some in ((0, files[:1]), (1, files[1:3]), (2, files[3:])):
        chain.accept_all([(one, an_arrival(index)) for one in some])
    beside = chain.add_claim(a_claim("beside", path="day"))
    chain.update_claim(replace(beside, status="accepted", index=2))
    stored = chain.find_claims([*(one.id for one in files), "beside"])

    def before(claim: str) -> str:
        found = chain.claim_before(stored[claim])
        return "" if found is None else found.id

    assert [before(f"c{n}") for n in range(4)] == ["", "c0", "", "beside"]
    assert before("beside") == "c3"
    chain.withdraw("d", {"a": [range(1)]})
    assert before("c1") == ""


def test_an_accepted_increment_waits_at_every_consumer(chain: Store) -> None:
    """Acceptance stores, enqueues and settles together."""
    claim = chain.add_claim(a_claim())
    chain.accept_all([(claim, an_arrival(0))])
    assert waiting(chain) == {"s": {"i": ["a/0"]}, "t": {"j": [], "k": ["a/0"]}}
    assert chain.increment("d", "a", 0) == an_arrival(0)
    assert chain.claims("d").items == [replace(claim, status="accepted", index=0)]
    assert chain.next_index("d", "a") == 1


def test_bindings_wait_with_their_messages(store: Store) -> None:
    """What an increment of messages names comes back from a queue, too."""
    store.register(a_dataflow(), {"s": {"i": "a", "mail": "s.mail"}})
    arrive(store)
    run = a_run()
    store.intend(run)
    sent = replace(an_increment("s.mail", 0), bindings=(DataFile("bound", 3, 30),))
    store.commit(an_intention(run, sent), finished_at=at(1))
    assert store.connectors("d")["s"]["mail"].waiting == (sent,)


def test_accepting_again_changes_nothing(chain: Store) -> None:
    """A redo after a crash enqueues nothing twice, not even what was consumed since."""
    arrive(chain)
    run = a_run()
    chain.intend(run)
    chain.commit(an_intention(run), finished_at=at(1))
    before = waiting(chain)
    claim = chain.claims("d").items[0]
    chain.accept_all([(claim, an_arrival(0))])
    assert waiting(chain) == before
    assert chain.next_index("d", "a") == 1


def test_a_lost_claim_is_restored_by_its_acceptance(chain: Store) -> None:
    """A store that lost its rows learns them again from the log of the source."""
    chain.accept_all([(a_claim("lost", sequence=4, sha256="aa"), an_arrival(0))])
    actual = chain.same_claim("d", "a", "aa")
    assert actual is not None
    assert (actual.id, actual.sequence, actual.index) == ("lost", 4, 0)


def test_an_increment_never_changes(chain: Store) -> None:
    """A second increment of a name with other files is refused, not dropped."""
    chain.accept_all([(a_claim("c0"), an_arrival(0))])
    with pytest.raises(InvariantError):
        chain.accept_all([(a_claim("c1"), an_arrival(0, records=2))])
    assert [claim.id for claim in chain.claims("d").items] == ["c0"]


def test_the_indexes_of_a_flow_have_no_gap(chain: Store) -> None:
    """An increment whose predecessor is missing is refused."""
    with pytest.raises(InvariantError):
        chain.accept_all([(a_claim(), an_arrival(1))])
    assert chain.next_index("d", "a") == 0


def test_arrival_times_are_those_of_the_increments_that_are_known(chain: Store) -> None:
    """They are of any flows, by dataflow, flow and index; what is not known is left out."""
    chain.register(a_dataflow("e"), {"s": {"i": "a"}})
    for n in range(3):
        for name in ("d", "e"):
            claim = chain.add_claim(a_claim(f"{name}{n}", dataflow=name))
            chain.accept_all([(claim, replace(an_arrival(n, dataflow=name), created_at=at(n)))])
    wanted = [("d", "a", 0), ("d", "a", 2), ("e", "a", 1), ("d", "a", 9), ("d", "b", 0)]
    assert chain.arrival_times(wanted) == {
        ("d", "a", 0): at(0),
        ("d", "a", 2): at(2),
        ("e", "a", 1): at(1),
    }
    assert chain.arrival_times([]) == {}


def test_origins_are_those_of_the_increments_that_are_known(chain: Store) -> None:
    """They are of one dataflow, by flow and index; what is not known is left out."""
    chain.register(a_dataflow("e"), {"s": {"i": "a"}})
    for n in range(3):
        for name in ("d", "e"):
            claim = chain.add_claim(a_claim(f"{name}{n}", dataflow=name))
            chain.accept_all(
                [(claim, replace(an_arrival(n, dataflow=name), origin={"of": f"{name}{n}"}))]
            )
    wanted = [("a", 0), ("a", 2), ("a", 9), ("b", 0)]
    assert chain.origins("d", wanted) == {("a", 0): {"of": "d0"}, ("a", 2): {"of": "d2"}}
    assert chain.origins("d", []) == {}
