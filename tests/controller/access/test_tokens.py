"""Named tokens: what is kept of them, how long they are valid, and how they end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cbp.errors import AlreadyExistsError, NotFoundError
from controller.access.errors import TokenEndedError, TokensTooManyError, UnauthenticatedError
from controller.access.scopes import Scope
from controller.access.secret_text import NewToken, mask_tokens
from controller.access.tokens import TOKENS_MAX
from controller.store.access import TokenRecord
from tests.controller.access.service_access import NOON, AccessOfTest

DAY = timedelta(days=1)


def make(
    access: AccessOfTest, name: str = "ci", life: timedelta | None = DAY
) -> tuple[TokenRecord, NewToken]:
    return access.tokens.create(name, Scope.OPERATOR, by="token-file", life=life)


def reason(access: AccessOfTest, secret: str) -> str:
    """Return why a token is refused; `""`: it is accepted."""
    try:
        access.authentication.identify_token(secret)
    except UnauthenticatedError as error:
        return str(error.details["reason"])
    return ""


def test_a_token_has_256_random_bits_behind_a_prefix() -> None:
    """Two are never alike; the prefix that lists show is no part of the bits."""
    made = [NewToken.make() for _ in range(100)]
    assert len({one.text for one in made}) == 100
    for one in made:
        secret = one.text.removeprefix(f"{one.prefix}_")
        assert one.text.startswith("cbp_")
        assert len(secret) == 43
        assert secret not in repr(one)


def test_nothing_that_is_kept_has_the_secret(access: AccessOfTest) -> None:
    """Only its digest; who steals the database has no token."""
    record, made = make(access)
    assert made.text not in repr(access.kept.tokens().items)
    assert record.sha256 == made.sha256
    assert record == access.kept.token("ci")


def test_a_token_is_its_caller(access: AccessOfTest) -> None:
    """Scope, name and end are those it was made with."""
    _, made = make(access)
    caller = access.authentication.identify_token(made.text)
    assert (caller.actor, caller.scope, caller.session) == ("token:ci", Scope.OPERATOR, "")
    assert caller.expires_at == NOON + DAY


def test_a_token_expires(access: AccessOfTest) -> None:
    """To the moment, also while it is remembered; one without an end does not."""
    _, made = make(access)
    _, endless = make(access, "endless", life=None)
    access.move(days=1, seconds=-1)
    assert reason(access, made.text) == ""
    access.move(seconds=1)
    assert reason(access, made.text) == "expired"
    access.move(days=10_000)
    assert reason(access, endless.text) == ""


def test_a_revoked_token_is_refused_at_once(access: AccessOfTest) -> None:
    """Though it was used just before; it stays in the list, and its name stays taken."""
    _, made = make(access)
    assert reason(access, made.text) == ""
    first = access.tokens.revoke("ci")
    assert reason(access, made.text) == "revoked"
    access.move(hours=1)
    assert access.tokens.revoke("ci") == first
    assert [one.name for one in access.tokens.list(cursor=None, limit=10).items] == ["ci"]
    with pytest.raises(AlreadyExistsError):
        make(access)


def test_a_rotated_token_has_its_life_again(access: AccessOfTest) -> None:
    """The old secret ends at once; the new one lives as long as the first one did."""
    _, old = make(access)
    access.move(hours=23)
    record, new = access.tokens.rotate("ci", overlap=timedelta())
    assert reason(access, old.text) == "unknown"
    assert reason(access, new.text) == ""
    assert record.expires_at == NOON + timedelta(hours=23) + DAY
    access.move(hours=12)
    again, _ = access.tokens.rotate("ci", overlap=timedelta())
    assert again.expires_at == NOON + timedelta(hours=35) + DAY


def test_an_old_secret_is_accepted_for_the_overlap(access: AccessOfTest) -> None:
    """And never beyond its own end: rotation makes no secret live longer."""
    _, old = make(access)
    _, new = access.tokens.rotate("ci", overlap=timedelta(hours=2))
    assert [reason(access, one.text) for one in (old, new)] == ["", ""]
    access.move(hours=2)
    assert [reason(access, one.text) for one in (old, new)] == ["expired", ""]
    access.move(hours=21)
    _, last = access.tokens.rotate("ci", overlap=timedelta(hours=100))
    assert access.kept.token("ci").old_until == NOON + DAY
    access.move(hours=1)
    assert [reason(access, one.text) for one in (new, last)] == ["expired", ""]


def test_what_cannot_be_rotated(access: AccessOfTest) -> None:
    """A revoked token stays revoked; an unknown one is not made."""
    make(access)
    access.tokens.revoke("ci")
    with pytest.raises(TokenEndedError):
        access.tokens.rotate("ci", overlap=timedelta())
    with pytest.raises(NotFoundError):
        access.tokens.rotate("nobody", overlap=timedelta())
    with pytest.raises(NotFoundError):
        access.tokens.revoke("nobody")


def test_no_token_has_the_name_of_the_token_file(access: AccessOfTest) -> None:
    """The audit log must not confuse them."""
    with pytest.raises(AlreadyExistsError):
        make(access, "token-file")


def test_the_number_of_tokens_has_a_limit(access: AccessOfTest) -> None:
    """The last one is made, one more is refused."""
    for n in range(TOKENS_MAX):
        make(access, f"t{n}")
    with pytest.raises(TokensTooManyError):
        make(access, "one-more")


def test_a_token_in_a_text_is_masked() -> None:
    """What recognises it stays; what is secret goes, wherever it was pasted."""
    made = NewToken.make()
    masked = mask_tokens(f"/api/v1/tokens/{made.text}/rotate?x={made.text}")
    assert made.text.removeprefix(f"{made.prefix}_")[:8] not in masked
    assert masked.count(f"{made.prefix}_********") == 2


def test_a_rotation_does_not_revive_a_token_that_is_revoked_meanwhile(
    access: AccessOfTest,
) -> None:
    """By whichever instance: both read and write one database, each by itself."""
    _, old = make(access)
    tokens, read, reads = access.tokens, access.tokens._store.token, list[str]()

    def read_early(name: str) -> TokenRecord:
        record = read(name)
        reads.append(name)
        if len(reads) == 1:
            tokens.revoke(name)
        return record

    tokens._store.token = read_early  # type: ignore[method-assign]
    with pytest.raises(TokenEndedError):
        tokens.rotate("ci", overlap=DAY)
    assert reason(access, old.text) == "revoked"
    assert read("ci").rotated_at is None


def rotated_once_read(access: AccessOfTest) -> list[NewToken]:
    """Rotate a token right after it is read for the next change; return the new secrets."""
    tokens, read, made = access.tokens, access.tokens._store.token, list[NewToken]()

    def read_early(name: str) -> TokenRecord:
        record = read(name)
        if not made:
            tokens._store.token = read  # type: ignore[method-assign]
            made.append(tokens.rotate(name, overlap=DAY)[1])
        return record

    tokens._store.token = read_early  # type: ignore[method-assign]
    return made


def test_two_rotations_at_a_time_are_one_after_the_other(access: AccessOfTest) -> None:
    """The second one replaces the secret of the first, and both are accepted while they overlap."""
    make(access)
    made = rotated_once_read(access)
    made.append(access.tokens.rotate("ci", overlap=DAY)[1])
    assert [reason(access, one.text) for one in made] == ["", ""]


def test_a_token_that_is_rotated_meanwhile_is_revoked(access: AccessOfTest) -> None:
    """The revocation ends the new secret, too."""
    make(access)
    made = rotated_once_read(access)
    access.tokens.revoke("ci")
    assert reason(access, made[0].text) == "revoked"
