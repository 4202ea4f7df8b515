"""Tokens of an identity provider, against a real small one: who gets in, under which name."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from controller.access.oidc import REFETCH_SECONDS, provider_tokens
from controller.access.secret_text import mask_tokens
from controller.settings import load_settings
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED, bearer
from tests.controller.https_server import HttpsServer

AUDIENCE = "cbp"
NOW = int(time.time())
"""When this file was loaded; what is valid is so for a day."""


class Issuer:
    """A provider with keys of its own, over HTTP on the loopback address."""

    def __init__(self, server: HttpsServer) -> None:
        self._server, self.keys = server, dict[str, Any]()
        self.url = f"http://127.0.0.1:{server.port}"
        server.answers["/.well-known/openid-configuration"] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
        }
        self.rotate("first")

    def rotate(self, name: str, kind: str = "EC") -> None:
        """Use a new key from now on, and publish no other."""
        self.name = name
        self.private: Any = (
            rsa.generate_private_key(65537, 2048)
            if kind == "RSA"
            else ec.generate_private_key(ec.SECP256R1())
        )
        self.algorithm = "RS256" if kind == "RSA" else "ES256"
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        self.public = algorithm.to_jwk(self.private.public_key(), as_dict=True)
        self._server.answers["/keys"] = {"keys": [{**self.public, "kid": name, "use": "sig"}]}

    def token(self, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token; a claim of `None` is left out."""
        every = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": NOW,
            "exp": NOW + 86_400,
            "roles": ["cbp-operator", "something"],
            **claims,
        }
        named = {"kid": self.name, **(header or {})}
        made = {name: value for name, value in every.items() if value is not None}
        text: str = jwt.encode(made, self.private, algorithm=self.algorithm, headers=named)
        return text


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """Give a provider."""
    with HttpsServer() as server:
        yield Issuer(server)


@pytest.fixture
def service(issuer: Issuer, tmp_path: Path) -> Service:
    """Give a service that accepts its tokens."""
    made = Service(tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE)
    made.fill()
    return made


def status(service: Service, token: str, path: str = "/api/v1/session") -> tuple[int, Any]:
    """Return what a request with a token is answered."""
    with service.client(token=token) as client:
        answer = client.get(path)
    return answer.status_code, answer.json()


def test_a_token_of_the_provider_is_its_subject(service: Service, issuer: Issuer) -> None:
    """With the scope of its role; what it did is in the audit log by its name."""
    code, said = status(service, issuer.token())
    assert (code, said["actor"], said["scope"]) == (200, "oidc:alice", "operator")
    with service.client(token=issuer.token()) as client:
        assert client.post("/api/v1/dataflows/clicks/pause").status_code == 200
        refused = client.delete("/api/v1/dataflows/clicks")
    assert (refused.status_code, refused.json()["error_code"]) == (403, "scope_too_low")
    entry = next(one for one in service.store.entries if one.action == "dataflows_pause")
    assert (entry.actor, entry.scope, entry.outcome) == ("oidc:alice", "operator", "done")


@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_both_kinds_of_keys_sign(service: Service, issuer: Issuer, kind: str) -> None:
    """Those that providers use."""
    issuer.rotate("other", kind)
    assert status(service, issuer.token())[0] == 200


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "somebody"}, "audience is not"),
        ({"aud": None}, "lacks one of the claims"),
        ({"iss": "https://other.example"}, "issuer is not"),
        ({"exp": NOW - 3600}, "has expired"),
        ({"exp": None}, "lacks one of the claims"),
        ({"exp": NOW * 1000}, "not a time in seconds"),
        ({"exp": 253_402_300_799}, "not a time in seconds"),  # the last second of 9999
        ({"nbf": NOW + 3600}, "is not valid yet"),
        ({"iat": NOW + 3600}, "is not valid yet"),
        ({"roles": []}, "none of the roles"),
        ({"roles": None}, "none of the roles"),
        ({"roles": {"cbp-admin": 1}}, "none of the roles"),
        ({"roles": "admin"}, "none of the roles"),
        ({"sub": None}, "lacks one of the claims"),
        ({"sub": "a\nb"}, "its subject is"),
        ({"sub": "x" * 500}, "its subject is"),
    ],
)
def test_a_token_for_something_else_is_refused(
    service: Service, issuer: Issuer, claims: dict[str, Any], why: str
) -> None:
    """The answer says why, in words, and does not repeat the token."""
    token = issuer.token(**claims)
    code, said = status(service, token)
    assert (code, said["error_code"]) == (401, "unauthenticated")
    assert why in said["message"]
    assert token not in json.dumps(said)


def test_clocks_may_differ_by_less_than_a_minute(service: Service, issuer: Issuer) -> None:
    """The provider's clock is not this machine's."""
    now = int(time.time())
    assert status(service, issuer.token(exp=now - 30))[0] == 200
    assert status(service, issuer.token(iat=now + 30, nbf=now + 30))[0] == 200
    assert status(service, issuer.token(exp=now - 90))[0] == 401


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_the_algorithm_is_that_of_the_key(service: Service, issuer: Issuer) -> None:
    """Neither none, nor HMAC by the public key, nor a key that the token brings along."""
    import hashlib
    import hmac as hmac_

    header, claims, signature = issuer.token().split(".")
    forged = [f"{_part({'alg': 'none', 'kid': 'first'})}.{claims}."]
    forged.append(f"{_part({'alg': 'none', 'kid': 'first'})}.{claims}.{signature}")
    for secret in (json.dumps(issuer.public).encode(), b"", issuer.public["x"].encode()):
        head = f"{_part({'alg': 'HS256', 'kid': 'first'})}.{claims}"
        made = hmac_.new(secret, head.encode(), hashlib.sha256).digest()
        forged.append(f"{head}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}")
    for more in ({"jwk": issuer.public}, {"jku": "http://evil.example"}, {"x5u": "http://x"}):
        forged.append(f"{_part({'alg': 'ES256', 'kid': 'nobody', **more})}.{claims}.{signature}")
    forged.append(f"{header}.{_part({'sub': 'mallory'})}.{signature}")
    forged.append(f"{header}.{claims}.{signature[:-4]}AAAA")
    forged += ["a.b.c", "..", "e30.e30.e30", f"{header}.{claims}.", "x" * 20_000 + ".a.b"]
    for token in forged:
        code, said = status(service, token)
        assert (code, said["error_code"]) == (401, "unauthenticated"), token[:100]


def test_a_shared_secret_among_the_keys_signs_nothing(service: Service, issuer: Issuer) -> None:
    """A provider that publishes one by mistake would let everybody in."""
    secret = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    shared = {"kty": "oct", "k": secret, "kid": "shared", "alg": "HS256"}
    encrypts = {**issuer.public, "kid": "encrypts", "use": "enc"}
    issuer._server.answers["/keys"] = {"keys": [shared, encrypts]}
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "m", "exp": NOW + 86_400}
    claims |= {"iat": NOW, "roles": ["cbp-admin"]}
    made = jwt.encode(claims, b"s" * 32, algorithm="HS256", headers={"kid": "shared"})
    assert status(service, made)[0] == 401
    assert status(service, issuer.token(header={"kid": "encrypts"}))[0] == 401


def test_a_rotated_key_is_taken_and_the_old_one_is_gone(issuer: Issuer, tmp_path: Path) -> None:
    """Without a restart; tokens with keys of nobody do not make the service ask each time."""
    settings = load_settings(root=tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE)
    now = [1_000.0]
    tokens = provider_tokens(settings, lambda: now[0])
    assert tokens is not None
    old = issuer.token()
    assert tokens.identify(old).subject == "alice"
    issuer.rotate("second")
    now[0] += REFETCH_SECONDS
    assert tokens.identify(issuer.token()).subject == "alice"
    asked = len(issuer._server.paths)
    for number in range(100):
        with pytest.raises(Exception, match="no such key"):
            tokens.identify(issuer.token(header={"kid": f"unknown {number}"}))
    with pytest.raises(Exception, match="no such key"):
        tokens.identify(old)
    assert len(issuer._server.paths) == asked


def test_claims_grant_dataflows_and_nothing_by_default(issuer: Issuer, tmp_path: Path) -> None:
    """Where the claim is set: what it lists, all by a star, none where it is missing."""
    service = Service(
        tmp_path,
        oidc_issuer=issuer.url,
        oidc_audience=AUDIENCE,
        oidc_scope_claim="realm_access.roles",
        oidc_scopes={"staff": "viewer", "boss": "admin"},
        oidc_dataflows_claim="https://cbp.example/dataflows",
        oidc_subject_claim="email",
    )
    service.fill()
    given: dict[str, Any] = {"realm_access": {"roles": ["staff", "boss"]}, "email": "a@example"}
    claim = "https://cbp.example/dataflows"
    path = "/api/v1/dataflows/clicks"
    for dataflows, expected in (
        ({claim: ["clicks"]}, 200),
        ({claim: "other clicks"}, 200),
        ({claim: "*"}, 200),
        ({claim: ["other"]}, 403),
        ({claim: []}, 403),
        ({}, 403),
    ):
        token = issuer.token(**given, **dataflows)
        assert status(service, token, path)[0] == expected, dataflows
        said = status(service, token)[1]
        assert (said["actor"], said["scope"]) == ("oidc:a@example", "admin")


def test_a_token_of_the_provider_makes_no_session(service: Service, issuer: Issuer) -> None:
    """A session belongs to a token of the service: one without would be the admin's."""
    token = issuer.token(roles=["cbp-admin"])
    with service.client(token=token) as client:
        link = client.post("/api/v1/session/codes")
    assert (link.status_code, link.json()["error_code"]) == (403, "token_needed")
    with service.client(token=None) as client:
        signed = client.post("/api/v1/session", json={"token": token}, headers=MARKED)
    assert signed.status_code == 403
    assert "set-cookie" not in signed.headers


def test_without_the_provider_the_tokens_of_the_service_work(tmp_path: Path) -> None:
    """Its tokens are answered with 503, since they could be good."""
    with HttpsServer(status=500) as server:
        issuer = Issuer(server)
        service = Service(tmp_path, oidc_issuer=issuer.url, oidc_audience=AUDIENCE)
        service.fill()
        code, said = status(service, issuer.token())
        assert (code, said["error_code"]) == (503, "oidc_unavailable")
        with service.client() as client:
            assert client.get("/api/v1/session", headers=bearer("x.y")).status_code == 401
            assert client.get("/api/v1/session").status_code == 200


def test_a_token_of_the_provider_is_masked(issuer: Issuer) -> None:
    """In logs and answers, as those of the service are."""
    token = issuer.token()
    assert token.split(".")[1] not in mask_tokens(f"/api/v1/dataflows/{token}")
