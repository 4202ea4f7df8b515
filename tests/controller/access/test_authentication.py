"""From a credential to a caller: what costs a look-up, and what is written."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from cbp.errors import OperatingError
from controller.access.authentication import REMEMBERED_SECONDS
from controller.access.errors import UnauthenticatedError
from controller.access.scopes import Scope
from controller.store.access import TokenRecord
from tests.controller.access.failing_store import StoreThatFails
from tests.controller.access.service_access import TOKEN, AccessOfTest


def test_the_token_file_needs_no_store(tmp_path: Path) -> None:
    """Whatever happens to the database, the admin gets in."""
    access = AccessOfTest(tmp_path, StoreThatFails())
    caller = access.authentication.identify_token(TOKEN)
    assert (caller.actor, caller.scope) == ("token-file", Scope.ADMIN)
    with pytest.raises(OperatingError):
        access.authentication.identify_token("cbp_12345678_" + "x" * 43)


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], f"{TOKEN}x", "cbp_" + "x" * 10_000, "ä"])
def test_what_cannot_be_a_token_costs_no_look_up(access: AccessOfTest, token: str) -> None:
    """Who sends rubbish does not load the database."""
    with pytest.raises(UnauthenticatedError):
        access.authentication.identify_token(token)
    assert access.kept.lookups == 0


def test_a_caller_is_believed_for_two_seconds(access: AccessOfTest) -> None:
    """Many requests cost one look-up; after that time it is looked up again."""
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=None)
    for _ in range(10):
        access.authentication.identify_token(made.text)
    assert access.kept.lookups == 1
    access.move(seconds=REMEMBERED_SECONDS)
    access.authentication.identify_token(made.text)
    assert access.kept.lookups == 2


def test_an_end_at_another_instance_counts_two_seconds_later(
    access: AccessOfTest, tmp_path: Path
) -> None:
    """Not at once, since this instance is not notified; not later either."""
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=None)
    access.authentication.identify_token(made.text)
    AccessOfTest(tmp_path, access.kept).tokens.revoke("ci")
    access.authentication.identify_token(made.text)
    access.move(seconds=REMEMBERED_SECONDS)
    with pytest.raises(UnauthenticatedError):
        access.authentication.identify_token(made.text)


def test_the_last_use_is_written_once_a_minute(access: AccessOfTest) -> None:
    """Tokens and sessions have one each, however many requests come."""
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=None)
    caller = access.authentication.identify_token(made.text)
    cookie, session = access.sessions.begin(caller, address="", agent="")
    for _ in range(180):
        access.authentication.identify_token(made.text)
        access.authentication.identify_session(cookie)
        access.move(seconds=1)
    uses = [name for name, _ in access.kept.uses]
    assert uses.count("ci") == 3
    assert uses.count(session.id) == 2


def test_a_use_that_cannot_be_written_is_served(access: AccessOfTest) -> None:
    """A note is not worth a refusal."""
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=None)

    def fail(name: str, at: object) -> None:
        message = "the disk is full"
        raise OperatingError(message)

    access.kept.use_token = fail  # type: ignore[method-assign]
    assert access.authentication.identify_token(made.text).token == "ci"


def test_a_token_is_no_cookie_and_a_cookie_no_token(access: AccessOfTest) -> None:
    """A cookie has stricter rules: neither passes as the other, remembered or not."""
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=None)
    caller = access.authentication.identify_token(made.text)
    cookie, _ = access.sessions.begin(caller, address="", agent="")
    access.authentication.identify_session(cookie)
    for wrong in (made.text, TOKEN):
        assert access.authentication.recall_session(wrong) is None
        with pytest.raises(UnauthenticatedError):
            access.authentication.identify_session(wrong)
    assert access.authentication.recall_token(cookie) is None
    with pytest.raises(UnauthenticatedError):
        access.authentication.identify_token(cookie)


def test_what_ends_while_it_is_looked_up_is_not_remembered(access: AccessOfTest) -> None:
    """test      looks a token up .......... serves this request      looks up again: refused
    an admin             revokes it
    """
    _, made = access.tokens.create("ci", Scope.VIEWER, by="x", life=timedelta(days=1))
    find, reached = access.kept.find_token, threading.Event()

    def find_and_revoke(sha256: str) -> TokenRecord | None:
        record = find(sha256)
        if not reached.is_set():
            reached.set()
            access.tokens.revoke("ci")
        return record

    access.kept.find_token = find_and_revoke  # type: ignore[method-assign]
    access.authentication.identify_token(made.text)
    assert reached.is_set()
    with pytest.raises(UnauthenticatedError):
        access.authentication.identify_token(made.text)
