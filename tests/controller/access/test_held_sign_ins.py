"""Signing in while the disk of the database is full, on a real small disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from cbp.errors import DiskFullError, NotFoundError
from controller.access.access import STORE_SECONDS
from controller.access.errors import CodeRefusedError, UnauthenticatedError
from controller.access.held_sign_ins import HELD_MAX
from controller.access.scopes import Scope
from controller.store.base import Store, open_store
from tests.controller.access.service_access import ClockedAccess
from tests.machine import fill_disk, small_disk

YEAR = timedelta(days=365)


class FullDisk:
    """An access side whose database is on a disk that can be filled.

    Attributes:
        access: The access side.
        store: Its store.
    """

    def __init__(self, disk: Path, root: Path) -> None:
        self._disk = disk
        self.store = open_store(f"sqlite:///{disk}/cbp.db")
        self.access = ClockedAccess(root, self.store)

    def fill(self) -> None:
        """Leave no room, not even in the database's log."""
        self._ballast = fill_disk(self._disk)
        with suppress(DiskFullError):
            for n in count():
                self.access.tokens.create(f"fill-{n}", Scope.VIEWER, by="x", life=None)

    def make_room(self) -> None:
        """Remove what fills the disk."""
        self._ballast.unlink()

    def sign_in(self) -> str:
        """Sign in by a new code; return the cookie."""
        code, _ = self.access.sessions.make_code(self.access.authentication.admin)
        return self.enter(code)

    def enter(self, code: str) -> str:
        """Sign in by a code; return the cookie."""
        record = self.access.sessions.take_code(code)
        return self.access.sessions.begin(record, address="::1", agent="b")[0]

    def session_of(self, cookie: str) -> str:
        """Return the id of a cookie's session; `""` if it has ended."""
        try:
            return self.access.authentication.identify_session(cookie).session
        except UnauthenticatedError:
            return ""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullDisk]:
    """An access side over a small disk, which is not full yet."""
    with small_disk(tmp_path / "disk", "2m") as disk:
        made = FullDisk(disk, tmp_path)
        yield made
        made.store.close()


def listed(store: Store) -> list[str]:
    return [one.id for one in store.sessions().items]


def test_a_full_disk_lets_people_in_and_out(full: FullDisk) -> None:
    """By a new link or a token; the session is listed, and ends at once."""
    full.fill()
    cookie = full.sign_in()
    id_ = full.session_of(cookie)
    assert id_
    assert full.access.sessions.is_held(id_)
    caller = full.access.authentication.admin
    other, session = full.access.sessions.begin(caller, address="", agent="")
    page = full.access.sessions.list(cursor=None, limit=1)
    assert [one.id for one in page.items] == [session.id, id_]
    full.access.sessions.end(id_)
    assert (full.session_of(cookie), full.session_of(other)) == ("", session.id)
    with pytest.raises(NotFoundError):
        full.access.sessions.end("nobody")


def test_a_held_code_is_used_once_and_a_stored_one_not_at_all(full: FullDisk) -> None:
    """Nothing could note on the disk that a stored one is used up, for other instances too."""
    stored, _ = full.access.sessions.make_code(full.access.authentication.admin)
    full.fill()
    with pytest.raises(DiskFullError):
        full.access.sessions.take_code(stored)
    held, _ = full.access.sessions.make_code(full.access.authentication.admin)
    full.enter(held)
    late, _ = full.access.sessions.make_code(full.access.authentication.admin)
    full.access.move(minutes=10)
    for code in (held, late):
        with pytest.raises((CodeRefusedError, DiskFullError)):
            full.access.sessions.take_code(code)
    full.make_room()
    for code in (held, late, stored):
        with pytest.raises(CodeRefusedError):
            full.access.sessions.take_code(code)


def test_a_held_session_ends_with_its_token(full: FullDisk) -> None:
    """Revoked or expired, as one that is stored; it ends idle, too."""
    ends = {}
    for name, life in (("revoked", YEAR), ("expired", timedelta(minutes=30))):
        _, made = full.access.tokens.create(name, Scope.ADMIN, by="x", life=life)
        ends[name] = full.access.authentication.identify_token(made.text)
    full.fill()
    cookies = {
        name: full.access.sessions.begin(caller, address="", agent="")[0]
        for name, caller in ends.items()
    }
    stays = full.sign_in()
    assert all(full.session_of(cookie) for cookie in cookies.values())
    full.make_room()
    full.access.tokens.revoke("revoked")
    assert not full.session_of(cookies["revoked"])
    assert full.session_of(cookies["expired"])
    full.access.move(minutes=31)
    assert not full.session_of(cookies["expired"])
    assert full.session_of(stays)
    full.access.move(minutes=60)
    assert not full.session_of(stays)


def test_a_held_session_is_stored_once_there_is_room(full: FullDisk) -> None:
    """Nobody signs in again: it goes on in the database, and outlives the process from then on."""
    full.fill()
    cookie = full.sign_in()
    id_ = full.session_of(cookie)
    full.access.do_due_work()
    assert full.access.sessions.is_held(id_)
    full.make_room()
    full.access.move(seconds=STORE_SECONDS)
    full.access.do_due_work()
    assert not full.access.sessions.is_held(id_)
    assert listed(full.store) == [id_]
    assert full.session_of(cookie) == id_


def test_what_is_held_has_a_limit(full: FullDisk) -> None:
    """The newest sign-in always works; the oldest gives way."""
    full.fill()
    cookies = [full.sign_in() for _ in range(HELD_MAX + 1)]
    assert not full.session_of(cookies[0])
    assert full.session_of(cookies[1])
    assert full.session_of(cookies[-1])
