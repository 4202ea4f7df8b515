"""Where requests may go: every spelling of an own address is refused, before a connection."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controller.outbound.addresses import (
    AddressRefusedError,
    AddressRules,
    OutboundFailedError,
    resolve_name,
)
from controller.outbound.web_client import fetch_json, outbound_client
from tests.controller.certificates import make_certificate
from tests.controller.http_sink import HttpSink
from tests.controller.https_server import HttpsServer

PUBLIC = "93.184.215.14"
OWN = [
    *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.53", "0", "0.0.0.0"),
    *("localhost", "LOCALHOST", "localhost.", "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1"),
    *("::ffff:7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "64:ff9b:1::a00:1"),
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "fd00::1", "fc00::1"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "fe80::1", "::ffff:169.254.169.254"),
    *("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "2002:a9fe:a9fe::"),
    *("255.255.255.255", "224.0.0.1", "ff02::1", "240.0.0.1", "2001:db8::1"),
]
METADATA = ["169.254.169.254", "fd00:ec2::254", "168.63.129.16", "::ffff:a9fe:a9fe", "fe80::1"]


def rules(*hosts: str, **names: list[str]) -> AddressRules:
    """Return rules with these exceptions, for which these names resolve so."""

    def resolve(host: str, port: int) -> list[str]:
        named = host.replace(".", "_")
        return names[named] if named in names else resolve_name(host, port)

    return AddressRules.of(hosts, resolve=resolve)


@pytest.fixture
def inside() -> Iterator[HttpSink]:
    """Give what only this machine can reach."""
    sink = HttpSink()
    yield sink
    sink.close()


@pytest.mark.parametrize("host", OWN)
def test_no_spelling_of_an_own_address_is_reached(host: str) -> None:
    """Decimal, hexadecimal and octal, short, mapped, embedded: the refusal names the host."""
    with pytest.raises(AddressRefusedError) as refused:
        rules().addresses(host, 80)
    assert refused.value.code == "address_refused"
    assert refused.value.details == {"host": host}


@pytest.mark.parametrize(
    "host", [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "hooks_example"]
)
def test_an_address_of_the_internet_is_reached(host: str) -> None:
    """Else nothing would work, and a refusal of everything would pass the test above."""
    assert rules(hooks_example=[PUBLIC]).addresses(host, 443)


@pytest.mark.parametrize("other", ["127.0.0.1", "169.254.169.254", "::1", "10.9.8.7"])
def test_a_name_that_resolves_to_an_own_address_is_refused(other: str) -> None:
    """Also beside a good address: which one is dialled would be chance."""
    for found in ([other], [PUBLIC, other], [other, PUBLIC]):
        with pytest.raises(AddressRefusedError):
            rules(evil_example=found).addresses("evil.example", 80)


@pytest.mark.parametrize("host", METADATA)
def test_metadata_services_are_refused_whatever_is_allowed(host: str) -> None:
    """An exception for a network, and an address that the operator set, do not open them."""
    for judged in (rules("0.0.0.0/0", "::/0", host), AddressRules.of_operator()):
        with pytest.raises(AddressRefusedError):
            judged.addresses(host, 80)


@pytest.mark.parametrize("entry", ["hooks.corp", "HOOKS.corp.", "10.1.0.0/16", "10.1.2.3"])
def test_an_exception_opens_what_it_names_and_nothing_else(entry: str) -> None:
    """By name, address or network."""
    judged = rules(entry, hooks_corp=["10.1.2.3"], other_corp=["10.2.2.3"])
    assert judged.addresses("hooks.corp", 80) == ["10.1.2.3"]
    with pytest.raises(AddressRefusedError):
        judged.addresses("other.corp", 80)


def test_a_name_without_an_address_is_no_refusal() -> None:
    """It may have one later, so the error is one that is tried again."""

    def resolve(host: str, port: int) -> list[str]:
        raise OSError(host, port)

    with pytest.raises(OutboundFailedError) as failed:
        AddressRules.of([], resolve=resolve).addresses("gone.example", 80)
    assert failed.value.retryable


def test_the_address_that_was_judged_is_the_one_that_is_dialled(inside: HttpSink) -> None:
    """DNS rebinding: a second look-up, which would give another address, does not happen."""
    port = int(inside.url.rpartition(":")[2])
    answers = [["127.0.0.1"], ["203.0.113.1"]]
    judged = AddressRules(internal=True, resolve=lambda *_: answers.pop(0))
    with outbound_client(judged) as http:
        assert http.post(f"http://hooks.example:{port}/x", json=[1]).status_code == 200
    assert inside.bodies == [[1]]
    assert len(answers) == 1


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "unix"])
def test_other_schemes_are_refused(scheme: str) -> None:
    """Whatever the client library would make of them."""
    with (
        outbound_client(rules()) as http,
        pytest.raises((AddressRefusedError, httpx.UnsupportedProtocol)),
    ):
        http.get(f"{scheme}://{PUBLIC}/etc/passwd")


@pytest.mark.part(every=2)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]"])
def test_nothing_is_sent_to_a_refused_address(inside: HttpSink, host: str) -> None:
    """The port answers, so a request that was sent would have been seen."""
    port = inside.url.rpartition(":")[2]
    with outbound_client(rules()) as http, pytest.raises(AddressRefusedError):
        http.post(f"http://{host}:{port}/x", json={})
    assert inside.paths == []


def test_a_redirect_is_not_followed(inside: HttpSink) -> None:
    """A good address may lead to a bad one; the answer is what the first one said."""
    inside.status = 302
    with outbound_client(AddressRules.of_operator()) as http:
        assert http.post(f"{inside.url}/x", json={}).status_code == 302
    assert inside.paths == ["/x"]


def test_a_certificate_is_checked_for_the_name_of_the_url(tmp_path: Path) -> None:
    """The address that is dialled is no name of the certificate, and need not be."""
    certificate, key = make_certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate)
    trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    judged = AddressRules(internal=True, resolve=lambda *_: ["127.0.0.1"])
    with HttpsServer(certificate, key) as server, outbound_client(judged, ca=trusted) as http:
        assert fetch_json(http, f"https://localhost:{server.port}/a") == {"path": "/a"}
        with pytest.raises(OutboundFailedError, match="could not be reached"):
            fetch_json(http, f"https://other.example:{server.port}/a")


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"[" * 100_000, 200, "not a JSON object"),
        (b"[1]", 200, "not a JSON object"),
        (b'{"a": "' + b"x" * 200_000 + b'"}', 200, "more than 150000 bytes"),
        (b"{}", 404, "status 404"),
    ],
    ids=["deep", "list", "large", "status"],
)
def test_an_answer_that_cannot_be_used_is_an_error_without_the_path(
    body: bytes, status: int, why: str
) -> None:
    """Too large, too deep, something else: bounded memory, and no secret of the URL shown."""
    with (
        HttpsServer(body=body, status=status) as server,
        outbound_client(AddressRules.of_operator()) as http,
        pytest.raises(OutboundFailedError, match=why) as failed,
    ):
        fetch_json(http, f"http://127.0.0.1:{server.port}/s3cret", bytes_max=150_000)
    assert "s3cret" not in str(failed.value)
