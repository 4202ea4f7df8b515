"""Keys of an identity provider: rotation, floods of unknown names, and a provider that is away."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.access.errors import IdentityProviderError, OidcPackagesMissingError
from controller.access.oidc import KEPT_SECONDS, REFETCH_SECONDS, SigningKeys, provider_tokens
from controller.outbound.addresses import OutboundFailedError
from controller.settings import load_settings

ISSUER = "https://id.example/realm"


class Provider:
    """Answers as a provider, and counts how often it is asked."""

    def __init__(self) -> None:
        self.names: list[Any] = ["one"]
        self.discovery: dict[str, Any] = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        self.asked, self.now, self.is_away = list[str](), 1_000.0, False

    def fetch(self, url: str) -> Mapping[str, Any]:
        self.asked.append(url)
        if self.is_away:
            raise OutboundFailedError("id.example", "not reached")
        if url.endswith("/.well-known/openid-configuration"):
            return self.discovery
        return {"keys": [{"kid": name} for name in self.names]}

    def keys(self) -> SigningKeys[str]:
        return SigningKeys(
            ISSUER, self.fetch, lambda described: f"key {described['kid']}", lambda: self.now
        )


def test_a_provider_without_what_checks_signatures_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token is believed unchecked, and the message says what to install."""
    settings = load_settings(root=tmp_path, oidc_issuer=ISSUER, oidc_audience="cbp")
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(OidcPackagesMissingError) as missing:
        provider_tokens(settings)
    assert not missing.value.retryable


def test_keys_are_fetched_once_and_kept() -> None:
    """By discovery: the address of the keys is what the provider says."""
    provider = Provider()
    keys = provider.keys()
    assert [keys.find("one") for _ in range(3)] == ["key one"] * 3
    assert provider.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]


def test_a_new_key_is_known_by_its_first_token() -> None:
    """Rotation: the old key goes, and tokens of it are refused."""
    provider = Provider()
    keys = provider.keys()
    assert keys.find("one")
    provider.names, provider.now = ["two"], provider.now + REFETCH_SECONDS
    assert keys.find("two") == "key two"
    assert keys.find("one") is None


def test_unknown_names_do_not_make_the_service_ask_again_and_again() -> None:
    """A flood of tokens with keys of nobody costs the provider one request in half a minute."""
    provider = Provider()
    keys = provider.keys()
    keys.find("one")
    asked = len(provider.asked)
    for number in range(1_000):
        assert keys.find(f"unknown {number}") is None
    assert len(provider.asked) == asked
    provider.now += REFETCH_SECONDS
    for number in range(1_000):
        assert keys.find(f"unknown {number}") is None
    assert len(provider.asked) == asked + 2


def test_a_provider_that_is_away_changes_nothing_for_a_day() -> None:
    """Then no token of it is believed any more: a key may have been withdrawn meanwhile."""
    provider = Provider()
    keys = provider.keys()
    keys.find("one")
    provider.is_away, provider.now = True, provider.now + KEPT_SECONDS - 1
    assert keys.find("one") == "key one"
    provider.now += 2
    with pytest.raises(IdentityProviderError) as away:
        keys.find("one")
    assert away.value.retryable
    provider.is_away, provider.now = False, provider.now + REFETCH_SECONDS
    assert keys.find("one") == "key one"


def test_a_provider_that_was_never_there_is_an_error_and_no_refusal() -> None:
    """A client tries again; and the provider is not asked for each of its tries."""
    provider = Provider()
    provider.is_away = True
    keys = provider.keys()
    for _ in range(50):
        with pytest.raises(IdentityProviderError):
            keys.find("one")
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://other.example"},
        {"issuer": f"{ISSUER}/"},
        {"jwks_uri": "http://id.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": None},
    ],
)
def test_a_discovery_that_is_not_the_issuers_gives_no_key(change: dict[str, Any]) -> None:
    """Another issuer, or keys that come without TLS, would let somebody else in."""
    provider = Provider()
    provider.discovery |= change
    with pytest.raises(IdentityProviderError):
        provider.keys().find("one")
    assert not [url for url in provider.asked if url.endswith("keys")]


def test_what_is_no_key_is_left_out() -> None:
    """One odd entry does not take the others away."""
    provider = Provider()
    provider.names = [None, 7, "one"]
    keys = provider.keys()
    assert keys.find("one") == "key one"


def test_tokens_with_known_keys_go_on_while_keys_are_fetched() -> None:
    """A provider that answers slowly holds up nobody who does not need it."""
    provider = Provider()
    keys = provider.keys()
    keys.find("one")
    provider.now += REFETCH_SECONDS
    begun, answers, fetch = threading.Event(), threading.Event(), provider.fetch

    def slow(url: str) -> Mapping[str, Any]:
        begun.set()
        assert answers.wait(120)
        return fetch(url)

    keys._fetch = slow
    thread = threading.Thread(target=keys.find, args=("two",))
    thread.start()
    assert begun.wait(120)
    assert keys.find("one") == "key one"
    assert keys.find("three") is None
    answers.set()
    thread.join(120)
