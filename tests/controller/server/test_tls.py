"""TLS: wrong files stop the start with what to do, renewed ones are taken, clients check names."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from structlog.testing import capture_logs

from cbp.client.errors import ServiceUnreachableError
from cbp.errors import DefinitionError
from controller.api.security.guard import HSTS
from controller.client.service_client import ServiceClient, authorities_of
from controller.server.http_protocol import BoundedProtocol
from controller.server.tls import TlsFiles
from controller.settings import Settings, load_settings
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.api.security.callers import MARKED
from tests.controller.certificates import make_certificate

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Give a sound pair, which tests copy."""
    return make_certificate(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Give another sound pair, valid for longer."""
    return make_certificate(tmp_path_factory.mktemp("other"), "other", days=90)


@pytest.fixture
def pair(made: Pair, tmp_path: Path) -> Pair:
    """Give a pair that a test may spoil."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    for given, path in zip(made, (certificate, key), strict=True):
        shutil.copy(given, path)
    return certificate, key


def rule_of(certificate: Path, key: Path) -> str:
    """Return the rule by which a pair is refused."""
    with pytest.raises(DefinitionError) as refused:
        TlsFiles(certificate, key)
    mistake = refused.value.mistake
    assert str(certificate) in mistake.message or str(key) in mistake.message
    return mistake.code


def test_a_sound_pair_says_when_it_ends(pair: Pair) -> None:
    """So that the log of a renewal shows until when there is time."""
    assert ssl.cert_time_to_seconds(TlsFiles(*pair).ends) > 0


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\0\xff"])
def test_files_that_are_missing_or_no_pem_are_refused(
    pair: Pair, which: int, content: bytes | None
) -> None:
    """The message names the file."""
    pair[which].unlink()
    if content is not None:
        pair[which].write_bytes(content)
        pair[which].chmod(0o600)
    assert rule_of(*pair) == "tls_file_invalid"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(pair: Pair, mode: int) -> None:
    """It would be no secret, as with the token file."""
    pair[1].chmod(mode)
    assert rule_of(*pair) == "tls_key_open"


def test_a_key_of_another_certificate_is_refused(pair: Pair, other: Pair) -> None:
    """No client could connect."""
    assert rule_of(pair[0], other[1]) == "tls_mismatch"


def test_a_key_with_a_password_is_refused_without_asking(pair: Pair, tmp_path: Path) -> None:
    """A service has nobody at its terminal."""
    command = ["openssl", "ec", "-in", str(pair[1]), "-aes256", "-passout", "pass:x"]
    locked = tmp_path / "locked.key"
    locked.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    locked.chmod(0o600)
    assert rule_of(pair[0], locked) == "tls_file_invalid"


@pytest.mark.parametrize(
    ("since", "until", "rule"),
    [
        ("20200101000000Z", "20210101000000Z", "tls_expired"),
        ("20980101000000Z", "20990101000000Z", "tls_not_yet_valid"),
    ],
)
def test_a_certificate_out_of_its_time_is_refused(
    since: str, until: str, rule: str, tmp_path: Path
) -> None:
    """At the start, and not by the first client."""
    assert rule_of(*make_certificate(tmp_path, since=since, until=until)) == rule


@pytest.mark.parametrize("given", ["tls_cert", "tls_key"])
def test_one_of_the_two_settings_is_refused(given: str, tmp_path: Path) -> None:
    """Half of a pair would be a service without TLS that seems to have it."""
    with pytest.raises(DefinitionError, match="are a pair"):
        load_settings(root=tmp_path, **{given: tmp_path / "x"})


def test_the_address_says_how_the_service_is_spoken_to(pair: Pair, tmp_path: Path) -> None:
    """HTTPS with a certificate, or for a client with the authorities; its name if one is given."""
    files = dict(zip(("tls_cert", "tls_key"), pair, strict=True))
    assert load_settings(root=tmp_path).url == "http://127.0.0.1:8420"
    assert load_settings(root=tmp_path, **files).url == "https://127.0.0.1:8420"
    assert load_settings(root=tmp_path, ca=pair[0]).url == "https://127.0.0.1:8420"
    named = load_settings(root=tmp_path, advertise_url="https://cbp.corp:8420", **files)
    assert named.url == "https://cbp.corp:8420"


def test_authorities_that_are_none_are_told(tmp_path: Path) -> None:
    """The command says which file, and not that the service is not reached."""
    wrong = tmp_path / "ca.pem"
    wrong.write_text("nonsense")
    with pytest.raises(DefinitionError) as refused:
        authorities_of(load_settings(root=tmp_path, ca=wrong))
    assert refused.value.mistake.code == "ca_invalid"


class Served:
    """The API over fakes, behind TLS, on a port of its own."""

    def __init__(self, root: Path, pair: Pair, **settings: Any) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.service = Service(root, port=port, tls_cert=pair[0], tls_key=pair[1], **settings)
        self.settings: Settings = self.service.settings
        self.files = TlsFiles(*pair)
        configuration = uvicorn.Config(
            self.service.app,
            http=BoundedProtocol,
            log_config=None,
            lifespan="off",
            ssl_context_factory=lambda *_: self.files.context,
        )
        self._server = uvicorn.Server(configuration)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), daemon=True
        )
        self._thread.start()

    def certificate(self) -> bytes:
        """Return the certificate that a new connection gets."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = ("127.0.0.1", self.settings.port)
        with (
            socket.create_connection(address, timeout=120) as plain,
            context.wrap_socket(plain) as connection,
        ):
            return connection.getpeercert(binary_form=True) or b""

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(120)
        self._listener.close()


@pytest.fixture
def served(tmp_path: Path, pair: Pair) -> Iterator[Served]:
    """Give a service behind TLS."""
    made = Served(tmp_path / "root", pair)
    yield made
    made.close()


def test_commands_speak_https_with_a_service_of_this_machine(served: Served) -> None:
    """Its own certificate is trusted with nothing else to set; plain HTTP gets no answer."""
    with ServiceClient(served.settings) as client:
        assert client.get("dataflows") == {"items": [], "cursor": None}
    with pytest.raises(httpx.TransportError):
        httpx.get(served.settings.url.replace("https", "http"), timeout=120)


def test_commands_refuse_a_service_with_a_certificate_of_nobody_they_trust(
    served: Served, other: Pair, tmp_path: Path
) -> None:
    """A token is not sent to an unknown server; with `CBP_CA` the right one is known."""
    port = served.settings.port
    for ca, refused in ((other[0], True), (served.settings.tls_cert, False)):
        settings = load_settings(root=tmp_path / "client", port=port, ca=ca, token=TOKEN)
        with ServiceClient(settings) as client:
            if refused:
                with pytest.raises(ServiceUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                    client.get("dataflows")
            else:
                assert client.get("dataflows")["items"] == []


def test_a_session_cookie_of_https_is_secure(served: Served) -> None:
    """No browser sends it in the clear; and only HTTPS is an origin of the service."""
    service, url = served.service, served.settings.url
    code, _ = service.access.sessions.make_code(service.access.authentication.admin)
    trusted = authorities_of(served.settings)
    with httpx.Client(base_url=url, verify=trusted, headers=MARKED, trust_env=False) as http:
        signed = http.post("/api/v1/session", json={"code": code})
        assert signed.status_code == 201, signed.text
        assert "Secure" in signed.headers["set-cookie"]
        for origin, status in ((url, 200), (url.replace("https", "http"), 403)):
            answer = http.get("/api/v1/session", headers={"Origin": origin})
            assert answer.status_code == status, origin


def test_browsers_are_told_to_stay_with_https_but_on_loopback_names(
    tmp_path: Path, pair: Pair
) -> None:
    """HSTS holds for every port of a name, so it would lock a developer's other services out."""
    files = dict(zip(("tls_cert", "tls_key"), pair, strict=True))
    service = Service(tmp_path, host="0.0.0.0", allow_remote=True, **files)
    with service.client() as client:
        path = "/api/v1/dataflows"
        remote = client.get(path, headers={"Host": "192.0.2.7"})
        local = client.get(path, headers={"Host": "localhost:8420"})
    assert remote.headers["strict-transport-security"] == HSTS
    assert "strict-transport-security" not in local.headers


def test_renewed_files_are_taken_by_new_connections(served: Served, other: Pair) -> None:
    """Without a restart, and the connection that is open goes on."""
    paths = served.settings.tls_cert, served.settings.tls_key
    before = served.certificate()
    with ServiceClient(served.settings) as client:
        client.get("dataflows")
        assert not served.files.reload()
        for given, path in zip(other, paths, strict=True):
            assert path is not None
            shutil.copy(given, path)
        assert served.files.reload()
        client.get("dataflows")
    assert before != served.certificate() == ssl.PEM_cert_to_DER_cert(other[0].read_text())


def test_half_of_a_renewal_changes_nothing(served: Served, other: Pair) -> None:
    """The new certificate beside the old key: said once, the old pair serves, then the new one."""
    certificate, key = served.settings.tls_cert, served.settings.tls_key
    assert certificate is not None
    assert key is not None
    before = served.certificate()
    shutil.copy(other[0], certificate)
    with capture_logs() as logs:
        assert not served.files.reload()
        assert not served.files.reload()
    assert [one["event"] for one in logs] == ["tls.not_reloaded"]
    assert served.certificate() == before
    shutil.copy(other[1], key)
    assert served.files.reload()
    assert served.certificate() != before


def test_files_are_looked_at_again_and_again(pair: Pair, other: Pair) -> None:
    """Until the service ends."""
    files, ended = TlsFiles(*pair), threading.Event()
    reloaded = threading.Event()
    reload = files.reload

    def note() -> bool:
        taken = reload()
        if taken:
            reloaded.set()
        return taken

    files.reload = note  # type: ignore[method-assign]
    thread = files.watch(ended, seconds=0.01)
    for given, path in zip(other, pair, strict=True):
        shutil.copy(given, path)
    assert reloaded.wait(120)
    ended.set()
    thread.join(120)
    assert not thread.is_alive()


def test_a_file_that_is_missing_is_reported_once(pair: Pair) -> None:
    """However often it is looked for; a second loss is another report."""
    files, away = TlsFiles(*pair), pair[1].with_suffix(".away")
    with capture_logs() as logs:
        for number in (1, 2):
            pair[1].rename(away)
            assert not any(files.reload() for _ in range(3))
            assert len(logs) == number
            away.rename(pair[1])
            assert not files.reload()
    assert {one["event"] for one in logs} == {"tls.not_reloaded"}


class Vanishing(TlsFiles):
    """Loses the certificate as soon as it has been loaded, as a renewal may do for a moment."""

    vanishes = False

    def _load(self) -> ssl.SSLContext:
        context = super()._load()
        if self.vanishes:
            self._certificate.rename(self._certificate.with_suffix(".away"))
        return context


def test_a_file_that_vanishes_during_a_renewal_is_an_invalid_pair(pair: Pair) -> None:
    """Whatever the moment; the thread that looks for renewals goes on."""
    files = Vanishing(*pair)
    files.vanishes = True
    os.utime(pair[0])
    with capture_logs() as logs:
        assert not files.reload()
    assert logs[0]["error"]["details"]["rule"] == "tls_file_invalid"


def test_an_invalid_pair_is_taken_once_it_is_valid(pair: Pair) -> None:
    """Also if no file changes any more, as for a certificate that becomes valid in a minute."""
    files = Vanishing(*pair)
    files.vanishes = True
    os.utime(pair[0])
    assert not files.reload()
    files.vanishes = False
    pair[0].with_suffix(".away").rename(pair[0])
    assert files.reload()
    assert not files.reload()
