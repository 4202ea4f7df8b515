"""Tokens, sessions, sign-in codes and the audit log, on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from cbp.engine.storage.failpoints import Faults
from cbp.errors import AlreadyExistsError, NotFoundError
from controller.store.access import AuditFilter, AuditRecord, Outcome
from controller.store.base import Store, open_store
from controller.store.errors import CursorInvalidError
from tests.conformance.access_records import FOREVER, LONG_AGO, a_code, a_session, a_token
from tests.conformance.records import START, at
from tests.controller.api.fake_access import FakeAccessStore


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service), "fake"]
)
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """Give the one store of each kind; the fake is what tests of the API use in its place."""
    if request.param == "fake":
        yield cast(Store, FakeAccessStore())
        return
    url = f"sqlite:///{tmp_path_factory.mktemp('access')}/cbp.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("new_postgres_database")()
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture
def access(kept: Store) -> Store:
    """Give an empty store."""
    for token in kept.tokens(limit=500).items:
        kept.replace_token(replace(token, revoked_at=LONG_AGO), instead_of=token.sha256)
    kept.forget_access(FOREVER, before=FOREVER, seen_before=FOREVER)
    while kept.forget_audit(FOREVER, rows_max=0):
        pass
    return kept


def an_entry(n: int, **more: object) -> AuditRecord:
    entry = AuditRecord(
        at=at(n),
        actor="token:ci",
        scope="operator",
        action="dataflows_pause",
        outcome="done",
        status=200,
        dataflow="d",
    )
    return replace(entry, **more)  # type: ignore[arg-type]


def test_a_token_comes_back_as_it_went_in(access: Store) -> None:
    """Every field, with and without a limit to dataflows."""
    first = a_token("ci", dataflows=("a", "b"), expires_at=at(90), last_used_at=at(1))
    second = a_token("all", revoked_at=at(3), rotated_at=at(2), old_sha256="o", old_until=at(4))
    access.add_token(first)
    access.add_token(second)
    assert access.token("ci") == first
    assert access.token("all") == second
    assert access.tokens().items == [second, first]


def test_a_name_is_taken_once(access: Store) -> None:
    """The audit log names tokens: one name is one token, revoked or not."""
    access.add_token(a_token("ci", revoked_at=at(1)))
    with pytest.raises(AlreadyExistsError):
        access.add_token(a_token("ci", sha256="other"))


def test_a_token_is_looked_up_by_its_digests(access: Store) -> None:
    """The present one and the one before its rotation; nothing else is a token."""
    access.add_token(a_token("ci", sha256="new", old_sha256="old", old_until=at(1)))
    access.add_token(a_token("other", sha256="x"))
    for digest in ("new", "old"):
        actual = access.find_token(digest)
        assert actual is not None
        assert actual.name == "ci"
    assert access.find_token("ne") is None
    assert access.find_token("NEW") is None


def test_an_unknown_token_is_not_made_up(access: Store) -> None:
    """Neither shown nor replaced."""
    with pytest.raises(NotFoundError):
        access.token("nobody")
    with pytest.raises(NotFoundError):
        access.replace_token(a_token("nobody"), instead_of="")


def test_replacing_a_token_ends_what_was_made_from_it(access: Store) -> None:
    """Its sessions and codes go; those of other tokens stay."""
    access.add_token(a_token("ci"))
    for token in ("ci", ""):
        access.add_session(a_session(f"s{token}", token=token), most=10)
        access.add_code(a_code(f"c{token}", token=token))
    old, new = access.token("ci"), a_token("ci", sha256="new", revoked_at=at(1))
    assert access.replace_token(new, instead_of=old.sha256)
    assert access.token("ci").revoked_at == at(1)
    assert [one.id for one in access.sessions().items] == ["s"]
    assert access.take_code("cci") is None
    assert access.take_code("c") == a_code("c", token="")


def test_a_token_that_has_changed_is_not_replaced(access: Store) -> None:
    """A revoked one stays revoked, and a rotated one has its newest digest; sessions stay."""
    access.add_token(a_token("ci", sha256="1"))
    access.add_session(a_session("s", token="ci"), most=10)
    assert not access.replace_token(a_token("ci", sha256="2"), instead_of="0")
    assert (access.token("ci").sha256, len(access.sessions().items)) == ("1", 1)
    assert access.replace_token(a_token("ci", sha256="1", revoked_at=at(1)), instead_of="1")
    assert not access.replace_token(a_token("ci", sha256="2"), instead_of="1")
    assert access.token("ci").revoked_at == at(1)


def test_the_last_use_is_all_that_a_use_changes(access: Store) -> None:
    """The rest of a token and of a session stays."""
    access.add_token(a_token("ci"))
    access.add_session(a_session("s1"), most=10)
    access.use_token("ci", at(7))
    access.use_session("s1", at(8))
    assert access.token("ci") == a_token("ci", last_used_at=at(7))
    assert access.find_session("digest-s1") == a_session("s1", last_seen_at=at(8))


def test_a_code_is_taken_once(access: Store) -> None:
    """One of two that take it gets it, whichever instance they ask."""
    for n in range(5):
        access.add_code(a_code(f"c{n}"))
        with ThreadPoolExecutor(4) as pool:
            taken = list(pool.map(lambda _, n=n: access.take_code(f"c{n}"), range(4)))
        assert [one for one in taken if one is not None] == [a_code(f"c{n}")]


def test_the_oldest_sessions_end_beyond_the_limit(access: Store) -> None:
    """So the table is bounded, and the newest sign-in always works."""
    for n in range(5):
        access.add_session(a_session(f"s{n}"), most=3)
    assert [one.id for one in access.sessions().items] == ["s4", "s3", "s2"]


def test_a_session_ends_once(access: Store) -> None:
    """The second end finds nothing."""
    access.add_session(a_session("s1", agent='a\x00b "c" \udcff'), most=10)
    assert access.end_session("s1")
    assert not access.end_session("s1")
    assert access.find_session("digest-s1") is None


def test_what_cannot_be_used_any_more_is_forgotten(access: Store) -> None:
    """Expired codes and sessions at once, idle sessions, dead tokens after their time."""
    access.add_code(a_code("c0", expires_at=at(10)))
    access.add_code(a_code("c1", expires_at=at(11)))
    access.add_session(a_session("expired", expires_at=at(10), last_seen_at=at(9)), most=10)
    access.add_session(a_session("idle", last_seen_at=at(4)), most=10)
    access.add_session(a_session("alive", last_seen_at=at(5)), most=10)
    access.add_token(a_token("revoked", revoked_at=at(1)))
    access.add_token(a_token("expired", expires_at=at(1)))
    access.add_token(a_token("just", revoked_at=at(3), expires_at=at(3)))
    access.add_token(a_token("valid"))
    assert access.forget_access(at(10), before=at(3), seen_before=at(5)) == 5
    assert [one.id for one in access.sessions().items] == ["alive"]
    assert [one.name for one in access.tokens().items] == ["valid", "just"]
    assert access.take_code("c0") is None
    assert access.take_code("c1") is not None


def test_pages_follow_each_other(access: Store) -> None:
    """Every listing turns its pages without a repetition or a gap, and refuses foreign cursors."""
    for n in range(5):
        access.add_token(a_token(f"t{n}"))
        access.add_session(a_session(f"s{n}"), most=10)
    access.add_audit([an_entry(n) for n in range(5)])
    everything = AuditFilter()
    listings: list[Callable[..., object]] = [
        access.tokens,
        access.sessions,
        lambda **page: access.audit(everything, **page),
    ]
    for listing in listings:
        whole: object = listing(limit=100)
        turned, cursor = [], None
        while True:
            page = listing(cursor=cursor, limit=2)
            turned += page.items  # type: ignore[attr-defined]
            cursor = page.cursor  # type: ignore[attr-defined]
            if cursor is None:
                break
        assert len(turned) == 5
        assert turned == whole.items  # type: ignore[attr-defined]
        with pytest.raises(CursorInvalidError):
            listing(cursor="zzzz")


def test_an_audit_entry_comes_back_as_it_went_in(access: Store) -> None:
    """Every field, whatever characters the request had; its number rises."""
    strange = an_entry(
        1, user='a\x00 "', dataflow="\udcff", target={"stage": "\x00"}, reason="ü\n", count=3
    )
    access.add_audit(
        [an_entry(0, session="s", request="r", address="::1", error_code="x", status=409), strange]
    )
    newest, oldest = access.audit(AuditFilter()).items
    assert replace(newest, number=0) == strange
    assert newest.number > oldest.number
    assert (oldest.request, oldest.session) == ("r", "s")
    assert (oldest.address, oldest.status) == ("::1", 409)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (AuditFilter(), [3, 2, 1, 0]),
        (AuditFilter(since=at(1)), [3, 2, 1]),
        (AuditFilter(until=at(1)), [0]),
        (AuditFilter(since=at(1), until=at(3)), [2, 1]),
        (AuditFilter(actor="token-file"), [1]),
        (AuditFilter(action="dataflows_delete"), [2]),
        (AuditFilter(dataflow="e"), [3]),
        (AuditFilter(outcome="refused"), [3]),
        (AuditFilter(error_code="disk_full"), [1]),
        (AuditFilter(outcome="done", actor="token:ci", dataflow="d"), [2, 0]),
        (AuditFilter(actor="token:c"), []),
    ],
)
def test_the_audit_log_is_filtered(access: Store, chosen: AuditFilter, expected: list[int]) -> None:
    """By time (the end is left out), actor, action, dataflow and outcome, also together."""
    refused: Outcome = "refused"
    access.add_audit(
        [
            an_entry(0),
            an_entry(1, actor="token-file", error_code="disk_full"),
            an_entry(2, action="dataflows_delete"),
            an_entry(3, dataflow="e", outcome=refused),
        ]
    )
    actual = [(entry.at - START) // timedelta(seconds=1) for entry in access.audit(chosen).items]
    assert actual == expected


def test_the_audit_log_is_bounded_by_age_and_by_number(access: Store) -> None:
    """Old entries go, then the oldest beyond the limit; the newest stay."""
    access.add_audit([an_entry(n) for n in range(10)])
    assert access.forget_audit(at(3), rows_max=1000) == 3
    assert access.forget_audit(at(3), rows_max=1000) == 0
    assert access.forget_audit(at(3), rows_max=4) == 3
    assert [entry.at for entry in access.audit(AuditFilter()).items] == [at(9), at(8), at(7), at(6)]


def test_another_instance_sees_a_session_and_takes_a_code(
    opened: Store, store_with_faults: Callable[[Faults], Store]
) -> None:
    """What one instance writes the others accept, also while one of them is fenced."""
    other = store_with_faults(lambda _: None)
    other.fence(10**6)
    other.add_session(a_session("shared"), most=1000)
    other.add_code(a_code("shared"))
    assert opened.find_session("digest-shared") is not None
    assert opened.take_code("shared") is not None
    assert other.take_code("shared") is None
    assert opened.end_session("shared")
    assert other.find_session("digest-shared") is None
