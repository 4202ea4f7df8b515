"""Masks: no spelling of a secret comes through, and what is no secret stays."""

from __future__ import annotations

import pytest

from cbp.errors.masks import MASK, Masker, secrets_of_address


def test_secrets_are_masked_by_name_in_addresses_and_by_value_at_any_depth() -> None:
    """Lists, tuples and documents alike; numbers, names and other texts stay as they are."""
    masker = Masker(["canary"])
    value = {
        "password": "any",
        "rows": [1, None, ("x canary y", {"api_token": "any", "n": 2})],
        "url": "s3a://user:any@bucket/x",
        "plain": "text",
        "token": "",
    }
    assert masker.value(value) == {
        "password": MASK,
        "rows": [1, None, [f"x {MASK} y", {"api_token": MASK, "n": 2}]],
        "url": f"s3a://user:{MASK}@bucket/x",
        "plain": "text",
        "token": "",
    }


def test_a_secret_that_has_another_one_in_it_is_masked_as_a_whole() -> None:
    """Otherwise the rest of it would be shown; the order in which they come does not matter."""
    for secrets in (["canary", "canary-4711"], ["canary-4711", "canary"]):
        assert Masker(secrets).text("a canary-4711, a canary") == f"a {MASK}, a {MASK}"


def test_short_secrets_are_masked_unless_they_are_left_out() -> None:
    """An empty one would be in every text, and is ignored."""
    assert Masker(["", "ab"]).text("cab") == f"c{MASK}"
    assert Masker(["", "ab"], length_min=3).text("cab") == "cab"


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("postgresql+psycopg://cbp:p@ss/w#rd@host/x", ["p@ss/w#rd"]),
        ("smtp://user:a%20b@host:587", ["a%20b", "a b"]),
        ("https://0123456789abcdef@host/x", ["0123456789abcdef"]),
        ("https://user@host/x?sig=s1&part=2&access_token=s2", ["s1", "s2"]),
        ("sqlite:////srv/cbp.db", []),
        ("no address: user:password@host", []),
    ],
)
def test_the_secrets_of_an_address_are_found_in_every_spelling(
    address: str, secrets: list[str]
) -> None:
    """A library quotes the password as the address has it, or decoded."""
    assert list(secrets_of_address(address)) == secrets
