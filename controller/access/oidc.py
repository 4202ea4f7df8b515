"""Tokens of an identity provider (OpenID Connect): their subject and their rights.

A token is accepted if the provider signed it for this service (`aud`) with a key that it publishes,
and if it is valid now, give or take a minute. The algorithm is that of the key, never one that the
token chooses: no `none`, and no secret shared with everybody (a public key used for HMAC).

A claim, such as `roles` or `realm_access.roles`, has the roles of the token's subject.
`oidc_scopes` maps them to scopes, and the highest scope counts. If `oidc_dataflows_claim` is set,
that claim lists the dataflows that the token may touch. `*` means all; without the claim, none.

The provider's signing keys are found by discovery and kept. A token names the key that signed it.
Keys are fetched again each hour, and when a token names an unknown key, since the provider may have
begun to use a new one. Anybody can send tokens that name unknown keys, so this happens at most
every `REFETCH_SECONDS`, in one thread, while tokens with known keys are still checked. If the
provider does not answer, the known keys stay valid for `KEPT_SECONDS`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

import structlog

from cbp.clock import MACHINE
from cbp.errors import CbpError
from controller.access.errors import (
    IdentityProviderError,
    OidcPackagesMissingError,
    UnauthenticatedError,
)
from controller.access.identity import Identity
from controller.access.scopes import Scope
from controller.access.secret_text import digest, mark_of
from controller.outbound.addresses import AddressRules
from controller.outbound.web_client import fetch_json, outbound_client
from controller.settings import Settings

LEEWAY = timedelta(minutes=1)
LENGTH_MAX = 16_384
SUBJECT_LENGTH_MAX = 200

_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
"""The signature algorithms that are accepted from each type of public key, or from each curve."""


def provider_tokens(
    settings: Settings, monotonic: Callable[[], float] = MACHINE.seconds
) -> ProviderTokens | None:
    """Return the checker of tokens of the configured provider; `None` if there is none.

    Raises `OidcPackagesMissingError`.
    """
    if not settings.oidc_issuer:
        return None
    try:
        import cryptography  # noqa: F401 - PyJWT asks for it when a key is loaded
        import jwt  # noqa: F401
    except ImportError as error:
        raise OidcPackagesMissingError(error.name or "pyjwt") from error

    def fetch(url: str) -> Mapping[str, Any]:
        with outbound_client(AddressRules.of_operator()) as http:
            return fetch_json(http, url)

    keys = SigningKeys(settings.oidc_issuer, fetch, _load, monotonic)
    return ProviderTokens(settings, keys)


class ProviderTokens:
    """Checks tokens of one provider; `settings` has the issuer, the audience and the claims."""

    def __init__(self, settings: Settings, keys: SigningKeys[_Key]) -> None:
        self._settings, self._keys = settings, keys

    def identify(self, token: str) -> Identity:
        """Return the caller that has a token.

        Raises `UnauthenticatedError` if the provider did not issue the token for this service, or
        if it grants no scope here, and `IdentityProviderError`.
        """
        claims = self._verified(token)
        subject = _claim(claims, self._settings.oidc_subject_claim)
        subject = subject if isinstance(subject, str) else ""
        if not subject or len(subject) > SUBJECT_LENGTH_MAX or not subject.isprintable():
            why = "its subject is missing, too long or not printable"
            raise UnauthenticatedError("provider", why)
        return Identity(
            scope=self._scope(claims),
            subject=subject,
            mark=mark_of(digest(token)),
            dataflows=self._dataflows(claims),
            expires_at=_end(claims["exp"]),
        )

    def _verified(self, token: str) -> Mapping[str, Any]:
        import jwt

        if len(token) > LENGTH_MAX:
            raise UnauthenticatedError("provider", "it is too long")
        try:
            header = jwt.get_unverified_header(token)
            name, algorithm = header.get("kid"), header.get("alg")
            if not isinstance(name, str):
                raise UnauthenticatedError("provider", "it does not name the key that signed it")
            key = self._keys.find(name)
            if key is None:
                raise UnauthenticatedError("provider", "the provider has no such key")
            if algorithm not in key.algorithms:
                raise UnauthenticatedError("provider", "its algorithm does not match its key")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=self._settings.oidc_audience,
                issuer=self._settings.oidc_issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise UnauthenticatedError("provider", _reason(error)) from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise UnauthenticatedError("provider", "it cannot be read") from error
        return claims

    def _scope(self, claims: Mapping[str, Any]) -> Scope:
        given = _texts(_claim(claims, self._settings.oidc_scope_claim))
        scopes = [
            Scope(scope) for value, scope in self._settings.oidc_scopes.items() if value in given
        ]
        if not scopes:
            raise UnauthenticatedError("provider", "it has none of the roles in CBP_OIDC_SCOPES")
        return max(scopes, key=list(Scope).index)

    def _dataflows(self, claims: Mapping[str, Any]) -> tuple[str, ...] | None:
        if not self._settings.oidc_dataflows_claim:
            return None
        granted = _texts(_claim(claims, self._settings.oidc_dataflows_claim))
        return None if "*" in granted else tuple(sorted(granted))


class _Key(NamedTuple):
    """A public key, and the signature algorithms that it can verify."""

    key: Any
    algorithms: tuple[str, ...]


def _load(described: Mapping[str, Any]) -> _Key | None:
    """Return a key that signs tokens; `None` for secrets, other uses, and unknown types."""
    import jwt

    kind = described.get("kty") if described.get("kty") == "RSA" else described.get("crv")
    allowed = _ALGORITHMS.get(str(kind), ()) if described.get("kty") != "oct" else ()
    if "alg" in described:
        allowed = tuple(name for name in allowed if name == described["alg"])
    if not allowed or described.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK.from_dict({**described, "alg": allowed[0]})
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return _Key(key.key, allowed)


def _end(expiry: Any) -> datetime:
    """Return when a token ends, from `exp`, in seconds since 1970."""
    try:
        return datetime.fromtimestamp(int(expiry), UTC) + LEEWAY
    except (ValueError, OverflowError, OSError) as error:  # such as milliseconds
        why = "its `exp` is not a time in seconds before the year 10000"
        raise UnauthenticatedError("provider", why) from error


def _reason(error: Exception) -> str:
    """Return the error in words; the library's own text can quote the token."""
    words = {
        "ExpiredSignatureError": "it has expired",
        "ImmatureSignatureError": "it is not valid yet",
        "InvalidAudienceError": "its audience is not the one in CBP_OIDC_AUDIENCE",
        "InvalidIssuerError": "its issuer is not the one in CBP_OIDC_ISSUER",
        "InvalidSignatureError": "its signature is wrong",
        "MissingRequiredClaimError": "it lacks one of the claims exp, iat, iss, aud and sub",
    }
    return words.get(type(error).__name__, "it cannot be read")


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its path, such as `realm_access.roles`; `None` if there is none.

    A claim that has the whole path as its name comes first: such names are often URLs.
    """
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _texts(value: Any) -> frozenset[str]:
    """Return a claim of several values: a list, or words with spaces between."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(one for one in value if isinstance(one, str))
    return frozenset()


FRESH_SECONDS = 3600.0
REFETCH_SECONDS = 30.0
KEPT_SECONDS = 24 * 3600.0
KEYS_MAX = 100

K = TypeVar("K")
Fetch = Callable[[str], Mapping[str, Any]]
"""Returns the JSON object at a URL; raises a `CbpError`."""

_log = structlog.get_logger(__name__)


class SigningKeys(Generic[K]):
    """The provider's signing keys, by name; `load` makes one, or `None` if it signs no tokens."""

    def __init__(
        self,
        issuer: str,
        fetch: Fetch,
        load: Callable[[Mapping[str, Any]], K | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._issuer, self._fetch, self._load, self._monotonic = issuer, fetch, load, monotonic
        self._fetching = threading.Lock()
        self._keys: dict[str, K] = {}
        self._fetched_at = self._tried_at = float("-inf")

    def find(self, name: str) -> K | None:
        """Return the key of a name, if the provider has it; raises `IdentityProviderError`."""
        now = self._monotonic()
        wanted = name not in self._keys or now - self._fetched_at >= FRESH_SECONDS
        is_due = now - self._tried_at >= REFETCH_SECONDS
        # Without any keys, all wait for the first ones; later only those that need new ones wait.
        if wanted and is_due and self._fetching.acquire(blocking=not self._keys):
            try:
                self._refetch()
            finally:
                self._fetching.release()
        if self._monotonic() - self._fetched_at >= KEPT_SECONDS:
            raise IdentityProviderError(self._issuer)
        return self._keys.get(name)

    def _refetch(self) -> None:
        if self._monotonic() - self._tried_at < REFETCH_SECONDS:  # another thread has
            return
        self._tried_at = self._monotonic()
        try:
            keys = self._read()
        except CbpError as error:
            _log.warning("oidc.keys_not_read", issuer=self._issuer, error=error.as_dict())
            return
        self._keys, self._fetched_at = keys, self._monotonic()

    def _read(self) -> dict[str, K]:
        found = self._fetch(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        address = found.get("jwks_uri")
        if found.get("issuer") != self._issuer:
            raise IdentityProviderError(
                self._issuer, "its openid-configuration names another issuer"
            )
        # The keys must come over TLS, or over the scheme that the operator chose for the issuer.
        safe = ("https", urlsplit(self._issuer).scheme)
        if not isinstance(address, str) or urlsplit(address).scheme not in safe:
            raise IdentityProviderError(
                self._issuer, "the jwks_uri of its openid-configuration is missing, or not https"
            )
        described = self._fetch(address).get("keys")
        if not isinstance(described, list):
            raise IdentityProviderError(self._issuer, "the answer of its jwks_uri has no keys")
        keys: dict[str, K] = {}
        for one in described[:KEYS_MAX]:
            name = one.get("kid") if isinstance(one, dict) else None
            if isinstance(name, str) and (key := self._load(one)) is not None:
                keys[name] = key
        return keys
