"""The commands `cbp link`, `cbp tokens` and `cbp audit`."""

from __future__ import annotations

from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED
from tests.controller.cli.conftest import Cbp


def test_a_link_signs_in_with_its_scope(cbp: Cbp, service: Service) -> None:
    """The printed address is the service's; the code in its fragment works once."""
    outcome = cbp("link", "--scope", "viewer", "--json")
    assert outcome.status == 0
    address, _, code = outcome.json["link"].partition("#code=")
    assert address == f"{service.settings.url}/ui/sign-in"
    with service.client(token=None) as client:
        answer = client.post("/api/v1/session", json={"code": code}, headers=MARKED)
        assert answer.json()["scope"] == "viewer"
    assert cbp("link").out.startswith(address)
    assert cbp("link", "--scope", "king").status == 1


def test_a_token_is_made_listed_rotated_and_revoked(cbp: Cbp, service: Service) -> None:
    """Its secret is printed when it is made, and in no list."""
    made = cbp("tokens", "new", "ci", "--scope", "operator", "--dataflow", "clicks", "--json").json
    secret = made["secret"]
    assert service.access.authentication.identify_token(secret).dataflows == ("clicks",)
    listed = cbp("tokens", "list")
    assert "operator" in listed.out
    assert "valid" in listed.out
    assert secret not in listed.out
    rotated = cbp("tokens", "rotate", "ci", "--json").json["secret"]
    assert rotated != secret
    assert service.access.authentication.identify_token(rotated).token == "ci"
    assert cbp("tokens", "revoke", "ci").out.startswith("ci was revoked")
    assert [one["state"] for one in cbp("tokens", "list", "--json").json["items"]] == ["revoked"]
    assert "revoked" in cbp("tokens", "rotate", "ci").err


def test_a_token_has_an_end_unless_one_says_so(cbp: Cbp) -> None:
    """Ninety days by default."""
    assert cbp("tokens", "new", "a", "--json").json["token"]["expires_at"] is not None
    made = cbp("tokens", "new", "b", "--never-expires", "--json").json["token"]
    assert made["expires_at"] is None
    assert made["scope"] == "viewer"


def test_sessions_are_listed_and_ended(cbp: Cbp, service: Service) -> None:
    """By their id."""
    _, code = service.access.sessions.make_code(service.access.authentication.admin)
    service.access.sessions.begin(code, address="::1", agent="Browser\n")
    (item,) = cbp("tokens", "sessions", "--json").json["items"]
    assert item["id"] in cbp("tokens", "sessions").out
    assert cbp("tokens", "sessions", "--end", item["id"]).status == 0
    assert "no one" in cbp("tokens", "sessions").out
    assert cbp("tokens", "sessions", "--end", item["id"]).status == 1


def test_the_audit_log_says_who_called(cbp: Cbp, service: Service) -> None:
    """The command shows its user; filters are the service's."""
    service.fill()
    cbp("pause", "clicks")
    cbp("pause", "nobody")
    items = cbp("audit", "--dataflow", "clicks", "--json").json["items"]
    assert [(one["action"], one["outcome"]) for one in items] == [("dataflows_pause", "done")]
    assert "@" in items[0]["user"]
    shown = cbp("audit").out
    assert "not_found" in shown
    assert "token-file" in shown
    assert "not_found" not in cbp("audit", "--outcome", "done").out
    assert "no entries" in cbp("audit", "--until", "2020-01-01").out
    assert "no entries" not in cbp("audit", "--since", "999d").out
