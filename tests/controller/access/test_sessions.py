"""Sign-in codes, and the sessions that come of them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cbp.errors import NotFoundError
from controller.access.errors import (
    CodeRefusedError,
    ScopeTooLowError,
    TokenNeededError,
    UnauthenticatedError,
)
from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.access.sessions import SESSIONS_MAX
from tests.controller.access.service_access import TOKEN, AccessOfTest

YEAR = timedelta(days=365)


def sign_in(
    access: AccessOfTest, caller: Identity | None = None, scope: Scope | None = None
) -> str:
    """Make a code, take it, begin a session; return the cookie."""
    code, _ = access.sessions.make_code(caller or access.authentication.admin, scope)
    cookie, _ = access.sessions.begin(access.sessions.take_code(code), address="::1", agent="b")
    return cookie


def is_in(access: AccessOfTest, cookie: str) -> bool:
    try:
        access.authentication.identify_session(cookie)
    except UnauthenticatedError as error:
        return str(error.details["reason"]) != "session_ended"
    return True


def test_a_code_is_used_once_and_within_ten_minutes(access: AccessOfTest) -> None:
    """A second use, a late one, and one that was never made are refused alike."""
    admin = access.authentication.admin
    first, _ = access.sessions.make_code(admin)
    access.sessions.take_code(first)
    late, _ = access.sessions.make_code(admin)
    access.move(minutes=10)
    just, _ = access.sessions.make_code(admin)
    access.move(minutes=10, seconds=-1)
    access.sessions.take_code(just)
    for code in (first, late, just, "x", ""):
        with pytest.raises(CodeRefusedError):
            access.sessions.take_code(code)


def test_nothing_that_is_kept_has_a_secret(access: AccessOfTest) -> None:
    """Neither of a code nor of a cookie."""
    code, record = access.sessions.make_code(access.authentication.admin)
    assert code not in repr(record)
    cookie, session = access.sessions.begin(record, address="::1", agent="b")
    assert cookie not in repr(session)
    assert cookie not in repr(access.kept.sessions().items)


@pytest.mark.parametrize("scope", list(Scope))
def test_a_session_has_the_scope_of_its_code(access: AccessOfTest, scope: Scope) -> None:
    """An admin gives a viewer a link, and not the own rights."""
    caller = access.authentication.identify_session(sign_in(access, scope=scope))
    assert (caller.scope, caller.actor) == (scope, "token-file")
    assert caller.session


def test_a_link_gives_no_more_than_its_token_may(access: AccessOfTest) -> None:
    """A viewer's token makes viewers' links."""
    _, made = access.tokens.create("v", Scope.VIEWER, by="x", life=None)
    viewer = access.authentication.identify_token(made.text)
    with pytest.raises(ScopeTooLowError):
        access.sessions.make_code(viewer, Scope.OPERATOR)
    caller = access.authentication.identify_session(sign_in(access, viewer))
    assert (caller.scope, caller.actor) == (Scope.VIEWER, "token:v")


def test_a_session_makes_no_link(access: AccessOfTest) -> None:
    """Otherwise it would renew itself for ever."""
    caller = access.authentication.identify_session(sign_in(access))
    with pytest.raises(TokenNeededError):
        access.sessions.make_code(caller)


def test_a_limited_token_does_not_sign_in(access: AccessOfTest) -> None:
    """The page shows all dataflows; neither by a link nor by itself."""
    _, made = access.tokens.create("u", Scope.ADMIN, by="x", life=None, dataflows=("a",))
    limited = access.authentication.identify_token(made.text)
    with pytest.raises(TokenNeededError):
        access.sessions.make_code(limited)
    with pytest.raises(TokenNeededError):
        access.sessions.begin(limited, address="", agent="")


def test_a_session_ends_after_its_life(access: AccessOfTest) -> None:
    """After twelve hours, however busy it is."""
    cookie = sign_in(access)
    for _ in range(12 * 60 - 1):
        access.move(minutes=1)
        assert is_in(access, cookie)
    access.move(minutes=1)
    assert not is_in(access, cookie)


def test_an_idle_session_ends(access: AccessOfTest) -> None:
    """After an hour without a request; a request begins the hour anew."""
    cookie = sign_in(access)
    access.move(minutes=59)
    assert is_in(access, cookie)
    access.move(minutes=59)
    assert is_in(access, cookie)
    access.move(minutes=60)
    assert not is_in(access, cookie)


def test_a_session_ends_with_its_token(access: AccessOfTest) -> None:
    """Revoked, rotated or expired; a session of another token stays."""
    stays = sign_in(access)
    for name in ("revoked", "rotated", "expired"):
        _, made = access.tokens.create(name, Scope.ADMIN, by="x", life=timedelta(minutes=30))
        cookie = sign_in(access, access.authentication.identify_token(made.text))
        assert is_in(access, cookie)
        if name == "revoked":
            access.tokens.revoke(name)
        elif name == "rotated":
            access.tokens.rotate(name, overlap=timedelta(hours=1))
        else:
            access.move(minutes=30)
        assert not is_in(access, cookie), name
    assert is_in(access, stays)


def test_a_code_ends_with_its_token(access: AccessOfTest) -> None:
    """What was made before the end cannot be used after it."""
    _, made = access.tokens.create("ci", Scope.ADMIN, by="x", life=YEAR)
    code, _ = access.sessions.make_code(access.authentication.identify_token(made.text))
    access.tokens.revoke("ci")
    with pytest.raises(CodeRefusedError):
        access.sessions.take_code(code)


def test_a_restart_and_another_instance_accept_a_session(
    access: AccessOfTest, tmp_path: Path
) -> None:
    """It is in the store; a new token file ends it."""
    cookie = sign_in(access)
    assert is_in(AccessOfTest(tmp_path, access.kept), cookie)
    assert not is_in(AccessOfTest(tmp_path, access.kept, token=f"{TOKEN}2"), cookie)


def test_a_session_that_was_ended_is_out_at_once(access: AccessOfTest) -> None:
    """Though it was used just before; a second end finds nothing."""
    cookie = sign_in(access)
    caller = access.authentication.identify_session(cookie)
    access.sessions.end(caller.session)
    assert not is_in(access, cookie)
    with pytest.raises(NotFoundError):
        access.sessions.end(caller.session)


def test_the_number_of_sessions_has_a_limit(access: AccessOfTest) -> None:
    """The newest sign-in always works; the oldest session gives way."""
    cookies = [sign_in(access) for _ in range(SESSIONS_MAX + 1)]
    assert not is_in(access, cookies[0])
    assert is_in(access, cookies[1])
    assert is_in(access, cookies[-1])
